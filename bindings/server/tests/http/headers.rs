//! No header is ever malformed, in the past, or inconsistent with another.
//!
//! `PROPTEST_CASES=10000 cargo test -p tollgate-server --test http headers` runs them for longer.

use crate::common::{TestServer, header, json};
use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tollgate::{Limit, Policy};
use tollgate_server::client::{Answer, Client};
use tollgate_tower::Style;

/// A list field with one member: its name and its parameters.
fn member(answer: &Answer, field: &str) -> (String, BTreeMap<String, u64>) {
    let text = header(answer, field).unwrap_or_else(|| panic!("no {field} in {answer:?}"));
    let list: List = Parser::new(text).parse().expect("a structured field");
    let [ListEntry::Item(item)] = list.as_slice() else { panic!("{field}: {text}") };
    let BareItem::String(name) = &item.bare_item else { panic!("{field}: {text}") };
    let number =
        |value: &BareItem| u64::try_from(i64::from(value.as_integer().expect("an integer"))).expect("positive");
    (name.to_string(), item.params.iter().map(|(key, value)| (key.to_string(), number(value))).collect())
}

fn number(answer: &Answer, field: &str) -> Option<u64> {
    header(answer, field).map(|text| text.parse().expect("a whole number"))
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Checks that a response is consistent, whatever was sent before.
fn assert_consistent(answer: &Answer, style: Style, limit: Limit, cost: u64, before: u64) {
    let denied = match answer.status.as_u16() {
        200 => false,
        429 => true,
        other => panic!("{other}: {answer:?}"),
    };
    let retry_after = number(answer, "retry-after");
    let body = json(answer);
    assert!(retry_after.is_none_or(|seconds| denied && seconds >= 1), "{answer:?}");
    assert_eq!(denied && cost <= limit.capacity(), retry_after.is_some(), "{answer:?}");
    assert_eq!(body["retry_after"].as_u64(), retry_after);
    if let Some(ms) = body["retry_after_ms"].as_u64() {
        assert_eq!(ms.div_ceil(1_000), retry_after.expect("with its milliseconds"));
    }
    let remaining = body["remaining"].as_u64().expect("a number");
    assert!(remaining <= limit.capacity() && (denied || body["limit"] == limit.capacity()));
    match style {
        Style::Draft10 => {
            let (policy, of_policy) = member(answer, "ratelimit-policy");
            let (lane, of_limit) = member(answer, "ratelimit");
            assert_eq!((policy.as_str(), lane.as_str()), ("http/a%C3%A9\"", "http/a%C3%A9\""));
            assert_eq!((of_policy["q"], of_limit["r"]), (limit.capacity(), remaining));
            assert!(of_policy["w"] >= 1);
            assert!(of_limit.get("t").is_none_or(|seconds| *seconds >= 1));
            assert!(!denied || of_limit.get("t").copied() == retry_after);
        }
        Style::Legacy => {
            assert_eq!(number(answer, "x-ratelimit-limit"), Some(limit.capacity()));
            assert_eq!(number(answer, "x-ratelimit-remaining"), Some(remaining));
            assert!(number(answer, "x-ratelimit-reset").expect("a time") >= before, "a time in the past");
        }
        _ => assert!(answer.headers.keys().all(|name| !name.as_str().contains("ratelimit"))),
    }
}

#[derive(Clone, Debug)]
struct Case {
    style: Style,
    limit: Limit,
    /// Costs, and the nanoseconds that pass before each request.
    requests: Vec<(u64, u64)>,
}

fn cases() -> impl Strategy<Value = Case> {
    let style = prop_oneof![Just(Style::Draft10), Just(Style::Legacy), Just(Style::Off)];
    let limit = (1..50_u64, 1..10_000_000_000_u64, 1..60_u64)
        .prop_map(|(tokens, per, burst)| Limit::new(tokens, Duration::from_nanos(per.max(tokens))).burst(burst));
    let request = (prop_oneof![1..4_u64, 1..70_u64], prop_oneof![Just(0_u64), 0..2_000_000_000_u64]);
    (style, limit, proptest::collection::vec(request, 1..20)).prop_map(|(style, limit, requests)| Case {
        style,
        limit,
        requests,
    })
}

#[test]
fn every_answer_is_consistent() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 64, ..ProptestConfig::default() });
    let run = |case: Case| {
        runtime.block_on(async {
            let policy = Policy::builder().lane("http/aé\"", case.limit).build().expect("a policy");
            let server = TestServer::with(policy, |settings| settings.headers = Some(case.style)).await;
            let mut client: Client = server.client().await;
            for (cost, nanos) in &case.requests {
                server.clock.advance(Duration::from_nanos(*nanos));
                let (body, before) = (format!(r#"{{"agent": "a", "cost": {cost}}}"#), now());
                let answer = client.send("POST", "/v1/check", &[], body).await.expect("an answer");
                assert_consistent(&answer, case.style, case.limit, *cost, before);
            }
        });
        Ok(())
    };
    if let Err(error) = runner.run(&cases(), run) {
        panic!("{error}");
    }
}
