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
use crate::machine::mapping::Words;
use crate::policy::LaneId;
use crate::shared::Memory;
use crate::sync::{Counter, Ordering};
use std::cell::Cell;

/// How many threads have their own shard.
const OWNED: usize = if cfg!(loom) { 0 } else { 64 };
/// How many shards all other threads share.
const SHARED: usize = if cfg!(loom) { 1 } else { 16 };

/// Counters in a line. It spans two cache lines, since processors fetch pairs of them.
const LINE: usize = 16;

/// The counters of a line.
pub(super) type Line = [Counter; LINE];

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
    /// This process's.
    lines: Words<Line>,
    memory: Memory,
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

impl Shard {
    /// Counts one in this shard.
    #[inline]
    pub(super) fn add(self, counter: &Counter) {
        if self.is_owned {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        } else {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How many there are.
pub(super) const fn shards() -> usize {
    OWNED + SHARED
}

impl Counters {
    /// If there is no memory, the error is how many bytes were needed.
    pub(crate) fn within(memory: &Memory, lanes: usize) -> Result<Self, u64> {
        let len = bytes(lanes) / size_of::<Line>();
        let lines = match memory {
            Memory::Private => Words::reserve(len),
            Memory::Shared(joined) => joined.counters(len),
        };
        let lines = lines.ok_or(bytes(lanes) as u64)?;
        Ok(Self { lines, memory: memory.clone(), shard_lines: shard_lines(lanes), lanes })
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
        let shard = shard();
        shard.add(self.at(shard.index, place));
    }

    /// The count there, over all shards, of all processes there ever were.
    pub(crate) fn sum(&self, place: Place) -> u64 {
        let of = |lines: &[Line]| {
            let shards = (0..shards()).map(|shard| counter(lines, self.shard_lines, shard, place.0));
            shards.map(|counter| counter.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
        };
        match &self.memory {
            Memory::Private => of(&self.lines),
            Memory::Shared(joined) => {
                joined.all_counters(self.lines.len()).map(|lines| of(&lines)).fold(0, u64::wrapping_add)
            }
        }
    }

    #[inline]
    fn at(&self, shard: usize, place: Place) -> &Counter {
        counter(&self.lines, self.shard_lines, shard, place.0)
    }
}

#[inline]
pub(super) fn counter(lines: &[Line], shard_lines: usize, shard: usize, place: usize) -> &Counter {
    &lines[shard * shard_lines + place / LINE][place % LINE]
}

/// Lines of a shard.
const fn shard_lines(lanes: usize) -> usize {
    (lanes * DECISIONS.len() + OTHERS).div_ceil(LINE)
}

/// The bytes of one process's counters.
pub(crate) const fn bytes(lanes: usize) -> usize {
    shards() * shard_lines(lanes) * size_of::<Line>()
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
            let counters = Counters::within(&Memory::Private, lanes).unwrap();
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
        let counters = Counters::within(&Memory::Private, 1).unwrap();
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
        assert_eq!(size_of::<Line>(), 128, "and they begin on a page");
    }

    #[test]
    fn a_count_past_the_end_of_the_range_wraps() {
        let counters = Counters::within(&Memory::Private, 1).unwrap();
        let place = counters.other(Other::Error);
        for shard in [0, OWNED] {
            counters.at(shard, place).store(u64::MAX, Ordering::Relaxed);
        }
        counters.add(place);
        counters.add(place);
        assert_eq!(counters.sum(place), 0);
    }
}
