//! Why the server could not start, or a command failed.

use std::fmt;

/// One sentence for the operator: what is wrong, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartError {
    message: String,
    is_busy: bool,
}

impl StartError {
    /// An error with this text.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_busy: false }
    }

    /// The same, because another process holds a lock: the caller may try again.
    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self { is_busy: true, ..Self::new(message) }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StartError {}
