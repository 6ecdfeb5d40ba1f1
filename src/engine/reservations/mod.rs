//! Open reservations: a table that is allocated once.
//!
//! The state of a slot is a generation and a phase, and who has it:
//!
//! ```text
//!  63           42 41                       2 1     0
//! ┌───────────────┬──────────────────────────┬───────┐
//! │ owner, 22 b.  │   generation, 40 bits    │ phase │   free, busy, open, counted
//! └───────────────┴──────────────────────────┴───────┘
//! ```
//!
//! The caller that exchanges *free* for *busy*, or *open* for *counted*, has the
//! slot to itself until it stores another state. The difference is whether the
//! agent's shade counts the slot. Closing a slot moves its generation on, and an
//! id holds the low bits of the generation: so an id works until its slot is
//! closed, and never again. Generations start at random, so that a made-up id
//! hardly ever matches.
//!
//! When a reservation expires, only its charge stays: it no longer counts against
//! its agent, nor is it a reason to keep a record. The first caller to notice
//! frees its slot.
//!
//! - `slot.rs`: a slot in memory
//! - `taken.rs`: a slot that one caller has to itself
//! - `entry.rs`: what is reserved
//! - `pieces.rs`: how much of a lane is reserved, and how that moves
//!
//! # A caller that dies
//!
//! In [shared](crate::shared) memory the owner is the process that has the slot
//! to itself. If it dies, whoever needs the slot takes it over, as a
//! [lock](crate::shared::lock) is taken over, and closes it. Whether the charge
//! had been made is not known, so it stays: that is stricter. If the process dies
//! in the instruction between counting and saying so, its shade counts one too
//! many, which makes searches longer and keeps records, and no more.
//!
//! # A reservation belongs to the charge that it made
//!
//! A reset or a change of limits may forgive that charge, or a part of it, and
//! what was forgiven must not be given back again. So an entry names the record
//! that it charged, and the generation of the lane's word. Forget, reset and
//! changes of limits all move the generation on, and the step that gives back
//! compares it with that of the very word it exchanges. So nothing is given back
//! after such a change, whenever the two meet, unless the change itself allows
//! it: once it has moved the words on, it walks the open reservations of the
//! agent. Forget closes them. A reset leaves them worth nothing. A change of
//! limits leaves them what is left of their charge, with the new generation.
//!
//! That walk takes only open slots. A slot that is busy, because its charge or
//! its settlement is under way, keeps the old generation and is worth nothing
//! afterwards: that is stricter. Nor can it slip through when the generations
//! start over, since each later change walks too, and leaves an entry worth
//! nothing if its generation is neither the old one nor the new one. (A record
//! also changes hands without a walk. Then all its lanes were idle, and time had
//! paid for the charge.)
//!
//! # What a bucket gives back
//!
//! A reservation remembers its worth as time, since debt is time: so the worth of
//! a charge does not depend on later limits. And it gives back only what others
//! cannot have spent.
//!
//! Think of a bucket's debt as a bar from now until the bucket is full. A
//! reservation is a piece of that bar. It ends at `place`, where the bar ended
//! after its charge, and is `worth` long. Pieces do not overlap. The rest of the
//! bar is *plain*. Time takes the bar away from its start, so what is left of a
//! piece is
//!
//! ```text
//! worth now = min(worth, place - now)
//! ```
//!
//! *Claim*: without any of the open reservations, the bucket would be in debt
//! for no longer than the plain part. So a reservation may be given back at any
//! time, with all that is left of its piece.
//!
//! - A charge lengthens the bar by a plain part; a reservation by a piece.
//! - Time takes plain parts and pieces; without the pieces it would have taken
//!   at least as much of the plain part.
//! - A settlement takes out what is left of its piece. All other pieces then
//!   have to end within the shorter bar, one below the other ([`lower`]): those
//!   that do not are moved down as far as needed.
//! - A refund, or the rollback of several charges, takes out no more than the
//!   plain part: only its reservation gives back what is reserved. Pieces move
//!   as before.
//! - Other limits may cut the bar. Each piece loses as much as was cut.
//! - Moving or shortening a piece lengthens the plain part, which is stricter.
//!   So it does no harm if an attempt fails after pieces were moved.
//!
//! No piece is missed. A slot is marked with its agent, its lane and its worth
//! before its charge is made, and it ends above all others until the charge has
//! a place. A caller that gives back has loaded a word (Acquire), and so finds
//! the slot of every charge that is in it. It moves pieces before it exchanges
//! that word (Release), so a caller that settles on a lowered word finds its own
//! piece moved. A piece that is being charged or settled meanwhile is counted as
//! if it were there, which is stricter.
//!
//! [`lower`]: Reservations::lower
//!
//! # What a window or a budget gives back
//!
//! These count, so there are no places to keep: the count of a window is at
//! least what open reservations have charged to it. A settlement takes out its
//! own, a refund no more than is above their sum ([`reserved_in`]). The loads
//! and marks are those of a bucket's pieces, and so is the argument that no
//! piece is missed.
//!
//! [`reserved_in`]: Reservations::reserved_in
//!
//! # The total
//!
//! If a plan has a [total](crate::PolicyBuilder::total), a reservation charges
//! that too, and so is a piece of two bars. The second piece is beside the slot,
//! in memory that only a limiter with a total has, and all of the above holds for
//! it separately. One state guards both.
//!
//! # Where slots are
//!
//! An agent's slots follow one another from the home of its *shade*, a part of
//! its hash, as far as others leave room. Each shade knows how far its slots ever
//! reached, so a search for an agent's slots reads few.
//!
//! # How many an agent may have
//!
//! A slot is marked with its agent, and the shade counts it, before anything is
//! charged. If the shade had fewer than an agent may have, so had the agent.
//! Otherwise the slots are counted, including those under way: of two callers
//! the later one in the order of the shade's counter has acquired the mark of
//! the earlier. So there are never too many. Callers that cross may both be refused.

