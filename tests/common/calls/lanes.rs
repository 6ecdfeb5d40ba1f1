//! Calls on single lanes: look, give back, hold, start over.

use super::arguments::{Agent, Raw};
use super::oracle::Watched;
use super::{World, call};
use std::ptr::null_mut;
use tollgate::ffi::*;

impl World<'_> {
    /// Peek and refund: both end in the state of a lane.
    pub(super) fn look_or_refund(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        let lane = self.lane();
        let refund = self.bytes.once_in(2);
        let cost = if refund { u64::from(self.bytes.below(5)) } else { 1 };
        let (at, now) = self.instant();
        // A refund may go without a place for the state.
        let is_wanted = !(refund && self.bytes.once_in(8));
        let mut raw = if is_wanted { Raw::<40>::tagged(&mut self.bytes, &mut faults) } else { Raw::new(40) };
        let place = match (is_wanted, refund) {
            (false, _) => null_mut(),
            (true, true) => (&raw mut raw).cast::<LaneState>(),
            (true, false) => self.handle((&raw mut raw).cast(), &mut faults),
        };
        faults.extend(agent.fault());
        let plan = self.plan(&mut faults);
        // Looking asks no price.
        let decided = watched.is_decided(&agent);
        let limit = watched.lanes.get(lane as usize).map(|limit| limit.filter(|_| !decided));
        let price = match (refund, limit) {
            (_, None) => {
                faults.push(Status::UnknownLane);
                None
            }
            (true, _) => Self::price(watched, &agent, lane, cost, &mut faults),
            (false, Some(limit)) => limit.map(|limit| (limit, 0)),
        };
        let mut request = agent.request(lane, cost, plan);
        let asked = self.handle(&raw mut request, &mut faults);
        let status = match refund {
            true => call!(self, tollgate_refund(limiter, asked, at, place)),
            false => call!(self, tollgate_peek(limiter, asked, at, place)),
        };
        if faults.is_empty() && price.is_none() {
            return watched.at(now, self.now); // A limit that nobody here can read.
        }
        if !self.judge(status, &faults) {
            return assert!(raw.is_untouched(), "written in spite of {status:?}");
        }
        watched.at(now, self.now);
        // A refund is made at the clock's time at least.
        let now = if refund { now.max(self.now) } else { now };
        let Some((limit, price)) = price else { return };
        if refund && watched.has_reserved(agent.key(), lane) {
            // What is reserved stays, and the oracle does not know how much that is.
            watched.decided.insert(agent.key().to_vec());
            return;
        }
        let full_at = match refund {
            true => watched.give_back(agent.key(), lane, price, now),
            false => watched.full_at(agent.key(), lane),
        };
        if place.is_null() {
            return assert!(raw.is_untouched());
        }
        let (state, expected) = (raw.read::<LaneState>(), limit.state(full_at, now));
        assert!(!watched.is_judged() || state.remaining <= expected.remaining, "{state:?}, at most {expected:?}");
        assert!(!watched.is_exact() || state == expected, "{state:?}, expected {expected:?}");
    }

    /// No lane of the oracle's is a slot to hold; others may be.
    pub(super) fn hold(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        faults.extend(agent.fault());
        let lane = self.lane();
        let is_unknown = watched.lanes.get(lane as usize).is_some_and(Option::is_none);
        faults.extend(match watched.lanes.get(lane as usize) {
            None => Some(Status::UnknownLane),
            Some(Some(_)) => Some(Status::WrongKind),
            Some(None) => None,
        });
        if is_unknown && agent.fault().is_none() {
            Self::note(watched, agent.key());
        }
        let (at, now) = self.instant();
        let (cost, plan) = (1 + u64::from(self.bytes.below(2)), self.plan(&mut faults));
        let mut request = agent.request(lane, cost, plan);
        let asked = self.handle(&raw mut request, &mut faults);
        let (mut verdict, mut state) = (Raw::<72>::blank(), Raw::<40>::new(40));
        let (status, is_written) = if self.bytes.once_in(2) {
            let flags = self.flags(TOLLGATE_COUNTED, &mut faults);
            let place = self.handle((&raw mut verdict).cast::<Verdict>(), &mut faults);
            let status = call!(self, tollgate_hold(limiter, asked, at, flags, place));
            if status == Status::Ok {
                self.fits(&verdict.read(), flags);
            }
            (status, !verdict.is_blank())
        } else {
            let is_wanted = !self.bytes.once_in(4);
            let place = if is_wanted { (&raw mut state).cast::<LaneState>() } else { null_mut() };
            let status = call!(self, tollgate_release(limiter, asked, at, place));
            (status, !state.is_untouched() || (!is_wanted && status == Status::Ok))
        };
        if is_unknown && !faults.is_empty() {
            faults.push(Status::WrongKind); // Whichever is looked at first.
        }
        if is_unknown && faults.is_empty() {
            *self.report.statuses.entry(status as i32).or_default() += 1;
            watched.at(now, self.now);
        } else {
            self.judge(status, &faults);
        }
        assert_eq!(is_written, status == Status::Ok);
    }

    /// Reset, of one lane or all, and forget.
    pub(super) fn reset_or_forget(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        faults.extend(agent.fault());
        let (at, now) = self.instant();
        let (id, len) = (agent.id(), agent.len);
        let lanes = watched.lanes.len() as u32;
        if self.bytes.below(3) == 0 {
            let known = self
                .ask(faults, |world, place: *mut u8| call!(world, tollgate_forget(limiter, id, len, at, place.cast())));
            if known.is_some() {
                watched.forget_reservations(agent.key());
                (0..lanes).for_each(|lane| watched.set(agent.key(), lane, 0));
                watched.at(now, self.now);
            }
            return assert!(known.is_none_or(|known| known <= 1));
        }
        let lane = if self.bytes.once_in(2) { TOLLGATE_NONE } else { u32::from(self.bytes.below(5)) };
        if lane >= lanes && lane != TOLLGATE_NONE {
            faults.push(Status::UnknownLane);
        }
        let status = call!(self, tollgate_reset(limiter, id, len, lane, at));
        if self.judge(status, &faults) {
            watched.at(now, self.now);
            watched.forgive_reservations(agent.key());
            for lane in if lane == TOLLGATE_NONE { 0..lanes } else { lane..lane + 1 } {
                watched.give_back(agent.key(), lane, u64::MAX, now);
            }
        }
    }
}
