//! What one limiter decides, the others have decided.

use crate::forks::alone;
use std::time::Duration;
use tollgate::observe::Observe;
use tollgate::shared::Shared;
use tollgate::{Agent, Limiter, ManualClock, Policy, Request, Settle};

fn policy() -> Policy {
    Policy::builder()
        .lane("http", "10/min")
        .lane("llm", "budget 1000/day")
        .lane("search", "window 6/min")
        .plan("pro", [("http", "20/min")])
        .build()
        .unwrap()
}

/// Two limiters on one slab, with one clock.
fn pair(policy: &Policy) -> (Limiter, Limiter, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000));
    let build = |place: Shared| {
        let builder = Limiter::builder(policy.clone()).agents(1_000).clock(clock.clone());
        builder.observe(Observe::new().roster(100)).shared(place).build().unwrap()
    };
    let first = build(Shared::memfd());
    let descriptor = first.shared_descriptor().unwrap().try_clone_to_owned().unwrap();
    let second = build(Shared::descriptor(descriptor));
    (first, second, clock)
}

#[test]
fn one_limit_for_all() {
    let _alone = alone();
    let (first, second, _) = pair(&policy());
    let http = first.lane("http").unwrap();
    let allowed = (0..20).filter(|index| {
        let limiter = if index % 2 == 0 { &first } else { &second };
        limiter.check("agent-7", http).unwrap().is_allowed()
    });
    assert_eq!(allowed.count(), 10);
    assert_eq!(first.stats().agents, 1);
    let sharing = second.sharing().unwrap();
    assert_eq!((sharing.processes.len(), sharing.takeovers, sharing.busy), (2, 0, 0));
    assert!(!sharing.policy_differs && !sharing.is_detached);
    let counts = first.snapshot();
    assert_eq!((counts.allowed() + counts.warned(), counts.denied()), (10, 10));
    assert_eq!(second.agents(&Default::default()).agents[0].id, b"agent-7");
}

#[test]
fn control_holds_for_the_very_next_check_everywhere() {
    let _alone = alone();
    let (first, second, _) = pair(&policy());
    let http = first.lane("http").unwrap();
    let pro = first.plan("pro").unwrap();
    let capacity = |limiter: &Limiter, agent: &str| limiter.check(agent, http).unwrap().capacity();
    assert_eq!(capacity(&second, "agent-7"), 10);
    first.assign("agent-7", pro).unwrap();
    assert_eq!(capacity(&second, "agent-7"), 20);
    second.set_override("agent-7", "http", "70/min").unwrap();
    assert_eq!(capacity(&first, "agent-7"), 70);
    assert_eq!(first.assignment("agent-7").unwrap(), second.assignment("agent-7").unwrap());
    assert_eq!(first.assignment("agent-7").unwrap().override_of("http"), Some("70/min".parse().unwrap()));
    // Forgotten by one, and claimed by the other: the override is still there.
    first.forget("agent-7").unwrap();
    assert_eq!(capacity(&second, "agent-7"), 70);
    first.remove_overrides("agent-7").unwrap();
    assert_eq!(capacity(&second, "agent-7"), 20);
    second.unassign("agent-7").unwrap();
    assert_eq!(capacity(&first, "agent-7"), 10);
    assert!(first.assignments().is_empty());
    second.exempt("agent-8").unwrap();
    assert!(first.is_exempt("agent-8").unwrap());
    assert!((0..50).all(|_| first.check("agent-8", http).unwrap().is_allowed()));
    first.unexempt("agent-8").unwrap();
    assert_eq!((0..50).filter(|_| second.check("agent-8", http).unwrap().is_allowed()).count(), 10);
    second.reset("agent-8").unwrap();
    assert!(first.check("agent-8", http).unwrap().is_allowed());
}

