//! Processes that make a shared file or join it, at once, and one that died while it made the file.
//!
//! `shared/join.rs` goes by system calls, which loom cannot run. Here the kernel is modelled: a path that leads to a
//! file or to none, which opening makes; of each file the seats that are taken, and ATTACH, a lock that a process
//! loses when it dies. Each system call is one step of the kernel. The words of a file, its state and its content, are
//! loom's atomics. The decisions are those of the real code, [`Search::step`]; the order of the steps is written once
//! more, in [`Machine::join`] below, as `shared/join.rs` and `limiter/shared.rs` have it.
//!
//! What is left out: waits that end with an error, files that are foreign or too short, and the place to which a
//! process writes the header (`pwrite` and the mapping show the same memory). The state is read with ATTACH alone, and
//! whoever released ATTACH, or lost it, wrote before that: so it would hold with Relaxed too.

use super::*;
use crate::shared::attach::{Search, Seen, Step};
use crate::sync::{AtomicU64, broken};
use loom::sync::atomic::Ordering::{Relaxed, Release};
use loom::sync::{Mutex, MutexGuard};

/// More files than are made.
const FILES: usize = 4;

/// How many processes there are.
const JOINERS: usize = 2;

/// As in the real code.
const TRIES_MAX: usize = 8;

const READY: u64 = 1;

/// The words that the kernel has of files; files are numbered as they are made.
#[derive(Default)]
struct Kernel {
    /// Where the path leads.
    path: Option<usize>,
    made: usize,
    is_empty: [bool; FILES],
    seats: [usize; FILES],
}

struct File {
    attach: Mutex<()>,
    state: AtomicU64,
    /// Two words, both of which say what the file was made for.
    content: [AtomicU64; 2],
}

struct Machine {
    kernel: Mutex<Kernel>,
    files: [File; FILES],
}

/// Where the process dies that makes the file first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Death {
    Empty,
    Halfway,
    Written,
    Ready,
    Never,
}

/// What became of a process: the file that it uses, and whether it made that; or it was refused.
type Joined = Option<(usize, bool)>;

impl Machine {
    fn new() -> Arc<Self> {
        let word = || AtomicU64::new(0);
        let file = || File { attach: Mutex::new(()), state: word(), content: [word(), word()] };
        Arc::new(Self { kernel: Mutex::new(Kernel::default()), files: std::array::from_fn(|_| file()) })
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().unwrap()
    }

    /// Opens the file at the path; makes an empty one if there is none.
    fn open(&self) -> usize {
        let mut kernel = self.kernel();
        if kernel.path.is_none() {
            let made = kernel.made;
            kernel.made += 1;
            kernel.is_empty[made] = true;
            kernel.path = Some(made);
        }
        kernel.path.unwrap()
    }

    fn look(&self, file: usize, wanted: u64) -> Seen<()> {
        if self.kernel().path != Some(file) && !broken(Fault::NoLookAtPath) {
            return Seen::Removed;
        }
        if self.kernel().is_empty[file] {
            return Seen::Empty;
        }
        let File { state, content, .. } = &self.files[file];
        if state.load(Relaxed) != READY {
            return Seen::Stale("not ready");
        }
        let content = [0, 1].map(|word| content[word].load(Relaxed));
        assert!(content[0] == content[1] && content[0] != 0, "joined half made: {content:?}");
        if content[0] == wanted { Seen::Ready(()) } else { Seen::Misfit }
    }

    /// Joins the file at the path, or makes it, for what is wanted. `None` if others use one for something else, or the
    /// process dies.
    fn join(&self, wanted: u64, death: Death) -> Joined {
        let search = Search { has_path: true, makes_none: false };
        for _ in 0..TRIES_MAX {
            let file = self.open();
            // Released at the end of the round, or by the kernel.
            let attach = (!broken(Fault::NoAttach)).then(|| self.files[file].attach.lock().unwrap());
            if death == Death::Empty {
                return None;
            }
            let is_used = || self.kernel().seats[file] > 0;
            let is_maker = match search.step(self.look(file, wanted), is_used) {
                Step::Again => continue,
                Step::Replace => {
                    self.kernel().path = None;
                    continue;
                }
                Step::Make => true,
                Step::Join(()) => false,
                Step::Missing | Step::InUse(_) | Step::Refuse => return None,
            };
            if is_maker {
                self.kernel().is_empty[file] = false;
            }
            let _attach = attach.filter(|_| !broken(Fault::SeatAfterAttach));
            self.kernel().seats[file] += 1;
            if is_maker && !self.write(file, wanted, death) {
                self.kernel().seats[file] -= 1;
                return None;
            }
            return Some((file, is_maker));
        }
        panic!("replaced again and again");
    }

