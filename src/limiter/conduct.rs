//! Violations, and what follows from them.

use super::Limiter;
use super::check::Ask;
use crate::clock::Tick;
use crate::conduct::{self, Conduct, ConductNumbers, ConductWord, Violation};
use crate::error::Error;
use crate::lane::{Outcome, Verdict, bucket};
use crate::policy::{LaneId, PlanId};
use crate::slab::hash::AgentHash;
use crate::slab::{Newcomer, OnFull};
use std::time::Duration;

/// The answer to a check that also counts violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an admission says whether the request may go on"]
pub struct Admission {
    verdict: Verdict,
    violation: Option<Violation>,
}

impl Admission {
    /// The answer of the lane, with the wait that its bucket asks for.
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether the request may go on.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.verdict.is_allowed()
    }

    /// The violation that a denial was, with the wait that the curve of the
    /// policy asks for. `None` if the request was allowed.
    #[must_use]
    pub const fn violation(&self) -> Option<Violation> {
        self.violation
    }

    /// What a denied caller is told to wait: the longer of the bucket's wait
    /// and the [violation's](Violation::wait). `None` if the request was
    /// allowed, or no wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let wait = self.verdict.retry_after()?;
        Some(self.violation.map_or(wait, |violation| violation.wait().max(wait)))
    }
}

