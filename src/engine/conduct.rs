//! Violations, and what follows from them.

use super::charge::Answer;
use super::request::{ResolvedRequest, Target};
use super::{Agent, Engine};
use crate::clock::{Tick, nanos_saturating};
use crate::conduct::announced::Judgement;
use crate::conduct::{self, Conduct, ConductNumbers, ConductWord, Violation};
use crate::error::Error;
use crate::lane::{Outcome, Verdict};
use crate::slab::FoundRecord;
use crate::slab::hash::AgentHash;
use std::time::Duration;

impl Engine {
    /// Charges a request whose denial may be a violation.
    pub(super) fn charge_counted(&self, request: &ResolvedRequest<'_>) -> Answer {
        let verdict = match self.blocked(request)? {
            Some(verdict) => verdict,
            None => self.charge(request)?,
        };
        Ok(self.judged(verdict, request))
    }

    /// The denial that an agent gets whatever its lanes hold, if the policy
    /// enforces waits and the agent has to wait.
    pub(super) fn blocked(&self, request: &ResolvedRequest<'_>) -> Result<Option<Verdict>, Error> {
        let rules = self.limits.conduct();
        if !rules.enforces_wait() {
            return Ok(None);
        }
        let block = self.conduct_by(&rules, request.target.hash, request.target.now).wait();
        if block.is_zero() { Ok(None) } else { self.denied_for(request, block).map(Some) }
    }

    /// The verdict on a counted request, with what a denial means for the
    /// agent's conduct.
    pub(super) fn judged(&self, verdict: Verdict, request: &ResolvedRequest<'_>) -> Verdict {
        if verdict.is_allowed() {
            return verdict;
        }
        #[cfg(feature = "cluster")]
        if verdict.is_provisional() {
            // Nobody knows yet whether the agent asked for too much.
            return verdict;
        }
        let (violation, wait) = self.judge(request, verdict.retry_after());
        let in_a_row = violation.map_or(0, |violation| violation.in_a_row());
        verdict.judged(in_a_row, violation.is_some_and(|violation| violation.sustained_abuse()), wait)
    }

    /// Judges a denial: records a violation, if it is one, and returns how long
    /// the agent has to wait for its conduct.
    fn judge(&self, request: &ResolvedRequest<'_>, retry_after: Option<Duration>) -> (Option<Violation>, Duration) {
        let ResolvedRequest { agent, target: Target { hash, now, .. }, .. } = *request;
        let rules = self.limits.conduct();
        if !rules.counts_every_denial() {
            // If no wait helps, none is announced, and the agent cannot come back too early.
            let Some(retry_after) = retry_after else {
                return (None, Duration::ZERO);
            };
            let waits = rules.waits(&self.conduct_by(&rules, hash, now), nanos_saturating(retry_after));
            match self.announced.judge(hash, request.lane(), now, waits) {
                Judgement::First | Judgement::Parallel => return (None, Duration::from_nanos(waits.first)),
                Judgement::Counted => return (None, Duration::from_nanos(waits.counted)),
                Judgement::Early => {}
            }
        }
        // Without a record it is a first violation that nobody remembers.
        let violation = self.violate(agent, hash, now, &rules).unwrap_or_else(|| Violation::first(&rules));
        self.note_violation(agent, &violation, now);
        (Some(violation), violation.wait())
    }

    /// Records a violation that the caller has found.
    pub(crate) fn record_violation(&self, agent: Agent<'_>) -> Result<Violation, Error> {
        let Agent { id: agent, at } = agent;
        let now = at.unwrap_or_else(|| self.clock.now());
        let hash = self.hash(agent)?;
        let violation = self.violate(agent, hash, now, &self.limits.conduct()).ok_or(Error::Full)?;
        self.note_violation(agent, &violation, now);
        Ok(violation)
    }

    /// The agent's conduct.
    pub(crate) fn violations(&self, agent: Agent<'_>) -> Result<Conduct, Error> {
        let Agent { id, at } = agent;
        Ok(self.conduct_of(self.hash(id)?, at.unwrap_or_else(|| self.clock.now())))
    }

    pub(super) fn conduct_of(&self, hash: AgentHash, now: Tick) -> Conduct {
        self.conduct_by(&self.limits.conduct(), hash, now)
    }

    /// Whether the agent has violated a limit and has not been quiet since.
    pub(crate) fn rate_limited(&self, agent: Agent<'_>) -> Result<bool, Error> {
        Ok(self.violations(agent)?.is_rate_limited() && !self.is_exempt(agent.id)?)
    }

    /// The agents that are not rate limited.
    pub(crate) fn assignable<A: AsRef<[u8]>>(&self, agents: impl IntoIterator<Item = A>) -> Vec<A> {
        let now = self.clock.now();
        agents.into_iter().filter(|agent| self.rate_limited(Agent::new(agent).at(now)) == Ok(false)).collect()
    }

    /// Forgives the agent all violations.
    pub(crate) fn reset_violations(&self, agent: &[u8]) -> Result<bool, Error> {
        let hash = self.hash(agent)?;
        let (now, rules) = (self.clock.now(), self.limits.conduct());
        let forgive = |word| conduct::forgive(word, now, &rules);
        Ok(self.with_record(hash, |found| self.update_conduct(found, forgive)).unwrap_or(false))
    }

