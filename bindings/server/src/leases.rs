//! Slots that are held over HTTP. A client may vanish, so each slot has a lease,
//! and is released when the lease expires.
//!
//! An id is a random number of 128 bits that only the client that holds the slot
//! gets. The table is bounded, and so is its memory; one agent may have only a
//! share of it.
//!
//! Neither a reset nor forgetting an agent ends a lease: its holder is still there.

use crate::error::StartError;
use crate::random;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tollgate::{LaneId, LaneState, Limiter, Request, Tick};

/// How many leases there may be at once, by default: some 25 MB if every agent has
/// the longest id.
pub(crate) const LEASES_DEFAULT: usize = 65_536;

/// The most that can be set.
pub(crate) const LEASES_MAX: u64 = 1_000_000;

/// By default one agent may have one in this many of all leases, but at least
/// [`PER_AGENT_MIN`].
const SHARE: usize = 64;
const PER_AGENT_MIN: usize = 16;

/// The id of a lease.
pub(crate) type LeaseId = u128;

/// All leases.
pub(crate) struct Leases {
    limiter: Arc<Limiter>,
    max: usize,
    per_agent: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    leases: HashMap<LeaseId, Lease>,
    /// The same, by when they expire.
    due: BTreeSet<(Tick, LeaseId)>,
    /// How many leases each agent has, without those that have none.
    by_agent: HashMap<Box<[u8]>, usize>,
    expired: u64,
    refused: u64,
}

impl Table {
    /// Removes a lease.
    fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        self.due.remove(&(lease.expires, id));
        match self.by_agent.get_mut(&lease.agent) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.by_agent.remove(&lease.agent)),
        }
        Some(lease)
    }
}

/// Counts of leases.
#[derive(Debug, PartialEq)]
pub(crate) struct Counts {
    pub(crate) leases: usize,
    pub(crate) max: usize,
    pub(crate) expired: u64,
    pub(crate) refused: u64,
}

/// Why there is no room for a lease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NoRoom {
    /// All agents together have as many as allowed.
    Overall,
    /// One agent has as many as allowed.
    ForAgent { most: usize },
}

struct Lease {
    agent: Box<[u8]>,
    lane: LaneId,
    /// 0 for an agent that was exempt.
    slots: u64,
    expires: Tick,
}

/// The lane of a lease that was released, and its state afterwards.
pub(crate) struct Release {
    pub(crate) lane: LaneId,
    /// `None` for an agent that was exempt, or that no longer holds a slot.
    pub(crate) state: Option<LaneState>,
}

/// The lock on the table: nobody else takes or leases slots meanwhile.
pub(crate) struct Guard<'a> {
    leases: &'a Leases,
    table: MutexGuard<'a, Table>,
    now: Tick,
}

impl Leases {
    pub(crate) fn new(limiter: Arc<Limiter>, max: usize, per_agent: Option<usize>) -> Self {
        let per_agent = per_agent.unwrap_or((max / SHARE).max(PER_AGENT_MIN));
        Self { limiter, max, per_agent, table: Mutex::default() }
    }

