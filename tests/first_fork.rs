//! A fork while another thread builds the process's first limiter: the child
//! finds nothing half done to wait for.
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tollgate::{LaneId, Limit, Limiter, Policy};

/// A thread is in the middle of its first call.
static INSIDE: AtomicBool = AtomicBool::new(false);

/// Replaces the C library's, and stalls where the process's mark is made, as a
/// scheduler may at any time.
///
/// # Safety
///
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    if advice == libc::MADV_WIPEONFORK {
        INSIDE.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(50));
    }
    // SAFETY: as the caller guarantees.
    unsafe { libc::syscall(libc::SYS_madvise, start, bytes, advice) as c_int }
}

fn build() -> Limiter {
    let policy = Policy::builder().lane("lane", Limit::per_minute(10)).build().expect("valid");
    Limiter::builder(policy).agents(100).build().expect("some kilobytes")
}

/// The first thread to need the process id asked for it; a child that was
/// forked meanwhile waited for an answer that no thread would give.
#[test]
fn a_child_forked_during_the_first_build_can_build() {
    std::thread::scope(|scope| {
        scope.spawn(build);
        while !INSIDE.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // SAFETY: the child builds a limiter, makes one check and ends.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: the alarm ends a child that waits for ever.
            unsafe { libc::alarm(10) };
            let answer = build().check("agent", LaneId::new(0));
            // SAFETY: ends the child without running destructors.
            unsafe { libc::_exit(i32::from(answer.is_err())) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just made, with a place for its status.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert!(libc::WIFEXITED(status), "ended by signal {}", libc::WTERMSIG(status));
        assert_eq!(libc::WEXITSTATUS(status), 0);
    });
    assert!(INSIDE.load(Ordering::SeqCst));
}
