//! Numbers that nobody can guess.

use crate::error::StartError;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::Write as _;

/// So many random bytes.
///
/// # Errors
///
/// The system gives none.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], StartError> {
    let mut bytes = [0; N];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(filled) if filled == N => Ok(bytes),
        _ => Err(StartError::new("the system gives no random numbers")),
    }
}

/// So many random bytes in hexadecimal digits.
///
/// # Errors
///
/// As [`bytes()`].
pub(crate) fn hex<const N: usize>() -> Result<String, StartError> {
    Ok(bytes::<N>()?.iter().fold(String::with_capacity(2 * N), |mut hex, byte| {
        // A `String` takes whatever is written.
        _ = write!(hex, "{byte:02x}");
        hex
    }))
}
