//! The limiter: finds the agent's record, reads the clock, charges the lane.
//!
//! - `action.rs`: which lane pays for an action?
//! - `request.rs`: the question that every verb takes
//! - `ask.rs`: may the agent do this?
//! - `fast.rs`: the hundred instructions that answer most checks; after a miss,
//!   `charge.rs`: the one loop that applies a step to a record, and `claim.rs`:
//!   records for newcomers
//! - `peek.rs`: peek, refund, reset, forget, sweep
//! - `all.rs`: several charges, all or none
//! - `total.rs`: one limit over all lanes of a plan
//! - `reserve.rs`: charges that are settled later
//! - `budgets.rs` (feature `persist`): used budgets across restarts, and
//!   `saved.rs` what their file says
//! - `held.rs`: slots that are held until they are given back
//! - `control.rs`: plans, overrides, exemptions, a new policy
//! - `conduct.rs`: violations and what follows from them, and `told.rs` the waits that agents were told
//! - `warnings.rs`: warnings that are not repeated
//! - `registry.rs`: who has an assignment, and `exempt.rs` who is exempt, without a lock
//! - `observe.rs`: counts, and how agents stand

mod action;
mod all;
mod ask;
mod batch;
#[cfg(feature = "persist")]
mod budgets;
mod charge;
mod claim;
mod conduct;
mod control;
mod exempt;
mod fast;
mod held;
mod observe;
mod peek;
mod registry;
mod request;
mod reserve;
#[cfg(feature = "persist")]
mod saved;
mod told;
mod total;
mod warnings;

pub use action::ActionLane;
pub use all::AllVerdict;
#[cfg(feature = "capi")]
pub(crate) use batch::Asked;
#[cfg(feature = "persist")]
pub use budgets::{BudgetsLoaded, BudgetsSaved};
pub use control::ControlError;
pub use held::{Acquired, HeldSlot};
pub use request::{Agent, Request};
pub use reserve::{ReservationId, Reserved, Settle, Settlement};

use crate::bounds::{
    AGENTS_DEFAULT, AGENTS_MAX, ID_BYTES_MAX, RESERVATIONS_DEFAULT, RESERVATIONS_MAX, RESERVATIONS_PER_AGENT_MIN,
    RESERVATIONS_SHARE,
};
use crate::clock::{At, Clock, DateClock, Offset, Tick, WallClock};
use crate::error::{BuildError, Error};
use crate::limits::LimitTable;
use crate::machine::process::unforked;
use crate::observe::{Observe, Watch};
use crate::policy::unknown::UnknownActions;
use crate::policy::{Kind, LaneId, PlanId, Policy};
use crate::record::tag::Row;
use crate::reservations::Reservations;
use crate::slab::hash::{AgentHash, HashKey, IdHash};
use crate::slab::{Geometry, OnFull, Slab};
use control::ControlLock;
use registry::{Entry, Registry};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// An exact rate limiter for a fixed number of agents.
///
/// Share it by reference or in an `Arc`: every method takes `&self`, and any
/// number of threads may call any of them at once. A check of a known agent
/// takes no lock, allocates nothing and enters the kernel for nothing.
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
    slab: Slab,
    limits: LimitTable,
    clock: Clock,
    /// `None` if no lane goes by the calendar.
    dates: Option<DateClock>,
    on_full: OnFull,
    reservations: Reservations,
    told_waits: told::ToldWaits,
    warnings: warnings::Warnings,
    registry: Registry,
    control: ControlLock,
    /// What `control` has put in force, for those who must not wait for it.
    policy: RwLock<Arc<Policy>>,
    unknown_actions: UnknownActions,
    /// In a box, so that a limiter without it is no larger for it.
    watch: Option<Box<Watch>>,
    #[cfg(feature = "persist")]
    budgets: std::sync::OnceLock<Box<budgets::KeptBudgets>>,
}

/// What a limiter holds and has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Agents that hold a record now. Idle ones hold theirs until somebody
    /// needs it or a sweep takes it.
    pub agents: u64,
    /// Records in all.
    pub records: u64,
    /// Records given to agents since the start.
    pub claims: u64,
    /// Idle records taken for newcomers or swept: nothing was lost.
    pub idle_evictions: u64,
    /// Records in debt given up for newcomers: their agents may return with
    /// fresh buckets.
    pub lossy_evictions: u64,
    /// Exchanges that were lost to another thread and tried again.
    pub retries: u64,
    /// Reservations that are open now.
    pub reservations: u64,
    /// Reservations that expired before anybody settled them: their estimates
    /// stay charged. Counted when their slots are freed.
    pub reservations_expired: u64,
    /// Reservations that were refused because the agent had too many, or all
    /// slots were taken.
    pub reservations_refused: u64,
}

