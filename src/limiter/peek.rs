//! Looks at an agent's lanes, and gives back.

use super::request::{Resolved, Target};
use super::{Agent, Limiter, Request};
use crate::clock::{At, Tick};
use crate::error::Error;
use crate::lane::kind::{Refunded, look};
use crate::lane::{Choice, LaneWord, Outcome, Status, bucket};
use crate::limits::LaneLimits;
use crate::policy::LaneId;
use crate::reservations::Entry;
use crate::slab::hash::AgentHash;
use std::time::Duration;

impl Limiter {
    /// The agent's lane as it stands, without charging it or making the agent
    /// known: what a check at that instant would find. The cost of the request
    /// does not matter. If the agent's plan has a
    /// [total](crate::PolicyBuilder::total) that has less left, these are the
    /// numbers of the total.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`], [`Error::UnknownLane`] or
    /// [`Error::UnknownPlan`].
    pub fn peek(&self, request: Request<'_>) -> Result<Status, Error> {
        let Request { agent, lane, plan, at, .. } = request;
        let (lane, hash) = (self.limits.lane(lane)?, self.hash_for(agent, plan)?);
        let target = Target::new(hash, lane, plan, at.unwrap_or_else(|| self.clock.now()));
        Ok(self.state_with_total(&Target { floor: self.floor_of(hash, at), ..target }))
    }

    /// The [floor](Target::floor) of an agent's lanes for a look at this
    /// instant, or at that of the clock.
    pub(super) fn floor_of(&self, hash: AgentHash, at: Option<Tick>) -> Tick {
        at.map_or(Tick::ZERO, |_| self.slab.floor(hash))
    }

    /// The lane by itself.
    pub(super) fn state(&self, target: &Target<'_>) -> Status {
        self.apply(target, |limit, words, at| Choice::of(look(limit.status(words, at))))
    }

    /// Gives back what the request costs, never beyond full, to the lane and to
    /// the [total](crate::PolicyBuilder::total) if there is one. An agent without
    /// a record is full already. What is [reserved](Limiter::reserve) is given
    /// back by its reservation alone, until that expires.
    ///
    /// A token is worth what it costs under the limit that applies, so name the
    /// [plan](Request::plan) that the charge was made under. It is made at the
    /// clock's time at least: an older instant would give back what time has
    /// given back already.
    ///
    /// # Errors
    ///
    /// As [`check_request`](Limiter::check_request), less [`Error::Full`].
    pub fn refund(&self, request: Request<'_>) -> Result<Status, Error> {
        let Resolved { target, cost, .. } = self.resolve(request)?;
        self.refund_both(&target, cost)
    }

    /// Gives back to one lane, all but what is reserved of it.
    pub(super) fn refund_lane(&self, target: &Target<'_>, cost: u64) -> Result<Status, Error> {
        let hash = target.hash;
        if self.reservations.may_have(hash.low_bits()) {
            // An expired reservation gives nothing back any more: its charge stays, like any other.
            self.reservations.close_expired_of(hash, self.clock.now());
        }
        let mut cost = cost;
        loop {
            let Refunded { status, rest } = self.refund_word(target, cost)?;
            if rest == 0 {
                return Ok(status);
            }
            // Ends: the rest of a rest is less, since a window has two words.
            cost = rest;
        }
    }

    /// Gives back to one word of the lane, and says how much is left for another.
    fn refund_word(&self, target: &Target<'_>, cost: u64) -> Result<Refunded, Error> {
        let reserved = |window| self.reservations.reserved_in(target.hash, target.lane.id(), window);
        self.apply(target, |limit, words, at| {
            // Read after the words: whoever charged them read the clock before.
            let at = at.with(at.now.max(self.clock.now()));
            let refunded = limit.refund(words, at, cost, reserved);
            let kept = self.spare_reserved(target, words, at, refunded);
            if kept.outcome.next == refunded.outcome.next {
                return kept;
            }
            let left = kept.outcome.next.unwrap_or(words[0]);
            kept.map(|answer| answer.map(|_| Refunded { status: limit.status(&[left], at), rest: 0 }))
        })
    }

