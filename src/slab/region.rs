//! A region: a run of groups whose tenants change under one lock.
//!
//! Charges never take it. A claim takes the lock of its home's region and, if
//! its neighbourhood reaches into the next one, that too, in ascending order:
//! no two threads can wait for each other.
//!
//! A region also remembers the latest instant at which it evicted an idle
//! record. See "Stale instants" in [`tenancy`](super::tenancy).

use crate::clock::Tick;
use crate::shared::Memory;
use crate::shared::lock::{self, Busy, Taken};
use crate::sync::{self, AtomicU64, Fault, Ordering, broken, peek};
use std::time::Duration;

/// Words of a region: one cache line, so that two regions never share one.
pub(crate) const REGION_WORDS: usize = 8;

const LOCK: usize = 0;
const EVICTED_AT: usize = 1;
const OCCUPIED: usize = 2;
const CLAIMS: usize = 3;
const IDLE_EVICTIONS: usize = 4;
const LOSSY_EVICTIONS: usize = 5;

/// What a region has seen; all but `occupied` only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionCounts {
    pub(crate) occupied: u64,
    pub(crate) claims: u64,
    pub(crate) idle_evictions: u64,
    pub(crate) lossy_evictions: u64,
}

/// A view of one region's words.
#[derive(Clone, Copy)]
pub(crate) struct Region<'a>(&'a [AtomicU64]);

impl<'a> Region<'a> {
    pub(crate) fn new(words: &'a [AtomicU64]) -> Self {
        debug_assert_eq!(words.len(), REGION_WORDS);
        Self(words)
    }

    /// No idle record of this region has been evicted after this instant.
    pub(crate) fn evicted_at(&self) -> Tick {
        Tick::from_nanos(peek(&self.0[EVICTED_AT]))
    }

    /// Waits for the region's lock; in shared memory for as long as is left, about.
    pub(crate) fn lock(self, memory: &Memory, left: &mut Duration) -> Result<RegionGuard<'a>, Busy> {
        let Memory::Shared(joined) = memory else { return Ok(self.lock_private()) };
        let taken = lock::take(&self.0[LOCK], &**joined, left);
        let left_behind = match taken {
            Ok(Taken::Free) => false,
            Ok(Taken::FromDead) => {
                joined.count_takeover();
                true
            }
            Err(busy) => {
                joined.count_busy();
                return Err(busy);
            }
        };
        Ok(RegionGuard { region: self, left_behind })
    }

    /// Waits for the lock of a region in private memory.
    ///
    /// The wait ends: a holder takes no lock but the next region's, waits for
    /// nothing else, and cannot panic or return without releasing. A holder
    /// that a fork left behind in the parent does not exist for the child's
    /// copy of the slab. The mark of its process shows that; nothing else lets
    /// another thread take over the lock.
    fn lock_private(self) -> RegionGuard<'a> {
        let me = process();
        let lock = &self.0[LOCK];
        let mut round = 0_u32;
        let mut left_behind = false;
        // Each round takes the lock or finds it held: see above.
        while !broken(Fault::NoLock) {
            let seen = peek(lock);
            // Acquire, paired with the last holder's Release. A holder in
            // another process was left behind by a fork.
            if seen != me && lock.compare_exchange(seen, me, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                left_behind = seen != 0;
                break;
            }
            sync::wait(round);
            round = round.saturating_add(1);
        }
        RegionGuard { region: self, left_behind }
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_locked(self) -> bool {
        peek(&self.0[LOCK]) != 0
    }

    /// As if another process had held the lock when this one was forked from it.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn leave_behind(self) {
        self.0[LOCK].store(process() + 1, Ordering::Relaxed);
    }

    /// As if this process had died with the lock.
    #[cfg(all(test, loom))]
    pub(crate) fn die(self, holder: u64) {
        self.0[LOCK].store(holder, Ordering::Relaxed);
    }

    pub(crate) fn counts(self) -> RegionCounts {
        let read = |word: usize| peek(&self.0[word]);
        RegionCounts {
            occupied: read(OCCUPIED),
            claims: read(CLAIMS),
            idle_evictions: read(IDLE_EVICTIONS),
            lossy_evictions: read(LOSSY_EVICTIONS),
        }
    }
}

