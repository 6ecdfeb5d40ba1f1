//! What a lane's word means: decided by its limits, for the life of a limiter.

use super::calendar::Era;
use crate::clock::{TICK_BITS, Tick};

/// What a lane's word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// The instant at which a token bucket is full again.
    Bucket,
    /// The same of a bucket that takes a cost above its capacity on credit.
    Debt,
    /// The instant at which a permit has rested for this many nanoseconds; a
    /// lane has several.
    Exact { length: u64 },
    /// Counts of the two latest parts of a window.
    Window(Frame),
    /// Counts of the two parts before those: the second word of such a lane.
    Past(Frame),
    /// What was used of a calendar window.
    Budget(Era),
    /// How many slots are held.
    Held,
}

impl Kind {
    /// Whether the word is an instant before which it matters.
    pub(crate) const fn is_instant(self) -> bool {
        matches!(self, Kind::Bucket | Kind::Debt | Kind::Exact { .. })
    }

    /// Whether the word is that of a token bucket.
    pub(crate) const fn is_bucket(self) -> bool {
        matches!(self, Kind::Bucket | Kind::Debt)
    }

    /// What the further words of such a lane mean.
    pub(crate) const fn further(self) -> Self {
        match self {
            Kind::Window(frame) => Kind::Past(frame),
            kind => kind,
        }
    }
}

/// How many parts a window has.
pub(crate) const PARTS: u64 = 3;

/// The length of a lane's window, in nanoseconds, and how its words are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    pub(crate) length: u64,
    /// The length of a part: together they are no shorter than the window.
    pub(crate) part: u64,
    /// Bits of a count.
    pub(crate) bits: u32,
}

impl Frame {
    /// `length` is not 0.
    pub(crate) const fn new(length: u64) -> Self {
        let part = length.div_ceil(PARTS);
        let last_index = Tick::MAX.as_nanos() / part;
        let index_bits = u64::BITS - last_index.leading_zeros();
        Self { length, part, bits: (TICK_BITS - index_bits) / 2 }
    }

    /// All ones says that there is no count.
    pub(crate) const fn ones(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// The largest count.
    pub(crate) const fn count_max(self) -> u64 {
        self.ones() - 1
    }
}

/// Which words of a record are a lane's: one of its own, and those that follow
/// the lanes, for the further permits of an exact window or the past of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cells {
    pub(crate) own: usize,
    /// Where the others begin.
    pub(crate) more: usize,
    /// How many there are in all.
    pub(crate) count: usize,
}

impl Cells {
    /// The place of one of them among the words of all lanes.
    pub(crate) const fn place(self, cell: usize) -> usize {
        if cell == 0 { self.own } else { self.more + cell - 1 }
    }

    /// The places of all of them.
    pub(crate) fn places(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |cell| self.place(cell))
    }
}
