//! One byte per record that says what to look for: the eight records of a
//! group in one word.
//!
//! | byte | meaning |
//! |---|---|
//! | 0 | the record is vacant |
//! | 1 to 127 | seven bits of its tenant's hash; 1 also stands for seven zeros |
//!
//! A reader without the region's lock takes a fingerprint as a hint: the tag
//! decides. All writers hold the lock, so under it the bytes are exact, and
//! concluding that an agent is absent takes no look at any tag.

use crate::record::tag::{Tag, TagWord};
use crate::sync::{AtomicU64, Ordering, peek};
use std::num::NonZero;

/// Records whose fingerprints share a word.
pub(crate) const GROUP: usize = size_of::<u64>();

const LOW_BITS: u64 = u64::from_ne_bytes([0x01; GROUP]);
const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; GROUP]);

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
        // A byte of zero in `different` is a match, and none is above 127: the
        // subtraction never borrows, and leaves a high bit only there.
        let different = self.0 ^ (LOW_BITS * wanted.0);
        Slots(HIGH_BITS.wrapping_sub(different) & HIGH_BITS)
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

/// Slots of a group, in order: the high bit of each one's byte.
#[derive(Clone, Copy)]
pub(crate) struct Slots(u64);

impl Slots {
    /// A bit of the first slot's byte, if there is a slot.
    #[inline]
    pub(crate) fn first_bit(self) -> Option<u32> {
        NonZero::new(self.0).map(NonZero::<u64>::trailing_zeros)
    }

    /// A bit of the first slot's byte, or of any if there is none.
    #[inline]
    pub(crate) fn likely_bit(self) -> u32 {
        self.0.trailing_zeros()
    }
}

impl Iterator for Slots {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let slot = self.0.trailing_zeros() as usize / GROUP;
        self.0 &= self.0 - 1;
        Some(slot)
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
    use crate::record::tag::Row;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_match_is_found_and_no_other(bytes in proptest::array::uniform8(0_u8..0x80), wanted in 0_u8..0x80) {
            let group = Group(u64::from_le_bytes(bytes));
            let fingerprint = Fingerprint(wanted.into());
            let exact: Vec<usize> = (0..GROUP).filter(|slot| bytes[*slot] == wanted).collect();
            prop_assert_eq!(&group.slots(fingerprint).collect::<Vec<_>>(), &exact);
            let first_bit = group.slots(fingerprint).first_bit();
            prop_assert_eq!(first_bit.map(|bit| bit as usize / 8), exact.first().copied());
            prop_assert!(first_bit.is_none_or(|bit| group.slots(fingerprint).likely_bit() == bit));
            prop_assert!((0..GROUP).all(|slot| group.shows(slot, fingerprint) == exact.contains(&slot)));
            prop_assert_eq!(group.vacant(), bytes.iter().position(|byte| *byte == 0));
        }

        /// No agent looks like a vacant record.
        #[test]
        fn a_fingerprint_is_never_zero_and_has_seven_bits(hash: u64, row in 0..10_u64) {
            for hash in [hash, hash & !(0x7f << 25), 0] {
                let fingerprint = Fingerprint::of(Tag::of_hash(hash));
                prop_assert!((1..0x80).contains(&fingerprint.0));
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
