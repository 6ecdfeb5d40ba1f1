//! What a plain refund may give back: what was used outside of reservations.

use super::*;
use proptest::prelude::*;
use std::time::Duration;
use tollgate::{Request, ReservationId, Settle, Settlement};

const TTL: Duration = Duration::from_secs(600);
const SECOND: Duration = Duration::from_secs(1);

/// Limits of 100 that do not refill during a test.
const KINDS: [&str; 4] = ["100/day", "100/day oversize debt", "window 100/day", "budget 100/day"];

fn left(limiter: &Limiter) -> u64 {
    limiter.peek(Request::new(AGENT, LANE)).expect("a lane").remaining()
}

fn reserve(limiter: &Limiter, estimate: u64) -> Option<ReservationId> {
    limiter.reserve(Request::new(AGENT, LANE).cost(estimate), TTL).expect("room for it").id()
}

fn spend(limiter: &Limiter, cost: u64) -> bool {
    limiter.check_request(Request::new(AGENT, LANE).cost(cost)).expect("within the capacity").is_allowed()
}

fn refund(limiter: &Limiter, cost: u64) -> u64 {
    limiter.refund(Request::new(AGENT, LANE).cost(cost)).expect("within the capacity").remaining()
}

/// A refund gave back what a reservation had charged; the reservation did so
/// again when it was cancelled, and forgave what others had used since.
#[test]
fn what_is_reserved_is_given_back_only_by_its_reservation() {
    for limit in KINDS {
        let (limiter, _) = limiter(limit);
        assert!(spend(&limiter, 30));
        let id = reserve(&limiter, 50).unwrap();
        assert_eq!(refund(&limiter, 100), 50, "{limit}");
        assert_eq!(refund(&limiter, 100), 50, "{limit}");
        assert!(spend(&limiter, 50));
        assert_eq!(limiter.settle(id, Settle::cancelled()), Ok(Settlement { unused: 50, overspent: 0, left: 0 }));
        assert_eq!(left(&limiter), 50, "{limit}: what was spent since stays spent");
    }
}

#[test]
fn what_a_reservation_has_used_can_be_refunded() {
    for limit in KINDS {
        let (limiter, _) = limiter(limit);
        let id = reserve(&limiter, 50).unwrap();
        limiter.settle(id, Settle::used_so_far(20)).unwrap();
        assert_eq!(refund(&limiter, 100), 70, "{limit}: 30 are still reserved");
        limiter.settle(id, Settle::used(10)).unwrap();
        assert_eq!(left(&limiter), 90, "{limit}");
        assert_eq!(refund(&limiter, 100), 100, "{limit}");
    }
}

#[test]
fn an_expired_reservation_can_be_refunded() {
    for limit in KINDS {
        let (limiter, clock) = limiter(limit);
        let id = reserve(&limiter, 50).unwrap();
        assert_eq!(refund(&limiter, 50), 50, "{limit}");
        clock.advance(TTL);
        assert!(limiter.settle(id, Settle::used(0)).is_err(), "{limit}: an expired reservation cannot be settled");
        assert_eq!(refund(&limiter, 50), 100, "{limit}");
    }
}

/// An exempt agent's reservation has charged nothing, so it protects nothing.
#[test]
fn a_reservation_that_charged_nothing_protects_nothing() {
    for limit in KINDS {
        let (limiter, _) = limiter(limit);
        assert!(spend(&limiter, 30));
        limiter.exempt(AGENT).unwrap();
        let _ = reserve(&limiter, 50).unwrap();
        limiter.unexempt(AGENT).unwrap();
        assert_eq!(refund(&limiter, 30), 100, "{limit}");
    }
}

#[test]
fn reservations_of_other_lanes_and_agents_protect_nothing() {
    for limit in KINDS {
        let policy = Policy::builder().lane("lane", limit).lane("other", limit).build().unwrap();
        let (limiter, _) = of_policy(policy);
        assert!(spend(&limiter, 30));
        assert!(limiter.reserve(Request::new(AGENT, LaneId::new(1)).cost(50), TTL).unwrap().id().is_some());
        assert!(limiter.reserve(Request::new("another", LANE).cost(50), TTL).unwrap().id().is_some());
        assert_eq!(refund(&limiter, 100), 100, "{limit}");
    }
}

/// Reserved in the previous window, and in this one.
#[test]
fn each_window_protects_what_is_reserved_in_it() {
    let (limiter, clock) = limiter("window 100/min");
    let first = reserve(&limiter, 20).unwrap();
    assert!(spend(&limiter, 20));
    clock.advance(SECOND * 60);
    assert_eq!(left(&limiter), 60);
    assert_eq!(refund(&limiter, 100), 80, "the plain 20 of the window before");
    let second = reserve(&limiter, 30).unwrap();
    assert!(spend(&limiter, 10));
    assert_eq!(refund(&limiter, 100), 50, "the plain 10 of this one");
    limiter.settle(first, Settle::cancelled()).unwrap();
    limiter.settle(second, Settle::cancelled()).unwrap();
    assert_eq!(left(&limiter), 100);
}

/// Nothing is reserved any more in a calendar window that is over.
#[test]
fn a_new_day_protects_nothing_reserved_on_the_old_one() {
    let (limiter, clock) = limiter("budget 100/day");
    let id = limiter.reserve(Request::new(AGENT, LANE).cost(50), SECOND * 200_000).unwrap().id().unwrap();
    clock.advance(SECOND * 86_400);
    assert!(spend(&limiter, 40));
    assert_eq!(refund(&limiter, 100), 100);
    assert!(spend(&limiter, 40));
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert_eq!(left(&limiter), 60, "it was charged to another day");
}

proptest! {
    /// Compared with a model that sums what was used plainly and what is reserved.
    #[test]
    fn a_refund_gives_back_only_what_is_not_reserved(
        limit in prop::sample::select(KINDS.to_vec()),
        calls in prop::collection::vec((0..5_u8, 1..40_u64, any::<prop::sample::Index>()), 1..60),
    ) {
        let (limiter, _) = limiter(limit);
        let (mut plain, mut open) = (0_u64, Vec::<(ReservationId, u64)>::new());
        for (call, cost, which) in calls {
            let reserved: u64 = open.iter().map(|(_, left)| left).sum();
            let fits = plain + reserved + cost <= 100;
            match call {
                0 => {
                    prop_assert_eq!(spend(&limiter, cost), fits);
                    plain += if fits { cost } else { 0 };
                }
                1 => {
                    let id = reserve(&limiter, cost);
                    prop_assert_eq!(id.is_some(), fits);
                    open.extend(id.map(|id| (id, cost)));
                }
                2 => {
                    refund(&limiter, cost);
                    plain = plain.saturating_sub(cost);
                }
                _ if open.is_empty() => {}
                3 => {
                    let index = which.index(open.len());
                    let (id, left) = &mut open[index];
                    let used = cost.min(*left);
                    limiter.settle(*id, Settle::used_so_far(used)).unwrap();
                    (plain, *left) = (plain + used, *left - used);
                }
                _ => {
                    let (id, left) = open.swap_remove(which.index(open.len()));
                    let used = cost.min(left);
                    prop_assert_eq!(limiter.settle(id, Settle::used(used)).unwrap().unused, left - used);
                    plain += used;
                }
            }
            let reserved: u64 = open.iter().map(|(_, left)| left).sum();
            prop_assert_eq!(left(&limiter), 100 - plain - reserved);
        }
    }
}
