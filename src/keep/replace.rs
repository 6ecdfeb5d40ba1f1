//! Replaces a file in one step: a reader finds the old text or the new one,
//! complete, even after a crash.

use super::error::PersistError;
use crate::machine::process;
use rustix::fs::FlockOperation::{NonBlockingLockExclusive, Unlock};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// How many symbolic links are followed in a row, as on Linux.
const LINKS_MAX: usize = 40;

/// The permissions of a new file of state: its owner's, since it holds ids of agents.
pub(super) const OWNER_ONLY: u32 = 0o600;

/// The permissions of a new file that is written for others, less the process's mask.
const ANYBODY: u32 = 0o666;

/// Replaces a file that is written for others to read.
pub(crate) fn publish(path: &Path, text: &str) -> Result<(), PersistError> {
    let file = ReplacedFile::find(path, ANYBODY)?;
    let old = file.metadata()?;
    let _lock = file.lock()?;
    file.replace(text.as_bytes(), old.as_ref())?;
    file.sync()
}

/// A file that is replaced, never written in place. It need not exist yet.
#[derive(Debug)]
pub(super) struct ReplacedFile {
    /// With symbolic links followed.
    pub(super) path: PathBuf,
    temporary: PathBuf,
    pub(super) directory: File,
    /// The permissions of a file that is new.
    mode: u32,
}

impl ReplacedFile {
    /// Finds the file's place. Its directory must be there. A file that is new
    /// has the permissions of `mode`.
    pub(crate) fn find(path: &Path, mode: u32) -> Result<Self, PersistError> {
        let path = resolve(path).map_err(system("find", path))?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let directory = File::open(directory).map_err(system("open", directory))?;
        Ok(Self { temporary: beside(&path, ".tmp"), path, directory, mode })
    }

    /// Locks `NAME.lock` for as long as the result lives. Only the holder of
    /// the lock may replace the file.
    pub(crate) fn lock(&self) -> Result<FileLock, PersistError> {
        let path = beside(&self.path, ".lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(OWNER_ONLY).open(&path);
        let file = file.map_err(system("open", &path))?;
        match rustix::fs::flock(&file, NonBlockingLockExclusive) {
            Ok(()) => Ok(FileLock { file, process: process::mark() }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(PersistError::InUse { lock: path }),
            Err(error) => Err(system("lock", &path)(error.into())),
        }
    }

    /// Removes what a killed writer left behind.
    pub(super) fn clear(&self) -> Result<(), PersistError> {
        self.remove_temporary().map_err(system("remove", &self.temporary))
    }

    /// The file's metadata; `None` if there is no file.
    pub(crate) fn metadata(&self) -> Result<Option<Metadata>, PersistError> {
        match fs::metadata(&self.path) {
            // Never wait for a device or a pipe, and never replace one.
            Ok(metadata) if !metadata.is_file() => Err(PersistError::NotAFile { path: self.path.clone() }),
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(system("read", &self.path)(error)),
        }
    }

    /// Replaces `old` by a new file with its permissions, and its owner where the system permits.
    pub(crate) fn replace(&self, text: &[u8], old: Option<&Metadata>) -> Result<Metadata, PersistError> {
        let written = self.write_temporary(text, old);
        let written = written.and_then(|metadata| fs::rename(&self.temporary, &self.path).map(|()| metadata));
        written.map_err(|source| {
            // If it cannot be removed now, it is removed before the next write.
            let _ = self.remove_temporary();
            system("write", &self.temporary)(source)
        })
    }

    /// Syncs the file's new name to disk.
    pub(crate) fn sync(&self) -> Result<(), PersistError> {
        self.directory.sync_all().map_err(|source| PersistError::NotSynced { path: self.path.clone(), source })
    }

    /// Writes the temporary file and syncs it, before it gets its name.
    fn write_temporary(&self, text: &[u8], old: Option<&Metadata>) -> io::Result<Metadata> {
        self.remove_temporary()?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(self.mode).open(&self.temporary)?;
        if let Some(old) = old {
            // Only root may give a file away; other users keep what they may, and own the file.
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
            file.set_permissions(old.permissions())?;
        }
        file.write_all(text)?;
        file.sync_all()?;
        file.metadata()
    }

    fn remove_temporary(&self) -> io::Result<()> {
        match fs::remove_file(&self.temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The right to replace a file, until it is dropped.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
    /// The process that holds the lock; a forked child does not.
    process: u64,
}

impl FileLock {
    pub(crate) fn is_own(&self) -> bool {
        self.process == process::mark()
    }
}

impl Drop for FileLock {
    /// Unlocks at once. Closing is not enough: a child that is about to start a
    /// program has the file open too, until that program runs.
    fn drop(&mut self) {
        if self.is_own() {
            // If it fails, closing the file unlocks it.
            let _ = rustix::fs::flock(&self.file, Unlock);
        }
    }
}

/// The absolute path to which a path leads: a file that need not exist, in a directory that must.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let name = path.file_name().ok_or_else(|| io::Error::other("the path has no file name"))?;
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.canonicalize()?,
            _ => Path::new(".").canonicalize()?,
        };
        path = directory.join(name);
        match fs::read_link(&path) {
            Ok(target) => path = directory.join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(ending);
    name.into()
}

pub(super) fn system(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> PersistError {
    move |source| PersistError::System { doing, path: path.to_owned(), source }
}
