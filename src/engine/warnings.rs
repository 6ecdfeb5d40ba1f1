//! Warnings that are not repeated: after a warning on a lane, an agent is warned
//! again only once a larger share of the lane was left.
//!
//! # Where a warning is remembered
//!
//! - Not in the lane's word. A bucket's word is 60 bits of time and 4 of
//!   generation, and every operation on it would have to carry the bit on.
//! - But somewhere. Without memory, only the charge that crosses the threshold
//!   could warn, and an agent that is charged as fast as its bucket refills
//!   crosses it with every charge.
//! - Not in the record: no limit depends on a warning, so it need not survive as
//!   long as a debt does.
//!
//! So it is in a table beside the records, like announced waits: a word for an
//! agent and a lane, found by their hash. Another agent may overwrite it; then
//! the first one is warned once more. The word guards no other memory, so every
//! access is relaxed. If the charges of several threads leave one agent below
//! the threshold, the thread that writes the word warns.
//!
//! A policy without this rule pays nothing: its lanes are checked as before.
//! Otherwise no lane takes the fast path, and all checks come by here.

use super::Engine;
use super::charge::Answer;
use crate::bounds::WARNED_KEPT;
use crate::lane::{Decision, Verdict};
use crate::machine::mapping::Words;
use crate::policy::{LaneId, Policy};
use crate::shared::{Memory, Section};
use crate::slab::hash::AgentHash;
use crate::sync::{Counter, Ordering, Setting};
use std::sync::OnceLock;

/// The agents that were warned last, up to [`WARNED_KEPT`].
pub(super) struct Warnings {
    /// The share after which an agent is warned again, in percent; [`EVERY`] if
    /// all warnings are given.
    again_percent: Setting,
    /// Which agent and lane each place is for; 0 for none. Allocated by the
    /// first policy that needs it.
    warned: OnceLock<Words<Counter>>,
    memory: Memory,
}

/// More than any share.
const EVERY: usize = usize::MAX;

impl Warnings {
    pub(super) fn new(memory: &Memory, policy: &Policy) -> Self {
        let (again_percent, warned) = (Setting::new(EVERY), OnceLock::new());
        let warnings = Self { again_percent, warned, memory: memory.clone() };
        warnings.set(policy);
        warnings
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.warned.get().map_or(0, |warned| size_of_val(&**warned) as u64)
    }

    /// Puts the policy's rule in force.
    pub(super) fn set(&self, policy: &Policy) {
        let percent = policy.warn_again_percent().map(usize::from);
        if let (Some(_), None) = (percent, self.warned.get()) {
            // Without memory for it, every warning is given.
            let _ = self.memory.words(Section::Warned, WARNED_KEPT).map(|words| self.warned.set(words));
        }
        let percent = percent.filter(|_| self.warned.get().is_some());
        self.again_percent.store(percent.unwrap_or(EVERY), Ordering::Relaxed);
    }

    /// Whether some warnings are held back.
    pub(super) fn is_used(&self) -> bool {
        self.again_percent.load(Ordering::Relaxed) != EVERY
    }

    /// The verdict, without a warning that the agent was given before.
    fn once(&self, hash: AgentHash, lane: LaneId, cost: u64, verdict: Verdict) -> Verdict {
        let percent = self.again_percent.load(Ordering::Relaxed);
        let (Some(warned), Decision::Allow | Decision::Warn) = (self.warned.get(), verdict.decision()) else {
            return verdict;
        };
        // The product scatters the bits that the lane changes; its high bits are the best.
        let key = hash.bits() ^ u64::from(lane.number()).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let key = key.wrapping_mul(0xd6e8_feb8_6659_fd93).max(1);
        let place = &warned[(key >> 32) as usize % warned.len()];
        let before = u128::from(verdict.remaining()) + u128::from(cost);
        let is_rested = before * 100 >= u128::from(verdict.capacity) * percent as u128;
        if verdict.decision() == Decision::Warn {
            let was_warned = place.load(Ordering::Relaxed) == key || place.swap(key, Ordering::Relaxed) == key;
            return if was_warned && !is_rested { verdict.without_warning() } else { verdict };
        }
        if is_rested && place.load(Ordering::Relaxed) == key {
            // If it is another's by now, it stays.
            let _ = place.compare_exchange(key, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        verdict
    }
}

impl Engine {
    /// Withholds a warning that the agent was given before from the answer to a charge.
    #[inline]
    pub(super) fn warn_once(&self, agent: &[u8], lane: LaneId, cost: u64, answer: Answer) -> Answer {
        if self.warnings.is_used() { self.withhold_warning(agent, lane, cost, answer) } else { answer }
    }

    #[cold]
    #[inline(never)]
    fn withhold_warning(&self, agent: &[u8], lane: LaneId, cost: u64, answer: Answer) -> Answer {
        Ok(self.warnings.once(self.hash(agent)?, lane, cost, answer?))
    }
}
