//! What a decision is about.

use crate::AgentKey;
use std::fmt;

/// What a decision is about: the field under which the store has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The policy: it comes before the agents, whose plans may be new with it.
    Policy,
    /// The agent whose id has this hash.
    Agent(u128),
}

const POLICY: &str = "policy";

impl Field {
    /// What [`Display`](fmt::Display) has written; `None` for anything else.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        match text {
            text if text == POLICY.as_bytes() => Some(Self::Policy),
            text => AgentKey::read(text).map(|agent| Self::Agent(agent.to_bits())),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str(POLICY),
            Self::Agent(bits) => AgentKey::from_bits(*bits).fmt(f),
        }
    }
}
