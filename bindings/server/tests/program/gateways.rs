//! The recipes of `docs/gateways`, as they stand there, with the real gateways.
//!
//! Each page has the policy file and the gateway's files. The test changes ports in them, and a minute into an hour, so
//! that nothing comes back while it runs.

#[path = "gateways/app.rs"]
mod app;
#[path = "gateways/gateway.rs"]
mod gateway;

use super::{ServerProcess, tollgate};
use gateway::{Answer, Gateway, Recipe};

const NGINX: Recipe = Recipe {
    page: include_str!("../../../../docs/gateways/nginx.md"),
    program: "nginx",
    install: "install nginx",
    arguments: &["-p", ".", "-c", "main.conf"],
    files: &[("nginx", "tollgate.conf")],
};
const CADDY: Recipe = Recipe {
    page: include_str!("../../../../docs/gateways/caddy.md"),
    program: "caddy",
    install: "install caddy",
    arguments: &["run"],
    files: &[("caddyfile", "Caddyfile")],
};
const TRAEFIK: Recipe = Recipe {
    page: include_str!("../../../../docs/gateways/traefik.md"),
    program: "traefik",
    install: "run .ci/tools, which puts one into the target directory",
    arguments: &["--configFile=traefik.yaml"],
    files: &[("yaml", "traefik.yaml"), ("yaml", "routes.yaml")],
};
const HAPROXY: Recipe = Recipe {
    page: include_str!("../../../../docs/gateways/haproxy.md"),
    program: "haproxy",
    install: "install haproxy",
    arguments: &["-f", "haproxy.cfg"],
    files: &[("haproxy", "haproxy.cfg"), ("lua", "tollgate.lua")],
};
const ENVOY: Recipe = Recipe {
    page: include_str!("../../../../docs/gateways/envoy.md"),
    program: "envoy",
    install: "run .ci/tools, which puts one into the target directory",
    arguments: &["-c", "envoy.yaml", "--disable-hot-restart", "--concurrency", "1", "--log-level", "error"],
    files: &[("yaml", "envoy.yaml")],
};

/// What a client could send to be another, to be gRPC, or to choose its lane, its cost and its plan.
const FORGED: &[(&str, &str)] = &[
    ("/", "X-Agent-Id: me4\",\"plan\":\"jwt"),
    ("/", "X-User-Id: me4\",\"plan\":\"jwt"),
    ("/", "X-Forwarded-For: 10.1.2.3"),
    ("/", "X-Forwarded-For: 10.1.2.3, 127.0.0.1\r\nX-Real-IP: 10.1.2.3\r\nForwarded: for=10.1.2.3"),
    ("/", "X-Forwarded-Uri: /free\r\nX-Forwarded-Method: OPTIONS"),
    ("/", "X-Original-URI: /free\r\nX-Original-Method: OPTIONS"),
    ("/", "Content-Type: application/grpc"),
    ("/", "Authorization: Basic c29tZWJvZHk6ZWxzZQ=="),
    ("/", "X-Tollgate-Token: one\r\nX-Tollgate-Token: another"),
    ("/", "X-Tollgate-Plan: jwt\r\nX-Tollgate-Cost: 0\r\nX-Tollgate-Lane: free"),
    ("/?plan=jwt&cost=0&lane=free", "Accept: */*"),
    ("/..;/free?deny=200", "Accept: */*"),
    ("/", "Connection: close, X-Forwarded-For, X-Forwarded-Uri"),
];

/// What clients are answered while tollgate is down, by the file as it is and without its lines that end in "open".
struct Down {
    open: Option<u16>,
    closed: u16,
}

/// Five requests pass, and the sixth is answered 429 with everything that the gateway passes on.
fn five_pass_and_no_more(recipe: &Recipe, down: &Down) {
    let Some(mut gateway) = Gateway::start(recipe) else { return };
    let first = gateway.send_until_it_has_routes("POST", "/jobs?a=b", "X-Test: 1", "a body");
    assert_eq!(first.status, 200, "{first:?}\n{}", gateway.log());
    assert_eq!(first.body, "POST /jobs?a=b with 6 bytes", "the service gets the request as it was");
    for _ in 0..4 {
        let answer = gateway.send("GET", "/", "X-Test: 1", "");
        assert_eq!((answer.status, &*answer.body), (200, "GET / with 0 bytes"), "{answer:?}\n{}", gateway.log());
        if recipe.program != "traefik" {
            assert!(answer.head("ratelimit").is_some_and(|limit| limit.starts_with("\"http/api\";r=")), "{answer:?}");
        }
    }
    let refused = gateway.send("GET", "/", "X-Test: 1", "");
    assert_refusal(&refused, &gateway);
    for (target, header) in FORGED {
        let answer = gateway.send("GET", target, header, "");
        // Envoy refuses gRPC in its own way; whether the service was reached is counted below.
        let is_refused = matches!(answer.status, 400 | 429) || answer.head("grpc-status").is_some();
        assert!(is_refused, "{header}: {answer:?}\n{}", gateway.log());
    }
    // Of the POST with the method of another, too.
    let answer = gateway.send("POST", "/", "X-HTTP-Method-Override: OPTIONS", "body");
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(gateway.requests_of_app(), 5, "the service saw what passed, and nothing else");
    if recipe.program == "nginx" {
        assert_eq!(gateway.file("error.log"), "", "a refusal is no error");
    }

    gateway.stop_tollgate();
    if let Some(status) = down.open {
        let answer = gateway.send("GET", "/", "X-Test: 1", "");
        assert_eq!(answer.status, status, "open: {answer:?}\n{}", gateway.log());
        assert_eq!(gateway.requests_of_app(), 6);
        gateway.close();
    }
    let before = gateway.requests_of_app();
    let answer = gateway.send("GET", "/", "X-Test: 1", "");
    assert_eq!(answer.status, down.closed, "closed: {answer:?}\n{}", gateway.log());
    assert_eq!(gateway.requests_of_app(), before);
}

fn assert_refusal(refused: &Answer, gateway: &Gateway) {
    assert_eq!(refused.status, 429, "{refused:?}\n{}", gateway.log());
    let wait = refused.head("retry-after").and_then(|wait| wait.parse::<u64>().ok());
    assert!(wait.is_some_and(|wait| (600..=720).contains(&wait)), "{refused:?}");
    assert_eq!(refused.head("content-type"), Some("application/problem+json"), "{refused:?}");
    assert_eq!(refused.head("ratelimit-policy"), Some("\"http/api\";q=5;w=3600"), "{refused:?}");
    let limit = format!("\"http/api\";r=0;t={}", wait.unwrap_or_default());
    assert_eq!(refused.head("ratelimit"), Some(&*limit), "{refused:?}");
    let body: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!((&body["status"], &body["retry_after"]), (&429.into(), &wait.into()), "{refused:?}");
}

#[test]
fn nginx_refuses_the_sixth_request() {
    five_pass_and_no_more(&NGINX, &Down { open: Some(200), closed: 500 });
}

#[test]
fn caddy_refuses_the_sixth_request() {
    five_pass_and_no_more(&CADDY, &Down { open: Some(200), closed: 502 });
}

#[test]
fn traefik_refuses_the_sixth_request() {
    five_pass_and_no_more(&TRAEFIK, &Down { open: None, closed: 500 });
}

#[test]
fn haproxy_refuses_the_sixth_request() {
    five_pass_and_no_more(&HAPROXY, &Down { open: Some(200), closed: 503 });
}

#[test]
fn envoy_refuses_the_sixth_request() {
    five_pass_and_no_more(&ENVOY, &Down { open: Some(200), closed: 403 });
}
