//! Who is dead? What pids say, beside what locks say: the negative control for judging processes by their pid.

use crate::child;
use crate::forks::{Child, alone, in_child, stays};
use crate::namespaces::unshare;
use crate::place::Place;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use tollgate::{Limiter, Policy, Request};

fn limiter(slab: &Path) -> Limiter {
    let policy = Policy::builder().lane("ws", "held 3").build().unwrap();
    Limiter::builder(policy).agents(1_000).shared(slab).build().unwrap()
}

/// What a limiter would believe that asked for the pid alone.
fn is_alive_by_pid(pid: libc::pid_t) -> bool {
    // SAFETY: no signal is sent.
    unsafe { libc::kill(pid, 0) == 0 }
}

fn is_taken(limiter: &Limiter, slots: u64) -> bool {
    let request = Request::new("agent-7", limiter.lane("ws").unwrap()).cost(slots);
    limiter.hold_until_released(request).unwrap().is_allowed()
}

fn processes(limiter: &Limiter) -> usize {
    limiter.sharing().unwrap().processes.len()
}

/// Waits until a child is a zombie: it has ended, and nobody has asked how.
fn wait_without_reaping(child: &Child) {
    // SAFETY: plain numbers, for which zero is valid.
    let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let (of, flags) = (child.pid() as libc::id_t, libc::WEXITED | libc::WNOWAIT);
    // SAFETY: a child of this process, and a place for the answer.
    assert_eq!(unsafe { libc::waitid(libc::P_PID, of, &raw mut about, flags) }, 0);
}

/// A server whose parent does not reap it would keep its slots for ever.
#[test]
fn a_zombie_is_alive_by_its_pid_and_dead_by_its_lock() {
    let _alone = alone();
    let place = Place::new();
    let limiter = limiter(&place.slab());
    let child = stays(|| is_taken(&limiter, 2));
    assert_eq!((is_alive_by_pid(child.pid()), processes(&limiter)), (true, 2));
    assert!(!is_taken(&limiter, 2), "it has two of three");
    child.signal(libc::SIGKILL);
    wait_without_reaping(&child);
    assert!(is_alive_by_pid(child.pid()), "its pid is not free yet");
    assert_eq!(processes(&limiter), 1, "its lock is");
    // Not at the very next call: a denial that found nobody dead is not followed by another look for some time.
    let begin = std::time::Instant::now();
    while !is_taken(&limiter, 3) {
        assert!(begin.elapsed().as_secs() < 20, "and its slots come back");
    }
    child.reap();
    limiter.release(Request::new("agent-7", limiter.lane("ws").unwrap()).cost(3)).unwrap();
    assert_eq!(limiter.audit(), [""; 0]);
}

/// Which pid the process in the other namespace takes, where this one has none.
const PID: &str = "TOLLGATE_TEST_PID";

/// Makes the next process of this pid namespace have this pid.
fn set_next_pid(pid: i32) {
    std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).unwrap();
}

/// Judged by its pid, a process of another container would be robbed while it lives; and another, which has the pid of
/// one that lives here, would keep its slots though it is dead.
#[test]
fn a_process_of_another_namespace_is_judged_by_its_lock() {
    if let Some(slab) = child::argument() {
        set_next_pid(std::env::var(PID).unwrap().parse().unwrap());
        let child = in_child(|| {
            let limiter = limiter(&slab);
            eprintln!("{} {}", std::process::id(), is_taken(&limiter, 2));
            let _ = std::io::stdin().read_line(&mut String::new());
            0
        });
        assert_eq!(child.wait(), 0);
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let limiter = limiter(&place.slab());
    let parked = stays(|| true);
    let free = (3_000_000..).find(|pid| !is_alive_by_pid(*pid)).unwrap();
    // Nobody has the first pid here; this namespace has the second one too.
    for (pid, is_alive_here) in [(free, false), (parked.pid(), true)] {
        let test = "oracle::a_process_of_another_namespace_is_judged_by_its_lock";
        let arguments = ["--pid", "--fork", "--kill-child", "--mount-proc"];
        let Some(mut command) = unshare(&arguments, test, &place.slab()) else { break };
        command.env(PID, pid.to_string()).stdin(Stdio::piped()).stderr(Stdio::piped()).stdout(Stdio::null());
        let mut other = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(other.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), format!("{pid} true"));
        assert_eq!(is_alive_by_pid(pid), is_alive_here, "what its pid says of a process that lives");
        assert!(!is_taken(&limiter, 2), "it lives, and two of three slots are its own");
        let pids: Vec<_> = limiter.sharing().unwrap().processes.iter().map(|process| process.pid as i32).collect();
        assert!(pids.contains(&pid), "{pids:?}");
        other.kill().unwrap();
        other.wait().unwrap();
        // The whole namespace dies with its first process, at some time.
        while limiter.sharing().unwrap().processes.iter().any(|process| process.pid as i32 == pid && !process.is_this)
            && processes(&limiter) > 2
        {
            std::thread::yield_now();
        }
        assert_eq!(is_alive_by_pid(pid), is_alive_here, "what its pid says of a process that is dead");
        let request = Request::new("agent-7", limiter.lane("ws").unwrap()).cost(3);
        while !limiter.hold_until_released(request).unwrap().is_allowed() {
            std::thread::yield_now();
        }
        limiter.release(request).unwrap();
    }
    parked.kill();
    assert_eq!(limiter.audit(), [""; 0]);
}
