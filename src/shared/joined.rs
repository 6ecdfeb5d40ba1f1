//! A shared file that this process uses.

use super::header::{BUSY_AT, HEADER_WORDS, MADE_AT, SEATS_USED_AT, SECRET_AT, STATE_AT, TAKEOVERS_AT};
use super::lock::Holders;
use super::memory::{Layout, Section};
use super::seats::{self, ATTACH, Seat, Seats, occupant};
use super::view::{Process, SharedSecret, Sharing};
use crate::bounds::PROCESSES_MAX;
use crate::machine::file::{self, FileMap};
use crate::machine::mapping::{Atomics, Words};
use crate::machine::process::{self, unforked};
use crate::sync::{AtomicU64, Counter, Ordering, lock};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, Weak};

/// A shared file that this process uses.
pub(crate) struct Joined {
    map: Arc<FileMap>,
    layout: Layout,
    /// Never locked by this process, so it shows all locks.
    file: File,
    path: PathBuf,
    identity: (u64, u64),
    /// Whether the path leads to the file; otherwise it is only a word for it.
    has_path: bool,
    header: Words<AtomicU64>,
    seats: Seats,
    is_maker: bool,
    /// The process that took the seat: its [mark](process::mark) as a process.
    seated: Counter,
    /// What locks are marked with; 0 without a seat.
    mark: Counter,
    seat: Mutex<Option<Seat>>,
    /// Why there was none: the system's error number, or 0 if all were taken.
    refusal: Counter,
    /// This process's block of counters, once it counts.
    counters: Mutex<Option<Arc<FileMap>>>,
    /// Whether the policy of this process has other numbers than the one in force.
    policy_differs: AtomicBool,
}

/// Every file that this process uses.
static ALL: Mutex<Vec<Weak<Joined>>> = Mutex::new(Vec::new());

/// The lock under which a process makes or joins a file, through a description of its own.
///
/// A child that is forked meanwhile inherits the descriptor, and would keep the lock: it closes it at once, and the
/// lock is released in so many words.
pub(super) struct AttachLock(Arc<Mutex<Option<File>>>);

/// Every such lock of this process.
static ATTACHING: Mutex<Vec<Arc<Mutex<Option<File>>>>> = Mutex::new(Vec::new());

impl AttachLock {
    pub(super) fn new(file: &File) -> io::Result<Self> {
        process::in_children(reseat_all);
        unforked(|| {
            let lock_file = Arc::new(Mutex::new(Some(file::reopen(file)?)));
            lock(&ATTACHING).push(Arc::clone(&lock_file));
            Ok(Self(lock_file))
        })
    }

    /// `false` if another process has it.
    pub(super) fn try_lock(&self) -> io::Result<bool> {
        unforked(|| lock(&self.0).as_ref().map_or(Ok(false), |file| file::lock_byte(file, ATTACH)))
    }
}

impl Drop for AttachLock {
    fn drop(&mut self) {
        unforked(|| {
            lock(&ATTACHING).retain(|other| !Arc::ptr_eq(other, &self.0));
            lock(&self.0).take().into_iter().for_each(|file| file::unlock_byte(&file, ATTACH));
        });
    }
}

/// Gives a forked child its own seat in every file. Called in the child, when it has no other thread.
fn reseat_all() {
    lock(&ATTACHING).drain(..).for_each(|attaching| drop(lock(&attaching).take()));
    for joined in lock(&ALL).iter().filter_map(Weak::upgrade) {
        joined.mark();
    }
}

impl Joined {
    /// A file with this layout, which is as long as that.
    pub(super) fn new(file: File, path: &Path, has_path: bool, layout: Layout, is_maker: bool) -> io::Result<Self> {
        let identity = identity(&file.metadata()?);
        let map = Arc::new(FileMap::new(&file, 0, layout.bytes())?);
        let none = || io::Error::other("the layout has no such section");
        let section = |section, len| Words::part_of(&map, layout.start(section), len).ok_or_else(none);
        let header = section(Section::Header, HEADER_WORDS)?;
        let seats = Words::part_of(&map, layout.start(Section::Seats), PROCESSES_MAX).ok_or_else(none)?;
        Ok(Self {
            map,
            layout,
            file,
            path: path.to_owned(),
            identity,
            has_path,
            header,
            seats: Seats { table: seats },
            is_maker,
            seated: Counter::new(0),
            mark: Counter::new(0),
            seat: Mutex::new(None),
            refusal: Counter::new(0),
            counters: Mutex::new(None),
            policy_differs: AtomicBool::new(false),
        })
    }

