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
//! - `hold.rs`: held slots of a shared slab
//! - `reserve.rs`: charges that are settled later; `reservations/` is the table of open ones
//! - `conduct.rs`: violations and what follows from them, and `announced.rs` the waits that agents were given
//! - `warnings.rs`: warnings that are not repeated
//! - `observed.rs`: checks that are observed, and what the engine notes
//! - `agents.rs`: the state of agents, and lists of them; `snapshot.rs`: counts and the report
//! - `action.rs`: which lane pays for an action?
//! - `policy_text.rs` (feature `shared`): the policy in force, for other processes; `layout.rs`: the sections of a file
//! - `cluster.rs` (feature `cluster`): what a check asks of the store that machines share lanes through;
//!   `reservers.rs`: whose reservations of shared budgets are open; `copied.rs`: what a forked child has of its parent
//! - `registry/`: which agents have an assignment, and `exempt.rs` which are exempt, without a lock;
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
#[cfg(feature = "cluster")]
mod cluster;
mod conduct;
#[cfg(feature = "cluster")]
mod copied;
mod exempt;
mod fast;
mod hold;
#[cfg(all(feature = "shared", not(loom)))]
pub(crate) mod layout;
mod observed;
mod peek;
#[cfg(feature = "shared")]
pub(crate) mod policy_text;
pub(crate) mod registry;
mod request;
pub(crate) mod reservations;
mod reserve;
#[cfg(feature = "cluster")]
mod reservers;
mod snapshot;
mod total;
mod warnings;

pub use action::ActionLane;
pub use all::AllVerdict;
pub(crate) use assigned::effective_limit;
#[cfg(feature = "persist")]
pub(crate) use assigned::named;
pub use assignment::{Assignment, Assignments};
#[cfg(feature = "cluster")]
pub(crate) use cluster::Asks;
#[cfg(feature = "cluster")]
pub use cluster::{Ask, BudgetWindow, Due, Settled};
pub use request::{Agent, Request};
pub use reserve::{Reservation, ReservationId, Settle, Settlement};
#[cfg(feature = "capi")]
pub(crate) use {batch::BatchItem, charge::Answer};

use crate::bounds::ID_BYTES_MAX;
use crate::clock::{At, Clock, DateClock, Offset, Tick, WallClock};
use crate::error::Error;
use crate::limits::{LimitTable, Row};
use crate::machine::process::unforked;
use crate::observe::roster::Roster;
use crate::observe::stats::Stats;
use crate::observe::unknown::UnknownActions;
use crate::observe::{Observe, Watch};
use crate::policy::{PlanId, Policy};
use crate::shared::Memory;
use crate::slab::hash::AgentHash;
use crate::slab::{OnFull, Slab};
use crate::sync::{Counter, Ordering};
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
    /// The policy in force and its epoch, for callers that must not wait for control calls.
    policy: RwLock<(Arc<Policy>, u64)>,
    /// The epoch of that policy, written after it.
    known_epoch: Counter,
    /// The policy in force as text, for other processes.
    #[cfg(feature = "shared")]
    text: Option<policy_text::PolicyText>,
    #[cfg_attr(
        not(all(feature = "shared", target_os = "linux", not(loom))),
        allow(dead_code, reason = "for a shared file")
    )]
    pub(crate) memory: Memory,
    /// The ids of agents that have records in a shared slab, whether this process observes or not.
    roster: Option<Roster>,
    /// The ids of agents that have records in a shared slab, once a process keeps used budgets.
    #[cfg(feature = "shared")]
    kept_ids: Option<Roster>,
    unknown_actions: UnknownActions,
    /// What the store is asked that machines share lanes through.
    #[cfg(feature = "cluster")]
    asks: Option<Asks>,
    /// In a box, so that a limiter that is not observed is no larger for it.
    watch: Option<Box<Watch>>,
    /// The ids of agents that have records, once used budgets are kept.
    #[cfg(feature = "persist")]
    ids: std::sync::OnceLock<Box<Roster>>,
}

/// What an engine is made of.
pub(crate) struct Setup {
    pub(crate) policy: Arc<Policy>,
    /// The epoch in which that policy is in force.
    pub(crate) epoch: u64,
    pub(crate) clock: Clock,
    pub(crate) wall_clock: Option<WallClock>,
    /// How many reservations may be open, and how many of one agent.
    pub(crate) reservations: usize,
    pub(crate) reservations_per_agent: usize,
    pub(crate) on_full: OnFull,
    pub(crate) prefault: bool,
    pub(crate) observe: Option<Observe>,
    pub(crate) memory: Memory,
    /// What the slab was made for.
    pub(crate) agents: u64,
    /// Places in the roster of a shared slab.
    pub(crate) roster: Option<usize>,
    /// Places of a shared slab for the ids of agents whose budgets are kept.
    #[cfg(feature = "shared")]
    pub(crate) kept_ids: Option<usize>,
    /// Room for the policy's text in a shared slab.
    #[cfg(feature = "shared")]
    pub(crate) policy_bytes: usize,
    #[cfg(feature = "cluster")]
    pub(crate) asks: Option<Asks>,
}

