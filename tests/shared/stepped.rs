//! A process is killed after every so many instructions of one call: whatever it left, the others go on from there.
//!
//! The child is traced and made to take single steps. With another process at rest, nothing but the number of steps
//! decides where it dies.

use crate::forks::alone;
use crate::place::Place;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate::{Clock, Limiter, OnFull, Policy, Request, Settle};

fn policy(is_second: bool) -> Policy {
    Policy::builder()
        .lane("http", if is_second { "30/s burst 7" } else { "20/s burst 9" })
        .lane("llm", "100/s burst 500")
        .lane("conn", "held 3")
        .plan("pro", [("http", "50/s burst 20")])
        .build()
        .unwrap()
}

pub(crate) fn limiter(slab: &Path) -> Limiter {
    let builder = Limiter::builder(policy(false)).agents(50).reservations(8).on_full(OnFull::Deny);
    builder.clock(Clock::os()).shared(slab).build().unwrap()
}

pub(crate) type Call = fn(&Limiter, &Path);

/// What is interrupted. Each call may find what an earlier one left.
pub(crate) const CALLS: [(&str, Call); 11] = [
    (CLAIM, |limiter, _| {
        let http = limiter.lane("http").unwrap();
        for agent in 0..3 {
            let _ = limiter.check(format!("{}-{agent}", std::process::id()), http);
        }
    }),
    ("override", |limiter, _| drop(limiter.set_override("agent", "http", "11/s burst 3"))),
    ("no override", |limiter, _| drop(limiter.remove_overrides("agent"))),
    ("policy", |limiter, _| {
        let is_second = limiter.policy().limit(limiter.lane("http").unwrap()).unwrap().capacity() == 9;
        drop(limiter.replace_policy(policy(is_second)));
    }),
    ("reserve", |limiter, _| {
        let request = Request::new("agent", limiter.lane("llm").unwrap()).cost(5);
        let reservation = limiter.reserve(request, Duration::from_millis(1));
        let id = reservation.ok().and_then(|reservation| reservation.id());
        let _ = id.map(|id| limiter.settle(id, Settle::used(1)));
    }),
    ("hold", |limiter, _| {
        let request = Request::new("agent", limiter.lane("conn").unwrap()).cost(2);
        let _ = limiter.hold_until_released(request);
        let _ = limiter.release(request);
    }),
    ("forget", |limiter, _| {
        let _ = limiter.forget("agent");
    }),
    ("reset", |limiter, _| {
        let _ = limiter.reset("agent");
    }),
    ("reset of a lane", |limiter, _| {
        let _ = limiter.reset_lane("agent", limiter.lane("http").unwrap());
    }),
    ("join", |_, slab| drop(limiter(slab))),
    (MAKE, |_, slab| drop(limiter(&other(slab)))),
];

/// Makes a slab of its own.
pub(crate) const MAKE: &str = "make";

/// Gives three agents records.
const CLAIM: &str = "claim";

fn other(slab: &Path) -> PathBuf {
    slab.with_file_name("other")
}

/// Whoever comes next makes a slab anew that was not finished, or joins it.
fn make_after(place: &Place, after: &str) {
    let next = limiter(&other(&place.slab()));
    let http = next.lane("http").unwrap();
    assert!(next.check("agent", http).unwrap_or_else(|error| panic!("{after}: {error}")).is_allowed(), "{after}");
    assert_eq!((next.sharing().unwrap().processes.len(), next.stats().agents, next.audit()), (1, 1, Vec::new()));
    forget_other(place);
}

fn forget_other(place: &Place) {
    let _ = std::fs::remove_file(place.path().join("other.v1"));
}

/// A child that is stopped before its call, and traced.
pub(crate) fn traced(limiter: &Limiter, slab: &Path, call: Call) -> libc::pid_t {
    // SAFETY: the child makes one call, and ends without running destructors.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: sets a timer, in case the test fails and nobody ends this process.
        unsafe { libc::alarm(60) };
        // SAFETY: lets the parent trace this process.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        // SAFETY: stops until the parent does.
        unsafe { libc::raise(libc::SIGSTOP) };
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call(limiter, slab)));
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) }
    }
    wait(pid);
    pid
}

/// Waits for a child to stop or to end. `false` if it has ended.
fn wait(pid: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WIFSTOPPED(status)
}

/// Kills a child that is traced.
pub(crate) fn kill(pid: libc::pid_t) {
    // SAFETY: a child of this process.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    wait(pid);
}

/// Lets a child take this many steps. `false` if it has ended.
pub(crate) fn step(pid: libc::pid_t, steps: u64) -> bool {
    (0..steps).all(|_| {
        // SAFETY: a child that is stopped and traced.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) }, 0);
        wait(pid)
    })
}

/// How far calls go in the short form, in steps: each takes some microseconds.
const STEPS_SHORT: u64 = 12_000;

/// Of a longer one, its beginning is killed at so many places.
const POINTS_OF_LONG: u64 = 4;

/// A claim is killed at least at so many: it changes things for some hundred instructions alone, and others put right
/// what it leaves.
const POINTS_OF_CLAIM: u64 = 100;

/// Kills each call at this many places, evenly over its length, or over these first steps.
fn run(points: u64, longest: u64) {
    let _alone = alone();
    let place = Place::new();
    let slab = place.slab();
    let watcher = limiter(&slab);
    let [http, conn] = ["http", "conn"].map(|lane| watcher.lane(lane).unwrap());
    assert!(watcher.check("agent", http).unwrap().is_allowed());
    for (name, call) in CALLS {
        // How long it is: stride by stride, to its end.
        forget_other(&place);
        let (pid, mut length) = (traced(&watcher, &slab, call), 0);
        while length <= longest && step(pid, 100) {
            length += 100;
        }
        let mut points = points;
        if length > longest {
            kill(pid);
            (length, points) = (longest, POINTS_OF_LONG);
        }
        if name == CLAIM {
            points = points.max(POINTS_OF_CLAIM);
        }
        let mut killed = 0;
        for point in 0..points {
            let steps = length * point / points;
            forget_other(&place);
            let pid = traced(&watcher, &slab, call);
            if step(pid, steps) {
                killed += 1;
                kill(pid);
            }
            let after = format!("{name}, killed after {steps} of {length} instructions");
            // The living go on, and the next control call ends what was begun.
            watcher.unassign("nobody").unwrap_or_else(|error| panic!("{after}: {error}"));
            let limit = watcher.limit_of("agent", http).unwrap().unwrap();
            let seen = watcher.check("agent", http).unwrap_or_else(|error| panic!("{after}: {error}"));
            assert_eq!(seen.capacity(), limit.capacity(), "{after}");
            watcher.sweep(Duration::ZERO);
            assert_eq!(watcher.peek(Request::new("agent", conn)).unwrap().remaining(), 3, "{after}");
            let faults = watcher.audit();
            assert!(faults.is_empty(), "{after}: {faults:#?}");
            if name == MAKE {
                make_after(&place, &after);
            }
        }
        println!("{name}: {length} instructions, killed at {killed} places");
        assert!(killed * 2 > points, "{name}: most runs ended before");
    }
}

#[test]
fn a_process_may_die_at_any_instruction() {
    run(8, STEPS_SHORT);
}

#[test]
#[ignore = "half an hour: run it with make long"]
fn a_process_may_die_at_any_of_many_instructions() {
    run(500, u64::MAX);
}
