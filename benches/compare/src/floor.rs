//! The floor: what a decision costs on this machine at least.
//!
//! The floor is one loop whose turns each read the counter register (TSC) and
//! scale it to nanoseconds, load one word, and exchange it by an uncontended
//! compare-exchange on a hot line. The pieces are also measured separately;
//! they overlap in the processor, so they need not add up to the floor. Results
//! stay in registers: unlike the contestants' loops, these read no ids and
//! write no answers.

use crate::ids::Id;
use crate::measure::clock_ns;
use crate::peers::Contestant;
use std::arch::asm;
use std::arch::x86_64::_rdtsc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The counter register, scaled to nanoseconds by one multiplication.
#[derive(Clone, Copy, Debug)]
pub struct Tsc {
    /// Nanoseconds per tick, in units of 2^-32.
    scale: u64,
    origin: u64,
}

const CALIBRATION: Duration = Duration::from_millis(200);
const SCALE_BITS: u32 = 32;

impl Tsc {
    /// Compares the counter with the system's clock for a fifth of a second.
    ///
    /// It is trusted from then on, which is fine for a bench but not for a limiter.
    #[must_use]
    pub fn calibrate() -> Self {
        let (ticks, nanos) = Self::pair();
        let start = Instant::now();
        while start.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let (ticks_after, nanos_after) = Self::pair();
        let scale = (u128::from(nanos_after - nanos) << SCALE_BITS) / u128::from(ticks_after - ticks);
        Self { scale: scale as u64, origin: ticks }
    }

    /// Both clocks at the same moment: of several pairs, the one that took the least time.
    fn pair() -> (u64, u64) {
        let read = |_| {
            let before = rdtsc();
            let nanos = clock_ns(libc::CLOCK_MONOTONIC);
            let after = rdtsc();
            (after - before, before + (after - before) / 2, nanos)
        };
        let (_, ticks, nanos) = (0..100).map(read).min().expect("a hundred pairs");
        (ticks, nanos)
    }

    /// Nanoseconds since calibration.
    #[inline]
    #[must_use]
    pub fn now(&self) -> u64 {
        ((u128::from(rdtsc() - self.origin) * u128::from(self.scale)) >> SCALE_BITS) as u64
    }

    /// Ticks per nanosecond.
    #[must_use]
    pub fn gigahertz(&self) -> f64 {
        (1_u64 << SCALE_BITS) as f64 / self.scale as f64
    }
}

#[inline]
fn rdtsc() -> u64 {
    // SAFETY: every x86-64 processor has the counter, and Linux lets programs read it.
    unsafe { _rdtsc() }
}

/// Makes the compiler believe that `value` is used, at no cost.
#[inline(always)]
pub fn consume(value: u64) {
    // SAFETY: the assembly is empty.
    unsafe { asm!("/* {0} */", in(reg) value, options(nostack, preserves_flags)) };
}

/// Makes the compiler forget what it knows about `value`, at no cost.
#[inline(always)]
#[must_use]
pub fn opaque(mut value: usize) -> usize {
    // SAFETY: the assembly is empty.
    unsafe { asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// One piece of the floor, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Counter, load and exchange.
    All,
    /// The counter, scaled.
    Tsc,
    /// One load.
    Load,
    /// One exchange that succeeds.
    Exchange,
    /// `clock_gettime(CLOCK_MONOTONIC)`.
    OsClock,
    /// Load and exchange until it succeeds: what threads do to one word.
    ExchangeLoop,
}

/// A word on its own cache line.
#[repr(align(128))]
struct HotLine(AtomicU64);

/// Measures a [`Piece`] as if it were a limiter.
pub struct Floor {
    piece: Piece,
    tsc: Tsc,
    hot: HotLine,
}

impl Floor {
    /// A piece, ready to run.
    #[must_use]
    pub fn new(piece: Piece, tsc: Tsc) -> Self {
        Self { piece, tsc, hot: HotLine(AtomicU64::new(0)) }
    }
}

impl Contestant for Floor {
    /// As many turns as there are ids; the ids are not read.
    fn run(&self, ids: &[Id]) {
        let word = &self.hot.0;
        match self.piece {
            Piece::All => turns(ids, || {
                let now = self.tsc.now();
                let seen = word.load(Ordering::Acquire);
                exchange(word, seen, now);
            }),
            Piece::Tsc => turns(ids, || consume(self.tsc.now())),
            Piece::Load => turns(ids, || consume(word.load(Ordering::Acquire))),
            Piece::Exchange => {
                let mut value = word.load(Ordering::Relaxed);
                turns(ids, || {
                    exchange(word, value, value + 1);
                    value += 1;
                });
            }
            Piece::OsClock => turns(ids, || consume(clock_ns(libc::CLOCK_MONOTONIC))),
            Piece::ExchangeLoop => turns(ids, || {
                loop {
                    let seen = word.load(Ordering::Acquire);
                    if exchange(word, seen, seen + 1) {
                        break;
                    }
                }
            }),
        }
    }
}

#[inline(always)]
fn turns(ids: &[Id], mut turn: impl FnMut()) {
    for _ in 0..ids.len() {
        turn();
    }
}

/// One compare-exchange, whose outcome the compiler believes is used.
#[inline(always)]
pub fn exchange(word: &AtomicU64, seen: u64, next: u64) -> bool {
    let result = word.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed);
    consume(u64::from(result.is_ok()));
    result.is_ok()
}
