//! What the benches share: ids, our limiter, and the baseline. Nothing is measured here.

#![allow(dead_code, reason = "no bench uses all of it")]

#[path = "../../tests/common/random.rs"]
mod random;

use criterion::Criterion;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tollgate::observe::Observe;
use tollgate::{Clock, LaneId, Limit, Limiter, Policy};

/// An agent's id: 16 bytes.
pub(crate) type Id = [u8; 16];

/// Agents that do not fit into the caches.
pub(crate) const MANY: usize = 1_000_000;

/// The lane whose limit is never reached here.
pub(crate) const ALLOWED: LaneId = LaneId::new(2);
/// The lane that one check exhausts for a day.
pub(crate) const DENIED: LaneId = LaneId::new(5);

const TOKENS_PER_SECOND: u32 = 1_000_000;
const BURST: u32 = u32::MAX;

/// Criterion in a hurry: all benches together take about two minutes.
pub(crate) fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(800))
        .configure_from_args()
}

/// The id with this number: random hexadecimal digits.
pub(crate) fn id(number: u64) -> Id {
    let mut id = [0; 16];
    id.copy_from_slice(format!("{:016x}", random::Random::new(number).next()).as_bytes());
    id
}

/// Uniform draws from this many agents. Too long for the branch predictor to learn.
pub(crate) fn stream(agents: usize) -> Vec<Id> {
    let ids: Vec<Id> = (0..agents as u64).map(id).collect();
    let mut random = random::Random::new(1);
    (0..agents.max(1 << 14)).map(|_| ids[random.below(agents as u64) as usize]).collect()
}

/// Ours with six lanes, with a record for every agent of the stream.
pub(crate) fn limiter(agents: usize, clock: Clock, stream: &[Id]) -> Limiter {
    limiter_with(agents, clock, stream, None)
}

/// The same, observed if there is an `Observe`.
pub(crate) fn limiter_with(agents: usize, clock: Clock, stream: &[Id], observe: Option<Observe>) -> Limiter {
    let plenty = Limit::per_second(u64::from(TOKENS_PER_SECOND)).burst(u64::from(BURST));
    let policy = ["ws/light", "ws/heavy", "http/light", "http/heavy", "api/light"]
        .into_iter()
        .fold(Policy::builder(), |policy, lane| policy.lane(lane, plenty))
        .lane("api/heavy", Limit::per_day(1));
    let limiter = Limiter::builder(policy.build().expect("a valid policy")).agents(agents as u64).clock(clock);
    let limiter = if let Some(observe) = observe { limiter.observe(observe) } else { limiter };
    let limiter = limiter.build().expect("memory for the slab");
    for id in stream {
        let verdict = limiter.check(id, ALLOWED).expect("room for everybody");
        assert!(verdict.is_allowed());
        let _ = limiter.check(id, DENIED).expect("room for everybody");
    }
    limiter
}

/// The baseline: token buckets in a map behind a lock, one lane, as a first attempt would be.
pub(crate) struct LockedMap(Mutex<HashMap<Id, (f64, Instant)>>);

impl LockedMap {
    pub(crate) fn new(stream: &[Id]) -> Self {
        let map = Self(Mutex::default());
        assert!(stream.iter().all(|id| map.check(id)));
        map
    }

    pub(crate) fn check(&self, id: &Id) -> bool {
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (tokens, seen) = buckets.entry(*id).or_insert((f64::from(BURST), now));
        let refill = now.duration_since(*seen).as_secs_f64() * f64::from(TOKENS_PER_SECOND);
        *tokens = (*tokens + refill).min(f64::from(BURST));
        *seen = now;
        let is_allowed = *tokens >= 1.0;
        *tokens -= if is_allowed { 1.0 } else { 0.0 };
        is_allowed
    }
}
