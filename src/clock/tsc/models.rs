//! Threads that meet at the end of a line.
//!
//! Seen to fail, each with the one change: `let nanos = sample.os` in `compare`,
//! a line that begins below the cap; `raise_cap` after `fall_back`; no
//! `max(cap)` in the reading after a fallback; a second look at the sequence
//! that is relaxed (`read_whole`).

use super::*;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;

/// A tick is a nanosecond, and the counter leads the OS clock by `lead`.
struct Scripted {
    counter: Counter,
    lead: Counter,
}

impl Scripted {
    /// Lets `nanos` pass for the OS clock, and `lead` more for the counter.
    fn advance(&self, nanos: u64, lead: u64) {
        self.lead.fetch_add(lead, Ordering::Relaxed);
        self.counter.fetch_add(nanos + lead, Ordering::Relaxed);
    }
}

impl Sources for Scripted {
    fn counter(&self) -> u64 {
        self.counter.load(Ordering::Relaxed)
    }
    fn os(&self) -> u64 {
        self.counter() - self.lead.load(Ordering::Relaxed)
    }
    fn pause(&self, _: Duration) {}
}

/// One thread reaches the end of a line while the other reads twice across it.
/// Returns how often the clock fell back.
fn race(lead: u64) -> u64 {
    let sources = Scripted { counter: Counter::new(0), lead: Counter::new(0) };
    let sample = Sample::take(&sources);
    let clock = Arc::new(CounterClock::start(sources, Rate::of(1, 1), sample));
    clock.sources.advance(LINE_NANOS - lead, lead);
    let comparer = thread::spawn({
        let clock = Arc::clone(&clock);
        move || {
            clock.sources.advance(1, 0);
            clock.now()
        }
    });
    let first = clock.now();
    let second = clock.now();
    assert!(second >= first, "{second} after {first}");
    let there = comparer.join().unwrap();
    let last = clock.now();
    assert!(last >= second && last >= there, "{last} after {second} and {there}");
    clock.fallbacks()
}

/// A bounded number of preemptions; all of them would take hours.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// The counter is ahead, but not too far: one thread begins the next line. (Or
/// it is given up halfway, after the model's one round of waiting.)
#[test]
fn clock_never_steps_back_where_lines_meet() {
    explore(|| assert!(race(TOLERANCE_NANOS) <= 1));
}

/// The counter is too far ahead: one thread falls back, and that counts once.
#[test]
fn clock_never_steps_back_when_it_falls_back() {
    explore(|| assert_eq!(race(5 * TOLERANCE_NANOS), 1));
}
