//! A process that is stopped keeps its locks: newcomers and control calls are answered `Busy`, and nobody else.

use crate::child;
use crate::forks::alone;
use crate::place::Place;
use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use tollgate::{ControlError, Error, Limiter, OnFull, Policy};

/// More than it takes to meet a process in the midst of a change, that does little else.
const STOPS_MAX: usize = 20_000;

fn limiter(slab: &Path) -> Limiter {
    let policy = Policy::builder().lane("http", "1000/s").lane("slow", "5/day").build().unwrap();
    Limiter::builder(policy).agents(100).on_full(OnFull::Deny).shared(slab).build().unwrap()
}

/// A child that has joined.
fn start(test: &str, slab: &Path) -> Child {
    let mut child = child::command(test, slab).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "joined");
    child
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: a child that nobody has waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// A child's life: agents come and go.
fn churn(slab: &Path) -> ! {
    let limiter = limiter(slab);
    let http = limiter.lane("http").unwrap();
    eprintln!("joined");
    let mut number = 0_u64;
    // Ends with the process.
    loop {
        number += 1;
        let agent = number.to_string();
        let _ = limiter.check(&agent, http);
        let _ = limiter.forget(&agent);
    }
}

#[test]
fn a_stopped_process_is_not_robbed_and_harms_newcomers_alone() {
    if let Some(slab) = child::argument() {
        churn(&slab);
    }
    let _alone = alone();
    let place = Place::new();
    let limiter = limiter(&place.slab());
    let [http, slow] = ["http", "slow"].map(|lane| limiter.lane(lane).unwrap());
    assert!(limiter.check("known", slow).unwrap().is_allowed());
    let mut child = start("stopped::a_stopped_process_is_not_robbed_and_harms_newcomers_alone", &place.slab());
    let mut is_met = false;
    for stop in 0..STOPS_MAX {
        signal(&child, libc::SIGSTOP);
        let answer = limiter.check(format!("newcomer-{stop}"), http);
        is_met = answer == Err(Error::Busy);
        assert!(is_met || answer.is_ok() || answer == Err(Error::Full), "{answer:?}");
        assert!(limiter.check("known", slow).is_ok(), "it needs no lock");
        if is_met {
            break;
        }
        let _ = limiter.forget(&format!("newcomer-{stop}"));
        signal(&child, libc::SIGCONT);
    }
    assert!(is_met, "never stopped in the midst of a change");
    let sharing = limiter.sharing().unwrap();
    assert_eq!((sharing.takeovers, sharing.processes.len()), (0, 2));
    assert!(sharing.busy > 0);
    // It goes on where it was, and the newcomer gets its record.
    signal(&child, libc::SIGCONT);
    let answer = (0..1_000).map(|_| limiter.check("newcomer", http)).find(|answer| *answer != Err(Error::Busy));
    assert!(matches!(answer, Some(Ok(_) | Err(Error::Full))), "{answer:?}");
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
    // Ends what it had begun, and takes over what it had locked.
    limiter.unassign("nobody").unwrap();
    limiter.sweep(std::time::Duration::ZERO);
    assert_eq!(limiter.audit(), [""; 0]);
}

#[test]
fn a_control_call_says_which_process_is_in_the_way() {
    if let Some(slab) = child::argument() {
        let limiter = limiter(&slab);
        eprintln!("joined");
        for number in 0_u64.. {
            let _ = limiter.set_override("agent", "http", if number % 2 == 0 { "7/s" } else { "8/s" });
        }
    }
    let _alone = alone();
    let place = Place::new();
    let limiter = limiter(&place.slab());
    let mut child = start("stopped::a_control_call_says_which_process_is_in_the_way", &place.slab());
    let mut met = None;
    for _ in 0..STOPS_MAX {
        signal(&child, libc::SIGSTOP);
        match limiter.exempt("other") {
            Ok(()) => limiter.unexempt("other").unwrap(),
            Err(ControlError::Busy { pid, .. }) => met = Some(pid),
            Err(error) => panic!("{error}"),
        }
        if met.is_some() {
            break;
        }
        signal(&child, libc::SIGCONT);
    }
    assert_eq!(met, Some(child.id()));
    // Threads are answered at once: each had waited for two seconds after the one before it. Real time is what is
    // tested, and four in turn would take eight seconds.
    let asked = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(matches!(limiter.exempt("other"), Err(ControlError::Busy { .. }))));
        }
    });
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
    // It is killed in the midst of its change, which the next call ends.
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
    limiter.exempt("other").unwrap();
    assert!(limiter.sharing().unwrap().takeovers > 0);
    let limit = limiter.assignment("agent").unwrap().override_of("http").map(|limit| limit.to_string());
    // None if it was its first change, and that did not count yet.
    assert!(matches!(limit.as_deref(), None | Some("7/second" | "8/second")), "{limit:?}");
    limiter.sweep(std::time::Duration::ZERO);
    assert_eq!(limiter.audit(), [""; 0]);
}

/// How many waits are measured.
const WAITS: usize = 100;

/// How long half of the newcomers may wait that meet a stopped process: twice what is promised, since the time is that
/// of the wall.
const MEDIAN_MAX: Duration = Duration::from_millis(4);

/// How long this thread was ready to run, and other programs had the processors. None where the kernel does not say.
fn kept_waiting() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// The clock of a wait was first read when it had lasted for a thousand rounds, and a claim had the whole time for each
/// of two locks: on a busy machine half of the newcomers waited for longer than 2.7 ms, and some for 7 ms.
#[test]
fn a_newcomer_waits_no_longer_than_promised() {
    if let Some(slab) = child::argument() {
        churn(&slab);
    }
    let _alone = alone();
    let place = Place::new();
    let limiter = limiter(&place.slab());
    let http = limiter.lane("http").unwrap();
    let mut child = start("stopped::a_newcomer_waits_no_longer_than_promised", &place.slab());
    let (mut shortest, mut waits) = (Duration::MAX, Vec::new());
    for stop in 0..STOPS_MAX {
        // Real time, for the child to get on.
        std::thread::sleep(Duration::from_micros(50));
        signal(&child, libc::SIGSTOP);
        let (newcomer, kept) = (format!("newcomer-{stop}"), kept_waiting());
        let asked = Instant::now();
        let answer = limiter.check(&newcomer, http);
        let waited = asked.elapsed();
        let kept = kept_waiting() - kept;
        signal(&child, libc::SIGCONT);
        if answer == Err(Error::Busy) {
            shortest = shortest.min(waited);
            waits.push(waited.saturating_sub(kept));
        }
        let _ = limiter.forget(&newcomer);
        if waits.len() == WAITS {
            break;
        }
    }
    signal(&child, libc::SIGKILL);
    child.wait().unwrap();
    waits.sort();
    assert_eq!(waits.len(), WAITS, "rarely stopped in the midst of a change");
    println!("half of the newcomers waited {:?} at most, all of them {:?}", waits[WAITS / 2], waits[WAITS - 1]);
    assert!(shortest >= Duration::from_millis(1), "{shortest:?}: answered before its time");
    assert!(waits[WAITS / 2] <= MEDIAN_MAX, "{waits:?}");
}
