//! The counter clock on a counter that tests push around: it never steps back,
//! and it gives up a counter that disagrees with the OS clock.

use super::*;
use crate::clock::sources::fake::{Fake, SKEW, TICKS_PER_SECOND};
use crate::clock::sources::{READINGS, Sample};
use crate::clock::trust::{Facts, start};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const TICKS_PER_MS: i64 = TICKS_PER_SECOND as i64 / 1_000;

fn clock() -> CounterClock<Fake> {
    start(Fake::new(), Facts { clocksource: Some("tsc".into()), invariant: true }).expect("a good counter")
}

/// A thread's view of a clock: it must never see time go back.
#[derive(Default)]
struct Witness(u64);

impl Witness {
    fn read(&mut self, clock: &CounterClock<Fake>) -> u64 {
        let now = clock.now();
        assert!(now >= self.0, "{now} after {}, fallbacks {}", self.0, clock.fallbacks());
        self.0 = now;
        now
    }

    /// Reads every millisecond, and returns the largest distances behind and ahead of the OS clock.
    fn follow(&mut self, clock: &CounterClock<Fake>, span: Duration) -> (u64, u64) {
        let steps = span.as_millis();
        (0..steps).fold((0, 0), |(behind, ahead), _| {
            clock.sources.advance(MILLISECOND);
            let (now, truth) = (self.read(clock), clock.sources.true_nanos());
            (behind.max(truth.saturating_sub(now)), ahead.max(now.saturating_sub(truth)))
        })
    }
}

fn assert_fallen_back(clock: &CounterClock<Fake>) {
    assert!(clock.has_fallen_back());
    assert_eq!(clock.fallbacks(), 1);
}

fn assert_trusted(clock: &CounterClock<Fake>) {
    assert!(!clock.has_fallen_back());
    assert_eq!(clock.fallbacks(), 0);
}

#[test]
fn follows_the_os_clock() {
    let clock = clock();
    let off = Witness::default().follow(&clock, 20 * SECOND);
    assert!(off.0 <= 10 && off.1 <= 10, "{off:?} ns");
    assert_trusted(&clock);
}

#[test]
fn is_compared_once_a_second() {
    let clock = clock();
    let before = clock.sources.os_readings();
    Witness::default().follow(&clock, 100 * SECOND);
    let comparisons = (clock.sources.os_readings() - before) / READINGS;
    assert!((99..=100).contains(&comparisons), "{comparisons} in 100 s");
}

#[test]
fn a_fast_counter_is_caught() {
    let (clock, mut witness) = (clock(), Witness::default());
    clock.sources.run_at(10_000);
    let (_, ahead) = witness.follow(&clock, 2 * SECOND);
    assert_fallen_back(&clock);
    assert!(ahead <= 10_100_000, "1 % of the second before the comparison, not {ahead} ns");
    assert_eq!(witness.follow(&clock, SECOND), (0, 0), "it reads the OS clock");
}

#[test]
fn a_slow_counter_is_caught() {
    let (clock, mut witness) = (clock(), Witness::default());
    clock.sources.run_at(-10_000);
    let (behind, ahead) = witness.follow(&clock, 2 * SECOND);
    assert_fallen_back(&clock);
    assert!(behind <= 10_200_000 && ahead == 0, "{behind} behind, {ahead} ahead");
    assert_eq!(witness.follow(&clock, SECOND), (0, 0), "it reads the OS clock");
}

#[test]
fn a_fallback_is_final() {
    let (clock, mut witness) = (clock(), Witness::default());
    clock.sources.run_at(10_000);
    witness.follow(&clock, 2 * SECOND);
    clock.sources.run_at(0);
    assert_eq!(witness.follow(&clock, 10 * SECOND), (0, 0));
    assert_fallen_back(&clock);
}

/// At the end of the range there is no room for another line.
#[test]
fn no_reading_is_past_the_last_instant() {
    let (clock, mut witness) = (clock(), Witness::default());
    let rest = Duration::from_nanos(Tick::MAX.as_nanos() - clock.sources.true_nanos());
    clock.sources.advance(rest - 3 * SECOND - MILLISECOND);
    for _ in 0..10_000 {
        clock.sources.advance(MILLISECOND);
        assert!(witness.read(&clock) <= Tick::MAX.as_nanos());
    }
    assert_fallen_back(&clock);
    assert_eq!(witness.0, Tick::MAX.as_nanos());
}

