//! The counter clock: a counter, scaled to nanoseconds and held to the OS clock.
//!
//! Time is a chain of straight lines, each from an [`Anchor`] and one second
//! of ticks long. A reading past the end of its line goes the slow way, which
//! compares counter and OS clock since the anchor. If they disagree, the clock
//! falls back to the OS clock for good. If they agree, the next line begins:
//!
//! ```text
//!  nanos                                      ╱  next line: aims at the OS clock, a second on
//!    ▲                             ╭─────────╯
//!    │                       cap ──┤ ◀── begins at the OS clock's time, never below the cap
//!    │               ╭────────────╯
//!    │  anchor ──────╯   at most one second
//!    └──────────────────────────────────────▶ counter
//! ```
//!
//! **It never steps back.** A reading on a line is between its anchor's time
//! and its cap, whatever the counter says and however late the reader is; the
//! next line, and the OS clock after a fallback, begin at the cap or above. So
//! no order of anchors, threads and delays brings an older time after a newer
//! one. On one line time moves as the counter does: threads agree as well as
//! the processors' counters agree, and a counter that jumps back by less than
//! it has run since the anchor takes time back with it, at most to the anchor,
//! until the comparison catches it within a second. (The kernel's own clock
//! does the same, down to its last tick.) A limiter is only stricter for it.
//!
//! **Steering.** A line that fell behind the OS clock is put right at once. One
//! that ran ahead goes on at its cap, slowed so as to meet the OS clock at its end.
//!
//! **Tolerance.** Since the anchor, counter (at the rate found at start-up) and
//! OS clock may differ by 1 ms and 0.1 %. What is healthy stays below: the
//! rate was found to 200 ppm, and the kernel lets NTP change the OS clock's by
//! 500 ppm. What would matter is above: a bucket sees its tokens at most 2 ms
//! early in a second, once, since steering then takes the error out. A time
//! daemon that slews harder (chrony may, by 8 %) looks like a bad counter; the
//! price of that is the OS clock's cost, not an error.
//!
//! **Suspend and migration.** `CLOCK_MONOTONIC` stands still while the machine
//! is suspended, and the counter goes on or starts again; a virtual machine
//! that moves may get another counter. Either way the two disagree at the next
//! comparison, and the OS clock it is from then on. What no comparison finds
//! is a counter that stops: the OS clock, which is made of it, stops as well.

use super::Tick;
use super::anchor::{Anchor, AnchorCell, Sequence};
use super::sources::{Rate, Sample, Sources};
use crate::sync::{AtomicU64, Counter, Ordering, wait};

/// How long a line is, and so how often the clocks are compared while somebody asks for the time.
const LINE_NANOS: u64 = 1_000_000_000;

/// By how much counter and OS clock may differ, however soon they are compared,
const TOLERANCE_NANOS: u64 = 1_000_000;

/// and by which share of the time since the anchor on top.
const TOLERANCE_SHARE: u64 = 1_000;

/// Rounds of waiting for a thread that is writing an anchor, five stores,
/// before it is given up and the OS clock takes over. After 64 rounds each
/// yields the processor, so a writer that wants to run does.
const WAIT_ROUNDS: u32 = if cfg!(loom) { 1 } else { 2_000 };

/// A clock on a counter that is trusted for now.
///
/// What a reading needs is in one cache line, which is nobody else's (two
/// lines, since processors fetch them in pairs) and is written once a second.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct CounterClock<S> {
    anchor: AnchorCell,
    /// The length of a line in ticks.
    line_ticks: u64,
    /// The rate found at start-up.
    start_rate: Rate,
    /// No reading of a line before the present one is above this; once the
    /// anchor is closed, no reading of any line is.
    cap: AtomicU64,
    fallbacks: Counter,
    sources: S,
}

impl<S: Sources> CounterClock<S> {
    /// A clock that shows the OS clock's time of `sample`, which is more than a
    /// second before the last instant that can be told.
    pub(super) fn start(sources: S, rate: Rate, sample: Sample) -> Self {
        let anchor = Anchor { counter: sample.after, nanos: sample.os, rate };
        Self {
            anchor: AnchorCell::new(anchor, sample.os),
            line_ticks: rate.ticks(LINE_NANOS),
            start_rate: rate,
            cap: AtomicU64::new(sample.os),
            fallbacks: Counter::new(0),
            sources,
        }
    }

