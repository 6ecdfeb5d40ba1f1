//! Forked children join by themselves, and nobody keeps a dead parent's seat.

use crate::place::Place;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tollgate::shared::{Shared, SharedError};
use tollgate::{BuildError, Error, Limiter, Policy, Request};

fn limiter(place: impl Into<Shared>) -> Limiter {
    let policy = Policy::builder().lane("http", "100/hour").lane("ws", "held 3").build().unwrap();
    Limiter::builder(policy).agents(1_000).shared(place).build().unwrap()
}

/// Runs `act` in a forked child, and returns what it returns: a number below 256.
pub(crate) fn in_child(act: impl FnOnce() -> u8) -> Child {
    // SAFETY: the child runs `act` alone, and ends without running destructors.
    match unsafe { libc::fork() } {
        0 => {
            // If the test fails, nobody ends the child.
            // SAFETY: sets a timer.
            unsafe { libc::alarm(60) };
            let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)).unwrap_or(255);
            // SAFETY: ends the child.
            unsafe { libc::_exit(status.into()) }
        }
        pid => Child(pid),
    }
}

/// A child joins every slab of its parent, those of other tests too: one test at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says when it is dropped that other threads are to end, even if the test fails.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) struct Child(libc::pid_t);

impl Child {
    pub(crate) fn wait(self) -> u8 {
        let mut status = 0;
        // SAFETY: waits for the child that was just made, with a place for its status.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        assert!(libc::WIFEXITED(status), "status {status}");
        libc::WEXITSTATUS(status) as u8
    }

    pub(crate) fn pid(&self) -> libc::pid_t {
        self.0
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the child that was just made.
        assert_eq!(unsafe { libc::kill(self.0, signal) }, 0);
    }

    /// How it ended: its exit status, or the signal that killed it.
    pub(crate) fn status(self) -> (Option<i32>, Option<i32>) {
        let mut status = 0;
        // SAFETY: the child that was just made, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        let exited = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        (exited, libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)))
    }

    /// Waits until it is stopped.
    pub(crate) fn wait_for_stop(&self) {
        let mut status = 0;
        // SAFETY: the child that was just made, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, libc::WUNTRACED) }, self.0);
        assert!(libc::WIFSTOPPED(status), "status {status}");
    }

    pub(crate) fn kill(self) {
        self.signal(libc::SIGKILL);
        self.reap();
    }

    /// Waits for a child that was killed.
    pub(crate) fn reap(self) {
        let mut status = 0;
        // SAFETY: as above.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        assert!(libc::WIFSIGNALED(status), "status {status}");
    }
}

/// A child that waits for its end after `act`.
pub(crate) fn stays(act: impl FnOnce() -> bool) -> Child {
    let ends = pipe();
    let child = in_child(|| {
        write(ends[1], u8::from(act()));
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    });
    assert_eq!(read(ends[0]), 1);
    ends.into_iter().for_each(close);
    child
}

/// A pipe: where it is read, and where it is written.
fn pipe() -> [i32; 2] {
    let mut ends = [0; 2];
    // SAFETY: room for both ends.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    ends
}

fn write(end: i32, byte: u8) {
    // SAFETY: one byte to a pipe.
    assert_eq!(unsafe { libc::write(end, (&raw const byte).cast(), 1) }, 1);
}

/// Waits for a byte.
fn read(end: i32) -> u8 {
    let mut byte = 0_u8;
    // SAFETY: one byte from a pipe.
    assert_eq!(unsafe { libc::read(end, (&raw mut byte).cast(), 1) }, 1);
    byte
}

fn close(end: i32) {
    // SAFETY: a descriptor of this test's own.
    unsafe { libc::close(end) };
}

fn allowed(limiter: &Limiter, checks: usize) -> u8 {
    let http = limiter.lane("http").unwrap();
    let ask = || limiter.check("agent-7", http);
    // On a busy machine another newcomer may not have run for two milliseconds; it goes on.
    let answer = || std::iter::repeat_with(ask).find(|answer| *answer != Err(Error::Busy)).unwrap();
    (0..checks).filter(|_| answer().unwrap().is_allowed()).count() as u8
}

