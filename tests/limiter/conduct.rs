//! Violations: the waits of denied agents, which agents get work, and which are remembered.

use super::*;
use tollgate::{Conduct, ConductRules, Decision, Error, PlanId, PolicyBuilder, Request, Verdict};

const EMPTY: LaneId = LaneId::new(1);
const DENY: LaneId = LaneId::new(2);

/// A lane that refills almost at once; one that takes a day; one that denies.
fn lanes(rules: ConductRules) -> PolicyBuilder {
    Policy::builder().lane("fast", "10/s").lane("slow", "1/day").lane("never", "deny").conduct(rules)
}

/// Starts at a whole second, so that no instant here is rounded.
fn started(policy: PolicyBuilder, agents: u64, on_full: OnFull) -> (Limiter, ManualClock) {
    let (limiter, clock) = build(policy.build().expect("valid"), agents, on_full);
    clock.advance(SECOND);
    (limiter, clock)
}

fn limiter(rules: ConductRules) -> (Limiter, ManualClock) {
    started(lanes(rules), 100, OnFull::Deny)
}

/// Every denial counts, and waits grow.
fn rules() -> ConductRules {
    ConductRules::default().with_curve([1, 2, 5, 10, 30].map(Duration::from_secs)).with_every_denial(true)
}

fn check_counted(limiter: &Limiter, agent: &str, lane: LaneId) -> Verdict {
    limiter.check_request(Request::new(agent, lane).counted()).expect("a valid request")
}

/// Spends all of the fast lane, with counted requests.
fn exhaust(limiter: &Limiter, agent: &str) {
    for _ in 0..10 {
        let verdict = check_counted(limiter, agent, LANE);
        assert!(verdict.is_allowed());
        assert_eq!((verdict.violations_in_a_row(), verdict.retry_after()), (0, None));
    }
}

fn seconds(verdict: &Verdict) -> Option<f64> {
    verdict.retry_after().map(|wait| wait.as_secs_f64())
}

fn violations(limiter: &Limiter, agent: &str) -> (u32, u32) {
    let conduct = limiter.violations(agent).expect("valid");
    (conduct.in_a_row(), conduct.violations())
}

#[test]
fn every_denial_may_count_and_the_longer_wait_is_given() {
    let (limiter, clock) = limiter(rules());
    exhaust(&limiter, "agent-7");
    for step in [1, 2, 5, 10, 30, 30] {
        let denied = check_counted(&limiter, "agent-7", LANE);
        assert_eq!(denied.lane_wait(), Some(SECOND / 10), "the bucket's wait alone");
        assert_eq!(denied.conduct_wait(), SECOND * step);
        assert_eq!(denied.retry_after(), Some(SECOND * step));
    }
    // The bucket's wait is the longer one here: a day, less what has passed.
    assert!(check_counted(&limiter, "agent-8", EMPTY).is_allowed());
    clock.advance(SECOND);
    let denied = check_counted(&limiter, "agent-8", EMPTY);
    assert_eq!(denied.violations_in_a_row(), 1);
    assert_eq!(denied.retry_after(), Some(SECOND * 86_399));
    // A step is advice: as soon as the bucket can pay, the request passes.
    assert!(check_counted(&limiter, "agent-7", LANE).is_allowed());
    assert_eq!(violations(&limiter, "agent-7"), (6, 6));
    clock.advance(MINUTE - SECOND - NANOSECOND);
    assert_eq!(limiter.rate_limited("agent-7"), Ok(true));
    clock.advance(NANOSECOND);
    assert_eq!(limiter.rate_limited("agent-7"), Ok(false));
    exhaust(&limiter, "agent-7");
    assert_eq!(check_counted(&limiter, "agent-7", LANE).retry_after(), Some(SECOND), "the first again");
}

#[test]
fn a_plain_check_counts_no_violation() {
    let (limiter, _) = limiter(rules());
    exhaust(&limiter, "agent-7");
    (0..5).for_each(|_| assert!(!check(&limiter, "agent-7", LANE).is_allowed()));
    assert_eq!(limiter.violations("agent-7"), Ok(Conduct::default()));
    assert_eq!(limiter.rate_limited("agent-7"), Ok(false));
}

