//! All-or-none calls that are denied at the last moment, next to plain checks
//! of the same bucket on a running clock.
//!
//! Some threads request tokens and the only slot; a call that finds it free and
//! then taken gives its tokens back. Most of their calls request a slot that is
//! never free. One thread drains the bucket in bursts and lets it refill. Every
//! call passes its own instant, so each is known to the nanosecond, and the
//! oracle is exact: over every pair of instants, no more than the capacity plus
//! the refill between them.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tollgate::{LaneId, Limit, Limiter, Policy, Request, Tick};

const BUCKET: LaneId = LaneId::new(0);
const SLOT: LaneId = LaneId::new(1);
const BUSY: LaneId = LaneId::new(2);
const TOKEN_NS: u64 = 1_000;
const CAPACITY: u64 = 200;
const DEPTH_NS: u64 = CAPACITY * TOKEN_NS;

/// What a call for the slot takes from the bucket.
const TOKENS: u64 = 40;
const CALLERS: usize = 3;

/// What a run saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) admitted: u64,
    /// Calls for the slot that were denied.
    pub(crate) denied: u64,
    /// The most tokens beyond the capacity and the refill.
    pub(crate) excess: u64,
}

/// What was admitted, and when.
type Log = Vec<(Tick, u64)>;

/// Runs for this long.
pub(crate) fn stress(length: Duration) -> Report {
    let bucket = Limit::new(1, Duration::from_nanos(TOKEN_NS)).burst(CAPACITY);
    let policy =
        Policy::builder().lane("bucket", bucket).lane("slot", "held 1").lane("busy", "held 1").build().expect("valid");
    let limiter = Limiter::builder(policy).agents(10).build().expect("a small slab");
    assert!(limiter.hold_until_released(Request::new("agent", BUSY)).expect("a record is vacant").is_allowed());
    let (start, stop) = (Barrier::new(CALLERS + 2), AtomicBool::new(false));
    let caller = || {
        let (mut log, mut denied) = (Log::new(), 0);
        start.wait();
        let mut turn = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            turn += 1;
            let slot = if turn % 64 == 0 { SLOT } else { BUSY };
            let now = limiter.now();
            let part = |lane, cost| Request::new(b"agent", lane).cost(cost).at(now);
            let verdict = limiter.check_all(&[part(BUCKET, TOKENS), part(slot, 1)]);
            if verdict.expect("a cost within the limit").is_allowed() {
                log.push((now, TOKENS));
                limiter.release(Request::new("agent", SLOT)).expect("it is held");
            } else {
                denied += 1;
            }
        }
        (log, denied)
    };
    let drainer = || {
        let mut log = Log::new();
        start.wait();
        while !stop.load(Ordering::Relaxed) {
            let burst_end = limiter.now().as_nanos() + DEPTH_NS / 4;
            let next_burst = burst_end + DEPTH_NS / 2;
            while limiter.now().as_nanos() < burst_end {
                let now = limiter.now();
                if limiter
                    .check_request(Request::new("agent", BUCKET).at(now))
                    .expect("a cost within the limit")
                    .is_allowed()
                {
                    log.push((now, 1));
                }
            }
            while limiter.now().as_nanos() < next_burst {
                thread::yield_now();
            }
        }
        (log, 0)
    };
    let logs = thread::scope(|scope| {
        let mut threads: Vec<_> = (0..CALLERS).map(|_| scope.spawn(caller)).collect();
        threads.push(scope.spawn(drainer));
        start.wait();
        thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect::<Vec<_>>()
    });
    let denied = logs.iter().map(|(_, denied)| denied).sum();
    let mut log: Log = logs.into_iter().flat_map(|(log, _)| log).collect();
    log.sort_unstable();
    Report { admitted: log.iter().map(|(_, cost)| cost).sum(), denied, excess: excess(&log) }
}

/// The most tokens beyond the entitlement over any pair of instants: as in a
/// bucket that is charged in the order of the instants.
fn excess(log: &Log) -> u64 {
    let (mut full_at, mut most) = (0, 0);
    for (now, cost) in log {
        full_at = full_at.max(now.as_nanos()) + cost * TOKEN_NS;
        most = most.max((full_at - now.as_nanos()).saturating_sub(DEPTH_NS).div_ceil(TOKEN_NS));
    }
    most
}
