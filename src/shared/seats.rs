//! Who uses a shared file, and who is dead.
//!
//! Each process has a *seat*: a number, and a generation that grows each time
//! the seat is taken. Locks and reservations are marked with both, so a mark
//! names one process for ever.
//!
//! # Who is dead
//!
//! A process keeps a lock on a byte for its seat, which the kernel releases
//! whatever way it ends. So the process of a mark is dead
//!
//! - if its seat has another generation by now: the seat was free for that; or
//! - if nobody has the lock of its seat.
//!
//! Neither depends on pids, which are reused and differ between containers, nor
//! on time, which says nothing about a process that is stopped.
//!
//! # Forks
//!
//! A forked child inherits the descriptor, and would keep its parent's lock
//! after the parent's death. So a child gives it up and takes a seat of its own,
//! before any of its own code runs: the C library calls
//! [`reseat_all`](super::joined::reseat_all) in every child. A child that was
//! made without the C library finds out when it first needs its mark. If it
//! never does, it keeps the lock alive; so a process of the same pid namespace
//! also counts as dead if its pid is gone, or was given to a process that started
//! at another time. A process that `/proc` hides is not taken for gone; nor is
//! any by the start of another, if `/proc` is that of another pid namespace.

use super::SHORT_BITS;
use crate::bounds::PROCESSES_MAX;
use crate::machine::file;
use crate::machine::mapping::Words;
use crate::sync::{AtomicU64, Ordering};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The byte that is locked while a process makes the file or joins it.
pub(super) const ATTACH: u32 = 0;
/// The first byte of a seat. Those between are for later use.
const SEATS_AT: u32 = 16;

pub(super) const SEAT_WORDS: usize = 8;
/// The bytes of a seat.
pub(crate) const SEAT_BYTES: usize = SEAT_WORDS * 8;
const GENERATION: usize = 0;
const PID: usize = 1;
const START: usize = 2;
const PID_NAMESPACE: usize = 3;
const JOINED: usize = 4;
const VERSION: usize = 5;

const NUMBER_BITS: u32 = 16;
/// Of a short mark.
const SHORT_NUMBER_BITS: u32 = 11;
const _: () = assert!(PROCESSES_MAX < 1 << SHORT_NUMBER_BITS && SHORT_NUMBER_BITS < NUMBER_BITS);

/// The seats of a file.
pub(super) struct Seats {
    pub(super) table: Words<[AtomicU64; SEAT_WORDS]>,
}

/// A seat that this process has.
pub(super) struct Seat {
    pub(super) number: usize,
    /// What locks are marked with; never 0.
    pub(super) mark: u64,
    /// Keeps the byte of the seat locked.
    lock: File,
}

impl Seat {
    /// Leaves the seat, though a child that was forked a moment ago may have a descriptor of its lock.
    pub(super) fn leave(self) {
        file::unlock_byte(&self.lock, SEATS_AT + self.number as u32);
    }
}

/// A process as its seat shows it.
pub(super) struct Occupant {
    pub(super) number: usize,
    pub(super) pid: u32,
    pub(super) joined: SystemTime,
    pub(super) version: [u16; 3],
}