#[test]
fn a_lane_that_denies_everything_counts_violations_and_gives_no_wait() {
    for rules in [rules(), rules().with_enforced_wait(true)] {
        let (limiter, _) = limiter(rules);
        for count in 1..4 {
            let denied = check_counted(&limiter, "agent-7", DENY);
            assert_eq!((denied.decision(), denied.capacity()), (Decision::Deny, 0));
            assert_eq!((denied.retry_after(), denied.violations_in_a_row()), (None, count));
        }
        assert_eq!(limiter.rate_limited("agent-7"), Ok(true));
    }
}

#[test]
fn a_counted_request_under_a_named_plan_is_checked_under_it() {
    for rules in [rules(), rules().with_enforced_wait(true)] {
        let (limiter, _) = started(lanes(rules).plan("jwt", [("fast", "20/s")]), 100, OnFull::Deny);
        let jwt = limiter.plan("jwt").expect("named above");
        let first = limiter.check_request(Request::new("agent-7", LANE).cost(20).plan(jwt).counted()).unwrap();
        assert_eq!((first.is_allowed(), first.capacity()), (true, 20));
        for _ in 0..2 {
            let denied = limiter.check_request(Request::new("agent-7", LANE).plan(jwt).counted()).unwrap();
            assert_eq!((denied.is_allowed(), denied.capacity()), (false, 20));
        }
        let unknown = Err(Error::UnknownPlan { plan: 9, plans: 2 });
        assert_eq!(limiter.check_request(Request::new("agent-7", LANE).plan(PlanId::new(9)).counted()), unknown);
        assert_eq!(violations(&limiter, "agent-7").0, 2);
    }
}

#[test]
fn an_error_is_not_a_violation_blocked_or_not() {
    let (limiter, _) = limiter(rules().with_enforced_wait(true));
    for _ in 0..2 {
        assert_eq!(limiter.check_request(Request::new("", LANE).counted()), Err(Error::EmptyId));
        assert_eq!(limiter.check_request(Request::new("agent-7", LANE).cost(0).counted()), Err(Error::ZeroCost));
        assert_eq!(
            limiter.check_request(Request::new("agent-7", LANE).cost(11).counted()),
            Err(Error::CostAboveCapacity { cost: 11, capacity: 10 })
        );
        assert_eq!(
            limiter.check_request(Request::new("agent-7", LaneId::new(3)).counted()),
            Err(Error::UnknownLane { lane: 3, lanes: 3 })
        );
        assert_eq!(violations(&limiter, "agent-7").0, limiter.stats().agents as u32);
        limiter.record_violation("agent-7").unwrap();
        limiter.reset_violations("agent-7").unwrap();
        limiter.record_violation("agent-7").unwrap();
    }
}

#[test]
fn an_enforced_wait_blocks_every_lane_until_it_is_over() {
    let (limiter, clock) = limiter(rules().with_enforced_wait(true));
    exhaust(&limiter, "agent-7");
    assert_eq!(seconds(&check_counted(&limiter, "agent-7", LANE)), Some(1.0));
    clock.advance(SECOND / 2);
    // The bucket could pay; the block denies, and that is a violation too.
    let blocked = check_counted(&limiter, "agent-7", LANE);
    assert_eq!((blocked.lane_wait(), blocked.remaining()), (Some(SECOND / 2), 5));
    assert_eq!(blocked.retry_after(), Some(SECOND * 2));
    clock.advance(SECOND);
    let other_lane = check_counted(&limiter, "agent-7", EMPTY);
    assert_eq!((other_lane.is_allowed(), other_lane.retry_after()), (false, Some(SECOND * 5)));
    assert_eq!(remaining(&limiter, "agent-7", EMPTY), 1, "a block charges nothing");
    // A plain check is not blocked, nor is any other agent.
    assert!(check(&limiter, "agent-7", LANE).is_allowed());
    assert!(check_counted(&limiter, "agent-8", EMPTY).is_allowed());
    clock.advance(SECOND * 5 - NANOSECOND);
    assert_eq!(limiter.violations("agent-7").unwrap().wait(), NANOSECOND);
    clock.advance(NANOSECOND);
    assert!(check_counted(&limiter, "agent-7", EMPTY).is_allowed());
    // A lane that is empty for a day reports that, blocked or not.
    for step in [10, 30] {
        let denied = check_counted(&limiter, "agent-7", EMPTY);
        assert_eq!(denied.conduct_wait(), SECOND * step);
        assert_eq!(denied.retry_after(), Some(SECOND * 86_400));
    }
}

