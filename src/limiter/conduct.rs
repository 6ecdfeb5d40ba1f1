//! Violations, and what follows from them.

use super::charge::Answer;
use super::request::{Resolved, Target};
use super::{Agent, Limiter};
use crate::clock::{Tick, nanos_saturating};
use crate::conduct::told::Judgement;
use crate::conduct::{self, Conduct, ConductNumbers, ConductWord, Violation};
use crate::error::Error;
use crate::lane::{Outcome, Verdict};
use crate::slab::Found;
use crate::slab::hash::AgentHash;
use std::time::Duration;

/// What became of a counted request.
#[derive(Clone, Copy, Debug)]
struct Admission {
    /// The verdict by the lane alone.
    pub(crate) of_lane: Verdict,
    /// What the denial was, if it counts.
    pub(crate) violation: Option<Violation>,
    /// What a denied agent has to wait for its conduct.
    pub(crate) wait: Duration,
}

impl Admission {
    /// The verdict by lane and conduct.
    pub(crate) fn verdict(&self) -> Verdict {
        let sustained_abuse = self.violation.is_some_and(|violation| violation.sustained_abuse());
        match self.of_lane.is_allowed() {
            true => self.of_lane,
            false => {
                let in_a_row = self.violation.map_or(0, |violation| violation.consecutive());
                self.of_lane.judged(in_a_row, sustained_abuse, self.wait)
            }
        }
    }
}

impl Limiter {
    /// Charges a request whose denial may be a violation.
    pub(super) fn charge_counted(&self, request: &Resolved<'_>) -> Answer {
        self.admit(request).map(|admission| admission.verdict())
    }

    fn admit(&self, request: &Resolved<'_>) -> Result<Admission, Error> {
        let verdict = match self.blocked(request)? {
            Some(verdict) => verdict,
            None => self.charge(request)?,
        };
        Ok(self.conclude(verdict, request))
    }

    /// The denial that an agent gets whatever its lanes hold, if the policy
    /// enforces waits and the agent has to wait.
    pub(super) fn blocked(&self, request: &Resolved<'_>) -> Result<Option<Verdict>, Error> {
        let rules = self.limits.conduct();
        if !rules.enforces_wait() {
            return Ok(None);
        }
        let block = self.conduct_by(&rules, request.target.hash, request.target.now).wait();
        if block.is_zero() { Ok(None) } else { self.denied_for(request, block).map(Some) }
    }

    /// The verdict on a counted request, with what a denial means for the
    /// agent's conduct.
    pub(super) fn judged(&self, verdict: Verdict, request: &Resolved<'_>) -> Verdict {
        self.conclude(verdict, request).verdict()
    }

    fn conclude(&self, of_lane: Verdict, request: &Resolved<'_>) -> Admission {
        let (violation, wait) = match of_lane.is_allowed() {
            true => (None, Duration::ZERO),
            false => self.judge(request, of_lane.retry_after()),
        };
        Admission { of_lane, violation, wait }
    }

    /// Judges a denial: records a violation, if it is one, and says how long
    /// the agent has to wait for its conduct.
    fn judge(&self, request: &Resolved<'_>, retry_after: Option<Duration>) -> (Option<Violation>, Duration) {
        let Resolved { agent, target: Target { hash, now, .. }, .. } = *request;
        let rules = self.limits.conduct();
        if !rules.counts_every_denial() {
            // Where no wait helps none is announced, and nobody can come back too early.
            let Some(retry_after) = retry_after else {
                return (None, Duration::ZERO);
            };
            let waits = rules.waits(&self.conduct_by(&rules, hash, now), nanos_saturating(retry_after));
            match self.told_waits.judge(hash, request.lane(), now, waits) {
                Judgement::Told | Judgement::Parallel => return (None, Duration::from_nanos(waits.told)),
                Judgement::Counted => return (None, Duration::from_nanos(waits.counted)),
                Judgement::Early => {}
            }
        }
        // Without a record it is a first violation that nobody remembers.
        let violation = self.violate(agent, hash, now, &rules).unwrap_or_else(|| Violation::first(&rules));
        self.note_violation(agent, &violation, now);
        (Some(violation), violation.wait())
    }

