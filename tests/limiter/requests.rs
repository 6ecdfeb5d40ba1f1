//! Every option of a request works with every verb.

use super::*;
use tollgate::{ConductRules, Decision, Error, PlanId, Request, Settle, Verdict};

const BUCKET: LaneId = LaneId::new(0);
const SLOTS: LaneId = LaneId::new(1);
const SMALL: PlanId = PlanId::new(1);
const TTL: Duration = Duration::from_secs(60);

/// A bucket of 100 and three slots; the plan `small` has 10 slow tokens and one slot.
fn two_plans(rules: ConductRules) -> (Limiter, ManualClock) {
    let policy = Policy::builder().lane("bucket", "100/s").lane("slots", "held 3").conduct(rules);
    build(policy.plan("small", [("bucket", "10/min"), ("slots", "held 1")]).build().expect("valid"), 100, OnFull::Deny)
}

/// The verdict of each charging verb on a request, one after the other, each for a separate agent.
fn every_verdict(limiter: &Limiter, name: &str, options: impl Fn(Request<'_>) -> Request<'_>) -> Vec<Verdict> {
    let ids = ["check", "many", "all", "reserve"].map(|verb| format!("{name}-{verb}"));
    let [check, many, all, reserve] = [0, 1, 2, 3].map(|id: usize| options(Request::new(&ids[id], BUCKET)));
    let mut answers = [Err(Error::Full)];
    limiter.check_many(&[many], &mut answers).expect("room for the answer");
    vec![
        limiter.check_request(check).expect("valid"),
        answers[0].expect("valid"),
        limiter.check_all(&[all]).expect("valid").verdicts()[0],
        limiter.reserve(reserve, TTL).expect("valid").verdict(),
    ]
}

#[test]
fn a_plan_applies_to_every_verb() {
    let (limiter, _) = two_plans(ConductRules::default());
    for verdict in every_verdict(&limiter, "a", |request| request.cost(4).plan(SMALL)) {
        assert_eq!((verdict.capacity(), verdict.remaining()), (10, 6));
    }
    for verdict in every_verdict(&limiter, "a", |request| request.cost(7).plan(SMALL)) {
        assert_eq!((verdict.decision(), verdict.retry_after()), (Decision::Deny, Some(Duration::from_secs(6))));
    }
    // 4 tokens of 6 s each are full in 24 s, whatever the plan.
    for verdict in every_verdict(&limiter, "b", |request| request.plan(None)) {
        assert_eq!((verdict.capacity(), verdict.remaining()), (100, 99));
    }
    let request = Request::new("a-check", BUCKET).plan(SMALL);
    assert_eq!(limiter.refund(request.cost(3)).expect("valid").remaining(), 9);
    assert_eq!(limiter.peek(request).expect("valid").remaining(), 9);
    let slot = Request::new("a", SLOTS).plan(SMALL);
    let held = Limiter::hold(&limiter, slot).expect("valid");
    assert!(held.slot().is_some() && Limiter::hold(&limiter, slot).expect("valid").slot().is_none());
    assert!(Limiter::hold(&limiter, Request::new("a", SLOTS)).expect("valid").slot().is_some());
    drop(held);
    assert_eq!(limiter.peek(slot).expect("valid").remaining(), 1);
}

#[test]
fn an_unknown_plan_is_an_error_for_every_verb() {
    let (limiter, _) = two_plans(ConductRules::default());
    let unknown = Error::UnknownPlan { plan: 7, plans: 2 };
    let request = Request::new("a", BUCKET).plan(PlanId::new(7));
    let mut answers = [Err(Error::Full)];
    limiter.check_many(&[request], &mut answers).expect("room for the answer");
    assert_eq!((limiter.check_request(request), answers[0]), (Err(unknown), Err(unknown)));
    assert_eq!(limiter.check_all(&[request]), Err(unknown));
    assert_eq!(limiter.reserve(request, TTL), Err(unknown));
    assert_eq!((limiter.peek(request), limiter.refund(request)), (Err(unknown), Err(unknown)));
    assert_eq!(limiter.hold_until_released(Request::new("a", SLOTS).plan(PlanId::new(7))), Err(unknown));
    assert_eq!(limiter.stats().claims, 0);
}

/// The estimate, the unused part and the overspent part all have the plan's price.
#[test]
fn a_reservation_is_settled_under_its_plan() {
    let (limiter, _) = two_plans(ConductRules::default());
    let request = Request::new("a", BUCKET).plan(SMALL);
    let left = || limiter.peek(request).expect("valid").remaining();
    for (used, expected) in [(2, 8), (5, 3), (1, 2)] {
        let id = limiter.reserve(request.cost(2), TTL).expect("valid").id().expect("room for it");
        limiter.settle(id, Settle::used(used)).expect("open");
        assert_eq!(left(), expected, "{used}");
    }
    let id = limiter.reserve(request, TTL).expect("valid").id().expect("room for it");
    limiter.settle(id, Settle::cancelled()).expect("open");
    assert_eq!(left(), 2);
}

#[test]
fn a_denial_of_a_counted_request_counts_for_every_verb() {
    let (limiter, _) = two_plans(ConductRules::default().with_every_denial(true));
    for name in ["plain", "counted"] {
        let exhausted = every_verdict(&limiter, name, |request| request.cost(10).plan(SMALL));
        assert!(exhausted.iter().all(Verdict::is_allowed));
    }
    for verdict in every_verdict(&limiter, "plain", |request| request.plan(SMALL)) {
        assert_eq!((verdict.is_allowed(), verdict.violations_in_a_row()), (false, 0));
    }
    for in_a_row in 1..=10 {
        for verdict in every_verdict(&limiter, "counted", |request| request.plan(SMALL).counted()) {
            assert_eq!((verdict.is_allowed(), verdict.violations_in_a_row()), (false, in_a_row));
            assert_eq!(verdict.is_sustained_abuse(), in_a_row == 10);
        }
    }
    let slot = Request::new("slots", SLOTS).plan(SMALL);
    let _held = Limiter::hold(&limiter, slot).expect("valid");
    assert_eq!(limiter.hold_until_released(slot).expect("valid").violations_in_a_row(), 0);
    assert_eq!(limiter.hold_until_released(slot.counted()).expect("valid").violations_in_a_row(), 1);
}

/// Reservations, batches and slots once ignored the block.
#[test]
fn an_enforced_wait_blocks_every_verb_that_counts() {
    let rules = ConductRules::default().with_curve([Duration::from_secs(10)]).with_enforced_wait(true);
    let (limiter, clock) = two_plans(rules);
    let blocked = |name: &str, options: &dyn Fn(Request<'_>) -> Request<'_>| {
        let ids = ["check", "many", "all", "reserve"].map(|verb| format!("{name}-{verb}"));
        for id in &ids {
            limiter.record_violation(id).expect("valid");
        }
        every_verdict(&limiter, name, options)
    };
    for verdict in blocked("plain", &|request| request) {
        assert!(verdict.is_allowed(), "a request that is not counted is not blocked");
    }
    for verdict in blocked("counted", &|request| request.counted()) {
        assert_eq!((verdict.is_allowed(), verdict.remaining()), (false, 100));
        assert!(verdict.retry_after() >= Some(Duration::from_secs(10)));
    }
    limiter.record_violation("slots").expect("valid");
    assert!(!limiter.hold_until_released(Request::new("slots", SLOTS).counted()).expect("valid").is_allowed());
    assert_eq!(limiter.stats().reservations, 1, "that of the one that is not counted");
    clock.advance(Duration::from_secs(11));
    for verdict in every_verdict(&limiter, "counted", |request| request.counted()) {
        assert!(verdict.is_allowed());
    }
}

/// Each request of a batch, and each part of a call, has its own instant.
#[test]
fn an_instant_belongs_to_its_request() {
    let (limiter, clock) = two_plans(ConductRules::default());
    clock.advance(Duration::from_secs(60));
    let (past, now) = (Tick::ZERO, limiter.now());
    let requests = [("a", past), ("b", now)].map(|(agent, at)| Request::new(agent, BUCKET).cost(100).at(at));
    let mut answers = [Err(Error::Full); 2];
    limiter.check_many(&requests, &mut answers).expect("room for the answers");
    let later = Request::new("a", BUCKET).cost(100);
    assert!(limiter.check_request(later).expect("valid").is_allowed(), "a minute has passed since");
    assert!(!limiter.check_request(Request::new("b", BUCKET)).expect("valid").is_allowed());
    let parts = [("c", past), ("d", now)].map(|(agent, at)| Request::new(agent, BUCKET).cost(100).at(at));
    assert!(limiter.check_all(&parts).expect("valid").is_allowed());
    assert!(limiter.check_request(Request::new("c", BUCKET)).expect("valid").is_allowed());
    assert!(!limiter.check_request(Request::new("d", BUCKET)).expect("valid").is_allowed());
}
