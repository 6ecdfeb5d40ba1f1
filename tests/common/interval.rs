//! Calls at stale instants on a clock that moves, in a slab so tiny that agents
//! keep losing their idle records.
//!
//! The oracle knows nothing of records: whatever the order of the calls,
//! between any two instants that callers passed, no agent may be admitted more
//! than the capacity plus what refills between the two.

use crate::random::Random;
use std::collections::HashMap;
use std::thread;
use std::time::Duration;
use tollgate::{LaneId, Limit, Limiter, ManualClock, OnFull, PlanId, Policy, Request, Stats, Tick};

const LANE: LaneId = LaneId::new(0);
const SAME: PlanId = PlanId::new(1);
const THREADS: u64 = 3;
const AGENTS: u64 = 250;
const CAPACITY: u64 = 5;
const TOKEN: u64 = 1_000;
/// How old an instant may be: a few tokens.
const STALE: u64 = 3 * TOKEN;

/// What a run saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    pub(crate) admitted: u64,
    /// The most nanoseconds that an agent was admitted beyond its entitlement.
    pub(crate) excess: u64,
    pub(crate) stats: Stats,
}

/// What was admitted: which agent, when, and how much.
type Log = Vec<(u64, u64, u64)>;

pub(crate) fn stress(calls: u64) -> Report {
    let limit = Limit::new(1, Duration::from_nanos(TOKEN)).burst(CAPACITY);
    let policy = Policy::builder().lane("lane", limit).plan("same", [("lane", limit)]).build().expect("valid");
    let clock = ManualClock::new();
    clock.advance(Duration::from_nanos(10 * STALE));
    let limiter = Limiter::builder(policy).agents(1).clock(clock.clone()).on_full(OnFull::Deny);
    let limiter = limiter.build().expect("a small slab");
    let hammer = |thread: u64| {
        let mut random = Random::new(thread);
        let mut log = Log::new();
        for _ in 0..calls / THREADS {
            clock.advance(Duration::from_nanos(random.below(60)));
            let agent = random.below(AGENTS);
            let age = random.below(STALE);
            let now = Tick::from_nanos(clock.now().as_nanos() - age);
            let id = agent.to_le_bytes();
            match random.below(400) {
                0 => drop(limiter.sweep(Duration::from_nanos(age))),
                // Plans and overrides with the same numbers: debt stays as it is.
                1 => limiter.assign(id, SAME).expect("a plan"),
                2 | 3 => limiter.unassign(id).expect("an id"),
                4 => limiter.set_override(id, "lane", limit).expect("a lane"),
                5 | 6 => limiter.remove_overrides(id).expect("an id"),
                _ => {
                    let cost = 1 + random.below(CAPACITY);
                    if limiter
                        .check_request(Request::new(&id, LANE).cost(cost).at(now))
                        .is_ok_and(|verdict| verdict.is_allowed())
                    {
                        log.push((agent, now.as_nanos(), cost));
                    }
                }
            }
        }
        log
    };
    let log: Log = thread::scope(|scope| {
        let hammer = &hammer;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || hammer(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let mut by_agent: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    for (agent, now, cost) in &log {
        by_agent.entry(*agent).or_default().push((*now, *cost));
    }
    let excess = by_agent.into_values().map(excess).max().unwrap_or(0);
    Report { admitted: log.len() as u64, excess, stats: limiter.stats() }
}

/// The most that one agent was admitted, over every pair of instants, beyond
/// the capacity and the refill between them.
fn excess(mut admitted: Vec<(u64, u64)>) -> u64 {
    admitted.sort_unstable();
    let (mut sum, mut least, mut worst) = (0_i64, i64::MAX, 0);
    for (now, cost) in admitted {
        // What was admitted before this instant, minus the instant: the minimum starts the worst interval.
        least = least.min(sum - now as i64);
        sum += (cost * TOKEN) as i64;
        worst = worst.max(sum - now as i64 - least - (CAPACITY * TOKEN) as i64);
    }
    worst as u64
}
