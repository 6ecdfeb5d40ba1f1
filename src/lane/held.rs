//! At most this many at once: connections, say.
//!
//! ```text
//!  63                        24 23          4 3        0
//! ┌────────────────────────────┬─────────────┬──────────┐
//! │       salt, 40 bits        │ held, 20    │generation│
//! └────────────────────────────┴─────────────┴──────────┘
//! ```
//!
//! Time plays no part. The low bits of the salt move on when the generations
//! start over, so that words do not return soon. The others have a meaning in a
//! shared slab alone: they are the [mark](HoldMark) of the last call that took or
//! gave back slots; see [`holds`](crate::slab::holds).

use super::count::CountLimit;
use super::kind::Kind;
use super::limit::{Numbers, Terms};
use super::limit_error::LimitError;
use super::rules::{Charged, LimitWords, Receipt, Refunded, Rules, first};
use super::text::{self, Parts};
use super::{Choice, Finding, LaneState, LaneWord, Outcome, RETRY_NEVER, Verdict};
use crate::bounds::HELD_MAX;
use crate::clock::{At, TICK_BITS, Tick};
use crate::error::Error;
use std::fmt;
use std::time::Duration;

/// `held 3`: at most three at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeldTerms {
    pub(super) slots: u64,
}

impl Terms for HeldTerms {
    fn kind(&self) -> Kind {
        Kind::Held
    }

    fn capacity(&self) -> u64 {
        self.slots
    }

    /// A total counts requests, and a slot is not a request.
    fn can_be_total(&self) -> bool {
        false
    }

    fn check(&self) -> Result<Numbers, LimitError> {
        match self.slots {
            0 => Err(LimitError::Zero),
            slots @ 1..=HELD_MAX => Ok(Numbers::Count(slots)),
            slots => Err(LimitError::Held { slots }),
        }
    }
}

impl HeldTerms {
    pub(super) const KEYWORD: &str = "held";

    /// What follows the keyword; `None` if it is something else.
    pub(super) fn read(parts: &mut Parts<'_>) -> Result<Option<Self>, LimitError> {
        Ok(text::number_in(parts)?.map(|slots| Self { slots }))
    }
}

impl fmt::Display for HeldTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Self::KEYWORD, self.slots)
    }
}

const HELD_BITS: u32 = 20;
const HELD_MASK: u64 = (1 << HELD_BITS) - 1;
const _: () = assert!(HELD_MAX <= HELD_MASK);

/// How many slots are held, and the salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeldWord(LaneWord);

impl HeldWord {
    const fn held(self) -> u64 {
        self.0.payload() & HELD_MASK
    }

    /// The same tenancy and salt with this many held.
    fn put(self, held: u64) -> LaneWord {
        self.0.with_payload(self.0.payload() & !HELD_MASK | held.min(HELD_MASK))
    }

    /// The word with the low bits of its salt moved on.
    fn salted(self) -> LaneWord {
        let payload = self.0.payload();
        let next = payload.wrapping_add(1 << HELD_BITS) & TURNS_MASK;
        self.0.with_payload(payload & !TURNS_MASK | next)
    }
}

/// Bits of the salt that count how often the generations started over.
const TURN_BITS: u32 = 6;
const TURNS_MASK: u64 = ((1 << TURN_BITS) - 1) << HELD_BITS;
const MARK_SHIFT: u32 = HELD_BITS + TURN_BITS;

/// The last operation on a held word: the number of its entry, and a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldMark(u64);

impl HoldMark {
    pub(crate) const NUMBER_BITS: u32 = 22;
    pub(crate) const GENERATION_BITS: u32 = TICK_BITS - MARK_SHIFT - Self::NUMBER_BITS;
    pub(crate) const GENERATION_MASK: u64 = (1 << Self::GENERATION_BITS) - 1;

    pub(crate) const fn new(number: u64, generation: u64) -> Self {
        Self(number << Self::GENERATION_BITS | generation & Self::GENERATION_MASK)
    }

    pub(crate) const fn number(self) -> usize {
        (self.0 >> Self::GENERATION_BITS) as usize
    }

