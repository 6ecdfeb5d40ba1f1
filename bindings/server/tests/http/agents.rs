//! The state of an agent, health checks, access, the login.

use crate::common::{ADMIN, CHECK, TestServer, assert_problem, header, json};
use serde_json::json;
use tollgate::Policy;

#[tokio::test]
async fn reading_the_state_charges_nothing_and_head_has_the_headers() {
    let server = TestServer::lanes(&[("api", "100/min"), ("run", "10/min")]).await;
    for _ in 0..3 {
        assert_eq!(server.check(r#"{"agent": "a", "lane": "run"}"#).await.status, 200);
    }
    let mut client = server.client().await;
    for method in ["GET", "HEAD", "GET", "HEAD"] {
        let answer = client.send(method, "/v1/agents/a", &[], "").await.expect("an answer");
        assert_eq!(answer.status, 200);
        // The tightest lane in fields with room for one, all lanes in list fields.
        assert_eq!(header(&answer, "x-ratelimit-limit"), Some("10"));
        assert_eq!(header(&answer, "x-ratelimit-remaining"), Some("7"));
        let limits: Vec<_> = answer.headers.get_all("ratelimit").iter().collect();
        assert_eq!(limits, [r#""api";r=100"#, r#""run";r=7;t=6"#]);
        assert_eq!(answer.body.is_empty(), method == "HEAD");
    }
    let document = json(&server.send("GET", "/v1/agents/a", &[], "").await);
    let run = json!({"lane": "run", "limit": "10/minute", "capacity": 10, "remaining": 7, "used_percent": 30,
        "next_in_ms": 6_000, "full_in_ms": 18_000});
    assert_eq!((&document["agent"], &document["lanes"][1]), (&json!("a"), &run));
    assert_eq!(server.limiter().stats().claims, 1, "reading the state of an agent creates no record");
    assert_eq!(server.send("GET", "/v1/agents/stranger", &[], "").await.status, 200);
    assert_eq!(server.limiter().stats().claims, 1);
}

#[tokio::test]
async fn assignment_and_conduct_are_for_the_admin() {
    let server = TestServer::lanes(&[("api", "1/min")]).await;
    server.limiter().set_override("a", "api", "2/min").expect("a lane");
    for status in [200, 200, 429, 429] {
        assert_eq!(server.check(r#"{"agent": "a"}"#).await.status, status);
    }
    let open = json(&server.send("GET", "/v1/agents/a", &[], "").await);
    assert!(["plan", "overrides", "violations", "rate_limited"].iter().all(|name| open.get(name).is_none()), "{open}");
    let bearer = format!("Bearer {ADMIN}");
    let full = json(&server.send("GET", "/v1/agents/a", &[("authorization", &bearer)], "").await);
    assert_eq!(full["overrides"], json!({"api": "2/minute"}));
    assert_eq!((&full["rate_limited"], &full["plan"]), (&json!(true), &json!(null)));
    assert_eq!((&full["violations"]["in_a_row"], &full["violations"]["in_window"]), (&json!(2), &json!(2)));
    let wrong = server.send("GET", "/v1/agents/a", &[("authorization", "Bearer wrong")], "").await;
    assert_problem(&wrong, 401, None, "the token is wrong");
}

#[tokio::test]
async fn ids_in_paths_are_percent_encoded_bytes() {
    let server = TestServer::lanes(&[("api", "10/min")]).await;
    let agent = async |path: &str| json(&server.send("GET", path, &[], "").await)["agent"].clone();
    assert_eq!(agent("/v1/agents/user%3A42").await, "user:42");
    assert_eq!(agent("/v1/agents/a%2Fb").await, "a/b");
    assert_eq!(agent("/v1/agents/%FF%FE").await, json!({"base64": "//4="}));
    assert_problem(&server.send("GET", "/v1/agents/%zz", &[], "").await, 400, Some("agent"), "hexadecimal");
    let long = format!("/v1/agents/{}", "a".repeat(257));
    assert_problem(&server.send("GET", &long, &[], "").await, 400, Some("agent"), "at most 256");
}

#[tokio::test]
async fn with_a_check_token_checks_need_a_token() {
    let policy = Policy::builder().lane("api", "10/min").build().expect("a policy");
    let server = TestServer::with(policy, |settings| settings.check_token = Some(CHECK.to_owned())).await;
    let body = r#"{"agent": "a"}"#;
    let answer = server.check(body).await;
    assert_problem(&answer, 401, None, "needs a token");
    assert_eq!(header(&answer, "www-authenticate"), Some("Bearer"));
    assert_eq!(server.send("HEAD", "/v1/agents/a", &[], "").await.status, 401);
    for token in [ADMIN, CHECK] {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        assert_eq!(server.send("POST", "/v1/check", &headers, body).await.status, 200);
        assert_eq!(server.send("GET", "/v1/agents/a", &headers, "").await.status, 200);
    }
}

#[tokio::test]
async fn health_checks_and_unknown_paths() {
    let server = TestServer::lanes(&[("api", "10/min")]).await;
    for path in ["/healthz", "/readyz"] {
        let answer = server.send("GET", path, &[], "").await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (200, &b"ok\n"[..]));
        assert_eq!(server.send("HEAD", path, &[], "").await.status, 200);
    }
    let page = server.send("GET", "/", &[], "").await;
    assert_eq!(header(&page, "content-type"), Some("text/html; charset=utf-8"));
    assert!(header(&page, "content-security-policy").expect("a policy").contains("frame-ancestors 'none'"));
    assert_problem(&server.send("GET", "/nothing", &[], "").await, 404, None, "nothing at this path");
    let other = server.send("GET", "/v1/check", &[], "").await;
    assert_problem(&other, 405, None, "does not have this method");
    assert_eq!(header(&other, "allow"), Some("POST"));
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let server = TestServer::lanes(&[("api", "10/min")]).await;
    let body = r#"{"agent": "a"}"#;
    let rebound = server.send("POST", "/v1/check", &[("host", "evil.example:8787")], body).await;
    assert_problem(&rebound, 421, None, "hosts in [server]");
    let foreign = server.send("POST", "/v1/check", &[("origin", "http://evil.example")], body).await;
    assert_problem(&foreign, 403, None, "other origins");
    assert_eq!(server.limiter().stats().claims, 0);
}

#[tokio::test]
async fn the_page_logs_in_with_a_cookie_that_scripts_cannot_read() {
    let server = TestServer::lanes(&[("api", "10/min")]).await;
    let json_type = ("content-type", "application/json");
    let log_in = json!({"token": ADMIN}).to_string();
    let form = server.send("POST", "/login", &[("content-type", "text/plain")], &log_in).await;
    assert_problem(&form, 415, None, "application/json");
    let wrong = server.send("POST", "/login", &[json_type], r#"{"token": "wrong"}"#).await;
    assert_problem(&wrong, 401, None, "not the admin token");
    assert_problem(&server.send("POST", "/login", &[json_type], "{}").await, 400, Some("token"), "as a string");
    let answer = server.send("POST", "/login", &[json_type], &log_in).await;
    assert_eq!(answer.status, 200);
    let cookie = header(&answer, "set-cookie").expect("a cookie").to_owned();
    assert!(cookie.contains("; HttpOnly; SameSite=Strict;") && !cookie.contains(ADMIN), "{cookie}");
    let pair = cookie.split(';').next().expect("a pair");
    let full = json(&server.send("GET", "/v1/agents/a", &[("cookie", pair)], "").await);
    assert!(full.get("violations").is_some());
    server.send("POST", "/logout", &[("cookie", pair)], "").await;
    let open = json(&server.send("GET", "/v1/agents/a", &[("cookie", pair)], "").await);
    assert!(open.get("violations").is_none());
}

/// An agent's conduct is stored in few bits. A count at its maximum must not look exact.
#[tokio::test]
async fn a_count_at_its_maximum_is_marked() {
    let server = TestServer::lanes(&[("api", "deny")]).await;
    let admin = [("authorization", &*format!("Bearer {ADMIN}"))];
    let mut seen = Vec::new();
    for violations in [1, 1, 98] {
        for _ in 0..violations {
            server.limiter().record_violation("a").expect("an id");
            server.clock.advance(std::time::Duration::from_millis(500));
        }
        let document = json(&server.send("GET", "/v1/agents/a", &admin, "").await);
        let violations = &document["violations"];
        let counts =
            ["in_a_row", "in_a_row_or_more", "in_window", "in_window_or_more"].map(|name| violations[name].clone());
        seen.push(serde_json::json!(counts));
    }
    let expected = serde_json::json!([[1, false, 1, false], [2, false, 2, false], [15, true, 63, true]]);
    assert_eq!(serde_json::json!(seen), expected);
}

/// HEAD and a denial by cost used to send `q` without `w`, unlike every other response.
#[tokio::test]
async fn every_lane_with_a_window_sends_it() {
    let lanes = [
        ("bucket", "10/min burst 5", Some(30)),
        ("window", "window 10/min", Some(60)),
        ("exact", "exact 5/5min", Some(300)),
        ("budget", "budget 1000/day", Some(86_400)),
        ("held", "held 3", None),
        ("denied", "deny", None),
    ];
    let server = TestServer::lanes(&lanes.map(|(name, limit, _)| (name, limit))).await;
    let head = server.send("HEAD", "/v1/agents/a", &[], "").await;
    let policies: Vec<_> =
        head.headers.get_all("ratelimit-policy").iter().map(|value| value.to_str().expect("a text")).collect();
    let window = |policy: &str| policy.split(";w=").nth(1).map(|window| window.parse::<u64>().expect("a number"));
    assert_eq!(
        policies.iter().map(|policy| window(policy)).collect::<Vec<_>>(),
        lanes.map(|(.., window)| window),
        "{policies:?}"
    );
    for (name, _, expected) in lanes.into_iter().filter(|(name, ..)| !["held", "exact"].contains(name)) {
        let body = json!({"agent": "a", "lane": name, "cost": 1_000_000}).to_string();
        let denied = server.check(&body).await;
        assert_eq!((denied.status.as_u16(), header(&denied, "retry-after")), (429, None), "{name}");
        assert_eq!(window(header(&denied, "ratelimit-policy").expect("a policy")), expected, "{name}");
    }
}

/// The hub's clients used to be sent back a minute later with a request that can never pass.
#[tokio::test]
async fn no_wait_is_sent_where_waiting_does_not_help() {
    let policy = Policy::builder().lane("http/heavy", "10/min").build().expect("a policy");
    let server = TestServer::with(policy, |settings| settings.profile = tollgate_tower::Profile::Hub).await;
    let denied = server.check(r#"{"agent": "a", "cost": 11}"#).await;
    assert_eq!(denied.body, r#"{"error":"rate_limited","retry_after_ms":null,"tier":"heavy"}"#);
}