    /// Nanoseconds since the OS clock's origin, no more than can be told: a line
    /// ends before that, so the usual reading need not ask.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        if let Some(anchor) = self.anchor.read() {
            // A counter behind the anchor wraps to far beyond the line.
            let ticks = self.sources.counter().wrapping_sub(anchor.counter);
            if ticks <= self.line_ticks {
                return anchor.nanos + anchor.rate.nanos(ticks);
            }
        }
        self.now_slowly().min(Tick::MAX.as_nanos())
    }

    /// How often it fell back: never or once.
    pub(super) fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Ordering::Relaxed)
    }

    /// Whether it is the OS clock by now.
    pub(super) fn has_fallen_back(&self) -> bool {
        self.anchor.is_closed()
    }

    /// The loop ends: a round without an answer is a new anchor, of which there
    /// is one a second, or a bounded wait for one.
    #[cold]
    #[inline(never)]
    fn now_slowly(&self) -> u64 {
        let mut waited = 0;
        loop {
            match self.anchor.read_with_os() {
                Ok((sequence, anchor, os)) => {
                    let ticks = self.sources.counter().wrapping_sub(anchor.counter);
                    if ticks <= self.line_ticks {
                        return anchor.nanos + anchor.rate.nanos(ticks);
                    }
                    // A little behind is another processor's counter, or an
                    // early reading: time waits for it. More is compared, and fails.
                    if ticks.wrapping_neg() <= self.start_rate.ticks(TOLERANCE_NANOS) {
                        return anchor.nanos;
                    }
                    self.compare(sequence, anchor, os);
                }
                Err(sequence) if sequence.is_closed() => {
                    // Relaxed: seeing the sequence closed, by an acquire, brings every cap along.
                    return self.sources.os().max(self.cap.load(Ordering::Relaxed));
                }
                Err(sequence) if sequence.is_busy() && waited == WAIT_ROUNDS => self.fall_back(sequence),
                Err(_) => {
                    wait(waited);
                    waited = (waited + 1).min(WAIT_ROUNDS);
                }
            }
        }
    }

    /// Begins the next line, or falls back. Does nothing if another thread did either meanwhile.
    fn compare(&self, sequence: Sequence, anchor: Anchor, os: u64) {
        let sample = Sample::take(&self.sources);
        let cap = anchor.nanos + anchor.rate.nanos(self.line_ticks);
        // Before the sequence moves: whoever finds it closed needs the cap.
        self.raise_cap(cap);
        if !self.agrees(&sample, anchor.counter, os) {
            return self.fall_back(sequence);
        }
        let nanos = cap.max(sample.os);
        let rate = Rate::of(sample.os.saturating_sub(os), sample.after.wrapping_sub(anchor.counter));
        let rate = rate.slowed(nanos - sample.os, self.line_ticks);
        let next = Anchor { counter: sample.after, nanos, rate };
        if !next.is_within_range(self.line_ticks) {
            return self.fall_back(sequence);
        }
        self.anchor.replace(sequence, next, sample.os);
    }

    /// Relaxed, since the sequence then moves with release. The loop ends: each
    /// further round is another thread's raise, and those lead to one cap a second.
    fn raise_cap(&self, cap: u64) {
        let mut seen = self.cap.load(Ordering::Relaxed);
        while seen < cap {
            match self.cap.compare_exchange(seen, cap, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => seen = found,
            }
        }
    }

    /// Whether counter and OS clock have gone equally far since the anchor.
    fn agrees(&self, sample: &Sample, counter: u64, os: u64) -> bool {
        let elapsed = sample.os.saturating_sub(os);
        let tolerance = i128::from(TOLERANCE_NANOS + elapsed / TOLERANCE_SHARE);
        let elapsed = i128::from(elapsed);
        // It was beyond the line a moment ago. This, and what follows, is also
        // what keeps a rate so near the first that a second of it fits a word.
        if (sample.after.wrapping_sub(counter) as i64) <= self.line_ticks as i64 {
            return false;
        }
        // The OS clock was read somewhere between the two.
        let least = self.start_rate.nanos_between(counter, sample.before);
        let most = self.start_rate.nanos_between(counter, sample.after);
        least - tolerance <= elapsed && elapsed <= most + tolerance
    }

    /// Turns to the OS clock for good, unless the sequence has moved.
    fn fall_back(&self, sequence: Sequence) {
        if self.anchor.close(sequence) {
            self.fallbacks.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::sources::fake::{Fake, SKEW, TICKS_PER_SECOND};
    use super::super::sources::{READINGS, Sample};
    use super::super::trust::{Facts, start};
    use super::*;
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

        /// Reads in steps of a millisecond; the largest distances behind and ahead of the OS clock.
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
        assert_eq!(witness.follow(&clock, SECOND), (0, 0), "the OS clock it is");
    }

    #[test]
    fn a_slow_counter_is_caught() {
        let (clock, mut witness) = (clock(), Witness::default());
        clock.sources.run_at(-10_000);
        let (behind, ahead) = witness.follow(&clock, 2 * SECOND);
        assert_fallen_back(&clock);
        assert!(behind <= 10_200_000 && ahead == 0, "{behind} behind, {ahead} ahead");
        assert_eq!(witness.follow(&clock, SECOND), (0, 0), "the OS clock it is");
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
    fn no_reading_is_past_what_can_be_told() {
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
    /// second at most, then is the OS clock's.
    #[test]
    fn a_counter_that_starts_again_is_caught_at_once() {
        let (clock, mut witness) = (clock(), Witness::default());
        witness.follow(&clock, SECOND / 2);
        clock.sources.jump(-30 * TICKS_PER_SECOND as i64);
        let now = witness.read(&clock);
        assert_fallen_back(&clock);
        assert!(now <= clock.sources.true_nanos() + LINE_NANOS);
        witness.follow(&clock, SECOND);
        assert_eq!(witness.follow(&clock, SECOND), (0, 0));
    }

    /// As after a suspend through which it went on.
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

    /// The one way in which time goes back: with the counter, at most to the
    /// last comparison, until the next.
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

    /// An hour at 400 ppm is 1.4 s of drift, all of it within the share that is allowed.
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

    /// A reader that was stopped with an anchor in hand uses it after the
    /// next one is out; neither it nor anybody after it sees time go back.
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

    /// Processors whose counters differ by more than is allowed: whichever
    /// of them compares, the clock falls back.
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
    fn counters_that_differ_by_little_are_lived_with() {
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

    /// Real threads on counters that differ, while time passes: nobody sees it go back.
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
                // until a large difference was met: the reader whose turn it is
                // to compare must be one that is ahead.
                let missed = || skew_step > TICKS_PER_MS && !clock.has_fallen_back() && seconds() < 3_000;
                while seconds() < 9 || missed() || readings.iter().any(|readings| readings.load(Relaxed) < 300) {
                    clock.sources.advance(3 * MILLISECOND);
                    std::thread::yield_now();
                }
                done.store(true, Relaxed);
            });
            assert!(clock.fallbacks() <= 1);
            assert!(
                skew_step < TICKS_PER_MS || clock.has_fallen_back(),
                "a difference of {skew_step} ticks was missed"
            );
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
                // 2 % of a second, and what steering had left over.
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
}

/// Seen to fail, each with the one change: `let nanos = sample.os` in `compare`,
/// a line that begins below the cap; `raise_cap` after `fall_back`; no
/// `max(cap)` in the reading after a fallback; a second look at the sequence
/// that is relaxed (`read_whole`).
#[cfg(all(test, loom))]
mod models {
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

    /// One thread comes to the end of a line while the other reads twice
    /// across it. Says how often the clock fell back.
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

    /// Up to this many preemptions; all of them would take hours.
    fn explore(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// The counter is ahead, but not by too much: one begins the next line.
    /// (Or is given up in the middle of that, after the model's one round of waiting.)
    #[test]
    fn clock_never_steps_back_where_lines_meet() {
        explore(|| assert!(race(TOLERANCE_NANOS) <= 1));
    }

    /// The counter is too far ahead: one falls back, and it is counted once.
    #[test]
    fn clock_never_steps_back_when_it_falls_back() {
        explore(|| assert_eq!(race(5 * TOLERANCE_NANOS), 1));
    }
}