/// A request that was denied for conduct was not counted if it was part of an all-or-none call.
#[test]
fn an_all_or_none_call_denied_for_conduct_is_counted() {
    let builder = Limiter::builder(lanes(rules().with_enforced_wait(true)).build().expect("valid"));
    let limiter = builder
        .agents(100)
        .clock(ManualClock::new())
        .observe(tollgate::observe::Observe::new())
        .build()
        .expect("small");
    limiter.record_violation("agent-7").expect("valid");
    let part = |agent: &'static str, lane| Request::new(agent, lane).counted();
    let denied = limiter.check_all(&[part("agent-7", LANE), part("other", EMPTY)]).expect("valid");
    assert_eq!(denied.blocking().collect::<Vec<_>>(), [0]);
    let counts = limiter.snapshot().lanes;
    assert_eq!([LANE, EMPTY].map(|lane| counts[lane.number() as usize].denied), [1, 0]);
}

/// An enforced wait is counted from the next eighth of a second. An agent that
/// came back after the step it was given was denied once more.
#[test]
fn an_agent_that_waits_as_announced_is_not_blocked() {
    let (limiter, clock) = limiter(rules().with_enforced_wait(true));
    for nanos in [1, 61_234_567, 124_999_999] {
        clock.advance(Duration::from_nanos(nanos));
        exhaust(&limiter, "agent-7");
        let wait = check_counted(&limiter, "agent-7", LANE).retry_after().unwrap();
        assert!(wait >= SECOND && wait < SECOND * 9 / 8, "{wait:?}");
        clock.advance(wait - NANOSECOND);
        assert!(limiter.violations("agent-7").unwrap().wait() > Duration::ZERO);
        clock.advance(NANOSECOND);
        assert!(check_counted(&limiter, "agent-7", LANE).is_allowed());
        clock.advance(MINUTE * 2);
    }
}

#[test]
fn without_a_curve_the_wait_is_the_lanes_and_only_an_early_return_violates() {
    let (limiter, clock) = limiter(ConductRules::default());
    assert!(limiter.check_request(Request::new("agent-7", LANE).cost(10).counted()).unwrap().is_allowed());
    // Parallel requests, each of which gets the same wait.
    for _ in 0..8 {
        let denied = limiter.check_request(Request::new("agent-7", LANE).cost(5).counted()).unwrap();
        assert_eq!((denied.violations_in_a_row(), denied.conduct_wait()), (0, Duration::ZERO));
        assert_eq!(denied.retry_after(), Some(SECOND / 2));
    }
    assert!(check_counted(&limiter, "agent-7", EMPTY).is_allowed());
    assert_eq!(check_counted(&limiter, "agent-7", EMPTY).retry_after(), Some(SECOND * 86_400));
    assert_eq!(violations(&limiter, "agent-7"), (0, 0));
    assert_eq!(limiter.rate_limited("agent-7"), Ok(false));
    for count in 1..=10 {
        clock.advance(SECOND);
        let early = check_counted(&limiter, "agent-7", EMPTY);
        assert_eq!((early.violations_in_a_row(), early.is_sustained_abuse()), (count, count == 10), "a day too early");
        assert_eq!(early.retry_after(), Some(SECOND * (86_400 - count)));
        assert_eq!(check_counted(&limiter, "agent-7", EMPTY).violations_in_a_row(), 0, "of the same moment");
    }
    assert_eq!(limiter.rate_limited("agent-7"), Ok(true));
    // Waits are announced lane by lane.
    assert!(limiter.check_request(Request::new("agent-7", LANE).cost(10).counted()).unwrap().is_allowed());
    assert_eq!(check_counted(&limiter, "agent-7", LANE).violations_in_a_row(), 0);
}

