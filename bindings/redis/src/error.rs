//! What cannot be sent, and what cannot be understood.

use std::error::Error;
use std::fmt;

/// A number that the scripts could not compute with exactly, or that contradicts another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeError {
    /// What the number is.
    pub what: &'static str,
    /// The number.
    pub value: u128,
    /// The least it may be.
    pub least: u64,
    /// The most it may be.
    pub most: u64,
}

impl RangeError {
    pub(crate) fn check(what: &'static str, value: u128, least: u64, most: u64) -> Result<(), Self> {
        match (u128::from(least)..=u128::from(most)).contains(&value) {
            true => Ok(()),
            false => Err(Self { what, value, least, most }),
        }
    }
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, least, most } = self;
        if *value < u128::from(*least) {
            return write!(f, "{what}: {value} is less than {least}, the least there may be");
        }
        write!(f, "{what}: {value} is more than {most}, the most there may be")
    }
}

impl Error for RangeError {}

/// The secret of a cluster is too short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecretError {
    /// How long it is.
    pub bytes: usize,
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, least) = (self.bytes, crate::SECRET_BYTES_MIN);
        write!(f, "the cluster's secret has {bytes} bytes, and {least} at least are needed: let them be random")
    }
}

impl Error for SecretError {}

/// A reply that does not say what was settled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// The server answered something else than the script does.
    Unexpected {
        /// What the script answers.
        expected: &'static str,
        /// What came, cut to a line.
        came: String,
    },
    /// The script did not settle this key, and says why. Nothing of it was changed.
    Refused {
        /// The key and the reason.
        why: String,
    },
}

impl ReplyError {
    /// The longest that a reply is quoted, in characters.
    const CAME_MAX: usize = 200;

    pub(crate) fn unexpected(expected: &'static str, came: &impl fmt::Debug) -> Self {
        Self::Unexpected { expected, came: format!("{came:?}").chars().take(Self::CAME_MAX).collect() }
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected { expected, came } => write!(f, "expected {expected}, and the server answered {came}"),
            Self::Refused { why } => write!(f, "not settled: {why}"),
        }
    }
}

impl Error for ReplyError {}
