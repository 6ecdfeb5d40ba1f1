//! What the engine settles of a lane that machines share: the words' side of it.

use super::super::bucket::{self, BucketLimit};
use super::super::budget;
use super::super::count::CountLimit;
use super::super::rules::{LimitWords, first, look as unchanged};
use super::super::{Choice, LaneWord, Numbers, Outcome};
use super::credit::CreditWord;
use super::window_credit::WindowCredit;
use super::{Clustered, ClusteredBudget, VIEW, view};
use crate::clock::{At, Tick};
use crate::sync::{Fault, broken};
use std::time::Duration;

/// What a lane has to settle with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Balance {
    /// Tokens that were spent in advance.
    pub(crate) owed: u64,
    /// Tokens that come off the credit to be given back to the store: more than the machine may have, or not spent in
    /// time.
    pub(crate) given: u64,
    /// What is left of the credit.
    pub(crate) credit: u64,
    pub(crate) known: Known,
    pub(crate) capacity: u64,
    pub(crate) credit_max: u64,
    pub(crate) advance_max: u64,
    pub(crate) generation: u64,
    pub(crate) view: LaneWord,
}

/// What the view knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The debt of a bucket, and how long a token takes to refill.
    Debt { debt_ns: u64, token_ns: u64 },
    /// What is used of a calendar window that goes on for so long.
    Used { used: u64, window: u64, left: Duration },
}

impl Known {
    /// The window, if it is a budget.
    pub(crate) const fn window(self) -> Option<u64> {
        match self {
            Known::Debt { .. } => None,
            Known::Used { window, .. } => Some(window),
        }
    }
}

/// What an answer of the store did to a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    Done,
    /// More was spent in advance meanwhile: settle again.
    Again,
    /// The lane is another's by now, or was reset, or the window is over: nobody has what was granted.
    Gone,
}

/// A lane that machines share: a bucket or a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    Bucket(Clustered),
    Budget(ClusteredBudget),
}

impl Shared {
    /// The settings of either.
    pub(crate) const fn settings(&self) -> Clustered {
        match self {
            Shared::Bucket(clustered) => *clustered,
            Shared::Budget(budget) => budget.settings,
        }
    }

    /// What a lane of these numbers holds when it is full, how long a token takes to refill, in nanoseconds, and how
    /// much each machine may add to what all of them admit.
    pub(crate) fn refill(&self, numbers: Numbers) -> (u64, u64, u64) {
        match self {
            Shared::Bucket(clustered) => {
                let limit = BucketLimit::new(numbers, 0);
                let capacity = limit.capacity();
                let of_machine = clustered.credit_max(capacity).saturating_add(clustered.advance_max(limit));
                (capacity, limit.token_ns(), of_machine)
            }
            Shared::Budget(budget) => {
                let capacity = CountLimit::of(numbers, 0).count();
                // Credit was debited in the window that it is spent in.
                (capacity, 0, budget.advance_max(capacity))
            }
        }
    }

    /// The number of the present window, if it is a budget.
    pub(crate) fn window(&self, at: At) -> Option<u64> {
        match self {
            Shared::Bucket(_) => None,
            Shared::Budget(budget) => Some(budget.era.index(at.unix_ns())),
        }
    }

    /// Which word is marked as asked about.
    const fn marked(&self) -> usize {
        match self {
            Shared::Bucket(_) => 0,
            Shared::Budget(_) => super::budget::PACE,
        }
    }

    fn mark(&self, words: &[LaneWord]) -> CreditWord {
        CreditWord::of(words.get(self.marked()).copied().unwrap_or_default())
    }

    /// Marks the lane as asked about. `false` if it is already.
    pub(crate) fn ask(&self, words: &[LaneWord], now: Tick) -> Choice<bool> {
        let credit = self.mark(words);
        let next = (!credit.is_asked(now)).then(|| credit.asked(now).word());
        Choice::at(self.marked(), Outcome { next, answer: next.is_some() })
    }

    /// Takes the mark back: nobody could be asked.
    pub(crate) fn not_asked(&self, words: &[LaneWord]) -> Choice<()> {
        Choice::at(self.marked(), Outcome { next: Some(self.mark(words).not_asked().word()), answer: () })
    }

    /// The same without credit: it is another process's. What is owed stays.
    pub(crate) fn disowned(&self, words: &[LaneWord]) -> Choice<()> {
        let word = first(words);
        let next = match self {
            Shared::Bucket(_) => CreditWord::of(word).with_balance(CreditWord::of(word).balance().min(0)).word(),
            Shared::Budget(_) => WindowCredit::of(word).disowned(),
        };
        Choice::of(Outcome { next: (next != word).then_some(next), answer: () })
    }

