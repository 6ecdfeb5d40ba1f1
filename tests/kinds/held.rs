//! At most n at once.

use super::*;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::{Decision, Error, OnChange, Request};

proptest! {
    /// Any order of holding and releasing, one or several at once, equals a count.
    #[test]
    fn held_slots_equal_a_count(
        slots in 1..=50_u64,
        calls in prop::collection::vec((any::<bool>(), 1..=60_u64, 0..1_000_000_000_u64), 1..80),
    ) {
        let (limiter, clock) = limiter(&format!("held {slots}"));
        let mut held = 0;
        for (take, count, wait) in calls {
            clock.advance(Duration::from_nanos(wait));
            if take {
                match limiter.check_request(Request::new(AGENT, LANE).cost(count)) {
                    Err(error) => prop_assert_eq!(error, Error::CostAboveCapacity { cost: count, capacity: slots }),
                    Ok(verdict) => {
                        prop_assert_eq!(verdict.is_allowed(), held + count <= slots);
                        held += if verdict.is_allowed() { count } else { 0 };
                        prop_assert_eq!((verdict.remaining(), verdict.retry_after()), (slots - held, None));
                    }
                }
            } else if count <= held {
                held -= count;
                let state = limiter.refund(Request::new(AGENT, LANE).cost(count)).unwrap();
                prop_assert_eq!(state.remaining(), slots - held);
            } else {
                let refunded = limiter.refund(Request::new(AGENT, LANE).cost(count));
                prop_assert_eq!(refunded, Err(Error::NotHeld { held, released: count }));
            }
            prop_assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), slots - held);
        }
    }
}

#[test]
fn the_next_is_refused_until_one_is_given_back() {
    let (limiter, clock) = limiter("held 3");
    let hold = || limiter.hold_until_released(Request::new(AGENT, LANE)).unwrap();
    assert_eq!([0; 3].map(|_| hold().remaining()), [2, 1, 0]);
    clock.advance(Duration::from_secs(1_000_000));
    let denied = hold();
    assert_eq!((denied.decision(), denied.retry_after(), denied.capacity()), (Decision::Deny, None, 3));
    assert_eq!(limiter.release(Request::new(AGENT, LANE)).unwrap().remaining(), 1);
    assert_eq!(hold().remaining(), 0);
    let status = limiter.peek(Request::new(AGENT, LANE)).unwrap();
    assert_eq!((status.remaining(), status.next_in()), (0, None));
}

#[test]
fn a_release_without_an_acquire_is_an_error_that_changes_nothing() {
    let (limiter, _) = limiter("held 3");
    let none = Err(Error::NotHeld { held: 0, released: 1 });
    assert_eq!(limiter.release(Request::new(AGENT, LANE)), none);
    assert_eq!(limiter.stats().agents, 0);
    assert!(limiter.hold_until_released(Request::new(AGENT, LANE)).unwrap().is_allowed());
    assert_eq!(limiter.refund(Request::new(AGENT, LANE).cost(2)), Err(Error::NotHeld { held: 1, released: 2 }));
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 2);
    assert!(limiter.release(Request::new(AGENT, LANE)).is_ok());
    assert_eq!(limiter.release(Request::new(AGENT, LANE)), none);
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 3);
}

#[test]
fn only_held_lanes_can_be_held() {
    let policy = Policy::builder().lane("lane", "3/s").build().unwrap();
    let (limiter, _) = of_policy(policy);
    assert_eq!(limiter.hold_until_released(Request::new(AGENT, LANE)), Err(Error::WrongKind { lane: 0 }));
    assert_eq!(limiter.release(Request::new(AGENT, LANE)), Err(Error::WrongKind { lane: 0 }));
    assert_eq!(
        limiter.hold_until_released(Request::new(AGENT, LaneId::new(1))),
        Err(Error::UnknownLane { lane: 1, lanes: 1 })
    );
}

#[test]
fn a_guard_releases_when_it_is_dropped() {
    let limiter = Arc::new(limiter("held 2").0);
    let left = || limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining();
    let first = Limiter::hold(&*limiter, Request::new(AGENT, LANE)).unwrap();
    let second = Limiter::hold(Arc::clone(&limiter), Request::new(AGENT, LANE)).unwrap().into_slot().unwrap();
    let third = Limiter::hold(&*limiter, Request::new(AGENT, LANE)).unwrap();
    assert!(third.slot().is_none() && !third.verdict().is_allowed());
    drop(third);
    assert_eq!(left(), 0);
    std::thread::spawn(move || drop(second)).join().unwrap();
    assert_eq!(left(), 1);
    drop(first);
    assert_eq!(left(), 2);
}

