//! Events that an operator should know about, each reported once.

use super::observe::{HTTP, WS, ignore, two_lanes, watched};
use super::*;
use tollgate::bounds::EVENTS_KEPT;
use tollgate::observe::{EventKind, Observe};
use tollgate::{Decision, Request};

fn events(limiter: &Limiter) -> Vec<EventKind> {
    std::iter::from_fn(|| limiter.poll_event()).map(|event| event.kind).collect()
}

#[test]
fn sustained_abuse_is_reported_once_with_the_tenth_violation() {
    let (limiter, clock) = watched(two_lanes(), 100, OnFull::Deny);
    let abuse = |agent: &str| EventKind::SustainedAbuse { agent: agent.into(), in_a_row: 10 };
    assert!(limiter.check_request(Request::new("a", HTTP).cost(2).counted()).expect("valid").is_allowed());
    for _ in 0..9 {
        assert!(!limiter.check_request(Request::new("a", HTTP).counted()).expect("valid").is_allowed());
    }
    assert_eq!(events(&limiter), []);
    for _ in 0..20 {
        assert!(!limiter.check_request(Request::new("a", HTTP).counted()).expect("valid").is_allowed());
        limiter.record_violation("b").expect("room");
    }
    assert_eq!(events(&limiter), [abuse("a"), abuse("b")]);
    // After a window without a violation, it is reported again.
    clock.advance(MINUTE * 6);
    (0..10).for_each(|_| ignore(limiter.record_violation("b")));
    assert_eq!(events(&limiter), [abuse("b")]);
}

#[test]
fn changes_by_operators_are_reported() {
    let (limiter, _) = watched(two_lanes(), 100, OnFull::Deny);
    let pro = limiter.plan("pro").expect("a plan");
    let changed = |agent: &str| EventKind::AssignmentChanged { agent: agent.into() };
    limiter.assign("a", pro).expect("valid");
    limiter.assign("a", pro).expect("valid"); // Changes nothing.
    limiter.set_override("a", "http", "5/min").expect("valid");
    limiter.exempt("b").expect("valid");
    assert!(limiter.exempt("").is_err());
    assert_eq!(events(&limiter), [changed("a"), changed("a"), changed("b")]);
    let nothing = tollgate::Assignment::default;
    limiter.set_assignments([("a", nothing()), ("b", nothing()), ("c", nothing())]).expect("valid");
    assert_eq!(events(&limiter), [EventKind::AssignmentsChanged { agents: 2 }]);
    limiter.set_override("a", "http", "5/min").expect("valid");
    limiter.replace_policy(two_lanes()).expect("the same lanes");
    assert_eq!(events(&limiter), [changed("a"), EventKind::PolicyReplaced]);
}

#[test]
fn an_unknown_action_is_reported_once() {
    let limiter = Limiter::builder(Policy::preset("hub").expect("a preset")).agents(10).observe(Observe::new());
    let limiter = limiter.build().expect("a small slab");
    for action in ["ping", "dance", "dance", "sing"] {
        assert!(limiter.lane_for("ws", action).is_some());
    }
    let unknown = |action: &str| EventKind::UnknownAction { channel: "ws".into(), action: action.into() };
    assert_eq!(events(&limiter), [unknown("dance"), unknown("sing")]);
    assert_eq!(limiter.snapshot().unknown_actions, 3);
}

#[test]
fn a_full_limiter_is_reported_at_most_once_a_minute() {
    for (on_full, lossy_evictions, refused) in [(OnFull::Deny, 0, 1), (OnFull::Evict, 1, 0)] {
        let (limiter, clock) = watched(one_lane_policy(Limit::per_day(10)), 1, on_full);
        (0..96).for_each(|agent| touch(&limiter, &format!("agent-{agent}"), LANE));
        assert_eq!(events(&limiter), []);
        (0..50).for_each(|agent| ignore(limiter.check(format!("newcomer-{agent}"), LANE)));
        assert_eq!(events(&limiter), [EventKind::Saturated { lossy_evictions, refused }]);
        clock.advance(MINUTE - NANOSECOND);
        ignore(limiter.check("another", LANE));
        assert_eq!(events(&limiter), []);
        clock.advance(NANOSECOND);
        ignore(limiter.check("one more", LANE));
        let expected = EventKind::Saturated { lossy_evictions: lossy_evictions * 52, refused: refused * 52 };
        assert_eq!(events(&limiter), [expected], "{on_full:?}");
        assert_eq!((limiter.snapshot().full, limiter.stats().lossy_evictions), (refused * 52, lossy_evictions * 52));
    }
}

#[test]
fn one_check_in_n_is_sampled_on_request() {
    let limiter = Limiter::builder(two_lanes()).agents(10).clock(ManualClock::new());
    let limiter = limiter.observe(Observe::new().sample_every(5)).build().expect("a small slab");
    for _ in 0..20 {
        ignore(limiter.check("a", WS));
    }
    let sampled = events(&limiter);
    let checked = |remaining, decision| EventKind::Checked { agent: b"a".to_vec(), lane: WS, decision, remaining };
    // The thread may have made checks elsewhere before, so the first sample is any of five.
    assert_eq!(sampled.len(), 4);
    assert!((5..10).any(|left| sampled[0] == checked(left, Decision::Allow)), "{sampled:?}");
    assert_eq!(sampled[3], checked(0, Decision::Deny));
}

#[test]
fn unpolled_events_are_dropped_oldest_first_and_counted() {
    let (limiter, _) = watched(two_lanes(), 10, OnFull::Deny);
    for round in 0..EVENTS_KEPT as u64 + 10 {
        let done = if round % 2 == 0 { limiter.exempt("a") } else { limiter.unexempt("a") };
        done.expect("valid");
    }
    assert_eq!(limiter.snapshot().events_dropped, 10);
    let first = limiter.poll_event().expect("many events");
    assert_eq!(first.number, 10);
    assert_eq!(events(&limiter).len(), EVENTS_KEPT - 1);
    assert_eq!(limiter.snapshot().events_dropped, 10);
}

#[test]
fn without_observing_there_are_no_events() {
    let (limiter, _) = build(two_lanes(), 10, OnFull::Deny);
    limiter.exempt("a").expect("valid");
    (0..20).for_each(|_| ignore(limiter.record_violation("b")));
    assert_eq!(limiter.poll_event(), None);
    assert_eq!(limiter.snapshot().events_dropped, 0);
}
