//! Why an engine cannot be started.

use super::builder::{TIMEOUT_MAX, TIMEOUT_MIN};
use std::fmt;
use std::time::Duration;

/// The engine could not be started. No message has a password in it.
#[derive(Debug)]
#[non_exhaustive]
pub enum EngineError {
    /// A URL is not one of a server.
    Url {
        /// Which of the URLs.
        which: String,
        /// What is wrong with it, and how to write it.
        problem: String,
    },
    /// The URLs do not go together, or there are none.
    Servers {
        /// What is wrong with them.
        problem: String,
    },
    /// A user or a password is missing, empty or given twice.
    Login {
        /// What is wrong.
        problem: String,
    },
    /// TLS cannot work as it is set.
    Tls {
        /// What is wrong.
        problem: String,
    },
    /// The limiter was built without `cluster(..)`, so no lane is shared.
    NotClustered,
    /// The time-out is too short or too long.
    Timeout {
        /// As given.
        timeout: Duration,
    },
    /// The system refused a thread.
    Thread {
        /// Why.
        problem: std::io::Error,
    },
}

impl EngineError {
    pub(super) fn url(which: &str, problem: impl Into<String>) -> Self {
        Self::Url { which: which.to_owned(), problem: problem.into() }
    }

    pub(super) fn servers(problem: impl Into<String>) -> Self {
        Self::Servers { problem: problem.into() }
    }

    pub(super) fn login(problem: impl Into<String>) -> Self {
        Self::Login { problem: problem.into() }
    }

    pub(super) fn tls(problem: impl Into<String>) -> Self {
        Self::Tls { problem: problem.into() }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { which, problem } => write!(f, "{which}: {problem}"),
            Self::Servers { problem } | Self::Login { problem } | Self::Tls { problem } => f.write_str(problem),
            Self::NotClustered => {
                f.write_str("the limiter shares no lanes; build it with cluster(..), and the key of the keyring")
            }
            Self::Timeout { timeout } if *timeout < TIMEOUT_MIN => write!(
                f,
                "a time-out of {timeout:?} takes a busy server for a lost one; allowed: {TIMEOUT_MIN:?} to {TIMEOUT_MAX:?}"
            ),
            Self::Timeout { timeout } => write!(
                f,
                "a time-out of {timeout:?} notices a lost server too late; allowed: {TIMEOUT_MIN:?} to {TIMEOUT_MAX:?}"
            ),
            Self::Thread { problem } => write!(f, "no thread for the engine: {problem}"),
        }
    }
}

impl std::error::Error for EngineError {}
