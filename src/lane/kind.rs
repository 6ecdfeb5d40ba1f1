//! The step of whichever kind a lane is.
//!
//! A lane is of one kind for the life of a limiter: every plan and override
//! may change its numbers, or deny everything, but not what its word means.
//! The lanes before the first that is no bucket are checked as buckets without
//! asking; all others come here.
//!
//! All but windows and exact windows have one word. What is given here are the
//! words of a lane, and what comes back says which of them is to change.

use super::bucket::{self, BucketLimit, Charge};
use super::counted::CountLimit;
use super::debt::{self, Oversize};
use super::{Choice, Finding, LaneWord, Outcome, Status, Verdict, budget, exact, held, window};
use crate::clock::{At, Tick};
use crate::error::Error;
use crate::policy::Kind;
use std::time::Duration;

impl Kind {
    /// Whether the lane carries no information at this instant: forgetting it
    /// changes no later answer.
    pub(crate) fn is_idle(self, word: LaneWord, at: At) -> bool {
        match self {
            Kind::Bucket | Kind::Debt | Kind::Exact { .. } => word.is_idle(at.now),
            Kind::Window(frame) | Kind::Past(frame) => frame.is_idle(word, at.now),
            Kind::Budget(era) => budget::is_idle(era, word, at),
            Kind::Held => held::count(word) == 0,
        }
    }

    /// Whether the lane is never given up for a newcomer: a used budget, or a
    /// slot that is held.
    pub(crate) fn is_kept(self, word: LaneWord, at: At) -> bool {
        matches!(self, Kind::Budget(_) | Kind::Held) && !self.is_idle(word, at)
    }

    /// The same tenancy with nothing charged, and no charge to come as of an
    /// instant before `floor`.
    pub(crate) fn emptied(self, word: LaneWord, floor: At) -> LaneWord {
        match self {
            Kind::Bucket | Kind::Debt | Kind::Exact { .. } => word.at(floor.now),
            Kind::Window(frame) | Kind::Past(frame) => frame.emptied(word, floor.now),
            Kind::Budget(era) => budget::emptied(era, word, floor),
            Kind::Held => held::emptied(word),
        }
    }
}

/// A charge that was made, and may be taken back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Receipt {
    pub(crate) at: Tick,
    /// The record that was charged.
    pub(crate) position: usize,
    /// The window that it was made in, or the instant that it put into the word.
    pub(crate) place: u64,
    /// The word that it put in place, and which of the lane's words that is.
    pub(crate) word: LaneWord,
    pub(crate) cell: usize,
    /// What it cost a bucket, as time: nanoseconds.
    pub(crate) price: u64,
}

impl Kind {
    /// The receipt of the charge that put `next` in the place of `before`.
    pub(crate) fn receipt(self, position: usize, cell: usize, before: LaneWord, next: LaneWord, at: Tick) -> Receipt {
        let place = match self {
            Kind::Held => 0,
            Kind::Bucket | Kind::Debt | Kind::Exact { .. } => next.time().as_nanos(),
            Kind::Window(frame) | Kind::Past(frame) => window::receipt(frame, next),
            Kind::Budget(_) => budget::receipt(next),
        };
        let price = next.time().as_nanos().saturating_sub(before.time().max(at).as_nanos());
        Receipt { at, position, place, word: next, cell, price }
    }

