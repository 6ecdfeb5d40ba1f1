//! Locks of files, which the kernel gives out: as many as there are slots. Whoever holds a slot must get one.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use tollgate::Limiter;

/// Above every descriptor that a limiter has.
const FIRST_DESCRIPTOR: libc::c_int = 200;

/// A file for each slot.
pub(crate) struct Locks(Vec<File>);

impl Locks {
    /// The files beside the slab of a limiter that was built before.
    ///
    /// A process that is killed must not lose its slot before its file, or the next holder finds the slot free and the
    /// file locked. The kernel closes descriptors in ascending order, but defers the release of what they lead to and
    /// then releases the last one first (`task_work_run`): so the files need higher descriptors than the limiter's
    /// seat. Opening them late is not enough, since what was closed while the limiter was built leaves low numbers.
    pub(crate) fn beside(slab: &Path, _built: &Limiter, slots: u64) -> Self {
        let open = |number: u64| {
            let file = File::create(slab.with_file_name(format!("lock-{number}"))).unwrap();
            // SAFETY: an open file.
            let high = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR) };
            assert!(high >= FIRST_DESCRIPTOR);
            // SAFETY: the descriptor was just made, and nobody else has it.
            unsafe { File::from_raw_fd(high) }
        };
        Self((0..slots).map(open).collect())
    }

    pub(crate) fn first(&self) -> &File {
        &self.0[0]
    }

    /// Locks the first that no other process has. `None` if others have all of them.
    pub(crate) fn lock(&self) -> Option<&File> {
        // SAFETY: an open file.
        self.0.iter().find(|file| unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0)
    }
}

/// Gives it back.
pub(crate) fn unlock(file: &File) {
    // SAFETY: an open file.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) }, 0);
}