impl Seats {
    /// Takes the first free seat. `None` if there is none.
    pub(super) fn take(&self, file: &File) -> io::Result<Option<Seat>> {
        let lock = file::reopen(file)?;
        for (number, seat) in self.table.iter().enumerate() {
            // Lossless: there are no more seats than that.
            if !file::lock_byte(&lock, SEATS_AT + number as u32)? {
                continue;
            }
            let generation = seat[GENERATION].load(Ordering::Relaxed) + 1;
            let about = [
                (PID, u64::from(std::process::id())),
                (START, started(std::process::id()).unwrap_or(0)),
                (PID_NAMESPACE, pid_namespace()),
                (JOINED, SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())),
                (VERSION, version()),
            ];
            for (word, value) in about {
                seat[word].store(value, Ordering::Relaxed);
            }
            // Whoever reads the new generation knows that the last one is over, and whose this is.
            seat[GENERATION].store(generation, Ordering::Release);
            return Ok(Some(Seat { number, mark: generation << NUMBER_BITS | (number as u64 + 1), lock }));
        }
        Ok(None)
    }

    /// Whether the process with this mark is dead.
    pub(super) fn is_dead(&self, file: &File, mark: u64) -> bool {
        let Some(number) = seat_of(mark) else { return true };
        let Some(seat) = self.table.get(number) else { return true };
        if seat[GENERATION].load(Ordering::Acquire) != mark >> NUMBER_BITS {
            return true;
        }
        // If the system does not answer, nobody is robbed.
        let is_locked = || file::is_locked_by_other(file, SEATS_AT + number as u32).unwrap_or(true);
        !is_locked() || self.is_gone(number)
    }

    /// The mark of the process in a seat, if it has the low bits of a short one.
    pub(super) fn long(&self, mark: u64) -> Option<u64> {
        let number = mark & ((1 << SHORT_NUMBER_BITS) - 1);
        let seat = self.table.get((number as usize).checked_sub(1)?)?;
        let long = seat[GENERATION].load(Ordering::Acquire) << NUMBER_BITS | number;
        (short(long) == mark).then_some(long)
    }

    /// Whether the pid of a seat is gone, as far as this process can see it.
    fn is_gone(&self, number: usize) -> bool {
        let read = |word: usize| self.table[number][word].load(Ordering::Relaxed);
        let is_visible = read(PID_NAMESPACE) == pid_namespace() && read(PID_NAMESPACE) != 0;
        // Lossless: it was written as such a number.
        let pid = read(PID) as u32;
        // What cannot be read is not known to be another process: `/proc` may hide those of other users.
        let is_other = || read(START) != 0 && started(pid).is_some_and(|start| start != read(START));
        is_visible && (!file::is_process(pid) || is_other())
    }

    /// The pid behind a mark; 0 if it is nobody's.
    pub(super) fn pid(&self, mark: u64) -> u32 {
        let seat = seat_of(mark).and_then(|number| self.table.get(number));
        seat.map_or(0, |seat| seat[PID].load(Ordering::Relaxed) as u32)
    }

    /// The seats whose lock somebody has, except one. `used` is how many seats were ever taken.
    ///
    /// A process whose child was made without the C library may be gone while the child keeps its lock. The child takes
    /// a seat of its own when it first needs one: so the file is used.
    pub(super) fn taken(&self, file: &File, used: usize, but: Option<usize>) -> impl Iterator<Item = usize> {
        let seats = (0..self.table.len().min(used)).filter(move |number| but != Some(*number));
        seats.filter(|number| file::is_locked_by_other(file, SEATS_AT + *number as u32).unwrap_or(true))
    }

    /// The processes that live, except one seat. `used` is how many seats were ever taken.
    pub(super) fn occupants(&self, file: &File, used: usize, but: Option<usize>) -> Vec<Occupant> {
        let living = self.taken(file, used, but).filter(|number| !self.is_gone(*number));
        living.map(|number| occupant(number, &self.table[number])).collect()
    }
}

/// Whether any process has a seat in a file, whatever its content is.
pub(super) fn is_used(file: &File) -> bool {
    (0..PROCESSES_MAX as u32).any(|number| file::is_locked_by_other(file, SEATS_AT + number).unwrap_or(true))
}

pub(super) fn occupant(number: usize, seat: &[AtomicU64; SEAT_WORDS]) -> Occupant {
    let read = |word: usize| seat[word].load(Ordering::Relaxed);
    let part = |shift: u32| (read(VERSION) >> shift & 0xffff) as u16;
    Occupant { number, pid: read(PID) as u32, joined: date(read(JOINED)), version: [part(32), part(16), part(0)] }
}

/// The last second that is a date: the end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// The date of so many seconds after 1970. A number that is no date is shown as 1970: any process may have written it.
pub(super) fn date(seconds: u64) -> SystemTime {
    let since = Duration::from_secs(if seconds > LAST_SECOND { 0 } else { seconds });
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
}

/// The low bits of both parts of a mark.
pub(super) const fn short(mark: u64) -> u64 {
    let generation = mark >> NUMBER_BITS & ((1 << (SHORT_BITS - SHORT_NUMBER_BITS)) - 1);
    generation << SHORT_NUMBER_BITS | mark & ((1 << SHORT_NUMBER_BITS) - 1)
}

