//! The kinds of limit: one enum and one dispatch.
//!
//! A lane is of one kind for the life of a limiter: every plan and override
//! may change its numbers, or deny everything, but not what its word means.
//! The lanes before the first that is not a bucket are checked as buckets
//! without a dispatch; all others come here.

use super::bucket;
use super::calendar::Era;
#[cfg(feature = "cluster")]
use super::clustered::{Clustered, ClusteredBudget};
use super::dynamic;
use super::exact::Exact;
use super::finding::{Decision, Finding};
use super::limit::Numbers;
use super::rules::Rules;
pub(crate) use super::rules::{Charged, LimitWords, Receipt, Refunded, look};
use super::window::Window;
use super::{Choice, LaneState, LaneWord, Outcome, Verdict};
use crate::clock::{At, Tick};
use crate::error::Error;
use std::time::Duration;

/// What a lane's word means, and so how it is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A token bucket.
    Bucket,
    /// A token bucket that takes a cost above its capacity on credit.
    Debt,
    /// An exact window: permits that rest for a window after each use.
    Exact(Exact),
    /// A window of counts.
    Window(Window),
    /// What was used of a calendar window.
    Budget(Era),
    /// Slots that are held.
    Held,
    /// A token bucket whose limit travels with each call.
    Dynamic,
    /// A token bucket that machines share.
    #[cfg(feature = "cluster")]
    Clustered(Clustered),
    /// A budget that machines share.
    #[cfg(feature = "cluster")]
    ClusteredBudget(ClusteredBudget),
}

/// The one dispatch: the answer of the rules of a kind. A match and not a trait
/// object, so that each step is compiled into its caller: through a table, a
/// check of a budget took half as long again.
macro_rules! of_rules {
    ($kind:expr, $rules:ident => $answer:expr) => {
        match &$kind {
            Kind::Bucket => of_rules!(@ &$crate::lane::bucket::Bucket::PLAIN, $rules, $answer),
            Kind::Debt => of_rules!(@ &$crate::lane::bucket::Bucket { takes_oversize: true }, $rules, $answer),
            Kind::Exact(exact) => of_rules!(@ exact, $rules, $answer),
            Kind::Window(window) => of_rules!(@ window, $rules, $answer),
            Kind::Budget(era) => of_rules!(@ era, $rules, $answer),
            Kind::Held => of_rules!(@ &$crate::lane::held::Held, $rules, $answer),
            Kind::Dynamic => of_rules!(@ &$crate::lane::dynamic::Dynamic, $rules, $answer),
            #[cfg(feature = "cluster")]
            Kind::Clustered(clustered) => of_rules!(@ clustered, $rules, $answer),
            #[cfg(feature = "cluster")]
            Kind::ClusteredBudget(budget) => of_rules!(@ budget, $rules, $answer),
        }
    };
    (@ $kind:expr, $rules:ident, $answer:expr) => {{
        let $rules = $kind;
        $answer
    }};
}
pub(super) use of_rules;

impl Kind {
    /// Whether the word is that of a token bucket.
    pub(crate) const fn is_bucket(self) -> bool {
        matches!(self, Kind::Bucket | Kind::Debt | Kind::Dynamic)
    }

    /// The kind of one of a lane's further words.
    pub(crate) const fn further(self, cell: usize) -> Self {
        match self {
            Kind::Window(window) => Kind::Window(window.second()),
            #[cfg(feature = "cluster")]
            Kind::Clustered(_) => Kind::Bucket,
            #[cfg(feature = "cluster")]
            Kind::ClusteredBudget(budget) => budget.further(cell),
            kind => {
                let _ = cell;
                kind
            }
        }
    }

    /// The kind that a charge of this word of a lane is of.
    const fn of_cell(self, cell: usize) -> Self {
        match self {
            #[cfg(feature = "cluster")]
            Kind::Clustered(_) if cell > 0 => self.further(cell),
            kind => {
                let _ = cell;
                kind
            }
        }
    }

