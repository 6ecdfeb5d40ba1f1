//! Which process this is, as distinct from all its ancestors.
//!
//! A process id alone is not enough: once an ancestor has ended, a descendant
//! may be given its id. So each child also counts its fork. That count only
//! grows from parent to child, so no process has the mark of an ancestor. Nothing
//! counts the fork of a child that was made without the C library (a bare
//! `clone`), and its id may be its parent's, if it is of another pid namespace.
//! But a word that the system wipes in every child is 0 there, so it draws a
//! number, higher than that of any ancestor.
//!
//! Also work that a fork must not copy half done: see [`unforked`].

use once_cell::race::OnceBox;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock, PoisonError, RwLock, RwLockWriteGuard};

/// Forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Locked for reading by a thread that must not be copied halfway, and for
/// writing by one that forks.
static FORKING: RwLock<()> = RwLock::new(());

thread_local! {
    /// Kept by the forking thread from before the fork until after it.
    static FORK: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// This process. Never 0.
///
/// Forks are counted from the first call on. A mark found in memory came from an
/// earlier call, so every child that could find it differs.
pub(crate) fn mark() -> u64 {
    watch_forks();
    // Relaxed: only a new child changes it, before it has any other thread.
    u64::from(FORKS.load(Ordering::Relaxed)) << 32 | u64::from(number())
}

/// A number that no ancestor has, unless it differs in its count of forks. It is kept in a word that is wiped in every
/// child, even one that was made without the C library. Where the system has no such memory, it is the process id.
///
/// No caller waits for another's first call, so neither does a child that is
/// forked during it. If two of them race, the loser's page leaks.
fn number() -> u32 {
    static KNOWN: OnceBox<Option<&AtomicU32>> = OnceBox::new();
    let Some(known) = KNOWN.get_or_init(|| Box::new(wiped_in_children())) else { return std::process::id() };
    // Relaxed: a number is all that there is to it.
    match known.load(Ordering::Relaxed) {
        0 => drawn(known),
        number => number,
    }
}

/// Draws this process's number, unless another of its threads has.
#[cold]
fn drawn(known: &AtomicU32) -> u32 {
    /// The last number drawn by this process or an ancestor: a child has its parent's when it was forked.
    static LAST: AtomicU32 = AtomicU32::new(0);
    let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    match known.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => next,
        Err(number) => number,
    }
}

/// A word that starts at zero, here and in every child. `None` where the system has no such memory.
fn wiped_in_children() -> Option<&'static AtomicU32> {
    #[cfg(target_os = "linux")]
    {
        const PAGE_BYTES: usize = 4096;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address the system chooses touches no memory in use.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE_BYTES, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: advice about the page just mapped, which no other thread knows.
        let advise = |advice| unsafe { libc::madvise(page, PAGE_BYTES, advice) } == 0;
        // A system that accepts any advice (some emulators do) follows none.
        if advise(libc::MADV_WIPEONFORK) && !advise(-1) {
            // SAFETY: zeroed memory is an atomic of zero, and the page is never unmapped.
            return Some(unsafe { &*page.cast() });
        }
        // SAFETY: the page just mapped, to which there is no reference.
        unsafe { libc::munmap(page, PAGE_BYTES) };
    }
    None
}

/// Differs between this process and those it was forked from, never 0. Cheaper
/// than [`mark`], but the same in a child that was made without the C library.
pub(crate) fn generation() -> u64 {
    u64::from(FORKS.load(Ordering::Relaxed)) + 1
}

/// Runs `act` without a fork in between: a child finds neither half of it nor a
/// lock that it took. `act` must be short, and take no lock that a thread holds
/// while it calls this.
pub(crate) fn unforked<T>(act: impl FnOnce() -> T) -> T {
    watch_forks();
    let _guard = FORKING.read().unwrap_or_else(PoisonError::into_inner);
    act()
}

/// What a forked child does before any of its own code runs.
static IN_CHILDREN: OnceLock<fn()> = OnceLock::new();

/// Calls `act` in every child that is forked from now on, when it has no other thread. One function for the whole
/// process: later ones are ignored.
#[cfg(all(feature = "shared", target_os = "linux"))]
pub(crate) fn in_children(act: fn()) {
    watch_forks();
    IN_CHILDREN.get_or_init(|| act);
}

/// Makes every fork wait for [`unforked`], and every child count its fork.
fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        #[cfg(unix)]
        // SAFETY: the handlers take and release a lock of this module, and
        // touch an atomic and a thread-local. If the system has no room for
        // them, the process id remains.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child))
        };
    });
}

#[cfg(unix)]
unsafe extern "C" fn before_fork() {
    let guard = FORKING.write().unwrap_or_else(PoisonError::into_inner);
    // A thread that is ending may no longer have this thread-local; it then forks without waiting.
    let _ = FORK.try_with(|fork| *fork.borrow_mut() = Some(guard));
}

#[cfg(unix)]
unsafe extern "C" fn after_fork() {
    let _ = FORK.try_with(|fork| fork.borrow_mut().take());
}

#[cfg(unix)]
unsafe extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let _ = FORK.try_with(|fork| fork.borrow_mut().take());
    if let Some(act) = IN_CHILDREN.get() {
        act();
    }
}

#[cfg(all(test, unix, not(loom)))]
mod tests {
    use super::*;

    /// The exit status of a child that looks at its mark.
    fn child_status(fork: impl FnOnce() -> libc::pid_t, judge: impl FnOnce(u64) -> bool) -> i32 {
        match fork() {
            0 => {
                let judged = judge(mark());
                // SAFETY: ends the child without running destructors.
                unsafe { libc::_exit(i32::from(!judged)) }
            }
            pid => {
                assert!(pid > 0, "fork failed");
                let mut status = 0;
                // SAFETY: waits for the child just made, with a place for its status.
                assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
                assert!(libc::WIFEXITED(status), "status {status}");
                libc::WEXITSTATUS(status)
            }
        }
    }

    #[test]
    fn a_child_differs_from_its_parent_in_more_than_its_id() {
        let parent = mark();
        assert_eq!(parent, mark());
        // SAFETY: the child compares two numbers and ends.
        let fork = || unsafe { libc::fork() };
        assert_eq!(child_status(fork, |child| child >> 32 > parent >> 32), 0);
    }

    /// That fork is not counted, so only the number that it draws differs. Its own child draws another.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_child_made_without_the_c_library_draws_its_own_number() {
        // SAFETY: as `fork`, with the parent's stack copied; the child compares numbers and ends.
        let clone = || unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t };
        let parent = mark();
        let is_own = |child: u64| {
            let grandchild = child_status(clone, |mark| mark != child && mark != parent);
            child != parent && child >> 32 == parent >> 32 && child == mark() && grandchild == 0
        };
        assert_eq!(child_status(clone, is_own), 0);
        assert_eq!(mark(), parent);
    }
}
