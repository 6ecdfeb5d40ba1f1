//! Looks at an agent's lanes, and gives back.

use super::{Agent, Limiter, Request, stand_in_row};
use crate::clock::{At, Tick};
use crate::error::Error;
use crate::lane::kind::{LaneLimit, Refunded, look};
use crate::lane::table::LaneLimits;
use crate::lane::{Choice, LaneWord, Outcome, Status};
use crate::policy::{LaneId, PlanId};
use crate::record::with_words;
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
        let (lane, hash) = (self.limits.lane(request.lane)?, self.hash(request.agent)?);
        request.plan.map_or(Ok(()), |plan| self.limits.check_plan(plan))?;
        Ok(self.status_with_total(self.floor_of(hash, request.at), hash, request.plan, lane, self.now_of(request)))
    }

    /// Where the lanes of an agent without a record stand, for a look at this
    /// instant, or at that of the clock.
    pub(super) fn floor_of(&self, hash: AgentHash, at: Option<Tick>) -> Tick {
        at.map_or(Tick::ZERO, |_| self.slab.floor(hash))
    }

    /// The lane by itself, at an instant of the clock.
    pub(super) fn look(&self, hash: AgentHash, stand_in: Option<PlanId>, lane: LaneLimits<'_>, now: Tick) -> Status {
        self.look_from(Tick::ZERO, hash, stand_in, lane, now)
    }

    /// The lane by itself; `floor` as in [`change_from`](Self::change_from).
    pub(super) fn look_from(
        &self,
        floor: Tick,
        hash: AgentHash,
        stand_in: Option<PlanId>,
        lane: LaneLimits<'_>,
        now: Tick,
    ) -> Status {
        let look = |limit: LaneLimit, words: &[LaneWord], at| Choice::of(look(limit.status(words, at)));
        self.change_from(floor, hash, stand_in, lane, now, look)
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
        let ask = self.ask(request)?;
        self.give_both(self.hash_ask(&ask)?, ask.stand_in, ask.lane, ask.cost, self.now_of(request))
    }

    /// Gives back, and lets those know who have a reservation.
    pub(super) fn give(
        &self,
        hash: AgentHash,
        plan: Option<PlanId>,
        lane: LaneLimits<'_>,
        cost: u64,
        now: Tick,
    ) -> Result<Status, Error> {
        if self.reservations.may_have(hash.low_bits()) {
            // What has expired is nobody's to give back any more, and stays charged like any other.
            self.reservations.close_expired_of(hash, self.clock.now());
        }
        let mut cost = cost;
        loop {
            let Refunded { status, rest } = self.give_once(hash, plan, lane, cost, now)?;
            if rest == 0 {
                return Ok(status);
            }
            // Of less there is less to come: a window has two words.
            cost = rest;
        }
    }

    fn give_once(
        &self,
        hash: AgentHash,
        plan: Option<PlanId>,
        lane: LaneLimits<'_>,
        cost: u64,
        now: Tick,
    ) -> Result<Refunded, Error> {
        let reserved = |window| self.reservations.reserved_in(hash, lane.id(), window);
        self.change(hash, plan, lane, now, |limit, words, at| {
            // Read after the words: whoever charged them read the clock before.
            let at = at.with(at.now.max(self.clock.now()));
            let refunded = limit.refund(words, at, cost, reserved);
            let kept = self.but_for_reserved(hash, lane, words, at, refunded);
            if kept.outcome.next == refunded.outcome.next {
                return kept;
            }
            let left = kept.outcome.next.unwrap_or(words[0]);
            kept.map(|told| told.map(|_| Refunded { status: limit.status(&[left], at), rest: 0 }))
        })
    }

    /// A change that lowers a bucket, less what is reserved of it; its
    /// reservations know of it. See [`reservations`](crate::reservations).
    pub(super) fn but_for_reserved<A>(
        &self,
        hash: AgentHash,
        lane: LaneLimits<'_>,
        words: &[LaneWord],
        at: At,
        choice: Choice<A>,
    ) -> Choice<A> {
        let (lane, is_any) = (lane.id(), self.reservations.may_have(hash.low_bits()));
        let is_bucket = self.limits.kinds()[lane.index()].is_bucket();
        let (true, Some(next), true) = (is_bucket, choice.outcome.next, is_any) else {
            return choice;
        };
        let reserved = Duration::from_nanos(self.reservations.reserved(hash, lane, at.now));
        let word = words[0];
        let least = at.now.saturating_add(reserved).min(word.time());
        let next = Some(next.at(next.time().max(least))).filter(|next| *next != word);
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
        self.fill(hash, lane, now);
        let is_of = |entry: &Entry| entry.lane == lane.id();
        self.reservations.revise(hash, |entry| Some(if is_of(&entry) { entry.worthless() } else { entry }));
        Ok(())
    }

    /// Fills a lane; one of several words, word by word. No more often than
    /// there are words: whoever charges it meanwhile comes after the reset.
    fn fill(&self, hash: AgentHash, lane: LaneLimits<'_>, now: Tick) {
        let mut rounds = 0..self.limits.cells(lane.id()).count;
        let reset = |round| self.change(hash, None, lane, now, |limit, words, at| limit.reset(words, at, round));
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
        self.limits.lanes().for_each(|lane| self.fill(hash, lane, now));
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
        let was_known = self.slab.forget(hash, self.at(now), self.clock.now());
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

    /// Applies a step other than a charge, under this plan if the agent has no
    /// assignment. An agent without a record has fresh lanes, and nothing to change.
    ///
    /// The loop ends when the agent keeps a record for one round; each further
    /// round is an eviction or a change of row that was completed meanwhile.
    pub(super) fn change<A>(
        &self,
        hash: AgentHash,
        stand_in: Option<PlanId>,
        lane: LaneLimits<'_>,
        now: Tick,
        step: impl Fn(LaneLimit, &[LaneWord], At) -> Choice<A>,
    ) -> A {
        self.change_from(Tick::ZERO, hash, stand_in, lane, now, step)
    }

    /// The same, where an agent without a record has lanes that stand at
    /// `floor`, as those of the record that it would claim do. Of an instant
    /// that the clock gave, the floor is the origin: a check would read the
    /// clock again.
    fn change_from<A>(
        &self,
        floor: Tick,
        hash: AgentHash,
        stand_in: Option<PlanId>,
        lane: LaneLimits<'_>,
        now: Tick,
        step: impl Fn(LaneLimit, &[LaneWord], At) -> Choice<A>,
    ) -> A {
        let (at, cells) = (self.at(now), self.limits.cells(lane.id()));
        loop {
            let Some(found) = self.slab.find(hash) else {
                let limit = self.limit_of_stranger(hash, stand_in, lane);
                let kind = self.limits.kinds()[lane.id().index()];
                return with_words(cells.count, |fresh| {
                    if floor > now {
                        fresh.iter_mut().for_each(|word| *word = kind.emptied(*word, at.with(floor)));
                    }
                    step(limit, fresh, at).outcome.answer
                });
            };
            let row = stand_in_row(found.tag.row(), stand_in);
            let step = |words: &[LaneWord]| step(self.limits.lane_limit(lane, row), words, at);
            if let Some(answer) = found.record.update_lane(found.tag, cells, step, || self.slab.count_retry()) {
                return answer;
            }
        }
    }
}
