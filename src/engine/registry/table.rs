//! The assignments of a shared limiter: a table without locks.
//!
//! An agent's entry is within [`WINDOW`] slots from the home of its hash. A slot
//! has the hash, the [decision](super::decision), one that is
//! [staged](AssignmentTable::stage), and the id. The texts of overrides stand
//! beside the row of limits that they became.
//!
//! # Who writes
//!
//! Control calls alone, which take turns. A decision changes under the lock of
//! the agent's neighbourhood too, as in a private registry: so a claim reads the
//! one that is in force.
//!
//! # Who reads without a lock
//!
//! A reader finds the slot by its hash, loads the decision (Acquire), reads what
//! belongs to it, and loads hash and decision again. *Claim*: if both are the
//! same, what it read belongs to that decision. The id and the texts are written
//! before the decision that names them (Release), and overwritten only for a
//! later one: the slot after its decision was removed, the row after no decision
//! names it any more. A reader of such a later word (Acquire) finds another
//! version.
//!
//! # A control call that dies
//!
//! All decisions of a call are staged first, then the call says that they count
//! (see `control/shared.rs`), and then each is put in force. So the next call
//! finds nothing said, and drops what is staged; or finds it said, and puts the
//! rest in force.

use super::decision::Decision;
use super::{Entry, RegisteredAgent, Tally};
use crate::bounds::ID_BYTES_MAX;
use crate::limits::{ROWS, Row};
use crate::machine::mapping::Words;
use crate::policy::{LaneId, Limit};
use crate::shared::{Memory, Section};
use crate::slab::hash::AgentHash;
use crate::sync::{AtomicU64, Ordering, QuietU64, peek};
use std::collections::{BTreeMap, BTreeSet};

/// How far from its home an entry may be. With half of the slots in use, hardly any window is full.
const WINDOW: usize = if cfg!(loom) { 2 } else { 64 };

/// A slot's id: its length, and its bytes.
const ID_WORDS: usize = 1 + if cfg!(loom) { 1 } else { ID_BYTES_MAX / 8 };

/// The text of a limit: its length, and its bytes.
const TERM_WORDS: usize = if cfg!(loom) { 3 } else { 12 };
const TERM_BYTES_MAX: usize = 8 * (TERM_WORDS - 1);

/// Words of bits, one for each row.
const ROW_MAP_WORDS: usize = ROWS.div_ceil(64);

/// The fewest and the most agents that may have an assignment, and how many otherwise: a quarter of all.
const ASSIGNED_MIN: u64 = 4_096;
const ASSIGNED_MAX: u64 = 1 << 20;
const AGENTS_PER_ASSIGNMENT: u64 = 4;

/// How many agents may have an assignment in a slab that was made for this many agents.
pub(crate) fn assigned_max(agents: u64) -> u64 {
    (agents / AGENTS_PER_ASSIGNMENT).clamp(ASSIGNED_MIN, ASSIGNED_MAX)
}

/// Twice as many slots as entries.
fn slots(agents: u64) -> usize {
    if cfg!(loom) {
        return WINDOW;
    }
    // Lossless: at most 2^21.
    (2 * assigned_max(agents)).next_power_of_two() as usize
}

/// The bytes of the sections: a word for each slot, ids, texts, rows.
#[cfg_attr(
    not(all(feature = "shared", target_os = "linux", not(loom))),
    allow(dead_code, reason = "for a shared file")
)]
pub(crate) fn bytes(agents: u64, lanes: usize) -> [usize; 4] {
    [slots(agents) * 8, slots(agents) * ID_WORDS * 8, ROWS * lanes * TERM_WORDS * 8, (ROW_MAP_WORDS + 2) * 8]
}

/// The assignments of a shared limiter.
pub(crate) struct AssignmentTable {
    hashes: Words<AtomicU64>,
    decisions: Words<AtomicU64>,
    staged: Words<AtomicU64>,
    /// Of slots that have a hash.
    ids: Words<[QuietU64; ID_WORDS]>,
    /// By row and lane, of rows that are taken.
    terms: Words<[QuietU64; TERM_WORDS]>,
    /// The rows that are taken, as bits; then how many entries there are, and how often one has changed.
    rows: Words<AtomicU64>,
    lanes: usize,
    most: u64,
    memory: Memory,
}

/// There is no room for an assignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Too many agents with nearby hashes have one.
    Entries,
    /// The file system is full.
    Memory,
    /// The text of a limit is too long.
    Term,
}

