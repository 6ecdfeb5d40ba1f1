//! Errors: what was wrong, in words.

use super::Status;
use super::guard::guard;
use super::pointers::{Tagged, tagged_out, text_array};
use crate as tollgate;
use std::ffi::c_char;
use std::fmt::Display;
use std::ptr::NonNull;

/// Room for the message of a tollgate_error, its NUL included.
pub const TOLLGATE_ERROR_MESSAGE_BYTES: usize = 496;

/// Why a call failed, for people: what is wrong, where, and what is allowed.
///
/// A function with an error_out writes it if it fails, and only then. NULL is
/// always allowed. With a wrong struct_size in it the call returns STRUCT_SIZE
/// and does nothing.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Error {
    /// Set it to sizeof(tollgate_error) before the call.
    pub struct_size: u32,
    /// The status that the call returned.
    pub status: Status,
    /// The line of the mistake in a policy or a file, from 1; 0 for other mistakes.
    pub line: u32,
    /// The column of the mistake in characters, from 1; 0 for other mistakes.
    pub column: u32,
    /// A sentence in NUL-terminated UTF-8, truncated if it is too long.
    pub message: [c_char; TOLLGATE_ERROR_MESSAGE_BYTES],
}

const _: () = assert!(size_of::<Error>() == 512);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Error {
    const SIZE_MIN: u32 = 512;
}

/// A status, with a sentence and a location.
pub(super) struct Failure {
    status: Status,
    /// Counted from 1; 0 if there is none.
    line: usize,
    column: usize,
    message: String,
}

impl Failure {
    pub(super) fn new(status: Status, problem: &dyn Display) -> Self {
        Self { status, line: 0, column: 0, message: problem.to_string() }
    }

    /// The same, about one of many.
    pub(super) fn about(mut self, one: &dyn Display) -> Self {
        self.message = format!("{one}: {}", self.message);
        self
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        // Every text is ASCII.
        Self::new(status, &status.text().to_str().unwrap_or_default())
    }
}

impl From<tollgate::BuildError> for Failure {
    fn from(error: tollgate::BuildError) -> Self {
        Self::new(Status::from(&error), &error)
    }
}

impl From<tollgate::LimitError> for Failure {
    fn from(error: tollgate::LimitError) -> Self {
        Self::new(Status::InvalidLimit, &error)
    }
}

impl From<tollgate::preset::UnknownPreset> for Failure {
    fn from(error: tollgate::preset::UnknownPreset) -> Self {
        Self::new(Status::UnknownPreset, &error)
    }
}

#[cfg(feature = "config")]
impl From<tollgate::ConfigError> for Failure {
    fn from(error: tollgate::ConfigError) -> Self {
        let failure = Self::new(Status::InvalidPolicy, &error.message());
        Self { line: error.line(), column: error.column(), ..failure }
    }
}

impl From<tollgate::ControlError> for Failure {
    fn from(error: tollgate::ControlError) -> Self {
        let failure = Self::new(Status::from(&error), &error);
        #[cfg(feature = "persist")]
        if let tollgate::ControlError::File(tollgate::keep::PersistError::Content { line, column, .. }) = error {
            return Self { line, column, ..failure };
        }
        failure
    }
}

impl Failure {
    fn error(&self, struct_size: u32) -> Error {
        let message = text_array(&self.message);
        let place = |place| u32::try_from(place).unwrap_or(u32::MAX);
        Error { struct_size, status: self.status, line: place(self.line), column: place(self.column), message }
    }
}

/// Runs a call like [`guard`], and explains its failure in `error_out` if that is not NULL.
///
/// # Safety
///
/// `error_out` is NULL, or valid for reads and writes of as many bytes as its tag says.
pub(super) unsafe fn guard_error(error_out: *mut Error, call: impl FnOnce() -> Result<(), Failure>) -> Status {
    let place = match error_out.is_null() {
        true => None,
        // SAFETY: valid, as the caller guarantees.
        false => match unsafe { tagged_out(error_out) } {
            Ok(place) => Some(place),
            Err(status) => return status,
        },
    };
    let mut failure = None;
    let status = guard(|| call().map_err(|failed| failure.insert(failed).status));
    if let (Some((place, struct_size)), true) = (place, status != Status::Ok) {
        // SAFETY: not NULL and large enough, so writable as the caller guarantees.
        unsafe { explain(place, struct_size, failure.unwrap_or_else(|| status.into())) };
    }
    status
}

/// # Safety
///
/// `place` is writable.
#[inline(never)]
unsafe fn explain(place: NonNull<Error>, struct_size: u32, failure: Failure) {
    guard(|| {
        // SAFETY: as the caller guarantees.
        unsafe { place.write(failure.error(struct_size)) };
        Ok(())
    });
}
