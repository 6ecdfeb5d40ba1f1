//! One byte per record to search by; the eight records of a group share a word.
//!
//! | byte | meaning |
//! |---|---|
//! | 0 | the record is vacant |
//! | 1 to 255 | eight bits of its tenant's hash; 1 also stands for eight zeros |
//!
//! A lookup compares two groups at once, the agent's home and the next: at the
//! assumed load 98 of 100 agents are there, and one in a hundred first finds a
//! neighbour that shows the same fingerprint.
//!
//! A reader without the region's lock takes a fingerprint as a hint: the tag
//! decides. All writers hold the lock, so under it the bytes are exact, and it
//! takes no tag to conclude that an agent is absent.

use super::hash::AgentHash;
use crate::machine::processor::{same_bytes, same_bytes_of_word};
use crate::record::tag::{Tag, TagWord};
use crate::sync::{AtomicU64, Ordering, peek};
use std::num::NonZero;

/// Records whose fingerprints share a word.
pub(crate) const GROUP: usize = size_of::<u64>();

const LOW_BITS: u64 = u64::from_ne_bytes([0x01; GROUP]);

/// What the record of an agent shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) const VACANT: Self = Self(0);

    #[inline]
    pub(crate) fn of(tag: Tag) -> Self {
        Self(tag.middle().max(1))
    }

    /// What a record with this tag word shows.
    pub(crate) fn of_word(word: TagWord) -> Self {
        word.tenant().map_or(Self::VACANT, Self::of)
    }

    /// Eight copies of it.
    #[inline]
    const fn everywhere(self) -> u64 {
        self.0.wrapping_mul(LOW_BITS)
    }
}

/// The fingerprints of one group.
#[derive(Clone, Copy)]
pub(crate) struct Group(u64);

impl Group {
    #[inline]
    pub(crate) fn load(word: &AtomicU64) -> Self {
        Self(peek(word))
    }

    /// The slots that show `wanted`.
    #[inline]
    pub(crate) fn slots(self, wanted: Fingerprint) -> Slots {
        Slots(same_bytes_of_word(self.0, wanted.everywhere()))
    }

    /// Whether this slot shows `wanted`.
    pub(crate) fn shows(self, slot: usize, wanted: Fingerprint) -> bool {
        u64::from(self.0.to_le_bytes()[slot]) == wanted.0
    }

    /// The first vacant slot.
    pub(crate) fn vacant(self) -> Option<usize> {
        self.slots(Fingerprint::VACANT).next()
    }
}

/// The slots of two groups that show the fingerprint of this hash; those of the
/// second are 8 to 15.
#[inline]
pub(crate) fn slots_of_pair(words: &[AtomicU64; 2], hash: AgentHash) -> Slots {
    Slots(same_bytes(words, hash.shown()))
}

/// Slots of a group or of a pair, in order: a bit for each.
#[derive(Clone, Copy)]
pub(crate) struct Slots(u16);

impl Slots {
    /// The first, if there is one.
    #[inline]
    pub(crate) fn first(self) -> Option<u32> {
        NonZero::new(self.0).map(NonZero::<u16>::trailing_zeros)
    }
}

impl Iterator for Slots {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let slot = self.first()?;
        self.0 &= self.0 - 1;
        Some(slot as usize)
    }
}

/// Sets one slot's fingerprint. The caller holds the region's lock, so no
/// other thread writes this word.
pub(crate) fn set(word: &AtomicU64, slot: usize, fingerprint: Fingerprint) {
    debug_assert!(slot < GROUP);
    let mut bytes = peek(word).to_le_bytes();
    bytes[slot] = fingerprint.0 as u8;
    word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::limits::Row;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_match_is_found_and_no_other(bytes: [[u8; GROUP]; 2], wanted: u8, other: u64) {
            let other = other & !(0xff << 24);
            // At least one match, most of the time.
            let known = || bytes[usize::from(wanted) / 100][usize::from(wanted) % GROUP];
            let wanted = if wanted < 200 { known() } else { wanted };
            let groups = bytes.map(|bytes| Group(u64::from_le_bytes(bytes)));
            let fingerprint = Fingerprint(wanted.into());
            let exact = bytes.map(|bytes| (0..GROUP).filter(|slot| bytes[*slot] == wanted).collect::<Vec<_>>());
            for (group, exact) in groups.into_iter().zip(&exact) {
                prop_assert_eq!(&group.slots(fingerprint).collect::<Vec<_>>(), exact);
                prop_assert!((0..GROUP).all(|slot| group.shows(slot, fingerprint) == exact.contains(&slot)));
            }
            prop_assert_eq!(groups[0].vacant(), bytes[0].iter().position(|byte| *byte == 0));
            let [first, second] = exact;
            let both: Vec<usize> = first.into_iter().chain(second.into_iter().map(|slot| GROUP + slot)).collect();
            if wanted > 0 {
                let hash = AgentHash::from_bits(u64::from(wanted) << 24 | other);
                prop_assert_eq!(Fingerprint::of(hash.tag()), fingerprint);
                let slots = slots_of_pair(&groups.map(|group| AtomicU64::new(group.0)), hash);
                prop_assert_eq!(slots.first().map(|slot| slot as usize), both.first().copied());
                prop_assert_eq!(slots.collect::<Vec<_>>(), both);
            }
        }

        /// No agent looks like a vacant record.
        #[test]
        fn a_fingerprint_is_never_zero_and_has_eight_bits(hash: u64, row in 0..10_u64) {
            for hash in [hash, hash & !(0xff << 24), 0] {
                let fingerprint = Fingerprint::of(Tag::of_hash(hash));
                prop_assert!((1..0x100).contains(&fingerprint.0));
                let word = TagWord::new(Tag::of_hash(hash), Row::unassigned(row));
                prop_assert_eq!(Fingerprint::of_word(word), fingerprint);
            }
        }
    }

    #[test]
    fn a_slot_shows_what_was_set() {
        let word = AtomicU64::new(0);
        (0..GROUP).for_each(|slot| set(&word, slot, Fingerprint(7)));
        assert_eq!(Group::load(&word).vacant(), None);
        set(&word, 3, Fingerprint::VACANT);
        assert_eq!(Group::load(&word).vacant(), Some(3));
    }
}
