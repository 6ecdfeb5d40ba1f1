//! What the limiter does to the words of its slab.

use super::*;
use crate::clock::ManualClock;
use crate::policy::Limit;
use crate::slab::hash::AgentHash;
use crate::{Error, OnFull, Request};

fn limiter(agents: u64, on_full: OnFull) -> Limiter {
    let policy = ["light", "normal", "heavy"]
        .into_iter()
        .fold(Policy::builder(), |policy, lane| policy.lane(lane, Limit::per_minute(2)));
    let clock = ManualClock::new();
    Limiter::builder(policy.build().unwrap()).agents(agents).clock(clock).on_full(on_full).build().unwrap()
}

/// What makes most checks fast: how many agents at the assumed load are found at
/// the first look, and how many of those are prefetched before it.
#[test]
fn most_agents_are_where_they_are_looked_for_first() {
    const AGENTS: u64 = 60_000;
    let limiter = limiter(AGENTS, OnFull::Evict);
    let heavy = limiter.lane("heavy").unwrap();
    let ids: Vec<String> = (0..AGENTS).map(|agent| format!("agent-{agent}")).collect();
    ids.iter().for_each(|id| assert!(limiter.check(id, heavy).unwrap().is_allowed()));
    let share_of = |is_one: &dyn Fn(AgentHash) -> bool| {
        ids.iter().filter(|id| is_one(limiter.engine.slab.hash(id.as_bytes()))).count() as f64 / AGENTS as f64
    };
    let at_first = share_of(&|hash| {
        limiter.engine.slab.likely_record(hash).is_some_and(|record| record.tag().belongs_to(hash.tag()))
    });
    let favourite = share_of(&|hash| {
        limiter.engine.slab.find(hash).is_some_and(|found| found.position == limiter.engine.slab.favourite(hash))
    });
    println!("{at_first:.4} at the first look, {favourite:.4} in their favourite slot");
    assert!(at_first > 0.955, "{at_first}");
    assert!(favourite > 0.60, "{favourite}");
}

#[test]
fn a_sweep_in_the_future_harms_no_newcomer() {
    // Many slabs: whether the newcomer gets the swept record depends on the hash key.
    for _ in 0..100 {
        let clock = ManualClock::new();
        let policy = Policy::builder().lane("lane", Limit::per_minute(2)).build().unwrap();
        let limiter = Limiter::builder(policy).agents(1).clock(clock.clone()).on_full(OnFull::Deny);
        let limiter = limiter.build().unwrap();
        assert!(limiter.check("old", LaneId::new(0)).unwrap().is_allowed());
        clock.advance(std::time::Duration::from_secs(1));
        assert_eq!(limiter.sweep_at(std::time::Duration::ZERO, Tick::MAX), 1);
        assert_eq!(limiter.check("new", LaneId::new(0)).unwrap().remaining(), 1);
    }
}

/// A price past every range, added to a full bucket of a record's second
/// tenancy, wrapped to no debt at all, and an absurd cost passed.
#[test]
fn an_absurd_cost_is_refused_in_every_tenancy() {
    let limiter = limiter(100, OnFull::Deny);
    let heavy = limiter.lane("heavy").unwrap();
    for tenancy in 0..20 {
        assert!(limiter.check("agent", heavy).unwrap().is_allowed(), "{tenancy}");
        limiter.reset("agent").unwrap();
        for cost in [u64::MAX, u64::MAX - 208, u64::MAX / 2, 1 << 40] {
            let refused = Err(Error::CostAboveCapacity { cost, capacity: 2 });
            assert_eq!(limiter.check_request(Request::new("agent", heavy).cost(cost)), refused, "{tenancy}");
        }
        assert_eq!(limiter.forget("agent"), Ok(true));
    }
}

#[test]
fn a_denial_leaves_every_word_of_the_slab_unchanged() {
    let limiter = limiter(100, OnFull::Deny);
    let heavy = limiter.lane("heavy").unwrap();
    assert!(limiter.check_request(Request::new("agent", heavy).cost(2)).unwrap().is_allowed());
    let before = limiter.engine.slab.snapshot();
    for _ in 0..10 {
        assert!(!limiter.check("agent", heavy).unwrap().is_allowed());
    }
    assert_eq!(limiter.engine.slab.snapshot(), before);
}

