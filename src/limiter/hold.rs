//! Slots that are held until they are released: connections, say.

use super::Limiter;
use crate::engine::Request;
use crate::error::Error;
use crate::lane::{Decision, LaneState, Verdict};
use crate::policy::LaneId;
use crate::slab::hash::AgentHash;
use std::fmt;
use std::ops::Deref;

impl Limiter {
    /// Takes a slot of a [held](crate::Limit::held) lane, or as many as the request costs, until
    /// they are [released](Limiter::release). A denial has no wait: a slot has to be released
    /// first.
    ///
    /// An agent that holds a slot keeps its record. [`hold`](Limiter::hold) releases automatically.
    ///
    /// # Errors
    ///
    /// As [`check_request`](Limiter::check_request), and [`Error::WrongKind`] if the lane is not a
    /// held one. In a shared limiter also [`Error::HoldsFull`], if as many calls hold slots as the
    /// slab has room for: as many as it has agents, at least 16,384 and at most
    /// [`HOLDS_MAX`](crate::bounds::HOLDS_MAX).
    pub fn hold_until_released(&self, request: Request<'_>) -> Result<Verdict, Error> {
        self.engine.must_be_held(request.lane)?;
        self.check_request(request)
    }

    /// Releases a slot, or as many as the request costs.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the agent does not hold them, and then nothing has changed;
    /// [`Error::WrongKind`], [`Error::EmptyId`], [`Error::IdTooLong`], [`Error::UnknownLane`]. In a
    /// shared limiter also [`Error::Busy`], if a process is stopped while it releases slots of the
    /// same agent.
    pub fn release(&self, request: Request<'_>) -> Result<LaneState, Error> {
        self.engine.must_be_held(request.lane)?;
        self.engine.refund(request)
    }

    /// Takes a slot, and releases it when the guard is dropped. The guard borrows the limiter or
    /// shares it: pass `&limiter` or an `Arc`.
    ///
    /// # Errors
    ///
    /// As [`hold_until_released`](Limiter::hold_until_released).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tollgate::{Limit, Limiter, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("ws/connections", Limit::held(1)).build()?;
    /// let limiter = Arc::new(Limiter::builder(policy).agents(1_000).build()?);
    /// let connections = limiter.lane("ws/connections").expect("named above");
    /// let request = Request::new("agent-7", connections);
    ///
    /// let first = Limiter::hold(Arc::clone(&limiter), request)?;
    /// assert!(first.slot().is_some());
    /// let second = Limiter::hold(&*limiter, request)?;
    /// assert!(second.slot().is_none() && !second.verdict().is_allowed());
    /// drop(first);
    /// assert!(Limiter::hold(&*limiter, request)?.slot().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold<L: Deref<Target = Limiter>>(limiter: L, request: Request<'_>) -> Result<Hold<L>, Error> {
        let verdict = limiter.hold_until_released(request)?;
        let (hash, lane) = (limiter.engine.hash(request.agent)?, request.lane);
        // An exempt agent takes no slot, and has none to give back.
        let slots = if verdict.decision() == Decision::Exempt { 0 } else { request.cost };
        let holder = limiter.engine.holder();
        let slot = verdict.is_allowed().then(|| HeldSlot { limiter, hash, lane, slots, holder });
        Ok(Hold { verdict, slot })
    }

    /// Whether the lane is a held one: its slots are held until they are released.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownLane`].
    pub fn is_held(&self, lane: LaneId) -> Result<bool, Error> {
        self.engine.is_held(lane)
    }
}

/// The answer to [`hold`](Limiter::hold): a verdict, and the slot if it was allowed.
#[derive(Debug)]
#[must_use = "the slot is released when this is dropped"]
pub struct Hold<L: Deref<Target = Limiter>> {
    verdict: Verdict,
    slot: Option<HeldSlot<L>>,
}

impl<L: Deref<Target = Limiter>> Hold<L> {
    /// Whether there was a slot, and how many are left.
    pub const fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// The slot; `None` if it was denied.
    pub const fn slot(&self) -> Option<&HeldSlot<L>> {
        self.slot.as_ref()
    }

    /// The slot alone; `None` if it was denied.
    pub fn into_slot(self) -> Option<HeldSlot<L>> {
        self.slot
    }
}

/// A slot that is held until this is dropped.
#[must_use = "the slot is released when this is dropped"]
pub struct HeldSlot<L: Deref<Target = Limiter>> {
    limiter: L,
    hash: AgentHash,
    lane: LaneId,
    /// How many of the lane's slots; 0 if the agent is exempt.
    slots: u64,
    /// The process that holds them, in a shared limiter: a child that is forked has only a copy of this.
    holder: u64,
}

impl<L: Deref<Target = Limiter>> Drop for HeldSlot<L> {
    fn drop(&mut self) {
        if self.holder == self.limiter.engine.holder() {
            self.limiter.engine.drop_slots(self.hash, self.lane, self.slots);
        }
    }
}

impl<L: Deref<Target = Limiter>> fmt::Debug for HeldSlot<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldSlot").field("lane", &self.lane).finish_non_exhaustive()
    }
}
