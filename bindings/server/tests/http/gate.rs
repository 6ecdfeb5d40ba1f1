//! `/v1/gate`: who may ask, what a client cannot gain, and what an operator's mistakes look like.

use crate::common::{CHECK, TestServer, assert_problem, header, json};
use std::path::Path;
use tollgate::{OnFull, Policy};
use tollgate_server::Settings;
use tollgate_server::client::Answer;

/// Serves a policy file.
async fn serve(file: &str, change: impl FnOnce(&mut Settings)) -> TestServer {
    let policy = Policy::from_toml(file).unwrap_or_else(|error| panic!("{error}"));
    let read = Settings::from_toml(file, Path::new("")).unwrap_or_else(|error| panic!("{error}"));
    let change = |settings: &mut Settings| {
        settings.gate = read.gate;
        settings.trusted_proxies = read.trusted_proxies;
        change(settings);
    };
    TestServer::with(policy, change).await
}

async fn ask(server: &TestServer, target: &str, headers: &[(&str, &str)]) -> Answer {
    server.send("GET", target, headers, "").await
}

fn seen(answer: &Answer) -> (u16, Option<&str>) {
    (answer.status.as_u16(), header(answer, "ratelimit"))
}

#[tokio::test]
async fn it_needs_no_table_takes_any_method_and_leaves_the_body() {
    let server = TestServer::lanes(&[("api", "3/min")]).await;
    let mut client = server.client().await;
    for (method, path, status, limit) in [
        ("GET", "/v1/gate", 200, r#""api";r=2;t=20"#),
        ("PURGE", "/v1/gate/any/path?lane=other&cost=0&plan=x", 200, r#""api";r=1;t=20"#),
        ("HEAD", "/v1/gate/", 200, r#""api";r=0;t=20"#),
        ("OPTIONS", "/v1/gate", 429, r#""api";r=0;t=20"#),
    ] {
        let answer = client.send(method, path, &[], "").await.expect("an answer");
        assert_eq!(seen(&answer), (status, Some(limit)), "{method} {path}");
    }
    // A client that waits with its body gets the answer without it, and the connection ends.
    let head = [("content-length", "1000000")];
    let answer = server.send("POST", "/v1/gate", &head, &"x".repeat(1_000_000)).await;
    assert_eq!((answer.status.as_u16(), header(&answer, "connection")), (429, Some("close")));
    assert_eq!(header(&answer, "retry-after"), Some("20"));
    assert_eq!(ask(&server, "/v1/gateway", &[]).await.status, 404);
}

#[tokio::test]
async fn the_operators_url_names_lane_cost_and_plan() {
    let file = "[lanes]\napi = \"10/min\"\nrun = \"10/min\"\nws = \"held 1\"\ntotal = \"1000/min\"\n[plans.pro]\nrun = \"100/min\"\n";
    let server = serve(file, |_| {}).await;
    for (target, status, limit) in [
        ("/v1/gate?lane=api", 200, Some(r#""api";r=9;t=6"#)),
        ("/v1/gate?lane=run&cost=7", 200, Some(r#""run";r=3;t=6"#)),
        ("/v1/gate?lane=run&cost=7", 429, Some(r#""run";r=3;t=24"#)),
        ("/v1/gate?cost=7&plan=pro&lane=run", 200, Some(r#""run";r=23;t=1"#)),
        ("/v1/gate?lane=api&cost=0", 200, None),
    ] {
        let answer = ask(&server, target, &[]).await;
        assert_eq!(seen(&answer), (status, limit), "{target}: {answer:?}");
    }
    for (target, field, problem) in [
        ("/v1/gate", Some("lane"), "add ?lane= to the URL that the gateway asks, or lane to [gate]"),
        ("/v1/gate/path?lane=api", Some("lane"), "add ?lane="),
        ("/v1/gate?lane=aip", Some("lane"), "there is no lane \"aip\"; the lanes are api, run, ws"),
        ("/v1/gate?lane=ws", Some("lane"), "ws is a held lane, and a gateway never releases a slot"),
        ("/v1/gate?lane=total", Some("lane"), "there is no lane"),
        ("/v1/gate?lane=api&plan=gold", Some("plan"), "there is no plan \"gold\"; the plans are default, pro"),
        ("/v1/gate?lane=api&cost=x", Some("cost"), "give a whole number"),
        ("/v1/gate?lane=api&page=2", None, "the gate has no parameter \"page\""),
    ] {
        assert_problem(&ask(&server, target, &[]).await, 400, field, problem);
    }
}

/// Everything by which a client could try to be another, to be gRPC, or to choose what it pays.
#[tokio::test]
async fn what_a_client_sends_gains_nothing() {
    let file = r#"
        [lanes]
        api = "5/min"
        cheap = "1000/min"
        [plans.jwt]
        api = "1000/min"
        [server]
        trusted_proxies = ["127.0.0.1"]
        [gate]
        agent = ["x-user-id", "address"]
        lane = "api"
        allow_prefixes = ["/static/"]
        allow_networks = ["10.0.0.0/8"]
        [gate.routes]
        "/cheap" = "cheap"
    "#;
    let server = serve(file, |_| {}).await;
    let forged: &[&[(&str, &str)]] = &[
        &[],
        &[("content-type", "application/grpc")],
        &[("content-type", "application/grpc+proto"), ("te", "trailers")],
        &[("x-agent-id", "me4\",\"plan\":\"jwt")],
        &[("x-tollgate-plan", "jwt"), ("x-tollgate-cost", "0"), ("x-tollgate-lane", "cheap"), ("x-plan", "jwt")],
        &[("x-tollgate-token", "a-guess"), ("authorization", "Bearer a-guess")],
        &[("x-original-uri", "/cheap")],
        &[("x-original-uri", "/static/a"), ("x-original-method", "HEAD")],
        &[("x-original-url", "/cheap"), ("x-rewrite-url", "/cheap"), ("x-http-method-override", "OPTIONS")],
        &[("x-forwarded-for", "10.1.2.3")],
        &[("x-real-ip", "10.1.2.3"), ("forwarded", "for=10.1.2.3"), ("true-client-ip", "10.1.2.3")],
        &[("accept", "application/json;profile=hub")],
        &[("expect", "100-continue"), ("upgrade", "websocket")],
        &[("cost", "0"), ("plan", "jwt"), ("lane", "cheap"), ("deny", "200")],
    ];
    let mut passed = 0;
    for round in 0..3 {
        for headers in forged {
            // What the gateway sets, after what it lets through: the last entry of X-Forwarded-For is its own.
            let mut sent = headers.to_vec();
            sent.extend([("x-forwarded-for", "192.0.2.7"), ("x-forwarded-method", "GET"), ("x-forwarded-uri", "/run")]);
            let answer = ask(&server, "/v1/gate", &sent).await;
            assert!(matches!(answer.status.as_u16(), 200 | 400 | 429), "{headers:?}: {answer:?}");
            passed += usize::from(answer.status.is_success());
            let below = ask(&server, "/v1/gate/run?lane=cheap&cost=0&plan=jwt&deny=200", &sent).await;
            passed += usize::from(below.status.is_success());
            assert!(round == 0 || !answer.status.is_success(), "{headers:?}: {answer:?}");
            assert!(!answer.headers.contains_key("grpc-status"), "{headers:?}");
        }
    }
    assert_eq!(passed, 5, "of one client");
    // A query that the gateway lets through is the client's.
    let own = [("x-forwarded-uri", "/run?plan=jwt"), ("x-forwarded-method", "GET")];
    let answer = ask(&server, "/v1/gate?plan=jwt", &own).await;
    assert_problem(&answer, 400, None, "the query of this request is the client's");
    // A path that another server may read differently is below no prefix.
    let odd = [("x-forwarded-uri", "/static/../run"), ("x-forwarded-method", "GET"), ("x-forwarded-for", "192.0.2.7")];
    assert_eq!(ask(&server, "/v1/gate", &odd).await.status, 429);
}

#[tokio::test]
async fn a_gateway_that_knows_only_403_gets_it_with_everything_else() {
    let server = serve("[lanes]\napi = \"1/min\"\n[gate]\nagent = [\"x-user-id\"]", |_| {}).await;
    let user = [("x-user-id", "u"), ("x-forwarded-uri", "/run?x"), ("x-forwarded-method", "POST")];
    assert_eq!(ask(&server, "/v1/gate?deny=403", &user).await.status, 200);
    let answer = ask(&server, "/v1/gate?deny=403", &user).await;
    assert_eq!(answer.status, 403);
    assert_eq!(header(&answer, "x-tollgate-status"), Some("429"));
    assert_eq!(header(&answer, "retry-after"), Some("60"));
    assert_eq!((json(&answer)["status"].as_u64(), json(&answer)["instance"].as_str()), (Some(429), Some("/run")));
    let answer = ask(&server, "/v1/gate?deny=403", &[]).await;
    assert_eq!((answer.status.as_u16(), header(&answer, "x-tollgate-status")), (403, Some("400")));
    // Whatever is wrong with the request: nginx logs an error for any other status.
    let twice =
        [("x-forwarded-uri", "/a"), ("x-original-uri", "/b"), ("x-tollgate-token", "a"), ("x-tollgate-token", "b")];
    let answer = ask(&server, "/v1/gate?deny=403", &twice).await;
    assert_eq!((answer.status.as_u16(), header(&answer, "x-tollgate-status")), (403, Some("400")));
    let page = ask(&server, "/metrics", &[]).await;
    let page = String::from_utf8_lossy(&page.body);
    assert!(page.contains(r#"tollgate_responses_total{status="403",reason="denied"} 1"#), "{page}");
    assert!(page.contains(r#"tollgate_responses_total{status="403",reason="gate"} 2"#), "{page}");
    let denied = page.lines().any(|line| {
        line.starts_with("tollgate_decisions_total")
            && line.contains("\"api\"")
            && line.contains("deny")
            && line.ends_with(" 1")
    });
    assert!(denied, "{page}");
}

#[tokio::test]
async fn a_token_of_its_own_leaves_the_clients_authorization_alone() {
    let server = serve("[lanes]\napi = \"100/min\"", |settings| settings.check_token = Some(CHECK.to_owned())).await;
    let bearer = format!("Bearer {CHECK}");
    for (headers, status) in [
        (&[] as &[(&str, &str)], 401),
        (&[("authorization", &bearer)], 200),
        (&[("x-tollgate-token", CHECK)], 200),
        (&[("x-tollgate-token", CHECK), ("authorization", "Bearer of-the-client")], 200),
        (&[("x-tollgate-token", "a-guess"), ("authorization", &bearer)], 401),
        (&[("x-tollgate-token", CHECK), ("x-tollgate-token", "a-guess")], 400),
    ] {
        assert_eq!(ask(&server, "/v1/gate", headers).await.status, status, "{headers:?}");
    }
}

/// Envoy and Caddy pass on the host and the origin that their clients named.
#[tokio::test]
async fn a_file_with_the_table_answers_under_every_host() {
    let foreign = [("host", "shop.example"), ("origin", "https://other.example"), ("sec-fetch-site", "cross-site")];
    let plain = serve("[lanes]\napi = \"100/min\"", |_| {}).await;
    assert_problem(&plain.send("POST", "/v1/gate/run", &foreign, "").await, 421, None, "host name is not served");
    let gated = serve("[lanes]\napi = \"100/min\"\n[gate]", |_| {}).await;
    assert_eq!(gated.send("POST", "/v1/gate/run", &foreign, "").await.status, 200);
    let other = gated.send("POST", "/v1/check", &foreign, r#"{"agent": "a"}"#).await;
    assert_eq!(other.status, 421, "no other path does");
}

#[tokio::test]
async fn rules_by_route_have_a_cost_and_a_plan_and_need_to_know_the_route() {
    let file = r#"
        [lanes]
        api = "10/min"
        llm = "100/min"
        [plans.pro]
        llm = "1000/min"
        [gate]
        path_contains = [["/llm", "llm"]]
        pass_others = true
        [gate.routes]
        "POST /llm/{model}" = { lane = "llm", cost = 60 }
        "POST /llm/{model}/bulk" = { lane = "llm", cost = 300, plan = "pro" }
        "GET /free" = { lane = "api", cost = 0 }
        "/run" = "api"
    "#;
    let server = serve(file, |_| {}).await;
    for (method, uri, status, limit) in [
        ("POST", "/llm/a", 200, Some(r#""llm";r=40;t=1"#)),
        ("POST", "/llm/a?x=y", 429, Some(r#""llm";r=40;t=12"#)),
        ("POST", "/llm/a/bulk", 200, Some(r#""llm";r=100;t=1"#)),
        ("GET", "/run", 200, Some(r#""api";r=9;t=6"#)),
        ("GET", "/free", 200, None),
        ("GET", "/other", 200, None),
    ] {
        let headers = [("x-forwarded-method", method), ("x-forwarded-uri", uri)];
        let answer = ask(&server, "/v1/gate", &headers).await;
        assert_eq!(seen(&answer), (status, limit), "{method} {uri}: {answer:?}");
    }
    let answer = ask(&server, "/v1/gate", &[]).await;
    assert_problem(&answer, 400, None, "let the gateway send X-Forwarded-Uri, the path that its client requested,");
    let answer = ask(&server, "/v1/gate", &[("x-forwarded-uri", "/run")]).await;
    assert_problem(&answer, 400, None, "let the gateway send X-Forwarded-Method");
    assert_eq!(ask(&server, "/v1/gate?lane=api", &[]).await.status, 200, "its URL says the lane");
}

#[tokio::test]
async fn when_no_record_is_free_the_settings_decide() {
    for (on_error, status) in [("closed", 503), ("open", 200)] {
        let file = format!("[lanes]\napi = \"1/min\"\n[gate]\nagent = [\"x-user-id\"]\non_error = \"{on_error}\"");
        let full = |settings: &mut Settings| (settings.agents, settings.on_full) = (1, OnFull::Deny);
        let server = serve(&file, full).await;
        let mut client = server.client().await;
        let mut agents = 0;
        // Ends: there is no room for so many.
        let answer = loop {
            let agent = format!("agent-{agents}");
            let answer = client.send("GET", "/v1/gate", &[("x-user-id", &agent)], "").await.expect("an answer");
            agents += 1;
            assert!(agents < 10_000, "{answer:?}");
            if header(&answer, "ratelimit").is_none() {
                break answer;
            }
        };
        assert_eq!(answer.status, status, "{on_error}: {answer:?}");
    }
}

/// The example in `docs/policy-file.md`.
#[tokio::test]
async fn a_platform_limits_by_category_and_by_endpoint_and_exempts_what_is_its_own() {
    let page = include_str!("../../../../docs/policy-file.md");
    let (_, example) = page.split_once("This puts requests on them:").expect("the example");
    let example = example.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a policy file");
    let profile = |settings: &mut Settings| settings.profile = tollgate_tower::Profile::Platform;
    let server = serve(&example.replace("10.0.0.2", "127.0.0.1"), profile).await;
    let mut client = server.client().await;
    for (user, method, path, capacity, lane) in [
        ("a", "POST", "/auth/login", 5, "http/login"),
        ("a", "POST", "/auth/register", 3, "http/register"),
        ("a", "POST", "/auth/forgot-password", 3, "http/forgot_password"),
        ("a", "POST", "/auth/refresh", 30, "http/refresh"),
        ("a", "GET", "/auth/login", 20, "http/auth"),
        ("b", "GET", "/v2/authors", 20, "http/auth"),
        ("b", "GET", "/agents", 100, "http/list_agents"),
        ("b", "POST", "/agents", 10, "http/create_agent"),
        ("b", "POST", "/agents/7/run", 40, "http/executions"),
        ("c", "POST", "/agents/7/run/stream", 40, "http/executions"),
        ("d", "PUT", "/jobs/7/execute?now", 40, "http/executions"),
        ("d", "GET", "/", 200, "http/default"),
        ("d", "GET", "/statically", 0, "http/default"),
    ] {
        let headers = [("x-user-id", user), ("x-forwarded-method", method), ("x-forwarded-uri", path)];
        for number in 0..=capacity {
            let answer = client.send("GET", "/v1/gate", &headers, "").await.expect("an answer");
            let is_last = number == capacity;
            assert_eq!(answer.status, if is_last { 429 } else { 200 }, "{method} {path}, request {number} of {lane}");
            if is_last {
                let error = &json(&answer)["error"];
                let message = error["message"].as_str().expect("a message");
                assert_eq!(error["code"], "RATE_LIMITED");
                assert!(message.starts_with("Too many requests. Please retry after "), "{message}");
            }
        }
    }
    for (address, path) in [
        ("10.1.2.3", "/agents"),
        ("192.0.2.7", "/static/a.css"),
        ("192.0.2.7", "/health"),
        ("192.0.2.7", "/ready"),
        ("192.0.2.7", "/favicon.ico"),
    ] {
        let headers = [("x-forwarded-for", address), ("x-forwarded-method", "GET"), ("x-forwarded-uri", path)];
        for _ in 0..150 {
            let answer = client.send("GET", "/v1/gate", &headers, "").await.expect("an answer");
            let limit = header(&answer, "x-ratelimit-limit");
            assert_eq!((answer.status.as_u16(), limit), (200, None), "{address} {path}");
        }
    }
    // The same user behind two addresses is one agent, and the address counts where there is no user.
    let anonymous =
        [("x-forwarded-for", "192.0.2.7"), ("x-forwarded-method", "POST"), ("x-forwarded-uri", "/auth/login")];
    assert_eq!(client.send("GET", "/v1/gate", &anonymous, "").await.expect("an answer").status, 200);
}

#[tokio::test]
async fn a_dynamic_lane_takes_its_limit_from_the_operators_url() {
    let server = serve("[lanes]\napi = \"dynamic\"\nfixed = \"5/min\"", |_| {}).await;
    for (target, status, limit) in [
        ("/v1/gate?lane=api&limit=3/minute", 200, r#""api";r=2;t=20"#),
        ("/v1/gate?lane=api&limit=3/minute", 200, r#""api";r=1;t=20"#),
        // The debt is time: two of three tokens a minute are forty seconds, whatever the limit is now.
        ("/v1/gate?lane=api&limit=60/minute", 200, r#""api";r=19;t=1"#),
        ("/v1/gate?lane=api&limit=1/minute", 429, r#""api";r=0;t=41"#),
    ] {
        let answer = ask(&server, target, &[]).await;
        assert_eq!(seen(&answer), (status, Some(limit)), "{target}: {answer:?}");
    }
    for (target, problem) in [
        ("/v1/gate?lane=api", "limit"),
        ("/v1/gate?lane=fixed&limit=3/minute", "dynamic"),
        ("/v1/gate?lane=api&limit=fast", "is not a limit"),
    ] {
        assert_problem(&ask(&server, target, &[]).await, 400, Some("limit"), problem);
    }
    // A client's query behind the path names no limit.
    let below = ask(&server, "/v1/gate/?limit=1000/second", &[]).await;
    assert_problem(&below, 400, Some("lane"), "add ?lane=");
}

#[tokio::test]
async fn a_check_of_a_dynamic_lane_brings_its_limit() {
    let server = TestServer::lanes(&[("api", "dynamic"), ("fixed", "5/min")]).await;
    let first = server.check(r#"{"agent": "a", "lane": "api", "limit": "1/min"}"#).await;
    assert_eq!((first.status.as_u16(), json(&first)["limit"].as_u64()), (200, Some(1)), "{first:?}");
    let second = server.check(r#"{"agent": "a", "lane": "api", "limit": "1/min"}"#).await;
    assert_eq!((second.status.as_u16(), json(&second)["retry_after"].as_u64()), (429, Some(60)), "{second:?}");
    for (body, problem) in [
        (r#"{"agent": "a", "lane": "api"}"#, "limit"),
        (r#"{"agent": "a", "lane": "fixed", "limit": "1/min"}"#, "dynamic"),
        (r#"{"agent": "a", "lane": "api", "limit": "exact 5/min"}"#, "bucket"),
    ] {
        assert_problem(&server.check(body).await, 400, Some("limit"), problem);
    }
}
