//! Slots that are held over HTTP. A client may vanish without a word, so each
//! has a lease: a slot whose lease has run out is released.
//!
//! An id is a random number of 128 bits that is told to whoever acquired the
//! slot, and to nobody else. The table is bounded, and so is its memory; and one
//! agent may have only a part of it.
//!
//! A reset or a forgotten agent ends no lease: whoever holds a slot is still there.

use crate::error::StartError;
use crate::random;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tollgate::{LaneId, Limiter, Request, Status, Tick};

/// How many leases there may be at once if nothing is said: some 25 MB if every
/// agent has the longest id.
pub(crate) const LEASES_DEFAULT: usize = 65_536;

/// The most that can be set.
pub(crate) const LEASES_MAX: u64 = 1_000_000;

/// By default one agent may have this part of all leases, but at least
/// [`PER_AGENT_MIN`].
const SHARE: usize = 64;
const PER_AGENT_MIN: usize = 16;

/// The id of a lease.
pub(crate) type LeaseId = u128;

/// Every lease there is.
pub(crate) struct Leases {
    limiter: Arc<Limiter>,
    max: usize,
    per_agent: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    leases: HashMap<LeaseId, Lease>,
    /// The same, by when they run out.
    due: BTreeSet<(Tick, LeaseId)>,
    /// How many each agent has, of those that have any.
    by_agent: HashMap<Box<[u8]>, usize>,
    run_out: u64,
    refused: u64,
}

impl Table {
    /// Takes a lease out.
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

/// How many leases there are and were.
#[derive(Debug, PartialEq)]
pub(crate) struct Counts {
    pub(crate) leases: usize,
    pub(crate) max: usize,
    pub(crate) run_out: u64,
    pub(crate) refused: u64,
}

/// Whose room is used up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NoRoom {
    /// All agents together have as many as there may be.
    InAll,
    /// One agent has as many as one may.
    ForAgent { most: usize },
}

struct Lease {
    agent: Box<[u8]>,
    lane: LaneId,
    /// None for an agent that was exempt.
    slots: u64,
    expires: Tick,
}

/// What a lease was about, and what is free now that it is over.
pub(crate) struct Released {
    pub(crate) lane: LaneId,
    /// `None` for an agent that was exempt, or that holds no slot any more.
    pub(crate) status: Option<Status>,
}

/// The right to acquire slots and to lease them, while nobody else does.
pub(crate) struct Turn<'a> {
    leases: &'a Leases,
    table: MutexGuard<'a, Table>,
    now: Tick,
}

impl Leases {
    pub(crate) fn new(limiter: Arc<Limiter>, max: usize, per_agent: Option<usize>) -> Self {
        let per_agent = per_agent.unwrap_or((max / SHARE).max(PER_AGENT_MIN));
        Self { limiter, max, per_agent, table: Mutex::default() }
    }

    /// Waits for its turn, and releases what has run out.
    pub(crate) fn turn(&self, now: Tick) -> Turn<'_> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut turn = Turn { leases: self, table, now };
        // Ends: every round takes one away.
        while let Some(&(_, id)) = turn.table.due.first().filter(|(expires, _)| *expires <= now) {
            if let Some(lease) = turn.table.remove(id) {
                turn.table.run_out += 1;
                self.give_back(&lease, now);
            }
        }
        turn
    }

    fn give_back(&self, lease: &Lease, now: Tick) -> Option<Status> {
        let slots = Some(lease.slots).filter(|slots| *slots > 0)?;
        // Somebody may have released it in the library: then there is nothing to give back.
        self.limiter.refund(Request::new(&lease.agent, lease.lane).cost(slots).at(now)).ok()
    }

    /// Ends a lease and releases its slot. `None` if there is no such lease,
    /// and then nothing has changed.
    pub(crate) fn release(&self, id: LeaseId, now: Tick) -> Option<Released> {
        let mut turn = self.turn(now);
        let lease = turn.table.remove(id)?;
        Some(Released { lane: lease.lane, status: self.give_back(&lease, now) })
    }

    /// Gives a lease `ttl` from now, if that is later than it had. `None` if there is no such lease.
    pub(crate) fn extend(&self, id: LeaseId, ttl: Duration, now: Tick) -> Option<LaneId> {
        let Turn { mut table, .. } = self.turn(now);
        let table = &mut *table;
        let lease = table.leases.get_mut(&id)?;
        let expires = lease.expires.max(now.saturating_add(ttl));
        table.due.remove(&(lease.expires, id));
        table.due.insert((expires, id));
        lease.expires = expires;
        Some(lease.lane)
    }

    /// How many have been found to have run out.
    #[cfg(test)]
    pub(crate) fn run_out(&self) -> u64 {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).run_out
    }

    pub(crate) fn counts(&self) -> Counts {
        let table = self.turn(self.limiter.now()).table;
        Counts { leases: table.leases.len(), max: self.max, run_out: table.run_out, refused: table.refused }
    }
}

