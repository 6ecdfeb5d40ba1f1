//! From a request to its answer: find the agent's record, read the clock, charge the lane.
//!
//! - `request.rs`: the question that every verb takes
//! - `fast.rs`: the hundred instructions that answer most checks. After a miss,
//!   `charge.rs` is the one loop that applies a step to a record, and
//!   `claim.rs` finds records for newcomers
//! - `batch.rs`: many requests at once
//! - `all.rs`: several charges, all or none
//! - `total.rs`: one limit over all lanes of a plan
//! - `peek.rs`: peek, refund, reset, forget, sweep, release
//! - `reserve.rs`: charges that are settled later; `reservations/` is the table of open ones
//! - `conduct.rs`: violations and what follows from them, and `announced.rs` the waits that agents were given
//! - `warnings.rs`: warnings that are not repeated
//! - `observed.rs`: checks that are observed, and what the engine notes
//! - `agents.rs`: the state of agents, and lists of them; `snapshot.rs`: counts and the report
//! - `action.rs`: which lane pays for an action?
//! - `registry.rs`: which agents have an assignment, and `exempt.rs` which are exempt, without a lock;
//!   `assignment.rs`: an assignment as plain data, and `assigned.rs` how it applies

mod action;
mod agents;
mod all;
mod announced;
mod assigned;
mod assignment;
mod batch;
mod charge;
mod claim;
mod conduct;
mod exempt;
mod fast;
mod observed;
mod peek;
pub(crate) mod registry;
mod request;
pub(crate) mod reservations;
mod reserve;
mod snapshot;
mod total;
mod warnings;

pub use action::ActionLane;
pub use all::AllVerdict;
pub(crate) use assigned::effective_limit;
#[cfg(feature = "persist")]
pub(crate) use assigned::named;
pub use assignment::{Assignment, Assignments};
pub use request::{Agent, Request};
pub use reserve::{Reservation, ReservationId, Settle, Settlement};
#[cfg(feature = "capi")]
pub(crate) use {batch::BatchItem, charge::Answer};

use crate::bounds::ID_BYTES_MAX;
use crate::clock::{At, Clock, DateClock, Offset, Tick, WallClock};
use crate::error::Error;
use crate::limits::{LimitTable, Row};
use crate::machine::process::unforked;
#[cfg(feature = "persist")]
use crate::observe::roster::Roster;
use crate::observe::stats::Stats;
use crate::observe::unknown::UnknownActions;
use crate::observe::{Observe, Watch};
use crate::policy::{PlanId, Policy};
use crate::slab::hash::AgentHash;
use crate::slab::{OnFull, Slab};
use announced::AnnouncedWaits;
use registry::{Entry, Registry};
use reservations::Reservations;
use std::sync::{Arc, PoisonError, RwLock};
use warnings::Warnings;

/// Everything that a request may need.
pub(crate) struct Engine {
    pub(crate) slab: Slab,
    pub(crate) limits: LimitTable,
    pub(crate) clock: Clock,
    /// `None` if no lane uses the calendar.
    pub(crate) dates: Option<DateClock>,
    pub(crate) on_full: OnFull,
    pub(crate) reservations: Reservations,
    announced: AnnouncedWaits,
    warnings: Warnings,
    pub(crate) registry: Registry,
    /// The policy in force, for callers that must not wait for control calls.
    policy: RwLock<Arc<Policy>>,
    unknown_actions: UnknownActions,
    /// In a box, so that a limiter that is not observed is no larger for it.
    watch: Option<Box<Watch>>,
    /// The ids of agents that have records, once used budgets are kept.
    #[cfg(feature = "persist")]
    ids: std::sync::OnceLock<Box<Roster>>,
}

/// What an engine is made of.
pub(crate) struct Setup {
    pub(crate) policy: Arc<Policy>,
    pub(crate) clock: Clock,
    pub(crate) wall_clock: Option<WallClock>,
    /// How many reservations may be open, and how many of one agent.
    pub(crate) reservations: usize,
    pub(crate) reservations_per_agent: usize,
    pub(crate) on_full: OnFull,
    pub(crate) prefault: bool,
    pub(crate) observe: Option<Observe>,
}

