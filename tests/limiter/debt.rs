//! What becomes of debt when limits change or the policy is replaced.

use super::plans::{HTTP, PING, WS, capacities, plan, plans};
use super::*;
use tollgate::{ConductRules, Decision, OnChange, Request};

fn limiter(on_change: OnChange) -> (Limiter, ManualClock) {
    build(plans().on_change(on_change).build().expect("valid"), 100, OnFull::Deny)
}

/// How long the lane `ws/heavy` takes until it is full.
fn full_in(limiter: &Limiter, agent: &str) -> Duration {
    limiter.peek(Request::new(agent, WS)).expect("valid").full_in()
}

/// One way to give an agent the limit with this text for the lane `ws/heavy`.
type Change = fn(&Limiter, &str, &str);

/// By an override, by a plan, by the plan `default`.
const CHANGES: [Change; 3] = [
    |limiter, agent, limit| limiter.set_override(agent, "ws/heavy", limit).expect("valid"),
    |limiter, agent, limit| {
        let policy = plans().on_change(limiter.policy().on_change()).plan("other", [("ws/heavy", limit)]);
        limiter.replace_policy(policy.build().expect("valid")).expect("the same lanes");
        limiter.assign(agent, plan(limiter, "other")).expect("valid");
    },
    |limiter, _, limit| {
        let policy = Policy::builder().lane("ws/heavy", limit).lane("http/heavy", "20/min").lane("ws/light", "120/min");
        let policy =
            ["free", "pro", "other"].into_iter().fold(policy, |policy, plan| policy.plan(plan, [("ws/heavy", limit)]));
        let policy = policy.on_change(limiter.policy().on_change()).build().expect("valid");
        limiter.replace_policy(policy).expect("the same lanes");
    },
];

#[test]
fn debt_is_kept_as_time_through_every_kind_of_change() {
    for change in CHANGES {
        let (limiter, clock) = limiter(OnChange::KeepDebt);
        assert_eq!(spend(&limiter, "agent-7", WS, 6).remaining(), 4);
        assert_eq!(spend(&limiter, "agent-7", PING, 60).remaining(), 60);
        let after = |limit: &str| {
            change(&limiter, "agent-7", limit);
            (remaining(&limiter, "agent-7", WS), full_in(&limiter, "agent-7").as_secs())
        };
        assert_eq!(after("100/min"), (40, 36));
        assert_eq!(after("5/min"), (2, 36));
        assert_eq!(after("10/min"), (4, 36));
        assert_eq!(after("10/min burst 100"), (94, 36));
        assert_eq!(after("10/hour"), (9, 36));
        assert_eq!(after("deny").0, 0);
        assert_eq!(check(&limiter, "agent-7", WS).retry_after(), None);
        assert_eq!(after("10/min"), (4, 36));
        // Time passes under every limit.
        assert_eq!(after("deny").0, 0);
        clock.advance(SECOND * 12);
        assert_eq!(after("10/min"), (6, 24));
        limiter.exempt("agent-7").unwrap();
        clock.advance(SECOND * 6);
        limiter.unexempt("agent-7").unwrap();
        assert_eq!((remaining(&limiter, "agent-7", WS), full_in(&limiter, "agent-7")), (7, SECOND * 18));
        assert_eq!(remaining(&limiter, "agent-7", PING), 96);
    }
}

#[test]
fn debt_is_no_longer_than_a_refill_of_the_new_limit() {
    for change in CHANGES {
        let (limiter, _) = limiter(OnChange::KeepDebt);
        assert_eq!(spend(&limiter, "agent-7", WS, 10).remaining(), 0);
        change(&limiter, "agent-7", "10/s");
        assert_eq!((remaining(&limiter, "agent-7", WS), full_in(&limiter, "agent-7")), (0, SECOND));
        assert_eq!(check(&limiter, "agent-7", WS).retry_after(), Some(SECOND / 10));
        // The one way to gain something, as documented.
        change(&limiter, "agent-7", "10/min");
        assert_eq!((remaining(&limiter, "agent-7", WS), full_in(&limiter, "agent-7")), (9, SECOND));
    }
}

