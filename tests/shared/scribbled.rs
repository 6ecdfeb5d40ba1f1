//! Somebody writes nonsense into the file. Answers may be wrong then, but every call returns: no process dies of it,
//! and none hangs.
//!
//! A panic of a debug assertion is no failure: it says that the file is broken. Without them there must be none.

use crate::forks::{alone, in_child};
use crate::random::Random;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tollgate::observe::Observe;
use tollgate::shared::Shared;
use tollgate::{Agent, Limiter, LimiterBuilder, Policy, Request, Settle};

/// A run takes milliseconds, unless it hangs.
const SECONDS_MAX: u32 = 20;
const PAGE: i64 = 4_096;

fn policy(http: &str) -> Policy {
    let policy = Policy::builder().lane("http", http).lane("llm", "budget 9000/day").lane("ws", "held 3");
    policy.lane("search", "window 60/min").plan("pro", [("http", "50/s burst 20")]).build().unwrap()
}

fn builder(place: Shared) -> LimiterBuilder {
    let builder = Limiter::builder(policy("20/s burst 9")).agents(100).reservations(64);
    builder.observe(Observe::new().roster(50)).shared(place)
}

/// The pages of the file that anybody has written.
pub(crate) fn pages(file: &File) -> Vec<u64> {
    let (mut pages, mut at) = (Vec::new(), 0);
    // Ends with the file.
    loop {
        // SAFETY: an open file.
        let data = unsafe { libc::lseek(file.as_raw_fd(), at, libc::SEEK_DATA) };
        if data < 0 {
            return pages;
        }
        // SAFETY: as above.
        let hole = unsafe { libc::lseek(file.as_raw_fd(), data, libc::SEEK_HOLE) };
        pages.extend((data / PAGE..hole / PAGE).map(|page| page as u64));
        at = hole;
    }
}

/// Writes nonsense into some words, of which most are in use.
fn scribble(file: &File, random: &mut Random) {
    let pages = pages(file);
    for _ in 0..1 + random.below(12) {
        let page = pages[random.below(pages.len() as u64) as usize] * PAGE as u64;
        let read = |at: u64| {
            let mut bytes = [0; 8];
            file.read_exact_at(&mut bytes, at).unwrap();
            u64::from_ne_bytes(bytes)
        };
        let word = |random: &mut Random| page + 8 * random.below(PAGE as u64 / 8);
        let mut at = word(random);
        for _ in 0..random.below(200) {
            if read(at) != 0 {
                break;
            }
            at = word(random);
        }
        let bytes = match random.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => random.below(100),
            3 => read(at) ^ 1 << random.below(64),
            4 => read(at).wrapping_add(random.below(5)).wrapping_sub(2),
            _ => random.next(),
        };
        file.write_all_at(&bytes.to_ne_bytes(), at).unwrap();
    }
}

/// Makes a call at random; whatever it is answered will do.
fn call(limiter: &Limiter, random: &mut Random) {
    let id = format!("agent-{}", random.below(150));
    let [http, llm, ws] = ["http", "llm", "ws"].map(|lane| limiter.lane(lane).unwrap());
    match random.below(24) {
        0..5 => drop(limiter.check(&id, http)),
        5 | 6 => drop(limiter.hold_until_released(Request::new(&id, ws).cost(1 + random.below(2)))),
        7 => drop(limiter.release(Request::new(&id, ws))),
        8 | 9 => {
            let reservation = limiter.reserve(Request::new(&id, llm).cost(5), Duration::from_millis(random.below(9)));
            let id = reservation.ok().and_then(|reservation| reservation.id());
            let is_settled = random.below(2) == 0;
            let _ = id.filter(|_| is_settled).map(|id| limiter.settle(id, Settle::used(3)));
        }
        10 => drop(limiter.set_override(&id, "http", "7/s")),
        11 => drop(limiter.remove_overrides(&id)),
        12 => drop(limiter.plan("pro").map(|pro| limiter.assign(&id, pro))),
        13 => drop(limiter.exempt(&id)),
        14 => drop(limiter.unexempt(&id)),
        15 => drop(limiter.replace_policy(policy(if random.below(2) == 0 { "30/s burst 7" } else { "20/s burst 9" }))),
        16 => drop(limiter.reset(Agent::new(&id))),
        17 => drop(limiter.forget(Agent::new(&id))),
        18 => drop(limiter.sweep(Duration::from_millis(random.below(3)))),
        19 => drop((limiter.snapshot(), limiter.stats(), limiter.assignments())),
        20 => drop((limiter.agents(&Default::default()), limiter.sharing())),
        21 => drop(limiter.audit()),
        22 => drop(limiter.check_all(&[Request::new(&id, http), Request::new(&id, ws)])),
        _ => {
            let descriptor = limiter.shared_descriptor().unwrap().try_clone_to_owned().unwrap();
            let other = builder(Shared::descriptor(descriptor)).build();
            let _ = other.map(|other| other.check(&id, http));
        }
    }
}

/// One run in a child of its own.
fn run(seed: u64) {
    let limiter = builder(Shared::memfd()).build().unwrap();
    let file = File::from(limiter.shared_descriptor().unwrap().try_clone_to_owned().unwrap());
    let mut random = Random::new(seed);
    (0..200).for_each(|_| call(&limiter, &mut random));
    for _ in 0..10 {
        scribble(&file, &mut random);
        (0..40).for_each(|_| call(&limiter, &mut random));
    }
}

/// How a run went that did not go well; the harness has no place for what a forked child prints.
fn say(text: &str) {
    // SAFETY: as many bytes as there are.
    unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
}

fn run_all(seeds: std::ops::Range<u64>) {
    let _alone = alone();
    let (mut panics, mut failures) = (0, Vec::new());
    for seed in seeds {
        let child = in_child(|| {
            // SAFETY: sets a timer.
            unsafe { libc::alarm(SECONDS_MAX) };
            std::panic::set_hook(Box::new(move |panic| say(&format!("seed {seed}: {panic}\n"))));
            run(seed);
            0
        });
        match child.status() {
            (Some(0), _) => {}
            (Some(_), _) if cfg!(debug_assertions) => panics += 1,
            (_, Some(libc::SIGALRM)) => failures.push(format!("seed {seed} hangs")),
            ended => failures.push(format!("seed {seed}: {ended:?}")),
        }
    }
    println!("{panics} runs ended with a panic");
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn nonsense_in_the_file_kills_and_hangs_nobody() {
    run_all(0..40);
}

#[test]
#[ignore = "ten minutes: run it with make long"]
fn much_nonsense_in_the_file_kills_and_hangs_nobody() {
    run_all(1_000..51_000);
}
