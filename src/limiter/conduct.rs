//! Violations, and what follows from them.

use super::Limiter;
use super::check::Ask;
use crate::clock::{Tick, nanos_saturating};
use crate::conduct::told::Judgement;
use crate::conduct::{self, Conduct, ConductNumbers, ConductWord, Violation};
use crate::error::Error;
use crate::lane::{Outcome, Verdict};
use crate::policy::{LaneId, PlanId};
use crate::slab::hash::AgentHash;
use std::time::Duration;

/// The answer to a check that also counts violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an admission says whether the request may go on"]
pub struct Admission {
    verdict: Verdict,
    violation: Option<Violation>,
    wait: Duration,
}

impl Admission {
    /// The answer of the lane, with the wait that the lane asks for.
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Whether the request may go on.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        self.verdict.is_allowed()
    }

    /// The violation that a denial was. `None` if the request was allowed, or
    /// the denial does not count: see [`ConductRules`](crate::ConductRules).
    #[must_use]
    pub const fn violation(&self) -> Option<Violation> {
        self.violation
    }

    /// What a denied agent has to wait for its conduct: zero if the policy has
    /// no curve.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    /// What a denied caller is told to wait: the longer of the lane's wait and
    /// that for its conduct. `None` if the request was allowed, or no wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.verdict.retry_after().map(|wait| wait.max(self.wait))
    }
}