mod entry;
mod pieces;
mod slot;
mod taken;

pub(crate) use entry::{Entry, MovedRecord};
pub(crate) use taken::TakenSlot;

use crate::clock::Tick;
use crate::error::Error;
use crate::machine::mapping::{Words, atomics};
use crate::shared::{Memory, Section};
use crate::slab::hash::AgentHash;
use crate::sync::{Counter, Fault, Ordering, QuietU64, broken, wait};
use slot::{BUSY, COUNTED, FREE, OPEN, Piece, SLOT_BITS, SLOT_MASK, Slot, State, position};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Range;

/// How often a busy slot is read again: it is busy for the time of one charge,
/// unless its caller was lost in a fork.
const ROUNDS_MAX: u32 = 100_000;

/// After so many of them, whether the process that has the slot is dead.
const ASK_ROUNDS: u32 = 1_000;

/// How many shades agents have: a part of their hash.
const SHADES: usize = if cfg!(loom) { 1 } else { 4_096 };

atomics! {
    /// The agents that share a part of their hash.
    struct Shade {
        /// Their open reservations.
        open: QuietU64,
        /// How many slots from their home on may be theirs.
        reach: QuietU64,
    }
}

pub(crate) struct Reservations {
    slots: Words<Slot>,
    /// What each slot charged to a total; empty if there is none.
    totals: Words<Piece>,
    shades: Words<Shade>,
    memory: Memory,
    /// How many an agent may have open.
    per_agent: usize,
    expired: Counter,
    refused: Counter,
}

/// The bytes of the table's parts, for this many slots: slots, totals, shades.
#[cfg_attr(
    not(all(feature = "shared", target_os = "linux", not(loom))),
    allow(dead_code, reason = "for a shared file")
)]
pub(crate) const fn bytes(slots: usize, has_total: bool) -> [usize; 3] {
    let totals = if has_total { slots } else { 0 };
    [slots * size_of::<Slot>(), totals * size_of::<Piece>(), SHADES * size_of::<Shade>()]
}

/// How many reservations there are and were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) open: u64,
    pub(crate) expired: u64,
    pub(crate) refused: u64,
}

impl Reservations {
    #[cfg(test)]
    pub(crate) fn new(slots: usize, per_agent: usize, has_total: bool) -> Self {
        Self::within(&Memory::Private, slots, per_agent, has_total).expect("memory for a few")
    }

    /// If there is no memory, the error is how many bytes were needed.
    pub(crate) fn within(memory: &Memory, slots: usize, per_agent: usize, has_total: bool) -> Result<Self, u64> {
        let table = Self {
            slots: memory.words(Section::Reservations, slots)?,
            totals: memory.words(Section::Totals, if has_total { slots } else { 0 })?,
            shades: memory.words(Section::Shades, SHADES)?,
            memory: memory.clone(),
            per_agent,
            expired: Counter::new(0),
            refused: Counter::new(0),
        };
        if memory.is_new() {
            let random = RandomState::new();
            for (index, slot) in table.slots.iter().enumerate() {
                slot.state.store(State::new(random.hash_one(index), FREE, 0).0, Ordering::Relaxed);
                slot.piece.clear();
            }
            table.totals.iter().for_each(Piece::clear);
        }
        Ok(table)
    }