impl AssignmentTable {
    pub(super) fn within(memory: &Memory, agents: u64, lanes: usize) -> Result<Self, u64> {
        let slots = slots(agents);
        Ok(Self {
            hashes: memory.words(Section::Assigned, slots)?,
            decisions: memory.words(Section::Decisions, slots)?,
            staged: memory.words(Section::Staged, slots)?,
            ids: memory.words(Section::AssignedIds, slots)?,
            terms: memory.words(Section::Terms, ROWS * lanes)?,
            rows: memory.words(Section::Rows, ROW_MAP_WORDS + 2)?,
            lanes,
            most: assigned_max(agents),
            memory: memory.clone(),
        })
    }

    fn count(&self) -> &AtomicU64 {
        &self.rows[ROW_MAP_WORDS]
    }

    /// How often an entry has changed. It wraps.
    pub(crate) fn changes(&self) -> u64 {
        peek(&self.rows[ROW_MAP_WORDS + 1])
    }

    /// A hint, as in a private registry.
    pub(super) fn is_empty(&self) -> bool {
        peek(self.count()) == 0
    }

    /// Whether `more` agents may have an assignment when `less` others have none any more.
    pub(crate) fn has_room(&self, more: u64, less: u64) -> bool {
        more <= less || peek(self.count()) + more - less <= self.most
    }

    /// How many agents may have an assignment.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// The slots in which an agent's entry may be.
    fn window(&self, hash: AgentHash) -> impl Iterator<Item = usize> + use<> {
        let slots = self.hashes.len();
        // Other bits than for the home in the slab.
        let home = (hash.bits() >> 8) as usize;
        (0..WINDOW).map(move |offset| home.wrapping_add(offset) % slots)
    }

    /// The agent's slot. The hash of nobody marks an empty one.
    fn find(&self, hash: AgentHash) -> Option<usize> {
        let is_theirs = |slot: &usize| self.hashes[*slot].load(Ordering::Acquire) == hash.bits();
        (hash != AgentHash::NOBODY).then(|| self.window(hash).find(is_theirs)).flatten()
    }

    fn decision(&self, slot: usize) -> Decision {
        Decision(self.decisions[slot].load(Ordering::Acquire))
    }

    /// Reads what belongs to an agent's decision; `None` if it has none.
    ///
    /// The loop ends: each further round is a control call that changed this agent meanwhile.
    fn read<T>(&self, hash: AgentHash, read: impl Fn(usize, Decision) -> T) -> Option<T> {
        loop {
            let slot = self.find(hash)?;
            let decision = self.decision(slot);
            let value = decision.is_present().then(|| read(slot, decision));
            if self.decision(slot) == decision && self.hashes[slot].load(Ordering::Acquire) == hash.bits() {
                return value;
            }
        }
    }

    pub(super) fn with_row<T>(&self, hash: AgentHash, epoch: u64, read: impl Fn(Row) -> T) -> T {
        let row = self.read(hash, |_, decision| read(decision.entry().row(epoch)));
        row.unwrap_or_else(|| read(Row::unassigned(epoch)))
    }

    pub(super) fn get(&self, hash: AgentHash, id: &[u8]) -> Option<Entry> {
        let entry = self.read(hash, |slot, decision| (self.id(slot) == id).then(|| self.entry(decision)));
        entry.unwrap_or_else(|| Some(Entry::default()))
    }

    fn entry(&self, decision: Decision) -> Entry {
        Entry { overrides: decision.row().map(|row| self.overrides(row)).unwrap_or_default(), ..decision.entry() }
    }

    fn id(&self, slot: usize) -> Vec<u8> {
        text(&self.ids[slot])
    }

    fn overrides(&self, row: Row) -> BTreeMap<LaneId, Limit> {
        let of_row = &self.terms[row.index() * self.lanes..][..self.lanes];
        let limits = of_row.iter().zip((0..).map(LaneId::new));
        let read = |words: &[QuietU64; TERM_WORDS]| String::from_utf8(text(words)).ok()?.parse::<Limit>().ok();
        limits.filter_map(|(words, lane)| read(words).map(|limit| (lane, limit))).collect()
    }

