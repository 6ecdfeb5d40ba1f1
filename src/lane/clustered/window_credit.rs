//! A machine's own part of a budget that machines share: a calendar window, and what the machine may spend in it
//! without a question, or has spent and not yet paid for.
//!
//! ```text
//!  63            44 43                         4 3        0
//! ┌────────────────┬────────────────────────────┬──────────┐
//! │ window, 20 bits│  balance: signed, 40 bits  │generation│
//! └────────────────┴────────────────────────────┴──────────┘
//! ```
//!
//! Both are in one word, so no exchange can spend in one window what belongs to another.
//!
//! A value above [`BALANCE_MAX`] means a balance of 0. It is salt, so that words do not return when the generations
//! start over.

use super::super::LaneWord;
use super::super::calendar::INDEX_BITS;
use crate::bounds::CAPACITY_MAX;
use crate::sync::{Fault, broken};

const BALANCE_BITS: u32 = 40;
const BALANCE_MASK: u64 = (1 << BALANCE_BITS) - 1;
/// The largest balance, the largest debt, and the largest budget that can be shared.
pub(crate) const BALANCE_MAX: i64 = (CAPACITY_MAX / 2) as i64;
/// The first salt, and the last.
const SALT_MIN: u64 = BALANCE_MAX as u64 + 1;
const SALT_MAX: u64 = (1 << (BALANCE_BITS - 1)) - 1;

const _: () = assert!(BALANCE_BITS + INDEX_BITS == crate::clock::TICK_BITS && SALT_MIN < SALT_MAX);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowCredit(LaneWord);

impl WindowCredit {
    pub(super) const fn of(word: LaneWord) -> Self {
        Self(word)
    }

    /// The window that the balance is of.
    pub(super) const fn window(self) -> u64 {
        self.0.payload() >> BALANCE_BITS
    }

    /// The balance, or the salt.
    const fn low(self) -> u64 {
        self.0.payload() & BALANCE_MASK
    }

    const fn has_salt(self) -> bool {
        SALT_MIN <= self.low() && self.low() <= SALT_MAX
    }

    /// What may be spent in its window if positive, and what is owed there if negative.
    pub(super) const fn balance(self) -> i64 {
        let shift = u64::BITS - BALANCE_BITS;
        // The sign is the highest of the bits.
        if self.has_salt() { 0 } else { (self.low() << shift) as i64 >> shift }
    }

    /// The balance in this window: that of another window is not to be had in this one.
    pub(super) fn balance_in(self, window: u64) -> i64 {
        if self.window() == window || broken(Fault::CreditOfOldWindow) { self.balance() } else { 0 }
    }

    /// The same tenancy with this balance, which ends at the bounds.
    pub(super) fn put(self, window: u64, balance: i64) -> LaneWord {
        self.put_low(window, balance.clamp(-BALANCE_MAX, BALANCE_MAX) as u64 & BALANCE_MASK)
    }

    const fn put_low(self, window: u64, low: u64) -> LaneWord {
        self.0.with_payload(window << BALANCE_BITS | low)
    }

    /// The same tenancy with no balance, in this window or a later one.
    pub(super) fn emptied(self, window: u64) -> LaneWord {
        self.put_low(self.window().max(window), if self.has_salt() { self.low() } else { SALT_MIN })
    }

    /// The same without credit.
    pub(super) fn disowned(self) -> LaneWord {
        if self.balance() > 0 { self.emptied(self.window()) } else { self.0 }
    }

    /// The word with its salt moved on, if it has one.
    pub(super) const fn renewed(self) -> LaneWord {
        match (self.has_salt(), self.low() == SALT_MAX) {
            (false, _) => self.0,
            (true, true) => self.put_low(self.window(), SALT_MIN),
            (true, false) => self.put_low(self.window(), self.low() + 1),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_balance_is_that_of_its_window_alone(
            window in 0..1_u64 << INDEX_BITS,
            other in 0..1_u64 << INDEX_BITS,
            balance in -BALANCE_MAX..=BALANCE_MAX,
        ) {
            let tenancy = LaneWord::default().next_generation();
            let word = WindowCredit::of(WindowCredit::of(tenancy).put(window, balance));
            prop_assert_eq!((word.window(), word.balance(), word.0.generation()), (window, balance, 1));
            prop_assert_eq!(word.balance_in(other), if other == window { balance } else { 0 });
            let emptied = WindowCredit::of(word.emptied(other));
            prop_assert_eq!((emptied.window(), emptied.balance()), (window.max(other), 0));
        }
    }

    #[test]
    fn a_balance_ends_at_its_bounds_and_salt_is_none() {
        let word = |balance| WindowCredit::of(WindowCredit::of(LaneWord::default()).put(7, balance));
        assert_eq!((word(i64::MAX).balance(), word(i64::MIN).balance()), (BALANCE_MAX, -BALANCE_MAX));
        let empty = WindowCredit::of(LaneWord::default());
        assert_eq!((empty.window(), empty.balance()), (0, 0));
        let salted = WindowCredit::of(word(3).emptied(0));
        let moved = WindowCredit::of(salted.renewed());
        assert!(moved != salted && WindowCredit::of(moved.emptied(7)) == moved);
        assert_eq!((moved.balance(), moved.window()), (0, 7));
        let last = WindowCredit::of(salted.put_low(7, SALT_MAX));
        assert_eq!(WindowCredit::of(last.renewed()), salted);
        assert_eq!(word(-3).renewed(), word(-3).0, "what is owed stays as it is");
    }
}
