//! Violations recorded by several threads.

use super::*;
use crate::ConductRules;

fn model(threshold: u32, records: usize, on_full: OnFull) -> Model {
    let limit = Limit::new(1, Duration::from_nanos(TOKEN)).burst(2);
    let rules = ConductRules::default().with_abuse_threshold(threshold, Duration::from_secs(300));
    let policy = Policy::builder().lane("lane-0", limit).conduct(rules).build().unwrap();
    Model::with_policy(records, policy, on_full)
}

fn in_a_row(model: &Model, agent: &str) -> u32 {
    model.0.violations(Agent::new(agent).at(Tick::ZERO)).unwrap().in_a_row()
}

model! {
    /// Two threads record the violation that makes abuse, and the one after:
    /// it is reported once.
    abuse_is_reported_once, UNBOUNDED, breaks with [ChargeByStore], || {
        let model = model(2, 1, OnFull::Deny);
        model.0.record_violation(Agent::new(A).at(Tick::ZERO)).unwrap();
        let violate = |model: &Model| model.0.record_violation(Agent::new(A).at(Tick::ZERO)).unwrap().sustained_abuse();
        let rival = model.spawn(violate);
        let mine = violate(&model);
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(in_a_row(&model, A), 3);
    }
}

model! {
    /// A first violation is recorded by two threads: one record, two violations.
    first_violation_of_two, UNBOUNDED, breaks with [NoLock], || {
        let model = model(10, 2, OnFull::Deny);
        let violate = |model: &Model| model.0.record_violation(Agent::new(A).at(Tick::ZERO)).is_ok();
        let rival = model.spawn(violate);
        assert!(violate(&model) && rival.join().unwrap());
        assert_eq!((in_a_row(&model, A), model.agents()), (2, 1));
    }
}

model! {
    /// A violation of A stalls while A is forgotten and its record passes to
    /// B: B is not marked.
    violation_against_next_tenant, Some(3), breaks with [NoLookAfterLoad, ConductNotBumped], || {
        let model = model(10, 1, OnFull::Deny);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        let others = model.spawn(|model| {
            let _ = model.0.forget(Agent::new(A).at(Tick::ZERO));
            model.check(B, FIRST, Tick::ZERO).is_ok()
        });
        let _ = model.0.record_violation(Agent::new(A).at(Tick::ZERO));
        others.join().unwrap();
        assert_eq!(in_a_row(&model, B), 0);
    }
}

model! {
    /// An agent whose lanes are idle violates while a newcomer tries to take
    /// its record: the violation is kept, or the agent was evicted before it
    /// and there was no room for it.
    violation_against_eviction, Some(3), breaks with [NoClose, ConductNotBumped], || {
        let model = model(10, 1, OnFull::Deny);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        let newcomer = model.spawn(|model| model.check(B, FIRST, PAID).is_ok());
        let recorded = model.0.record_violation(Agent::new(A).at(PAID)).is_ok();
        let let_in = newcomer.join().unwrap();
        assert!(recorded ^ let_in, "recorded {recorded}, let in {let_in}");
        assert_eq!(in_a_row(&model, A), u32::from(recorded));
        assert_eq!(in_a_row(&model, B), 0);
    }
}

model! {
    /// A tenant in debt with a violation is read while a newcomer tries to take
    /// its record: if it keeps the record, it keeps its violation, and the
    /// newcomer does not inherit it.
    violation_against_lossy_eviction, Some(4), breaks with [ConductGivenUpEarly, ConductNotBumped], || {
        let model = model(10, 1, OnFull::Evict);
        assert!(model.allows(A, FIRST, Tick::ZERO));
        model.0.record_violation(Agent::new(A).at(Tick::ZERO)).unwrap();
        let newcomer = model.spawn(|model| model.allows(B, FIRST, Tick::ZERO));
        let seen = in_a_row(&model, A);
        let let_in = newcomer.join().unwrap();
        assert!(seen == 1 || let_in, "it lost its violation but not its record");
        assert_eq!((in_a_row(&model, A), in_a_row(&model, B)), (u32::from(!let_in), 0));
    }
}

/// A limiter with a token in 100 seconds, in which A was denied at instant 0
/// and given a wait.
fn announced(others: &[&str]) -> Model {
    let limit = Limit::new(1, Duration::from_secs(100)).burst(1);
    let policy = Policy::builder().lane("lane-0", limit).build().unwrap();
    let model = Model::at(2, policy, OnFull::Deny, 60_000_000_000);
    for agent in [A].iter().chain(others) {
        assert!(model.allows(agent, FIRST, Tick::ZERO));
    }
    let admission = model.0.check_request(Request::new(A, FIRST).at(Tick::ZERO).counted()).unwrap();
    assert!(!admission.is_allowed() && admission.violations_in_a_row() == 0, "a wait was announced");
    model
}

/// When the wait is far from over, and no call of instant 0 is still running.
const EARLY: Tick = Tick::from_nanos(10_000_000_000);

fn violates(model: &Model, agent: &str) -> bool {
    model.0.check_request(Request::new(agent, FIRST).at(EARLY).counted()).unwrap().violations_in_a_row() > 0
}

model! {
    /// Three requests of A come back too early at one moment: one violation.
    a_moment_has_one_violation, Some(2), breaks with [AnnouncedByStore], || {
        let model = announced(&[]);
        let rivals = [(); 2].map(|()| model.spawn(|model| violates(model, A)));
        let mine = violates(&model, A);
        let theirs = rivals.map(|rival| rival.join().unwrap());
        assert_eq!([mine, theirs[0], theirs[1]].iter().filter(|violated| **violated).count(), 1);
        assert_eq!(model.0.violations(Agent::new(A).at(EARLY)).unwrap().in_a_row(), 1);
    }
}

model! {
    /// A comes back too early while B, which shares its place, is denied for
    /// the first time: that makes B no violator, and A one at most.
    a_wait_announced_to_one_agent_never_marks_another, UNBOUNDED, breaks with [], || {
        let model = announced(&[B]);
        let other = model.spawn(|model| violates(model, B));
        let mine = [violates(&model, A), violates(&model, A)];
        assert!(!other.join().unwrap(), "no wait was announced to B");
        assert!(!(mine[0] && mine[1]), "one moment");
        assert_eq!(model.0.violations(Agent::new(B).at(EARLY)).unwrap().in_a_row(), 0);
    }
}
