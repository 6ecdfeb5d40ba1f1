//! Whether the time stamp counter may be trusted, decided once in a process.
//!
//! Other limiters were wrong for hours because they took a counter on faith.
//! Here it must pass four checks, and it is compared with the OS clock for as
//! long as it is used ([`super::tsc`]).

use super::Tick;
use super::sources::{Machine, Rate, Sample, Sources};
use super::tsc::CounterClock;
use once_cell::race::OnceBox;
use std::time::Duration;

/// The machine's counter clock, or `None` where the counter is not trusted.
///
/// There is one per process: all limiters agree on the time, and if the counter
/// fails, it fails for all. The first call runs the checks, which take 8 ms.
///
/// No caller waits for another's checks: threads whose first calls overlap each
/// run them, and all use the clock that is finished first. With
/// `std::sync::OnceLock` a child forked during the first call would wait for a
/// thread that it does not have.
pub(super) fn machine_clock() -> Option<&'static CounterClock<Machine>> {
    static CLOCK: OnceBox<Option<CounterClock<Machine>>> = OnceBox::new();
    // Loom's atomics live no longer than one run of a model, so models have no such clock.
    let start = || if cfg!(loom) { None } else { start(Machine, Facts::read()).ok() };
    CLOCK.get_or_init(|| Box::new(start())).as_ref()
}

/// Why the counter is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distrust {
    /// The kernel, which watches its clock sources, does not use it either.
    Clocksource,
    /// The processor does not promise that it ticks at one rate in every power state.
    NotInvariant,
    /// Its rate against the OS clock was not the same twice, or not plausible.
    Unsteady,
    /// The machine has run for nearly as long as a [`Tick`] can count.
    OutOfRange,
}

/// What the system reports about the counter.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// The name of the kernel's clock source, if it has one.
    pub(super) clocksource: Option<String>,
    /// The processor's promise of an invariant counter.
    pub(super) invariant: bool,
}

/// Where Linux names its clock source. Other systems have no such file, and no trusted counter.
const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

impl Facts {
    pub(super) fn read() -> Self {
        Self { clocksource: std::fs::read_to_string(CLOCKSOURCE).ok(), invariant: invariant_counter() }
    }

    fn judge(&self) -> Result<(), Distrust> {
        if self.clocksource.as_deref().map(str::trim) != Some("tsc") {
            return Err(Distrust::Clocksource);
        }
        if self.invariant { Ok(()) } else { Err(Distrust::NotInvariant) }
    }
}

/// Invariant TSC: CPUID leaf 8000_0007h, EDX bit 8 (Intel SDM volume 3, "Invariant TSC").
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "CPUID is unsafe up to Rust 1.93 and safe from 1.94 on")]
fn invariant_counter() -> bool {
    const EXTENDED: u32 = 0x8000_0000;
    const POWER: u32 = 0x8000_0007;
    // SAFETY: every x86-64 processor has CPUID and its leaf of extended maxima.
    let leaf_max = unsafe { std::arch::x86_64::__cpuid(EXTENDED) }.eax;
    // SAFETY: as above, and the leaf exists.
    leaf_max >= POWER && unsafe { std::arch::x86_64::__cpuid(POWER) }.edx & 1 << 8 != 0
}

/// No other processor's counter is read.
#[cfg(not(target_arch = "x86_64"))]
fn invariant_counter() -> bool {
    false
}

/// How long each measurement of the rate takes.
const WINDOW: Duration = Duration::from_millis(4);

/// How many windows are tried; two in a row that agree are enough.
const WINDOWS_MAX: u32 = 4;

/// Two windows agree if their rates differ by at most one part in this many.
/// 200 ppm of 4 ms is 800 ns: ten times the width of an undisturbed reading,
/// and within what the tolerance of the later comparisons leaves room for.
const RATES_AGREE: u64 = 5_000;

/// How far before the end of the range a clock must start: more than the length of a line.
const MARGIN: Duration = Duration::from_secs(60);

/// A clock on a counter that passes every check.
pub(super) fn start<S: Sources>(sources: S, facts: Facts) -> Result<CounterClock<S>, Distrust> {
    facts.judge()?;
    let mut start = Sample::take(&sources);
    let mut last: Option<Rate> = None;
    for _ in 0..WINDOWS_MAX {
        sources.pause(WINDOW);
        let end = Sample::take(&sources);
        let rate = Rate::of(end.os.saturating_sub(start.os), end.after.wrapping_sub(start.after));
        let agree = last.is_some_and(|last| last.0.abs_diff(rate.0) <= rate.0 / RATES_AGREE);
        if agree && rate.is_plausible() {
            let fits = end.os < (Tick::MAX.as_nanos() - MARGIN.as_nanos() as u64);
            return if fits { Ok(CounterClock::start(sources, rate, end)) } else { Err(Distrust::OutOfRange) };
        }
        (start, last) = (end, Some(rate));
    }
    Err(Distrust::Unsteady)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::sources::fake::Fake;
    use super::*;

    fn good() -> Facts {
        Facts { clocksource: Some("tsc\n".into()), invariant: true }
    }

    fn distrust(sources: Fake, facts: Facts) -> Option<Distrust> {
        start(sources, facts).err()
    }

    #[test]
    fn no_counter_is_trusted_near_the_end_of_the_range() {
        let fake = Fake::new();
        let rest = Duration::from_nanos(Tick::MAX.as_nanos() - fake.true_nanos());
        fake.advance(rest - MARGIN);
        assert_eq!(start(fake, good()).err(), Some(Distrust::OutOfRange));
    }

    #[test]
    fn a_good_counter_is_trusted() {
        assert_eq!(distrust(Fake::new(), good()), None);
    }

    #[test]
    fn another_clocksource_is_distrusted() {
        for name in ["kvm-clock\n", "hpet\n", "tsc-early\n", ""] {
            let facts = Facts { clocksource: Some(name.into()), ..good() };
            assert_eq!(distrust(Fake::new(), facts), Some(Distrust::Clocksource), "{name:?}");
        }
        let facts = Facts { clocksource: None, ..good() };
        assert_eq!(distrust(Fake::new(), facts), Some(Distrust::Clocksource));
    }

    #[test]
    fn a_counter_that_may_vary_is_distrusted() {
        let facts = Facts { invariant: false, ..good() };
        assert_eq!(distrust(Fake::new(), facts), Some(Distrust::NotInvariant));
    }

    #[test]
    fn a_rate_that_changes_is_distrusted() {
        let sources = Fake::speeding_up(500);
        assert_eq!(distrust(sources, good()), Some(Distrust::Unsteady));
    }

    #[test]
    fn a_counter_that_stands_still_or_runs_back_is_distrusted() {
        for ppm in [-1_000_000, -2_000_000] {
            let sources = Fake::new();
            sources.run_at(ppm);
            assert_eq!(distrust(sources, good()), Some(Distrust::Unsteady), "{ppm} ppm");
        }
    }

    /// The machine's clock exists only if the repeatable checks pass. The
    /// converse depends on what else runs during this test.
    #[test]
    fn machine_clock_keeps_to_the_checks() {
        let facts = Facts::read();
        let clock = machine_clock();
        assert!(clock.is_none() || facts.judge().is_ok(), "trusted against {facts:?}");
        assert!(clock.map(std::ptr::from_ref) == machine_clock().map(std::ptr::from_ref), "one per process");
    }
}
