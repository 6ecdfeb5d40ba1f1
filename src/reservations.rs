//! Open reservations: a table that is allocated once.
//!
//! A slot's state is a generation and what becomes of it:
//!
//! ```text
//!  63                                        2 1     0
//! ┌───────────────────────────────────────────┬───────┐
//! │               generation, 62 bits         │ phase │   free, busy, open
//! └───────────────────────────────────────────┴───────┘
//! ```
//!
//! Whoever exchanges *free* or *open* for *busy* has the slot to itself until
//! it stores another state. Closing a slot moves its generation on, and an id
//! holds the low bits of the generation: so an id works until it is closed, and
//! never again. Generations start at random, so that an id that somebody made
//! up is most likely none.
//!
//! A slot whose time has passed is taken for the next reservation; until then
//! it does no harm. What it had charged stays charged.

use crate::clock::Tick;
use crate::policy::LaneId;
use crate::slab::hash::AgentHash;
use crate::sync::{AtomicU64, Counter, Fault, Ordering, QuietU64, broken, wait};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

const PHASE_BITS: u32 = 2;
const PHASE_MASK: u64 = (1 << PHASE_BITS) - 1;
const FREE: u64 = 0;
const BUSY: u64 = 1;
const OPEN: u64 = 2;

/// Bits of an id that number the slot; the others are of its generation.
const SLOT_BITS: u32 = 24;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;
const ID_GENERATION_MASK: u64 = u64::MAX >> SLOT_BITS;

/// How often somebody who finds a slot busy looks again: it is so for the time
/// of one charge, unless its holder was lost in a fork.
const ROUNDS_MAX: u32 = 100_000;

/// Counts of open reservations by a part of the agent's hash.
const SHADES: usize = if cfg!(loom) { 1 } else { 4_096 };

/// What is reserved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) hash: AgentHash,
    pub(crate) lane: LaneId,
    /// What is charged and not yet accounted for.
    pub(crate) left: u64,
    /// In which window it was charged; see `Kind::receipt`.
    pub(crate) receipt: u64,
    pub(crate) charged_at: Tick,
    pub(crate) expires: Tick,
    /// Not for an agent that is exempt.
    pub(crate) is_charged: bool,
}

/// A slot of the table. Its fields are read and written by whoever has it.
struct Slot {
    state: AtomicU64,
    hash: Counter,
    lane: Counter,
    left: Counter,
    receipt: Counter,
    charged_at: Counter,
    expires: Counter,
}

/// A slot that somebody has to itself.
pub(crate) struct Held<'a> {
    table: &'a Reservations,
    index: usize,
    generation: u64,
}

pub(crate) struct Reservations {
    slots: Box<[Slot]>,
    shades: Box<[QuietU64]>,
    /// Where the next search begins.
    hint: Counter,
}

const NOT_CHARGED: u64 = 1 << 32;

impl Reservations {
    pub(crate) fn new(slots: usize) -> Self {
        let random = RandomState::new();
        let slot = |index: usize| Slot {
            state: AtomicU64::new(random.hash_one(index) << PHASE_BITS | FREE),
            hash: Counter::new(0),
            lane: Counter::new(0),
            left: Counter::new(0),
            receipt: Counter::new(0),
            charged_at: Counter::new(0),
            expires: Counter::new(0),
        };
        Self {
            slots: (0..slots).map(slot).collect(),
            shades: (0..SHADES).map(|_| QuietU64::new(0)).collect(),
            hint: Counter::new(0),
        }
    }

    fn shade(&self, low_bits: u64) -> &QuietU64 {
        &self.shades[low_bits as usize % self.shades.len()]
    }

    /// Whether an agent with these low bits of its hash may have a reservation.
    ///
    /// Relaxed: who must not miss one has read a word that the reservation's
    /// charge released, and it was announced before that.
    pub(crate) fn may_have(&self, low_bits: u64) -> bool {
        self.shade(low_bits).load(Ordering::Relaxed) > 0
    }

