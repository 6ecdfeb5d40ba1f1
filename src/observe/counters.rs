//! Counters that cost a check no contended cache line.
//!
//! Every thread gets a number when it first counts. The first [`OWNED`] of them
//! each have a shard that no other thread writes, so that counting is a load
//! and a store to a line that stays in their cache. Later threads share a few
//! more shards, and add to them atomically. A thread's number is never reused:
//! that would take a thread-local destructor, and such a destructor keeps a
//! shared library from being unloaded while the thread lives.
//!
//! A sum includes every count made before the call; counts made during it may
//! or may not be included. A count wraps after 2^64, centuries from now.

use super::DECISIONS;
use crate::Decision;
use crate::lane::Finding;
use crate::policy::LaneId;
use crate::sync::{Counter, Ordering};
use crossbeam_utils::CachePadded;
use std::cell::Cell;

/// How many threads have their own shard.
const OWNED: usize = if cfg!(loom) { 0 } else { 64 };
/// How many shards all other threads share.
const SHARED: usize = if cfg!(loom) { 1 } else { 16 };

/// Counters in a line. It spans two cache lines, since processors fetch pairs of them.
const LINE: usize = 16;

/// What is counted besides the verdicts of lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Other {
    /// A check could not be answered.
    Error,
    /// A newcomer was refused because there was no record for it.
    Full,
    /// An agent violated a limit.
    Violation,
    /// A violation became sustained abuse.
    Abuse,
}

const OTHERS: usize = 4;

/// Where in a shard something is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(usize);

/// Counters in shards.
pub(crate) struct Counters {
    lines: Box<[CachePadded<[Counter; LINE]>]>,
    /// Lines of a shard.
    shard_lines: usize,
    lanes: usize,
}

/// Where a thread counts.
#[derive(Clone, Copy)]
pub(super) struct Shard {
    pub(super) index: usize,
    /// Whether no other thread counts there.
    pub(super) is_owned: bool,
}

/// How many there are.
pub(super) const fn shards() -> usize {
    OWNED + SHARED
}

impl Counters {
    pub(crate) fn new(lanes: usize) -> Self {
        let shard_lines = (lanes * DECISIONS.len() + OTHERS).div_ceil(LINE);
        let lines = (0..shards() * shard_lines).map(|_| CachePadded::default()).collect();
        Self { lines, shard_lines, lanes }
    }

    /// Where a verdict is counted. The lane is in the policy, since there is a verdict.
    #[inline]
    pub(crate) fn verdict(&self, lane: LaneId, decision: Decision) -> Place {
        Place(lane.index() * DECISIONS.len() + decision as usize)
    }

    /// The same for a finding.
    #[inline]
    pub(crate) fn finding(&self, lane: LaneId, finding: Finding) -> Place {
        Place(lane.index() * DECISIONS.len() + finding.decision_number())
    }

    /// Where something else is counted: after the lanes.
    #[inline]
    pub(crate) fn other(&self, other: Other) -> Place {
        Place(self.lanes * DECISIONS.len() + other as usize)
    }

    /// Counts one.
    #[inline]
    pub(crate) fn add(&self, place: Place) {
        let Shard { index, is_owned } = shard();
        let counter = self.at(index, place);
        if is_owned {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        } else {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The count there, over all shards.
    pub(crate) fn sum(&self, place: Place) -> u64 {
        let shards = (0..shards()).map(|shard| self.at(shard, place).load(Ordering::Relaxed));
        shards.fold(0, u64::wrapping_add)
    }

    #[inline]
    fn at(&self, shard: usize, Place(place): Place) -> &Counter {
        &self.lines[shard * self.shard_lines + place / LINE][place % LINE]
    }
}

/// How many threads have a number.
static THREADS: Counter = Counter::new(0);

thread_local! {
    /// The thread's number, counted from 1; 0 before it has one.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// Where this thread counts.
#[inline]
pub(super) fn shard() -> Shard {
    let number = match THREAD.get() {
        0 => take_number(),
        number => number,
    };
    shard_of(number)
}

// Under loom there is one shard, and no choice to make.
#[cfg_attr(loom, allow(clippy::modulo_one, clippy::absurd_extreme_comparisons))]
#[inline]
fn shard_of(number: u64) -> Shard {
    // Numbers count from 1.
    let index = number as usize - 1;
    if index < OWNED {
        Shard { index, is_owned: true }
    } else {
        Shard { index: OWNED + index % SHARED, is_owned: false }
    }
}

#[cold]
#[inline(never)]
fn take_number() -> u64 {
    let number = THREADS.fetch_add(1, Ordering::Relaxed) + 1;
    THREAD.set(number);
    number
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::thread;

    fn all(counters: &Counters) -> Vec<Place> {
        let lanes = (0..counters.lanes as u32).map(LaneId::new);
        let verdicts = lanes.flat_map(|lane| DECISIONS.map(|decision| counters.verdict(lane, decision)));
        verdicts
            .chain([Other::Error, Other::Full, Other::Violation, Other::Abuse].map(|other| counters.other(other)))
            .collect()
    }

    #[test]
    fn each_thing_is_counted_in_its_own_place() {
        for lanes in [1, 3, 4, 6, 62] {
            let counters = Counters::new(lanes);
            let all = all(&counters);
            for (times, place) in all.iter().enumerate() {
                (0..times).for_each(|_| counters.add(*place));
            }
            for (times, place) in all.iter().enumerate() {
                assert_eq!(counters.sum(*place), times as u64, "{place:?} of {lanes} lanes");
            }
        }
    }

    #[test]
    fn threads_lose_no_count_whether_their_shard_is_owned_or_shared() {
        let counters = Counters::new(1);
        let place = counters.verdict(LaneId::new(0), Decision::Allow);
        // More threads than there are shards, all alive at once.
        let threads = OWNED + 3 * SHARED;
        let start = std::sync::Barrier::new(threads);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    start.wait();
                    (0..1_000).for_each(|_| counters.add(place));
                });
            }
        });
        assert_eq!(counters.sum(place), threads as u64 * 1_000);
    }

    #[test]
    fn no_two_threads_own_one_shard_and_no_two_shards_share_a_line() {
        let shards: Vec<_> = (1..=1_000).map(shard_of).collect();
        let owned: Vec<_> = shards.iter().filter(|shard| shard.is_owned).map(|shard| shard.index).collect();
        assert_eq!(owned.iter().collect::<HashSet<_>>().len(), OWNED);
        assert_eq!(owned.len(), OWNED);
        assert!(shards.iter().all(|shard| shard.is_owned == (shard.index < OWNED)));
        assert!(shards.iter().all(|shard| shard.index < OWNED + SHARED));
        assert_eq!(size_of::<CachePadded<[Counter; LINE]>>() % 128, 0);
    }

    #[test]
    fn a_count_past_the_end_of_the_range_wraps() {
        let counters = Counters::new(1);
        let place = counters.other(Other::Error);
        for shard in [0, OWNED] {
            counters.at(shard, place).store(u64::MAX, Ordering::Relaxed);
        }
        counters.add(place);
        counters.add(place);
        assert_eq!(counters.sum(place), 0);
    }
}
