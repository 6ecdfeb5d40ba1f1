//! A plan's total: one limit over all its lanes, charged with each of them.

mod settle;

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::{Decision, Error, Limit, PlanId, PolicyBuilder, Request};

const READ: LaneId = LaneId::new(0);
const WRITE: LaneId = LaneId::new(1);
const SEARCH: LaneId = LaneId::new(2);
const LOGIN: LaneId = LaneId::new(3);
const LLM: LaneId = LaneId::new(4);
const SOCKETS: LaneId = LaneId::new(5);
const TOTAL: LaneId = LaneId::new(6);
const FREE: PlanId = PlanId::new(1);
const COUNTED: [LaneId; 4] = [READ, WRITE, SEARCH, LOGIN];

/// Lanes that would admit hundreds, and a plan that admits 20.
fn lanes() -> PolicyBuilder {
    Policy::builder()
        .lane("read", "100/min burst 200")
        .lane("write", "50/min burst 100")
        .lane("search", "window 100/min")
        .lane("login", "exact 10/min")
        .lane("llm", "budget 10_000/day")
        .lane("sockets", "held 3")
        .outside_total(["llm"])
}

fn with_total(total: &str) -> (Limiter, ManualClock) {
    let policy = lanes().plan("free", [("total", total)]).build().expect("a total of the allowed range");
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(100).clock(clock.clone()).build().expect("a small slab");
    limiter.assign(AGENT, FREE).expect("a plan of the policy");
    (limiter, clock)
}

fn free() -> (Limiter, ManualClock) {
    with_total("20/min")
}

/// What each lane has left on its own, the total last.
fn left(limiter: &Limiter) -> Vec<u64> {
    limiter.agent(AGENT).expect("a good id").lanes.iter().map(|lane| lane.state.remaining()).collect()
}

fn part(lane: LaneId, cost: u64) -> Request<'static> {
    Request::new(AGENT, lane).cost(cost)
}

proptest! {
    /// The bug: 20 + 200 + 100 at once over three lanes.
    #[test]
    fn a_total_of_twenty_admits_twenty_in_any_order(
        calls in prop::collection::vec((0..4_usize, 0..5_u8), 40..80),
        total in prop::sample::select(vec!["20/min", "window 20/min", "budget 20/day"]),
    ) {
        let (limiter, _) = with_total(total);
        let (mut passed, mut of_login) = (0, 0);
        for (lane, verb) in calls {
            let lane = COUNTED[lane];
            let is_allowed = match verb {
                0 => limiter.check(AGENT, lane).unwrap().is_allowed(),
                1 => limiter.check_request(Request::new(AGENT, lane).counted()).unwrap().is_allowed(),
                2 => limiter.check_all(&[part(lane, 1)]).unwrap().is_allowed(),
                3 => limiter.check_request(Request::new(AGENT, lane).plan(PlanId::DEFAULT)).unwrap().is_allowed(),
                _ => {
                    let mut answers = [Err(Error::EmptyId)];
                    limiter.check_many(&[part(lane, 1)], &mut answers).unwrap();
                    answers[0].unwrap().is_allowed()
                }
            };
            let fits = passed < 20 && (lane != LOGIN || of_login < 10);
            prop_assert_eq!(is_allowed, fits, "{} after {}", lane.number(), passed);
            passed += u64::from(is_allowed);
            of_login += u64::from(is_allowed && lane == LOGIN);
        }
        prop_assert_eq!(limiter.peek(Request::new(AGENT, TOTAL)).unwrap().remaining(), 20 - passed);
        let spent = 410 - left(&limiter)[..4].iter().sum::<u64>();
        prop_assert_eq!(spent, passed);
    }
}

#[test]
fn threads_on_several_lanes_get_twenty_between_them() {
    for total in ["20/min", "window 20/min", "budget 20/day"] {
        let (limiter, _) = with_total(total);
        let passed = [const { AtomicU64::new(0) }; 4];
        std::thread::scope(|scope| {
            for (lane, passed) in COUNTED.into_iter().zip(&passed) {
                let limiter = &limiter;
                scope.spawn(move || {
                    for _ in 0..200 {
                        passed
                            .fetch_add(u64::from(limiter.check(AGENT, lane).unwrap().is_allowed()), Ordering::Relaxed);
                    }
                });
            }
        });
        let passed = passed.map(AtomicU64::into_inner);
        assert_eq!(passed.iter().sum::<u64>(), 20, "{total}: {passed:?}");
        let left = left(&limiter);
        // What was charged and taken back is available again. The clock stands still.
        assert_eq!(left[..4], [200 - passed[0], 100 - passed[1], 100 - passed[2], 10 - passed[3]], "{total}");
    }
}

