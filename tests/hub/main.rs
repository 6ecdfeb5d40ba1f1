//! What the hub relies on, under its preset and on a manual clock.
//!
//! - `contract.rs`: a test for each point of the hub's own list of tests
//! - `pitfalls.rs`: a test for each mistake that the design rules out
//! - `rules.rs`: its other rules

#![expect(clippy::unwrap_used, reason = "a panic in a test names its line")]

mod contract;
#[path = "../common/hub_actions.rs"]
mod hub_actions;
mod pitfalls;
mod rules;

use std::time::Duration;
use tollgate::{LaneId, Limiter, ManualClock, Policy, Request, Verdict};

const NANOSECOND: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

const CHANNELS: [&str; 2] = ["ws", "http"];
const TIERS: [(&str, u64); 3] = [("light", 120), ("normal", 60), ("heavy", 10)];

/// A wait as the hub presents it.
fn retry_after_ms(wait: Option<Duration>) -> u64 {
    tollgate::clock::wait_ms(wait, 1_000, 60_000)
}

/// The hub's limiter, whose clock has run for an hour.
struct Hub {
    limiter: Limiter,
    clock: ManualClock,
}

impl Hub {
    fn new() -> Self {
        Self::with(Policy::preset("hub").unwrap())
    }

    fn with(policy: Policy) -> Self {
        let clock = ManualClock::new();
        clock.advance(60 * MINUTE);
        let limiter = Limiter::builder(policy).agents(1_000).clock(clock.clone()).build().unwrap();
        Self { limiter, clock }
    }

    fn lane(&self, name: &str) -> LaneId {
        self.limiter.lane(name).unwrap()
    }

    fn check(&self, agent: &str, lane: &str) -> Verdict {
        self.limiter.check(agent, self.lane(lane)).unwrap()
    }

    fn check_counted(&self, agent: &str, lane: &str) -> Verdict {
        self.limiter.check_request(Request::new(agent, self.lane(lane)).counted()).unwrap()
    }

    /// What is left in a lane, without charging it.
    fn left(&self, agent: &str, lane: &str) -> u64 {
        self.limiter.peek(Request::new(agent, self.lane(lane))).unwrap().remaining()
    }

    /// Checks until the first denial, and returns how many passed. No lane here
    /// holds a thousand tokens, so a limiter that never denies is detected.
    fn drain(&self, agent: &str, lane: &str) -> u64 {
        (0..1_000).take_while(|_| self.check(agent, lane).is_allowed()).count() as u64
    }

    fn drain_all(&self, agent: &str) {
        for (lane, _) in lanes() {
            self.drain(agent, &lane);
        }
    }
}

/// Every lane with its capacity.
fn lanes() -> impl Iterator<Item = (String, u64)> {
    CHANNELS.iter().flat_map(|channel| TIERS.map(|(tier, capacity)| (format!("{channel}/{tier}"), capacity)))
}
