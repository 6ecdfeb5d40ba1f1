//! A failure, which becomes a status and, if the caller has room for it, an error.

use super::guard::guard;
use super::pointers::{tagged_out, text_array};
use super::{Error, Status};
use crate as tollgate;
use std::fmt::Display;
use std::ptr::NonNull;

/// A status, with a sentence and a location.
pub struct Failure {
    status: Status,
    /// Counted from 1; 0 if there is none.
    line: usize,
    column: usize,
    message: String,
}

impl Failure {
    /// A status with a sentence of its own.
    pub fn new(status: Status, problem: &dyn Display) -> Self {
        Self { status, line: 0, column: 0, message: problem.to_string() }
    }

    /// The same, about one of many.
    pub fn about(mut self, one: &dyn Display) -> Self {
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
pub unsafe fn guard_error(error_out: *mut Error, call: impl FnOnce() -> Result<(), Failure>) -> Status {
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
