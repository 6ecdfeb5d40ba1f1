//! What a limiter reserves, and what happens when it is full.

use super::*;
use tollgate::{Error, Request};

/// Built for one agent, a slab is a single neighbourhood of this many records.
const NEIGHBOURHOOD: u64 = 96;

#[test]
fn memory_is_at_most_ninety_bytes_per_agent_and_not_rounded_to_a_power_of_two() {
    let limiter_for = |agents| Limiter::builder(platform_policy()).agents(agents).build().expect("address space");
    // The table of limits has the same size for any number of agents: address
    // space for 65,536 rows, of which only those in use take memory.
    let table = 65_536 * platform_policy().lanes().len() as u64 * 32;
    for agents in [100_000, 600_000, 1_000_000, 1_048_577, 1_600_000, 3_000_000] {
        let limiter = limiter_for(agents);
        let bytes = limiter.memory() - table;
        assert!(bytes <= agents * 90, "{bytes} bytes for {agents} agents");
        assert!(limiter.stats().records >= agents * 4 / 3, "room for a third more than {agents} agents");
        assert!(bytes >= limiter.stats().records * 64, "a cache line per record");
    }
}

#[test]
fn memory_is_what_was_reserved_and_does_not_grow() {
    let (limiter, _) = platform();
    let before = limiter.memory();
    for agent in 0..100 {
        touch(&limiter, &format!("agent-{agent}"), NORMAL);
    }
    assert_eq!(limiter.memory(), before);
}

/// Fills a neighbourhood with agents that have each spent 3 of 10.
fn fill(limiter: &Limiter) -> Vec<String> {
    let agents: Vec<String> = (0..NEIGHBOURHOOD).map(|agent| format!("agent-{agent}")).collect();
    for agent in &agents {
        assert_eq!(spend(limiter, agent, LANE, 3).remaining(), 7);
    }
    assert_eq!((limiter.stats().agents, limiter.stats().records), (NEIGHBOURHOOD, NEIGHBOURHOOD));
    agents
}

#[test]
fn a_full_neighbourhood_refuses_newcomers_and_touches_no_bucket() {
    let (limiter, clock) = neighbourhood(Limit::per_minute(10), OnFull::Deny);
    let agents = fill(&limiter);
    let before = limiter.stats();
    for newcomer in 0..1_000 {
        assert_eq!(limiter.check(format!("newcomer-{newcomer}"), LANE), Err(Error::Full));
    }
    assert_eq!(limiter.stats(), before);
    for agent in &agents {
        assert_eq!(remaining(&limiter, agent, LANE), 7);
        assert_eq!(check(&limiter, agent, LANE).remaining(), 6);
    }

    // As soon as one is idle it makes room, and the others stay.
    limiter.reset(&agents[40]).expect("valid");
    assert_eq!(check(&limiter, "newcomer-0", LANE).remaining(), 9);
    assert_eq!(limiter.check("newcomer-1", LANE), Err(Error::Full));
    assert_eq!((limiter.stats().idle_evictions, limiter.stats().lossy_evictions), (1, 0));
    clock.advance(SECOND * 24);
    assert_eq!(check(&limiter, "newcomer-1", LANE).remaining(), 9);
}

#[test]
fn a_newcomer_to_a_full_neighbourhood_inherits_the_least_debt() {
    let (limiter, _) = neighbourhood(Limit::per_minute(10), OnFull::Evict);
    let agents = fill(&limiter);
    assert_eq!(limiter.refund(Request::new(&agents[40], LANE).cost(2)).map(|status| status.remaining()), Ok(9));

    // It starts from the 9 tokens of the record that was given up.
    assert_eq!(check(&limiter, "newcomer", LANE).remaining(), 8);
    let stats = limiter.stats();
    assert_eq!((stats.lossy_evictions, stats.idle_evictions), (1, 0));
    assert_eq!((stats.agents, stats.claims), (NEIGHBOURHOOD, NEIGHBOURHOOD + 1));
    for (index, agent) in agents.iter().enumerate() {
        // The price of the default: the agent that lost its record is unknown again.
        let expected = if index == 40 { 10 } else { 7 };
        assert_eq!(remaining(&limiter, agent, LANE), expected, "{agent}");
    }
}

