//! Requests of Envoy, decided with a clock that stands still.

use super::wire::{Code, Descriptor, Entry, LimitOverride, RateLimitRequest, RateLimitResponse, UInt64Value, Unit};
use super::*;
use crate::app::App;
use crate::settings::Settings;
use crate::source::Source;
use std::time::Duration;
use tollgate::{Limit, ManualClock};

struct Bench {
    app: App,
    clock: ManualClock,
}

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 5, name: user}
  - key: tenant
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: trial
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: premium
    rate_limit: {unit: minute, requests_per_unit: 50, replaces: [{name: user}]}
  - key: free
    rate_limit: {unlimited: true}
  - key: exempt
  - key: old
    rate_limit: {unit: day, requests_per_unit: 0}
  - key: one
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: two
    quota_mode: true
    rate_limit: {unit: minute, requests_per_unit: 2}
";

impl Bench {
    fn new() -> Self {
        Self::with(RULES, |_| {})
    }

    fn with(yaml: &str, change: impl FnOnce(&mut EnvoySettings)) -> Self {
        let policy = Policy::builder().lane("api", "2/s").lane("envoy", Limit::dynamic()).build().unwrap();
        let mut envoy = EnvoySettings { rules: upstream::read(yaml).unwrap().rules, ..EnvoySettings::default() };
        change(&mut envoy);
        let settings = Settings { envoy: Some(envoy), agents: 1_000, ..Settings::default() };
        let clock = ManualClock::new();
        let app = App::new(settings, Source::Policy(Box::new(policy)), Some(clock.clone().into())).unwrap();
        Self { app, clock }
    }

    fn ask(&self, request: &RateLimitRequest) -> RateLimitResponse {
        call::should_rate_limit(&self.app, self.app.envoy().unwrap(), request, None).unwrap()
    }

    /// Asks with one entry for each descriptor. Returns whether the request passes, and what is left of each.
    fn check(&self, pairs: &[(&str, &str)]) -> (bool, Vec<u32>) {
        let response = self.ask(&request(pairs));
        let left = response.statuses.iter().map(|status| status.limit_remaining).collect();
        (response.overall_code == i32::from(Code::Ok), left)
    }

    fn counts(&self, rule: &str) -> [u64; 5] {
        let counters = self.app.envoy().unwrap().counters();
        counters.into_iter().find(|(_, known, _)| known == rule).unwrap().2
    }
}

fn descriptor(pairs: &[(&str, &str)]) -> Descriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    Descriptor { entries: pairs.iter().map(entry).collect(), ..Descriptor::default() }
}

fn request(pairs: &[(&str, &str)]) -> RateLimitRequest {
    let descriptors = pairs.iter().map(|pair| descriptor(&[*pair])).collect();
    RateLimitRequest { domain: "d".to_owned(), descriptors, hits_addend: 0 }
}

fn header<'a>(response: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    response.response_headers_to_add.iter().find(|header| header.key == name).map(|header| &*header.value)
}

#[test]
fn a_limit_admits_as_many_as_it_says_and_then_one_at_a_time() {
    let bench = Bench::new();
    for left in (0..5).rev() {
        assert_eq!(bench.check(&[("user", "a")]), (true, vec![left]));
    }
    assert_eq!(bench.check(&[("user", "a")]), (false, vec![0]));
    assert_eq!(bench.check(&[("user", "b")]), (true, vec![4]), "another user has a limit of its own");
    bench.clock.advance(Duration::from_secs(12));
    assert_eq!(bench.check(&[("user", "a")]), (true, vec![0]));
    assert_eq!(bench.check(&[("user", "a")]), (false, vec![0]));
}

