//! Memory that several processes map, and the locks by which they know who lives: a file in memory, mapped whole.
//!
//! Locks are Linux's open file description locks, on single bytes that lie far
//! behind the content. The kernel releases one when the last descriptor of its
//! description is closed, so on every death, and in every pid namespace. POSIX
//! record locks would not do: closing any descriptor of the file drops them all.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;

/// Where the bytes begin that are locked: behind every content.
const LOCKS_AT: i64 = 1 << 62;

/// A part of a file, mapped for reading and writing. It stays mapped until this is dropped.
pub(crate) struct FileMap {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is not bound to the thread that made it.
unsafe impl Send for FileMap {}

// SAFETY: it only lends its address, and atomics are all that is made of it.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps `bytes` of the file from `offset` on, which is a multiple of the page size.
    pub(crate) fn new(file: &File, offset: usize, bytes: usize) -> io::Result<Self> {
        map(file, bytes, offset, None).map(|start| Self { start, bytes })
    }

    /// Maps as many bytes from another offset on, at the same address. All that was made of it goes on to be valid.
    pub(crate) fn remap(&self, file: &File, offset: usize) -> io::Result<()> {
        map(file, self.bytes, offset, Some(self.start)).map(drop)
    }

    /// The address at this offset, from which `len` bytes are mapped. `None` if there are not that many.
    pub(super) fn at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len).filter(|end| *end <= self.bytes)?;
        debug_assert!(end <= self.bytes);
        // SAFETY: within the mapping, as just checked.
        Some(unsafe { self.start.add(offset) })
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: a whole mapping of this value's own, to which no reference is left; that cannot fail.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Maps `bytes` of the file from `offset` on, which is a multiple of the page size: at `place`, where this module has
/// mapped as many bytes before, or where the system chooses.
fn map(file: &File, bytes: usize, offset: usize, place: Option<NonNull<u8>>) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let fixed = if place.is_some() { libc::MAP_FIXED } else { 0 };
    let hint = place.map_or(std::ptr::null_mut(), |place| place.as_ptr().cast());
    // Lossless: no file is that long.
    let offset = offset as libc::off_t;
    // SAFETY: a new mapping touches no memory in use; with a place it replaces one of this module's own, of the same
    // length, and all that is made of either are atomics, for which any content is valid.
    let start = unsafe { libc::mmap(hint, bytes, protection, libc::MAP_SHARED | fixed, file.as_raw_fd(), offset) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)
}

/// Opens the file at `path`, or makes an empty one. A symbolic link is refused.
///
/// It is opened before it is made: in a directory like `/dev/shm` a system may refuse to open another user's file with
/// the flag that would make it, whatever its mode is (`fs.protected_regular`).
pub(crate) fn open(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(mode).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => return opened.and_then(above_streams),
    }
    let opened = match options.create_new(true).open(path) {
        // Somebody else was faster; if it is gone again, the caller is told so.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.create_new(false).open(path),
        made => made,
    };
    opened.and_then(above_streams)
}

/// A directory, to look at what it is on. That takes no right to list it.
pub(crate) fn directory(path: &Path) -> io::Result<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    File::options().read(true).custom_flags(flags).open(path)
}

/// The same file, with a descriptor that is none of the standard streams'. A daemon may have closed those, and then its
/// first file is where other code prints.
fn above_streams(file: File) -> io::Result<File> {
    // The library's copies are never below that.
    if file.as_raw_fd() > libc::STDERR_FILENO { Ok(file) } else { file.try_clone() }
}