#[test]
fn with_a_curve_an_early_return_climbs_it_and_waiting_does_not() {
    let (limiter, clock) = limiter(rules().with_every_denial(false));
    let denied = || {
        // All of the fast lane, however much that is.
        while check_counted(&limiter, "agent-7", LANE).is_allowed() {}
        check_counted(&limiter, "agent-7", LANE)
    };
    // Always on time: the first step, and no violation.
    for _ in 0..20 {
        let in_time = denied();
        assert_eq!((in_time.retry_after(), in_time.violations_in_a_row()), (Some(SECOND), 0));
        clock.advance(SECOND);
    }
    // A crowd of requests violates once, and the wait of a second ends with its moment.
    for step in [1, 2] {
        (0..20).for_each(|_| assert!(!denied().is_allowed()));
        assert_eq!((denied().retry_after(), violations(&limiter, "agent-7").0), (Some(SECOND * step), step));
        clock.advance(SECOND);
    }
    for step in [5, 10, 30, 30] {
        // The first of them is early, the second belongs to the same moment.
        assert_eq!(denied().retry_after(), Some(SECOND * step));
        clock.advance(SECOND / 2);
        assert_eq!(denied().retry_after(), Some(SECOND * step), "a violation has a moment to itself");
        clock.advance(SECOND / 2);
    }
    // An agent that then waits gets the first step again.
    clock.advance(SECOND * 30);
    assert_eq!((denied().retry_after(), violations(&limiter, "agent-7").0), (Some(SECOND), 6));
}

/// An agent was given the wait for many tokens. It kept making small requests,
/// as it may, and the first one that was denied would have been early by that
/// wait.
#[test]
fn a_small_request_is_not_early_by_the_wait_of_a_large_one() {
    let (limiter, clock) = limiter(ConductRules::default());
    let (large, small) = (10, 1);
    assert!(limiter.check_request(Request::new("agent-7", EMPTY).counted()).unwrap().is_allowed());
    for _ in 0..10 {
        let _ = limiter.check_request(Request::new("agent-7", LANE).cost(large).counted()).unwrap();
        while limiter.check_request(Request::new("agent-7", LANE).cost(small).counted()).unwrap().is_allowed() {}
        clock.advance(SECOND * 3 / 5);
    }
    assert_eq!(violations(&limiter, "agent-7"), (0, 0));
}

#[test]
fn sustained_abuse_is_reported_once() {
    let (limiter, clock) = limiter(rules());
    let reports = |times: u32| {
        let abuse = (1..=times).filter(|_| limiter.record_violation("agent-7").unwrap().sustained_abuse());
        abuse.collect::<Vec<_>>()
    };
    assert_eq!(reports(100), [10]);
    clock.advance(MINUTE * 5 - NANOSECOND);
    assert_eq!(reports(100), [0_u32; 0]);
    clock.advance(MINUTE * 6);
    assert_eq!(reports(100), [10]);
    assert_eq!(limiter.reset_violations("agent-7"), Ok(true));
    assert_eq!(reports(100), [10]);
}

#[test]
fn work_goes_to_agents_that_are_not_limited() {
    let (limiter, clock) = limiter(rules());
    let agents = ["a", "b", "c", ""];
    assert_eq!(limiter.assignable(agents), ["a", "b", "c"]);
    limiter.record_violation("a").unwrap();
    limiter.record_violation("b").unwrap();
    assert_eq!(limiter.assignable(agents), ["c"]);
    // An exempt agent is never limited, whatever it did before.
    limiter.exempt("b").unwrap();
    assert_eq!((limiter.rate_limited("b"), limiter.rate_limited("a")), (Ok(false), Ok(true)));
    assert_eq!(limiter.assignable(agents), ["b", "c"]);
    assert!(check_counted(&limiter, "b", DENY).is_allowed());
    limiter.unexempt("b").unwrap();
    assert_eq!(limiter.assignable(agents), ["c"]);
    assert_eq!((limiter.reset_violations("b"), limiter.reset_violations("c")), (Ok(true), Ok(false)));
    assert_eq!(limiter.assignable(agents), ["b", "c"]);
    clock.advance(MINUTE);
    assert_eq!(limiter.assignable(agents), ["a", "b", "c"]);
    assert_eq!(limiter.rate_limited(""), Err(Error::EmptyId));
    assert_eq!(limiter.assignable(Vec::<&str>::new()), Vec::<&str>::new());
}

#[test]
fn an_exempt_agent_is_not_blocked() {
    let (limiter, _) = limiter(rules().with_enforced_wait(true));
    limiter.record_violation("agent-7").unwrap();
    assert!(!check_counted(&limiter, "agent-7", LANE).is_allowed());
    limiter.exempt("agent-7").unwrap();
    let verdict = check_counted(&limiter, "agent-7", LANE);
    assert_eq!((verdict.decision(), verdict.violations_in_a_row()), (Decision::Exempt, 0));
}