#[test]
fn a_refusal_has_our_headers_and_body_and_all_that_envoy_wants() {
    let bench = Bench::new();
    let allowed = bench.ask(&request(&[("user", "a")]));
    assert_eq!(header(&allowed, "ratelimit"), Some("\"user\";r=4;t=12"));
    assert_eq!(header(&allowed, "ratelimit-policy"), Some("\"user\";q=5;w=60"));
    assert_eq!((header(&allowed, "retry-after"), &allowed.raw_body[..]), (None, &b""[..]));
    (0..4).for_each(|_| _ = bench.ask(&request(&[("user", "a")])));
    let denied = bench.ask(&request(&[("user", "a")]));
    assert_eq!(header(&denied, "ratelimit"), Some("\"user\";r=0;t=12"));
    assert_eq!(header(&denied, "retry-after"), Some("12"));
    assert_eq!(header(&denied, "content-type"), Some("application/problem+json"));
    let body: serde_json::Value = serde_json::from_slice(&denied.raw_body).unwrap();
    assert_eq!((&body["status"], &body["retry_after_ms"]), (&429.into(), &12_000.into()));
    let status = &denied.statuses[0];
    let limit = status.current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit, &*limit.name), (5, Unit::Minute.into(), "user"));
    assert_eq!((status.code, status.duration_until_reset.unwrap().seconds), (Code::OverLimit.into(), 60));
}

/// envoyproxy/ratelimit charges the tenant for requests that the user's limit refuses.
#[test]
fn a_denied_request_charges_nothing() {
    let bench = Bench::new();
    let both = [("tenant", "t"), ("user", "a")];
    for left in 1..=5 {
        assert_eq!(bench.check(&both), (true, vec![100 - left, 5 - left]));
    }
    for _ in 0..10 {
        let response = bench.ask(&request(&both));
        let codes: Vec<_> = response.statuses.iter().map(|status| status.code).collect();
        assert_eq!(codes, [i32::from(Code::Ok), Code::OverLimit.into()]);
    }
    assert_eq!(bench.check(&[("tenant", "t")]), (true, vec![94]));
    assert_eq!(bench.counts("tenant"), [16, 6, 0, 0, 0]);
    assert_eq!(bench.counts("user"), [15, 5, 1, 10, 0]);
}

#[test]
fn hits_are_as_many_as_the_request_or_the_descriptor_says() {
    let bench = Bench::new();
    let mut ask = request(&[("user", "a"), ("tenant", "t")]);
    ask.hits_addend = 3;
    ask.descriptors[1].hits_addend = Some(UInt64Value { value: 40 });
    let left = |response: &RateLimitResponse| response.statuses.iter().map(|s| s.limit_remaining).collect::<Vec<_>>();
    assert_eq!(left(&bench.ask(&ask)), [2, 60]);
    // No hits: whether anything is left, and no charge.
    ask.descriptors[0].hits_addend = Some(UInt64Value { value: 0 });
    assert_eq!(left(&bench.ask(&ask)), [2, 20]);
    assert_eq!(bench.ask(&ask).overall_code, i32::from(Code::OverLimit), "40 of 20");
    assert_eq!(bench.check(&[("user", "a"), ("user", "a")]), (true, vec![1, 0]));
    ask.descriptors.truncate(1);
    assert_eq!(bench.ask(&ask).overall_code, i32::from(Code::OverLimit), "nothing is left");
    // More than the limit ever allows.
    ask.descriptors[0].hits_addend = Some(UInt64Value { value: 6 });
    let response = bench.ask(&ask);
    assert_eq!((response.overall_code, header(&response, "retry-after")), (Code::OverLimit.into(), None));
}

#[test]
fn negative_hits_give_back() {
    let bench = Bench::new();
    (0..5).for_each(|_| _ = bench.check(&[("user", "a")]));
    let mut ask = request(&[("user", "a")]);
    ask.descriptors[0].is_negative_hits = true;
    ask.hits_addend = 2;
    let response = bench.ask(&ask);
    assert_eq!((response.overall_code, response.statuses[0].limit_remaining), (Code::Ok.into(), 2));
    assert_eq!(bench.check(&[("user", "a")]), (true, vec![1]));
    // Where nothing passes, there is nothing to give back.
    let mut none = request(&[("old", "x")]);
    none.descriptors[0].is_negative_hits = true;
    assert_eq!(bench.ask(&none).overall_code, i32::from(Code::Ok));
    // With a part that is denied, nothing is given back.
    let mut both = request(&[("user", "a"), ("old", "x")]);
    both.descriptors[0].is_negative_hits = true;
    assert_eq!(bench.ask(&both).overall_code, i32::from(Code::OverLimit));
    assert_eq!(bench.check(&[("user", "a")]), (true, vec![0]));
}

