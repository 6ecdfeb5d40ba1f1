//! The file that keeps assignments: its lock, and when it is written.
//! `write.rs` and `read.rs` handle its text.

#[cfg(all(test, not(loom)))]
mod inputs;
mod read;
mod write;

use super::{FileVersion, KeptFile, PersistError};
use crate::engine::{Assignment, Assignments};
use std::path::Path;

/// A readable file that keeps assignments across restarts.
///
/// It is JSON, one agent per line, sorted by id, so that it can be compared,
/// and edited by hand while no limiter uses it:
///
/// ```json
/// {
///   "version": 1,
///   "agents": [
///     {"agent": "agent-7", "plan": "pro", "overrides": {"ws/heavy": "100/minute"}},
///     {"agent": "agent-8", "exempt": true},
///     {"agent": {"base64": "/w=="}, "plan": "free"}
///   ]
/// }
/// ```
///
/// An id is a string if it is UTF-8, else base64. `plan`, `overrides` and
/// `exempt` may be left out. A limit is given as its text. Anything invalid is
/// an error that names the line, and the file is left as it is.
///
/// **Large files grow.** A limiter does not rewrite a file of more than 64 KiB
/// for each change. It appends a line with what has changed, until these lines
/// take as much room as the rest; then they are merged into it. The last line
/// about an agent counts, and an agent with nothing but its id has no
/// assignment:
///
/// ```json
/// {"agents": [{"agent": "agent-7", "plan": "free"}, {"agent": "agent-8"}], "sum": "0c3a9b7f"}
/// ```
///
/// `sum` is the CRC-32 of the line up to it, so that a line cut short by a
/// crash is recognised and ignored. Remove it if you edit such a line.
///
/// **One writer.** The file `NAME.lock` beside it is locked as long as this
/// value lives, and unlocked by the system if the process dies. It is never
/// removed: removing it would let a second writer in. A forked child holds the
/// lock too, until the process that opened the file drops it.
///
/// **All or nothing.** [`save`](Self::save) writes `NAME.tmp`, syncs it,
/// renames it over the file and syncs the directory. A writer that is killed at
/// any moment leaves the old file or the new one; the next [`open`](Self::open)
/// removes a leftover `NAME.tmp`. A new file is readable by its owner only;
/// after that it keeps its permissions, and its owner where the system permits.
///
/// If the path is a symbolic link, the file it points to is replaced, and
/// `NAME` is that file's.
///
/// ```
/// use tollgate::keep::AssignmentFile;
/// use tollgate::{Assignment, Limit};
///
/// # let directory = std::env::temp_dir().join(format!("tollgate-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// # let path = directory.join("assignments.json");
/// let (mut file, agents) = AssignmentFile::open(&path)?;
/// assert!(agents.is_empty()); // There was no file yet.
///
/// let mut heavy_user = Assignment::default();
/// heavy_user.set_override("ws/heavy", Limit::per_minute(100));
/// file.save([(b"agent-7".as_slice(), &heavy_user)])?;
/// drop(file);
///
/// let (_file, agents) = AssignmentFile::open(&path)?;
/// assert_eq!(agents, [(b"agent-7".to_vec(), heavy_user)]);
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AssignmentFile {
    file: KeptFile,
}

impl AssignmentFile {
    /// Locks the file and reads it: the agents, sorted by id, and their
    /// assignments. A missing file means no agents; a missing directory is an
    /// error.
    ///
    /// # Errors
    ///
    /// The file is in use, cannot be read, or is invalid.
    pub fn open(path: impl AsRef<Path>) -> Result<(Self, Assignments), PersistError> {
        let mut file = Self { file: KeptFile::open(path.as_ref())? };
        let agents = file.reload()?;
        Ok((file, agents))
    }

    /// Reads the file again, after it was edited by hand.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is invalid.
    pub fn reload(&mut self) -> Result<Assignments, PersistError> {
        let (agents, seen) = self.read()?;
        self.accept(seen);
        Ok(agents)
    }

    /// Reads the file again, and returns its version. Until that is
    /// [accepted](Self::accept), nothing is written to the file.
    pub(crate) fn read(&self) -> Result<(Assignments, Option<FileVersion>), PersistError> {
        self.file.read(read::read)
    }

    /// What was read is in use: it may be overwritten.
    pub(crate) fn accept(&mut self, seen: Option<FileVersion>) {
        self.file.accept(seen);
    }

    /// Whether this process has opened it, and not one that this one was forked from.
    pub(crate) fn is_own(&self) -> bool {
        self.file.is_own()
    }

    /// Puts changes into the file: the new assignments of these agents, which
    /// may be empty. If the file has to be replaced, `all` lists every agent.
    ///
    /// # Errors
    ///
    /// As [`save`](Self::save).
    pub(crate) fn change(
        &mut self,
        agents: &Assignments,
        all: impl FnOnce() -> Assignments,
    ) -> Result<(), PersistError> {
        let line = write::change(agents).map_err(refused)?;
        if self.file.takes(line.len())? {
            return self.file.append(&line);
        }
        self.save(all().iter().map(|(id, assignment)| (&**id, assignment)))
    }

    /// Replaces the file: these are all the agents that have assignments, in
    /// any order. Agents without one are left out. When this returns, the file
    /// is on disk.
    ///
    /// # Errors
    ///
    /// The system refused, the file was changed by another writer meanwhile, or
    /// an assignment could not be read back. The file is then unchanged, except
    /// after [`PersistError::NotSynced`].
    pub fn save<'a>(
        &mut self,
        agents: impl IntoIterator<Item = (&'a [u8], &'a Assignment)>,
    ) -> Result<(), PersistError> {
        self.file.save(&write::write(agents).map_err(refused)?)
    }

    /// The file's path, with symbolic links followed.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}

/// The error of an assignment that could not be read back.
fn refused((agent, problem): (Vec<u8>, String)) -> PersistError {
    PersistError::Assignment { agent, problem }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn a_replaced_file_that_was_not_synced_is_reported_as_such() {
        let directory = std::env::temp_dir().join(format!("tollgate-unit-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (mut file, _) = AssignmentFile::open(directory.join("assignments.json")).unwrap();
        let mut exempt = Assignment::default();
        exempt.set_exempt(true);
        // A directory that cannot be synced; this device cannot.
        let whole = std::mem::replace(file.file.directory(), File::open("/dev/null").unwrap());
        let error = file.save([(b"a".as_slice(), &exempt)]).unwrap_err();
        assert!(matches!(error, PersistError::NotSynced { .. }), "{error}");
        assert!(error.to_string().ends_with("; save again"), "{error}");
        assert_eq!(file.reload().unwrap(), [(b"a".to_vec(), exempt.clone())]);
        *file.file.directory() = whole;
        file.save([(b"b".as_slice(), &exempt)]).unwrap();
        fs::remove_dir_all(&directory).unwrap();
    }
}