#[test]
fn a_new_policy_is_everybodys() {
    let _alone = alone();
    let (first, second, _) = pair(&policy());
    let http = first.lane("http").unwrap();
    first.set_override("agent-9", "llm", "budget 7/day").unwrap();
    assert!(second.check("agent-7", http).unwrap().is_allowed());
    let next = Policy::builder()
        .lane("http", "100/min")
        .lane("llm", "budget 1000/day")
        .lane("search", "window 6/min")
        .plan("pro", [("http", "20/min")])
        .plan("gold", [("http", "500/min")])
        .exempt(["probe"])
        .build()
        .unwrap();
    first.replace_policy(next.clone()).unwrap();
    assert_eq!(second.check("agent-7", http).unwrap().capacity(), 100);
    assert_eq!(second.check("agent-9", http).unwrap().capacity(), 100);
    assert_eq!(*second.policy(), next);
    let gold = second.plan("gold").unwrap();
    assert_eq!(second.check_request(Request::new("new", http).plan(gold)).unwrap().capacity(), 500);
    assert!((0..200).all(|_| second.check("probe", http).unwrap().is_allowed()));
    second.replace_policy(policy_with_gold()).unwrap();
    assert_eq!(first.check("agent-7", http).unwrap().capacity(), 10);
    assert_eq!((0..50).filter(|_| first.check("probe", http).unwrap().is_allowed()).count(), 10);
}

fn policy_with_gold() -> Policy {
    let policy = Policy::builder().lane("http", "10/min").lane("llm", "budget 1000/day").lane("search", "window 6/min");
    policy.plan("pro", [("http", "20/min")]).plan("gold", [("http", "50/min")]).build().unwrap()
}

#[test]
fn reservations_are_settled_by_whoever_has_their_id() {
    let _alone = alone();
    let (first, second, _) = pair(&policy());
    let llm = first.lane("llm").unwrap();
    let reservation = first.reserve(Request::new("agent-7", llm).cost(600), Duration::from_secs(60)).unwrap();
    assert!(!second.check_request(Request::new("agent-7", llm).cost(500)).unwrap().is_allowed());
    let settled = second.settle(reservation.id().unwrap(), Settle::used(100)).unwrap();
    assert_eq!((settled.unused, settled.left), (500, 0));
    assert_eq!(first.peek(Request::new("agent-7", llm)).unwrap().remaining(), 900);
    assert!(first.settle(reservation.id().unwrap(), Settle::used(1)).is_err());
}

#[test]
fn conduct_is_one() {
    let _alone = alone();
    let (first, second, _) = pair(&policy());
    first.record_violation(Agent::new("agent-7")).unwrap();
    second.record_violation(Agent::new("agent-7")).unwrap();
    assert_eq!(first.violations(Agent::new("agent-7")).unwrap().violations(), 2);
}

#[test]
fn slots_are_taken_by_one_and_released_by_another() {
    let _alone = alone();
    let policy = Policy::builder().lane("ws", "held 5").lane("http", "10/min").build().unwrap();
    let (first, second, _) = pair(&policy);
    let ws = first.lane("ws").unwrap();
    let request = Request::new("agent-7", ws);
    assert!(first.hold_until_released(request.cost(3)).unwrap().is_allowed());
    assert!(second.hold_until_released(request.cost(2)).unwrap().is_allowed());
    assert!(!first.check("agent-7", ws).unwrap().is_allowed());
    // One of its own two first, then more than it holds itself.
    assert_eq!(second.release(request).unwrap().remaining(), 1);
    assert_eq!(second.release(request.cost(3)).unwrap().remaining(), 4);
    let refused = second.release(request.cost(2)).unwrap_err();
    assert_eq!(refused, tollgate::Error::NotHeld { held: 1, released: 2 });
    assert_eq!(first.release(request).unwrap().remaining(), 5);
    assert_eq!(first.audit(), [""; 0]);
    // All or none: the slot comes back if the other part is denied.
    let http = first.lane("http").unwrap();
    let parts = [request.cost(2), Request::new("agent-8", http).cost(9)];
    assert!(first.check_all(&parts).unwrap().is_allowed());
    assert!(!second.check_all(&parts).unwrap().is_allowed());
    assert_eq!(first.peek(request).unwrap().remaining(), 3);
    drop(Limiter::hold(&first, request).unwrap());
    assert_eq!(second.peek(request).unwrap().remaining(), 3);
    // The first is gone, with what it holds.
    drop(first);
    assert!(second.hold_until_released(request.cost(5)).unwrap().is_allowed());
    assert_eq!(second.audit(), [""; 0]);
}
