//! Tokens: the right one is accepted, whatever others from the same address send.

use crate::common::{ADMIN, CHECK, TestServer, assert_problem, header, json};
use crate::directory::Directory;
use serde_json::json;
use tollgate::Policy;
use tollgate_server::client::Answer;
use tollgate_server::{Settings, Source};
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

const GATEWAY: &str = "gateway-token-0123456789";
const READER: &str = "reader-token-0123456789";
const SCRAPER: &str = "scraper-token-0123456789";

/// A server whose tokens are in its file.
async fn from_file(directory: &Directory, tokens: &str) -> TestServer {
    let text = format!("[lanes]\n\"http/read\" = \"10/min\"\n\"http/heavy\" = \"10/min\"\n{tokens}");
    let file = directory.file("tollgate.toml", &text);
    let source = Source::File(file.into());
    let (_, settings) = source.read().expect("a valid file");
    TestServer::from(source, |change| {
        change.tokens = settings.tokens;
        change.open_metrics = settings.open_metrics;
        change.trusted_proxies = settings.trusted_proxies;
    })
    .await
}

async fn status(server: &TestServer, token: &str, method: &str, path: &str, body: &str) -> u16 {
    let bearer = format!("Bearer {token}");
    server.send(method, path, &[("authorization", &bearer)], body).await.status.as_u16()
}

#[tokio::test]
async fn a_named_token_may_do_what_its_table_says() {
    let directory = Directory::new("tokens");
    let tokens = format!(
        "[server]\nopen_metrics = false\n\
         [server.tokens.gateway]\ntoken = \"{GATEWAY}\"\nlanes = [\"http/r*\"]\n\
         [server.tokens.reader]\ntoken = \"{READER}\"\nmay = \"read\"\n\
         [server.tokens.scraper]\ntoken = \"{SCRAPER}\"\nmay = \"metrics\"\n"
    );
    let server = from_file(&directory, &tokens).await;
    let read = r#"{"agent": "a", "lane": "http/read"}"#;
    let heavy = r#"{"agent": "a", "lane": "http/heavy"}"#;
    let both = format!("{{\"requests\": [{read}, {heavy}]}}");
    let estimate = r#"{"agent": "a", "lane": "http/heavy", "estimate": 1}"#;
    for (method, path, body, expected) in [
        // The gateway, the reader, the scraper, nobody, the admin.
        ("POST", "/v1/check", read, [200, 403, 403, 401, 200]),
        ("POST", "/v1/check", heavy, [403, 403, 403, 401, 200]),
        ("POST", "/v1/check/many", &both, [403, 403, 403, 401, 200]),
        ("POST", "/v1/check/all", &both, [403, 403, 403, 401, 200]),
        ("POST", "/v1/reserve", estimate, [403, 403, 403, 401, 200]),
        ("GET", "/v1/gate?lane=http/heavy", "", [403, 403, 403, 401, 200]),
        ("GET", "/v1/agents/a", "", [200, 200, 403, 401, 200]),
        ("GET", "/v1/engine", "", [200, 200, 403, 401, 200]),
        ("GET", "/metrics", "", [200, 200, 200, 401, 200]),
        ("GET", "/api/admin/rate-limits", "", [403, 403, 403, 401, 200]),
        ("GET", "/healthz", "", [200; 5]),
    ] {
        for (token, expected) in [GATEWAY, READER, SCRAPER, "", ADMIN].into_iter().zip(expected) {
            let got = if token.is_empty() {
                server.send(method, path, &[], body).await.status.as_u16()
            } else {
                status(&server, token, method, path, body).await
            };
            assert_eq!(got, expected, "{method} {path} {body} with {token:?}");
        }
    }
    // Of the requests that were refused nothing was charged: one check each, and those of the admin.
    let lanes = server.limiter().snapshot().lanes;
    assert_eq!(lanes.iter().map(|lane| lane.allowed).collect::<Vec<_>>(), [4, 5]);
    let bearer = format!("Bearer {GATEWAY}");
    let refused = server.send("POST", "/v1/check", &[("authorization", &bearer)], heavy).await;
    assert_problem(&refused, 403, Some("lane"), "the token gateway is not for the lane http/heavy");
    let answer = server.send("GET", "/v1/agents/a", &[("authorization", &bearer)], "").await;
    let document = json(&answer);
    let lanes: Vec<_> = document["lanes"].as_array().expect("a list").iter().map(|lane| &lane["lane"]).collect();
    assert_eq!(lanes, ["http/read"], "of the others it sees nothing");
    assert!(!format!("{:?}", answer.headers).contains("http/heavy"), "{answer:?}");
}

