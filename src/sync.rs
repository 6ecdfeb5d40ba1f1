//! The one door to atomics: a single cfg moves the whole core onto loom.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

/// A statistic that no decision depends on: not part of any protocol, so it
/// stays an ordinary atomic under loom and adds nothing to the models.
pub(crate) use std::sync::atomic::AtomicU64 as Counter;

/// Lets another thread run while this one waits.
///
/// Loom sees a waiting loop only through this call. Outside loom the first
/// rounds spin, since what is waited for takes well under a microsecond, and
/// later ones give the processor away.
pub(crate) fn wait(round: u32) {
    #[cfg(loom)]
    {
        let _ = round;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if round < SPIN_ROUNDS {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// How often [`wait`] spins before it yields.
#[cfg(not(loom))]
const SPIN_ROUNDS: u32 = 64;
