//! Makes a shared file, or joins one.
//!
//! ```text
//! open, look whose it is → lock ATTACH → ┬ empty: make it, write everything, state = ready
//!                                        ├ not ready, or of an earlier start of the machine: remove it, begin again
//!                                        └ ready: agree or refuse, map
//!                        → take a seat → unlock ATTACH
//! ```
//!
//! A process that is killed in any of these steps loses ATTACH and its seat.
//! The next one finds the file empty or not ready and makes it anew, or ready.
//! So no process ever sees a file that is half made.
//!
//! A file that does not fit, and that nobody uses, is made anew too: processes
//! that start with other lanes are refused only while others run.
//!
//! Each of these decisions is a [`Search::step`], which the loom models take as
//! well: `slab/models/joining.rs`.

use super::attach::{Search, Seen, Step};
use super::header::{self, Agreed};
use super::joined::AttachLock;
use super::joined::Joined;
use super::memory::{Layout, Section};
use super::place::{Place, Shared};
use super::seats::is_used;
use super::{Shape, SharedError};
use crate::machine::file;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a process waits for one that makes or joins the file and does not get on.
const ATTACH_WITHIN: Duration = Duration::from_secs(2);

/// How long it waits though others get on: for the memory of the largest slab, or for all processes there may be.
const ATTACH_AT_MOST: Duration = Duration::from_secs(60);

/// What the owner of a file must be able to do: read and write.
const OWNER_MODE: u32 = 0o600;

/// How often a file is opened again that was replaced meanwhile.
const TRIES_MAX: usize = 8;

/// A file that this process has made or found, and that no other can make or join meanwhile.
pub(crate) struct Attached {
    pub(crate) joined: Arc<Joined>,
    /// What the file was made with.
    pub(crate) agreed: Agreed,
    path: PathBuf,
    has_path: bool,
    /// Keeps ATTACH locked.
    _attach: AttachLock,
}

/// Makes the file or finds it. With `makes_none` an error if there is none.
pub(crate) fn attach(
    shared: &Shared,
    asked: &Agreed,
    layout: impl Fn(&Shape) -> Layout,
    makes_none: bool,
) -> Result<Attached, SharedError> {
    let has_path = matches!(shared.place, Place::Path(_));
    let path = if has_path { absolute(shared.path())? } else { shared.path() };
    let refused = |what| system(&path, what);
    if has_path && shared.mode & OWNER_MODE != OWNER_MODE {
        return Err(SharedError::Mode { path, mode: shared.mode });
    }
    let search = Search { has_path, makes_none };
    let boot = header::boot().map_err(refused("read the machine's boot id"))?;
    for _ in 0..TRIES_MAX {
        if makes_none && has_path && !path.exists() {
            return Err(SharedError::Missing { path });
        }
        let file = open(shared, &path, makes_none)?;
        let lock = wait_for_attach(&file, &path)?;
        let is_empty = || file.metadata().map(|about| about.len() == 0).map_err(refused("look at it"));
        let seen = if has_path && !is_at(&file, &path) {
            Seen::Removed
        } else if is_empty()? {
            Seen::Empty
        } else {
            header::read(&file, &path, asked.key.len(), boot)?
        };
        let agreed = match search.step(seen, || is_used(&file)) {
            Step::Again => continue,
            Step::Replace => {
                remove(&path)?;
                continue;
            }
            Step::Missing => return Err(SharedError::Missing { path }),
            Step::InUse(why) => return Err(SharedError::InUse { path, why }),
            Step::Refuse => return Err(SharedError::Foreign { path }),
            Step::Make => {
                make(&file, &path, asked, &layout(&asked.shape), has_path.then_some(shared.mode), boot)?;
                let joined =
                    Joined::new(file, &path, has_path, layout(&asked.shape), true).map_err(refused("map it"))?;
                return attached(joined, asked.clone(), path, has_path, lock);
            }
            Step::Join(agreed) => *agreed,
        };
        let layout = layout(&agreed.shape);
        let (bytes, made) = (file.metadata().map_or(0, |about| about.len()), layout.bytes() as u64);
        if bytes != made {
            return Err(SharedError::Truncated { path, bytes, made });
        }
        let joined = Joined::new(file, &path, has_path, layout, false).map_err(refused("map it"))?;
        if let Some(refusal) = agreed.refusal(asked, &path, joined.others()) {
            if search.step(Seen::<()>::Misfit, || joined.others() > 0) == Step::Replace {
                remove(&path)?;
                continue;
            }
            return Err(refusal);
        }
        return attached(joined, agreed, path, has_path, lock);
    }
    Err(SharedError::Attaching { path })
}

