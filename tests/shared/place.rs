//! A place for a slab, in memory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory in memory, removed with everything in it when the test ends.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tollgate-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new("/dev/shm").join(name);
        std::fs::create_dir(&path).expect("a new directory in memory");
        Self(path)
    }

    pub(crate) fn slab(&self) -> PathBuf {
        self.0.join("slab")
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("slab.v1")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
