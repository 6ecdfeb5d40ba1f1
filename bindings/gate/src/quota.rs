//! What a client sees of its limit.

use std::time::Duration;
use tollgate::{LaneState, Verdict};

/// A lane of an agent in plain numbers: the source of headers and bodies.
///
/// It is made from a [`Verdict`] or a [`LaneState`]. The fields are public, so that
/// you can set a longer wait than the lane's own.
///
/// ```
/// use tollgate::{Limiter, ManualClock, Policy};
/// use tollgate_gate::Quota;
///
/// let policy = Policy::builder().lane("http/heavy", "10/min burst 1").build()?;
/// let limiter = Limiter::builder(policy).agents(10).clock(ManualClock::new()).build()?;
/// let heavy = limiter.lane("http/heavy").ok_or("named above")?;
/// limiter.check("agent-7", heavy)?;
///
/// let quota = Quota::from(&limiter.check("agent-7", heavy)?);
/// assert!(quota.denied);
/// assert_eq!((quota.retry_after_seconds(), quota.retry_after_ms()), (Some(6), Some(6_000)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The lane's capacity.
    pub capacity: u64,
    /// Whole tokens left.
    pub remaining: u64,
    /// How long an empty lane takes to fill, if that is known.
    pub window: Option<Duration>,
    /// How long until one more whole token is there; `None` if that never happens.
    pub next_in: Option<Duration>,
    /// How long until the lane is full again.
    pub full_in: Duration,
    /// Whether the request was refused.
    pub denied: bool,
    /// How long a refused caller has to wait; `None` if waiting does not help.
    pub retry_after: Option<Duration>,
}

impl From<&Verdict> for Quota {
    fn from(verdict: &Verdict) -> Self {
        Self {
            capacity: verdict.capacity(),
            remaining: verdict.remaining(),
            window: Some(verdict.window()).filter(|window| !window.is_zero()),
            next_in: verdict.next_in(),
            full_in: verdict.full_in(),
            denied: !verdict.is_allowed(),
            retry_after: verdict.retry_after(),
        }
    }
}

impl From<&LaneState> for Quota {
    fn from(status: &LaneState) -> Self {
        Self {
            capacity: status.capacity(),
            remaining: status.remaining(),
            window: Some(status.window()).filter(|window| !window.is_zero()),
            next_in: status.next_in(),
            full_in: status.full_in(),
            denied: false,
            retry_after: None,
        }
    }
}

impl Quota {
    /// The wait in whole seconds, rounded up and at least 1: a wait of 0 would bring
    /// every client back at once. `None` if the request was not refused, or if
    /// waiting does not help.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.wait().map(|wait| ceil_seconds(wait).max(1))
    }

    /// The wait in milliseconds, rounded up and at least 1.
    #[must_use]
    pub fn retry_after_ms(&self) -> Option<u64> {
        let ms_up = |wait: Duration| wait.as_nanos().div_ceil(1_000_000).max(1);
        self.wait().map(|wait| u64::try_from(ms_up(wait)).unwrap_or(u64::MAX))
    }

    /// The same quota `elapsed` later. Times that have passed become zero; tokens
    /// that have come back are not counted.
    #[must_use]
    pub fn after(mut self, elapsed: Duration) -> Self {
        self.full_in = self.full_in.saturating_sub(elapsed);
        self.next_in = self.next_in.map(|next_in| next_in.saturating_sub(elapsed));
        self
    }

    fn wait(&self) -> Option<Duration> {
        self.retry_after.filter(|_| self.denied)
    }
}

/// Whole seconds, rounded up.
pub(crate) fn ceil_seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(retry_after: Option<Duration>) -> Quota {
        let full_in = Duration::from_secs(60);
        Quota { capacity: 1, remaining: 0, window: None, next_in: None, full_in, denied: true, retry_after }
    }

    #[test]
    fn waits_are_rounded_up_and_never_zero() {
        for (wait, seconds, ms) in [
            (Duration::ZERO, 1, 1),
            (Duration::from_nanos(1), 1, 1),
            (Duration::from_millis(999), 1, 999),
            (Duration::from_secs(1), 1, 1_000),
            (Duration::from_nanos(1_000_000_001), 2, 1_001),
            (Duration::MAX, u64::MAX, u64::MAX),
        ] {
            let quota = denied(Some(wait));
            assert_eq!((quota.retry_after_seconds(), quota.retry_after_ms()), (Some(seconds), Some(ms)), "{wait:?}");
        }
    }

    #[test]
    fn there_is_no_wait_where_it_does_not_help_and_none_for_admitted_requests() {
        assert_eq!(denied(None).retry_after_seconds(), None);
        let admitted = Quota { denied: false, ..denied(Some(Duration::from_secs(5))) };
        assert_eq!((admitted.retry_after_seconds(), admitted.retry_after_ms()), (None, None));
    }

    #[test]
    fn time_that_has_passed_is_taken_off() {
        let quota = Quota { next_in: Some(Duration::from_secs(2)), ..denied(None) };
        let later = quota.after(Duration::from_secs(3));
        assert_eq!((later.next_in, later.full_in), (Some(Duration::ZERO), Duration::from_secs(57)));
        assert_eq!(quota.after(Duration::MAX).full_in, Duration::ZERO);
    }
}
