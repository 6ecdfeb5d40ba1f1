//! What the counter clock reads: a counter, and the OS clock beside it.

use super::os::OsClock;
use std::time::Duration;

/// A counter and the clock it is compared with. Tests use fakes.
pub(super) trait Sources {
    /// Ticks of the counter.
    fn counter(&self) -> u64;
    /// Nanoseconds of the OS monotonic clock.
    fn os(&self) -> u64;
    /// Lets about `span` pass.
    fn pause(&self, span: Duration);
}

/// The real ones: the time stamp counter and `CLOCK_MONOTONIC`.
#[derive(Debug)]
pub(super) struct Machine;

impl Sources for Machine {
    /// Unfenced: `lfence` or `rdtscp` would keep the cache misses of a check
    /// from overlapping with it. So the processor may read the counter some
    /// tens of nanoseconds early, which [`super::tsc`] allows for.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn counter(&self) -> u64 {
        // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    /// Never trusted, so never read.
    #[cfg(not(target_arch = "x86_64"))]
    fn counter(&self) -> u64 {
        0
    }

    fn os(&self) -> u64 {
        OsClock::Monotonic.nanos()
    }

    fn pause(&self, span: Duration) {
        std::thread::sleep(span);
    }
}

/// A reading of the OS clock between two of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) before: u64,
    pub(super) os: u64,
    pub(super) after: u64,
}

/// How many readings a sample is the best of: an interrupt spoils one, seldom all.
pub(super) const READINGS: u64 = 3;

impl Sample {
    /// The narrowest of a few readings.
    pub(super) fn take(sources: &impl Sources) -> Self {
        let read = || Self { before: sources.counter(), os: sources.os(), after: sources.counter() };
        let narrower = |best: Self, _| {
            let next = read();
            if next.width() < best.width() { next } else { best }
        };
        (1..READINGS).fold(read(), narrower)
    }

    /// How many ticks it took. A counter that went back meanwhile looks very wide.
    fn width(self) -> u64 {
        self.after.wrapping_sub(self.before)
    }
}

/// How long a tick is: nanoseconds in fixed point, with 32 bits of fraction,
/// so that a tick of 0.4 ns is known to within a billionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate(pub(super) u64);

const FRACTION_BITS: u32 = 32;

/// Ticks of 0.01 to 10 ns (100 MHz to 100 GHz). Any real one is well inside.
/// Outside, the fixed point would be too coarse or overflow.
const PLAUSIBLE: std::ops::RangeInclusive<u64> = (1 << FRACTION_BITS) / 100..=10 << FRACTION_BITS;