#[test]
fn an_exempt_agent_holds_nothing_and_gives_nothing_back() {
    let (limiter, _) = limiter("held 1");
    let before = Limiter::hold(&limiter, Request::new(AGENT, LANE)).unwrap();
    limiter.exempt(AGENT).unwrap();
    let during = Limiter::hold(&limiter, Request::new(AGENT, LANE)).unwrap();
    assert_eq!(during.verdict().decision(), Decision::Exempt);
    assert!(limiter.hold_until_released(Request::new(AGENT, LANE)).unwrap().is_allowed());
    drop(during);
    limiter.unexempt(AGENT).unwrap();
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 0);
    limiter.exempt(AGENT).unwrap();
    drop(before);
    assert!(limiter.release(Request::new(AGENT, LANE)).unwrap().is_exempt());
    limiter.unexempt(AGENT).unwrap();
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 1);
}

#[test]
fn slots_stay_held_when_limits_change() {
    for on_change in [OnChange::KeepDebt, OnChange::Reset] {
        let policy = Policy::builder().lane("lane", "held 3").plan("small", [("lane", "held 1")]);
        let (limiter, _) = of_policy(policy.on_change(on_change).build().unwrap());
        assert!(
            limiter.hold_until_released(Request::new(AGENT, LANE)).unwrap().is_allowed()
                && limiter.hold_until_released(Request::new(AGENT, LANE)).unwrap().is_allowed()
        );
        for _ in 0..40 {
            limiter.assign(AGENT, limiter.plan("small").unwrap()).unwrap();
            assert_eq!(limiter.release(Request::new(AGENT, LANE)).unwrap().remaining(), 0);
            assert!(!limiter.hold_until_released(Request::new(AGENT, LANE)).unwrap().is_allowed());
            limiter.unassign(AGENT).unwrap();
            assert_eq!(limiter.hold_until_released(Request::new(AGENT, LANE)).unwrap().remaining(), 1);
        }
    }
}

#[test]
fn a_record_with_a_held_slot_is_never_given_up() {
    let policy = Policy::builder().lane("lane", "held 2").build().unwrap();
    let (limiter, clock) = full(policy, OnFull::Evict);
    clock.advance(Duration::from_secs(1_000_000));
    assert_eq!(
        (limiter.hold_until_released(Request::new("newcomer", LANE)), limiter.sweep(Duration::ZERO)),
        (Err(Error::Full), 0)
    );
    limiter.release(Request::new("tenant-0", LANE)).unwrap();
    assert_eq!(limiter.hold_until_released(Request::new("newcomer", LANE)).unwrap().remaining(), 1);
    assert_eq!(limiter.stats().lossy_evictions, 0);
}

/// Forgetting or resetting an agent that held a slot gave it two of one: the
/// slot in use, and another.
#[test]
fn a_held_slot_survives_a_reset_and_a_forget() {
    let policy = Policy::builder().lane("lane", "held 1").lane("other", "10/day").lane("held", "held 2");
    let (limiter, _) = of_policy(policy.build().unwrap());
    let other = LaneId::new(1);
    let left = |lane| limiter.peek(Request::new(AGENT, lane)).unwrap().remaining();
    let slot = Limiter::hold(&limiter, Request::new(AGENT, LANE)).unwrap();
    let changes: [fn(&Limiter); 3] = [
        |limiter| limiter.reset(AGENT).unwrap(),
        |limiter| limiter.reset_lane(AGENT, LANE).unwrap(),
        |limiter| assert_eq!(limiter.forget(AGENT), Ok(true)),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for _ in 0..20 {
            assert!(limiter.check_request(Request::new(AGENT, other).cost(4)).unwrap().is_allowed());
            limiter.record_violation(AGENT).unwrap();
            change(&limiter);
            assert_eq!(left(LANE), 0, "it is in use");
            assert!(!limiter.hold_until_released(Request::new(AGENT, LANE)).unwrap().is_allowed());
            if number != 1 {
                assert_eq!(left(other), 10, "everything else starts afresh");
            }
            limiter.reset_lane(AGENT, other).unwrap();
        }
    }
    assert_eq!(limiter.violations(AGENT).unwrap().in_a_row(), 0, "forgotten as well");
    assert_eq!(limiter.stats().agents, 1, "its record stays for the slot");
    drop(slot);
    assert_eq!(left(LANE), 1);
    // No slot is held any more, so nothing keeps the record.
    assert_eq!((limiter.forget(AGENT), limiter.stats().agents), (Ok(true), 0));
}

#[test]
fn threads_never_hold_more_at_once() {
    let (limiter, _) = limiter("held 3");
    let (held, most, taken) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5_000 {
                    if let Some(slot) = Limiter::hold(&limiter, Request::new(AGENT, LANE)).unwrap().into_slot() {
                        most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        taken.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                        held.fetch_sub(1, Ordering::SeqCst);
                        drop(slot);
                    }
                }
            });
        }
    });
    assert!(most.load(Ordering::SeqCst) <= 3 && taken.into_inner() > 0);
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 3);
}
