//! Calls about what an operator decides, about conduct and about actions, and
//! those that make and show what those need. What a decision does to an
//! agent's limits is for other tests: the oracle lets go of that agent.

use super::arguments::{Agent, Raw, Text, UNTOUCHED};
use super::oracle::Watched;
use super::{Known, World, call};
use std::ptr::null_mut;
use tollgate::ffi::*;

const LIMITS: [&str; 4] = ["5/min", "1000/s burst 9", "deny", "0/s"];
const NAMES: [&str; 6] = ["fast", "odd", "a", "ws", "light", "hub"];

impl World<'_> {
    fn text(&mut self, choice: &[&str]) -> Text {
        let usual = choice[usize::from(self.bytes.below(choice.len() as u8))];
        Text::draw(&mut self.bytes, usual)
    }

    /// A place for an error, which may be NULL or too small.
    fn error(&mut self, raw: &mut Raw<512>, faults: &mut Vec<Status>) -> *mut Error {
        if self.bytes.once_in(4) {
            return null_mut();
        }
        if self.bytes.once_in(32) {
            *raw = Raw::new(511);
            faults.push(Status::StructSize);
        }
        (&raw mut *raw).cast()
    }

    /// Holds a status against faults that are certain and those that the
    /// library may find by what it knows, and the error against the status.
    fn judge_told(&mut self, status: Status, faults: &[Status], found: &[Status], raw: &Raw<512>, told: bool) -> bool {
        let ok = self.judge(status, if found.contains(&status) { found } else { faults });
        if ok || !told || status == Status::StructSize {
            assert!(raw.is_untouched());
        } else {
            assert_eq!(raw.0[4..8], (status as i32).to_le_bytes());
            assert!(raw.0[16] != 0 && raw.0[16..].contains(&0), "a refusal says why");
        }
        ok
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
        let mut raw = Raw::<512>::new(512);
        let choice = self.bytes.below(11);
        if choice < 8 {
            let error = self.error(&mut raw, &mut faults);
            let mut found = Vec::new();
            let status = match choice {
                0 => {
                    let plan = self.plan(&mut faults);
                    call!(self, tollgate_limiter_assign(to, id, len, plan, error))
                }
                1 => call!(self, tollgate_limiter_unassign(to, id, len, error)),
                2 | 3 => {
                    let lane = self.text(&NAMES);
                    faults.extend(lane.faults());
                    found.extend([Status::UnknownLane, Status::InvalidLimit]);
                    if choice == 2 {
                        let limit = self.text(&LIMITS);
                        faults.extend(limit.faults());
                        let (lane_start, limit_start) = (lane.start(), limit.start());
                        call!(
                            self,
                            tollgate_limiter_set_override(
                                to,
                                id,
                                len,
                                lane_start,
                                lane.len,
                                limit_start,
                                limit.len,
                                error
                            )
                        )
                    } else {
                        let (tokens, per, most) = (self.bytes.number(), self.bytes.number(), self.bytes.number());
                        let start = lane.start();
                        call!(
                            self,
                            tollgate_limiter_set_override_bucket(
                                to, id, len, start, lane.len, tokens, per, most, error
                            )
                        )
                    }
                }
                4 => {
                    let lane = self.text(&NAMES);
                    faults.extend(lane.faults());
                    found.push(Status::UnknownLane);
                    call!(self, tollgate_limiter_remove_override(to, id, len, lane.start(), lane.len, error))
                }
                5 => call!(self, tollgate_limiter_remove_overrides(to, id, len, error)),
                6 => call!(self, tollgate_limiter_exempt(to, id, len, error)),
                _ => call!(self, tollgate_limiter_unexempt(to, id, len, error)),
            };
            if self.judge_told(status, &faults, &found, &raw, !error.is_null()) {
                watched.decided.insert(agent.key().to_vec());
            }
            return;
        }
        match choice {
            8 => {
                let exempt = self.ask(faults, |world, place: *mut u8| {
                    call!(world, tollgate_limiter_is_exempt(to, id, len, place.cast()))
                });
                let decided = watched.is_decided(&agent);
                assert!(exempt.is_none_or(|exempt| exempt == 0 || decided && exempt == 1));
            }
            9 => {
                let lane = u32::from(self.bytes.below(5));
                if lane as usize >= watched.lanes.len() {
                    faults.push(Status::UnknownLane);
                }
                self.ask_text(&faults, &[], |world, place, size, written| {
                    call!(world, tollgate_limiter_limit_of(to, id, len, lane, place, size, written))
                });
            }
            _ => {
                let mut assignment = null_mut();
                let status = call!(self, tollgate_limiter_assignment(to, id, len, &mut assignment));
                assert_eq!(self.judge(status, &faults), !assignment.is_null());
                self.edit(assignment);
                call!(self, tollgate_assignment_free(assignment));
            }
        }
    }

    /// Calls on an assignment, which may be NULL.
    fn edit(&mut self, assignment: *mut Assignment) {
        let mut faults = Vec::new();
        let assignment = self.handle(assignment, &mut faults);
        match self.bytes.below(9) {
            0 => self.ask_text(&faults, &[], |world, place, size, written| {
                call!(world, tollgate_assignment_plan(assignment, place, size, written))
            }),
            1 => {
                let plan = self.text(&["default", "pro", ""]);
                faults.extend(plan.faults());
                let status = call!(self, tollgate_assignment_set_plan(assignment, plan.start(), plan.len));
                self.judge(status, &faults);
            }
            2 => {
                let exempt = self.ask(faults, |world, place: *mut u8| {
                    call!(world, tollgate_assignment_exempt(assignment, place.cast()))
                });
                assert!(exempt.is_none_or(|exempt| exempt <= 1));
            }
            3 => {
                let exempt = self.bytes.once_in(2);
                let status = call!(self, tollgate_assignment_set_exempt(assignment, exempt));
                self.judge(status, &faults);
            }
            4 => {
                let count = self
                    .ask(faults, |world, place| call!(world, tollgate_assignment_override_count(assignment, place)));
                assert!(count.is_none_or(|count: usize| count <= TOLLGATE_LANES_MAX));
            }
            5 => {
                let index = usize::from(self.bytes.below(3));
                self.ask_text(&faults, &[Status::OutOfRange], |world, place, size, written| {
                    call!(world, tollgate_assignment_override_lane(assignment, index, place, size, written))
                });
            }
            6 => {
                let index = usize::from(self.bytes.below(3));
                self.ask_text(&faults, &[Status::OutOfRange], |world, place, size, written| {
                    call!(world, tollgate_assignment_override_limit(assignment, index, place, size, written))
                });
            }
            7 => {
                let (lane, limit) = (self.text(&NAMES), self.text(&LIMITS));
                faults.extend(lane.faults().chain(limit.faults()));
                let mut raw = Raw::<512>::new(512);
                let error = self.error(&mut raw, &mut faults);
                let (lane_start, limit_start) = (lane.start(), limit.start());
                let status = call!(
                    self,
                    tollgate_assignment_set_override(assignment, lane_start, lane.len, limit_start, limit.len, error)
                );
                self.judge_told(status, &faults, &[Status::InvalidLimit], &raw, !error.is_null());
            }
            _ => {
                let lane = self.text(&NAMES);
                faults.extend(lane.faults());
                let known = self.ask(faults, |world, place: *mut u8| {
                    call!(world, tollgate_assignment_remove_override(assignment, lane.start(), lane.len, place.cast()))
                });
                assert!(known.is_none_or(|known| known <= 1));
            }
        }
    }

    /// Many agents at once, another policy, a file.
    pub(super) fn decide_at_large(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let mut raw = Raw::<512>::new(512);
        match self.bytes.below(6) {
            0 | 1 => self.set_assignments(watched),
            2 => {
                let mut list = null_mut();
                let status = call!(self, tollgate_limiter_assignments(to, &mut list));
                if self.judge(status, &faults) {
                    self.look_at_assignments(list, watched.decided.len());
                }
                call!(self, tollgate_assignments_free(list));
            }
            3 => {
                let policy = self.policies.last().map_or(null_mut(), |known| known.policy);
                let policy = self.handle(policy, &mut faults);
                let error = self.error(&mut raw, &mut faults);
                let status = call!(self, tollgate_limiter_replace_policy(to, policy, error));
                // A lane of another kind is no limit for what the records hold.
                let found = [Status::OtherLanes, Status::PlanMissing, Status::InvalidLimit];
                if self.judge_told(status, &faults, &found, &raw, !error.is_null()) {
                    // All limits may be others now.
                    watched.manual = false;
                    watched.lanes.fill(None);
                }
            }
            4 => {
                let path = self.text(&["", "a\0b"]);
                // Only what names no file, so that none is made.
                let path = Text { bytes: if path.bytes.contains(&0) { path.bytes } else { Vec::new() }, ..path };
                let len = if path.len > TOLLGATE_TEXT_BYTES_MAX { path.len } else { path.bytes.len() };
                if path.null {
                    faults.push(Status::NullPointer);
                }
                if len > TOLLGATE_TEXT_BYTES_MAX {
                    faults.push(Status::TextTooLong);
                }
                faults.push(if cfg!(feature = "persist") { Status::File } else { Status::NotBuiltIn });
                let error = self.error(&mut raw, &mut faults);
                let mut loaded = Raw::<48>::new(48);
                let status = match self.bytes.below(3) {
                    0 => call!(self, tollgate_limiter_write_status(to, path.start(), len, error)),
                    1 => call!(self, tollgate_limiter_keep_assignments_in(to, path.start(), len, error)),
                    _ => {
                        let place = self.handle((&raw mut loaded).cast::<BudgetsLoaded>(), &mut faults);
                        call!(self, tollgate_limiter_keep_budgets_in(to, path.start(), len, place, error))
                    }
                };
                assert!(loaded.is_untouched());
                self.judge_told(status, &faults, &[], &raw, !error.is_null());
            }
            _ => {
                faults.push(if cfg!(feature = "persist") { Status::NoFile } else { Status::NotBuiltIn });
                let error = self.error(&mut raw, &mut faults);
                let mut saved = Raw::<24>::new(24);
                let status = match self.bytes.once_in(2) {
                    true => call!(self, tollgate_limiter_reload_assignments(to, error)),
                    false => {
                        let place = self.handle((&raw mut saved).cast::<BudgetsSaved>(), &mut faults);
                        call!(self, tollgate_limiter_save_budgets(to, place, error))
                    }
                };
                assert!(saved.is_untouched());
                self.judge_told(status, &faults, &[], &raw, !error.is_null());
            }
        }
    }

    fn set_assignments(&mut self, watched: &mut Watched) {
        let (mut list, mut assignment) = (null_mut(), null_mut());
        assert_eq!(call!(self, tollgate_assignments_new(&mut list)), Status::Ok);
        assert_eq!(call!(self, tollgate_assignment_new(&mut assignment)), Status::Ok);
        assert_eq!(call!(self, tollgate_assignments_new(null_mut())), Status::NullPointer);
        assert_eq!(call!(self, tollgate_assignment_new(null_mut())), Status::NullPointer);
        let mut added = Vec::new();
        for _ in 0..self.bytes.below(4) {
            self.edit(assignment);
            let agent = Agent::draw(&mut self.bytes);
            let mut faults: Vec<Status> = agent.fault().into_iter().collect();
            let to = self.handle(list, &mut faults);
            let status = call!(self, tollgate_assignments_add(to, agent.id(), agent.len, assignment));
            if self.judge(status, &faults) {
                added.push(agent.key().to_vec());
            }
        }
        self.look_at_assignments(list, added.len());
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let given = self.handle(list, &mut faults);
        let mut raw = Raw::<512>::new(512);
        let error = self.error(&mut raw, &mut faults);
        let status = call!(self, tollgate_limiter_set_assignments(to, given, error));
        let found = [Status::UnknownPlan, Status::UnknownLane, Status::InvalidLimit];
        if self.judge_told(status, &faults, &found, &raw, !error.is_null()) {
            watched.decided.extend(added);
        }
        call!(self, tollgate_assignment_free(assignment));
        call!(self, tollgate_assignments_free(list));
    }

    fn look_at_assignments(&mut self, list: *mut Assignments, most: usize) {
        let mut faults = Vec::new();
        let list = self.handle(list, &mut faults);
        let index = usize::from(self.bytes.below(4));
        match self.bytes.below(3) {
            0 => {
                let count = self.ask(faults, |world, place| call!(world, tollgate_assignments_count(list, place)));
                assert!(count.is_none_or(|count: usize| count <= most));
            }
            1 => {
                let mut buffer = [UNTOUCHED; TOLLGATE_ID_BYTES_MAX];
                let (size, mut len) = (self.bytes.number() as usize % (TOLLGATE_ID_BYTES_MAX + 1), usize::MAX);
                let place = buffer.as_mut_ptr().cast();
                let status = call!(self, tollgate_assignments_id(list, index, place, size, &mut len));
                let found = [Status::OutOfRange, Status::BufferTooSmall];
                if faults.is_empty() && found.contains(&status) {
                    self.judge(status, &found);
                } else if self.judge(status, &faults) {
                    assert!((1..=size).contains(&len));
                }
            }
            _ => {
                let mut assignment = null_mut();
                let status = call!(self, tollgate_assignments_get(list, index, &mut assignment));
                if faults.is_empty() && status == Status::OutOfRange {
                    faults.push(status);
                }
                assert_eq!(self.judge(status, &faults), !assignment.is_null());
                self.edit(assignment);
                call!(self, tollgate_assignment_free(assignment));
            }
        }
    }

    pub(super) fn judge_conduct(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        let (id, len) = (agent.id(), agent.len);
        let (own, now) = self.instant();
        let choice = self.bytes.below(5);
        if choice < 4 {
            faults.extend(agent.fault());
        }
        match choice {
            0 => {
                let mut raw = Raw::<32>::new(if self.bytes.once_in(32) { 31 } else { 32 });
                if raw.0[0] < 32 {
                    faults.push(Status::StructSize);
                }
                let place = self.handle((&raw mut raw).cast::<Violation>(), &mut faults);
                if faults.is_empty() {
                    Self::note(watched, agent.key());
                }
                let status = match own {
                    true => call!(self, tollgate_limiter_record_violation_at(to, id, len, now, place)),
                    false => call!(self, tollgate_limiter_record_violation(to, id, len, place)),
                };
                if faults.is_empty() {
                    watched.at(now, self.now);
                }
                if faults.is_empty() && Self::may_be_full(watched, status) {
                    self.judge(status, &[status]);
                } else if self.judge(status, &faults) {
                    let told = raw.read::<Violation>();
                    assert!((1..=15).contains(&told.consecutive) && told.wait_ns >= told.step_ns, "{told:?}");
                }
            }
            1 => {
                let mut raw = Raw::<40>::new(if self.bytes.once_in(32) { 39 } else { 40 });
                if raw.0[0] < 40 {
                    faults.push(Status::StructSize);
                }
                let place = self.handle((&raw mut raw).cast::<Conduct>(), &mut faults);
                let status = match own {
                    true => call!(self, tollgate_limiter_violations_at(to, id, len, now, place)),
                    false => call!(self, tollgate_limiter_violations(to, id, len, place)),
                };
                if self.judge(status, &faults) {
                    let told = raw.read::<Conduct>();
                    assert!(told.violations <= 63 && told.consecutive <= 15, "{told:?}");
                }
            }
            2 => {
                let limited = self.ask(faults, |world, place: *mut u8| match own {
                    true => call!(world, tollgate_limiter_rate_limited_at(to, id, len, now, place.cast())),
                    false => call!(world, tollgate_limiter_rate_limited(to, id, len, place.cast())),
                });
                assert!(limited.is_none_or(|limited| limited <= 1));
            }
            3 => {
                let known = self.ask(faults, |world, place: *mut u8| {
                    call!(world, tollgate_limiter_reset_violations(to, id, len, place.cast()))
                });
                assert!(known.is_none_or(|known| known <= 1));
            }
            _ => {
                let agents: Vec<Agent> = (0..self.bytes.below(5)).map(|_| Agent::draw(&mut self.bytes)).collect();
                let ids: Vec<Id> = agents.iter().map(|agent| Id { id: agent.id(), id_len: agent.len }).collect();
                let mut answers = vec![UNTOUCHED; ids.len()];
                let given = self.handle(ids.as_ptr().cast_mut(), &mut faults);
                let place = self.handle(answers.as_mut_ptr(), &mut faults);
                let mut count = ids.len();
                if self.bytes.once_in(16) {
                    count = TOLLGATE_BATCH_MAX + 1 + self.bytes.number() as usize % (usize::MAX / 2);
                    faults.push(Status::BatchSize);
                }
                let status = call!(self, tollgate_limiter_assignable(to, given, count, place.cast()));
                let answered = self.judge(status, &faults);
                for (agent, answer) in agents.iter().zip(&answers) {
                    let expected = if answered { &[0, 1][..] } else { &[UNTOUCHED][..] };
                    assert!(expected.contains(answer) && !(answered && *answer == 1 && agent.fault().is_some()));
                }
            }
        }
    }

    pub(super) fn look_at_actions(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        if self.bytes.once_in(2) {
            let limiter = self.handle(watched.limiter, &mut faults);
            let mut actions = null_mut();
            let status = call!(self, tollgate_limiter_unknown_actions(limiter, &mut actions));
            assert_eq!(self.judge(status, &faults), !actions.is_null());
            self.look_at_unknown(actions);
            call!(self, tollgate_unknown_actions_free(actions));
            return;
        }
        let (channel, action) = (self.text(&["ws", "d", "http"]), self.text(&["ping", "dance"]));
        faults.extend(channel.faults().chain(action.faults()));
        let mut raw = Raw::<16>::new(if self.bytes.once_in(32) { 15 } else { 16 });
        if raw.0[0] < 16 {
            faults.push(Status::StructSize);
        }
        let place = self.handle((&raw mut raw).cast::<ActionLane>(), &mut faults);
        let (from, len, of, of_len) = (channel.start(), channel.len, action.start(), action.len);
        let status = if self.bytes.once_in(2) {
            let policy = self.policies.last().map_or(null_mut(), |known| known.policy);
            let policy = self.handle(policy, &mut faults);
            call!(self, tollgate_policy_lane_for(policy, from, len, of, of_len, place))
        } else {
            let limiter = self.handle(watched.limiter, &mut faults);
            call!(self, tollgate_limiter_lane_for(limiter, from, len, of, of_len, place))
        };
        if faults.is_empty() && status == Status::UnknownLane {
            self.judge(status, &[status]);
        } else if self.judge(status, &faults) {
            let told = raw.read::<ActionLane>();
            assert!(told.known + told.first_seen <= 1 && (told.lane as usize) < TOLLGATE_LANES_MAX, "{told:?}");
        } else {
            assert!(raw.is_untouched());
        }
    }

    fn look_at_unknown(&mut self, actions: *mut UnknownActions) {
        let mut faults = Vec::new();
        let actions = self.handle(actions, &mut faults);
        let index = usize::from(self.bytes.below(3));
        match self.bytes.below(5) {
            0 => {
                self.ask(faults, |world, place: *mut u64| call!(world, tollgate_unknown_actions_total(actions, place)));
            }
            1 => {
                let told =
                    self.ask(faults, |world, place| call!(world, tollgate_unknown_actions_not_listed(actions, place)));
                assert!(told.is_none_or(|told: u64| told == 0), "so many names were never met");
            }
            2 => {
                let told =
                    self.ask(faults, |world, place| call!(world, tollgate_unknown_actions_count(actions, place)));
                assert!(told.is_none_or(|told: usize| told <= 256));
            }
            3 => self.ask_text(&faults, &[Status::OutOfRange], |world, place, size, written| {
                call!(world, tollgate_unknown_actions_channel(actions, index, place, size, written))
            }),
            _ => self.ask_text(&faults, &[Status::OutOfRange], |world, place, size, written| {
                call!(world, tollgate_unknown_actions_name(actions, index, place, size, written))
            }),
        }
    }

    /// Plans, actions, conduct and what else a builder takes beside lanes.
    pub(super) fn add_rules(&mut self) {
        let mut faults = Vec::new();
        let to = self.handle(self.builder, &mut faults);
        let status = match self.bytes.below(7) {
            0 => {
                let plan = self.text(&["pro", "free"]);
                faults.extend(plan.faults());
                call!(self, tollgate_policy_builder_plan(to, plan.start(), plan.len))
            }
            choice @ (1 | 2) => {
                let (plan, lane, limit) = (self.text(&["pro"]), self.text(&["fast"]), self.text(&LIMITS));
                faults.extend(plan.faults().chain(lane.faults()));
                let (plan_start, lane_start, start) = (plan.start(), lane.start(), limit.start());
                let status = if choice == 1 {
                    faults.extend(limit.faults());
                    call!(
                        self,
                        tollgate_policy_builder_plan_lane(
                            to, plan_start, plan.len, lane_start, lane.len, start, limit.len
                        )
                    )
                } else {
                    call!(
                        self,
                        tollgate_policy_builder_plan_lane_bucket(
                            to,
                            plan_start,
                            plan.len,
                            lane_start,
                            lane.len,
                            7,
                            1_000_000_000,
                            9
                        )
                    )
                };
                if faults.is_empty() && status == Status::UnknownPlan {
                    faults.push(status);
                }
                status
            }
            3 => {
                let (channel, tier, action) = (self.text(&["d"]), self.text(&["e"]), self.text(&["ping", "pong"]));
                faults.extend(channel.faults().chain(tier.faults()).chain(action.faults()));
                let (start, of, name) = (channel.start(), tier.start(), action.start());
                call!(self, tollgate_policy_builder_action(to, start, channel.len, of, tier.len, name, action.len))
            }
            4 => {
                let tier = self.text(&["e", "normal"]);
                faults.extend(tier.faults());
                if self.bytes.below(2) == 0 {
                    call!(self, tollgate_policy_builder_outside_total(to, tier.start(), tier.len))
                } else {
                    call!(self, tollgate_policy_builder_unknown_actions_to(to, tier.start(), tier.len))
                }
            }
            5 => {
                let on_change = i32::from(self.bytes.below(4)) - 1;
                if !(0..=1).contains(&on_change) {
                    faults.push(Status::InvalidOption);
                }
                call!(self, tollgate_policy_builder_on_change(to, on_change))
            }
            _ => {
                let mut rules = ConductRules {
                    struct_size: 160,
                    curve_steps: u32::from(self.bytes.below(18)),
                    curve_ns: [1_000_000_000; TOLLGATE_CURVE_STEPS_MAX],
                    quiet_ns: u64::from(self.bytes.byte()) * 1_000_000_000,
                    abuse_window_ns: u64::from(self.bytes.byte()) * 1_000_000_000,
                    abuse_violations: u32::from(self.bytes.below(70)),
                    every_denial: u32::from(self.bytes.below(2)),
                    enforce_wait: 0, // The oracle knows nothing of blocks.
                    reserved: 0,
                };
                match self.bytes.below(24) {
                    0 => rules.struct_size = self.bytes.number() as u32 % 160,
                    1 => rules.every_denial = 2,
                    2 => rules.reserved = 1,
                    _ => {}
                }
                if rules.struct_size < 160 {
                    faults.push(Status::StructSize);
                }
                if rules.every_denial > 1 || rules.reserved > 0 || rules.curve_steps > 15 {
                    faults.push(Status::InvalidOption);
                }
                let given = self.handle(&raw mut rules, &mut faults);
                call!(self, tollgate_policy_builder_conduct(to, given))
            }
        };
        self.judge(status, &faults);
    }

    /// Ready-made policies, and policies as text.
    pub(super) fn make_policy(&mut self) {
        let mut policy = null_mut();
        let mut faults = Vec::new();
        let place = self.handle(&raw mut policy, &mut faults);
        let mut raw = Raw::<512>::new(512);
        let error = self.error(&mut raw, &mut faults);
        let status = if self.bytes.once_in(2) {
            let name = self.text(&["hub", "adr", "citizen", "hubs"]);
            faults.extend(name.faults());
            let status = call!(self, tollgate_policy_preset(name.start(), name.len, place, error));
            self.judge_told(status, &faults, &[Status::UnknownPreset], &raw, !error.is_null());
            status
        } else {
            let toml = self.text(&["[lanes]\na = \"1/s\"", "preset = \"hub\"", "lanes = 1", "[[["]);
            if !cfg!(feature = "config") {
                faults.push(Status::NotBuiltIn);
            }
            faults.extend(toml.faults());
            let status = call!(self, tollgate_policy_from_toml(toml.start(), toml.len, place, error));
            self.judge_told(status, &faults, &[Status::InvalidPolicy], &raw, !error.is_null());
            status
        };
        assert_eq!(status == Status::Ok, !policy.is_null());
        if !policy.is_null() {
            self.show_policy(policy);
        }
        call!(self, tollgate_policy_free(policy));
        let index = usize::from(self.bytes.byte());
        assert_eq!(call!(self, tollgate_preset_name(index)).is_null(), index >= 5);
    }

    pub(super) fn look_at_plans(&mut self) {
        let policy = self.policies.last().map_or(null_mut(), |Known { policy, .. }| *policy);
        self.show_policy(policy);
    }

    fn show_policy(&mut self, policy: *mut Policy) {
        let mut faults = Vec::new();
        let policy = self.handle(policy, &mut faults);
        let (plan, lane, index) =
            (u32::from(self.bytes.below(4)), u32::from(self.bytes.below(8)), usize::from(self.bytes.below(12)));
        let none = [Status::UnknownPlan, Status::UnknownLane, Status::OutOfRange, Status::NotBuiltIn];
        match self.bytes.below(12) {
            0 => {
                let name = self.text(&["default", "jwt"]);
                faults.extend(name.faults());
                let mut told = u32::MAX;
                let status = call!(self, tollgate_policy_plan(policy, name.start(), name.len, &mut told));
                if faults.is_empty() && status == Status::UnknownPlan {
                    faults.push(status);
                }
                assert_eq!(self.judge(status, &faults), told != u32::MAX);
            }
            1 => {
                let told = self.ask(faults, |world, place| call!(world, tollgate_policy_plan_count(policy, place)));
                assert!(told.is_none_or(|told: u32| (1..=256).contains(&told)));
            }
            2 => self.ask_text(&faults, &none, |world, place, size, written| {
                call!(world, tollgate_policy_plan_name(policy, plan, place, size, written))
            }),
            3 => self.ask_text(&faults, &none, |world, place, size, written| {
                call!(world, tollgate_policy_plan_limit(policy, plan, lane, place, size, written))
            }),
            4 => {
                let mut capacity = u64::MAX;
                let status = call!(self, tollgate_policy_capacity(policy, plan, lane, &mut capacity));
                if faults.is_empty() && none.contains(&status) {
                    faults.push(status);
                }
                assert_eq!(self.judge(status, &faults), capacity != u64::MAX);
            }
            5 => {
                let told = self.ask(faults, |world, place: *mut i32| {
                    call!(world, tollgate_policy_on_change(policy, place.cast()))
                });
                assert!(told.is_none_or(|told| (0..=1).contains(&told)));
            }
            6 => {
                let mut raw = Raw::<160>::new(if self.bytes.once_in(16) { 159 } else { 160 });
                if raw.0[0] < 160 {
                    faults.push(Status::StructSize);
                }
                let place = self.handle((&raw mut raw).cast::<ConductRules>(), &mut faults);
                let status = call!(self, tollgate_policy_conduct(policy, place));
                if self.judge(status, &faults) {
                    let told = raw.read::<ConductRules>();
                    assert!(told.curve_steps <= 15 && told.quiet_ns > 0, "{told:?}");
                } else {
                    assert!(raw.is_untouched());
                }
            }
            7 => {
                let told = self.ask(faults, |world, place| call!(world, tollgate_policy_action_count(policy, place)));
                assert!(told.is_none_or(|told: usize| told <= 4_096));
            }
            8 => self.ask_text(&faults, &none, |world, place, size, written| {
                call!(world, tollgate_policy_action_name(policy, index, place, size, written))
            }),
            9 => {
                let mut told = u32::MAX;
                let status = call!(self, tollgate_policy_action_lane(policy, index, &mut told));
                if faults.is_empty() && status == Status::OutOfRange {
                    faults.push(status);
                }
                assert_eq!(self.judge(status, &faults), told != u32::MAX);
            }
            10 => {
                let name = self.text(&["e", "heavy", "fast"]);
                faults.extend(name.faults());
                let (mut lanes, mut count) = ([u32::MAX; 4], usize::MAX);
                let size = usize::from(self.bytes.below(5));
                let place = lanes.as_mut_ptr();
                let status =
                    call!(self, tollgate_policy_lanes_of(policy, name.start(), name.len, place, size, &mut count));
                if faults.is_empty() && [Status::UnknownLane, Status::BufferTooSmall].contains(&status) {
                    faults.push(status);
                }
                let written = lanes.iter().filter(|lane| **lane != u32::MAX).count();
                assert_eq!(if self.judge(status, &faults) { count } else { 0 }, written);
            }
            _ if self.bytes.once_in(2) => self.ask_text(&faults, &none, |world, place, size, written| {
                call!(world, tollgate_policy_unknown_actions_tier(policy, place, size, written))
            }),
            _ => self.ask_text(&faults, &none, |world, place, size, written| {
                call!(world, tollgate_policy_to_toml(policy, place, size, written))
            }),
        }
    }
}
