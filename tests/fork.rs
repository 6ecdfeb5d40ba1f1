//! A forked child goes on with its own copy of the limiter, whatever the other
//! threads of its parent were in the midst of.

#![cfg(unix)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tollgate::{Error, LaneId, Limit, Limiter, ManualClock, OnFull, Policy};

const LANE: LaneId = LaneId::new(0);
const FORKS: u32 = 400;
const OK: i32 = 0;
const PANIC: i32 = 101;

/// After this a child is taken to hang. It needs microseconds.
const CHILD_SECONDS: u32 = 20;

/// What a child finds; its exit status. No allocation here: another thread
/// may have held the allocator's lock at the fork.
fn child(limiter: &Limiter) -> i32 {
    // Known since before the threads began; never forgotten.
    if !matches!(limiter.status("steady", LANE), Ok(status) if status.remaining() == 1) {
        return 1;
    }
    // Half of the records are vacant at all times, so everybody new is let in,
    // once: a record that nobody sees, or one that is seen twice, would show.
    for agent in 0..40_u32 {
        let id = agent.to_le_bytes();
        match (limiter.check_cost(id, LANE, 2), limiter.check_cost(id, LANE, 2)) {
            (Ok(first), Ok(second)) if first.is_allowed() && !second.is_allowed() => {}
            (Err(Error::Full), _) => return 2,
            _ => return 3,
        }
    }
    // 1 steady, 40 new, and up to two that came and went in the parent.
    if !(41..=43).contains(&limiter.stats().agents) {
        return 4;
    }
    OK
}

#[test]
fn a_child_goes_on_with_its_own_copy() {
    let policy = Policy::builder().lane("lane", Limit::per_minute(2)).build().unwrap();
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let limiter = Limiter::builder(policy).agents(8).clock(clock).on_full(OnFull::Deny).build().unwrap();
    assert!(limiter.check("steady", LANE).unwrap().is_allowed());
    let done = AtomicBool::new(false);
    let mut bad = Vec::new();
    std::thread::scope(|scope| {
        for name in ["comes", "goes"] {
            let (limiter, done) = (&limiter, &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let _ = limiter.check(name, LANE);
                    let _ = limiter.forget(name);
                }
            });
        }
        for _ in 0..FORKS {
            // SAFETY: the child calls nothing but the limiter, which neither
            // allocates nor locks anything of the process, and `_exit`.
            match unsafe { libc::fork() } {
                0 => {
                    // SAFETY: asks for a signal that ends the child if it hangs.
                    unsafe { libc::alarm(CHILD_SECONDS) };
                    let status = catch_unwind(AssertUnwindSafe(|| child(&limiter))).unwrap_or(PANIC);
                    // SAFETY: ends the child without running anybody's destructors.
                    unsafe { libc::_exit(status) }
                }
                pid => {
                    assert!(pid > 0, "fork failed");
                    let mut status = 0;
                    // SAFETY: waits for the child just made, with a place for its status.
                    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
                    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != OK {
                        bad.push(status);
                    }
                }
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(bad.is_empty(), "{} of {FORKS} children went wrong: {bad:?}", bad.len());
}
