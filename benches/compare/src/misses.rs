//! What a cache miss costs, alone and after a read of the counter.
//!
//! Each turn loads one random line of a table with a line per agent, on huge
//! pages where the system grants them. Lines are chosen by mixing a counter, so
//! no turn waits for the previous one, and the processor overlaps as many
//! misses as it can, unless something between the turns makes it wait. The
//! figures include that mixing, about 2 ns; no ids are read and no answers
//! written.

use crate::floor::{Tsc, consume};
use crate::ids::{Id, Random};
use crate::peers::Contestant;
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::sync::atomic::{AtomicU64, Ordering};

/// What each turn does besides the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing: misses overlap.
    Nothing,
    /// Reads the counter first.
    Tsc,
}

/// A cache line.
#[repr(align(64))]
pub(crate) struct Line(pub(crate) AtomicU64);

/// This many lines on huge pages, with this word in each.
pub(crate) fn lines(count: usize, word: u64) -> Vec<Line> {
    let mut table: Vec<Line> = Vec::with_capacity(count);
    advise_huge(table.as_mut_ptr().cast(), count * size_of::<Line>());
    table.extend((0..count).map(|_| Line(AtomicU64::new(word))));
    table
}

/// Measures a miss as if it were a limiter.
pub struct Misses {
    beside: Beside,
    tsc: Tsc,
    lines: Vec<Line>,
    turn: AtomicU64,
}

impl Misses {
    /// A table of this many lines.
    #[must_use]
    pub fn new(lines: usize, beside: Beside, tsc: Tsc) -> Self {
        Self { beside, tsc, lines: self::lines(lines, 1), turn: AtomicU64::new(0) }
    }
}

/// Starts to fetch the line of `word`.
#[inline(always)]
pub(crate) fn prefetch(word: &AtomicU64) {
    // SAFETY: a prefetch reads nothing and cannot fault, and SSE is part of every x86-64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
}

/// Asks for huge pages; a refusal does not matter.
pub(crate) fn advise_huge(start: *mut u8, bytes: usize) {
    const PAGE: usize = 4096;
    let skipped = start.align_offset(PAGE);
    if bytes < skipped + PAGE {
        return;
    }
    // SAFETY: the advice changes no contents, and the range lies within the caller's allocation.
    unsafe { libc::madvise(start.wrapping_add(skipped).cast(), (bytes - skipped) & !(PAGE - 1), libc::MADV_HUGEPAGE) };
}

impl Contestant for Misses {
    fn run(&self, ids: &[Id]) {
        let begin = self.turn.fetch_add(ids.len() as u64, Ordering::Relaxed);
        let line = |turn: u64| &self.lines[Random::new(begin + turn).below(self.lines.len())].0;
        let turns = 0..ids.len() as u64;
        match self.beside {
            Beside::Nothing => turns.for_each(|turn| consume(line(turn).load(Ordering::Acquire))),
            Beside::Tsc => turns.for_each(|turn| {
                consume(self.tsc.now());
                consume(line(turn).load(Ordering::Acquire));
            }),
        }
    }
}