fn attached(
    joined: Joined,
    agreed: Agreed,
    path: PathBuf,
    has_path: bool,
    attach: AttachLock,
) -> Result<Attached, SharedError> {
    Ok(Attached { joined: Arc::new(joined), agreed, path, has_path, _attach: attach })
}

impl Attached {
    /// Removes a file that does not fit, so that the next attempt makes another. `false` if it is in use.
    pub(crate) fn remove(self) -> Result<bool, SharedError> {
        let search = Search { has_path: self.has_path, makes_none: false };
        if search.step(Seen::<()>::Misfit, || self.joined.others() > 0) != Step::Replace {
            return Ok(false);
        }
        remove(&self.path).map(|()| true)
    }

    /// Takes a seat.
    pub(crate) fn sit_down(&self) -> Result<(), SharedError> {
        match self.joined.sit_down() {
            Ok(true) => Ok(()),
            Ok(false) => Err(SharedError::TooManyProcesses { path: self.path.clone() }),
            Err(error) if is_full(&error) => Err(SharedError::NoRoom {
                path: self.path.clone(),
                bytes: self.joined.seat_bytes(),
                left: self.joined.room(),
            }),
            Err(error) => Err(system(&self.path, "take a seat in it")(error)),
        }
    }

    /// Lets others join.
    pub(crate) fn publish(self) {
        self.joined.publish();
    }
}

/// The path as it is looked up later too, when the process may have another working directory.
fn absolute(path: PathBuf) -> Result<PathBuf, SharedError> {
    std::path::absolute(&path).map_err(system(&path, "find its directory"))
}

fn system<'a>(path: &'a Path, what: &'static str) -> impl Fn(io::Error) -> SharedError + 'a {
    move |error| SharedError::System { path: path.into(), what, problem: error.to_string() }
}

/// Whether there was no memory left for the file.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::ENOMEM))
}

fn remove(path: &Path) -> Result<(), SharedError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(system(path, "remove it")(error)),
        _ => Ok(()),
    }
}

/// Opens the file, and looks whether it is safe to use.
fn open(shared: &Shared, path: &Path, makes_none: bool) -> Result<File, SharedError> {
    let file = match &shared.place {
        Place::Memfd => return file::memfd().map_err(system(path, "make it")),
        Place::Descriptor(descriptor) => {
            File::from(descriptor.try_clone().map_err(system(path, "use its descriptor"))?)
        }
        Place::Path(_) => {
            let is_link = std::fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_symlink());
            if is_link {
                return Err(SharedError::SymbolicLink { path: path.into() });
            }
            is_in_memory(path)?;
            file::open(path, shared.mode).map_err(|error| not_opened(path, error))?
        }
    };
    if !file::is_in_memory(&file).map_err(system(path, "look at its file system"))? {
        return Err(SharedError::OnDisk { path: path.into() });
    }
    if matches!(shared.place, Place::Path(_)) {
        is_ours(&file, path, shared.mode, makes_none)?;
    }
    Ok(file)
}

/// Why a file could not be opened: whose it is, if that is why.
fn not_opened(path: &Path, error: io::Error) -> SharedError {
    let owner = std::fs::symlink_metadata(path).map(|about| about.uid());
    match owner {
        Ok(owner) if error.kind() == io::ErrorKind::PermissionDenied && owner != file::user() => {
            SharedError::OtherOwner { path: path.into(), owner, user: file::user() }
        }
        _ => system(path, "open it")(error),
    }
}

