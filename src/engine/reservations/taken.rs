//! A slot that one caller has to itself, from *busy* until it stores another phase.

use super::slot::{
    BUSY, COUNTED, FREE, GENERATION_SHIFT, ID_GENERATION_MASK, LANE_MASK, NO_LANE, NOT_CHARGED, OPEN, PLAN_SHIFT,
    Piece, SLOT_BITS, Slot, State, position,
};
use super::{Entry, Reservations};
use crate::clock::Tick;
use crate::policy::{LaneId, PlanId};
use crate::slab::hash::AgentHash;
use crate::sync::{Counter, Ordering};

/// A slot that one caller has to itself.
pub(crate) struct TakenSlot<'a> {
    pub(super) table: &'a Reservations,
    pub(super) index: usize,
    pub(super) generation: u64,
}

impl<'a> TakenSlot<'a> {
    fn slot(&self) -> &'a Slot {
        &self.table.slots[self.index]
    }

    /// Its place in the table.
    #[cfg(feature = "cluster")]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn id(&self) -> u64 {
        (self.generation & ID_GENERATION_MASK) << SLOT_BITS | self.index as u64
    }

    pub(crate) fn entry(&self) -> Entry {
        self.entry_of(&self.slot().piece)
    }

    /// The same for the total; `None` if nothing of a total is reserved.
    pub(crate) fn total(&self) -> Option<Entry> {
        let piece = self.table.totals.get(self.index)?;
        let is_any = piece.charged.load(Ordering::Relaxed) & LANE_MASK != NO_LANE;
        is_any.then(|| self.entry_of(piece))
    }

    fn entry_of(&self, piece: &Piece) -> Entry {
        let slot = self.slot();
        let read = |word: &Counter| word.load(Ordering::Relaxed);
        let charged = piece.charged.load(Ordering::Relaxed);
        Entry {
            hash: AgentHash::from_bits(slot.hash.load(Ordering::Relaxed)),
            lane: LaneId::new((charged & LANE_MASK) as u32),
            // Lossless: there are no more plans than that.
            plan: (charged >> PLAN_SHIFT).checked_sub(1).map(|number| PlanId::new(number as u16)),
            left: read(&slot.left),
            token: read(&piece.token),
            worth: piece.worth.load(Ordering::Relaxed),
            place: piece.place.load(Ordering::Relaxed),
            position: position(charged),
            generation: charged >> GENERATION_SHIFT & 0xf,
            expires: slot.expires(),
            is_charged: charged & NOT_CHARGED == 0,
        }
    }

    /// The present `place` in the lane or the total: others may have lowered it
    /// since the entry was read.
    pub(crate) fn place(&self, lane: LaneId) -> u64 {
        self.table.piece(self.index, lane).map_or(0, |piece| piece.place.load(Ordering::Relaxed))
    }

    /// Marks what the reservation is about to take from a total, if anything,
    /// before the agent is [announced](Self::announce).
    pub(crate) fn announce_total(&self, total: Option<(LaneId, u64)>) {
        if let Some(piece) = self.table.totals.get(self.index) {
            let (lane, worth) = total.map_or((NO_LANE, 0), |(lane, worth)| (lane.number().into(), worth));
            piece.announce(lane, worth);
        }
    }

    /// Marks the slot as a reservation of this agent, lane and worth, before
    /// anything is charged. `false` if the agent has too many; then the slot has
    /// to be closed.
    #[must_use]
    pub(crate) fn announce(&self, hash: AgentHash, lane: LaneId, worth: u64, now: Tick) -> bool {
        let slot = self.slot();
        slot.hash.store(hash.bits(), Ordering::Relaxed);
        slot.piece.announce(lane.number().into(), worth);
        let before = self.table.shade(hash.low_bits()).open.fetch_add(1, Ordering::AcqRel) as usize;
        if self.table.memory.joined().is_some() {
            // If this process dies from now on, the shade is told.
            slot.state.store(State::new(self.generation, COUNTED, self.table.owner()).0, Ordering::Release);
        }
        let most = self.table.per_agent;
        before < most || self.others_of(hash, now) < most
    }

    /// How many other slots the agent has, open or under way. Closes those that
    /// have expired at `now`.
    fn others_of(&self, hash: AgentHash, now: Tick) -> usize {
        self.table.close_expired_of(hash, now);
        let is_theirs = |index: &usize| {
            let slot = &self.table.slots[*index];
            let state = slot.state();
            *index != self.index && state.phase() != FREE && slot.hash.load(Ordering::Relaxed) == hash.bits()
        };
        self.table.likely(hash).filter(is_theirs).count()
    }

    /// The slot, ready for another reservation, if this one has expired.
    /// Otherwise it was extended meanwhile, and stays.
    pub(super) fn expired_at(self, now: Tick) -> Option<Self> {
        let entry = self.entry();
        if entry.expires > now {
            self.keep(entry);
            return None;
        }
        self.table.expired.fetch_add(1, Ordering::Relaxed);
        self.uncount(entry.hash);
        Some(TakenSlot { generation: self.generation.wrapping_add(1), ..self })
    }

    /// Stores what was reserved of a total, before [`keep`](Self::keep) opens the slot.
    pub(crate) fn keep_total(&self, total: Option<Entry>) {
        match (self.table.totals.get(self.index), total) {
            (Some(piece), Some(entry)) => piece.put(&entry),
            (Some(piece), None) => piece.charged.store(NO_LANE, Ordering::Relaxed),
            (None, _) => {}
        }
    }

    /// Stores the entry, and opens the slot or leaves it open.
    pub(crate) fn keep(self, entry: Entry) {
        let slot = self.slot();
        slot.hash.store(entry.hash.bits(), Ordering::Relaxed);
        slot.piece.put(&entry);
        slot.left.store(entry.left, Ordering::Relaxed);
        slot.expires.store(entry.expires.as_nanos(), Ordering::Relaxed);
        slot.state.store(State::new(self.generation, OPEN, 0).0, Ordering::Release);
    }

    /// The shade no longer counts the slot. If this process dies in between, it counts one too many, and never one
    /// too few: then a reservation would be overlooked.
    fn uncount(&self, hash: AgentHash) {
        if self.table.memory.joined().is_some() {
            let busy = State::new(self.generation, BUSY, self.table.owner());
            self.slot().state.store(busy.0, Ordering::Release);
        }
        self.table.shade(hash.low_bits()).open.fetch_sub(1, Ordering::Release);
    }

    /// Frees the slot: its id no longer works.
    pub(crate) fn close(self, hash: AgentHash) {
        self.uncount(hash);
        let generation = self.generation.wrapping_add(1);
        TakenSlot { generation, ..self }.free();
    }

    /// Frees a slot that no shade counts any more.
    pub(super) fn free(self) {
        self.slot().hash.store(0, Ordering::Relaxed);
        self.slot().state.store(State::new(self.generation, FREE, 0).0, Ordering::Release);
    }
}

#[cfg(feature = "shared")]
impl Reservations {
    /// The slots that a process had to itself that is dead by now.
    pub(crate) fn faults(&self) -> Vec<String> {
        let Some(joined) = self.memory.joined() else { return Vec::new() };
        let states = self.slots.iter().map(Slot::state).enumerate();
        let left = states.filter(|(_, state)| state.is_busy() && joined.is_short_dead(state.owner()));
        left.map(|(index, _)| format!("a process died with slot {index} of the reservations")).collect()
    }
}