/// A new file that has no name and lives in memory.
pub(crate) fn memfd() -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a string that ends with a zero.
    let fd = unsafe { libc::memfd_create(c"tollgate".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made, and nobody else has it.
    above_streams(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Keeps a file that [`memfd`] made from being cut or grown, whoever has its descriptor.
pub(crate) fn seal(file: &File) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: changes a property of an open file.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The same file with a description of its own, so that locks made through one are not the other's.
pub(crate) fn reopen(file: &File) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    File::options().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path).and_then(above_streams)
}

/// Whether the file is in memory: its pages are never written to a disk, which would stop its writers. Not of the file
/// system of huge pages, which can neither be written to nor mapped in parts.
pub(crate) fn is_in_memory(file: &File) -> io::Result<bool> {
    const RAMFS: u64 = 0x8584_58f6;
    const TMPFS: u64 = 0x0102_1994;
    // SAFETY: plain numbers, for which zero is valid.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: an open file, and a place for the answer.
    let status = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut about) };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // Some systems have a signed type of 32 bits here.
    Ok([TMPFS, RAMFS].contains(&(about.f_type as u64 & 0xffff_ffff)))
}

/// How many bytes its file system has left.
pub(crate) fn room(file: &File) -> u64 {
    // SAFETY: plain numbers, for which zero is valid.
    let mut about: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: an open file, and a place for the answer.
    let status = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut about) };
    if status == 0 { (about.f_bavail as u64).saturating_mul(about.f_bsize as u64) } else { 0 }
}

/// Memory is taken in parts of this length, each in less than a millisecond.
const ALLOCATED_AT_ONCE: usize = 1 << 20;

/// How often a part is tried again that signals interrupt.
const INTERRUPTED_MAX: u32 = 10_000;

/// Takes memory for these bytes of the file now, so that no later access to them fails.
pub(crate) fn allocate(file: &File, offset: usize, bytes: usize) -> io::Result<()> {
    allocate_in_parts(offset, bytes, |offset, bytes| {
        // Lossless: no file is that long.
        let (offset, bytes) = (offset as libc::off_t, bytes as libc::off_t);
        // Not `posix_fallocate`: where the kernel has nothing to offer, that writes to the file, and so over what
        // others have just written.
        // SAFETY: acts on an open file.
        match unsafe { libc::fallocate(file.as_raw_fd(), 0, offset, bytes) } {
            0 => 0,
            _ => match io::Error::last_os_error().raw_os_error() {
                // A ramfs takes memory when it is touched, and is never full.
                Some(libc::EOPNOTSUPP) => 0,
                errno => errno.unwrap_or(libc::EIO),
            },
        }
    })
}