    /// Takes back one of several charges, unless it `is_forgiven` (`slab/forgiven.rs`).
    /// `latest` is no earlier than any instant at which these words were charged.
    pub(crate) fn roll_back(
        self,
        words: &[LaneWord],
        latest: At,
        receipt: Receipt,
        cost: u64,
        is_forgiven: bool,
    ) -> Choice<()> {
        let (word, place) = (first(words), receipt.place);
        let is_charged = words.get(receipt.cell).map(|word| word.generation()) == Some(receipt.word.generation());
        let is_kept = is_charged || self == Kind::Held || !self.is_bucket() && !is_forgiven;
        Choice::of(match self {
            _ if !is_kept => look(()),
            Kind::Bucket | Kind::Debt => bucket::roll_back(word, latest.now, receipt),
            Kind::Exact { .. } => return exact::roll_back(words, receipt),
            Kind::Window(frame) | Kind::Past(frame) => return window::undo(frame, words, place, cost),
            Kind::Budget(era) => budget::undo(era, word, latest, place, cost),
            Kind::Held => Outcome { next: held::release(word, cost).next, answer: () },
        })
    }
}

/// A lane's limit, as its kind reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneLimit {
    kind: Kind,
    /// As it stands in the table; see [`BucketLimit::count`].
    limit: BucketLimit,
}

/// What came of a refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refunded {
    pub(crate) status: Status,
    /// What is to be taken off another word of the lane.
    pub(crate) rest: u64,
}

impl Refunded {
    fn all(status: Status) -> Self {
        Self { status, rest: 0 }
    }
}

/// What a charge comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Charged {
    /// Told when the limit is known to be whole.
    Bucket(Charge),
    /// The same, of a cost above the bucket's capacity.
    Oversize(Oversize),
    Counted(Result<Verdict, Error>),
}

impl Charged {
    pub(crate) fn verdict(self) -> Result<Verdict, Error> {
        match self {
            Charged::Bucket(charge) => bucket::verdict(charge),
            Charged::Oversize(charge) => charge.verdict(),
            Charged::Counted(verdict) => verdict,
        }
    }
}

impl LaneLimit {
    pub(crate) const fn new(kind: Kind, limit: BucketLimit) -> Self {
        Self { kind, limit }
    }

    pub(crate) const fn is_exempt(&self) -> bool {
        self.limit.is_exempt()
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) const fn bucket(&self) -> BucketLimit {
        self.limit
    }

    /// The limit of a lane that counts; `None` for a bucket, and for any lane
    /// that denies everything, or nothing.
    fn count(&self) -> Option<CountLimit> {
        if self.kind.is_bucket() { None } else { self.limit.count() }
    }

    /// Whether the cost is one that the lane takes on credit.
    fn is_oversize(&self, cost: u64) -> bool {
        self.kind == Kind::Debt && debt::is_oversize(self.limit, cost)
    }

    /// What a bucket's functions are given: those of a lane of another kind
    /// that denies everything, or nothing, must not take its word for a time.
    fn bucket_word(&self, words: &[LaneWord]) -> LaneWord {
        if self.kind.is_bucket() { first(words) } else { LaneWord::default() }
    }

    /// Charges `cost`, if there is room for it.
    pub(crate) fn step(&self, words: &[LaneWord], at: At, cost: u64) -> Choice<Charged> {
        let Some(limit) = self.count() else {
            if self.is_oversize(cost) {
                return Choice::of(debt::step(first(words), at.now, self.limit, cost)).map(Charged::Oversize);
            }
            let step = bucket::step(self.bucket_word(words), at.now, self.limit, cost);
            return Choice::of(step).map(Charged::Bucket);
        };
        let word = first(words);
        let choice = match self.kind {
            Kind::Exact { length } => exact::step(length, words, at.now, limit, cost),
            Kind::Window(frame) | Kind::Past(frame) => window::step(frame, words, at.now, limit, cost),
            Kind::Budget(era) => Choice::of(budget::step(era, word, at, limit, cost)),
            Kind::Held | Kind::Bucket | Kind::Debt => Choice::of(held::step(word, limit, cost)),
        };
        choice.map(Charged::Counted)
    }