impl Engine {
    /// An engine over a slab that has as many lanes as the policy. If the system
    /// refuses the memory, the error is how many bytes were needed.
    pub(crate) fn new(setup: Setup, slab: Slab) -> Result<Self, u64> {
        let Setup { policy, clock, wall_clock, on_full, .. } = setup;
        let limits = LimitTable::new(&policy)?;
        let lanes = limits.lanes().count();
        let has_dates = limits.kinds().iter().any(|kind| kind.uses_calendar());
        let watch = setup.observe.as_ref().map(|observe| Watch::new(observe, lanes, slab.records()).map(Box::new));
        let watch = watch.transpose()?;
        let (announced, registry) = (AnnouncedWaits::new()?, Registry::new()?);
        let warnings = Warnings::new(&policy);
        limits.observe(watch.is_some(), warnings.is_used());
        if setup.prefault {
            slab.prefault()?;
            announced.prefault()?;
            registry.prefault()?;
            watch.as_ref().map_or(Ok(()), |watch| watch.prefault())?;
        }
        for agent in policy.exempt() {
            let entry = Entry { by_policy: true, ..Entry::default() };
            registry.set(slab.hash(agent.as_bytes()), agent.as_bytes(), entry, limits.epoch());
        }
        Ok(Self {
            slab,
            dates: has_dates.then(|| DateClock::new(wall_clock, &clock)),
            reservations: Reservations::new(setup.reservations, setup.reservations_per_agent, limits.has_total()),
            limits,
            clock,
            on_full,
            announced,
            warnings,
            registry,
            policy: RwLock::new(policy),
            unknown_actions: UnknownActions::default(),
            watch,
            #[cfg(feature = "persist")]
            ids: std::sync::OnceLock::new(),
        })
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        // A child that is forked meanwhile must not find the lock taken.
        unforked(|| Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Publishes a policy whose limits are in force.
    pub(crate) fn set_policy(&self, policy: &Arc<Policy>) {
        self.warnings.set(policy);
        self.limits.observe(self.watch.is_some(), self.warnings.is_used());
        unforked(|| *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(policy));
    }

    pub(crate) fn reserved_bytes(&self) -> u64 {
        let roster = self.watch.as_ref().map_or(0, |watch| watch.roster_bytes());
        #[cfg(feature = "persist")]
        let roster = roster + self.ids.get().map_or(0, |ids| ids.reserved_bytes());
        self.slab.reserved_bytes()
            + self.limits.reserved_bytes()
            + self.announced.reserved_bytes()
            + self.warnings.reserved_bytes()
            + self.registry.reserved_bytes()
            + roster
    }

    pub(crate) fn stats(&self) -> Stats {
        let (seen, reservations) = (self.slab.occupancy(), self.reservations.counts(self.clock.now()));
        Stats {
            agents: seen.occupied,
            records: self.slab.records(),
            claims: seen.claims,
            idle_evictions: seen.idle_evictions,
            lossy_evictions: seen.lossy_evictions,
            retries: seen.retries,
            reservations: reservations.open,
            reservations_expired: reservations.expired,
            reservations_refused: reservations.refused,
        }
    }

    /// Checks the id, and hashes it.
    #[inline]
    pub(crate) fn hash(&self, agent: &[u8]) -> Result<AgentHash, Error> {
        match self.slab.hash_short(agent) {
            Some(hash) => Ok(hash),
            None => self.hash_any(agent),
        }
    }

    #[cold]
    #[inline(never)]
    fn hash_any(&self, agent: &[u8]) -> Result<AgentHash, Error> {
        match agent.len() {
            0 => Err(Error::EmptyId),
            1..=ID_BYTES_MAX => Ok(self.slab.hash(agent)),
            bytes => Err(Error::IdTooLong { bytes }),
        }
    }

    /// An instant, and its date if any lane uses the calendar.
    pub(crate) fn at(&self, now: Tick) -> At {
        At { now, offset: self.dates.as_ref().map_or(Offset::default(), |dates| dates.offset(&self.clock)) }
    }
}

/// The row that applies: the assignment's, or else that of the plan that stands
/// in for one.
#[inline]
fn stand_in_row(row: Row, stand_in: Option<PlanId>) -> Row {
    match stand_in {
        Some(plan) if row.is_unassigned() => row.for_plan(plan),
        _ => row,
    }
}
