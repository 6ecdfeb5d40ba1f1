//! How much of a lane is reserved, and how pieces move when its word is lowered.

use super::entry::left_at;
use super::slot::{NOT_CHARGED, Piece};
use super::{Reservations, TakenSlot};
use crate::clock::Tick;
use crate::lane::LaneWord;
use crate::policy::LaneId;
use crate::slab::hash::AgentHash;
use crate::sync::{Fault, Ordering, broken};

impl Reservations {
    /// The agent's reservations of a lane, except one: where each ends, and its
    /// worth. Relaxed: if a charge is in a word that the caller has loaded, its
    /// reservation was stored before that.
    fn pieces(&self, hash: AgentHash, lane: LaneId, but: Option<usize>) -> impl Iterator<Item = (&Piece, u64, u64)> {
        self.likely(hash).filter(move |index| but != Some(*index)).filter_map(move |index| {
            let is_theirs = self.slots[index].hash.load(Ordering::Relaxed) == hash.bits();
            let piece = if is_theirs { self.piece(index, lane) } else { None };
            piece.map(|piece| (piece, piece.place.load(Ordering::Relaxed), piece.worth.load(Ordering::Relaxed)))
        })
    }

    /// What a slot charged to this lane.
    pub(super) fn piece(&self, index: usize, lane: LaneId) -> Option<&Piece> {
        let pieces = [Some(&self.slots[index].piece), self.totals.get(index)];
        pieces.into_iter().flatten().find(|piece| piece.is_of(lane))
    }

    /// How much of a bucket's debt at `now` is reserved.
    pub(crate) fn reserved(&self, hash: AgentHash, lane: LaneId, now: Tick) -> u64 {
        let lengths = self.pieces(hash, lane, None).map(|(_, place, worth)| left_at(place, worth, now));
        lengths.fold(0, u64::saturating_add)
    }

    /// How much of what was charged to a window, or to a calendar window, is
    /// reserved. What is being charged counts in every window.
    pub(crate) fn reserved_in(&self, hash: AgentHash, lane: LaneId, window: u64) -> u64 {
        if broken(Fault::ReservedRefunded) {
            return 0;
        }
        let of_window = self.pieces(hash, lane, None).filter(|(slot, place, _)| {
            let is_charged = slot.charged.load(Ordering::Relaxed) & NOT_CHARGED == 0;
            is_charged && (*place == window || *place == u64::MAX)
        });
        of_window.map(|(_, _, worth)| worth).fold(0, u64::saturating_add)
    }

    /// Moves all pieces except that of `but` down to fit a bucket that is about
    /// to be full at `next`, sooner than before. Call it before the exchange.
    ///
    /// Slots are in no particular order, and a piece that was moved may no longer
    /// be above one that was not moved yet. So rounds repeat until all fit. Each
    /// round puts the highest piece that did not fit where it stays, so there is
    /// at most a round for each, and one more; other callers only move pieces
    /// down too. A round takes the square of how many the agent has open on this
    /// lane.
    pub(crate) fn lower(&self, hash: AgentHash, lane: LaneId, next: LaneWord, but: Option<&TakenSlot<'_>>) {
        let but = but.map(|held| held.index);
        while !broken(Fault::NotLowered) && self.lower_once(hash, lane, next, but) {}
    }

    /// One round of it. Returns whether a piece was moved.
    fn lower_once(&self, hash: AgentHash, lane: LaneId, next: LaneWord, but: Option<usize>) -> bool {
        let mut is_moved = false;
        for (piece, place, _) in self.pieces(hash, lane, but) {
            // If two end at the same place, one counts as above the other: that is stricter.
            let is_above = |(other, end, _): &(&Piece, u64, u64)| {
                (*end, std::ptr::from_ref::<Piece>(other)) > (place, std::ptr::from_ref(piece))
            };
            let above = self.pieces(hash, lane, but).filter(is_above).map(|(_, _, worth)| worth);
            let end = next.payload().saturating_sub(above.fold(0, u64::saturating_add));
            if end < place {
                piece.place.fetch_min(end, Ordering::Relaxed);
                is_moved = true;
            }
        }
        is_moved
    }
}
