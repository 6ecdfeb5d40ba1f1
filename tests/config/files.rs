//! Files that are accepted.

use std::time::Duration;
use tollgate::{Classification, ConductRules, LaneId, Limit, OnChange, PlanId, Policy};

fn limit(policy: &Policy, plan: PlanId, lane: &str) -> String {
    let lane = policy.lane(lane).expect("a lane of the policy");
    policy.plan_limit(plan, lane).expect("a plan of the policy").to_string()
}

#[test]
fn every_preset_round_trips() {
    for name in Policy::PRESETS {
        let policy = Policy::preset(name).unwrap();
        assert_eq!(Policy::from_toml(&policy.to_toml()), Ok(policy.clone()), "{name}");
        assert_eq!(Policy::from_toml(&format!("preset = {name:?}")), Ok(policy), "{name}");
    }
}

/// A preset is written twice: in Rust, since the default build has no parser, and
/// as the file that people read and copy.
#[test]
fn a_preset_is_its_file() {
    for name in Policy::PRESETS {
        let path = format!("{}/presets/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("preset ="), "{path} is a complete policy");
        let policy = Policy::from_toml(&text).unwrap_or_else(|error| unreachable!("{path}: {error}"));
        assert_eq!(Policy::preset(name), Ok(policy), "{path}");
    }
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/presets")).unwrap();
    assert_eq!(files.count(), Policy::PRESETS.len());
}

/// A total may stand in a plan alone, and comes back from the text as it went.
#[test]
fn a_total_may_appear_in_a_plan_or_among_the_lanes() {
    let text = r#"
        outside_total = ["llm"]
        [plans.free]
        total = "20/min"
        [plans.staff]
        read = "100/s"
        [lanes]
        read = "10/s"
        llm = "budget 10000/day"
    "#;
    let policy = Policy::from_toml(text).unwrap();
    let [free, staff] = ["free", "staff"].map(|plan| policy.plan(plan).unwrap());
    assert_eq!(policy.lanes().map(|(_, name)| name).collect::<Vec<_>>(), ["read", "llm", "total"]);
    let totals = [free, staff, PlanId::DEFAULT].map(|plan| limit(&policy, plan, "total"));
    assert_eq!(totals, ["20/minute", "unlimited", "unlimited"]);
    assert_eq!([0, 1, 2].map(|lane| policy.is_in_total(LaneId::new(lane))), [true, false, false]);
    assert_eq!(Policy::from_toml(&policy.to_toml()), Ok(policy.clone()));
    // A file adds a total to its preset, removes one, and counts fewer lanes towards it.
    let text = "preset = 'platform'\noutside_total = ['http/admin']\n[lanes]\ntotal = '30/min'\n[plans.team]\ntotal = 'unlimited'";
    let policy = Policy::from_toml(text).unwrap();
    let [free, team] = ["free", "team"].map(|plan| limit(&policy, policy.plan(plan).unwrap(), "total"));
    assert_eq!([free, team, limit(&policy, PlanId::DEFAULT, "total")], ["20/minute", "unlimited", "30/minute"]);
    let outside = policy.outside_total().map(|lane| policy.lanes().nth(lane.number() as usize).unwrap().1);
    assert_eq!(outside.collect::<Vec<_>>(), ["http/webhooks", "http/admin", "llm/tokens"]);
    assert_eq!(Policy::from_toml(&policy.to_toml()), Ok(policy));
}

#[test]
fn the_example_file_is_read() {
    let policy = Policy::from_toml(include_str!("../../examples/policy.toml")).unwrap();
    let hub = Policy::preset("hub").unwrap();
    let [pro, unauthenticated] = ["pro", "unauthenticated"].map(|plan| policy.plan(plan).unwrap());

    // Lanes and plans of the preset keep their numbers; new ones follow.
    let names = |policy: &Policy| policy.lanes().map(|(_, name)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&policy)[..6], names(&hub)[..]);
    assert_eq!(names(&policy)[6..], ["http/export", "http/completions", "total"]);
    assert_eq!((unauthenticated.number(), pro.number()), (1, 2));

    assert_eq!((policy.warn_below_percent(), policy.warn_again_percent()), (20, Some(40)));
    assert_eq!(limit(&policy, PlanId::DEFAULT, "ws/light"), "600/minute burst 120");
    assert_eq!(limit(&policy, PlanId::DEFAULT, "ws/heavy"), "10/minute");
    assert_eq!(limit(&policy, PlanId::DEFAULT, "http/export"), "5/hour burst 1");
    assert_eq!(limit(&policy, pro, "http/completions"), "1000/minute burst 500 oversize debt");
    assert_eq!(limit(&policy, pro, "ws/light"), "1200/minute");
    assert_eq!(limit(&policy, pro, "total"), "1500/minute");
    assert_eq!(limit(&policy, unauthenticated, "total"), "unlimited");
    assert_eq!(limit(&policy, pro, "http/heavy"), "100/minute");
    assert_eq!(limit(&policy, pro, "http/export"), "60/hour burst 5");
    assert_eq!(limit(&policy, pro, "http/light"), "120/minute");
    assert_eq!(limit(&policy, unauthenticated, "http/export"), "deny");
    assert_eq!(limit(&policy, unauthenticated, "http/heavy"), "5/minute");
    assert_eq!(limit(&policy, unauthenticated, "ws/light"), "600/minute burst 120");

    let known = |lane| Some(Classification::Known(policy.lane(lane).unwrap()));
    assert_eq!(policy.lane_for("http", "get_export"), known("http/export"));
    assert_eq!(policy.lane_for("http", "get_metrics"), known("http/heavy"), "moved");
    assert_eq!(hub.lane_for("http", "get_metrics"), known("http/light"));
    assert_eq!(policy.lane_for("http", "get_health"), known("http/light"), "stays");
    assert_eq!(policy.actions().count(), hub.actions().count() + 2);
    assert_eq!(policy.on_change(), OnChange::KeepDebt);
    assert_eq!(policy.conduct(), hub.conduct());
    assert_eq!(Policy::from_toml(&policy.to_toml()), Ok(policy));
}

