//! Who holds which slots of a shared slab, so that those of a dead process come back.
//!
//! A held lane's word counts slots, and does not say whose they are. In a
//! [shared](crate::shared) slab each call that takes slots is also an entry of
//! this table, with the process that holds them. Whoever finds that process dead
//! gives them back.
//!
//! # The problem
//!
//! A process may be killed between the exchange of the lane's word and the note
//! of it in the table. Giving back what was never taken would let more pass than
//! the limit; not giving back what was taken would lose the slot for good. So
//! whether an exchange took place must be known afterwards, whatever happened
//! to the word since.
//!
//! # The protocol
//!
//! Each change of a lane's word, to take slots or to give them back, is an
//! *operation* of one entry: the entry's number and a generation, its
//! [mark](HoldMark). The exchange writes the mark into the word beside the count.
//!
//! ```text
//!         56  37 36     15 14       3    2   1     0
//!        ┌───────┬─────────┬──────────┬──────┬───────┐
//! state: │ count │ process │generation│ done │ phase │   free, busy, open
//!        └───────┴─────────┴──────────┴──────┴───────┘
//! ```
//!
//! 1. The entry becomes *busy*, with this process and the operation's generation:
//!    an even one takes slots, an odd one gives back.
//! 2. **Confirm**: before any exchange that replaces a word, the operation that
//!    the word is marked with is confirmed: if its entry is still busy with it, it
//!    gets the bit *done*.
//! 3. The exchange, with this operation's mark.
//! 4. The entry becomes *open*, or *free*.
//!
//! *Claim*: for an entry that a dead process left busy, the operation took place
//! if and only if the entry is done, or the lane's word has the operation's mark.
//!
//! If the word has the mark, the exchange wrote it: nobody else writes that mark.
//! If the entry is done, somebody has read the mark in the word. Conversely, say
//! that the exchange took place and the word has another mark by now. Then some
//! exchange was the first to replace the mark, and its caller had confirmed it
//! before. Whoever reads the later word (Acquire) sees that. So the word is read
//! first and the bit after it.
//!
//! Generations start over after 2,047 uses of an entry. An old mark is then taken
//! for a new one if the same agent, whose lane nobody has changed since, is about
//! to take slots by the same entry, and the process dies at that moment.
//!
//! A record that changes tenants or limits keeps its marks; those exchanges confirm
//! too, so nothing is lost with the record.
//!
//! # Burying
//!
//! A caller that finds the process of an entry dead takes the entry over, by an
//! exchange of the very state that it judged, and ends the operation as the claim
//! tells: slots that were being taken are taken and then given back, or never
//! were; a release is done, or has to be done by the owner. Every step is an
//! operation of the same form, so the burier may die too. An agent's entries are
//! looked at when it is denied a slot, and all at a sweep and when a process
//! joins.

use super::hash::AgentHash;
use crate::bounds::HOLDS_MAX;
use crate::lane::held::HoldMark;
use crate::lane::{LaneWord, held};
use crate::machine::mapping::{Words, atomics};
use crate::policy::LaneId;
use crate::record::Confirm;
use crate::shared::{Memory, SHORT_BITS, Section};
use crate::sync::{AtomicU64, Fault, Ordering, QuietU64, broken};

const PHASE_MASK: u64 = 3;
const FREE: u64 = 0;
const BUSY: u64 = 1;
const OPEN: u64 = 2;
const DONE: u64 = 4;
const GENERATION_SHIFT: u32 = 3;
const PROCESS_SHIFT: u32 = GENERATION_SHIFT + HoldMark::GENERATION_BITS;
const COUNT_SHIFT: u32 = PROCESS_SHIFT + SHORT_BITS;
const _: () = assert!((crate::bounds::HELD_MAX << COUNT_SHIFT) >> COUNT_SHIFT == crate::bounds::HELD_MAX);
const _: () = assert!(HOLDS_MAX <= 1 << HoldMark::NUMBER_BITS);

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State(u64);

impl State {
    const fn new(phase: u64, generation: u64, process: u64, count: u64) -> Self {
        let generation = generation & HoldMark::GENERATION_MASK;
        Self(count << COUNT_SHIFT | process << PROCESS_SHIFT | generation << GENERATION_SHIFT | phase)
    }

    const fn phase(self) -> u64 {
        self.0 & PHASE_MASK
    }

    const fn is_done(self) -> bool {
        self.0 & DONE != 0
    }

    const fn generation(self) -> u64 {
        self.0 >> GENERATION_SHIFT & HoldMark::GENERATION_MASK
    }

    /// Who is at work on it, if it is busy.
    const fn process(self) -> u64 {
        self.0 >> PROCESS_SHIFT & ((1 << SHORT_BITS) - 1)
    }

    const fn count(self) -> u64 {
        self.0 >> COUNT_SHIFT
    }
}

/// The generation after this one. 0 is left out, so that no mark is that of a fresh word; so is 1, to stay even.
const fn next(generation: u64) -> u64 {
    match (generation + 1) & HoldMark::GENERATION_MASK {
        0 => 2,
        next => next,
    }
}