    /// Whether this process has no seat in a shared slab: it would be taken for dead.
    pub(crate) fn is_without_seat(&self) -> bool {
        self.memory.joined().is_some() && self.owner() == 0
    }

    /// The process that has slots to itself.
    fn owner(&self) -> u64 {
        self.memory.joined().map_or(0, |joined| joined.short_mark())
    }

    /// How many may be open at once.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many an agent may have open.
    pub(crate) fn per_agent(&self) -> usize {
        self.per_agent
    }

    fn shade(&self, low_bits: u64) -> &Shade {
        &self.shades[low_bits as usize % self.shades.len()]
    }

    /// Whether an agent with these low bits of its hash may have a reservation.
    ///
    /// Relaxed: a caller that must not miss one has read a word that the
    /// reservation's charge released, and it was announced before that.
    pub(crate) fn may_have(&self, low_bits: u64) -> bool {
        self.shade(low_bits).open.load(Ordering::Relaxed) > 0
    }

    /// The slot at this distance from the home of the agent's shade.
    fn index(&self, hash: AgentHash, offset: usize) -> usize {
        let shades = self.shades.len();
        let home = hash.low_bits() as usize % shades * self.slots.len() / shades;
        (home + offset) % self.slots.len()
    }

    /// The slots that may be the agent's.
    fn likely(&self, hash: AgentHash) -> impl Iterator<Item = usize> + '_ {
        // Relaxed, as for `may_have`. In an empty table the reach is 0; whatever the word is, it ends with the table.
        let reach = self.shade(hash.low_bits()).reach.load(Ordering::Relaxed) as usize;
        let slots = if self.may_have(hash.low_bits()) { reach.min(self.slots.len()) } else { 0 };
        (0..slots).map(move |offset| self.index(hash, offset))
    }

    /// Counts those that are open at `now`, that expired, and that were refused. Walks the table.
    pub(crate) fn counts(&self, now: Tick) -> Counts {
        let is_open = |slot: &&Slot| slot.state().phase() == OPEN && slot.expires() > now;
        Counts {
            open: self.slots.iter().filter(is_open).count() as u64,
            expired: self.expired.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Counts a reservation that was refused for lack of a slot.
    pub(crate) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a slot that is free or has expired at `now`. `None` if there is none.
    pub(crate) fn take(&self, hash: AgentHash, now: Tick) -> Option<TakenSlot<'_>> {
        let (reach, held) = (0..self.slots.len()).find_map(|offset| {
            let index = self.index(hash, offset);
            let slot = &self.slots[index];
            let state = self.unless_dead(index, slot.state());
            let is_open = state.phase() == OPEN;
            if state.is_busy() || is_open && slot.expires() > now {
                return None;
            }
            let held = self.exchange(index, state)?;
            if is_open {
                // Its old id must not work for what comes next.
                return Some((offset as u64 + 1, held.expired_at(now)?));
            }
            Some((offset as u64 + 1, held))
        })?;
        self.shade(hash.low_bits()).reach.fetch_max(reach, Ordering::Relaxed);
        Some(held)
    }

    /// Closes the reservations that have expired at `now`.
    pub(crate) fn close_expired(&self, now: Tick) {
        (0..self.slots.len()).for_each(|index| self.close_if_expired(index, now));
    }

    /// The state of a slot; if a dead process has it to itself, it is closed first.
    fn unless_dead(&self, index: usize, state: State) -> State {
        let Some(joined) = self.memory.joined().filter(|_| state.is_busy()) else { return state };
        if self.owner() == 0 || !joined.is_short_dead(state.owner()) {
            return state;
        }
        let slot = &self.slots[index];
        let taken = State::new(state.generation(), state.phase(), self.owner());
        if slot.state.compare_exchange(state.0, taken.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            joined.count_takeover();
            let hash = AgentHash::from_bits(slot.hash.load(Ordering::Relaxed));
            let held = TakenSlot { table: self, index, generation: state.generation() };
            if state.phase() == COUNTED {
                held.close(hash);
            } else {
                TakenSlot { generation: held.generation.wrapping_add(1), ..held }.free();
            }
        }
        slot.state()
    }

    fn close_if_expired(&self, index: usize, now: Tick) {
        if self.is_without_seat() {
            return;
        }
        let slot = &self.slots[index];
        let state = self.unless_dead(index, slot.state());
        if state.phase() == OPEN && slot.expires() <= now {
            if let Some(held) = self.exchange(index, state).and_then(|held| held.expired_at(now)) {
                held.free();
            }
        }
    }

    /// Closes the agent's reservations that have expired at `now`.
    pub(crate) fn close_expired_of(&self, hash: AgentHash, now: Tick) {
        self.likely(hash).for_each(|index| self.close_if_expired(index, now));
    }

    /// Replaces every open reservation of the agent by what `revise` returns;
    /// `None` closes it.
    pub(crate) fn revise(&self, hash: AgentHash, revise: impl Fn(Entry) -> Option<Entry>) {
        self.likely(hash).for_each(|index| self.revise_slot(index, Some(hash), &revise));
    }

    /// The same with one slot, of this agent or of any.
    pub(crate) fn revise_slot(&self, index: usize, hash: Option<AgentHash>, revise: &impl Fn(Entry) -> Option<Entry>) {
        let slot = &self.slots[index];
        let state = slot.state();
        let is_other = hash.is_some_and(|hash| slot.hash.load(Ordering::Relaxed) != hash.bits());
        if state.phase() != OPEN || is_other || self.is_without_seat() {
            return;
        }
        // If another caller is faster, the slot is busy: see the module.
        let Some(held) = self.exchange(index, state) else {
            return;
        };
        let (entry, total) = (held.entry(), held.total());
        if let Some(total) = total.and_then(revise) {
            held.keep_total(Some(total));
        }
        match revise(entry) {
            Some(entry) => held.keep(entry),
            None => held.close(entry.hash),
        }
    }

    /// The slots that are open on records in this range, by position. A hint:
    /// others may be opened meanwhile.
    pub(crate) fn open_in(&self, positions: &Range<usize>) -> Vec<(usize, usize)> {
        let mut open: Vec<_> = self
            .slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| {
                let state = slot.state();
                let position = position(slot.piece.charged.load(Ordering::Relaxed));
                (state.phase() == OPEN && positions.contains(&position)).then_some((position, index))
            })
            .collect();
        open.sort_unstable();
        open
    }

    /// Takes the slot of an id that is open at `now`.
    ///
    /// The wait ends: the caller that has the slot charges a lane and stores
    /// another phase. It is also bounded, in case that caller was lost in a fork,
    /// or is stopped in another process.
    pub(crate) fn find(&self, id: u64, now: Tick) -> Result<TakenSlot<'_>, Error> {
        let index = (id & SLOT_MASK) as usize;
        let slot = self.slots.get(index).ok_or(Error::UnknownReservation)?;
        if self.is_without_seat() {
            return Err(super::in_the_way(&self.memory));
        }
        for round in 0..ROUNDS_MAX {
            let mut state = slot.state();
            if round % ASK_ROUNDS == ASK_ROUNDS - 1 {
                state = self.unless_dead(index, state);
            }
            if state.generation() != id >> SLOT_BITS && !broken(Fault::StaleId) {
                return Err(Error::UnknownReservation);
            }
            match state.phase() {
                FREE => return Err(Error::UnknownReservation),
                OPEN => {
                    let Some(held) = self.exchange(index, state) else {
                        continue;
                    };
                    let entry = held.entry();
                    if entry.expires > now {
                        return Ok(held);
                    }
                    held.keep(entry);
                    return Err(Error::UnknownReservation);
                }
                _ => wait(round),
            }
        }
        Err(if self.memory.joined().is_some() { Error::Busy } else { Error::UnknownReservation })
    }

    /// Acquire, paired with the Release of the caller that had the slot before.
    fn exchange(&self, index: usize, state: State) -> Option<TakenSlot<'_>> {
        let phase = if state.phase() == OPEN { COUNTED } else { BUSY };
        let (busy, slot) = (State::new(state.generation(), phase, self.owner()), &self.slots[index].state);
        let taken = slot.compare_exchange(state.0, busy.0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        taken.then_some(TakenSlot { table: self, index, generation: state.generation() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
