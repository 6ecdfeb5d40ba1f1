//! Slots that are held until they are given back: connections, say.

use super::Limiter;
use crate::error::Error;
use crate::lane::kind::{LaneLimit, Receipt};
use crate::lane::{Decision, LaneWord, Status, Verdict};
use crate::policy::{Kind, LaneId};
use crate::slab::hash::AgentHash;
use std::fmt;
use std::ops::Deref;

impl Limiter {
    /// Takes a slot of a lane that is [held](crate::Limit::held), until it is
    /// [released](Limiter::release). A denial has no wait: somebody must
    /// release a slot.
    ///
    /// An agent that holds a slot keeps its record. [`hold`](Limiter::hold)
    /// releases by itself.
    ///
    /// # Errors
    ///
    /// As [`check_at`](Limiter::check_at), and [`Error::WrongKind`] if the lane
    /// is not held.
    pub fn acquire(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<Verdict, Error> {
        self.must_be_held(lane)?;
        self.check(agent, lane)
    }

    /// Gives a slot back.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the agent holds none, and then nothing has
    /// changed; [`Error::WrongKind`], [`Error::EmptyId`], [`Error::IdTooLong`],
    /// [`Error::UnknownLane`].
    pub fn release(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<Status, Error> {
        self.must_be_held(lane)?;
        self.refund(agent, lane, 1)
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
    /// use tollgate::{Limit, Limiter, Policy};
    ///
    /// let policy = Policy::builder().lane("ws/connections", Limit::held(1)).build()?;
    /// let limiter = Arc::new(Limiter::builder(policy).agents(1_000).build()?);
    /// let connections = limiter.lane("ws/connections").expect("named above");
    ///
    /// let first = Limiter::hold(Arc::clone(&limiter), "agent-7", connections)?;
    /// assert!(first.slot().is_some());
    /// let second = Limiter::hold(&*limiter, "agent-7", connections)?;
    /// assert!(second.slot().is_none() && !second.verdict().is_allowed());
    /// drop(first);
    /// assert!(Limiter::hold(&*limiter, "agent-7", connections)?.slot().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold<L: Deref<Target = Limiter>>(
        limiter: L,
        agent: impl AsRef<[u8]>,
        lane: LaneId,
    ) -> Result<Acquired<L>, Error> {
        let agent = agent.as_ref();
        let verdict = limiter.acquire(agent, lane)?;
        let hash = limiter.hash(agent)?;
        let is_held = matches!(verdict.decision(), Decision::Allow | Decision::Warn);
        // An exempt agent takes no slot, and has none to give back.
        let slot = verdict.is_allowed().then(|| HeldSlot { limiter, hash, lane, is_held });
        Ok(Acquired { verdict, slot })
    }

    /// Whether what the lane limits is held until it is given back.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownLane`].
    pub fn is_held(&self, lane: LaneId) -> Result<bool, Error> {
        let lane = self.limits.lane(lane)?.id();
        Ok(self.limits.kinds()[lane.index()] == Kind::Held)
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
    is_held: bool,
}

impl<L: Deref<Target = Limiter>> Drop for HeldSlot<L> {
    fn drop(&mut self) {
        if self.is_held {
            let now = self.limiter.clock.now();
            if let Ok(lane) = self.limiter.limits.lane(self.lane) {
                // The agent may have been forgotten or reset meanwhile; then there is nothing to release.
                // What is held does not depend on the limit, so neither does this.
                let release = |limit: LaneLimit, words: &[LaneWord], at| limit.undo(words, at, Receipt::default(), 1);
                self.limiter.change(self.hash, None, lane, now, release);
            }
        }
    }
}

impl<L: Deref<Target = Limiter>> fmt::Debug for HeldSlot<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldSlot").field("lane", &self.lane).finish_non_exhaustive()
    }
}
