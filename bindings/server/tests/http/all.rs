//! Several requests, all or none.

use crate::common::{TestServer, assert_problem, header, json};
use serde_json::{Value, json};
use std::time::Duration;
use tollgate::{LaneId, Request};
use tollgate_server::client::Answer;
use tollgate_tower::Profile;

const LANES: [(&str, &str); 3] = [("requests", "10/min"), ("tokens", "budget 100/day"), ("ws", "held 1")];

async fn check_all(server: &TestServer, requests: Value) -> Answer {
    server.send("POST", "/v1/check/all", &[], &json!({"requests": requests, "ttl_seconds": 30}).to_string()).await
}

fn remaining(server: &TestServer, agent: &str) -> [u64; 3] {
    [0, 1, 2].map(|lane| server.limiter().peek(Request::new(agent, LaneId::new(lane))).expect("an id").remaining())
}

#[tokio::test]
async fn all_parts_are_charged_or_none_is() {
    let server = TestServer::lanes(&LANES).await;
    let parts = |cost: u64| {
        json!([
            {"agent": "user:42", "lane": "requests"},
            {"agent": "user:42", "lane": "tokens", "cost": cost},
            {"agent": "team:7", "lane": "tokens", "cost": cost},
        ])
    };
    let admitted = check_all(&server, parts(80)).await;
    assert_eq!((admitted.status.as_u16(), &json(&admitted)["allowed"]), (200, &json!(true)));
    let left: Vec<_> =
        json(&admitted)["verdicts"].as_array().expect("a list").iter().map(|part| part["remaining"].clone()).collect();
    assert_eq!(json!(left), json!([9, 20, 20]));
    assert!(header(&admitted, "ratelimit").expect("the tightest").starts_with("\"tokens\";r=20"), "{admitted:?}");

    let denied = check_all(&server, parts(30)).await;
    assert_eq!((denied.status.as_u16(), header(&denied, "content-type")), (429, Some("application/problem+json")));
    let body = json(&denied);
    assert_eq!((&body["allowed"], &body["verdict"]), (&json!(false), &json!("deny")));
    assert_eq!((&body["blocking"], &body["violated-policies"]), (&json!([1, 2]), &json!(["tokens"])));
    assert_eq!((&body["verdicts"][0]["allowed"], &body["verdicts"][1]["allowed"]), (&json!(true), &json!(false)));
    assert_eq!((remaining(&server, "user:42"), remaining(&server, "team:7")), ([9, 20, 1], [10, 20, 1]));
    for agent in ["user:42", "team:7"] {
        let conduct = server.limiter().violations(agent).expect("an id");
        assert_eq!(conduct.violations(), 1, "one violation for {agent}");
    }
}

#[tokio::test]
async fn the_longest_wait_is_announced_and_is_enough() {
    let server = TestServer::lanes(&[("fast", "1/s"), ("slow", "1/min")]).await;
    let parts = json!([{"agent": "a", "lane": "fast"}, {"agent": "a", "lane": "slow"}]);
    assert_eq!(check_all(&server, parts.clone()).await.status, 200);
    let denied = check_all(&server, parts.clone()).await;
    assert_eq!((header(&denied, "retry-after"), &json(&denied)["retry_after_ms"]), (Some("60"), &json!(60_000)));
    assert_eq!((&json(&denied)["blocking"], &json(&denied)["policy"]), (&json!([0, 1]), &json!("slow")));
    assert_eq!(server.limiter().violations("a").expect("an id").violations(), 1, "once, for two lanes");
    server.clock.advance(Duration::from_secs(60));
    assert_eq!(check_all(&server, parts).await.status, 200);
}

#[tokio::test]
async fn slots_among_the_parts_are_leased() {
    let server = TestServer::lanes(&LANES).await;
    let parts = |agent: &str| json!([{"agent": agent, "lane": "requests"}, {"agent": agent, "lane": "ws"}]);
    let admitted = json(&check_all(&server, parts("a")).await);
    let verdicts = &admitted["verdicts"];
    assert_eq!((&verdicts[0]["lease"], &verdicts[1]["ttl_seconds"]), (&json!(null), &json!(30)));
    let denied = check_all(&server, parts("a")).await;
    assert_eq!((denied.status.as_u16(), header(&denied, "retry-after")), (429, None), "the wait is unknown");
    assert_eq!(remaining(&server, "a"), [9, 100, 0]);
    let release = json!({"lease": verdicts[1]["lease"]}).to_string();
    assert_eq!(server.send("POST", "/v1/release", &[], &release).await.status, 200);
    assert_eq!(check_all(&server, parts("a")).await.status, 200);
    server.clock.advance(Duration::from_secs(30));
    assert_eq!(check_all(&server, parts("a")).await.status, 200, "the lease has expired");
}

#[tokio::test]
async fn a_part_that_can_never_pass_is_in_blocking() {
    let server = TestServer::lanes(&LANES).await;
    let parts = json!([{"agent": "a", "lane": "requests"}, {"agent": "a", "lane": "tokens", "cost": 101}]);
    let never = check_all(&server, parts).await;
    assert_eq!((never.status.as_u16(), header(&never, "retry-after")), (429, None));
    assert_eq!(json(&never)["blocking"], json!([1]));
    assert!(json(&never)["detail"].as_str().expect("a detail").contains("costs 101"));
    assert_eq!(remaining(&server, "a"), [10, 100, 1]);
}