#[test]
fn a_limit_may_travel_with_the_request() {
    let bench = Bench::new();
    let mut ask = request(&[("user", "a")]);
    let limit = |requests_per_unit, unit: Unit| Some(LimitOverride { requests_per_unit, unit: unit.into() });
    ask.descriptors[0].limit = limit(7, Unit::Hour);
    let response = bench.ask(&ask);
    let stated = response.statuses[0].current_limit.clone().unwrap();
    assert_eq!((stated.requests_per_unit, stated.unit), (7, Unit::Hour.into()));
    assert_eq!(response.statuses[0].limit_remaining, 6);
    assert_eq!(header(&response, "ratelimit-policy"), Some("\"request\";q=7;w=3600"));
    ask.descriptors[0].limit = limit(0, Unit::Hour);
    assert_eq!(bench.ask(&ask).overall_code, i32::from(Code::OverLimit));
    // A domain without rules has no limits.
    let elsewhere = RateLimitRequest { domain: "e".to_owned(), ..ask.clone() };
    assert_eq!(bench.ask(&elsewhere).overall_code, i32::from(Code::Ok));
    for unit in [0, 8, -1] {
        ask.descriptors[0].limit = Some(LimitOverride { requests_per_unit: 1, unit });
        let refused = call::should_rate_limit(&bench.app, bench.app.envoy().unwrap(), &ask, None).unwrap_err();
        assert_eq!(refused.message, "the limit of descriptor 0: its unit is unknown");
    }
    let without = Bench::with("domain: d\ndescriptors: []", |envoy| envoy.lane = "api".to_owned());
    assert_eq!(without.ask(&ask).overall_code, i32::from(Code::Ok));
    assert_eq!(without.app.envoy().unwrap().ignored_limits(), 1);
}

#[test]
fn shadow_mode_counts_and_never_denies() {
    let bench = Bench::new();
    assert_eq!(bench.check(&[("trial", "a")]), (true, vec![0]));
    for _ in 0..3 {
        let response = bench.ask(&request(&[("trial", "a"), ("user", "a")]));
        assert_eq!((response.overall_code, response.statuses[0].code), (Code::Ok.into(), Code::Ok.into()));
        assert_eq!(header(&response, "retry-after"), None);
    }
    assert_eq!(bench.counts("trial"), [4, 1, 1, 3, 3]);
    // The whole service.
    let bench = Bench::with(RULES, |envoy| envoy.shadow = true);
    (0..5).for_each(|_| _ = bench.check(&[("user", "a")]));
    let response = bench.ask(&request(&[("user", "a")]));
    assert_eq!((response.overall_code, response.statuses[0].code), (Code::Ok.into(), Code::OverLimit.into()));
    assert_eq!((header(&response, "retry-after"), &response.raw_body[..]), (None, &b""[..]));
    assert_eq!(bench.counts("user"), [6, 5, 1, 1, 1]);
}

#[test]
fn a_rule_may_replace_another() {
    let bench = Bench::new();
    for left in (0..50).rev() {
        let (passes, remaining) = bench.check(&[("user", "a"), ("premium", "a")]);
        assert_eq!((passes, remaining), (true, vec![0, left]));
    }
    assert!(!bench.check(&[("user", "a"), ("premium", "a")]).0);
    assert_eq!(bench.check(&[("user", "a")]), (true, vec![4]), "it was never charged");
}

#[test]
fn descriptors_without_a_limit_pass() {
    let bench = Bench::new();
    assert_eq!(bench.check(&[("free", "x"), ("exempt", "x"), ("unknown", "x")]), (true, vec![u32::MAX, 0, 0]));
    assert_eq!(bench.check(&[("old", "x")]), (false, vec![0]));
    let response = bench.ask(&request(&[("exempt", "x")]));
    assert!(response.statuses[0].current_limit.is_none() && response.response_headers_to_add.is_empty());
}

