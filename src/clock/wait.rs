//! A wait as a protocol presents it: a whole number of steps, in milliseconds.

use std::time::Duration;

/// A wait in milliseconds, rounded up to whole steps of `step_ms`, and at least
/// one step; `never_ms` if no wait helps.
///
/// The waits of this crate are exact to the nanosecond, and protocols are not.
/// Rounding down, or to the nearest, would call an agent back before its token
/// is there; and a wait of 0 would call for an immediate retry. A step of 0 is
/// taken for 1.
///
/// Takes the [`Verdict::retry_after`](crate::Verdict::retry_after) of a denial.
///
/// ```
/// use std::time::Duration;
/// use tollgate::clock::wait_ms;
///
/// // In whole seconds; a minute if no wait helps, since an operator may have changed the limits by then.
/// let shown = |wait| wait_ms(wait, 1_000, 60_000);
/// assert_eq!(shown(Some(Duration::from_millis(500))), 1_000);
/// assert_eq!(shown(Some(Duration::from_secs(6))), 6_000);
/// assert_eq!(shown(Some(Duration::from_nanos(6_000_000_001))), 7_000);
/// assert_eq!(shown(None), 60_000);
/// ```
#[must_use]
pub fn wait_ms(wait: Option<Duration>, step_ms: u64, never_ms: u64) -> u64 {
    let Some(wait) = wait else {
        return never_ms;
    };
    let step_ms = u128::from(step_ms.max(1));
    // No overflow: a duration has fewer than 2^95 nanoseconds, and at most a step is added.
    let steps = wait.as_nanos().div_ceil(step_ms * 1_000_000).max(1);
    u64::try_from(steps * step_ms).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn any_wait_is_whole_steps_and_never_shorter() {
        for step in [1, 7, 1_000, 60_000] {
            for nanos in [0, 1, 999_999_999, 1_000_000_000, 1_000_000_001, 5_999_999_999, u64::MAX] {
                let shown = wait_ms(Some(Duration::from_nanos(nanos)), step, 0);
                assert!(shown >= step && shown % step == 0, "{nanos}");
                assert!(Duration::from_millis(shown) >= Duration::from_nanos(nanos), "{nanos}");
                let excess = u128::from(shown) * 1_000_000 - u128::from(nanos.max(1));
                assert!(excess < u128::from(step) * 1_000_000, "{nanos}");
            }
        }
    }

    #[test]
    fn extremes_are_answered() {
        assert_eq!(wait_ms(Some(Duration::MAX), 1_000, 0), u64::MAX);
        assert_eq!(wait_ms(Some(Duration::MAX), u64::MAX, 0), u64::MAX);
        assert_eq!(wait_ms(Some(Duration::from_nanos(1)), 0, 0), 1);
        assert_eq!(wait_ms(None, 1_000, 7), 7);
    }
}
