//! The kernel's clocks, read without a system call where the vDSO allows.

/// One of the kernel's clocks. Each of them counts from the start of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OsClock {
    /// `CLOCK_MONOTONIC`: stops while the machine is suspended.
    Monotonic,
    /// `CLOCK_MONOTONIC_COARSE`: the same, at the kernel's last tick.
    Coarse,
    /// `CLOCK_BOOTTIME`: keeps running while the machine is suspended.
    Boottime,
}

impl OsClock {
    /// Nanoseconds since the start of the machine.
    #[inline]
    pub(super) fn nanos(self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a timespec of ours that is valid for writes.
        let result = unsafe { libc::clock_gettime(self.id(), &mut time) };
        // It fails only for a clock that the kernel does not know. Time then
        // stays at zero, which only makes a limiter stricter.
        debug_assert_eq!(result, 0, "clock_gettime of {self:?}");
        (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
    }

    /// The kernel's id for it. Other systems have one monotonic clock, which
    /// then serves as all three.
    #[inline]
    fn id(self) -> libc::clockid_t {
        match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            OsClock::Coarse => libc::CLOCK_MONOTONIC_COARSE,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            OsClock::Boottime => libc::CLOCK_BOOTTIME,
            _ => libc::CLOCK_MONOTONIC,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn never_steps_back() {
        for clock in [OsClock::Monotonic, OsClock::Coarse, OsClock::Boottime] {
            let mut last = clock.nanos();
            for _ in 0..10_000 {
                let now = clock.nanos();
                assert!(now >= last, "{clock:?}: {now} after {last}");
                last = now;
            }
        }
    }

    /// The coarse clock shows a past instant, so it never leads.
    #[test]
    fn coarse_clock_lags() {
        for _ in 0..10_000 {
            let coarse = OsClock::Coarse.nanos();
            let exact = OsClock::Monotonic.nanos();
            assert!(coarse <= exact, "coarse {coarse}, then exact {exact}");
        }
    }
}
