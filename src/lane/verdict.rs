//! The answer to a check.

use super::finding::{Decision, Finding};
use super::left::{Left, LeftWord};
use crate::clock::nanos_saturating;
use std::time::Duration;

/// The answer to a check: may the agent do it, and what is left.
///
/// ```
/// use tollgate::{Decision, Limit, Limiter, ManualClock, Policy};
///
/// let policy = Policy::builder().lane("http", Limit::per_minute(2)).build()?;
/// let limiter = Limiter::builder(policy).agents(10).clock(ManualClock::new()).build()?;
/// let http = limiter.lane("http").expect("named above");
///
/// let first = limiter.check("agent-7", http)?;
/// assert_eq!((first.decision(), first.remaining(), first.capacity()), (Decision::Allow, 1, 2));
/// limiter.check("agent-7", http)?;
///
/// let third = limiter.check("agent-7", http)?;
/// assert!(!third.is_allowed());
/// assert_eq!(third.retry_after(), Some(std::time::Duration::from_secs(30)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a verdict says whether the request may go on"]
pub struct Verdict {
    pub(crate) finding: Finding,
    pub(crate) capacity: u64,
    /// Read it through [`left`](Verdict::left).
    pub(super) left: LeftWord,
    pub(crate) retry_after_ns: u64,
    pub(crate) full_in_ns: u64,
}

/// The wait of a denial where no wait helps.
pub(crate) const RETRY_NEVER: u64 = u64::MAX;

impl Verdict {
    pub(crate) const EXEMPT: Self = Self {
        finding: Finding::EXEMPT,
        capacity: u64::MAX,
        left: LeftWord::refills(1),
        retry_after_ns: 0,
        full_in_ns: 0,
    };

    /// The verdict of a lane that counts. `window_ns` is the length of its window.
    pub(super) const fn counted(
        finding: Finding,
        capacity: u64,
        left: u64,
        retry_after_ns: u64,
        full_in_ns: u64,
        window_ns: u64,
    ) -> Self {
        let left = LeftWord::counted(left, window_ns);
        Self { finding: finding.counting(), capacity, left, retry_after_ns, full_in_ns }
    }

    /// The verdict of a lane that refills.
    #[cfg(feature = "cluster")]
    #[inline(always)]
    pub(super) const fn refilling(
        finding: Finding,
        capacity: u64,
        token_ns: u64,
        retry_after_ns: u64,
        full_in_ns: u64,
    ) -> Self {
        Self { finding, capacity, left: LeftWord::refills(token_ns), retry_after_ns, full_in_ns }
    }

    /// What is left, in the form of the lane's kind.
    #[inline(always)]
    pub(super) const fn left(&self) -> Left {
        self.left.read(self.finding.form())
    }

    /// How long a token takes to come back, in nanoseconds; 0 if the lane counts.
    #[inline(always)]
    pub(crate) const fn token_ns(&self) -> u64 {
        match self.left() {
            Left::Refills { token_ns } => token_ns,
            Left::Counted { .. } => 0,
        }
    }

    /// What is left of a count; 0 if the lane is a bucket.
    #[cfg(any(feature = "capi", all(test, not(loom))))]
    #[inline(always)]
    pub(crate) const fn count_left(&self) -> u64 {
        match self.left() {
            Left::Refills { .. } => 0,
            Left::Counted { left, .. } => left,
        }
    }

    /// Whether the request may go on.
    pub const fn decision(&self) -> Decision {
        self.finding.decision()
    }

