//! Where the words of a limiter are: in private memory, or in sections of a shared file.

use super::Joined;
use crate::machine::mapping::{Atomics, Words};
use std::sync::Arc;

/// A page: sections begin on one.
#[cfg_attr(
    not(all(feature = "shared", target_os = "linux", not(loom))),
    allow(dead_code, reason = "for a shared file")
)]
pub(crate) const PAGE_BYTES: usize = 4_096;

/// What a limiter keeps, each in its place of the file.
#[cfg_attr(
    not(all(feature = "shared", target_os = "linux", not(loom))),
    allow(dead_code, reason = "for a shared file")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// Who made the file, how, and what has to agree.
    Header,
    /// The processes that use it.
    Seats,
    /// The lock of control calls, and what one is about to do.
    Control,
    /// Regions, fingerprints and records.
    Slab,
    /// How many calls that forgive have begun, and how many are done.
    Forgiven,
    /// The epoch and the numbers of conduct.
    LimitState,
    /// Limits as they are computed with, by lane and row.
    Limits,
    /// Overrides as they were written, by row.
    Terms,
    /// Which rows are taken by overrides, as bits.
    Rows,
    /// The hashes of agents with an assignment.
    Assigned,
    /// What is assigned to them.
    Decisions,
    /// What is about to be assigned to them.
    Staged,
    /// Their ids.
    AssignedIds,
    /// The hashes of exempt agents.
    Exempt,
    /// Announced waits.
    Waits,
    /// Warnings that are not repeated.
    Warned,
    /// Open reservations, what they charged to a total, and where each agent's are.
    Reservations,
    Totals,
    Shades,
    /// Who holds slots, and where each agent's entries are.
    Holds,
    HoldHomes,
    /// The policy in force as text, and the one before.
    Policy,
    /// Ids of agents that have records, and which places are used.
    Roster,
    RosterUsed,
    /// Ids of agents whose used budgets are kept, and which places are used.
    KeptIds,
    KeptIdsUsed,
    /// Counts of each process.
    Counters,
}

/// How many sections there are.
#[cfg_attr(
    not(all(feature = "shared", target_os = "linux", not(loom))),
    allow(dead_code, reason = "for a shared file")
)]
pub(crate) const SECTIONS: usize = Section::Counters as usize + 1;

/// The sections of a file: where each begins, and its length in bytes.
#[cfg_attr(
    not(all(feature = "shared", target_os = "linux", not(loom))),
    allow(dead_code, reason = "for a shared file")
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    starts: [usize; SECTIONS],
    bytes: [usize; SECTIONS],
    /// Those that take memory only where it was asked for.
    is_sparse: [bool; SECTIONS],
    /// What is asked for from the start: where it begins, and its length.
    parts: Vec<(usize, usize)>,
    end: usize,
}

#[cfg_attr(
    not(all(feature = "shared", target_os = "linux", not(loom))),
    allow(dead_code, reason = "for a shared file")
)]
impl Layout {
    pub(crate) const fn new() -> Self {
        Self { starts: [0; SECTIONS], bytes: [0; SECTIONS], is_sparse: [false; SECTIONS], parts: Vec::new(), end: 0 }
    }

    /// Adds a section after the others.
    pub(crate) fn section(mut self, section: Section, bytes: usize) -> Self {
        let index = section as usize;
        (self.starts[index], self.bytes[index]) = (self.end, bytes);
        self.end = self.end.saturating_add(bytes).next_multiple_of(PAGE_BYTES);
        self
    }

    /// Adds a section of which only parts will ever be used: see [`Memory::allocate`].
    pub(crate) fn sparse(mut self, section: Section, bytes: usize) -> Self {
        self.is_sparse[section as usize] = true;
        self.section(section, bytes)
    }

    /// A part of a sparse section that is used from the start.
    pub(crate) fn part(mut self, section: Section, offset: usize, bytes: usize) -> Self {
        debug_assert!(offset + bytes <= self.length(section));
        self.parts.push((self.start(section) + offset, bytes));
        self
    }

    /// The whole file.
    pub(crate) const fn bytes(&self) -> usize {
        self.end
    }

    pub(crate) const fn start(&self, section: Section) -> usize {
        self.starts[section as usize]
    }

    pub(crate) const fn length(&self, section: Section) -> usize {
        self.bytes[section as usize]
    }

    /// The parts of the file that need memory from the start.
    pub(crate) fn allocated(&self) -> impl Iterator<Item = (usize, usize)> {
        let all = self.starts.iter().zip(&self.bytes).zip(&self.is_sparse);
        let whole = all.filter(|((_, bytes), is_sparse)| **bytes > 0 && !**is_sparse);
        whole.map(|((start, bytes), _)| (*start, *bytes)).chain(self.parts.iter().copied())
    }

    /// How much memory that takes: whole pages.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        let pages = |(start, bytes): (usize, usize)| (start + bytes).div_ceil(PAGE_BYTES) - start / PAGE_BYTES;
        self.allocated().map(pages).sum::<usize>() as u64 * PAGE_BYTES as u64
    }
}

/// Where the words of a limiter are.
#[derive(Clone)]
pub(crate) enum Memory {
    /// Of this process alone.
    Private,
    /// In a file that other processes map too.
    #[cfg_attr(
        not(all(feature = "shared", target_os = "linux", not(loom))),
        allow(dead_code, reason = "for a shared file")
    )]
    Shared(Arc<Joined>),
}

impl Memory {
    /// All `len` values of a section, zero unless a process has written them. If there is no memory, the error is how
    /// many bytes were needed.
    pub(crate) fn words<W: Atomics>(&self, section: Section, len: usize) -> Result<Words<W>, u64> {
        let words = match self {
            Memory::Private => Words::reserve(len),
            Memory::Shared(joined) => joined.words(section, len),
        };
        words.ok_or((len as u64).saturating_mul(size_of::<W>() as u64))
    }

    /// Whether nobody has written its words yet, so that the caller has to.
    pub(crate) fn is_new(&self) -> bool {
        match self {
            Memory::Private => true,
            Memory::Shared(joined) => joined.is_maker(),
        }
    }

    /// The file, if there is one.
    pub(crate) fn joined(&self) -> Option<&Arc<Joined>> {
        match self {
            Memory::Private => None,
            Memory::Shared(joined) => Some(joined),
        }
    }

    /// Takes memory for a part of a sparse section, before it is first used. `false` if there is none left.
    pub(crate) fn allocate(&self, section: Section, offset: usize, bytes: usize) -> bool {
        match self {
            Memory::Private => true,
            Memory::Shared(joined) => joined.allocate(section, offset, bytes),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sections_begin_on_pages_and_do_not_overlap() {
        let layout = Layout::new().section(Section::Header, 100).sparse(Section::Limits, 5_000);
        let layout = layout.section(Section::Seats, 4_096).section(Section::Totals, 0).section(Section::Slab, 1);
        let layout = layout.part(Section::Limits, 4_100, 8);
        assert_eq!(layout.start(Section::Limits), 4_096);
        assert_eq!((layout.start(Section::Seats), layout.length(Section::Seats)), (12_288, 4_096));
        assert_eq!((layout.start(Section::Slab), layout.bytes()), (16_384, 20_480));
        assert!(layout.allocated().eq([(0, 100), (12_288, 4_096), (16_384, 1), (8_196, 8)]));
        assert_eq!(layout.allocated_bytes(), 4 * 4_096);
    }
}