    /// Locks the table and releases what has expired.
    pub(crate) fn lock(&self, now: Tick) -> Guard<'_> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut guard = Guard { leases: self, table, now };
        // Ends: every round removes one.
        while let Some(&(_, id)) = guard.table.due.first().filter(|(expires, _)| *expires <= now) {
            if let Some(lease) = guard.table.remove(id) {
                guard.table.expired += 1;
                self.give_back(&lease, now);
            }
        }
        guard
    }

    fn give_back(&self, lease: &Lease, now: Tick) -> Option<LaneState> {
        let slots = Some(lease.slots).filter(|slots| *slots > 0)?;
        // The slot may have been released through the library; then there is nothing to give back.
        self.limiter.refund(Request::new(&lease.agent, lease.lane).cost(slots).at(now)).ok()
    }

    /// Ends a lease and releases its slot. `None` if there is no such lease, and then
    /// nothing has changed.
    pub(crate) fn release(&self, id: LeaseId, now: Tick) -> Option<Release> {
        let mut guard = self.lock(now);
        let lease = guard.table.remove(id)?;
        Some(Release { lane: lease.lane, state: self.give_back(&lease, now) })
    }

    /// Extends a lease to `ttl` from now, if that is later. `None` if there is no such lease.
    pub(crate) fn extend(&self, id: LeaseId, ttl: Duration, now: Tick) -> Option<LaneId> {
        let Guard { mut table, .. } = self.lock(now);
        let table = &mut *table;
        let lease = table.leases.get_mut(&id)?;
        let expires = lease.expires.max(now.saturating_add(ttl));
        table.due.remove(&(lease.expires, id));
        table.due.insert((expires, id));
        lease.expires = expires;
        Some(lease.lane)
    }

    /// How many have been found to be expired.
    #[cfg(test)]
    pub(crate) fn expired(&self) -> u64 {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).expired
    }

    pub(crate) fn counts(&self) -> Counts {
        let table = self.lock(self.limiter.now()).table;
        Counts { leases: table.leases.len(), max: self.max, expired: table.expired, refused: table.refused }
    }
}