impl Engine {
    /// An engine over a slab that has as many lanes as the policy. If the system
    /// refuses the memory, the error is how many bytes were needed.
    pub(crate) fn new(setup: Setup, slab: Slab) -> Result<Self, u64> {
        let Setup { policy, clock, wall_clock, on_full, memory, .. } = setup;
        let limits = LimitTable::within(&memory, &policy)?;
        let lanes = limits.lanes().count();
        let has_dates = limits.kinds().iter().any(|kind| kind.uses_calendar());
        let observe = setup.observe.as_ref();
        let watch = observe.map(|observe| Watch::within(&memory, observe, lanes, slab.records()).map(Box::new));
        let watch = watch.transpose()?;
        let announced = AnnouncedWaits::within(&memory)?;
        let registry = Registry::within(&memory, setup.agents, lanes)?;
        let roster = setup.roster.map(|places| Roster::within(&memory, places)).transpose()?;
        let warnings = Warnings::new(&memory, &policy);
        limits.observe(watch.is_some(), warnings.is_used());
        if setup.prefault {
            slab.prefault()?;
            announced.prefault()?;
            registry.prefault()?;
            watch.as_ref().map_or(Ok(()), |watch| watch.prefault())?;
        }
        for agent in policy.exempt().filter(|_| memory.is_new()) {
            let (entry, hash) = (Entry { by_policy: true, ..Entry::default() }, slab.hash(agent.as_bytes()));
            if let Some(table) = registry.shared() {
                table.stage(hash, agent.as_bytes(), &entry).map_err(|_| table.most())?;
            }
            registry.set(hash, agent.as_bytes(), entry, limits.epoch());
            registry.shared().into_iter().for_each(|table| table.unstage(hash));
        }
        let (slots, per_agent) = (setup.reservations, setup.reservations_per_agent);
        Ok(Self {
            slab,
            dates: has_dates.then(|| DateClock::new(wall_clock, &clock)),
            reservations: Reservations::within(&memory, slots, per_agent, limits.has_total())?,
            roster,
            #[cfg(feature = "shared")]
            kept_ids: setup.kept_ids.map(|places| Roster::of_kept(&memory, places)).transpose()?,
            #[cfg(feature = "shared")]
            text: policy_text::PolicyText::within(&memory, setup.policy_bytes)?,
            known_epoch: Counter::new(setup.epoch),
            memory,
            limits,
            clock,
            on_full,
            announced,
            warnings,
            registry,
            policy: RwLock::new((policy, setup.epoch)),
            unknown_actions: UnknownActions::default(),
            #[cfg(feature = "cluster")]
            asks: setup.asks,
            watch,
            #[cfg(feature = "persist")]
            ids: std::sync::OnceLock::new(),
        })
    }

    /// The policy in force.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy_and_epoch().0
    }

    /// The policy in force, and the epoch in which it is. That is no older than this call, unless something else has
    /// written the policy's text.
    pub(crate) fn policy_and_epoch(&self) -> (Arc<Policy>, u64) {
        #[cfg(feature = "shared")]
        self.adopt_policy();
        self.known_policy()
    }

    /// The policy that this process knows, and its epoch.
    fn known_policy(&self) -> (Arc<Policy>, u64) {
        // A child that is forked meanwhile must not find the lock taken.
        unforked(|| self.policy.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Publishes a policy whose limits are in force since this epoch. `false` if that epoch is known already; a
    /// policy of an earlier epoch than the one that is known changes nothing.
    pub(crate) fn set_policy(&self, policy: &Arc<Policy>, epoch: u64) -> bool {
        // In one block: a child that is forked meanwhile has the policy of the epoch that it knows.
        unforked(|| {
            let mut known = self.policy.write().unwrap_or_else(PoisonError::into_inner);
            if epoch < known.1 {
                return false;
            }
            self.warnings.set(policy);
            self.limits.observe(self.watch.is_some(), self.warnings.is_used());
            let is_new = epoch > known.1;
            *known = (Arc::clone(policy), epoch);
            // Release, paired with `adopt_policy`: a thread that finds this epoch known finds its policy too.
            self.known_epoch.store(epoch, Ordering::Release);
            is_new
        })
    }

    /// The roster for lists of agents.
    pub(crate) fn roster(&self) -> Option<&Roster> {
        self.roster.as_ref().or(self.watch.as_ref().and_then(|watch| watch.roster.as_ref()))
    }

    pub(crate) fn reserved_bytes(&self) -> u64 {
        let roster = self.roster().map_or(0, Roster::reserved_bytes);
        #[cfg(feature = "persist")]
        let roster = roster + self.ids.get().map_or(0, |ids| ids.reserved_bytes());
        #[cfg(feature = "shared")]
        let roster = roster + self.kept_ids().map_or(0, Roster::reserved_bytes);
        #[cfg(feature = "cluster")]
        let roster = roster + self.asks.as_ref().map_or(0, Asks::reserved_bytes);
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

/// Why a call got nothing from a shared slab that it needs to itself for a moment.
fn in_the_way(memory: &Memory) -> Error {
    let refusal = memory.joined().and_then(|joined| joined.seat_refusal());
    refusal.map_or(Error::Busy, |errno| Error::NoSeat { errno })
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
