//! Plans: rows of limits that agents are assigned to.

use crate::lane::{Limit, Numbers};

/// A plan's number within its policy: 0 is `default`, then the order in which
/// the plans were named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlanId(u16);

impl PlanId {
    /// The plan of every agent without an assigned plan.
    pub const DEFAULT: Self = Self(0);

    /// The plan with this number. A number the policy does not have is
    /// answered with [`Error::UnknownPlan`](crate::Error::UnknownPlan).
    #[must_use]
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The name of the plan that every policy has first: the lanes' own limits.
pub(super) const DEFAULT: &str = "default";

/// The name that means "never limited", so no plan can have it.
pub(super) const EXEMPT: &str = "exempt";

/// What happens to an agent's debt when its limits change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnChange {
    /// The time until a lane is full again stays, but is cut to the time that the
    /// new limit takes to refill a whole bucket. While the agent is exempt or its
    /// lane denies everything, it keeps running down.
    ///
    /// What is cut off does not come back. So a client that may change its own
    /// plan to one that refills a whole bucket sooner, and back again, gains the
    /// difference; a detour through an exemption gains nothing.
    #[default]
    KeepDebt,
    /// Every lane of the agent is filled.
    Reset,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) name: String,
    /// One per lane.
    pub(super) limits: Vec<Compiled>,
}

/// A limit and what it computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compiled {
    pub(super) limit: Limit,
    /// Invariant: what `limit` compiles to.
    pub(super) numbers: Numbers,
}
