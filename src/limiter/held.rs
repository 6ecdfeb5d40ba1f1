//! Slots that are held until they are given back: connections, say.

use super::request::Target;
use super::{Limiter, Request};
use crate::error::Error;
use crate::lane::{Choice, Decision, Status, Verdict, held};
use crate::policy::{Kind, LaneId};
use crate::slab::hash::AgentHash;
use std::fmt;
use std::ops::Deref;

impl Limiter {
    /// Takes a slot of a lane that is [held](crate::Limit::held), or as many as
    /// the request costs, until it is
    /// [released](Limiter::release). A denial has no wait: somebody must
    /// release a slot.
    ///
    /// An agent that holds a slot keeps its record. [`hold`](Limiter::hold)
    /// releases by itself.
    ///
    /// # Errors
    ///
    /// As [`check_request`](Limiter::check_request), and [`Error::WrongKind`] if the lane
    /// is not held.
    pub fn acquire(&self, request: Request<'_>) -> Result<Verdict, Error> {
        self.must_be_held(request.lane)?;
        self.check_request(request)
    }

    /// Gives a slot back.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the agent holds none, and then nothing has
    /// changed; [`Error::WrongKind`], [`Error::EmptyId`], [`Error::IdTooLong`],
    /// [`Error::UnknownLane`].
    pub fn release(&self, request: Request<'_>) -> Result<Status, Error> {
        self.must_be_held(request.lane)?;
        self.refund(request)
    }

    /// Takes a slot that is released when the guard is dropped. The guard
    /// borrows the limiter, or shares it: pass `&limiter` or an `Arc`.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Limiter::acquire).
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
    pub fn hold<L: Deref<Target = Limiter>>(limiter: L, request: Request<'_>) -> Result<Acquired<L>, Error> {
        let verdict = limiter.acquire(request)?;
        let (hash, lane) = (limiter.hash(request.agent)?, request.lane);
        // An exempt agent takes no slot, and has none to give back.
        let slots = if verdict.decision() == Decision::Exempt { 0 } else { request.cost };
        let slot = verdict.is_allowed().then(|| HeldSlot { limiter, hash, lane, slots });
        Ok(Acquired { verdict, slot })
    }

    /// Whether what the lane limits is held until it is given back.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownLane`].
    pub fn is_held(&self, lane: LaneId) -> Result<bool, Error> {
        Ok(self.kind(self.limits.lane(lane)?.id()) == Kind::Held)
    }

    fn must_be_held(&self, lane: LaneId) -> Result<(), Error> {
        if self.is_held(lane)? { Ok(()) } else { Err(Error::WrongKind { lane: lane.number() }) }
    }
}

/// The answer to [`hold`](Limiter::hold): a verdict, and the slot if it was allowed.
#[derive(Debug)]
#[must_use = "the slot is released when this is dropped"]
pub struct Acquired<L: Deref<Target = Limiter>> {
    verdict: Verdict,
    slot: Option<HeldSlot<L>>,
}

impl<L: Deref<Target = Limiter>> Acquired<L> {
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
}

impl<L: Deref<Target = Limiter>> Drop for HeldSlot<L> {
    fn drop(&mut self) {
        if self.slots > 0 {
            let now = self.limiter.clock.now();
            if let Ok(lane) = self.limiter.limits.lane(self.lane) {
                // The agent may have been forgotten or reset meanwhile; then there is nothing to release.
                // What is held does not depend on the limit, so neither does this.
                let target = Target::new(self.hash, lane, None, now);
                self.limiter.update(&target, |_, words, _| Choice::of(held::release(words[0], self.slots)));
            }
        }
    }
}

impl<L: Deref<Target = Limiter>> fmt::Debug for HeldSlot<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldSlot").field("lane", &self.lane).finish_non_exhaustive()
    }
}