/// The new secret is added, clients take it, the old one goes: nobody is refused meanwhile.
#[tokio::test]
async fn a_secret_is_replaced_without_a_refusal() {
    let directory = Directory::new("rotation");
    let token_file = |lines: &str| directory.file("gateway-token", lines);
    let (old, new) = ("old-token-0123456789", "new-token-0123456789");
    token_file(&format!("{old}\n"));
    let server = from_file(&directory, "[server.tokens.gateway]\ntoken_file = \"gateway-token\"\n").await;
    let check = r#"{"agent": "a", "lane": "http/read"}"#;
    let expect = |expected: [u16; 2]| {
        let server = &server;
        async move {
            for (token, expected) in [old, new].into_iter().zip(expected) {
                assert_eq!(status(server, token, "POST", "/v1/check", check).await, expected, "{token}");
            }
        }
    };
    expect([200, 401]).await;
    token_file(&format!("{new}\n{old}\n"));
    expect([200, 401]).await;
    let answer = status(&server, ADMIN, "POST", "/api/admin/reload", "").await;
    assert_eq!(answer, 415, "a reload is JSON");
    server.app.reload().expect("a valid file");
    expect([200, 200]).await;
    let metrics = server.send("GET", "/metrics", &[], "").await;
    let metrics = String::from_utf8(metrics.body.to_vec()).expect("a text");
    for line in [
        r#"tollgate_token_uses_total{token="gateway",secret="1"} 1"#,
        r#"tollgate_token_uses_total{token="gateway",secret="2"} 3"#,
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line}: {metrics}");
    }
    token_file(&format!("{new}\n"));
    let outcome = server.app.reload().expect("a valid file");
    assert!(!outcome.needs_restart);
    expect([401, 200]).await;
    // An invalid file changes nothing.
    token_file("short\n");
    assert!(server.app.reload().is_err());
    expect([401, 200]).await;
}

/// A page of another origin that the operator lists reads refusals and their headers too.
#[tokio::test]
async fn pages_of_listed_origins_may_check() {
    const ORIGIN: &str = "https://app.example.com";
    let policy = Policy::builder().lane("api", "1/min").build().expect("a policy");
    let server = TestServer::with(policy, |settings| settings.cors_origins = vec![ORIGIN.to_owned()]).await;
    let check = r#"{"agent": "a"}"#;
    let from = |origin: &'static str| [("origin", origin), ("sec-fetch-site", "cross-site")];
    for expected in [200, 429] {
        let answer = server.send("POST", "/v1/check", &from(ORIGIN), check).await;
        assert_eq!(answer.status, expected);
        assert_eq!(header(&answer, "access-control-allow-origin"), Some(ORIGIN));
        assert!(header(&answer, "access-control-expose-headers").is_some_and(|names| names.contains("Retry-After")));
        assert_eq!(
            (header(&answer, "vary"), header(&answer, "access-control-allow-credentials")),
            (Some("Origin"), None)
        );
    }
    let [origin, site] = from(ORIGIN);
    let asks = [origin, site, ("access-control-request-method", "POST")];
    let preflight = server.send("OPTIONS", "/v1/check", &asks, "").await;
    assert_eq!(preflight.status, 204);
    assert!(header(&preflight, "access-control-allow-headers").is_some_and(|names| names.contains("authorization")));
    // Neither other origins nor other paths.
    for (method, origin, path, expected) in [
        ("POST", "https://evil.example", "/v1/check", 403),
        ("POST", "null", "/v1/check", 403),
        ("OPTIONS", "https://evil.example", "/v1/check", 405),
        ("POST", ORIGIN, "/api/admin/reload", 403),
        ("OPTIONS", ORIGIN, "/api/admin/reload", 405),
        ("POST", ORIGIN, "/login", 403),
    ] {
        let headers = [("origin", origin), ("access-control-request-method", "POST")];
        let answer = server.send(method, path, &headers, check).await;
        assert_eq!(answer.status, expected, "{method} {path} from {origin}");
        assert_eq!(header(&answer, "access-control-allow-origin"), None, "{method} {path} from {origin}");
    }
}
