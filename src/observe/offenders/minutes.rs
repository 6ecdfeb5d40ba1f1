//! Violations of all agents, exactly, minute by minute.

use crate::clock::{Tick, nanos_saturating};
use crate::observe::counters::{Shard, shard, shards};
use crate::sync::{Counter, Ordering};
use crossbeam_utils::CachePadded;
use std::time::Duration;

/// Counts per minute of the last hour, sharded like the counters.
pub(super) struct Minutes(Box<[CachePadded<[Counter; MINUTES]>]>);

/// A power of two, more than the minutes of an hour.
const MINUTES: usize = 64;
const HOUR: u64 = 60;
const MINUTE: Duration = Duration::from_secs(60);

/// A minute's counter: the minute's number from bit [`COUNT_BITS`] on, 26 bits
/// for 127 years, and below it the count, up to 2.7 * 10^11.
const COUNT_BITS: u32 = 38;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

impl Minutes {
    pub(super) fn new() -> Self {
        Self((0..shards()).map(|_| CachePadded::new(std::array::from_fn(|_| Counter::new(0)))).collect())
    }

    pub(super) fn add(&self, now: Tick) {
        let minute = now.as_nanos() / nanos_saturating(MINUTE);
        let Shard { index, is_owned } = shard();
        let counter = &self.0[index][(minute % MINUTES as u64) as usize];
        // After 64 minutes the counter belongs to another minute, in which an older `now` counts.
        let next = |seen: u64| match seen >> COUNT_BITS < minute {
            true => minute << COUNT_BITS | 1,
            false if seen & COUNT_MASK == COUNT_MASK => seen,
            false => seen + 1,
        };
        if is_owned {
            counter.store(next(counter.load(Ordering::Relaxed)), Ordering::Relaxed);
        } else {
            // Never refuses, so the loop ends with the first undisturbed exchange.
            let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seen| Some(next(seen)));
        }
    }

    /// The count of the 60 minutes that end with the current one.
    pub(super) fn sum(&self, now: Tick) -> u64 {
        let minute = now.as_nanos() / nanos_saturating(MINUTE);
        let counters = self.0.iter().flat_map(|shard| shard.iter()).map(|counter| counter.load(Ordering::Relaxed));
        counters.filter(|seen| (seen >> COUNT_BITS) + HOUR > minute).map(|seen| seen & COUNT_MASK).sum()
    }
}
