//! Tokens: the right one is accepted, whatever others from the same address send.

use crate::common::{ADMIN, CHECK, TestServer, assert_problem, header, json};
use serde_json::json;
use tollgate::Policy;
use tollgate_server::Settings;
use tollgate_server::client::Answer;
use tollgate_tower::address::Networks;

async fn server(change: impl FnOnce(&mut Settings)) -> TestServer {
    let policy = Policy::builder().lane("api", "1000000/s").build().expect("a policy");
    let change = |settings: &mut Settings| {
        settings.check_token = Some(CHECK.to_owned());
        change(settings);
    };
    TestServer::with(policy, change).await
}

/// Far more than an address may send.
const GUESSES_MAX: usize = 5_000;

/// Far fewer than a new address may send.
const GUESSES_FEW: usize = 100;

/// Sends wrong tokens until that is refused, and returns the refusal.
async fn guess_until_refused(server: &TestServer, forwarded: &str, guesses_max: usize) -> Option<Answer> {
    let mut client = server.client().await;
    for _ in 0..guesses_max {
        let headers = [("authorization", "Bearer a-guess"), ("x-forwarded-for", forwarded)];
        let answer = client.send("GET", "/api/admin/rate-limits", &headers, "").await.expect("an answer");
        if answer.status == 429 {
            return Some(answer);
        }
        assert_eq!(answer.status, 401);
    }
    None
}

/// Behind a proxy all clients have one address: 179 wrong tokens a second from it
/// used to refuse 94 % of the requests with the right one.
#[tokio::test]
async fn wrong_tokens_do_not_lock_out_the_right_one() {
    let server = server(|_| {}).await;
    let refused = guess_until_refused(&server, "", GUESSES_MAX).await.expect("guessing ends");
    assert_problem(&refused, 429, None, "too many wrong tokens");
    assert_eq!(header(&refused, "retry-after"), Some("1"));
    for (method, path, token, body) in [
        ("GET", "/api/admin/rate-limits", ADMIN, ""),
        ("POST", "/v1/check", ADMIN, r#"{"agent": "a"}"#),
        ("POST", "/v1/check", CHECK, r#"{"agent": "a"}"#),
    ] {
        let bearer = format!("Bearer {token}");
        assert_eq!(server.send(method, path, &[("authorization", &bearer)], body).await.status, 200, "{path}");
    }
    let log_in = json!({"token": ADMIN}).to_string();
    let headers = [("content-type", "application/json")];
    let answer = server.send("POST", "/login", &headers, &log_in).await;
    assert_eq!((answer.status.as_u16(), json(&answer)), (200, json!({"ok": true})));
}

/// Behind a trusted proxy each client has its own guesses. From other peers the header
/// is not read, or each guess could have a new address.
#[tokio::test]
async fn clients_behind_a_trusted_proxy_are_limited_separately() {
    let proxied =
        server(|settings| settings.trusted_proxies = Networks::parse(["127.0.0.1"]).expect("a network")).await;
    let direct = server(|_| {}).await;
    for (server, is_trusted) in [(proxied, true), (direct, false)] {
        assert!(guess_until_refused(&server, "6.6.6.6, 203.0.113.5", GUESSES_MAX).await.is_some());
        // The left entry is invented.
        assert!(guess_until_refused(&server, "7.7.7.7, 203.0.113.5", GUESSES_FEW).await.is_some());
        let other = guess_until_refused(&server, "203.0.113.6", GUESSES_FEW).await;
        assert_eq!(other.is_none(), is_trusted);
        let bearer = format!("Bearer {ADMIN}");
        let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", "203.0.113.5")];
        assert_eq!(server.send("GET", "/api/admin/rate-limits", &headers, "").await.status, 200);
    }
}

/// Browsers send a cookie to every port of its host: with two servers on one machine,
/// each login used to end the session at the other.
#[tokio::test]
async fn a_session_is_for_the_port_at_which_it_was_started() {
    let server = server(|_| {}).await;
    let log_in = json!({"token": ADMIN}).to_string();
    let answer = server
        .send("POST", "/login", &[("content-type", "application/json"), ("host", "127.0.0.1:8001")], &log_in)
        .await;
    let cookie = header(&answer, "set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned();
    let (name, session) = cookie.split_once('=').expect("a pair");
    assert_eq!(name, "tollgate_session_8001");
    for (host, cookie, expected) in [
        ("127.0.0.1:8001", cookie.clone(), true),
        ("127.0.0.1:8001", format!("tollgate_session_8002=other; {cookie}"), true),
        ("127.0.0.1:8002", cookie.clone(), false),
        ("127.0.0.1:8002", format!("tollgate_session_8002={session}"), false),
        ("127.0.0.1", format!("tollgate_session={session}"), false),
    ] {
        let answer = server.send("GET", "/api/dashboard/session", &[("host", host), ("cookie", &cookie)], "").await;
        assert_eq!(json(&answer), json!({"logged_in": expected}), "{host} with {cookie}");
    }
}
