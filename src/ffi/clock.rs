//! Clocks: where a limiter's time comes from.
//!
//! A limiter has a clock of its own unless tollgate_limiter_options names one.
//! Name one to share it between limiters, to choose its source, or to move
//! time by hand in a test. tollgate_snapshot reports the source of a limiter's
//! clock, and whether it had to fall back.

use super::Status;
use super::guard::guard;
use super::pointers::{borrow, hand_over, out, take_back, tell};
use crate as tollgate;
use std::time::Duration;

/// A source of time. Any number of limiters and threads may share one.
pub struct Clock {
    clock: tollgate::Clock,
    manual: Option<tollgate::ManualClock>,
}

impl Clock {
    pub(super) fn shared(&self) -> tollgate::Clock {
        self.clock.clone()
    }
}

/// Where a clock takes its time from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ClockSource {
    /// For tollgate_clock_new: the processor's counter if it is reliable, else OS.
    Auto = 0,
    /// In a snapshot only: the processor's time stamp counter, checked against
    /// the OS clock. AUTO chooses it.
    Tsc = 1,
    /// The system's monotonic clock. It stands still while the machine is suspended.
    Os = 2,
    /// The system's monotonic clock as of its last tick: the cheapest, up to 10 ms late.
    Coarse = 3,
    /// The system's monotonic clock that also runs while the machine is suspended.
    Boottime = 4,
    /// A clock that tollgate_clock_advance and tollgate_clock_set move. It starts at 0.
    Manual = 5,
}

impl From<tollgate::clock::ClockSource> for ClockSource {
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

/// Makes a clock from a tollgate_clock_source. Free it with tollgate_clock_free.
/// The first AUTO of a process takes about 10 ms to test the counter.
///
/// Status: INVALID_OPTION for any other number, TOLLGATE_CLOCK_SOURCE_TSC included.
///
/// # Safety
///
/// `clock_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_clock_new(source: i32, clock_out: *mut *mut Clock) -> Status {
    guard(|| {
        let clock_out = out(clock_out)?;
        let manual = (source == ClockSource::Manual as i32).then(tollgate::ManualClock::new);
        let clock = match (&manual, source) {
            (Some(manual), _) => manual.clone().into(),
            (_, source) if source == ClockSource::Auto as i32 => tollgate::Clock::auto(),
            (_, source) if source == ClockSource::Os as i32 => tollgate::Clock::os(),
            (_, source) if source == ClockSource::Coarse as i32 => tollgate::Clock::coarse(),
            (_, source) if source == ClockSource::Boottime as i32 => tollgate::Clock::boottime(),
            _ => return Err(Status::InvalidOption),
        };
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(clock_out, Clock { clock, manual }) };
        Ok(())
    })
}

/// Frees a clock. Limiters that use it keep it alive, but a manual clock can no
/// longer be moved. NULL is allowed.
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

/// Reads a clock, in nanoseconds since its origin.
///
/// # Safety
///
/// `clock` is NULL or a clock that is not freed; `now_ns_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_clock_now(clock: *const Clock, now_ns_out: *mut u64) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(clock, now_ns_out, |clock| Ok(clock.clock.now().as_nanos())) }
}

/// Moves a manual clock ahead. It stops after 36 years.
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

/// Sets a manual clock. A step back only makes answers stricter.
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
