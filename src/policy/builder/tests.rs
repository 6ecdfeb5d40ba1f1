//! What a policy takes and what it refuses.

use super::*;
use crate::policy::{LaneId, PlanId};

fn error_of(builder: PolicyBuilder) -> String {
    builder.build().expect_err("must be refused").to_string()
}

#[test]
fn a_policy_has_between_one_and_sixty_two_lanes() {
    let many =
        |count: usize| (0..count).fold(Policy::builder(), |b, i| b.lane(format!("lane/{i}"), Limit::per_second(1)));
    assert_eq!(error_of(many(0)), "a policy of 0 lanes; allowed: 1 to 62");
    assert!(many(62).build().is_ok());
    assert_eq!(error_of(many(63)), "a policy of 63 lanes; allowed: 1 to 62");
}

#[test]
fn errors_name_the_lane_the_value_and_the_range() {
    let lane = |name: &str, limit: Limit| Policy::builder().lane(name, limit);
    assert_eq!(
        error_of(lane("http/read", Limit::per_second(2_000_000_000))),
        "lane \"http/read\": 2000000000 tokens per 1s; at most 1000000000 per second are allowed"
    );
    assert_eq!(
        error_of(lane("http/read", Limit::per_second(1).burst(1 << 50))),
        "lane \"http/read\": capacity 1125899906842624; allowed: 1 to 1000000000000"
    );
    assert_eq!(
        error_of(lane("a", Limit::per_second(1)).lane("a", Limit::per_second(2))),
        "lane \"a\" is named twice; names must differ"
    );
    assert!(error_of(lane("", Limit::per_second(1))).starts_with("lane name \"\""));
    assert!(error_of(lane("a b", Limit::per_second(1))).starts_with("lane name \"a b\""));
    assert!(error_of(lane("a", Limit::per_second(1)).warn_below_percent(101)).contains("101 percent"));
    for percent in [19, 101] {
        let error = error_of(lane("a", Limit::per_second(1)).warn_again_percent(percent));
        assert!(error.ends_with(&format!("again after {percent} percent were left; allowed: 20 to 100")), "{error}");
    }
}

#[test]
fn a_plan_changes_some_limits_and_keeps_the_others() {
    let policy = Policy::builder()
        .lane("ws/heavy", "10/min")
        .lane("http/heavy", "20/min")
        .plan("pro", [("http/heavy", "200/min")])
        .build()
        .unwrap();
    let pro = policy.plan("pro").unwrap();
    assert_eq!(policy.plans().collect::<Vec<_>>(), [(PlanId::DEFAULT, "default"), (pro, "pro")]);
    let limits = |plan| [0, 1].map(|lane| policy.plan_limit(plan, LaneId::new(lane)).unwrap().to_string());
    assert_eq!(limits(PlanId::DEFAULT), ["10/minute", "20/minute"]);
    assert_eq!(limits(pro), ["10/minute", "200/minute"]);
    assert_eq!(policy.plan_limit(PlanId::new(2), LaneId::new(0)), None);
}

#[test]
fn a_tier_stands_for_its_lane_in_every_channel() {
    let policy = ["ws/light", "ws/heavy", "http/heavy", "heavy/x"]
        .into_iter()
        .fold(Policy::builder(), |policy, lane| policy.lane(lane, "1/s"))
        .build()
        .unwrap();
    assert_eq!(policy.lanes_of("heavy"), [LaneId::new(1), LaneId::new(2)]);
    assert_eq!(policy.lanes_of("ws/heavy"), [LaneId::new(1)]);
    assert_eq!(policy.lanes_of("huge"), []);
}

#[test]
fn an_invalid_plan_is_refused() {
    let plan = |name: &str, limits: &[(&str, &str)]| {
        let limits: Vec<_> = limits.iter().map(|(lane, limit)| (*lane, *limit)).collect();
        Policy::builder().lane("a", "1/s").plan(name, limits)
    };
    for name in ["", "default", "exempt", "a b"] {
        assert!(error_of(plan(name, &[])).starts_with(&format!("plan name {name:?}")));
    }
    assert_eq!(error_of(plan("p", &[]).plan("p", [("a", "2/s")])), "plan \"p\" is named twice; names must differ");
    assert!(error_of(plan("p", &[("b", "1/s")])).starts_with("plan \"p\": there is no lane \"b\""));
    assert!(error_of(plan("p", &[("a", "1/s"), ("a", "2/s")])).contains("lane \"a\" is named twice"));
    assert!(error_of(plan("p", &[("a", "0/s")])).starts_with("plan \"p\", lane \"a\": a rate or burst of 0"));
    let many = (0..256).fold(plan("p", &[]), |policy, i| policy.plan(format!("p{i}"), [("a", "1/s")]));
    assert_eq!(error_of(many), "a policy of 258 plans; allowed: 1 to 256");
}

#[test]
fn invalid_rules_of_conduct_are_refused() {
    let second = std::time::Duration::from_secs(1);
    let error = |rules| error_of(Policy::builder().lane("a", "1/s").conduct(rules));
    let rules = ConductRules::default;
    assert_eq!(error(rules().with_curve([second; 16])), "conduct: a curve of 16 waits; allowed: up to 15");
    assert!(error(rules().with_curve([std::time::Duration::ZERO])).contains("a wait of 0ns"));
    assert!(error(rules().with_quiet_period(std::time::Duration::ZERO)).contains("a quiet period of 0ns"));
    assert!(error(rules().with_quiet_period(second * 90_000)).contains("90000s"));
    assert!(error(rules().with_abuse_threshold(0, second)).contains("abuse from 0 violations"));
    assert!(error(rules().with_abuse_threshold(64, second)).contains("allowed: 1 to 63"));
    assert!(error(rules().with_abuse_threshold(1, second * 5_000)).contains("up to 4095s"));
}
