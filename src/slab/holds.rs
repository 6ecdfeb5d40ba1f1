//! Who holds which slots of a shared slab, so that those of a dead process come back.
//!
//! A held lane's word counts slots, and does not say whose they are. In a
//! [shared](crate::shared) slab each call that takes slots is also an entry of
//! this table, with the process that holds them. Whoever finds that process dead
//! gives them back.
//!
//! - `state.rs`: the state of an entry, as one word
//! - `burying.rs`: how what dead processes have left is taken over, and ended
//! - `lately.rs`: what a process has found out lately, so that it does not ask for it again
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
//! An operation without an exchange, as of a denial, leaves no mark, so nobody ever
//! confirms it, and the next operation of the entry has its mark. So a mark stands
//! for one exchange, until generations start over: after 2,047 calls that took
//! slots by the entry and gave them back. An old mark is then taken for a new one
//! if a word still has it which nobody has changed since, if that word changes
//! while the entry is busy anew, and if the process dies just then, before its
//! exchange. However often an agent is denied, that comes no nearer.
//!
//! A record that changes tenants or limits keeps its marks; those exchanges confirm
//! too, so nothing is lost with the record.
//!
//! # Giving back
//!
//! A call that gives back slots takes entries that have them, those of its own
//! process if they suffice, and makes them busy; if it does not find enough, it
//! opens them again, and the agent does not hold so many. Nearly always one entry
//! has all of them. But another call may have it for a moment, or several are
//! needed. Then the caller goes through the agent's entries, each once, in an
//! order that is the same for all, and waits for one that is busy with giving
//! back.
//!
//! *Claim*: it finds enough if nobody gives back what he does not hold. Say that
//! the agent holds t slots when the look begins, by entries that were open by
//! then, of which others give back r meanwhile. An entry that the look passes is
//! free, or it takes it: nobody else gives back anything of that one any more.
//! So of the t slots it misses only those that others have given back, which are
//! at most r. It wants no more than t - r, or somebody gives back what is not
//! his.
//!
//! *It ends*: a caller that has entries waits only for those that come later in
//! the order, so no two wait for each other, and of those that wait the one with
//! the last entry waits for none. Whoever has an entry and waits for no other
//! ends its operation after a finite amount of work, unless its process dies or is
//! stopped. If it dies, the caller that waits buries it. If it is stopped, and it
//! is another process, the wait has an end: the caller opens what it has, and is
//! answered `Busy`. A guard that is dropped cannot be: it waits much longer.

mod burying;
mod lately;
mod state;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use lately::{Lately, Look};

use super::hash::AgentHash;
use crate::lane::held::HoldMark;
use crate::lane::{LaneWord, held};
use crate::machine::mapping::{Words, atomics};
use crate::policy::LaneId;
use crate::record::Confirm;
use crate::shared::{Memory, Section};
use crate::sync::{AtomicU64, Fault, Ordering, QuietU64, broken};
use state::{BUSY, DONE, FREE, OPEN, State, next};

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
const LANE_MASK: u64 = (1 << LANE_BITS) - 1;

/// Entries that agents of one home start from. They may go on into the next.
const HOME: usize = if cfg!(loom) { 2 } else { 64 };

/// Every call that holds slots.
pub(crate) struct Holds {
    entries: Words<HoldEntry>,
    /// How far from its start the entries of each home reach.
    reach: Words<QuietU64>,
    lately: Lately,
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
}