atomics! {
    /// An entry. The process that is at work on it writes all but the state.
    struct HoldEntry {
        state: AtomicU64,
        hash: QuietU64,
        /// The lane and, above it, the process that holds the slots.
        about: QuietU64,
        /// How many are being given back.
        releasing: QuietU64,
    }
}

const LANE_BITS: u32 = 8;

/// Entries that agents of one home start from. They may go on into the next.
const HOME: usize = if cfg!(loom) { 2 } else { 64 };

/// Every call that holds slots.
pub(crate) struct Holds {
    entries: Words<HoldEntry>,
    /// How far from its start the entries of each home reach.
    reach: Words<QuietU64>,
}

/// The bytes of the table and of its homes, for this many entries.
#[cfg_attr(
    not(all(feature = "shared", target_os = "linux", not(loom))),
    allow(dead_code, reason = "for a shared file")
)]
pub(crate) const fn bytes(entries: usize) -> [usize; 2] {
    [entries * size_of::<HoldEntry>(), entries.div_ceil(HOME) * 8]
}

/// An entry on which this process is at work, with an operation that has not ended.
#[derive(Clone, Copy, Debug)]
#[must_use = "an operation that is not ended keeps its entry"]
pub(crate) struct Operation {
    number: usize,
    generation: u64,
    /// How many slots the entry holds, or will.
    count: u64,
    process: u64,
}

impl Operation {
    /// What its exchange marks the word with.
    pub(crate) fn mark(&self) -> HoldMark {
        HoldMark::new(self.number as u64, self.generation)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The number of its entry.
    pub(crate) fn number(&self) -> usize {
        self.number
    }
}

/// What has to be done for an entry of a dead process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remains {
    pub(crate) operation: Operation,
    pub(crate) hash: AgentHash,
    pub(crate) lane: LaneId,
    /// Whether an exchange may have taken place.
    is_open: bool,
}

impl Confirm for Holds {
    fn confirm(&self, word: LaneWord) {
        Self::confirm(self, word);
    }
}

impl Holds {
    /// `None` if no process shares the slab, or it has no entries.
    pub(super) fn within(memory: &Memory, entries: usize) -> Result<Option<Self>, u64> {
        let is_wanted = memory.joined().is_some() && entries > 0;
        is_wanted.then(|| Self::new(memory, entries)).transpose()
    }

    fn new(memory: &Memory, entries: usize) -> Result<Self, u64> {
        let homes = entries.div_ceil(HOME);
        Ok(Self { entries: memory.words(Section::Holds, entries)?, reach: memory.words(Section::HoldHomes, homes)? })
    }

    fn home(&self, hash: AgentHash) -> usize {
        // The low half, scaled: below the number of homes.
        ((u128::from(hash.bits() << 32) * self.reach.len() as u128) >> 64) as usize
    }

    fn state(&self, number: usize) -> State {
        State(self.entries[number].state.load(Ordering::Acquire))
    }

