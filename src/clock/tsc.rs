//! The counter clock: a counter, scaled to nanoseconds and held to the OS clock.
//!
//! Time is a chain of straight lines, each from an [`Anchor`] and one second of
//! ticks long. A reading past the end of its line takes the slow path, which
//! compares how far counter and OS clock have moved since the anchor. If they
//! disagree, the clock falls back to the OS clock for good. If they agree, the
//! next line begins:
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
//! no order of anchors, threads and delays yields an older time after a newer
//! one. On one line time moves as the counter does: threads agree as well as
//! the processors' counters agree, and a counter that jumps back by less than
//! it has run since the anchor takes time back with it, at most to the anchor,
//! until the comparison catches it within a second. (The kernel's own clock
//! does the same, down to its last tick.) A limiter is only stricter for it.
//!
//! **Steering.** A line that fell behind the OS clock is corrected at once. One
//! that ran ahead continues from its cap, slowed so that it meets the OS clock
//! at its end.
//!
//! **Tolerance.** Since the anchor, counter (at the rate found at start-up) and
//! OS clock may differ by 1 ms plus 0.1 %. A healthy counter stays below that:
//! its rate is known to 200 ppm, and the kernel lets NTP change the OS clock's
//! rate by 500 ppm. An error below it is harmless: a bucket gets its tokens at
//! most 2 ms early in a second, and only once, since steering then removes the
//! error. A time daemon that slews harder (chrony may, by 8 %) looks like a bad
//! counter. The answers stay right; readings then cost what the OS clock costs.
//!
//! **Suspend and migration.** `CLOCK_MONOTONIC` stops while the machine is
//! suspended, and the counter keeps running or restarts; a virtual machine that
//! moves may get another counter. Either way the two disagree at the next
//! comparison, and the clock reads the OS clock from then on. No comparison
//! finds one fault: if the counter stops, the OS clock derived from it stops
//! too.

use super::Tick;
use super::anchor::{Anchor, AnchorCell, Sequence};
use super::sources::{Rate, Sample, Sources};
use crate::sync::{AtomicU64, Counter, Ordering, wait};

/// How long a line is, and so how often the clocks are compared while the time is read.
const LINE_NANOS: u64 = 1_000_000_000;

/// How far counter and OS clock may differ, however soon they are compared,
const TOLERANCE_NANOS: u64 = 1_000_000;

/// plus one part in this many of the time since the anchor.
const TOLERANCE_SHARE: u64 = 1_000;

/// How many rounds to wait for a thread that is writing an anchor (five stores)
/// before the clock falls back. From round 64 on, each round yields the
/// processor, so that a writer that can run does.
const WAIT_ROUNDS: u32 = if cfg!(loom) { 1 } else { 2_000 };

/// A clock on a counter that has not failed a comparison.
///
/// A reading needs one cache line, which is written once a second and shared
/// with nothing else (aligned to two, since processors fetch them in pairs).
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct CounterClock<S> {
    anchor: AnchorCell,
    /// The length of a line in ticks.
    line_ticks: u64,
    /// The rate found at start-up.
    start_rate: Rate,
    /// No reading on an earlier line is above this; once the anchor is closed,
    /// no reading on any line is.
    cap: AtomicU64,
    fallbacks: Counter,
    sources: S,
}

impl<S: Sources> CounterClock<S> {
    /// A clock that starts at the OS clock's time in `sample`, which is more
    /// than a second before [`Tick::MAX`].
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

    /// Nanoseconds since the OS clock's origin, at most [`Tick::MAX`]: every
    /// line ends before that, so a reading on a line need not check.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        if let Some(anchor) = self.anchor.read() {
            // A counter behind the anchor wraps to far beyond the line.
            let ticks = self.sources.counter().wrapping_sub(anchor.counter);
            if ticks <= self.line_ticks {
                return anchor.nanos + anchor.rate.nanos(ticks);
            }
        }
        self.now_past_line().min(Tick::MAX.as_nanos())
    }

    /// How often it fell back: 0 or 1.
    pub(super) fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Ordering::Relaxed)
    }

    /// Whether it now reads the OS clock.
    pub(super) fn has_fallen_back(&self) -> bool {
        self.anchor.is_closed()
    }

    /// The loop ends: a round without an answer means a new anchor, of which
    /// there is one a second, or a bounded wait for one.
    #[cold]
    #[inline(never)]
    fn now_past_line(&self) -> u64 {
        let mut waited = 0;
        loop {
            match self.anchor.read_with_os() {
                Ok((sequence, anchor, os)) => {
                    let ticks = self.sources.counter().wrapping_sub(anchor.counter);
                    if ticks <= self.line_ticks {
                        return anchor.nanos + anchor.rate.nanos(ticks);
                    }
                    // A counter slightly behind is another processor's, or was read early: time waits for it. One
                    // further behind is compared, and fails.
                    if ticks.wrapping_neg() <= self.start_rate.ticks(TOLERANCE_NANOS) {
                        return anchor.nanos;
                    }
                    self.compare(sequence, anchor, os);
                }
                Err(sequence) if sequence.is_closed() => {
                    // Relaxed: the acquire that saw the sequence closed makes every cap visible.
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

    /// Begins the next line, or falls back. Does nothing if another thread has done either.
    fn compare(&self, sequence: Sequence, anchor: Anchor, os: u64) {
        let sample = Sample::take(&self.sources);
        let cap = anchor.nanos + anchor.rate.nanos(self.line_ticks);
        // Before the sequence moves: a reader that finds it closed needs the cap.
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
    /// further round means that another thread raised it, and all of them raise
    /// it to one cap a second.
    fn raise_cap(&self, cap: u64) {
        let mut seen = self.cap.load(Ordering::Relaxed);
        while seen < cap {
            match self.cap.compare_exchange(seen, cap, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) => seen = found,
            }
        }
    }

    /// Whether counter and OS clock have moved equally far since the anchor.
    fn agrees(&self, sample: &Sample, counter: u64, os: u64) -> bool {
        let elapsed = sample.os.saturating_sub(os);
        let tolerance = i128::from(TOLERANCE_NANOS + elapsed / TOLERANCE_SHARE);
        let elapsed = i128::from(elapsed);
        // It was beyond the line a moment ago. This check and the next also
        // keep the rate so close to the first that a second of it fits a word.
        if (sample.after.wrapping_sub(counter) as i64) <= self.line_ticks as i64 {
            return false;
        }
        // The OS clock was read somewhere between the two.
        let least = self.start_rate.nanos_between(counter, sample.before);
        let most = self.start_rate.nanos_between(counter, sample.after);
        least - tolerance <= elapsed && elapsed <= most + tolerance
    }

    /// Switches to the OS clock for good, unless the sequence has moved.
    fn fall_back(&self, sequence: Sequence) {
        if self.anchor.close(sequence) {
            self.fallbacks.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