#[test]
fn a_change_fills_every_lane_if_the_policy_asks_for_it() {
    for change in CHANGES {
        let (limiter, _) = limiter(OnChange::Reset);
        for limit in ["100/min", "5/min", "10/s", "10/min"] {
            let spent = check(&limiter, "agent-7", WS);
            assert!(spent.is_allowed());
            touch(&limiter, "agent-7", PING);
            change(&limiter, "agent-7", limit);
            for lane in [WS, HTTP, PING] {
                let status = limiter.peek(Request::new("agent-7", lane)).unwrap();
                assert_eq!((status.remaining(), status.full_in()), (status.capacity(), Duration::ZERO), "{limit}");
            }
        }
        touch(&limiter, "agent-7", PING);
        change(&limiter, "agent-7", "deny");
        assert_eq!(remaining(&limiter, "agent-7", PING), 120);
        change(&limiter, "agent-7", "10/min");
        assert_eq!(admitted(&limiter, "agent-7", WS), 10);
    }
}

#[test]
fn a_control_call_that_changes_nothing_fills_nothing() {
    let (limiter, _) = limiter(OnChange::Reset);
    let pro = plan(&limiter, "pro");
    limiter.assign("agent-7", pro).unwrap();
    limiter.set_override("agent-7", "ws/heavy", "50/min").unwrap();
    assert_eq!(spend(&limiter, "agent-7", WS, 50).remaining(), 0);
    limiter.assign("agent-7", pro).unwrap();
    limiter.set_override("agent-7", "ws/heavy", "50/min").unwrap();
    limiter.remove_override("agent-7", "ws/light").unwrap();
    limiter.unexempt("agent-7").unwrap();
    assert_eq!(remaining(&limiter, "agent-7", WS), 0);
}

#[test]
fn changing_back_and_forth_gains_nothing() {
    for change in CHANGES {
        let (limiter, _) = limiter(OnChange::KeepDebt);
        // All of these refill a whole bucket in a minute, which is spent once.
        let limits = [(10, "10/min"), (60, "60/min"), (5, "5/min"), (0, "deny"), (12, "12/min")];
        let mut spent = Duration::ZERO;
        for round in 0..100 {
            let (rate, limit) = limits[round % limits.len()];
            change(&limiter, "agent-7", limit);
            limiter.exempt("agent-7").unwrap();
            assert_eq!(check(&limiter, "agent-7", WS).decision(), Decision::Exempt);
            limiter.unexempt("agent-7").unwrap();
            if rate > 0 && check(&limiter, "agent-7", WS).is_allowed() {
                spent += MINUTE / rate;
            }
            let (owed, changes) = (full_in(&limiter, "agent-7"), 3 * (round as u32 + 1));
            // One more nanosecond each time a lane's generations wrap around.
            assert!((spent..=spent + NANOSECOND * (changes / 16 + 1)).contains(&owed), "{spent:?}, {owed:?}");
        }
        assert!(spent > MINUTE - SECOND * 5 && spent <= MINUTE, "{spent:?}");
        assert!(!check(&limiter, "agent-7", WS).is_allowed());
    }
}

/// The same lanes and plans with ten times the numbers, plans in another
/// order, and one more.
fn tenfold() -> Policy {
    Policy::builder()
        .lane("ws/heavy", "100/min")
        .lane("http/heavy", "200/min")
        .lane("ws/light", "1200/min")
        .plan("gold", [("ws/heavy", "5000/min")])
        .plan("pro", [("ws/heavy", "1000/min"), ("http/heavy", "2000/min")])
        .plan("free", [("ws/heavy", "50/min")])
        .warn_below_percent(100)
        .build()
        .expect("valid")
}

