//! Which process this is, told apart from all those it was forked from.
//!
//! A process number alone does not do: once an ancestor has ended, a
//! descendant may be given its number. So each fork also counts, in the child.
//! That count only grows from parent to child, hence no process has the mark
//! of an ancestor. The number stays part of the mark for a child that was made
//! past the C library (a bare `clone`), where nothing counts.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Whether forks are counted yet.
static COUNTED: AtomicBool = AtomicBool::new(false);

/// This process, never 0.
///
/// Forks are counted from the first call on. A mark that somebody put into
/// memory was asked for before, so every child that could find it differs.
pub(crate) fn mark() -> u64 {
    if !COUNTED.load(Ordering::Relaxed) {
        count_forks();
    }
    // Relaxed: only a new child changes it, before it has any other thread.
    u64::from(FORKS.load(Ordering::Relaxed)) << 32 | u64::from(std::process::id())
}

/// Has every child count. Two threads that get here at once have it count
/// twice, which is just as well.
#[cold]
fn count_forks() {
    #[cfg(unix)]
    // SAFETY: the handler touches one atomic and nothing else, which is allowed
    // in a child. If the system has no room for it, the process number remains.
    unsafe {
        libc::pthread_atfork(None, None, Some(count_fork))
    };
    COUNTED.store(true, Ordering::Relaxed);
}

#[cfg(unix)]
unsafe extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
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
