//! Which process this is, told apart from all those it was forked from.
//!
//! A process number alone does not do: once an ancestor has ended, a
//! descendant may be given its number. So each fork also counts, in the child.
//! That count only grows from parent to child, hence no process has the mark
//! of an ancestor. The number stays part of the mark for a child that was made
//! past the C library (a bare `clone`), where nothing counts.
//!
//! And what must not be copied half done: see [`unforked`].

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, PoisonError, RwLock, RwLockWriteGuard};

/// Forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Held for reading by whoever must not be copied in the midst of what it
/// does, and for writing by whoever forks.
static FORKING: RwLock<()> = RwLock::new(());

thread_local! {
    /// Kept from before a fork until after it, by the thread that forks.
    static FORK: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// This process, never 0.
///
/// Forks are counted from the first call on. A mark that somebody put into
/// memory was asked for before, so every child that could find it differs.
pub(crate) fn mark() -> u64 {
    watch_forks();
    // Relaxed: only a new child changes it, before it has any other thread.
    u64::from(FORKS.load(Ordering::Relaxed)) << 32 | u64::from(std::process::id())
}

/// Tells this process from those it was forked from, never 0. Cheaper than
/// [`mark`], and blind to a child that was made past the C library.
pub(crate) fn generation() -> u64 {
    u64::from(FORKS.load(Ordering::Relaxed)) + 1
}

/// Does something that no fork interrupts: a child never finds it half done,
/// nor a lock that it took. It must be short, and take no lock that somebody
/// holds who is on the way to here.
pub(crate) fn unforked<T>(act: impl FnOnce() -> T) -> T {
    watch_forks();
    let _guard = FORKING.read().unwrap_or_else(PoisonError::into_inner);
    act()
}

/// Has every fork wait for [`unforked`], and every child count.
fn watch_forks() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        #[cfg(unix)]
        // SAFETY: the handlers take and release a lock of this module, and touch
        // an atomic and a thread-local. If the system has no room for them, the
        // process number remains.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child))
        };
    });
}

#[cfg(unix)]
unsafe extern "C" fn before_fork() {
    let guard = FORKING.write().unwrap_or_else(PoisonError::into_inner);
    // A thread that is ending may have no such place any more; then it forks without waiting.
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
}

#[cfg(all(test, unix, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_child_differs_from_its_parent_in_more_than_its_number() {
        let parent = mark();
        assert_eq!(parent, mark());
        // SAFETY: the child compares two numbers and ends.
        match unsafe { libc::fork() } {
            0 => {
                let child = mark();
                let counted = child >> 32 > parent >> 32;
                // SAFETY: ends the child without running anybody's destructors.
                unsafe { libc::_exit(i32::from(!counted)) }
            }
            pid => {
                assert!(pid > 0, "fork failed");
                let mut status = 0;
                // SAFETY: waits for the child just made, with a place for its status.
                assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
                assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
            }
        }
    }
}
