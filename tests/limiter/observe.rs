//! What an operator sees: counts, and how agents stand.

use super::*;
use tollgate::observe::{AgentPage, AgentQuery, AgentSort, LaneCounts, Observe, Offenders, Snapshot, UsageLevel};
use tollgate::{ConductRules, Decision, Error, Request};

pub(super) fn watched(policy: Policy, agents: u64, on_full: OnFull) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(agents).clock(clock.clone()).on_full(on_full).observe(Observe::new());
    (limiter.build().expect("a small slab"), clock)
}

/// Allowed, warned, denied, exempt.
fn counts(lane: &LaneCounts) -> [u64; 4] {
    [lane.allowed, lane.warned, lane.denied, lane.exempt]
}

pub(super) fn two_lanes() -> Policy {
    let policy = Policy::builder().lane("ws", "10/min").lane("http", "2/min").plan("pro", [("http", "20/min")]);
    let policy = policy.conduct(ConductRules::default().with_every_denial(true));
    policy.build().expect("a valid policy")
}

pub(super) const WS: LaneId = LaneId::new(0);
pub(super) const HTTP: LaneId = LaneId::new(1);

#[test]
fn every_form_of_check_counts_its_answer_once() {
    let (limiter, _) = watched(two_lanes(), 100, OnFull::Deny);
    let pro = limiter.plan("pro").expect("a plan");
    let mut expected = [[0_u64; 4]; 2];
    let mut errors = 0;
    let mut note = |lane: LaneId, answer: Result<Decision, Error>| match answer {
        Ok(decision) => {
            let order = [Decision::Allow, Decision::Warn, Decision::Deny, Decision::Exempt];
            let place = order.iter().position(|known| *known == decision).expect("one of four");
            expected[lane.number() as usize][place] += 1;
        }
        Err(_) => errors += 1,
    };
    limiter.exempt("dashboard").expect("valid");
    for round in 0..12 {
        let now = limiter.now();
        note(WS, limiter.check("a", WS).map(|verdict| verdict.decision()));
        note(WS, limiter.check_request(Request::new("b", WS).cost(2)).map(|verdict| verdict.decision()));
        note(HTTP, limiter.check_request(Request::new("c", HTTP).at(now)).map(|verdict| verdict.decision()));
        note(HTTP, limiter.check_request(Request::new("d", HTTP).cost(5).plan(pro)).map(|verdict| verdict.decision()));
        note(HTTP, limiter.check_request(Request::new("d", HTTP).plan(pro).at(now)).map(|verdict| verdict.decision()));
        note(HTTP, limiter.check_request(Request::new("e", HTTP).counted()).map(|admission| admission.decision()));
        note(
            WS,
            limiter
                .check_request(Request::new("f", WS).cost(3).plan(pro).at(now).counted())
                .map(|admission| admission.decision()),
        );
        note(WS, limiter.check("dashboard", WS).map(|verdict| verdict.decision()));
        // What can never pass is an error to the caller, and counted as what it comes to.
        assert!(limiter.check_request(Request::new("a", WS).cost(11)).is_err());
        note(WS, Ok(Decision::Deny));
        // Nobody can be told.
        note(WS, limiter.check("", WS).map(|verdict| verdict.decision()));
        note(WS, limiter.check("a", LaneId::new(2)).map(|verdict| verdict.decision()));
        note(WS, limiter.check_request(Request::new("a", WS).cost(0).counted()).map(|admission| admission.decision()));
        let agent = format!("agent-{}", round % 3);
        let requests = [("g", WS, 1), (agent.as_str(), HTTP, 1), ("", WS, 1)]
            .map(|(agent, lane, cost)| Request::new(agent, lane).cost(cost));
        let mut answers = [Err(Error::EmptyId); 3];
        limiter.check_many(&requests, &mut answers).expect("a batch of three");
        for (lane, answer) in [WS, HTTP, WS].into_iter().zip(answers) {
            note(lane, answer.map(|verdict| verdict.decision()));
        }
        // What is no check is not counted.
        let _ = limiter.peek(Request::new("a", WS));
        let _ = limiter.refund(Request::new("a", WS));
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
    let policy = Policy::builder()
        .lane("lane", "1/min")
        .conduct(ConductRules::default().with_curve([SECOND]).with_every_denial(true).with_enforced_wait(true));
    let (limiter, clock) = watched(policy.build().expect("valid"), 10, OnFull::Deny);
    assert!(limiter.check_request(Request::new("a", LANE).counted()).expect("valid").is_allowed());
    assert!(!limiter.check_request(Request::new("a", LANE).counted()).expect("valid").is_allowed());
    limiter.reset("a").expect("valid");
    clock.advance(SECOND / 2);
    assert!(
        !limiter.check_request(Request::new("a", LANE).counted()).expect("valid").is_allowed(),
        "the bucket is full, the wait is not over"
    );
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
fn without_observing_the_answers_are_the_same_and_nothing_is_counted() {
    let (limiter, _) = build(two_lanes(), 100, OnFull::Deny);
    let (other, _) = watched(two_lanes(), 100, OnFull::Deny);
    for cost in [1, 2, 1, 0, 11, 7, 1] {
        for lane in [WS, HTTP, LaneId::new(2)] {
            assert_eq!(
                limiter.check_request(Request::new("a", lane).cost(cost)),
                other.check_request(Request::new("a", lane).cost(cost))
            );
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
    assert!(limiter.check_request(Request::new("a", WS).cost(6)).expect("valid").is_allowed());
    limiter.assign("a", pro).expect("valid");
    limiter.set_override("a", "ws", "12/min").expect("valid");
    assert!(limiter.check_request(Request::new("a", HTTP).cost(19)).expect("valid").is_allowed());
    assert!(!limiter.check_request(Request::new("a", HTTP).cost(2).counted()).expect("valid").is_allowed());
    clock.advance(SECOND);
    let before = limiter.stats();
    let view = limiter.agent("a").expect("valid");
    assert_eq!(limiter.agent("a").expect("valid"), view);
    assert_eq!((view.at, view.is_known, view.is_exempt), (limiter.now(), true, false));
    assert_eq!(view.plan.as_deref(), Some("pro"));
    for lane in &view.lanes {
        assert_eq!(lane.state, limiter.peek(Request::new("a", lane.lane)).expect("valid"));
        assert_eq!(lane.limit, limiter.limit_of("a", lane.lane).expect("valid"));
    }
    assert_eq!(view.lanes.iter().map(|lane| lane.is_override).collect::<Vec<_>>(), [true, false]);
    // Of 20 tokens one was left, and none has come back: 3 seconds a token.
    let http = view.dominant().expect("not exempt");
    assert_eq!((http.name.as_str(), http.used(), http.used_percent()), ("http", 19, 95.0));
    assert_eq!((http.level(), http.state.full_in()), (UsageLevel::Red, SECOND * 56));
    assert_eq!(view.conduct, limiter.violations("a").expect("valid"));
    assert_eq!((view.conduct.violations(), view.conduct.in_a_row(), view.is_rate_limited()), (1, 1, true));
    assert!(view.conduct.window_start().is_some());

    limiter.exempt("a").expect("valid");
    let view = limiter.agent("a").expect("valid");
    assert!(view.is_exempt && view.dominant().is_none() && !view.is_rate_limited());
    assert!(view.lanes.iter().all(|lane| lane.used_percent() == 0.0 && lane.limit.is_none()));

    let stranger = limiter.agent("stranger").expect("valid");
    assert!(!stranger.is_known && stranger.plan.is_none());
    assert!(stranger.lanes.iter().all(|lane| lane.used() == 0));
    assert_eq!(limiter.stats(), before, "looking claims no record");
    assert_eq!(limiter.agent(""), Err(Error::EmptyId));
    assert!(matches!(limiter.agent(&[0; 257]), Err(Error::IdTooLong { .. })));
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

fn with_roster(policy: Policy, agents: u64, on_full: OnFull, roster: usize) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(agents).clock(clock.clone()).on_full(on_full);
    (limiter.observe(Observe::new().roster(roster)).build().expect("a small slab"), clock)
}

/// For calls whose effect alone matters.
pub(super) fn ignore<T>(_: T) {}

fn ids(page: &AgentPage) -> Vec<String> {
    page.agents.iter().map(|agent| String::from_utf8_lossy(&agent.id).into_owned()).collect()
}

#[test]
fn agents_with_records_are_listed_and_found() {
    let (limiter, clock) = with_roster(two_lanes(), 100, OnFull::Deny, 1_000);
    assert_eq!(limiter.agents(&AgentQuery::new()), AgentPage::default());
    for (agent, ws, http) in [("user:2", 4, 0), ("user:1", 1, 1), ("ip:10.0.0.1", 9, 0), ("user:12", 5, 0)] {
        assert!(limiter.check_request(Request::new(agent, WS).cost(ws)).expect("valid").is_allowed());
        assert!(http == 0 || limiter.check_request(Request::new(agent, HTTP).cost(http)).expect("valid").is_allowed());
    }
    // A violation makes an agent known too; looking does not.
    limiter.record_violation("user:3").expect("room");
    limiter.record_violation("user:2").expect("room");
    limiter.record_violation("user:2").expect("room");
    let _ =
        (limiter.agent("nobody"), limiter.peek(Request::new("nobody", WS)), limiter.refund(Request::new("nobody", WS)));
    let all = limiter.agents(&AgentQuery::new());
    assert_eq!(ids(&all), ["ip:10.0.0.1", "user:1", "user:12", "user:2", "user:3"]);
    assert_eq!((all.matched, all.listed, all.not_listed), (5, 5, 0));
    for agent in &all.agents {
        assert_eq!(agent.view, limiter.agent(&agent.id).expect("valid"));
    }
    let sorted = |sort| ids(&limiter.agents(&AgentQuery::new().prefix("user:").sort(sort)));
    assert_eq!(sorted(AgentSort::Usage), ["user:1", "user:12", "user:2", "user:3"], "half of http, half of ws, ...");
    assert_eq!(sorted(AgentSort::Violations), ["user:2", "user:3", "user:1", "user:12"]);
    let page = |page| ids(&limiter.agents(&AgentQuery::new().contains("1").per_page(2).page(page)));
    assert_eq!([page(0), page(1)], [vec!["ip:10.0.0.1", "user:1"], vec!["user:12"]]);
    assert!(page(2).is_empty() && page(usize::MAX).is_empty());

    // Who loses its record is no longer listed.
    limiter.forget("user:1").expect("valid");
    assert_eq!(ids(&limiter.agents(&AgentQuery::new().prefix("user:1"))), ["user:12"]);
    clock.advance(MINUTE * 10);
    limiter.sweep(Duration::ZERO);
    assert_eq!(limiter.agents(&AgentQuery::new()), AgentPage::default());
    assert!(limiter.check("user:1", WS).expect("valid").is_allowed());
    assert_eq!(ids(&limiter.agents(&AgentQuery::new())), ["user:1"]);
}

#[test]
fn a_list_says_how_many_agents_it_lacks() {
    let (limiter, _) = with_roster(one_lane_policy(Limit::per_minute(10)), 1, OnFull::Evict, 10);
    for agent in 0..96 {
        touch(&limiter, &format!("agent-{agent}"), LANE);
    }
    let page = limiter.agents(&AgentQuery::new());
    assert_eq!((page.listed, page.not_listed, page.agents.len()), (10, 86, 10));
    // Without a roster none can be listed.
    let (limiter, _) = watched(one_lane_policy(Limit::per_minute(10)), 1, OnFull::Evict);
    touch(&limiter, "agent", LANE);
    let page = limiter.agents(&AgentQuery::new());
    assert_eq!((page.listed, page.not_listed, page.agents.len()), (0, 1, 0));
    let (limiter, _) = neighbourhood(Limit::per_minute(10), OnFull::Evict);
    touch(&limiter, "agent", LANE);
    assert_eq!(limiter.agents(&AgentQuery::new()).not_listed, 1);
}

#[test]
fn a_list_follows_every_change_of_tenants() {
    let (limiter, clock) = with_roster(one_lane_policy(Limit::per_minute(10)), 1, OnFull::Evict, 96);
    for agent in 0..500 {
        touch(&limiter, &format!("agent-{agent:03}"), LANE);
        clock.advance(NANOSECOND);
    }
    assert!(limiter.stats().lossy_evictions > 0);
    let page = limiter.agents(&AgentQuery::new());
    assert_eq!((page.listed, page.not_listed, page.matched), (96, 0, 96));
    assert!(page.agents.iter().all(|agent| agent.view.is_known));
    assert!(ids(&page).is_sorted());
}

#[test]
fn a_roster_takes_the_memory_it_says_whatever_ids_arrive() {
    let (plain, _) = watched(one_lane_policy(Limit::per_minute(10)), 1, OnFull::Evict);
    let (limiter, _) = with_roster(one_lane_policy(Limit::per_minute(10)), 1, OnFull::Evict, 50);
    let before = limiter.memory();
    assert_eq!(before - plain.memory(), 50 * 272 + 8);
    for agent in 0..2_000_u64 {
        let _ = limiter.check([[0xff; 8], agent.to_le_bytes()].concat().repeat(16), LANE);
    }
    assert_eq!(limiter.memory(), before);
    assert!(limiter.agents(&AgentQuery::new()).agents.iter().all(|agent| agent.id.len() == 256));
}

#[test]
fn the_worst_offenders_of_the_last_hour_are_known_by_name() {
    let (limiter, clock) = watched(two_lanes(), 100, OnFull::Deny);
    for (agent, requests) in [("a", 7), ("b", 12), ("c", 4), ("d", 2)] {
        (0..requests).for_each(|_| ignore(limiter.check_request(Request::new(agent, HTTP).counted())));
    }
    limiter.record_violation("d").expect("room");
    // A denial by a plain check is none.
    ignore(limiter.check("a", HTTP));
    let top = limiter.top_offenders(3);
    let list: Vec<_> = top.list.iter().map(|one| (one.agent.as_slice(), one.violations, one.error)).collect();
    assert_eq!(list, [(&b"b"[..], 10, 0), (b"a", 5, 0), (b"c", 2, 0)]);
    assert_eq!((top.violations, top.error_max, top.missed), (18, 0, 0));
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.violations, snapshot.violations_last_hour, snapshot.sustained_abuse), (18, 18, 1));
    clock.advance(MINUTE * 60);
    let snapshot = limiter.snapshot();
    assert_eq!((snapshot.violations, snapshot.violations_last_hour, snapshot.sustained_abuse), (18, 0, 1));
    assert!(limiter.top_offenders(3).list.is_empty());
    let (unwatched, _) = build(two_lanes(), 100, OnFull::Deny);
    ignore(unwatched.record_violation("a"));
    assert_eq!(unwatched.top_offenders(3), Offenders::default());
}

#[test]
fn every_kind_of_lane_is_counted_and_seen() {
    let policy = Policy::builder()
        .lane("bucket", Limit::per_minute(4))
        .lane("window", Limit::window(4, MINUTE))
        .lane("exact", Limit::exact(4, MINUTE))
        .lane("budget", Limit::budget(4, tollgate::Calendar::Day))
        .lane("held", Limit::held(4))
        .conduct(ConductRules::default().with_every_denial(true));
    let (limiter, _) = watched(policy.build().expect("a valid policy"), 10, OnFull::Deny);
    for lane in (0..5).map(LaneId::new) {
        let allowed = (0..6).filter(|_| limiter.check("a", lane).expect("valid").is_allowed()).count();
        assert_eq!(allowed, 4, "{lane:?}");
        assert!(!limiter.check_request(Request::new("a", lane).counted()).expect("valid").is_allowed());
    }
    let snapshot = limiter.snapshot();
    for lane in &snapshot.lanes {
        assert_eq!((lane.allowed + lane.warned, lane.denied, lane.checks()), (4, 3, 7), "{}", lane.name);
    }
    let view = limiter.agent("a").expect("valid");
    for lane in &view.lanes {
        assert_eq!((lane.used(), lane.used_percent(), lane.level()), (4, 100.0, UsageLevel::Red), "{}", lane.name);
    }
    assert_eq!(view.dominant().map(|lane| lane.name.as_str()), Some("bucket"));
    assert_eq!(limiter.top_offenders(1).list[0].violations, 5);
}
