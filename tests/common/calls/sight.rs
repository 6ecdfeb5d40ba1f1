//! Calls that see what a limiter does.

use super::arguments::{Agent, Raw, UNTOUCHED};
use super::oracle::Watched;
use super::{World, call};
use std::ptr::null_mut;
use tollgate::ffi::*;

impl World<'_> {
    pub(super) fn look_at_sight(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        match self.bytes.below(6) {
            0 => {
                let mut raw = Raw::<192>::new(if self.bytes.once_in(32) { 191 } else { 192 });
                if raw.0[0] < 192 {
                    faults.push(Status::StructSize);
                }
                let place = self.handle((&raw mut raw).cast::<Snapshot>(), &mut faults);
                let (mut lanes, mut len) = ([Raw::<32>([UNTOUCHED; 32]); 8], usize::MAX);
                let size = usize::from(self.bytes.below(9));
                let lanes_out = lanes.as_mut_ptr().cast();
                let status = call!(self, tollgate_limiter_snapshot(to, place, lanes_out, size, &mut len));
                if self.judge_room(status, &mut faults) {
                    let told = raw.read::<Snapshot>();
                    assert!(len <= size && told.agents <= told.records && told.counting <= 1, "{told:?}");
                } else {
                    assert!(raw.is_untouched() && len == usize::MAX);
                }
            }
            1 => {
                let agent = Agent::draw(&mut self.bytes);
                faults.extend(agent.fault());
                let (own, now) = self.instant();
                let (id, id_len) = (agent.id(), agent.len);
                self.view(faults, |world, view, lanes, size, len| match own {
                    true => call!(world, tollgate_limiter_agent_at(to, id, id_len, now, view, lanes, size, len)),
                    false => call!(world, tollgate_limiter_agent(to, id, id_len, view, lanes, size, len)),
                });
            }
            2 => {
                let prefix = Agent::draw(&mut self.bytes);
                let mut query = AgentQuery {
                    struct_size: 56,
                    sort: i32::from(self.bytes.below(4)),
                    prefix: prefix.id(),
                    prefix_len: prefix.len,
                    part: prefix.id(),
                    part_len: prefix.len.min(1),
                    page: u64::from(self.bytes.below(3)),
                    per_page: self.bytes.number(),
                };
                if self.bytes.once_in(24) {
                    query.struct_size = 55;
                    faults.push(Status::StructSize);
                }
                if query.sort > 2 {
                    faults.push(Status::InvalidOption);
                }
                if !prefix.null && prefix.len > TOLLGATE_ID_BYTES_MAX {
                    faults.push(Status::IdTooLong);
                }
                let mut page = null_mut();
                let status = call!(self, tollgate_limiter_agents(to, &query, &mut page));
                assert_eq!(self.judge(status, &faults), !page.is_null());
                self.look_at_page(page);
                call!(self, tollgate_agent_page_free(page));
            }
            3 => {
                let mut offenders = null_mut();
                let most = self.bytes.number() as usize;
                let status = call!(self, tollgate_limiter_top_offenders(to, most, &mut offenders));
                assert_eq!(self.judge(status, &faults), !offenders.is_null());
                self.look_at_offenders(offenders);
                call!(self, tollgate_offenders_free(offenders));
            }
            4 => {
                let mut raw = Raw::<472>::new(if self.bytes.once_in(32) { 471 } else { 472 });
                if raw.0[0] < (472_u32 & 0xff) as u8 {
                    faults.push(Status::StructSize);
                }
                let place = self.handle((&raw mut raw).cast::<Event>(), &mut faults);
                let polled = self.ask(faults, |world, polled: *mut u8| {
                    call!(world, tollgate_limiter_poll_event(to, place, polled.cast()))
                });
                assert_eq!(raw.is_untouched(), polled != Some(1));
            }
            _ if self.bytes.once_in(4) => {
                let mut len = usize::MAX;
                let status = call!(self, tollgate_limiter_status_document(to, null_mut(), 0, &mut len));
                assert_eq!(self.judge(status, &faults), len != usize::MAX);
            }
            _ => self.log_and_show(),
        }
    }

    /// Holds a status against the faults, or against too small a buffer.
    fn judge_room(&mut self, status: Status, faults: &mut Vec<Status>) -> bool {
        let found = [Status::BufferTooSmall, Status::OutOfRange];
        if found.contains(&status) {
            faults.push(status);
        }
        self.judge(status, faults)
    }

    fn view(
        &mut self,
        mut faults: Vec<Status>,
        ask: impl FnOnce(&mut Self, *mut AgentView, *mut LaneView, usize, *mut usize) -> Status,
    ) {
        let mut raw = Raw::<56>::new(if self.bytes.once_in(32) { 55 } else { 56 });
        if raw.0[0] < 56 {
            faults.push(Status::StructSize);
        }
        let place = self.handle((&raw mut raw).cast::<AgentView>(), &mut faults);
        let (mut lanes, mut len) = ([Raw::<48>([UNTOUCHED; 48]); 8], usize::MAX);
        let size = usize::from(self.bytes.below(9));
        let status = ask(self, place, lanes.as_mut_ptr().cast(), size, &mut len);
        if self.judge_room(status, &mut faults) {
            let told = raw.read::<AgentView>();
            assert!(len <= size && told.known <= 1 && told.exempt <= 1 && told.violations <= 63, "{told:?}");
            for lane in &lanes[..len] {
                let lane = lane.read::<LaneView>();
                assert!(lane.remaining <= lane.capacity && (0.0..=100.0).contains(&lane.usage_percent), "{lane:?}");
            }
        } else {
            assert!(raw.is_untouched() && len == usize::MAX);
        }
    }

    fn look_at_page(&mut self, page: *mut AgentPage) {
        let mut faults = Vec::new();
        let page = self.handle(page, &mut faults);
        let index = usize::from(self.bytes.below(4));
        match self.bytes.below(5) {
            0 => {
                let count = self.ask(faults, |world, place| call!(world, tollgate_agent_page_count(page, place)));
                assert!(count.is_none_or(|count: usize| count <= TOLLGATE_PAGE_MAX));
            }
            1 => {
                self.ask(faults, |world, place: *mut u64| call!(world, tollgate_agent_page_matched(page, place)));
            }
            2 => {
                self.ask(faults, |world, place: *mut u64| call!(world, tollgate_agent_page_not_listed(page, place)));
            }
            3 => self.id(faults, |world, place, size, len| {
                call!(world, tollgate_agent_page_id(page, index, place, size, len))
            }),
            _ => self.view(faults, |world, view, lanes, size, len| {
                call!(world, tollgate_agent_page_agent(page, index, view, lanes, size, len))
            }),
        }
    }

    fn id(
        &mut self,
        mut faults: Vec<Status>,
        ask: impl FnOnce(&mut Self, *mut std::ffi::c_void, usize, *mut usize) -> Status,
    ) {
        let mut buffer = [UNTOUCHED; TOLLGATE_ID_BYTES_MAX];
        let (size, mut len) = (self.bytes.number() as usize % (TOLLGATE_ID_BYTES_MAX + 1), usize::MAX);
        let status = ask(self, buffer.as_mut_ptr().cast(), size, &mut len);
        if self.judge_room(status, &mut faults) {
            assert!((1..=size).contains(&len));
        } else {
            assert!(len == usize::MAX && buffer.iter().all(|byte| *byte == UNTOUCHED));
        }
    }

    fn look_at_offenders(&mut self, offenders: *mut Offenders) {
        let mut faults = Vec::new();
        let offenders = self.handle(offenders, &mut faults);
        let index = usize::from(self.bytes.below(3));
        match self.bytes.below(4) {
            0 => {
                self.ask(faults, |world, place: *mut usize| call!(world, tollgate_offenders_count(offenders, place)));
            }
            1 => {
                self.ask(faults, |world, place: *mut u64| call!(world, tollgate_offenders_total(offenders, place)));
            }
            2 => self.id(faults, |world, place, size, len| {
                call!(world, tollgate_offenders_id(offenders, index, place, size, len))
            }),
            _ => {
                let (mut violations, mut error) = (u64::MAX, u64::MAX);
                let place = self.handle(&raw mut violations, &mut faults);
                let status = call!(self, tollgate_offenders_violations(offenders, index, place, &mut error));
                let told = self.judge_room(status, &mut faults);
                assert_eq!((told, told), (violations != u64::MAX, error != u64::MAX));
            }
        }
    }

    /// What needs no limiter.
    fn log_and_show(&mut self) {
        let mut log = null_mut();
        assert_eq!(call!(self, tollgate_log_throttle_new(&mut log)), Status::Ok);
        for _ in 0..self.bytes.below(8) {
            let mut faults = Vec::new();
            let to = self.handle(log, &mut faults);
            let (_, now) = self.instant();
            match self.bytes.below(4) {
                0 => {
                    let lines =
                        self.ask(faults, |world, place| call!(world, tollgate_log_throttle_due(to, now, place)));
                    assert!(lines.is_none_or(|lines: usize| lines <= 64));
                }
                1 => self.ask_text(&faults, &[Status::OutOfRange], |world, place, size, len| {
                    call!(world, tollgate_log_throttle_line(to, place, size, len))
                }),
                _ => {
                    let agent = Agent::draw(&mut self.bytes);
                    faults.extend(agent.fault());
                    let line = self.ask(faults, |world, place: *mut u8| {
                        call!(world, tollgate_log_throttle_denied(to, agent.id(), agent.len, now, place.cast()))
                    });
                    assert!(line.is_none_or(|line| line <= 1));
                }
            }
        }
        call!(self, tollgate_log_throttle_free(log));
        let agent = Agent::draw(&mut self.bytes);
        let mut faults: Vec<Status> = agent.fault().filter(|fault| *fault != Status::EmptyId).into_iter().collect();
        let shown = i32::from(self.bytes.below(6));
        if shown > 4 {
            faults.push(Status::InvalidOption);
        }
        self.ask_text(&faults, &[], |world, place, size, len| {
            call!(world, tollgate_id_shown(agent.id(), agent.len, shown, place, size, len))
        });
    }
}
