//! One byte per record that says what to look for: the eight records of a
//! group in one word.
//!
//! | byte | meaning |
//! |---|---|
//! | 0 | the record is vacant |
//! | 1 to 255 | eight bits of its tenant's hash |
//!
//! A reader without the region's lock takes a fingerprint as a hint: the tag
//! decides. All writers hold the lock, so under it the bytes are exact, and
//! concluding that an agent is absent takes no look at any tag.

use super::hash::AgentHash;
use crate::record::tag::TagWord;
use crate::sync::{AtomicU64, Ordering, peek};

/// Records whose fingerprints share a word.
pub(crate) const GROUP: usize = size_of::<u64>();

const LOW_BITS: u64 = u64::from_ne_bytes([0x01; GROUP]);
const HIGH_BITS: u64 = u64::from_ne_bytes([0x80; GROUP]);

/// What the record of an agent shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u8);

impl Fingerprint {
    pub(crate) const VACANT: Self = Self(0);

    #[inline]
    pub(crate) fn of(hash: AgentHash) -> Self {
        Self(hash.low_byte())
    }

    /// What a record with this tag shows.
    pub(crate) fn of_tag(tag: TagWord) -> Self {
        Self(tag.low_byte())
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

    /// The slots that show `wanted`: each that does, and now and then one that
    /// does not.
    #[inline]
    pub(crate) fn slots(self, wanted: Fingerprint) -> Slots {
        // A byte of zero in `different` is a match. The subtraction borrows
        // only past such a byte, so the first hit is always right.
        let different = self.0 ^ (LOW_BITS * u64::from(wanted.0));
        Slots(different.wrapping_sub(LOW_BITS) & !different & HIGH_BITS)
    }

    /// The first slot that shows `wanted`, or any if none does.
    #[inline]
    pub(crate) fn likely_slot(self, wanted: Fingerprint) -> usize {
        self.slots(wanted).0.trailing_zeros() as usize / GROUP % GROUP
    }

    /// Whether this slot shows `wanted`.
    #[inline]
    pub(crate) fn shows(self, slot: usize, wanted: Fingerprint) -> bool {
        (self.0 >> (slot % GROUP * GROUP)) as u8 == wanted.0
    }

    /// The first vacant slot.
    pub(crate) fn vacant(self) -> Option<usize> {
        self.slots(Fingerprint::VACANT).next()
    }
}

/// Slots of a group, in order: the high bit of each one's byte.
#[derive(Clone, Copy)]
pub(crate) struct Slots(u64);

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
    bytes[slot] = fingerprint.0;
    word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_match_is_found_and_the_first_is_exact(bytes: [u8; GROUP], wanted: u8) {
            let group = Group(u64::from_le_bytes(bytes));
            let found: Vec<usize> = group.slots(Fingerprint(wanted)).collect();
            let exact: Vec<usize> = (0..GROUP).filter(|slot| bytes[*slot] == wanted).collect();
            prop_assert!(exact.iter().all(|slot| found.contains(slot)), "{found:?} lacks some of {exact:?}");
            prop_assert_eq!(found.first(), exact.first());
            prop_assert!((0..GROUP).all(|slot| group.shows(slot, Fingerprint(wanted)) == exact.contains(&slot)));
            prop_assert_eq!(group.vacant(), bytes.iter().position(|byte| *byte == 0));
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
