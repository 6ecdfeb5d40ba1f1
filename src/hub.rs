//! How the hub tells an agent to wait.
//!
//! The waits of this crate are exact to the nanosecond. The hub speaks of
//! milliseconds, in whole seconds, and has a number for "no wait helps".
//! Whoever answers the hub's agents needs this rule, in every language; and
//! rounding down, or to the nearest, would call an agent back before its token
//! is there. So it is stated here once, for all of them.

use std::time::Duration;

/// What an agent is told for which no wait helps: come back in a minute,
/// perhaps an operator has changed its limits.
pub const RETRY_NEVER_MS: u64 = 60_000;

/// The wait of a denial as the hub tells it: milliseconds, rounded up to whole
/// seconds. [`RETRY_NEVER_MS`] if no wait helps.
///
/// Takes what [`Verdict::retry_after`](crate::Verdict::retry_after) says of a denial.
///
/// ```
/// use std::time::Duration;
/// use tollgate::hub::retry_after_ms;
///
/// assert_eq!(retry_after_ms(Some(Duration::from_millis(500))), 1_000);
/// assert_eq!(retry_after_ms(Some(Duration::from_secs(6))), 6_000);
/// assert_eq!(retry_after_ms(Some(Duration::from_nanos(6_000_000_001))), 7_000);
/// assert_eq!(retry_after_ms(None), 60_000);
/// ```
#[must_use]
pub fn retry_after_ms(wait: Option<Duration>) -> u64 {
    let Some(wait) = wait else {
        return RETRY_NEVER_MS;
    };
    let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0));
    // No denial has a wait of 0; and 0 would call for an immediate retry.
    seconds.max(1).saturating_mul(1_000)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn any_wait_is_whole_seconds_and_never_shorter() {
        for nanos in [0, 1, 999_999_999, 1_000_000_000, 1_000_000_001, 5_999_999_999, u64::MAX] {
            let told = retry_after_ms(Some(Duration::from_nanos(nanos)));
            assert!(told >= 1_000 && told % 1_000 == 0, "{nanos}");
            assert!(Duration::from_millis(told) >= Duration::from_nanos(nanos), "{nanos}");
            assert!(u128::from(told) * 1_000_000 < u128::from(nanos.max(1)) + 1_000_000_000, "{nanos}");
        }
        assert_eq!(retry_after_ms(Some(Duration::MAX)), u64::MAX);
    }
}
