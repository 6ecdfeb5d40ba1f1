//! A temporary directory, removed at the end of the test.

#![allow(dead_code, reason = "not every test file writes files")]

use std::path::{Path, PathBuf};

pub(crate) struct Directory(PathBuf);

impl Directory {
    /// A new directory; `name` is unique among tests.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tollgate-server-{name}-{}", std::process::id()));
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
}

impl Drop for Directory {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}
