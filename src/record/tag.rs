//! Who a record belongs to, and which row of limits applies to it.
//!
//! ```text
//!  63                 18   17     16    15         0
//! ┌─────────────────────┬──────┬────────┬────────────┐
//! │  of the hash, 46 b. │  1   │ closed │    row     │
//! └─────────────────────┴──────┴────────┴────────────┘
//! ```
//!
//! The first two are the tag: the low bits of the hash, and a bit that is set
//! while the record is occupied.
//!
//! All of it shares a word so that one load answers "is this my agent, what
//! are its limits, and is anybody trying to evict it?", and a change of plan
//! is never seen half done. A closed tag still names its tenant: the tenant
//! can open it again, and a thread that looks for it finds it.

use crate::limits::ROW_BITS;
pub(super) use crate::limits::Row;
use std::fmt;

const CLOSED: u64 = 1 << ROW_BITS;
const TAG_SHIFT: u32 = ROW_BITS + 1;
const HASH_SHIFT: u32 = TAG_SHIFT + 1;
const ROW_MASK: u64 = (1 << ROW_BITS) - 1;

/// The part of an agent's hash that distinguishes it from its neighbours, at its
/// place in a tag word. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

impl Tag {
    /// The low bits of a hash, and the bit that is always set.
    #[inline]
    pub(crate) const fn of_hash(hash: u64) -> Self {
        // An addition rather than a bit set: one instruction less.
        Self((hash << 1).wrapping_add(1) << TAG_SHIFT)
    }

    /// The tag as a number.
    #[cfg(feature = "shared")]
    pub(crate) const fn number(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    /// Eight bits of the hash, from the middle: those that choose the home are
    /// the same for neighbours, and the lowest are mixed least.
    #[inline]
    pub(crate) const fn middle(self) -> u64 {
        (self.0 >> (HASH_SHIFT + 24)) & 0xff
    }
}

/// A record's first word. Zero, as in fresh memory, is a vacant record.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct TagWord(u64);

impl TagWord {
    pub(crate) const VACANT: Self = Self(0);

    /// Nobody's for now: the old tenant can no longer open it, the new one is not
    /// published, and no lookup finds it. Opened, it is vacant.
    pub(crate) const BETWEEN: Self = Self(CLOSED);

    pub(crate) const fn new(tag: Tag, row: Row) -> Self {
        debug_assert!(row.number() as u64 <= ROW_MASK);
        Self(tag.0 | row.number() as u64)
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) const fn belongs_to(self, tag: Tag) -> bool {
        (self.0 ^ tag.0) >> TAG_SHIFT == 0
    }

    /// The agent's row, if the record is the agent's and nobody is trying to
    /// evict it: the rest of the word is the tag, with the closed bit clear.
    #[inline]
    pub(crate) const fn row_of(self, tag: Tag) -> Option<Row> {
        let row = self.0 ^ tag.0;
        if row <= ROW_MASK { Some(Row::from_number(row as u32)) } else { None }
    }

    pub(crate) const fn is_vacant(self) -> bool {
        self.0 == 0
    }

    /// Its tenant's tag; `None` if it is nobody's.
    pub(crate) fn tenant(self) -> Option<Tag> {
        let tag = Tag(self.0 >> TAG_SHIFT << TAG_SHIFT);
        (tag.0 != 0).then_some(tag)
    }

    /// Its tenant's tag as a number; 0 if it is vacant.
    #[cfg(feature = "persist")]
    pub(crate) const fn tenant_bits(self) -> u64 {
        self.0 >> TAG_SHIFT
    }

    /// The lowest sixteen bits of the agent's hash.
    pub(crate) const fn low_bits(self) -> u64 {
        self.0 >> HASH_SHIFT & 0xffff
    }

    pub(crate) const fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    pub(crate) const fn closed(self) -> Self {
        Self(self.0 | CLOSED)
    }

    pub(crate) const fn opened(self) -> Self {
        Self(self.0 & !CLOSED)
    }

    pub(crate) const fn row(self) -> Row {
        Row::from_number((self.0 & ROW_MASK) as u32)
    }

    /// The same tenant with another row.
    pub(crate) const fn with_row(self, row: Row) -> Self {
        debug_assert!(row.number() as u64 <= ROW_MASK);
        Self(self.0 & !ROW_MASK | row.number() as u64)
    }
}

impl fmt::Debug for TagWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_vacant() {
            return f.write_str("Vacant");
        }
        f.debug_struct("TagWord")
            .field("tag", &format_args!("{:#x}", self.0 >> TAG_SHIFT))
            .field("closed", &self.is_closed())
            .field("row", &self.row().number())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_round_trip(hash: u64, other: u64, row: u16, next: u16) {
            let (tag, other) = (Tag::of_hash(hash), Tag::of_hash(other));
            let (row, next) = (u32::from(row), u32::from(next));
            let word = TagWord::new(tag, Row::from_number(row));
            prop_assert!(word.belongs_to(tag) && word.closed().belongs_to(tag));
            prop_assert_eq!((word.row_of(tag), word.closed().row_of(tag)), (Some(Row::from_number(row)), None));
            prop_assert_eq!(word.row_of(other).is_some(), tag == other);
            prop_assert_eq!(word.belongs_to(other), tag == other);
            prop_assert_eq!(word.closed().row(), Row::from_number(row));
            prop_assert_eq!(word.with_row(Row::from_number(next)), TagWord::new(tag, Row::from_number(next)));
            prop_assert!(!word.is_vacant() && !word.is_closed() && word.closed().is_closed());
            prop_assert_eq!(word.closed().opened(), word);
            prop_assert_eq!(TagWord::from_bits(word.bits()), word);
            prop_assert!(!TagWord::BETWEEN.belongs_to(tag) && TagWord::BETWEEN.row_of(tag).is_none());
            prop_assert_eq!((word.tenant(), word.closed().tenant()), (Some(tag), Some(tag)));
            prop_assert_eq!((tag.middle(), word.low_bits()), (hash >> 24 & 0xff, hash & 0xffff));
        }
    }

    #[test]
    fn a_record_between_tenants_is_nobodys_and_opened_it_is_vacant() {
        let between = TagWord::BETWEEN;
        assert!(between.is_closed() && !between.is_vacant() && between.tenant().is_none());
        assert!(between.opened().is_vacant() && between.opened().tenant().is_none());
    }
}
