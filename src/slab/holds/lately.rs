//! What a process has found out lately, so that a denial does not ask for it again.
//!
//! A denial looks for slots of dead processes. The kernel takes microseconds to
//! say who is dead, an agent may have thousands of entries, and it is a client
//! that decides how often it is denied. So each process remembers, for itself
//! alone:
//!
//! - of each process that it has asked about, whether it was dead;
//! - of an agent whose entries it has looked through in vain, until when it does
//!   not look through them again; and the same of the whole table;
//! - of a table without a free entry, until when it does not look for one.
//!
//! All of that is forgotten after [`LATELY`], or after sixteen times as long as the
//! look took: so looks take a seventeenth of a thread's time at most, however
//! long they are. What is remembered wrongly makes slots of the dead come back
//! later, by that time, and does no other harm. The clock is read by calls that
//! are denied or refused, and by no other.

use crate::bounds::PROCESSES_MAX;
use crate::shared::SHORT_BITS;
use crate::slab::hash::AgentHash;
use crate::sync::{Counter, Ordering};
use std::time::{Duration, Instant};

/// How long something that was found out is believed.
const LATELY: Duration = Duration::from_millis(2);

/// How many times as long as it took nobody looks again.
const PAUSE_FACTOR: u64 = 16;

/// The longest time for which something is believed.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How many agents are remembered: 2 kB.
const AGENTS: usize = 256;

/// Microseconds start over after fifty days. What is that old is then believed for another second, if it is still
/// there.
const TIME_BITS: u32 = u64::BITS - SHORT_BITS;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// See the module.
pub(crate) struct Lately {
    began: Instant,
    /// By seat: the process, when it was asked about, and whether it was dead.
    processes: Box<[Counter]>,
    /// By hash: more of the hash, and until when the agent's entries are not looked through.
    agents: Box<[Counter]>,
    /// Until when the table is not looked through.
    table: Counter,
    /// Until when the table is taken to be full; 0 if it is not.
    full: Counter,
}

/// A look for entries of the dead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    now: u64,
    /// An answer since then is believed.
    since: u64,
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64 // Lossless for half a million years.
}

fn counters(len: usize) -> Box<[Counter]> {
    (0..len).map(|_| Counter::new(0)).collect()
}

impl Lately {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            processes: counters(PROCESSES_MAX),
            agents: counters(AGENTS),
            table: Counter::new(0),
            full: Counter::new(0),
        }
    }

    /// Stands still in models: they must not depend on it.
    fn now(&self) -> u64 {
        if cfg!(loom) { 0 } else { micros(self.began.elapsed()) + micros(PAUSE_MAX) }
    }

    /// A look that believes what was found out lately.
    pub(crate) fn look(&self) -> Look {
        let now = self.now();
        Look { now, since: now.saturating_sub(micros(LATELY)) }
    }

    /// A look that asks about each process once.
    pub(crate) fn look_anew(&self) -> Look {
        let now = self.now();
        Look { now, since: now }
    }

    /// Whether a process is dead; `ask` knows.
    pub(crate) fn is_dead(&self, look: &Look, process: u64, ask: impl FnOnce(u64) -> bool) -> bool {
        let known = &self.processes[process as usize % PROCESSES_MAX];
        let word = known.load(Ordering::Relaxed);
        // The lowest bit of the time makes room for the answer.
        let age = ((word & TIME_MASK) >> 1).wrapping_sub(look.since >> 1) & (TIME_MASK >> 1);
        if word != 0 && word >> TIME_BITS == process && age < micros(PAUSE_MAX) >> 1 {
            return word & 1 != 0;
        }
        let is_dead = ask(process);
        // As of when the look began, which is no later than the answer.
        let time = look.now & TIME_MASK & !1;
        known.store(process << TIME_BITS | time | u64::from(is_dead), Ordering::Relaxed);
        is_dead
    }

    fn of_agent(&self, hash: AgentHash) -> (&Counter, u64) {
        let bits = hash.bits();
        (&self.agents[bits as usize % AGENTS], bits >> TIME_BITS)
    }

    /// Whether it is time to look through the agent's entries.
    pub(crate) fn is_due(&self, look: &Look, hash: AgentHash) -> bool {
        let (until, tag) = self.of_agent(hash);
        let word = until.load(Ordering::Relaxed);
        word >> TIME_BITS != tag || is_over(word, look.now)
    }

    /// Whether it is time to look through the table.
    pub(crate) fn is_table_due(&self, look: &Look) -> bool {
        is_over(self.table.load(Ordering::Relaxed), look.now)
    }

    /// A look through the agent's entries has found nobody dead.
    pub(crate) fn found_none_of(&self, look: &Look, hash: AgentHash) {
        let (until, tag) = self.of_agent(hash);
        until.store(tag << TIME_BITS | self.pause(look), Ordering::Relaxed);
    }

    /// A look through the table has found nobody dead.
    pub(crate) fn found_none(&self, look: &Look) {
        self.table.store(self.pause(look), Ordering::Relaxed);
    }

    /// There was no free entry, neither before the look nor after it.
    pub(crate) fn found_full(&self, look: &Look) {
        self.full.store(self.pause(look), Ordering::Relaxed);
    }

    /// Whether there was no free entry a moment ago.
    pub(crate) fn is_full(&self) -> bool {
        let until = self.full.load(Ordering::Relaxed);
        until != 0 && !is_over(until, self.now())
    }

    /// An entry has become free.
    pub(super) fn freed(&self) {
        if self.full.load(Ordering::Relaxed) != 0 {
            self.full.store(0, Ordering::Relaxed);
        }
    }

    /// Until when nobody looks again.
    fn pause(&self, look: &Look) -> u64 {
        let now = self.now();
        let took = now.saturating_sub(look.now);
        let pause = took.saturating_mul(PAUSE_FACTOR).clamp(micros(LATELY), micros(PAUSE_MAX));
        (now + pause) & TIME_MASK
    }
}