    /// Takes a seat; `false` if there is none.
    pub(super) fn sit_down(self: &Arc<Self>) -> io::Result<bool> {
        let process = process::mark();
        process::in_children(reseat_all);
        // In one block: a child that is forked has neither, or knows of both.
        unforked(|| {
            let is_seated = self.take_seat(process)?;
            if is_seated {
                lock(&ALL).push(Arc::downgrade(self));
            }
            Ok(is_seated)
        })
    }

    /// Takes a seat for this process, and gives up what it inherited.
    fn take_seat(&self, process: u64) -> io::Result<bool> {
        let mut seat = lock(&self.seat);
        // Of several threads of a child the first takes the seat.
        if self.seated.load(Ordering::Relaxed) == process {
            return Ok(true);
        }
        self.mark.store(0, Ordering::Relaxed);
        let taken = self.seats.take(&self.file);
        // Given up only now: in between, nobody must find the file without a user.
        *seat = None;
        let Some(taken) = taken? else { return Ok(false) };
        let (start, bytes) = self.counters_of(taken.number);
        // Those of the seats before it too: one may have died before it had memory.
        let first = self.layout.start(Section::Counters);
        file::allocate(&self.file, first, start + bytes - first)?;
        self.header[SEATS_USED_AT].fetch_max(taken.number as u64 + 1, Ordering::Relaxed);
        if let Some(counters) = &*lock(&self.counters) {
            counters.remap(&self.file, start)?;
        }
        self.mark.store(taken.mark, Ordering::Relaxed);
        *seat = Some(taken);
        // Release, paired with `mark`: a thread that sees this process seated also sees its mark.
        self.seated.store(process, Ordering::Release);
        Ok(true)
    }

    /// What this process marks locks with; 0 if it can have no seat.
    pub(crate) fn mark(&self) -> u64 {
        let process = process::mark();
        if self.seated.load(Ordering::Acquire) != process {
            // A forked child; if it is refused a seat, its next call asks again.
            let refusal = match unforked(|| self.take_seat(process)) {
                Ok(_) => 0,
                Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
            };
            self.refusal.store(refusal as u64, Ordering::Relaxed);
        }
        if self.seated.load(Ordering::Acquire) == process { self.mark.load(Ordering::Relaxed) } else { 0 }
    }

    /// Why this process can have no seat: the system's error number, or 0 if all are taken. `None` if it has one.
    pub(crate) fn seat_refusal(&self) -> Option<i32> {
        // Lossless: it was written as such a number.
        (self.mark() == 0).then(|| self.refusal.load(Ordering::Relaxed) as i32)
    }

    pub(crate) fn words<W: Atomics>(&self, section: Section, len: usize) -> Option<Words<W>> {
        let fits = len.checked_mul(size_of::<W>())? <= self.layout.length(section);
        if fits { Words::part_of(&self.map, self.layout.start(section), len) } else { None }
    }

    pub(crate) fn is_maker(&self) -> bool {
        self.is_maker
    }

    /// Takes memory for a part of a sparse section.
    pub(crate) fn allocate(&self, section: Section, offset: usize, bytes: usize) -> bool {
        debug_assert!(offset + bytes <= self.layout.length(section));
        self.has_its_file() && file::allocate(&self.file, self.layout.start(section) + offset, bytes).is_ok()
    }

    /// Lets others join: everything is written.
    pub(super) fn publish(&self) {
        self.header[STATE_AT].store(super::header::READY, Ordering::Release);
    }