/// Builds a [`Limiter`].
#[derive(Clone, Debug)]
#[must_use]
pub struct LimiterBuilder {
    policy: Policy,
    agents: u64,
    clock: Option<Clock>,
    wall_clock: Option<WallClock>,
    reservations: usize,
    reservations_per_agent: Option<usize>,
    on_full: OnFull,
    hash: IdHash,
    commit_memory: bool,
    observe: Option<Observe>,
}

impl LimiterBuilder {
    /// How many agents it must hold; 1 million if nothing is said.
    ///
    /// With three to six lanes it reserves 87 bytes for each, of which the system
    /// commits what is touched, unless [all of it](Self::commit_memory) is asked
    /// for: room for a third more agents than stated, so that a newcomer nearly
    /// always finds a vacant record near its home. The table of limits takes
    /// address space for 65,536 rows beside that, 13 MB with six lanes, and
    /// commits the rows in use.
    pub fn agents(mut self, agents: u64) -> Self {
        self.agents = agents;
        self
    }

    /// Where its time comes from; [`Clock::auto`] if nothing is said.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = Some(clock.into());
        self
    }

    /// Where it learns the date, for budgets: the operating system's clock if
    /// nothing is said, but a [`ManualClock`](crate::ManualClock) counts from
    /// 1970 UTC by itself.
    pub fn wall_clock(mut self, clock: impl Into<WallClock>) -> Self {
        self.wall_clock = Some(clock.into());
        self
    }

    /// How many reservations may be open at once. Default: 16,384. Each takes
    /// 64 bytes, or 96 if the policy has a [total](crate::PolicyBuilder::total).
    pub fn reservations(mut self, reservations: usize) -> Self {
        self.reservations = reservations;
        self
    }

    /// How many reservations one agent may have open at once, so that none
    /// takes them all. Default: one in 64 of all, but at least 16.
    pub fn reservations_per_agent(mut self, most: usize) -> Self {
        self.reservations_per_agent = Some(most);
        self
    }

    /// What happens to a new agent when no record near its home is free.
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.on_full = on_full;
        self
    }

    /// How ids are hashed; multilinear if nothing is said.
    pub fn hash(mut self, hash: IdHash) -> Self {
        self.hash = hash;
        self
    }

    /// Whether the memory of the records, and of a roster if there is one, is
    /// taken from the system when the limiter is built; no if nothing is said.
    ///
    /// Otherwise the system commits a page when the first agent comes to live
    /// there, which lets that one check wait: for up to half a millisecond and
    /// more, since pages are large. And a flood of new ids makes the process
    /// grow, up to [`memory`](Limiter::memory) and no further. With this, no
    /// stream of ids makes it grow: it has that size from the start, or does
    /// not start. (The ids of kept budgets alone are committed as they come.)
    ///
    /// ```
    /// use tollgate::{Limit, Limiter, Policy};
    ///
    /// let policy = Policy::builder().lane("http", Limit::per_minute(60)).build()?;
    /// let limiter = Limiter::builder(policy).agents(10_000).commit_memory(true).build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn commit_memory(mut self, at_once: bool) -> Self {
        self.commit_memory = at_once;
        self
    }

    /// Remembers what it does; nothing of it if this is not called. See
    /// [`snapshot`](Limiter::snapshot), [`poll_event`](Limiter::poll_event)
    /// and, with a roster, [`agents`](Limiter::agents).
    ///
    /// Then a check costs some nanoseconds more. No stream of ids or threads
    /// makes it take more memory than it takes from the start.
    pub fn observe(mut self, observe: Observe) -> Self {
        self.observe = Some(observe);
        self
    }

    /// Reserves the memory.
    ///
    /// # Errors
    ///
    /// If the number of agents is out of range, or the system refuses the memory.
    pub fn build(self) -> Result<Limiter, BuildError> {
        if !(1..=AGENTS_MAX).contains(&self.agents) {
            return Err(BuildError::Agents { agents: self.agents });
        }
        if self.reservations > RESERVATIONS_MAX {
            return Err(BuildError::Reservations { reservations: self.reservations });
        }
        crate::machine::process::mark(); // Forks are watched from now on, before there can be one in the midst of something.
        let kinds = self.policy.cell_kinds();
        let geometry = Geometry::for_agents(self.agents, kinds.len());
        let slab =
            Slab::new(geometry, HashKey::random(self.hash), kinds).map_err(|bytes| BuildError::Memory { bytes })?;
        self.over(slab)
    }

    /// The limiter over a slab that has as many lanes as the policy.
    pub(crate) fn over(self, slab: Slab) -> Result<Limiter, BuildError> {
        let limits = LimitTable::new(&self.policy).map_err(|bytes| BuildError::Memory { bytes })?;
        let clock = self.clock.unwrap_or_else(Clock::auto);
        let policy = Arc::new(self.policy);
        let lanes = limits.lanes().count();
        let share = (self.reservations / RESERVATIONS_SHARE).max(RESERVATIONS_PER_AGENT_MIN);
        let per_agent = self.reservations_per_agent.unwrap_or(share);
        let has_dates = limits.kinds().iter().any(|kind| matches!(kind, Kind::Budget(_)));
        let watch = self.observe.as_ref().map(|observe| Watch::new(observe, lanes, slab.records()).map(Box::new));
        let watch = watch.transpose().map_err(|bytes| BuildError::Memory { bytes })?;
        let told_waits = told::ToldWaits::new().map_err(|bytes| BuildError::Memory { bytes })?;
        let registry = Registry::new().map_err(|bytes| BuildError::Memory { bytes })?;
        let warnings = warnings::Warnings::new(&policy);
        limits.watch(watch.is_some(), warnings.is_used());
        if self.commit_memory {
            let committed = slab.commit().and_then(|()| told_waits.commit()).and_then(|()| registry.commit());
            let committed = committed.and_then(|()| watch.as_ref().map_or(Ok(()), |watch| watch.commit()));
            committed.map_err(|bytes| BuildError::Memory { bytes })?;
        }
        for agent in policy.exempt() {
            let entry = Entry { by_policy: true, ..Entry::default() };
            registry.set(slab.hash(agent.as_bytes()), agent.as_bytes(), entry, limits.epoch());
        }
        Ok(Limiter {
            slab,
            dates: has_dates.then(|| DateClock::new(self.wall_clock, &clock)),
            reservations: Reservations::new(self.reservations, per_agent, limits.has_total()),
            limits,
            clock,
            on_full: self.on_full,
            told_waits,
            warnings,
            registry,
            control: ControlLock::new(Arc::clone(&policy)),
            policy: RwLock::new(policy),
            unknown_actions: UnknownActions::default(),
            watch,
            #[cfg(feature = "persist")]
            budgets: std::sync::OnceLock::new(),
        })
    }
}