    /// What a charge of `cost` would come to after others of the same call;
    /// `sum` is what they and it come to.
    pub(crate) fn would(&self, words: &[LaneWord], at: At, cost: u64, sum: u64) -> Charged {
        match (self.kind, self.count(), cost) {
            (_, _, 0) => self.step(words, at, 0).outcome.answer,
            // Each takes one permit.
            (Kind::Exact { length }, Some(limit), 1) => {
                Charged::Counted(exact::answer(length, words, at.now, limit, sum))
            }
            (Kind::Exact { .. }, Some(_), _) => self.step(words, at, cost).outcome.answer,
            // Each is charged for itself: none passes beside what is taken on credit.
            (Kind::Debt, None, _) if sum > cost && self.is_oversize(sum) => {
                let (cost, capacity) = (sum, self.limit.capacity());
                Charged::Counted(Err(Error::CostAboveCapacity { cost, capacity }))
            }
            _ => self.step(words, at, sum).outcome.answer,
        }
    }

    /// Gives `cost` back, never beyond full. Of a window, what is to come off
    /// another word is said with the answer. `reserved` says how much open
    /// reservations have charged to the window of a number: that is given back
    /// by them alone. What is reserved of a bucket is the caller's to keep.
    pub(crate) fn refund(
        &self,
        words: &[LaneWord],
        at: At,
        cost: u64,
        reserved: impl Fn(u64) -> u64,
    ) -> Choice<Result<Refunded, Error>> {
        if self.kind == Kind::Held {
            return self.release(words, at, cost).map(|told| told.map(Refunded::all));
        }
        let Some(limit) = self.count() else {
            let refund = match self.is_oversize(cost) {
                true => debt::refund(first(words), at.now, self.limit, cost),
                false => bucket::refund(self.bucket_word(words), at.now, self.limit, cost),
            };
            return Choice::of(refund).map(|told| told.map(Refunded::all));
        };
        let most = if let Kind::Exact { .. } = self.kind { 1 } else { limit.count() };
        let error = match cost {
            0 => Some(Error::ZeroCost),
            cost if cost > most => Some(Error::CostAboveCapacity { cost, capacity: most }),
            _ => None,
        };
        if let Some(error) = error {
            return Choice::of(look(Err(error)));
        }
        match self.kind {
            Kind::Exact { .. } => exact::refund(words, at.now, limit).map(Refunded::all),
            Kind::Window(frame) | Kind::Past(frame) => {
                let cost = cost.min(window::refundable(frame, words, at.now, reserved));
                window::refund(frame, words, at.now, limit, cost)
            }
            Kind::Budget(era) => {
                let cost = cost.min(budget::refundable(era, first(words), at, reserved));
                Choice::of(budget::refund(era, first(words), at, limit, cost)).map(Refunded::all)
            }
            Kind::Held | Kind::Bucket | Kind::Debt => Choice::of(look(Refunded::all(self.status(words, at)))),
        }
        .map(Ok)
    }

    /// Gives slots back, under whatever limit. Those that are not held are an
    /// error, but an exempt agent holds none to begin with.
    fn release(&self, words: &[LaneWord], at: At, cost: u64) -> Choice<Result<Status, Error>> {
        let Outcome { next, answer } = held::release(first(words), cost);
        let answer = match answer {
            Err(Error::NotHeld { .. }) if self.is_exempt() => Ok(Status::EXEMPT),
            Err(error) => Err(error),
            Ok(()) => Ok(self.status(&[next.unwrap_or_default()], at)),
        };
        Choice::of(Outcome { next, answer })
    }

    /// Charges `cost` whatever is left, unless the agent is exempt.
    pub(crate) fn force(&self, words: &[LaneWord], at: At, cost: u64) -> Choice<()> {
        let word = first(words);
        Choice::of(match self.kind {
            _ if self.is_exempt() => look(()),
            Kind::Bucket | Kind::Debt => bucket::force(word, at.now, self.limit, cost),
            Kind::Window(frame) | Kind::Past(frame) => return window::force(frame, words, at.now, cost),
            Kind::Budget(era) => budget::force(era, word, at, cost),
            // Of these nothing is reserved.
            Kind::Exact { .. } | Kind::Held => look(()),
        })
    }

