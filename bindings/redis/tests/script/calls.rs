//! Settlements at random, with the edges of every range among them.

use crate::random::Random;
use tollgate_redis::{BudgetSettlement, COUNT_MAX, DEBT_NS_MAX, Settle, Settlement};

/// A number up to `most`: 0, `most`, or of any size with the same odds.
pub(crate) fn any_size(random: &mut Random, most: u64) -> u64 {
    match random.below(16) {
        0 => 0,
        1 => most,
        2 => most.saturating_sub(1),
        _ => (random.next() >> random.below(64)) % (most + 1),
    }
}

/// Often 0, which asks for nothing.
fn rarely(random: &mut Random, most: u64) -> u64 {
    if random.below(2) == 0 { 0 } else { any_size(random, most) }
}

/// Limits that stay the same for several calls.
pub(crate) trait Limits: Settle {
    fn any(random: &mut Random) -> Self;

    /// The same limits with other operations.
    fn operations(self, random: &mut Random) -> Self;

    /// How long a step in time has to be to matter, in microseconds.
    fn time_us(&self) -> u64;
}

/// Wanted, the least of it, and the share.
fn grant(random: &mut Random, capacity: u64) -> (u64, u64, u64) {
    let want = match random.below(8) {
        0 => COUNT_MAX,
        1..3 => 0,
        _ => any_size(random, capacity),
    };
    let min = match random.below(4) {
        0 => 0,
        1 => want.min(1),
        _ => any_size(random, want),
    };
    let share = if random.below(8) == 0 { 1 + any_size(random, COUNT_MAX - 1) } else { 1 + random.below(64) };
    (want, min, share)
}

impl Limits for Settlement {
    fn any(random: &mut Random) -> Self {
        // 1 ns to 26 days a token, with room for one token at least.
        let token_ns = match random.below(4) {
            0 => 1_000_000_000 / (1 + random.below(100_000)),
            _ => 1 + any_size(random, (1 << 51) - 1),
        };
        let tokens_max = (DEBT_NS_MAX / token_ns).min(COUNT_MAX);
        let capacity = 1 + any_size(random, tokens_max - 1);
        let over = any_size(random, tokens_max - capacity);
        Self { token_ns, capacity, owed: 0, give: 0, min: 0, want: 0, share: 1, over, floor_ns: 0 }
    }

    fn operations(self, random: &mut Random) -> Self {
        // Mostly of the capacity's size, sometimes as much as may be sent.
        let most = if random.below(8) == 0 { DEBT_NS_MAX / self.token_ns } else { self.capacity };
        let (want, min, share) = grant(random, self.capacity);
        let floor_ns = match random.below(8) {
            0 => any_size(random, DEBT_NS_MAX),
            1 | 2 => any_size(random, self.capacity * self.token_ns),
            _ => 0,
        };
        Self { owed: rarely(random, most), give: rarely(random, most), min, want, share, floor_ns, ..self }
    }

    fn time_us(&self) -> u64 {
        self.capacity * self.token_ns / 1_000
    }
}

impl Limits for BudgetSettlement {
    fn any(random: &mut Random) -> Self {
        let capacity = 1 + any_size(random, COUNT_MAX - 1);
        let over = any_size(random, COUNT_MAX - capacity);
        Self { left_ms: 60_000, capacity, owed: 0, give: 0, min: 0, want: 0, share: 1, over, floor: 0 }
    }

    fn operations(self, random: &mut Random) -> Self {
        let most = if random.below(8) == 0 { COUNT_MAX } else { self.capacity };
        let (want, min, share) = grant(random, self.capacity);
        let floor = if random.below(4) == 0 { any_size(random, most) } else { 0 };
        Self { owed: rarely(random, most), give: rarely(random, most), min, want, share, floor, ..self }
    }

    fn time_us(&self) -> u64 {
        1
    }
}
