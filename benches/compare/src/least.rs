//! The least check: a check by id without everything that can be left out.
//!
//! The id is hashed by one multiplication, which anyone can make collide. The
//! hash names a line of a table with one to two lines per agent, and nothing
//! checks whose it is, so some agents share one. The line is prefetched, the
//! counter read, and the word there either exchanged or found to lie ahead of
//! all time. No tag, no individual limits, no eviction, no test whether the
//! counter can be trusted, and no answer but yes or no, in a register. What a
//! limiter takes beyond this is its own cost; what this takes beyond a bar is
//! the machine's.
//!
//! Reading the ids from the stream is included, as for the contestants.

use crate::floor::{Tsc, consume, exchange};
use crate::ids::Id;
use crate::misses::{Line, lines, prefetch};
use crate::peers::{Contestant, Lane};
use std::sync::atomic::Ordering;

/// Ahead of all time.
const DENIED: u64 = u64::MAX;

/// Measures the least check as if it were a limiter.
pub struct Least {
    tsc: Tsc,
    /// A power of two lines.
    table: Vec<Line>,
}

impl Least {
    /// For this many agents.
    #[must_use]
    pub fn new(agents: usize, lane: Lane, tsc: Tsc) -> Self {
        let word = if lane == Lane::Denied { DENIED } else { 1 };
        Self { tsc, table: lines(agents.next_power_of_two(), word) }
    }

    fn line(&self, id: &Id) -> &Line {
        let (first, last) = id.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let product = u128::from(word(first) ^ 0x9e37_79b9_7f4a_7c15) * u128::from(word(last) ^ 0xbf58_476d_1ce4_e5b9);
        let hash = product as u64 ^ (product >> 64) as u64;
        &self.table[hash as usize & (self.table.len() - 1)]
    }
}

impl Contestant for Least {
    fn run(&self, ids: &[Id]) {
        for id in ids {
            let word = &self.line(id).0;
            prefetch(word);
            let now = self.tsc.now();
            // Ends with the first undisturbed exchange.
            loop {
                let seen = word.load(Ordering::Acquire);
                if seen == DENIED {
                    consume(now);
                    break;
                }
                // Ahead of what another thread may have written meanwhile.
                if exchange(word, seen, seen.max(now) + 1) {
                    break;
                }
            }
        }
    }

    fn allows(&self, id: &Id) -> bool {
        self.line(id).0.load(Ordering::Acquire) != DENIED
    }
}
