//! Calls about what an operator decides. What a decision does to an agent's
//! limits is for other tests: the oracle lets go of that agent.

use super::arguments::{Agent, Raw, Text, UNTOUCHED};
use super::oracle::Watched;
use super::{World, call};
use std::ptr::{null, null_mut};
use tollgate::ffi::*;

pub(super) const LIMITS: [&str; 4] = ["5/min", "1000/s burst 9", "deny", "0/s"];
const NAMES: [&str; 6] = ["fast", "odd", "a", "ws", "light", "hub"];

impl World<'_> {
    pub(super) fn text(&mut self, choice: &[&str]) -> Text {
        let usual = choice[usize::from(self.bytes.below(choice.len() as u8))];
        Text::draw(&mut self.bytes, usual)
    }

    /// A place for an error, which may be NULL or too small.
    pub(super) fn error(&mut self, raw: &mut Raw<512>, faults: &mut Vec<Status>) -> *mut Error {
        if self.bytes.once_in(4) {
            return null_mut();
        }
        *raw = Raw::tagged(&mut self.bytes, faults);
        (&raw mut *raw).cast()
    }

    /// Holds a status against faults that are certain and those that the
    /// library may find by what it knows, and the error against the status.
    pub(super) fn judge_error(
        &mut self,
        status: Status,
        faults: &[Status],
        found: &[Status],
        raw: &Raw<512>,
        is_wanted: bool,
    ) -> bool {
        let ok = self.judge(status, if found.contains(&status) { found } else { faults });
        let is_too_small = raw.0[..4] != 512_u32.to_le_bytes();
        if ok || !is_wanted || is_too_small {
            assert!(raw.is_untouched());
        } else {
            assert_eq!(raw.0[4..8], (status as i32).to_le_bytes());
            assert!(raw.0[16] != 0 && raw.0[16..].contains(&0), "a refusal says why");
        }
        ok
    }

    /// A number that may not be found for these reasons.
    pub(super) fn ask_some<T: Copy + PartialEq>(
        &mut self,
        mut faults: Vec<Status>,
        found: &[Status],
        ask: impl FnOnce(&mut Self, *mut T) -> Status,
    ) -> Option<T> {
        let mut value = super::fresh::<T>();
        let before = value;
        let place = self.handle(&raw mut value, &mut faults);
        let status = ask(self, place);
        if faults.is_empty() && found.contains(&status) {
            faults.push(status);
        }
        let is_found = self.judge(status, &faults);
        assert!(is_found || value == before, "written in spite of {status:?}");
        is_found.then_some(value)
    }

    /// A text of any length into a buffer that may be too small.
    pub(super) fn ask_text(
        &mut self,
        faults: &[Status],
        found: &[Status],
        ask: impl FnOnce(&mut Self, *mut std::ffi::c_char, usize, *mut usize) -> Status,
    ) {
        let mut buffer = [UNTOUCHED; 80];
        let (size, mut len) = (usize::from(self.bytes.below(81)), usize::MAX);
        let status = ask(self, buffer.as_mut_ptr().cast(), size, &mut len);
        let small = [&[Status::BufferTooSmall], found].concat();
        if faults.is_empty() && small.contains(&status) {
            self.judge(status, &small);
        } else if self.judge(status, faults) {
            assert!(len < size && buffer[len] == 0 && std::str::from_utf8(&buffer[..len]).is_ok());
            return assert!(buffer[len + 1..].iter().all(|byte| *byte == UNTOUCHED));
        }
        assert!(len == usize::MAX && buffer.iter().all(|byte| *byte == UNTOUCHED));
    }

    pub(super) fn decide(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        faults.extend(agent.fault());
        let (id, len) = (agent.id(), agent.len);
        let choice = self.bytes.below(6);
        if choice == 4 {
            return self.look_at_assignment(watched);
        }
        if choice == 5 {
            let lane = self.lane();
            if lane as usize >= watched.lanes.len() {
                faults.push(Status::UnknownLane);
            }
            return self.ask_text(&faults, &[], |world, place, size, written| {
                call!(world, tollgate_limit_of(to, id, len, lane, place, size, written))
            });
        }
        let mut raw = Raw::<512>::new(512);
        let error = self.error(&mut raw, &mut faults);
        let mut found = Vec::new();
        let status = match choice {
            0 => {
                let plan = self.plan(&mut faults);
                call!(self, tollgate_assign(to, id, len, plan, error))
            }
            1 => {
                let exempt = self.bytes.once_in(2);
                call!(self, tollgate_set_exempt(to, id, len, exempt, error))
            }
            _ => {
                found.extend([Status::UnknownLane, Status::InvalidLimit]);
                let (lane, limit) = (self.text(&NAMES), self.text(&LIMITS));
                // Two texts set an override, one takes it away, and none takes all away.
                let removal = self.bytes.below(4);
                let (lane_start, limit_start) = match removal {
                    0 => (null(), null()),
                    1 => (lane.start(), null()),
                    _ => (lane.start(), limit.start()),
                };
                let removes_all = lane_start.is_null() && limit_start.is_null();
                faults.extend(lane.faults().filter(|_| !removes_all));
                // A NULL limit is a removal.
                faults.extend(limit.faults().filter(|_| !limit_start.is_null()));
                call!(self, tollgate_set_override(to, id, len, lane_start, lane.len, limit_start, limit.len, error))
            }
        };
        if self.judge_error(status, &faults, &found, &raw, !error.is_null()) {
            watched.decided.insert(agent.key().to_vec());
        }
    }

    /// Many agents at once, another policy, a file.
    pub(super) fn decide_at_large(&mut self, watched: &mut Watched) {
        match self.bytes.below(6) {
            0 | 1 => self.set_assignments(watched),
            2 => self.look_at_assigned(watched),
            3 => self.replace_policy(watched),
            4 => self.name_files(watched),
            _ => self.save(watched),
        }
    }

    fn replace_policy(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let policy = self.policies.last().map_or(null_mut(), |known| known.policy);
        let policy = self.handle(policy, &mut faults);
        let mut raw = Raw::<512>::new(512);
        let error = self.error(&mut raw, &mut faults);
        let status = call!(self, tollgate_replace_policy(to, policy, error));
        // A lane of another kind is no limit for what the records hold.
        let found = [Status::OtherLanes, Status::PlanMissing, Status::InvalidLimit];
        if self.judge_error(status, &faults, &found, &raw, !error.is_null()) {
            // All limits may be others now.
            watched.manual = false;
            watched.lanes.fill(None);
        }
    }

    /// Only what names no file, so that none is made.
    fn name_files(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let path = self.text(&["", "a\0b"]);
        let path = Text { bytes: if path.bytes.contains(&0) { path.bytes } else { Vec::new() }, ..path };
        let len = if path.len > TOLLGATE_TEXT_BYTES_MAX { path.len } else { path.bytes.len() };
        if path.null {
            faults.push(Status::NullPointer);
        }
        if len > TOLLGATE_TEXT_BYTES_MAX {
            faults.push(Status::TextTooLong);
        }
        faults.push(if cfg!(feature = "persist") { Status::File } else { Status::NotBuiltIn });
        let (mut raw, mut loaded) = (Raw::<512>::new(512), Raw::<48>::new(48));
        let error = self.error(&mut raw, &mut faults);
        let status = match self.bytes.below(3) {
            0 => call!(self, tollgate_write_report(to, path.start(), len, error)),
            1 => call!(self, tollgate_keep_assignments_in(to, path.start(), len, error)),
            _ => {
                let place = self.handle((&raw mut loaded).cast::<BudgetsLoaded>(), &mut faults);
                call!(self, tollgate_keep_budgets_in(to, path.start(), len, error, place))
            }
        };
        assert!(loaded.is_untouched());
        self.judge_error(status, &faults, &[], &raw, !error.is_null());
    }

    /// Without a file there is nothing to save or to load.
    fn save(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        faults.push(if cfg!(feature = "persist") { Status::NoFile } else { Status::NotBuiltIn });
        let (mut raw, mut saved) = (Raw::<512>::new(512), Raw::<24>::new(24));
        let error = self.error(&mut raw, &mut faults);
        let status = match self.bytes.once_in(2) {
            true => call!(self, tollgate_reload_assignments(to, error)),
            false => {
                let place = self.handle((&raw mut saved).cast::<BudgetsSaved>(), &mut faults);
                call!(self, tollgate_save_budgets(to, error, place))
            }
        };
        assert!(saved.is_untouched());
        self.judge_error(status, &faults, &[], &raw, !error.is_null());
    }
}
