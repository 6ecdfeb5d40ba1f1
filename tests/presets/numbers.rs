//! Every number and every action of the presets, as in their tables.

use super::hub_actions::{HTTP, WS};
use std::collections::BTreeMap;
use tollgate::{Classification, ConductRules, OnChange, Policy};

/// Lanes and their limits in a plan, as text.
fn row(policy: &Policy, plan: &str) -> BTreeMap<String, String> {
    let plan = policy.plan(plan).unwrap();
    let limit = |lane| policy.plan_limit(plan, lane).unwrap().to_string();
    policy.lanes().map(|(lane, name)| (name.to_owned(), limit(lane))).collect()
}

fn plans(policy: &Policy) -> Vec<&str> {
    policy.plans().map(|(_, name)| name).collect()
}

/// Checks a row: exactly these lanes.
#[track_caller]
fn assert_row(policy: &Policy, plan: &str, expected: &[(&str, &str)]) {
    let expected = expected.iter().map(|(lane, limit)| ((*lane).to_owned(), (*limit).to_owned())).collect();
    assert_eq!(row(policy, plan), expected, "{plan}");
}

/// Checks the actions of a channel: exactly these.
#[track_caller]
fn assert_actions(policy: &Policy, channel: &str, expected: &[(&str, &[&str])]) {
    for (tier, actions) in expected {
        let lane = policy.lane(&format!("{channel}/{tier}")).unwrap();
        for action in *actions {
            assert_eq!(policy.lane_for(channel, action), Some(Classification::Known(lane)), "{action}");
        }
    }
    let count = policy.actions().filter(|(known, ..)| *known == channel).count();
    assert_eq!(count, expected.iter().map(|(_, actions)| actions.len()).sum::<usize>(), "{channel}");
}

#[test]
fn every_preset_builds_and_an_unknown_one_is_refused() {
    assert!(Policy::PRESETS.is_sorted());
    for name in Policy::PRESETS {
        assert!(Policy::preset(name).is_ok(), "{name}");
    }
    let error = |name: &str| Policy::preset(name).unwrap_err().to_string();
    assert_eq!(
        error("standart"),
        "there is no preset \"standart\"; did you mean \"standard\"? There are adr, citizen, hub, platform and standard"
    );
    assert_eq!(error(""), "there is no preset \"\"; there are adr, citizen, hub, platform and standard");
    assert_eq!(Policy::preset(&"x".repeat(1_000)).unwrap_err().name().len(), 80);
}

#[test]
fn only_hub_has_a_curve_counts_every_denial_and_resets() {
    for name in Policy::PRESETS {
        let policy = Policy::preset(name).unwrap();
        let curve = [1, 2, 5, 10, 30].map(std::time::Duration::from_secs);
        let rules = ConductRules::default();
        let rules = if name == "hub" { rules.with_curve(curve).with_every_denial(true) } else { rules };
        assert_eq!(policy.conduct(), &rules, "{name}");
        let on_change = if name == "hub" { OnChange::Reset } else { OnChange::KeepDebt };
        assert_eq!(policy.on_change(), on_change, "{name}");
        assert_eq!(policy.warn_below_percent(), if name == "citizen" { 0 } else { 20 }, "{name}");
    }
}

#[test]
fn hub_has_the_numbers_of_the_hub() {
    let hub = Policy::preset("hub").unwrap();
    let default = [
        ("ws/light", "120/minute"),
        ("ws/normal", "60/minute"),
        ("ws/heavy", "10/minute"),
        ("http/light", "120/minute"),
        ("http/normal", "60/minute"),
        ("http/heavy", "10/minute"),
    ];
    assert_eq!(plans(&hub), ["default", "unauthenticated"]);
    assert_row(&hub, "default", &default);
    let unauthenticated = [
        default[0],
        default[1],
        default[2],
        ("http/light", "60/minute"),
        ("http/normal", "60/minute"),
        ("http/heavy", "5/minute"),
    ];
    assert_row(&hub, "unauthenticated", &unauthenticated);
    assert_eq!(hub.unknown_actions_tier(), Some("normal"));
}

#[test]
fn in_hub_and_standard_an_agent_is_one_cache_line() {
    // Eight words: a tag, a word of conduct, and six lanes.
    for name in ["hub", "standard"] {
        assert!(Policy::preset(name).unwrap().lanes().len() <= 6, "{name}");
    }
}

#[test]
fn hub_classifies_every_action_of_the_hub() {
    let hub = Policy::preset("hub").unwrap();
    assert_actions(&hub, "ws", &WS);
    assert_actions(&hub, "http", &HTTP);
    for channel in ["ws", "http"] {
        let normal = hub.lane(&format!("{channel}/normal")).unwrap();
        assert_eq!(hub.lane_for(channel, "unheard_of"), Some(Classification::Unknown(normal)));
    }
}

