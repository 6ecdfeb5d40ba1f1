//! Checks that are observed, and what the engine notes about what it does.

use super::charge::Answer;
use super::{Engine, Request};
use crate::clock::Tick;
use crate::conduct::Violation;
use crate::error::Error;
use crate::lane::Verdict;
use crate::observe::Note;
#[cfg(any(feature = "persist", feature = "shared"))]
use crate::observe::roster::Roster;
use crate::policy::{LaneId, PlanId};
use crate::slab::Claim;
use std::convert::identity;

impl Engine {
    /// Checks a request of a limiter that observes, or of a lane that is not a
    /// bucket or does not exist. Takes its arguments one by one: see
    /// [`fast`](super::fast).
    #[cold]
    #[inline(never)]
    pub(super) fn check_observed(
        &self,
        agent: &[u8],
        lane: LaneId,
        cost: u64,
        plan: Option<PlanId>,
        at: Option<Tick>,
    ) -> Answer {
        let answer = match self.limits.lane(lane) {
            Ok(limits) if self.limits.is_fast(lane) => self.charge_bucket(agent, limits, cost, plan, at, identity),
            _ => return self.check_any(agent, lane, cost, plan, at),
        };
        self.note_answer(agent, lane, &answer);
        answer
    }

    /// Checks a request of any lane.
    #[cold]
    #[inline(never)]
    fn check_any(&self, agent: &[u8], lane: LaneId, cost: u64, plan: Option<PlanId>, at: Option<Tick>) -> Answer {
        #[cfg(feature = "cluster")]
        if let Some(verdict) = self.check_credit(agent, lane, cost, plan, at) {
            // Straight to the caller: see `note_answer`.
            if self.watch.is_none() {
                return Ok(verdict);
            }
            let answer = Ok(verdict);
            self.note_answer(agent, lane, &answer);
            return answer;
        }
        self.check_in_full(agent, lane, cost, plan, at)
    }

    /// The same, without a look at what is usual.
    #[inline(never)]
    fn check_in_full(&self, agent: &[u8], lane: LaneId, cost: u64, plan: Option<PlanId>, at: Option<Tick>) -> Answer {
        let request = Request { agent, lane, cost, plan, at, is_counted: false, limit: None };
        self.finish(agent, lane, cost, self.resolve(request).and_then(|request| self.charge(&request)))
    }

    /// Checks a request whose denial may be a violation, or that brings its limit along.
    #[inline(never)]
    pub(super) fn check_with_options(&self, request: &Request<'_>) -> Answer {
        let answer = self.resolve(*request).and_then(|resolved| match request.is_counted {
            true => self.charge_counted(&resolved),
            false => self.charge(&resolved),
        });
        self.finish(request.agent, request.lane, request.cost, answer)
    }

    /// The answer to a charge as the caller gets it: without a warning that the
    /// agent was given before, and counted if the limiter observes.
    #[inline(always)]
    pub(super) fn finish(&self, agent: &[u8], lane: LaneId, cost: u64, answer: Answer) -> Answer {
        let answer = self.warn_once(agent, lane, cost, answer);
        self.note_answer(agent, lane, &answer);
        answer
    }

    /// Counts the answer to a check, if the limiter observes. Inline: a call
    /// would write the answer to memory.
    #[inline(always)]
    pub(super) fn note_answer(&self, agent: &[u8], lane: LaneId, answer: &Result<Verdict, Error>) {
        if let Some(watch) = &self.watch {
            if watch.answered(lane, answer) {
                self.note_sample(agent, lane, answer);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn note_sample(&self, agent: &[u8], lane: LaneId, answer: &Result<Verdict, Error>) {
        if let Ok(verdict) = answer {
            let (decision, remaining) = (verdict.decision(), verdict.remaining());
            self.note(|| Note::Checked { agent, lane, decision, remaining });
        }
    }

    /// Records an event at the present instant.
    pub(crate) fn note<'a>(&self, note: impl FnOnce() -> Note<'a>) {
        if let Some(watch) = &self.watch {
            watch.events.push(self.clock.now(), note());
        }
    }

    /// Counts a violation, and makes sustained abuse an event.
    pub(super) fn note_violation(&self, agent: &[u8], violation: &Violation, now: Tick) {
        if let Some(watch) = &self.watch {
            // A caller's instant may be ahead of the clock, and would then stay in the last hour for ever.
            watch.violated(agent, violation, now.min(self.clock.now()));
        }
    }

    /// Writes down which agent has the record, while the claim keeps it.
    pub(super) fn note_claim(&self, agent: &[u8], claimed: &Claim<'_>) {
        #[cfg(feature = "shared")]
        if let (true, Some(ids)) = (claimed.is_new, self.kept_ids()) {
            ids.write(claimed.found.position, agent);
        }
        #[cfg(feature = "persist")]
        if let (Some(ids), true) = (self.ids.get(), claimed.is_new) {
            ids.write(claimed.found.position, agent);
        }
        if let (Some(roster), true) = (&self.roster, claimed.is_new) {
            roster.write(claimed.found.position, agent);
        }
        if let (Some(watch), true) = (&self.watch, claimed.is_new) {
            watch.claimed(claimed.found.position, agent, claimed.is_lossy, || self.clock.now());
        }
    }

    /// Counts a new agent that is refused.
    pub(super) fn note_refusal(&self) {
        if let Some(watch) = &self.watch {
            watch.refused(self.clock.now());
        }
    }

    /// Starts a roster of the agents that have records, unless there is one: of a shared slab in the slab, so that
    /// every process stores the ids of agents that it gives a record. If the system refuses the memory, the error is
    /// how many bytes were needed.
    #[cfg(feature = "persist")]
    pub(crate) fn keep_ids(&self) -> Result<(), u64> {
        #[cfg(feature = "shared")]
        if let (None, Some(ids)) = (self.kept_ids(), &self.kept_ids) {
            ids.allocate(&self.memory)?;
            self.limits.state().set_keeps_ids();
        }
        if self.ids().is_none() {
            let records = usize::try_from(self.slab.records()).unwrap_or(usize::MAX);
            let roster = Box::new(Roster::new(records, records)?);
            self.ids.get_or_init(|| roster);
        }
        Ok(())
    }

    /// The roster that has a place for every record, if there is one.
    #[cfg(feature = "persist")]
    pub(crate) fn ids(&self) -> Option<&Roster> {
        let complete = self.roster().filter(|roster| roster.places() as u64 >= self.slab.records());
        #[cfg(feature = "shared")]
        let complete = complete.or_else(|| self.kept_ids());
        complete.or_else(|| self.ids.get().map(|ids| &**ids))
    }

    /// The ids of agents in a shared slab, once a process keeps used budgets.
    #[cfg(feature = "shared")]
    pub(super) fn kept_ids(&self) -> Option<&Roster> {
        self.kept_ids.as_ref().filter(|_| self.limits.state().keeps_ids())
    }
}
