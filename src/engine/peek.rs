//! Peek, refund, reset, forget, sweep, release.

use super::request::{ResolvedRequest, Target};
use super::reservations::Entry;
use super::{Engine, Request, in_the_way};
use crate::bounds::{CLAIM_WITHIN, CONTROL_WITHIN};
use crate::clock::{At, Tick};
use crate::error::Error;
use crate::lane::kind::{Refunded, look};
use crate::lane::{Choice, LaneState, LaneWord, Outcome, bucket, held};
use crate::limits::LaneLimits;
use crate::observe::roster::Roster;
use crate::policy::{Kind, LaneId};
use crate::slab::hash::AgentHash;
use std::time::Duration;

impl Engine {
    /// The lane as a check would find it, or its total if that has less left.
    pub(crate) fn peek(&self, request: Request<'_>) -> Result<LaneState, Error> {
        let Request { agent, lane, plan, at, limit, .. } = request;
        let (lane, hash) = (self.limits.lane(lane)?, self.hash_for(agent, plan)?);
        limit.map_or(Ok(()), |_| self.limits.must_be_dynamic(lane.id()))?;
        let target = Target::new(hash, lane, plan, at.unwrap_or_else(|| self.clock.now()));
        let target = Target { floor: self.floor_of(hash, at), limit, ..target };
        if self.kind(lane.id()) == Kind::Dynamic {
            let missing = self.apply(&target, |limit, _, _| Choice::of(look(limit.missing())));
            missing.map_or(Ok(()), Err)?;
        }
        Ok(self.state_with_total(&target))
    }

    /// The [floor](Target::floor) of an agent's lanes for a look at this
    /// instant, or at the clock's.
    pub(super) fn floor_of(&self, hash: AgentHash, at: Option<Tick>) -> Tick {
        at.map_or(Tick::ZERO, |_| self.slab.floor(hash))
    }

    /// The lane's state without its total.
    pub(super) fn state(&self, target: &Target<'_>) -> LaneState {
        self.apply(target, |limit, words, at| Choice::of(look(limit.state(words, at))))
    }

    /// Gives back what the request costs, to the lane and to its total.
    pub(crate) fn refund(&self, request: Request<'_>) -> Result<LaneState, Error> {
        let ResolvedRequest { target, cost, .. } = self.resolve(request)?;
        let state = self.refund_both(&target, cost)?;
        #[cfg(feature = "cluster")]
        if self.is_clustered(request.lane) {
            self.refund_in_store(request.agent, &target, cost)?;
        }
        Ok(state)
    }

    /// Gives back to one lane, all but what is reserved of it.
    pub(super) fn refund_lane(&self, target: &Target<'_>, cost: u64) -> Result<LaneState, Error> {
        if let Some(holds) = self.holds_of(target.lane.id()) {
            return self.release(holds, target, cost, CLAIM_WITHIN);
        }
        let hash = target.hash;
        if self.reservations.may_have(hash.low_bits()) {
            // An expired reservation gives nothing back: its charge stays, like any other.
            self.reservations.close_expired_of(hash, self.clock.now());
        }
        let mut cost = cost;
        loop {
            let Refunded { state, rest } = self.refund_word(target, cost)?;
            if rest == 0 {
                return Ok(state);
            }
            // Ends: the rest of a rest is less, since a window has two words.
            cost = rest;
        }
    }

    /// Gives back to one word of the lane, and returns how much is left for another.
    fn refund_word(&self, target: &Target<'_>, cost: u64) -> Result<Refunded, Error> {
        let reserved = |window| self.reservations.reserved_in(target.hash, target.lane.id(), window);
        self.apply(target, |limit, words, at| {
            // Read after the words: the caller that charged them read the clock before.
            let at = at.with(at.now.max(self.clock.now()));
            let refunded = limit.refund(words, at, cost, reserved);
            let kept = self.spare_reserved(target, words, at, refunded);
            if kept.outcome.next == refunded.outcome.next {
                return kept;
            }
            let left = kept.outcome.next.unwrap_or(words[0]);
            kept.map(|answer| answer.map(|_| Refunded { state: limit.state(&[left], at), rest: 0 }))
        })
    }

