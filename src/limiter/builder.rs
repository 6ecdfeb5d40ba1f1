//! Builds a limiter.

use super::Limiter;
use crate::bounds::{
    AGENTS_DEFAULT, AGENTS_MAX, RESERVATIONS_DEFAULT, RESERVATIONS_MAX, RESERVATIONS_PER_AGENT_MIN, RESERVATIONS_SHARE,
};
use crate::clock::{Clock, WallClock};
use crate::control::ControlLock;
#[cfg(feature = "cluster")]
use crate::engine::Asks;
use crate::engine::{Engine, Setup};
use crate::error::BuildError;
#[cfg(feature = "persist")]
use crate::keep::BudgetKeeper;
use crate::observe::Observe;
use crate::policy::Policy;
use crate::shared::Memory;
use crate::slab::hash::{HashKey, IdHash};
use crate::slab::{Geometry, OnFull, Slab};
use std::sync::Arc;

/// Builds a [`Limiter`].
#[derive(Clone, Debug)]
#[must_use]
pub struct LimiterBuilder {
    /// `None` if it is that of a shared slab.
    pub(super) policy: Option<Policy>,
    pub(super) agents: u64,
    pub(super) clock: Option<Clock>,
    wall_clock: Option<WallClock>,
    pub(super) reservations: usize,
    pub(super) reservations_per_agent: Option<usize>,
    pub(super) on_full: OnFull,
    pub(super) hash: IdHash,
    prefault: bool,
    pub(super) observe: Option<Observe>,
    #[cfg(feature = "shared")]
    pub(super) shared: Option<crate::shared::Shared>,
    #[cfg(feature = "cluster")]
    pub(super) cluster: Option<super::cluster::Cluster>,
}

/// What the limiter stands on.
pub(super) struct Ground {
    pub(super) memory: Memory,
    pub(super) epoch: u64,
    /// Places in the roster of a shared slab.
    pub(super) roster: Option<usize>,
    /// Places of a shared slab for the ids of agents whose budgets are kept.
    #[cfg(feature = "shared")]
    pub(super) kept_ids: Option<usize>,
    #[cfg(feature = "shared")]
    pub(super) policy_bytes: usize,
    /// How many calls may hold slots of a shared slab.
    pub(super) holds: usize,
}

impl Ground {
    pub(super) const PRIVATE: Self = Self {
        memory: Memory::Private,
        epoch: 0,
        roster: None,
        #[cfg(feature = "shared")]
        kept_ids: None,
        #[cfg(feature = "shared")]
        policy_bytes: 0,
        holds: 0,
    };
}

impl LimiterBuilder {
    pub(super) fn new(policy: Option<Policy>) -> Self {
        Self {
            policy,
            agents: AGENTS_DEFAULT,
            clock: None,
            wall_clock: None,
            reservations: RESERVATIONS_DEFAULT,
            reservations_per_agent: None,
            on_full: OnFull::default(),
            hash: IdHash::default(),
            prefault: false,
            observe: None,
            #[cfg(feature = "shared")]
            shared: None,
            #[cfg(feature = "cluster")]
            cluster: None,
        }
    }

    /// Shares one limiter with all processes that name the same place: the first one makes it, the
    /// others join it. Needs the feature `shared`. Default: a limiter of this process alone.
    ///
    /// Lanes, kinds, [clock](Self::clock) and [`on_full`](Self::on_full) must agree, and the numbers
    /// of agents and reservations must not be larger than those that it was made with. The policy in
    /// force is the slab's, unless this one has a higher [version](crate::PolicyBuilder::version):
    /// then it replaces it for all.
    ///
    /// ```
    /// use tollgate::shared::Shared;
    /// use tollgate::{Limiter, Policy};
    ///
    /// let policy = Policy::builder().lane("http", "2/minute").build()?;
    /// let first = Limiter::builder(policy.clone()).agents(1_000).shared(Shared::memfd()).build()?;
    /// let http = first.lane("http").expect("named above");
    /// assert!(first.check("agent-7", http)?.is_allowed());
    ///
    /// // Another process would be given the descriptor; a forked child needs nothing.
    /// let descriptor = first.shared_descriptor().expect("it is shared").try_clone_to_owned()?;
    /// let second = Limiter::builder(policy).agents(1_000).shared(Shared::descriptor(descriptor)).build()?;
    /// assert!(second.check("agent-7", http)?.is_allowed());
    /// assert!(!first.check("agent-7", http)?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "shared")]
    pub fn shared(mut self, place: impl Into<crate::shared::Shared>) -> Self {
        self.shared = Some(place.into());
        self
    }

