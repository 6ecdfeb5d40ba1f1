//! The files and the data of the page; the page itself is tested in a browser.

use super::common::{ADMIN, CHECK, TestServer, assert_problem, counting, header, json};
use super::directory::Directory;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

const BEARER: (&str, &str) = ("authorization", "Bearer admin-token-0123456789");

async fn get(server: &TestServer, path: &str) -> Value {
    let answer = server.send("GET", path, &[BEARER], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    json(&answer)
}

/// The live connection, read event by event.
struct Live(BufReader<TcpStream>);

impl Live {
    async fn open(server: &TestServer, headers: &str) -> Self {
        let mut stream = TcpStream::connect(server.address).await.expect("a connection");
        let head = format!(
            "GET /api/dashboard/live?every=1 HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}\r\n\r\n",
            server.address
        );
        stream.write_all(head.as_bytes()).await.expect("a request");
        Self(BufReader::new(stream))
    }

    /// The next event with its data; `None` at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        let mut name = String::new();
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(Duration::from_secs(30), self.0.read_line(&mut line));
            if read.await.expect("an event in time").expect("a line") == 0 {
                return None;
            }
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim_end().to_owned();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, serde_json::from_str(data).expect("JSON")));
            }
        }
    }

    /// The next event of this name.
    async fn named(&mut self, name: &str) -> Value {
        loop {
            let (event, data) = self.next().await.expect("not the end");
            if event == name {
                return data;
            }
        }
    }
}

#[tokio::test]
async fn the_page_is_served_with_a_strict_policy() {
    let server = TestServer::lanes(&[("api", "10/min")]).await;
    for path in ["/", "/assets/main.js", "/assets/style.css", "/assets/uplot.js"] {
        let answer = server.send("GET", path, &[], "").await;
        assert_eq!(answer.status, 200, "{path}");
        let policy = header(&answer, "content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe") && policy.contains("require-trusted-types-for 'script'"), "{policy}");
        assert_eq!(header(&answer, "x-content-type-options"), Some("nosniff"));
    }
    assert_problem(&server.send("GET", "/assets/other.js", &[], "").await, 404, None, "no such file");
}

#[tokio::test]
async fn only_the_admin_sees_agents() {
    let server =
        TestServer::with(super::common::counting().lane("api", "10/min").build().expect("a policy"), |settings| {
            settings.check_token = Some(CHECK.to_owned())
        })
        .await;
    let check = format!("Bearer {CHECK}");
    for path in ["/api/dashboard/agents", "/api/dashboard/agents/a", "/api/dashboard/live"] {
        assert_problem(&server.send("GET", path, &[], "").await, 401, None, "needs a token");
        let answer = server.send("GET", path, &[("authorization", &check)], "").await;
        assert_problem(&answer, 403, None, "admin token");
    }
    let session = server.send("GET", "/api/dashboard/session", &[], "").await;
    assert_eq!((session.status.as_u16(), json(&session)), (200, json!({"logged_in": false})));
    assert_eq!(get(&server, "/api/dashboard/session").await, json!({"logged_in": true}));
}

#[tokio::test]
async fn agents_are_searched_sorted_and_paged_by_the_server() {
    let server = TestServer::lanes(&[("api", "100/min"), ("heavy", "10/min")]).await;
    let limiter = server.limiter();
    let lane = limiter.lane("api").expect("a lane");
    for number in 0..30 {
        assert!(
            limiter
                .check_request(tollgate::Request::new(&format!("agent-{number:02}"), lane).cost(number + 1))
                .expect("a verdict")
                .is_allowed()
        );
    }
    let page = get(&server, "/api/dashboard/agents?per_page=10&page=1").await;
    assert_eq!((&page["matched"], &page["listed"], &page["not_listed"]), (&json!(30), &json!(30), &json!(0)));
    let keys: Vec<_> = page["agents"].as_array().expect("a list").iter().map(|agent| &agent["key"]).collect();
    assert_eq!((keys.len(), keys[0]), (10, &json!("agent-19")));
    let found = get(&server, "/api/dashboard/agents?search=t-1&sort=id").await;
    assert_eq!((&found["matched"], &found["agents"][0]["key"]), (&json!(10), &json!("agent-10")));
    assert_eq!(
        found["agents"][0]["lane"],
        json!({"name": "api", "used": 11, "capacity": 100, "percent": 11, "level": "green"})
    );
    let beyond = get(&server, "/api/dashboard/agents?page=99999999999").await;
    assert_eq!(beyond["agents"], json!([]));
    for (query, field) in [("per_page=201", "per_page"), ("per_page=0", "per_page"), ("sort=colour", "sort")] {
        let answer = server.send("GET", &format!("/api/dashboard/agents?{query}"), &[BEARER], "").await;
        assert_problem(&answer, 400, Some(field), "");
    }
    for path in ["agents?page=-1", "agents?per_page=many", "live?every=soon"] {
        let answer = server.send("GET", &format!("/api/dashboard/{path}"), &[BEARER], "").await;
        assert_problem(&answer, 400, None, "invalid digit");
    }
}