    pub(crate) const fn generation(self) -> u64 {
        self.0 & Self::GENERATION_MASK
    }
}

/// The mark of a held word.
pub(crate) fn mark(word: LaneWord) -> HoldMark {
    HoldMark(word.payload() >> MARK_SHIFT)
}

/// The same word with another mark.
pub(crate) fn marked(word: LaneWord, HoldMark(mark): HoldMark) -> LaneWord {
    word.with_payload(word.payload() & HELD_MASK | mark << MARK_SHIFT)
}

/// How many slots a held word counts.
#[cfg(feature = "shared")]
pub(crate) fn count(word: LaneWord) -> u64 {
    HeldWord(word).held()
}

/// Slots that are held.
pub(super) struct Held;

impl Rules for Held {
    fn is_reservable(&self) -> bool {
        false
    }

    fn is_idle(&self, word: LaneWord, _at: At) -> bool {
        HeldWord(word).held() == 0
    }

    fn is_kept(&self, word: LaneWord, at: At) -> bool {
        !self.is_idle(word, at)
    }

    fn is_held(&self, word: LaneWord) -> bool {
        HeldWord(word).held() > 0
    }

    fn emptied(&self, word: LaneWord, _floor: At) -> LaneWord {
        HeldWord(word).put(0)
    }

    /// The holder of a slot is still there, so the tenant stays.
    fn forgotten(&self, word: LaneWord, _present: Tick, _floor: At) -> LaneWord {
        word
    }

    fn renewed(&self, word: LaneWord, _present: Tick, _is_other_tenant: bool) -> LaneWord {
        HeldWord(word).salted()
    }

    fn under_other_limit(&self, word: LaneWord, _at: At, _is_reset: bool, _debt_max: Duration) -> LaneWord {
        word
    }

    /// Nothing else gives a slot back.
    fn outlives_its_generation(&self, _is_forgiven: bool) -> bool {
        true
    }

    fn roll_back(&self, words: &[LaneWord], _latest: At, _receipt: Receipt, cost: u64) -> Choice<()> {
        Choice::of(Outcome { next: release(first(words), cost).next, answer: () })
    }

    fn step(&self, words: &[LaneWord], _at: At, limit: LimitWords, cost: u64) -> Choice<Charged> {
        Choice::of(step(first(words), CountLimit::from_words(limit), cost)).map(Charged::Counted)
    }

    /// Gives slots back, under any limit. Giving back more than are held is an
    /// error, except for an exempt agent, which never took any.
    fn refund(
        &self,
        words: &[LaneWord],
        at: At,
        limit: LimitWords,
        cost: u64,
        _reserved: &dyn Fn(u64) -> u64,
    ) -> Choice<Result<Refunded, Error>> {
        let Outcome { next, answer } = release(first(words), cost);
        let answer = match answer {
            Err(Error::NotHeld { .. }) if self.is_exempt(limit) => Ok(LaneState::EXEMPT),
            Err(error) => Err(error),
            Ok(()) => Ok(self.state(&[next.unwrap_or_default()], at, limit)),
        };
        Choice::of(Outcome { next, answer: answer.map(Refunded::all) })
    }

    fn next_to_reset(&self, _words: &[LaneWord], _now: Tick, _round: usize) -> Option<(usize, bool)> {
        None
    }

    fn state(&self, words: &[LaneWord], _at: At, limit: LimitWords) -> LaneState {
        state(first(words), CountLimit::from_words(limit))
    }
}

/// Takes `cost` slots if that many are free. A denial has no wait: nobody knows
/// when a slot will be released.
fn step(word: LaneWord, limit: CountLimit, cost: u64) -> Outcome<Result<Verdict, Error>> {
    if let Some(answer) = limit.uncounted(cost).or(limit.error(cost).map(Err)) {
        return Outcome { next: None, answer };
    }
    let held = HeldWord(word).held();
    let left = limit.count().saturating_sub(held);
    let verdict = |decision, left, wait| Ok(Verdict::counted(decision, limit.count(), left, wait, 0, 0));
    if cost > left {
        return Outcome { next: None, answer: verdict(Finding::DENY, left, RETRY_NEVER) };
    }
    let next = HeldWord(word).put(held + cost);
    Outcome { next: Some(next), answer: verdict(limit.decision(left - cost), left - cost, 0) }
}

