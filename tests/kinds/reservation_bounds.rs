//! How many reservations there may be, and how long they keep a record.

use super::settle::{SECOND, TTL, left, reserve};
use super::*;
use std::time::Duration;
use tollgate::{Error, Settle};

/// One agent within its limit could take all reservations, and every other agent was refused.
#[test]
fn one_agent_takes_only_its_share_of_all_reservations() {
    let policy = Policy::builder().lane("lane", "budget 100_000/day").build().unwrap();
    let clock = ManualClock::new();
    let builder = Limiter::builder(policy).agents(10).clock(clock.clone());
    let usual = builder.clone().build().unwrap();
    for _ in 0..256 {
        let _ = reserve(&usual, 1);
    }
    assert_eq!(usual.reserve(Request::new(AGENT, LANE), TTL), Err(Error::TooManyReservations { most: 256 }));
    assert_eq!((left(&usual), usual.stats().reservations), (100_000 - 256, 256), "nothing was charged for it");
    assert!(usual.reserve(Request::new("another", LANE), TTL).unwrap().id().is_some());
    assert_eq!((usual.stats().reservations, usual.stats().reservations_refused), (257, 1));
    assert_eq!(usual.forget(AGENT), Ok(true));
    assert_eq!(usual.stats().reservations, 1);
    assert!(usual.reserve(Request::new(AGENT, LANE), TTL).unwrap().id().is_some(), "freed by forgetting it");
    // With a smaller bound, and after some were settled or expired.
    let few = builder.reservations(10).reservations_per_agent(3).build().unwrap();
    let [first, ..] = [0; 3].map(|_| reserve(&few, 1));
    assert_eq!(few.reserve(Request::new(AGENT, LANE), TTL), Err(Error::TooManyReservations { most: 3 }));
    few.settle(first, Settle::cancelled()).unwrap();
    let _ = reserve(&few, 1);
    assert_eq!(few.reserve(Request::new(AGENT, LANE), TTL), Err(Error::TooManyReservations { most: 3 }));
    clock.advance(TTL);
    let _ = reserve(&few, 1);
    few.sweep(Duration::ZERO);
    assert_eq!((few.stats().reservations, few.stats().reservations_expired), (1, 3));
}

/// Threads that reserve for one agent at once never have more open than it may.
#[test]
fn threads_together_get_no_more_than_one_agents_share() {
    let policy = Policy::builder().lane("lane", "budget 1_000_000/day").build().unwrap();
    let limiter = Limiter::builder(policy).agents(10).reservations(64).reservations_per_agent(5);
    let limiter = limiter.clock(ManualClock::new()).build().unwrap();
    let (open, most) = (std::sync::atomic::AtomicU64::new(0), std::sync::atomic::AtomicU64::new(0));
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    if let Ok(reserved) = limiter.reserve(Request::new(AGENT, LANE), TTL) {
                        most.fetch_max(open.fetch_add(1, order) + 1, order);
                        std::thread::yield_now();
                        open.fetch_sub(1, order);
                        limiter.settle(reserved.id().unwrap(), Settle::cancelled()).unwrap();
                    }
                }
            });
        }
    });
    assert!((1..=5).contains(&most.into_inner()));
    assert_eq!((left(&limiter), limiter.stats().reservations), (1_000_000, 0));
}

/// Sixteen thousand unsettled reservations kept their records from being given
/// up, long after they had expired.
#[test]
fn an_expired_reservation_keeps_no_record() {
    let policy = Policy::builder().lane("lane", "10/day").build().unwrap();
    let (limiter, clock) = full(policy, OnFull::Evict);
    for tenant in 0..limiter.stats().records {
        assert!(limiter.reserve(Request::new(&format!("tenant-{tenant}"), LANE), SECOND).unwrap().id().is_some());
    }
    assert_eq!(limiter.check("newcomer", LANE), Err(Error::Full));
    clock.advance(SECOND);
    for newcomer in 0..50 {
        assert!(limiter.check(format!("newcomer-{newcomer}"), LANE).unwrap().is_allowed(), "{newcomer}");
    }
}