/// Parts of one lane that can never pass together used to be answered as allowed,
/// and nothing was charged.
#[tokio::test]
async fn parts_that_never_pass_together_are_denied() {
    let server = TestServer::lanes(&LANES).await;
    let tokens = json!({"agent": "a", "lane": "tokens", "cost": 60});
    let never = check_all(&server, json!([tokens, {"agent": "a", "lane": "requests"}, tokens])).await;
    assert_eq!((never.status.as_u16(), header(&never, "retry-after")), (429, None));
    assert_eq!(json(&never)["blocking"], json!([0, 2]));
    assert!(json(&never)["detail"].as_str().expect("a detail").contains("costs 120"), "{never:?}");
    assert_eq!(remaining(&server, "a"), [10, 100, 1]);
}

#[tokio::test]
async fn an_oversize_cost_is_charged_with_the_other_parts_or_not_at_all() {
    let server = TestServer::lanes(&[("large", "10/s burst 20 oversize debt"), ("tokens", "budget 100/day")]).await;
    let left = || server.limiter().peek(Request::new("a", LaneId::new(0))).expect("an id").remaining();
    let large = |cost: u64| json!({"agent": "a", "lane": "large", "cost": cost});
    let never = check_all(&server, json!([large(50), {"agent": "a", "lane": "tokens", "cost": 101}])).await;
    assert_eq!((never.status.as_u16(), &json(&never)["blocking"], left()), (429, &json!([1]), 20));
    assert_eq!(json(&never)["verdicts"][0]["allowed"], json!(true));
    let never = check_all(&server, json!([large(50), large(1)])).await;
    assert_eq!((never.status.as_u16(), &json(&never)["blocking"], left()), (429, &json!([0, 1]), 20));
    let never = check_all(&server, json!([large(2_001)])).await;
    assert_eq!((never.status.as_u16(), header(&never, "retry-after"), left()), (429, None, 20));
    assert_eq!(check_all(&server, json!([large(50), {"agent": "a", "lane": "tokens"}])).await.status, 200);
    let estimate = json!({"agent": "a", "lane": "large", "estimate": 21}).to_string();
    let denied = server.send("POST", "/v1/reserve", &[], &estimate).await;
    assert_eq!((denied.status.as_u16(), &json(&denied)["retry_after_ms"]), (429, &json!(5_000)));
    server.clock.advance(Duration::from_secs(5));
    assert_eq!(server.send("POST", "/v1/reserve", &[], &estimate).await.status, 200);
}

#[tokio::test]
async fn other_profiles_have_their_own_bodies() {
    let policy = super::common::counting().lane("http/heavy", "1/min").build().expect("a policy");
    let server = TestServer::with(policy, |settings| settings.profile = Profile::Hub).await;
    let parts = json!([{"agent": "a"}]);
    assert_eq!(check_all(&server, parts.clone()).await.status, 200);
    let denied = check_all(&server, parts).await;
    assert_eq!(json(&denied), json!({"error": "rate_limited", "retry_after_ms": 60_000, "tier": "heavy"}));
    assert_eq!(header(&denied, "x-ratelimit-remaining"), Some("0"));
}

#[tokio::test]
async fn an_invalid_part_charges_none() {
    let server = TestServer::lanes(&LANES).await;
    let ok = json!({"agent": "a", "lane": "requests"});
    for (parts, field) in [
        (json!([]), "requests"),
        (json!(vec![ok.clone(); 17]), "requests"),
        (json!([ok, {"agent": "a", "lane": "apo"}]), "requests[1].lane"),
        (json!([ok, {"agent": "a", "lane": "requests", "cost": 0}]), "requests[1].cost"),
        (json!([ok, {"agent": "a", "lane": "requests", "plan": "none such"}]), "requests[1].plan"),
        (json!([ok, {"lane": "requests"}]), "requests[1].agent"),
        (json!({}), "requests"),
    ] {
        assert_problem(&check_all(&server, parts).await, 400, Some(field), "");
    }
    assert_eq!(server.limiter().stats().claims, 0);
    assert_eq!(check_all(&server, json!(vec![ok; 10])).await.status, 200, "one agent may have many parts of a lane");
    assert_eq!(remaining(&server, "a"), [0, 100, 1]);
}

/// The plan of a request used to apply to single checks alone.
#[tokio::test]
async fn the_plan_of_a_request_applies_to_parts_and_reservations() {
    let policy = tollgate::Policy::builder().lane("requests", "10/min").plan("small", [("requests", "3/min")]);
    let server = TestServer::with(policy.build().expect("a policy"), |_| {}).await;
    let part = |agent: &str| json!({"agent": agent, "lane": "requests", "cost": 3, "plan": "small"});
    let admitted = check_all(&server, json!([part("a"), part("b")])).await;
    assert_eq!(admitted.status, 200);
    assert_eq!(json(&admitted)["verdicts"][1]["limit"], json!(3));
    assert_eq!(check_all(&server, json!([part("a"), part("c")])).await.status, 429);
    let reserve = |agent: &str| json!({"agent": agent, "lane": "requests", "estimate": 3, "plan": "small"}).to_string();
    for (agent, status) in [("a", 429), ("d", 200), ("d", 429)] {
        assert_eq!(server.send("POST", "/v1/reserve", &[], &reserve(agent)).await.status, status, "{agent}");
    }
}
