//! Conduct: who goes on after a refusal is told to wait longer.

mod common;

use common::{AGENT, Answer, app, request, send};
use std::sync::Arc;
use std::time::Duration;
use tollgate::{ConductRules, Limiter, ManualClock, Policy};
use tollgate_tower::{Key, Profile, TollgateLayer, TollgateLayerBuilder};

fn layer(rules: ConductRules) -> (TollgateLayerBuilder, Arc<Limiter>, ManualClock) {
    let clock = ManualClock::new();
    let policy = Policy::builder().lane("http/heavy", "1/s").lane("http/light", "9/s").conduct(rules).build();
    let limiter = Limiter::builder(policy.expect("valid")).agents(100).clock(clock.clone()).build();
    let limiter = Arc::new(limiter.expect("a small slab"));
    let layer = TollgateLayer::builder(Arc::clone(&limiter)).key(Key::header(AGENT));
    (layer.lane("http/heavy").route("/light", "http/light"), limiter, clock)
}

async fn ask(app: &axum::Router, path: &str) -> Answer {
    send(app, request("GET", path, &[(AGENT, "agent-7")])).await
}

#[tokio::test]
async fn waits_grow_from_refusal_to_refusal_and_are_forgiven_after_a_quiet_minute() {
    let (layer, limiter, clock) = layer(ConductRules::default());
    let app = app(layer.count_violations());
    for _ in 0..2 {
        assert_eq!(ask(&app, "/").await.status.as_u16(), 200);
        assert_eq!(limiter.rate_limited("agent-7"), Ok(false));
        // The first wait is no longer than the bucket's own.
        for (wait, kind) in [
            ("1", "#quota-exceeded"),
            ("2", "#abnormal-usage-detected"),
            ("5", "#abnormal-usage-detected"),
            ("10", "#abnormal-usage-detected"),
            ("30", "#abnormal-usage-detected"),
            ("30", "#abnormal-usage-detected"),
        ] {
            let refused = ask(&app, "/").await;
            assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some(wait)));
            assert_eq!(refused.header("ratelimit"), Some(format!(r#""http/heavy";r=0;t={wait}"#).as_str()));
            assert!(refused.text().contains(kind), "{}", refused.text());
        }
        assert_eq!(limiter.rate_limited("agent-7"), Ok(true));
        clock.advance(Duration::from_secs(61));
    }
}

#[tokio::test]
async fn the_hub_tells_the_wait_in_milliseconds() {
    let (layer, ..) = layer(ConductRules::default());
    let app = app(layer.count_violations().profile(Profile::Hub));
    ask(&app, "/").await;
    for ms in [1_000, 2_000, 5_000] {
        let body = format!(r#"{{"error":"rate_limited","retry_after_ms":{ms},"tier":"heavy"}}"#);
        assert_eq!(ask(&app, "/").await.text(), body);
    }
}

#[tokio::test]
async fn a_wait_that_is_enforced_holds_on_every_lane() {
    for (coalesce, wait) in [(false, 2), (true, 1)] {
        let rules = ConductRules::default().with_enforced_wait(true).with_coalescing(coalesce);
        let (layer, _, clock) = layer(rules);
        let app = app(layer.count_violations());
        // Conduct keeps time in eighths of a second and rounds it up.
        clock.advance(Duration::from_secs(1));
        assert_eq!(ask(&app, "/").await.status.as_u16(), 200);
        assert_eq!(ask(&app, "/").await.status.as_u16(), 429);
        let refused = ask(&app, "/light").await;
        assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some(wait.to_string().as_str())));
        assert!(refused.text().contains("#abnormal-usage-detected"), "{}", refused.text());
        clock.advance(Duration::from_secs(wait));
        assert_eq!(ask(&app, "/light").await.status.as_u16(), 200);
    }
}

#[tokio::test]
async fn a_refusal_has_no_consequences_unless_they_are_asked_for() {
    let (layer, limiter, _) = layer(ConductRules::default());
    let app = app(layer);
    ask(&app, "/").await;
    for _ in 0..5 {
        assert_eq!(ask(&app, "/").await.header("retry-after"), Some("1"));
    }
    assert_eq!(limiter.rate_limited("agent-7"), Ok(false));
}
