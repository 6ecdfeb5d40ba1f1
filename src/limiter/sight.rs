//! Looks at what the limiter does: counts, and how agents stand.

use super::Limiter;
use super::check::Ask;
use crate::clock::Tick;
use crate::error::Error;
use crate::lane::Verdict;
use crate::policy::{LaneId, PlanId};
use crate::sight::counters::Other;
use crate::sight::{AgentView, LaneCounts, LaneView, Snapshot};

impl Limiter {
    /// What it holds and has done. Without [`Sight`](crate::Sight) only what
    /// it holds. Takes microseconds, and holds up nobody.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let counters = self.watch.as_ref().map(|watch| &watch.counters);
        let sum = |other| counters.map_or(0, |counters| counters.sum(counters.other(other)));
        let tally = self.registry.tally();
        Snapshot {
            at: self.clock.now(),
            is_counting: counters.is_some(),
            lanes: LaneCounts::of(&self.policy(), counters),
            errors: sum(Other::Error),
            full: sum(Other::Full),
            stats: self.stats(),
            assigned: tally.assigned,
            overridden: tally.overridden,
            exempt: tally.exempt,
            unknown_actions: self.unknown_actions.total(),
            clock: self.clock.source(),
            clock_fallbacks: self.clock.fallbacks(),
        }
    }

    /// How the agent stands: each lane, its plan, its conduct, and the lane
    /// that is nearest to its limit. Charges nothing and makes no agent known.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    ///
    /// ```
    /// use tollgate::{Limiter, ManualClock, Policy, UsageLevel};
    ///
    /// let policy = Policy::builder().lane("ws", "120/minute").lane("http", "10/minute").build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).clock(ManualClock::new()).build()?;
    /// let (ws, http) = (limiter.lane("ws").expect("named above"), limiter.lane("http").expect("named above"));
    /// assert!(limiter.check_cost("agent-7", ws, 30)?.is_allowed());
    /// assert!(limiter.check_cost("agent-7", http, 9)?.is_allowed());
    ///
    /// let view = limiter.agent("agent-7")?;
    /// assert_eq!(view.lanes[0].usage_percent(), 25.0);
    /// let dominant = view.dominant().expect("the agent is not exempt");
    /// assert_eq!((dominant.name.as_str(), dominant.status.remaining()), ("http", 1));
    /// assert_eq!(dominant.level(), UsageLevel::Red);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn agent(&self, agent: impl AsRef<[u8]>) -> Result<AgentView, Error> {
        self.agent_at(agent, self.clock.now())
    }

    /// As [`agent`](Limiter::agent), at `now`.
    ///
    /// # Errors
    ///
    /// As [`agent`](Limiter::agent).
    pub fn agent_at(&self, agent: impl AsRef<[u8]>, now: Tick) -> Result<AgentView, Error> {
        let agent = agent.as_ref();
        let assignment = self.assignment(agent)?;
        let view = |(lane, name): (LaneId, &str)| {
            Ok(LaneView {
                lane,
                name: name.to_owned(),
                limit: self.limit_of(agent, lane)?,
                is_override: assignment.override_of(name).is_some(),
                status: self.status_at(agent, lane, now)?,
            })
        };
        Ok(AgentView {
            at: now,
            is_known: self.slab.find(self.hash(agent)?).is_some(),
            plan: assignment.plan().map(str::to_owned),
            is_exempt: assignment.is_exempt(),
            lanes: self.policy().lanes().map(view).collect::<Result<_, Error>>()?,
            conduct: self.violations_at(agent, now)?,
        })
    }

    /// A check of a limiter that counts, or of a lane that does not exist.
    /// `now` is the clock's if none is given.
    #[cold]
    #[inline(never)]
    pub(super) fn check_watched(
        &self,
        agent: &[u8],
        lane: LaneId,
        cost: u64,
        stand_in: Option<PlanId>,
        now: Option<Tick>,
    ) -> Result<Verdict, Error> {
        let ask = self.limits.lane(lane).map(|lane| Ask { agent, lane, cost, stand_in });
        let answer = ask.and_then(|ask| self.check_hashed(self.hash_ask(&ask)?, ask, now));
        self.note_answer(lane, &answer);
        answer
    }

    /// Counts the answer to a check, if answers are counted.
    #[inline]
    pub(super) fn note_answer(&self, lane: LaneId, answer: &Result<Verdict, Error>) {
        if let Some(watch) = &self.watch {
            watch.answered(lane, answer);
        }
    }
}
