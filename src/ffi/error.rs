//! Errors: what was wrong, in words.

use super::Status;
use super::pointers::Tagged;
use std::ffi::c_char;

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
