//! Calls on builders, policies and clocks.

use super::arguments::{Raw, Text, UNTOUCHED};
use super::oracle::{KNOWN_LIMITS, Lane, OTHER_LIMITS, TIME_MAX, known_limit};
use super::{Known, World, call};
use std::ptr::null_mut;
use tollgate::ffi::*;

impl World<'_> {
    pub(super) fn new_builder(&mut self) {
        call!(self, tollgate_policy_builder_free(self.builder));
        self.builder = null_mut();
        self.added.clear();
        self.warn_percent = 20;
        let mut builder = null_mut();
        assert_eq!(call!(self, tollgate_policy_builder_new(&mut builder)), Status::Ok);
        assert_eq!(call!(self, tollgate_policy_builder_new(null_mut())), Status::NullPointer);
        self.builder = builder;
    }

    pub(super) fn add_lane(&mut self) {
        let usual = match self.bytes.once_in(4) {
            true => OTHER_LIMITS[usize::from(self.bytes.below(OTHER_LIMITS.len() as u8))],
            false => KNOWN_LIMITS[usize::from(self.bytes.below(KNOWN_LIMITS.len() as u8))].0,
        };
        let name = ["a", "b", "c", "d/e", "a b", "\u{e9}"][usize::from(self.bytes.below(6))];
        let mut faults = Vec::new();
        let builder = self.handle(self.builder, &mut faults);
        let (name, limit) = (Text::draw(&mut self.bytes, name), Text::draw(&mut self.bytes, usual));
        faults.extend(name.faults().chain(limit.faults()));
        let status =
            call!(self, tollgate_policy_builder_lane(builder, name.start(), name.len, limit.start(), limit.len));
        if self.judge(status, &faults) {
            self.added.push(known_limit(&limit.bytes));
        }
    }

    pub(super) fn add_bucket(&mut self) {
        let mut faults = Vec::new();
        let builder = self.handle(self.builder, &mut faults);
        let name = ["a", "b", "c", "d/e"][usize::from(self.bytes.below(4))];
        let name = Text::draw(&mut self.bytes, name);
        faults.extend(name.faults());
        let (tokens, per, capacity) = (self.bytes.number(), self.bytes.number(), self.bytes.number());
        let status =
            call!(self, tollgate_policy_builder_lane_bucket(builder, name.start(), name.len, tokens, per, capacity));
        if self.judge(status, &faults) {
            self.added.push(Some(Lane::bucket(tokens, per, capacity)));
        }
    }

    pub(super) fn warn_below(&mut self) {
        let mut faults = Vec::new();
        let builder = self.handle(self.builder, &mut faults);
        let percent = self.bytes.number() as u32;
        if percent > 100 {
            faults.push(Status::InvalidOption);
        }
        let status = call!(self, tollgate_policy_builder_warn_below_percent(builder, percent));
        if self.judge(status, &faults) {
            self.warn_percent = u64::from(percent);
        }
    }

    /// Whether a policy makes sense is for the library to say; the oracle takes it from there.
    pub(super) fn build(&mut self) {
        let mut policy = null_mut();
        let mut faults = Vec::new();
        let builder = self.handle(self.builder, &mut faults);
        let place = self.handle(&raw mut policy, &mut faults);
        let tag = if self.bytes.once_in(16) { self.bytes.number() as u32 } else { 512 };
        let mut error = Raw::<512>::new(tag);
        let error_out: *mut Error = if self.bytes.once_in(4) { null_mut() } else { (&raw mut error).cast() };
        if !error_out.is_null() && tag < 512 {
            faults.push(Status::StructSize);
        }
        let status = call!(self, tollgate_policy_builder_build(builder, place, error_out));
        if faults.is_empty() && status == Status::InvalidPolicy {
            if !error_out.is_null() {
                assert!(error.0[16] != 0 && error.0.contains(&0), "a refusal says why");
            }
            self.judge(status, &[Status::InvalidPolicy]);
            assert!(policy.is_null());
            return self.new_builder();
        }
        if !self.judge(status, &faults) {
            assert!(policy.is_null());
            return;
        }
        assert!(error.is_untouched());
        self.policies.push(Known { policy, lanes: self.added.clone(), warn_percent: self.warn_percent });
        if self.policies.len() > 2 {
            let oldest = self.policies.remove(0);
            call!(self, tollgate_policy_free(oldest.policy));
        }
    }

    pub(super) fn look_at_policy(&mut self) {
        let Some(index) = self.policies.len().checked_sub(1) else { return };
        let (policy, lanes, percent) =
            (self.policies[index].policy, self.policies[index].lanes.len() as u32, self.policies[index].warn_percent);
        let mut faults = Vec::new();
        let policy = self.handle(policy, &mut faults);
        match self.bytes.below(4) {
            0 => {
                let count = self.ask(faults, |world, place| call!(world, tollgate_policy_lane_count(policy, place)));
                assert!(count.is_none_or(|count| count == lanes));
            }
            1 => {
                let told =
                    self.ask(faults, |world, place| call!(world, tollgate_policy_warn_below_percent(policy, place)));
                assert!(told.is_none_or(|told| u64::from(told) == percent));
            }
            2 => {
                let name = Text::draw(&mut self.bytes, "fast");
                faults.extend(name.faults());
                let mut lane = u32::MAX;
                let status = call!(self, tollgate_policy_lane(policy, name.start(), name.len, &mut lane));
                if status == Status::UnknownLane && faults.is_empty() {
                    self.judge(status, &[status]);
                } else if self.judge(status, &faults) {
                    assert!(lane < lanes);
                }
            }
            _ => {
                let lane = u32::from(self.bytes.below(8));
                if lane >= lanes {
                    faults.push(Status::UnknownLane);
                }
                let mut buffer = [UNTOUCHED; 80];
                let size = usize::from(self.bytes.below(81));
                let (mut len, name) = (usize::MAX, self.bytes.once_in(2));
                let place = buffer.as_mut_ptr().cast();
                let status = if name {
                    call!(self, tollgate_policy_lane_name(policy, lane, place, size, &mut len))
                } else {
                    call!(self, tollgate_policy_limit(policy, lane, place, size, &mut len))
                };
                if faults.is_empty() && status == Status::BufferTooSmall {
                    self.judge(status, &[status]);
                    assert!(len == usize::MAX && buffer.iter().all(|byte| *byte == UNTOUCHED));
                } else if self.judge(status, &faults) {
                    assert!(len < size && buffer[len] == 0 && buffer[len + 1..].iter().all(|byte| *byte == UNTOUCHED));
                    assert!(std::str::from_utf8(&buffer[..len]).is_ok());
                }
            }
        }
    }

    pub(super) fn move_clock(&mut self) {
        let mut faults = Vec::new();
        let clock = self.handle(self.clock, &mut faults);
        let by = self.bytes.number();
        if self.bytes.once_in(8) {
            let status = call!(self, tollgate_clock_set(clock, by));
            if self.judge(status, &faults) {
                self.now = by.min(TIME_MAX);
                self.now_max = self.now_max.max(self.now);
            }
        } else {
            let status = call!(self, tollgate_clock_advance(clock, by));
            if self.judge(status, &faults) {
                self.now = self.now.saturating_add(by).min(TIME_MAX);
                self.now_max = self.now_max.max(self.now);
            }
        }
    }

    pub(super) fn look_at_clock(&mut self) {
        let mut faults = Vec::new();
        let clock = self.handle(self.clock, &mut faults);
        match self.bytes.below(4) {
            0 => {
                let now = self.ask(faults, |world, place| call!(world, tollgate_clock_now(clock, place)));
                assert!(now.is_none_or(|now| now == self.now));
            }
            1 => {
                let told =
                    self.ask(faults, |world, place: *mut i32| call!(world, tollgate_clock_source(clock, place.cast())));
                assert!(told.is_none_or(|told| told == TimeSource::Manual as i32));
            }
            2 => {
                let told = self.ask(faults, |world, place| call!(world, tollgate_clock_fallbacks(clock, place)));
                assert!(told.is_none_or(|told| told == 0));
            }
            _ => {
                let source = self.bytes.number() as i32 % 8;
                let mut other = null_mut();
                let status = call!(self, tollgate_clock_new(source, &mut other));
                let wrong = [Status::InvalidOption];
                if self.judge(status, if matches!(source, 0 | 2..=5) { &[] } else { &wrong }) {
                    let status = call!(self, tollgate_clock_advance(other, 1));
                    self.judge(status, if source == 5 { &[] } else { &[Status::NotManual] });
                }
                call!(self, tollgate_clock_free(other));
            }
        }
    }
}