#[test]
fn a_flood_of_fresh_ids_ends_up_sharing_strict_buckets() {
    let (limiter, _) = neighbourhood(Limit::per_minute(10), OnFull::Evict);
    let passed = (0..20_000).filter(|id| check(&limiter, &format!("flood-{id}"), LANE).is_allowed()).count() as u64;
    // Each id alone would be entitled to one; together they get what the records hold.
    assert_eq!(passed, NEIGHBOURHOOD * 10);
}

#[test]
fn an_idle_record_is_taken_before_one_in_debt() {
    let (limiter, clock) = neighbourhood(Limit::per_minute(10), OnFull::Evict);
    let agents = fill(&limiter);
    clock.advance(SECOND * 17);
    for agent in &agents[1..] {
        assert!(check(&limiter, agent, LANE).is_allowed());
    }
    clock.advance(SECOND);
    assert_eq!(check(&limiter, "newcomer", LANE).remaining(), 9);
    assert_eq!((limiter.stats().idle_evictions, limiter.stats().lossy_evictions), (1, 0));
}

#[test]
fn statistics_count_what_happened() {
    let (limiter, clock) = platform();
    let fresh = limiter.stats();
    assert_eq!((fresh.agents, fresh.claims, fresh.idle_evictions), (0, 0, 0));
    assert_eq!((fresh.lossy_evictions, fresh.retries), (0, 0));
    assert!(fresh.records >= 134);

    for agent in ["a", "b", "c", "a", "b"] {
        touch(&limiter, agent, NORMAL);
    }
    assert_eq!((limiter.stats().agents, limiter.stats().claims), (3, 3));
    assert_eq!(limiter.forget("b"), Ok(true));
    assert_eq!((limiter.stats().agents, limiter.stats().idle_evictions), (2, 0));
    clock.advance(MINUTE);
    assert_eq!(limiter.sweep(Duration::ZERO), 2);
    let last = limiter.stats();
    assert_eq!((last.agents, last.claims, last.idle_evictions), (0, 3, 2));
    assert_eq!((last.lossy_evictions, last.retries, last.records), (0, 0, fresh.records));
}

#[test]
fn a_newcomer_that_would_be_denied_takes_no_record() {
    let (limiter, _) = neighbourhood(Limit::per_minute(10), OnFull::Evict);
    let agents = fill(&limiter);
    let before = limiter.stats();
    for id in 0..200 {
        let verdict = spend(&limiter, &format!("newcomer-{id}"), LANE, 8);
        assert!(!verdict.is_allowed());
        assert_eq!(verdict.retry_after(), Some(SECOND * 6));
    }
    assert_eq!(limiter.stats(), before);
    assert!(agents.iter().all(|agent| remaining(&limiter, agent, LANE) == 7));
}

#[test]
fn an_eviction_by_a_caller_ahead_of_the_clock_harms_no_newcomer() {
    // An hour ahead every record looks idle, so the caller is given one. The
    // eviction is remembered at the present instant, not at the caller's.
    let (limiter, clock) = neighbourhood(Limit::per_minute(10), OnFull::Deny);
    clock.advance(SECOND);
    let agents = fill(&limiter);
    let ahead = clock.now().saturating_add(MINUTE * 60);
    assert!(limiter.check_request(Request::new("ahead", LANE).at(ahead)).expect("an idle record").is_allowed());
    assert_eq!(limiter.stats().idle_evictions, 1);
    // One of the two may have been evicted; the other makes room.
    assert!(agents[..2].iter().any(|agent| limiter.forget(agent).expect("a valid id")));
    assert_eq!(spend(&limiter, "new", LANE, 3).remaining(), 7);
}
