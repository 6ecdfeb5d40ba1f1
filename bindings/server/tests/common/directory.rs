//! A temporary directory, removed at the end of the test.

#![allow(dead_code, reason = "not every test file writes files")]

use std::path::{Path, PathBuf};

pub(crate) struct Directory(PathBuf);

impl Directory {
    /// A new directory; `name` is unique among tests.
    pub(crate) fn new(name: &str) -> Self {
        Self::below(std::env::temp_dir(), name)
    }

    /// The same, in memory, where a slab can be.
    pub(crate) fn in_memory(name: &str) -> Self {
        Self::below("/dev/shm".into(), name)
    }

    fn below(parent: PathBuf, name: &str) -> Self {
        let path = parent.join(format!("tollgate-server-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    /// Writes a file, and returns its path.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("a path in UTF-8").to_owned()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a slab in it.
    pub(crate) fn slab(&self) -> String {
        self.0.join("slab").to_str().expect("a path in UTF-8").to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}