impl Turn<'_> {
    /// Whether there is room for one more lease for each of these; an agent may
    /// be among them more than once. If not, that is counted.
    pub(crate) fn room_for(&mut self, agents: &[&[u8]]) -> Result<(), NoRoom> {
        let has = |agent: &[u8]| self.table.by_agent.get(agent).copied().unwrap_or(0);
        let wants = |agent: &[u8]| agents.iter().filter(|other| **other == agent).count();
        let most = self.leases.per_agent;
        let room = if self.table.leases.len() + agents.len() > self.leases.max {
            Err(NoRoom::InAll)
        } else if agents.iter().any(|agent| has(agent) + wants(agent) > most) {
            Err(NoRoom::ForAgent { most })
        } else {
            Ok(())
        };
        self.table.refused += u64::from(room.is_err());
        room
    }

    /// Leases slots that were just acquired.
    ///
    /// # Errors
    ///
    /// The system gives no random numbers. Then the slots are released.
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

    fn acquire(leases: &Leases, agent: &str, lane: LaneId, ttl: Duration) -> Option<LeaseId> {
        let mut turn = leases.turn(leases.limiter.now());
        let is_free = turn.room_for(&[agent.as_bytes()]).is_ok()
            && leases.limiter.acquire(Request::new(agent, lane)).unwrap().is_allowed();
        is_free.then(|| turn.grant(agent.as_bytes(), lane, 1, ttl).unwrap())
    }

    #[test]
    fn a_slot_comes_back_when_its_lease_runs_out_and_not_before() {
        let (leases, lane, clock) = leases(1, 10);
        let first = acquire(&leases, "a", lane, 10 * SECOND).unwrap();
        clock.advance(10 * SECOND - Duration::from_nanos(1));
        assert_eq!(acquire(&leases, "a", lane, SECOND), None);
        clock.advance(Duration::from_nanos(1));
        let second = acquire(&leases, "a", lane, SECOND).unwrap();
        assert!(leases.release(first, clock.now()).is_none(), "its time has passed");
        assert_eq!(acquire(&leases, "a", lane, SECOND), None, "and the second still holds");
        assert_eq!(leases.release(second, clock.now()).unwrap().status.unwrap().remaining(), 1);
        assert_eq!(leases.counts(), Counts { leases: 0, max: 10, run_out: 1, refused: 0 });
    }

    #[test]
    fn an_extended_lease_is_never_shortened() {
        let (leases, lane, clock) = leases(1, 10);
        let id = acquire(&leases, "a", lane, 10 * SECOND).unwrap();
        assert_eq!(leases.extend(id, SECOND, clock.now()), Some(lane));
        clock.advance(9 * SECOND);
        assert_eq!(leases.extend(id, 5 * SECOND, clock.now()), Some(lane));
        clock.advance(4 * SECOND);
        assert_eq!(leases.counts().leases, 1);
        clock.advance(SECOND);
        assert_eq!(leases.extend(id, SECOND, clock.now()), None);
        assert_eq!(leases.counts(), Counts { leases: 0, max: 10, run_out: 1, refused: 0 });
        assert!(leases.table.lock().unwrap().due.is_empty());
    }

    #[test]
    fn the_table_is_bounded_and_what_runs_out_makes_room() {
        let (leases, lane, clock) = leases(10, 2);
        assert!(acquire(&leases, "a", lane, SECOND).is_some());
        assert!(acquire(&leases, "b", lane, SECOND).is_some());
        assert_eq!(acquire(&leases, "c", lane, SECOND), None);
        clock.advance(SECOND);
        assert!(acquire(&leases, "c", lane, SECOND).is_some());
    }

    /// A reset released the slot of whoever was holding it: two had one.
    #[test]
    fn a_reset_ends_no_lease() {
        let (leases, lane, clock) = leases(1, 10);
        let id = acquire(&leases, "a", lane, SECOND).unwrap();
        leases.limiter.reset("a").unwrap();
        leases.limiter.forget("a").unwrap();
        assert_eq!(acquire(&leases, "a", lane, SECOND), None, "it is in use");
        assert_eq!(leases.release(id, clock.now()).unwrap().status.unwrap().remaining(), 1);
    }

    /// One agent with a large limit could lease all slots there are.
    #[test]
    fn one_agent_has_only_its_share() {
        let (leases, lane, clock) = leases(10, 5);
        let first = acquire(&leases, "a", lane, 9 * SECOND).unwrap();
        let _ = acquire(&leases, "a", lane, SECOND).unwrap();
        assert_eq!(leases.turn(clock.now()).room_for(&[b"a"]), Err(NoRoom::ForAgent { most: 2 }));
        assert_eq!(leases.turn(clock.now()).room_for(&[b"b", b"b"]), Ok(()));
        assert_eq!(leases.turn(clock.now()).room_for(&[b"b", b"c", b"b", b"b"]), Err(NoRoom::InAll));
        assert_eq!(leases.turn(clock.now()).room_for(&[b"b", b"b", b"b"]), Err(NoRoom::ForAgent { most: 2 }));
        leases.release(first, clock.now()).unwrap();
        assert!(acquire(&leases, "a", lane, SECOND).is_some());
        clock.advance(SECOND);
        assert_eq!(leases.counts(), Counts { leases: 0, max: 5, run_out: 2, refused: 3 });
        assert!(leases.table.lock().unwrap().by_agent.is_empty());
        // Of many, one in 64.
        assert_eq!(Leases::new(Arc::clone(&leases.limiter), LEASES_DEFAULT, None).per_agent, 1_024);
    }
}