impl Limiter {
    /// May the agent spend `cost` tokens now? A denial is a violation if the
    /// agent was told to wait and came back early.
    ///
    /// # Errors
    ///
    /// As [`check_at`](Limiter::check_at).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, ManualClock, Policy};
    ///
    /// let policy = Policy::builder().lane("http", "10/min").build()?;
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::builder(policy).agents(10).clock(clock.clone()).build()?;
    /// let http = limiter.lane("http").expect("named above");
    ///
    /// assert!(limiter.admit("agent-7", http, 10)?.is_allowed());
    /// let denied = limiter.admit("agent-7", http, 1)?;
    /// assert_eq!((denied.retry_after(), denied.violation()), (Some(Duration::from_secs(6)), None));
    ///
    /// clock.advance(Duration::from_secs(2));
    /// assert!(limiter.admit("agent-7", http, 1)?.violation().is_some(), "four seconds early");
    /// assert!(limiter.rate_limited("agent-7")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn admit(&self, agent: impl AsRef<[u8]>, lane: LaneId, cost: u64) -> Result<Admission, Error> {
        self.admit_with(agent.as_ref(), lane, cost, None, None)
    }

    /// As [`admit`](Limiter::admit), at `now`.
    ///
    /// # Errors
    ///
    /// As [`check_at`](Limiter::check_at).
    pub fn admit_at(&self, agent: impl AsRef<[u8]>, lane: LaneId, cost: u64, now: Tick) -> Result<Admission, Error> {
        self.admit_with(agent.as_ref(), lane, cost, None, Some(now))
    }

    /// As [`admit`](Limiter::admit), under this plan if the agent has no
    /// assignment of its own.
    ///
    /// # Errors
    ///
    /// As [`check_as`](Limiter::check_as).
    pub fn admit_as(&self, agent: impl AsRef<[u8]>, plan: PlanId, lane: LaneId, cost: u64) -> Result<Admission, Error> {
        self.admit_with(agent.as_ref(), lane, cost, Some(plan), None)
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
        self.admit_with(agent.as_ref(), lane, cost, Some(plan), Some(now))
    }

    fn admit_with(
        &self,
        agent: &[u8],
        lane: LaneId,
        cost: u64,
        stand_in: Option<PlanId>,
        given: Option<Tick>,
    ) -> Result<Admission, Error> {
        let now = given.unwrap_or_else(|| self.clock.now());
        let is_given = given.is_some();
        let ask = self.limits.chargeable(lane).map(|lane| Ask { agent, lane, cost, stand_in, is_given });
        let admission = ask.and_then(|ask| self.admit_unwatched(ask, now));
        let mut answer = admission.map(|admission| admission.verdict);
        self.warn_once(agent, lane, cost, &mut answer);
        self.note_answer(agent, lane, &answer);
        admission.and_then(|admission| Ok(Admission { verdict: answer?, ..admission }))
    }

    fn admit_unwatched(&self, ask: Ask<'_>, now: Tick) -> Result<Admission, Error> {
        let hash = self.hash_ask(&ask)?;
        let rules = self.limits.conduct();
        let block = if rules.enforces_wait() { self.look_at_conduct(hash, now, &rules).wait() } else { Duration::ZERO };
        let verdict =
            if block.is_zero() { self.check_lane(hash, ask, now)? } else { self.blocked(hash, ask, block, now)? };
        let (violation, wait) = match verdict.is_allowed() {
            true => (None, Duration::ZERO),
            false => self.judge(ask.agent, hash, ask.lane.id(), verdict.retry_after(), now, &rules),
        };
        Ok(Admission { verdict, violation, wait })
    }

    /// Judges the denial of another call, such as [`reserve`](Limiter::reserve),
    /// as [`admit`](Limiter::admit) would. `retry_after` is the wait of its
    /// verdict. Gives the violation, if it is one, and what the agent has to
    /// wait for its conduct.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`] or [`Error::UnknownLane`].
    pub fn judge_at(
        &self,
        agent: impl AsRef<[u8]>,
        lane: LaneId,
        retry_after: Option<Duration>,
        now: Tick,
    ) -> Result<(Option<Violation>, Duration), Error> {
        let agent = agent.as_ref();
        self.limits.lane(lane)?;
        Ok(self.judge(agent, self.hash(agent)?, lane, retry_after, now, &self.limits.conduct()))
    }

    /// What follows from a denial. Records a violation, if it is one, and tells of it.
    pub(super) fn judge(
        &self,
        agent: &[u8],
        hash: AgentHash,
        lane: LaneId,
        retry_after: Option<Duration>,
        now: Tick,
        rules: &ConductNumbers,
    ) -> (Option<Violation>, Duration) {
        if !rules.counts_every_denial() {
            // Where no wait helps none is told, and nobody can come back too early.
            let Some(retry_after) = retry_after else {
                return (None, Duration::ZERO);
            };
            let waits = rules.waits(&self.look_at_conduct(hash, now, rules), nanos_saturating(retry_after));
            match self.told_waits.judge(hash, lane, now, waits) {
                Judgement::Told | Judgement::Parallel => return (None, Duration::from_nanos(waits.told)),
                Judgement::Counted => return (None, Duration::from_nanos(waits.counted)),
                Judgement::Early => {}
            }
        }
        // Without a record it is a first violation that nobody remembers.
        let violation = self.violate(agent, hash, now, rules).unwrap_or_else(|| Violation::first(rules));
        self.note_violation(agent, &violation, now);
        (Some(violation), violation.wait())
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
        let agent = agent.as_ref();
        let hash = self.hash(agent)?;
        let violation = self.violate(agent, hash, now, &self.limits.conduct()).ok_or(Error::Full)?;
        self.note_violation(agent, &violation, now);
        Ok(violation)
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
        let hash = self.hash(agent.as_ref())?;
        Ok(self.conduct_of(hash, now))
    }

    pub(super) fn conduct_of(&self, hash: AgentHash, now: Tick) -> Conduct {
        self.look_at_conduct(hash, now, &self.limits.conduct())
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
        let hash = self.hash(agent.as_ref())?;
        let (now, rules) = (self.clock.now(), self.limits.conduct());
        Ok(self.update_conduct(hash, |word| conduct::forgive(word, now, &rules)).unwrap_or(false))
    }

    /// Conduct before this instant matters no more at `now`.
    pub(super) fn quiet_since(&self, now: Tick) -> Tick {
        now.checked_sub(self.limits.conduct().keep()).unwrap_or(Tick::ZERO)
    }

    pub(super) fn look_at_conduct(&self, hash: AgentHash, now: Tick, rules: &ConductNumbers) -> Conduct {
        let look = |word| Outcome { next: None, answer: conduct::look(word, now, rules) };
        self.update_conduct(hash, look).unwrap_or_default()
    }

    /// Records a violation. `None` if the agent has no record, and there is
    /// neither a vacant nor an idle one for it: nobody loses a record to a violator.
    fn violate(&self, agent: &[u8], hash: AgentHash, now: Tick, rules: &ConductNumbers) -> Option<Violation> {
        let violate = |word| conduct::violate(word, now, rules);
        if let Some(violation) = self.update_conduct(hash, violate) {
            return Some(violation);
        }
        let claimed = self.claim_free(hash, Some(agent), now)?;
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::policy::{ConductRules, Policy};

    fn enforcing(clock: &ManualClock) -> Limiter {
        let policy = Policy::builder().lane("lane", "10/min").plan("small", [("lane", "5/min")]);
        let rules = ConductRules::default().with_curve([1, 2, 5, 10, 30].map(Duration::from_secs));
        let policy = policy.conduct(rules.with_every_denial(true).with_enforced_wait(true)).build().unwrap();
        Limiter::builder(policy).agents(10).clock(clock.clone()).build().unwrap()
    }

    const LANE: LaneId = LaneId::new(0);

    /// Blocks end on an eighth of a second, the wait that was told did not: an
    /// agent that waited as told was denied again, for ever.
    #[test]
    fn who_waits_as_told_is_not_blocked_any_more() {
        let clock = ManualClock::new();
        let limiter = enforcing(&clock);
        for millis in [0, 10, 1_124, 5_001, 60_000, 90_001] {
            clock.advance(Duration::from_millis(millis));
            limiter.record_violation("agent-7").unwrap();
            let denied = limiter.admit("agent-7", LANE, 1).unwrap();
            assert!(!denied.is_allowed(), "{millis}");
            clock.advance(denied.retry_after().unwrap());
            assert!(limiter.admit("agent-7", LANE, 1).unwrap().is_allowed(), "{millis}");
        }
    }

    /// A block once hid that its bucket would be empty for longer than the block.
    #[test]
    fn a_blocked_agent_is_told_the_wait_of_its_bucket_if_that_is_longer() {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1));
        let limiter = enforcing(&clock);
        let allowed = limiter.admit("agent-7", LANE, 10).unwrap();
        limiter.record_violation("agent-7").unwrap();
        let denied = limiter.admit("agent-7", LANE, 2).unwrap();
        assert_eq!(denied.violation().unwrap().wait(), Duration::from_secs(2));
        assert_eq!(denied.retry_after(), Some(Duration::from_secs(12)));
        assert_eq!(denied.verdict().full_in(), allowed.verdict().full_in(), "a denial charges nothing");
    }

    /// Such a call was once denied in place of being refused, and so made the
    /// agent's conduct worse.
    #[test]
    fn a_bad_request_of_a_blocked_agent_is_an_error_and_no_violation() {
        let clock = ManualClock::new();
        let limiter = enforcing(&clock);
        let small = limiter.plan("small").unwrap();
        limiter.record_violation("agent-7").unwrap();
        let conduct = limiter.violations("agent-7").unwrap();
        assert_eq!(limiter.admit("agent-7", LANE, 0), Err(Error::ZeroCost));
        assert_eq!(limiter.admit("agent-7", LANE, 11), Err(Error::CostAboveCapacity { cost: 11, capacity: 10 }));
        let above = Error::CostAboveCapacity { cost: 6, capacity: 5 };
        assert_eq!(limiter.admit_as("agent-7", small, LANE, 6), Err(above));
        assert!(matches!(limiter.admit_as("agent-7", PlanId::new(2), LANE, 1), Err(Error::UnknownPlan { .. })));
        assert_eq!(limiter.violations("agent-7").unwrap(), conduct);
        let denied = limiter.admit_as("agent-7", small, LANE, 1).unwrap();
        assert_eq!((denied.is_allowed(), denied.verdict().remaining(), denied.verdict().capacity()), (false, 5, 5));
    }

    #[test]
    fn a_block_does_not_concern_an_exempt_agent() {
        let limiter = enforcing(&ManualClock::new());
        limiter.record_violation("agent-7").unwrap();
        limiter.exempt("agent-7").unwrap();
        assert!(limiter.admit("agent-7", LANE, 1).unwrap().is_allowed());
    }
}
