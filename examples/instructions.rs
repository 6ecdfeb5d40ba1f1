//! A loop of checks for callgrind to count: `instructions MODE COUNT`.
//!
//! One agent with an id of 16 bytes, whose record is in cache. The modes are `loop` (everything around the check but no
//! check), `allowed-now` and `denied-now` (at the caller's own `now`), `allowed-watched` and `denied-watched` (the
//! same, observed), `allowed-auto` and `denied-auto` (with the default clock). Start-up and the first contact cancel
//! out when the counts of two runs are subtracted; `tests/instructions.rs` does that. Without arguments it makes a
//! thousand checks in every mode.

use std::hint::black_box;
use tollgate::observe::Observe;
use tollgate::{Clock, LaneId, Limit, Limiter, ManualClock, Policy, Request, Tick};

const AGENT: &[u8; 16] = b"agent-0000012345";
const MODES: [&str; 7] =
    ["loop", "allowed-now", "denied-now", "allowed-watched", "denied-watched", "allowed-auto", "denied-auto"];

/// The lane whose limit is never reached here.
const ALLOWED: LaneId = LaneId::new(2);
/// The lane that one check exhausts for a day.
const DENIED: LaneId = LaneId::new(5);

/// Six lanes, and the agent has a record, with its denied lane exhausted.
fn limiter(clock: impl Into<Clock>, observe: Option<Observe>) -> Limiter {
    let plenty = Limit::per_second(1_000_000).burst(u64::from(u32::MAX));
    let policy = ["ws/light", "ws/heavy", "http/light", "http/heavy", "api/light"]
        .into_iter()
        .fold(Policy::builder(), |policy, lane| policy.lane(lane, plenty))
        .lane("api/heavy", Limit::per_day(1));
    let limiter = Limiter::builder(policy.build().expect("a valid policy")).agents(1).clock(clock);
    let limiter = if let Some(observe) = observe { limiter.observe(observe) } else { limiter };
    let limiter = limiter.build().expect("a small slab");
    assert!(allows(&limiter, DENIED));
    limiter
}

fn allows(limiter: &Limiter, lane: LaneId) -> bool {
    limiter.check(AGENT, lane).expect("a known lane").is_allowed()
}

/// The agent's id as most callers have it: its length is known only at run time.
#[inline(always)]
fn agent() -> &'static [u8] {
    black_box(AGENT.as_slice())
}

#[inline(never)]
fn bare(count: u64) {
    let mut now = 0;
    for _ in 0..count {
        now += 20;
        black_box(agent());
        black_box(Tick::from_nanos(now));
    }
}

#[inline(never)]
fn at_own_now(limiter: &Limiter, lane: LaneId, count: u64) {
    let mut now = limiter.now().as_nanos();
    for _ in 0..count {
        now += 20;
        black_box(&limiter.check_request(Request::new(agent(), lane).at(Tick::from_nanos(now))));
    }
}

#[inline(never)]
fn at_its_clock(limiter: &Limiter, lane: LaneId, count: u64) {
    for _ in 0..count {
        black_box(&limiter.check(agent(), lane));
    }
}

fn run(mode: &str, count: u64) {
    let lane = if mode.starts_with("denied") { DENIED } else { ALLOWED };
    let limiter = match mode {
        "loop" => return bare(count),
        // No clock is read in the loop, so none is set up.
        "allowed-now" | "denied-now" => limiter(ManualClock::new(), None),
        "allowed-watched" | "denied-watched" => limiter(ManualClock::new(), Some(Observe::new())),
        "allowed-auto" | "denied-auto" => limiter(Clock::auto(), None),
        _ => unreachable!("{mode:?} is not one of {MODES:?}"),
    };
    if mode.ends_with("auto") {
        at_its_clock(&limiter, lane, count)
    } else {
        at_own_now(&limiter, lane, count)
    }
    // The verdicts match the mode.
    assert_eq!(allows(&limiter, lane), lane == ALLOWED, "{mode}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => MODES.iter().for_each(|mode| {
            run(mode, 1_000);
            println!("{mode}: 1000 checks done; valgrind --tool=callgrind counts them");
        }),
        [mode, count] => run(mode, count.parse().expect("COUNT is a number")),
        _ => unreachable!("usage: instructions MODE COUNT"),
    }
}