impl Limiter {
    /// Starts a limiter with this policy.
    pub fn builder(policy: Policy) -> LimiterBuilder {
        LimiterBuilder {
            policy,
            agents: AGENTS_DEFAULT,
            clock: None,
            wall_clock: None,
            reservations: RESERVATIONS_DEFAULT,
            reservations_per_agent: None,
            on_full: OnFull::default(),
            hash: IdHash::default(),
            commit_memory: false,
            observe: None,
        }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        // A child that is forked meanwhile must not find the lock taken.
        unforked(|| Arc::clone(&self.policy.read().unwrap_or_else(PoisonError::into_inner)))
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

    /// The present instant on its clock.
    #[must_use]
    pub fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Bytes of address space it has reserved for records, limits, told waits,
    /// warnings and exempt agents, for a roster if there is one, and for ids if used budgets are
    /// kept. No stream of ids makes it more. Assignments take memory beside it, as many as an
    /// operator makes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let roster = self.watch.as_ref().map_or(0, |watch| watch.roster_bytes());
        #[cfg(feature = "persist")]
        let roster = roster + self.budgets.get().map_or(0, |kept| kept.reserved_bytes());
        self.slab.reserved_bytes()
            + self.limits.reserved_bytes()
            + self.told_waits.reserved_bytes()
            + self.warnings.reserved_bytes()
            + self.registry.reserved_bytes()
            + roster
    }

