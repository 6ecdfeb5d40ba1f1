//! What becomes of debt when limits change.

use super::*;
use tollgate::PlanId;

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

/// An exemption has no bucket to measure debt by, and nor has a ban. Both once
/// wiped it out: whoever was exempted for a moment came back with a full bucket.
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
    // Time goes on meanwhile.
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
    let status = limiter.status("agent-7", LANE).expect("valid");
    assert_eq!((status.remaining(), status.full_in()), (0, SECOND));
    limiter.unassign("agent-7").expect("valid");
    assert_eq!(limiter.status("agent-7", LANE).expect("valid").full_in(), SECOND);
}
