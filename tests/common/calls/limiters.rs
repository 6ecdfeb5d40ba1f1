//! Calls on limiters.

use super::arguments::{Agent, Raw, Text, UNTOUCHED};
use super::oracle::{CROWD, Lane, TIME_MAX, Watched};
use super::{World, call};
use std::collections::{BTreeMap, BTreeSet};
use std::ptr::{null, null_mut};
use tollgate::ffi::*;

impl World<'_> {
    pub(super) fn new_limiter(&mut self) {
        let Some(known) = self.policies.last() else { return };
        let (policy, lanes, warn_percent) = (known.policy, known.lanes.clone(), known.warn_percent);
        let mut faults = Vec::new();
        let policy = self.handle(policy, &mut faults);
        let mut options = LimiterOptions {
            struct_size: size_of::<LimiterOptions>() as u32,
            on_full: i32::from(self.bytes.below(2)),
            agents: 1 + u64::from(self.bytes.below(32)),
            clock: self.clock,
            id_hash: i32::from(self.bytes.below(2)),
            reserved: 0,
            sight: 0,
            sample_every: 0,
            roster: 0,
            reservations: u64::from(self.bytes.below(4)), // 0 for as many as usual.
            commit_memory: u32::from(self.bytes.below(2)),
            reservations_per_agent: 0,
        };
        if self.bytes.once_in(8) {
            options.sight = 1;
            options.sample_every = u32::from(self.bytes.below(4));
            options.roster = u64::from(self.bytes.below(3)) * 16;
        }
        let mut manual = true;
        if self.bytes.once_in(4) {
            match self.bytes.below(11) {
                10 => {
                    options.struct_size = 56; // From before memory could be committed: not looked at.
                    options.commit_memory = self.bytes.number() as u32;
                }
                9 => options.reservations_per_agent = u32::MAX - u32::from(self.bytes.byte()), // As many as there are.
                8 => options.commit_memory = self.bytes.number() as u32,
                7 => options.reservations = TOLLGATE_RESERVATIONS_MAX + 1 + self.bytes.number() % (1 << 40),
                6 => options.sight = self.bytes.number() as i32,
                0 => options.struct_size = self.bytes.number() as u32 % 33,
                1 => options.struct_size = u32::MAX - u32::from(self.bytes.byte()),
                2 => options.on_full = self.bytes.number() as i32,
                3 => options.id_hash = self.bytes.number() as i32,
                4 => options.agents = TOLLGATE_AGENTS_MAX + 1 + self.bytes.number() % (1 << 40),
                _ => options.clock = null(),
            }
            manual = !options.clock.is_null();
        }
        if !(32..=4096).contains(&options.struct_size) {
            faults.push(Status::StructSize);
        }
        let has_sight = options.struct_size > 32;
        let sight = if has_sight { options.sight } else { 0 };
        let off_but_wanted = has_sight && sight == 0 && (options.sample_every, options.roster) != (0, 0);
        let known = [options.on_full, options.id_hash, sight].iter().all(|option| (0..=1).contains(option));
        let reservations = if has_sight { options.reservations } else { 0 };
        let commit_memory = if options.struct_size > 56 { options.commit_memory } else { 0 };
        let committed_or_not = matches!(commit_memory, 0 | 1);
        if !known || off_but_wanted || !committed_or_not || reservations > TOLLGATE_RESERVATIONS_MAX {
            faults.push(Status::InvalidOption);
        }
        if options.agents > TOLLGATE_AGENTS_MAX {
            faults.push(Status::AgentsOutOfRange);
        }
        let mut limiter = null_mut();
        let place = self.handle(&raw mut limiter, &mut faults);
        let status = call!(self, tollgate_limiter_new(policy, &options, place));
        if !self.judge(status, &faults) {
            assert!(limiter.is_null());
            return;
        }
        let deny_on_full = options.on_full == OnFull::Deny as i32;
        let (full_at, agents) = (BTreeMap::new(), BTreeSet::new());
        let (latest, exact, ahead) = (0, true, false);
        self.limiters.push(Watched {
            limiter,
            lanes,
            warn_percent,
            deny_on_full,
            manual,
            full_at,
            agents,
            decided: BTreeSet::new(),
            latest,
            exact,
            ahead,
            open: Vec::new(),
            reservations_max: if reservations == 0 { TOLLGATE_RESERVATIONS_DEFAULT } else { reservations } as usize,
        });
        if self.limiters.len() > 2 {
            let oldest = self.limiters.remove(0);
            call!(self, tollgate_limiter_free(oldest.limiter));
        }
    }

    /// One of the limiters, taken out so that it can be changed along.
    pub(super) fn take_limiter(&mut self) -> Option<Watched> {
        let count = u8::try_from(self.limiters.len()).ok().filter(|count| *count > 0)?;
        let index = usize::from(self.bytes.below(count));
        Some(self.limiters.swap_remove(index))
    }

    /// The caller's own instant, or the clock's.
    pub(super) fn instant(&mut self) -> (bool, u64) {
        match self.bytes.below(4) {
            0 => (true, self.bytes.number().min(TIME_MAX)),
            1 => (true, self.now.saturating_add(self.bytes.number()).min(TIME_MAX)),
            2 => (true, self.now),
            _ => (false, self.now),
        }
    }

    /// What is wrong with a lane and a cost, and the price if nothing is.
    pub(super) fn price(
        watched: &Watched,
        agent: &Agent,
        lane: u32,
        cost: u64,
        faults: &mut Vec<Status>,
    ) -> Option<(Lane, u64)> {
        let Some(known) = watched.lanes.get(lane as usize) else {
            faults.push(Status::UnknownLane);
            return None;
        };
        if watched.is_decided(agent) {
            return None;
        }
        let lane = (*known)?;
        match lane.price(cost) {
            Ok(price) => Some((lane, price)),
            Err(fault) => {
                faults.push(fault);
                None
            }
        }
    }

    /// Holds a verdict against the oracle, and charges the oracle along.
    pub(super) fn judge_verdict(
        &mut self,
        watched: &mut Watched,
        id: &[u8],
        lane: u32,
        price: (Lane, u64),
        now: u64,
        verdict: &Verdict,
    ) {
        let (lane_limit, price) = price;
        let full_at = watched.full_at(id, lane);
        let (expected, next) = lane_limit.check(full_at, now, price, watched.warn_percent);
        let allowed = verdict.decision != Decision::Deny;
        self.report.denied += u64::from(!allowed);
        if watched.is_judged() {
            self.report.verdicts += 1;
            assert!(!allowed || expected.decision != Decision::Deny, "too much: {verdict:?}, at most {expected:?}");
        }
        if watched.is_exact() {
            self.report.exact += 1;
            assert_eq!((verdict.decision, verdict.capacity), (expected.decision, expected.capacity));
            // Who has spent its bucket to the end of time is told no wait, and the debt is past telling.
            if full_at.saturating_sub(now) + price <= TIME_MAX {
                assert_eq!(
                    (verdict.retry_after_ns, verdict.full_in_ns),
                    (expected.retry_after_ns, expected.full_in_ns)
                );
            }
            assert_eq!(verdict.token_ns, expected.token_ns);
        }
        if allowed {
            watched.set(id, lane, next);
        }
    }

    /// Notes that an agent asks; a crowd may not find room.
    pub(super) fn note(watched: &mut Watched, id: &[u8]) {
        watched.agents.insert(id.to_vec());
    }

    pub(super) fn may_be_full(watched: &Watched, status: Status) -> bool {
        status == Status::Full && watched.agents.len() >= CROWD
    }

    /// A plan: the one that every policy has, or one that it may not have.
    pub(super) fn plan(&mut self, faults: &mut Vec<Status>) -> u32 {
        if !self.bytes.once_in(16) {
            return 0;
        }
        faults.push(Status::UnknownPlan);
        (TOLLGATE_PLANS_MAX as u64 + self.bytes.number() % (1 << 31)) as u32
    }

    /// A check, plainly or under a plan, with violations counted or not.
    pub(super) fn check(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        let lane = u32::from(self.bytes.below(5));
        let cost = if self.bytes.once_in(6) { self.bytes.number() } else { 1 };
        let (own, now) = self.instant();
        let (admit, by_plan) = (self.bytes.once_in(3), self.bytes.once_in(4));
        let plan = if by_plan { self.plan(&mut faults) } else { 0 };
        let size = if admit { size_of::<Admission>() } else { size_of::<Verdict>() } as u32;
        let tag = if self.bytes.once_in(32) { self.bytes.number() as u32 } else { size };
        if tag < size {
            faults.push(Status::StructSize);
        }
        let mut raw = Raw::<72>::new(tag);
        let place = self.handle(&raw mut raw, &mut faults);
        faults.extend(agent.fault());
        let wrong = !faults.is_empty();
        let price = Self::price(watched, &agent, lane, cost, &mut faults);
        if !wrong {
            Self::note(watched, agent.key());
        }
        let (id, len) = (agent.id(), agent.len);
        let (verdict_out, admission_out) = (place.cast::<Verdict>(), place.cast::<Admission>());
        let status = match (admit, by_plan, own) {
            (false, false, false) => call!(self, tollgate_limiter_check(to, id, len, lane, cost, verdict_out)),
            (false, false, true) => call!(self, tollgate_limiter_check_at(to, id, len, lane, cost, now, verdict_out)),
            (false, true, false) => call!(self, tollgate_limiter_check_as(to, id, len, plan, lane, cost, verdict_out)),
            (false, true, true) => {
                call!(self, tollgate_limiter_check_as_at(to, id, len, plan, lane, cost, now, verdict_out))
            }
            (true, false, false) => call!(self, tollgate_limiter_admit(to, id, len, lane, cost, admission_out)),
            (true, false, true) => call!(self, tollgate_limiter_admit_at(to, id, len, lane, cost, now, admission_out)),
            (true, true, false) => call!(self, tollgate_limiter_admit_as(to, id, len, plan, lane, cost, admission_out)),
            (true, true, true) => {
                call!(self, tollgate_limiter_admit_as_at(to, id, len, plan, lane, cost, now, admission_out))
            }
        };
        let unknown = faults.is_empty() && price.is_none();
        if unknown || (faults.is_empty() && Self::may_be_full(watched, status)) {
            assert!(unknown || raw.is_untouched());
            *self.report.statuses.entry(status as i32).or_default() += 1;
            return watched.at(now, self.now);
        }
        if !self.judge(status, &faults) {
            return assert!(raw.is_untouched(), "written in spite of {status:?}");
        }
        watched.at(now, self.now);
        let verdict = if admit { self.admitted(&raw.read::<Admission>()) } else { raw.start::<40>().read::<Verdict>() };
        assert_eq!(verdict.struct_size, tag);
        if let Some(price) = price {
            self.judge_verdict(watched, agent.key(), lane, price, now, &verdict);
        }
        let left = call!(self, tollgate_verdict_remaining(&verdict));
        assert!(left <= verdict.capacity);
    }

    /// The verdict of an admission, whose other members have to fit it.
    fn admitted(&mut self, admission: &Admission) -> Verdict {
        let Admission { struct_size, decision, capacity, full_in_ns, token_ns, .. } = *admission;
        let retry_after_ns = admission.lane_retry_after_ns;
        let verdict = Verdict { struct_size, decision, capacity, retry_after_ns, full_in_ns, token_ns };
        if decision == Decision::Deny {
            assert!(admission.consecutive <= 15, "{admission:?}");
            // Only a violation can be abuse.
            assert!(admission.sustained_abuse <= admission.consecutive.min(1), "{admission:?}");
            assert_eq!(admission.retry_after_ns, retry_after_ns.max(admission.wait_ns));
            assert!(admission.wait_ns >= admission.step_ns, "{admission:?}");
        } else {
            assert_eq!((admission.consecutive, admission.step_ns, admission.wait_ns), (0, 0, 0));
            assert_eq!((admission.retry_after_ns, admission.sustained_abuse), (0, 0));
        }
        let left = call!(self, tollgate_admission_remaining(admission));
        assert_eq!(left, call!(self, tollgate_verdict_remaining(&verdict)));
        let told = call!(self, tollgate_hub_retry_after_ms(admission.retry_after_ns));
        assert!(told >= 1_000 && told % 1_000 == 0);
        verdict
    }

    pub(super) fn check_many(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        let crowd = self.crowded;
        let mut count = usize::from(self.bytes.below(if crowd { 64 } else { 6 }));
        let asked: Vec<(Agent, u32, u64)> = (0..count)
            .map(|index| {
                let agent = match crowd {
                    true => Agent { bytes: vec![self.bytes.byte(), index as u8, 1], null: false, len: 3 },
                    false => Agent::draw(&mut self.bytes),
                };
                let cost = if self.bytes.once_in(6) { self.bytes.number() } else { 1 };
                (agent, if crowd { 1 } else { u32::from(self.bytes.below(4)) }, cost)
            })
            .collect();
        let request = |(agent, lane, cost): &(Agent, u32, u64)| Request {
            id: agent.id(),
            id_len: agent.len,
            cost: *cost,
            lane: *lane,
            reserved: 0,
        };
        let requests: Vec<Request> = asked.iter().map(request).collect();
        let mut answers = vec![Raw::<40>([UNTOUCHED; 40]); count];
        let requests_in = self.handle(requests.as_ptr().cast_mut(), &mut faults);
        let answers_out = self.handle(answers.as_mut_ptr().cast::<Answer>(), &mut faults);
        if self.bytes.once_in(24) {
            count = TOLLGATE_BATCH_MAX + 1 + self.bytes.number() as usize % (usize::MAX / 2);
            faults.push(Status::BatchSize);
        }
        let (own, now) = self.instant();
        let status = if own {
            call!(self, tollgate_limiter_check_many_at(limiter, requests_in, count, now, answers_out))
        } else {
            call!(self, tollgate_limiter_check_many(limiter, requests_in, count, answers_out))
        };
        if !self.judge(status, &faults) {
            return assert!(answers.iter().all(|answer| answer.0 == [UNTOUCHED; 40]), "written in spite of {status:?}");
        }
        watched.at(now, self.now);
        for ((agent, lane, cost), raw) in asked.iter().zip(&answers) {
            let answer = raw.read::<Answer>();
            let mut faults: Vec<Status> = agent.fault().into_iter().collect();
            if faults.is_empty() {
                Self::note(watched, agent.key());
            }
            let price = Self::price(watched, agent, *lane, *cost, &mut faults);
            let unknown = faults.is_empty() && price.is_none();
            if unknown || (faults.is_empty() && Self::may_be_full(watched, answer.status)) {
                continue;
            }
            if !self.judge(answer.status, &faults) {
                assert!(raw.0[4..].iter().all(|byte| *byte == 0), "an answer that is none: {answer:?}");
                assert_eq!(call!(self, tollgate_answer_remaining(&answer)), 0);
                continue;
            }
            let Answer { decision, capacity, retry_after_ns, full_in_ns, token_ns, .. } = answer;
            let struct_size = size_of::<Verdict>() as u32;
            let verdict = Verdict { struct_size, decision, capacity, retry_after_ns, full_in_ns, token_ns };
            if let Some(price) = price {
                self.judge_verdict(watched, agent.key(), *lane, price, now, &verdict);
            }
            let left = call!(self, tollgate_answer_remaining(&answer));
            assert_eq!(left, call!(self, tollgate_verdict_remaining(&verdict)));
        }
    }

    /// Status and refund: both end in the status of a lane.
    pub(super) fn look_or_refund(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        let lane = u32::from(self.bytes.below(5));
        let refund = self.bytes.once_in(2);
        let cost = if refund { u64::from(self.bytes.below(5)) } else { 1 };
        let (own, now) = self.instant();
        let mut raw = Raw::<40>::new(if self.bytes.once_in(32) { 39 } else { 40 });
        if raw.0[0] < 40 {
            faults.push(Status::StructSize);
        }
        let place = self.handle((&raw mut raw).cast::<LaneStatus>(), &mut faults);
        faults.extend(agent.fault());
        let by_plan = self.bytes.once_in(4);
        let plan = if by_plan { self.plan(&mut faults) } else { 0 };
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
        let (id, len) = (agent.id(), agent.len);
        let status = match (refund, by_plan, own) {
            (true, false, true) => call!(self, tollgate_limiter_refund_at(limiter, id, len, lane, cost, now, place)),
            (true, false, false) => call!(self, tollgate_limiter_refund(limiter, id, len, lane, cost, place)),
            (false, false, true) => call!(self, tollgate_limiter_status_at(limiter, id, len, lane, now, place)),
            (false, false, false) => call!(self, tollgate_limiter_status(limiter, id, len, lane, place)),
            (true, true, true) => {
                call!(self, tollgate_limiter_refund_as_at(limiter, id, len, plan, lane, cost, now, place))
            }
            (true, true, false) => call!(self, tollgate_limiter_refund_as(limiter, id, len, plan, lane, cost, place)),
            (false, true, true) => call!(self, tollgate_limiter_status_as_at(limiter, id, len, plan, lane, now, place)),
            (false, true, false) => call!(self, tollgate_limiter_status_as(limiter, id, len, plan, lane, place)),
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
        let (told, expected) = (raw.read::<LaneStatus>(), limit.status(full_at, now));
        assert!(!watched.is_judged() || told.remaining <= expected.remaining, "{told:?}, at most {expected:?}");
        assert!(!watched.is_exact() || told == expected, "{told:?}, expected {expected:?}");
    }

    /// No lane of the oracle's is a slot to hold; others may be.
    pub(super) fn hold(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        faults.extend(agent.fault());
        let lane = u32::from(self.bytes.below(5));
        let is_unknown = watched.lanes.get(lane as usize).is_some_and(Option::is_none);
        faults.extend(match watched.lanes.get(lane as usize) {
            None => Some(Status::UnknownLane),
            Some(Some(_)) => Some(Status::WrongKind),
            Some(None) => None,
        });
        if is_unknown && agent.fault().is_none() {
            Self::note(watched, agent.key());
        }
        let mut raw = Raw::<40>::new(40);
        let status = if self.bytes.once_in(2) {
            let place = self.handle((&raw mut raw).cast::<Verdict>(), &mut faults);
            call!(self, tollgate_limiter_acquire(limiter, agent.id(), agent.len, lane, place))
        } else {
            let place = self.handle((&raw mut raw).cast::<LaneStatus>(), &mut faults);
            call!(self, tollgate_limiter_release(limiter, agent.id(), agent.len, lane, place))
        };
        if is_unknown && !faults.is_empty() {
            faults.push(Status::WrongKind); // Whichever is looked at first.
        }
        if is_unknown && faults.is_empty() {
            *self.report.statuses.entry(status as i32).or_default() += 1;
            watched.at(self.now, self.now);
        } else {
            self.judge(status, &faults);
        }
        assert_eq!(raw.is_untouched(), status != Status::Ok);
    }

    /// Reset, of one lane or all, and forget.
    pub(super) fn reset_or_forget(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        faults.extend(agent.fault());
        let lane = u32::from(self.bytes.below(5));
        let (own, now) = self.instant();
        let (id, len) = (agent.id(), agent.len);
        let lanes = watched.lanes.len() as u32;
        let done = match self.bytes.below(3) {
            0 => {
                let known = self.ask(faults, |world, place: *mut u8| match own {
                    true => call!(world, tollgate_limiter_forget_at(limiter, id, len, now, place.cast())),
                    false => call!(world, tollgate_limiter_forget(limiter, id, len, place.cast())),
                });
                if known.is_some() {
                    watched.forget_reservations(agent.key());
                    (0..lanes).for_each(|lane| watched.set(agent.key(), lane, 0));
                    watched.at(now, self.now);
                }
                return assert!(known.is_none_or(|known| known <= 1));
            }
            1 => {
                let status = match own {
                    true => call!(self, tollgate_limiter_reset_at(limiter, id, len, now)),
                    false => call!(self, tollgate_limiter_reset(limiter, id, len)),
                };
                self.judge(status, &faults).then_some(0..lanes)
            }
            _ => {
                if lane >= lanes {
                    faults.push(Status::UnknownLane);
                }
                let status = match own {
                    true => call!(self, tollgate_limiter_reset_lane_at(limiter, id, len, lane, now)),
                    false => call!(self, tollgate_limiter_reset_lane(limiter, id, len, lane)),
                };
                self.judge(status, &faults).then_some(lane..lane + 1)
            }
        };
        if let Some(lanes) = done {
            watched.at(now, self.now);
            watched.forgive_reservations(agent.key());
            for lane in lanes {
                watched.give_back(agent.key(), lane, u64::MAX, now);
            }
        }
    }

    pub(super) fn look_at_limiter(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        match self.bytes.below(7) {
            6 => {
                let name = Text::draw(&mut self.bytes, "default");
                faults.extend(name.faults());
                let mut plan = u32::MAX;
                let status = call!(self, tollgate_limiter_plan(limiter, name.start(), name.len, &mut plan));
                if status == Status::UnknownPlan && faults.is_empty() {
                    self.judge(status, &[status]);
                } else if self.judge(status, &faults) {
                    assert!((plan as usize) < TOLLGATE_PLANS_MAX);
                }
            }
            0 => {
                let now = self.ask(faults, |world, place| call!(world, tollgate_limiter_now(limiter, place)));
                assert!(now.is_none_or(|now| !watched.manual || now == self.now));
            }
            1 => {
                let bytes = self.ask(faults, |world, place| call!(world, tollgate_limiter_memory(limiter, place)));
                assert!(bytes.is_none_or(|bytes: u64| bytes >= 4096));
            }
            2 => {
                let name = Text::draw(&mut self.bytes, "fast");
                faults.extend(name.faults());
                let mut lane = u32::MAX;
                let status = call!(self, tollgate_limiter_lane(limiter, name.start(), name.len, &mut lane));
                if status == Status::UnknownLane && faults.is_empty() {
                    self.judge(status, &[status]);
                } else if self.judge(status, &faults) {
                    assert!((lane as usize) < watched.lanes.len());
                }
            }
            3 => {
                let mut policy = null_mut();
                let status = call!(self, tollgate_limiter_policy(limiter, &mut policy));
                self.judge(status, &faults);
                call!(self, tollgate_policy_free(policy));
            }
            4 => {
                let (own, now) = self.instant();
                let idle_for = self.bytes.number();
                let swept = self.ask(faults, |world, place| match own {
                    true => call!(world, tollgate_limiter_sweep_at(limiter, idle_for, now, place)),
                    false => call!(world, tollgate_limiter_sweep(limiter, idle_for, place)),
                });
                if swept.is_some() {
                    watched.at(now, self.now);
                    watched.sweep(now.saturating_sub(idle_for));
                }
                assert!(swept.is_none_or(|swept| swept <= watched.agents.len() as u64));
            }
            _ => {
                let mut raw = Raw::<56>::new(if self.bytes.once_in(16) { 55 } else { 56 });
                if raw.0[0] < 56 {
                    faults.push(Status::StructSize);
                }
                let place = self.handle((&raw mut raw).cast::<Stats>(), &mut faults);
                let status = call!(self, tollgate_limiter_stats(limiter, place));
                if self.judge(status, &faults) {
                    let stats = raw.read::<Stats>();
                    assert!(stats.agents <= stats.records && stats.agents <= watched.agents.len() as u64);
                    assert!(!watched.deny_on_full || stats.lossy_evictions == 0);
                } else {
                    assert!(raw.is_untouched());
                }
            }
        }
    }
}
