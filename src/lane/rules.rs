//! The trait that every kind of limit implements, each in its own file.
//!
//! Every method is a pure function of a lane's words, an instant and a limit,
//! and keeps these rules:
//!
//! - The word 0 is a fresh lane.
//! - The generation stays: a next word is made by
//!   [`with_payload`](LaneWord::with_payload).
//! - A charge changes the word, and a denial returns no word at all.
//! - An older `now` makes the answer stricter, never laxer.
//! - A division rounds to the stricter side.
//! - The limit may be torn: half old, half new. Then the answer is thrown away,
//!   but computing it must not panic.

use super::bucket::debt::Oversize;
use super::bucket::{self, Charge};
use super::count::CountLimit;
use super::limit::Numbers;
use super::{Choice, LaneState, LaneWord, Outcome, Verdict};
use crate::clock::{At, Tick};
use crate::error::Error;
use std::time::Duration;

/// A lane's limit, as the words of a row of the table. Only the lane's kind can
/// read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitWords(pub(crate) [u64; LimitWords::COUNT]);

impl LimitWords {
    pub(crate) const COUNT: usize = 4;
}

/// What a kind of limit has to answer: first about one word under any limit,
/// then about all words of a lane under a given limit.
pub(crate) trait Rules {
    /// Whether a charge may be an estimate that is settled later: then
    /// [`undo`](Self::undo) and [`force`](Self::force) settle it.
    fn is_reservable(&self) -> bool {
        true
    }

    /// Whether it needs the date, which callers then look up.
    fn uses_calendar(&self) -> bool {
        false
    }

    /// Whether the word carries no information at this instant: forgetting it
    /// changes no later answer.
    fn is_idle(&self, word: LaneWord, at: At) -> bool;

    /// Whether the word is never given up for a newcomer.
    fn is_kept(&self, _word: LaneWord, _at: At) -> bool {
        false
    }

    /// Whether the word counts slots that are held and will be released.
    fn is_held(&self, _word: LaneWord) -> bool {
        false
    }

    /// The same tenancy with nothing charged. No later charge counts from an
    /// instant before `floor`.
    fn emptied(&self, word: LaneWord, floor: At) -> LaneWord;

    /// What is left of an idle word, for the next tenant. It holds no time
    /// after `present`.
    fn vacated(&self, word: LaneWord, _present: Tick, floor: At) -> LaneWord {
        self.emptied(word, floor)
    }

    /// What is left of a word whose tenant is forgotten on purpose.
    fn forgotten(&self, word: LaneWord, present: Tick, floor: At) -> LaneWord {
        self.vacated(word, present, floor)
    }

    /// What a newcomer inherits.
    fn inherited(&self, word: LaneWord, floor: At) -> LaneWord {
        self.emptied(word, floor)
    }

    /// The word of a vacant record that is about to be claimed.
    fn settled(&self, word: LaneWord, floor: At) -> LaneWord {
        self.emptied(word, floor)
    }

    /// The word when the generations start over: some part of it moves on, so
    /// that the word of sixteen generations ago does not return. If the tenant
    /// changes, the word may also become stricter.
    fn renewed(&self, word: LaneWord, present: Tick, is_other_tenant: bool) -> LaneWord;

    /// The word under another limit: at most `debt_max` of debt stays if the
    /// word is an instant. A reset leaves nothing charged.
    fn under_other_limit(&self, word: LaneWord, at: At, is_reset: bool, debt_max: Duration) -> LaneWord;

    /// Whether another limit that leaves at most `debt_max` of debt cuts the word.
    fn is_cut(&self, _word: LaneWord, _now: Tick, _debt_max: Duration) -> bool {
        false
    }

    /// The window in which the charge that wrote this word was made, or the
    /// instant that it wrote.
    fn place(&self, _charged: LaneWord) -> u64 {
        0
    }

    /// What a charge cost, as time: nanoseconds.
    fn price(&self, _before: LaneWord, _charged: LaneWord, _at: Tick) -> u64 {
        0
    }

    /// Whether a charge can still be taken back after the word's generation has
    /// moved on. `is_forgiven` says whether the agent's charges of that time
    /// have been forgiven (`slab/forgiven.rs`).
    fn outlives_its_generation(&self, is_forgiven: bool) -> bool {
        !is_forgiven
    }

