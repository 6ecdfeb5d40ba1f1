//! What the kinds that count have in common.

use super::{Finding, Status, Verdict};
use crate::error::Error;

/// The limit of a lane that counts: windows, budgets, held slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountLimit {
    count: u64,
    /// An allowed request warns when less than this is left.
    warn_below: u64,
}

impl CountLimit {
    pub(crate) const fn new(count: u64, warn_below_percent: u8) -> Self {
        // A share of at most 10^12, rounded up: less than that share is less than this.
        Self { count, warn_below: (count * warn_below_percent as u64).div_ceil(100) }
    }

    pub(crate) const fn from_parts(count: u64, warn_below: u64) -> Self {
        Self { count, warn_below }
    }

    pub(crate) const fn count(self) -> u64 {
        self.count
    }

    pub(crate) const fn warn_below(self) -> u64 {
        self.warn_below
    }

    pub(crate) const fn error(self, cost: u64) -> Option<Error> {
        match cost {
            0 => Some(Error::ZeroCost),
            cost if cost > self.count => Some(Error::CostAboveCapacity { cost, capacity: self.count }),
            _ => None,
        }
    }

    /// What an allowed request is told that leaves so much.
    pub(crate) const fn decision(self, remaining: u64) -> Finding {
        if remaining < self.warn_below { Finding::WARN } else { Finding::ALLOW }
    }

