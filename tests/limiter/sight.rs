//! What an operator sees: counts, and how agents stand.

use super::*;
use tollgate::{ConductRules, Decision, Error, LaneCounts, Request, Sight, Snapshot, UsageLevel};

fn watched(policy: Policy, agents: u64, on_full: OnFull) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(agents).clock(clock.clone()).on_full(on_full).sight(Sight::new());
    (limiter.build().expect("a small slab"), clock)
}

/// Allowed, warned, denied, exempt.
fn counts(lane: &LaneCounts) -> [u64; 4] {
    [lane.allowed, lane.warned, lane.denied, lane.exempt]
}

fn two_lanes() -> Policy {
    let policy = Policy::builder().lane("ws", "10/min").lane("http", "2/min").plan("pro", [("http", "20/min")]);
    policy.build().expect("a valid policy")
}

const WS: LaneId = LaneId::new(0);
const HTTP: LaneId = LaneId::new(1);

#[test]
fn every_form_of_check_counts_its_answer_once() {
    let (limiter, _) = watched(two_lanes(), 100, OnFull::Deny);
    let pro = limiter.plan("pro").expect("a plan");
    let mut expected = [[0_u64; 4]; 2];
    let mut errors = 0;
    let mut note = |lane: LaneId, answer: Result<Decision, Error>| match answer {
        Ok(decision) => expected[lane.number() as usize][decision as usize] += 1,
        Err(_) => errors += 1,
    };
    limiter.exempt("dashboard").expect("valid");
    for round in 0..12 {
        let now = limiter.now();
        note(WS, limiter.check("a", WS).map(|verdict| verdict.decision()));
        note(WS, limiter.check_cost("b", WS, 2).map(|verdict| verdict.decision()));
        note(HTTP, limiter.check_at("c", HTTP, 1, now).map(|verdict| verdict.decision()));
        note(HTTP, limiter.check_as("d", pro, HTTP, 5).map(|verdict| verdict.decision()));
        note(HTTP, limiter.check_as_at("d", pro, HTTP, 1, now).map(|verdict| verdict.decision()));
        note(HTTP, limiter.admit("e", HTTP, 1).map(|admission| admission.verdict().decision()));
        note(WS, limiter.admit_as_at("f", pro, WS, 3, now).map(|admission| admission.verdict().decision()));
        note(WS, limiter.check("dashboard", WS).map(|verdict| verdict.decision()));
        // Nobody can be told.
        note(WS, limiter.check("", WS).map(|verdict| verdict.decision()));
        note(WS, limiter.check_cost("a", WS, 11).map(|verdict| verdict.decision()));
        note(WS, limiter.check("a", LaneId::new(2)).map(|verdict| verdict.decision()));
        note(WS, limiter.admit("a", WS, 0).map(|admission| admission.verdict().decision()));
        let agent = format!("agent-{}", round % 3);
        let requests = [("g", WS, 1), (agent.as_str(), HTTP, 1), ("", WS, 1)].map(|(agent, lane, cost)| Request {
            agent: agent.as_bytes(),
            lane,
            cost,
        });
        let mut answers = [Err(Error::EmptyId); 3];
        limiter.check_many(&requests, &mut answers).expect("a batch of three");
        for (request, answer) in requests.iter().zip(answers) {
            note(request.lane, answer.map(|verdict| verdict.decision()));
        }
        // What is no check is not counted.
        let _ = limiter.status("a", WS);
        let _ = limiter.refund("a", WS, 1);
        let _ = limiter.agent("z");
    }
    let snapshot = limiter.snapshot();
    assert!(snapshot.is_counting);
    assert_eq!(snapshot.lanes.iter().map(counts).collect::<Vec<_>>(), expected);
    assert_eq!((snapshot.errors, snapshot.full), (errors, 0));
    assert_eq!(snapshot.checks(), expected.iter().flatten().sum::<u64>());
    let totals = [snapshot.allowed(), snapshot.warned(), snapshot.denied()];
    assert_eq!(totals, [0, 1, 2].map(|decision| expected[0][decision] + expected[1][decision]));
    assert!(expected.iter().flatten().filter(|count| **count == 0).count() <= 1, "all are met: {expected:?}");
    assert_eq!((snapshot.assigned, snapshot.overridden, snapshot.exempt), (1, 0, 1));
}

#[test]
fn a_request_that_an_enforced_wait_denies_is_counted_as_denied() {
    let policy = Policy::builder().lane("lane", "1/min").conduct(ConductRules::default().with_enforced_wait(true));
    let (limiter, clock) = watched(policy.build().expect("valid"), 10, OnFull::Deny);
    assert!(limiter.admit("a", LANE, 1).expect("valid").is_allowed());
    assert!(!limiter.admit("a", LANE, 1).expect("valid").is_allowed());
    limiter.reset("a").expect("valid");
    clock.advance(SECOND / 2);
    assert!(!limiter.admit("a", LANE, 1).expect("valid").is_allowed(), "the bucket is full, the wait is not over");
    assert_eq!(counts(&limiter.snapshot().lanes[0]), [0, 1, 2, 0]);
}

