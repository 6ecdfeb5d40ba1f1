//! The state of a lane.

use super::left::reported_ns;
use super::verdict::RETRY_NEVER;
use std::time::Duration;

/// The state of a lane: what is left, and when it is full again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneState {
    pub(crate) remaining: u64,
    pub(crate) capacity: u64,
    /// How long a bucket's token takes to come back; 0 if the lane counts.
    pub(crate) token_ns: u64,
    pub(crate) window_ns: u64,
    pub(crate) next_in_ns: u64,
    pub(crate) full_in_ns: u64,
}

impl LaneState {
    pub(crate) const EXEMPT: Self =
        Self { remaining: u64::MAX, capacity: u64::MAX, token_ns: 1, window_ns: 0, next_in_ns: 0, full_in_ns: 0 };

    /// The state of a lane that counts. `window_ns` is the length of its window.
    pub(super) const fn counted(
        capacity: u64,
        remaining: u64,
        next_in_ns: u64,
        full_in_ns: u64,
        window_ns: u64,
    ) -> Self {
        Self { remaining, capacity, token_ns: 0, window_ns: reported_ns(window_ns), next_in_ns, full_in_ns }
    }

    /// Whether the agent is never limited. Then `u64::MAX` are left of `u64::MAX`.
    #[must_use]
    pub const fn is_exempt(&self) -> bool {
        self.capacity == u64::MAX
    }

    /// Whole tokens that could be charged now.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// What the lane holds when it is full; 0 if it denies everything.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How long until there is one more whole token than now. `None` if there
    /// never will be, because the lane is full or denies everything; or if that
    /// cannot be known, because a held slot has to be released first.
    #[must_use]
    pub const fn next_in(&self) -> Option<Duration> {
        match self.next_in_ns {
            _ if self.remaining == self.capacity => None,
            RETRY_NEVER => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// How long until the lane is full again, if nothing more is charged.
    #[must_use]
    pub const fn full_in(&self) -> Duration {
        Duration::from_nanos(self.full_in_ns)
    }

    /// How long an empty lane takes to be full again, or the length of its
    /// window, as in [`Verdict::window`](crate::Verdict::window). Zero if there
    /// is no such time: the lane denies everything or is held, or the agent is
    /// exempt.
    #[must_use]
    pub const fn window(&self) -> Duration {
        Duration::from_nanos(self.window_ns)
    }
}