    /// A share of the limit: 0 for nothing, `u32::MAX` for all of it.
    pub(crate) fn share(self, count: u64) -> u64 {
        let share = u128::from(count) * u128::from(u32::MAX) / u128::from(self.count.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// Marks the word of a verdict that says how long a token takes: no bucket's
/// token takes that long.
const COUNTED: u64 = 1 << 63;
/// The length that follows is in seconds, not in milliseconds.
const SECONDS: u64 = 1 << 62;
const LENGTH_SHIFT: u32 = 40;
const LENGTH_MAX: u64 = (1 << 22) - 1;
const REMAINING_MASK: u64 = (1 << LENGTH_SHIFT) - 1;
/// From here on a length is told in seconds.
const HOUR_MS: u64 = 3_600_000;

const _: () = assert!(crate::bounds::CAPACITY_MAX <= REMAINING_MASK);
const _: () = assert!(HOUR_MS <= LENGTH_MAX && crate::bounds::WINDOW_MAX.as_secs() <= LENGTH_MAX);

/// What is left and the length of the window, in the place of a token's time.
///
/// ```text
///  63      62      61         40 39                  0
/// ┌───────┬───────┬─────────────┬─────────────────────┐
/// │   1   │seconds│ length, 22  │    remaining, 40    │
/// └───────┴───────┴─────────────┴─────────────────────┘
/// ```
///
/// So a verdict of a bucket, of which there are the most, has no word for them.
pub(crate) const fn pack(remaining: u64, length_ns: u64) -> u64 {
    let millis = length_ns.div_ceil(1_000_000);
    let length = if millis < HOUR_MS { millis } else { SECONDS >> LENGTH_SHIFT | length_ns.div_ceil(1_000_000_000) };
    let remaining = if remaining > REMAINING_MASK { REMAINING_MASK } else { remaining };
    COUNTED | length << LENGTH_SHIFT | remaining
}

/// What is left, if the word says it.
pub(crate) const fn remaining(ticks_per_token: u64) -> Option<u64> {
    if ticks_per_token & COUNTED == 0 { None } else { Some(ticks_per_token & REMAINING_MASK) }
}

/// The length of the window, if the word says it.
pub(crate) const fn length_ns(ticks_per_token: u64) -> Option<u64> {
    let length = ticks_per_token >> LENGTH_SHIFT & LENGTH_MAX;
    match (ticks_per_token & COUNTED, ticks_per_token & SECONDS) {
        (0, _) => None,
        (_, 0) => Some(length * 1_000_000),
        _ => Some(length * 1_000_000_000),
    }
}

impl Verdict {
    /// The verdict of a lane that counts. `length_ns` is that of its window.
    pub(crate) const fn counted(
        finding: Finding,
        capacity: u64,
        remaining: u64,
        retry_after_ns: u64,
        full_in_ns: u64,
        length_ns: u64,
    ) -> Self {
        Self { finding, capacity, ticks_per_token: pack(remaining, length_ns), retry_after_ns, full_in_ns }
    }
}

impl Status {
    /// The status of a lane that counts.
    pub(crate) const fn counted(capacity: u64, remaining: u64, next_in_ns: u64, full_in_ns: u64) -> Self {
        Self { remaining, capacity, ticks_per_token: pack(remaining, 0), next_in_ns, full_in_ns }
    }

    /// The same with the length of its window.
    pub(crate) const fn within(self, length_ns: u64) -> Self {
        Self { ticks_per_token: pack(self.remaining, length_ns), ..self }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::bounds::{CAPACITY_MAX, WINDOW_MAX};
    use crate::clock::nanos_saturating;

    #[test]
    fn what_is_left_and_the_length_round_trip() {
        for left in [0, 1, CAPACITY_MAX] {
            for (length, told) in [
                (0, 0),
                (1, 1_000_000),
                (60_000_000_000, 60_000_000_000),
                (3_600_000_000_001, 3_601_000_000_000),
                (nanos_saturating(WINDOW_MAX), nanos_saturating(WINDOW_MAX)),
            ] {
                let word = pack(left, length);
                assert_eq!((remaining(word), length_ns(word)), (Some(left), Some(told)), "{left} in {length}");
            }
        }
        assert_eq!((remaining(5), length_ns(5)), (None, None));
    }

    #[test]
    fn lengths_are_told_in_seconds_from_an_hour_on_and_no_count_spills() {
        let hour = 3_600_000_000_000;
        assert_eq!(pack(7, hour - 1_000_000), COUNTED | 3_599_999 << LENGTH_SHIFT | 7);
        for length in [hour - 999_999, hour, hour + 1 - 1_000_000_000] {
            assert_eq!(length_ns(pack(7, length)), Some(length.next_multiple_of(1_000_000)), "{length}");
        }
        assert_eq!(pack(7, hour), COUNTED | SECONDS | 3_600 << LENGTH_SHIFT | 7);
        assert_eq!(pack(u64::MAX, 0), COUNTED | REMAINING_MASK);
        assert_eq!(remaining(pack(REMAINING_MASK, hour)), Some(REMAINING_MASK));
        let status = Status::counted(10, 7, 1, 2);
        assert_eq!([status, status.within(hour)].map(|seen| seen.ticks_per_token), [pack(7, 0), pack(7, hour)]);
    }

    #[test]
    fn shares_warnings_and_errors_begin_where_they_say() {
        // A fifth of 11 is 2.2: fewer than that is 2 or fewer.
        let limit = CountLimit::new(11, 20);
        assert_eq!(limit, CountLimit::from_parts(11, 3));
        assert_eq!((limit.count(), limit.warn_below()), (11, 3));
        assert_eq!([2, 3].map(|left| limit.decision(left)), [Finding::WARN, Finding::ALLOW]);
        assert_eq!(limit.error(0), Some(Error::ZeroCost));
        assert_eq!((limit.error(1), limit.error(11)), (None, None));
        assert_eq!(limit.error(12), Some(Error::CostAboveCapacity { cost: 12, capacity: 11 }));
        let all = u64::from(u32::MAX);
        assert_eq!([0, 11, 22].map(|count| limit.share(count)), [0, all, 2 * all]);
        assert_eq!(CountLimit::new(2, 0).share(1), all / 2);
        assert_eq!((CountLimit::new(0, 0).share(3), limit.share(u64::MAX)), (3 * all, u64::MAX));
    }
}
