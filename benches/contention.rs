//! Two threads at once: what they cost each other.
//!
//! A figure is the time in which each of the two threads makes one check (in a
//! row named "one thread": the only one); the throughput counts the checks of
//! both. Threads are started for every sample and leave a barrier together.
//! Each is timed from there and the slower one counts, so starting them is not
//! included; the loop is not subtracted (below 2 ns). Needs two otherwise idle
//! processors, or the figures mean little.
//!
//! For comparison: two threads in one bare compare-exchange loop, which a
//! shared allowed agent cannot beat, and a map of token buckets behind a lock.

mod common;

use common::{ALLOWED, DENIED, LockedMap, criterion, id, limiter};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Clock, Request};

/// Runs `work` this many times on every thread, given the thread's number.
fn together(threads: usize, turns: u64, work: &(impl Fn(usize) + Sync)) -> Duration {
    let barrier = Barrier::new(threads);
    let run = |thread| {
        barrier.wait();
        let start = Instant::now();
        (0..turns).for_each(|_| work(thread));
        start.elapsed()
    };
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        let times = threads.into_iter().map(|thread| thread.join().expect("no thread panics"));
        times.max().unwrap_or_default()
    })
}

fn row(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, threads: usize, work: impl Fn(usize) + Sync) {
    group.throughput(Throughput::Elements(threads as u64));
    group.bench_function(name, |bencher| bencher.iter_custom(|turns| together(threads, turns, &work)));
}

fn main() {
    let mut criterion: Criterion = criterion();
    let ids = [id(0), id(1)];
    let limiter = limiter(2, Clock::auto(), &ids);
    let map = LockedMap::new(&ids);
    let check = |agent: usize, lane| {
        black_box(&limiter.check(black_box(ids[agent].as_slice()), lane));
    };
    // A denial also records a violation: once both counts are at their maximum,
    // that is one write a second, and otherwise a read of the word.
    let check_counted = |agent: usize, lane| {
        black_box(&limiter.check_request(Request::new(black_box(ids[agent].as_slice()), lane).counted()));
    };
    let check_map = |agent: usize| {
        black_box(map.check(black_box(&ids[agent])));
    };

    let mut group = criterion.benchmark_group("denied hot agent");
    group.sampling_mode(SamplingMode::Flat);
    row(&mut group, "one thread", 1, |_| check(0, DENIED));
    row(&mut group, "two threads", 2, |_| check(0, DENIED));
    row(&mut group, "counted, one thread", 1, |_| check_counted(0, DENIED));
    row(&mut group, "counted, two threads", 2, |_| check_counted(0, DENIED));
    group.finish();

    let mut group = criterion.benchmark_group("allowed hot agent");
    group.sampling_mode(SamplingMode::Flat);
    row(&mut group, "one thread", 1, |_| check(0, ALLOWED));
    row(&mut group, "two threads", 2, |_| check(0, ALLOWED));
    let word = AtomicU64::new(0);
    row(&mut group, "baseline, bare compare-exchange, two threads", 2, |_| {
        // Ends with the first undisturbed exchange; one thread always succeeds.
        let mut seen = word.load(Ordering::Acquire);
        while let Err(newer) = word.compare_exchange_weak(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire) {
            seen = newer;
        }
    });
    row(&mut group, "baseline, locked map, two threads", 2, |_| check_map(0));
    group.finish();

    let mut group = criterion.benchmark_group("distinct agents");
    group.sampling_mode(SamplingMode::Flat);
    row(&mut group, "two threads", 2, |thread| check(thread, ALLOWED));
    row(&mut group, "baseline, locked map, two threads", 2, check_map);
    group.finish();
    criterion.final_summary();
}
