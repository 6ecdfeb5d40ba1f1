//! A forked child continues with its own copy of the limiter, whatever the
//! other threads of its parent were doing.

#![cfg(unix)]

#[cfg(feature = "persist")]
#[path = "common/directory.rs"]
mod directory;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tollgate::observe::Observe;
use tollgate::{ControlError, Decision, Error, LaneId, Limit, Limiter, ManualClock, OnFull, Policy, Request};

const LANE: LaneId = LaneId::new(0);
const FORKS: u32 = 400;
const OK: i32 = 0;
const PANIC: i32 = 101;

/// After this a child counts as hung. It needs microseconds.
const CHILD_SECONDS: u32 = 20;

/// What a child finds; its exit status.
fn child(limiter: &Limiter) -> i32 {
    // Known before the threads started, and never forgotten.
    if !matches!(limiter.peek(Request::new("steady", LANE)), Ok(status) if status.remaining() == 1) {
        return 1;
    }
    // Half of the records are always vacant, so every new agent gets one, once:
    // a record that is lost or found twice would be visible.
    for agent in 0..40_u32 {
        let id = agent.to_le_bytes();
        match (
            limiter.check_request(Request::new(&id, LANE).cost(2)),
            limiter.check_request(Request::new(&id, LANE).cost(2)),
        ) {
            (Ok(first), Ok(second)) if first.is_allowed() && !second.is_allowed() => {}
            (Err(Error::Full), _) => return 2,
            _ => return 3,
        }
    }
    // 1 steady agent, 40 new ones, and up to two that came and went in the parent.
    if !(41..=43).contains(&limiter.stats().agents) {
        return 4;
    }
    OK
}

/// Forks while two threads repeat `acts`, and lets every child report.
fn fork_while(limiter: &Limiter, forks: u32, acts: [fn(&Limiter); 2], child: fn(&Limiter) -> i32) {
    let done = AtomicBool::new(false);
    let mut bad = Vec::new();
    std::thread::scope(|scope| {
        for act in acts {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    act(limiter);
                }
            });
        }
        for _ in 0..forks {
            // SAFETY: the child calls nothing but the limiter and `_exit`.
            match unsafe { libc::fork() } {
                0 => {
                    // SAFETY: asks for a signal that ends the child if it hangs.
                    unsafe { libc::alarm(CHILD_SECONDS) };
                    let status = catch_unwind(AssertUnwindSafe(|| child(limiter))).unwrap_or(PANIC);
                    // SAFETY: ends the child without running destructors.
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
    assert!(bad.is_empty(), "{} of {forks} children went wrong: {bad:?}", bad.len());
}

fn limiter() -> Limiter {
    with_observe(None)
}

fn with_observe(observe: Option<Observe>) -> Limiter {
    let policy = Policy::builder().lane("lane", Limit::per_minute(2)).plan("pro", [("lane", "500/min")]);
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1));
    let limiter =
        Limiter::builder(policy.build().expect("a valid policy")).agents(8).clock(clock).on_full(OnFull::Deny);
    let limiter = if let Some(observe) = observe { limiter.observe(observe) } else { limiter };
    limiter.build().expect("a small slab")
}

fn come_and_go(limiter: &Limiter, agent: &str) {
    let _ = limiter.check(agent, LANE);
    let _ = limiter.forget(agent);
}

#[test]
fn a_child_continues_with_its_own_copy() {
    let limiter = limiter();
    assert!(limiter.check("steady", LANE).unwrap().is_allowed());
    fork_while(
        &limiter,
        FORKS,
        [|limiter| come_and_go(limiter, "comes"), |limiter| come_and_go(limiter, "goes")],
        child,
    );
}

/// What a child finds while its parent's operator changes assignments.
fn child_with_assignments(limiter: &Limiter) -> i32 {
    if !matches!(limiter.check("steady", LANE), Ok(verdict) if verdict.capacity() == 500) {
        return 1;
    }
    for agent in 0..40_u32 {
        if !matches!(limiter.check(agent.to_le_bytes(), LANE), Ok(verdict) if verdict.capacity() == 2) {
            return 2;
        }
    }
    // Applied or refused, but never waiting for ever.
    match limiter.exempt("steady") {
        Ok(()) => {}
        Err(ControlError::Forked) => return OK,
        Err(_) => return 3,
    }
    if matches!(limiter.check("steady", LANE), Ok(verdict) if verdict.decision() == Decision::Exempt) { OK } else { 4 }
}