    /// Every slot that has an entry, with what belongs to it.
    fn all(&self) -> impl Iterator<Item = (AgentHash, usize, Decision)> {
        let hashes = self.hashes.iter().enumerate().map(|(slot, hash)| (slot, hash.load(Ordering::Acquire)));
        let taken = hashes.filter(|(_, hash)| *hash != AgentHash::NOBODY.bits());
        taken.map(|(slot, hash)| (AgentHash::from_bits(hash), slot, self.decision(slot)))
    }

    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for (_, _, decision) in self.all().filter(|(_, _, decision)| decision.is_present()) {
            let entry = decision.entry();
            let is_overridden = decision.row().is_some();
            tally.assigned += u64::from(!entry.is_undecided() || is_overridden);
            tally.exempt += u64::from(entry.is_exempt());
            tally.overridden += u64::from(is_overridden);
        }
        tally
    }

    pub(super) fn exempt(&self) -> Vec<(AgentHash, Box<[u8]>)> {
        let exempt = self.all().filter(|(_, _, decision)| decision.is_present() && decision.entry().is_exempt());
        exempt.filter_map(|(hash, ..)| self.read(hash, |slot, _| (hash, self.id(slot).into()))).collect()
    }

    pub(super) fn list(&self) -> Vec<(AgentHash, RegisteredAgent)> {
        let registered =
            |slot: usize, decision| RegisteredAgent { id: self.id(slot).into(), entry: self.entry(decision) };
        let hashes = self.all().map(|(hash, ..)| hash);
        hashes.filter_map(|hash| self.read(hash, registered).map(|agent| (hash, agent))).collect()
    }

    // --- What control calls do, under their lock.

    /// The first row for overrides that is free. `None` if all are taken.
    pub(crate) fn free_row(&self) -> Option<Row> {
        Row::of_overrides().find(|row| !self.is_taken(*row))
    }

    /// Takes a row for overrides. `None` if all are taken.
    pub(crate) fn take_row(&self) -> Option<Row> {
        let row = self.free_row()?;
        self.mark_row(row, true);
        Some(row)
    }

    /// How many rows are taken.
    pub(crate) fn rows_taken(&self) -> usize {
        self.rows[..ROW_MAP_WORDS].iter().map(|word| peek(word).count_ones() as usize).sum()
    }

    pub(crate) fn is_taken(&self, row: Row) -> bool {
        peek(&self.rows[row.index() / 64]) >> (row.index() % 64) & 1 == 1
    }

    /// Marks a row as taken, or as free.
    pub(crate) fn mark_row(&self, row: Row, is_taken: bool) {
        let (word, bit) = (&self.rows[row.index() / 64], 1 << (row.index() % 64));
        let others = peek(word) & !bit;
        word.store(others | if is_taken { bit } else { 0 }, Ordering::Relaxed);
    }

    /// Writes an entry beside the one in force, and takes the agent's slot for it. Its overrides are written to its
    /// row, which no decision names, and which has memory for them.
    pub(crate) fn stage(&self, hash: AgentHash, id: &[u8], entry: &Entry) -> Result<(), NoRoom> {
        let slot = match self.find(hash) {
            Some(slot) => slot,
            None => self.take_slot(hash, id)?,
        };
        if let Some(row) = entry.override_row {
            self.write_overrides(row, &entry.overrides)?;
        }
        let next = self.decision(slot).next(entry).staged();
        self.staged[slot].store(next.0, Ordering::Release);
        Ok(())
    }

    fn take_slot(&self, hash: AgentHash, id: &[u8]) -> Result<usize, NoRoom> {
        let is_free = |slot: &usize| peek(&self.hashes[*slot]) == AgentHash::NOBODY.bits();
        let is_someone = hash != AgentHash::NOBODY;
        let slot = self.window(hash).find(is_free).filter(|_| is_someone).ok_or(NoRoom::Entries)?;
        let bytes = size_of::<[QuietU64; ID_WORDS]>();
        if !self.memory.allocate(Section::AssignedIds, slot * bytes, bytes) {
            return Err(NoRoom::Memory);
        }
        // A reader that still has this slot for its last agent must find another version once it reads this.
        self.decisions[slot].store(self.decision(slot).removed().0, Ordering::Release);
        write_text(&self.ids[slot], id);
        self.hashes[slot].store(hash.bits(), Ordering::Release);
        Ok(slot)
    }

    /// Takes memory for the texts of a row's overrides, before they are written. `false` if there is none left.
    pub(crate) fn allocate_terms(&self, row: Row) -> bool {
        let bytes = self.lanes * size_of::<[QuietU64; TERM_WORDS]>();
        self.memory.allocate(Section::Terms, row.index() * bytes, bytes)
    }

    fn write_overrides(&self, row: Row, overrides: &BTreeMap<LaneId, Limit>) -> Result<(), NoRoom> {
        for (index, words) in self.terms[row.index() * self.lanes..][..self.lanes].iter().enumerate() {
            let limit = overrides.get(&LaneId::new(index as u32)).map(Limit::to_string).unwrap_or_default();
            if limit.len() > TERM_BYTES_MAX {
                return Err(NoRoom::Term);
            }
            write_text(words, limit.as_bytes());
        }
        Ok(())
    }

    /// The agents whose entries are staged.
    pub(crate) fn staged(&self) -> Vec<AgentHash> {
        self.all().filter(|(_, slot, _)| peek(&self.staged[*slot]) != 0).map(|(hash, ..)| hash).collect()
    }

    /// The entry that is staged for an agent, without its overrides; and the row of the one in force.
    pub(crate) fn change_of(&self, hash: AgentHash) -> Option<(Entry, Option<Row>)> {
        let slot = self.find(hash)?;
        let staged = peek(&self.staged[slot]);
        (staged != 0).then(|| (Decision(staged).entry(), self.decision(slot).row()))
    }

    /// Puts the staged entry of an agent in force. It stays staged until [`unstage`](Self::unstage).
    pub(super) fn put(&self, hash: AgentHash) {
        let Some(slot) = self.find(hash) else { return };
        let (before, next) = (self.decision(slot), Decision(peek(&self.staged[slot])).unstaged());
        self.decisions[slot].store(next.0, Ordering::Release);
        let (is, was) = (u64::from(next.is_present()), u64::from(before.is_present()));
        // Only control calls write these.
        self.count().store(peek(self.count()) + is - was, Ordering::Relaxed);
        self.rows[ROW_MAP_WORDS + 1].store(self.changes().wrapping_add(1), Ordering::Relaxed);
    }

    /// Ends a change of an agent's entry. The slot is free again if there is none.
    pub(crate) fn unstage(&self, hash: AgentHash) {
        let Some(slot) = self.find(hash) else { return };
        self.staged[slot].store(0, Ordering::Relaxed);
        if !self.decision(slot).is_present() {
            self.hashes[slot].store(AgentHash::NOBODY.bits(), Ordering::Release);
        }
    }

    /// Ends all changes that are staged, as if they had not begun.
    pub(crate) fn unstage_all(&self) {
        self.staged().into_iter().for_each(|hash| self.unstage(hash));
    }

    /// Counts entries and rows anew, after a control call was lost: what no decision names is free, unless `is_named`
    /// says that a record does.
    pub(crate) fn recount(&self, is_named: impl Fn(Row) -> bool) {
        let mut count = 0;
        let mut taken = BTreeSet::new();
        for (_, slot, decision) in self.all() {
            if decision.is_present() {
                count += 1;
            } else if peek(&self.staged[slot]) == 0 {
                self.hashes[slot].store(AgentHash::NOBODY.bits(), Ordering::Release);
            }
            for row in [decision.row(), Decision(peek(&self.staged[slot])).row()].into_iter().flatten() {
                taken.insert(row.number());
            }
        }
        Row::of_overrides().for_each(|row| self.mark_row(row, taken.contains(&row.number()) || is_named(row)));
        self.count().store(count, Ordering::Relaxed);
    }

    /// What is wrong with it, for an audit while no control call is under way.
    #[cfg(feature = "shared")]
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut rows = BTreeMap::new();
        let mut count = 0;
        for (hash, slot, decision) in self.all() {
            count += u64::from(decision.is_present());
            if self.find(hash) != Some(slot) {
                faults.push(format!("{hash:?} has an assignment in slot {slot} that is not found"));
            }
            if peek(&self.staged[slot]) != 0 || !decision.is_present() {
                faults.push(format!("slot {slot} is left of an assignment that did not end"));
            }
            let Some(row) = decision.row() else { continue };
            if let Some(other) = rows.insert(row.number(), slot) {
                faults.push(format!("slots {slot} and {other} have the same row {}", row.number()));
            }
            if !self.is_taken(row) {
                faults.push(format!("row {} of slot {slot} is not taken", row.number()));
            }
        }
        if count != peek(self.count()) {
            faults.push(format!("{count} assignments, but {} are counted", peek(self.count())));
        }
        if self.rows_taken() != rows.len() {
            faults.push(format!("{} rows are in use, but {} are taken", rows.len(), self.rows_taken()));
        }
        faults
    }
}

/// Bytes as words, after their length.
fn write_text(words: &[QuietU64], bytes: &[u8]) {
    words[0].store(bytes.len() as u64, Ordering::Release);
    for (word, chunk) in words[1..].iter().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(eight), Ordering::Release);
    }
}

/// What [`write_text`] wrote. Acquire: a reader of later text finds another decision.
fn text(words: &[QuietU64]) -> Vec<u8> {
    let length = words[0].load(Ordering::Acquire) as usize;
    let all = words[1..].iter().flat_map(|word| word.load(Ordering::Acquire).to_le_bytes());
    // Not beyond the words, whatever the length is.
    all.take(length).collect()
}
