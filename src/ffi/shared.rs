//! Sharing: one limiter for all processes of a machine.
//!
//! Processes with a limiter each admit the limit once each. Processes that share
//! one admit it once: records, limits, plans, overrides, exemptions, reservations,
//! conduct, counts and the policy in force are in memory that all of them map.
//! The first process that names a path in tollgate_limiter_options makes that
//! memory, and the others join it. A process that ends, or is killed at any
//! instruction, leaves nothing that blocks the others. All of them can write to
//! all of the memory, so they have to trust each other. Linux only.
//!
//! Lanes and their kinds, the clock's source and on_full have to be the same in
//! all processes, and no later one may ask for more agents or reservations than
//! the first. The policy in force stays, unless a later one has a higher version.
//! Slots that a process holds come back when it dies.

use super::Status;
use super::failure::Failure;
use super::limiter::{LimiterOptions, unknown};
use super::pointers::bytes;
use crate as tollgate;

use built_in::found;
pub(super) use built_in::{builder, seen};

/// How a limiter is shared with other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum SharedBy {
    /// By shared_path. If that is NULL, the limiter is private.
    Path = 0,
    /// By memory without a path: with processes that are forked from this one, and
    /// with those that are given the descriptor. It is gone when the last one ends.
    Memfd = 1,
    /// By shared_fd, which another process got from tollgate_snapshot and passed on.
    Descriptor = 2,
}

/// Where a limiter's memory is, unless it is private.
#[cfg(feature = "shared")]
pub(super) type Place = tollgate::shared::Shared;
/// There is no such place.
#[cfg(not(feature = "shared"))]
pub(super) enum Place {}

/// What a snapshot shows of it.
pub(super) struct Seen {
    pub(super) processes: u32,
    /// -1 if the limiter is private.
    pub(super) descriptor: i32,
    pub(super) takeovers: u64,
    pub(super) busy: u64,
    pub(super) policy_differs: bool,
    pub(super) is_detached: bool,
}

impl Seen {
    pub(super) const PRIVATE: Self =
        Self { processes: 0, descriptor: -1, takeovers: 0, busy: 0, policy_differs: false, is_detached: false };
}

impl LimiterOptions {
    /// Where the limiter's memory is; `None` if it is private.
    ///
    /// # Safety
    ///
    /// `shared_path` is NULL or readable for `shared_path_len` bytes.
    pub(super) unsafe fn place(&self) -> Result<Option<Place>, Failure> {
        let by = match self.shared_by {
            by if by == SharedBy::Path as i32 => SharedBy::Path,
            by if by == SharedBy::Memfd as i32 => SharedBy::Memfd,
            by if by == SharedBy::Descriptor as i32 => SharedBy::Descriptor,
            other => return Err(unknown("shared_by", other.into())),
        };
        let path = match (self.shared_path.is_null(), self.shared_path_len) {
            (true, 0) => None,
            // SAFETY: NULL, or readable for this length, as the caller guarantees.
            (_, len) => Some(unsafe { bytes(self.shared_path, len) }?),
        };
        let refused = |problem: &'static str| Err(Failure::new(Status::InvalidOption, &problem));
        match by {
            SharedBy::Path if path == Some(&[]) => return refused("shared_path is empty; name a file"),
            SharedBy::Memfd | SharedBy::Descriptor if path.is_some() => {
                return refused("shared_path is for TOLLGATE_SHARED_BY_PATH; leave it NULL");
            }
            SharedBy::Path | SharedBy::Memfd if self.shared_fd != 0 => {
                return refused("shared_fd is for TOLLGATE_SHARED_BY_DESCRIPTOR; leave it 0");
            }
            _ => {}
        }
        if self.shared_mode != 0 && path.is_none() {
            return refused("shared_mode is for shared_path; leave it 0");
        }
        if self.shared_mode > 0o777 {
            return refused("shared_mode has more than the nine bits of a file's mode; 0660, say, lets a group write");
        }
        if by == SharedBy::Path && path.is_none() {
            return Ok(None);
        }
        found(by, path.unwrap_or_default(), self.shared_mode, self.shared_fd).map(Some)
    }
}

#[cfg(feature = "shared")]
mod built_in {
    use super::{Failure, Place, Seen, SharedBy, Status, tollgate};
    use std::ffi::OsStr;
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;

    pub(super) fn found(by: SharedBy, path: &[u8], mode: u32, fd: i32) -> Result<Place, Failure> {
        let place = match by {
            SharedBy::Path => Place::at(OsStr::from_bytes(path)),
            SharedBy::Memfd => Place::memfd(),
            SharedBy::Descriptor => Place::descriptor(copied(fd)?),
        };
        Ok(if mode == 0 { place } else { place.mode(mode) })
    }

    /// A descriptor of the library's own: the caller goes on to own the one it passed.
    fn copied(fd: i32) -> Result<OwnedFd, Failure> {
        // SAFETY: takes two numbers; one that is not a descriptor is an error.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 {
            let problem = io::Error::last_os_error();
            let problem = format_args!("shared_fd is {fd}, which cannot be used: {problem}");
            return Err(Failure::new(Status::Shared, &problem));
        }
        // SAFETY: made a moment ago, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(copy) })
    }

    /// A limiter at this place, with this policy or with the one that is in force there.
    pub(in crate::ffi) fn builder(
        policy: Option<tollgate::Policy>,
        place: Option<Place>,
    ) -> Result<tollgate::LimiterBuilder, Status> {
        match (policy, place) {
            (Some(policy), Some(place)) => Ok(tollgate::Limiter::builder(policy).shared(place)),
            (Some(policy), None) => Ok(tollgate::Limiter::builder(policy)),
            (None, Some(place)) => Ok(tollgate::Limiter::join(place)),
            (None, None) => Err(Status::NullPointer),
        }
    }

    pub(in crate::ffi) fn seen(limiter: &tollgate::Limiter) -> Seen {
        let (Some(sharing), Some(descriptor)) = (limiter.sharing(), limiter.shared_descriptor()) else {
            return Seen::PRIVATE;
        };
        Seen {
            // Lossless: there are at most a thousand.
            processes: sharing.processes.len() as u32,
            descriptor: descriptor.as_raw_fd(),
            takeovers: sharing.takeovers,
            busy: sharing.busy,
            policy_differs: sharing.policy_differs,
            is_detached: sharing.is_detached,
        }
    }
}

#[cfg(not(feature = "shared"))]
mod built_in {
    use super::{Failure, Place, Seen, SharedBy, Status, tollgate};

    pub(super) fn found(_: SharedBy, _: &[u8], _: u32, _: i32) -> Result<Place, Failure> {
        Err(Status::NotBuiltIn.into())
    }

    pub(in crate::ffi) fn builder(
        policy: Option<tollgate::Policy>,
        place: Option<Place>,
    ) -> Result<tollgate::LimiterBuilder, Status> {
        match (policy, place) {
            (Some(policy), None) => Ok(tollgate::Limiter::builder(policy)),
            (None, None) => Err(Status::NullPointer),
            (_, Some(place)) => match place {},
        }
    }

    pub(in crate::ffi) fn seen(_: &tollgate::Limiter) -> Seen {
        Seen::PRIVATE
    }
}
