//! A limit that is a count: how many a window or a budget holds, how many slots
//! there are.

use super::limit::Numbers;
use super::rules::LimitWords;
use super::{Finding, LaneState, RETRY_NEVER, Verdict};
use crate::error::Error;

/// The limit of a lane that counts, ready to compute with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountLimit {
    /// 0 if everything is denied, `u64::MAX` if there is no limit.
    count: u64,
    /// An allowed request warns when less than this is left.
    warn_below: u64,
}

impl CountLimit {
    const EXEMPT: Self = Self { count: u64::MAX, warn_below: 0 };
    const DENY: Self = Self { count: 0, warn_below: 0 };

    pub(crate) const fn new(count: u64, warn_below_percent: u8) -> Self {
        // A share of at most 10^12, rounded up: less than that share is less than this.
        Self { count, warn_below: (count * warn_below_percent as u64).div_ceil(100) }
    }

    pub(super) const fn of(numbers: Numbers, warn_below_percent: u8) -> Self {
        match numbers {
            Numbers::Count(count) => Self::new(count, warn_below_percent),
            Numbers::Unlimited => Self::EXEMPT,
            // A policy gives no lane that counts the numbers of a bucket.
            Numbers::Deny | Numbers::Bucket(_) | Numbers::OfCall => Self::DENY,
        }
    }

    pub(super) const fn from_words(LimitWords([count, warn_below, ..]): LimitWords) -> Self {
        Self { count, warn_below }
    }

    pub(super) const fn to_words(self) -> LimitWords {
        LimitWords([self.count, self.warn_below, 0, 0])
    }

    pub(crate) const fn count(self) -> u64 {
        self.count
    }

    pub(super) const fn is_exempt(self) -> bool {
        self.count == u64::MAX
    }

    /// The answer to a charge of `cost` if nothing is counted, because the
    /// limit denies everything or is unlimited.
    pub(super) const fn uncounted(self, cost: u64) -> Option<Result<Verdict, Error>> {
        match (self.count, cost) {
            (0 | u64::MAX, 0) => Some(Err(Error::ZeroCost)),
            (0, _) => Some(Ok(Verdict::counted(Finding::DENY, 0, 0, RETRY_NEVER, 0, 0))),
            (u64::MAX, _) => Some(Ok(Verdict::EXEMPT)),
            _ => None,
        }
    }

    /// The same for a peek.
    pub(super) const fn uncounted_state(self) -> Option<LaneState> {
        match self.count {
            0 => Some(LaneState::counted(0, 0, 0, 0, 0)),
            u64::MAX => Some(LaneState::EXEMPT),
            _ => None,
        }
    }

    /// The same for a refund.
    pub(super) fn uncounted_refund(self, cost: u64) -> Option<Result<LaneState, Error>> {
        self.uncounted_state().map(|state| if cost == 0 { Err(Error::ZeroCost) } else { Ok(state) })
    }

    pub(crate) const fn error(self, cost: u64) -> Option<Error> {
        match cost {
            0 => Some(Error::ZeroCost),
            cost if cost > self.count => Some(Error::CostAboveCapacity { cost, capacity: self.count }),
            _ => None,
        }
    }

    /// The decision on an allowed request that leaves this much.
    pub(crate) const fn decision(self, remaining: u64) -> Finding {
        if remaining < self.warn_below { Finding::WARN } else { Finding::ALLOW }
    }

    /// A share of the limit: 0 for nothing, `u32::MAX` for all of it.
    pub(crate) fn share(self, count: u64) -> u64 {
        let share = u128::from(count) * u128::from(u32::MAX) / u128::from(self.count.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shares_warnings_and_errors_begin_where_they_say() {
        // A fifth of 11 is 2.2: fewer than that is 2 or fewer.
        let limit = CountLimit::new(11, 20);
        assert_eq!(limit, CountLimit { count: 11, warn_below: 3 });
        assert_eq!([2, 3].map(|left| limit.decision(left)), [Finding::WARN, Finding::ALLOW]);
        assert_eq!(limit.error(0), Some(Error::ZeroCost));
        assert_eq!((limit.error(1), limit.error(11)), (None, None));
        assert_eq!(limit.error(12), Some(Error::CostAboveCapacity { cost: 12, capacity: 11 }));
        let all = u64::from(u32::MAX);
        assert_eq!([0, 11, 22].map(|count| limit.share(count)), [0, all, 2 * all]);
        assert_eq!(CountLimit::new(2, 0).share(1), all / 2);
        assert_eq!((CountLimit::new(0, 0).share(3), limit.share(u64::MAX)), (3 * all, u64::MAX));
    }

    #[test]
    fn a_limit_is_the_same_after_a_row_and_says_whether_it_counts() {
        let of = |numbers| CountLimit::of(numbers, 20);
        for numbers in [Numbers::Count(11), Numbers::Deny, Numbers::Unlimited] {
            assert_eq!(CountLimit::from_words(of(numbers).to_words()), of(numbers));
        }
        let [count, deny, unlimited] = [Numbers::Count(11), Numbers::Deny, Numbers::Unlimited].map(of);
        assert_eq!([count, deny, unlimited].map(|limit| limit.is_exempt()), [false, false, true]);
        assert_eq!([count.uncounted(0), count.uncounted(3)], [None, None]);
        assert_eq!((count.uncounted_state(), count.uncounted_refund(0)), (None, None));
        let denied = deny.uncounted(3).unwrap().unwrap();
        assert_eq!((denied.is_allowed(), denied.retry_after(), denied.remaining()), (false, None, 0));
        assert_eq!(unlimited.uncounted(3), Some(Ok(Verdict::EXEMPT)));
        for limit in [deny, unlimited] {
            assert_eq!(limit.uncounted(0), Some(Err(Error::ZeroCost)));
            assert_eq!(limit.uncounted_refund(0), Some(Err(Error::ZeroCost)));
            assert_eq!(limit.uncounted_refund(3).map(|refund| refund.ok()), Some(limit.uncounted_state()));
        }
        assert_eq!(unlimited.uncounted_state(), Some(LaneState::EXEMPT));
        assert_eq!(deny.uncounted_state().map(|state| (state.capacity, state.next_in())), Some((0, None)));
    }
}
