//! A machine's own part of a lane that machines share: the tokens that it may
//! spend without a question, or those that it has spent and not yet paid for.
//!
//! ```text
//!  63                       25 24   20  19    18  17        4 3        0
//! ┌───────────────────────────┬───────┬─────┬─────┬──────────┬──────────┐
//! │ balance: signed, 39 bits  │  low  │  –  │asked│  until   │generation│
//! └───────────────────────────┴───────┴─────┴─────┴──────────┴──────────┘
//! ```
//!
//! - A positive balance is *credit*: tokens that the store was debited for. A
//!   negative one is *advance*: tokens that the store has yet to be debited for.
//! - `until` is when the credit ends, in units of about a quarter of a second.
//!   It wraps after 73 minutes, and a word that is that old may be taken for a
//!   live one. That is harmless: credit was paid for, however old it is.
//! - `asked` says that the machine's engine has been asked to settle.
//! - Below `2^low` tokens it is time to ask for more.

use super::super::LaneWord;
use crate::clock::Tick;
use std::time::Duration;

const UNTIL_BITS: u32 = 14;
const UNTIL_MASK: u64 = (1 << UNTIL_BITS) - 1;
const ASKED: u64 = 1 << UNTIL_BITS;
const LOW_SHIFT: u32 = UNTIL_BITS + 2;
const LOW_BITS: u32 = 5;
const LOW_MASK: u64 = (1 << LOW_BITS) - 1;
const BALANCE_SHIFT: u32 = LOW_SHIFT + LOW_BITS;
const PAYLOAD_BITS: u32 = crate::clock::TICK_BITS;
const BALANCE_BITS: u32 = PAYLOAD_BITS - BALANCE_SHIFT;
const BALANCE_MASK: u64 = (1 << BALANCE_BITS) - 1;
/// The largest balance, and the largest debt.
pub(super) const BALANCE_MAX: i64 = (1 << (BALANCE_BITS - 1)) - 1;

/// The length of a unit of `until`: 2^28 ns.
const UNIT_SHIFT: u32 = 28;
/// For how many units a settlement holds: 0.8 to 1.1 s.
const LIVES_FOR: u64 = 4;
/// The same as a span.
pub(crate) const CREDIT_LIVES: Duration = Duration::from_nanos(LIVES_FOR << UNIT_SHIFT);
/// A word is live if it ends within this many units.
const LIVE_MAX: u64 = 2 * LIVES_FOR;

/// What a machine may spend, or owes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CreditWord(LaneWord);

/// The unit of `until` that an instant is in.
fn unit(now: Tick) -> u64 {
    now.as_nanos() >> UNIT_SHIFT & UNTIL_MASK
}

impl CreditWord {
    pub(super) const fn of(word: LaneWord) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> LaneWord {
        self.0
    }

    /// Tokens that may be spent if positive, and that are owed if negative.
    pub(super) const fn balance(self) -> i64 {
        let shift = i64::BITS - PAYLOAD_BITS;
        // The sign is the payload's highest bit.
        (self.0.payload() << shift) as i64 >> (shift + BALANCE_SHIFT)
    }

    /// The same with another balance, which ends at the bounds.
    pub(super) fn with_balance(self, balance: i64) -> Self {
        let bits = balance.clamp(-BALANCE_MAX, BALANCE_MAX) as u64 & BALANCE_MASK;
        self.with(!(BALANCE_MASK << BALANCE_SHIFT), bits << BALANCE_SHIFT)
    }

    /// Keeps these bits of the payload, and sets others.
    fn with(self, kept: u64, set: u64) -> Self {
        Self(self.0.with_payload(self.0.payload() & kept & ((1 << PAYLOAD_BITS) - 1) | set))
    }

    fn until(self) -> u64 {
        self.0.payload() & UNTIL_MASK
    }

    /// Whether a settlement holds: its credit may be spent, and its view is believed.
    pub(super) fn is_live(self, now: Tick) -> bool {
        let left = self.until().wrapping_sub(unit(now)) & UNTIL_MASK;
        (1..=LIVE_MAX).contains(&left)
    }

    /// What may be spent now: credit that has ended may not, and debt never ends.
    pub(super) fn spendable(self, now: Tick) -> i64 {
        if self.is_live(now) { self.balance() } else { self.balance().min(0) }
    }

    /// The balance below which it is time to ask for more.
    pub(super) fn low(self) -> i64 {
        1 << (self.0.payload() >> LOW_SHIFT & LOW_MASK)
    }

    /// Whether the engine has been asked, so long ago at most that an answer may still come. A question that was lost
    /// is asked again after two seconds.
    pub(super) fn is_asked(self, now: Tick) -> bool {
        let since = unit(now).wrapping_sub(self.until()) & UNTIL_MASK;
        self.0.payload() & ASKED != 0 && (self.is_live(now) || since <= LIVE_MAX)
    }

