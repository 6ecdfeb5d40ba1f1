//! Plans: by authentication, by assignment, by exemption.

mod common;

use axum::Router;
use common::{AGENT, admitted, app, request, send};
use http::Request;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Limiter, ManualClock, Policy};
use tollgate_tower::{Key, TollgateLayer};

/// How a client has authenticated, set by an earlier layer.
#[derive(Clone, Copy, PartialEq)]
enum Proof {
    Token,
    ApiKey,
}

fn limited(preset: &str) -> (Router, Arc<Limiter>, ManualClock) {
    let clock = ManualClock::new();
    let policy = Policy::preset(preset).expect("a preset");
    let limiter = Limiter::builder(policy).agents(1_000).clock(clock.clone()).build().expect("a small slab");
    let limiter = Arc::new(limiter);
    let has = |proof| move |head: &tollgate_tower::Head<'_>| head.extensions.get::<Proof>() == Some(&proof);
    let layer = TollgateLayer::builder(Arc::clone(&limiter))
        .key(Key::header(AGENT))
        .lane("http/requests")
        .route("POST /auth/{*rest}", "http/auth")
        .plan("jwt", has(Proof::Token))
        .plan("api_key", has(Proof::ApiKey))
        .plan("unauthenticated", |_| true);
    (app(layer), limiter, clock)
}

fn post(agent: &str, path: &str, proof: Option<Proof>) -> Request<axum::body::Body> {
    let mut request = request("POST", path, &[(AGENT, agent)]);
    if let Some(proof) = proof {
        request.extensions_mut().insert(proof);
    }
    request
}

#[tokio::test]
async fn authentication_decides_burst_and_rate() {
    let (app, _, clock) = limited("adr");
    for (agent, proof, burst, per_second) in [
        ("user:42", Some(Proof::Token), 100, 20),
        ("key:7", Some(Proof::ApiKey), 50, 10),
        ("ip:192.0.2.7", None, 10, 2),
    ] {
        assert_eq!(admitted(&app, 300, || post(agent, "/", proof)).await, burst, "{agent}");
        for _ in 0..3 {
            clock.advance(Duration::from_secs(1));
            assert_eq!(admitted(&app, 300, || post(agent, "/", proof)).await, per_second, "{agent}");
        }
        // In every plan.
        assert_eq!(admitted(&app, 9, || post(agent, "/auth/login", proof)).await, 5, "{agent}");
        let refused = send(&app, post(agent, "/", proof)).await;
        let policy = refused.header("ratelimit-policy").expect("a header");
        assert_eq!(policy, format!(r#""http/requests";q={burst};w=5"#));
    }
}

#[tokio::test]
async fn an_assignment_takes_precedence_over_the_plan_of_the_request() {
    let (app, limiter, _) = limited("adr");
    limiter.assign("ip:192.0.2.7", limiter.plan("api_key").expect("a plan")).expect("assigned");
    assert_eq!(admitted(&app, 99, || post("ip:192.0.2.7", "/", None)).await, 50);
    limiter.set_override("ip:192.0.2.8", "http/requests", "3/min").expect("overridden");
    assert_eq!(admitted(&app, 99, || post("ip:192.0.2.8", "/", Some(Proof::Token))).await, 3);
}

#[tokio::test]
async fn an_exempt_agent_is_never_refused_and_gets_no_limit_headers() {
    let (app, limiter, _) = limited("adr");
    limiter.exempt("ip:192.0.2.7").expect("exempt");
    assert_eq!(admitted(&app, 300, || post("ip:192.0.2.7", "/", None)).await, 300);
    let answer = send(&app, post("ip:192.0.2.7", "/", None)).await;
    assert_eq!((answer.header("ratelimit"), answer.header("ratelimit-policy")), (None, None));
    limiter.unexempt("ip:192.0.2.7").expect("limited again");
    assert_eq!(admitted(&app, 300, || post("ip:192.0.2.7", "/", None)).await, 10);
}

#[test]
fn an_unknown_plan_is_refused_when_the_layer_is_built() {
    let limiter = Limiter::builder(Policy::preset("adr").expect("a preset")).agents(10).build().expect("a small slab");
    let layer = TollgateLayer::builder(limiter).key(Key::header(AGENT)).lane("http/auth").plan("gold", |_| true);
    let error = layer.build().expect_err("there is no such plan").to_string();
    assert!(error.starts_with("there is no plan \"gold\"; the limiter's policy has default, "), "{error}");
}

/// `HEAD` used to be charged like `GET`, so looking cost as much as using.
#[tokio::test]
async fn head_reports_the_limits_under_the_plan_of_the_request_and_costs_nothing() {
    let policy = Policy::preset("adr").expect("a preset");
    let limiter = Limiter::builder(policy).agents(1_000).clock(ManualClock::new()).build().expect("a small slab");
    let layer = TollgateLayer::builder(Arc::new(limiter)).key(Key::header(AGENT)).lane("http/requests");
    let has_token = |head: &tollgate_tower::Head<'_>| head.extensions.get::<Proof>() == Some(&Proof::Token);
    let app = app(layer.plan("jwt", has_token).answer_head());
    let head = |proof: Option<Proof>| {
        let mut request = request("HEAD", "/", &[(AGENT, "user:42")]);
        proof.map(|proof| request.extensions_mut().insert(proof));
        request
    };
    for left in [100, 99, 98] {
        for _ in 0..200 {
            let answer = send(&app, head(Some(Proof::Token))).await;
            let ratelimit = answer.header("ratelimit").expect("a header");
            assert_eq!((answer.status.as_u16(), answer.body.len()), (200, 0));
            assert!(ratelimit.starts_with(&format!(r#""http/requests";r={left}"#)), "{ratelimit}");
        }
        assert_eq!(send(&app, post("user:42", "/", Some(Proof::Token))).await.status.as_u16(), 200);
    }
    let answer = send(&app, head(None)).await;
    assert!(answer.header("ratelimit-policy").expect("a header").contains("q=10"), "{answer:?}");
}
