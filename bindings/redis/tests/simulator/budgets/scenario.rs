//! What a seed is about.

use crate::random::Random;
use tollgate::cluster::WhenLost;

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// What is given back is sent twice.
    GiveResent,
    /// After a loss the server is told nothing.
    NoFloor,
    /// What was spent in advance is not paid.
    NotPaid,
    /// What is granted is not debited.
    GrantNotDebited,
    /// A key has no window: an answer or a give that is late is counted in the next.
    NoWindow,
    /// What a reservation has not used is given back twice.
    SettledTwice,
}

impl Fault {
    pub(super) const ALL: [Self; 6] =
        [Self::GiveResent, Self::NoFloor, Self::NotPaid, Self::GrantNotDebited, Self::NoWindow, Self::SettledTwice];
}

/// What a seed is about.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) nodes: usize,
    pub(super) capacity: u64,
    pub(super) slack_percent: u8,
    pub(super) is_exact: bool,
    pub(super) when_lost: WhenLost,
    pub(super) agents: usize,
    pub(super) cost_max: u64,
    /// Checks a second, of each machine.
    pub(super) rate: u64,
    pub(super) delay_us: u64,
    pub(super) lost_permille: u64,
    pub(super) stops: bool,
    pub(super) forgets: bool,
    pub(super) pauses: bool,
    pub(super) dies: bool,
    /// By how much wall clocks may differ.
    pub(super) skew_ms: u64,
    /// Whether some requests are reservations, and some are refunded.
    pub(super) reserves: bool,
    pub(super) refunds: bool,
    pub(super) seconds: u64,
    /// When the hour ends, from the beginning of the run.
    pub(super) edge_ms: u64,
}

impl Scenario {
    pub(super) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xb0d9e7);
        let mut one_of = |values: &[u64]| values[random.below(values.len() as u64) as usize];
        let capacity = one_of(&[20, 100, 1_000, 1_000, 100_000]);
        Self {
            seed,
            nodes: one_of(&[1, 1, 2, 3, 3, 5, 8]) as usize,
            capacity,
            slack_percent: one_of(&[1, 10, 10, 40, 100]) as u8,
            is_exact: one_of(&[0, 0, 0, 1]) == 1,
            when_lost: [WhenLost::Share, WhenLost::Share, WhenLost::Closed, WhenLost::Alone]
                [one_of(&[0, 1, 2, 3]) as usize],
            agents: one_of(&[1, 1, 2, 6]) as usize,
            cost_max: one_of(&[1, 1, 3, capacity / 10, capacity]),
            rate: one_of(&[20, 200, 2_000]),
            delay_us: one_of(&[200, 2_000, 20_000, 150_000]),
            lost_permille: one_of(&[0, 0, 0, 2, 20]),
            stops: one_of(&[0, 1]) == 1,
            forgets: one_of(&[0, 1]) == 1,
            pauses: one_of(&[0, 0, 1]) == 1,
            dies: one_of(&[0, 0, 1]) == 1,
            skew_ms: one_of(&[0, 0, 50, 1_000]),
            reserves: one_of(&[0, 0, 1]) == 1,
            refunds: one_of(&[0, 0, 0, 1]) == 1,
            seconds: one_of(&[3, 8]),
            edge_ms: one_of(&[1_000, 2_000, 100_000]),
        }
    }

    /// How much a machine may spend in advance.
    pub(super) fn advance_max(&self) -> u64 {
        let share = self.capacity * u64::from(self.slack_percent) / (200 * self.nodes as u64);
        if self.is_exact { 0 } else { share.max(1) }
    }
}