    /// The same after the engine was asked.
    pub(super) fn asked(self, now: Tick) -> Self {
        // What is not live says since when.
        let until = if self.is_live(now) { self.until() } else { unit(now) };
        self.with(!UNTIL_MASK, until | ASKED)
    }

    /// The same if the engine could not be asked.
    pub(super) fn not_asked(self) -> Self {
        self.with(!ASKED, 0)
    }

    /// The same after a settlement that leaves this balance. It is time to ask again below half of `granted`, and with
    /// less than one token if nothing was granted.
    pub(super) fn settled(self, now: Tick, balance: i64, granted: u64) -> Self {
        let low = (granted / 2).checked_ilog2().map_or(0, u64::from).min(LOW_MASK);
        let until = (unit(now) + LIVES_FOR) & UNTIL_MASK;
        self.with(0, low << LOW_SHIFT | until).with_balance(balance)
    }

    /// A word without credit for the time when the generations start over: one that does not return soon.
    pub(super) fn renewed(self, present: Tick) -> Self {
        let past = present.as_nanos() % (UNTIL_MASK - LIVE_MAX);
        self.with(!UNTIL_MASK, unit(present).wrapping_sub(past) & UNTIL_MASK)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn second(seconds: u64) -> Tick {
        Tick::from_nanos(seconds * 1_000_000_000)
    }

    proptest! {
        #[test]
        fn each_part_keeps_the_others(
            payload in 0..1_u64 << PAYLOAD_BITS,
            balance in -BALANCE_MAX..=BALANCE_MAX,
            now in 0..1_u64 << 58,
        ) {
            let before = CreditWord::of(LaneWord::default().next_generation().with_payload(payload));
            let now = Tick::from_nanos(now);
            let after = before.with_balance(balance);
            prop_assert_eq!(after.balance(), balance);
            prop_assert_eq!((after.until(), after.low()), (before.until(), before.low()));
            let asked = after.asked(now);
            prop_assert!(asked.is_asked(now));
            prop_assert_eq!((asked.balance(), asked.low()), (balance, before.low()));
            prop_assert_eq!(asked.is_live(now), before.is_live(now));
            prop_assert!(!asked.not_asked().is_asked(now));
            let settled = asked.settled(now, balance, 100);
            prop_assert!(settled.is_live(now) && !settled.is_asked(now));
            prop_assert_eq!((settled.balance(), settled.low()), (balance, 32));
            let renewed = settled.renewed(now);
            prop_assert!(!renewed.is_live(now));
            prop_assert_eq!(renewed.balance(), balance);
            for word in [after, asked, settled, renewed] {
                prop_assert_eq!(word.word().generation(), 1);
            }
        }
    }

    #[test]
    fn a_balance_ends_at_its_bounds() {
        let word = CreditWord::of(LaneWord::default());
        assert_eq!((word.balance(), word.low()), (0, 1));
        assert_eq!(word.with_balance(i64::MAX).balance(), BALANCE_MAX);
        assert_eq!(word.with_balance(i64::MIN).balance(), -BALANCE_MAX);
    }

    #[test]
    fn a_settlement_holds_for_about_a_second_and_debt_for_ever() {
        let word = CreditWord::of(LaneWord::default());
        for (start, after) in [(0, 2), (40, 42), (4_398, 4_400)] {
            let credit = word.settled(second(start), 7, 7);
            assert_eq!((credit.spendable(second(start)), credit.spendable(second(after))), (7, 0));
            let debt = word.settled(second(start), -7, 0);
            assert_eq!((debt.spendable(second(start)), debt.spendable(second(after))), (-7, -7));
        }
    }

    /// An engine that stopped with a question in its hands would never answer it.
    #[test]
    fn a_question_that_nobody_answers_is_asked_again() {
        let word = CreditWord::of(LaneWord::default()).asked(second(100));
        assert!(word.is_asked(second(100)) && word.is_asked(second(102)));
        assert!(!word.is_asked(second(103)));
        let live = CreditWord::of(LaneWord::default()).settled(second(100), 1, 1).asked(second(100));
        assert!(live.is_asked(second(102)) && !live.is_asked(second(104)));
    }

    #[test]
    fn the_mark_to_ask_at_is_half_of_what_was_granted_or_less() {
        let low = |granted| CreditWord::of(LaneWord::default()).settled(second(1), 0, granted).low();
        assert_eq!([0, 1, 2, 3, 4, 7, 8, 100].map(low), [1, 1, 1, 1, 2, 2, 4, 32]);
        assert_eq!(low(u64::MAX), 1 << 31);
    }
}
