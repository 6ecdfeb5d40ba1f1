//! The kinds of lanes other than the token bucket, each against an exact model.

mod all;
mod budget;
mod debt;
mod dynamic;
mod exact;
mod held;
#[path = "../common/random.rs"]
mod random;
mod refund;
mod reservation_bounds;
mod reserve;
mod settle;
mod stale;
mod torn;
mod total;
mod window;

use tollgate::{LaneId, Limiter, ManualClock, OnFull, Policy, Request, Tick, Verdict};

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

/// A full slab of a single neighbourhood, each record charged once at the
/// origin, one after the other.
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
    limiter
        .check_request(Request::new(AGENT, LANE).cost(cost).at(Tick::from_nanos(now)))
        .expect("a cost within the limit")
}

/// Fresh memory is a fresh lane, and an agent that has used nothing is idle.
#[test]
fn a_fresh_lane_of_every_kind_is_full_and_idle() {
    for limit in
        ["5/min", "5/min oversize debt", "dynamic 5/min", "window 5/min", "exact 5/min", "budget 5/day", "held 5"]
    {
        let (limiter, clock) = limiter(limit);
        let status = limiter.peek(Request::new(AGENT, LANE)).unwrap();
        assert_eq!((status.remaining(), status.full_in().as_nanos()), (5, 0), "{limit}");
        assert_eq!(limiter.stats().agents, 0, "a peek claims no record");
        assert_eq!(check_at(&limiter, 0, 1).remaining(), 4, "{limit}");
        assert_eq!(limiter.sweep(std::time::Duration::ZERO), 0, "{limit}: it is not idle now");
        limiter.refund(Request::new(AGENT, LANE)).unwrap();
        assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 5, "{limit}");
        clock.advance(std::time::Duration::from_nanos(1));
        assert_eq!(limiter.sweep(std::time::Duration::ZERO), 1, "{limit}: what came back leaves it idle");
    }
}
