//! Exempt agents, found without a lock: a table of their hashes.
//!
//! An exempt agent needs no record, since nothing is ever charged to it. But a
//! check that finds no record looks in the registry, which takes a lock. This
//! table answers first, for a hot agent such as a dashboard.
//!
//! # The protocol
//!
//! A hash is one word, in one of the eight places of its line: 64 bytes, like a
//! cache line. Hashes never move, so a reader of the line finds a hash as long as
//! it is in there. The registry puts a hash in and takes it out with one store,
//! when it changes the agent's entry. It then holds the lock of the agent's
//! neighbourhood in the slab, that of its shard, and that of control calls; the
//! last makes it the only writer.
//!
//! - *Found* is an answer: the agent was exempt at some moment during the
//!   look. Every store is whole, so no reader sees half a change.
//! - *Not found* is not an answer: a line may be full. Then the registry
//!   answers under its lock: the same, but slower. So the table can have a fixed
//!   size, and there can never be too many exemptions for it.
//!
//! *Claim*: a check that starts after `exempt` or `unexempt` has returned
//! answers accordingly. If the agent has a record, its tag names the row, as in
//! any change of limits. If it has none, this table was changed before the call
//! returned, and the store happens before the check's loads: by coherence they
//! read it or a later one, so Relaxed is enough; nothing else is read through
//! the word, because the row of exempt agents is never written again. If the
//! record is being claimed meanwhile, the claim looks under the locks under
//! which the table is changed: it comes before the change, which then finds the
//! record, or it sees that the agent is exempt and takes no record.
//!
//! # An agent that has a record
//!
//! It keeps its record when it becomes exempt, with another row. Without the
//! record, debt, violations, held slots and reservations would be lost, and an
//! exemption that ends after a second would have been a reset. Nothing is
//! charged any more, so its lanes fill up, and then its record goes like that of
//! any idle agent: to a newcomer, or at the next sweep. It does not come back.

use crate::bounds::EXEMPT_KEPT;
use crate::machine::mapping::Words;
use crate::shared::{Memory, Section};
use crate::slab::hash::AgentHash;
use crate::sync::{AtomicU64, Fault, Ordering, broken};

/// Places in a line.
const LINE: usize = if cfg!(loom) { 1 } else { 8 };

/// Hashes of exempt agents, as many as there is room for.
pub(super) struct ExemptTable(Words<[AtomicU64; LINE]>);

impl ExemptTable {
    /// If the system refuses the memory, the error is how many bytes were needed.
    pub(super) fn within(memory: &Memory) -> Result<Self, u64> {
        memory.words(Section::Exempt, EXEMPT_KEPT / LINE).map(Self)
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    /// Touches its pages now. If the system refuses, the error is how many bytes were needed.
    pub(super) fn prefault(&self) -> Result<(), u64> {
        if self.0.prefault() { Ok(()) } else { Err(self.reserved_bytes()) }
    }

    fn line(&self, hash: AgentHash) -> &[AtomicU64; LINE] {
        // Other bits than for the home, so that neighbours in the slab are not neighbours here.
        &self.0[(hash.bits() >> 8) as usize % self.0.len()]
    }

    /// Whether the agent is known here to be exempt. `false` is not an answer.
    pub(super) fn has(&self, hash: AgentHash) -> bool {
        // The hash of nobody marks an empty place.
        hash != AgentHash::NOBODY && self.line(hash).iter().any(|word| word.load(Ordering::Relaxed) == hash.bits())
    }

    /// Puts the agent in, or takes it out. The caller is the only one to write.
    pub(super) fn set(&self, hash: AgentHash, is_exempt: bool) {
        let line = self.line(hash);
        let place_of = |bits| line.iter().find(|word| word.load(Ordering::Relaxed) == bits);
        match (is_exempt, place_of(hash.bits())) {
            (true, None) => {
                if let Some(vacant) = place_of(AgentHash::NOBODY.bits()) {
                    vacant.store(hash.bits(), Ordering::Relaxed);
                }
            }
            (false, Some(place)) if !broken(Fault::ExemptionStays) => {
                place.store(AgentHash::NOBODY.bits(), Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Hashes that crowd into two lines: an agent that is found was put in and
        /// not taken out, and one that was taken out is not found. A line that is
        /// not full loses no agent.
        #[test]
        fn the_table_finds_only_what_is_in_it(edits in prop::collection::vec((0..24_u64, any::<bool>()), 0..200)) {
            let table = ExemptTable::within(&Memory::Private).unwrap();
            let hash = |agent: u64| AgentHash::from_bits((agent << 32) | ((agent % 2) << 8) | 7);
            let mut exempt = BTreeSet::new();
            let mut most = [0; 2];
            for (agent, is_exempt) in edits {
                table.set(hash(agent), is_exempt);
                if is_exempt { exempt.insert(agent) } else { exempt.remove(&agent) };
                for line in 0..2 {
                    let now = exempt.iter().filter(|agent| *agent % 2 == line).count();
                    most[line as usize] = most[line as usize].max(now);
                }
                for agent in 0..24 {
                    let (is_found, is_in) = (table.has(hash(agent)), exempt.contains(&agent));
                    prop_assert!(is_found <= is_in, "agent {}", agent);
                    prop_assert!(most[agent as usize % 2] > LINE || is_found == is_in, "agent {}", agent);
                }
            }
        }
    }

    #[test]
    fn nobody_is_not_exempt() {
        let table = ExemptTable::within(&Memory::Private).unwrap();
        assert!(!table.has(AgentHash::NOBODY));
        table.set(AgentHash::NOBODY, true);
        assert!(!table.has(AgentHash::NOBODY));
    }

    /// With half of the places in use, few agents need the lock.
    #[test]
    fn there_is_room_for_thousands() {
        let (table, key) = (ExemptTable::within(&Memory::Private).unwrap(), crate::slab::hash::fixed_key(5));
        let hashes: Vec<_> = (0..4_096).map(|agent| key.hash(format!("agent-{agent}").as_bytes())).collect();
        hashes.iter().for_each(|hash| table.set(*hash, true));
        let found = hashes.iter().filter(|hash| table.has(**hash)).count();
        assert!(found > 4_000, "{found} of 4,096");
        hashes.iter().for_each(|hash| table.set(*hash, false));
        assert!(!hashes.iter().any(|hash| table.has(*hash)));
    }
}