impl Rate {
    /// The rate of a counter that made `ticks` in `nanos`.
    pub(super) fn of(nanos: u64, ticks: u64) -> Self {
        let rate = (u128::from(nanos) << FRACTION_BITS) / u128::from(ticks.max(1));
        Self(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Whether a real counter can have it.
    pub(super) fn is_plausible(self) -> bool {
        PLAUSIBLE.contains(&self.0)
    }

    /// The ticks of `nanos`, rounded down.
    pub(super) fn ticks(self, nanos: u64) -> u64 {
        ((u128::from(nanos) << FRACTION_BITS) / u128::from(self.0.max(1))) as u64
    }

    /// How long `ticks` take, up to a few seconds, rounded down.
    #[inline]
    pub(super) fn nanos(self, ticks: u64) -> u64 {
        // At most 2^32 ns, 4.2 s, so that the product fits a word. Callers pass one second or less.
        ticks.wrapping_mul(self.0) >> FRACTION_BITS
    }

    /// How long any number of ticks take, negative ones too.
    pub(super) fn nanos_between(self, from: u64, to: u64) -> i128 {
        (i128::from(to.wrapping_sub(from) as i64) * i128::from(self.0)) >> FRACTION_BITS
    }

    /// A rate that yields `nanos` less over `ticks`, but never runs backwards.
    pub(super) fn slowed(self, nanos: u64, ticks: u64) -> Self {
        let less = (u128::from(nanos) << FRACTION_BITS).div_ceil(u128::from(ticks.max(1)));
        Self(self.0.saturating_sub(u64::try_from(less).unwrap_or(u64::MAX)))
    }
}

/// Sources whose readings a test chooses.
#[cfg(all(test, not(loom)))]
pub(super) mod fake {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Ticks of the fake counter in a true second.
    pub(crate) const TICKS_PER_SECOND: u64 = 2_000_000_000;

    thread_local! {
        /// How far the counter of this thread's processor is off from the others, in ticks.
        pub(crate) static SKEW: Cell<i64> = const { Cell::new(0) };
    }

    /// A counter of two ticks a nanosecond, off by some millionths, and an exact OS clock.
    pub(crate) struct Fake {
        times: Mutex<Times>,
        os_readings: AtomicU64,
        /// How much faster the counter gets with each pause.
        ppm_step: i64,
    }

    struct Times {
        counter: u64,
        os: u64,
        /// How much faster than it should the counter runs.
        ppm: i64,
    }

    impl Fake {
        pub(crate) fn new() -> Self {
            Self::speeding_up(0)
        }

        /// One whose counter gets faster with each pause.
        pub(crate) fn speeding_up(ppm_step: i64) -> Self {
            let times = Times { counter: 77_000_000_000, os: 5_000_000_000, ppm: 0 };
            Self { times: Mutex::new(times), os_readings: AtomicU64::new(0), ppm_step }
        }

        fn times(&self) -> MutexGuard<'_, Times> {
            self.times.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Lets time pass, for the OS clock exactly.
        pub(crate) fn advance(&self, span: Duration) {
            let mut times = self.times();
            let nanos = span.as_nanos() as u64;
            let ticks = i128::from(nanos) * 2 * i128::from(1_000_000 + times.ppm) / 1_000_000;
            times.os += nanos;
            times.counter = times.counter.wrapping_add_signed(ticks as i64);
        }

        /// Moves the counter alone.
        pub(crate) fn jump(&self, ticks: i64) {
            let mut times = self.times();
            times.counter = times.counter.wrapping_add_signed(ticks);
        }

        pub(crate) fn run_at(&self, ppm: i64) {
            self.times().ppm = ppm;
        }

        /// The OS clock's time, read without counting as a reading.
        pub(crate) fn true_nanos(&self) -> u64 {
            self.times().os
        }

        /// How often the clock under test has read the OS clock.
        pub(crate) fn os_readings(&self) -> u64 {
            self.os_readings.load(Relaxed)
        }
    }

    impl Sources for Fake {
        fn counter(&self) -> u64 {
            self.times().counter.wrapping_add_signed(SKEW.get())
        }

        fn os(&self) -> u64 {
            self.os_readings.fetch_add(1, Relaxed);
            self.true_nanos()
        }

        fn pause(&self, span: Duration) {
            self.times().ppm += self.ppm_step;
            self.advance(span);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rate_measures_what_it_scales() {
        let rate = Rate::of(1_000_000_000, 2_300_000_000);
        let ticks = rate.ticks(1_000_000_000);
        assert!(ticks.abs_diff(2_300_000_000) <= 2, "{ticks}");
        assert!(rate.nanos(ticks).abs_diff(1_000_000_000) <= 1);
        assert!(rate.nanos_between(ticks, 0).unsigned_abs().abs_diff(1_000_000_000) <= 2);
        assert!(rate.slowed(1_000, ticks).nanos(ticks).abs_diff(999_999_000) <= 2);
        assert_eq!(rate.slowed(u64::MAX, 1), Rate(0));
    }

    #[test]
    fn implausible_rates_are_recognised() {
        for (nanos, ticks) in [(1_000_000, 0), (0, 1_000_000), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(!Rate::of(nanos, ticks).is_plausible(), "{ticks} ticks in {nanos} ns");
        }
        assert!(Rate::of(1_000_000, 800_000).is_plausible());
        assert!(Rate::of(1_000_000, 6_000_000).is_plausible());
    }

    /// Five seconds would overflow; at the slowest plausible rate one second fits.
    #[test]
    fn one_second_fits_at_both_ends_of_the_range() {
        for rate in [Rate(*PLAUSIBLE.start()), Rate(*PLAUSIBLE.end())] {
            let second = rate.ticks(1_000_000_000);
            assert!(rate.nanos(second).abs_diff(1_000_000_000) <= 10, "{rate:?}");
        }
    }

    /// Readings that an interrupt made wide are not used.
    #[test]
    fn sample_is_the_narrowest_reading() {
        struct Interrupted(std::cell::Cell<u64>);
        impl Sources for Interrupted {
            fn counter(&self) -> u64 {
                self.0.get()
            }
            fn os(&self) -> u64 {
                let at = self.0.get();
                self.0.set(at + if at == 4_000 { 10 } else { 2_000 });
                at
            }
            fn pause(&self, _: Duration) {}
        }
        let sample = Sample::take(&Interrupted(std::cell::Cell::new(2_000)));
        assert_eq!(sample, Sample { before: 4_000, os: 4_000, after: 4_010 });
    }
}
