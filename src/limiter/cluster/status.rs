//! What an operator reads of limits that machines share.

use super::Link;
use crate::lane::clustered::{LinkState, Source, WhenLost};
use crate::policy::{LaneId, PlanId};
use std::num::NonZeroU16;

/// What checks found of the lanes that machines share, and what they take the store for: see [`Link::status`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterStatus {
    /// Whether checks take the store for connected.
    pub is_connected: bool,
    /// How many machines share it.
    pub nodes: NonZeroU16,
    /// Questions that wait for the engine.
    pub asks_waiting: usize,
    /// Questions that were asked so far.
    pub asks: u64,
    /// Questions that were not, because too many were waiting.
    pub asks_dropped: u64,
    /// Each lane that machines share.
    pub lanes: Vec<SharedLane>,
}

/// A lane that machines share.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedLane {
    /// Its number.
    pub lane: LaneId,
    /// Its name.
    pub name: String,
    /// What its bucket holds when it is full, or its whole budget, for an agent of the default plan.
    pub capacity: u64,
    /// How long a token of the default plan takes to refill, in nanoseconds; 0 if it is a budget.
    pub token_ns: u64,
    /// How much of its capacity may be in credit and in advance at once, in percent.
    pub slack_percent: u8,
    /// Whether nothing is spent in advance.
    pub is_exact: bool,
    /// What this machine does with it while the store is lost.
    pub when_lost: WhenLost,
    /// How many tokens all machines together may admit to an agent of the default plan beyond its limit while the store
    /// answers: of a bucket in any window, of a budget in one of its calendar.
    pub bound_tokens: u64,
    answers: [u64; Source::ALL.len()],
}

impl SharedLane {
    /// How many of its answers came from there.
    #[must_use]
    pub const fn answers(&self, source: Source) -> u64 {
        self.answers[source.index()]
    }
}

impl Link<'_> {
    /// The state of the link, and of each lane that machines share, with the number of its answers by source.
    ///
    /// Many [pending](Source::Pending) answers of a lane that is not exact mean that its slack is too small, or the
    /// store too far away: requests are denied though tokens are left.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        let (engine, now) = (self.0, self.0.clock.now());
        let (policy, link, (asks, asks_dropped)) = (engine.policy(), engine.limits.link(), engine.ask_counts());
        let shared = |(lane, name): (LaneId, &str)| {
            let shared = engine.limits.clustered(lane)?;
            let numbers = policy.numbers(PlanId::DEFAULT).nth(lane.index())?;
            let (capacity, token_ns, of_machine) = shared.refill(numbers);
            let clustered = shared.settings();
            Some(SharedLane {
                lane,
                name: name.to_owned(),
                capacity,
                token_ns,
                // Lossless: a slack is 1,000 thousandths at most.
                slack_percent: (clustered.slack_permille / 10) as u8,
                is_exact: clustered.is_exact,
                when_lost: clustered.when_lost,
                bound_tokens: of_machine.saturating_mul(u64::from(link.nodes())),
                answers: Source::ALL.map(|source| engine.answers_from(lane, source)),
            })
        };
        ClusterStatus {
            is_connected: link.state(now) == LinkState::Connected,
            nodes: NonZeroU16::new(link.nodes()).unwrap_or(NonZeroU16::MIN),
            asks_waiting: engine.asks_waiting(),
            asks,
            asks_dropped,
            lanes: policy.lanes().filter_map(shared).collect(),
        }
    }
}
