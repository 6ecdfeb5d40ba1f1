//! Violations, and what follows from them.

use super::Limiter;
use crate::conduct::{Conduct, Violation};
use crate::engine::Agent;
use crate::error::Error;

impl Limiter {
    /// Records a violation that the caller has found, and returns what follows from it.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`]; [`Error::Full`] if the agent has no record and
    /// none near its home is free.
    pub fn record_violation<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<Violation, Error> {
        self.engine.record_violation(agent.into())
    }

    /// The agent's conduct at present.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn violations<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<Conduct, Error> {
        self.engine.violations(agent.into())
    }

    /// Whether the agent has violated a limit and has not been quiet since. A scheduler gives such
    /// an agent no new work. An exempt agent is never rate limited.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn rate_limited<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<bool, Error> {
        self.engine.rate_limited(agent.into())
    }

    /// Filters agents: those that may be given new work, because they are not rate limited. Leaves
    /// out invalid ids.
    pub fn assignable<A: AsRef<[u8]>>(&self, agents: impl IntoIterator<Item = A>) -> Vec<A> {
        self.engine.assignable(agents)
    }

    /// Forgives all violations of the agent. `false` if none of them still mattered.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn reset_violations(&self, agent: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.engine.reset_violations(agent.as_ref())
    }
}
