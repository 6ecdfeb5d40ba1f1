//! Random numbers that nobody can guess.

use crate::error::StartError;
use rustix::rand::{GetRandomFlags, getrandom};
use std::fmt::Write as _;

/// `N` random bytes.
///
/// # Errors
///
/// If the system has none.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], StartError> {
    let mut bytes = [0; N];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(filled) if filled == N => Ok(bytes),
        _ => Err(StartError::new("the system has no random numbers")),
    }
}

/// `N` random bytes as hexadecimal digits.
///
/// # Errors
///
/// Those of [`bytes()`].
pub(crate) fn hex<const N: usize>() -> Result<String, StartError> {
    Ok(bytes::<N>()?.iter().fold(String::with_capacity(2 * N), |mut hex, byte| {
        // Writing to a `String` never fails.
        _ = write!(hex, "{byte:02x}");
        hex
    }))
}
