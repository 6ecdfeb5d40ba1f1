//! Invalid bodies, by hand and at random.

use crate::common::{TestServer, assert_problem, json};
use proptest::prelude::*;
use serde_json::{Value, json};

#[tokio::test]
async fn every_invalid_body_is_a_problem_with_the_field() {
    let server = TestServer::lanes(&[("api", "10/min"), ("run", "10/min")]).await;
    for (body, field, text) in [
        ("", None, "not valid JSON"),
        ("{", None, "not valid JSON"),
        ("[]", None, "not a JSON object"),
        ("\"agent\"", None, "not a JSON object"),
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
        (r#"{"agent": "a", "channel": "ws", "action": "ping"}"#, Some("channel"), "has no actions"),
        (r#"{"agent": "a", "lane": "api", "cost": 0}"#, Some("cost"), "at least 1"),
        (r#"{"agent": "a", "lane": "api", "cost": -1}"#, Some("cost"), "whole number"),
        (r#"{"agent": "a", "lane": "api", "cost": 1.5}"#, Some("cost"), "whole number"),
        (r#"{"agent": "a", "lane": "api", "cost": 1e99}"#, Some("cost"), "whole number"),
        (r#"{"agent": "a", "lane": "api", "cost": "1"}"#, Some("cost"), "whole number"),
        (r#"{"agent": "a", "lane": "api", "plan": "pro"}"#, Some("plan"), "the plans are default"),
        (r#"{"agent": "a", "lane": "api", "costs": 1}"#, Some("costs"), "no such field"),
    ] {
        assert_problem(&server.check(body).await, 400, field, text);
    }
    let long = format!(r#"{{"agent": "{}", "lane": "api"}}"#, "a".repeat(257));
    assert_problem(&server.check(&long).await, 400, Some("agent"), "257 bytes");
    for (body, field, text) in [
        ("[]", None, "requests"),
        ("{}", Some("requests"), "missing; give a list"),
        (r#"{"requests": {}}"#, Some("requests"), "give a list"),
        (r#"{"requests": [], "more": 1}"#, Some("more"), "no such field"),
    ] {
        assert_problem(&server.send("POST", "/v1/check/many", &[], body).await, 400, field, text);
    }
    for (path, body, field, text) in [
        ("/v1/reserve", r#"{"agent": "a", "lane": "api"}"#, Some("estimate"), "missing"),
        ("/v1/reserve", r#"{"agent": "a", "lane": "api", "estimate": 0}"#, Some("estimate"), "from 1"),
        ("/v1/reserve", r#"{"agent": "a", "lane": "api", "estimate": null}"#, Some("estimate"), "from 1"),
        ("/v1/reserve", r#"{"lane": "api", "estimate": 1}"#, Some("agent"), "missing"),
        ("/v1/reserve", r#"{"agent": "a", "estimate": 1, "cost": 1}"#, Some("cost"), "no such field"),
        (
            "/v1/reserve",
            r#"{"agent": "a", "lane": "api", "estimate": 1, "ttl_seconds": 0}"#,
            Some("ttl_seconds"),
            "3600",
        ),
        ("/v1/hold", r#"{"agent": "a", "lane": "api", "ttl_seconds": 3601}"#, Some("ttl_seconds"), "3600"),
        ("/v1/hold", r#"{"agent": "a", "lane": "api", "ttl_seconds": "1"}"#, Some("ttl_seconds"), "whole number"),
        ("/v1/settle", r#"{"reservation": "a"}"#, Some("used"), "missing"),
        ("/v1/settle", r#"{"reservation": "a", "used": -1}"#, Some("used"), "from 0"),
        ("/v1/settle", r#"{"reservation": "a", "used": 1, "so_far": 1}"#, Some("so_far"), "true or false"),
        ("/v1/settle", r#"{"reservation": 7, "used": 1}"#, Some("reservation"), "give a string"),
        ("/v1/cancel", "{}", Some("reservation"), "missing"),
        ("/v1/cancel", "[]", None, "not a JSON object"),
        ("/v1/release", r#"{"lease": null}"#, Some("lease"), "give a string"),
        ("/v1/release", r#"{"lease": "a", "lease": "a"}"#, None, "twice"),
        ("/v1/extend", r#"{"ttl_seconds": 1}"#, Some("reservation"), "a reservation or a lease"),
        ("/v1/extend", r#"{"reservation": "a", "lease": "b"}"#, Some("reservation"), "not both"),
    ] {
        assert_problem(&server.send("POST", path, &[], body).await, 400, field, text);
    }
    assert_eq!(server.limiter().stats().claims, 0, "none of them has charged an agent");
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
        Just("reservation"),
        Just("lease"),
        Just("estimate"),
        Just("used"),
        Just("so_far"),
        Just("ttl_seconds"),
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
        prop_oneof![Just("a"), Just("api"), Just("ws"), Just("default"), Just("/w==")].prop_map(Value::from),
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

const PATHS: [&str; 9] = [
    "/v1/check",
    "/v1/check/many",
    "/v1/check/all",
    "/v1/reserve",
    "/v1/settle",
    "/v1/cancel",
    "/v1/extend",
    "/v1/hold",
    "/v1/release",
];

/// Every body gets one of the API's responses, and the connection stays open.
#[test]
fn no_body_breaks_the_server() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = runtime.block_on(TestServer::lanes(&[("api", "1000000/s"), ("ws", "held 9")]));
    let mut client = runtime.block_on(server.client());
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 6_000, ..ProptestConfig::default() });
    let client = std::cell::RefCell::new(&mut client);
    let run = |(path, body): (&str, Vec<u8>)| {
        let answer = runtime.block_on(client.borrow_mut().send("POST", path, &[], body)).expect("an answer");
        match answer.status.as_u16() {
            200 | 429 => {}
            400 | 404 => assert!(json(&answer)["detail"].is_string()),
            other => panic!("{other}: {answer:?}"),
        }
        Ok(())
    };
    let path = proptest::sample::select(&PATHS);
    if let Err(error) = runner.run(&(path, any_body()), run) {
        panic!("{error}");
    }
    let after = runtime.block_on(server.check(r#"{"agent": "after", "lane": "api"}"#));
    assert_eq!((after.status.as_u16(), &json(&after)["allowed"]), (200, &json!(true)));
}
