//! Time: instants, spans, and where they come from.
//!
//! Nothing below `engine` reads a clock; there, time always comes
//! in as a [`Tick`]. A tick is a nanosecond since the clock's origin, on a
//! clock that never steps back; the wall clock is used for calendar windows alone.
//!
//! | file | what |
//! |---|---|
//! | `os.rs` | the kernel's clocks |
//! | `tsc.rs` | the counter clock: the processor's counter, held to the OS clock |
//! | `trust.rs` | whether that counter can be trusted, decided once |
//! | `anchor.rs` | the present anchor of the counter clock, never read half-written |
//! | `wall.rs` | the date, for calendar windows |
//! | `sources.rs` | the counter and the OS clock it reads, and fakes for tests |
//! | `hook.rs` | for tests: runs code between a reading and its use |
//! | `kind.rs` (feature `shared`) | which clocks of two processes can be compared |
//! | `wait.rs` | waits as protocols present them |

mod anchor;
#[cfg(feature = "shared")]
mod kind;
mod os;
mod sources;
mod trust;
mod tsc;
mod wait;
pub(crate) mod wall;

#[cfg(feature = "shared")]
pub(crate) use self::kind::ClockKind;
pub use self::wait::wait_ms;
pub(crate) use self::wall::{At, DateClock, Offset};
pub use self::wall::{ManualWallClock, WallClock};

use self::os::OsClock;
use self::sources::Machine;
use self::tsc::CounterClock;
use crate::sync::{Counter, Ordering};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

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

    /// The last instant that can be represented. At this instant everything is denied.
    pub const MAX: Self = Self((1 << TICK_BITS) - 1);

    /// The instant `nanos` nanoseconds after the origin, or [`Tick::MAX`] if that is later.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        if nanos > Self::MAX.0 { Self::MAX } else { Self(nanos) }
    }

    /// The instant `nanos` nanoseconds after the origin, which is not after [`Tick::MAX`].
    #[inline]
    const fn within_range(nanos: u64) -> Self {
        debug_assert!(nanos <= Self::MAX.0);
        Self(nanos)
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
///
/// | clock | cost of a reading | notes |
/// |---|---|---|
/// | [`auto`](Clock::auto) | about 10 ns, with the counter | the default; falls back to the OS clock |
/// | [`os`](Clock::os) | 2 to 3 times that | stops while the machine is suspended |
/// | [`boottime`](Clock::boottime) | as `os` | keeps running while the machine is suspended |
/// | [`coarse`](Clock::coarse) | half the counter's | off by up to a kernel tick, 1 to 10 ms |
/// | [`ManualClock`] | next to nothing | for tests and simulations |
///
/// `auto`, `os` and `coarse` count from the kernel's origin, which is the same
/// in every process of the machine. Clones share all state, so they agree.
///
/// ```
/// use tollgate::clock::ClockSource;
/// use tollgate::{Clock, Limit, Limiter, Policy};
///
/// let policy = Policy::builder().lane("http", Limit::per_minute(60)).build()?;
/// let limiter = Limiter::builder(policy).agents(10).clock(Clock::os()).build()?;
/// let now = limiter.now();
/// assert!(limiter.now() >= now);
///
/// let clock = Clock::auto();
/// assert!(matches!(clock.source(), ClockSource::Tsc | ClockSource::Os));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Clock(Source);

/// What a [`Clock`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClockSource {
    /// The processor's time stamp counter, compared with the OS clock about once a second.
    Tsc,
    /// The operating system's monotonic clock.
    Os,
    /// The operating system's monotonic clock at its last tick.
    Coarse,
    /// The operating system's clock that keeps running while the machine is suspended.
    Boottime,
    /// A [`ManualClock`].
    Manual,
}

#[derive(Clone)]
enum Source {
    Counter(&'static CounterClock<Machine>),
    Os(OsClock),
    Manual(ManualClock),
}

impl Clock {
    /// The processor's time stamp counter where it can be trusted, else the
    /// operating system's monotonic clock. The default.
    ///
    /// The counter is trusted if this is an x86-64 machine whose kernel uses
    /// the counter itself (its clock source is `tsc`), the processor promises
    /// that it is invariant, and it keeps one rate against the OS clock for
    /// 8 ms. The first call in a process takes that long; later ones share its result.
    ///
    /// From then on it is compared with the OS clock about once a second, and
    /// steered towards it. If they ever differ by more than 1 ms plus 0.1 % of
    /// the time since the last comparison, the whole process switches to the OS
    /// clock for good, as [`source`](Clock::source) and
    /// [`fallbacks`](Clock::fallbacks) show. That happens after a suspend, and
    /// may happen after a virtual machine has moved.
    ///
    /// It never steps back, not even then: time stands still until the OS clock
    /// has caught up, for a second at most, and a limiter is stricter
    /// meanwhile. The one exception is a counter that itself jumps back, by
    /// less than it has run since the last comparison: it takes time back with
    /// it until the next comparison. An older time only makes a limiter
    /// stricter.
    #[must_use]
    pub fn auto() -> Self {
        match trust::machine_clock() {
            Some(clock) => Self(Source::Counter(clock)),
            None => Self::os(),
        }
    }

    /// The operating system's monotonic clock.
    ///
    /// On Linux it stops while the machine is suspended, which only makes a
    /// limiter stricter: agents get back later what they would have got back
    /// meanwhile.
    #[must_use]
    pub fn os() -> Self {
        Self(Source::Os(OsClock::Monotonic))
    }