    /// Fills the lane, or of several words one; says whether there may be more
    /// to do. `round` says how often it was asked before. Slots that are held
    /// stay so.
    pub(crate) fn reset(&self, words: &[LaneWord], at: At, round: usize) -> Choice<bool> {
        // With another generation, so that nothing is given back that was charged before.
        let filled = |kind: Kind, word: LaneWord| Some(kind.under_other_row(word, at, true, Duration::ZERO));
        let (cell, next, more) = match self.kind {
            Kind::Exact { .. } => match words.iter().enumerate().find(|(_, word)| word.time() > at.now) {
                Some((cell, word)) => (cell, filled(self.kind, *word), true),
                None => (0, None, false),
            },
            // Whoever holds a slot is still there.
            Kind::Held => (0, None, false),
            // First the first: see `window.rs`.
            Kind::Window(_) | Kind::Past(_) => {
                let cell = round.min(words.len().saturating_sub(1));
                let kind = if cell == 0 { self.kind } else { self.kind.further() };
                let word = words.get(cell).copied().unwrap_or_default();
                (cell, filled(kind, word), cell + 1 < words.len())
            }
            kind => (0, filled(kind, first(words)), false),
        };
        Choice::at(cell, Outcome { next, answer: more })
    }

    /// The lane as it stands.
    pub(crate) fn status(&self, words: &[LaneWord], at: At) -> Status {
        let Some(limit) = self.count() else {
            return bucket::status(self.bucket_word(words), at.now, self.limit);
        };
        let word = first(words);
        let (status, length_ns) = match self.kind {
            Kind::Exact { length } => (exact::status(words, at.now, limit), length),
            Kind::Window(frame) | Kind::Past(frame) => (window::status(frame, words, at.now, limit), frame.length),
            Kind::Budget(era) => (budget::status(era, word, at, limit), era.length_ns()),
            Kind::Held | Kind::Bucket | Kind::Debt => (held::status(word, limit), 0),
        };
        status.within(length_ns)
    }

    /// What a charge would come to, for an agent that has to wait whatever the
    /// lane holds. It is not made.
    pub(crate) fn blocked(&self, words: &[LaneWord], at: At, cost: u64) -> Blocked {
        let charged = self.step(words, at, cost).outcome.answer;
        Blocked { charged, status: self.count().map(|_| self.status(words, at)) }
    }

    /// How much would be lost if the lane were given up: 0 for nothing,
    /// `u32::MAX` and above for all of its limit.
    pub(crate) fn load(&self, words: &[LaneWord], now: Tick) -> u64 {
        let Some(limit) = self.count() else {
            return self.limit.debt_ratio(self.bucket_word(words), now);
        };
        match self.kind {
            Kind::Exact { .. } => exact::load(words, now, limit),
            Kind::Window(frame) | Kind::Past(frame) => window::load(frame, words, now, limit),
            // Given up only if there is nothing to lose.
            Kind::Budget(_) | Kind::Held | Kind::Bucket | Kind::Debt => 0,
        }
    }
}

fn first(words: &[LaneWord]) -> LaneWord {
    words.first().copied().unwrap_or_default()
}

/// Looks, and changes nothing.
pub(crate) const fn look<A>(answer: A) -> Outcome<A> {
    Outcome { next: None, answer }
}

/// A charge that is not made because the agent has to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    charged: Charged,
    /// The lane as it stands, if it is no bucket.
    status: Option<Status>,
}