/// What became of an attempt to give back slots of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begun {
    Operation(Operation),
    /// This process gives back slots of it; 0 if it may be asked again at once.
    Busy(u64),
    /// No such slots are held by it.
    No,
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
        let (entries, reach) = (memory.words(Section::Holds, entries)?, memory.words(Section::HoldHomes, homes)?);
        Ok(Self { entries, reach, lately: Lately::new() })
    }

    /// What this process has found out lately.
    pub(crate) fn lately(&self) -> &Lately {
        &self.lately
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

    /// How far from its start the entries of a home reach.
    fn reach(&self, home: usize) -> usize {
        (self.reach[home].load(Ordering::Relaxed) as usize).min(self.entries.len())
    }

    /// The entries that may be the agent's, always in the same order.
    pub(crate) fn likely(&self, hash: AgentHash) -> impl Iterator<Item = usize> + use<> {
        let (home, len) = (self.home(hash), self.entries.len());
        (0..self.reach(home)).map(move |offset| (home * HOME + offset) % len)
    }

    /// The entries that may be anybody's.
    pub(crate) fn used(&self) -> impl Iterator<Item = usize> + '_ {
        let (homes, len) = (0..self.reach.len(), self.entries.len());
        // Those that go on from the last entry to the first.
        let farthest = homes.clone().map(|home| home * HOME + self.reach(home)).max();
        let first = farthest.unwrap_or(0).saturating_sub(len);
        let mut done = first;
        let others = homes.flat_map(move |home| {
            let start = done.max(home * HOME);
            done = done.max((home * HOME + self.reach(home)).min(len));
            start..done
        });
        (0..first).chain(others)
    }

    /// Begins to take slots. `None` if the table is full.
    pub(crate) fn begin(&self, hash: AgentHash, lane: LaneId, count: u64, process: u64) -> Option<Operation> {
        let (home, len) = (self.home(hash), self.entries.len());
        let operation = (0..len).find_map(|offset| {
            let number = (home * HOME + offset) % len;
            let state = self.state(number);
            if state.phase() != FREE {
                return None;
            }
            // Before the entry is taken: if this process dies, others must find what it was doing.
            if self.reach(home) <= offset {
                self.reach[home].fetch_max(offset as u64 + 1, Ordering::Relaxed);
            }
            let generation = state.generation().max(2);
            let taken = self.exchange(number, state, State::new(BUSY, generation, process, count));
            taken.then_some(Operation { number, generation, count, process })
        })?;
        let entry = &self.entries[operation.number];
        entry.hash.store(hash.bits(), Ordering::Relaxed);
        entry.about.store(process << LANE_BITS | u64::from(lane.number()), Ordering::Relaxed);
        Some(operation)
    }

    /// Ends an operation that has taken slots.
    pub(crate) fn opened(&self, operation: Operation) {
        let Operation { number, generation, count, .. } = operation;
        self.put(number, State::new(OPEN, generation, 0, count));
    }

    /// Ends an operation that has taken none: it has left no mark, so the next one may have its generation.
    pub(crate) fn freed(&self, operation: Operation) {
        self.put(operation.number, State::new(FREE, operation.generation, 0, 0));
        self.lately.freed();
    }

    /// Ends an operation of which nobody can know what it has done.
    pub(crate) fn abandoned(&self, operation: Operation) {
        let is_release = operation.generation % 2 == 1;
        let after = next(operation.generation);
        self.put(operation.number, State::new(FREE, if is_release { after } else { next(after) }, 0, 0));
        self.lately.freed();
    }

    /// Begins to give back slots of an entry, if the agent holds at least this many of the lane by it; with `owner`
    /// only if that process holds them.
    pub(crate) fn begin_release(
        &self,
        number: usize,
        hash: AgentHash,
        lane: LaneId,
        owner: Option<u64>,
        least: u64,
        process: u64,
    ) -> Begun {
        let (state, entry) = (self.state(number), &self.entries[number]);
        let about = entry.about.load(Ordering::Relaxed);
        let is_theirs =
            entry.hash.load(Ordering::Relaxed) == hash.bits() && about & LANE_MASK == u64::from(lane.number());
        let is_wanted = is_theirs && owner.is_none_or(|owner| about >> LANE_BITS == owner);
        let (generation, count) = (next(state.generation()), state.count());
        match state.phase() {
            OPEN if is_wanted && state.count() >= least => {
                match self.exchange(number, state, State::new(BUSY, generation, process, count)) {
                    true => Begun::Operation(Operation { number, generation, count, process }),
                    false => Begun::Busy(0),
                }
            }
            // An even one takes slots: nobody has those yet.
            BUSY if is_wanted && state.generation() % 2 == 1 && !broken(Fault::ReleaseNotAwaited) => {
                Begun::Busy(state.process())
            }
            _ => Begun::No,
        }
    }

    /// How many slots the operation is about to give back, before it does.
    pub(crate) fn set_releasing(&self, operation: &Operation, slots: u64) {
        self.entries[operation.number].releasing.store(slots, Ordering::Release);
    }

    /// Ends an operation that has given back this many slots.
    pub(crate) fn released(&self, operation: Operation, slots: u64) {
        let (last, left) = (operation.generation, operation.count.saturating_sub(slots));
        let generation = if broken(Fault::SameMark) { last - 1 } else { next(last) };
        let phase = if left == 0 { FREE } else { OPEN };
        self.put(operation.number, State::new(phase, generation, 0, left));
        if left == 0 {
            self.lately.freed();
        }
    }

    /// Ends an operation that has given back nothing: it has left no mark, so the next one may have its generation.
    pub(crate) fn reopened(&self, operation: Operation) {
        let Operation { number, generation, count, .. } = operation;
        self.put(number, State::new(OPEN, generation - 1, 0, count));
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

    /// How many slots are held, by agent and lane; and how many entries are busy.
    #[cfg(any(feature = "shared", all(test, loom)))]
    pub(crate) fn held(&self) -> (std::collections::BTreeMap<(u64, u64), u64>, usize) {
        let (mut held, mut busy) = (std::collections::BTreeMap::new(), 0);
        for number in 0..self.entries.len() {
            let (state, entry) = (self.state(number), &self.entries[number]);
            let lane = entry.about.load(Ordering::Relaxed) & LANE_MASK;
            match state.phase() {
                OPEN => *held.entry((entry.hash.load(Ordering::Relaxed), lane)).or_default() += state.count(),
                BUSY => busy += 1,
                _ => {}
            }
        }
        (held, busy)
    }
}