#[test]
fn a_new_policy_is_in_force_at_once_and_no_debt_is_lost() {
    let (limiter, _) = limiter(OnChange::KeepDebt);
    let [free, pro] = ["free", "pro"].map(|name| plan(&limiter, name));
    limiter.assign("free", free).unwrap();
    limiter.assign("pro", pro).unwrap();
    limiter.assign("own", pro).unwrap();
    limiter.set_override("own", "ws/heavy", "7/min").unwrap();
    limiter.exempt("exempt").unwrap();
    limiter.set_override("exempt", "ws/heavy", "7/min").unwrap();
    let agents = ["anybody", "free", "pro", "own", "exempt"];
    let all = || agents.map(|agent| capacities(&limiter, agent)[..2].to_vec());
    let old = [[10, 20], [5, 20], [100, 200], [7, 200], [u64::MAX; 2]];
    let new = [[100, 200], [50, 200], [1_000, 2_000], [7, 2_000], [u64::MAX; 2]];
    assert_eq!(all(), old);
    let owed = || agents.map(|agent| limiter.peek(Request::new(agent, HTTP)).unwrap().full_in());
    assert_eq!(owed(), [3_000, 3_000, 300, 300, 0].map(Duration::from_millis));
    for round in 0..5 {
        let before = owed();
        limiter.replace_policy(tenfold()).unwrap();
        assert_eq!(owed(), before, "round {round}");
        assert_eq!(all(), new, "round {round}");
        assert_eq!(check(&limiter, "own", WS).decision(), Decision::Warn);
        assert_eq!(capacities(&limiter, &format!("stranger-{round}")), [100, 200, 1_200]);
        // Plans keep their numbers, whatever their order, and new ones follow.
        assert_eq!([plan(&limiter, "free"), plan(&limiter, "pro")], [free, pro]);
        let gold = plan(&limiter, "gold");
        assert_eq!(gold.number(), 3);
        assert_eq!(limiter.check_request(Request::new("anybody", WS).plan(gold)).unwrap().capacity(), 5_000);
        assert_eq!(limiter.check_request(Request::new("pro", WS).plan(free)).unwrap().capacity(), 1_000);
        assert_eq!(limiter.limit_of("own", HTTP), Ok(Some(Limit::per_minute(2_000))));

        let back = plans().plan("gold", [("ws/heavy", "5000/min")]).build().expect("valid");
        limiter.replace_policy(back).unwrap();
        assert_eq!(all(), old, "round {round}");
        limiter.reset("own").unwrap();
        assert_eq!(check(&limiter, "own", WS).decision(), Decision::Allow);
        agents.iter().for_each(|agent| limiter.reset(agent).expect("valid"));
    }
    limiter.unexempt("exempt").unwrap();
    assert_eq!(capacities(&limiter, "exempt"), [7, 20, 120]);
}

#[test]
fn a_policy_with_other_lanes_or_without_a_plan_is_refused_and_nothing_changes() {
    let (limiter, _) = limiter(OnChange::KeepDebt);
    limiter.assign("agent-7", plan(&limiter, "pro")).unwrap();
    touch(&limiter, "agent-7", WS);
    let before = limiter.policy();
    let refused = |policy: tollgate::PolicyBuilder, expected: &str| {
        let error = limiter.replace_policy(policy.build().expect("valid")).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert_eq!(limiter.policy(), before);
        assert_eq!(capacities(&limiter, "agent-7"), [100, 200, 120]);
        assert_eq!(capacities(&limiter, "anybody"), [10, 20, 120]);
        assert!(limiter.check_request(Request::new("anybody", WS).plan(tollgate::PlanId::new(3))).is_err());
    };
    let lanes = |names: &[&str]| names.iter().fold(Policy::builder(), |policy, name| policy.lane(*name, "1/s"));
    let other = "the new policy has other lanes; give it these, in this order: ws/heavy, http/heavy, ws/light";
    refused(lanes(&["ws/heavy", "http/heavy"]), other);
    refused(lanes(&["http/heavy", "ws/heavy", "ws/light"]), other);
    refused(lanes(&["ws/heavy", "http/heavy", "ws/light", "more"]), other);
    let same = lanes(&["ws/heavy", "http/heavy", "ws/light"])
        .plan("a", [("ws/heavy", "1/s")])
        .plan("b", [("ws/heavy", "1/s")]);
    refused(same.plan("pro", [("ws/heavy", "1/s")]), "the new policy lacks the plan \"free\"; keep it,");
}

#[test]
fn new_rules_of_conduct_are_in_force_at_once() {
    let (limiter, clock) = limiter(OnChange::KeepDebt);
    clock.advance(SECOND);
    assert_eq!(limiter.record_violation("agent-7").unwrap().step(), Duration::ZERO);
    let rules = ConductRules::default().with_curve([SECOND * 3, SECOND * 4]).with_quiet_period(SECOND * 5);
    limiter.replace_policy(plans().conduct(rules).build().expect("valid")).unwrap();
    assert_eq!(limiter.violations("agent-7").unwrap().wait(), SECOND * 3);
    assert_eq!(limiter.record_violation("agent-7").unwrap().step(), SECOND * 4);
    clock.advance(SECOND * 5);
    assert_eq!(limiter.rate_limited("agent-7"), Ok(false));
}
