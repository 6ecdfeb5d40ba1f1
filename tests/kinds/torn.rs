//! Every operation of every kind while limits keep changing.
//!
//! A row of limits may be read while it is written for another agent. What is
//! computed from it is discarded; but a status once divided by a token price
//! that was really a count, and a guard that was dropped at that moment never
//! released its slot. `lane/kind.rs` tests torn limits of every kind; here they
//! arise on their own.

use crate::random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tollgate::{ConductRules, Error, LaneId, Limiter, ManualClock, Policy, Request, Settle};

/// The limits that a lane changes between; the first is the policy's.
const LIMITS: [[&str; 3]; 5] = [
    ["5/min", "7/s burst 9", "deny"],
    ["window 5/min", "window 30/min", "deny"],
    ["budget 5/day", "budget 900/day", "deny"],
    ["exact 5/min", "exact 3/min", "deny"],
    ["held 3", "held 90", "deny"],
];
const HELD: usize = 4;
const CALLERS: u64 = 2;
const CALLS: u64 = 60_000;

/// Agents that hold slots, and agents that do everything else.
const AGENTS: [&str; 4] = ["holder-0", "holder-1", "caller-0", "caller-1"];

fn policy() -> Policy {
    let lanes = LIMITS.iter().enumerate();
    let policy = lanes.fold(Policy::builder(), |policy, (lane, limits)| policy.lane(format!("lane-{lane}"), limits[0]));
    policy.conduct(ConductRules::default().with_enforced_wait(true)).build().expect("valid limits")
}

/// One call.
fn call(limiter: &Limiter, random: &mut Random) {
    let (agent, holder) = (AGENTS[2 + random.below(2) as usize], AGENTS[random.below(2) as usize]);
    let lane = LaneId::new(random.below(LIMITS.len() as u64) as u32);
    let cost = 1 + random.below(3);
    match random.below(12) {
        0 | 1 => assert!(limiter.peek(Request::new(agent, lane)).is_ok()),
        2 => assert!(limiter.peek(Request::new(holder, lane)).is_ok()),
        3 => assert!(limiter.check_request(Request::new(agent, lane).cost(cost)).is_ok() || cost > 1),
        4 => assert!(limiter.check_request(Request::new(agent, lane).cost(cost).counted()).is_ok() || cost > 1),
        5 => assert!(limiter.refund(Request::new(agent, lane).cost(cost)) != Err(Error::Full)),
        6 => assert!(limiter.reset_lane(agent, lane).is_ok()),
        7 => {
            let reserved = limiter.reserve(Request::new(agent, lane).cost(cost), Duration::from_secs(1));
            if let Some(id) = reserved.ok().and_then(|reserved| reserved.id()) {
                let settled = limiter.settle(id, Settle::used(random.below(5)));
                assert!(settled.is_ok() || settled == Err(Error::UnknownReservation));
            }
        }
        8 => {
            let part = |lane: usize| Request::new(agent, LaneId::new(lane as u32));
            assert!(limiter.check_all(&std::array::from_fn::<_, 5, _>(part)).is_ok());
        }
        9 => assert!(limiter.agent(agent).is_ok()),
        _ => assert!(Limiter::hold(limiter, Request::new(holder, LaneId::new(HELD as u32))).is_ok()),
    }
}

#[test]
fn no_call_panics_while_limits_change_and_no_slot_is_lost() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy()).agents(1).clock(clock.clone()).build().expect("a small slab");
    let (panics, left) = (AtomicU64::new(0), AtomicU64::new(CALLERS));
    thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (limiter, panics, left, clock) = (&limiter, &panics, &left, &clock);
            scope.spawn(move || {
                let mut random = Random::new(caller);
                for _ in 0..CALLS {
                    let ended = catch_unwind(AssertUnwindSafe(|| call(limiter, &mut random)));
                    panics.fetch_add(u64::from(ended.is_err()), Ordering::Relaxed);
                    clock.advance(Duration::from_millis(random.below(50)));
                }
                left.fetch_sub(1, Ordering::Release);
            });
        }
        let mut random = Random::new(CALLERS);
        while left.load(Ordering::Acquire) > 0 {
            let (agent, lane) = (AGENTS[random.below(4) as usize], random.below(LIMITS.len() as u64) as usize);
            let limit = LIMITS[lane][random.below(3) as usize];
            limiter.set_override(agent, &format!("lane-{lane}"), limit).expect("a lane");
            if random.below(20) == 0 {
                limiter.exempt(agent).and_then(|_| limiter.unexempt(agent)).expect("an id");
            }
        }
    });
    assert_eq!(panics.into_inner(), 0);
    for agent in AGENTS {
        limiter.remove_overrides(agent).expect("an id");
    }
    for holder in &AGENTS[..2] {
        let status = limiter.peek(Request::new(holder, LaneId::new(HELD as u32))).expect("a lane");
        assert_eq!(status.remaining(), 3, "{holder}: a slot was not released");
    }
}