#[test]
fn all_numbers_of_a_verdict_come_from_one_limit() {
    let (limiter, clock) = free();
    // 20 left of the total, 10 of the lane.
    let login = limiter.check(AGENT, LOGIN).unwrap();
    assert_eq!((login.remaining(), login.capacity()), (9, 10));
    let read = limiter.check_request(Request::new(AGENT, READ).cost(12)).unwrap();
    assert_eq!((read.remaining(), read.capacity(), read.decision()), (7, 20, Decision::Allow));
    assert_eq!((read.full_in(), read.window()), (Duration::from_secs(39), Duration::from_secs(60)));
    let write = limiter.check_request(Request::new(AGENT, WRITE).cost(4)).unwrap();
    assert_eq!((write.remaining(), write.decision()), (3, Decision::Warn), "the total is near its end");
    let denied = limiter.check_request(Request::new(AGENT, READ).cost(5)).unwrap();
    assert_eq!((denied.decision(), denied.capacity(), denied.remaining()), (Decision::Deny, 20, 3));
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(6)));
    clock.advance(Duration::from_secs(6) - Duration::from_nanos(1));
    assert!(!limiter.check_request(Request::new(AGENT, READ).cost(5)).unwrap().is_allowed());
    clock.advance(Duration::from_nanos(1));
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(5)).unwrap().is_allowed());
    assert_eq!(
        limiter.check_request(Request::new(AGENT, READ).cost(21)),
        Err(Error::CostAboveCapacity { cost: 21, capacity: 20 })
    );
}

/// A lane near its end warns, even if the total has less left.
#[test]
fn lane_and_total_both_warn() {
    let policy = lanes().lane("small", "50/min").plan("free", [("total", "20/min")]).build().unwrap();
    let (limiter, _) = of_policy(policy);
    let (small, total) = (limiter.lane("small").unwrap(), limiter.lane("total").unwrap());
    assert!(limiter.check_request(Request::new(AGENT, small).cost(41)).unwrap().is_allowed());
    limiter.assign(AGENT, FREE).unwrap();
    assert_eq!(limiter.peek(Request::new(AGENT, total)).unwrap().remaining(), 20);
    let verdict = limiter.check_request(Request::new(AGENT, small)).unwrap();
    assert_eq!((verdict.decision(), verdict.remaining(), verdict.capacity()), (Decision::Warn, 8, 50));
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(13)).unwrap().is_allowed());
    let verdict = limiter.check(AGENT, small).unwrap();
    assert_eq!((verdict.decision(), verdict.remaining(), verdict.capacity()), (Decision::Warn, 5, 20));
}

/// If lane and total both deny, only the longer wait is long enough.
#[test]
fn a_denial_gives_the_longer_wait() {
    let (limiter, clock) = free();
    for _ in 0..10 {
        assert!(limiter.check(AGENT, LOGIN).unwrap().is_allowed());
    }
    let by_lane = limiter.check(AGENT, LOGIN).unwrap();
    assert_eq!((by_lane.capacity(), by_lane.retry_after()), (10, Some(Duration::from_secs(60))));
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(10)).unwrap().is_allowed());
    assert_eq!(limiter.check(AGENT, READ).unwrap().retry_after(), Some(Duration::from_secs(3)));
    let by_both = limiter.check(AGENT, LOGIN).unwrap();
    assert_eq!((by_both.capacity(), by_both.retry_after()), (10, Some(Duration::from_secs(60))));
    clock.advance(Duration::from_secs(60));
    assert!(limiter.check(AGENT, LOGIN).unwrap().is_allowed());
}

#[test]
fn a_total_that_denies_charges_nothing_and_evicts_nobody() {
    let policy = || lanes().plan("free", [("total", "20/min")]).plan("none", [("total", "deny")]).build().unwrap();
    let (limiter, _) = full(policy(), OnFull::Evict);
    let none = limiter.plan("none").unwrap();
    let before = limiter.stats();
    for newcomer in 0..200 {
        let agent = format!("newcomer-{newcomer}");
        assert!(!limiter.check_request(Request::new(&agent, READ).plan(none)).unwrap().is_allowed());
        assert!(limiter.check_request(Request::new(&agent, READ).cost(21).plan(FREE)).is_err());
    }
    assert_eq!(limiter.stats(), before);
    let (limiter, _) = free();
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(18)).unwrap().is_allowed());
    let before = left(&limiter);
    for lane in [READ, WRITE, SEARCH] {
        assert!(!limiter.check_request(Request::new(AGENT, lane).cost(3)).unwrap().is_allowed());
        assert!(!limiter.check_all(&[part(lane, 1), part(LLM, 100), part(lane, 2)]).unwrap().is_allowed());
    }
    assert_eq!(left(&limiter), before);
}

