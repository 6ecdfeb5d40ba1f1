//! Calls about actions.

use super::arguments::Raw;
use super::oracle::Watched;
use super::{World, call};
use tollgate::ffi::*;

impl World<'_> {
    pub(super) fn look_at_actions(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        if self.bytes.once_in(2) {
            return self.look_at_unknown(limiter, faults);
        }
        let (channel, action) = (self.text(&["ws", "d", "http"]), self.text(&["ping", "dance"]));
        faults.extend(channel.faults().chain(action.faults()));
        let mut raw = Raw::<16>::tagged(&mut self.bytes, &mut faults);
        let place = self.handle((&raw mut raw).cast::<ActionLane>(), &mut faults);
        let (from, len, of, of_len) = (channel.start(), channel.len, action.start(), action.len);
        let status = call!(self, tollgate_lane_for(limiter, from, len, of, of_len, place));
        if faults.is_empty() && status == Status::UnknownLane {
            self.judge(status, &[status]);
        } else if self.judge(status, &faults) {
            let found = raw.read::<ActionLane>();
            assert!(found.known + found.first_seen <= 1 && (found.lane as usize) < TOLLGATE_LANES_MAX, "{found:?}");
            return;
        }
        assert!(raw.is_untouched());
    }

    fn look_at_unknown(&mut self, limiter: *mut Limiter, mut faults: Vec<Status>) {
        let mut raw = Raw::<24>::tagged(&mut self.bytes, &mut faults);
        let place = self.handle((&raw mut raw).cast::<UnknownActionTotals>(), &mut faults);
        let mut actions = [Raw::<144>::blank(); 3];
        let (start, size) = self.room(&mut actions, &mut faults);
        let status = call!(self, tollgate_unknown_actions(limiter, start.cast(), size, place));
        if !self.judge(status, &faults) {
            return assert!(raw.is_untouched() && actions.iter().all(Raw::is_blank));
        }
        let totals = raw.read::<UnknownActionTotals>();
        assert!(totals.count <= 256 && u64::from(totals.count) <= totals.total && totals.not_listed == 0, "{totals:?}");
        let written = Self::written(&actions, start, size, totals.count as usize);
        for action in &actions[..written] {
            let action = action.read::<UnknownAction>();
            assert!(action.channel.contains(&0) && action.name.contains(&0));
        }
    }
}
