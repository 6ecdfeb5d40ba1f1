//! The lanes of a limiter as they stand in keys.

use crate::LaneKey;
use tollgate::{LaneId, Limiter};

/// One for each lane, by its number.
pub(crate) struct LaneKeys(Vec<LaneKey>);

impl LaneKeys {
    pub(crate) fn of(limiter: &Limiter) -> Self {
        Self(limiter.policy().lanes().map(|(_, name)| LaneKey::new(name)).collect())
    }

    /// The key of a lane, which is one of the limiter's.
    pub(crate) fn of_lane(&self, lane: LaneId) -> &LaneKey {
        // Lanes are fixed when a limiter is built, and asks name no others.
        &self.0[lane.number() as usize]
    }
}
