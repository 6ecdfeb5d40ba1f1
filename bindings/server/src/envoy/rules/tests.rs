use super::*;
use crate::envoy::upstream;
use proptest::prelude::*;

fn policy() -> Policy {
    Policy::builder().lane("api", "10/s").lane("envoy", Limit::dynamic()).build().unwrap()
}

fn rules(yaml: &str) -> Rules {
    Rules::new(&upstream::read(yaml).unwrap().rules, &policy(), "envoy", &AllCounters::new()).unwrap().0
}

/// The label of the rule that a descriptor of the domain `d` finds, and its agent.
fn found(rules: &Rules, pairs: &[(&str, &str)]) -> Option<(String, String)> {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    let (rule, agent) = rules.find("d", &pairs.iter().map(entry).collect::<Vec<_>>())?;
    Some((rule.label.clone(), String::from_utf8(agent).unwrap()))
}

fn label(rules: &Rules, pairs: &[(&str, &str)]) -> Option<String> {
    found(rules, pairs).map(|(label, _)| label)
}

const TREE: &str = "
domain: d
descriptors:
  - key: path
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: path
    value: /a*
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: path
    value: /a/b*
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    value: /a/x
    descriptors:
      - key: user
        value: root
      - key: user
        rate_limit: {unit: minute, requests_per_unit: 4}
  - key: tenant
    value: t*prod
    share_threshold: true
    descriptors:
      - key: user
        rate_limit: {unit: minute, requests_per_unit: 5}
";

#[test]
fn the_value_comes_before_wildcards_and_they_before_any_value() {
    let rules = rules(TREE);
    assert_eq!(label(&rules, &[("path", "/z")]).as_deref(), Some("path"));
    assert_eq!(label(&rules, &[("path", "/a/b")]).as_deref(), Some("path_/a*"), "the first in the file");
    assert_eq!(label(&rules, &[("path", "/a/x"), ("user", "me")]).as_deref(), Some("path_/a/x.user"));
    // It has no limit, which exempts it.
    assert_eq!(label(&rules, &[("path", "/a/x"), ("user", "root")]).as_deref(), Some("path_/a/x.user_root"));
}

#[test]
fn a_descriptor_has_the_length_of_its_rule_and_there_is_no_way_back() {
    let rules = rules(TREE);
    // The value itself matches, so the wildcard and the rule for any value are not tried.
    assert_eq!(label(&rules, &[("path", "/a/x")]), None);
    assert_eq!(label(&rules, &[("path", "/z"), ("user", "me")]), None);
    assert_eq!(label(&rules, &[("user", "me")]), None);
    assert_eq!(label(&rules, &[]), None);
    assert!(rules.find("other", &[]).is_none());
}

#[test]
fn each_descriptor_is_an_agent_unless_its_wildcard_is_shared() {
    let rules = rules(TREE);
    let agent = |pairs: &[(&str, &str)]| found(&rules, pairs).unwrap().1;
    assert_eq!(agent(&[("path", "/a1")]), "envoy:1:d4:path3:/a1");
    assert_ne!(agent(&[("path", "/a1")]), agent(&[("path", "/a2")]));
    let of = |tenant| agent(&[("tenant", tenant), ("user", "me")]);
    assert_eq!(of("t1prod"), "envoy:1:d6:tenant6:t*prod4:user2:me");
    assert_eq!(of("t1prod"), of("t2prod"));
}

#[test]
fn the_agent_may_be_a_value() {
    let mut written = upstream::read(TREE).unwrap().rules;
    written[0].agent = Some(vec!["path".to_owned()]);
    let rules = Rules::new(&written, &policy(), "envoy", &AllCounters::new()).unwrap().0;
    assert_eq!(found(&rules, &[("path", "/z")]).unwrap().1, "/z");
}

#[test]
fn counters_go_on_when_rules_are_read_again() {
    let written = upstream::read(TREE).unwrap().rules;
    let (first, counters) = Rules::new(&written, &policy(), "envoy", &AllCounters::new()).unwrap();
    let entry = [Entry { key: "path".to_owned(), value: "/z".to_owned() }];
    first.find("d", &entry).unwrap().0.counters.asked(7);
    let (second, _) = Rules::new(&written, &policy(), "envoy", &counters).unwrap();
    assert_eq!(second.find("d", &entry).unwrap().0.counters.values()[0], 7);
}

#[test]
fn rules_that_cannot_be_are_refused() {
    let fault = |change: fn(&mut Vec<WrittenRule>), lane: &str| {
        let mut written = upstream::read(TREE).unwrap().rules;
        change(&mut written);
        let (index, _, problem) = Rules::new(&written, &policy(), lane, &AllCounters::new()).unwrap_err();
        format!("{index}: {problem}")
    };
    assert!(fault(|_| {}, "api").starts_with("0: a limit of its own needs a dynamic lane; add \"api\" = \"dynamic\""));
    assert_eq!(fault(|rules| rules.push(rules[2].clone()), "envoy"), "6: there are two rules for path_/a/b*");
    assert_eq!(
        fault(|rules| rules[1].limit = WrittenLimit::Lane("app".to_owned(), 3..4), "envoy"),
        "1: there is no lane \"app\"; the lanes are api, envoy"
    );
    assert!(
        fault(|rules| rules[1].limit = WrittenLimit::Lane("envoy".to_owned(), 3..4), "envoy")
            .contains("\"envoy\" is a dynamic lane; write the limit instead")
    );
    assert!(fault(|rules| rules[1].limit = WrittenLimit::Text("5/s x".to_owned(), 3..4), "envoy").starts_with("1: "));
    assert!(fault(|rules| rules[1].limit = WrittenLimit::Text("held 3".to_owned(), 3..4), "envoy").starts_with("1: "));
    let held = Policy::builder().lane("ws", Limit::held(3)).lane("envoy", Limit::dynamic()).build().unwrap();
    let mut written = upstream::read(TREE).unwrap().rules;
    written[0].limit = WrittenLimit::Lane("ws".to_owned(), 0..0);
    let problem = Rules::new(&written, &held, "envoy", &AllCounters::new()).unwrap_err().2;
    assert!(problem.contains("\"ws\" is a held lane"), "{problem}");
}

#[test]
fn wildcards_match_as_they_are_written() {
    for (wildcard, value, expected) in [
        ("foo*", "foo", true),
        ("foo*", "foobar", true),
        ("foo*", "fo", false),
        ("*", "", true),
        ("bar*b", "barb", true),
        ("bar*b", "bar", false),
        ("a*a", "a", false),
        ("a*a", "aa", true),
        ("foo*bar*baz", "foo1bar2baz", true),
        ("foo*bar*baz", "foobaz", false),
        ("foo*bar*baz", "foobazbar", false),
        ("a**b", "ab", true),
        ("*x*", "axb", true),
        ("*x*", "ab", false),
    ] {
        assert_eq!(matches(wildcard, value), expected, "{wildcard} {value}");
    }
}

/// Every way to cut the value is tried.
fn naive(wildcard: &[u8], value: &[u8]) -> bool {
    match (wildcard.split_first(), value.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => naive(rest, value),
        (Some((b'*', rest)), Some((_, after))) => naive(rest, value) || naive(wildcard, after),
        (Some((one, rest)), Some((other, after))) => one == other && naive(rest, after),
        _ => false,
    }
}

proptest! {
    #[test]
    fn wildcards_match_as_a_naive_matcher_does(wildcard in "[ab*]{0,7}", value in "[ab]{0,8}") {
        prop_assert_eq!(matches(&wildcard, &value), naive(wildcard.as_bytes(), value.as_bytes()));
    }
}
