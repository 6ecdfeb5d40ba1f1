//! What a reservation holds.

use crate::clock::Tick;
use crate::policy::{Kind, LaneId, PlanId};
use crate::record::Move;
use crate::slab::hash::AgentHash;

/// What a reservation holds of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) hash: AgentHash,
    pub(crate) lane: LaneId,
    /// The plan that applied if the agent had no assignment.
    pub(crate) plan: Option<PlanId>,
    /// Tokens that are charged and not yet accounted for.
    pub(crate) left: u64,
    /// The price of one token: nanoseconds of a bucket's time, or 1.
    pub(crate) token: u64,
    /// The most that may be given back, in the same unit.
    pub(crate) worth: u64,
    /// The window in which it was charged (see `Kind::receipt`). For a bucket, an
    /// instant no later than any at which the bucket was due to be full since
    /// the charge.
    pub(crate) place: u64,
    /// The record that was charged.
    pub(crate) position: usize,
    /// The generation of the lane's word at the charge.
    pub(crate) generation: u64,
    pub(crate) expires: Tick,
    /// `false` for an exempt agent.
    pub(crate) is_charged: bool,
}

impl Entry {
    /// What the charge of a bucket is worth at `now`.
    pub(crate) fn worth_at(&self, now: Tick) -> u64 {
        left_at(self.place, self.worth, now)
    }

    /// The entry after the words of a record have moved on under other limits:
    /// `moves` holds each lane's word before and after.
    pub(crate) fn moved(self, moved: &MovedRecord<'_>) -> Self {
        let of_lane = moved.moves.get(self.lane.index()).filter(|_| moved.position == self.position);
        let Some((before, after)) = of_lane else {
            return self;
        };
        if self.generation == after.generation() {
            return self; // Charged since.
        }
        if moved.is_reset || self.generation != before.generation() {
            return self.worthless();
        }
        let (worth, place) = if moved.kinds[self.lane.index()].is_bucket() {
            // All that was cut may have been part of this charge.
            let cut = before.payload().saturating_sub(after.payload());
            (self.worth_at(moved.now).saturating_sub(cut), self.place.min(after.payload()))
        } else {
            (self.worth, self.place)
        };
        Self { worth, place, generation: after.generation(), ..self }
    }

    /// The entry after its charge was forgiven.
    pub(crate) const fn worthless(self) -> Self {
        Self { worth: 0, ..self }
    }
}

/// What is left at `now` of a piece that ends there.
pub(super) fn left_at(place: u64, worth: u64, now: Tick) -> u64 {
    worth.min(place.saturating_sub(now.as_nanos()))
}

/// A record whose words have moved on under other limits.
pub(crate) struct MovedRecord<'a> {
    pub(crate) position: usize,
    /// Each lane's word before and after.
    pub(crate) moves: &'a [Move],
    pub(crate) kinds: &'a [Kind],
    /// Whether all lanes were filled.
    pub(crate) is_reset: bool,
    pub(crate) now: Tick,
}