    /// How many agents it holds. Default: 1,000,000.
    ///
    /// With three to six lanes it reserves 87 bytes for each. That is room for a third more agents
    /// than stated, so that a newcomer nearly always finds a vacant record near its home. The table
    /// of limits takes address space for 65,536 rows beside that: 13 MB with six lanes. The system
    /// supplies the pages as they are touched, unless you [prefault](Self::prefault) them.
    pub fn agents(mut self, agents: u64) -> Self {
        self.agents = agents;
        self
    }

    /// Where its time comes from. Default: [`Clock::auto`].
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = Some(clock.into());
        self
    }

    /// Where it learns the date, for budgets. Default: the operating system's clock; with a
    /// [`ManualClock`](crate::ManualClock), that clock, counted from 1970 UTC.
    pub fn wall_clock(mut self, clock: impl Into<WallClock>) -> Self {
        self.wall_clock = Some(clock.into());
        self
    }

    /// How many reservations may be open at once. Default: 16,384. Each takes 64 bytes, or 96 if
    /// the policy has a [total](crate::PolicyBuilder::total).
    pub fn reservations(mut self, reservations: usize) -> Self {
        self.reservations = reservations;
        self
    }

    /// How many reservations one agent may have open at once, so that no agent takes them all.
    /// Default: a 64th of all, but at least 16.
    pub fn reservations_per_agent(mut self, most: usize) -> Self {
        self.reservations_per_agent = Some(most);
        self
    }

    /// What happens to a new agent when no record near its home is free. Default:
    /// [`OnFull::Evict`].
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.on_full = on_full;
        self
    }

    /// How ids are hashed. Default: [`IdHash::Multilinear`].
    pub fn hash(mut self, hash: IdHash) -> Self {
        self.hash = hash;
        self
    }

    /// Whether `build` touches all pages of the records, and of a roster if there is one. Default:
    /// no.
    ///
    /// Without it the system supplies a page when its first agent arrives, and that one check waits
    /// for it: half a millisecond or more, since pages are large. A flood of new ids then makes the
    /// process grow, up to [`memory`](Limiter::memory) and no further. With it, the process has that
    /// size from the start, or does not start. (The ids of kept budgets are the exception: their
    /// pages come with the agents.)
    ///
    /// ```
    /// use tollgate::{Limit, Limiter, Policy};
    ///
    /// let policy = Policy::builder().lane("http", Limit::per_minute(60)).build()?;
    /// let limiter = Limiter::builder(policy).agents(10_000).prefault(true).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefault(mut self, at_once: bool) -> Self {
        self.prefault = at_once;
        self
    }

    /// Remembers what it does. Default: it does not. See [`snapshot`](Limiter::snapshot),
    /// [`poll_event`](Limiter::poll_event) and, with a roster, [`agents`](Limiter::agents).
    ///
    /// A check then takes a few nanoseconds longer. All memory for it is reserved at the start,
    /// whatever ids and threads come.
    pub fn observe(mut self, observe: Observe) -> Self {
        self.observe = Some(observe);
        self
    }

    /// Reserves the memory and builds the limiter.
    ///
    /// # Errors
    ///
    /// [`BuildError::Agents`] or [`BuildError::Reservations`] if a number is out of range;
    /// [`BuildError::Memory`] if the system refuses the memory; with [`shared`](Self::shared) also
    /// `BuildError::Shared`, which says why the slab cannot be shared.
    pub fn build(self) -> Result<Limiter, BuildError> {
        if !(1..=AGENTS_MAX).contains(&self.agents) {
            return Err(BuildError::Agents { agents: self.agents });
        }
        if self.reservations > RESERVATIONS_MAX {
            return Err(BuildError::Reservations { reservations: self.reservations });
        }
        #[cfg(feature = "cluster")]
        let mut this = self;
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &this.cluster {
            #[cfg(feature = "shared")]
            if this.shared.is_some() {
                return Err(super::cluster::ClusterError::Shared.into());
            }
            this.policy = this.policy.map(|policy| cluster.apply(policy)).transpose()?;
        }
        #[cfg(not(feature = "cluster"))]
        let this = self;
        // Forks are detected from now on, before one can interrupt anything.
        crate::machine::process::mark();
        #[cfg(feature = "shared")]
        if let Some(place) = this.shared.clone() {
            return this.build_shared(&place);
        }
        let key = HashKey::random(this.hash);
        this.within(Ground::PRIVATE, key)
    }

    /// The limiter on this ground.
    pub(super) fn within(self, ground: Ground, key: HashKey) -> Result<Limiter, BuildError> {
        let kinds = self.policy.as_ref().map(Policy::cell_kinds).unwrap_or_default();
        let geometry = Geometry::for_agents(self.agents, kinds.len());
        let slab = Slab::within(ground.memory.clone(), geometry, key, kinds, ground.holds);
        self.on(ground, slab.map_err(|bytes| BuildError::Memory { bytes })?)
    }

    /// The limiter over a slab that has as many lanes as the policy, in the slab's memory.
    #[cfg(test)]
    pub(crate) fn over(self, slab: Slab) -> Result<Limiter, BuildError> {
        let memory = slab.sharing().clone();
        self.on(Ground { memory, ..Ground::PRIVATE }, slab)
    }

    /// How many reservations one agent may have open.
    pub(super) fn per_agent(&self) -> usize {
        let share = (self.reservations / RESERVATIONS_SHARE).max(RESERVATIONS_PER_AGENT_MIN);
        self.reservations_per_agent.unwrap_or(share)
    }

    fn on(self, ground: Ground, slab: Slab) -> Result<Limiter, BuildError> {
        let reservations_per_agent = self.per_agent();
        let policy = Arc::new(self.policy.ok_or(BuildError::Memory { bytes: 0 })?);
        #[cfg(feature = "cluster")]
        let asks = self.cluster.map(|cluster| Asks::new(cluster.key(), self.agents, &policy, self.reservations));
        let control = ControlLock::new(&ground.memory, Arc::clone(&policy));
        let setup = Setup {
            policy,
            epoch: ground.epoch,
            agents: self.agents,
            memory: ground.memory,
            roster: ground.roster,
            #[cfg(feature = "shared")]
            kept_ids: ground.kept_ids,
            #[cfg(feature = "shared")]
            policy_bytes: ground.policy_bytes,
            clock: self.clock.unwrap_or_else(Clock::auto),
            wall_clock: self.wall_clock,
            reservations: self.reservations,
            reservations_per_agent,
            on_full: self.on_full,
            prefault: self.prefault,
            observe: self.observe,
            #[cfg(feature = "cluster")]
            asks: asks.transpose().map_err(|bytes| BuildError::Memory { bytes })?,
        };
        Ok(Limiter {
            engine: Engine::new(setup, slab).map_err(|bytes| BuildError::Memory { bytes })?,
            control: control.map_err(|bytes| BuildError::Memory { bytes })?,
            #[cfg(feature = "persist")]
            budgets: BudgetKeeper::default(),
        })
    }
}
