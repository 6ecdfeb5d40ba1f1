//! What a limiter has done so far, in numbers.

use super::DECISIONS;
use super::counters::Counters;
use crate::clock::{ClockSource, Tick};
use crate::policy::{LaneId, Policy};

/// What a limiter holds and has done since it was built.
///
/// Every count includes all calls that returned before the snapshot was taken.
/// Totals are sums of the counts beside them, so they always add up. Counts
/// never fall; they wrap at 2^64.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// When it was taken.
    pub at: Tick,
    /// Whether the limiter was built with [`Observe`](crate::observe::Observe). If not, those counts are 0.
    pub is_counting: bool,
    /// Verdicts by lane, in the order of the policy.
    pub lanes: Vec<LaneCounts>,
    /// Checks that could not be answered, except [`full`](Self::full). A cost above the lane's capacity is not among
    /// them: it is counted as denied.
    pub errors: u64,
    /// Newcomers that were refused with [`Error::Full`](crate::Error::Full).
    pub full: u64,
    /// Violations, of counted requests or recorded by hand.
    pub violations: u64,
    /// Violations in the last 60 minutes, including the present one.
    pub violations_last_hour: u64,
    /// How often violations became sustained abuse.
    pub sustained_abuse: u64,
    /// Counts of records; available without [`Observe`](crate::observe::Observe).
    pub stats: crate::Stats,
    /// Agents with an assignment: a plan, an override, an exemption.
    pub assigned: u64,
    /// Those of them that have overrides.
    pub overridden: u64,
    /// Those of them that are exempt.
    pub exempt: u64,
    /// Actions that the policy does not name.
    pub unknown_actions: u64,
    /// Events that were dropped before they were polled.
    pub events_dropped: u64,
    /// What the clock reads at present.
    pub clock: ClockSource,
    /// How often the clock gave up a counter that it had trusted.
    pub clock_fallbacks: u64,
}

/// The verdicts of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneCounts {
    /// The lane.
    pub lane: LaneId,
    /// Its name.
    pub name: String,
    /// Allowed, without a warning.
    pub allowed: u64,
    /// Allowed with a warning.
    pub warned: u64,
    /// Denied.
    pub denied: u64,
    /// Allowed because the agent is exempt.
    pub exempt: u64,
}

impl LaneCounts {
    /// Every lane of the policy; all counts are 0 without counters.
    pub(crate) fn of(policy: &Policy, counters: Option<&Counters>) -> Vec<Self> {
        let lanes = policy.lanes().map(|(lane, name)| {
            let sum = |decision| counters.map_or(0, |counters| counters.sum(counters.verdict(lane, decision)));
            let [allowed, warned, exempt, denied] = DECISIONS.map(sum);
            Self { lane, name: name.to_owned(), allowed, warned, denied, exempt }
        });
        lanes.collect()
    }

    /// All verdicts of the lane.
    #[must_use]
    pub const fn checks(&self) -> u64 {
        self.allowed.wrapping_add(self.warned).wrapping_add(self.denied).wrapping_add(self.exempt)
    }
}

impl Snapshot {
    fn total(&self, of: impl Fn(&LaneCounts) -> u64) -> u64 {
        self.lanes.iter().map(of).fold(0, u64::wrapping_add)
    }

    /// Checks that were answered, in all lanes.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.total(LaneCounts::checks)
    }

    /// Checks that were allowed without a warning.
    #[must_use]
    pub fn allowed(&self) -> u64 {
        self.total(|lane| lane.allowed)
    }

    /// Checks that were allowed with a warning.
    #[must_use]
    pub fn warned(&self) -> u64 {
        self.total(|lane| lane.warned)
    }

    /// Checks that were denied.
    #[must_use]
    pub fn denied(&self) -> u64 {
        self.total(|lane| lane.denied)
    }
}