    fn exchange(&self, number: usize, seen: State, next: State) -> bool {
        self.entries[number].state.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Puts an entry on which this process is at work into its next state. Release: a process that takes the entry
    /// over finds what was written to it.
    ///
    /// The loop ends with its second round: meanwhile others can only confirm the operation, once.
    fn put(&self, number: usize, state: State) {
        while !self.exchange(number, self.state(number), state) {}
    }

    /// The entries that may be the agent's.
    fn likely(&self, hash: AgentHash) -> impl Iterator<Item = usize> + use<> {
        let (home, len) = (self.home(hash), self.entries.len());
        let reach = (self.reach[home].load(Ordering::Relaxed) as usize).min(len);
        (0..reach).map(move |offset| (home * HOME + offset) % len)
    }

    /// Begins to take slots. `None` if the table is full.
    pub(crate) fn begin(&self, hash: AgentHash, lane: LaneId, count: u64, process: u64) -> Option<Operation> {
        let (home, len) = (self.home(hash), self.entries.len());
        let taken = (0..len).find_map(|offset| {
            let number = (home * HOME + offset) % len;
            let state = self.state(number);
            let generation = state.generation().max(2);
            let is_taken =
                state.phase() == FREE && self.exchange(number, state, State::new(BUSY, generation, process, count));
            is_taken.then_some((offset, Operation { number, generation, count, process }))
        });
        let (offset, operation) = taken?;
        let entry = &self.entries[operation.number];
        entry.hash.store(hash.bits(), Ordering::Relaxed);
        entry.about.store(process << LANE_BITS | u64::from(lane.number()), Ordering::Relaxed);
        self.reach[home].fetch_max(offset as u64 + 1, Ordering::Relaxed);
        Some(operation)
    }

    /// Ends an operation that has taken slots.
    pub(crate) fn opened(&self, operation: Operation) {
        let Operation { number, generation, count, .. } = operation;
        self.put(number, State::new(OPEN, generation, 0, count));
    }

    /// Ends an operation that has taken none.
    pub(crate) fn freed(&self, operation: Operation) {
        self.put(operation.number, State::new(FREE, next(next(operation.generation)), 0, 0));
    }

    /// Begins to give back slots that the agent holds on the lane: of an entry of this process, or else of another.
    /// `None` if there is no such entry.
    pub(crate) fn begin_release(&self, hash: AgentHash, lane: LaneId, process: u64) -> Option<Operation> {
        [true, false].into_iter().find_map(|own| {
            self.likely(hash).find_map(|number| {
                let state = self.state(number);
                let entry = &self.entries[number];
                let about = entry.about.load(Ordering::Relaxed);
                let is_theirs = entry.hash.load(Ordering::Relaxed) == hash.bits()
                    && about & ((1 << LANE_BITS) - 1) == u64::from(lane.number());
                let is_wanted = state.phase() == OPEN && is_theirs && (about >> LANE_BITS == process || !own);
                if !is_wanted {
                    return None;
                }
                let (generation, count) = (next(state.generation()), state.count());
                let taken = self.exchange(number, state, State::new(BUSY, generation, process, count));
                taken.then_some(Operation { number, generation, count, process })
            })
        })
    }

    /// How many slots the operation is about to give back, before it does.
    pub(crate) fn set_releasing(&self, operation: &Operation, slots: u64) {
        self.entries[operation.number].releasing.store(slots, Ordering::Release);
    }

    /// Ends an operation that has given back this many slots; 0 if it has not.
    pub(crate) fn released(&self, operation: Operation, slots: u64) {
        let (generation, left) = (next(operation.generation), operation.count.saturating_sub(slots));
        let phase = if left == 0 { FREE } else { OPEN };
        self.put(operation.number, State::new(phase, generation, 0, left));
    }

    /// Confirms the operation that a word is marked with, before the word is replaced.
    ///
    /// The loop ends: each further round is a change of the entry, and the operation ends with the first but one.
    pub(crate) fn confirm(&self, word: LaneWord) {
        let mark = held::mark(word);
        while !broken(Fault::NotConfirmed) {
            let Some(state) = self.entries.get(mark.number()).map(|_| self.state(mark.number())) else { return };
            let is_under_way = state.phase() == BUSY && state.generation() == mark.generation() && !state.is_done();
            if !is_under_way || self.exchange(mark.number(), state, State(state.0 | DONE)) {
                return;
            }
        }
    }

    /// Takes over the first of these entries that a dead process has left, so that this one can bury it. `is_dead`
    /// judges processes.
    fn take_over(
        &self,
        mut numbers: impl Iterator<Item = usize>,
        process: u64,
        is_dead: &dyn Fn(u64) -> bool,
    ) -> Option<Remains> {
        numbers.find_map(|number| self.take_over_one(number, process, is_dead))
    }

    /// The loop ends: each further round is somebody who has confirmed the operation, once, or taken the entry over.
    fn take_over_one(&self, number: usize, process: u64, is_dead: &dyn Fn(u64) -> bool) -> Option<Remains> {
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
            if self.exchange(number, state, taken) {
                return Some(Remains {
                    operation: Operation { number, generation, count: state.count(), process },
                    hash: AgentHash::from_bits(entry.hash.load(Ordering::Relaxed)),
                    lane: LaneId::new((about & ((1 << LANE_BITS) - 1)) as u32),
                    is_open,
                });
            }
        }
    }

    /// The first entry of the agent that a dead process has left.
    pub(crate) fn remains_of(&self, hash: AgentHash, process: u64, is_dead: &dyn Fn(u64) -> bool) -> Option<Remains> {
        self.take_over(self.likely(hash), process, is_dead)
    }

    /// The first entry from this one on that a dead process has left, of any agent.
    pub(crate) fn remains(&self, from: usize, process: u64, is_dead: &dyn Fn(u64) -> bool) -> Option<Remains> {
        self.take_over(from..self.entries.len(), process, is_dead)
    }

    /// The operation that ends an entry that was taken over, given the word of its lane, if the agent has a record;
    /// `None` if it has ended with that.
    pub(crate) fn judge(&self, remains: &Remains, word: Option<LaneWord>) -> Option<Operation> {
        let operation = remains.operation;
        if remains.is_open {
            return Some(operation); // Nothing was under way: give all of it back.
        }
        // After the word: see the claim.
        let is_done = self.state(operation.number).is_done();
        let took_place = is_done || word.is_some_and(|word| held::mark(word) == operation.mark());
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
                self.released(operation, 0);
                None
            }
        }
    }

    /// How many slots are held, by agent and lane; and how many entries are busy.
    #[cfg(feature = "shared")]
    pub(crate) fn held(&self) -> (std::collections::BTreeMap<(u64, u64), u64>, usize) {
        let (mut held, mut busy) = (std::collections::BTreeMap::new(), 0);
        for number in 0..self.entries.len() {
            let (state, entry) = (self.state(number), &self.entries[number]);
            let lane = entry.about.load(Ordering::Relaxed) & ((1 << LANE_BITS) - 1);
            match state.phase() {
                OPEN => *held.entry((entry.hash.load(Ordering::Relaxed), lane)).or_default() += state.count(),
                BUSY => busy += 1,
                _ => {}
            }
        }
        (held, busy)
    }
}
