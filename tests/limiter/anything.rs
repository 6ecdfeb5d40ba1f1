//! Threads, and arbitrary input.

use super::*;
use proptest::prelude::*;
use tollgate::{Agent, Request};

#[test]
fn a_limiter_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Limiter>();
    shared::<ManualClock>();

    let (limiter, _) = platform();
    let passed: u64 = std::thread::scope(|scope| {
        let threads = [(); 4].map(|()| scope.spawn(|| admitted(&limiter, "agent-7", LIGHT)));
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert_eq!(passed, 120);
}

proptest! {
    /// Any input gives a verdict or a named error, and a bucket never holds more than its capacity.
    #[test]
    fn no_input_makes_a_call_panic(
        calls in prop::collection::vec(
            (0..9_u8, prop::collection::vec(any::<u8>(), 0..300), any::<u32>(), any::<u64>(), any::<u64>()),
            1..50,
        ),
        evict: bool,
    ) {
        let policy = Policy::builder().lane("x", "10/min").lane("y", "1000000000/s burst 1000000000000").lane("z", "deny");
        let on_full = if evict { OnFull::Evict } else { OnFull::Deny };
        let (limiter, clock) = build(policy.build().expect("valid"), 2, on_full);
        for (call, agent, lane, cost, nanos) in &calls {
            // Half of the numbers are small, so that calls also hit the same agents and instants.
            let lane = LaneId::new(if lane % 2 == 0 { lane / 2 % 4 } else { *lane });
            let cost = if cost % 2 == 0 { cost / 2 % 12 } else { *cost };
            let (now, span) = (Tick::from_nanos(*nanos), Duration::from_nanos(*nanos));
            match call {
                0 => drop(limiter.check_request(Request::new(agent, lane).cost(cost).at(now))),
                1 => drop(limiter.refund(Request::new(agent, lane).cost(cost).at(now))),
                2 => drop(limiter.reset_lane(Agent::new(agent).at(now), lane)),
                3 => drop(limiter.reset(Agent::new(agent).at(now))),
                4 => drop(limiter.forget(Agent::new(agent).at(now))),
                5 => drop(limiter.sweep(span)),
                6 => clock.advance(span),
                7 => clock.set(now),
                _ => drop(limiter.check_request(Request::new(agent, lane).cost(cost))),
            }
            if let Ok(status) = limiter.peek(Request::new(agent, lane).at(now)) {
                prop_assert!(status.remaining() <= status.capacity());
            }
            prop_assert!(limiter.stats().agents <= limiter.stats().records);
            let printed = format!("{limiter:?}");
            prop_assert!(printed.contains("stats"));
        }
    }
}
