//! A file that one process keeps: read when it is opened, appended to or
//! replaced whenever something changes, and never written over another writer's
//! changes.

use super::changes::Extent;
use super::error::PersistError;
use super::json::Mistake;
use super::replace::{FileLock, OWNER_ONLY, ReplacedFile, system};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

/// A smaller document is replaced with each change, and stays JSON that people
/// can edit: writing it takes about as long as writing one line.
const REPLACED_BELOW: u64 = 64 << 10;

/// A file whose lock is held.
#[derive(Debug)]
pub(crate) struct KeptFile {
    file: ReplacedFile,
    /// The file as it was last read or written; `None` if there was none.
    seen: Option<FileVersion>,
    lock: FileLock,
}

/// What a file was when it was last read or written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileVersion {
    stamp: Stamp,
    extent: Extent,
}

impl KeptFile {
    /// Locks the file, which need not exist yet; its directory must.
    pub(crate) fn open(path: &Path) -> Result<Self, PersistError> {
        let file = ReplacedFile::find(path, OWNER_ONLY)?;
        let lock = file.lock()?;
        // No other process is writing it: the lock is ours.
        file.clear()?;
        // If the file system cannot do this, fail now rather than at the first save.
        file.directory.sync_all().map_err(system("sync the directory of", &file.path))?;
        Ok(Self { file, seen: None, lock })
    }

    /// Whether this process has the lock, and not one that this one was forked from.
    pub(crate) fn is_own(&self) -> bool {
        self.lock.is_own()
    }

    /// Reads the file, if there is one, with `parse`, and identifies the
    /// version it read. Unless that is [accepted](Self::accept), nothing is
    /// written to the file.
    pub(crate) fn read<T: Default>(
        &self,
        parse: impl FnOnce(&[u8]) -> Result<(T, Extent), Mistake>,
    ) -> Result<(T, Option<FileVersion>), PersistError> {
        if self.file.metadata()?.is_none() {
            return Ok((T::default(), None));
        }
        let mut text = Vec::new();
        let mut read = || {
            let mut file = File::open(self.path())?;
            // Before the text: `save` notices an edit between the two.
            let stamp = Stamp::of(&file.metadata()?);
            file.read_to_end(&mut text)?;
            Ok(stamp)
        };
        let stamp = read().map_err(system("read", self.path()))?;
        let (parsed, extent) = parse(&text).map_err(|mistake| self.content(mistake))?;
        Ok((parsed, Some(FileVersion { stamp, extent })))
    }

    /// What was read is in use: it may be overwritten.
    pub(crate) fn accept(&mut self, seen: Option<FileVersion>) {
        self.seen = seen;
    }

    /// Whether the file is the one that was last read or written.
    pub(crate) fn is_as_seen(&self) -> Result<bool, PersistError> {
        Ok(self.file.metadata()?.as_ref().map(Stamp::of) == self.seen.map(|seen| seen.stamp))
    }

    /// Its length as it was last read or written.
    pub(crate) fn bytes(&self) -> u64 {
        self.seen.map_or(0, |seen| seen.stamp.bytes)
    }

    /// Whether a change of this many bytes should be [appended](Self::append).
    /// Otherwise the file should be [replaced](Self::save): it is small, or was
    /// changed by another writer, or the changes would take more room than the
    /// document. So at most three times the changes is written in all.
    pub(crate) fn takes(&self, bytes: usize) -> Result<bool, PersistError> {
        let fits = self.seen.is_some_and(|seen| seen.takes(bytes));
        Ok(fits && self.is_as_seen()?)
    }

    /// Appends a line to the file. When this returns, it is on disk.
    pub(crate) fn append(&mut self, line: &str) -> Result<(), PersistError> {
        let changed = || PersistError::Changed { path: self.path().to_owned() };
        let seen = self.seen.ok_or_else(changed)?;
        let open = || {
            let file = OpenOptions::new().append(true).open(self.path())?;
            let stamp = Stamp::of(&file.metadata()?);
            Ok((file, stamp))
        };
        let (mut file, stamp) = open().map_err(system("open", self.path()))?;
        if stamp != seen.stamp {
            return Err(changed());
        }
        let outcome = write(&mut file, line, stamp.bytes).map_err(system("write", self.path()));
        let synced = outcome.and_then(|()| {
            let path = self.path().to_owned();
            file.sync_data().map_err(|source| PersistError::NotSynced { path, source })
        });
        let stamp = file.metadata().map(|metadata| Stamp::of(&metadata)).map_err(system("read", self.path()))?;
        // Nothing is appended after a line that failed or may not be on disk: the next save replaces the file.
        let is_torn = synced.is_err() && stamp.bytes != seen.stamp.bytes;
        self.seen = Some(FileVersion { stamp, extent: Extent { is_torn, ..seen.extent } });
        synced
    }

    /// Reads from the file as it was last read or written.
    pub(crate) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, PersistError> {
        let mut read = || File::open(self.path())?.read_at(bytes, offset);
        read().map_err(system("read", self.path()))
    }

    /// Replaces the file. When this returns, the text is on disk.
    pub(crate) fn save(&mut self, text: &str) -> Result<(), PersistError> {
        let old = self.file.metadata()?;
        if old.as_ref().is_some_and(|old| self.seen.map(|seen| seen.stamp) != Some(Stamp::of(old))) {
            return Err(PersistError::Changed { path: self.path().to_owned() });
        }
        let stamp = Stamp::of(&self.file.replace(text.as_bytes(), old.as_ref())?);
        let extent = Extent { document: text.len() as u64, is_torn: false };
        self.seen = Some(FileVersion { stamp, extent });
        self.file.sync()
    }

    /// The error of a file with invalid text.
    fn content(&self, mistake: Mistake) -> PersistError {
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

/// Appends a line to a file of `before` bytes, or nothing.
fn write(file: &mut File, line: &str, before: u64) -> io::Result<()> {
    file.write_all(line.as_bytes()).inspect_err(|_| {
        // If this fails too, the line is torn, as if its writer had been killed.
        let _ = file.set_len(before);
    })
}

impl FileVersion {
    /// Not inlined: merged with the question whether anything was seen at all,
    /// it would read what was never written, if only to ignore it.
    #[inline(never)]
    fn takes(&self, bytes: usize) -> bool {
        let Self { stamp, extent: Extent { document, is_torn } } = *self;
        !is_torn && document >= REPLACED_BELOW && stamp.bytes + bytes as u64 <= 2 * document
    }
}

/// Distinguishes a file from one that was edited or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
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