    /// Takes a slot that is free, or whose time has passed at `now`. `None` if there is none.
    pub(crate) fn take(&self, now: Tick) -> Option<Held<'_>> {
        let start = self.hint.fetch_add(1, Ordering::Relaxed) as usize;
        (0..self.slots.len()).find_map(|offset| {
            let index = (start % self.slots.len() + offset) % self.slots.len();
            let slot = &self.slots[index];
            let state = slot.state.load(Ordering::Acquire);
            let is_over = || Tick::from_nanos(slot.expires.load(Ordering::Relaxed)) <= now;
            let is_open = state & PHASE_MASK == OPEN;
            if state & PHASE_MASK == BUSY || is_open && !is_over() {
                return None;
            }
            let held = self.exchange(index, state)?;
            if is_open {
                // It may have been extended meanwhile.
                let entry = held.entry();
                if entry.expires > now {
                    held.keep(entry);
                    return None;
                }
                self.shade(entry.hash.low_bits()).fetch_sub(1, Ordering::Relaxed);
                // Its old id must not work for what comes next.
                return Some(Held { generation: held.generation.wrapping_add(1), ..held });
            }
            Some(held)
        })
    }

    /// Takes the slot of an id that is open at `now`.
    ///
    /// The wait ends: whoever has a slot charges a lane and gives it back; and
    /// it is bounded, should that one be lost in a fork.
    pub(crate) fn find(&self, id: u64, now: Tick) -> Option<Held<'_>> {
        let index = (id & SLOT_MASK) as usize;
        let slot = self.slots.get(index)?;
        for round in 0..ROUNDS_MAX {
            let state = slot.state.load(Ordering::Acquire);
            if state >> PHASE_BITS & ID_GENERATION_MASK != id >> SLOT_BITS && !broken(Fault::StaleId) {
                return None;
            }
            match state & PHASE_MASK {
                FREE => return None,
                OPEN => {
                    let Some(held) = self.exchange(index, state) else {
                        continue;
                    };
                    let entry = held.entry();
                    if entry.expires > now {
                        return Some(held);
                    }
                    held.keep(entry);
                    return None;
                }
                _ => wait(round),
            }
        }
        None
    }

    /// Acquire, paired with the Release of whoever had the slot before.
    fn exchange(&self, index: usize, state: u64) -> Option<Held<'_>> {
        let (busy, slot) = (state & !PHASE_MASK | BUSY, &self.slots[index].state);
        let taken = slot.compare_exchange(state, busy, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        taken.then_some(Held { table: self, index, generation: state >> PHASE_BITS })
    }
}

impl Held<'_> {
    fn slot(&self) -> &Slot {
        &self.table.slots[self.index]
    }

    pub(crate) fn id(&self) -> u64 {
        (self.generation & ID_GENERATION_MASK) << SLOT_BITS | self.index as u64
    }

    pub(crate) fn entry(&self) -> Entry {
        let slot = self.slot();
        let read = |word: &Counter| word.load(Ordering::Relaxed);
        let lane = read(&slot.lane);
        Entry {
            hash: AgentHash::from_bits(read(&slot.hash)),
            lane: LaneId::new(lane as u32),
            left: read(&slot.left),
            receipt: read(&slot.receipt),
            charged_at: Tick::from_nanos(read(&slot.charged_at)),
            expires: Tick::from_nanos(read(&slot.expires)),
            is_charged: lane & NOT_CHARGED == 0,
        }
    }

    /// Says that the agent is about to have a reservation, before anything is charged.
    pub(crate) fn announce(&self, hash: AgentHash) {
        self.table.shade(hash.low_bits()).fetch_add(1, Ordering::Relaxed);
    }

    /// Opens the slot, or leaves it open, with this in it.
    pub(crate) fn keep(self, entry: Entry) {
        let slot = self.slot();
        let flag = if entry.is_charged { 0 } else { NOT_CHARGED };
        let words = [
            (&slot.hash, entry.hash.bits()),
            (&slot.lane, u64::from(entry.lane.number()) | flag),
            (&slot.left, entry.left),
            (&slot.receipt, entry.receipt),
            (&slot.charged_at, entry.charged_at.as_nanos()),
            (&slot.expires, entry.expires.as_nanos()),
        ];
        for (word, value) in words {
            word.store(value, Ordering::Relaxed);
        }
        slot.state.store(self.generation << PHASE_BITS | OPEN, Ordering::Release);
    }

    /// Frees the slot: its id works no more.
    pub(crate) fn close(self, hash: AgentHash) {
        self.table.shade(hash.low_bits()).fetch_sub(1, Ordering::Relaxed);
        let next = self.generation.wrapping_add(1);
        self.slot().state.store(next << PHASE_BITS | FREE, Ordering::Release);
    }
}
