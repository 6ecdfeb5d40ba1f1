//! Which agent has which record: the slab stores no ids, so lists of agents
//! need them stored beside it.
//!
//! An agent's id is stored when it is given a record, and at no other time. Its
//! place follows from the record's number, so there is nothing to search and
//! nothing to remove: when a record changes tenants, the next claim overwrites
//! the id, and until then a reader finds it stale.
//!
//! With fewer places than records, several records share one, and the last to
//! claim is listed. A list reports how many agents are missing from it.

use crate::bounds::ID_BYTES_MAX;
use crate::machine::mapping::Words;
use crate::shared::{Memory, SHORT_BITS, Section};
use crate::sync::{Ordering, QuietU64};

/// Words of a place: a sequence number that is odd during a write, and then names
/// the writing process too; the record's number and the length of the id; the id.
const WORDS: usize = 2 + ID_BYTES_MAX / 8;
const LENGTH_BITS: u32 = 16;

/// The bytes of a place.
#[cfg_attr(
    not(all(feature = "shared", target_os = "linux", not(loom))),
    allow(dead_code, reason = "for a shared file")
)]
pub(crate) const PLACE_BYTES: usize = 8 * WORDS;

/// The words that tell which places are used.
pub(crate) const fn used_words(places: usize) -> usize {
    places.div_ceil(64)
}

/// How often a read of a place that is being written is repeated before the
/// agent is left out of the list.
const READS_MAX: usize = 8;

/// Bits of a sequence that count; the others name the process that is writing.
const COUNT_BITS: u32 = u64::BITS - SHORT_BITS;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Ids of agents that have a record.
pub(crate) struct Roster {
    places: Words<[QuietU64; WORDS]>,
    /// A bit for each place that was ever written. So listing a few agents does
    /// not read, page by page, the memory reserved for many.
    used: Words<QuietU64>,
    memory: Memory,
}

/// An id stored for a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) position: usize,
    pub(crate) id: Vec<u8>,
}

impl Roster {
    /// Room for this many agents, but no more than there are records. The error
    /// is the number of bytes that the system refused.
    pub(crate) fn new(agents: usize, records: usize) -> Result<Self, u64> {
        Self::within(&Memory::Private, agents.clamp(1, records.max(1)))
    }

    /// This many places in this memory.
    pub(crate) fn within(memory: &Memory, places: usize) -> Result<Self, u64> {
        let used = memory.words(Section::RosterUsed, used_words(places))?;
        Ok(Self { places: memory.words(Section::Roster, places)?, used, memory: memory.clone() })
    }

    /// This many places of a shared slab for the ids of agents whose budgets are kept. They have no memory before
    /// [`allocate`](Self::allocate).
    #[cfg(feature = "shared")]
    pub(crate) fn of_kept(memory: &Memory, places: usize) -> Result<Self, u64> {
        let used = memory.words(Section::KeptIdsUsed, used_words(places))?;
        Ok(Self { places: memory.words(Section::KeptIds, places)?, used, memory: memory.clone() })
    }

    /// Takes memory for the ids of agents whose budgets are kept. If there is none, the error is how many bytes were
    /// needed.
    #[cfg(all(feature = "shared", feature = "persist"))]
    pub(crate) fn allocate(&self, memory: &Memory) -> Result<(), u64> {
        let sections =
            [(Section::KeptIds, size_of_val(&*self.places)), (Section::KeptIdsUsed, size_of_val(&*self.used))];
        let has_all = sections.into_iter().all(|(section, bytes)| memory.allocate(section, 0, bytes));
        if has_all { Ok(()) } else { Err(self.reserved_bytes()) }
    }

    #[cfg(feature = "persist")]
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn reserved_bytes(&self) -> u64 {
        (size_of_val(&*self.places) + size_of_val(&*self.used)) as u64
    }

    /// Touches all of its pages now. If the system refuses, the error is how many
    /// bytes were needed.
    pub(crate) fn prefault(&self) -> Result<(), u64> {
        if self.places.prefault() && self.used.prefault() { Ok(()) } else { Err(self.reserved_bytes()) }
    }

