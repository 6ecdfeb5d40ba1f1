//! The wall clock, needed for calendar windows only.
//!
//! A limiter keeps the largest lead that it has seen the wall clock have over
//! its own clock. So its calendar never goes back: a wall clock that is set
//! back does not reopen a window, and one that was set ahead by mistake keeps
//! the calendar ahead until the process ends.

use super::{Clock, Source, Tick};
use crate::sync::{Counter, Ordering};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where a limiter reads the date, for [budgets](crate::Limit::budget).
#[derive(Clone)]
pub struct WallClock(WallSource);

#[derive(Clone)]
enum WallSource {
    Os,
    Manual(ManualWallClock),
}

impl WallClock {
    /// The operating system's clock.
    #[must_use]
    pub const fn os() -> Self {
        Self(WallSource::Os)
    }

    /// Nanoseconds since 1970 UTC.
    fn unix_ns(&self) -> i64 {
        match &self.0 {
            WallSource::Os => nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
            WallSource::Manual(clock) => clock.0.load(Ordering::Acquire) as i64,
        }
    }
}

impl From<ManualWallClock> for WallClock {
    fn from(clock: ManualWallClock) -> Self {
        Self(WallSource::Manual(clock))
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WallClock").field(&Duration::from_nanos(self.unix_ns().unsigned_abs())).finish()
    }
}

/// A wall clock that shows what you set. Clones share the same time.
///
/// ```
/// use std::time::Duration;
/// use tollgate::clock::ManualWallClock;
///
/// let clock = ManualWallClock::new(Duration::from_secs(1_800_000_000));
/// clock.set(Duration::from_secs(1_799_999_999)); // Back by a second.
/// ```
#[derive(Clone, Debug)]
pub struct ManualWallClock(Arc<Counter>);

impl ManualWallClock {
    /// A clock that shows this time, counted from 1970 UTC.
    #[must_use]
    pub fn new(since_1970: Duration) -> Self {
        Self(Arc::new(Counter::new(nanos(since_1970) as u64)))
    }

    /// Sets it to this time, forward or back.
    pub fn set(&self, since_1970: Duration) {
        self.0.store(nanos(since_1970) as u64, Ordering::Release);
    }
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

/// How far the calendar is ahead of a limiter's clock, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offset(i64);

/// An instant and its date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) now: Tick,
    pub(crate) offset: Offset,
}

impl At {
    /// Nanoseconds since 1970 UTC.
    pub(crate) fn unix_ns(self) -> i64 {
        (self.now.as_nanos() as i64).saturating_add(self.offset.0)
    }

    /// Another instant in the same calendar.
    pub(crate) fn with(self, now: Tick) -> Self {
        Self { now, ..self }
    }
}

/// How long one reading of the wall clock is good for.
const COMPARED_FOR: Duration = Duration::from_secs(1);

/// A limiter's calendar.
pub(crate) struct DateClock {
    /// If `None`, the limiter's clock counts from 1970 UTC.
    wall: Option<WallClock>,
    /// The largest offset seen, with its sign bit flipped so that offsets
    /// compare in order; 0 if none was seen.
    offset: Counter,
    /// When it was last compared, in nanoseconds of the limiter's clock.
    compared_at: Counter,
}

impl DateClock {
    /// With the operating system's wall clock, unless given another; a
    /// [`ManualClock`](super::ManualClock) counts from 1970 UTC.
    pub(crate) fn new(wall: Option<WallClock>, clock: &Clock) -> Self {
        let own = if matches!(clock.0, Source::Manual(_)) { None } else { Some(WallClock::os()) };
        Self { wall: wall.or(own), offset: Counter::new(0), compared_at: Counter::new(0) }
    }

    /// Keeps the calendar from going back before this, in nanoseconds since
    /// 1970 UTC. Returns how far ahead that puts it.
    #[cfg(feature = "persist")]
    pub(crate) fn raise(&self, clock: &Clock, unix_ns: i64) -> Duration {
        let at = At { offset: self.offset(clock), now: clock.now() };
        let offset = turned(unix_ns.saturating_sub(at.now.as_nanos() as i64) as u64);
        self.offset.fetch_max(offset, Ordering::Relaxed);
        Duration::from_nanos(u64::try_from(unix_ns.saturating_sub(at.unix_ns())).unwrap_or(0))
    }

    pub(crate) fn offset(&self, clock: &Clock) -> Offset {
        let seen = self.offset.load(Ordering::Relaxed);
        let Some(wall) = &self.wall else {
            return Offset(if seen == 0 { 0 } else { (turned(seen) as i64).max(0) });
        };
        let age = clock.now().as_nanos().saturating_sub(self.compared_at.load(Ordering::Relaxed));
        if seen != 0 && matches!(wall.0, WallSource::Os) && age < COMPARED_FOR.as_nanos() as u64 {
            return Offset(turned(seen) as i64);
        }
        // The wall clock first: time that passes between the two readings makes
        // the offset smaller, and the largest counts.
        let unix_ns = wall.unix_ns();
        let now = clock.now().as_nanos();
        self.compared_at.store(now, Ordering::Relaxed);
        let offset = turned(unix_ns.saturating_sub(now as i64) as u64);
        Offset(turned(self.offset.fetch_max(offset, Ordering::Relaxed).max(offset)) as i64)
    }
}

const fn turned(offset: u64) -> u64 {
    offset ^ 1 << 63
}
