//! The state of an entry, as one word.

use crate::bounds::HOLDS_MAX;
use crate::lane::held::HoldMark;
use crate::shared::SHORT_BITS;

const PHASE_MASK: u64 = 3;
pub(super) const FREE: u64 = 0;
pub(super) const BUSY: u64 = 1;
pub(super) const OPEN: u64 = 2;
pub(super) const DONE: u64 = 4;
const GENERATION_SHIFT: u32 = 3;
const PROCESS_SHIFT: u32 = GENERATION_SHIFT + HoldMark::GENERATION_BITS;
const COUNT_SHIFT: u32 = PROCESS_SHIFT + SHORT_BITS;
const _: () = assert!((crate::bounds::HELD_MAX << COUNT_SHIFT) >> COUNT_SHIFT == crate::bounds::HELD_MAX);
const _: () = assert!(HOLDS_MAX <= 1 << HoldMark::NUMBER_BITS);

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) u64);

impl State {
    pub(super) const fn new(phase: u64, generation: u64, process: u64, count: u64) -> Self {
        let generation = generation & HoldMark::GENERATION_MASK;
        Self(count << COUNT_SHIFT | process << PROCESS_SHIFT | generation << GENERATION_SHIFT | phase)
    }

    pub(super) const fn phase(self) -> u64 {
        self.0 & PHASE_MASK
    }

    pub(super) const fn is_done(self) -> bool {
        self.0 & DONE != 0
    }

    pub(super) const fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT & HoldMark::GENERATION_MASK
    }

    /// Who is at work on it, if it is busy.
    pub(super) const fn process(self) -> u64 {
        self.0 >> PROCESS_SHIFT & ((1 << SHORT_BITS) - 1)
    }

    pub(super) const fn count(self) -> u64 {
        self.0 >> COUNT_SHIFT
    }
}

/// The generation after this one. 0 is left out, so that no mark is that of a fresh word; so is 1, to stay even.
pub(super) const fn next(generation: u64) -> u64 {
    match (generation + 1) & HoldMark::GENERATION_MASK {
        0 => 2,
        next => next,
    }
}