    /// Stores the id of a record's new tenant. The caller holds the record's
    /// lock, so only a record that shares the place can be in the way; then the
    /// first writer wins, and this agent is not listed. A write that a dead
    /// process left under way is made anew; one that only stalls is not.
    pub(crate) fn write(&self, position: usize, id: &[u8]) {
        let joined = self.memory.joined();
        let process = joined.map_or(0, |joined| joined.short_mark());
        self.write_as(process, position, id, |writer| joined.is_some_and(|joined| joined.is_short_dead(writer)));
    }

    /// The same for a process, and with another judge of who is dead.
    fn write_as(&self, process: u64, position: usize, id: &[u8], is_dead: impl Fn(u64) -> bool) {
        let place = position % self.places.len();
        self.mark(place);
        let [sequence, what, text @ ..] = &self.places[place];
        let begin = |seen: u64, count: u64| {
            let next = process << COUNT_BITS | (count + 1) & COUNT_MASK;
            sequence.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).map(|_| count)
        };
        // Not a load first: on a new page the system would map a zero page for
        // it, and then real memory for the stores that follow.
        let begun = match begin(0, 0) {
            Err(seen) if seen & 1 == 0 => begin(seen, seen & COUNT_MASK),
            Err(seen) if is_dead(seen >> COUNT_BITS) => begin(seen, (seen & COUNT_MASK) + 1),
            begun => begun,
        };
        let Ok(count) = begun else { return };
        // Release, as in the ring: a reader of such a word sees that the sequence has moved on.
        what.store((position as u64) << LENGTH_BITS | id.len() as u64, Ordering::Release);
        for (word, chunk) in text.iter().zip(id.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(bytes), Ordering::Release);
        }
        // Never 0 again, which is a place that nobody wrote.
        sequence.store(((count + 2) & COUNT_MASK).max(2), Ordering::Release);
    }

    /// The id stored for a record. `None` if there is none, or it belongs to a
    /// record that shares the place.
    #[cfg(feature = "persist")]
    pub(crate) fn read(&self, position: usize) -> Option<Vec<u8>> {
        let entry = read(&self.places[position % self.places.len()])?;
        (entry.position == position).then_some(entry.id)
    }

    /// Relaxed: the place itself shows whether there is anything to read, and a
    /// list may miss agents that arrive while it is made.
    fn mark(&self, place: usize) {
        let (word, bit) = (&self.used[place / 64], 1 << (place % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The places that were ever written.
    fn used_places(&self) -> impl Iterator<Item = usize> {
        let marked = self.used.iter().enumerate().flat_map(|(index, word)| {
            let mut bits = word.load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(64 * index + bit)
            })
        });
        // Whatever the words are.
        marked.filter(|place| *place < self.places.len())
    }

    /// Everything stored, stale or not.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> {
        self.used_places().filter_map(|place| read(&self.places[place]))
    }

    /// Empties the places whose writers died, so that nobody has to find that out again.
    pub(crate) fn mend(&self) {
        let Some(joined) = self.memory.joined() else { return };
        let process = joined.short_mark();
        for place in self.used_places() {
            let [sequence, what, ..] = &self.places[place];
            let seen = sequence.load(Ordering::Relaxed);
            let is_left = seen & 1 == 1 && joined.is_short_dead(seen >> COUNT_BITS);
            let count = seen & COUNT_MASK;
            let next = process << COUNT_BITS | (count + 2) & COUNT_MASK;
            if is_left && sequence.compare_exchange(seen, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // As a write of no id.
                what.store(0, Ordering::Release);
                sequence.store(((count + 3) & COUNT_MASK).max(2), Ordering::Release);
            }
        }
    }

    /// What is wrong with it, for an audit while nobody writes.
    #[cfg(feature = "shared")]
    pub(crate) fn faults(&self) -> impl Iterator<Item = String> {
        let is_odd = |place: &usize| self.places[*place][0].load(Ordering::Relaxed) & 1 == 1;
        self.used_places().filter(is_odd).map(|place| format!("a write of place {place} of the roster did not end"))
    }
}

