//! A check of each kind of lane, and all-or-none calls next to as many single
//! checks. One thread, an agent whose record is in cache, every charge allowed,
//! at the caller's own `now`, so no clock is read. Between two checks time
//! advances just enough to keep the lane from running out; held slots are
//! released every thousand checks, which is not measured. Budgets read the
//! limiter's clock, and the wall clock once a second.
//!
//! At the end it prints the tables of docs/limits.md, with the column of
//! nanoseconds as measured.

mod common;

use common::criterion;
use criterion::BenchmarkGroup;
use criterion::measurement::WallTime;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tollgate::bounds::PARTS_MAX;
use tollgate::{LaneId, Limiter, Policy, Request, Tick};

/// The row of the table, the limit, and how far time advances with each check.
const KINDS: [(&str, &str, u64); 8] = [
    ("bucket", "1000000/s", 2_000),
    ("window", "window 100_000/min", 1_000_000),
    ("exact window", "exact 5/5ms", 1_000_000),
    ("exact window of 24", "exact 24/24ms", 1_000_000),
    ("exact window of 128", "exact 128/128ms", 1_000_000),
    ("budget", "budget 1_000_000_000_000/day", 1),
    ("held", "held 1000", 1),
    ("dynamic", "dynamic 1000000/s", 2_000),
];

/// Eight bytes or more, like most ids.
const AGENT: &str = "agent-0007";

/// How many slots are held before they are released.
const HELD: u64 = 1_000;

/// A limiter with one lane: more lanes would add their own cost.
fn limiter(limit: &str) -> Result<Limiter, Box<dyn std::error::Error>> {
    Ok(Limiter::builder(Policy::builder().lane("lane", limit).build()?).agents(1_000).build()?)
}

/// Measures `run`, which returns how long this many rounds took; in nanoseconds per round.
fn measure(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, mut run: impl FnMut(u64) -> Duration) -> f64 {
    let mut samples = Vec::new();
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|rounds| {
            let time = run(rounds);
            samples.push(time.as_nanos() as f64 / rounds as f64);
            time
        });
    });
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A clock that only the caller moves.
struct Time(u64);

impl Time {
    fn next(&mut self, step: u64) -> Tick {
        self.0 += step;
        Tick::from_nanos(self.0)
    }
}

/// Makes this many checks; those of slots in pieces, without the time of the releases.
fn checks(limiter: &Limiter, lane: LaneId, time: &mut Time, step: u64, rounds: u64) -> Duration {
    let is_held = limiter.hold_until_released(Request::new(AGENT, lane)).is_ok()
        && limiter.release(Request::new(AGENT, lane)).is_ok();
    let (mut taken, mut left) = (Duration::ZERO, rounds);
    // Each piece leaves less to do.
    while left > 0 {
        let piece = if is_held { left.min(HELD) } else { left };
        let start = Instant::now();
        for _ in 0..piece {
            let _ = black_box(limiter.check_request(Request::new(AGENT, lane).at(time.next(step))));
        }
        taken += start.elapsed();
        left -= piece;
        let releases = if is_held { piece } else { 0 };
        for _ in 0..releases {
            let _ = limiter.release(Request::new(AGENT, lane));
        }
    }
    taken
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut criterion = criterion();
    let lane = LaneId::new(0);
    let mut rows = Vec::new();
    let mut group = criterion.benchmark_group("check");
    for (name, limit, step) in KINDS {
        let limiter = limiter(limit)?;
        let mut time = Time(limiter.now().as_nanos());
        let figure = measure(&mut group, name, |rounds| checks(&limiter, lane, &mut time, step, rounds));
        // A denial would measure something else.
        assert!(limiter.check_request(Request::new(AGENT, lane).at(time.next(step)))?.is_allowed(), "{name} ran out");
        rows.push((name.to_owned(), vec![figure]));
    }
    group.finish();

    let limiter = limiter(KINDS[0].1)?;
    let mut time = Time(limiter.now().as_nanos());
    let agents: Vec<String> = (0..8).map(|agent| format!("agent-{agent:04}")).collect();
    let mut group = criterion.benchmark_group("all or none");
    for count in [1, 2, 3, 8] {
        let parts: Vec<_> = agents[..count].iter().map(|id| Request::new(id, lane)).collect();
        let mut timed = |name: &str, ask: &dyn Fn(Tick)| {
            measure(&mut group, name, |rounds| {
                let start = Instant::now();
                for _ in 0..rounds {
                    ask(time.next(2_000));
                }
                start.elapsed()
            })
        };
        let all = timed(&format!("check_all, {count} parts"), &|now| {
            let mut asked = [parts[0]; PARTS_MAX];
            asked.iter_mut().zip(&parts).for_each(|(asked, part)| *asked = part.at(now));
            let _ = black_box(limiter.check_all(&asked[..count]));
        });
        let single = timed(&format!("{count} single checks"), &|now| {
            for part in &parts {
                let _ = black_box(limiter.check_request(part.at(now)));
            }
        });
        rows.push((format!("check_all, {count}"), vec![all, single]));
    }
    group.finish();
    criterion.final_summary();
    print_rows(&std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/limits.md"))?, &rows)
}

/// Prints the rows of the page with the measured values in their last cells.
fn print_rows(page: &str, rows: &[(String, Vec<f64>)]) -> Result<(), Box<dyn std::error::Error>> {
    println!("\ndocs/limits.md:\n");
    for (name, figures) in rows {
        let row = page.lines().find(|line| line.starts_with(&format!("| {name} |")));
        let cells: Vec<_> = row.ok_or(format!("docs/limits.md has no row {name:?}"))?.split(" | ").collect();
        let kept = cells[..cells.len().saturating_sub(figures.len())].join(" | ");
        let measured: Vec<_> = figures.iter().map(|figure| format!("{figure:.0}")).collect();
        println!("{kept} | {} |", measured.join(" | "));
    }
    Ok(())
}