    /// Whether the request may go on, with or without a warning or a limit.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        !self.finding.is_denial()
    }

    /// The same without a warning.
    pub(crate) const fn without_warning(self) -> Self {
        Self { finding: self.finding.with_decision(Finding::ALLOW), ..self }
    }

    /// The same with a warning.
    pub(crate) const fn with_warning(self) -> Self {
        Self { finding: self.finding.with_decision(Finding::WARN), ..self }
    }

    /// The denial of a [counted](crate::Request::counted) request: its number
    /// among the agent's violations in a row, or 0 if it is not a violation,
    /// and the wait for conduct.
    pub(crate) fn judged(self, in_a_row: u32, sustained_abuse: bool, wait: Duration) -> Self {
        Self { finding: self.finding.judged(in_a_row, sustained_abuse, nanos_saturating(wait)), ..self }
    }

    /// How many violations in a row the agent has, if this denial is a violation.
    /// Counts to 15. 0 for every other verdict, and unless the request was
    /// [counted](crate::Request::counted).
    #[must_use]
    pub const fn violations_in_a_row(&self) -> u32 {
        self.finding.conduct().0
    }

    /// Whether this denial made the agent's conduct sustained abuse. Reported
    /// once, and again only after a window without a violation.
    #[must_use]
    pub const fn is_sustained_abuse(&self) -> bool {
        self.finding.conduct().1
    }

    /// Whole tokens left after this request; `u64::MAX` for an exempt agent.
    #[must_use]
    #[inline]
    pub const fn remaining(&self) -> u64 {
        match self.left() {
            Left::Counted { left, .. } => left,
            Left::Refills { token_ns: 0 } => 0, // No verdict has that.
            // A token that is partly missing is missing.
            Left::Refills { token_ns } => self.capacity.saturating_sub(self.full_in_ns.div_ceil(token_ns)),
        }
    }

    /// What the lane holds when it is full; `u64::MAX` for an exempt agent.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How long a denied caller has to wait until the same request would pass:
    /// the longer of [the lane's wait](Self::lane_wait) and [the wait for
    /// conduct](Self::conduct_wait). `None` if the request was allowed, or if no
    /// wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.lane_wait().map(|wait| wait.max(self.conduct_wait()))
    }

    /// How long until the lane would let the same request pass, exact to the
    /// nanosecond. `None` if the request was allowed, or if no wait helps.
    #[must_use]
    pub const fn lane_wait(&self) -> Option<Duration> {
        match self.retry_after_ns {
            nanos if self.finding.is_denial() && nanos != RETRY_NEVER => Some(Duration::from_nanos(nanos)),
            _ => None,
        }
    }

    /// How long a denied agent has to wait for its conduct: zero if the policy
    /// has no curve, or the request was not [counted](crate::Request::counted).
    #[must_use]
    pub const fn conduct_wait(&self) -> Duration {
        Duration::from_nanos(self.finding.conduct_wait_ns())
    }

    /// How long until there is one more whole token than now; `None` if there
    /// never will be, because the lane is full or denies everything. For a lane
    /// that is not a bucket: how long until it is full again, or until a denied
    /// request would pass, if that is sooner; [`peek`](crate::Limiter::peek) is
    /// exact.
    #[must_use]
    pub const fn next_in(&self) -> Option<Duration> {
        let nanos = match self.left() {
            Left::Counted { .. } if self.finding.is_denial() && self.retry_after_ns < self.full_in_ns => {
                self.retry_after_ns
            }
            Left::Counted { .. } => self.full_in_ns,
            Left::Refills { token_ns: 0 } => 0, // No verdict has that.
            Left::Refills { token_ns } => {
                let missing = match self.full_in_ns.div_ceil(token_ns) {
                    // More debt than the capacity, which a clock that stepped back can show.
                    missing if missing > self.capacity => self.capacity,
                    missing => missing,
                };
                // No overflow: all missing tokens but one take less than the debt.
                if missing == 0 { 0 } else { self.full_in_ns - (missing - 1) * token_ns }
            }
        };
        if nanos == 0 { None } else { Some(Duration::from_nanos(nanos)) }
    }

    /// How long until the lane is full again, if nothing more is charged.
    #[must_use]
    pub const fn full_in(&self) -> Duration {
        Duration::from_nanos(self.full_in_ns)
    }

    /// How long an empty lane takes to be full again: the capacity at the
    /// rate of the limit that was applied. Zero if it denies everything.
    ///
    /// If the lane has a window, the window's length, rounded up to the
    /// millisecond, or to the second from an hour on.
    #[must_use]
    pub const fn window(&self) -> Duration {
        Duration::from_nanos(match self.left() {
            Left::Refills { token_ns } => self.capacity.saturating_mul(token_ns),
            Left::Counted { window_ns, .. } => window_ns,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_has_the_form_of_its_lane_whatever_is_decided_later() {
        let counted = Verdict::counted(Finding::WARN, 10, 1, 0, 5, 60_000_000_000);
        let bucket = Verdict { left: LeftWord::refills(20), full_in_ns: 41, capacity: 10, ..Verdict::EXEMPT };
        assert_eq!((counted.token_ns(), counted.count_left()), (0, 1));
        assert_eq!((bucket.token_ns(), bucket.count_left(), bucket.remaining()), (20, 0, 7));
        for verdict in [counted, bucket] {
            let judged = verdict.judged(3, true, Duration::from_secs(1));
            for other in [verdict.without_warning(), verdict.with_warning(), judged] {
                assert_eq!(other.left(), verdict.left());
            }
            assert_eq!(verdict.without_warning().decision(), Decision::Allow);
            assert_eq!(verdict.with_warning().decision(), Decision::Warn);
            assert_eq!(judged.decision(), Decision::Deny);
        }
    }
}