/// As after a suspend that resets it. Time waits at the line's cap, for a
/// second at most, then follows the OS clock.
#[test]
fn a_counter_that_restarts_is_caught_at_once() {
    let (clock, mut witness) = (clock(), Witness::default());
    witness.follow(&clock, SECOND / 2);
    clock.sources.jump(-30 * TICKS_PER_SECOND as i64);
    let now = witness.read(&clock);
    assert_fallen_back(&clock);
    assert!(now <= clock.sources.true_nanos() + LINE_NANOS);
    witness.follow(&clock, SECOND);
    assert_eq!(witness.follow(&clock, SECOND), (0, 0));
}

/// As after a suspend during which it kept running.
#[test]
fn a_counter_that_leaps_ahead_is_caught_at_once() {
    let (clock, mut witness) = (clock(), Witness::default());
    witness.follow(&clock, SECOND / 2);
    clock.sources.jump(3_600 * TICKS_PER_SECOND as i64);
    let now = witness.read(&clock);
    assert_fallen_back(&clock);
    assert!(now <= clock.sources.true_nanos() + LINE_NANOS, "not an hour early");
}

#[test]
fn a_counter_that_runs_backwards_is_caught() {
    let (clock, mut witness) = (clock(), Witness::default());
    clock.sources.run_at(-2_000_000);
    witness.follow(&clock, SECOND);
    assert_fallen_back(&clock);
}

/// The one way for time to go back: with the counter, at most to the last
/// comparison, until the next.
#[test]
fn a_small_jump_back_stays_on_its_line_and_is_caught() {
    let clock = clock();
    let anchor = clock.now();
    Witness::default().follow(&clock, SECOND / 2);
    clock.sources.jump(-100 * TICKS_PER_MS);
    let mut witness = Witness(anchor);
    witness.follow(&clock, SECOND);
    assert_fallen_back(&clock);
    assert_eq!(witness.follow(&clock, SECOND).1, 0);
}

#[test]
fn time_waits_for_a_counter_a_little_behind() {
    let (clock, mut witness) = (clock(), Witness::default());
    let now = witness.read(&clock);
    clock.sources.jump(-TICKS_PER_MS);
    assert_eq!(witness.read(&clock), now);
    clock.sources.advance(2 * MILLISECOND);
    assert_eq!(witness.read(&clock), now + 1_000_000);
    assert_trusted(&clock);
}

#[test]
fn small_drift_is_steered() {
    for ppm in [-400, -50, 50, 400] {
        let (clock, mut witness) = (clock(), Witness::default());
        clock.sources.run_at(ppm);
        let first = witness.follow(&clock, SECOND + 2 * MILLISECOND);
        let bound = ppm.unsigned_abs() * 1_010;
        assert!(first.0.max(first.1) <= bound, "{ppm} ppm: {first:?} ns in the first second");
        witness.follow(&clock, SECOND);
        let later = witness.follow(&clock, 60 * SECOND);
        assert!(later.0.max(later.1) <= 100 + ppm.unsigned_abs(), "{ppm} ppm: {later:?} ns once steered");
        assert_trusted(&clock);
    }
}

#[test]
fn a_line_that_ran_ahead_is_slowed_to_meet_the_os_clock() {
    let (clock, mut witness) = (clock(), Witness::default());
    clock.sources.run_at(900);
    clock.sources.advance(SECOND - MILLISECOND / 2);
    assert_eq!(witness.read(&clock), clock.sources.true_nanos() + 500_000);
    let (behind, ahead) = witness.follow(&clock, SECOND / 2);
    assert!(behind == 0 && ahead <= 500_000, "{behind} behind, {ahead} ahead");
    witness.follow(&clock, SECOND / 2 - 2 * MILLISECOND);
    let (behind, ahead) = witness.follow(&clock, MILLISECOND);
    assert!(behind == 0 && ahead <= 2_000, "{behind} behind, {ahead} ahead");
}

#[test]
fn drift_that_changes_stays_within_the_tolerance() {
    let (clock, mut witness) = (clock(), Witness::default());
    for second in 0..60 {
        clock.sources.run_at(if second % 2 == 0 { 600 } else { -600 });
        let off = witness.follow(&clock, SECOND);
        assert!(off.0.max(off.1) <= 2 * TOLERANCE_NANOS, "{off:?} ns");
    }
    assert_trusted(&clock);
}

/// An hour at 400 ppm is 1.4 s of drift, within the allowed share.
#[test]
fn a_long_pause_ends_at_the_os_time() {
    for ppm in [-400, 400] {
        let (clock, mut witness) = (clock(), Witness::default());
        clock.sources.run_at(ppm);
        witness.follow(&clock, SECOND / 2);
        clock.sources.advance(3_600 * SECOND);
        assert_eq!(witness.read(&clock), clock.sources.true_nanos());
        assert_trusted(&clock);
    }
}

