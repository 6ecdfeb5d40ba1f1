//! Reservations on a lane and its total.

use super::*;
use tollgate::Settle;

/// For each kind of lane and total: what is unused comes back to both, what is
/// overspent is charged to both.
#[test]
fn a_reservation_is_charged_and_settled_on_both() {
    const TTL: Duration = Duration::from_secs(3_600);
    for total in ["20/min", "window 20/min", "budget 20/day"] {
        for lane in [READ, SEARCH] {
            let (limiter, _) = with_total(total);
            let left = || (left(&limiter)[lane.number() as usize], left(&limiter)[6]);
            let full = left().0;
            let reserve = |estimate| limiter.reserve(Request::new(AGENT, lane).cost(estimate), TTL).unwrap();
            let first = reserve(15);
            assert_eq!((first.verdict().remaining(), left()), (5, (full - 15, 5)));
            let denied = reserve(6);
            assert!(denied.id().is_none() && !denied.verdict().is_allowed());
            assert_eq!((denied.verdict().capacity(), left()), (20, (full - 15, 5)), "{total}");
            let second = reserve(5);
            assert_eq!(left(), (full - 20, 0));
            // A refund takes nothing from what is reserved on a bucket.
            if total == "20/min" && lane == READ {
                limiter.refund(Request::new(AGENT, lane).cost(20)).unwrap();
                assert_eq!(left(), (full - 20, 0));
            }
            limiter.settle(first.id().unwrap(), Settle::used_so_far(3)).unwrap();
            assert_eq!(left(), (full - 20, 0));
            limiter.settle(first.id().unwrap(), Settle::used(2)).unwrap();
            assert_eq!(left(), (full - 10, 10), "{total}");
            limiter.settle(second.id().unwrap(), Settle::cancelled()).unwrap();
            assert_eq!(left(), (full - 5, 15), "{total}");
            let third = reserve(10).id().unwrap();
            limiter.settle(third, Settle::used(18)).unwrap();
            assert_eq!(left(), (full - 23, 0), "{total}");
            assert!(!limiter.check(AGENT, WRITE).unwrap().is_allowed());
            // No more than a total can owe.
            limiter.reset(AGENT).unwrap();
            let fourth = reserve(1).id().unwrap();
            assert!(matches!(limiter.settle(fourth, Settle::used(100_000)), Err(Error::UsedTooLarge { .. })));
            limiter.settle(fourth, Settle::cancelled()).unwrap();
            assert_eq!(left(), (full, 20));
        }
    }
}

/// What a reset of the lane, of the total or of both has forgiven does not come back.
#[test]
fn what_was_forgiven_is_not_given_back() {
    const TTL: Duration = Duration::from_secs(3_600);
    let (limiter, _) = free();
    let left = || (left(&limiter)[0], left(&limiter)[6]);
    let reserve = || limiter.reserve(Request::new(AGENT, READ).cost(10), TTL).unwrap().id().unwrap();
    let id = reserve();
    limiter.reset_lane(AGENT, TOTAL).unwrap();
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(20)).unwrap().is_allowed());
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert_eq!(left(), (180, 0), "the lane gets its ten back, the total nothing");
    limiter.reset(AGENT).unwrap();
    let id = reserve();
    limiter.reset_lane(AGENT, READ).unwrap();
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(10)).unwrap().is_allowed());
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert_eq!(left(), (190, 10), "the total gets its ten back, the lane nothing");
    limiter.reset(AGENT).unwrap();
    let id = reserve();
    limiter.set_override(AGENT, "total", "20/hour").unwrap();
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert_eq!(left(), (200, 20), "a change of limits keeps what is reserved");
    let id = reserve();
    limiter.forget(AGENT).unwrap();
    assert_eq!(limiter.settle(id, Settle::cancelled()), Err(Error::UnknownReservation));
    // If the plan has no total, there is none to settle.
    limiter.set_override(AGENT, "total", "unlimited").unwrap();
    let id = reserve();
    limiter.remove_overrides(AGENT).unwrap();
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert_eq!(left(), (200, 20));
}