#[test]
fn platform_has_the_numbers_of_the_platform() {
    let platform = Policy::preset("platform").unwrap();
    let with = |requests: &'static str,
                executions: &'static str,
                tokens: &'static str,
                connections: &'static str,
                total: &'static str| {
        [
            ("http/default", requests),
            ("http/auth", "10/minute burst 20"),
            ("http/read", "100/minute burst 200"),
            ("http/write", "50/minute burst 100"),
            ("http/executions", executions),
            ("http/webhooks", "1000/minute burst 2000"),
            ("http/admin", "20/minute burst 40"),
            ("http/refresh", "30/minute"),
            ("http/list_agents", "100/minute"),
            ("http/create_agent", "10/minute"),
            ("http/login", "exact 5/minute"),
            ("http/register", "exact 3/minute"),
            ("http/forgot_password", "exact 3/5min"),
            ("llm/tokens", tokens),
            ("ws/connections", connections),
            ("total", total),
        ]
    };
    assert_eq!(plans(&platform), ["default", "free", "starter", "pro", "team", "enterprise"]);
    assert_row(
        &platform,
        "default",
        &with("100/minute burst 200", "20/minute burst 40", "budget 10000/day", "held 1", "unlimited"),
    );
    assert_row(&platform, "free", &with("20/minute", "5/minute burst 10", "budget 10000/day", "held 1", "20/minute"));
    assert_row(
        &platform,
        "starter",
        &with("100/minute", "20/minute burst 40", "budget 100000/day", "held 3", "100/minute"),
    );
    assert_row(
        &platform,
        "pro",
        &with("500/minute", "100/minute burst 200", "budget 1000000/day", "held 10", "500/minute"),
    );
    assert_row(
        &platform,
        "team",
        &with("2000/minute", "500/minute burst 1000", "budget 5000000/day", "held 50", "2000/minute"),
    );
    assert_row(
        &platform,
        "enterprise",
        &with("2000/minute", "500/minute burst 1000", "budget 5000000/day", "held 50", "2000/minute"),
    );
    let outside = platform.outside_total().map(|lane| platform.lanes().nth(lane.number() as usize).unwrap().1);
    assert_eq!(outside.collect::<Vec<_>>(), ["http/webhooks", "llm/tokens"]);
    assert_actions(
        &platform,
        "http",
        &[
            ("login", &["post_auth_login"]),
            ("register", &["post_auth_register"]),
            ("forgot_password", &["post_auth_forgot_password"]),
            ("refresh", &["post_auth_refresh"]),
            ("list_agents", &["get_agents"]),
            ("create_agent", &["post_agents"]),
            ("executions", &["post_agents_run", "post_agents_run_stream"]),
        ],
    );
    let default = platform.lane("http/default").unwrap();
    assert_eq!(platform.lane_for("http", "get_weather"), Some(Classification::Unknown(default)));
}

#[test]
fn adr_has_a_plan_per_class_of_credential() {
    let adr = Policy::preset("adr").unwrap();
    assert_eq!(plans(&adr), ["default", "jwt", "api_key", "unauthenticated"]);
    for (plan, requests) in [
        ("default", "2/second burst 10"),
        ("jwt", "20/second burst 100"),
        ("api_key", "10/second burst 50"),
        ("unauthenticated", "2/second burst 10"),
    ] {
        assert_row(&adr, plan, &[("http/requests", requests), ("http/auth", "5/minute")]);
    }
    assert_eq!(adr.unknown_actions_tier(), None);
}

#[test]
fn citizen_has_the_numbers_that_clients_rely_on() {
    let citizen = Policy::preset("citizen").unwrap();
    assert_eq!(plans(&citizen), ["default"]);
    assert_row(
        &citizen,
        "default",
        &[
            ("http/read", "100/minute burst 150"),
            ("http/write", "exact 20/minute"),
            ("http/auth", "exact 5/5min"),
            ("ws/message", "10/second burst 20"),
        ],
    );
}

#[test]
fn standard_has_the_numbers_of_its_table() {
    let standard = Policy::preset("standard").unwrap();
    assert_eq!(plans(&standard), ["default", "unauthenticated", "trusted"]);
    let lanes = ["http/read", "http/write", "http/heavy", "http/auth", "ws/message"];
    for (plan, limits) in [
        (
            "default",
            ["10/second burst 100", "2/second burst 20", "10/minute burst 5", "5/minute", "10/second burst 20"],
        ),
        ("unauthenticated", ["2/second burst 40", "10/minute burst 5", "2/minute", "5/minute", "1/second burst 5"]),
        (
            "trusted",
            ["100/second burst 1000", "20/second burst 200", "100/minute burst 50", "5/minute", "100/second burst 200"],
        ),
    ] {
        let expected: Vec<_> = lanes.into_iter().zip(limits).collect();
        assert_row(&standard, plan, &expected);
    }
    assert_actions(
        &standard,
        "http",
        &[("read", &["GET", "HEAD", "OPTIONS"]), ("write", &["POST", "PUT", "PATCH", "DELETE"])],
    );
    assert_eq!(standard.unknown_actions_tier(), Some("write"));
    assert_eq!(standard.lane_for("ws", "say"), None);
}

/// The file is what people read: it names every lane, plan and action there is.
/// `tests/config` compares the two exactly, but needs a parser.
#[test]
fn a_presets_file_names_everything() {
    for name in Policy::PRESETS {
        let policy = Policy::preset(name).unwrap();
        let path = format!("{}/presets/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::read_to_string(path).unwrap();
        let lanes = policy.lanes().map(|(_, name)| name);
        let plans = policy.plans().map(|(_, name)| name).filter(|name| *name != "default");
        for word in lanes.chain(plans).chain(policy.actions().map(|(_, action, _)| action)) {
            assert!(file.contains(word), "{name}: {word}");
        }
    }
}