#[tokio::test]
async fn one_agent_is_shown_with_every_lane() {
    let server = TestServer::lanes(&[("api", "100/min"), ("heavy", "10/min")]).await;
    let limiter = server.limiter();
    limiter.set_override("a/b", "heavy", "7/min").expect("an override");
    assert!(
        limiter
            .check_request(tollgate::Request::new("a/b", limiter.lane("heavy").expect("a lane")).cost(7))
            .expect("a verdict")
            .is_allowed()
    );
    let agent = get(&server, "/api/dashboard/agents/a%2Fb").await;
    assert_eq!((&agent["id"], &agent["known"], &agent["overrides"]), (&json!("a/b"), &json!(true), &json!(1)));
    let heavy = &agent["lanes"][1];
    assert_eq!((&heavy["limit"], &heavy["planned"]), (&json!("7/minute"), &json!("10/minute")));
    assert_eq!((&heavy["override"], &heavy["level"]), (&json!("7/minute"), &json!("red")));
    // Once forgotten, it has its assignment and nothing else.
    let headers = [BEARER, ("content-type", "application/json")];
    let answer = server.send("POST", "/api/admin/rate-limits/agents/a%2Fb/forget", &headers, "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let agent = get(&server, "/api/dashboard/agents/a%2Fb").await;
    assert_eq!((&agent["known"], &agent["lanes"][1]["used"]), (&json!(false), &json!(0)));
    assert_eq!(agent["lanes"][1]["override"], json!("7/minute"));
}

#[tokio::test]
async fn the_live_connection_carries_counts_and_events_and_ends_with_the_session() {
    let server = TestServer::lanes(&[("api", "10/min")]).await;
    let log_in = json!({"token": ADMIN}).to_string();
    let answer = server.send("POST", "/login", &[("content-type", "application/json")], &log_in).await;
    let cookie = header(&answer, "set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned();
    let mut live = Live::open(&server, &format!("cookie: {cookie}")).await;
    let (first, hello) = live.next().await.expect("an event");
    assert_eq!((first.as_str(), &hello["lanes"][0]["name"]), ("hello", &json!("api")));
    assert_eq!(hello["abuse"], json!({"violations": 10, "within_seconds": 300}));
    live.named("snapshot").await;
    for _ in 0..25 {
        server.check(r#"{"agent": "rude", "lane": "api"}"#).await;
    }
    let abuse = live.named("happened").await;
    assert_eq!((&abuse["kind"], &abuse["agent"]["key"]), (&json!("sustained_abuse"), &json!("rude")));
    let snapshot = live.named("snapshot").await;
    assert_eq!((&snapshot["violations_last_hour"], &snapshot["agents"]), (&json!(15), &json!(1)));
    assert_eq!(snapshot["offenders"][0]["violations"], 15);
    // A page that opens later has the history.
    let mut later = Live::open(&server, &format!("cookie: {cookie}")).await;
    assert_eq!(later.named("happened").await["number"], abuse["number"]);
    server.send("POST", "/logout", &[("cookie", &cookie)], "").await;
    while live.next().await.is_some() {}
}

#[tokio::test]
async fn the_page_sees_who_shares_the_limiter() {
    let authorization = format!("{}: {}", BEARER.0, BEARER.1);
    let server = TestServer::lanes(&[("api", "10/min")]).await;
    let snapshot = Live::open(&server, &authorization).await.named("snapshot").await;
    assert_eq!(snapshot.get("sharing"), Some(&Value::Null), "{snapshot}");
    let memory = Directory::in_memory("dashboard");
    let policy = counting().lane("api", "10/min").build().expect("a policy");
    let server = TestServer::with(policy, |settings| settings.slab = Some(memory.slab().into())).await;
    let sharing = Live::open(&server, &authorization).await.named("snapshot").await["sharing"].take();
    let joined = sharing["processes"][0]["joined_ms"].as_u64().expect("a time");
    let process = json!({
        "pid": std::process::id(), "joined_ms": joined, "version": env!("CARGO_PKG_VERSION"), "this": true,
    });
    let expected = json!({
        "path": format!("{}.v1", memory.slab()),
        "processes": [process],
        "takeovers": 0,
        "busy": 0,
        "detached": false,
        "policy_differs": false,
    });
    assert_eq!(sharing, expected);
}

#[tokio::test]
async fn an_open_page_does_not_delay_shutdown() {
    let mut server = TestServer::lanes(&[("api", "10/min")]).await;
    let mut live = Live::open(&server, &format!("{}: {}", BEARER.0, BEARER.1)).await;
    live.named("snapshot").await;
    server.stop();
    while live.next().await.is_some() {}
    server.stopped().await;
}
