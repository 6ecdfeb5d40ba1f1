//! Bodies that make no sense, by hand and at random.

use crate::common::{Running, assert_problem, json};
use proptest::prelude::*;
use serde_json::{Value, json};

#[tokio::test]
async fn every_bad_body_is_a_problem_that_names_the_field() {
    let server = Running::lanes(&[("api", "10/min"), ("run", "10/min")]).await;
    for (body, field, part) in [
        ("", None, "no JSON"),
        ("{", None, "no JSON"),
        ("[]", None, "no JSON object"),
        ("\"agent\"", None, "no JSON object"),
        ("{}", Some("agent"), "missing"),
        (r#"{"agent": 7, "lane": "api"}"#, Some("agent"), "give a string"),
        (r#"{"agent": "", "lane": "api"}"#, Some("agent"), "empty"),
        (r#"{"agent": {"base64": "?"}, "lane": "api"}"#, Some("agent"), "base64"),
        (r#"{"agent": "a", "agent_id": "a", "lane": "api"}"#, Some("agent"), "twice"),
        (r#"{"agent": "a", "agent": "b", "lane": "api"}"#, None, "twice"),
        (r#"{"agent": "a"}"#, Some("lane"), "the lanes are api, run"),
        (r#"{"agent": "a", "lane": "apo"}"#, Some("lane"), "no lane \"apo\"; the lanes are api, run"),
        (r#"{"agent": "a", "lane": ["api"]}"#, Some("lane"), "give a string"),
        (r#"{"agent": "a", "lane": "api", "channel": "ws"}"#, Some("lane"), "not both"),
        (r#"{"agent": "a", "channel": "ws"}"#, Some("action"), "give both"),
        (r#"{"agent": "a", "action": "ping"}"#, Some("channel"), "give both"),
        (r#"{"agent": "a", "channel": "ws", "action": "ping"}"#, Some("channel"), "names no actions"),
        (r#"{"agent": "a", "lane": "api", "cost": 0}"#, Some("cost"), "at least 1"),
        (r#"{"agent": "a", "lane": "api", "cost": -1}"#, Some("cost"), "whole number"),
        (r#"{"agent": "a", "lane": "api", "cost": 1.5}"#, Some("cost"), "whole number"),
        (r#"{"agent": "a", "lane": "api", "cost": 1e99}"#, Some("cost"), "whole number"),
        (r#"{"agent": "a", "lane": "api", "cost": "1"}"#, Some("cost"), "whole number"),
        (r#"{"agent": "a", "lane": "api", "plan": "pro"}"#, Some("plan"), "the plans are default"),
        (r#"{"agent": "a", "lane": "api", "costs": 1}"#, Some("costs"), "no such field"),
    ] {
        assert_problem(&server.check(body).await, 400, field, part);
    }
    let long = format!(r#"{{"agent": "{}", "lane": "api"}}"#, "a".repeat(257));
    assert_problem(&server.check(&long).await, 400, Some("agent"), "257 bytes");
    for (body, field, part) in [
        ("[]", None, "requests"),
        ("{}", Some("requests"), "no list"),
        (r#"{"requests": {}}"#, Some("requests"), "no list"),
        (r#"{"requests": [], "more": 1}"#, Some("more"), "no such field"),
    ] {
        assert_problem(&server.send("POST", "/v1/check/batch", &[], body).await, 400, field, part);
    }
    assert_eq!(server.limiter().stats().claims, 0, "none of it has charged anybody");
}

fn any_json() -> impl Strategy<Value = Value> {
    let names = prop_oneof![
        Just("agent"),
        Just("agent_id"),
        Just("lane"),
        Just("channel"),
        Just("action"),
        Just("plan"),
        Just("cost"),
        Just("requests"),
        Just("base64"),
        Just("x"),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..3_u64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        prop_oneof![Just("a"), Just("api"), Just("default"), Just("/w==")].prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((names.clone(), inner), 0..5)
                .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

fn any_body() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => any_json().prop_map(|value| value.to_string().into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 0..200),
        1 => (any_json(), 0..50_usize).prop_map(|(value, cut)| {
            let mut text = value.to_string().into_bytes();
            text.truncate(text.len().saturating_sub(cut));
            text
        }),
    ]
}

/// Whatever is sent, the answer is one that the API has, and the connection goes on.
#[test]
fn no_body_breaks_the_server() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = runtime.block_on(Running::lanes(&[("api", "1000000/s")]));
    let mut client = runtime.block_on(server.client());
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 2_000, ..ProptestConfig::default() });
    let client = std::cell::RefCell::new(&mut client);
    let run = |(path, body): (&str, Vec<u8>)| {
        let answer = runtime.block_on(client.borrow_mut().send("POST", path, &[], body)).expect("an answer");
        match answer.status.as_u16() {
            200 | 429 => {}
            400 => assert!(json(&answer)["detail"].is_string()),
            other => panic!("{other}: {answer:?}"),
        }
        Ok(())
    };
    let path = prop_oneof![Just("/v1/check"), Just("/v1/check/batch")];
    if let Err(error) = runner.run(&(path, any_body()), run) {
        panic!("{error}");
    }
    let after = runtime.block_on(server.check(r#"{"agent": "after"}"#));
    assert_eq!((after.status.as_u16(), &json(&after)["allowed"]), (200, &json!(true)));
}