    /// What it holds and has seen. Walks a counter per 1,024 records, and the reservations.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let (seen, reservations) = (self.slab.occupancy(), self.reservations.counts(self.clock.now()));
        Stats {
            agents: seen.held,
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

    /// Checks the id, and finds the agent's place.
    #[inline]
    fn hash(&self, agent: &[u8]) -> Result<AgentHash, Error> {
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

    /// An instant, and its date if any lane goes by the calendar.
    fn at(&self, now: Tick) -> At {
        At { now, offset: self.dates.as_ref().map_or(Offset::default(), |dates| dates.offset(&self.clock)) }
    }
}

/// The row that applies: that of an assignment, or else of the plan that
/// stands in for one.
#[inline]
fn stand_in_row(row: Row, stand_in: Option<PlanId>) -> Row {
    match stand_in {
        Some(plan) if row.is_unassigned() => row.for_plan(plan),
        _ => row,
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policy", &self.policy())
            .field("clock", &self.clock)
            .field("on_full", &self.on_full)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::policy::Limit;

    fn limiter(agents: u64, on_full: OnFull) -> Limiter {
        let policy = ["light", "normal", "heavy"]
            .into_iter()
            .fold(Policy::builder(), |policy, lane| policy.lane(lane, Limit::per_minute(2)));
        let clock = ManualClock::new();
        Limiter::builder(policy.build().unwrap()).agents(agents).clock(clock).on_full(on_full).build().unwrap()
    }

    /// What makes most checks fast: of agents at the assumed load, which are
    /// found at the first look, and which have been asked for before it.
    #[test]
    fn most_agents_are_where_they_are_looked_for_first() {
        const AGENTS: u64 = 60_000;
        let limiter = limiter(AGENTS, OnFull::Evict);
        let heavy = limiter.lane("heavy").unwrap();
        let ids: Vec<String> = (0..AGENTS).map(|agent| format!("agent-{agent}")).collect();
        ids.iter().for_each(|id| assert!(limiter.check(id, heavy).unwrap().is_allowed()));
        let share_of = |is_one: &dyn Fn(AgentHash) -> bool| {
            ids.iter().filter(|id| is_one(limiter.slab.hash(id.as_bytes()))).count() as f64 / AGENTS as f64
        };
        let at_first = share_of(&|hash| {
            limiter.slab.likely_record(hash).is_some_and(|record| record.tag().belongs_to(hash.tag()))
        });
        let favourite = share_of(&|hash| {
            limiter.slab.find(hash).is_some_and(|found| found.position == limiter.slab.favourite(hash))
        });
        println!("{at_first:.4} at the first look, {favourite:.4} in their favourite slot");
        assert!(at_first > 0.955, "{at_first}");
        assert!(favourite > 0.60, "{favourite}");
    }

    #[test]
    fn a_sweep_in_the_future_harms_no_newcomer() {
        // Many slabs: whether the newcomer gets the swept record depends on the hash key.
        for _ in 0..100 {
            let clock = ManualClock::new();
            let policy = Policy::builder().lane("lane", Limit::per_minute(2)).build().unwrap();
            let limiter = Limiter::builder(policy).agents(1).clock(clock.clone()).on_full(OnFull::Deny);
            let limiter = limiter.build().unwrap();
            assert!(limiter.check("old", LaneId::new(0)).unwrap().is_allowed());
            clock.advance(std::time::Duration::from_secs(1));
            assert_eq!(limiter.sweep_at(std::time::Duration::ZERO, Tick::MAX), 1);
            assert_eq!(limiter.check("new", LaneId::new(0)).unwrap().remaining(), 1);
        }
    }

    /// A price past every range, added to a full bucket of a record's second
    /// tenancy, came to no debt at all, and an absurd cost was let through.
    #[test]
    fn an_absurd_cost_is_refused_in_every_tenancy() {
        let limiter = limiter(100, OnFull::Deny);
        let heavy = limiter.lane("heavy").unwrap();
        for tenancy in 0..20 {
            assert!(limiter.check("agent", heavy).unwrap().is_allowed(), "{tenancy}");
            limiter.reset("agent").unwrap();
            for cost in [u64::MAX, u64::MAX - 208, u64::MAX / 2, 1 << 40] {
                let refused = Err(Error::CostAboveCapacity { cost, capacity: 2 });
                assert_eq!(limiter.check_request(Request::new("agent", heavy).cost(cost)), refused, "{tenancy}");
            }
            assert_eq!(limiter.forget("agent"), Ok(true));
        }
    }

    #[test]
    fn a_denial_leaves_every_word_of_the_slab_unchanged() {
        let limiter = limiter(100, OnFull::Deny);
        let heavy = limiter.lane("heavy").unwrap();
        assert!(limiter.check_request(Request::new("agent", heavy).cost(2)).unwrap().is_allowed());
        let before = limiter.slab.snapshot();
        for _ in 0..10 {
            assert!(!limiter.check("agent", heavy).unwrap().is_allowed());
        }
        assert_eq!(limiter.slab.snapshot(), before);
    }

    /// An exempt agent took a record, so that its checks would take no lock.
    /// It needs none: a hundred thousand calls leave the slab as it was, and
    /// nobody loses a record for it.
    #[test]
    fn exempt_agents_take_no_record() {
        let limiter = limiter(1, OnFull::Evict);
        let heavy = limiter.lane("heavy").unwrap();
        let decision = |agent: &str| limiter.check(agent, heavy).unwrap().decision();
        let is_exempt = || decision("exempt") == crate::Decision::Exempt;
        let before = limiter.slab.snapshot();
        // More than the table has room for in some of its lines.
        let agents: Vec<_> = (0..5_000).map(|agent| format!("exempt-{agent}")).collect();
        for agent in agents.iter().map(String::as_str).chain(["exempt"]) {
            limiter.exempt(agent).unwrap();
        }
        let all_are = || agents.iter().all(|agent| decision(agent) == crate::Decision::Exempt);
        assert!((0..20).all(|_| all_are()));
        assert!((0..100_000).all(|_| is_exempt()));
        assert!(limiter.check_request(Request::new("exempt", heavy).cost(1_000_000)).unwrap().is_allowed());
        assert_eq!((limiter.slab.snapshot(), limiter.stats().agents), (before, 0));
        // Every record is taken, and in debt.
        for agent in 0..limiter.stats().records {
            assert!(limiter.check(format!("agent-{agent}"), heavy).unwrap().is_allowed());
        }
        let before = limiter.slab.snapshot();
        assert!((0..1_000).all(|_| is_exempt()));
        assert_eq!(limiter.slab.snapshot(), before);
    }

    /// It comes and goes with the very next check, with and without a record.
    #[test]
    fn an_exemption_holds_from_the_next_check_on_and_ends_with_it() {
        let limiter = limiter(100, OnFull::Deny);
        let heavy = limiter.lane("heavy").unwrap();
        let decision = |agent: &str| limiter.check(agent, heavy).unwrap().decision();
        for round in 0..100 {
            limiter.exempt("stranger").unwrap();
            assert_eq!((decision("stranger"), limiter.stats().agents), (crate::Decision::Exempt, 0), "{round}");
            limiter.unexempt("stranger").unwrap();
            assert_eq!((decision("stranger"), limiter.stats().agents), (crate::Decision::Allow, 1), "{round}");
            limiter.forget("stranger").unwrap();
        }
        // One that has a record keeps it with its debt: an exemption is no reset.
        assert!(limiter.check_request(Request::new("known", heavy).cost(2)).unwrap().is_allowed());
        limiter.exempt("known").unwrap();
        assert_eq!((decision("known"), limiter.stats().agents), (crate::Decision::Exempt, 1));
        limiter.unexempt("known").unwrap();
        assert_eq!(decision("known"), crate::Decision::Deny);
        // Once nothing is left of the debt, the record goes, and does not come back.
        limiter.exempt("known").unwrap();
        let later = limiter.now().saturating_add(std::time::Duration::from_secs(61));
        assert_eq!(limiter.sweep_at(std::time::Duration::ZERO, later), 1);
        assert_eq!((decision("known"), limiter.stats().agents), (crate::Decision::Exempt, 0));
    }

    #[test]
    fn looking_and_errors_leave_every_word_of_the_slab_unchanged() {
        let limiter = limiter(100, OnFull::Deny);
        let heavy = limiter.lane("heavy").unwrap();
        assert!(limiter.check("agent", heavy).unwrap().is_allowed());
        let before = limiter.slab.snapshot();
        for agent in ["agent", "stranger"] {
            assert!(limiter.peek(Request::new(agent, heavy)).is_ok());
            assert!(limiter.check_request(Request::new(agent, heavy).cost(3)).is_err());
            assert!(limiter.check_request(Request::new(agent, heavy).cost(0)).is_err());
            assert!(limiter.check(agent, LaneId::new(3)).is_err());
        }
        assert!(limiter.refund(Request::new("stranger", heavy)).is_ok());
        assert!(limiter.reset("stranger").is_ok());
        assert_eq!(limiter.forget("stranger"), Ok(false));
        assert_eq!(limiter.slab.snapshot(), before);
    }
}
