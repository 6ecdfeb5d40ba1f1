//! Limits that travel with calls.

use super::arguments::{Raw, Text, fresh};
use super::{World, call};
use std::ffi::c_void;
use tollgate::ffi::*;

impl World<'_> {
    /// A limit that is read has the oracle's numbers, and a lane with a limit of its own refuses it.
    pub(super) fn read_call_limit(&mut self) {
        let (written, lane) = self.limit();
        let text = Text::draw(&mut self.bytes, &written);
        let mut faults: Vec<Status> = text.faults().collect();
        let mut limit = fresh::<CallLimit>();
        let before = limit;
        let place = self.handle(&raw mut limit, &mut faults);
        let mut raw = Raw::<512>::new(512);
        let error = self.error(&mut raw, &mut faults);
        let status = call!(self, tollgate_call_limit_read(text.start(), text.len, error, place));
        let found = if faults.is_empty() { &[Status::InvalidLimit][..] } else { &[] };
        let numbers = |limit: CallLimit| (limit.capacity, limit.count, limit.period_ns);
        if !self.judge_error(status, &faults, found, &raw, !error.is_null()) {
            return assert_eq!(numbers(limit), numbers(before), "written in spite of {status:?}");
        }
        if text.bytes == written.as_bytes() {
            assert_eq!(Some(numbers(limit)), lane.map(|lane| (lane.capacity, 1, lane.token_ns)), "{written}");
        }
        let Some(watched) = self.take_limiter() else { return };
        let own = watched.lanes.iter().position(Option::is_some);
        if let Some(lane) = own {
            let id = b"a".as_ptr().cast::<c_void>();
            let request = Request { id, id_len: 1, cost: 1, lane: lane as u32, plan: TOLLGATE_NONE, limit: &limit };
            let mut verdict = Raw::<72>::blank();
            let place = (&raw mut verdict).cast::<Verdict>();
            let status = call!(self, tollgate_check(watched.limiter, &request, TOLLGATE_NOW, 0, place));
            self.judge(status, &[Status::LimitGiven]);
            assert!(verdict.is_blank(), "written in spite of {status:?}");
        }
        self.limiters.push(watched);
    }
}
