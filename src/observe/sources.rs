//! Answers by lane and source, of lanes that machines share. A limiter without
//! such lanes has no such counters. They are counted in shards, like verdicts.

use super::counters::{Line, counter, shard, shards};
use crate::lane::clustered::Source;
use crate::machine::mapping::Words;
use crate::policy::LaneId;
use crate::sync::Ordering;

/// Answers by lane and source.
pub(crate) struct SourceCounters {
    lines: Words<Line>,
    shard_lines: usize,
}

const SOURCES: usize = Source::ALL.len();

impl SourceCounters {
    /// If there is no memory, the error is how many bytes were needed.
    pub(crate) fn new(lanes: usize) -> Result<Self, u64> {
        let shard_lines = (lanes * SOURCES).div_ceil(size_of::<Line>() / size_of::<u64>());
        let len = shards() * shard_lines;
        let lines = Words::reserve(len).ok_or((len * size_of::<Line>()) as u64)?;
        Ok(Self { lines, shard_lines })
    }

    /// Counts an answer. The lane is in the policy.
    #[inline]
    pub(crate) fn add(&self, lane: LaneId, source: Source) {
        let shard = shard();
        shard.add(counter(&self.lines, self.shard_lines, shard.index, place(lane, source)));
    }

    /// The answers of a lane from a source.
    pub(crate) fn sum(&self, lane: LaneId, source: Source) -> u64 {
        let of_shard = |shard| counter(&self.lines, self.shard_lines, shard, place(lane, source));
        (0..shards()).map(|shard| of_shard(shard).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    pub(crate) fn reserved_bytes(&self) -> u64 {
        size_of_val(&*self.lines) as u64
    }
}

fn place(lane: LaneId, source: Source) -> usize {
    lane.index() * SOURCES + source.index()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_source_of_each_lane_is_counted_in_its_own_place() {
        for lanes in [1, 3, 62] {
            let counters = SourceCounters::new(lanes).unwrap();
            let places =
                || (0..lanes as u32).map(LaneId::new).flat_map(|lane| Source::ALL.map(|source| (lane, source)));
            for (times, (lane, source)) in places().enumerate() {
                (0..times).for_each(|_| counters.add(lane, source));
            }
            for (times, (lane, source)) in places().enumerate() {
                assert_eq!(counters.sum(lane, source), times as u64, "{lane:?} {source} of {lanes} lanes");
            }
        }
    }
}