/// A newcomer takes over a record in debt with what was charged to it. No agent
/// loses a record to a newcomer that its total then denies.
#[test]
fn a_newcomer_is_asked_about_the_total_it_would_inherit() {
    let policy = Policy::builder().lane("read", "100/min").lane("write", "100/min").total("2/min").build().unwrap();
    let (limiter, _) = full(policy, OnFull::Evict);
    for agent in 0..limiter.stats().records {
        assert!(limiter.check(format!("tenant-{agent}"), LaneId::new(1)).unwrap().is_allowed());
    }
    let before = limiter.stats();
    for newcomer in 0..100 {
        let verdict = limiter.check(format!("newcomer-{newcomer}"), READ).unwrap();
        assert_eq!((verdict.decision(), verdict.capacity()), (Decision::Deny, 2));
    }
    assert_eq!(limiter.stats(), before);
}

#[test]
fn a_plan_without_a_total_has_none() {
    let (limiter, _) = free();
    let other = "other";
    assert!(limiter.check_request(Request::new(other, READ).cost(200)).unwrap().is_allowed());
    assert!(limiter.check_request(Request::new(other, WRITE).cost(100)).unwrap().is_allowed());
    assert!(limiter.check_request(Request::new(other, SEARCH).cost(100)).unwrap().is_allowed());
    let denied = limiter.check(other, READ).unwrap();
    assert_eq!((denied.capacity(), denied.remaining()), (200, 0));
    assert!(limiter.peek(Request::new(other, TOTAL)).unwrap().is_exempt());
    assert_eq!(limiter.limit_of(other, TOTAL).unwrap(), Some(Limit::unlimited()));
    let view = limiter.agent(other).unwrap();
    assert_eq!((view.lanes[6].name.as_str(), view.lanes[6].used_percent()), ("total", 0.0));
    assert_eq!(view.dominant().unwrap().name, "read");
    // A plan that only the request names.
    assert_eq!(limiter.check_request(Request::new("third", READ).plan(FREE)).unwrap().remaining(), 19);
    assert_eq!(limiter.peek(Request::new("third", WRITE).plan(FREE)).unwrap().remaining(), 19);
    limiter.refund(Request::new("third", READ).plan(FREE)).unwrap();
    assert_eq!(limiter.peek(Request::new("third", WRITE).plan(FREE)).unwrap().remaining(), 20);
}

#[test]
fn slots_and_lanes_outside_the_total_take_nothing_from_it() {
    let (limiter, _) = free();
    assert!(limiter.check_request(Request::new(AGENT, LLM).cost(4_000)).unwrap().is_allowed());
    assert!(limiter.hold_until_released(Request::new(AGENT, SOCKETS)).unwrap().is_allowed());
    assert_eq!(limiter.peek(Request::new(AGENT, TOTAL)).unwrap().remaining(), 20);
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(20)).unwrap().is_allowed());
    assert!(limiter.hold_until_released(Request::new(AGENT, SOCKETS)).unwrap().is_allowed());
    assert!(limiter.check_request(Request::new(AGENT, LLM).cost(4_000)).unwrap().is_allowed());
    assert_eq!(limiter.release(Request::new(AGENT, SOCKETS)).unwrap().remaining(), 2);
    assert!(!limiter.check(AGENT, READ).unwrap().is_allowed());
}

#[test]
fn parts_of_one_agent_share_its_total() {
    let (limiter, _) = free();
    let parts = [part(READ, 8), part(WRITE, 8), part(LLM, 4_000), part(SEARCH, 5)];
    // 21 in all can never pass.
    assert_eq!(limiter.check_all(&parts), Err(Error::CostAboveCapacity { cost: 21, capacity: 20 }));
    let fits = limiter.check_all(&parts[..3]).unwrap();
    assert_eq!(fits.verdicts().iter().map(Verdict::remaining).collect::<Vec<_>>(), [4, 4, 6_000]);
    assert_eq!(left(&limiter), [192, 92, 100, 10, 6_000, 3, 4]);
    let before = left(&limiter);
    // Each part passes alone, and the last one blocks the others.
    let denied = limiter.check_all(&[part(SEARCH, 2), part(LLM, 1), part(READ, 2), part(WRITE, 1)]).unwrap();
    assert_eq!(denied.blocking().collect::<Vec<_>>(), [3]);
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(3)));
    assert_eq!(left(&limiter), before);
    // Another agent has its own total.
    limiter.assign("other", FREE).unwrap();
    let other = Request::new("other", READ).cost(20);
    assert!(limiter.check_all(&[part(READ, 4), other]).unwrap().is_allowed());
    assert!(!limiter.check_all(&[part(READ, 1)]).unwrap().is_allowed());
    assert!(!limiter.check("other", WRITE).unwrap().is_allowed());
}

