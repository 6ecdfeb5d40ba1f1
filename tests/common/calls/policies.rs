//! Calls on policies and clocks.

use super::arguments::{Raw, Text};
use super::oracle::{KNOWN_LIMITS, Lane, OTHER_LIMITS, TIME_MAX, known_limit};
use super::{Known, World, call};
use std::fmt::Write as _;
use std::ptr::null_mut;
use tollgate::ffi::*;

/// A policy as text, with what the oracle knows of it.
struct Draft {
    text: String,
    lanes: Vec<Option<Lane>>,
    warn_percent: u64,
}

impl World<'_> {
    /// The one that every sequence begins with.
    pub(super) fn first_policy(&mut self) {
        let limits = [("fast", "1000/s"), ("odd", "7/min burst 3")];
        let text: String = limits.iter().map(|(name, limit)| format!("{name} = \"{limit}\"\n")).collect();
        let (text, mut policy) = (format!("[lanes]\n{text}"), null_mut());
        let status = call!(self, tollgate_policy_from_toml(text.as_ptr().cast(), text.len(), null_mut(), &mut policy));
        assert_eq!(status, Status::Ok);
        let lanes = limits.iter().map(|(_, limit)| known_limit(limit.as_bytes())).collect();
        self.policies.push(Known { policy, lanes, warn_percent: 20 });
    }

    /// Lanes, and what else a policy has. Some of it is invalid.
    fn draft(&mut self) -> Draft {
        let mut draft = Draft { text: String::new(), lanes: Vec::new(), warn_percent: 20 };
        if self.bytes.once_in(4) {
            draft.warn_percent = u64::from(self.bytes.byte()) / 2;
            let _ = writeln!(draft.text, "warn_below_percent = {}", draft.warn_percent);
        }
        if self.bytes.once_in(4) {
            let on_change = ["keep", "reset", "drop"][usize::from(self.bytes.below(3))];
            let _ = writeln!(draft.text, "on_change = \"{on_change}\"");
        }
        draft.text += "[lanes]\n";
        for name in ["fast", "odd", "a", "b", "d/e"].into_iter().take(2 + usize::from(self.bytes.below(4))) {
            let (limit, lane) = self.limit();
            let name = if self.bytes.once_in(32) { "a b" } else { name };
            let _ = writeln!(draft.text, "\"{name}\" = \"{limit}\"");
            draft.lanes.push(lane);
        }
        if self.bytes.once_in(4) {
            let lane = ["fast", "b"][usize::from(self.bytes.below(2))];
            // A bucket: of another kind it would make a lane that denies everything one of that kind.
            let limit = KNOWN_LIMITS[usize::from(self.bytes.below(KNOWN_LIMITS.len() as u8))].0;
            let _ = writeln!(draft.text, "[plans.pro]\n{lane} = \"{limit}\"");
        }
        if self.bytes.once_in(4) {
            let tier = ["e", "f"][usize::from(self.bytes.below(2))];
            let _ = writeln!(draft.text, "[actions.d]\n{tier} = [\"ping\", \"pong\"]");
        }
        if self.bytes.once_in(4) {
            let (quiet, violations) = (self.bytes.byte(), self.bytes.below(70));
            let _ = writeln!(draft.text, "[conduct]\ncurve = [\"1s\", \"{}s\"]", self.bytes.below(30));
            let _ = writeln!(draft.text, "quiet = \"{quiet}s\"\nevery_denial = {}", self.bytes.once_in(2));
            // It enforces no waits: the oracle knows nothing of blocks.
            let _ = writeln!(draft.text, "abuse = {{ violations = {violations}, within = \"5min\" }}");
        }
        draft
    }

    /// A limit as text, and its numbers if the oracle knows them.
    pub(super) fn limit(&mut self) -> (String, Option<Lane>) {
        match self.bytes.below(8) {
            0 | 3 => (OTHER_LIMITS[usize::from(self.bytes.below(OTHER_LIMITS.len() as u8))].to_owned(), None),
            1 | 2 => {
                let (tokens, per, capacity) = (self.bytes.number(), self.bytes.number(), self.bytes.number());
                (format!("{tokens}/{per}ns burst {capacity}"), Some(Lane::bucket(tokens, per, capacity)))
            }
            _ => {
                let text = KNOWN_LIMITS[usize::from(self.bytes.below(KNOWN_LIMITS.len() as u8))].0;
                (text.to_owned(), known_limit(text.as_bytes()))
            }
        }
    }

    /// Whether a policy is valid is for the library to say; the oracle takes it from there.
    pub(super) fn draw_policy(&mut self) {
        let draft = self.draft();
        let text = Text::draw(&mut self.bytes, &draft.text);
        let mut policy = null_mut();
        let mut faults: Vec<Status> = text.faults().collect();
        let place = self.handle(&raw mut policy, &mut faults);
        let mut raw = Raw::<512>::new(512);
        let error = self.error(&mut raw, &mut faults);
        let status = call!(self, tollgate_policy_from_toml(text.start(), text.len, error, place));
        let made = self.judge_error(status, &faults, &[Status::InvalidPolicy], &raw, !error.is_null());
        assert_eq!(made, !policy.is_null());
        if status == Status::InvalidPolicy && !error.is_null() {
            assert!(raw.0[8..12] != [0; 4] && raw.0[12..16] != [0; 4], "it says where");
        }
        if text.bytes != draft.text.as_bytes() {
            call!(self, tollgate_policy_free(policy)); // Whatever it was.
        } else if made {
            self.policies.push(Known { policy, lanes: draft.lanes, warn_percent: draft.warn_percent });
        }
        if self.policies.len() > 2 {
            let oldest = self.policies.remove(0);
            call!(self, tollgate_policy_free(oldest.policy));
        }
    }

    /// Presets.
    pub(super) fn make_policy(&mut self) {
        let mut policy = null_mut();
        let name = self.text(&["hub", "adr", "citizen", "hubs"]);
        let mut faults: Vec<Status> = name.faults().collect();
        let place = self.handle(&raw mut policy, &mut faults);
        let mut raw = Raw::<512>::new(512);
        let error = self.error(&mut raw, &mut faults);
        let status = call!(self, tollgate_policy_preset(name.start(), name.len, error, place));
        let found = if faults.is_empty() { &[Status::UnknownPreset][..] } else { &[] };
        let made = self.judge_error(status, &faults, found, &raw, !error.is_null());
        assert_eq!(made, !policy.is_null());
        if !policy.is_null() {
            self.show_policy(policy, None);
        }
        call!(self, tollgate_policy_free(policy));
        let index = usize::from(self.bytes.byte());
        assert_eq!(call!(self, tollgate_preset_name(index)).is_null(), index >= 5);
    }

    pub(super) fn look_at_policy(&mut self) {
        let Some(Known { policy, lanes, .. }) = self.policies.last() else { return };
        let (policy, lanes) = (*policy, lanes.len() as u32);
        self.show_policy(policy, Some(lanes));
    }

    /// A policy that has this many lanes, if that is known.
    fn show_policy(&mut self, policy: *mut Policy, lanes: Option<u32>) {
        let mut faults = Vec::new();
        let policy = self.handle(policy, &mut faults);
        let (plan, lane) = (u32::from(self.bytes.below(4)), u32::from(self.bytes.below(8)));
        match self.bytes.below(6) {
            0 => {
                let name = self.text(&["default", "pro", "jwt"]);
                faults.extend(name.faults());
                let plan = self.ask_some(faults, &[Status::UnknownPlan], |world, place: *mut u32| {
                    call!(world, tollgate_policy_plan(policy, name.start(), name.len, place))
                });
                assert!(plan.is_none_or(|plan| (plan as usize) < TOLLGATE_PLANS_MAX));
            }
            1 => {
                let name = self.text(&["fast", "odd", "ws/light"]);
                faults.extend(name.faults());
                let lane = self.ask_some(faults, &[Status::UnknownLane], |world, place: *mut u32| {
                    call!(world, tollgate_policy_lane(policy, name.start(), name.len, place))
                });
                assert!(lane.is_none_or(|lane| lane < lanes.unwrap_or(TOLLGATE_LANES_MAX as u32)));
            }
            2 => self.ask_text(&faults, &[Status::UnknownPlan], |world, place, size, written| {
                call!(world, tollgate_policy_plan_name(policy, plan, place, size, written))
            }),
            3 => {
                let found = if lanes.is_some_and(|lanes| lane < lanes) { &[][..] } else { &[Status::UnknownLane] };
                self.ask_text(&faults, found, |world, place, size, written| {
                    call!(world, tollgate_policy_lane_name(policy, lane, place, size, written))
                });
            }
            4 => {
                let plan = if self.bytes.once_in(4) { TOLLGATE_NONE } else { plan };
                let found = [Status::UnknownPlan, Status::UnknownLane];
                self.ask_text(&faults, &found, |world, place, size, written| {
                    call!(world, tollgate_policy_limit(policy, plan, lane, place, size, written))
                });
            }
            _ => self.ask_text(&faults, &[], |world, place, size, written| {
                call!(world, tollgate_policy_to_toml(policy, place, size, written))
            }),
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
        if self.bytes.once_in(2) {
            let now = self.ask(faults, |world, place| call!(world, tollgate_clock_now(clock, place)));
            return assert!(now.is_none_or(|now| now == self.now));
        }
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