/// This process. Never 0, which is an open lock; no ancestor has the same mark.
fn process() -> u64 {
    if cfg!(loom) { 1 } else { crate::machine::process::mark() }
}

/// The right to change tenants in a region, until it is dropped.
pub(crate) struct RegionGuard<'a> {
    region: Region<'a>,
    left_behind: bool,
}

impl RegionGuard<'_> {
    /// Whether the last holder is gone in the middle of a change: left behind by a fork, or dead.
    pub(crate) fn was_left_behind(&self) -> bool {
        self.left_behind
    }

    /// Sets how many records are occupied, after a holder was lost halfway through a change.
    pub(crate) fn recount(&self, occupied: u64) {
        self.region.0[OCCUPIED].store(occupied, Ordering::Relaxed);
    }

    /// Records that an idle record is about to be evicted at `now`. Called
    /// before the eviction, so that one that a fork or a death interrupts is
    /// remembered too.
    pub(crate) fn raise_evicted_at(&self, now: Tick) {
        let evicted_at = self.evicted_at().max(now);
        self.region.0[EVICTED_AT].store(evicted_at.as_nanos(), Ordering::Relaxed);
    }

    /// See [`Region::evicted_at`]. Under the lock it does not change.
    pub(crate) fn evicted_at(&self) -> Tick {
        self.region.evicted_at()
    }

    /// A vacant record was claimed.
    pub(crate) fn count_claim(&self) {
        self.add(CLAIMS, 1);
        self.add(OCCUPIED, 1);
    }

    /// An idle record was evicted, for a newcomer or by a sweep.
    pub(crate) fn count_idle_eviction(&self, newcomer: bool) {
        self.add(IDLE_EVICTIONS, 1);
        self.count_successor(newcomer);
    }

    /// A record in debt was given up for a newcomer.
    pub(crate) fn count_lossy_eviction(&self) {
        self.add(LOSSY_EVICTIONS, 1);
        self.count_successor(true);
    }

    /// A record was vacated on purpose.
    pub(crate) fn count_forgotten(&self) {
        self.count_successor(false);
    }

    fn count_successor(&self, newcomer: bool) {
        if newcomer {
            self.add(CLAIMS, 1);
        } else {
            self.add(OCCUPIED, u64::MAX);
        }
    }

    /// Adds modulo 2^64, so that `u64::MAX` subtracts one. Load and store are
    /// enough: only the holder of the lock writes.
    fn add(&self, word: usize, amount: u64) {
        let word = &self.region.0[word];
        word.store(peek(word).wrapping_add(amount), Ordering::Relaxed);
    }
}

impl Drop for RegionGuard<'_> {
    fn drop(&mut self) {
        // Release, paired with the Acquire of the next holder.
        self.region.0[LOCK].store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words() -> [AtomicU64; REGION_WORDS] {
        std::array::from_fn(|_| AtomicU64::new(0))
    }

    /// The second is an ancestor whose process id this process was given.
    #[test]
    fn a_lock_left_behind_by_another_process_is_taken_over() {
        for other in [process() + 1, process().wrapping_sub(1 << 32)] {
            let words = words();
            words[LOCK].store(other, Ordering::Relaxed);
            let guard = Region::new(&words).lock_private();
            assert!(guard.was_left_behind());
            drop(guard);
            assert_eq!(words[LOCK].load(Ordering::Relaxed), 0);
            assert!(!Region::new(&words).lock_private().was_left_behind());
        }
    }

    #[test]
    fn the_last_eviction_never_moves_back() {
        let words = words();
        let guard = Region::new(&words).lock_private();
        guard.count_claim();
        guard.count_claim();
        guard.raise_evicted_at(Tick::from_nanos(9));
        guard.count_idle_eviction(true);
        guard.raise_evicted_at(Tick::from_nanos(5));
        guard.count_idle_eviction(false);
        guard.count_lossy_eviction();
        assert_eq!(guard.evicted_at(), Tick::from_nanos(9));
        drop(guard);
        let counts = RegionCounts { occupied: 1, claims: 4, idle_evictions: 2, lossy_evictions: 1 };
        assert_eq!(Region::new(&words).counts(), counts);
    }
}