/// A reader that was stopped with an anchor in hand uses it after the next one
/// is published. Neither it nor any later reader sees time go back.
#[test]
fn a_late_reader_stays_below_the_next_line() {
    let clock = clock();
    clock.sources.run_at(900);
    let late = clock.anchor.read().unwrap();
    clock.sources.advance(SECOND - MILLISECOND / 2);
    let next = clock.now();
    assert!(next > clock.sources.true_nanos(), "a line that ran ahead");
    assert!(late.nanos + late.rate.nanos(clock.line_ticks) <= next);
}

/// Processors whose counters differ by more than the tolerance: the clock falls
/// back, whichever of them compares.
#[test]
fn counters_that_differ_between_threads_are_caught() {
    for skew_ms in [-40, 40] {
        let clock = clock();
        let (mut here, mut there) = (Witness::default(), Witness::default());
        for _ in 0..1_100 {
            clock.sources.advance(MILLISECOND);
            here.read(&clock);
            SKEW.set(skew_ms * TICKS_PER_MS);
            there.read(&clock);
            SKEW.set(0);
        }
        assert_fallen_back(&clock);
    }
}

#[test]
fn counters_that_differ_slightly_are_tolerated() {
    let clock = clock();
    let (mut here, mut there) = (Witness::default(), Witness::default());
    for _ in 0..5_000 {
        clock.sources.advance(MILLISECOND);
        here.read(&clock);
        SKEW.set(TICKS_PER_MS / 2);
        there.read(&clock);
        SKEW.set(0);
    }
    assert_trusted(&clock);
    assert!(clock.now().abs_diff(clock.sources.true_nanos()) <= 2 * TOLERANCE_NANOS);
}

/// Real threads on different counters, while time passes: none sees it go back.
#[test]
fn no_thread_sees_time_go_back() {
    for skew_step in [1_000, 10 * TICKS_PER_MS] {
        let clock = clock();
        let readings = [const { AtomicU64::new(0) }; 3];
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (thread, readings) in readings.iter().enumerate() {
                let (clock, done) = (&clock, &done);
                scope.spawn(move || {
                    SKEW.set(thread as i64 * skew_step);
                    let mut witness = Witness::default();
                    while !done.load(Relaxed) {
                        witness.read(clock);
                        readings.fetch_add(1, Relaxed);
                        std::thread::yield_now(); // The fake is behind a lock.
                    }
                });
            }
            let seconds = || clock.sources.true_nanos() / LINE_NANOS;
            // Some seconds, and more until every thread has had its share, and
            // until a large difference was found: the reader that happens to
            // compare must be one that is ahead.
            let missed = || skew_step > TICKS_PER_MS && !clock.has_fallen_back() && seconds() < 3_000;
            while seconds() < 9 || missed() || readings.iter().any(|readings| readings.load(Relaxed) < 300) {
                clock.sources.advance(3 * MILLISECOND);
                std::thread::yield_now();
            }
            done.store(true, Relaxed);
        });
        assert!(clock.fallbacks() <= 1);
        assert!(skew_step < TICKS_PER_MS || clock.has_fallen_back(), "a difference of {skew_step} ticks was missed");
    }
}

/// A thread that never finishes its anchor, as in the child of a fork.
#[test]
fn a_writer_that_never_finishes_is_given_up() {
    let clock = clock();
    clock.sources.advance(SECOND / 2);
    let now = clock.now();
    let (sequence, anchor, os) = clock.anchor.read_with_os().unwrap();
    clock.raise_cap(anchor.nanos + LINE_NANOS);
    assert!(clock.anchor.begin(sequence, anchor, os));
    assert!(clock.now() >= now);
    assert_fallen_back(&clock);
}

proptest! {
    #[test]
    fn never_steps_back_nor_far_ahead(steps in prop::collection::vec((0u64..3_000, -20_000i64..20_000), 1..60)) {
        let (clock, mut witness) = (clock(), Witness::default());
        for (millis, ppm) in steps {
            clock.sources.run_at(ppm);
            clock.sources.advance(Duration::from_millis(millis));
            let now = witness.read(&clock);
            // 2 % of a second, plus what steering had left.
            prop_assert!(now <= clock.sources.true_nanos() + 25_000_000);
        }
    }
}

#[test]
fn starts_at_the_os_time() {
    let sources = Fake::new();
    let sample = Sample::take(&sources);
    let clock = CounterClock::start(sources, Rate::of(1, 2), sample);
    assert_eq!(clock.now(), sample.os);
}
