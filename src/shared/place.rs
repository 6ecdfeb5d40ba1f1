//! Which file is shared.

use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::{os::fd::OwnedFd, sync::Arc};

/// Where a shared slab is: see [`LimiterBuilder::shared`](crate::LimiterBuilder::shared).
///
/// ```
/// use tollgate::shared::Shared;
///
/// Shared::at("/run/tollgate/slab"); // For processes of one user.
/// Shared::at("/run/tollgate/slab").mode(0o660); // For users of one group.
/// Shared::memfd(); // Without a path: for processes that are forked from this one.
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Shared {
    pub(super) place: Place,
    pub(super) mode: u32,
}

#[derive(Clone, Debug)]
pub(super) enum Place {
    Path(PathBuf),
    Memfd,
    #[cfg(unix)]
    Descriptor(Arc<OwnedFd>),
}

/// The owner may read and write, and nobody else.
const MODE_DEFAULT: u32 = 0o600;

impl Shared {
    /// A file at this path, on a file system in memory: `/run`, `/dev/shm`, or a volume of type tmpfs. The layout's
    /// number is added to its name, so that two versions of this library run side by side, each with its own limits.
    pub fn at(path: impl AsRef<Path>) -> Self {
        let mut name = path.as_ref().as_os_str().to_owned();
        name.push(format!(".v{}", crate::bounds::SHARED_LAYOUT));
        Self { place: Place::Path(name.into()), mode: MODE_DEFAULT }
    }

    /// Who may use the file, as for `chmod`. Default: 0600, its owner alone.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode & 0o777;
        self
    }

    /// Memory without a path. Processes that are forked from this one share it; pass its
    /// [descriptor](crate::Limiter::shared_descriptor) on to others. It is gone when the last of them ends.
    pub fn memfd() -> Self {
        Self { place: Place::Memfd, mode: MODE_DEFAULT }
    }

    /// The slab of a descriptor that another process has passed on.
    #[cfg(unix)]
    pub fn descriptor(descriptor: OwnedFd) -> Self {
        Self { place: Place::Descriptor(Arc::new(descriptor)), mode: MODE_DEFAULT }
    }

    /// The file's path, or a word for what has none.
    pub(super) fn path(&self) -> PathBuf {
        match &self.place {
            Place::Path(path) => path.clone(),
            _ => PathBuf::from("memfd"),
        }
    }
}

impl From<&str> for Shared {
    fn from(path: &str) -> Self {
        Self::at(path)
    }
}

impl From<String> for Shared {
    fn from(path: String) -> Self {
        Self::at(path)
    }
}

impl From<&Path> for Shared {
    fn from(path: &Path) -> Self {
        Self::at(path)
    }
}

impl From<PathBuf> for Shared {
    fn from(path: PathBuf) -> Self {
        Self::at(path)
    }
}
