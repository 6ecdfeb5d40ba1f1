//! Why a connection ended.

use crate::ReplyError;
use redis::{ErrorKind, RedisError};
use std::fmt;

/// Why a connection ended, or could not be made.
#[derive(Debug)]
pub(super) enum Problem {
    Redis(RedisError),
    Reply(ReplyError),
    /// What the sentinels said instead of an address.
    Sentinels(String),
    /// What the servers of a cluster said instead of its masters.
    Cluster(String),
    /// Why this machine's limiter cannot be changed.
    Limiter(String),
}

/// The same in a word, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Timeout,
    Connection,
    ReadOnly,
    Loading,
    OutOfMemory,
    NoAuth,
    ClusterDown,
    NoScript,
    Other,
}

impl Problem {
    pub(super) fn reason(&self) -> Reason {
        let error = match self {
            Self::Redis(error) => error,
            Self::Sentinels(_) => return Reason::Connection,
            Self::Cluster(_) => return Reason::ClusterDown,
            Self::Reply(_) | Self::Limiter(_) => return Reason::Other,
        };
        if error.is_timeout() {
            return Reason::Timeout;
        }
        match error.code() {
            Some("READONLY") => Reason::ReadOnly,
            Some("LOADING") => Reason::Loading,
            Some("OOM") => Reason::OutOfMemory,
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => Reason::NoAuth,
            Some("NOSCRIPT") => Reason::NoScript,
            Some("CLUSTERDOWN" | "MOVED" | "ASK" | "TRYAGAIN" | "MASTERDOWN") => Reason::ClusterDown,
            _ if error.kind() == ErrorKind::AuthenticationFailed => Reason::NoAuth,
            _ if error.is_io_error() => Reason::Connection,
            _ => Reason::Other,
        }
    }
}

impl From<RedisError> for Problem {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<ReplyError> for Problem {
    fn from(error: ReplyError) -> Self {
        Self::Reply(error)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The system's words for it are "Resource temporarily unavailable".
            Self::Redis(error) if error.is_timeout() => f.write_str("no answer within the time-out"),
            Self::Redis(error) => error.fmt(f),
            Self::Reply(error) => error.fmt(f),
            Self::Sentinels(problem) | Self::Cluster(problem) | Self::Limiter(problem) => f.write_str(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Error, ErrorKind};

    /// An operator read "Resource temporarily unavailable (os error 11)" of a server that was stopped.
    #[test]
    fn a_time_out_is_called_one() {
        for kind in [ErrorKind::WouldBlock, ErrorKind::TimedOut] {
            let problem = Problem::from(RedisError::from(Error::from(kind)));
            assert_eq!(
                (problem.to_string().as_str(), problem.reason()),
                ("no answer within the time-out", Reason::Timeout)
            );
        }
        let problem = Problem::from(RedisError::from(Error::from(ErrorKind::ConnectionRefused)));
        assert_eq!((problem.to_string().as_str(), problem.reason()), ("connection refused", Reason::Connection));
    }
}
