//! Checks, singly and in batches.

use super::arguments::{Agent, Raw};
use super::oracle::{CROWD, Lane, TIME_MAX, Watched};
use super::{World, call};
use tollgate::ffi::*;

impl World<'_> {
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
            // An agent that has spent its bucket to the end of time is given no wait, and its debt is past saying.
            if full_at.saturating_sub(now) + price <= TIME_MAX {
                assert_eq!((verdict.lane_wait_ns, verdict.full_in_ns), (expected.lane_wait_ns, expected.full_in_ns));
            }
            assert_eq!((verdict.token_ns, verdict.count_left), (expected.token_ns, 0));
        }
        if allowed {
            watched.set(id, lane, next);
        }
    }

    /// The members of a verdict fit each other.
    pub(super) fn fits(&mut self, verdict: &Verdict, flags: u32) {
        let in_a_row = verdict.violations_in_a_row;
        assert_eq!(verdict.status, Status::Ok);
        assert_eq!(verdict.retry_after_ns, verdict.lane_wait_ns.max(verdict.conduct_wait_ns), "{verdict:?}");
        // Only a violation can be abuse.
        assert!(in_a_row <= 15 && u32::from(verdict.sustained_abuse) <= in_a_row.min(1), "{verdict:?}");
        if verdict.decision != Decision::Deny {
            assert_eq!(verdict.retry_after_ns, 0, "{verdict:?}");
        }
        if verdict.decision != Decision::Deny || flags & TOLLGATE_COUNTED == 0 {
            assert_eq!((verdict.conduct_wait_ns, in_a_row), (0, 0), "{verdict:?}");
        }
        assert!(verdict.token_ns == 0 || verdict.count_left == 0, "{verdict:?}");
        let left = call!(self, tollgate_verdict_remaining(verdict));
        assert!(left <= verdict.capacity && (verdict.token_ns != 0 || left == verdict.count_left), "{verdict:?}");
    }

    /// Notes that an agent asks; a crowd may not find room.
    pub(super) fn note(watched: &mut Watched, id: &[u8]) {
        watched.agents.insert(id.to_vec());
    }

    pub(super) fn may_be_full(watched: &Watched, status: Status) -> bool {
        status == Status::Full && watched.agents.len() >= CROWD
    }

    /// No plan, the one that every policy has, or one that none has.
    pub(super) fn plan(&mut self, faults: &mut Vec<Status>) -> u32 {
        match self.bytes.below(64) {
            0..=7 => 0,
            8..=11 => {
                faults.push(Status::UnknownPlan);
                (TOLLGATE_PLANS_MAX as u64 + self.bytes.number() % (1 << 31)) as u32
            }
            _ => TOLLGATE_NONE,
        }
    }

    /// A lane that there is, as a rule.
    pub(super) fn lane(&mut self) -> u32 {
        match self.bytes.below(32) {
            0 => TOLLGATE_NONE,
            1..=4 => u32::from(self.bytes.below(5)),
            5..=12 => u32::from(self.bytes.below(3)),
            choice => u32::from(choice % 2),
        }
    }

    pub(super) fn check(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let to = self.handle(watched.limiter, &mut faults);
        let agent = Agent::draw(&mut self.bytes);
        let lane = self.lane();
        let cost = if self.bytes.once_in(6) { self.bytes.number() } else { 1 };
        let (at, now) = self.instant();
        let (plan, flags) = (self.plan(&mut faults), self.flags(TOLLGATE_COUNTED, &mut faults));
        let mut raw = Raw::<72>::blank();
        let place = self.handle((&raw mut raw).cast(), &mut faults);
        let mut request = agent.request(lane, cost, plan);
        let asked = self.handle(&raw mut request, &mut faults);
        faults.extend(agent.fault());
        let wrong = !faults.is_empty();
        let price = Self::price(watched, &agent, lane, cost, &mut faults);
        if !wrong {
            Self::note(watched, agent.key());
        }
        let status = call!(self, tollgate_check(to, asked, at, flags, place));
        let unknown = faults.is_empty() && price.is_none();
        if unknown || (faults.is_empty() && Self::may_be_full(watched, status)) {
            assert_eq!(status != Status::Ok, raw.is_blank());
            *self.report.statuses.entry(status as i32).or_default() += 1;
            return watched.at(now, self.now);
        }
        if !self.judge(status, &faults) {
            return assert!(raw.is_blank(), "written in spite of {status:?}");
        }
        watched.at(now, self.now);
        let verdict = raw.read::<Verdict>();
        self.fits(&verdict, flags);
        if let Some(price) = price {
            self.judge_verdict(watched, agent.key(), lane, price, now, &verdict);
        }
    }

    pub(super) fn check_many(&mut self, watched: &mut Watched) {
        let mut faults = Vec::new();
        let limiter = self.handle(watched.limiter, &mut faults);
        let crowd = self.crowded;
        let mut count = usize::from(self.bytes.below(if crowd { 64 } else { 6 }));
        let asked: Vec<(Agent, Request, Vec<Status>)> = (0..count)
            .map(|index| {
                let agent = match crowd {
                    true => Agent { bytes: vec![self.bytes.byte(), index as u8, 1], null: false, len: 3 },
                    false => Agent::draw(&mut self.bytes),
                };
                let cost = if self.bytes.once_in(6) { self.bytes.number() } else { 1 };
                let lane = if crowd { 1 } else { self.lane() };
                let mut found: Vec<Status> = agent.fault().into_iter().collect();
                let plan = if crowd { TOLLGATE_NONE } else { self.plan(&mut found) };
                let request = agent.request(lane, cost, plan);
                (agent, request, found)
            })
            .collect();
        let requests: Vec<Request> = asked.iter().map(|(_, request, _)| *request).collect();
        let mut verdicts = vec![Raw::<72>::blank(); count];
        if self.bytes.once_in(24) {
            count = TOLLGATE_BATCH_MAX + 1 + self.bytes.number() as usize % (usize::MAX / 2);
            faults.push(Status::BatchSize);
        }
        let requests_in = self.array(requests.as_ptr().cast_mut(), count, &mut faults);
        let verdicts_out = self.array(verdicts.as_mut_ptr().cast::<Verdict>(), count, &mut faults);
        let ((at, now), flags) = (self.instant(), self.flags(TOLLGATE_COUNTED, &mut faults));
        let status = call!(self, tollgate_check_many(limiter, requests_in, count, at, flags, verdicts_out));
        if !self.judge(status, &faults) {
            return assert!(verdicts.iter().all(Raw::is_blank), "written in spite of {status:?}");
        }
        watched.at(now, self.now);
        for ((agent, request, mut faults), raw) in asked.into_iter().zip(&verdicts) {
            let verdict = raw.read::<Verdict>();
            if faults.is_empty() {
                Self::note(watched, agent.key());
            }
            let price = Self::price(watched, &agent, request.lane, request.cost, &mut faults);
            let unknown = faults.is_empty() && price.is_none();
            if unknown || (faults.is_empty() && Self::may_be_full(watched, verdict.status)) {
                continue;
            }
            if !self.judge(verdict.status, &faults) {
                assert!(raw.0[4..].iter().all(|byte| *byte == 0), "not zero: {verdict:?}");
                assert_eq!(call!(self, tollgate_verdict_remaining(&verdict)), 0);
                continue;
            }
            self.fits(&verdict, flags);
            if let Some(price) = price {
                self.judge_verdict(watched, agent.key(), request.lane, price, now, &verdict);
            }
        }
    }
}
