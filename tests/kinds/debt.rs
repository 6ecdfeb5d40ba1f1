//! A bucket that admits a cost above its capacity on credit.

use super::*;
use std::time::Duration;
use tollgate::{ConductRules, Decision, Error, OnChange, Request, Settle};

const SECOND: Duration = Duration::from_secs(1);

fn spend(limiter: &Limiter, cost: u64) -> Verdict {
    limiter.check_request(Request::new(AGENT, LANE).cost(cost)).expect("a cost that is payable")
}

fn wait(verdict: Verdict) -> Duration {
    verdict.retry_after().expect("a denial that a wait lifts")
}

/// 10 per second, and 20 at once.
fn bucket() -> (Limiter, ManualClock) {
    limiter("10/s burst 20 oversize debt")
}

/// A request of 50 on a bucket of 20 could never pass, however long it waited.
#[test]
fn a_large_request_passes_when_the_bucket_is_full_and_the_next_waits() {
    let (limiter, clock) = bucket();
    let large = spend(&limiter, 50);
    assert_eq!((large.decision(), large.remaining(), large.full_in()), (Decision::Warn, 0, SECOND * 5));
    assert_eq!(large.next_in(), Some(SECOND * 31 / 10));
    let status = limiter.peek(Request::new(AGENT, LANE)).unwrap();
    assert_eq!((status.remaining(), status.next_in(), status.full_in()), (0, Some(SECOND * 31 / 10), SECOND * 5));
    assert_eq!(wait(spend(&limiter, 1)), SECOND * 31 / 10);
    assert_eq!(wait(spend(&limiter, 20)), SECOND * 5);
    assert_eq!(wait(spend(&limiter, 21)), SECOND * 5, "once it is full");
    clock.advance(SECOND * 31 / 10);
    assert!(spend(&limiter, 1).is_allowed());
    assert_eq!(wait(spend(&limiter, 50)), SECOND * 2, "it is full again then");
    clock.advance(SECOND * 2);
    assert!(spend(&limiter, 50).is_allowed());
}

#[test]
fn a_request_beyond_a_hundred_buckets_is_an_error() {
    let (limiter, _) = bucket();
    let refused = |cost| limiter.check_request(Request::new(AGENT, LANE).cost(cost)).unwrap_err();
    assert_eq!(refused(2_001), Error::CostAboveCapacity { cost: 2_001, capacity: 2_000 });
    assert_eq!(refused(u64::MAX), Error::CostAboveCapacity { cost: u64::MAX, capacity: 2_000 });
    assert!(spend(&limiter, 2_000).is_allowed());
    assert_eq!(wait(spend(&limiter, 20)), SECOND * 200);
}

#[test]
fn a_batch_answers_as_single_checks_do() {
    let costs = [50, 1, 21, 2_001, 0];
    let requests = costs.map(|cost| Request::new(AGENT, LANE).cost(cost));
    let mut answers = [const { Err(Error::Full) }; 5];
    bucket().0.check_many(&requests, &mut answers).unwrap();
    let (single, _) = bucket();
    assert_eq!(answers, costs.map(|cost| single.check_request(Request::new(AGENT, LANE).cost(cost))));
    assert_eq!(answers[0].unwrap().decision(), Decision::Warn);
}

#[test]
fn an_oversized_charge_is_taken_back_when_another_part_is_denied() {
    let policy = Policy::builder().lane("large", "10/s burst 20 oversize debt").lane("small", "1/s");
    let (limiter, _) = of_policy(policy.build().unwrap());
    let part = |lane, cost| Request::new(AGENT, LaneId::new(lane)).cost(cost);
    let all = |parts: &[Request<'_>]| limiter.check_all(parts).map(|verdict| verdict.is_allowed());
    let left = || limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining();
    // Together they would pass as one request, but each is charged separately.
    for costs in [[50, 1], [1, 50], [15, 15]] {
        let together = costs.iter().sum();
        let never = Err(Error::CostAboveCapacity { cost: together, capacity: 20 });
        assert_eq!(all(&costs.map(|cost| part(0, cost))), never);
    }
    assert_eq!(all(&[part(0, 50), part(1, 1)]), Ok(true));
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().full_in(), SECOND * 5);
    limiter.reset_lane(AGENT, LANE).unwrap();
    assert_eq!((all(&[part(0, 50), part(1, 1)]), left()), (Ok(false), 20), "the small one is empty");
}

