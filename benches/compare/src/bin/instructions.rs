//! A loop of checks for callgrind to count, and work for strace to watch:
//! `instructions MODE CHECKS`.
//!
//! The modes are `loop` (the stream of ids and nothing else), `allowed` and `denied` with our clock, `allowed-now` and
//! `denied-now` at the caller's own `now`, `thousand-now` over 1,000 agents in random order, `sip` and `sip-now`
//! (allowed, with SipHash-1-3), `clock` (prints what our clock reads) and `syscalls`. A count includes everything that
//! the loops below do; start-up and first contacts cancel out when two counts are subtracted.

use compare::ids::{Id, Pattern, Random, draws};
use compare::peers::{Lane, limiter, limiter_with, our_clock, slice};
use compare::rows::exercise;
use std::hint::black_box;
use std::process::ExitCode;
use tollgate::{IdHash, Limiter, Request, Tick};

/// Ids in the stream: few enough to stay in the first cache.
const STREAM: usize = 1_000;

#[inline(never)]
fn at_our_clock(limiter: &Limiter, lane: Lane, ids: &[Id], rounds: usize) {
    let lane = lane.of_ours();
    for _ in 0..rounds {
        for id in ids {
            black_box(&limiter.check(slice(id), lane));
        }
    }
}

#[inline(never)]
fn at_own_now(limiter: &Limiter, lane: Lane, ids: &[Id], rounds: usize) {
    let lane = lane.of_ours();
    let mut now = limiter.now().as_nanos();
    for _ in 0..rounds {
        for id in ids {
            now += 20;
            black_box(&limiter.check_request(Request::new(slice(id), lane).at(Tick::from_nanos(now))));
        }
    }
}

#[inline(never)]
fn bare(ids: &[Id], rounds: usize) {
    for _ in 0..rounds {
        for id in ids {
            black_box(&slice(id));
        }
    }
}

fn syscalls(agents: usize) {
    let ids = Pattern::Random.ids(agents);
    let checks = draws(&ids, agents, &mut Random::new(1));
    let limiter = limiter(agents);
    eprintln!("tollgate: created");
    exercise(&limiter, &ids, &checks);
    eprintln!("tollgate: done");
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let Some(checks) = arguments.next().and_then(|checks| checks.parse::<usize>().ok()) else {
        eprintln!("usage: instructions MODE CHECKS");
        return ExitCode::FAILURE;
    };
    let rounds = checks / STREAM;
    let hot = vec![Pattern::Random.id(0); STREAM];
    match mode.as_str() {
        "loop" => bare(&hot, rounds),
        "allowed" => at_our_clock(&limiter(1), Lane::Allowed, &hot, rounds),
        "denied" => at_our_clock(&limiter(1), Lane::Denied, &hot, rounds),
        "allowed-now" => at_own_now(&limiter(1), Lane::Allowed, &hot, rounds),
        "denied-now" => at_own_now(&limiter(1), Lane::Denied, &hot, rounds),
        "thousand-now" => at_own_now(&limiter(STREAM), Lane::Allowed, &Pattern::Random.ids(STREAM), rounds),
        "sip" => at_our_clock(&limiter_with(IdHash::SipHash13, 1), Lane::Allowed, &hot, rounds),
        "sip-now" => at_own_now(&limiter_with(IdHash::SipHash13, 1), Lane::Allowed, &hot, rounds),
        "clock" => println!("{:?}", our_clock().source()),
        "syscalls" => syscalls(checks),
        _ => {
            eprintln!("unknown mode {mode:?}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