impl Blocked {
    /// Tells what it comes to, for an agent that has to wait `block` nanoseconds.
    pub(crate) fn verdict(self, block: u64) -> Result<Verdict, Error> {
        let (charged, status) = match (self.charged, self.status) {
            (Charged::Bucket(charge), _) => return bucket::blocked(charge, block),
            (Charged::Oversize(charge), _) => return charge.blocked(block),
            (Charged::Counted(verdict), None) => return verdict,
            (Charged::Counted(verdict), Some(status)) => (verdict?, status),
        };
        let (remaining, length) = (status.remaining(), charged.window().as_nanos() as u64);
        let wait = charged.retry_after_ns.max(block);
        Ok(Verdict::counted(Finding::DENY, charged.capacity, remaining, wait, status.full_in_ns, length))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::bounds::{CAPACITY_MAX, EXACT_MAX};
    use crate::clock::Offset;
    use crate::policy::{Calendar, Era, Frame, PlanId, Policy};
    use crate::record::Word;
    use proptest::prelude::*;

    fn kinds() -> Vec<Kind> {
        let era = |calendar| Era { calendar, zone_minutes: -570 };
        let windows = [1_000_000, 60_000_000_000, 86_400_000_000_000].map(|length| Kind::Window(Frame::new(length)));
        let budgets = [Calendar::Hour, Calendar::Month].map(|calendar| Kind::Budget(era(calendar)));
        [Kind::Bucket, Kind::Debt, Kind::Exact { length: 60_000_000_000 }, Kind::Held]
            .into_iter()
            .chain(windows)
            .chain(budgets)
            .collect()
    }

    /// The words of limits of which a torn one can be made.
    fn rows() -> Vec<[u64; 4]> {
        let buckets = ["deny", "1/s", "3/min burst 7", "1000000/s", "1/day burst 300"].map(|text| {
            let policy = Policy::builder().lane("lane", text).build().unwrap();
            BucketLimit::new(policy.numbers(PlanId::DEFAULT).next().unwrap(), 20)
        });
        let counts = [1, 3, 15, 16, 128, CAPACITY_MAX].map(|count| BucketLimit::counted(CountLimit::new(count, 20)));
        let limits = buckets.into_iter().chain(counts).chain([BucketLimit::EXEMPT]);
        limits.map(BucketLimit::to_words).chain([[0; 4]]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        /// A row that was read while it was written may be made of several
        /// limits. What is computed from it is thrown away, but to get there
        /// nothing may panic: a status once divided by the price of a token
        /// that was a count, and the slot of a guard that was being dropped
        /// was never released.
        #[test]
        fn a_torn_limit_computes_something(
            kind in prop::sample::select(kinds()),
            torn in prop::array::uniform4(prop::sample::select(rows())),
            words in prop::collection::vec(any::<u64>(), EXACT_MAX as usize),
            near: bool,
            now in 0..=Tick::MAX.as_nanos(),
            cost in prop_oneof![any::<u64>(), 0..40_u64],
            place: u64,
        ) {
            let row: [u64; 4] = std::array::from_fn(|word| torn[word][word]);
            let limit = LaneLimit::new(kind, BucketLimit::from_words(row));
            let words: Vec<_> = words.into_iter().map(LaneWord::from_bits).collect();
            let now = Tick::from_nanos(now);
            let words: Vec<_> = if near { words.iter().map(|word| word.at(now)).collect() } else { words };
            let words = match kind {
                Kind::Exact { .. } => &words[..],
                Kind::Window(_) => &words[..2],
                _ => &words[..1],
            };
            let at = At { now, offset: Offset::default() };
            let receipt = Receipt { at: now, position: 0, place, word: words[0], cell: cost as usize, price: cost };
            let _ = limit.step(words, at, cost);
            let _ = limit.refund(words, at, cost, |_| cost / 2);
            let _ = kind.roll_back(words, at, receipt, cost, near);
            let _ = limit.would(words, at, cost, place);
            let _ = limit.force(words, at, cost);
            let _ = limit.reset(words, at, cost as usize);
            let _ = limit.status(words, at);
            let _ = limit.blocked(words, at, cost);
            let _ = limit.load(words, now);
            let _ = limit.is_exempt();
        }
    }
}