    /// What the lane has to settle. What is given back comes off in the same exchange: before the store hears of it.
    pub(crate) fn balance(&self, words: &[LaneWord], at: At, limit: LimitWords) -> Choice<Balance> {
        match self {
            Shared::Bucket(clustered) => clustered.balance(words, at.now, limit),
            Shared::Budget(budget) => budget.balance(words, at, limit),
        }
    }

    /// Sets the view to what the store has reported. If a bucket's was charged meanwhile, that comes on top, and is
    /// told next. Without the report the view could show room that the store does not have: what was owed is paid by
    /// then, so the machine could spend its whole advance once more.
    pub(crate) fn see(&self, words: &[LaneWord], now: Tick, settled: &Balance, level: u64) -> Choice<Applied> {
        let view = view(words);
        if is_of_another(words, settled) {
            return Choice::of(unchanged(Applied::Gone));
        }
        let reported = now.saturating_add(Duration::from_nanos(level));
        if view != settled.view && !broken(Fault::ViewOverCharge) {
            if settled.known.window().is_some() {
                return Choice::of(unchanged(Applied::Again));
            }
            let (full_at, was) = (view.payload(), settled.view.payload());
            let charged = full_at.saturating_sub(was.max(now.as_nanos()));
            let next = reported.saturating_add(Duration::from_nanos(charged)).as_nanos().max(full_at);
            return Choice::at(VIEW, Outcome { next: Some(view.with_payload(next)), answer: Applied::Again });
        }
        let next = match settled.known {
            Known::Debt { .. } => view.with_payload(reported.as_nanos()),
            Known::Used { window, .. } => budget::with_counted(view, window, level),
        };
        Choice::at(VIEW, Outcome { next: (next != view).then_some(next), answer: Applied::Done })
    }

    /// Adds what was paid and granted to the balance.
    pub(crate) fn receive(
        &self,
        words: &[LaneWord],
        now: Tick,
        settled: &Balance,
        granted: u64,
        again: bool,
    ) -> Choice<Applied> {
        if is_of_another(words, settled) {
            return Choice::of(unchanged(Applied::Gone));
        }
        let received = i64::try_from(settled.owed.saturating_add(granted)).unwrap_or(i64::MAX);
        match self {
            Shared::Bucket(_) => {
                let credit = CreditWord::of(first(words));
                let balance = credit.balance().saturating_add(received);
                let next = credit.settled(now, balance, granted);
                let again = again || balance < 0;
                let (next, answer) = if again { (next.asked(now), Applied::Again) } else { (next, Applied::Done) };
                Choice::of(Outcome { next: Some(next.word()), answer })
            }
            Shared::Budget(budget) => budget.receive(words, settled, received, again),
        }
    }

    /// After that, if it is a budget: when the store was asked, and when to ask again.
    pub(crate) fn keep_pace(
        &self,
        words: &[LaneWord],
        now: Tick,
        settled: &Balance,
        granted: u64,
        again: bool,
    ) -> Choice<()> {
        let is_bucket = matches!(self, Shared::Bucket(_));
        if is_bucket || is_of_another(words, settled) {
            return Choice::of(unchanged(()));
        }
        let next = self.mark(words).settled(now, 0, granted);
        let next = if again { next.asked(now) } else { next };
        Choice::at(self.marked(), Outcome { next: Some(next.word()), answer: () })
    }
}

impl Clustered {
    fn balance(&self, words: &[LaneWord], now: Tick, limit: LimitWords) -> Choice<Balance> {
        let (credit, limit) = (CreditWord::of(first(words)), BucketLimit::from_words(limit));
        let credit_max = self.credit_max(limit.capacity());
        let balance = credit.balance();
        let kept = self.spendable(credit, now).min(i64::try_from(credit_max).unwrap_or(i64::MAX));
        let next = (kept != balance).then(|| credit.with_balance(kept).word());
        let viewed = bucket::state(view(words), now, limit);
        let answer = Balance {
            owed: tokens(-kept),
            given: tokens(balance - kept),
            credit: tokens(kept),
            known: Known::Debt { debt_ns: viewed.full_in_ns, token_ns: limit.token_ns() },
            capacity: limit.capacity(),
            credit_max,
            advance_max: self.advance_max(limit),
            generation: first(words).generation(),
            view: view(words),
        };
        Choice::of(Outcome { next, answer })
    }
}

/// A positive part of a balance.
pub(super) fn tokens(balance: i64) -> u64 {
    u64::try_from(balance).unwrap_or(0)
}

/// Whether the lane has changed hands since it was settled, or was reset.
fn is_of_another(words: &[LaneWord], settled: &Balance) -> bool {
    first(words).generation() != settled.generation && !broken(Fault::CreditToAnother)
}
