//! Conduct: a client that does not wait gets a longer wait.

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

/// Every refusal counts, and waits grow.
fn hub_rules() -> ConductRules {
    ConductRules::default().with_curve([1, 2, 5, 10, 30].map(Duration::from_secs)).with_every_denial(true)
}

async fn get(app: &axum::Router, path: &str) -> Answer {
    send(app, request("GET", path, &[(AGENT, "agent-7")])).await
}

#[tokio::test]
async fn waits_grow_from_refusal_to_refusal_and_are_forgiven_after_a_quiet_minute() {
    let (layer, limiter, clock) = layer(hub_rules());
    let app = app(layer.count_violations());
    for _ in 0..2 {
        assert_eq!(get(&app, "/").await.status.as_u16(), 200);
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
            let refused = get(&app, "/").await;
            assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some(wait)));
            assert_eq!(refused.header("ratelimit"), Some(format!(r#""http/heavy";r=0;t={wait}"#).as_str()));
            assert!(refused.text().contains(kind), "{}", refused.text());
        }
        assert_eq!(limiter.rate_limited("agent-7"), Ok(true));
        clock.advance(Duration::from_secs(61));
    }
}

#[tokio::test]
async fn the_hub_profile_has_the_wait_in_milliseconds() {
    let (layer, ..) = layer(hub_rules());
    let app = app(layer.count_violations().profile(Profile::Hub));
    get(&app, "/").await;
    for ms in [1_000, 2_000, 5_000] {
        let body = format!(r#"{{"error":"rate_limited","retry_after_ms":{ms},"tier":"heavy"}}"#);
        assert_eq!(get(&app, "/").await.text(), body);
    }
}

#[tokio::test]
async fn a_wait_that_is_enforced_holds_on_every_lane() {
    let (layer, _, clock) = layer(hub_rules().with_enforced_wait(true));
    let app = app(layer.count_violations());
    // Conduct keeps time in eighths of a second and rounds it up.
    clock.advance(Duration::from_secs(1));
    assert_eq!(get(&app, "/").await.status.as_u16(), 200);
    assert_eq!(get(&app, "/").await.status.as_u16(), 429);
    let refused = get(&app, "/light").await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("2")));
    assert!(refused.text().contains("#abnormal-usage-detected"), "{}", refused.text());
    clock.advance(Duration::from_secs(2));
    assert_eq!(get(&app, "/light").await.status.as_u16(), 200);
}

/// Eight workers that honour Retry-After, from event to event on a manual clock.
#[tokio::test]
async fn obedient_workers_take_no_longer_than_their_tokens() {
    let curve = ConductRules::default().with_curve([1, 2, 5, 10, 30].map(Duration::from_secs));
    for (rules, most) in [(ConductRules::default(), 1.15), (curve.clone(), 1.15), (hub_rules(), f64::INFINITY)] {
        let clock = ManualClock::new();
        let policy = Policy::builder().lane("http", "20/s burst 20").conduct(rules).build().expect("valid");
        let limiter = Limiter::builder(policy).agents(100).clock(clock.clone()).build().expect("a small slab");
        let app =
            app(TollgateLayer::builder(Arc::new(limiter)).key(Key::header(AGENT)).lane("http").count_violations());
        // Each worker's next request, in milliseconds; a request takes 20.
        let (mut due, mut left, mut now) = ([0, 2, 4, 6, 8, 10, 12, 14_u64], 200, 0);
        // Ends: a refused worker waits for a finite time, and tokens come back meanwhile.
        while left > 0 {
            let worker = (0..8).min_by_key(|worker| due[*worker]).expect("there are eight");
            clock.advance(Duration::from_millis(due[worker] - now));
            now = due[worker];
            let answer = get(&app, "/").await;
            due[worker] += 20;
            match answer.header("retry-after") {
                None => left -= 1,
                Some(seconds) => due[worker] += 1_000 * seconds.parse::<u64>().expect("whole seconds"),
            }
        }
        let times_ideal = now as f64 / 9_000.0;
        assert!(times_ideal <= most, "{times_ideal}");
        assert!(most < 2.0 || times_ideal > 3.0, "the simulation has to be able to fail: {times_ideal}");
    }
}

#[tokio::test]
async fn a_refusal_has_no_consequences_by_default() {
    let (layer, limiter, _) = layer(hub_rules());
    let app = app(layer);
    get(&app, "/").await;
    for _ in 0..5 {
        assert_eq!(get(&app, "/").await.header("retry-after"), Some("1"));
    }
    assert_eq!(limiter.rate_limited("agent-7"), Ok(false));
}