impl Limiter {
    /// May the agent spend `cost` tokens now? A denial is recorded as a
    /// violation, and makes the wait longer from one to the next.
    ///
    /// # Errors
    ///
    /// As [`check_at`](Limiter::check_at).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, ManualClock, Policy};
    ///
    /// let policy = Policy::builder().lane("http", "1/s").build()?;
    /// let limiter = Limiter::builder(policy).agents(10).clock(ManualClock::new()).build()?;
    /// let http = limiter.lane("http").expect("named above");
    ///
    /// assert!(limiter.admit("agent-7", http, 1)?.is_allowed());
    /// let waits = [1, 2, 3].map(|_| limiter.admit("agent-7", http, 1).ok()?.retry_after());
    /// assert_eq!(waits, [1, 2, 5].map(|seconds| Some(Duration::from_secs(seconds))));
    /// assert!(limiter.rate_limited("agent-7")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn admit(&self, agent: impl AsRef<[u8]>, lane: LaneId, cost: u64) -> Result<Admission, Error> {
        self.admit_at(agent, lane, cost, self.clock.now())
    }

    /// As [`admit`](Limiter::admit), at `now`.
    ///
    /// # Errors
    ///
    /// As [`check_at`](Limiter::check_at).
    pub fn admit_at(&self, agent: impl AsRef<[u8]>, lane: LaneId, cost: u64, now: Tick) -> Result<Admission, Error> {
        let agent = agent.as_ref();
        let ask = Ask { lane, cost, stand_in: None };
        self.admit_with(agent, ask, now, || self.check_at(agent, lane, cost, now))
    }

    /// As [`admit`](Limiter::admit), under this plan if the agent has no
    /// assignment of its own.
    ///
    /// # Errors
    ///
    /// As [`check_as`](Limiter::check_as).
    pub fn admit_as(&self, agent: impl AsRef<[u8]>, plan: PlanId, lane: LaneId, cost: u64) -> Result<Admission, Error> {
        self.admit_as_at(agent, plan, lane, cost, self.clock.now())
    }

    /// As [`admit_as`](Limiter::admit_as), at `now`.
    ///
    /// # Errors
    ///
    /// As [`check_as`](Limiter::check_as).
    pub fn admit_as_at(
        &self,
        agent: impl AsRef<[u8]>,
        plan: PlanId,
        lane: LaneId,
        cost: u64,
        now: Tick,
    ) -> Result<Admission, Error> {
        let agent = agent.as_ref();
        let ask = Ask { lane, cost, stand_in: Some(plan) };
        self.admit_with(agent, ask, now, || self.check_as_at(agent, plan, lane, cost, now))
    }

    fn admit_with(
        &self,
        agent: &[u8],
        ask: Ask,
        now: Tick,
        check: impl FnOnce() -> Result<Verdict, Error>,
    ) -> Result<Admission, Error> {
        let hash = self.hash(agent, ask.lane)?;
        ask.stand_in.map_or(Ok(()), |plan| self.limits.check_plan(plan))?;
        let rules = self.limits.conduct();
        let wait = if rules.enforces_wait() { self.look_at_conduct(hash, now, &rules).wait() } else { Duration::ZERO };
        let verdict = if wait.is_zero() { check()? } else { self.blocked(hash, ask, now, wait)? };
        let violation = if verdict.is_allowed() {
            None
        } else {
            // Without a record it is a first violation that nobody remembers.
            Some(self.violate(hash, now, &rules).unwrap_or_else(|| Violation::first(&rules)))
        };
        Ok(Admission { verdict, violation })
    }

    /// What a check would say, but charging nothing and with this wait at least.
    fn blocked(&self, hash: AgentHash, ask: Ask, now: Tick, wait: Duration) -> Result<Verdict, Error> {
        let (charge, status) = self.change(hash, ask.stand_in, ask.lane, |limit, word| {
            let charge = bucket::step(word, now, limit, ask.cost).answer;
            Outcome { next: None, answer: (charge, bucket::status(word, now, limit)) }
        });
        let verdict = bucket::verdict(charge)?;
        Ok(if status.is_exempt() { verdict } else { status.denied_for(wait, &verdict) })
    }

    /// Records a violation that the caller has found, and says what follows.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`]; [`Error::Full`] if nothing is
    /// known of the agent and every record near its home is in use.
    pub fn record_violation(&self, agent: impl AsRef<[u8]>) -> Result<Violation, Error> {
        self.record_violation_at(agent, self.clock.now())
    }

    /// As [`record_violation`](Limiter::record_violation), at `now`.
    ///
    /// # Errors
    ///
    /// As [`record_violation`](Limiter::record_violation).
    pub fn record_violation_at(&self, agent: impl AsRef<[u8]>, now: Tick) -> Result<Violation, Error> {
        let hash = self.hash(agent.as_ref(), LaneId::new(0))?;
        self.violate(hash, now, &self.limits.conduct()).ok_or(Error::Full)
    }

    /// The agent's conduct as it stands.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn violations(&self, agent: impl AsRef<[u8]>) -> Result<Conduct, Error> {
        self.violations_at(agent, self.clock.now())
    }

    /// The agent's conduct as it stands at `now`.
    ///
    /// # Errors
    ///
    /// As [`violations`](Limiter::violations).
    pub fn violations_at(&self, agent: impl AsRef<[u8]>, now: Tick) -> Result<Conduct, Error> {
        let hash = self.hash(agent.as_ref(), LaneId::new(0))?;
        Ok(self.look_at_conduct(hash, now, &self.limits.conduct()))
    }

    /// Whether the agent has violated a limit and has not been quiet since: a
    /// scheduler gives it no new work. An exempt agent never is.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn rate_limited(&self, agent: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.rate_limited_at(agent, self.clock.now())
    }

    /// As [`rate_limited`](Limiter::rate_limited), at `now`.
    ///
    /// # Errors
    ///
    /// As [`rate_limited`](Limiter::rate_limited).
    pub fn rate_limited_at(&self, agent: impl AsRef<[u8]>, now: Tick) -> Result<bool, Error> {
        let agent = agent.as_ref();
        Ok(self.violations_at(agent, now)?.is_rate_limited() && !self.is_exempt(agent)?)
    }

    /// Those of the agents that may be given new work: all that are not rate
    /// limited. A bad id is not among them.
    pub fn assignable<A: AsRef<[u8]>>(&self, agents: impl IntoIterator<Item = A>) -> Vec<A> {
        let now = self.clock.now();
        agents.into_iter().filter(|agent| self.rate_limited_at(agent, now) == Ok(false)).collect()
    }

    /// Forgives the agent all violations. `false` if there were none that
    /// still mattered.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn reset_violations(&self, agent: impl AsRef<[u8]>) -> Result<bool, Error> {
        let hash = self.hash(agent.as_ref(), LaneId::new(0))?;
        let (now, rules) = (self.clock.now(), self.limits.conduct());
        Ok(self.update_conduct(hash, |word| conduct::forgive(word, now, &rules)).unwrap_or(false))
    }

    /// Conduct before this instant matters no more at `now`.
    pub(super) fn quiet_since(&self, now: Tick) -> Tick {
        now.checked_sub(self.limits.conduct().keep()).unwrap_or(Tick::ZERO)
    }

    fn look_at_conduct(&self, hash: AgentHash, now: Tick, rules: &ConductNumbers) -> Conduct {
        let look = |word| Outcome { next: None, answer: conduct::look(word, now, rules) };
        self.update_conduct(hash, look).unwrap_or_default()
    }

    /// Records a violation. `None` if the agent has no record, and there is
    /// neither a vacant nor an idle one for it: nobody loses a record to a violator.
    fn violate(&self, hash: AgentHash, now: Tick, rules: &ConductNumbers) -> Option<Violation> {
        let violate = |word| conduct::violate(word, now, rules);
        if let Some(violation) = self.update_conduct(hash, violate) {
            return Some(violation);
        }
        let newcomer = Newcomer {
            hash,
            row: &|| self.row_of_newcomer(hash),
            now,
            quiet_since: self.quiet_since(now),
            clock: self.clock.now(),
            on_full: OnFull::Deny,
            ranking: &|_, _| 0,
            passes: &|_, _| true,
        };
        let claimed = self.slab.claim(&newcomer).ok()?;
        // The claim keeps the record the agent's.
        let found = claimed.found;
        found.record.update_conduct(found.tag, violate, || self.slab.count_retry())
    }

    /// Applies a step to the agent's conduct. `None` if it has no record.
    ///
    /// The loop ends when the agent keeps a record for one round; each further
    /// round is an eviction or a change of row that was completed meanwhile.
    fn update_conduct<A>(&self, hash: AgentHash, step: impl Fn(ConductWord) -> Outcome<A, ConductWord>) -> Option<A> {
        while let Some(found) = self.slab.find(hash) {
            if let Some(answer) = found.record.update_conduct(found.tag, &step, || self.slab.count_retry()) {
                return Some(answer);
            }
        }
        None
    }
}
