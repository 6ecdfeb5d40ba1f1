//! Why the server could not start, or a command failed.

use std::fmt;

/// One sentence for the operator: what is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    message: String,
}

impl StartError {
    /// An error with this text.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StartError {}