#[test]
fn an_operator_forgives_violations_and_quiet_conduct_needs_no_forgiving() {
    let (limiter, clock) = limiter(rules());
    assert_eq!(limiter.reset_violations("agent-7"), Ok(false));
    limiter.record_violation("agent-7").unwrap();
    assert_eq!(limiter.reset_violations("agent-7"), Ok(true));
    assert_eq!(limiter.violations("agent-7"), Ok(Conduct::default()));
    assert_eq!(limiter.reset_violations("agent-7"), Ok(false));
    limiter.record_violation("agent-7").unwrap();
    clock.advance(MINUTE * 5);
    assert_eq!(limiter.violations("agent-7"), Ok(Conduct::default()));
    assert_eq!(limiter.reset_violations("agent-7"), Ok(false));
    limiter.record_violation("agent-7").unwrap();
    assert_eq!(limiter.forget("agent-7"), Ok(true));
    assert_eq!(limiter.violations("agent-7"), Ok(Conduct::default()));
}

#[test]
fn conduct_keeps_a_record_until_it_is_quiet() {
    let (limiter, clock) = started(lanes(rules()), 1, OnFull::Deny);
    for agent in 0..96 {
        limiter.record_violation(&format!("agent-{agent}")).unwrap();
    }
    assert_eq!(limiter.stats().agents, 96);
    clock.advance(MINUTE * 5 - NANOSECOND);
    // Every lane is full, and still no record counts as idle.
    assert_eq!((limiter.sweep(Duration::ZERO), limiter.check("newcomer", LANE)), (0, Err(Error::Full)));
    assert_eq!(limiter.record_violation("newcomer"), Err(Error::Full));
    assert_eq!(violations(&limiter, "agent-3"), (0, 1));
    clock.advance(NANOSECOND);
    assert!(check(&limiter, "newcomer", LANE).is_allowed());
    assert_eq!((limiter.stats().idle_evictions, limiter.stats().lossy_evictions), (1, 0));
    assert_eq!(limiter.violations("newcomer"), Ok(Conduct::default()), "the record's last tenant had one");
    clock.advance(SECOND / 10);
    // A sweep for longer than it has been quiet takes no record.
    assert_eq!(limiter.sweep(SECOND), 0);
    assert_eq!(limiter.sweep(SECOND / 10), 95);
    assert_eq!(limiter.sweep(Duration::ZERO), 1);
}

#[test]
fn a_violation_takes_only_a_vacant_or_an_idle_record() {
    for on_full in [OnFull::Deny, OnFull::Evict] {
        let (limiter, clock) = started(lanes(rules()), 1, on_full);
        for agent in 0..96 {
            assert!(check_counted(&limiter, &format!("agent-{agent}"), EMPTY).is_allowed());
        }
        let before = limiter.stats();
        assert_eq!(limiter.record_violation("stranger"), Err(Error::Full));
        // Denied without a record: a first violation each time, which is not remembered.
        for _ in 0..3 {
            assert_eq!(check_counted(&limiter, "stranger", DENY).violations_in_a_row(), 1);
        }
        let newcomer = limiter.check_request(Request::new("stranger", EMPTY).counted());
        match on_full {
            OnFull::Deny => assert_eq!(newcomer, Err(Error::Full)),
            // The record that it would inherit has nothing left either.
            _ => assert_eq!(newcomer.unwrap().violations_in_a_row(), 1),
        }
        assert_eq!((limiter.stats(), violations(&limiter, "stranger")), (before, (0, 0)));
        clock.advance(SECOND * 86_400);
        assert_eq!(limiter.record_violation("stranger").unwrap().in_a_row(), 1);
        assert_eq!(limiter.record_violation("stranger").unwrap().in_a_row(), 2);
        assert_eq!((limiter.stats().idle_evictions, limiter.stats().lossy_evictions), (1, 0));
    }
}

#[test]
fn a_newcomer_does_not_inherit_conduct() {
    let (limiter, _) = started(lanes(rules()), 1, OnFull::Evict);
    for agent in 0..96 {
        let agent = format!("agent-{agent}");
        touch(&limiter, &agent, LANE);
        limiter.record_violation(&agent).unwrap();
    }
    assert_eq!(check(&limiter, "newcomer", LANE).remaining(), 8);
    assert_eq!(limiter.stats().lossy_evictions, 1);
    assert_eq!(violations(&limiter, "newcomer"), (0, 0));
}
