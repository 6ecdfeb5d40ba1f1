//! A check of each kind of lane, and all-or-none calls beside as many single
//! checks. One thread, one agent whose record is in cache, all allowed, at the
//! caller's own `now`: the clock is not in it. Budgets look at the wall clock
//! once a second.
//!
//! Each charge is given back, so that lanes never run out: a figure of a kind
//! is a check and a refund, and the bucket is the baseline.

mod common;

use common::criterion;
use std::hint::black_box;
use std::time::Duration;
use tollgate::{LaneId, Limiter, Policy, Request, Tick};

const KINDS: [(&str, &str); 6] = [
    ("bucket", "1000000/s"),
    ("window", "window 1000/min"),
    ("exact, 5 permits", "exact 5/5min"),
    ("exact, 24 permits", "exact 24/min"),
    ("budget", "budget 1_000_000/day"),
    ("held", "held 1000"),
];

fn limiter() -> Result<Limiter, Box<dyn std::error::Error>> {
    let lanes = KINDS
        .iter()
        .fold(Policy::builder(), |policy, (name, limit)| policy.lane(name.replace([' ', ','], "-"), *limit));
    Ok(Limiter::builder(lanes.build()?).agents(1_000).build()?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut criterion = criterion();
    let limiter = limiter()?;
    let now = limiter.now();

    let mut group = criterion.benchmark_group("check and refund");
    for (lane, (name, _)) in (0..).map(LaneId::new).zip(KINDS) {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let verdict = limiter.check_at("agent-7", lane, 1, now);
                let status = limiter.refund_at("agent-7", lane, 1, now);
                black_box((verdict, status))
            });
        });
    }
    group.finish();

    let bucket = LaneId::new(0);
    let agents: Vec<String> = (0..8).map(|agent| format!("agent-{agent}")).collect();
    let mut group = criterion.benchmark_group("all or none");
    for count in [1, 2, 3, 8] {
        let parts: Vec<_> =
            agents[..count].iter().map(|id| Request { agent: id.as_bytes(), lane: bucket, cost: 1 }).collect();
        // A token comes back every microsecond: time goes on by more than that.
        let mut time = now.as_nanos();
        let mut next = move || {
            time += 2_000;
            Tick::from_nanos(time)
        };
        group.bench_function(format!("check_all, {count} parts"), |bencher| {
            bencher.iter(|| black_box(limiter.check_all_at(&parts, next())));
        });
        let mut time = now.saturating_add(Duration::from_secs(60)).as_nanos();
        group.bench_function(format!("{count} single checks"), |bencher| {
            bencher.iter(|| {
                time += 2_000;
                for Request { agent, lane, cost } in &parts {
                    let _ = black_box(limiter.check_at(agent, *lane, *cost, Tick::from_nanos(time)));
                }
            });
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}
