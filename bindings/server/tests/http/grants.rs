//! Reservations and leases: what is granted for a while.

use crate::common::{ADMIN, CHECK, TestServer, assert_problem, header, json};
use serde_json::{Value, json};
use std::time::Duration;
use tollgate::{ConductRules, Policy, Request};
use tollgate_server::client::Answer;

const SECOND: Duration = Duration::from_secs(1);

impl TestServer {
    async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, &[], &body.to_string()).await
    }

    async fn remaining(&self, agent: &str) -> Value {
        json(&self.send("GET", &format!("/v1/agents/{agent}"), &[], "").await)["lanes"][0]["remaining"].clone()
    }

    /// The id of the reservation or the lease.
    async fn granted(&self, path: &str, body: Value) -> String {
        let answer = self.post(path, body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let (granted, what) = (json(&answer), if path == "/v1/reserve" { "reservation" } else { "lease" });
        assert_eq!(granted["allowed"], true);
        granted[what].as_str().expect("an id").to_owned()
    }
}

fn budget(server: &str) -> [(&str, &'static str); 1] {
    [(server, "budget 10000/day")]
}

#[tokio::test]
async fn a_reservation_is_settled_step_by_step_and_at_once() {
    let server = TestServer::lanes(&budget("llm")).await;
    let answer = server.post("/v1/reserve", json!({"agent": "a", "estimate": 4_000, "ttl_seconds": 120})).await;
    assert_eq!((answer.status.as_u16(), header(&answer, "content-type")), (200, Some("application/json")));
    assert!(header(&answer, "ratelimit").expect("the headers").starts_with("\"llm\";r=6000;t="));
    let reserved = json(&answer);
    assert_eq!((&reserved["verdict"], &reserved["ttl_seconds"]), (&json!("allow"), &json!(120)));
    let id = &reserved["reservation"];
    let step = server.post("/v1/settle", json!({"reservation": id, "used": 500, "so_far": true})).await;
    assert_eq!(json(&step), json!({"lane": "llm", "unused": 0, "overspent": 0, "left": 3_500}));
    assert_eq!(server.remaining("a").await, 6_000);
    let last = server.post("/v1/settle", json!({"reservation": id, "used": 700})).await;
    assert_eq!(json(&last), json!({"lane": "llm", "unused": 2_800, "overspent": 0, "left": 0}));
    assert_eq!(server.remaining("a").await, 8_800);
    for (path, body) in [
        ("/v1/settle", json!({"reservation": id, "used": 1})),
        ("/v1/settle", json!({"reservation": id, "used": 1, "so_far": true})),
        ("/v1/cancel", json!({"reservation": id})),
        ("/v1/extend", json!({"reservation": id})),
    ] {
        assert_problem(&server.post(path, body).await, 404, Some("reservation"), "settled already");
    }
    assert_eq!(server.remaining("a").await, 8_800, "an id works once");
}

#[tokio::test]
async fn overspending_is_charged_and_reported() {
    let server = TestServer::lanes(&budget("llm")).await;
    let id = server.granted("/v1/reserve", json!({"agent": "a", "estimate": 100})).await;
    let settled = server.post("/v1/settle", json!({"reservation": id, "used": 350})).await;
    assert_eq!(json(&settled), json!({"lane": "llm", "unused": 0, "overspent": 250, "left": 0}));
    assert_eq!(server.remaining("a").await, 9_650);
    let id = server.granted("/v1/reserve", json!({"agent": "a", "estimate": 100})).await;
    let cancelled = server.post("/v1/cancel", json!({"reservation": id})).await;
    assert_eq!(json(&cancelled), json!({"lane": "llm", "unused": 100, "overspent": 0, "left": 0}));
    assert_eq!(server.remaining("a").await, 9_650);
}

#[tokio::test]
async fn a_denied_reservation_is_refused_like_a_check() {
    let server = TestServer::lanes(&budget("llm")).await;
    server.granted("/v1/reserve", json!({"agent": "a", "estimate": 9_000})).await;
    let denied = server.post("/v1/reserve", json!({"agent": "a", "estimate": 1_001})).await;
    assert_eq!((denied.status.as_u16(), header(&denied, "content-type")), (429, Some("application/problem+json")));
    let body = json(&denied);
    assert_eq!((&body["instance"], &body["remaining"]), (&json!("/v1/reserve"), &json!(1_000)));
    let seconds = header(&denied, "retry-after").expect("until midnight").parse::<u64>().expect("a number");
    assert!((1..=86_400).contains(&seconds), "{seconds}");
    assert!(server.limiter().rate_limited("a").expect("an id"), "it counts as a violation");
    let never = server.post("/v1/reserve", json!({"agent": "a", "estimate": 10_001})).await;
    assert_eq!((never.status.as_u16(), header(&never, "retry-after")), (429, None));
    assert_eq!(server.remaining("a").await, 1_000);
}

#[tokio::test]
async fn an_expired_reservation_keeps_the_estimate_and_an_extension_helps() {
    let server = TestServer::lanes(&budget("llm")).await;
    let id = server.granted("/v1/reserve", json!({"agent": "a", "estimate": 100, "ttl_seconds": 10})).await;
    server.clock.advance(9 * SECOND);
    let extended = server.post("/v1/extend", json!({"reservation": id, "ttl_seconds": 10})).await;
    assert_eq!(json(&extended), json!({"lane": "llm", "ttl_seconds": 10}));
    server.clock.advance(9 * SECOND);
    assert_eq!(server.post("/v1/settle", json!({"reservation": id, "used": 1, "so_far": true})).await.status, 200);
    server.clock.advance(SECOND);
    let late = server.post("/v1/settle", json!({"reservation": id, "used": 1})).await;
    assert_problem(&late, 404, Some("reservation"), "has expired");
    assert_eq!(server.remaining("a").await, 9_900, "disconnecting is not free");
}

/// The limiter's ids are consecutive numbers. If they were not sealed, a client
/// that has one could settle those of others.
#[tokio::test]
async fn nobody_can_invent_an_id() {
    let (server, other) = (TestServer::lanes(&budget("llm")).await, TestServer::lanes(&budget("llm")).await);
    let id = server.granted("/v1/reserve", json!({"agent": "a", "estimate": 100})).await;
    let elsewhere = other.granted("/v1/reserve", json!({"agent": "a", "estimate": 100})).await;
    let mut invented = vec![String::new(), "0".into(), "?".into(), elsewhere, id.to_lowercase(), format!("{id}AA")];
    for at in [0, 5, 10, 15, 16, id.len() - 1] {
        let mut near = id.clone().into_bytes();
        near[at] = if near[at] == b'A' { b'B' } else { b'A' };
        invented.push(String::from_utf8(near).expect("letters"));
    }
    for id in invented {
        for path in ["/v1/settle", "/v1/cancel", "/v1/extend"] {
            let mut body = json!({"reservation": id});
            if path == "/v1/settle" {
                body["used"] = json!(0);
            }
            assert_problem(&server.post(path, body).await, 404, Some("reservation"), "no such reservation");
        }
    }
    assert_eq!(server.remaining("a").await, 9_900);
    assert_eq!(server.post("/v1/cancel", json!({"reservation": id})).await.status, 200);
}

#[tokio::test]
async fn a_full_table_answers_503_until_something_expires() {
    let policy = Policy::builder().lane("llm", "budget 100/day").lane("ws", "held 9").build().expect("a policy");
    let server = TestServer::with(policy, |settings| {
        settings.reservations = 1;
        settings.leases = 1;
    })
    .await;
    let reserve = json!({"agent": "a", "lane": "llm", "estimate": 1, "ttl_seconds": 5});
    let hold = json!({"agent": "a", "lane": "ws", "ttl_seconds": 5});
    for (path, body, text) in [("/v1/reserve", reserve, "reservations"), ("/v1/hold", hold, "leases")] {
        server.granted(path, body.clone()).await;
        let full = server.post(path, body.clone()).await;
        assert_problem(&full, 503, None, text);
        assert_eq!(header(&full, "retry-after"), Some("1"));
        server.clock.advance(5 * SECOND);
        server.granted(path, body).await;
    }
    let ws = server.limiter().lane("ws").expect("named above");
    assert_eq!(
        server.limiter().peek(Request::new("a", ws)).expect("an id").remaining(),
        8,
        "the refused request holds no slot"
    );
}

#[tokio::test]
async fn slots_are_held_until_they_are_released() {
    let server = TestServer::lanes(&[("ws", "held 2")]).await;
    let hold = || json!({"agent": "a", "ttl_seconds": 30});
    let answer = server.post("/v1/hold", hold()).await;
    let granted = json(&answer);
    assert_eq!((answer.status.as_u16(), header(&answer, "ratelimit")), (200, Some("\"ws\";r=1")));
    assert_eq!((&granted["remaining"], &granted["ttl_seconds"]), (&json!(1), &json!(30)));
    let second = server.granted("/v1/hold", hold()).await;
    assert_ne!(granted["lease"], *second);
    let denied = server.post("/v1/hold", hold()).await;
    assert_eq!((denied.status.as_u16(), header(&denied, "retry-after")), (429, None), "the wait is unknown");
    assert_eq!(json(&denied)["instance"], "/v1/hold");
    let released = server.post("/v1/release", json!({"lease": second})).await;
    assert_eq!(json(&released), json!({"released": true, "lane": "ws", "limit": 2, "remaining": 1}));
    for lease in [second.as_str(), "", "AAAAAAAAAAAAAAAAAAAAAA", "?"] {
        let again = server.post("/v1/release", json!({"lease": lease})).await;
        assert_problem(&again, 404, Some("lease"), "it was released");
        assert_problem(&server.post("/v1/extend", json!({"lease": lease})).await, 404, Some("lease"), "no such lease");
    }
    assert_eq!(server.remaining("a").await, 1, "nothing has changed");
    server.granted("/v1/hold", hold()).await;
}

#[tokio::test]
async fn a_slot_whose_lease_has_expired_is_released() {
    let server = TestServer::lanes(&[("ws", "held 1")]).await;
    let lease = server.granted("/v1/hold", json!({"agent": "a", "ttl_seconds": 30})).await;
    server.clock.advance(29 * SECOND);
    let renewed = server.post("/v1/extend", json!({"lease": lease, "ttl_seconds": 30})).await;
    assert_eq!(json(&renewed), json!({"lane": "ws", "ttl_seconds": 30}));
    server.clock.advance(29 * SECOND);
    assert_eq!(server.remaining("a").await, 0);
    assert_eq!(server.post("/v1/hold", json!({"agent": "a"})).await.status, 429);
    server.clock.advance(SECOND);
    assert_eq!(server.remaining("a").await, 1);
    let next = server.granted("/v1/hold", json!({"agent": "a", "ttl_seconds": 30})).await;
    assert_problem(&server.post("/v1/release", json!({"lease": lease})).await, 404, Some("lease"), "has expired");
    assert_eq!(server.remaining("a").await, 0, "the next lease is still valid");
    assert_eq!(server.post("/v1/release", json!({"lease": next})).await.status, 200);
    let metrics = server.send("GET", "/metrics", &[], "").await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    for line in ["tollgate_leases 0", "tollgate_leases_limit 65536", "tollgate_leases_expired_total 1"] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

/// Leases expire by the clock even if no request arrives.
#[tokio::test]
async fn an_expired_lease_is_released_without_a_request() {
    let server = TestServer::lanes(&[("ws", "held 1")]).await;
    server.granted("/v1/hold", json!({"agent": "a", "ttl_seconds": 30})).await;
    server.clock.advance(30 * SECOND);
    let ws = tollgate::LaneId::new(0);
    // The server checks every second; the loop ends with that or with the timeout below.
    let released = async {
        while server.limiter().peek(Request::new("a", ws)).expect("an id").remaining() == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(60 * SECOND, released).await.expect("it is released");
}

/// A reset used to release a slot that was in use, and the next client got it too.
#[tokio::test]
async fn an_admins_reset_leaves_slots_to_their_holders() {
    let server = TestServer::lanes(&[("ws", "held 1")]).await;
    for change in ["reset", "forget"] {
        let lease = server.granted("/v1/hold", json!({"agent": "a"})).await;
        let bearer = format!("Bearer {ADMIN}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let path = format!("/api/admin/rate-limits/a/{change}");
        assert_eq!(server.send("POST", &path, &headers, "").await.status, 200);
        assert_eq!(server.post("/v1/hold", json!({"agent": "a"})).await.status, 429, "{change}");
        assert_eq!(server.post("/v1/release", json!({"lease": lease})).await.status, 200);
        assert_eq!(server.remaining("a").await, 1);
    }
}

/// One agent used to be able to take all reservations or leases within its limit.
#[tokio::test]
async fn one_agent_has_only_its_share_of_reservations_and_leases() {
    let policy = Policy::builder().lane("llm", "budget 100/day").lane("ws", "held 9").build().expect("a policy");
    let server = TestServer::with(policy, |settings| {
        settings.reservations_per_agent = Some(2);
        settings.leases_per_agent = Some(2);
    })
    .await;
    let reserve = |agent: &str| json!({"agent": agent, "lane": "llm", "estimate": 1});
    let hold = |agent: &str| json!({"agent": agent, "lane": "ws"});
    for (path, [body, other], setting) in [
        ("/v1/reserve", [reserve("a"), reserve("b")], "reservations_per_agent"),
        ("/v1/hold", [hold("a"), hold("b")], "leases_per_agent"),
    ] {
        server.granted(path, body.clone()).await;
        server.granted(path, body.clone()).await;
        let refused = server.post(path, body).await;
        assert_problem(&refused, 429, Some("agent"), setting);
        assert_eq!(header(&refused, "retry-after"), Some("1"));
        server.granted(path, other).await;
    }
    let parts = json!({"requests": [hold("c"), hold("c"), hold("c")]});
    assert_problem(&server.post("/v1/check/all", parts).await, 429, Some("agent"), "leases_per_agent");
    let metrics = server.send("GET", "/metrics", &[], "").await;
    let text = String::from_utf8_lossy(&metrics.body).into_owned();
    for line in [
        "tollgate_reservations 3",
        "tollgate_reservations_limit 16384",
        "tollgate_reservations_refused_total 1",
        "tollgate_leases 3",
        "tollgate_leases_refused_total 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}

#[tokio::test]
async fn settling_has_a_maximum_over_http_too() {
    let server = TestServer::lanes(&budget("llm")).await;
    let id = server.granted("/v1/reserve", json!({"agent": "a", "estimate": 100})).await;
    let refused = server.post("/v1/settle", json!({"reservation": id, "used": u64::MAX})).await;
    assert_problem(&refused, 400, Some("used"), "the most is 1000100");
    let settled = server.post("/v1/settle", json!({"reservation": id, "used": 50})).await;
    assert_eq!(json(&settled), json!({"lane": "llm", "unused": 50, "overspent": 0, "left": 0}));
}

#[tokio::test]
async fn an_exempt_agent_gets_everything_and_uses_nothing() {
    let policy = Policy::builder().lane("llm", "budget 100/day").lane("ws", "held 1").build().expect("a policy");
    let server = TestServer::with(policy, |_| {}).await;
    server.limiter().exempt("vip").expect("an id");
    let id = server.granted("/v1/reserve", json!({"agent": "vip", "lane": "llm", "estimate": 1_000_000})).await;
    assert_eq!(server.post("/v1/settle", json!({"reservation": id, "used": 2_000_000})).await.status, 200);
    let leases = [
        server.granted("/v1/hold", json!({"agent": "vip", "lane": "ws"})).await,
        server.granted("/v1/hold", json!({"agent": "vip", "lane": "ws"})).await,
    ];
    server.limiter().unexempt("vip").expect("an id");
    let held = server.granted("/v1/hold", json!({"agent": "vip", "lane": "ws"})).await;
    for lease in leases {
        let released = server.post("/v1/release", json!({"lease": lease})).await;
        assert_eq!((released.status.as_u16(), &json(&released)["remaining"]), (200, &json!(null)));
    }
    assert_eq!(server.post("/v1/hold", json!({"agent": "vip", "lane": "ws"})).await.status, 429, "{held} holds");
}

#[tokio::test]
async fn lanes_of_another_kind_are_refused_with_the_right_path() {
    let lanes = [("api", "10/min"), ("ws", "held 1"), ("login", "exact 5/5min")];
    let server = TestServer::lanes(&lanes).await;
    for (path, body, field, text) in [
        ("/v1/check", json!({"agent": "a", "lane": "ws"}), "lane", "/v1/hold"),
        ("/v1/check/many", json!({"requests": [{"agent": "a", "lane": "ws"}]}), "requests[0].lane", "/v1/hold"),
        ("/v1/hold", json!({"agent": "a", "lane": "api"}), "lane", "/v1/check"),
        ("/v1/reserve", json!({"agent": "a", "lane": "ws", "estimate": 1}), "lane", "cannot be reserved"),
        ("/v1/reserve", json!({"agent": "a", "lane": "login", "estimate": 1}), "lane", "cannot be reserved"),
    ] {
        assert_problem(&server.post(path, body).await, 400, Some(field), text);
    }
    assert_eq!(server.limiter().stats().claims, 0);
}

#[tokio::test]
async fn an_enforced_wait_applies_to_reservations_and_leases() {
    let conduct = ConductRules::default().with_curve([Duration::from_secs(1)]).with_every_denial(true);
    let conduct = conduct.with_enforced_wait(true);
    let lanes = Policy::builder().lane("llm", "budget 100/day").lane("ws", "held 1");
    let server = TestServer::with(lanes.conduct(conduct).build().expect("a policy"), |_| {}).await;
    server.limiter().record_violation("a").expect("an id");
    for (path, body) in [
        ("/v1/reserve", json!({"agent": "a", "lane": "llm", "estimate": 1})),
        ("/v1/hold", json!({"agent": "a", "lane": "ws"})),
        ("/v1/check/all", json!({"requests": [{"agent": "b", "lane": "llm"}, {"agent": "a", "lane": "llm"}]})),
    ] {
        let denied = server.post(path, body).await;
        assert_eq!(denied.status, 429, "{denied:?}");
        assert!(json(&denied)["type"].as_str().expect("a type").ends_with("#abnormal-usage-detected"), "{denied:?}");
    }
    let llm = server.limiter().lane("llm").expect("named above");
    for agent in ["a", "b"] {
        assert_eq!(server.limiter().peek(Request::new(agent, llm)).expect("an id").remaining(), 100);
    }
}

#[tokio::test]
async fn reservations_and_leases_need_the_right_to_check() {
    let policy = Policy::builder().lane("llm", "budget 100/day").build().expect("a policy");
    let server = TestServer::with(policy, |settings| settings.check_token = Some(CHECK.to_owned())).await;
    let bearer = format!("Bearer {CHECK}");
    for path in ["/v1/reserve", "/v1/settle", "/v1/cancel", "/v1/extend", "/v1/hold", "/v1/release", "/v1/check/all"] {
        assert_problem(&server.post(path, json!({})).await, 401, None, "token");
        let known = server.send("POST", path, &[("authorization", &bearer)], "{}").await;
        assert_eq!(known.status, 400, "{known:?}");
        let foreign = server.send("POST", path, &[("origin", "http://evil.example")], "{}").await;
        assert_problem(&foreign, 403, None, "other origins");
    }
}
