//! What can go wrong with a kept file.

use super::json::id_shown;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why assignments, or used budgets, could not be loaded or saved.
///
/// Except after [`NotSynced`](PersistError::NotSynced), the file is unchanged.
#[derive(Debug)]
#[non_exhaustive]
pub enum PersistError {
    /// The file's content is invalid. The file is left as it is.
    Content {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// In bytes, counted from 1.
        column: usize,
        /// The agent whose entry it is, if known.
        agent: Option<Vec<u8>>,
        /// What is wrong, and what is expected.
        problem: String,
    },
    /// Another process has opened the file, or this one has opened it twice.
    InUse {
        /// The file whose lock is held.
        lock: PathBuf,
    },
    /// The path is not a regular file: a directory, a device.
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Another writer changed the file after it was read. Those changes are kept: reload it first.
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The file was edited, and other processes that share the limiter have changed assignments that are not in it.
    /// A reload would remove their changes.
    Unsaved {
        /// The file.
        path: PathBuf,
    },
    /// An assignment that could not be read back. Nothing was written.
    Assignment {
        /// The agent's id.
        agent: Vec<u8>,
        /// What is wrong with it.
        problem: String,
    },
    /// This process does not keep used budgets in a file. Nor does a forked
    /// child, whose parent still does.
    NotKept,
    /// The system refused.
    System {
        /// What was attempted: `"read"`, `"write"`, ...
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file was written, but may not survive a power failure. Save again.
    NotSynced {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for PersistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PersistError::Content { path, line, column, agent, problem } => {
                write!(f, "{}:{line}:{column}: ", path.display())?;
                if let Some(agent) = agent {
                    write!(f, "agent {}: ", id_shown(agent))?;
                }
                write!(f, "{problem}; correct the file, or move it away to start without it")
            }
            PersistError::InUse { lock } => write!(
                f,
                "{} is locked by another process, or twice by this one; end the other, or use another file",
                lock.display()
            ),
            PersistError::NotAFile { path } => {
                write!(
                    f,
                    "{} is not a regular file; give the path of one, or of a file that does not exist yet",
                    path.display()
                )
            }
            PersistError::Changed { path } => write!(
                f,
                "{} was changed by another writer after it was read, and is left as it is; reload it, then save again",
                path.display()
            ),
            PersistError::Unsaved { path } => write!(
                f,
                "{} was edited, and other processes have changed assignments that are not in it; move it away, reload so that it is written anew, then edit the new file and reload",
                path.display()
            ),
            PersistError::Assignment { agent, problem } => {
                write!(f, "agent {}: {problem}; nothing was written", id_shown(agent))
            }
            PersistError::NotKept => write!(f, "this process does not keep used budgets in a file; name one first"),
            PersistError::System { doing, path, source } => {
                write!(f, "cannot {doing} {}: {source}; {}", path.display(), advice(source.kind()))
            }
            PersistError::NotSynced { path, source } => {
                write!(f, "{} was written, but may not survive a power failure: {source}; save again", path.display())
            }
        }
    }
}

fn advice(kind: io::ErrorKind) -> &'static str {
    use io::ErrorKind::{FileTooLarge, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match kind {
        NotFound => "create the directory first",
        PermissionDenied | ReadOnlyFilesystem => "let this process read and write there, or use another directory",
        StorageFull | QuotaExceeded | FileTooLarge => "make room there and try again; the file is as it was",
        _ => "correct that and try again; the file is as it was",
    }
}

impl std::error::Error for PersistError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PersistError::System { source, .. } | PersistError::NotSynced { source, .. } => Some(source),
            _ => None,
        }
    }
}
