//! When a tenant is replaced.

use crate::clock::{At, Offset, Tick};
use crate::lane::{Kind, LaneWord, Passing, Succession};

/// Confirms what a held word is marked with before the word is replaced: `slab/holds.rs`.
pub(crate) trait Confirm {
    fn confirm(&self, word: LaneWord);
}

/// The instants at which a tenant is replaced, and the kinds of its lanes.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'a> {
    pub(crate) kinds: &'a [Kind],
    /// Decides which lanes are idle.
    pub(crate) now: Tick,
    /// Conduct is quiet if there was no violation after this.
    pub(crate) quiet_since: Tick,
    /// The clock's time. A caller's `now` may be ahead of it, but a change of
    /// tenant must not leave a time ahead of it in a lane.
    pub(crate) clock: Tick,
    /// No lane is left with an older time than this.
    pub(crate) floor: Tick,
    /// How far the calendar is ahead of the clock.
    pub(crate) offset: Offset,
    /// For held words of a shared slab.
    pub(crate) confirm: Option<&'a dyn Confirm>,
}

impl Moment<'_> {
    pub(super) fn at(&self, now: Tick) -> At {
        At { now, offset: self.offset }
    }

    /// How a lane passes to the next tenant at this moment.
    pub(super) fn passing(&self, succession: Succession) -> Passing {
        let (now, floor) = (self.at(self.now), self.at(self.floor));
        Passing { succession, now, present: self.now.min(self.clock), floor }
    }
}