    pub(crate) fn count_takeover(&self) {
        self.header[TAKEOVERS_AT].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_busy(&self) {
        self.header[BUSY_AT].fetch_add(1, Ordering::Relaxed);
    }

    /// A part of [`mark`](Self::mark) that fits in [`SHORT_BITS`]; 0 without a seat.
    pub(crate) fn short_mark(&self) -> u64 {
        seats::short(self.mark())
    }

    /// Whether the process with this short mark is dead. A seat that was taken 2,048 times since is mistaken for it.
    pub(crate) fn is_short_dead(&self, short: u64) -> bool {
        self.seats.long(short).is_none_or(|mark| self.is_dead(mark))
    }

    /// The pid behind a mark; 0 if it is nobody's.
    pub(crate) fn pid(&self, mark: u64) -> u32 {
        self.seats.pid(mark)
    }

    /// How many seats were ever taken.
    fn seats_used(&self) -> usize {
        // Not beyond the table, whatever the word is.
        (self.header[SEATS_USED_AT].load(Ordering::Relaxed) as usize).min(self.seats.table.len())
    }

    /// How many other processes use it, or may yet.
    pub(super) fn others(&self) -> usize {
        let own = unforked(|| lock(&self.seat).as_ref().map(|seat| seat.number));
        self.seats.taken(&self.file, self.seats_used(), own).count()
    }

    /// Where the block of counters of a seat begins, and its length.
    fn counters_of(&self, seat: usize) -> (usize, usize) {
        let bytes = self.layout.length(Section::Counters) / PROCESSES_MAX;
        (self.layout.start(Section::Counters) + seat * bytes, bytes)
    }

    /// How much memory a seat takes.
    pub(super) fn seat_bytes(&self) -> u64 {
        self.counters_of(0).1 as u64
    }

    /// How many bytes its file system has left.
    pub(super) fn room(&self) -> u64 {
        file::room(&self.file)
    }

    /// The `len` counters of this process. A forked child finds its own at the same address.
    pub(crate) fn counters<W: Atomics>(&self, len: usize) -> Option<Words<W>> {
        self.mark();
        unforked(|| {
            let seat = lock(&self.seat).as_ref().map_or(0, |seat| seat.number);
            let (start, bytes) = self.counters_of(seat);
            let block = Arc::new(FileMap::new(&self.file, start, bytes).ok()?);
            *lock(&self.counters) = Some(Arc::clone(&block));
            Words::part_of(&block, 0, len)
        })
    }

    /// The counters of every process there ever was, each `len` long.
    pub(crate) fn all_counters<W: Atomics>(&self, len: usize) -> impl Iterator<Item = Words<W>> + '_ {
        let of_seat = move |seat| Words::part_of(&self.map, self.counters_of(seat).0, len);
        (0..self.seats_used()).filter_map(of_seat)
    }

    /// What an operator sees of it.
    pub(crate) fn view(&self) -> Sharing {
        self.mark();
        let own = unforked(|| lock(&self.seat).as_ref().map(|seat| seat.number));
        let others = self.seats.occupants(&self.file, self.seats_used(), own).into_iter();
        let this = own.map(|number| occupant(number, &self.seats.table[number]));
        let mut processes: Vec<_> = others.map(|seat| (seat, false)).chain(this.map(|seat| (seat, true))).collect();
        processes.sort_by_key(|(seat, _)| seat.number);
        Sharing {
            path: self.path.clone(),
            bytes: self.layout.bytes() as u64,
            made: seats::date(self.header[MADE_AT].load(Ordering::Relaxed)),
            processes: processes
                .into_iter()
                .map(|(seat, is_this)| Process { pid: seat.pid, joined: seat.joined, version: seat.version, is_this })
                .collect(),
            takeovers: self.header[TAKEOVERS_AT].load(Ordering::Relaxed),
            busy: self.header[BUSY_AT].load(Ordering::Relaxed),
            policy_differs: self.policy_differs.load(Ordering::Relaxed),
            is_detached: self.is_detached(),
            secret: SharedSecret(std::array::from_fn(|at| self.header[SECRET_AT + at].load(Ordering::Relaxed))),
        }
    }

    /// Whether its path leads to another file by now, or to none.
    fn is_detached(&self) -> bool {
        self.has_path && Some(self.identity) != std::fs::symlink_metadata(&self.path).map(|about| identity(&about)).ok()
    }

    /// Whether its descriptor is still that of the file. A program that closes descriptors which are not its own may
    /// have opened another file in its place, whose locks say nothing.
    fn has_its_file(&self) -> bool {
        self.file.metadata().is_ok_and(|about| identity(&about) == self.identity)
    }

    /// The file, to pass it on.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn set_policy_differs(&self, differs: bool) {
        self.policy_differs.store(differs, Ordering::Relaxed);
    }

    /// The file's name in errors.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// What distinguishes a file from all others.
fn identity(about: &std::fs::Metadata) -> (u64, u64) {
    (about.dev(), about.ino())
}

impl Drop for Joined {
    fn drop(&mut self) {
        let is_this = self.seated.load(Ordering::Relaxed) == process::mark();
        unforked(|| {
            lock(&ALL).retain(|joined| joined.strong_count() > 0);
            // A child's copy of a seat is its parent's.
            lock(&self.seat).take().filter(|_| is_this).into_iter().for_each(Seat::leave);
        });
    }
}

impl Holders for Joined {
    fn me(&self) -> u64 {
        self.mark()
    }

    fn is_dead(&self, holder: u64) -> bool {
        self.seats.is_dead(&self.file, holder) && self.has_its_file()
    }
}
