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
//! OS clock may differ by 1 ms plus 0.1 %. A healthy counter stays below that:
//! its rate is known to 200 ppm, and the kernel lets NTP change the OS clock's
//! rate by 500 ppm. An error that stays below it is harmless: a bucket sees its
//! tokens at most 2 ms early in a second, once, since steering then takes the
//! error out. A time daemon that slews harder (chrony may, by 8 %) looks like a
//! bad counter; that costs the price of the OS clock and is no error.
//!
//! **Suspend and migration.** `CLOCK_MONOTONIC` stands still while the machine
//! is suspended, and the counter goes on or starts again; a virtual machine
//! that moves may get another counter. Either way the two disagree at the next
//! comparison, and the clock reads the OS clock from then on. One fault no
//! comparison finds: if the counter stops, the OS clock made of it stops too.

use super::Tick;
use super::anchor::{Anchor, AnchorCell, Sequence};
use super::sources::{Rate, Sample, Sources};
use crate::sync::{AtomicU64, Counter, Ordering, wait};

/// How long a line is, and so how often the clocks are compared while the time is being read.
const LINE_NANOS: u64 = 1_000_000_000;

/// How far counter and OS clock may differ, however soon they are compared,
const TOLERANCE_NANOS: u64 = 1_000_000;

/// plus one part in this many of the time since the anchor.
const TOLERANCE_SHARE: u64 = 1_000;

/// Rounds to wait for a thread that is writing an anchor (five stores) before
/// the clock falls back. From round 64 on each yields the processor, so a
/// writer that can run does.
const WAIT_ROUNDS: u32 = if cfg!(loom) { 1 } else { 2_000 };

/// A clock on a counter that is trusted so far.
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
    /// No reading of a line before the present one is above this; once the
    /// anchor is closed, no reading of any line is.
    cap: AtomicU64,
    fallbacks: Counter,
    sources: S,
}

impl<S: Sources> CounterClock<S> {
    /// A clock that shows the OS clock's time of `sample`, which is more than a
    /// second before [`Tick::MAX`].
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

    /// Nanoseconds since the OS clock's origin, at most [`Tick::MAX`]: every line
    /// ends before that, so a reading on a line need not compare.
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

    /// Whether it reads the OS clock now.
    pub(super) fn has_fallen_back(&self) -> bool {
        self.anchor.is_closed()
    }

    /// The loop ends: a round without an answer is a new anchor, of which there
    /// is one a second, or a bounded wait for one.
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
mod tests;

#[cfg(all(test, loom))]
mod models;
