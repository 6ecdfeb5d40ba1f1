//! Who holds slots: how many calls may.

use crate::forks::alone;
use tollgate::shared::Shared;
use tollgate::{Limiter, Policy, Request};

fn limiter(slots: u64) -> Limiter {
    let policy = Policy::builder().lane("ws", format!("held {slots}").as_str()).build().unwrap();
    Limiter::builder(policy).agents(100).shared(Shared::memfd()).build().unwrap()
}

/// A slab for few agents had room for 1,024 calls, and then said that it has no record.
#[test]
fn few_agents_may_hold_many_slots() {
    let _alone = alone();
    let limiter = limiter(100);
    let ws = limiter.lane("ws").unwrap();
    let held = (0..10_000).filter(|call| {
        let agent = format!("agent-{}", call % 100);
        limiter.hold_until_released(Request::new(&agent, ws)).is_ok_and(|verdict| verdict.is_allowed())
    });
    assert_eq!(held.count(), 10_000);
}