/// Callers with several parts collide: what does not pass is given back, to the
/// lanes and to the total.
#[test]
fn colliding_calls_of_several_parts_leave_what_passed() {
    let (limiter, _) = with_total("window 20/min");
    let passed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for lanes in [[READ, WRITE], [WRITE, SEARCH], [SEARCH, READ]] {
            let (limiter, passed) = (&limiter, &passed);
            scope.spawn(move || {
                for _ in 0..100 {
                    let verdict = limiter.check_all(&lanes.map(|lane| part(lane, 1))).unwrap();
                    passed.fetch_add(2 * u64::from(verdict.is_allowed()), Ordering::Relaxed);
                }
            });
        }
    });
    let left = left(&limiter);
    assert_eq!((passed.into_inner(), left[6]), (20, 0));
    assert_eq!(left[..3].iter().sum::<u64>(), 400 - 20);
}

#[test]
fn a_refund_fills_both_and_a_reset_of_a_lane_fills_that_lane() {
    let (limiter, _) = free();
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(20)).unwrap().is_allowed());
    let status = limiter.refund(Request::new(AGENT, READ).cost(5)).unwrap();
    assert_eq!((status.remaining(), status.capacity()), (5, 20));
    assert_eq!((left(&limiter)[0], left(&limiter)[6]), (185, 5));
    limiter.reset_lane(AGENT, READ).unwrap();
    assert_eq!((left(&limiter)[0], left(&limiter)[6]), (200, 5));
    assert_eq!(limiter.peek(Request::new(AGENT, WRITE)).unwrap().remaining(), 5);
    limiter.reset_lane(AGENT, TOTAL).unwrap();
    assert_eq!(limiter.peek(Request::new(AGENT, WRITE)).unwrap().remaining(), 20);
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(20)).unwrap().is_allowed());
    limiter.reset(AGENT).unwrap();
    assert_eq!(left(&limiter), [200, 100, 100, 10, 10_000, 3, 20]);
    // A refund above the total's capacity fills it.
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(20)).unwrap().is_allowed());
    assert_eq!(limiter.refund(Request::new(AGENT, READ).cost(150)).unwrap().remaining(), 20);
}

#[test]
fn an_agent_may_have_its_own_total() {
    let (limiter, _) = free();
    limiter.set_override(AGENT, "total", "40/min").unwrap();
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(40)).unwrap().is_allowed());
    assert!(!limiter.check(AGENT, WRITE).unwrap().is_allowed());
    limiter.set_override(AGENT, "total", "unlimited").unwrap();
    assert!(limiter.check(AGENT, WRITE).unwrap().is_allowed());
    limiter.remove_overrides(AGENT).unwrap();
    let refused = |lane, limit| limiter.set_override(AGENT, lane, limit).unwrap_err().to_string();
    assert!(refused("read", "unlimited").contains("for the total of a plan"), "{}", refused("read", "unlimited"));
    assert!(refused("total", "held 3").contains("a total is a bucket, a window or a budget"));
    assert!(refused("total", "window 20/min").contains("of another kind"));
    limiter.exempt(AGENT).unwrap();
    assert_eq!(limiter.check_request(Request::new(AGENT, READ).cost(1_000)).unwrap().decision(), Decision::Exempt);
    assert!(limiter.peek(Request::new(AGENT, READ)).unwrap().is_exempt());
}

#[test]
fn no_request_charges_the_total_alone() {
    let (limiter, _) = free();
    let wrong = Err(Error::WrongKind { lane: 6 });
    assert_eq!(limiter.check(AGENT, TOTAL), wrong);
    assert_eq!(limiter.check_request(Request::new(AGENT, TOTAL).plan(FREE)), wrong);
    assert_eq!(limiter.check_request(Request::new(AGENT, TOTAL).counted()), wrong);
    assert_eq!(limiter.check_all(&[part(TOTAL, 1)]).map(|all| all.verdicts()[0]), wrong);
    assert_eq!(limiter.refund(Request::new(AGENT, TOTAL)).map(|_| ()), wrong.map(|_| ()));
    assert_eq!(limiter.refund(Request::new(AGENT, TOTAL).plan(FREE)).map(|_| ()), wrong.map(|_| ()));
    assert_eq!(limiter.hold_until_released(Request::new(AGENT, TOTAL)), wrong);
    assert_eq!(limiter.reserve(Request::new(AGENT, TOTAL), Duration::from_secs(1)).map(|one| one.verdict()), wrong);
    let mut answers = [Err(Error::EmptyId); 2];
    limiter.check_many(&[part(TOTAL, 1), part(READ, 1)], &mut answers).unwrap();
    assert_eq!((answers[0], answers[1].unwrap().remaining()), (wrong, 19));
}

