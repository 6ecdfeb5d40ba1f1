//! A token bucket, kept as the instant at which it will be full again.
//!
//! That is lazy refill in its purest form: one number in place of a token
//! count and the time of the last refill.
//!
//! ```text
//! ticks_per_token = ceil(period / tokens)          rounded up once, in the policy
//! depth           = capacity * ticks_per_token     the whole bucket, as time
//! price           = cost * ticks_per_token
//! debt            = max(full_at - now, 0)          time needed to refill completely
//! allowed        <=> debt + price <= depth
//! full_at'        = now + debt + price
//! remaining       = floor((depth - debt - price) / ticks_per_token)
//! retry_after     = debt + price - depth           when denied
//! ```
//!
//! The same rounded `ticks_per_token` prices a token and measures the bucket,
//! so a capacity of C admits exactly C after any idle time, and the rate never
//! exceeds what was configured; it falls short by less than rate / 10^9.
//! Every charge moves `full_at`, so no two charges can be mistaken for one.
//! A `now` older than the bucket's time makes the debt larger, never smaller.

use super::{Decision, LaneWord, Outcome, RETRY_NEVER, Status, Verdict};
use crate::bounds::REFILL_MAX;
use crate::clock::Tick;
use crate::error::Error;
use crate::policy::BucketNumbers;
use std::num::NonZeroU64;

/// A bucket's limit, ready to compute with. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketLimit {
    ticks_per_token: NonZeroU64,
    /// Invariant: `capacity * ticks_per_token`, below [`REFILL_MAX`].
    depth: u64,
    capacity: u64,
    /// An allowed request warns when less time than this is left in the bucket.
    warn_below: u64,
}

/// What a request takes from a bucket, in nanoseconds of refill. At least 1,
/// and at most the depth unless the bucket denies everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Price(u64);

impl BucketLimit {
    pub(crate) fn new(numbers: BucketNumbers, warn_below_percent: u8) -> Self {
        let BucketNumbers { ticks_per_token, capacity } = numbers;
        let depth = capacity * ticks_per_token.get();
        debug_assert!(u128::from(depth) < REFILL_MAX.as_nanos());
        // Fewer whole tokens than a share of the capacity is fewer than that
        // share rounded up; a capacity of 10^12 times 100 fits.
        let warn_tokens = (capacity * u64::from(warn_below_percent)).div_ceil(100);
        Self { ticks_per_token, depth, capacity, warn_below: warn_tokens * ticks_per_token.get() }
    }

    /// What `cost` tokens take.
    pub(crate) fn price(&self, cost: u64) -> Result<Price, Error> {
        // One comparison for both ends: 0 wraps around to the largest number.
        if cost.wrapping_sub(1) < self.capacity {
            // No overflow: at most the depth.
            return Ok(Price(cost * self.ticks_per_token.get()));
        }
        match (cost, self.capacity) {
            (0, _) => Err(Error::ZeroCost),
            (_, 0) => Ok(Price(1)), // More than the depth of 0: always denied.
            (cost, capacity) => Err(Error::CostAboveCapacity { cost, capacity }),
        }
    }

    /// How full of debt a bucket is: 0 for none, `u32::MAX` and above for all of it.
    pub(crate) fn debt_ratio(&self, word: LaneWord, now: Tick) -> u64 {
        let debt = word.time().as_nanos().saturating_sub(now.as_nanos());
        if debt == 0 {
            return 0;
        }
        let ratio = u128::from(debt) * u128::from(u32::MAX) / u128::from(self.depth.max(1));
        u64::try_from(ratio).unwrap_or(u64::MAX)
    }
}

/// What a charge comes to: the debt after it, whether it was allowed or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    debt: u64,
    allowed: bool,
}

/// Takes `price` from the bucket at `now`, if the bucket holds it.
#[inline]
pub(crate) fn step(word: LaneWord, now: Tick, limit: &BucketLimit, price: Price) -> Outcome<Charge> {
    let (now, full_at) = (now.as_nanos(), word.time().as_nanos());
    // No overflow: instants are below 2^60 and a price below 2^59.
    let next = full_at.max(now) + price.0;
    let debt = next - now;
    let allowed = debt <= limit.depth && next <= Tick::MAX.as_nanos();
    Outcome { next: allowed.then_some(word.at(Tick::from_nanos(next))), answer: Charge { debt, allowed } }
}

/// Tells what a charge came to.
#[inline]
pub(crate) fn verdict(charge: Charge, limit: &BucketLimit, price: Price) -> Verdict {
    let Charge { debt, allowed } = charge;
    let (decision, retry_after_ns, full_in_ns) = if allowed {
        let near = limit.depth - debt < limit.warn_below;
        (if near { Decision::Warn } else { Decision::Allow }, 0, debt)
    } else if debt > limit.depth && limit.capacity > 0 {
        (Decision::Deny, debt - limit.depth, debt - price.0)
    } else {
        // Past the range of the clock, and on a lane that denies everything, no wait helps.
        (Decision::Deny, RETRY_NEVER, debt - price.0)
    };
    Verdict { decision, capacity: limit.capacity, ticks_per_token: limit.ticks_per_token, retry_after_ns, full_in_ns }
}

/// Gives `price` back, never beyond full.
pub(crate) fn refund(word: LaneWord, now: Tick, limit: &BucketLimit, price: Price) -> Outcome<Status> {
    let full_at = word.time().as_nanos().saturating_sub(price.0).max(now.as_nanos());
    put(word, now, limit, Tick::from_nanos(full_at))
}

/// Fills the bucket.
pub(crate) fn reset(word: LaneWord, now: Tick, limit: &BucketLimit) -> Outcome<Status> {
    put(word, now, limit, now)
}

/// Brings `full_at` down to `target`; a bucket that is fuller stays as it is.
fn put(word: LaneWord, now: Tick, limit: &BucketLimit, target: Tick) -> Outcome<Status> {
    let next = word.at(target.min(word.time()));
    Outcome { next: (next != word).then_some(next), answer: status(next, now, limit) }
}

/// The bucket as it stands.
pub(crate) fn status(word: LaneWord, now: Tick, limit: &BucketLimit) -> Status {
    let debt = word.time().as_nanos().saturating_sub(now.as_nanos());
    let left = limit.depth.saturating_sub(debt);
    let remaining = left / limit.ticks_per_token;
    // What the bucket holds, as time, when it has one whole token more.
    let next_left = (remaining + 1).min(limit.capacity) * limit.ticks_per_token.get();
    Status {
        remaining,
        capacity: limit.capacity,
        next_in_ns: (debt + next_left).saturating_sub(limit.depth),
        full_in_ns: debt,
    }
}