    /// Takes back one of several charges. `latest` is no earlier than any
    /// instant at which these words were charged.
    fn roll_back(&self, words: &[LaneWord], latest: At, receipt: Receipt, cost: u64) -> Choice<()> {
        self.undo(words, latest, receipt.place, cost)
    }

    /// Takes back what was charged in the window of this number.
    fn undo(&self, _words: &[LaneWord], _at: At, _place: u64, _cost: u64) -> Choice<()> {
        Choice::of(look(()))
    }

    /// The checked limit, as a row of the table holds it.
    fn row(&self, numbers: Numbers, warn_below_percent: u8) -> LimitWords {
        CountLimit::of(numbers, warn_below_percent).to_words()
    }

    fn is_exempt(&self, limit: LimitWords) -> bool {
        CountLimit::from_words(limit).is_exempt()
    }

    /// The longest debt that a lane keeps when this limit comes into force, in
    /// nanoseconds.
    fn debt_max(&self, _limit: LimitWords) -> u64 {
        u64::MAX
    }

    /// Charges `cost` if there is room for it.
    fn step(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64) -> Choice<Charged>;

    /// The answer to a charge of `cost` after others of the same call; `sum` is
    /// all of them together.
    fn would(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64, sum: u64) -> Charged {
        self.step(words, at, limit, if cost == 0 { 0 } else { sum }).outcome.answer
    }

    /// Gives `cost` back, never beyond full. The answer includes what has to
    /// come off another word of the lane. `reserved` is how much open
    /// reservations have charged to the window of a number: only they give that
    /// back. For a bucket, the caller takes care of what is reserved.
    fn refund(
        &self,
        words: &[LaneWord],
        at: At,
        limit: LimitWords,
        cost: u64,
        reserved: &dyn Fn(u64) -> u64,
    ) -> Choice<Result<Refunded, Error>>;

    /// Charges `cost` whatever is left.
    fn force(&self, _words: &[LaneWord], _at: At, _limit: LimitWords, _cost: u64) -> Choice<()> {
        Choice::of(look(()))
    }

    /// Which word a reset fills next, and whether there may be more to do.
    /// `round` counts the calls from 0.
    fn next_to_reset(&self, _words: &[LaneWord], _now: Tick, _round: usize) -> Option<(usize, bool)> {
        Some((0, false))
    }

    /// The lane's state.
    fn state(&self, words: &[LaneWord], at: At, limit: LimitWords) -> LaneState;

    /// How much would be lost if the lane were given up: from 0 for nothing to
    /// `u32::MAX` for the whole limit, and more in debt.
    fn load(&self, _words: &[LaneWord], _now: Tick, _limit: LimitWords) -> u64 {
        0
    }
}

/// A charge that was made and can be taken back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Receipt {
    pub(crate) at: Tick,
    /// The record that was charged.
    pub(crate) position: usize,
    /// See [`Rules::place`].
    pub(crate) place: u64,
    /// The word that it wrote, and which of the lane's words that is.
    pub(crate) word: LaneWord,
    pub(crate) cell: usize,
    /// See [`Rules::price`].
    pub(crate) price: u64,
}

/// The answer to a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refunded {
    pub(crate) state: LaneState,
    /// What has to come off another word of the lane.
    pub(crate) rest: u64,
}

impl Refunded {
    pub(super) fn all(state: LaneState) -> Self {
        Self { state, rest: 0 }
    }
}

/// The answer to a charge.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Charged {
    /// The verdict is computed once the limit is known to be whole.
    Bucket(Charge),
    /// The same for a cost above the bucket's capacity.
    Oversize(Oversize),
    Counted(Result<Verdict, Error>),
    /// Of a lane that machines share.
    #[cfg(feature = "cluster")]
    Clustered {
        verdict: Result<Verdict, Error>,
        /// Whether the engine has to be asked to settle.
        asks: bool,
    },
}

impl Charged {
    pub(crate) fn verdict(self) -> Result<Verdict, Error> {
        match self {
            Charged::Bucket(charge) => bucket::verdict(charge),
            Charged::Oversize(charge) => charge.verdict(),
            Charged::Counted(verdict) => verdict,
            #[cfg(feature = "cluster")]
            Charged::Clustered { verdict, .. } => verdict,
        }
    }
}

/// The lane's own word.
pub(super) fn first(words: &[LaneWord]) -> LaneWord {
    words.first().copied().unwrap_or_default()
}

/// Looks, and changes nothing.
pub(crate) const fn look<A>(answer: A) -> Outcome<A> {
    Outcome { next: None, answer }
}
