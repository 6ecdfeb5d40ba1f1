//! Which requests are limited, on which lane, for which agent, at what cost.

mod common;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::any;
use common::{AGENT, admitted, app, by_address, by_header, limiter, request, request_from, send, status, wall_clock};
use std::net::SocketAddr;
use std::time::Duration;
use tollgate::{Limiter, ManualClock, OnFull, Policy};
use tollgate_tower::{BuildError, Key, Profile, Style, TollgateLayer, TollgateLayerBuilder};

const ME: &[(&str, &str)] = &[(AGENT, "agent-7")];

#[tokio::test]
async fn routes_have_their_own_lanes() {
    let (layer, _) = by_header(&[
        ("default", "100/min"),
        ("login", "5/60s"),
        ("register", "3/60s"),
        ("forgot", "3/300s"),
        ("refresh", "30/60s"),
        ("create", "10/60s"),
        ("run", "20/min"),
    ]);
    let layer = layer
        .lane("default")
        .route("POST /auth/login", "login")
        .route("POST /auth/register", "register")
        .route("POST /auth/forgot-password", "forgot")
        .route("POST /auth/refresh", "refresh")
        .route("POST /agents", "create")
        .route("POST /agents/{id}/run", "run")
        .route("POST /agents/{id}/run/stream", "run");
    let app = app(layer);
    for (method, path, expected) in [
        ("POST", "/auth/login", 5),
        ("POST", "/auth/register", 3),
        ("POST", "/auth/forgot-password", 3),
        ("POST", "/auth/refresh", 30),
        ("POST", "/agents", 10),
        ("POST", "/agents/7/run", 20),
        // The same lane, by another agent's path and by another template.
        ("POST", "/agents/8/run", 0),
        ("POST", "/agents/7/run/stream", 0),
        ("GET", "/agents", 100),
        ("GET", "/anything", 0),
    ] {
        assert_eq!(admitted(&app, 120, || request(method, path, ME)).await, expected, "{method} {path}");
    }
    assert_eq!(admitted(&app, 6, || request("POST", "/auth/login", &[(AGENT, "agent-8")])).await, 5);
}

#[tokio::test]
async fn texts_in_a_path_choose_a_lane() {
    let lanes = [("default", "100/min burst 200"), ("auth", "10/min burst 20"), ("executions", "20/min burst 40")];
    let (layer, _) = by_header(&lanes);
    let layer = layer
        .lane("default")
        .path_contains("/auth", "auth")
        .path_contains("/execute", "executions")
        .path_contains("/run", "executions")
        .route("GET /authors", "default");
    let app = app(layer);
    for (path, lane) in [
        ("/auth/login", "auth"),
        ("/api/v1/auth", "auth"),
        ("/agents/7/execute", "executions"),
        ("/agents/7/run", "executions"),
        ("/auth/run", "auth"),
        ("/", "default"),
        ("/agents?next=/auth", "default"),
        ("/authors", "default"),
    ] {
        let answer = send(&app, request("GET", path, &[(AGENT, path)])).await;
        let capacity = lanes.iter().find(|(name, _)| *name == lane).map(|(_, limit)| limit.rsplit_once(' '));
        let (_, capacity) = capacity.flatten().expect("a lane with a burst");
        let policy = answer.header("ratelimit-policy").expect("a header");
        assert!(policy.starts_with(&format!("\"{lane}\";q={capacity};w=")), "{path}: {policy}");
    }
    assert_eq!(admitted(&app, 300, || request("POST", "/auth/login", ME)).await, 20);
    assert_eq!(admitted(&app, 300, || request("POST", "/agents/7/run", ME)).await, 40);
    assert_eq!(admitted(&app, 300, || request("GET", "/agents", ME)).await, 200);
}

/// The user that an earlier layer has signed in.
#[derive(Clone, Copy)]
struct User(u64);