/// A request passes as long as one of its quotas has room; those without are not charged.
#[test]
fn quotas_deny_together() {
    let bench = Bench::new();
    let both = [("one", "a"), ("two", "a")];
    assert_eq!(bench.check(&both), (true, vec![0, 1]));
    assert_eq!(bench.check(&both), (true, vec![0, 0]));
    assert_eq!(bench.check(&both), (false, vec![0, 0]));
    // What a quota was charged is given back if another limit denies.
    bench.clock.advance(Duration::from_secs(60));
    assert!(!bench.check(&[("one", "a"), ("old", "x")]).0);
    assert_eq!(bench.check(&[("one", "a")]), (true, vec![0]));
}

#[test]
fn a_lane_of_the_policy_is_shared_with_other_callers() {
    let bench = Bench::with("domain: d\ndescriptors:\n- key: user\n", |envoy| {
        envoy.rules[0].limit = written::WrittenLimit::Lane("api".to_owned(), 0..0);
        envoy.rules[0].agent = Some(vec!["user".to_owned()]);
    });
    let api = bench.app.limiter().lane("api").unwrap();
    assert!(bench.app.limiter().check("agent-7", api).unwrap().is_allowed());
    assert_eq!(bench.check(&[("user", "agent-7")]), (true, vec![0]));
    let response = bench.ask(&request(&[("user", "agent-7")]));
    let limit = response.statuses[0].current_limit.clone().unwrap();
    // 2 a second, which is an empty lane's time to fill.
    assert_eq!((limit.requests_per_unit, limit.unit, &*limit.name), (2, Unit::Second.into(), "api"));
    assert_eq!(response.overall_code, i32::from(Code::OverLimit));
    bench.app.limiter().exempt("agent-7").unwrap();
    assert_eq!(bench.check(&[("user", "agent-7")]), (true, vec![u32::MAX]));
}

#[test]
fn a_request_that_is_none_is_refused() {
    let bench = Bench::new();
    let refused = |request: &RateLimitRequest| {
        call::should_rate_limit(&bench.app, bench.app.envoy().unwrap(), request, None).unwrap_err().message
    };
    assert!(refused(&RateLimitRequest { domain: String::new(), ..request(&[("user", "a")]) }).contains("domain"));
    assert!(refused(&request(&[])).contains("1 to 128 descriptors"));
    assert!(refused(&request(&[("user", "a"); 129])).contains("1 to 128 descriptors"));
    // A call of the limiter has 16 parts.
    let many: Vec<_> = (0..17).map(|number| number.to_string()).collect();
    let pairs: Vec<_> = many.iter().map(|user| ("user", user.as_str())).collect();
    assert!(refused(&request(&pairs)).contains("16"), "{}", refused(&request(&pairs)));
    assert_eq!(bench.check(&pairs[..16]), (true, vec![4; 16]));
}

#[test]
fn new_rules_take_effect_and_broken_ones_do_not() {
    let directory = crate::envoy::tests::directory("rules");
    let file = directory.join("edge.yaml");
    let write = |limit: u32| {
        let rule = format!("  - key: user\n    rate_limit: {{unit: minute, requests_per_unit: {limit}}}\n");
        std::fs::write(&file, format!("domain: d\ndescriptors:\n{rule}")).unwrap();
    };
    write(5);
    std::fs::write(directory.join(".hidden.yaml"), "not: this").unwrap();
    let bench = Bench::with("domain: x\ndescriptors: []", |envoy| envoy.config = Some(directory.clone()));
    assert_eq!(bench.check(&[("user", "a")]), (true, vec![4]));
    write(9);
    bench.app.control().reload().unwrap();
    // What was used stays used, as the time that it takes to come back: 12 seconds, in which 2 of 9 come.
    assert_eq!(bench.check(&[("user", "a")]).1, [6]);
    std::fs::write(&file, "domain: d\ndescriptors: [a]\n").unwrap();
    let error = bench.app.control().reload().unwrap_err().to_string();
    assert!(error.contains("edge.yaml: line 2, column 15: a descriptor is a single value"), "{error}");
    assert_eq!(bench.check(&[("user", "a")]).1, [5]);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A new directory for a test.
fn directory(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("tollgate-envoy-{}-{name}", std::process::id()));
    _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    directory
}