/// Part by part, each again until no signal interrupts it. `allocate` returns an error number, or 0.
///
/// On most kernels any signal interrupts the call, whatever its handler says, and then all memory of the call is given
/// back. A process with a profiler's timer gets a signal every few milliseconds, and would never have a large file.
fn allocate_in_parts(offset: usize, bytes: usize, mut allocate: impl FnMut(usize, usize) -> i32) -> io::Result<()> {
    for start in (0..bytes).step_by(ALLOCATED_AT_ONCE) {
        let mut interrupted = 0;
        // Ends with the part, or after so many signals.
        loop {
            match allocate(offset + start, ALLOCATED_AT_ONCE.min(bytes - start)) {
                0 => break,
                libc::EINTR if interrupted < INTERRUPTED_MAX => interrupted += 1,
                errno => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
    Ok(())
}

/// A lock on one byte, for the system to fill in or to set.
fn byte_lock(byte: u32) -> libc::flock {
    // SAFETY: plain numbers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = LOCKS_AT + i64::from(byte);
    lock.l_len = 1;
    lock
}

/// Locks a byte for this description. `false` if another one has it.
pub(crate) fn lock_byte(file: &File, byte: u32) -> io::Result<bool> {
    let lock = byte_lock(byte);
    // SAFETY: an open file, and a lock that is filled in.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if status == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// Releases a byte for this description, whoever else has a descriptor of it.
pub(crate) fn unlock_byte(file: &File, byte: u32) {
    let mut lock = byte_lock(byte);
    lock.l_type = libc::F_UNLCK as libc::c_short;
    // SAFETY: an open file, and a lock that is filled in. Releasing cannot fail.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
}

/// Whether another description has locked the byte.
pub(crate) fn is_locked_by_other(file: &File, byte: u32) -> io::Result<bool> {
    let mut lock = byte_lock(byte);
    // SAFETY: an open file, and a lock that the system overwrites with the one that is in the way, if any.
    let status = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if status == 0 { Ok(i32::from(lock.l_type) != libc::F_UNLCK) } else { Err(io::Error::last_os_error()) }
}

/// Whether there is a process of this number, in this pid namespace. One of another user counts too, even if
/// `/proc` hides it.
pub(crate) fn is_process(pid: u32) -> bool {
    // SAFETY: no signal is sent; the system only looks for the process.
    let status = unsafe { libc::kill(pid as libc::pid_t, 0) };
    status == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// The user whose rights this process has.
pub(crate) fn user() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

/// Whether this process is in the group.
pub(crate) fn is_in_group(group: u32) -> bool {
    let mut groups = [0; 1_024];
    // SAFETY: room for as many groups as is said.
    let count = unsafe { libc::getgroups(groups.len() as libc::c_int, groups.as_mut_ptr()) };
    // SAFETY: cannot fail.
    let own = unsafe { libc::getegid() };
    own == group || groups.iter().take(usize::try_from(count).unwrap_or(0)).any(|known| *known == group)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_locked_by_one_description_at_a_time_and_released_with_it() {
        let file = memfd().unwrap();
        let (first, second) = (reopen(&file).unwrap(), reopen(&file).unwrap());
        assert!(lock_byte(&first, 3).unwrap() && lock_byte(&first, 3).unwrap());
        assert!(!lock_byte(&second, 3).unwrap() && lock_byte(&second, 4).unwrap());
        assert!(is_locked_by_other(&second, 3).unwrap() && !is_locked_by_other(&first, 3).unwrap());
        // Closing another descriptor of the file releases nothing.
        drop(reopen(&file).unwrap());
        assert!(is_locked_by_other(&second, 3).unwrap());
        drop(first);
        assert!(!is_locked_by_other(&second, 3).unwrap() && lock_byte(&second, 3).unwrap());
        unlock_byte(&second, 3);
        assert!(!is_locked_by_other(&file, 3).unwrap() && is_locked_by_other(&file, 4).unwrap());
    }

    #[test]
    fn a_sealed_file_is_in_memory_and_cannot_be_cut() {
        let file = memfd().unwrap();
        file.set_len(8_192).unwrap();
        seal(&file).unwrap();
        assert!(is_in_memory(&file).unwrap());
        assert!(file.set_len(4_096).is_err() && file.set_len(16_384).is_err());
        allocate(&file, 0, 8_192).unwrap();
        let map = FileMap::new(&file, 0, 8_192).unwrap();
        assert!(map.at(8_184, 8).is_some() && map.at(8_184, 9).is_none() && map.at(usize::MAX, 8).is_none());
    }

    /// A signal during the build was the error "Interrupted system call", and during an override "no memory".
    #[test]
    fn memory_is_taken_though_signals_interrupt() {
        let (mut calls, mut taken) = (0, Vec::new());
        let every_second_interrupted = |offset, bytes| {
            calls += 1;
            if calls % 2 == 1 {
                return libc::EINTR;
            }
            taken.push((offset, bytes));
            0
        };
        allocate_in_parts(8_192, ALLOCATED_AT_ONCE + 4_096, every_second_interrupted).unwrap();
        assert_eq!(taken, [(8_192, ALLOCATED_AT_ONCE), (8_192 + ALLOCATED_AT_ONCE, 4_096)]);
        assert!(allocate_in_parts(0, 0, |_, _| libc::EINTR).is_ok(), "there is nothing to take");
        let refused = |errno| allocate_in_parts(0, 1, |_, _| errno).unwrap_err().raw_os_error();
        assert_eq!([refused(libc::ENOSPC), refused(libc::EINTR)], [Some(libc::ENOSPC), Some(libc::EINTR)]);
    }
}
