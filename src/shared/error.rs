//! Why a shared slab cannot be used.

use crate::bounds::PROCESSES_MAX;
use std::fmt;
use std::path::PathBuf;

/// Why a shared slab could not be made or joined. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SharedError {
    /// Slabs can be shared on Linux alone.
    Unsupported,
    /// The system refused something.
    System {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        problem: String,
    },
    /// The path is a symbolic link.
    SymbolicLink {
        /// The path.
        path: PathBuf,
    },
    /// The file belongs to another user.
    OtherOwner {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// The mode does not let the file's owner read and write it.
    Mode {
        /// The file.
        path: PathBuf,
        /// The mode that this process asked for.
        mode: u32,
    },
    /// More users may write the file than this process asked for.
    WritableByOthers {
        /// The file.
        path: PathBuf,
        /// The file's mode.
        mode: u32,
        /// The mode that this process asked for.
        asked: u32,
    },
    /// The file is not on tmpfs: on a disk, or on hugetlbfs.
    OnDisk {
        /// The file.
        path: PathBuf,
    },
    /// The file system has not enough room.
    NoRoom {
        /// The file.
        path: PathBuf,
        /// How many bytes are needed.
        bytes: u64,
        /// How many there are.
        left: u64,
    },
    /// The file is not a slab.
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is a slab of another layout, which another version of this library has made.
    Layout {
        /// The file.
        path: PathBuf,
        /// The number of its layout.
        has: u64,
        /// The number of this version's.
        asked: u64,
    },
    /// The file would have to be made anew, but processes use it.
    InUse {
        /// The file.
        path: PathBuf,
        /// Why it cannot be joined.
        why: &'static str,
    },
    /// The file is shorter or longer than it was made.
    Truncated {
        /// The file.
        path: PathBuf,
        /// How long it is.
        bytes: u64,
        /// How long it was made.
        made: u64,
    },
    /// There is no slab to join.
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The slab has room for fewer than this process asks for.
    TooSmall {
        /// The file.
        path: PathBuf,
        /// Of what: "agents", "reservations", "agents in its roster".
        what: &'static str,
        /// How many it has room for.
        has: u64,
        /// How many this process asks for.
        asked: u64,
        /// How many processes use it.
        processes: usize,
    },
    /// The slab was made with another setting.
    Differs {
        /// The file.
        path: PathBuf,
        /// Which: "clock", "hash of ids", "on_full", "reservations per agent", "time namespace".
        what: &'static str,
        /// The slab's.
        has: String,
        /// This process's.
        asked: String,
    },
    /// A lane of the slab is not that of the policy.
    OtherLane {
        /// The file.
        path: PathBuf,
        /// The lane's number.
        lane: usize,
        /// Its name and kind in the slab.
        has: String,
        /// Its name and kind in the policy.
        asked: String,
    },
    /// Two policies of the same version have different numbers.
    SameVersion {
        /// The file.
        path: PathBuf,
        /// The version.
        version: u32,
        /// What differs first, in the slab.
        has: String,
        /// The same in the policy.
        asked: String,
    },
    /// Another process is making or joining the slab, and does not get on.
    Attaching {
        /// The file.
        path: PathBuf,
    },
    /// [`PROCESSES_MAX`] processes use the slab.
    TooManyProcesses {
        /// The file.
        path: PathBuf,
    },
    /// The policy, of a higher version than the one in force, could not replace it.
    Refused {
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: String,
    },
    /// The policy's text is longer than what the slab has room for.
    PolicyTooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// The policy's text does not read back as the same policy, so other processes would not learn it. No policy is
    /// known with which that happens.
    PolicyText {
        /// The file.
        path: PathBuf,
    },
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SharedError::Unsupported => {
                write!(f, "slabs can be shared on Linux alone; build a private limiter here")
            }
            SharedError::System { path, what, problem } => {
                write!(f, "{}: could not {what}: {problem}", path.display())
            }
            SharedError::SymbolicLink { path } => {
                write!(f, "{} is a symbolic link; name the file itself", path.display())
            }
            SharedError::OtherOwner { path, owner, user } => write!(
                f,
                "{} belongs to user {owner}, this process to user {user}; run both as one user, or give both a mode that \
                 lets their group write, such as 0660",
                path.display()
            ),
            SharedError::Mode { path, mode } => write!(
                f,
                "mode {mode:04o} does not let the owner of {} read and write it; use 0600, or 0660 for users of one group",
                path.display()
            ),
            SharedError::WritableByOthers { path, mode, asked } => write!(
                f,
                "{} has mode {mode:04o}, so others may write it, and this process asked for {asked:04o}; change the \
                 file's mode, or ask for the same",
                path.display()
            ),
            SharedError::OnDisk { path } => {
                write!(
                    f,
                    "{} is on a disk, or on hugetlbfs; a shared slab belongs on tmpfs, such as /run or /dev/shm",
                    path.display()
                )
            }
            SharedError::NoRoom { path, bytes, left } => write!(
                f,
                "{} needs {bytes} bytes, and its file system has {left} left; build for fewer agents, or make it larger \
                 (Docker: --shm-size)",
                path.display()
            ),
            SharedError::Foreign { path } => {
                write!(f, "{} is not a slab; use another path", path.display())
            }
            SharedError::Layout { path, has, asked } => write!(
                f,
                "{} is a slab of layout {has}, and this version of tollgate has layout {asked}; use the same version in \
                 all processes, or another slab",
                path.display()
            ),
            SharedError::InUse { path, why } => {
                write!(f, "the slab at {} {why}; stop all processes that use it, and it is made anew", path.display())
            }
            SharedError::Truncated { path, bytes, made } => write!(
                f,
                "{} has {bytes} bytes and was made with {made}; stop all processes that use it, and remove it",
                path.display()
            ),
            SharedError::Missing { path } => {
                write!(f, "there is no slab at {}; start a process that makes one", path.display())
            }
            SharedError::TooSmall { path, what, has, asked, processes } => write!(
                f,
                "the slab at {} has room for {has} {what}, and this process asks for {asked}; ask for fewer, or stop all \
                 {processes} processes that use it",
                path.display()
            ),
            SharedError::Differs { path, what, has, asked } => write!(
                f,
                "the slab at {} was made with the {what} {has}, and this process has {asked}; use the same, or another \
                 path",
                path.display()
            ),
            SharedError::OtherLane { path, lane, has, asked } => write!(
                f,
                "the slab at {} has {has} as lane {lane}, and this policy has {asked}; use the same lanes, or another \
                 path",
                path.display()
            ),
            SharedError::SameVersion { path, version, has, asked } => write!(
                f,
                "the slab at {} has version {version} of the policy with {has}, and this policy has the same version \
                 with {asked}; raise the version to replace it",
                path.display()
            ),
            SharedError::Attaching { path } => write!(
                f,
                "another process is joining {} and has not got on for two seconds; see whether it is stopped, and try \
                 again",
                path.display()
            ),
            SharedError::TooManyProcesses { path } => write!(
                f,
                "{PROCESSES_MAX} processes use the slab at {}, and no more can; use another path for some",
                path.display()
            ),
            SharedError::Refused { path, problem } => {
                write!(f, "the policy could not replace the one of the slab at {}: {problem}", path.display())
            }
            SharedError::PolicyText { path } => write!(
                f,
                "the policy for the slab at {} does not read back from its text; please report it, and use another one",
                path.display()
            ),
            SharedError::PolicyTooLong { path, bytes, most } => write!(
                f,
                "the policy takes {bytes} bytes as text, and the slab at {} has room for {most}; stop all processes that \
                 use it",
                path.display()
            ),
        }
    }
}

impl std::error::Error for SharedError {}
