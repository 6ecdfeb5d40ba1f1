use super::*;
use proptest::prelude::*;

fn error(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

const FULL: &str = include_str!("../../../../../docs/envoy/ratelimit.yaml");

#[test]
fn every_descriptor_that_decides_is_a_rule() {
    let file = read(FULL).unwrap();
    assert_eq!(file.domain, "edge");
    let labels: Vec<_> = file.rules.iter().map(|rule| super::super::written::label(&rule.steps)).collect();
    assert_eq!(
        labels,
        [
            "path_/login*.remote_address",
            "user",
            "plan_premium.user",
            "remote_address_10.0.0.*",
            "path_/status",
            "path_/search",
            "path_/old",
        ]
    );
    let rate = |requests_per_unit, unit| WrittenLimit::Rate(Rate { requests_per_unit, unit });
    let limits: Vec<_> = file.rules.iter().map(|rule| rule.limit.clone()).collect();
    assert_eq!(
        limits,
        [
            rate(5, Unit::Minute),
            rate(1_000, Unit::Hour),
            rate(10_000, Unit::Hour),
            WrittenLimit::None,
            WrittenLimit::Unlimited,
            rate(2, Unit::Second),
            WrittenLimit::Deny,
        ]
    );
    assert!(file.rules[0].steps[0].is_shared && !file.rules[0].steps[1].is_shared);
    assert_eq!(
        (file.rules[2].name.as_deref(), &file.rules[2].replaces[..]),
        (Some("premium"), &["user".to_owned()][..])
    );
    assert!(file.rules[5].is_shadow);
    assert_eq!(file.unused, [Unused { line: 44, key: "detailed_metric" }]);
}

#[test]
fn a_descriptor_may_limit_and_lead_on() {
    let file = read(
        "domain: d\ndescriptors:\n- key: a\n  rate_limit: {unit: DAY, requests_per_unit: 15}\n  descriptors:\n  \
         - key: b\n    rate_limit: {unit: day, requests_per_unit: 25, replaces: [{name: x}]}\n- key: c\n  \
         descriptors: []\n- key: e\n  quota_mode: true\n  rate_limit:\n    unit: week\n    requests_per_unit: 4_000_000\n",
    )
    .unwrap();
    let labels: Vec<_> = file.rules.iter().map(|rule| super::super::written::label(&rule.steps)).collect();
    assert_eq!(labels, ["a", "a.b", "c", "e"]);
    assert!(file.rules[3].is_quota);
}

/// What envoyproxy/ratelimit refuses is refused, with line and column.
#[test]
fn broken_files_are_refused_with_their_place() {
    let rule = |rest: &str| format!("domain: d\ndescriptors:\n  - key: a\n{rest}");
    for (text, problem) in [
        ("'''".to_owned(), "this is not YAML"),
        (String::new(), "line 1, column 1: the file is a single value; write a map with the keys domain, descriptors"),
        ("descriptors: []\n".to_owned(), "there is no domain"),
        ("domain:\n".to_owned(), "there is no domain"),
        ("0.25: d\n".to_owned(), "line 1, column 1: the file has no key \"0.25\"; allowed: domain, descriptors"),
        ("domain: d\ndomain: e\n".to_owned(), "line 2, column 1: domain is named twice"),
        ("domain: [d]\n".to_owned(), "line 1, column 9: domain is a list; write a text"),
        ("[a]: d\n".to_owned(), "a key is a list"),
        ("domain: d\ndescriptors: {a: b}\n".to_owned(), "descriptors is a map; write a list"),
        (
            "domain: d\ndescriptors:\n  - a\n".to_owned(),
            "line 3, column 5: a descriptor is a single value; write a map",
        ),
        ("domain: d\ndescriptors:\n  - value: a\n".to_owned(), "line 3, column 5: this descriptor has no key"),
        (
            rule("    ratelimit: 1\n"),
            "line 4, column 5: a descriptor has no key \"ratelimit\"; allowed: key, value, rate_limit",
        ),
        (rule("  - key: a\n"), "line 4, column 5: there are two descriptors with the key a and no value"),
        (rule("    value: b\n  - key: a\n    value: b\n"), "with the key a and the value b"),
        (
            rule("    rate_limit: {unit: foo, requests_per_unit: 5}\n"),
            "line 4, column 24: \"foo\" is no unit; the units are second, minute",
        ),
        (rule("    rate_limit: {requests_per_unit: 5}\n"), "this rate_limit has no unit"),
        (rule("    rate_limit: {unit: day, requestsperunit: 5}\n"), "a rate_limit has no key \"requestsperunit\""),
        (rule("    rate_limit: {unit: day, requests_per_unit: -1}\n"), "requests_per_unit is a whole number"),
        (rule("    rate_limit: {unit: day, requests_per_unit: 4294967296}\n"), "requests_per_unit is a whole number"),
        (rule("    rate_limit: {unit: second, requests_per_unit: 4294967295}\n"), "line 4, column 17: "),
        (rule("    rate_limit: {unlimited: true, unit: day}\n"), "this rate_limit is unlimited and has a unit"),
        (rule("    rate_limit: {unlimited: perhaps}\n"), "unlimited is not a truth value; write true or false"),
        (rule("    rate_limit: {unit: day, replaces: [{name: }]}\n"), "this entry of replaces has no name"),
        (rule("    rate_limit: {unit: day, name: s, replaces: [{name: s}]}\n"), "this rate_limit replaces itself"),
        (rule("    share_threshold: true\n"), "share_threshold is for a value with a wildcard"),
        (rule("    shadow_mode: \"true\"\n"), "shadow_mode is not a truth value"),
        ("domain: d\ndescriptors:\n  - key: a*\n".to_owned(), "a key has no wildcard"),
    ] {
        let error = error(&text);
        assert!(error.contains(problem) && error.starts_with("line "), "{text}: {error}");
    }
}

#[test]
fn descriptors_are_not_nested_for_ever() {
    let mut text = String::from("domain: d\n");
    for depth in 0..=STEPS_MAX {
        let indent = "  ".repeat(depth);
        text.push_str(&format!("{indent}descriptors:\n{indent}- key: k\n"));
    }
    assert!(error(&text).contains("nested too deeply"), "{}", error(&text));
}

proptest! {
    #[test]
    fn any_file_is_read_or_refused(lines in proptest::collection::vec(
        "( ){0,3}(- )?(domain|descriptors|key|value|rate_limit|unit|requests_per_unit|replaces|name)?:? ?(d|\\*|[0-9]{1,3}|\\[|\\{|day)?",
        0..12,
    )) {
        _ = read(&lines.join("\n"));
    }
}