/// Gives `cost` slots back. More than are held is an error.
pub(crate) fn release(word: LaneWord, cost: u64) -> Outcome<Result<(), Error>> {
    let held = HeldWord(word).held();
    match held.checked_sub(cost) {
        _ if cost == 0 => Outcome { next: None, answer: Err(Error::ZeroCost) },
        Some(left) => Outcome { next: Some(HeldWord(word).put(left)), answer: Ok(()) },
        None => Outcome { next: None, answer: Err(Error::NotHeld { held, released: cost }) },
    }
}

/// The lane's state.
fn state(word: LaneWord, limit: CountLimit) -> LaneState {
    let left = limit.count().saturating_sub(HeldWord(word).held());
    limit.uncounted_state().unwrap_or(LaneState::counted(limit.count(), left, RETRY_NEVER, 0, 0))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lane::Decision;

    const LIMIT: CountLimit = CountLimit::new(10, 20);

    /// With salt, and a generation that is not 0.
    fn word(held: u64) -> LaneWord {
        LaneWord::default().next_generation().with_payload(77 << HELD_BITS | held)
    }

    #[test]
    fn slots_are_counted_and_the_salt_stays() {
        for (held, cost, decision, left) in [
            (0, 8, Decision::Allow, 2),
            (1, 8, Decision::Warn, 1),
            (3, 7, Decision::Warn, 0),
            (3, 8, Decision::Deny, 7),
        ] {
            let Outcome { next, answer } = step(word(held), LIMIT, cost);
            let verdict = answer.unwrap();
            assert_eq!((verdict.decision(), verdict.remaining()), (decision, left), "{held} and {cost}");
            assert_eq!(next, (decision != Decision::Deny).then(|| word(held + cost)));
            assert_eq!(verdict.retry_after_ns, if decision == Decision::Deny { RETRY_NEVER } else { 0 });
        }
        assert_eq!(step(word(3), LIMIT, 0).answer, Err(Error::ZeroCost));
        assert_eq!((HeldWord(word(3)).held(), HeldWord(word(3)).put(0)), (3, word(0)));
        let seen = state(word(3), LIMIT);
        assert_eq!((seen.remaining, seen.next_in_ns, seen.full_in_ns), (7, RETRY_NEVER, 0));
        assert_eq!(HeldWord(word(3)).put(u64::MAX), word(HELD_MASK));
    }

    #[test]
    fn only_what_is_held_is_released() {
        assert_eq!(release(word(3), 2), Outcome { next: Some(word(1)), answer: Ok(()) });
        assert_eq!(release(word(3), 3), Outcome { next: Some(word(0)), answer: Ok(()) });
        assert_eq!(release(word(3), 0), Outcome { next: None, answer: Err(Error::ZeroCost) });
        assert_eq!(release(word(3), 4), Outcome { next: None, answer: Err(Error::NotHeld { held: 3, released: 4 }) });
    }

    #[test]
    fn the_salt_moves_on_and_the_mark_stays() {
        assert_eq!(HeldWord(word(3)).salted(), word(3).with_payload(78 << HELD_BITS | 3));
        let last = word(3).with_payload(((1 << TICK_BITS) - 1) & !HELD_MASK | 3);
        assert_eq!(HeldWord(last).salted(), last.with_payload(last.payload() & !TURNS_MASK));
        for new in [HoldMark::new(0, 2), HoldMark::new((1 << 22) - 1, u64::MAX), HoldMark::new(12_345, 77)] {
            let other = marked(word(3), new);
            assert_eq!((mark(other), HeldWord(other).held()), (new, 3));
            assert_eq!((mark(HeldWord(other).salted()), HeldWord(HeldWord(other).put(9)).held()), (new, 9));
            assert_eq!(HoldMark::new(new.number() as u64, new.generation()), new);
            assert_eq!(other.generation(), word(3).generation());
        }
        assert_eq!(mark(LaneWord::default()), HoldMark::new(0, 0));
    }
}