    /// Conduct before this instant no longer matters at `now`.
    pub(super) fn quiet_since(&self, now: Tick) -> Tick {
        now.checked_sub(self.limits.conduct().keep()).unwrap_or(Tick::ZERO)
    }

    fn conduct_by(&self, rules: &ConductNumbers, hash: AgentHash, now: Tick) -> Conduct {
        let assess = |word| Outcome { next: None, answer: conduct::assess(word, now, rules) };
        self.with_record(hash, |found| self.update_conduct(found, assess)).unwrap_or_default()
    }

    /// Records a violation. `None` if the agent has no record, and no vacant or
    /// idle one is free: no agent loses its record to a violator.
    fn violate(&self, agent: &[u8], hash: AgentHash, now: Tick, rules: &ConductNumbers) -> Option<Violation> {
        let violate = |word| conduct::violate(word, now, rules);
        self.with_record_or_claim(hash, Some(agent), now, |found, _| self.update_conduct(found, violate))
    }

    /// Applies a step to the conduct word of a record. `None` if its tag has changed.
    fn update_conduct<A>(
        &self,
        found: FoundRecord<'_>,
        step: impl Fn(ConductWord) -> Outcome<A, ConductWord>,
    ) -> Option<A> {
        found.record.update_conduct(found.tag, step, || self.slab.count_retry())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::policy::{ConductRules, LaneId, PlanId, Policy};
    use crate::{Limiter, Request};

    fn enforcing(clock: &ManualClock) -> Limiter {
        let policy = Policy::builder().lane("lane", "10/min").plan("small", [("lane", "5/min")]);
        let rules = ConductRules::default().with_curve([1, 2, 5, 10, 30].map(Duration::from_secs));
        let policy = policy.conduct(rules.with_every_denial(true).with_enforced_wait(true)).build().unwrap();
        Limiter::builder(policy).agents(10).clock(clock.clone()).build().unwrap()
    }

    const LANE: LaneId = LaneId::new(0);

    /// Blocks end on an eighth of a second, the announced wait did not: an
    /// agent that waited as long as it was asked to was denied again, for ever.
    #[test]
    fn an_agent_that_has_waited_is_not_blocked_any_more() {
        let clock = ManualClock::new();
        let limiter = enforcing(&clock);
        for millis in [0, 10, 1_124, 5_001, 60_000, 90_001] {
            clock.advance(Duration::from_millis(millis));
            limiter.record_violation("agent-7").unwrap();
            let denied = limiter.check_request(Request::new("agent-7", LANE).counted()).unwrap();
            assert!(!denied.is_allowed(), "{millis}");
            clock.advance(denied.retry_after().unwrap());
            assert!(limiter.check_request(Request::new("agent-7", LANE).counted()).unwrap().is_allowed(), "{millis}");
        }
    }

    /// A block once hid that its bucket would be empty for longer than the block.
    #[test]
    fn a_blocked_agent_gets_the_wait_of_its_bucket_if_that_is_longer() {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1));
        let limiter = enforcing(&clock);
        let allowed = limiter.check_request(Request::new("agent-7", LANE).cost(10).counted()).unwrap();
        limiter.record_violation("agent-7").unwrap();
        let denied = limiter.check_request(Request::new("agent-7", LANE).cost(2).counted()).unwrap();
        assert_eq!(denied.conduct_wait(), Duration::from_secs(2));
        assert_eq!(denied.retry_after(), Some(Duration::from_secs(12)));
        assert_eq!(denied.full_in(), allowed.full_in(), "a denial charges nothing");
    }

    /// Such a call was once denied instead of refused, and so made the agent's
    /// conduct worse.
    #[test]
    fn a_bad_request_of_a_blocked_agent_is_an_error_and_no_violation() {
        let clock = ManualClock::new();
        let limiter = enforcing(&clock);
        let small = limiter.plan("small").unwrap();
        limiter.record_violation("agent-7").unwrap();
        let conduct = limiter.violations("agent-7").unwrap();
        assert_eq!(limiter.check_request(Request::new("agent-7", LANE).cost(0).counted()), Err(Error::ZeroCost));
        assert_eq!(
            limiter.check_request(Request::new("agent-7", LANE).cost(11).counted()),
            Err(Error::CostAboveCapacity { cost: 11, capacity: 10 })
        );
        let above = Error::CostAboveCapacity { cost: 6, capacity: 5 };
        assert_eq!(limiter.check_request(Request::new("agent-7", LANE).cost(6).plan(small).counted()), Err(above));
        assert!(matches!(
            limiter.check_request(Request::new("agent-7", LANE).plan(PlanId::new(2)).counted()),
            Err(Error::UnknownPlan { .. })
        ));
        assert_eq!(limiter.violations("agent-7").unwrap(), conduct);
        let denied = limiter.check_request(Request::new("agent-7", LANE).plan(small).counted()).unwrap();
        assert_eq!((denied.is_allowed(), denied.remaining(), denied.capacity()), (false, 5, 5));
    }

    #[test]
    fn a_block_does_not_concern_an_exempt_agent() {
        let limiter = enforcing(&ManualClock::new());
        limiter.record_violation("agent-7").unwrap();
        limiter.exempt("agent-7").unwrap();
        assert!(limiter.check_request(Request::new("agent-7", LANE).counted()).unwrap().is_allowed());
    }
}
