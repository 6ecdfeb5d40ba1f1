//! A lane's word: 60 bits that only its kind can read, and 4 bits of generation.
//!
//! ```text
//!  63                                        4 3        0
//! ┌───────────────────────────────────────────┬──────────┐
//! │      payload: the kind's own, 60 bits     │generation│
//! └───────────────────────────────────────────┴──────────┘
//! ```
//!
//! A step keeps the generation; only a change of tenant or of the tenant's
//! limits moves it on. So an exchange that was prepared for one tenant fails
//! on the next, even when a refund or a reset has brought the payload back to
//! what it was, and one that was prepared with old limits fails under new
//! ones. When the generations start over, the kind moves the payload on
//! ([`Rules::renewed`](super::rules::Rules::renewed)).

use crate::clock::TICK_BITS;
use std::fmt;

pub(super) const GENERATION_BITS: u32 = 4;
pub(super) const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;
const _: () = assert!(TICK_BITS + GENERATION_BITS == u64::BITS);

/// A typed value that is one word of a record.
pub(crate) trait Word: Copy {
    fn from_bits(bits: u64) -> Self;
    fn bits(self) -> u64;
}

/// A lane's word before its kind has read it. Zero is a lane that was never used.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct LaneWord(u64);

impl Word for LaneWord {
    #[inline]
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    fn bits(self) -> u64 {
        self.0
    }
}

impl LaneWord {
    pub(crate) const fn generation(self) -> u64 {
        self.0 & GENERATION_MASK
    }

    /// The 60 bits that only the kind can read.
    pub(crate) const fn payload(self) -> u64 {
        self.0 >> GENERATION_BITS
    }

    /// The same tenancy with another payload of 60 bits.
    pub(crate) const fn with_payload(self, payload: u64) -> Self {
        Self(payload << GENERATION_BITS | self.generation())
    }

    /// The next tenancy, with the same payload.
    pub(crate) const fn next_generation(self) -> Self {
        Self(self.0 & !GENERATION_MASK | (self.generation() + 1) & GENERATION_MASK)
    }

    /// Whether the next tenancy starts the generations over.
    pub(crate) const fn is_last_generation(self) -> bool {
        self.generation() == GENERATION_MASK
    }
}

impl fmt::Debug for LaneWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneWord").field("payload", &self.payload()).field("generation", &self.generation()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_round_trip(payload in 0..1_u64 << TICK_BITS, bits: u64) {
            let word = LaneWord::from_bits(bits);
            prop_assert_eq!(LaneWord::from_bits(word.bits()), word);
            prop_assert_eq!(word.with_payload(payload).payload(), payload);
            prop_assert_eq!(word.with_payload(payload).generation(), word.generation());
            prop_assert_eq!(word.with_payload(word.payload()), word);
            prop_assert_eq!(word.next_generation().payload(), word.payload());
            prop_assert_ne!(word.next_generation(), word);
        }
    }

    #[test]
    fn a_generation_returns_after_sixteen_tenancies_and_not_before() {
        let first = LaneWord::default();
        let mut word = first;
        for _ in 1..16 {
            word = word.next_generation();
            assert_ne!(word, first);
        }
        assert_eq!(word.next_generation(), first);
    }
}
