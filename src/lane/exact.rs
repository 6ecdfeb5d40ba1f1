//! Never more than n in any trailing window: n permits, each of which rests
//! for one window after its use.
//!
//! Each permit is a word of the record: the instant at which it has rested.
//! That is a bucket of one token, so everything that holds for the words of
//! buckets (when they are idle, what is inherited, the instant to which a claim
//! lifts them) holds for permits.
//!
//! A charge at `now` takes a permit that has rested and sends it to rest until
//! `now + length`. A permit passes at most once in any span that is shorter
//! than the length, so n of them pass at most n in any window (t - length, t],
//! whatever the interleaving: that is a property of each word alone. Nor is it
//! stricter: if fewer than n passed in the window that ends now, then fewer than
//! n permits are at rest.
//!
//! A denial depends on all words: it looks at them again, and holds if none has
//! changed, because then there was a moment at which none had rested.

use super::count::CountLimit;
use super::instant::InstantWord;
use super::kind::Kind;
use super::limit::{Numbers, Terms};
use super::limit_error::LimitError;
use super::rules::{Charged, LimitWords, Receipt, Refunded, Rules, look};
use super::text::{self, Parts, Per};
use super::{Choice, Finding, LaneState, LaneWord, Outcome, RETRY_NEVER, Verdict};
use crate::bounds::{EXACT_MAX, WINDOW_MAX, WINDOW_MIN};
use crate::clock::{At, Tick, nanos_saturating};
use crate::error::Error;
use std::fmt;
use std::time::Duration;

/// `exact 5/5min`: five in any trailing five minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ExactTerms {
    pub(super) count: u64,
    pub(super) length: Duration,
}

impl Terms for ExactTerms {
    fn kind(&self) -> Kind {
        Kind::Exact(Exact { length: nanos_saturating(self.length) })
    }

    fn capacity(&self) -> u64 {
        self.count
    }

    /// Each permit is a word.
    fn words(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// A total is charged any cost, and a permit is always 1.
    fn can_be_total(&self) -> bool {
        false
    }

    fn check(&self) -> Result<Numbers, LimitError> {
        let Self { count, length } = *self;
        match count {
            0 => Err(LimitError::Zero),
            _ if !(WINDOW_MIN..=WINDOW_MAX).contains(&length) => Err(LimitError::WindowLength { length }),
            1..=EXACT_MAX => Ok(Numbers::Count(count)),
            _ => Err(LimitError::ExactCount { count }),
        }
    }
}

impl ExactTerms {
    pub(super) const KEYWORD: &str = "exact";

    /// What follows the keyword; `None` if it is something else.
    pub(super) fn read(parts: &mut Parts<'_>) -> Result<Option<Self>, LimitError> {
        Ok(text::rate(parts)?.map(|(count, length)| Self { count, length }))
    }
}

impl fmt::Display for ExactTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", Self::KEYWORD, self.count, Per(self.length))
    }
}

/// Permits that rest for this many nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Exact {
    pub(super) length: u64,
}

impl Rules for Exact {
    fn is_reservable(&self) -> bool {
        false
    }

    fn is_idle(&self, word: LaneWord, at: At) -> bool {
        InstantWord::of(word).is_idle(at.now)
    }

    fn emptied(&self, word: LaneWord, floor: At) -> LaneWord {
        InstantWord::of(word).at(floor.now)
    }

    fn vacated(&self, word: LaneWord, present: Tick, floor: At) -> LaneWord {
        InstantWord::of(word).vacated(present, floor.now)
    }

    fn inherited(&self, word: LaneWord, floor: At) -> LaneWord {
        InstantWord::of(word).lifted(floor.now)
    }

    fn settled(&self, word: LaneWord, floor: At) -> LaneWord {
        InstantWord::of(word).lifted(floor.now)
    }

    fn renewed(&self, word: LaneWord, present: Tick, _is_other_tenant: bool) -> LaneWord {
        InstantWord::of(word).renewed(present)
    }

    fn under_other_limit(&self, word: LaneWord, at: At, _is_reset: bool, debt_max: Duration) -> LaneWord {
        InstantWord::of(word).cut(at.now, debt_max)
    }

    fn is_cut(&self, word: LaneWord, now: Tick, debt_max: Duration) -> bool {
        InstantWord::of(word).is_cut(now, debt_max)
    }