    /// The operating system's monotonic clock at the kernel's last tick: the
    /// cheapest of the real clocks.
    ///
    /// Its price: a reading lags by up to one tick (1 to 10 ms, depending on the kernel). So the span between two
    /// readings is wrong by up to a tick in either direction: a token may come back up to one tick early, or one tick
    /// late, and a burst may be larger by what one tick refills. The error does not accumulate. Use it where limits are
    /// per second or slower.
    ///
    /// Systems other than Linux have no such clock; there it is the same as [`os`](Clock::os).
    ///
    /// ```
    /// use tollgate::clock::ClockSource;
    /// use tollgate::Clock;
    ///
    /// let (coarse, exact) = (Clock::coarse().now(), Clock::os().now());
    /// assert!(coarse <= exact);
    /// assert_eq!(Clock::coarse().source(), ClockSource::Coarse);
    /// ```
    #[must_use]
    pub fn coarse() -> Self {
        Self(Source::Os(OsClock::Coarse))
    }

    /// The operating system's clock that keeps running while the machine is
    /// suspended, so that agents get back what they would have got back
    /// meanwhile.
    ///
    /// Systems other than Linux have no such clock; there it is the same as [`os`](Clock::os).
    ///
    /// ```
    /// use tollgate::clock::ClockSource;
    /// use tollgate::Clock;
    ///
    /// let clock = Clock::boottime();
    /// assert_eq!(clock.source(), ClockSource::Boottime);
    /// ```
    #[must_use]
    pub fn boottime() -> Self {
        Self(Source::Os(OsClock::Boottime))
    }

    /// The present instant.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Tick {
        match &self.0 {
            Source::Counter(clock) => Tick::within_range(clock.now()),
            Source::Os(clock) => Tick::from_nanos(clock.nanos()),
            Source::Manual(clock) => clock.now(),
        }
    }

    /// What it reads at present. For [`Clock::auto`] that is what was chosen,
    /// and [`ClockSource::Os`] after a fallback.
    ///
    /// ```
    /// use tollgate::clock::ClockSource;
    /// use tollgate::{Clock, ManualClock};
    ///
    /// assert_eq!(Clock::os().source(), ClockSource::Os);
    /// assert_eq!(Clock::from(ManualClock::new()).source(), ClockSource::Manual);
    /// ```
    #[must_use]
    pub fn source(&self) -> ClockSource {
        match &self.0 {
            Source::Counter(clock) if !clock.has_fallen_back() => ClockSource::Tsc,
            Source::Counter(_) | Source::Os(OsClock::Monotonic) => ClockSource::Os,
            Source::Os(OsClock::Coarse) => ClockSource::Coarse,
            Source::Os(OsClock::Boottime) => ClockSource::Boottime,
            Source::Manual(_) => ClockSource::Manual,
        }
    }

    /// How often a trusted counter disagreed with the OS clock and was given
    /// up: 0 or 1, since a fallback is final. Only [`Clock::auto`] falls back;
    /// never having trusted the counter does not count.
    ///
    /// ```
    /// use tollgate::Clock;
    ///
    /// assert_eq!(Clock::os().fallbacks(), 0);
    /// ```
    #[must_use]
    pub fn fallbacks(&self) -> u64 {
        match &self.0 {
            Source::Counter(clock) => clock.fallbacks(),
            Source::Os(_) | Source::Manual(_) => 0,
        }
    }
}

impl From<ManualClock> for Clock {
    fn from(clock: ManualClock) -> Self {
        Self(Source::Manual(clock))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut clock = f.debug_struct("Clock");
        clock.field("source", &self.source()).field("now", &self.now()).field("fallbacks", &self.fallbacks()).finish()
    }
}

/// A clock that moves only when you move it. Clones share the same time.
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
    /// A clock at its origin.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Its present instant.
    #[must_use]
    pub fn now(&self) -> Tick {
        let now = Tick::from_nanos(self.0.load(Ordering::Acquire));
        #[cfg(all(test, not(loom)))]
        hook::after_reading();
        now
    }

    /// Moves it ahead; it stops at [`Tick::MAX`].
    pub fn advance(&self, by: Duration) {
        let step = |nanos| Some(Tick(nanos).saturating_add(by).as_nanos());
        // `step` never refuses, so this ends with the first undisturbed exchange.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
    }

    /// Sets it to `now`, forward or back. Going back only makes a limiter stricter.
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
pub(crate) mod hook;

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
    fn clones_of_a_manual_clock_share_its_time_and_it_stops_at_the_last_instant() {
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
    fn every_clock_reports_its_source() {
        let manual = ManualClock::new();
        let clocks = [Clock::os(), Clock::coarse(), Clock::boottime(), manual.clone().into()];
        let sources = [ClockSource::Os, ClockSource::Coarse, ClockSource::Boottime, ClockSource::Manual];
        for (clock, source) in clocks.into_iter().zip(sources) {
            assert_eq!((clock.source(), clock.fallbacks()), (source, 0), "{clock:?}");
        }
        let clock = Clock::from(manual.clone());
        manual.advance(Duration::from_secs(1));
        assert_eq!(clock.clone().now(), manual.now());
    }

    /// Which of the two it is depends on the machine. That both calls and the
    /// clones agree does not.
    #[test]
    fn auto_chooses_once_in_a_process() {
        let (clock, other) = (Clock::auto(), Clock::auto());
        let counter = |clock: &Clock| match clock.0 {
            Source::Counter(clock) => Some(std::ptr::from_ref(clock)),
            _ => None,
        };
        assert!(counter(&clock) == counter(&other) && counter(&clock) == counter(&clock.clone()));
        let expected = match counter(&clock) {
            Some(_) if clock.fallbacks() == 0 => ClockSource::Tsc,
            _ => ClockSource::Os,
        };
        assert_eq!(clock.source(), expected);
    }

    #[test]
    fn auto_never_steps_back() {
        let clock = Clock::auto();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last, "{now:?} after {last:?} on {clock:?}");
            last = now;
        }
    }
}
