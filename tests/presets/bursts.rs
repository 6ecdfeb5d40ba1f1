//! The presets as an agent sees them: a burst, then a denial, then the rate.

use std::time::Duration;
use tollgate::{Limiter, ManualClock, Policy, Request};

/// The lane, what passes at once, and when the next token is available.
type Expected = (&'static str, u64, Duration);

const MINUTE: Duration = Duration::from_secs(60);

fn assert_bursts(preset: &str, lanes: &[Expected]) {
    let policy = Policy::preset(preset).unwrap();
    let is_bucket = |lane| policy.limit(lane).unwrap().to_string().starts_with(char::is_numeric);
    assert_eq!(policy.lanes().filter(|(lane, _)| is_bucket(*lane)).count(), lanes.len(), "{preset}");
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(100).clock(clock.clone()).build().unwrap();
    for (name, burst, token) in lanes {
        let lane = limiter.lane(name).unwrap();
        for left in (0..*burst).rev() {
            let verdict = limiter.check("agent-7", lane).unwrap();
            assert!(verdict.is_allowed(), "{preset} {name}, {left} left");
            assert_eq!(verdict.remaining(), left, "{preset} {name}");
        }
        let verdict = limiter.check("agent-7", lane).unwrap();
        assert_eq!(verdict.retry_after(), Some(*token), "{preset} {name}");
        clock.advance(*token);
        assert!(limiter.check("agent-7", lane).unwrap().is_allowed(), "{preset} {name}");
        assert!(!limiter.check("agent-7", lane).unwrap().is_allowed(), "{preset} {name}");
    }
}

#[test]
fn hub() {
    let lanes = |channel: [&'static str; 3]| {
        [(channel[0], 120, MINUTE / 120), (channel[1], 60, MINUTE / 60), (channel[2], 10, MINUTE / 10)]
    };
    let [ws, http] = [["ws/light", "ws/normal", "ws/heavy"], ["http/light", "http/normal", "http/heavy"]].map(lanes);
    assert_bursts("hub", &[ws, http].concat());
}

#[test]
fn platform() {
    assert_bursts(
        "platform",
        &[
            ("http/default", 200, MINUTE / 100),
            ("http/auth", 20, MINUTE / 10),
            ("http/read", 200, MINUTE / 100),
            ("http/write", 100, MINUTE / 50),
            ("http/executions", 40, MINUTE / 20),
            ("http/webhooks", 2_000, MINUTE / 1_000),
            ("http/admin", 40, MINUTE / 20),
            ("http/refresh", 30, MINUTE / 30),
            ("http/list_agents", 100, MINUTE / 100),
            ("http/create_agent", 10, MINUTE / 10),
        ],
    );
}

#[test]
fn adr() {
    assert_bursts("adr", &[("http/requests", 10, MINUTE / 120), ("http/auth", 5, MINUTE / 5)]);
}

#[test]
fn citizen() {
    assert_bursts("citizen", &[("http/read", 150, MINUTE / 100), ("ws/message", 20, MINUTE / 600)]);
}

#[test]
fn standard() {
    assert_bursts(
        "standard",
        &[
            ("http/read", 100, MINUTE / 600),
            ("http/write", 20, MINUTE / 120),
            ("http/heavy", 5, MINUTE / 10),
            ("http/auth", 5, MINUTE / 5),
            ("ws/message", 20, MINUTE / 600),
        ],
    );
}

/// A user of the plan `free` got 20 + 200 + 100 at once over three lanes.
#[test]
fn plans_of_platform_count_all_requests_together() {
    for (plan, requests) in [("free", 20), ("starter", 100), ("pro", 500), ("team", 2_000), ("enterprise", 2_000)] {
        let limiter = Limiter::builder(Policy::preset("platform").unwrap());
        let limiter = limiter.agents(100).clock(ManualClock::new()).build().unwrap();
        limiter.assign("user:42", limiter.plan(plan).unwrap()).unwrap();
        let lanes = ["http/default", "http/read", "http/write", "http/executions", "http/list_agents", "http/login"];
        let lanes = lanes.map(|name| limiter.lane(name).unwrap());
        // In turn, until none of them passes.
        let rounds = (0..requests).map(|_| lanes.map(|lane| limiter.check("user:42", lane).unwrap().is_allowed()));
        let passed = rounds.flatten().filter(|is_allowed| *is_allowed).count();
        assert_eq!(passed, requests, "{plan}");
    }
}

/// Daily tokens are gone until midnight, and connections until one is closed.
#[test]
fn plans_of_platform_have_tokens_and_connections() {
    for (plan, tokens, connections) in
        [("free", 10_000, 1), ("starter", 100_000, 3), ("pro", 1_000_000, 10), ("team", 5_000_000, 50)]
    {
        let clock = ManualClock::new();
        let policy = Policy::preset("platform").unwrap();
        let limiter = Limiter::builder(policy).agents(100).clock(clock.clone()).build().unwrap();
        let [llm, ws] = ["llm/tokens", "ws/connections"].map(|name| limiter.lane(name).unwrap());
        limiter.assign("user:42", limiter.plan(plan).unwrap()).unwrap();
        clock.advance(MINUTE * 60);
        assert!(limiter.check_request(Request::new("user:42", llm).cost(tokens)).unwrap().is_allowed(), "{plan}");
        assert_eq!(limiter.check("user:42", llm).unwrap().retry_after(), Some(MINUTE * 60 * 23), "{plan}");
        for _ in 0..connections {
            assert!(limiter.hold_until_released(Request::new("user:42", ws)).unwrap().is_allowed(), "{plan}");
        }
        assert!(!limiter.hold_until_released(Request::new("user:42", ws)).unwrap().is_allowed(), "{plan}");
        limiter.release(Request::new("user:42", ws)).unwrap();
        assert!(limiter.hold_until_released(Request::new("user:42", ws)).unwrap().is_allowed(), "{plan}");
        clock.advance(MINUTE * 60 * 23);
        assert_eq!(limiter.peek(Request::new("user:42", llm)).unwrap().remaining(), tokens, "{plan}");
    }
}

/// "No burst": whatever a client does, no minute admits more than 20 writes and
/// no five minutes more than 5 login attempts.
#[test]
fn no_window_holds_more_than_its_count() {
    for (preset, name, count, window) in [
        ("citizen", "http/write", 20, MINUTE),
        ("citizen", "http/auth", 5, MINUTE * 5),
        ("platform", "http/login", 5, MINUTE),
        ("platform", "http/register", 3, MINUTE),
        ("platform", "http/forgot_password", 3, MINUTE * 5),
    ] {
        let clock = ManualClock::new();
        let policy = Policy::preset(preset).unwrap();
        let limiter = Limiter::builder(policy).agents(100).clock(clock.clone()).build().unwrap();
        let lane = limiter.lane(name).unwrap();
        let mut admitted: Vec<u32> = Vec::new();
        for second in 0..1_000 {
            if limiter.check("agent-7", lane).unwrap().is_allowed() {
                admitted.push(second);
            }
            clock.advance(Duration::from_secs(1));
        }
        for start in &admitted {
            let within = |second: &&u32| (*start..*start + window.as_secs() as u32).contains(second);
            assert!(admitted.iter().filter(within).count() <= count, "{name} from {start}");
        }
        // And the full rate passes.
        assert!(admitted.len() >= count * 1_000 / window.as_secs() as usize, "{name}");
    }
}
