//! A charge of a token bucket: the arithmetic behind most checks.
//!
//! A charge computes in *parts*, sixteenths of a nanosecond, which is what a
//! lane word counts if it is read as one number: the generation, in its low
//! four bits, is a fraction of a nanosecond. Prices are whole nanoseconds, so
//! adding one keeps the generation. The depth has its low four bits set, so a
//! comparison with it has the same result as without a generation.

use super::super::left::LeftWord;
use super::super::limit::Numbers;
use super::super::rules::LimitWords;
use super::super::word::{GENERATION_BITS, GENERATION_MASK};
use super::super::{Finding, LaneWord, Outcome, RETRY_NEVER, Verdict, Word};
use super::{BucketNumbers, InstantWord};
use crate::bounds::REFILL_MAX;
use crate::clock::Tick;
use crate::error::Error;

/// The nanoseconds in this many parts, rounded down.
#[inline]
pub(super) const fn nanos(parts: u64) -> u64 {
    parts >> GENERATION_BITS
}

/// The parts in this many nanoseconds, which are below 2^60.
#[inline]
const fn parts(nanos: u64) -> u64 {
    nanos << GENERATION_BITS
}

/// A bucket's limit, ready to compute with. Times are in parts.
///
/// As read from the table it may be torn, made of two limits; then the result
/// is thrown away. So nothing here relies on its numbers fitting together: sums
/// and products wrap, and a division checks for 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketLimit {
    /// The price of one token.
    pub(super) token: u64,
    /// Invariant: `capacity * token`, with the bits of the generation set;
    /// less than [`REFILL_MAX`]. 0 for agents that are never limited: their
    /// charges fail, like those of lanes that deny everything, and the slow
    /// path finds out why.
    pub(super) depth: u64,
    /// 0 if everything is denied, `u64::MAX` if nothing.
    pub(super) capacity: u64,
    /// An allowed request warns when less time than this is left in the bucket.
    warn_below: u64,
}

impl BucketLimit {
    /// The limit of agents that are never limited.
    pub(in super::super) const EXEMPT: Self = Self { token: parts(1), depth: 0, capacity: u64::MAX, warn_below: 0 };

    /// The limit of a lane that denies everything.
    pub(in super::super) const DENY: Self =
        Self { token: parts(1), depth: GENERATION_MASK, capacity: 0, warn_below: 0 };

    pub(in super::super) fn new(numbers: Numbers, warn_below_percent: u8) -> Self {
        let (token, capacity) = match numbers {
            Numbers::Bucket(BucketNumbers { token_ns, capacity }) => (token_ns.get(), capacity),
            Numbers::Unlimited => return Self::EXEMPT,
            // A policy gives no bucket the numbers of a lane that counts.
            Numbers::Deny | Numbers::Count(_) | Numbers::OfCall => return Self::DENY,
        };
        debug_assert!(u128::from(capacity * token) < REFILL_MAX.as_nanos());
        Self::of(token, capacity, u64::from(warn_below_percent))
    }

    /// A bucket of this many tokens, each of this many nanoseconds.
    #[inline]
    pub(in super::super) const fn of(token_ns: u64, capacity: u64, warn_below_percent: u64) -> Self {
        // Fewer whole tokens than a share of the capacity is fewer than that
        // share rounded up; a capacity of 10^12 times 100 fits.
        let warn_tokens = capacity.wrapping_mul(warn_below_percent).div_ceil(100);
        Self {
            token: parts(token_ns),
            depth: parts(capacity.wrapping_mul(token_ns)) | GENERATION_MASK,
            capacity,
            warn_below: parts(warn_tokens.wrapping_mul(token_ns)),
        }
    }

    #[inline]
    pub(crate) const fn from_words(LimitWords([token, depth, capacity, warn_below]): LimitWords) -> Self {
        Self { token, depth, capacity, warn_below }
    }

    pub(in super::super) const fn to_words(self) -> LimitWords {
        LimitWords([self.token, self.depth, self.capacity, self.warn_below])
    }

    pub(in super::super) const fn is_exempt(&self) -> bool {
        self.capacity == u64::MAX
    }

