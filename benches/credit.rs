//! A check of a lane that machines share, answered from credit, beside one of a plain bucket with the same limit: one
//! thread, one agent whose record is in cache, every check allowed, at the caller's own `now`. No engine runs: credit
//! is granted between two rounds, which is not measured.

use std::hint::black_box;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};
use tollgate::cluster::{Cluster, Link, Source};
use tollgate::{LaneId, Limiter, Policy, Request};

const AGENT: &str = "agent-0007";
/// Refilled faster than anybody asks.
const LIMIT: &str = "1000000000/s burst 1000000000";
/// How many tokens a round is given: more than it spends.
const CREDIT: u64 = 10_000_000;
/// How much longer a check may take than that of a bucket: the aim, which is not met yet.
const MORE_NS_MAX: f64 = 3.0;

fn limiter(cluster: Option<Cluster>) -> Limiter {
    let builder = Limiter::builder(Policy::builder().lane("lane", LIMIT).build().expect("a policy")).agents(1_000);
    let builder = match cluster {
        Some(cluster) => builder.cluster(cluster),
        None => builder,
    };
    builder.build().expect("a limiter")
}

/// Nanoseconds a check.
fn round(limiter: &Limiter, checks: u64) -> f64 {
    let now = limiter.now();
    let start = Instant::now();
    for _ in 0..checks {
        let _ = black_box(limiter.check_request(Request::new(AGENT, LaneId::new(0)).at(now)));
    }
    start.elapsed().as_nanos() as f64 / checks as f64
}

/// Grants credit for a round.
fn grant(limiter: &Limiter) {
    let link = Link::of(limiter).expect("it has a cluster");
    link.connected(NonZeroU16::MIN, Duration::from_millis(1));
    // Asked for anew if there is enough still: by what the credit does not cover.
    let _ = limiter.check_request(Request::new(AGENT, LaneId::new(0)).cost(CREDIT));
    for ask in link.asks(usize::MAX) {
        if let Some(due) = link.due(&ask) {
            let _ = link.settle(&ask, &due, CREDIT, 0);
        }
    }
    let verdict = limiter.check(AGENT, LaneId::new(0)).expect("a known lane");
    assert_eq!(verdict.source(), Some(Source::Credit));
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    // Rounds so short that hardly any is interrupted: the median is that of a quiet processor.
    let (rounds, checks) = if quick { (5, 20_000) } else { (1_001, 20_000) };
    let (plain, shared) = (limiter(None), limiter(Some(Cluster::new([7; 16]).slack_percent(100))));
    let (mut plains, mut shareds) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        plains.push(round(&plain, checks));
        grant(&shared);
        shareds.push(round(&shared, checks));
    }
    let status = Link::of(&shared).expect("it has a cluster").status();
    let lane = &status.lanes[0];
    let (plain, shared) = (median(plains), median(shareds));
    println!(
        "bucket {plain:.1} ns, from credit {shared:.1} ns, {:.1} more, at most {MORE_NS_MAX}; {} answers from credit",
        shared - plain,
        lane.answers(Source::Credit)
    );
    if !quick && shared - plain > MORE_NS_MAX {
        eprintln!("a check from credit takes too long");
        std::process::exit(1);
    }
}