#[test]
fn a_slab_made_before_the_fork_is_one_for_all() {
    let _alone = alone();
    let limiter = limiter(Shared::memfd());
    let children: Vec<_> = (0..4).map(|_| in_child(|| allowed(&limiter, 100))).collect();
    let all: u32 = children.into_iter().map(|child| u32::from(child.wait())).sum();
    assert_eq!(all, 100);
    assert_eq!(limiter.sharing().unwrap().processes.len(), 1, "the children are gone");
    assert_eq!(limiter.audit(), [""; 0]);
}

#[test]
fn each_child_has_its_own_seat_and_leaves_it() {
    let _alone = alone();
    let place = Place::new();
    let limiter = limiter(place.slab());
    let (a, b) = (stays(|| allowed(&limiter, 1) == 1), stays(|| allowed(&limiter, 1) == 1));
    let processes = limiter.sharing().unwrap().processes;
    let pids: Vec<_> = processes.iter().map(|process| process.pid as i32).collect();
    assert!(pids.contains(&a.0) && pids.contains(&b.0) && pids.len() == 3, "{pids:?}");
    a.kill();
    assert_eq!(limiter.sharing().unwrap().processes.len(), 2);
    b.kill();
    assert_eq!(limiter.sharing().unwrap().processes.len(), 1);
}

/// The parent is dead, and its orphan lives: the parent's slots come back, and the orphan's stay.
#[test]
fn a_dead_parents_slots_come_back_though_its_child_lives() {
    let _alone = alone();
    let place = Place::new();
    let first = limiter(place.slab());
    let ws = first.lane("ws").unwrap();
    let mut ends = [0; 2];
    // SAFETY: room for both ends.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    let parent = stays(|| {
        // It stays until the process ends.
        let limiter: &Limiter = Box::leak(Box::new(limiter(place.slab())));
        let took = |slots| {
            let request = Request::new("agent-7", ws).cost(slots);
            limiter.hold_until_released(request).unwrap().is_allowed()
        };
        let is_taken = took(2);
        let orphan = stays(|| took(1));
        let pid = orphan.0.to_ne_bytes();
        // SAFETY: four bytes to the pipe.
        unsafe { libc::write(ends[1], pid.as_ptr().cast(), 4) };
        is_taken
    });
    let mut pid = [0; 4];
    // SAFETY: four bytes from the pipe.
    assert_eq!(unsafe { libc::read(ends[0], pid.as_mut_ptr().cast(), 4) }, 4);
    let free = || first.peek(Request::new("agent-7", ws)).unwrap().remaining();
    assert_eq!(free(), 0);
    assert!(!first.hold_until_released(Request::new("agent-7", ws)).unwrap().is_allowed(), "all of them live");
    parent.kill();
    // Not at the very next call: a denial that found nobody dead is not followed by another look for some time.
    while !first.hold_until_released(Request::new("agent-7", ws)).unwrap().is_allowed() {
        std::thread::yield_now();
    }
    assert_eq!(free(), 1);
    // SAFETY: the orphan, which is nobody's child by now.
    assert_eq!(unsafe { libc::kill(i32::from_ne_bytes(pid), libc::SIGKILL) }, 0);
    // It is reaped by somebody else, at some time.
    while first.sharing().unwrap().processes.len() > 1 {
        std::thread::yield_now();
    }
    first.sweep(std::time::Duration::ZERO);
    assert_eq!(free(), 2);
    first.release(Request::new("agent-7", ws)).unwrap();
    assert_eq!((free(), first.audit()), (3, Vec::new()));
}

/// Nothing tells the C library of such a fork.
#[test]
fn a_child_made_without_the_c_library_takes_a_seat_when_it_needs_one() {
    let _alone = alone();
    let place = Place::new();
    let limiter = limiter(place.slab());
    let http = limiter.lane("http").unwrap();
    assert!(limiter.check("agent-7", http).unwrap().is_allowed());
    // SAFETY: as `fork`, with the parent's stack copied; the child claims a record and ends.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t };
    if pid == 0 {
        let is_allowed = limiter.check("agent-8", http).is_ok_and(|verdict| verdict.is_allowed());
        let sharing = limiter.sharing().map_or(0, |sharing| sharing.processes.len());
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!is_allowed || sharing != 2)) }
    }
    assert_eq!(Child(pid).wait(), 0);
    assert_eq!((limiter.stats().agents, limiter.sharing().unwrap().processes.len()), (2, 1));
}

