//! First contacts and tails: single calls, the worst and the tail.
//!
//! Each call is timed between two fenced reads of the counter; see
//! [`Stopwatch`] for what that includes and how time off the core is
//! subtracted. A fresh limiter sees a million agents for the first time (first
//! contacts), then a million random checks (checks). Three runs in rotation.
//! Ours has its memory committed when it is built (`prefault`), and
//! another one as it is used; the DashMap has its capacity reserved, governor's
//! default store does not.
//!
//! For comparison, what the machine adds: as many empty calls, each as long as the median of ours.

use super::population::MILLION;
use super::{Bar, Figures, Row, Session, Who, progress, times};
use crate::floor::Tsc;
use crate::ids::{Id, Pattern, Random, draws};
use crate::measure::{GAP_NS, Laps, Stopwatch, interruptions};
use crate::peers::{Contestant, Governor, Lane, Ours, SixLanes, committed_limiter, limiter};
use std::sync::Arc;

const RUNS: usize = 3;
const TAIL: f64 = 0.9999;

/// Calls beyond the tail.
const SLOWEST: f64 = 100.0;

/// Least maximum and median tails over the runs.
#[derive(Clone, Debug, Default)]
struct Tails {
    first_max: Vec<f64>,
    first_raw_max: Vec<f64>,
    first_tail: Vec<f64>,
    first_median: Vec<f64>,
    check_tail: Vec<f64>,
    check_median: Vec<f64>,
    check_sum: Vec<f64>,
}

/// What both rows report on, measured once.
#[derive(Clone, Debug)]
pub(super) struct Latencies(Vec<(Who, Tails)>);

impl Latencies {
    fn figures(&self, of: impl Fn(&Tails) -> f64) -> Figures {
        self.0.iter().map(|(who, tails)| (*who, of(tails))).collect()
    }
}

fn least(runs: &[f64]) -> f64 {
    runs.iter().copied().fold(f64::INFINITY, f64::min)
}

