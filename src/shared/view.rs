//! What an operator sees of a shared slab.

use std::fmt;
use std::path::PathBuf;
use std::time::SystemTime;

/// A slab that processes share, as [`Limiter::sharing`](crate::Limiter::sharing) shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sharing {
    /// The file; `memfd` if it has no path.
    pub path: PathBuf,
    /// How long it is. Parts that nobody has used take no memory.
    pub bytes: u64,
    /// When it was made.
    pub made: SystemTime,
    /// The processes that use it now, this one among them.
    pub processes: Vec<Process>,
    /// How often a lock was taken over from a process that had died with it.
    pub takeovers: u64,
    /// How often a call was answered [`Busy`](crate::Error::Busy).
    pub busy: u64,
    /// Whether the policy that this process was built with has other numbers than the one in force.
    pub policy_differs: bool,
    /// Whether the file at the path is another one by now, or gone: later processes do not share this slab.
    pub is_detached: bool,
    /// Random numbers that all processes of the slab have in common, and nobody else.
    pub secret: SharedSecret,
}

/// Two random numbers that all processes of a slab have in common, for what one of them signs and another must
/// recognise. They are not shown by `Debug`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SharedSecret(pub(super) [u64; 2]);

impl SharedSecret {
    /// The numbers.
    #[must_use]
    pub const fn words(self) -> [u64; 2] {
        self.0
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedSecret")
    }
}

/// A process that uses a shared slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// Its number, in its own pid namespace.
    pub pid: u32,
    /// When it joined.
    pub joined: SystemTime,
    /// The version of this library that it uses: major, minor, patch.
    pub version: [u16; 3],
    /// Whether it is the process that asks.
    pub is_this: bool,
}
