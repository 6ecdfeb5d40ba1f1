//! Workers that share an agent, simulated on a clock that is set from event to event.

use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tollgate::{ConductRules, Request};

const WORKERS: u64 = 8;
const REQUESTS: u32 = 200;
/// 200 requests at 20 a second, of which 20 pass at once.
const IDEAL: f64 = 9.0;

fn curve() -> ConductRules {
    ConductRules::default().with_curve([1, 2, 5, 10, 30].map(Duration::from_secs))
}

/// How workers behave.
#[derive(Clone, Copy, Debug)]
struct Manner {
    /// The longest round trip of a request.
    latency_ms: u64,
    /// Waits are in whole seconds, as over HTTP.
    in_seconds: bool,
    /// A denied worker comes back after this long, whatever its wait.
    ignores: Option<Duration>,
}

#[derive(Debug, Default)]
struct Seen {
    /// How long the requests took, in seconds.
    seconds: f64,
    longest_wait: Duration,
    violations: u32,
    abuse: u32,
}

fn simulate(rules: ConductRules, manner: Manner, seed: u64) -> Seen {
    let policy = Policy::builder().lane("http", "20/s burst 20").conduct(rules).build().expect("valid");
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(10).clock(clock).build().expect("valid");
    let lane = limiter.lane("http").expect("valid");
    let mut random = seed;
    let mut latency = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_micros((random >> 33) % (manner.latency_ms * 1_000 + 1))
    };
    // The instants at which requests reach the limiter.
    let mut due: BinaryHeap<_> = (0..WORKERS).map(|worker| Reverse((latency(), worker))).collect();
    let (mut seen, mut left) = (Seen::default(), REQUESTS);
    // Ends: a denied worker waits for a finite time, and the bucket refills meanwhile.
    while let Some(Reverse((at, worker))) = due.pop() {
        let verdict = limiter
            .check_request(Request::new("agent-7", lane).at(Tick::from_nanos(at.as_nanos() as u64)).counted())
            .expect("valid");
        let mut back = at + latency();
        if verdict.is_allowed() {
            left -= 1;
            seen.seconds = at.as_secs_f64();
        } else {
            let wait = verdict.retry_after().expect("valid");
            let wait = if manner.in_seconds {
                Duration::from_secs(wait.as_nanos().div_ceil(1_000_000_000) as u64)
            } else {
                wait
            };
            back += manner.ignores.unwrap_or(wait);
            seen.longest_wait = seen.longest_wait.max(wait);
        }
        seen.violations += u32::from(verdict.violations_in_a_row() > 0);
        seen.abuse += u32::from(verdict.is_sustained_abuse());
        if left == 0 {
            break;
        }
        due.push(Reverse((back, worker)));
    }
    seen
}

const OBEDIENT: Manner = Manner { latency_ms: 0, in_seconds: false, ignores: None };

/// Denials of requests that were already under way once made the wait climb to 30 s, and eight workers that honoured it
/// took seven times as long as necessary.
#[test]
fn eight_obedient_workers_take_no_longer_than_their_tokens() {
    for rules in [ConductRules::default(), curve()] {
        for latency_ms in [0, 1, 10, 50, 100] {
            for in_seconds in [false, true] {
                for seed in 0..5 {
                    let manner = Manner { latency_ms, in_seconds, ..OBEDIENT };
                    let seen = simulate(rules.clone(), manner, seed);
                    assert!(seen.seconds <= 1.15 * IDEAL, "{rules:?} {manner:?} {seen:?}");
                    assert_eq!((seen.violations, seen.abuse), (0, 0), "{rules:?} {manner:?} {seen:?}");
                }
            }
        }
    }
}

/// The same workers where every denial counts, which shows that the simulation can fail.
#[test]
fn where_every_denial_counts_they_take_several_times_as_long() {
    let seen = simulate(curve().with_every_denial(true), Manner { latency_ms: 10, ..OBEDIENT }, 1);
    assert!(seen.seconds > 4.0 * IDEAL && seen.longest_wait == Duration::from_secs(30), "{seen:?}");
}

#[test]
fn workers_that_ignore_the_wait_meet_the_curve() {
    for pause_ms in [0, 1, 10, 50, 100] {
        let ignores = Some(Duration::from_millis(pause_ms));
        let manner = Manner { latency_ms: 2, ignores, ..OBEDIENT };
        let seen = simulate(curve(), manner, 1);
        assert_eq!(seen.longest_wait, Duration::from_secs(30), "{manner:?} {seen:?}");
        assert!(seen.violations >= 5, "{manner:?} {seen:?}");
    }
    // Without a curve the wait is the lane's. A flood is still sustained abuse.
    let flood =
        simulate(ConductRules::default(), Manner { latency_ms: 2, ignores: Some(Duration::ZERO), ..OBEDIENT }, 1);
    assert!(flood.longest_wait <= Duration::from_millis(50) && flood.violations >= 5, "{flood:?}");
}