#[test]
fn a_reservation_may_be_larger_than_the_bucket() {
    let (limiter, clock) = bucket();
    let ttl = SECOND * 60;
    let id = limiter.reserve(Request::new(AGENT, LANE).cost(120), ttl).unwrap().id().unwrap();
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().full_in(), SECOND * 12);
    assert_eq!(limiter.refund(Request::new(AGENT, LANE).cost(100)).unwrap().full_in(), SECOND * 12, "it is reserved");
    clock.advance(SECOND);
    assert_eq!(limiter.settle(id, Settle::used(45)).unwrap().unused, 75);
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().full_in(), SECOND * 7 / 2, "4.5 s less one");
    assert!(limiter.reserve(Request::new(AGENT, LANE).cost(30), ttl).unwrap().id().is_none());
    clock.advance(SECOND * 7 / 2);
    let id = limiter.reserve(Request::new(AGENT, LANE).cost(30), ttl).unwrap().id().unwrap();
    limiter.settle(id, Settle::cancelled()).unwrap();
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 20);
}

#[test]
fn a_refund_gives_back_as_much_and_never_beyond_full() {
    let (limiter, _) = bucket();
    assert!(spend(&limiter, 50).is_allowed());
    assert_eq!(limiter.refund(Request::new(AGENT, LANE).cost(29)).unwrap().full_in(), SECOND * 21 / 10);
    assert_eq!(limiter.refund(Request::new(AGENT, LANE).cost(50)).unwrap().remaining(), 20);
    let refused = Err(Error::CostAboveCapacity { cost: 2_001, capacity: 2_000 });
    assert_eq!(limiter.refund(Request::new(AGENT, LANE).cost(2_001)), refused);
}

/// A reload of the same file must not forgive what is owed.
#[test]
fn debt_survives_a_change_of_policy_unless_it_fills_lanes() {
    let policy = |on_change| {
        let limit = "10/s burst 20 oversize debt";
        Policy::builder().lane("lane", limit).plan("other", [("lane", limit)]).on_change(on_change).build().unwrap()
    };
    let (limiter, _) = of_policy(policy(OnChange::KeepDebt));
    assert!(spend(&limiter, 200).is_allowed());
    limiter.replace_policy(policy(OnChange::KeepDebt)).unwrap();
    limiter.assign(AGENT, limiter.plan("other").unwrap()).unwrap();
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().full_in(), SECOND * 20);
    limiter.replace_policy(policy(OnChange::Reset)).unwrap();
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 20);
}

#[test]
fn a_lane_allows_oversize_debt_in_every_plan_or_in_none() {
    let policy = Policy::builder().lane("lane", "10/s oversize debt").plan("other", [("lane", "20/s")]).build();
    assert!(policy.unwrap_err().to_string().contains("of another kind"));
    let (limiter, _) = bucket();
    assert!(limiter.set_override(AGENT, "lane", "20/s").is_err());
    limiter.set_override(AGENT, "lane", "20/s oversize debt").unwrap();
    assert!(spend(&limiter, 40).is_allowed());
    limiter.set_override(AGENT, "lane", "deny").unwrap();
    assert_eq!(spend(&limiter, 40).retry_after(), None);
    limiter.exempt(AGENT).unwrap();
    assert_eq!(spend(&limiter, 40_000).decision(), Decision::Exempt);
}

#[test]
fn an_agent_that_has_to_wait_takes_nothing_on_credit() {
    let rules = ConductRules::default().with_every_denial(true).with_curve([SECOND * 30]).with_enforced_wait(true);
    let policy = Policy::builder().lane("lane", "10/s burst 20 oversize debt").conduct(rules).build().unwrap();
    let (limiter, clock) = of_policy(policy);
    let check_counted = || limiter.check_request(Request::new(AGENT, LANE).cost(50).counted()).unwrap();
    assert!(check_counted().is_allowed());
    assert!(check_counted().retry_after() >= Some(SECOND * 30));
    clock.advance(SECOND * 10);
    let blocked = check_counted();
    assert_eq!((blocked.is_allowed(), blocked.remaining()), (false, 20));
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 20);
}
