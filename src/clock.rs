//! Time: instants, spans, and where they come from.
//!
//! Nothing below [`Limiter`](crate::Limiter) reads a clock; time always comes
//! in as a [`Tick`]. A tick is a nanosecond since the clock's origin, on a
//! clock that never steps back; the wall clock is never used for limits.

use crate::sync::{Counter, Ordering};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An instant: nanoseconds since the clock's origin, 60 bits of them (36 years).
///
/// ```
/// use std::time::Duration;
/// use tollgate::Tick;
///
/// let start = Tick::from_nanos(5);
/// assert_eq!(start.saturating_add(Duration::from_nanos(3)).as_nanos(), 8);
/// assert_eq!(Tick::from_nanos(u64::MAX), Tick::MAX);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tick(u64);

/// Bits of an instant. The other four bits of a lane's word are its generation.
pub(crate) const TICK_BITS: u32 = 60;

impl Tick {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);

    /// The last instant that can be told. At this instant everything is denied.
    pub const MAX: Self = Self((1 << TICK_BITS) - 1);

    /// The instant `nanos` nanoseconds after the origin, or [`Tick::MAX`] if that is later.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        if nanos > Self::MAX.0 { Self::MAX } else { Self(nanos) }
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `span` later, or [`Tick::MAX`] if that is out of range.
    #[must_use]
    pub fn saturating_add(self, span: Duration) -> Self {
        Self::from_nanos(self.0.saturating_add(nanos_saturating(span)))
    }

    /// The instant `span` earlier, or `None` if that is before the origin.
    #[must_use]
    pub fn checked_sub(self, span: Duration) -> Option<Self> {
        self.0.checked_sub(u64::try_from(span.as_nanos()).ok()?).map(Self)
    }

    /// The span since `earlier`, or zero if it is not earlier.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A span in nanoseconds, or the largest that fits.
pub(crate) fn nanos_saturating(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Where a limiter's time comes from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Clock {
    /// The operating system's monotonic clock, counted from when this clock was made.
    /// On Linux it stands still while the machine is suspended, which only
    /// makes a limiter stricter.
    Os(Instant),
    /// A clock that moves when it is told to: for tests and simulations.
    Manual(ManualClock),
}

impl Clock {
    /// The operating system's monotonic clock.
    #[must_use]
    pub fn os() -> Self {
        Clock::Os(Instant::now())
    }

    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Tick {
        match self {
            Clock::Os(origin) => Tick::from_nanos(nanos_saturating(origin.elapsed())),
            Clock::Manual(clock) => clock.now(),
        }
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Clock::Manual(clock)
    }
}

/// A clock that moves when it is told to. Clones share the same time.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, Tick};
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(clock.now(), Tick::from_nanos(2_000_000_000));
/// ```
#[derive(Clone, Default)]
pub struct ManualClock(Arc<Counter>);

impl ManualClock {
    /// A clock that stands at its origin.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The instant it stands at.
    #[must_use]
    pub fn now(&self) -> Tick {
        Tick::from_nanos(self.0.load(Ordering::Acquire))
    }

    /// Moves it ahead; it stops at [`Tick::MAX`].
    pub fn advance(&self, by: Duration) {
        let step = |nanos| Some(Tick(nanos).saturating_add(by).as_nanos());
        // `step` never refuses, so this ends with the first undisturbed exchange.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
    }

    /// Puts it at `now`, also back in time: a limiter then only gets stricter.
    pub fn set(&self, now: Tick) {
        self.0.store(now.as_nanos(), Ordering::Release);
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ticks_saturate_at_both_ends() {
        assert_eq!(Tick::MAX.saturating_add(Duration::MAX), Tick::MAX);
        assert_eq!(Tick::ZERO.saturating_since(Tick::MAX), Duration::ZERO);
        assert_eq!(Tick::MAX.as_nanos(), 1_152_921_504_606_846_975);
    }

    #[test]
    fn manual_clock_is_shared_and_stops_at_the_range() {
        let clock = ManualClock::new();
        let same = clock.clone();
        clock.advance(Duration::from_secs(1));
        assert_eq!(same.now().as_nanos(), 1_000_000_000);
        clock.advance(Duration::MAX);
        assert_eq!(same.now(), Tick::MAX);
        same.set(Tick::ZERO);
        assert_eq!(clock.now(), Tick::ZERO);
    }

    #[test]
    fn os_clock_never_steps_back() {
        let clock = Clock::os();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last, "{now:?} after {last:?}");
            last = now;
        }
    }
}