    /// The kind of the limits that a policy gives such a lane.
    pub(crate) const fn in_policies(self) -> Self {
        match self {
            #[cfg(feature = "cluster")]
            Kind::Clustered(_) => Kind::Bucket,
            #[cfg(feature = "cluster")]
            Kind::ClusteredBudget(budget) => Kind::Budget(budget.era),
            kind => kind,
        }
    }

    /// See [`Rules::is_reservable`].
    pub(crate) fn is_reservable(self) -> bool {
        of_rules!(self, rules => rules.is_reservable())
    }

    /// See [`Rules::uses_calendar`].
    pub(crate) fn uses_calendar(self) -> bool {
        of_rules!(self, rules => rules.uses_calendar())
    }

    /// See [`Rules::is_idle`].
    pub(crate) fn is_idle(self, word: LaneWord, at: At) -> bool {
        of_rules!(self, rules => rules.is_idle(word, at))
    }

    /// See [`Rules::is_kept`].
    pub(crate) fn is_kept(self, word: LaneWord, at: At) -> bool {
        of_rules!(self, rules => rules.is_kept(word, at))
    }

    /// See [`Rules::is_held`].
    pub(crate) fn is_held(self, word: LaneWord) -> bool {
        of_rules!(self, rules => rules.is_held(word))
    }

    /// See [`Rules::is_cut`].
    pub(crate) fn is_cut(self, word: LaneWord, now: Tick, debt_max: Duration) -> bool {
        of_rules!(self, rules => rules.is_cut(word, now, debt_max))
    }

    /// See [`Rules::emptied`].
    pub(crate) fn emptied(self, word: LaneWord, floor: At) -> LaneWord {
        of_rules!(self, rules => rules.emptied(word, floor))
    }

    /// See [`Rules::undo`].
    pub(crate) fn undo(self, words: &[LaneWord], at: At, place: u64, cost: u64) -> Choice<()> {
        of_rules!(self, rules => rules.undo(words, at, place, cost))
    }

    /// See [`Rules::row`].
    pub(crate) fn row(self, numbers: Numbers, warn_below_percent: u8) -> LimitWords {
        of_rules!(self, rules => rules.row(numbers, warn_below_percent))
    }

    /// The receipt of the charge that replaced `before` by `next`.
    pub(crate) fn receipt(self, position: usize, cell: usize, before: LaneWord, next: LaneWord, at: Tick) -> Receipt {
        let kind = self.of_cell(cell);
        let (place, price) = of_rules!(kind, rules => (rules.place(next), rules.price(before, next, at)));
        Receipt { at, position, place, word: next, cell, price }
    }

    /// Takes back one of several charges, if that is still possible: see
    /// [`Rules::outlives_its_generation`] and [`Rules::roll_back`].
    pub(crate) fn roll_back(
        self,
        words: &[LaneWord],
        latest: At,
        receipt: Receipt,
        cost: u64,
        is_forgiven: bool,
    ) -> Choice<()> {
        let is_same = words.get(receipt.cell).map(|word| word.generation()) == Some(receipt.word.generation());
        if is_same || of_rules!(self, rules => rules.outlives_its_generation(is_forgiven)) {
            of_rules!(self, rules => rules.roll_back(words, latest, receipt, cost))
        } else {
            Choice::of(look(()))
        }
    }
}

/// A lane's limit, and the kind that can read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimit {
    kind: Kind,
    limit: LimitWords,
}

impl LaneLimit {
    pub(crate) const fn new(kind: Kind, limit: LimitWords) -> Self {
        Self { kind, limit }
    }

    pub(crate) fn is_exempt(&self) -> bool {
        of_rules!(self.kind, rules => rules.is_exempt(self.limit))
    }

    /// See [`Rules::debt_max`].
    pub(crate) fn debt_max(&self) -> u64 {
        of_rules!(self.kind, rules => rules.debt_max(self.limit))
    }

    /// See [`Rules::step`].
    pub(crate) fn step(&self, words: &[LaneWord], at: At, cost: u64) -> Choice<Charged> {
        of_rules!(self.kind, rules => rules.step(words, at, self.limit, cost))
    }