/// Whether the time in a word has come.
fn is_over(word: u64, now: u64) -> bool {
    let left = (word & TIME_MASK).wrapping_sub(now) & TIME_MASK;
    cfg!(loom) || left == 0 || left > micros(PAUSE_MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    const SECOND: u64 = 1_000_000;

    fn look(now: u64) -> Look {
        Look { now, since: now - micros(LATELY) }
    }

    #[test]
    fn a_process_is_asked_about_once_in_a_while() {
        let (lately, asked) = (Lately::new(), Cell::new(0));
        let is_dead = |look: &Look, process: u64, answer: bool| {
            lately.is_dead(look, process, |_| {
                asked.set(asked.get() + 1);
                answer
            })
        };
        let begun = 7 * SECOND;
        assert!(!is_dead(&look(begun), 9, false) && !is_dead(&look(begun + 1_990), 9, true));
        assert_eq!(asked.get(), 1);
        assert!(is_dead(&look(begun + 2_010), 9, true) && is_dead(&look(begun + 2_020), 9, false));
        assert_eq!(asked.get(), 2);
        // The same seat with another generation, and a look that believes no earlier one.
        assert!(!is_dead(&look(begun + 2_030), 1 << 11 | 9, false));
        let anew = Look { now: begun + 2_040, since: begun + 2_040 };
        assert!(is_dead(&anew, 1 << 11 | 9, true) && is_dead(&anew, 1 << 11 | 9, false));
        assert_eq!(asked.get(), 4);
        // When the microseconds start over.
        assert!(!is_dead(&look(begun + (1 << TIME_BITS) - 3 * SECOND), 1 << 11 | 9, false));
        assert!(!is_dead(&look(begun + (1 << TIME_BITS) + 3 * SECOND), 1 << 11 | 9, false));
        assert_eq!(asked.get(), 6);
    }

    #[test]
    fn an_agent_is_looked_at_again_after_a_while() {
        let lately = Lately::new();
        let (one, other) = (AgentHash::from_bits(5 << 50 | 7), AgentHash::from_bits(6 << 50 | 7));
        let look = lately.look();
        assert!(lately.is_due(&look, one) && lately.is_table_due(&look) && !lately.is_full());
        lately.found_none_of(&look, one);
        let at = |after: u64| Look { now: look.now + after, since: look.now + after };
        assert!(!lately.is_due(&at(1_000), one) && lately.is_due(&at(1_000), other));
        assert!(lately.is_due(&at(2 * SECOND), one) && lately.is_table_due(&look));
        lately.found_none_of(&look, other);
        assert!(lately.is_due(&at(1_000), one), "its place is another's");
        lately.found_none(&look);
        assert!(!lately.is_table_due(&at(1_000)) && lately.is_table_due(&at(2 * SECOND)));
        // A look that took half a second is not repeated for a second, and no longer.
        let long = Look { now: look.now.saturating_sub(SECOND / 2), ..look };
        lately.found_full(&long);
        assert!(lately.is_full());
        lately.freed();
        assert!(!lately.is_full());
    }
}