#[tokio::test]
async fn a_signed_in_user_has_another_bucket() {
    let (limiter, _) = limiter(&[("api", "5/min")]);
    let layer = TollgateLayer::builder(limiter)
        .key(Key::function("a signed-in user", |head| Some(head.extensions.get::<User>()?.0)).prefix("user:"))
        .key(Key::address())
        .peer::<ConnectInfo<SocketAddr>>()
        .profile(Profile::Citizen);
    let app = app(layer);
    let stranger = || request_from("192.0.2.7", "GET", "/", &[]);
    let signed_in = |user| {
        let mut request = stranger();
        request.extensions_mut().insert(User(user));
        request
    };
    assert_eq!(admitted(&app, 9, stranger).await, 5);
    assert_eq!(admitted(&app, 9, || signed_in(42)).await, 5);
    assert_eq!(admitted(&app, 9, || signed_in(43)).await, 5);
    for (request, id) in [(stranger(), "ip:192.0.2.7"), (signed_in(42), "user:42")] {
        let answer = send(&app, request).await;
        assert!(answer.text().ends_with(&format!(r#""agent_id":"{id}"}}"#)), "{}", answer.text());
    }
}

#[tokio::test]
async fn strangers_are_limited_by_their_address_and_more_so_where_they_register() {
    let layer = by_address(&[("most", "60/min"), ("register", "5/min")]);
    let app = app(layer.lane("most").route("POST /register", "register").route("POST /onboard", "register"));
    for peer in ["192.0.2.7", "2001:db8::7"] {
        assert_eq!(admitted(&app, 9, || request_from(peer, "POST", "/register", &[])).await, 5);
        assert_eq!(admitted(&app, 9, || request_from(peer, "POST", "/onboard", &[])).await, 0);
        assert_eq!(admitted(&app, 99, || request_from(peer, "GET", "/", &[])).await, 60);
    }
    assert_eq!(status(&app, request_from("2001:db8::8", "GET", "/", &[])).await, 429, "the same /64");
    assert_eq!(status(&app, request_from("2001:db8:0:1::8", "GET", "/", &[])).await, 200);
    assert_eq!(status(&app, request_from("::ffff:192.0.2.7", "GET", "/", &[])).await, 429, "the same IPv4 address");
    assert_eq!(status(&app, request_from("::ffff:192.0.2.8", "GET", "/", &[])).await, 200);
}

/// A layer that admits only what is never limited.
fn closed() -> TollgateLayerBuilder {
    by_address(&[("api", "deny")])
}

#[tokio::test]
async fn what_is_listed_is_never_limited_and_nothing_is_listed_by_default() {
    for (peer, path) in [("127.0.0.1", "/health"), ("10.1.2.3", "/metrics"), ("::1", "/static/a.css")] {
        assert_eq!(status(&app(closed()), request_from(peer, "GET", path, &[])).await, 429, "{peer} {path}");
    }
    let layer = closed()
        .allow_network("10.0.0.0/8")
        .allow_route("GET /api/v1/health")
        .allow_route("GET /metrics")
        .allow_route("/ready")
        .allow_prefix("/static/")
        .allow_route("/favicon.ico");
    let app = app(layer);
    for (peer, method, path, expected) in [
        ("10.1.2.3", "POST", "/run", 200),
        ("::ffff:10.1.2.3", "POST", "/run", 200),
        ("11.1.2.3", "POST", "/run", 429),
        ("192.0.2.7", "GET", "/api/v1/health", 200),
        ("192.0.2.7", "HEAD", "/api/v1/health", 200),
        ("192.0.2.7", "POST", "/api/v1/health", 429),
        ("192.0.2.7", "GET", "/metrics", 200),
        ("192.0.2.7", "DELETE", "/metrics", 429),
        ("192.0.2.7", "POST", "/ready", 200),
        ("192.0.2.7", "GET", "/ready/run", 429),
        ("192.0.2.7", "GET", "/static/x", 200),
        ("192.0.2.7", "GET", "/staticx", 429),
        ("192.0.2.7", "GET", "/favicon.ico", 200),
        // Paths that another server may take for `/run`.
        ("192.0.2.7", "GET", "/static/../run", 429),
        ("192.0.2.7", "GET", "/static/%2e%2e/run", 429),
        ("192.0.2.7", "GET", "/static/..%2Frun", 429),
        ("192.0.2.7", "GET", "/static//run", 429),
    ] {
        let answer = send(&app, request_from(peer, method, path, &[])).await;
        assert_eq!(answer.status.as_u16(), expected, "{peer} {method} {path}");
        assert_eq!(answer.header("ratelimit").is_some(), expected == 429, "only a limited request has limit headers");
    }
    assert_eq!(admitted(&app, 10_000, || request_from("192.0.2.7", "GET", "/metrics", &[])).await, 10_000);
}

#[tokio::test]
async fn this_machine_is_exempt_only_if_allowed() {
    for (address, limited) in
        [("127.0.0.1", false), ("127.8.9.1", false), ("::1", false), ("192.0.2.7", true), ("::2", true)]
    {
        let from = || request_from(address, "POST", "/run", &[]);
        assert_eq!(status(&app(closed().allow_loopback()), from()).await == 429, limited, "{address}");
        assert_eq!(status(&app(closed()), from()).await, 429, "not by default: {address}");
    }
}

/// A reverse proxy inside an allowed network would exempt every client.
#[tokio::test]
async fn a_network_is_not_exempt_for_requests_it_forwards() {
    let from_proxy = |headers| request_from("10.0.0.1", "POST", "/run", headers);
    let app_trusting = |proxies: &[&str]| {
        let layer = closed().allow_network("10.0.0.0/8").allow_network("192.0.2.7");
        app(layer.trusted_proxies(proxies.iter().copied()))
    };
    let stranger = [("x-forwarded-for", "203.0.113.5")];
    let friend = [("x-forwarded-for", "192.0.2.7")];
    let claims = [("x-forwarded-for", "192.0.2.7, 203.0.113.5")];
    for (proxies, headers, expected) in [
        (&[] as &[&str], &[] as &[(&str, &str)], 200),
        (&[], &stranger, 429),
        (&[], &friend, 429),
        (&[], &[("forwarded", "for=192.0.2.7")], 429),
        (&[], &[("x-real-ip", "192.0.2.7")], 429),
        (&["10.0.0.1"], &stranger, 429),
        (&["10.0.0.1"], &friend, 200),
        (&["10.0.0.1"], &claims, 429),
        (&["10.0.0.1"], &[("x-forwarded-for", "nonsense")], 429),
    ] {
        assert_eq!(status(&app_trusting(proxies), from_proxy(headers)).await, expected, "{proxies:?} {headers:?}");
    }
}

#[tokio::test]
async fn a_cost_is_charged_whole_or_not_at_all() {
    let (layer, _) = by_header(&[("api", "10/min")]);
    let layer =
        layer.cost(|head| head.headers.get("x-cost").and_then(|cost| cost.to_str().ok()?.parse().ok()).unwrap_or(1));
    let app = app(layer);
    let costing = |cost: &'static str| request("GET", "/", &[(AGENT, "agent-7"), ("x-cost", cost)]);
    let limits = |answer: &common::Answer| {
        let header = |name: &str| answer.header(name).map(str::to_string);
        (answer.status.as_u16(), header("ratelimit"), header("retry-after"))
    };
    let expect =
        |status, limit: &str, retry: Option<&str>| (status, Some(limit.to_string()), retry.map(str::to_string));

    assert_eq!(limits(&send(&app, costing("7")).await), expect(200, r#""api";r=3;t=6"#, None));
    assert_eq!(limits(&send(&app, costing("5")).await), expect(429, r#""api";r=3;t=12"#, Some("12")));
    // A cost that can never pass has no Retry-After.
    let never = send(&app, costing("11")).await;
    assert_eq!(limits(&never), expect(429, r#""api";r=3"#, None));
    assert!(never.text().contains("The request costs 11, and api never holds more than 10."), "{}", never.text());
    // A request that costs nothing passes without headers.
    assert_eq!(limits(&send(&app, costing("0")).await), (200, None, None));
    assert_eq!(limits(&send(&app, costing("3")).await), expect(200, r#""api";r=0;t=6"#, None));
}

#[tokio::test]
async fn other_requests_can_be_let_through() {
    let (layer, _) = by_header(&[("run", "1/min"), ("more", "1/min")]);
    let app = app(layer.pass_others().route("POST /run", "run"));
    assert_eq!(admitted(&app, 3, || request("GET", "/", &[])).await, 3, "they need no key");
    assert_eq!(admitted(&app, 3, || request("POST", "/run", ME)).await, 1);
}

#[tokio::test]
async fn a_request_without_a_key_gets_an_error_that_says_what_to_send() {
    let (layer, _) = by_header(&[("api", "1/min")]);
    let app = app(layer.profile(Profile::Hub));
    let answer = send(&app, request("GET", "/", &[])).await;
    assert_eq!((answer.status.as_u16(), answer.header("content-type")), (400, Some("application/problem+json")));
    assert!(answer.text().contains("it needs the header x-agent-id"), "{}", answer.text());
    let answer = send(&app, request("GET", "/", &[(AGENT, "a"), (AGENT, "b")])).await;
    assert_eq!(answer.status.as_u16(), 400);
    assert!(answer.text().contains("send it once"), "{}", answer.text());
}

#[tokio::test]
async fn a_secret_is_in_no_answer() {
    for profile in Profile::all() {
        let (limiter, _) = limiter(&[("api", "deny")]);
        let layer = TollgateLayer::builder(limiter).key(Key::secret_header("x-api-key")).profile(profile);
        let answer = send(&app(layer), request("GET", "/", &[("x-api-key", "s3cret")])).await;
        assert_eq!(answer.status.as_u16(), 429);
        assert!(!format!("{answer:?}").contains("s3cret"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_full_limiter_answers_503() {
    let policy = Policy::builder().lane("api", "1/min").build().expect("valid");
    let limiter = Limiter::builder(policy).agents(1).on_full(OnFull::Deny).clock(ManualClock::new());
    let layer = TollgateLayer::builder(limiter.build().expect("a small slab")).key(Key::header(AGENT));
    let app = app(layer);
    for agent in 0..100_000 {
        let answer = send(&app, request("GET", "/", &[(AGENT, &format!("agent-{agent}"))])).await;
        if answer.status.as_u16() != 200 {
            assert_eq!(answer.status.as_u16(), 503);
            assert!(answer.text().contains("#temporary-reduced-capacity"), "{}", answer.text());
            assert!(answer.text().contains("build the limiter for more agents"), "{}", answer.text());
            return;
        }
    }
    panic!("a limiter for one agent took 100,000");
}

#[tokio::test]
async fn headers_can_be_limited_to_when_little_is_left() {
    let (layer, _) = by_header(&[("api", "10/min")]);
    let app = app(layer.headers_only_when_low());
    let mut has_header = Vec::new();
    for _ in 0..11 {
        has_header.push(send(&app, request("GET", "/", ME)).await.header("ratelimit").is_some());
    }
    // 1 and 0 are less than 20 % of 10; then it is refused.
    assert_eq!(has_header, [[false; 8].as_slice(), &[true; 3]].concat());
}

/// The time at which the lane is full is computed when the response leaves: a
/// slow service must not put it into the past.
#[tokio::test]
async fn a_slow_service_reports_the_same_time_and_never_a_past_one() {
    for (takes, reset) in [(0, "1061"), (50, "1011"), (60, "1001"), (500, "1001")] {
        let (layer, clock) = by_header(&[("api", "1/min")]);
        let layer = layer.style(Style::Legacy).wall_clock(wall_clock).build().expect("valid");
        let slow = move || async move { clock.advance(Duration::from_secs(takes)) };
        let app = Router::new().fallback(any(slow)).layer(layer);
        let answer = send(&app, request("GET", "/", ME)).await;
        assert_eq!(answer.header("x-ratelimit-reset"), Some(reset), "after {takes} s");
    }
}

#[tokio::test]
async fn nested_layers_charge_in_order_and_report_both() {
    let (agents, _) = by_header(&[("agents", "2/min")]);
    let addresses = by_address(&[("addresses", "3/min")]);
    let app = Router::new()
        .fallback(any(|| async { "hello" }))
        .layer(agents.build().expect("valid"))
        .layer(addresses.build().expect("valid"));
    let get = || request_from("192.0.2.7", "GET", "/", ME);
    let limits = |answer: &common::Answer| {
        let values = answer.headers.get_all("ratelimit").iter();
        values.map(|value| value.to_str().expect("a text").to_string()).collect::<Vec<_>>().join(", ")
    };
    let first = send(&app, get()).await;
    assert_eq!((first.status.as_u16(), limits(&first).as_str()), (200, r#""agents";r=1;t=30, "addresses";r=2;t=20"#));
    send(&app, get()).await;
    // The agent is at its limit, and the wait is that of the limit that refused.
    let inner = send(&app, get()).await;
    assert_eq!((inner.status.as_u16(), limits(&inner).as_str()), (429, r#""agents";r=0;t=30, "addresses";r=0;t=20"#));
    assert_eq!(inner.header("retry-after"), Some("30"));
    // Now the address is too, and the inner layer is not called.
    let outer = send(&app, get()).await;
    assert_eq!((outer.status.as_u16(), limits(&outer).as_str()), (429, r#""addresses";r=0;t=20"#));
}

#[test]
fn settings_that_cannot_work_are_refused_when_the_layer_is_built() {
    let lanes = [("a", "1/min"), ("b", "1/min")];
    let two = || by_header(&lanes).0;
    let error = |layer: TollgateLayerBuilder| layer.build().expect_err("it cannot work");
    let known = vec!["a".to_string(), "b".to_string()];
    let unknown = BuildError::UnknownLane { lane: "c".into(), known };
    assert_eq!(unknown.to_string(), "there is no lane \"c\"; the limiter's policy has a, b");
    for layer in [two().lane("c"), two().lane("a").route("/x", "c"), two().lane("a").path_contains("/x", "c")] {
        assert_eq!(error(layer), unknown);
    }
    assert_eq!(error(two()), BuildError::NoLane);
    let held = || by_header(&[("ws", "held 3"), ("a", "1/min")]).0;
    for layer in [held().lane("ws"), held().lane("a").route("/x", "ws"), by_header(&[("ws", "held 3")]).0] {
        assert_eq!(error(layer), BuildError::HeldLane { lane: "ws".into() });
    }
    assert!(BuildError::NoLane.to_string().contains(".pass_others()"));

    let bare = || TollgateLayer::builder(limiter(&[("a", "1/min")]).0);
    assert!(error(bare()).to_string().contains("add a key"));
    for layer in [
        bare().key(Key::address()),
        bare().key(Key::header(AGENT)).allow_network("10.0.0.0/8"),
        bare().key(Key::header(AGENT)).trusted_proxies(["10.0.0.0/8"]),
    ] {
        let error = error(layer);
        assert_eq!(error, BuildError::NoPeer);
        assert!(error.to_string().contains(".peer::<ConnectInfo<SocketAddr>>()"), "{error}");
    }

    let one = || by_address(&[("a", "1/min")]);
    for (layer, text) in [
        (one().route("post /x", "a"), "route \"post /x\": the method has to be in capitals"),
        (one().allow_route("metrics"), "route \"metrics\": the path has to begin with /"),
        (one().route("/{a}", "a").route("/{b}", "a"), "it covers the same requests as \"/{a}\""),
        (one().allow_network("ten"), "\"ten\" is not a network"),
        (one().trusted_proxies(["10.0.0.0/99"]), "\"10.0.0.0/99\" is not a network"),
        (one().trusted_proxies(["0.0.0.0/0"]), "to trust 0.0.0.0/0 lets every client choose its address"),
        (one().trusted_proxies(["::/0"]), "list the networks of your proxies"),
        (one().allow_prefix("static"), "\"static\" is not a path; it has to begin with /"),
        (one().path_contains("", "a"), "it has to begin with /"),
    ] {
        let error = error(layer).to_string();
        assert!(error.contains(text), "{error}");
    }
}