/// Refuses a directory on a disk, before a file is made there.
fn is_in_memory(path: &Path) -> Result<(), SharedError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = file::directory(parent).map_err(system(path, "open its directory"))?;
    match file::is_in_memory(&directory).map_err(system(path, "look at its file system"))? {
        true => Ok(()),
        false => Err(SharedError::OnDisk { path: path.into() }),
    }
}

/// Refuses a file that somebody else could have prepared, or can change.
///
/// The superuser may look at any slab: nothing is computed from a file's words that could lead out of it.
fn is_ours(file: &File, path: &Path, asked: u32, is_look: bool) -> Result<(), SharedError> {
    let about = file.metadata().map_err(system(path, "look at it"))?;
    if !about.is_file() {
        return Err(SharedError::Foreign { path: path.into() });
    }
    let is_for_group = asked & 0o020 != 0 && about.mode() & 0o020 != 0 && file::is_in_group(about.gid());
    let is_for_root = is_look && file::user() == 0;
    if about.uid() != file::user() && !is_for_group && !is_for_root {
        return Err(SharedError::OtherOwner { path: path.into(), owner: about.uid(), user: file::user() });
    }
    // Lossless: twelve bits.
    let mode = about.mode() & 0o777;
    if mode & 0o022 & !asked != 0 {
        return Err(SharedError::WritableByOthers { path: path.into(), mode, asked });
    }
    Ok(())
}

/// Whether the path still leads to this file.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |about: std::fs::Metadata| (about.dev(), about.ino());
    file.metadata().map(identity).ok() == std::fs::symlink_metadata(path).map(identity).ok()
}

/// Locks ATTACH until the process has joined.
///
/// Many may be before it, and the first of them makes the file, for which a large one takes seconds.
fn wait_for_attach(file: &File, path: &Path) -> Result<AttachLock, SharedError> {
    let lock = AttachLock::new(file).map_err(system(path, "open it again"))?;
    let began = Instant::now();
    let (mut seen, mut since) = (touched(file), began);
    // Ends with the lock, or when its time is over.
    while !lock.try_lock().map_err(system(path, "lock it"))? {
        let now = touched(file);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        if since.elapsed() > ATTACH_WITHIN || began.elapsed() > ATTACH_AT_MOST {
            return Err(SharedError::Attaching { path: path.into() });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(lock)
}

/// Changes while a process takes memory for the file: all of it, or that of a seat.
fn touched(file: &File) -> Option<(u64, i64, i64)> {
    file.metadata().ok().map(|about| (about.blocks(), about.ctime(), about.ctime_nsec()))
}

/// Makes an empty file as long as it has to be, with memory for all that is used from the start, and a header.
fn make(
    file: &File,
    path: &Path,
    agreed: &Agreed,
    layout: &Layout,
    mode: Option<u32>,
    boot: [u64; 2],
) -> Result<(), SharedError> {
    if let Some(mode) = mode {
        // The umask has cut what `open` asked for.
        let permissions = std::fs::Permissions::from_mode(mode);
        file.set_permissions(permissions).map_err(system(path, "set its mode"))?;
    }
    file.set_len(layout.bytes() as u64).map_err(system(path, "make it as long as needed"))?;
    for (start, bytes) in layout.allocated() {
        if let Err(error) = file::allocate(file, start, bytes) {
            let left = file::room(file);
            let _ = file.set_len(0); // Gives back what it took.
            let _ = mode.map(|_| std::fs::remove_file(path));
            if is_full(&error) {
                let bytes = layout.allocated_bytes();
                return Err(SharedError::NoRoom { path: path.into(), bytes, left: left.max(file::room(file)) });
            }
            return Err(system(path, "take memory for it")(error));
        }
    }
    if mode.is_none() {
        file::seal(file).map_err(system(path, "seal it"))?;
    }
    let made = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let words = header::written(agreed, layout.bytes(), made, boot);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    debug_assert_eq!(layout.start(Section::Header), 0);
    file.write_all_at(&bytes, 0).map_err(system(path, "write its header"))
}