/// Every policy file in the documentation.
#[test]
fn the_files_in_the_documentation_are_read() {
    let page = include_str!("../../docs/policy-file.md");
    let blocks = page.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap());
    let policies: Vec<_> = blocks.map(|block| Policy::from_toml(block).unwrap()).collect();
    let [policy, platform, complete] = &policies[..] else { panic!("{} policy files", policies.len()) };
    assert_eq!(*platform, Policy::preset("platform").unwrap());
    assert_eq!(*complete, Policy::preset("standard").unwrap());
    let pro = policy.plan("pro").unwrap();
    assert_eq!(limit(policy, pro, "ws/light"), "1200/minute");
    assert_eq!(limit(policy, PlanId::DEFAULT, "ws/light"), "600/minute burst 120");
    assert!(matches!(policy.lane_for("ws", "whoami"), Some(Classification::Known(_))));
    assert_eq!(policy.conduct().quiet_period(), Duration::from_secs(120));
}

#[test]
fn a_file_without_a_preset_defines_everything_itself() {
    let policy = Policy::from_toml(
        r#"
        warn_below_percent = 0x0a
        on_change = "reset"
        unknown_actions_to = "b"
        lanes = { "z/b" = "1/s", 'a' = "2 per 5 minutes", c.d = "3/s" }
        "#,
    );
    // A dotted key is a table in a table; a lane's name is one quoted key.
    assert!(policy.is_err());
    let policy = Policy::from_toml(
        r#"
        warn_below_percent = 0x0a
        on_change = "reset"
        unknown_actions_to = "b"
        [plans]
        empty = {}
        [conduct]
        abuse = { within = "1h" }
        every_denial = true
        enforce_wait = true
        [actions."z"]
        b = ["q\"uote", 'back\slash']
        [lanes]
        "z/b" = "1/s"
        'a' = "2 per 5 minutes"
        "#,
    )
    .unwrap();
    let by_hand = Policy::builder()
        .warn_below_percent(10)
        .on_change(OnChange::Reset)
        .unknown_actions_to("b")
        .lane("z/b", "1/s")
        .lane("a", Limit::new(2, Duration::from_secs(300)))
        .plan("empty", [("a", Limit::new(2, Duration::from_secs(300)))])
        .actions("z", "b", ["back\\slash", "q\"uote"])
        .conduct(
            ConductRules::default()
                .with_abuse_threshold(10, Duration::from_secs(3_600))
                .with_every_denial(true)
                .with_enforced_wait(true),
        )
        .build()
        .unwrap();
    assert_eq!(policy, by_hand);
    assert_eq!(policy.lane("z/b"), Some(LaneId::new(0)), "lanes are numbered in the order of the file");
    assert_eq!(Policy::from_toml(&policy.to_toml()), Ok(policy));
}

/// Lanes that a plan of the preset does not name follow the file's lanes.
#[test]
fn a_changed_lane_changes_the_plans_that_do_not_name_it() {
    let policy = Policy::from_toml("preset = 'adr'\n[lanes]\n'http/auth' = '7/min'\n'http/requests' = '1/s'").unwrap();
    let jwt = policy.plan("jwt").unwrap();
    assert_eq!(limit(&policy, jwt, "http/auth"), "7/minute");
    assert_eq!(limit(&policy, jwt, "http/requests"), "20/second burst 100");
}

#[test]
fn what_is_written_reads_well() {
    let policy = Policy::builder()
        .lane("ws/light", "120/min")
        .lane("ws/normal", "10/s burst 20")
        .plan("pro", [("ws/normal", "20/s")])
        .actions("ws", "light", ["status", "ping"])
        .build()
        .unwrap();
    let expected = r#"warn_below_percent = 20
on_change = "keep"
unknown_actions_to = "normal"

[lanes]
"ws/light" = "120/minute"
"ws/normal" = "10/second burst 20"

[plans.pro]
"ws/normal" = "20/second"

[actions.ws]
light = ["ping", "status"]

[conduct]
curve = []
quiet = "1min"
abuse = { violations = 10, within = "5min" }
every_denial = false
enforce_wait = false
"#;
    assert_eq!(policy.to_toml(), expected);
}