    /// See [`Rules::would`].
    pub(crate) fn would(&self, words: &[LaneWord], at: At, cost: u64, sum: u64) -> Charged {
        of_rules!(self.kind, rules => rules.would(words, at, self.limit, cost, sum))
    }

    /// See [`Rules::refund`].
    pub(crate) fn refund(
        &self,
        words: &[LaneWord],
        at: At,
        cost: u64,
        reserved: impl Fn(u64) -> u64,
    ) -> Choice<Result<Refunded, Error>> {
        of_rules!(self.kind, rules => rules.refund(words, at, self.limit, cost, &reserved))
    }

    /// Charges `cost` whatever is left, unless the agent is exempt.
    pub(crate) fn force(&self, words: &[LaneWord], at: At, cost: u64) -> Choice<()> {
        if self.is_exempt() {
            Choice::of(look(()))
        } else {
            of_rules!(self.kind, rules => rules.force(words, at, self.limit, cost))
        }
    }

    /// Fills the lane, or one of several words, and answers whether there may
    /// be more to do. `round` counts the calls from 0. Held slots stay held.
    pub(crate) fn reset(&self, words: &[LaneWord], at: At, round: usize) -> Choice<bool> {
        let Some((cell, more)) = of_rules!(self.kind, rules => rules.next_to_reset(words, at.now, round)) else {
            return Choice::of(look(false));
        };
        let kind = if cell == 0 { self.kind } else { self.kind.further(cell) };
        let word = words.get(cell).copied().unwrap_or_default();
        // With another generation, so that nothing charged before is given back.
        let next = kind.under_other_row(word, at, true, Duration::ZERO);
        Choice::at(cell, Outcome { next: Some(next), answer: more })
    }

    /// Why the lane has no state: a call brought no limit, and there is no default.
    pub(crate) fn missing(&self) -> Option<Error> {
        match self.kind {
            Kind::Dynamic => dynamic::missing(self.limit),
            _ => None,
        }
    }

    /// See [`Rules::state`].
    pub(crate) fn state(&self, words: &[LaneWord], at: At) -> LaneState {
        of_rules!(self.kind, rules => rules.state(words, at, self.limit))
    }

    /// The answer to a charge that is not made, because the agent has to wait
    /// whatever the lane holds.
    pub(crate) fn blocked(&self, words: &[LaneWord], at: At, cost: u64) -> Blocked {
        let charged = self.step(words, at, cost).outcome.answer;
        Blocked { charged, state: (!self.kind.is_bucket()).then(|| self.state(words, at)) }
    }

    /// See [`Rules::load`].
    pub(crate) fn load(&self, words: &[LaneWord], now: Tick) -> u64 {
        of_rules!(self.kind, rules => rules.load(words, now, self.limit))
    }
}

/// A charge that is not made because the agent has to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    charged: Charged,
    /// The lane's state, unless it is a bucket.
    state: Option<LaneState>,
}

impl Blocked {
    /// The verdict, for an agent that has to wait `block` nanoseconds.
    pub(crate) fn verdict(self, block: u64) -> Result<Verdict, Error> {
        let (charged, state) = match (self.charged, self.state) {
            (Charged::Bucket(charge), _) => return bucket::blocked(charge, block),
            (Charged::Oversize(charge), _) => return charge.blocked(block),
            (Charged::Counted(verdict), None) => return verdict,
            (Charged::Counted(verdict), Some(state)) => (verdict?, state),
            #[cfg(feature = "cluster")]
            (Charged::Clustered { verdict, .. }, None) => return verdict,
            #[cfg(feature = "cluster")]
            (Charged::Clustered { verdict, .. }, Some(state)) => (verdict?, state),
        };
        if charged.decision() == Decision::Exempt {
            return Ok(charged);
        }
        let (remaining, window_ns) = (state.remaining(), charged.window().as_nanos() as u64);
        let wait = charged.retry_after_ns.max(block);
        Ok(Verdict::counted(Finding::DENY, charged.capacity, remaining, wait, state.full_in_ns, window_ns))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
