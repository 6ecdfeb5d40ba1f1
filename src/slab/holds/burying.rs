//! How entries of dead processes are taken over, and ended.
//!
//! A caller that finds the process of an entry dead takes the entry over, by an
//! exchange of the very state that it judged, and ends the operation as the claim
//! tells: slots that were being taken are taken and then given back, or never
//! were; a release is done, or has to be done by the owner. Every step is an
//! operation of the same form, so the burier may die too.
//!
//! An agent's entries are looked at when it is denied a slot, unless that was in
//! vain a moment ago: see [`lately`](super::lately). All are looked at when none is free, at a
//! sweep and when a process joins.

use super::state::{BUSY, DONE, OPEN, State, next};
use super::{Holds, LANE_BITS, LANE_MASK, Operation, Remains};
use crate::lane::{LaneWord, held};
use crate::policy::LaneId;
use crate::slab::hash::AgentHash;
use crate::sync::{Fault, Ordering, broken};

impl Holds {
    /// Takes over an entry if a dead process has left it, so that this one can bury it. `is_dead` judges processes.
    ///
    /// The loop ends: each further round is somebody who has confirmed the operation, once, or taken the entry over.
    pub(crate) fn take_over(&self, number: usize, process: u64, is_dead: impl Fn(u64) -> bool) -> Option<Remains> {
        let entry = &self.entries[number];
        loop {
            let state = self.state(number);
            let about = entry.about.load(Ordering::Relaxed);
            let (is_open, of) = match state.phase() {
                OPEN => (true, about >> LANE_BITS),
                BUSY => (false, state.process()),
                _ => return None,
            };
            if of == process || !is_dead(of) {
                return None;
            }
            let generation = if is_open { next(state.generation()) } else { state.generation() };
            let taken = State(State::new(BUSY, generation, process, state.count()).0 | state.0 & DONE);
            let is_taken = if broken(Fault::EntryTakenByStore) {
                entry.state.store(taken.0, Ordering::Release);
                true
            } else {
                self.exchange(number, state, taken)
            };
            if is_taken {
                return Some(Remains {
                    operation: Operation { number, generation, count: state.count(), process },
                    hash: AgentHash::from_bits(entry.hash.load(Ordering::Relaxed)),
                    lane: LaneId::new((about & LANE_MASK) as u32),
                    is_open,
                });
            }
        }
    }

    /// The operation that ends an entry that was taken over; `None` if it has ended with that. `word` reads the word of
    /// its lane, if the agent has a record.
    pub(crate) fn judge(&self, remains: &Remains, word: impl FnOnce() -> Option<LaneWord>) -> Option<Operation> {
        let operation = remains.operation;
        if remains.is_open {
            return Some(operation); // Nothing was under way: give all of it back.
        }
        let is_done = || self.state(operation.number).is_done();
        let too_early = broken(Fault::ConfirmedBeforeWord).then(is_done);
        let is_marked = word().is_some_and(|word| held::mark(word) == operation.mark());
        // After the word: see the claim.
        let took_place = is_marked || too_early.unwrap_or_else(is_done) || broken(Fault::Unjudged);
        let is_release = operation.generation % 2 == 1;
        match (is_release, took_place) {
            (false, true) => {
                // Taken: now it is given back, as another operation.
                let generation = next(operation.generation);
                self.put(operation.number, State::new(BUSY, generation, operation.process, operation.count));
                Some(Operation { generation, ..operation })
            }
            (false, false) => {
                self.freed(operation);
                None
            }
            (true, true) => {
                self.released(operation, self.entries[operation.number].releasing.load(Ordering::Acquire));
                None
            }
            // What is left open is its owner's, dead or alive.
            (true, false) => {
                self.reopened(operation);
                None
            }
        }
    }
}