#[test]
fn a_policy_in_force_changes_its_totals_and_what_they_count() {
    let (limiter, _) = free();
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(20)).unwrap().is_allowed());
    limiter.replace_policy(lanes().plan("free", [("total", "40/min")]).build().unwrap()).unwrap();
    // The debt is a minute long, which is the whole new total too.
    assert_eq!(limiter.peek(Request::new(AGENT, WRITE)).unwrap().capacity(), 40);
    limiter.reset(AGENT).unwrap();
    assert!(limiter.check_request(Request::new(AGENT, WRITE).cost(40)).unwrap().is_allowed());
    assert!(!limiter.check(AGENT, READ).unwrap().is_allowed());
    let outside = lanes().outside_total(["read"]).plan("free", [("total", "40/min")]).build().unwrap();
    limiter.replace_policy(outside).unwrap();
    assert!(limiter.check(AGENT, READ).unwrap().is_allowed());
    assert!(!limiter.check(AGENT, WRITE).unwrap().is_allowed());
    // The lane stays: without a total it is unlimited.
    let error = limiter.replace_policy(lanes().plan("free", [("read", "1/min")]).build().unwrap()).unwrap_err();
    assert!(error.to_string().ends_with("sockets, total"), "{error}");
    limiter.replace_policy(lanes().total("unlimited").plan("free", [("read", "10/min")]).build().unwrap()).unwrap();
    assert!(limiter.check_request(Request::new(AGENT, WRITE).cost(60)).unwrap().is_allowed());
}

#[test]
fn a_blocked_agent_gets_the_longest_wait() {
    let rules = tollgate::ConductRules::default().with_curve([Duration::from_secs(1)]);
    let rules = rules.with_every_denial(true).with_enforced_wait(true);
    let (limiter, _) = of_policy(lanes().total("20/hour").conduct(rules).build().unwrap());
    assert!(limiter.check_request(Request::new(AGENT, READ).cost(20).counted()).unwrap().is_allowed());
    let denied = limiter.check_request(Request::new(AGENT, WRITE).counted()).unwrap();
    assert_eq!(denied.violations_in_a_row(), 1);
    let blocked = limiter.check_request(Request::new(AGENT, SEARCH).counted()).unwrap();
    assert_eq!(blocked.lane_wait(), Some(Duration::from_secs(180)));
    let all = limiter.check_all(&[part(READ, 1).counted()]).unwrap();
    assert_eq!(all.retry_after(), Some(Duration::from_secs(180)));
}

#[test]
fn a_total_comes_last_and_is_of_a_kind_that_can_be_shared() {
    let policy = Policy::builder().total("20/min").lane("read", "1/s").lane("write", "1/s").build().unwrap();
    assert_eq!(policy.lanes().map(|(_, name)| name).collect::<Vec<_>>(), ["read", "write", "total"]);
    assert_eq!((policy.total(), policy.is_in_total(LaneId::new(0))), (Some(LaneId::new(2)), true));
    assert_eq!(lanes().build().unwrap().total(), None);
    let refused = |policy: PolicyBuilder| policy.build().unwrap_err().to_string();
    for limit in ["held 3", "exact 3/min"] {
        let error = refused(lanes().plan("free", [("total", limit)]));
        assert!(
            error.starts_with(&format!("plan \"free\", lane \"total\": {limit:?}").replace("min", "minute")),
            "{error}"
        );
        assert!(refused(lanes().total(limit)).contains("a total is a bucket, a window or a budget"));
    }
    assert!(refused(lanes().lane("other", "unlimited")).contains("\"unlimited\" is for the total"));
    assert!(refused(lanes().total("1/s").total("1/s")).contains("named twice"));
    assert!(refused(lanes().outside_total(["reed"])).contains("there is no lane \"reed\""));
    assert!(refused(lanes().outside_total(["total"]).total("1/s")).contains("there is no lane \"total\""));
    assert!(refused(Policy::builder().total("1/s")).contains("a policy of 0 lanes"));
    let other = refused(lanes().total("20/min").plan("free", [("total", "window 20/min")]));
    assert!(other.contains("of another kind"), "{other}");
}
