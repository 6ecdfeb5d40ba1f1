//! A limit that travels with a call.

use super::bucket::{BucketNumbers, BucketTerms};
use super::limit::{Limit, Numbers, Written};
use super::limit_error::LimitError;
use crate::bounds::{CAPACITY_MAX, OVERSPEND_MAX, REFILL_MAX};
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

/// A limit that a call brings along, for a lane that is [dynamic](Limit::dynamic):
/// a bucket, checked once.
///
/// Small and `Copy`, made without text and without memory: as fit for a limit
/// that is made anew for every call as for one that is kept. See
/// [`Request::limit`](crate::Request::limit).
///
/// ```
/// use std::time::Duration;
/// use tollgate::{CallLimit, Limit};
///
/// let limit = CallLimit::new(15, 30, Duration::from_secs(60))?; // 15 at once, and 30 a minute.
/// assert_eq!(limit, "30/minute burst 15".parse()?);
/// assert_eq!(limit, Limit::per_minute(30).burst(15).try_into()?);
/// assert!(CallLimit::try_from("budget 10/day").is_err());
/// # Ok::<(), tollgate::LimitError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallLimit(BucketNumbers);

impl CallLimit {
    /// `capacity` tokens at once, and `count` more every `period`.
    ///
    /// A token takes `period / count`, rounded up to a whole nanosecond.
    ///
    /// # Errors
    ///
    /// The error names the number that is out of range, and what is allowed: the
    /// same as for a bucket of a policy.
    pub fn new(capacity: u64, count: u64, period: Duration) -> Result<Self, LimitError> {
        BucketTerms { tokens: count, per: period, capacity, takes_oversize: false }.numbers().map(Self)
    }

    /// How many tokens a full lane holds.
    #[must_use]
    pub const fn capacity(self) -> u64 {
        self.0.capacity
    }

    pub(crate) const fn token_ns(self) -> u64 {
        self.0.token_ns.get()
    }

    /// The limit by which a charge at this price is settled when more was used
    /// than was reserved. How much the lane held is no longer known, so the
    /// bound is what can be paid for at all, [`OVERSPEND_MAX`] times over.
    pub(crate) fn at_price(token_ns: u64) -> Option<Self> {
        let token_ns = NonZeroU64::new(token_ns)?;
        let payable = (REFILL_MAX.as_nanos() as u64 - 1) / token_ns.get().saturating_mul(OVERSPEND_MAX);
        Some(Self(BucketNumbers { token_ns, capacity: payable.clamp(1, CAPACITY_MAX) }))
    }
}

impl TryFrom<Limit> for CallLimit {
    type Error = LimitError;

    /// A bucket, without debt.
    fn try_from(limit: Limit) -> Result<Self, LimitError> {
        match (limit.0, limit.takes_oversize()) {
            (Written::Bucket(terms), false) => terms.numbers().map(Self),
            _ => Err(LimitError::OfCall { limit: limit.to_string() }),
        }
    }
}

impl FromStr for CallLimit {
    type Err = LimitError;

    /// Reads `"10/second burst 20"`, as [`Limit`] does.
    fn from_str(text: &str) -> Result<Self, LimitError> {
        text.parse::<Limit>()?.try_into()
    }
}

impl TryFrom<&str> for CallLimit {
    type Error = LimitError;

    fn try_from(text: &str) -> Result<Self, LimitError> {
        text.parse()
    }
}

impl From<CallLimit> for Numbers {
    fn from(CallLimit(numbers): CallLimit) -> Self {
        Numbers::Bucket(numbers)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        let second = Duration::from_secs(1);
        assert_eq!(CallLimit::new(0, 1, second), Err(LimitError::Zero));
        assert_eq!(CallLimit::new(1, 0, second), Err(LimitError::Zero));
        assert_eq!(CallLimit::new(1, 1, Duration::ZERO), Err(LimitError::ZeroPeriod));
        let capacity = CAPACITY_MAX + 1;
        assert_eq!(CallLimit::new(capacity, 1, second), Err(LimitError::Capacity { capacity }));
        let (tokens, per) = (1_000_000_001, second);
        assert_eq!(CallLimit::new(1, tokens, per), Err(LimitError::TooFast { tokens, per }));
        for (capacity, tokens, per) in [(1, 1, REFILL_MAX), (u64::from(u32::MAX), 1, second), (1, 1, Duration::MAX)] {
            assert_eq!(CallLimit::new(capacity, tokens, per), Err(LimitError::TooSlow { tokens, per, capacity }));
        }
        for text in ["deny", "unlimited", "window 5/min", "exact 5/min", "budget 5/day", "held 3", "dynamic 5/min"] {
            assert_eq!(text.parse::<CallLimit>(), Err(LimitError::OfCall { limit: text.replace("min", "minute") }));
        }
        let debt = "5/second oversize debt";
        assert_eq!(CallLimit::try_from(debt), Err(LimitError::OfCall { limit: debt.into() }));
        assert!(matches!("5 a day".parse::<CallLimit>(), Err(LimitError::Syntax { .. })));
    }

    #[test]
    fn a_token_takes_the_period_by_the_count_rounded_up() {
        for (count, seconds, token_ns) in [(3, 1, 333_333_334), (1, 60, 60_000_000_000), (7, 7, 1_000_000_000)] {
            let limit = CallLimit::new(5, count, Duration::from_secs(seconds)).unwrap();
            assert_eq!((limit.token_ns(), limit.capacity()), (token_ns, 5));
        }
    }

    /// What is settled at a price can always be paid for within the range.
    #[test]
    fn a_limit_at_a_price_stays_in_range() {
        assert_eq!(CallLimit::at_price(0), None);
        let capacity = |token_ns| CallLimit::at_price(token_ns).map(CallLimit::capacity);
        assert_eq!(capacity(1), Some(CAPACITY_MAX));
        assert_eq!(capacity(1_000_000_000), Some(3_155_759));
        assert_eq!(capacity(u64::MAX), Some(1));
    }
}