    fn place(&self, charged: LaneWord) -> u64 {
        InstantWord::of(charged).time().as_nanos()
    }

    fn roll_back(&self, words: &[LaneWord], _latest: At, receipt: Receipt, _cost: u64) -> Choice<()> {
        roll_back(words, receipt)
    }

    fn step(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64) -> Choice<Charged> {
        step(self.length, words, at.now, CountLimit::from_words(limit), cost).map(Charged::Counted)
    }

    /// Each charge takes one permit.
    fn would(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64, sum: u64) -> Charged {
        let count = CountLimit::from_words(limit);
        match count.uncounted(sum) {
            Some(answer) if cost > 0 => Charged::Counted(answer),
            None if cost == 1 => Charged::Counted(answer(self.length, words, at.now, count, sum)),
            _ => self.step(words, at, limit, cost).outcome.answer,
        }
    }

    fn refund(
        &self,
        words: &[LaneWord],
        at: At,
        limit: LimitWords,
        cost: u64,
        _reserved: &dyn Fn(u64) -> u64,
    ) -> Choice<Result<Refunded, Error>> {
        let limit = CountLimit::from_words(limit);
        if let Some(answer) = limit.uncounted_refund(cost) {
            return Choice::of(look(answer.map(Refunded::all)));
        }
        match cost {
            0 => Choice::of(look(Err(Error::ZeroCost))),
            1 => refund(words, at.now, self.length, limit).map(|state| Ok(Refunded::all(state))),
            _ => Choice::of(look(Err(Error::CostAboveCapacity { cost, capacity: 1 }))),
        }
    }

    /// A permit that still rests.
    fn next_to_reset(&self, words: &[LaneWord], now: Tick, _round: usize) -> Option<(usize, bool)> {
        words.iter().position(|word| rest(*word, now) > 0).map(|cell| (cell, true))
    }

    fn state(&self, words: &[LaneWord], at: At, limit: LimitWords) -> LaneState {
        let limit = CountLimit::from_words(limit);
        limit.uncounted_state().unwrap_or_else(|| state(words, at.now, self.length, limit))
    }

    /// How many permits are at rest, as a share: `u32::MAX` for all of them.
    fn load(&self, words: &[LaneWord], now: Tick, limit: LimitWords) -> u64 {
        let limit = CountLimit::from_words(limit);
        if limit.uncounted_state().is_some() {
            return 0;
        }
        limit.share(limit.count().saturating_sub(seen(words, now, limit).0))
    }
}

/// How far 160,000 changes of limits move the end of a rest.
const DRIFT_MAX: Duration = Duration::from_micros(10);

/// The permits that the limit allows: a plan may have fewer than there are words.
fn permits(words: &[LaneWord], limit: CountLimit) -> &[LaneWord] {
    let count = usize::try_from(limit.count()).unwrap_or(usize::MAX).min(words.len());
    &words[..count]
}

/// How long a permit still has to rest.
fn rest(word: LaneWord, now: Tick) -> u64 {
    InstantWord::of(word).wait(now)
}

/// How many may be taken at `now`, and how long until all have rested.
///
/// After a change to fewer permits, the surplus ones that are still at rest
/// count as well. Nobody takes them any more, so callers that race just then may
/// together take that many too many.
fn seen(words: &[LaneWord], now: Tick, limit: CountLimit) -> (u64, u64) {
    let resting = |words: &[LaneWord]| words.iter().filter(|word| rest(**word, now) > 0).count() as u64;
    let permits = permits(words, limit);
    let left = limit.count().saturating_sub(resting(words)).min(permits.len() as u64 - resting(permits));
    (left, words.iter().map(|word| rest(*word, now)).max().unwrap_or(0))
}

/// How long until `cost` permits may be taken, if no other is taken meanwhile.
fn wait(words: &[LaneWord], now: Tick, limit: CountLimit, cost: u64) -> u64 {
    // How long until all but `most` of these have rested.
    let until = |words: &[LaneWord], most: u64| {
        let mut rests = [0; EXACT_MAX as usize];
        let rests = &mut rests[..words.len()];
        rests.iter_mut().zip(words).for_each(|(rest_of, word)| *rest_of = rest(*word, now));
        let last = words.len().checked_sub(usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1));
        last.map_or(0, |last| *rests.select_nth_unstable(last).1)
    };
    let permits = permits(words, limit);
    let of_permits = until(permits, (permits.len() as u64).saturating_sub(cost));
    of_permits.max(until(words, limit.count().saturating_sub(cost)))
}

