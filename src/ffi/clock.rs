//! Clocks.

use super::Status;
use super::guard::guard;
use super::pointers::{borrow, hand_over, out, take_back, tell};
use crate as tollgate;
use std::time::Duration;

/// Where a limiter's time comes from.
///
/// A limiter without one has a clock of its own of the kind
/// TOLLGATE_TIME_SOURCE_AUTO. Any number of limiters may share one, and any
/// number of threads may use it at once.
pub struct Clock {
    clock: tollgate::Clock,
    manual: Option<tollgate::ManualClock>,
}

impl Clock {
    pub(super) fn shared(&self) -> tollgate::Clock {
        self.clock.clone()
    }
}

/// What a clock reads. All count nanoseconds and never the wall clock's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum TimeSource {
    /// The processor's counter where it can be trusted, else
    /// TOLLGATE_TIME_SOURCE_OS. To choose, not to be told.
    Auto = 0,
    /// The processor's time stamp counter, held to the OS clock. To be told,
    /// not to choose: it is what TOLLGATE_TIME_SOURCE_AUTO takes if it can.
    Tsc = 1,
    /// The system's monotonic clock. It stands still while the machine is suspended.
    Os = 2,
    /// The system's monotonic clock as of its last tick, 1 to 10 ms off: the cheapest.
    Coarse = 3,
    /// The system's clock that goes on while the machine is suspended.
    Boottime = 4,
    /// A clock that moves when it is told to, for tests and simulations. It starts at 0.
    Manual = 5,
}

impl From<tollgate::clock::ClockSource> for TimeSource {
    fn from(source: tollgate::clock::ClockSource) -> Self {
        match source {
            tollgate::clock::ClockSource::Tsc => Self::Tsc,
            tollgate::clock::ClockSource::Os => Self::Os,
            tollgate::clock::ClockSource::Coarse => Self::Coarse,
            tollgate::clock::ClockSource::Boottime => Self::Boottime,
            tollgate::clock::ClockSource::Manual => Self::Manual,
        }
    }
}

/// Makes a clock. `source` is one of TOLLGATE_TIME_SOURCE_AUTO, _OS, _COARSE,
/// _BOOTTIME and _MANUAL.
///
/// The caller owns the clock and gives it back with tollgate_clock_free, which
/// limiters that use it outlive. The first AUTO of a process takes some 10 ms
/// to judge the counter.
///
/// Status: INVALID_OPTION for any other source.
///
/// # Safety
///
/// `clock_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_clock_new(source: i32, clock_out: *mut *mut Clock) -> Status {
    guard(|| {
        let clock_out = out(clock_out)?;
        let manual = (source == TimeSource::Manual as i32).then(tollgate::ManualClock::new);
        let clock = match (&manual, source) {
            (Some(manual), _) => manual.clone().into(),
            (_, source) if source == TimeSource::Auto as i32 => tollgate::Clock::auto(),
            (_, source) if source == TimeSource::Os as i32 => tollgate::Clock::os(),
            (_, source) if source == TimeSource::Coarse as i32 => tollgate::Clock::coarse(),
            (_, source) if source == TimeSource::Boottime as i32 => tollgate::Clock::boottime(),
            _ => return Err(Status::InvalidOption),
        };
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(clock_out, Clock { clock, manual }) };
        Ok(())
    })
}

/// Gives a clock back. NULL is fine. Limiters that were made with it keep what
/// they need of it.
///
/// # Safety
///
/// `clock` is NULL, or came from tollgate_clock_new, was not freed yet, and is
/// in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_clock_free(clock: *mut Clock) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(clock) }
}

/// The present instant, in nanoseconds since the clock's origin.
///
/// # Safety
///
/// `clock` is NULL or a clock that is not freed; `now_ns_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_clock_now(clock: *const Clock, now_ns_out: *mut u64) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(clock, now_ns_out, |clock| Ok(clock.clock.now().as_nanos())) }
}

/// What the clock reads at present: never TOLLGATE_TIME_SOURCE_AUTO, but what
/// that has chosen, and TOLLGATE_TIME_SOURCE_OS once it has given the counter up.
///
/// # Safety
///
/// `clock` is NULL or a clock that is not freed; `source_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_clock_source(clock: *const Clock, source_out: *mut TimeSource) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(clock, source_out, |clock| Ok(clock.clock.source().into())) }
}

/// How often a trusted counter was found to disagree with the system's clock
/// and was given up: 0, or 1 since that is for good.
///
/// # Safety
///
/// `clock` is NULL or a clock that is not freed; `fallbacks_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_clock_fallbacks(clock: *const Clock, fallbacks_out: *mut u64) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(clock, fallbacks_out, |clock| Ok(clock.clock.fallbacks())) }
}

/// Moves a manual clock ahead. It stops after 36 years; then everything is denied.
///
/// Status: NOT_MANUAL.
///
/// # Safety
///
/// `clock` is NULL or a clock that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_clock_advance(clock: *mut Clock, by_ns: u64) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let clock = unsafe { borrow(clock) }?;
        clock.manual.as_ref().ok_or(Status::NotManual)?.advance(Duration::from_nanos(by_ns));
        Ok(())
    })
}

/// Puts a manual clock at an instant, also back in time: a limiter then only
/// gets stricter.
///
/// Status: NOT_MANUAL.
///
/// # Safety
///
/// `clock` is NULL or a clock that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_clock_set(clock: *mut Clock, now_ns: u64) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let clock = unsafe { borrow(clock) }?;
        clock.manual.as_ref().ok_or(Status::NotManual)?.set(tollgate::Tick::from_nanos(now_ns));
        Ok(())
    })
}