    /// A change that lowers a bucket, less what is reserved of it. Moves the
    /// reservations down; see [`reservations`](crate::reservations).
    pub(super) fn spare_reserved<A>(
        &self,
        target: &Target<'_>,
        words: &[LaneWord],
        at: At,
        choice: Choice<A>,
    ) -> Choice<A> {
        let (hash, lane) = (target.hash, target.lane.id());
        let (true, Some(next), true) =
            (self.kind(lane).is_bucket(), choice.outcome.next, self.reservations.may_have(hash.low_bits()))
        else {
            return choice;
        };
        let next = bucket::spare(words[0], next, at.now, self.reservations.reserved(hash, lane, at.now));
        if let Some(next) = next {
            self.reservations.lower(hash, lane, next, None);
        }
        Choice { outcome: Outcome { next, ..choice.outcome }, ..choice }
    }

    /// Fills one lane of the agent, and not its total. What is reserved of it has nothing to give
    /// back any more. Slots that are held stay held, since whoever holds them
    /// is still there: a lane of those stays as it is.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`] or [`Error::UnknownLane`].
    pub fn reset_lane<'a>(&self, agent: impl Into<Agent<'a>>, lane: LaneId) -> Result<(), Error> {
        let Agent { id, at } = agent.into();
        let (lane, hash) = (self.limits.lane(lane)?, self.hash(id)?);
        let now = at.unwrap_or_else(|| self.clock.now());
        self.slab.forgiven.during(|| self.fill(hash, lane, now));
        let is_of = |entry: &Entry| entry.lane == lane.id();
        self.reservations.revise(hash, |entry| Some(if is_of(&entry) { entry.worthless() } else { entry }));
        Ok(())
    }

    /// Fills a lane; one of several words, word by word. No more often than
    /// there are words: whoever charges it meanwhile comes after the reset.
    fn fill(&self, hash: AgentHash, lane: LaneLimits<'_>, now: Tick) {
        let mut rounds = 0..self.limits.cells(lane.id()).count;
        let target = Target::new(hash, lane, None, now);
        let reset = |round| self.apply(&target, |limit, words, at| limit.reset(words, at, round));
        while rounds.next().is_some_and(reset) {}
    }

    /// Fills every lane of the agent, one after the other; as
    /// [`reset_lane`](Limiter::reset_lane).
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn reset<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<(), Error> {
        let Agent { id, at } = agent.into();
        let (hash, now) = (self.hash(id)?, at.unwrap_or_else(|| self.clock.now()));
        self.slab.forgiven.during(|| self.limits.lanes().for_each(|lane| self.fill(hash, lane, now)));
        self.reservations.revise(hash, |entry| Some(entry.worthless()));
        Ok(())
    }

    /// Forgets the agent: its record is vacant again, its reservations are
    /// closed, and its next check is its first. `false` if nothing was known of
    /// it.
    ///
    /// Slots that are held stay held, since whoever holds them is still there.
    /// So an agent that holds one keeps its record, with all other lanes
    /// filled; as may an agent that is checked in the same moment.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn forget<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<bool, Error> {
        let Agent { id, at } = agent.into();
        let (hash, now) = (self.hash(id)?, at.unwrap_or_else(|| self.clock.now()));
        let was_known = self.slab.forgiven.during(|| self.slab.forget(hash, self.at(now), self.clock.now()));
        self.reservations.revise(hash, |_| None);
        Ok(was_known)
    }

    /// Vacates the records of agents that have been idle, with every lane
    /// full, for `idle_for`, and says how many.
    ///
    /// Never needed for correctness: an idle record is taken when somebody
    /// needs one. It makes [`Stats::agents`](crate::Stats::agents) count the agents of late. It
    /// walks all records, so call it from a timer, every few minutes, say. It
    /// also closes reservations that have expired.
    pub fn sweep(&self, idle_for: Duration) -> u64 {
        self.sweep_at(idle_for, self.clock.now())
    }

    /// Sweeps at `now`.
    pub(crate) fn sweep_at(&self, idle_for: Duration, now: Tick) -> u64 {
        self.reservations.close_expired(now.min(self.clock.now()));
        // Before the origin nothing can have been idle.
        let sweep = |since| self.slab.sweep(self.at(since), self.quiet_since(since), self.clock.now());
        now.checked_sub(idle_for).map_or(0, sweep)
    }
}