/// The number of a mark's seat.
fn seat_of(mark: u64) -> Option<usize> {
    ((mark & ((1 << NUMBER_BITS) - 1)) as usize).checked_sub(1)
}

/// This library's version, sixteen bits a part.
fn version() -> u64 {
    let parts = [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    parts.iter().fold(0, |all, part| all << 16 | part.parse::<u64>().unwrap_or(0) & 0xffff)
}

/// When a process started, in ticks since the machine did. `None` if there is no such process, or if the numbers of
/// `/proc` are those of another pid namespace: then they are other processes.
fn started(pid: u32) -> Option<u64> {
    let own = std::fs::read_link("/proc/self").ok()?;
    if own.to_str()?.parse() != Ok(std::process::id()) {
        return None;
    }
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain anything. What follows is the third field; the start is the 22nd.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The namespace of this process's pid; 0 where there is none.
fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn seats() -> (File, Seats) {
        (file::memfd().unwrap(), Seats { table: Words::reserve(3).unwrap() })
    }

    #[test]
    fn a_seat_is_taken_by_one_and_free_again_when_its_lock_is_closed() {
        let (file, seats) = seats();
        let take = || seats.take(&file).unwrap();
        let (first, second, third) = (take().unwrap(), take().unwrap(), take().unwrap());
        assert_eq!([&first, &second, &third].map(|seat| seat.number), [0, 1, 2]);
        assert!(take().is_none());
        assert!(!seats.is_dead(&file, second.mark));
        let left = second.mark;
        drop(second);
        assert!(seats.is_dead(&file, left) && !seats.is_dead(&file, first.mark));
        let again = take().unwrap();
        assert_eq!(again.number, 1);
        assert_eq!(seats.long(short(again.mark)), Some(again.mark));
        assert_eq!((seats.long(short(left)), seats.long(0), seats.long(2_000)), (None, None, None));
        assert_ne!(again.mark, left);
        assert!(seats.is_dead(&file, left), "the seat has another occupant");
        assert!(!seats.is_dead(&file, again.mark));
    }

    #[test]
    fn marks_that_nobody_wrote_are_dead() {
        let (file, seats) = seats();
        for mark in [0, 1 << 16, 4, 0xffff, 1 << 16 | 1, u64::MAX] {
            assert!(seats.is_dead(&file, mark), "{mark:#x}");
        }
    }

    /// A child made past the C library keeps its parent's descriptor.
    #[test]
    fn a_process_that_is_gone_is_dead_though_its_lock_is_held() {
        let (file, seats) = seats();
        let seat = seats.take(&file).unwrap().unwrap();
        seats.table[0][START].fetch_add(1, Ordering::Relaxed);
        assert!(seats.is_dead(&file, seat.mark));
        // Not to be read: nothing is known.
        seats.table[0][START].store(0, Ordering::Relaxed);
        assert!(!seats.is_dead(&file, seat.mark));
        let pid = seats.table[0][PID].load(Ordering::Relaxed);
        seats.table[0][PID].store(u64::from(libc::pid_t::MAX as u32), Ordering::Relaxed);
        assert!(seats.is_dead(&file, seat.mark), "there is no such process");
        seats.table[0][PID].store(pid, Ordering::Relaxed);
        seats.table[0][START].store(1, Ordering::Relaxed);
        seats.table[0][PID_NAMESPACE].fetch_add(1, Ordering::Relaxed);
        assert!(!seats.is_dead(&file, seat.mark), "of another namespace it knows nothing");
    }

    #[test]
    fn occupants_show_who_they_are() {
        let (file, seats) = seats();
        let _seats = [seats.take(&file).unwrap(), seats.take(&file).unwrap()];
        let all = seats.occupants(&file, 2, Some(0));
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].number, all[0].pid), (1, std::process::id()));
        let version = all[0].version.map(|part| part.to_string()).join(".");
        assert_eq!(version, env!("CARGO_PKG_VERSION"));
        assert!(started(std::process::id()).is_some() && started(u32::MAX).is_none());
    }
}