    /// Writes what a file is made for. `false` if the process dies meanwhile: then the kernel frees its seat.
    fn write(&self, file: usize, wanted: u64, death: Death) -> bool {
        let File { state, content, .. } = &self.files[file];
        if broken(Fault::ReadyTooSoon) {
            state.store(READY, Relaxed);
        }
        content[0].store(wanted, Relaxed);
        if death == Death::Halfway {
            return false;
        }
        content[1].store(wanted, Relaxed);
        if death == Death::Written {
            return false;
        }
        state.store(READY, Release);
        death != Death::Ready
    }
}

/// Processes that join at once, and want this; and before them, or at the same time, one that dies.
fn joining(wanted: [u64; JOINERS], death: Death) -> [Joined; JOINERS] {
    let machine = Machine::new();
    let joiner = thread::spawn({
        let machine = Arc::clone(&machine);
        move || machine.join(wanted[1], Death::Never)
    });
    if death != Death::Never {
        // None if it died; it joins a file that the other has made meanwhile, and then it ends.
        if let Some((file, _)) = machine.join(wanted[0], death) {
            machine.kernel().seats[file] -= 1;
        }
    }
    let joined = [machine.join(wanted[0], Death::Never), joiner.join().unwrap()];
    let kernel = machine.kernel();
    for (file, _) in joined.iter().flatten() {
        assert_eq!(kernel.path, Some(*file), "it uses a file that nobody finds");
    }
    assert_eq!(kernel.seats.iter().sum::<usize>(), joined.iter().flatten().count());
    joined
}

fn makers(joined: &[Joined]) -> usize {
    joined.iter().flatten().filter(|(_, is_maker)| *is_maker).count()
}

model! {
    /// Both find no file: one makes it, and the other joins it.
    join_against_join, UNBOUNDED, breaks with [NoAttach], || {
        let joined = joining([7, 7], Death::Never);
        assert_eq!((joined.iter().flatten().count(), makers(&joined)), (2, 1));
    }
}

/// Both join one file, which one of them has made.
fn join_after(death: Death) -> impl Fn() + Sync + Send + 'static {
    move || {
        let joined = joining([7, 7], death);
        assert_eq!(joined.iter().flatten().count(), 2);
        assert!(makers(&joined) <= 1);
    }
}

model! {
    /// The maker died before it wrote anything: the file is still empty.
    join_against_join_of_an_empty_file, UNBOUNDED, breaks with [NoAttach], join_after(Death::Empty)
}

model! {
    /// The maker died while it wrote: the file is removed by one who has seen that the path leads to it.
    join_against_join_of_a_half_made_file, UNBOUNDED, breaks with [NoLookAtPath, ReadyTooSoon],
    join_after(Death::Halfway)
}

model! {
    /// The maker died with all written, and had not said so.
    join_against_join_of_a_file_not_ready, UNBOUNDED, breaks with [NoLookAtPath], join_after(Death::Written)
}

model! {
    /// The maker died when the file was ready: they join it, or made it before.
    join_against_join_of_a_ready_file, UNBOUNDED, breaks with [NoAttach], join_after(Death::Ready)
}

model! {
    /// They want different files: one is refused, since the other uses what it has.
    join_against_a_join_of_something_else, UNBOUNDED, breaks with [UsedFileReplaced, SeatAfterAttach], || {
        let joined = joining([7, 8], Death::Never);
        assert_eq!((joined.iter().flatten().count(), makers(&joined)), (1, 1));
    }
}

model! {
    /// The same, and a third one has died that wanted what the first wants.
    joins_of_different_files_after_a_death, UNBOUNDED, breaks with [UsedFileReplaced, SeatAfterAttach], || {
        let joined = joining([7, 8], Death::Ready);
        assert_eq!(joined.iter().flatten().count(), 1);
    }
}