impl Guard<'_> {
    /// Checks that there is room for one more lease for each of these agents; one may
    /// be listed more than once. A refusal is counted.
    pub(crate) fn room_for(&mut self, agents: &[&[u8]]) -> Result<(), NoRoom> {
        let has = |agent: &[u8]| self.table.by_agent.get(agent).copied().unwrap_or(0);
        let wants = |agent: &[u8]| agents.iter().filter(|other| **other == agent).count();
        let most = self.leases.per_agent;
        let room = if self.table.leases.len() + agents.len() > self.leases.max {
            Err(NoRoom::Overall)
        } else if agents.iter().any(|agent| has(agent) + wants(agent) > most) {
            Err(NoRoom::ForAgent { most })
        } else {
            Ok(())
        };
        self.table.refused += u64::from(room.is_err());
        room
    }

    /// Leases slots that were just taken.
    ///
    /// # Errors
    ///
    /// If the system has no random numbers. Then the slots are released.
    pub(crate) fn grant(
        &mut self,
        agent: &[u8],
        lane: LaneId,
        slots: u64,
        ttl: Duration,
    ) -> Result<LeaseId, StartError> {
        let lease = Lease { agent: agent.into(), lane, slots, expires: self.now.saturating_add(ttl) };
        let id = random::bytes().map(LeaseId::from_be_bytes).inspect_err(|_| {
            self.leases.give_back(&lease, self.now);
        })?;
        self.table.due.insert((lease.expires, id));
        *self.table.by_agent.entry(lease.agent.clone()).or_default() += 1;
        self.table.leases.insert(id, lease);
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{ManualClock, Policy};

    const SECOND: Duration = Duration::from_secs(1);

    fn leases(slots: u64, max: usize) -> (Leases, LaneId, ManualClock) {
        let policy = Policy::builder().lane("ws", tollgate::Limit::held(slots)).build().unwrap();
        let clock = ManualClock::new();
        let limiter = Limiter::builder(policy).agents(100).clock(clock.clone()).build().unwrap();
        (Leases::new(Arc::new(limiter), max, Some(2)), LaneId::new(0), clock)
    }

    fn hold(leases: &Leases, agent: &str, lane: LaneId, ttl: Duration) -> Option<LeaseId> {
        let mut guard = leases.lock(leases.limiter.now());
        let is_free = guard.room_for(&[agent.as_bytes()]).is_ok()
            && leases.limiter.hold_until_released(Request::new(agent, lane)).unwrap().is_allowed();
        is_free.then(|| guard.grant(agent.as_bytes(), lane, 1, ttl).unwrap())
    }

    #[test]
    fn a_slot_is_released_when_its_lease_expires_and_not_before() {
        let (leases, lane, clock) = leases(1, 10);
        let first = hold(&leases, "a", lane, 10 * SECOND).unwrap();
        clock.advance(10 * SECOND - Duration::from_nanos(1));
        assert_eq!(hold(&leases, "a", lane, SECOND), None);
        clock.advance(Duration::from_nanos(1));
        let second = hold(&leases, "a", lane, SECOND).unwrap();
        assert!(leases.release(first, clock.now()).is_none(), "it has expired");
        assert_eq!(hold(&leases, "a", lane, SECOND), None, "the second still holds the slot");
        assert_eq!(leases.release(second, clock.now()).unwrap().state.unwrap().remaining(), 1);
        assert_eq!(leases.counts(), Counts { leases: 0, max: 10, expired: 1, refused: 0 });
    }

    #[test]
    fn an_extended_lease_is_never_shortened() {
        let (leases, lane, clock) = leases(1, 10);
        let id = hold(&leases, "a", lane, 10 * SECOND).unwrap();
        assert_eq!(leases.extend(id, SECOND, clock.now()), Some(lane));
        clock.advance(9 * SECOND);
        assert_eq!(leases.extend(id, 5 * SECOND, clock.now()), Some(lane));
        clock.advance(4 * SECOND);
        assert_eq!(leases.counts().leases, 1);
        clock.advance(SECOND);
        assert_eq!(leases.extend(id, SECOND, clock.now()), None);
        assert_eq!(leases.counts(), Counts { leases: 0, max: 10, expired: 1, refused: 0 });
        assert!(leases.table.lock().unwrap().due.is_empty());
    }

    #[test]
    fn the_table_is_bounded_and_expired_leases_make_room() {
        let (leases, lane, clock) = leases(10, 2);
        assert!(hold(&leases, "a", lane, SECOND).is_some());
        assert!(hold(&leases, "b", lane, SECOND).is_some());
        assert_eq!(hold(&leases, "c", lane, SECOND), None);
        clock.advance(SECOND);
        assert!(hold(&leases, "c", lane, SECOND).is_some());
    }

    /// A reset used to release the slot while its holder still used it: two had one.
    #[test]
    fn a_reset_ends_no_lease() {
        let (leases, lane, clock) = leases(1, 10);
        let id = hold(&leases, "a", lane, SECOND).unwrap();
        leases.limiter.reset("a").unwrap();
        leases.limiter.forget("a").unwrap();
        assert_eq!(hold(&leases, "a", lane, SECOND), None, "it is in use");
        assert_eq!(leases.release(id, clock.now()).unwrap().state.unwrap().remaining(), 1);
    }

    /// One agent with a large limit used to be able to lease all slots.
    #[test]
    fn one_agent_has_only_its_share() {
        let (leases, lane, clock) = leases(10, 5);
        let first = hold(&leases, "a", lane, 9 * SECOND).unwrap();
        let _ = hold(&leases, "a", lane, SECOND).unwrap();
        assert_eq!(leases.lock(clock.now()).room_for(&[b"a"]), Err(NoRoom::ForAgent { most: 2 }));
        assert_eq!(leases.lock(clock.now()).room_for(&[b"b", b"b"]), Ok(()));
        assert_eq!(leases.lock(clock.now()).room_for(&[b"b", b"c", b"b", b"b"]), Err(NoRoom::Overall));
        assert_eq!(leases.lock(clock.now()).room_for(&[b"b", b"b", b"b"]), Err(NoRoom::ForAgent { most: 2 }));
        leases.release(first, clock.now()).unwrap();
        assert!(hold(&leases, "a", lane, SECOND).is_some());
        clock.advance(SECOND);
        assert_eq!(leases.counts(), Counts { leases: 0, max: 5, expired: 2, refused: 3 });
        assert!(leases.table.lock().unwrap().by_agent.is_empty());
        // Of the default number, one in 64.
        assert_eq!(Leases::new(Arc::clone(&leases.limiter), LEASES_DEFAULT, None).per_agent, 1_024);
    }
}
