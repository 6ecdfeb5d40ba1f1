//! Who a record belongs to, and under which plan.
//!
//! ```text
//!  63                       17    16    15         0
//! ┌───────────────────────────┬────────┬────────────┐
//! │       tag, 47 bits        │ closed │    plan    │
//! └───────────────────────────┴────────┴────────────┘
//! ```
//!
//! All of it shares a word so that one load answers "is this my agent, what
//! are its limits, and is anybody trying to evict it?", and a change of plan
//! is never seen half done. A closed tag still names its tenant: the tenant
//! can open it again, and whoever looks for it knows that it is not absent.

use std::fmt;

const PLAN_BITS: u32 = 16;
const CLOSED: u64 = 1 << PLAN_BITS;
const TAG_SHIFT: u32 = PLAN_BITS + 1;
const PLAN_MASK: u64 = (1 << PLAN_BITS) - 1;

/// The part of an agent's hash that tells it from its neighbours, where a tag
/// word has it. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

impl Tag {
    /// The low bits of a hash; they are not all zero.
    #[inline]
    pub(crate) const fn of_hash(hash: u64) -> Self {
        debug_assert!(hash << TAG_SHIFT != 0);
        Self(hash << TAG_SHIFT)
    }
}

/// The number of a row in the table of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlanId(u16);

impl PlanId {
    /// The plan of an agent about which nothing was said.
    pub(crate) const DEFAULT: Self = Self(0);

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A record's first word. Zero is a record nobody holds, which is what fresh memory contains.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct TagWord(u64);

impl TagWord {
    pub(crate) const VACANT: Self = Self(0);

    pub(crate) const fn new(tag: Tag, plan: PlanId) -> Self {
        Self(tag.0 | plan.0 as u64)
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

    /// Whether it is the agent's and nobody is trying to evict it.
    #[inline]
    pub(crate) const fn is_open_to(self, tag: Tag) -> bool {
        // The closed bit is the lowest of these, and clear.
        (self.0 ^ tag.0) >> PLAN_BITS == 0
    }

    pub(crate) const fn is_vacant(self) -> bool {
        self.0 == 0
    }

    /// The lowest eight bits of the agent's hash; 0 if the record is vacant.
    pub(crate) const fn low_byte(self) -> u8 {
        (self.0 >> TAG_SHIFT) as u8
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

    pub(crate) const fn plan(self) -> PlanId {
        PlanId((self.0 & PLAN_MASK) as u16)
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
            .field("plan", &self.plan().0)
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_round_trip(hash in 1..1_u64 << 47, other in 1..1_u64 << 47, plan: u16) {
            let (tag, other) = (Tag::of_hash(hash), Tag::of_hash(other));
            let word = TagWord::new(tag, PlanId(plan));
            prop_assert!(word.belongs_to(tag) && word.closed().belongs_to(tag));
            prop_assert!(word.is_open_to(tag) && !word.closed().is_open_to(tag));
            prop_assert_eq!(word.is_open_to(other), tag == other);
            prop_assert_eq!(word.belongs_to(other), tag == other);
            prop_assert_eq!(word.closed().plan(), PlanId(plan));
            prop_assert!(!word.is_vacant() && !word.is_closed() && word.closed().is_closed());
            prop_assert_eq!(word.closed().opened(), word);
            prop_assert_eq!(TagWord::from_bits(word.bits()), word);
        }
    }
}