    /// A change that lowers a bucket, less what is reserved of it. Moves the
    /// reservations down; see [`reservations`](super::reservations).
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

    /// Fills one lane of the agent. Its reservations then have nothing to give back.
    pub(crate) fn reset_lane(&self, hash: AgentHash, lane: LaneId, now: Tick) -> Result<(), Error> {
        let lane = self.limits.lane(lane)?;
        self.slab.forgiven.during(|| self.fill(hash, lane, now));
        let is_of = |entry: &Entry| entry.lane == lane.id();
        self.reservations.revise(hash, |entry| Some(if is_of(&entry) { entry.worthless() } else { entry }));
        Ok(())
    }

    /// Fills a lane, word by word. Takes at most as many rounds as there are
    /// words: a charge that is made meanwhile comes after the reset.
    fn fill(&self, hash: AgentHash, lane: LaneLimits<'_>, now: Tick) {
        let mut rounds = 0..self.limits.cells(lane.id()).count;
        let target = Target::new(hash, lane, None, now);
        let reset = |round| self.apply(&target, |limit, words, at| limit.reset(words, at, round));
        while rounds.next().is_some_and(reset) {}
    }

    /// Fills every lane of the agent, one after the other.
    pub(crate) fn reset(&self, hash: AgentHash, now: Tick) {
        self.slab.forgiven.during(|| self.limits.lanes().for_each(|lane| self.fill(hash, lane, now)));
        self.reservations.revise(hash, |entry| Some(entry.worthless()));
    }

    /// Vacates the agent's record, and closes its reservations. `false` if it had none.
    pub(crate) fn forget(&self, hash: AgentHash, now: Tick) -> Result<bool, Error> {
        let forget = || self.slab.forget(hash, self.at(now), self.clock.now());
        let was_known = self.slab.forgiven.during(forget).map_err(|_| in_the_way(&self.memory))?;
        self.reservations.revise(hash, |_| None);
        Ok(was_known)
    }

    /// Vacates the records of agents that have been idle for `idle_for`, and returns how many. Closes
    /// reservations that have expired.
    pub(crate) fn sweep(&self, idle_for: Duration, now: Tick) -> u64 {
        self.reservations.close_expired(now.min(self.clock.now()));
        self.bury_all();
        self.roster().into_iter().for_each(Roster::mend);
        // Before the origin nothing can have been idle.
        let sweep = |since| self.slab.sweep(self.at(since), self.quiet_since(since), self.clock.now());
        now.checked_sub(idle_for).map_or(0, sweep)
    }

    /// Whether the lane is a held one.
    pub(crate) fn is_held(&self, lane: LaneId) -> Result<bool, Error> {
        Ok(self.kind(self.limits.lane(lane)?.id()) == Kind::Held)
    }

    pub(crate) fn must_be_held(&self, lane: LaneId) -> Result<(), Error> {
        if self.is_held(lane)? { Ok(()) } else { Err(Error::WrongKind { lane: lane.number() }) }
    }

    /// Releases slots of an agent that may have been forgotten or reset since it took them: then there
    /// is nothing to release. The limit plays no part, since held slots do not depend on it.
    pub(crate) fn drop_slots(&self, hash: AgentHash, lane: LaneId, slots: u64) {
        let Ok(lane) = self.limits.lane(lane) else { return };
        if slots > 0 {
            let target = Target::new(hash, lane, None, self.clock.now());
            if let Some(holds) = self.holds_of(lane.id()) {
                // It may have been released by hand.
                let _ = self.release(holds, &target, slots, CONTROL_WITHIN);
                return;
            }
            self.update(&target, |_, words, _| Choice::of(held::release(words[0], slots)));
        }
    }
}
