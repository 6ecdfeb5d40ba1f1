//! Checks, single and in batches.

use crate::common::{TestServer, assert_problem, header, json};
use serde_json::json;
use std::time::Duration;
use tollgate::{Policy, Request};

#[tokio::test]
async fn a_check_is_answered_with_the_verdict_and_the_headers() {
    let server = TestServer::lanes(&[("http/heavy", "10/min")]).await;
    let answer = server.check(r#"{"agent": "agent-7", "lane": "http/heavy"}"#).await;
    assert_eq!(answer.status, 200);
    assert_eq!(header(&answer, "content-type"), Some("application/json"));
    assert_eq!(header(&answer, "ratelimit-policy"), Some(r#""http/heavy";q=10;w=60"#));
    assert_eq!(header(&answer, "ratelimit"), Some(r#""http/heavy";r=9;t=6"#));
    assert_eq!(header(&answer, "retry-after"), None);
    let mut verdict = json(&answer);
    assert!(verdict["reset_at"].take().as_f64().expect("a time") > 1.7e9);
    let expected = json!({"allowed": true, "verdict": "allow", "lane": "http/heavy", "limit": 10, "remaining": 9,
        "reset_at": null, "retry_after": null, "retry_after_ms": null});
    assert_eq!(verdict, expected);
}

#[tokio::test]
async fn it_warns_then_denies_and_the_announced_wait_is_enough() {
    let server = TestServer::lanes(&[("api", "10/min")]).await;
    let mut client = server.client().await;
    let mut check = async || client.send("POST", "/v1/check", &[], r#"{"agent": "a"}"#).await.expect("an answer");
    let mut verdicts = Vec::new();
    for _ in 0..10 {
        verdicts.push(json(&check().await)["verdict"].as_str().expect("a verdict").to_owned());
    }
    assert_eq!(verdicts[..8], ["allow"; 8]);
    assert_eq!(verdicts[8..], ["warn", "warn"]);
    let denied = check().await;
    assert_eq!(denied.status, 429);
    assert_eq!(header(&denied, "content-type"), Some("application/problem+json"));
    assert_eq!(header(&denied, "retry-after"), Some("6"));
    let body = json(&denied);
    let members = ["allowed", "verdict", "remaining", "limit", "retry_after", "retry_after_ms", "agent_id", "policy"];
    let values = members.map(|name| body[name].clone());
    assert_eq!(json!(values), json!([false, "deny", 0, 10, 6, 6_000, "a", "api"]));
    assert_eq!((&body["lane_wait_ms"], &body["conduct_wait_ms"]), (&json!(6_000), &json!(1_000)));
    server.clock.advance(Duration::from_secs(6) - Duration::from_nanos(1));
    assert_eq!(check().await.status, 429);
    server.clock.advance(Duration::from_nanos(1));
    assert_eq!(check().await.status, 200);
}

#[tokio::test]
async fn a_denial_is_a_violation_and_makes_the_wait_longer() {
    let server = TestServer::lanes(&[("api", "1/s")]).await;
    assert_eq!(server.check(r#"{"agent": "a"}"#).await.status, 200);
    for wait in ["1", "2", "5", "10", "30", "30"] {
        let denied = server.check(r#"{"agent": "a"}"#).await;
        assert_eq!(header(&denied, "retry-after"), Some(wait));
    }
    let denied = json(&server.check(r#"{"agent": "a"}"#).await);
    assert!(denied["type"].as_str().expect("a type").ends_with("#abnormal-usage-detected"), "{denied}");
    assert!(server.limiter().rate_limited("a").expect("an id"));
}

/// A plan's total, as in a policy file: 20 over all lanes, and responses carry
/// whichever limit is tighter.
#[tokio::test]
async fn a_plan_has_one_limit_over_all_its_lanes() {
    let file = "[lanes]\nread = '100/min burst 200'\nwrite = '50/min'\nsearch = 'window 30/min'\n\
                [plans.free]\ntotal = '20/min'\n";
    let server = TestServer::with(Policy::from_toml(file).expect("a policy"), |_| {}).await;
    let body = |lane: &str| json!({"agent": "user:42", "lane": lane, "plan": "free"}).to_string();
    let mut passed = 0;
    for _ in 0..20 {
        for lane in ["read", "write", "search"] {
            passed += u32::from(server.check(&body(lane)).await.status == 200);
        }
    }
    assert_eq!(passed, 20);
    let denied = server.check(&body("write")).await;
    assert_eq!((denied.status.as_u16(), header(&denied, "retry-after")), (429, Some("3")));
    assert_eq!(header(&denied, "ratelimit-policy"), Some(r#""write";q=20;w=60"#));
    let body = json(&denied);
    assert_eq!((&body["limit"], &body["remaining"]), (&json!(20), &json!(0)));
    // Without the plan, each lane has its own limit; the state of an agent lists them all.
    assert_eq!(server.check(r#"{"agent": "other", "lane": "read", "cost": 200}"#).await.status, 200);
    let total = server.check(r#"{"agent": "a", "lane": "total"}"#).await;
    assert_eq!(total.status, 400);
    let detail = json(&total)["detail"].to_string();
    assert!(detail.contains("never alone"), "{detail}");
    server.limiter().assign("user:42", server.limiter().plan("free").expect("a plan")).expect("an id");
    let view = json(&server.client().await.send("GET", "/v1/agents/user:42", &[], "").await.expect("an answer"));
    let rows = view["lanes"].as_array().expect("lanes").iter();
    let rows: Vec<_> =
        rows.map(|row| (row["lane"].clone(), row["capacity"].clone(), row["remaining"].clone())).collect();
    assert_eq!(json!(rows), json!([["read", 200, 193], ["write", 50, 43], ["search", 30, 24], ["total", 20, 0]]));
}

#[tokio::test]
async fn channel_and_action_choose_the_lane() {
    let server = TestServer::with(Policy::preset("hub").expect("a preset"), |_| {}).await;
    let lane = async |action: &str| {
        let body = json!({"agent": "a", "channel": "ws", "action": action}).to_string();
        json(&server.check(&body).await)["lane"].clone()
    };
    assert_eq!(lane("ping").await, "ws/light");
    assert_eq!(lane("identify").await, "ws/heavy");
    assert_eq!(lane("dance").await, "ws/normal");
    assert_eq!(server.limiter().unknown_actions().total, 1);
    let other = server.check(r#"{"agent": "a", "channel": "smoke", "action": "ping"}"#).await;
    assert_problem(&other, 400, Some("channel"), "the channels are http, ws");
}

#[tokio::test]
async fn cost_plan_and_exemption_apply() {
    let policy = Policy::builder().lane("api", "10/min").plan("pro", [("api", "100/min")]).build().expect("a policy");
    let server = TestServer::with(policy, |_| {}).await;
    let remaining = async |body: &str| json(&server.check(body).await)["remaining"].clone();
    assert_eq!(remaining(r#"{"agent": "a", "cost": 4}"#).await, 6);
    assert_eq!(remaining(r#"{"agent": "b", "plan": "pro"}"#).await, 99);
    server.limiter().exempt("c").expect("an id");
    let exempt = server.check(r#"{"agent": "c", "cost": 1000000}"#).await;
    assert_eq!((exempt.status.as_u16(), &json(&exempt)["verdict"]), (200, &json!("exempt")));
    assert_eq!((header(&exempt, "ratelimit"), &json(&exempt)["remaining"]), (None, &json!(null)));
    let never = server.check(r#"{"agent": "a", "cost": 11}"#).await;
    assert_eq!((never.status.as_u16(), header(&never, "retry-after")), (429, None));
    assert_eq!(json(&never)["retry_after"], json!(null));
    assert_eq!(server.limiter().peek(Request::new("a", tollgate::LaneId::new(0))).expect("an id").remaining(), 6);
}

#[tokio::test]
async fn ids_are_any_bytes() {
    let server = TestServer::lanes(&[("api", "10/min")]).await;
    for _ in 0..2 {
        assert_eq!(server.check(r#"{"agent": {"base64": "//4="}}"#).await.status, 200);
    }
    assert_eq!(server.check(r#"{"agent_id": "\u0000\n"}"#).await.status, 200);
    let lane = tollgate::LaneId::new(0);
    assert_eq!(server.limiter().peek(Request::new(b"\xff\xfe", lane)).expect("an id").remaining(), 8);
    assert_eq!(server.limiter().peek(Request::new(b"\0\n", lane)).expect("an id").remaining(), 9);
}

#[tokio::test]
async fn a_batch_is_decided_in_order() {
    let server = TestServer::lanes(&[("api", "2/min"), ("run", "1/min")]).await;
    let body = json!({"requests": [
        {"agent": "a", "lane": "api"}, {"agent": "a", "lane": "run"}, {"agent": "a", "lane": "api"},
        {"agent": "a", "lane": "api"}, {"agent": "b", "lane": "api", "cost": 2}, {"agent": "b", "lane": "api", "cost": 3},
    ]});
    let answer = server.send("POST", "/v1/check/many", &[], &body.to_string()).await;
    assert_eq!(answer.status, 200);
    let verdicts = json(&answer)["verdicts"].clone();
    let allowed: Vec<_> =
        verdicts.as_array().expect("a list").iter().map(|verdict| verdict["allowed"].clone()).collect();
    assert_eq!(json!(allowed), json!([true, true, true, false, true, false]));
    assert_eq!(verdicts[3]["retry_after_ms"], 30_000);
    assert_eq!((&verdicts[5]["verdict"], &verdicts[5]["retry_after"]), (&json!("deny"), &json!(null)));
    let none = server.send("POST", "/v1/check/many", &[], r#"{"requests": []}"#).await;
    assert_eq!((none.status.as_u16(), json(&none)), (200, json!({"verdicts": []})));
}

#[tokio::test]
async fn one_invalid_request_of_a_batch_charges_none() {
    let server = TestServer::lanes(&[("api", "2/min")]).await;
    for (bad, field) in [
        (json!({"agent": "a", "lane": "apo"}), "requests[1].lane"),
        (json!({"agent": "a", "cost": 0}), "requests[1].cost"),
        (json!({"agent": "a", "cost": -1}), "requests[1].cost"),
        (json!({"agent": ""}), "requests[1].agent"),
        (json!({"lane": "api"}), "requests[1].agent"),
        (json!({"agent": "a", "plan": "pro"}), "requests[1].plan"),
        (json!(7), "requests[1]"),
    ] {
        let body = json!({"requests": [{"agent": "a"}, bad]}).to_string();
        let answer = server.send("POST", "/v1/check/many", &[], &body).await;
        assert_problem(&answer, 400, Some(field), "");
    }
    assert_eq!(server.limiter().stats().claims, 0);
    let many = json!({"requests": vec![json!({"agent": "a"}); 10_001]}).to_string();
    let answer = server.send("POST", "/v1/check/many", &[], &many).await;
    assert_problem(&answer, 413, Some("requests"), "10000 at most");
}

#[tokio::test]
async fn a_full_limiter_answers_503() {
    let policy = Policy::builder().lane("api", "1/min").build().expect("a policy");
    let server = TestServer::with(policy, |settings| {
        settings.agents = 1;
        settings.on_full = tollgate::OnFull::Deny;
    })
    .await;
    // How many fit depends on how the slab rounds up.
    let mut statuses = Vec::new();
    for agent in 0..1_000 {
        let answer = server.check(&json!({"agent": agent.to_string()}).to_string()).await;
        statuses.push(answer.status.as_u16());
        if answer.status == 503 {
            assert_problem(&answer, 503, None, "no record is free");
            assert_eq!(header(&answer, "retry-after"), Some("1"));
            break;
        }
    }
    assert_eq!(statuses.last(), Some(&503));
    let batch = server.send("POST", "/v1/check/many", &[], r#"{"requests": [{"agent": "one more"}]}"#).await;
    let verdict = json(&batch)["verdicts"][0].clone();
    assert_eq!((&verdict["allowed"], &verdict["verdict"]), (&json!(false), &json!("error")));
    assert!(verdict["error"].as_str().expect("a text").contains("no record is free"));
}

/// Only where the operator has declared the lane dynamic.
#[tokio::test]
async fn a_call_brings_its_limit_to_a_dynamic_lane() {
    let server = TestServer::lanes(&[("any", "dynamic"), ("own", "10/min")]).await;
    let check = |limit: &str| format!("{{\"agent\":\"a\",\"lane\":\"any\",\"limit\":\"{limit}\"}}");
    let answer = server.check(&check("3/minute")).await;
    assert_eq!((answer.status.as_u16(), json(&answer)["remaining"].as_u64()), (200, Some(2)), "{answer:?}");
    let answer = server.check(&check("10/second")).await;
    assert_eq!((answer.status.as_u16(), json(&answer)["retry_after_ms"].as_u64()), (429, Some(19_100)), "{answer:?}");
    let many = format!("{{\"requests\":[{},{}]}}", check("5/minute"), check("60/minute"));
    let answer = server.send("POST", "/v1/check/many", &[], &many).await;
    let left: Vec<_> =
        json(&answer)["verdicts"].as_array().unwrap().iter().map(|it| it["remaining"].as_u64()).collect();
    assert_eq!(left, [Some(2), Some(27)], "{answer:?}");
    let all = format!("{{\"requests\":[{},{}]}}", check("60/minute"), check("61/minute"));
    let answer = server.send("POST", "/v1/check/all", &[], &all).await;
    assert_problem(&answer, 400, Some("limit"), "different limits");
    let reserve = "{\"agent\":\"b\",\"lane\":\"any\",\"limit\":\"6/minute\",\"estimate\":4}";
    let answer = server.send("POST", "/v1/reserve", &[], reserve).await;
    assert_eq!((answer.status.as_u16(), json(&answer)["remaining"].as_u64()), (200, Some(2)), "{answer:?}");
    for (body, problem) in [
        ("{\"agent\":\"a\",\"lane\":\"any\"}", "is dynamic and has no default"),
        ("{\"agent\":\"a\",\"lane\":\"own\",\"limit\":\"99/s\"}", "has its own limit"),
        ("{\"agent\":\"a\",\"lane\":\"any\",\"limit\":\"budget 5/day\"}", "can't travel with a call"),
        ("{\"agent\":\"a\",\"lane\":\"any\",\"limit\":\"0/s\"}", "a rate or burst of 0"),
    ] {
        assert_problem(&server.check(body).await, 400, Some("limit"), problem);
    }
}
