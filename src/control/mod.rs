//! What an operator changes at run time: assignments, overrides, exemptions, a new policy.
//!
//! Control calls take turns under one lock, which no check takes. When one
//! returns, its change is in force for every check in every thread; a check
//! that runs meanwhile uses the old limits or the new ones, never a mixture.
//! Why that holds is in [`record`](crate::record), under "Rows".
//!
//! - `lock.rs`: the lock, and what it guards; `words.rs`: the lock of all processes
//! - `shared.rs`: changes that survive the death of the process that makes them
//! - `edit.rs`: changes of single agents
//! - `names.rs`: assignments in the numbers of the policy
//! - `file.rs` (feature `persist`): assignments in a file
//! - `policy.rs`: another policy
//! - `follow.rs` (feature `cluster`): what was changed here and follows to other machines, and what follows from there
//! - `error.rs`: what can go wrong

mod edit;
mod error;
#[cfg(feature = "persist")]
mod file;
#[cfg(feature = "cluster")]
mod follow;
mod lock;
mod names;
mod policy;
mod shared;
mod words;

pub use error::ControlError;
#[cfg(feature = "cluster")]
pub use follow::{Changed, Followed};
pub(crate) use lock::ControlLock;
#[cfg(feature = "shared")]
pub(crate) use words::CONTROL_WORDS;

use crate::engine::{Assignment, Engine};
use crate::policy::{Limit, PlanId};
use names::lanes_of;
use std::ops::Deref;

/// An engine, and the lock for changing it.
pub(crate) struct Control<'a> {
    engine: &'a Engine,
    lock: &'a ControlLock,
}

impl Deref for Control<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}

impl<'a> Control<'a> {
    pub(crate) const fn new(engine: &'a Engine, lock: &'a ControlLock) -> Self {
        Self { engine, lock }
    }

    /// Gives the agent a plan, or takes its plan away.
    pub(crate) fn assign(&self, agent: &[u8], plan: Option<PlanId>) -> Result<(), ControlError> {
        plan.map_or(Ok(()), |plan| self.limits.check_plan(plan))?;
        self.edit(agent, |_, entry| {
            entry.plan = plan;
            Ok(())
        })
    }

    /// Gives the agent its own limit for a lane, or for a tier in every channel.
    pub(crate) fn set_override(&self, agent: &[u8], lane_or_tier: &str, limit: Limit) -> Result<(), ControlError> {
        limit.validate().map_err(ControlError::Limit)?;
        self.edit(agent, |policy, entry| {
            entry.overrides.extend(lanes_of(policy, lane_or_tier)?.into_iter().map(|lane| (lane, limit)));
            Ok(())
        })
    }

    /// Removes the agent's own limit for a lane or tier.
    pub(crate) fn remove_override(&self, agent: &[u8], lane_or_tier: &str) -> Result<(), ControlError> {
        self.edit(agent, |policy, entry| {
            for lane in lanes_of(policy, lane_or_tier)? {
                entry.overrides.remove(&lane);
            }
            Ok(())
        })
    }

    /// Removes all of the agent's own limits.
    pub(crate) fn remove_overrides(&self, agent: &[u8]) -> Result<(), ControlError> {
        self.edit(agent, |_, entry| {
            entry.overrides.clear();
            Ok(())
        })
    }

    /// Exempts the agent, or limits it again.
    pub(crate) fn set_exempt(&self, agent: &[u8], exempt: bool) -> Result<(), ControlError> {
        self.edit(agent, |_, entry| {
            entry.exempt = exempt;
            Ok(())
        })
    }

    /// Replaces the assignments of these agents, all or none.
    pub(crate) fn set_assignments<'b>(
        &self,
        assignments: impl Iterator<Item = (&'b [u8], &'b Assignment)>,
    ) -> Result<(), ControlError> {
        let mut control = self.enter()?;
        let edits = self.edits(&control, assignments)?;
        self.decide(&mut control, edits, &mut |control, edits| self.save(control, edits))
    }
}
