//! A file that one process keeps: read when it is opened, replaced whenever
//! something changes, and never over what somebody else has written into it.

use super::error::PersistError;
use super::json::Mistake;
use super::replace::{FileLock, Replaced, system};
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A file whose lock is held.
#[derive(Debug)]
pub(crate) struct KeptFile {
    file: Replaced,
    /// The file as it was last read or written; `None` if there was none.
    seen: Option<Stamp>,
    _lock: FileLock,
}

impl KeptFile {
    /// Locks the file, which need not be there yet; its directory must be.
    pub(crate) fn open(path: &Path) -> Result<Self, PersistError> {
        let file = Replaced::find(path)?;
        let lock = file.lock()?;
        // Nobody else is writing it: the lock is ours.
        file.clear()?;
        // A file system on which this fails is better known now than at the first save.
        file.directory.sync_all().map_err(system("sync the directory of", &file.path))?;
        Ok(Self { file, seen: None, _lock: lock })
    }

    /// Reads the file, if there is one, and tells which one it was. Unless
    /// that is [accepted](Self::accept), `save` does not overwrite it.
    pub(crate) fn read(&self) -> Result<Option<(Vec<u8>, Stamp)>, PersistError> {
        if self.file.metadata()?.is_none() {
            return Ok(None);
        }
        let mut text = Vec::new();
        let mut read = || {
            let mut file = File::open(self.path())?;
            // Before the text: an edit that comes between the two is noticed by `save`.
            let stamp = Stamp::of(&file.metadata()?);
            file.read_to_end(&mut text)?;
            Ok(stamp)
        };
        let stamp = read().map_err(system("read", self.path()))?;
        Ok(Some((text, stamp)))
    }

    /// What was read is in use: it may be overwritten.
    pub(crate) fn accept(&mut self, stamp: Option<Stamp>) {
        self.seen = stamp;
    }

    /// Whether the file is the one that was last read or written.
    pub(crate) fn is_as_seen(&self) -> Result<bool, PersistError> {
        Ok(self.file.metadata()?.as_ref().map(Stamp::of) == self.seen)
    }

    /// Replaces the file. When this returns, the text is on the disk.
    pub(crate) fn save(&mut self, text: &str) -> Result<(), PersistError> {
        let old = self.file.metadata()?;
        if old.as_ref().is_some_and(|old| self.seen != Some(Stamp::of(old))) {
            return Err(PersistError::Changed { path: self.path().to_owned() });
        }
        self.seen = Some(Stamp::of(&self.file.replace(text.as_bytes(), old.as_ref())?));
        self.file.sync()
    }

    /// The error of a file whose text makes no sense.
    pub(crate) fn content(&self, mistake: Mistake) -> PersistError {
        let Mistake { line, column, agent, problem } = mistake;
        PersistError::Content { path: self.path().to_owned(), line, column, agent, problem }
    }

    /// The file's path, with symbolic links followed.
    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn directory(&mut self) -> &mut File {
        &mut self.file.directory
    }
}

/// Tells a file from one that was edited or put in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    bytes: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            bytes: metadata.len(),
            seconds: metadata.mtime(),
            nanoseconds: metadata.mtime_nsec(),
        }
    }
}