fn median(runs: &[f64]) -> f64 {
    let mut sorted = runs.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn laps(tsc: &Tsc, contestant: &dyn Contestant, ids: &[Id]) -> Laps {
    let mut stopwatch = Stopwatch::new(tsc, ids.len());
    contestant.time_each(ids, &mut stopwatch);
    stopwatch.finish()
}

/// As many calls, each of which spins for as long as half of ours take: no
/// memory, no system calls, only what the machine does to any program.
fn nothing(tsc: &Tsc, each_ns: f64) -> Laps {
    let mut stopwatch = Stopwatch::new(tsc, MILLION);
    for _ in 0..MILLION {
        stopwatch.lap(|| {
            let end = tsc.now() + each_ns as u64;
            while tsc.now() < end {}
        });
    }
    stopwatch.finish()
}

fn fresh(who: Who, tsc: Tsc) -> Box<dyn Contestant> {
    match who {
        Who::Governor => Box::new(Governor::new(Lane::Allowed)),
        Who::DashMap => Box::new(SixLanes::new(MILLION, Lane::Allowed, tsc)),
        Who::OursAsUsed => Box::new(Ours::new(Arc::new(limiter(MILLION)), Lane::Allowed)),
        _ => Box::new(Ours::new(Arc::new(committed_limiter(MILLION)), Lane::Allowed)),
    }
}

fn latencies(session: &mut Session) -> Latencies {
    if let Some(latencies) = &session.latencies {
        return latencies.clone();
    }
    let mut random = Random::new(11);
    let mut ids = Pattern::Random.ids(MILLION);
    random.shuffle(&mut ids);
    let checks = draws(&ids, MILLION, &mut random);
    let names = [Who::Ours, Who::OursAsUsed, Who::Governor, Who::DashMap];
    let mut seen: Vec<(Who, Tails)> = names.map(|who| (who, Tails::default())).into();
    for run in 0..RUNS {
        for turn in 0..names.len() {
            let (who, tails) = &mut seen[(run + turn) % names.len()];
            let contestant = fresh(*who, session.tsc);
            let first = laps(&session.tsc, &*contestant, &ids);
            let check = laps(&session.tsc, &*contestant, &checks);
            progress(&format!(
                "run {run}, {who:?}: first contacts: max {:.0} ns (wall {}), p99.99 {:.0}, p50 {:.0}; checks: p99.99 {:.0}, p50 {:.0}",
                first.max(),
                first.raw_max,
                first.quantile(TAIL),
                first.quantile(0.5),
                check.quantile(TAIL),
                check.quantile(0.5),
            ));
            tails.first_max.push(first.max());
            tails.first_raw_max.push(first.raw_max as f64);
            tails.first_tail.push(first.quantile(TAIL));
            tails.first_median.push(first.quantile(0.5));
            tails.check_tail.push(check.quantile(TAIL));
            tails.check_median.push(check.quantile(0.5));
            tails.check_sum.push(check.sum());
        }
    }
    session.latencies.insert(Latencies(seen)).clone()
}

pub(super) fn worst_first_contact(session: &mut Session) -> Row {
    progress("worst of 1 M first contacts");
    let latencies = latencies(session);
    let figures = latencies.figures(|tails| least(&tails.first_max));
    let wall = latencies.figures(|tails| least(&tails.first_raw_max));
    let bars = vec![Bar::at_least(300.0, "x below governor", times(&figures, Who::Governor, Who::Ours))];
    let each = latencies.figures(|tails| median(&tails.first_median))[&Who::Ours];
    let worst = least(&[(); RUNS].map(|()| nothing(&session.tsc, each).max()));
    let notes = vec![
        format!("memory as it is used: {:.0} ns", figures[&Who::OursAsUsed]),
        format!(
            "as many calls of nothing: {worst:.0} ns, least of 3 runs; that is {:.0} x below governor",
            figures[&Who::Governor] / worst
        ),
        format!("by the wall clock: ours {:.0} ns, governor {:.0} ns", wall[&Who::Ours], wall[&Who::Governor]),
    ];
    let what = "worst of 1 M first contacts in a fresh slab, least of 3 runs".into();
    Row { name: "first-contact", what, unit: "ns", figures, bars, notes, doubts: Vec::new() }
}

pub(super) fn tails(session: &mut Session) -> Row {
    progress("p99.99 at 1 M agents");
    let latencies = latencies(session);
    let first = latencies.figures(|tails| median(&tails.first_tail));
    let checks = latencies.figures(|tails| median(&tails.check_tail));
    let bars = vec![
        Bar::at_least(4.0, "x below governor, first contacts", times(&first, Who::Governor, Who::Ours)),
        Bar::at_least(4.0, "x below governor, checks", times(&checks, Who::Governor, Who::Ours)),
    ];
    let list = |figures: &Figures| {
        figures.iter().map(|(who, ns)| format!("{who:?} {ns:.0} ns")).collect::<Vec<_>>().join(", ")
    };
    let noise = interruptions(&session.tsc);
    let sums = latencies.figures(|tails| median(&tails.check_sum));
    let expected = noise.per_second * sums[&Who::Ours] / 1e9;
    let each = [
        latencies.figures(|tails| median(&tails.first_median))[&Who::Ours],
        latencies.figures(|tails| median(&tails.check_median))[&Who::Ours],
    ];
    let idle = each.map(|each| median(&[(); RUNS].map(|()| nothing(&session.tsc, each).quantile(TAIL))));
    let notes = vec![
        format!("p99.99 of first contacts: {}; of calls of nothing: {:.0} ns", list(&first), idle[0]),
        format!("p99.99 of checks: {}; of calls of nothing: {:.0} ns", list(&checks), idle[1]),
        format!(
            "the machine interrupts an empty loop {:.0} times a second for more than {GAP_NS} ns (median {:.0} ns): \
             about {expected:.0} of the {SLOWEST:.0} slowest of our checks",
            noise.per_second, noise.median_ns
        ),
    ];
    let doubts = (expected > SLOWEST / 2.0)
        .then(|| "interrupts alone make up most of the slowest calls".to_string())
        .into_iter()
        .collect();
    Row {
        name: "tails",
        what: "p99.99 of first contacts at 1 M".into(),
        unit: "ns",
        figures: first,
        bars,
        notes,
        doubts,
    }
}
