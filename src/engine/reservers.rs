//! Whose reservations of shared budgets are open: a reservation keeps no id, and the store knows the agent by a key.
//!
//! There is a place for each slot of the [reservations](super::reservations). Whoever writes or reads it has the slot
//! to itself: the slot's state orders the two.

use super::{Ask, Engine};
use crate::policy::{LaneId, PlanId};
use crate::slab::hash::AgentHash;
use crate::sync::{Counter, Ordering};

/// The key of the agent that has a slot, in two halves.
pub(super) struct Reservers(Vec<[Counter; 2]>);

impl Reservers {
    /// For this many slots. If there is no memory, the error is how many bytes were needed.
    pub(super) fn new(slots: usize) -> Result<Self, u64> {
        let mut places = Vec::new();
        places.try_reserve_exact(slots).map_err(|_| (slots * size_of::<[Counter; 2]>()) as u64)?;
        places.resize_with(slots, || [Counter::new(0), Counter::new(0)]);
        Ok(Self(places))
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<[Counter; 2]>()
    }

    fn put(&self, slot: usize, key: [u8; 16]) {
        let bits = u128::from_le_bytes(key);
        if let Some([low, high]) = self.0.get(slot) {
            // Lossless: halves.
            low.store(bits as u64, Ordering::Relaxed);
            high.store((bits >> u64::BITS) as u64, Ordering::Relaxed);
        }
    }

    fn get(&self, slot: usize) -> Option<[u8; 16]> {
        let half = |half: &Counter| u128::from(half.load(Ordering::Relaxed));
        self.0.get(slot).map(|[low, high]| (half(high) << u64::BITS | half(low)).to_le_bytes())
    }
}

impl Engine {
    /// Remembers whose reservation a slot is.
    pub(super) fn note_reserver(&self, slot: usize, agent: &[u8], lane: LaneId) {
        if let Some(asks) = self.asks.as_ref().filter(|_| self.is_clustered(lane)) {
            asks.reservers.put(slot, asks.key_of(agent));
        }
    }

    /// Asks the store to settle what a reservation has left on its lane: given back here, or owed. Whether the lane is
    /// asked about already does not matter, since that answer may come without it.
    pub(super) fn ask_for_reserver(&self, slot: usize, hash: AgentHash, lane: LaneId, plan: Option<PlanId>) {
        let Some(asks) = self.asks.as_ref().filter(|_| self.is_clustered(lane)) else { return };
        if let Some(key) = asks.reservers.get(slot) {
            asks.push(Ask::to_settle(key, hash, lane, plan));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_the_key_that_was_put_there_last() {
        let reservers = Reservers::new(2).unwrap();
        let key: [u8; 16] = std::array::from_fn(|byte| 0xf0 | byte as u8);
        reservers.put(0, [1; 16]);
        reservers.put(0, key);
        reservers.put(9, key);
        assert_eq!((reservers.get(0), reservers.get(1), reservers.get(2)), (Some(key), Some([0; 16]), None));
        assert_eq!(reservers.bytes(), 32);
    }
}