/// Its parent is gone, and it has no seat yet. A process with other lanes took the slab for one that nobody uses, and
/// removed it.
#[test]
fn a_child_made_without_the_c_library_keeps_the_slab_of_its_dead_parent() {
    let _alone = alone();
    let place = Place::new();
    let [goes_on, went_on] = [pipe(), pipe()];
    let parent = in_child(|| {
        let limiter = limiter(place.slab());
        // SAFETY: as `fork`, with the parent's stack copied; the child checks an agent when it is told to, and ends.
        if unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } == 0 {
            // SAFETY: if the test fails, nobody ends the child: sets a timer.
            unsafe { libc::alarm(60) };
            read(goes_on[0]);
            let is_allowed = allowed(&limiter, 1) == 1;
            write(went_on[1], u8::from(is_allowed && !limiter.sharing().unwrap().is_detached));
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) }
        }
        std::mem::forget(limiter); // It does not leave: it is gone.
        0
    });
    assert_eq!(parent.wait(), 0);
    let other = Policy::builder().lane("http", "window 100/hour").build().unwrap();
    let build = || Limiter::builder(other.clone()).agents(1_000).shared(place.slab()).build();
    let refused = build().unwrap_err();
    assert!(matches!(refused, BuildError::Shared(SharedError::OtherLane { .. })), "{refused}");
    write(goes_on[1], 1);
    assert_eq!(read(went_on[0]), 1);
    // It ends now, and nobody uses the slab any more.
    while let Err(error) = build() {
        assert_eq!(error, refused);
        std::thread::yield_now();
    }
    [goes_on, went_on].concat().into_iter().for_each(close);
}

/// A guard that a fork has copied is the parent's all the same.
#[test]
fn a_childs_copy_of_a_slot_gives_nothing_back() {
    let _alone = alone();
    let limiter = limiter(Shared::memfd());
    let ws = limiter.lane("ws").unwrap();
    let slot = RefCell::new(Limiter::hold(&limiter, Request::new("agent-7", ws)).unwrap().into_slot());
    let free = || limiter.peek(Request::new("agent-7", ws)).unwrap().remaining() as u8;
    let child = in_child(|| {
        drop(slot.take());
        free()
    });
    assert_eq!(child.wait(), 2);
    assert_eq!(free(), 2);
}

/// Whoever comes first makes the slab, and all others join it, though they come at once.
#[test]
fn processes_that_join_at_once_are_one_limiter() {
    let _alone = alone();
    for _ in 0..20 {
        let place = Place::new();
        let children: Vec<_> = (0..8).map(|_| in_child(|| allowed(&limiter(place.slab()), 30))).collect();
        let all: u32 = children.into_iter().map(|child| u32::from(child.wait())).sum();
        assert_eq!(all, 100);
        let last = limiter(place.slab());
        assert_eq!((last.sharing().unwrap().processes.len(), last.audit()), (1, Vec::new()));
    }
}

/// In a child that was forked in the midst of a control call, `reset` and `forget` were answered `Busy` for ever.
/// Neither needs what that call was changing.
#[test]
fn a_child_that_is_forked_in_a_control_call_can_reset_and_forget() {
    const FORKS_MAX: usize = 500;
    let _alone = alone();
    let limiter = limiter(Shared::memfd());
    let http = limiter.lane("http").unwrap();
    let is_done = AtomicBool::new(false);
    let status = std::thread::scope(|scope| {
        let _ends = Ends(&is_done);
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                limiter.set_override("agent-8", "http", "7/s").unwrap();
                limiter.set_override("agent-8", "http", "8/s").unwrap();
            }
        });
        let child = |_| {
            let child = in_child(|| {
                let is_forked = matches!(limiter.exempt("agent-9"), Err(tollgate::ControlError::Forked));
                assert!(limiter.check("agent-7", http).unwrap().is_allowed());
                let (reset, forgotten) = (limiter.reset("agent-7"), limiter.forget("agent-7"));
                assert_eq!((reset, forgotten), (Ok(()), Ok(true)));
                limiter.reset_lane("agent-7", http).unwrap();
                u8::from(is_forked)
            });
            child.wait()
        };
        (0..FORKS_MAX).map(child).find(|status| *status != 0)
    });
    assert_eq!(status, Some(1), "none: never forked in the midst of a control call; 255: the child panicked");
    assert_eq!(limiter.audit(), [""; 0]);
}

