//! A batch over 1 M agents in random order: the gain from prefetching.
//!
//! A figure is the time of 256 checks; the throughput counts single checks. It
//! includes reading the requests and ids, which stream through the caches (48
//! bytes per request), and writing the answers to reused memory. The requests
//! are built beforehand. Elapsed time.
//!
//! For comparison: the same requests one by one, and a map of token buckets behind a lock.

mod common;

use common::{ALLOWED, LockedMap, MANY, criterion, limiter, stream};
use criterion::Throughput;
use std::hint::black_box;
use tollgate::{Clock, Error, Request};

const BATCH: usize = 256;

fn main() {
    let mut criterion = criterion();
    let ids = stream(MANY);
    let requests: Vec<_> = ids.iter().map(|id| Request::new(id, ALLOWED)).collect();
    let mut answers = [Err(Error::EmptyId); BATCH];

    let mut group = criterion.benchmark_group("256 of 1 M agents");
    group.throughput(Throughput::Elements(BATCH as u64));
    let limiter = limiter(MANY, Clock::auto(), &ids);
    let mut batches = requests.chunks_exact(BATCH).cycle();
    group.bench_function("check_many", |bencher| {
        bencher.iter(|| {
            let outcome = batches.next().map(|batch| limiter.check_many(batch, &mut answers));
            black_box(&answers);
            outcome
        });
    });
    group.bench_function("one by one", |bencher| {
        bencher.iter(|| {
            for (request, answer) in batches.next().into_iter().flatten().zip(&mut answers) {
                *answer = limiter.check_request(*request);
            }
            black_box(&answers);
        });
    });
    drop(limiter);
    let map = LockedMap::new(&ids);
    let mut batches = ids.chunks_exact(BATCH).cycle();
    group.bench_function("baseline, locked map", |bencher| {
        bencher.iter(|| batches.next().into_iter().flatten().filter(|id| map.check(id)).count());
    });
    group.finish();
    criterion.final_summary();
}