/// The verdict on taking `cost` permits, at least one.
fn answer(length: u64, words: &[LaneWord], now: Tick, limit: CountLimit, cost: u64) -> Result<Verdict, Error> {
    if let Some(error) = limit.error(cost) {
        return Err(error);
    }
    let (left, last) = seen(words, now, limit);
    let verdict = |decision, left, wait, last| Ok(Verdict::counted(decision, limit.count(), left, wait, last, length));
    match left.checked_sub(cost) {
        None => verdict(Finding::DENY, left, wait(words, now, limit, cost), last),
        Some(_) if rests_until(now, length) == Tick::MAX => verdict(Finding::DENY, left, RETRY_NEVER, last),
        Some(left) => verdict(limit.decision(left), left, 0, last.max(length)),
    }
}

fn rests_until(now: Tick, length: u64) -> Tick {
    now.saturating_add(Duration::from_nanos(length))
}

/// Takes a permit that has rested.
fn step(length: u64, words: &[LaneWord], now: Tick, limit: CountLimit, cost: u64) -> Choice<Result<Verdict, Error>> {
    let answer = match (limit.uncounted(cost), cost) {
        (Some(answer), _) => answer,
        (None, 0) => Err(Error::ZeroCost),
        (None, 1) => answer(length, words, now, limit, 1),
        (None, _) => Err(Error::CostAboveCapacity { cost, capacity: 1 }),
    };
    let is_allowed = answer.as_ref().is_ok_and(Verdict::is_allowed);
    // The one that has rested longest, so that the words differ.
    let permits = permits(words, limit).iter().enumerate();
    let permits = permits.map(|(cell, word)| (cell, InstantWord::of(*word)));
    let free = permits.filter(|(_, word)| is_allowed && word.is_idle(now)).min_by_key(|(_, word)| word.time());
    let (cell, next) = free.map_or((0, None), |(cell, word)| (cell, Some(word.at(rests_until(now, length)))));
    Choice::at(cell, Outcome { next, answer })
}

/// Ends the rest of the permit that was used last.
fn refund(words: &[LaneWord], now: Tick, length: u64, limit: CountLimit) -> Choice<LaneState> {
    let permits = words.iter().map(|word| InstantWord::of(*word)).enumerate();
    let resting = permits.filter(|(_, word)| !word.is_idle(now));
    let Some((cell, word)) = resting.max_by_key(|(_, word)| word.time()) else {
        return Choice::of(Outcome { next: None, answer: state(words, now, length, limit) });
    };
    let rested = word.at(now);
    let mut after = [LaneWord::default(); EXACT_MAX as usize];
    after[..words.len()].copy_from_slice(words);
    after[cell] = rested;
    Choice::at(cell, Outcome { next: Some(rested), answer: state(&after[..words.len()], now, length, limit) })
}

/// Takes back a charge that was meant to be made only together with others: its
/// permit counts as rested since the charge. Unless it was reset, nobody else can
/// have taken it meanwhile; if a refund ended its rest, the charge that was
/// refunded stays, which is stricter.
///
/// Every sixteenth change of limits moves the end of its rest by a nanosecond
/// ([`InstantWord::renewed`]), and there may be many of them while a caller
/// stalls: up to [`DRIFT_MAX`] it is the same rest.
fn roll_back(words: &[LaneWord], charge: Receipt) -> Choice<()> {
    let until = InstantWord::of(charge.word).time();
    let ends = until..=until.saturating_add(DRIFT_MAX);
    let permit = words.get(charge.cell).map(|word| InstantWord::of(*word)).filter(|word| ends.contains(&word.time()));
    let next = permit.map(|word| word.at(charge.at)).filter(|_| until > charge.at);
    Choice::at(charge.cell, Outcome { next, answer: () })
}

/// The lane's state.
fn state(words: &[LaneWord], now: Tick, length: u64, limit: CountLimit) -> LaneState {
    let (left, last) = seen(words, now, limit);
    LaneState::counted(limit.count(), left, wait(words, now, limit, left.saturating_add(1)), last, length)
}