#[test]
fn a_child_finds_its_assignments_whatever_the_operator_was_doing() {
    let limiter = limiter();
    limiter.assign("steady", limiter.plan("pro").unwrap()).unwrap();
    let change = |limiter: &Limiter| {
        limiter.set_override("comes", "lane", Limit::per_minute(7)).unwrap();
        limiter.remove_overrides("comes").unwrap();
    };
    fork_while(&limiter, FORKS, [|limiter| come_and_go(limiter, "comes"), change], child_with_assignments);
}

/// Reading the policy, or an action's lane, takes a lock. A child that found it
/// taken could never take it for writing: `replace_policy` hung in 7 of 84
/// children.
#[test]
fn a_child_can_replace_a_policy_that_others_were_reading() {
    let hub = Policy::preset("hub").expect("a preset");
    let limiter = Limiter::builder(hub).agents(8).clock(ManualClock::new()).build().expect("a small slab");
    let read = |limiter: &Limiter| (0..1_000).for_each(|_| assert!(limiter.lane("ws/light").is_some()));
    let classify = |limiter: &Limiter| (0..1_000).for_each(|_| assert!(limiter.lane_for("ws", "dance").is_some()));
    let child = |limiter: &Limiter| {
        if limiter.replace_policy(Policy::preset("hub").expect("a preset")).is_err() {
            return 1;
        }
        let _ = limiter.unknown_actions();
        if limiter.check("steady", LANE).is_ok_and(|verdict| verdict.is_allowed()) { OK } else { 2 }
    };
    fork_while(&limiter, FORKS, [read, classify], child);
}

/// What a child sees that was forked while other threads were counting.
fn child_that_looks(limiter: &Limiter) -> i32 {
    let before = limiter.snapshot();
    for agent in 0..40_u32 {
        if !limiter.check(agent.to_le_bytes(), LANE).is_ok_and(|verdict| verdict.is_allowed()) {
            return 1;
        }
        if limiter.record_violation(&agent.to_le_bytes()).is_err() {
            return 2;
        }
    }
    let after = limiter.snapshot();
    if (after.checks() - before.checks(), after.violations - before.violations) != (40, 40) {
        return 3;
    }
    // A thread that was counting in the parent never finishes in the child:
    // then there are no names, and everything uncounted is reported as missed.
    let top = limiter.top_offenders(128);
    if top.list.is_empty() && top.missed < 40 {
        return 4;
    }
    // Returns, whatever was being written.
    let events = std::iter::from_fn(|| limiter.poll_event()).take(1_000_000).count();
    if events > tollgate::bounds::EVENTS_KEPT { 5 } else { OK }
}

#[test]
fn a_child_keeps_observing_whatever_its_parent_was_counting() {
    let limiter = with_observe(Some(Observe::new().roster(100).sample_every(1)));
    assert!(limiter.check("steady", LANE).unwrap().is_allowed());
    let violate = |limiter: &Limiter| {
        let _ = limiter.check_request(Request::new("comes", LANE).cost(2).counted());
        let _ = limiter.forget("goes");
    };
    fork_while(&limiter, FORKS / 4, [violate, |limiter| come_and_go(limiter, "goes")], child_that_looks);
}

/// The file of used budgets belongs to the parent: a child that saved it would
/// restore what was used at the fork.
#[cfg(feature = "persist")]
#[test]
fn a_child_does_not_save_its_parents_budgets() {
    let directory = directory::Directory::new();
    let policy = Policy::builder().lane("lane", "budget 1000/day").build().unwrap();
    let limiter = Limiter::builder(policy).agents(8).clock(ManualClock::new()).build().unwrap();
    limiter.keep_budgets_in(directory.path().join("budgets.json")).unwrap();
    assert!(limiter.check("steady", LANE).unwrap().is_allowed());
    let save = |limiter: &Limiter| assert_eq!(limiter.save_budgets().unwrap().unsaved, 0);
    let child = |limiter: &Limiter| match limiter.save_budgets() {
        Err(tollgate::keep::PersistError::NotKept) if limiter.check("steady", LANE).is_ok() => OK,
        _ => 1,
    };
    fork_while(&limiter, FORKS / 8, [save, |limiter| come_and_go(limiter, "comes")], child);
}