/// A program that a process turns into knows nothing of the limiter, and must keep no seat alive.
#[test]
fn a_process_that_runs_another_program_keeps_no_seat() {
    let _alone = alone();
    let place = Place::new();
    let limiter = limiter(place.slab());
    let ws = limiter.lane("ws").unwrap();
    let mut ends = [0; 2];
    // SAFETY: room for both ends, which close when another program is run.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    let child = in_child(|| {
        let joined: &Limiter = Box::leak(Box::new(self::limiter(place.slab())));
        let is_held = joined.hold_until_released(Request::new("agent-7", ws).cost(3)).unwrap().is_allowed();
        let said = [u8::from(is_held && limiter.sharing().unwrap().processes.len() == 3)];
        // SAFETY: one byte to the pipe.
        unsafe { libc::write(ends[1], said.as_ptr().cast(), 1) };
        let arguments = [c"sleep".as_ptr(), c"60".as_ptr(), std::ptr::null()];
        // SAFETY: strings that end with a zero, and a list that ends with a null pointer.
        unsafe { libc::execvp(arguments[0], arguments.as_ptr()) };
        1
    });
    // SAFETY: this test's own.
    unsafe { libc::close(ends[1]) };
    let mut said = [0_u8; 2];
    // SAFETY: one byte from the pipe.
    assert_eq!(unsafe { libc::read(ends[0], said.as_mut_ptr().cast(), 1) }, 1);
    // SAFETY: the pipe ends when the child runs the other program.
    assert_eq!(unsafe { libc::read(ends[0], said[1..].as_mut_ptr().cast(), 1) }, 0);
    // SAFETY: this test's own.
    unsafe { libc::close(ends[0]) };
    assert_eq!(said, [1, 0]);
    // Its process lives, and is nobody here.
    child.signal(0);
    // Real time: the kernel closes one descriptor after the other, and that of the pipe may be the first.
    let is_alone = (0..10_000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        limiter.sharing().unwrap().processes.len() == 1
    });
    assert!(is_alone);
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", child.0)).unwrap();
    let open = descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    assert_eq!(open.filter(|path| path.starts_with(place.path())).count(), 0);
    assert!(limiter.hold_until_released(Request::new("agent-7", ws).cost(3)).unwrap().is_allowed());
    child.kill();
    assert_eq!(limiter.audit(), [""; 0]);
}

/// A fork in the midst of a claim of another thread: the region's lock is the parent's, who goes on.
#[test]
fn children_that_are_forked_during_claims_join() {
    let _alone = alone();
    let place = Place::new();
    let limiter = limiter(place.slab());
    let http = limiter.lane("http").unwrap();
    let is_done = AtomicBool::new(false);
    let claim = |agent: String| {
        match limiter.check(&agent, http) {
            Ok(verdict) => assert!(verdict.is_allowed(), "{agent}"),
            // The parent may not run for two milliseconds while it has the lock of a region.
            Err(error) => assert_eq!(error, Error::Busy, "{agent}"),
        }
    };
    std::thread::scope(|scope| {
        let (claim, limiter, is_done) = (&claim, &limiter, &is_done);
        scope.spawn(move || {
            let ids = (0_u64..).map(|agent| (agent, format!("parent-{}", agent % 500)));
            for (_, id) in ids.take_while(|_| !is_done.load(Ordering::Relaxed)) {
                claim(id.clone());
                let _ = limiter.forget(&*id);
            }
        });
        let child = |child: usize| {
            in_child(|| {
                (0..20).for_each(|agent| claim(format!("child-{child}-{agent}")));
                for agent in 0..20 {
                    let _ = limiter.forget(&*format!("child-{child}-{agent}"));
                }
                limiter.sharing().unwrap().processes.iter().filter(|process| process.is_this).count() as u8
            })
        };
        for round in 0..50 {
            let children: Vec<_> = (0..4).map(|number| child(4 * round + number)).collect();
            children.into_iter().for_each(|child| assert_eq!(child.wait(), 1));
        }
        is_done.store(true, Ordering::Relaxed);
    });
    assert_eq!((limiter.sharing().unwrap().processes.len(), limiter.audit()), (1, Vec::new()));
}
