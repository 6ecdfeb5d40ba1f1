//! Rate-limited log lines about denials: a line for the first denial of an agent,
//! then a count each minute, and a summary every five minutes.

use super::Status;
use super::guard::guard;
use super::pointers::{agent, borrow, hand_over, instant, out, put_text, take_back, tell};
use crate as tollgate;
use crate::clock::Tick;
use crate::machine::process::unforked;
use std::collections::VecDeque;
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Turns many denials into a few log lines.
// It has two locks. No fork happens while a thread holds one: see `unforked`.
pub struct LogThrottle {
    log: tollgate::observe::LogThrottle,
    /// Lines that are due and were not taken yet.
    lines: Mutex<VecDeque<String>>,
}

impl LogThrottle {
    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a line is due for this denial. It is kept.
    fn denied(&self, id: &[u8], now: Tick) -> bool {
        let line = self.log.denied(id, now);
        let is_due = line.is_some();
        if is_due {
            self.keep(line);
        }
        is_due
    }

    /// Keeps lines until they are taken. If nobody takes them, the last ones stay.
    fn keep(&self, lines: impl IntoIterator<Item = tollgate::observe::LogLine>) {
        const KEPT: usize = 1_024;
        let mut kept = self.lines();
        kept.extend(lines.into_iter().map(|line| format!("{}: {line}", line.level())));
        let more = kept.len().saturating_sub(KEPT);
        kept.drain(..more);
    }
}

/// Makes a log throttle. Free it with tollgate_log_throttle_free.
///
/// # Safety
///
/// `log_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_log_throttle_new(log_out: *mut *mut LogThrottle) -> Status {
    guard(|| {
        let log_out = out(log_out)?;
        let log = LogThrottle { log: tollgate::observe::LogThrottle::new(), lines: Mutex::default() };
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(log_out, log) };
        Ok(())
    })
}

/// Frees a log throttle. NULL is allowed.
///
/// # Safety
///
/// `log` is NULL, or came from tollgate_log_throttle_new, was not freed yet,
/// and is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_log_throttle_free(log: *mut LogThrottle) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(log) }
}

/// Reports a denial. line_out gets whether that makes a line due, which
/// tollgate_log_throttle_line then takes. now_ns is an instant, for example of
/// tollgate_limiter_now: a log throttle has no clock.
///
/// Status: EMPTY_ID, ID_TOO_LONG, INVALID_OPTION for TOLLGATE_NOW.
///
/// # Safety
///
/// `log` is NULL, or not freed; `id` is NULL or readable for `id_len` bytes;
/// `line_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_log_throttle_denied(
    log: *mut LogThrottle,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
    line_out: *mut bool,
) -> Status {
    let denied = |log: &LogThrottle| {
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let id = unsafe { agent(id, id_len) }?;
        if id.is_empty() {
            return Err(Status::EmptyId);
        }
        let now = instant(now_ns).ok_or(Status::InvalidOption)?;
        Ok(unforked(|| log.denied(id, now)))
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(log.cast_const(), line_out, denied) }
}

/// Takes the oldest line that is due at this instant, without a newline. It begins
/// with "INFO: ", "THROTTLE: " or "SUMMARY: ". If no line is due, the length is 0.
/// Call it until then: after a denial that made a line due, and every few seconds.
/// Of lines that are not taken the last 1,024 stay.
///
/// A call that asks for the length alone, or whose buffer is too small, takes no
/// line.
///
/// Status: BUFFER_TOO_SMALL, INVALID_OPTION for TOLLGATE_NOW.
///
/// # Safety
///
/// `log` is NULL, or not freed; `line_out` is NULL or writable for `line_size`
/// bytes; `line_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_log_throttle_line(
    log: *mut LogThrottle,
    now_ns: u64,
    line_out: *mut c_char,
    line_size: usize,
    line_len_out: *mut usize,
) -> Status {
    guard(|| {
        out(line_len_out)?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let log = unsafe { borrow(log) }?;
        let now = instant(now_ns).ok_or(Status::InvalidOption)?;
        unforked(|| {
            log.keep(log.log.due(now));
            let mut lines = log.lines();
            let line = lines.front().map_or("", String::as_str);
            // SAFETY: the buffer and the length are as this function's contract has them.
            unsafe { put_text(line, line_out, line_size, line_len_out) }?;
            if !line_out.is_null() {
                lines.pop_front();
            }
            Ok(())
        })
    })
}
