//! The facade: a builder, and short methods with their docs. The work is done in [`engine`](crate::engine),
//! [`control`](crate::control) and [`keep`](crate::keep).
//!
//! - `builder.rs`: how a limiter is built
//! - `check.rs`: may the agent do this?
//! - `reserve.rs`: charges that are settled later
//! - `hold.rs`: slots that are held until they are released
//! - `conduct.rs`: violations
//! - `control.rs`: plans, overrides, exemptions, a new policy
//! - `observe.rs`: counts, events, the state of agents
//! - `shared.rs` (feature `shared`): one limiter for many processes
//! - `cluster.rs` (feature `cluster`): limits that machines share
//! - `keep.rs` (feature `persist`): used budgets across restarts

mod builder;
mod check;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
mod conduct;
mod control;
mod hold;
#[cfg(feature = "persist")]
mod keep;
mod observe;
mod reserve;
#[cfg(feature = "shared")]
mod shared;

pub use builder::LimiterBuilder;
pub use hold::{HeldSlot, Hold};

use crate::clock::Tick;
use crate::control::ControlLock;
use crate::engine::{ActionLane, Engine};
#[cfg(feature = "persist")]
use crate::keep::BudgetKeeper;
use crate::observe::UnknownActionsSnapshot;
use crate::observe::stats::Stats;
use crate::policy::{LaneId, PlanId, Policy};
use std::fmt;
use std::sync::Arc;

/// An exact rate limiter for a fixed number of agents.
///
/// Share it by reference or in an `Arc`: every method takes `&self`, and any number of threads may
/// call any of them at once. A check of a known agent takes no lock, allocates nothing and makes no
/// system call.
///
/// ```
/// use tollgate::{Limit, Limiter, Policy};
///
/// let policy = Policy::builder()
///     .lane("ws/light", Limit::per_minute(120))
///     .lane("ws/heavy", Limit::per_minute(10))
///     .build()?;
/// let limiter = Limiter::builder(policy).agents(100_000).build()?;
///
/// let heavy = limiter.lane("ws/heavy").expect("named above");
/// let verdict = limiter.check("agent-7", heavy)?;
/// assert!(verdict.is_allowed());
/// assert_eq!(verdict.remaining(), 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Limiter {
    pub(crate) engine: Engine,
    control: ControlLock,
    #[cfg(feature = "persist")]
    budgets: BudgetKeeper,
}

impl AsRef<Self> for Limiter {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Limiter {
    /// Starts to build a limiter with this policy.
    pub fn builder(policy: Policy) -> LimiterBuilder {
        LimiterBuilder::new(Some(policy))
    }

    /// Starts to build a limiter that joins a shared slab, with the policy and the numbers that it was made with: for
    /// tools, and for processes that leave the limits to others. Needs the feature `shared`.
    ///
    /// ```no_run
    /// use tollgate::Limiter;
    ///
    /// let limiter = Limiter::join("/run/tollgate/slab").build()?;
    /// println!("{} processes", limiter.sharing().map_or(0, |sharing| sharing.processes.len()));
    /// # Ok::<(), tollgate::BuildError>(())
    /// ```
    #[cfg(feature = "shared")]
    pub fn join(place: impl Into<crate::shared::Shared>) -> LimiterBuilder {
        LimiterBuilder::new(None).agents(1).reservations(0).shared(place)
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.engine.policy()
    }

    /// The lane of this name.
    #[must_use]
    pub fn lane(&self, name: &str) -> Option<LaneId> {
        self.policy().lane(name)
    }

    /// The plan of this name. Plans keep their numbers when a policy is replaced.
    #[must_use]
    pub fn plan(&self, name: &str) -> Option<PlanId> {
        self.policy().plan(name)
    }

    /// The lane that pays for an action of a channel, by the policy in force. An action that the
    /// policy does not name goes to the channel's `normal` lane. It is counted, and reported by
    /// name once.
    ///
    /// `None` if the channel has no lane for it.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy};
    ///
    /// let limiter = Limiter::builder(Policy::preset("hub")?).agents(1_000).build()?;
    /// let ping = limiter.lane_for("ws", "ping").expect("a channel of the hub");
    /// assert_eq!(Some(ping.lane()), limiter.lane("ws/light"));
    ///
    /// let dance = limiter.lane_for("ws", "dance").expect("a channel of the hub");
    /// assert_eq!(Some(dance.lane()), limiter.lane("ws/normal"));
    /// assert!(dance.is_first_seen());
    /// assert!(!limiter.lane_for("ws", "dance").expect("a channel of the hub").is_first_seen());
    /// assert_eq!(limiter.unknown_actions().total, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn lane_for(&self, channel: &str, action: &str) -> Option<ActionLane> {
        self.engine.lane_for(channel, action)
    }

    /// The unknown actions seen so far.
    #[must_use]
    pub fn unknown_actions(&self) -> UnknownActionsSnapshot {
        self.engine.unknown_actions()
    }

    /// The clock's present instant.
    #[must_use]
    pub fn now(&self) -> Tick {
        self.engine.clock.now()
    }

    /// How many bytes of address space it has reserved: for records, limits, announced waits,
    /// warnings and exempt agents; for a roster if there is one; and for ids if used budgets are
    /// kept. No stream of ids makes it grow. Assignments take extra memory, in proportion to their
    /// number.
    #[must_use]
    pub fn memory(&self) -> u64 {
        #[cfg(feature = "persist")]
        return self.engine.reserved_bytes() + self.budgets.reserved_bytes();
        #[cfg(not(feature = "persist"))]
        self.engine.reserved_bytes()
    }

    /// What it holds and has seen. Walks a counter per 1,024 records, and the reservations.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policy", &self.policy())
            .field("clock", &self.engine.clock)
            .field("on_full", &self.engine.on_full)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
