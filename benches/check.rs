//! One thread: what a single check costs, with each clock.
//!
//! A figure is the time of one check and of what surrounds it: reading the next id from a stream in order, criterion's
//! loop and writing the answer to memory, 1 to 2 ns in all (`loop`). Elapsed time, so other load on the machine counts.
//! At 1 M agents the ids stream through the caches too, 16 bytes each.
//!
//! For comparison: the loop alone, one uncontended compare-exchange, the clocks
//! alone, and a map of token buckets behind a lock. `make bench` also compares
//! with real peers (`benches/compare`).

mod common;

use common::{ALLOWED, DENIED, Id, LockedMap, MANY, criterion, id, limiter, limiter_with, stream};
use criterion::Criterion;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use tollgate::observe::Observe;
use tollgate::{Clock, LaneId, Request, Tick};

fn clocks() -> [(&'static str, Clock); 3] {
    [("auto", Clock::auto()), ("os", Clock::os()), ("coarse", Clock::coarse())]
}

/// What no check can do without.
fn floor(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("floor");
    let hot = [id(0); 1_024];
    let mut ids = hot.iter().cycle();
    group.bench_function("loop", |bencher| bencher.iter(|| ids.next()));
    let word = AtomicU64::new(0);
    group.bench_function("compare-exchange", |bencher| {
        bencher.iter(|| {
            let seen = word.load(Ordering::Acquire);
            word.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Relaxed)
        });
    });
    for (name, clock) in clocks() {
        group.bench_function(format!("clock {name}, {:?}", clock.source()), |bencher| bencher.iter(|| clock.now()));
    }
    group.finish();
}

/// Ours with every clock and at the caller's own `now`, over one stream.
fn ours(criterion: &mut Criterion, name: &str, agents: usize, ids: &[Id], lane: LaneId, is_beside_map: bool) {
    let mut group = criterion.benchmark_group(name);
    for (name, clock) in clocks() {
        let limiter = limiter(agents, clock, ids);
        let mut ids = ids.iter().cycle().map(black_box);
        group.bench_function(name, |bencher| {
            bencher.iter(|| ids.next().map(|id| limiter.check(id.as_slice(), lane)));
        });
    }
    let limiter = limiter(agents, Clock::os(), ids);
    let mut now = limiter.now().as_nanos();
    let mut next = ids.iter().cycle().map(black_box);
    group.bench_function("own now", |bencher| {
        bencher.iter(|| {
            now += 20;
            next.next().map(|id| limiter.check_request(Request::new(id.as_slice(), lane).at(Tick::from_nanos(now))))
        });
    });
    drop(limiter);
    if is_beside_map {
        let map = LockedMap::new(ids);
        let mut ids = ids.iter().cycle().map(black_box);
        group.bench_function("baseline, locked map", |bencher| bencher.iter(|| ids.next().map(|id| map.check(id))));
    }
    group.finish();
}

/// What observing costs, next to the same checks without it.
fn watched(criterion: &mut Criterion) {
    let hot = [id(0); 1_024];
    for (what, lane) in [("allowed", ALLOWED), ("denied", DENIED)] {
        let mut group = criterion.benchmark_group(format!("observe, hot, {what}"));
        for (name, observe) in [("off", None), ("on", Some(Observe::new()))] {
            let limiter = limiter_with(1, Clock::auto(), &hot, observe);
            let mut ids = hot.iter().cycle().map(black_box);
            group.bench_function(name, |bencher| {
                bencher.iter(|| ids.next().map(|id| limiter.check(id.as_slice(), lane)));
            });
            let mut ids = hot.iter().cycle().map(black_box);
            let mut now = limiter.now().as_nanos();
            group.bench_function(format!("{name}, own now"), |bencher| {
                bencher.iter(|| {
                    now += 20;
                    ids.next()
                        .map(|id| limiter.check_request(Request::new(id.as_slice(), lane).at(Tick::from_nanos(now))))
                });
            });
        }
        group.finish();
    }
}

fn main() {
    let mut criterion = criterion();
    floor(&mut criterion);
    let hot = [id(0); 1_024];
    ours(&mut criterion, "hot, allowed", 1, &hot, ALLOWED, true);
    ours(&mut criterion, "hot, denied", 1, &hot, DENIED, false);
    ours(&mut criterion, "1,000 agents", 1_000, &stream(1_000), ALLOWED, true);
    ours(&mut criterion, "1 M agents", MANY, &stream(MANY), ALLOWED, true);
    watched(&mut criterion);
    criterion.final_summary();
}
