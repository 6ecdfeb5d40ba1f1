//! The report: what an operator wants to know, as JSON. And ids in a form that is
//! safe to show.

use super::failure::{Failure, guard_error};
use super::guard::guard;
use super::pointers::{agent, borrow, bytes, put_text};
use super::{Error, Limiter, Status};
use crate as tollgate;
use std::ffi::{c_char, c_void};
use std::fmt::Display;
use tollgate::observe::ShownId;

/// Counts, the worst offenders and the busiest agents, as JSON. Make the buffer
/// larger than the length that a first call reports, since the report may grow
/// between two calls.
///
/// Status: BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `json_out` is NULL or
/// writable for `json_size` bytes; `json_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_report(
    limiter: *const Limiter,
    json_out: *mut c_char,
    json_size: usize,
    json_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let report = unsafe { borrow(limiter) }?.0.report();
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(&report, json_out, json_size, json_len_out) }
    })
}

/// Writes the report to a file, which it replaces in one step: a reader sees the
/// old report or the new one. Call it from a timer. The path is any bytes without
/// a NUL. Needs TOLLGATE_FEATURE_PERSIST.
///
/// Status: FILE, TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `path` is NULL or readable
/// for `path_len` bytes; `error_out` is NULL, or readable and writable for as
/// many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_write_report(
    limiter: *const Limiter,
    path: *const c_char,
    path_len: usize,
    error_out: *mut Error,
) -> Status {
    let call = || {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `path_len` bytes, by this function's contract.
        write_report(&limiter.0, unsafe { bytes(path, path_len) }?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { guard_error(error_out, call) }
}

#[cfg(feature = "persist")]
fn write_report(limiter: &tollgate::Limiter, path: &[u8]) -> Result<(), Failure> {
    use std::os::unix::ffi::OsStrExt as _;
    Ok(limiter.write_report(std::ffi::OsStr::from_bytes(path)).map_err(tollgate::ControlError::from)?)
}

#[cfg(not(feature = "persist"))]
fn write_report(_: &tollgate::Limiter, _: &[u8]) -> Result<(), Failure> {
    Err(Status::NotBuiltIn.into())
}

/// Where an id is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Shown {
    /// In a log or on a terminal.
    Text = 0,
    /// In HTML, attributes included.
    Html = 1,
    /// As the label of a metric.
    Label = 2,
    /// In a URL, percent-encoded.
    Url = 3,
    /// In JSON: a string with its quotes, or {"base64": "..."} if it is not UTF-8.
    Json = 4,
}

/// An id in a form that is safe to show; where is a tollgate_shown. 7 bytes for
/// each byte of the id, and 24 more, are always enough.
///
/// Status: INVALID_OPTION, ID_TOO_LONG, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `id` is NULL or readable for `id_len` bytes; `text_out` is NULL or writable
/// for `text_size` bytes; `text_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_id_shown(
    id: *const c_void,
    id_len: usize,
    r#where: i32,
    text_out: *mut c_char,
    text_size: usize,
    text_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let id = ShownId::new(unsafe { agent(id, id_len) }?);
        let text = match r#where {
            shown if shown == Shown::Text as i32 => write(&id),
            shown if shown == Shown::Html as i32 => write(&id.html()),
            shown if shown == Shown::Label as i32 => write(&id.label()),
            shown if shown == Shown::Url as i32 => write(&id.url()),
            shown if shown == Shown::Json as i32 => write(&id.json()),
            _ => return Err(Status::InvalidOption),
        };
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(&text, text_out, text_size, text_len_out) }
    })
}

fn write(shown: &dyn Display) -> String {
    shown.to_string()
}
