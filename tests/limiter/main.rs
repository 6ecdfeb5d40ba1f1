//! What a caller sees: the limiter's behaviour on a manual clock, one file per subject.

mod anything;
mod batches;
mod buckets;
mod changes;
mod conduct;
mod control;
mod debt;
mod errors;
mod events;
#[cfg(feature = "persist")]
mod kept;
mod lanes;
mod memory;
mod obedient;
mod observe;
mod plans;
mod requests;
mod time;
mod warnings;

use std::time::Duration;
use tollgate::{LaneId, Limit, Limiter, ManualClock, OnFull, Policy, Request, Tick, Verdict};

const LANE: LaneId = LaneId::new(0);
const NANOSECOND: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const YEAR: Duration = Duration::from_secs(31_557_600);

const LIGHT: LaneId = LaneId::new(0);
const NORMAL: LaneId = LaneId::new(1);
const HEAVY: LaneId = LaneId::new(2);
const HTTP_NORMAL: LaneId = LaneId::new(4);

/// The lanes of the platform this crate was made for.
fn platform_policy() -> Policy {
    Policy::builder()
        .lane("ws/light", Limit::per_minute(120))
        .lane("ws/normal", Limit::per_minute(60))
        .lane("ws/heavy", Limit::per_minute(10))
        .lane("http/light", Limit::per_minute(120))
        .lane("http/normal", Limit::per_minute(60))
        .lane("http/heavy", Limit::per_minute(10))
        .build()
        .expect("a valid policy")
}

fn platform() -> (Limiter, ManualClock) {
    build(platform_policy(), 100, OnFull::Deny)
}

/// A limiter with one lane for a hundred agents.
fn one_lane(limit: Limit) -> (Limiter, ManualClock) {
    build(one_lane_policy(limit), 100, OnFull::Deny)
}

/// A limiter with one lane and one neighbourhood, which is soon full.
fn neighbourhood(limit: Limit, on_full: OnFull) -> (Limiter, ManualClock) {
    build(one_lane_policy(limit), 1, on_full)
}

fn one_lane_policy(limit: Limit) -> Policy {
    Policy::builder().lane("lane", limit).build().expect("a valid policy")
}

fn build(policy: Policy, agents: u64, on_full: OnFull) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(agents).clock(clock.clone()).on_full(on_full).build();
    (limiter.expect("a small slab"), clock)
}

fn check(limiter: &Limiter, agent: &str, lane: LaneId) -> Verdict {
    limiter.check(agent, lane).expect("a valid request")
}

/// A check that passes, made only for its effect.
fn touch(limiter: &Limiter, agent: &str, lane: LaneId) {
    assert!(check(limiter, agent, lane).is_allowed());
}

fn spend(limiter: &Limiter, agent: &str, lane: LaneId, cost: u64) -> Verdict {
    limiter.check_request(Request::new(agent, lane).cost(cost)).expect("a valid request")
}

fn remaining(limiter: &Limiter, agent: &str, lane: LaneId) -> u64 {
    limiter.peek(Request::new(agent, lane)).expect("a valid request").remaining()
}

/// Checks until the first denial, and returns how many passed. No bucket here
/// holds a thousand tokens, so a limiter that never denies is detected.
fn admitted(limiter: &Limiter, agent: &str, lane: LaneId) -> u64 {
    (0..1_000).take_while(|_| check(limiter, agent, lane).is_allowed()).count() as u64
}

/// Limits whose token takes a whole number of nanoseconds and limits whose
/// token does not, slow and fast, with bursts below and above the rate.
fn several_limits() -> Vec<Limit> {
    vec![
        Limit::per_minute(120),
        Limit::per_minute(60),
        Limit::per_minute(10),
        Limit::per_minute(7),
        Limit::per_second(3).burst(100),
        Limit::per_second(999_999_937).burst(50),
        Limit::new(13, Duration::from_nanos(1_009)).burst(5),
        Limit::per_day(1),
        Limit::per_day(1).burst(30),
    ]
}