/// An exempt agent took a record, so that its checks would take no lock.
/// It needs none: a hundred thousand calls leave the slab as it was, and
/// no agent loses a record for it.
#[test]
fn exempt_agents_take_no_record() {
    let limiter = limiter(1, OnFull::Evict);
    let heavy = limiter.lane("heavy").unwrap();
    let decision = |agent: &str| limiter.check(agent, heavy).unwrap().decision();
    let is_exempt = || decision("exempt") == crate::Decision::Exempt;
    let before = limiter.engine.slab.snapshot();
    // More than the table has room for in some of its lines.
    let agents: Vec<_> = (0..5_000).map(|agent| format!("exempt-{agent}")).collect();
    for agent in agents.iter().map(String::as_str).chain(["exempt"]) {
        limiter.exempt(agent).unwrap();
    }
    let all_are = || agents.iter().all(|agent| decision(agent) == crate::Decision::Exempt);
    assert!((0..20).all(|_| all_are()));
    assert!((0..100_000).all(|_| is_exempt()));
    assert!(limiter.check_request(Request::new("exempt", heavy).cost(1_000_000)).unwrap().is_allowed());
    assert_eq!((limiter.engine.slab.snapshot(), limiter.stats().agents), (before, 0));
    // Every record is taken, and in debt.
    for agent in 0..limiter.stats().records {
        assert!(limiter.check(format!("agent-{agent}"), heavy).unwrap().is_allowed());
    }
    let before = limiter.engine.slab.snapshot();
    assert!((0..1_000).all(|_| is_exempt()));
    assert_eq!(limiter.engine.slab.snapshot(), before);
}

/// It comes and goes with the very next check, with and without a record.
#[test]
fn an_exemption_holds_from_the_next_check_on_and_ends_with_it() {
    let limiter = limiter(100, OnFull::Deny);
    let heavy = limiter.lane("heavy").unwrap();
    let decision = |agent: &str| limiter.check(agent, heavy).unwrap().decision();
    for round in 0..100 {
        limiter.exempt("stranger").unwrap();
        assert_eq!((decision("stranger"), limiter.stats().agents), (crate::Decision::Exempt, 0), "{round}");
        limiter.unexempt("stranger").unwrap();
        assert_eq!((decision("stranger"), limiter.stats().agents), (crate::Decision::Allow, 1), "{round}");
        limiter.forget("stranger").unwrap();
    }
    // One that has a record keeps it with its debt: an exemption is not a reset.
    assert!(limiter.check_request(Request::new("known", heavy).cost(2)).unwrap().is_allowed());
    limiter.exempt("known").unwrap();
    assert_eq!((decision("known"), limiter.stats().agents), (crate::Decision::Exempt, 1));
    limiter.unexempt("known").unwrap();
    assert_eq!(decision("known"), crate::Decision::Deny);
    // Once nothing is left of the debt, the record goes, and does not come back.
    limiter.exempt("known").unwrap();
    let later = limiter.now().saturating_add(std::time::Duration::from_secs(61));
    assert_eq!(limiter.sweep_at(std::time::Duration::ZERO, later), 1);
    assert_eq!((decision("known"), limiter.stats().agents), (crate::Decision::Exempt, 0));
}

#[test]
fn looking_and_errors_leave_every_word_of_the_slab_unchanged() {
    let limiter = limiter(100, OnFull::Deny);
    let heavy = limiter.lane("heavy").unwrap();
    assert!(limiter.check("agent", heavy).unwrap().is_allowed());
    let before = limiter.engine.slab.snapshot();
    for agent in ["agent", "stranger"] {
        assert!(limiter.peek(Request::new(agent, heavy)).is_ok());
        assert!(limiter.check_request(Request::new(agent, heavy).cost(3)).is_err());
        assert!(limiter.check_request(Request::new(agent, heavy).cost(0)).is_err());
        assert!(limiter.check(agent, LaneId::new(3)).is_err());
    }
    assert!(limiter.refund(Request::new("stranger", heavy)).is_ok());
    assert!(limiter.reset("stranger").is_ok());
    assert_eq!(limiter.forget("stranger"), Ok(false));
    assert_eq!(limiter.engine.slab.snapshot(), before);
}

/// A thread that had read a policy wrote it over a later one, and was then believed for as long as no other came.
#[test]
fn an_older_policy_does_not_come_back() {
    let policy = |limit: &str| Policy::builder().lane("api", limit).build().unwrap();
    let limiter = Limiter::builder(policy("1/s")).agents(10).build().unwrap();
    limiter.replace_policy(policy("2/s")).unwrap();
    limiter.engine.set_policy(&Arc::new(policy("1/s")), 0);
    assert_eq!(*limiter.policy(), policy("2/s"));
}