    /// Records a violation that the caller has found, and says what follows.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`]; [`Error::Full`] if nothing is
    /// known of the agent and every record near its home is in use.
    pub fn record_violation<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<Violation, Error> {
        let Agent { id: agent, at } = agent.into();
        let now = at.unwrap_or_else(|| self.clock.now());
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
    pub fn violations<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<Conduct, Error> {
        let Agent { id, at } = agent.into();
        Ok(self.conduct_of(self.hash(id)?, at.unwrap_or_else(|| self.clock.now())))
    }

    pub(super) fn conduct_of(&self, hash: AgentHash, now: Tick) -> Conduct {
        self.conduct_by(&self.limits.conduct(), hash, now)
    }

    /// Whether the agent has violated a limit and has not been quiet since: a
    /// scheduler gives it no new work. An exempt agent never is.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn rate_limited<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<bool, Error> {
        let agent = agent.into();
        Ok(self.violations(agent)?.is_rate_limited() && !self.is_exempt(agent.id)?)
    }

    /// Those of the agents that may be given new work: all that are not rate
    /// limited. A bad id is not among them.
    pub fn assignable<A: AsRef<[u8]>>(&self, agents: impl IntoIterator<Item = A>) -> Vec<A> {
        let now = self.clock.now();
        agents.into_iter().filter(|agent| self.rate_limited(Agent::new(agent).at(now)) == Ok(false)).collect()
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
        let forgive = |word| conduct::forgive(word, now, &rules);
        Ok(self.with_record(hash, |found| self.update_conduct(found, forgive)).unwrap_or(false))
    }

    /// Conduct before this instant matters no more at `now`.
    pub(super) fn quiet_since(&self, now: Tick) -> Tick {
        now.checked_sub(self.limits.conduct().keep()).unwrap_or(Tick::ZERO)
    }

    fn conduct_by(&self, rules: &ConductNumbers, hash: AgentHash, now: Tick) -> Conduct {
        let look = |word| Outcome { next: None, answer: conduct::look(word, now, rules) };
        self.with_record(hash, |found| self.update_conduct(found, look)).unwrap_or_default()
    }

    /// Records a violation. `None` if the agent has no record, and there is
    /// neither a vacant nor an idle one for it: nobody loses a record to a violator.
    fn violate(&self, agent: &[u8], hash: AgentHash, now: Tick, rules: &ConductNumbers) -> Option<Violation> {
        let violate = |word| conduct::violate(word, now, rules);
        self.with_record_or_claim(hash, Some(agent), now, |found, _| self.update_conduct(found, violate))
    }

    /// Applies a step to the conduct word of a record. `None` if its tag has changed.
    fn update_conduct<A>(&self, found: Found<'_>, step: impl Fn(ConductWord) -> Outcome<A, ConductWord>) -> Option<A> {
        found.record.update_conduct(found.tag, step, || self.slab.count_retry())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Request;
    use crate::clock::ManualClock;
    use crate::policy::{ConductRules, LaneId, PlanId, Policy};

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
            let denied = limiter.check_request(Request::new("agent-7", LANE).counted()).unwrap();
            assert!(!denied.is_allowed(), "{millis}");
            clock.advance(denied.retry_after().unwrap());
            assert!(limiter.check_request(Request::new("agent-7", LANE).counted()).unwrap().is_allowed(), "{millis}");
        }
    }

    /// A block once hid that its bucket would be empty for longer than the block.
    #[test]
    fn a_blocked_agent_is_told_the_wait_of_its_bucket_if_that_is_longer() {
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

    /// Such a call was once denied in place of being refused, and so made the
    /// agent's conduct worse.
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
