//! Stress on the operating system's clock: an upper bound, whatever the timing.

use crate::random::Random;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Clock, LaneId, Limit, Limiter, OnFull, Policy, Stats};

const LANE: LaneId = LaneId::new(0);
const THREADS: u64 = 4;
const CAPACITY: u64 = 20;

/// So short that a drained agent is idle again, and evicted, before it returns.
const TOKEN: Duration = Duration::from_micros(5);
const AGENTS: usize = 16;

/// What a run saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// The most that one agent was admitted.
    pub(crate) admitted: u64,
    /// The most that an agent was entitled to.
    pub(crate) entitled: u64,
    pub(crate) stats: Stats,
}

/// For this long, threads call a few agents and a stream of new ones, which
/// take the records of idle agents.
pub(crate) fn stress(length: Duration) -> Report {
    let policy = Policy::builder().lane("lane", Limit::new(1, TOKEN).burst(CAPACITY)).build().expect("valid");
    let agents: [String; AGENTS] = std::array::from_fn(|agent| format!("agent-{agent}"));
    let (start, stop) = (Barrier::new(THREADS as usize + 1), AtomicBool::new(false));
    let before = Instant::now();
    let limiter = Limiter::builder(policy).agents(1).clock(Clock::os()).on_full(OnFull::Deny);
    let limiter = limiter.build().expect("a small slab");
    let hammer = |thread: u64| {
        let mut random = Random::new(thread);
        let mut admitted = [0_u64; AGENTS];
        start.wait();
        while !stop.load(Ordering::Relaxed) {
            let index = random.below(AGENTS as u64) as usize;
            for _ in 0..CAPACITY * 2 {
                let verdict = limiter.check(&agents[index], LANE);
                admitted[index] += u64::from(verdict.is_ok_and(|verdict| verdict.is_allowed()));
            }
            for _ in 0..random.below(40) {
                // Refused or not: a new agent that finds room takes an idle record.
                let _ = limiter.check(random.next().to_le_bytes(), LANE);
            }
        }
        admitted
    };
    let admitted = thread::scope(|scope| {
        let hammer = &hammer;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || hammer(thread))).collect();
        start.wait();
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        let each = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
        each.fold([0; AGENTS], |sum, seen| std::array::from_fn(|agent| sum[agent] + seen[agent]))
    });
    // Measured around everything, so it is at least the time of any agent.
    let elapsed = before.elapsed();
    let refilled = elapsed.as_nanos().div_ceil(TOKEN.as_nanos());
    Report {
        admitted: admitted.into_iter().max().unwrap_or(0),
        entitled: CAPACITY + u64::try_from(refilled).expect("a short run"),
        stats: limiter.stats(),
    }
}
