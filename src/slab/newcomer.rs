//! What a newcomer brings along to a claim, and what a change of limits brings along to a walk.

use super::hash::AgentHash;
use super::{FoundRecord, Slab};
use crate::clock::{At, Offset, Tick};
use crate::limits::Row;
use crate::policy::{LaneId, OnChange};
use crate::record::tag::TagWord;
use crate::record::{Moment, Move, Record};

/// What happens to a new agent whose neighbourhood has neither a vacant nor
/// an idle record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnFull {
    /// The record with the least debt is given up and the newcomer inherits
    /// its debt. The agent that lost it may return with a fresh bucket; each
    /// case is counted as a lossy eviction. A flood of new ids cannot lock
    /// anybody out, and ends up sharing strict buckets.
    #[default]
    Evict,
    /// The newcomer is refused with [`Error::Full`](crate::Error::Full). Exact for everybody.
    Deny,
}

/// What a newcomer brings along.
#[derive(Clone, Copy)]
pub(crate) struct Newcomer<'a> {
    pub(crate) hash: AgentHash,
    /// The row of limits that applies to it, called under the locks; `None` if it
    /// needs no record.
    pub(crate) row: &'a dyn Fn() -> Option<Row>,
    pub(crate) now: Tick,
    /// Conduct is quiet if there was no violation after this.
    pub(crate) quiet_since: Tick,
    /// The clock's own time: no later instant is remembered for an eviction.
    pub(crate) clock: Tick,
    /// How far the calendar is ahead of the clock.
    pub(crate) offset: Offset,
    pub(crate) on_full: OnFull,
    /// How much a record would lose if it were given up: its largest share of
    /// debt over all lanes. `None` if it may not be.
    pub(crate) ranking: &'a dyn Fn(TagWord, Record<'_>) -> Option<u64>,
    /// Whether the tenant of a record that is about to be given up has a
    /// reservation. Called once its lanes have moved on, whatever the ranking
    /// has seen.
    pub(crate) reserved: &'a dyn Fn(TagWord) -> bool,
    /// Whether the request would pass if the newcomer, with its row, inherited
    /// this record. Called under the locks, which keep the row.
    pub(crate) passes: &'a dyn Fn(Row, Record<'_>) -> bool,
}

impl Newcomer<'_> {
    pub(super) fn moment<'a>(&self, slab: &'a Slab, floor: Tick) -> Moment<'a> {
        Moment {
            kinds: &slab.kinds,
            offset: self.offset,
            now: self.now,
            quiet_since: self.quiet_since,
            clock: self.clock,
            floor,
            confirm: slab.confirm(),
        }
    }
}

/// A change of the limits of agents that have records.
pub(crate) struct RowChange<'a> {
    pub(crate) on_change: OnChange,
    /// Reads the clock.
    pub(crate) clock: &'a dyn Fn() -> At,
    /// The longest debt that a row leaves on a lane.
    pub(crate) debt_max: &'a dyn Fn(Row, LaneId) -> u64,
    /// Called for each record that was changed, with the words of its lanes before
    /// and after, under the lock of its region.
    pub(crate) moved: &'a dyn Fn(FoundRecord<'_>, &[Move]),
}

impl RowChange<'_> {
    pub(super) fn apply(&self, slab: &Slab, found: FoundRecord<'_>, row: Row) {
        let kinds = &slab.kinds;
        let debt_max = |lane| (self.debt_max)(row, lane);
        let moves =
            found.record.change_row(found.tag, row, kinds, self.on_change, self.clock, debt_max, slab.confirm());
        (self.moved)(found, &moves[..kinds.len().min(moves.len())]);
    }
}

/// Why a newcomer gets no record.
pub(crate) enum Refusal {
    /// No record may be given up.
    Full,
    /// The record to give up has so much debt that the request would be denied
    /// anyway, as `passes` found last; so its tenant keeps it.
    Denied,
    /// It needs no record.
    Unwanted,
    /// Another process holds a lock, and does not go on.
    Busy,
}
