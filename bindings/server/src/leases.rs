//! Slots that are held over HTTP. A client may vanish without a word, so each
//! has a lease: a slot whose lease has run out is released.
//!
//! An id is a random number of 128 bits that is told to whoever acquired the
//! slot, and to nobody else. The table is bounded, and so is its memory.

use crate::error::StartError;
use crate::random;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tollgate::{LaneId, Limiter, Status, Tick};

/// How many leases there may be at once if nothing is said: some 25 MB if every
/// agent has the longest id.
pub(crate) const LEASES_DEFAULT: usize = 65_536;

/// The id of a lease.
pub(crate) type LeaseId = u128;

/// Every lease there is.
pub(crate) struct Leases {
    limiter: Arc<Limiter>,
    max: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    leases: HashMap<LeaseId, Lease>,
    /// The same, by when they run out.
    due: BTreeSet<(Tick, LeaseId)>,
    run_out: u64,
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
    pub(crate) fn new(limiter: Arc<Limiter>, max: usize) -> Self {
        Self { limiter, max, table: Mutex::default() }
    }

    /// Waits for its turn, and releases what has run out.
    pub(crate) fn turn(&self, now: Tick) -> Turn<'_> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut turn = Turn { leases: self, table, now };
        // Ends: every round takes one away.
        while let Some(&(expires, id)) = turn.table.due.first().filter(|(expires, _)| *expires <= now) {
            turn.table.due.remove(&(expires, id));
            if let Some(lease) = turn.table.leases.remove(&id) {
                turn.table.run_out += 1;
                self.give_back(&lease, now);
            }
        }
        turn
    }

    fn give_back(&self, lease: &Lease, now: Tick) -> Option<Status> {
        let slots = Some(lease.slots).filter(|slots| *slots > 0)?;
        // The agent may have been reset meanwhile: then there is nothing to give back.
        self.limiter.refund_at(&lease.agent, lease.lane, slots, now).ok()
    }

    /// Ends a lease and releases its slot. `None` if there is no such lease,
    /// and then nothing has changed.
    pub(crate) fn release(&self, id: LeaseId, now: Tick) -> Option<Released> {
        let mut turn = self.turn(now);
        let lease = turn.table.leases.remove(&id)?;
        turn.table.due.remove(&(lease.expires, id));
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

    /// Ends all leases of an agent by a change after which it holds no slot:
    /// none of them is to release one that is acquired later.
    pub(crate) fn end_by<T>(&self, agent: &[u8], change: impl FnOnce() -> T) -> T {
        let Turn { mut table, .. } = self.turn(self.limiter.now());
        let Table { leases, due, .. } = &mut *table;
        leases.retain(|id, lease| {
            let is_other = *lease.agent != *agent;
            if !is_other {
                due.remove(&(lease.expires, *id));
            }
            is_other
        });
        change()
    }

    /// How many there are, how many there may be, and how many have run out.
    pub(crate) fn counts(&self) -> (usize, usize, u64) {
        let table = self.turn(self.limiter.now()).table;
        (table.leases.len(), self.max, table.run_out)
    }
}

impl Turn<'_> {
    /// Whether there is room for so many more.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.table.leases.len() + more <= self.leases.max
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
        (Leases::new(Arc::new(limiter), max), LaneId::new(0), clock)
    }

    fn acquire(leases: &Leases, agent: &str, lane: LaneId, ttl: Duration) -> Option<LeaseId> {
        let mut turn = leases.turn(leases.limiter.now());
        let is_free = turn.has_room(1) && leases.limiter.acquire(agent, lane).unwrap().is_allowed();
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
        assert_eq!(leases.counts(), (0, 10, 1));
    }

    #[test]
    fn an_extended_lease_is_never_shortened() {
        let (leases, lane, clock) = leases(1, 10);
        let id = acquire(&leases, "a", lane, 10 * SECOND).unwrap();
        assert_eq!(leases.extend(id, SECOND, clock.now()), Some(lane));
        clock.advance(9 * SECOND);
        assert_eq!(leases.extend(id, 5 * SECOND, clock.now()), Some(lane));
        clock.advance(4 * SECOND);
        assert_eq!(leases.counts(), (1, 10, 0));
        clock.advance(SECOND);
        assert_eq!(leases.extend(id, SECOND, clock.now()), None);
        assert_eq!(leases.counts(), (0, 10, 1));
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

    #[test]
    fn a_lease_from_before_a_reset_releases_nothing_after_it() {
        let (leases, lane, clock) = leases(1, 10);
        let old = acquire(&leases, "a", lane, SECOND).unwrap();
        let other = acquire(&leases, "b", lane, SECOND).unwrap();
        leases.end_by(b"a", || leases.limiter.reset("a")).unwrap();
        let new = acquire(&leases, "a", lane, 9 * SECOND).unwrap();
        assert!(leases.release(old, clock.now()).is_none());
        clock.advance(SECOND);
        assert_eq!(acquire(&leases, "a", lane, SECOND), None, "the new one holds");
        assert!(leases.release(other, clock.now()).is_none(), "it ran out");
        assert!(leases.release(new, clock.now()).is_some());
    }
}
