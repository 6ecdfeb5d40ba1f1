//! The kinds of lanes other than the token bucket, each against an exact model.

mod all;
mod budget;
mod exact;
mod held;
mod reserve;
mod window;

use tollgate::{LaneId, Limiter, ManualClock, OnFull, Policy, Tick, Verdict};

const LANE: LaneId = LaneId::new(0);
const AGENT: &str = "agent-7";

/// A limiter of one lane, and its clock.
fn limiter(limit: &str) -> (Limiter, ManualClock) {
    let policy = Policy::builder().lane("lane", limit).build().expect("a limit of the allowed range");
    of_policy(policy)
}

fn of_policy(policy: Policy) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder(policy).agents(1).clock(clock.clone()).build().expect("a small slab"), clock)
}

/// A full slab: its neighbourhood is all of it, and each record is charged
/// once at the origin, one after the other.
fn full(policy: Policy, on_full: OnFull) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter =
        Limiter::builder(policy).agents(1).clock(clock.clone()).on_full(on_full).build().expect("a small slab");
    for agent in 0..limiter.stats().records {
        assert!(limiter.check(format!("tenant-{agent}"), LANE).expect("a vacant record").is_allowed());
    }
    (limiter, clock)
}

fn check_at(limiter: &Limiter, now: u64, cost: u64) -> Verdict {
    limiter.check_at(AGENT, LANE, cost, Tick::from_nanos(now)).expect("a cost within the limit")
}
