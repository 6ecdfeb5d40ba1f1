//! A slot of the table, and what it charged to a lane.

use super::Entry;
use crate::clock::Tick;
use crate::machine::mapping::atomics;
use crate::policy::LaneId;
use crate::sync::{AtomicU64, Counter, Ordering, QuietU64};

pub(super) const PHASE_BITS: u32 = 2;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;
pub(super) const FREE: u64 = 0;
/// One caller has it to itself, and its shade does not count it yet.
pub(super) const BUSY: u64 = 1;
pub(super) const OPEN: u64 = 2;
/// One caller has it to itself, and its shade counts it.
pub(super) const COUNTED: u64 = 3;

/// A slot's state: the phase, a generation, and the [short mark](crate::shared::Joined::short_mark) of the process that
/// has it to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) u64);

pub(super) const GENERATION_BITS: u32 = u64::BITS - SLOT_BITS;
const OWNER_SHIFT: u32 = PHASE_BITS + GENERATION_BITS;
const _: () = assert!(OWNER_SHIFT + crate::shared::SHORT_BITS == u64::BITS);

impl State {
    pub(super) const fn new(generation: u64, phase: u64, owner: u64) -> Self {
        Self(owner << OWNER_SHIFT | (generation & ID_GENERATION_MASK) << PHASE_BITS | phase)
    }

    pub(super) const fn phase(self) -> u64 {
        self.0 & PHASE_MASK
    }

    pub(super) const fn generation(self) -> u64 {
        self.0 >> PHASE_BITS & ID_GENERATION_MASK
    }

    pub(super) const fn owner(self) -> u64 {
        self.0 >> OWNER_SHIFT
    }

    /// Whether one caller has the slot to itself.
    pub(super) const fn is_busy(self) -> bool {
        matches!(self.phase(), BUSY | COUNTED)
    }
}

/// Bits of an id that number the slot; the others are its generation.
pub(super) const SLOT_BITS: u32 = 24;
pub(super) const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
pub(super) const ID_GENERATION_MASK: u64 = u64::MAX >> SLOT_BITS;

atomics! {
    /// A slot of the table. The caller that has it reads and writes its fields.
    /// Others read the hash, the lane, the worth and the time, and lower `place`.
    pub(super) struct Slot {
        pub(super) state: AtomicU64,
        /// 0 if no agent has it.
        pub(super) hash: QuietU64,
        /// What it charged to the lane.
        pub(super) piece: Piece,
        pub(super) left: Counter,
        pub(super) expires: Counter,
    }
}

atomics! {
    /// What a reservation charged to one word of a record.
    pub(super) struct Piece {
        /// The lane and, above it, the generation of its word, whether anything was
        /// charged, and the record's position.
        pub(super) charged: QuietU64,
        pub(super) token: Counter,
        pub(super) worth: QuietU64,
        pub(super) place: QuietU64,
    }
}

impl Piece {
    /// Empties it, in new memory.
    pub(super) fn clear(&self) {
        self.charged.store(NO_LANE, Ordering::Relaxed);
    }

    pub(super) fn is_of(&self, lane: LaneId) -> bool {
        self.charged.load(Ordering::Relaxed) & LANE_MASK == u64::from(lane.number())
    }

    /// Marks it before its charge. It ends above all others until that is made.
    pub(super) fn announce(&self, lane: u64, worth: u64) {
        self.charged.store(lane, Ordering::Relaxed);
        self.worth.store(worth, Ordering::Relaxed);
        self.place.store(u64::MAX, Ordering::Relaxed);
    }

    pub(super) fn put(&self, entry: &Entry) {
        let flag = if entry.is_charged { 0 } else { NOT_CHARGED };
        let charged = u64::from(entry.lane.number())
            | entry.generation << GENERATION_SHIFT
            | flag
            | (entry.position as u64 & POSITION_MASK) << POSITION_SHIFT
            | entry.plan.map_or(0, |plan| u64::from(plan.number()) + 1) << PLAN_SHIFT;
        self.charged.store(charged, Ordering::Relaxed);
        // Never raised: another caller may have lowered it meanwhile.
        self.place.fetch_min(entry.place, Ordering::Relaxed);
        self.worth.store(entry.worth, Ordering::Relaxed);
        self.token.store(entry.token, Ordering::Relaxed);
    }
}

const _: () = assert!(cfg!(loom) || size_of::<Slot>() == crate::bounds::RESERVATION_BYTES);

pub(super) const GENERATION_SHIFT: u32 = 8;
pub(super) const LANE_MASK: u64 = (1 << GENERATION_SHIFT) - 1;
/// No lane has this number.
pub(super) const NO_LANE: u64 = LANE_MASK;
pub(super) const NOT_CHARGED: u64 = 1 << 12;
pub(super) const POSITION_SHIFT: u32 = 16;
pub(super) const POSITION_MASK: u64 = (1 << (PLAN_SHIFT - POSITION_SHIFT)) - 1;
/// One more than the number of the plan; 0 for none.
pub(super) const PLAN_SHIFT: u32 = 48;
const _: () = assert!((crate::bounds::LANES_MAX as u64) < NO_LANE);
const _: () = assert!(crate::bounds::AGENTS_MAX < POSITION_MASK && crate::bounds::PLANS_MAX < 1 << (64 - PLAN_SHIFT));

/// The record that was charged.
pub(super) const fn position(charged: u64) -> usize {
    (charged >> POSITION_SHIFT & POSITION_MASK) as usize
}

impl Slot {
    /// Acquire, paired with the Release of the caller that had it to itself.
    pub(super) fn state(&self) -> State {
        State(self.state.load(Ordering::Acquire))
    }

    pub(super) fn expires(&self) -> Tick {
        Tick::from_nanos(self.expires.load(Ordering::Relaxed))
    }
}