    /// 0 if everything is denied, `u64::MAX` if nothing.
    pub(in super::super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How long a token takes to refill, in nanoseconds. 0 only in a torn limit.
    pub(in super::super) const fn token_ns(&self) -> u64 {
        nanos(self.token)
    }

    /// How long a whole bucket takes to refill, in nanoseconds; 0 if there is none.
    #[cfg(feature = "cluster")]
    pub(in super::super) const fn depth_ns(&self) -> u64 {
        nanos(self.depth)
    }

    /// Whether an allowed request warns that leaves a bucket which takes so long to be full, in nanoseconds.
    #[cfg(feature = "cluster")]
    pub(in super::super) const fn is_low(&self, full_in_ns: u64) -> bool {
        parts(nanos(self.depth).saturating_sub(full_in_ns)) < self.warn_below
    }

    /// Whether a request that leaves nothing warns.
    pub(super) const fn warns(&self) -> bool {
        self.warn_below > 0
    }

    /// The longest debt that a lane keeps when this limit comes into force, in
    /// nanoseconds: the time its bucket takes to refill. A limit without a
    /// bucket gives no measure, so all debt stays, for the limit that comes
    /// next.
    pub(in super::super) const fn debt_max(&self) -> u64 {
        if self.capacity == 0 || self.is_exempt() { u64::MAX } else { nanos(self.depth) }
    }

    /// The price of `cost` tokens: more than the depth if there can never be that many.
    #[inline]
    pub(super) const fn price(&self, cost: u64) -> u64 {
        cost.saturating_mul(self.token)
    }

    /// Why a cost is an error; `None` if the bucket can hold it, denies
    /// everything or is unlimited.
    pub(in super::super) const fn error(&self, cost: u64) -> Option<Error> {
        match (cost, self.capacity) {
            (0, _) => Some(Error::ZeroCost),
            (_, 0) => None,
            (cost, capacity) if cost > capacity => Some(Error::CostAboveCapacity { cost, capacity }),
            _ => None,
        }
    }

    /// Debt as a share of the depth: 0 for none, `u32::MAX` for all of it, and more beyond.
    pub(in super::super) fn debt_ratio(&self, word: LaneWord, now: Tick) -> u64 {
        let debt = InstantWord::of(word).wait(now);
        if debt == 0 {
            return 0;
        }
        let ratio = u128::from(debt) * u128::from(u32::MAX) / u128::from(nanos(self.depth).max(1));
        u64::try_from(ratio).unwrap_or(u64::MAX)
    }
}

/// The answer to a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    limit: BucketLimit,
    cost: u64,
    /// The debt after it, in parts, whether it was allowed or not.
    debt: u64,
    allowed: bool,
}

/// Takes `cost` tokens from the bucket at `now` if the bucket has them.
#[inline]
pub(crate) fn step(word: LaneWord, now: Tick, limit: BucketLimit, cost: u64) -> Outcome<Charge> {
    let (now, word, price) = (parts(now.as_nanos()), word.bits(), limit.price(cost));
    let full_at = if word >= now { word } else { now | word & GENERATION_MASK };
    let next = full_at.wrapping_add(price);
    let past_range = next < price;
    let debt = next.wrapping_sub(now);
    // Past the range of the clock there is nothing to refill from.
    let allowed = debt <= limit.depth && !past_range && cost > 0;
    let next = allowed.then_some(LaneWord::from_bits(next));
    Outcome { next, answer: Charge { limit, cost, debt, allowed } }
}

/// The verdict of a charge.
pub(in super::super) fn verdict(charge: Charge) -> Result<Verdict, Error> {
    usual_verdict(charge).map_or_else(|| odd_verdict(charge), Ok)
}

/// The verdict of a charge that was allowed, or denied for lack of tokens.
#[inline(always)]
pub(crate) fn usual_verdict(charge: Charge) -> Option<Verdict> {
    let Charge { limit, cost, debt, allowed } = charge;
    let (finding, retry_after_ns, full_in_ns) = if allowed {
        let near = limit.depth - debt < limit.warn_below;
        (if near { Finding::WARN } else { Finding::ALLOW }, 0, nanos(debt))
    } else if limit.price(cost) <= limit.depth && debt > limit.depth && cost > 0 {
        // The depth's low bits are set, and the wait is rounded up.
        (Finding::DENY, nanos(debt - limit.depth + GENERATION_MASK), nanos(debt.wrapping_sub(limit.price(cost))))
    } else {
        return None;
    };
    let left = LeftWord::refills(nanos(limit.token));
    Some(Verdict { finding, capacity: limit.capacity, left, retry_after_ns, full_in_ns })
}

/// The verdict of any other charge; nothing was charged.
///
/// Inline: otherwise every check would write the limit to memory for it.
#[inline(always)]
pub(crate) fn odd_verdict(charge: Charge) -> Result<Verdict, Error> {
    let Charge { limit, cost, debt, .. } = charge;
    odd_verdict_of(limit.capacity, limit.token, cost, debt)
}

/// The verdict of a charge that was not made, for an agent that has to wait
/// `block` nanoseconds whatever its bucket holds.
pub(in super::super) fn blocked(charge: Charge, block: u64) -> Result<Verdict, Error> {
    let verdict = verdict(charge)?;
    if charge.limit.is_exempt() {
        return Ok(verdict);
    }
    let not_charged = if charge.allowed { nanos(charge.limit.price(charge.cost)) } else { 0 };
    Ok(Verdict {
        finding: Finding::DENY,
        retry_after_ns: verdict.retry_after_ns.max(block),
        full_in_ns: verdict.full_in_ns - not_charged,
        ..verdict
    })
}

/// Neither allowed nor short of tokens: an error, an exemption, a lane that
/// denies everything, an instant past the range of the clock.
#[cold]
#[inline(never)]
fn odd_verdict_of(capacity: u64, token: u64, cost: u64, debt: u64) -> Result<Verdict, Error> {
    let limit = BucketLimit { token, capacity, ..BucketLimit::EXEMPT };
    if let Some(error) = limit.error(cost) {
        return Err(error);
    }
    if limit.is_exempt() {
        return Ok(Verdict::EXEMPT);
    }
    Ok(Verdict {
        finding: Finding::DENY,
        capacity: limit.capacity,
        left: LeftWord::refills(nanos(limit.token)),
        retry_after_ns: RETRY_NEVER,
        full_in_ns: if capacity == 0 { 0 } else { nanos(debt.saturating_sub(limit.price(cost))) },
    })
}