#[test]
fn newcomers_that_find_no_record_are_counted_apart() {
    let (limiter, _) = watched(one_lane_policy(Limit::per_minute(10)), 1, OnFull::Deny);
    let refused = (0..120).filter(|agent| limiter.check(format!("agent-{agent}"), LANE) == Err(Error::Full)).count();
    let snapshot = limiter.snapshot();
    assert_eq!((refused, snapshot.full, snapshot.errors), (24, 24, 0));
    assert_eq!((snapshot.stats, snapshot.allowed()), (limiter.stats(), 96));
}

#[test]
fn without_sight_the_answers_are_the_same_and_nothing_is_counted() {
    let (limiter, _) = build(two_lanes(), 100, OnFull::Deny);
    let (other, _) = watched(two_lanes(), 100, OnFull::Deny);
    for cost in [1, 2, 1, 0, 11, 7, 1] {
        for lane in [WS, HTTP, LaneId::new(2)] {
            assert_eq!(limiter.check_cost("a", lane, cost), other.check_cost("a", lane, cost));
        }
    }
    let Snapshot { is_counting, lanes, errors, full, stats, .. } = limiter.snapshot();
    assert!(!is_counting && lanes.iter().all(|lane| counts(lane) == [0; 4]));
    assert_eq!((errors, full, stats.agents), (0, 0, 1));
    assert_eq!(lanes.iter().map(|lane| lane.name.as_str()).collect::<Vec<_>>(), ["ws", "http"]);
}

#[test]
fn an_agent_is_seen_lane_by_lane_without_being_charged() {
    let (limiter, clock) = watched(two_lanes(), 100, OnFull::Deny);
    let pro = limiter.plan("pro").expect("a plan");
    assert!(limiter.check_cost("a", WS, 6).expect("valid").is_allowed());
    limiter.assign("a", pro).expect("valid");
    limiter.set_override("a", "ws", "12/min").expect("valid");
    assert!(limiter.check_cost("a", HTTP, 19).expect("valid").is_allowed());
    assert!(!limiter.admit("a", HTTP, 2).expect("valid").is_allowed());
    clock.advance(SECOND);
    let before = limiter.stats();
    let view = limiter.agent("a").expect("valid");
    assert_eq!(limiter.agent("a").expect("valid"), view);
    assert_eq!((view.at, view.is_known, view.is_exempt), (limiter.now(), true, false));
    assert_eq!(view.plan.as_deref(), Some("pro"));
    for lane in &view.lanes {
        assert_eq!(lane.status, limiter.status("a", lane.lane).expect("valid"));
        assert_eq!(lane.limit, limiter.limit_of("a", lane.lane).expect("valid"));
    }
    assert_eq!(view.lanes.iter().map(|lane| lane.is_override).collect::<Vec<_>>(), [true, false]);
    // Of 20 tokens one was left, and none has come back: 3 seconds a token.
    let http = view.dominant().expect("not exempt");
    assert_eq!((http.name.as_str(), http.used(), http.usage_percent()), ("http", 19, 95.0));
    assert_eq!((http.level(), http.status.full_in()), (UsageLevel::Red, SECOND * 56));
    assert_eq!(view.conduct, limiter.violations("a").expect("valid"));
    assert_eq!((view.conduct.violations(), view.conduct.consecutive(), view.is_rate_limited()), (1, 1, true));
    assert!(view.conduct.window_start().is_some());

    limiter.exempt("a").expect("valid");
    let view = limiter.agent("a").expect("valid");
    assert!(view.is_exempt && view.dominant().is_none() && !view.is_rate_limited());
    assert!(view.lanes.iter().all(|lane| lane.usage_percent() == 0.0 && lane.limit.is_none()));

    let stranger = limiter.agent("stranger").expect("valid");
    assert!(!stranger.is_known && stranger.plan.is_none());
    assert!(stranger.lanes.iter().all(|lane| lane.used() == 0));
    assert_eq!(limiter.stats(), before, "looking claims no record");
    assert_eq!(limiter.agent(""), Err(Error::EmptyId));
    assert!(matches!(limiter.agent([0; 257]), Err(Error::IdTooLong { .. })));
}

#[test]
fn threads_lose_no_count() {
    let (limiter, _) = watched(platform_policy(), 100, OnFull::Deny);
    let verdicts: u64 = std::thread::scope(|scope| {
        let workers = [0_u32, 1, 2, 3].map(|worker| {
            let limiter = &limiter;
            scope.spawn(move || {
                let checks = (0..5_000_u32).map(|i| limiter.check(format!("{}", i % 7), LaneId::new((i + worker) % 6)));
                checks.filter(|answer| answer.is_ok_and(|verdict| verdict.is_allowed())).count() as u64
            })
        });
        workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
    });
    let snapshot = limiter.snapshot();
    assert_eq!(snapshot.checks(), 20_000);
    assert_eq!(snapshot.allowed() + snapshot.warned(), verdicts);
    assert_eq!(snapshot.denied(), 20_000 - verdicts);
}
