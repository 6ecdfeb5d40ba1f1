//! What becomes of debt when limits change, and when a request names a plan.

use super::*;
use tollgate::{ConductRules, Error, PlanId, Request};

fn plans() -> (Limiter, ManualClock) {
    let policy = Policy::builder()
        .lane("lane", "10/min")
        .plan("banned", [("lane", "deny")])
        .plan("quick", [("lane", "10/s")])
        .build()
        .expect("a valid policy");
    build(policy, 100, OnFull::Deny)
}

fn plan(limiter: &Limiter, name: &str) -> PlanId {
    limiter.plan(name).expect("named above")
}

/// An exemption has no bucket to measure debt by, nor has a ban. Both once
/// wiped it out: an agent that was exempted for a moment came back with a full
/// bucket.
#[test]
fn debt_outlives_an_exemption_and_a_ban() {
    let (limiter, clock) = plans();
    assert_eq!(admitted(&limiter, "agent-7", LANE), 10);
    limiter.exempt("agent-7").expect("valid");
    touch(&limiter, "agent-7", LANE);
    limiter.unexempt("agent-7").expect("valid");
    assert_eq!(remaining(&limiter, "agent-7", LANE), 0);
    limiter.assign("agent-7", plan(&limiter, "banned")).expect("valid");
    assert_eq!(admitted(&limiter, "agent-7", LANE), 0);
    limiter.unassign("agent-7").expect("valid");
    assert_eq!(remaining(&limiter, "agent-7", LANE), 0);
    // Time passes meanwhile.
    limiter.exempt("agent-7").expect("valid");
    clock.advance(MINUTE / 2);
    limiter.unexempt("agent-7").expect("valid");
    assert_eq!(remaining(&limiter, "agent-7", LANE), 5);
}

#[test]
fn debt_is_cut_to_what_the_new_limit_takes_to_refill() {
    let (limiter, _) = plans();
    assert_eq!(admitted(&limiter, "agent-7", LANE), 10);
    limiter.assign("agent-7", plan(&limiter, "quick")).expect("valid");
    let status = limiter.peek(Request::new("agent-7", LANE)).expect("valid");
    assert_eq!((status.remaining(), status.full_in()), (0, SECOND));
    limiter.unassign("agent-7").expect("valid");
    assert_eq!(limiter.peek(Request::new("agent-7", LANE)).expect("valid").full_in(), SECOND);
}

/// A refund once always used the price of the agent's own limit: a token
/// charged under a fast plan gave back one of a slow plan.
#[test]
fn what_a_named_plan_charged_is_given_back_at_its_price() {
    let (limiter, _) = plans();
    let quick = plan(&limiter, "quick");
    assert!(limiter.check_request(Request::new("agent-8", LANE).cost(5).plan(quick)).expect("valid").is_allowed());
    assert_eq!(remaining(&limiter, "agent-8", LANE), 9);
    let status = limiter.refund(Request::new("agent-8", LANE).cost(2).plan(quick)).expect("valid");
    assert_eq!((status.remaining(), status.full_in()), (7, SECOND * 3 / 10));
    let unknown = PlanId::new(9);
    assert!(limiter.refund(Request::new("agent-8", LANE).plan(unknown)).is_err());
    assert!(limiter.peek(Request::new("agent-8", LANE).plan(unknown)).is_err());
}

/// While a wait was enforced, an invalid request was denied, and counted as a violation.
#[test]
fn an_enforced_wait_does_not_hide_errors() {
    let rules = ConductRules::default().with_curve([SECOND]).with_every_denial(true).with_enforced_wait(true);
    let policy = Policy::builder().lane("lane", "1/min").plan("quick", [("lane", "10/s")]).conduct(rules).build();
    let (limiter, _) = build(policy.expect("a valid policy"), 100, OnFull::Deny);
    let quick = plan(&limiter, "quick");
    limiter.record_violation("agent-7").expect("valid");
    assert_eq!(limiter.check_request(Request::new("agent-7", LANE).cost(0).counted()), Err(Error::ZeroCost));
    assert_eq!(
        limiter.check_request(Request::new("agent-7", LANE).cost(2).counted()),
        Err(Error::CostAboveCapacity { cost: 2, capacity: 1 })
    );
    assert!(matches!(
        limiter.check_request(Request::new("agent-7", LANE).plan(PlanId::new(9)).counted()),
        Err(Error::UnknownPlan { .. })
    ));
    assert_eq!(limiter.violations("agent-7").expect("valid").in_a_row(), 1);
    let denied = limiter.check_request(Request::new("agent-7", LANE).cost(5).plan(quick).counted()).expect("valid");
    assert!(!denied.is_allowed());
    assert_eq!(denied.capacity(), 10);
    assert_eq!(limiter.violations("agent-7").expect("valid").in_a_row(), 2);
}
