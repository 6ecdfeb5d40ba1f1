//! Inputs for the properties: limits over the whole allowed range, and calls
//! where the arithmetic is delicate.

use proptest::prelude::*;
use std::time::Duration;
use tollgate::bounds::{CAPACITY_MAX, REFILL_MAX};
use tollgate::{Limit, Tick};

/// The numbers of a limit, its period in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) tokens: u64,
    pub(crate) period: u64,
    pub(crate) capacity: u64,
}

impl Numbers {
    pub(crate) fn limit(&self) -> Limit {
        Limit::new(self.tokens, Duration::from_nanos(self.period)).burst(self.capacity)
    }

    /// The time of a token, rounded up as documented.
    pub(crate) fn token_time(&self) -> u64 {
        self.period.div_ceil(self.tokens)
    }

    pub(crate) fn depth(&self) -> u64 {
        self.token_time() * self.capacity
    }
}

/// A number from 1 to `most`, every order of magnitude as likely as any other.
fn magnitude(share: f64, most: u64) -> u64 {
    ((most as f64).powf(share) as u64).clamp(1, most)
}

/// Any limit that a policy accepts; of half of them, a token takes a whole
/// number of nanoseconds.
pub(crate) fn any_limit() -> impl Strategy<Value = Numbers> {
    let edges = prop_oneof![
        Just((1, 86_400_000_000_000)), // 1 a day
        Just((1_000_000_000, 1_000_000_000)),
        Just((999_999_937, 1_000_000_000)),
        Just((7, 60_000_000_000)),
        Just((10, 60_000_000_000)),
    ];
    let anywhere = (0.0..1.0, 0.0..1.0, any::<bool>()).prop_map(|(period, tokens, whole)| {
        let period = magnitude(period, 1 << 58);
        let tokens = magnitude(tokens, period);
        if whole { (tokens, period / tokens * tokens) } else { (tokens, period) }
    });
    let rate = prop_oneof![1 => edges, 4 => anywhere];
    (rate, prop_oneof![1 => Just(1.0), 6 => 0.0..1.0]).prop_map(|((tokens, period), capacity)| {
        let refills = (REFILL_MAX.as_nanos() as u64 - 1) / period.div_ceil(tokens);
        Numbers { tokens, period, capacity: magnitude(capacity, refills.min(CAPACITY_MAX)) }
    })
}

/// How many tokens, relative to what the bucket holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    One,
    /// All that are left, so that the bucket is emptied.
    Left,
    /// One more than are left.
    TooMany,
    Capacity,
    Some(f64),
}

impl Amount {
    pub(crate) fn tokens(self, left: u64, capacity: u64) -> u64 {
        let tokens = match self {
            Amount::One => 1,
            Amount::Left => left,
            Amount::TooMany => left + 1,
            Amount::Capacity => capacity,
            Amount::Some(share) => magnitude(share, capacity),
        };
        tokens.clamp(1, capacity)
    }
}

/// How the time moves before a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move {
    Still,
    Nanosecond,
    Token,
    /// To the instant of the last promise, or a nanosecond short of it.
    Promised {
        early: bool,
    },
    /// Up to two refills ahead.
    Ahead(f64),
    /// Up to two refills back.
    Back(f64),
    /// So close to the end of the range that a charge may not fit.
    Edge(f64),
}

impl Move {
    pub(crate) fn from(self, now: u64, promised: u64, numbers: &Numbers) -> u64 {
        let depth = numbers.depth();
        let then = match self {
            Move::Still => now,
            Move::Nanosecond => now + 1,
            Move::Token => now + numbers.token_time(),
            Move::Promised { early } => now + promised.saturating_sub(early.into()),
            Move::Ahead(share) => now + magnitude(share, depth * 2),
            Move::Back(share) => now.saturating_sub(magnitude(share, depth * 2)),
            Move::Edge(share) => now.max(Tick::MAX.as_nanos() - magnitude(share, depth * 2)),
        };
        then.min(Tick::MAX.as_nanos())
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Check(Amount),
    Refund(Amount),
    Reset,
}

fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        Just(Amount::One),
        Just(Amount::Left),
        Just(Amount::TooMany),
        Just(Amount::Capacity),
        (0.0..1.0).prop_map(Amount::Some),
    ]
}

pub(crate) fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => amount().prop_map(Call::Check),
        2 => amount().prop_map(Call::Refund),
        1 => Just(Call::Reset),
    ]
}

fn ahead() -> impl Strategy<Value = Move> {
    prop_oneof![
        2 => Just(Move::Still),
        1 => Just(Move::Nanosecond),
        1 => Just(Move::Token),
        2 => any::<bool>().prop_map(|early| Move::Promised { early }),
        4 => (0.0..1.0).prop_map(Move::Ahead),
    ]
}

/// Moves that never go back. One in fifty goes to the edge of the range,
/// where time then stays.
pub(crate) fn move_ahead() -> impl Strategy<Value = Move> {
    prop_oneof![49 => ahead(), 1 => (0.0..1.0).prop_map(Move::Edge)]
}

pub(crate) fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![30 => ahead(), 9 => (0.0..1.0).prop_map(Move::Back), 1 => (0.0..1.0).prop_map(Move::Edge)]
}