fn read([sequence, what, text @ ..]: &[QuietU64; WORDS]) -> Option<Entry> {
    for _ in 0..READS_MAX {
        let before = sequence.load(Ordering::Acquire);
        if before == 0 {
            return None;
        }
        let what = what.load(Ordering::Acquire);
        let length = (what & ((1 << LENGTH_BITS) - 1)) as usize;
        let mut id = Vec::with_capacity(length);
        for word in &text[..length.min(ID_BYTES_MAX).div_ceil(8)] {
            id.extend(word.load(Ordering::Acquire).to_le_bytes());
        }
        id.truncate(length);
        if before & 1 == 0 && sequence.load(Ordering::Relaxed) == before {
            return Some(Entry { position: (what >> LENGTH_BITS) as usize, id });
        }
        std::hint::spin_loop();
    }
    None
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    fn entry(position: usize, id: &[u8]) -> Entry {
        Entry { position, id: id.to_vec() }
    }

    #[test]
    fn the_last_id_written_is_read() {
        let roster = Roster::new(4, 100).unwrap();
        assert_eq!(roster.entries().count(), 0);
        roster.write(1, &[7; 256]);
        roster.write(2, b"b");
        assert!(roster.entries().eq([entry(1, &[7; 256]), entry(2, b"b")]));
        roster.write(1, b"shorter");
        roster.write(6, b"shares the place of 2");
        assert!(roster.entries().eq([entry(1, b"shorter"), entry(6, b"shares the place of 2")]));
    }

    #[test]
    fn there_is_a_place_for_every_record_and_no_more() {
        assert_eq!(Roster::new(1_000, 96).unwrap().places.len(), 96);
        assert_eq!(Roster::new(0, 96).unwrap().places.len(), 1);
        assert_eq!(Roster::new(10, 96).unwrap().reserved_bytes(), 10 * 34 * 8 + 8);
        assert!(Roster::new(usize::MAX / 4096, usize::MAX).is_err());
    }

    #[test]
    fn exactly_the_places_that_were_written_are_read() {
        let roster = Roster::new(200, 200).unwrap();
        assert_eq!(roster.entries().count(), 0);
        for position in [199, 0, 63, 64, 127, 0] {
            roster.write(position, b"a");
        }
        let read: Vec<_> = roster.entries().map(|entry| entry.position).collect();
        assert_eq!(read, [0, 63, 64, 127, 199]);
    }

    /// A write was once taken over after a thousand looks at it: a writer that the
    /// system had put aside then wrote half of its id over another's.
    #[test]
    fn a_place_that_is_being_written_is_left_alone_unless_the_writer_is_dead() {
        let roster = Roster::new(1, 2).unwrap();
        let sequence = &roster.places[0][0];
        roster.write_as(7, 0, b"a", |_| false);
        let under_way = 7 << COUNT_BITS | 3;
        sequence.store(under_way, Ordering::Relaxed);
        roster.write_as(8, 1, b"b", |writer| writer != 7);
        assert_eq!((roster.entries().count(), sequence.load(Ordering::Relaxed)), (0, under_way));
        roster.write_as(8, 1, b"b", |writer| writer == 7);
        assert!(roster.entries().eq([entry(1, b"b")]));
        assert_eq!(sequence.load(Ordering::Relaxed), 6);
        sequence.store(COUNT_MASK - 1, Ordering::Relaxed);
        roster.write(0, b"a");
        assert!(roster.entries().eq([entry(0, b"a")]), "the count starts over, and is not 0");
    }

    #[test]
    fn no_reader_sees_half_an_id() {
        let roster = Roster::new(1, 2).unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for (position, byte) in [(0, b'a'), (1, b'b')] {
                let (roster, done) = (&roster, &done);
                scope.spawn(move || {
                    for length in (1..=ID_BYTES_MAX).cycle().take(50_000) {
                        roster.write(position, &vec![byte; length]);
                    }
                    done.store(true, Ordering::Relaxed);
                });
            }
            while !done.load(Ordering::Relaxed) {
                for Entry { position, id } in roster.entries() {
                    let byte = [b'a', b'b'][position];
                    assert!(!id.is_empty() && id.iter().all(|is| *is == byte), "{position}: {id:?}");
                }
            }
        });
    }

    proptest! {
        #[test]
        fn any_id_is_read_as_it_was_written(id in proptest::collection::vec(any::<u8>(), 1..=ID_BYTES_MAX)) {
            let roster = Roster::new(3, 3).unwrap();
            roster.write(2, &id);
            prop_assert!(roster.entries().eq([entry(2, &id)]));
        }
    }
}
