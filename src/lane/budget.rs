//! A number per calendar window: LLM tokens per day, say.
//!
//! ```text
//!  63            44 43                      4 3        0
//! ┌────────────────┬─────────────────────────┬──────────┐
//! │ window, 20 bits│     used, 40 bits       │generation│
//! └────────────────┴─────────────────────────┴──────────┘
//! ```
//!
//! The window's number comes from the calendar, which never goes back
//! ([`clock::wall`](crate::clock::wall)). An older `now` may find a number from
//! the future, and takes it as it is. So what was used in a window counts until
//! the next begins, whatever happens to the wall clock.
//!
//! A value above [`CAPACITY_MAX`] means that nothing was used. It is salt, so
//! that words do not return when the generations start over.

use super::calendar::{Calendar, Era, INDEX_BITS};
use super::count::CountLimit;
use super::kind::Kind;
use super::limit::{Numbers, Terms};
use super::limit_error::LimitError;
use super::rules::{Charged, LimitWords, Refunded, Rules, first, look};
use super::text::{self, Parts};
use super::{Choice, Finding, LaneState, LaneWord, Outcome, RETRY_NEVER, Verdict};
use crate::bounds::{CAPACITY_MAX, ZONE_MINUTES_MAX};
use crate::clock::{At, Tick};
use crate::error::Error;
#[cfg(feature = "persist")]
use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

/// `budget 10_000/day zone +02:00`: ten thousand a day of that zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BudgetTerms {
    pub(super) units: u64,
    pub(super) era: Era,
}

impl Terms for BudgetTerms {
    fn kind(&self) -> Kind {
        Kind::Budget(self.era)
    }

    fn capacity(&self) -> u64 {
        self.units
    }

    fn check(&self) -> Result<Numbers, LimitError> {
        let zone = self.era.zone_minutes;
        match self.units {
            0 => Err(LimitError::Zero),
            _ if zone.unsigned_abs() > ZONE_MINUTES_MAX.unsigned_abs() => Err(LimitError::Zone { minutes: zone }),
            units @ 1..=CAPACITY_MAX => Ok(Numbers::Count(units)),
            capacity => Err(LimitError::Capacity { capacity }),
        }
    }
}

impl BudgetTerms {
    pub(super) const KEYWORD: &str = "budget";

    /// What follows the keyword; `None` if it is something else.
    pub(super) fn read(parts: &mut Parts<'_>) -> Result<Option<Self>, LimitError> {
        let Some(units) = text::number_in(parts)? else {
            return Ok(None);
        };
        if !parts.take("/") && !parts.take("per") {
            return Ok(None);
        }
        let name = parts.word();
        let Some((calendar, _)) = Calendar::ALL.into_iter().find(|(_, known)| *known == name) else {
            return Ok(None);
        };
        let zone_minutes = if parts.take("zone") { zone(parts)? } else { Some(0) };
        Ok(zone_minutes.map(|zone_minutes| Self { units, era: Era { calendar, zone_minutes } }))
    }
}

/// `+02:00`, in minutes; `None` if it is something else.
fn zone(parts: &mut Parts<'_>) -> Result<Option<i16>, LimitError> {
    let sign = match (parts.take("+"), parts.take("-")) {
        (true, false) => 1,
        (false, true) => -1,
        _ => return Ok(None),
    };
    let hours = text::number_in(parts)?;
    let minutes = if parts.take(":") { text::number_in(parts)? } else { None };
    let (Some(hours), Some(minutes @ 0..60)) = (hours, minutes) else {
        return Ok(None);
    };
    Ok(Some(sign * i16::try_from(hours.saturating_mul(60).saturating_add(minutes)).unwrap_or(i16::MAX)))
}

impl fmt::Display for BudgetTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", Self::KEYWORD, self.units, self.era)
    }
}

impl Rules for Era {
    fn uses_calendar(&self) -> bool {
        true
    }

    fn is_idle(&self, word: LaneWord, at: At) -> bool {
        is_idle(*self, word, at)
    }

    fn is_kept(&self, word: LaneWord, at: At) -> bool {
        !is_idle(*self, word, at)
    }

    fn emptied(&self, word: LaneWord, floor: At) -> LaneWord {
        emptied(*self, word, floor)
    }

    fn renewed(&self, word: LaneWord, _present: Tick, _is_other_tenant: bool) -> LaneWord {
        salted(word).unwrap_or(word)
    }

    fn under_other_limit(&self, word: LaneWord, at: At, is_reset: bool, _debt_max: Duration) -> LaneWord {
        if is_reset { emptied(*self, word, at) } else { word }
    }

    fn place(&self, charged: LaneWord) -> u64 {
        receipt(charged)
    }

    fn undo(&self, words: &[LaneWord], at: At, place: u64, cost: u64) -> Choice<()> {
        Choice::of(undo(*self, first(words), at, place, cost))
    }

    fn step(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64) -> Choice<Charged> {
        Choice::of(step(*self, first(words), at, CountLimit::from_words(limit), cost)).map(Charged::Counted)
    }

    fn refund(
        &self,
        words: &[LaneWord],
        at: At,
        limit: LimitWords,
        cost: u64,
        reserved: &dyn Fn(u64) -> u64,
    ) -> Choice<Result<Refunded, Error>> {
        let (word, limit) = (first(words), CountLimit::from_words(limit));
        if let Some(answer) = limit.uncounted_refund(cost) {
            return Choice::of(look(answer.map(Refunded::all)));
        }
        if let Some(error) = limit.error(cost) {
            return Choice::of(look(Err(error)));
        }
        let cost = cost.min(refundable(*self, word, at, reserved));
        Choice::of(refund(*self, word, at, limit, cost)).map(|state| Ok(Refunded::all(state)))
    }

    fn force(&self, words: &[LaneWord], at: At, _limit: LimitWords, cost: u64) -> Choice<()> {
        Choice::of(force(*self, first(words), at, cost))
    }

    fn state(&self, words: &[LaneWord], at: At, limit: LimitWords) -> LaneState {
        let limit = CountLimit::from_words(limit);
        limit.uncounted_state().unwrap_or_else(|| state(*self, first(words), at, limit))
    }
}

const USED_BITS: u32 = 40;
const USED_MASK: u64 = (1 << USED_BITS) - 1;
/// The first salt.
const SALT_MIN: u64 = CAPACITY_MAX + 1;

const _: () = assert!(USED_BITS + INDEX_BITS == crate::clock::TICK_BITS && SALT_MIN < USED_MASK);

/// What a word means at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    index: u64,
    used: u64,
    /// Whether the window has not begun, and it is unknown what was used before it.
    is_unknown: bool,
}

/// A window's number, and what was used of it, or salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BudgetWord(LaneWord);

impl BudgetWord {
    const fn index(self) -> u64 {
        self.0.payload() >> USED_BITS
    }

    const fn used(self) -> u64 {
        if self.has_salt() { 0 } else { self.low() }
    }

    const fn has_salt(self) -> bool {
        self.low() >= SALT_MIN
    }

    /// What was used, or the salt.
    const fn low(self) -> u64 {
        self.0.payload() & USED_MASK
    }

    /// The same tenancy in another window, with this much used, or this salt.
    const fn put(self, index: u64, low: u64) -> LaneWord {
        self.0.with_payload(index << USED_BITS | low)
    }
}

fn parts(word: LaneWord) -> Seen {
    let word = BudgetWord(word);
    Seen { index: word.index(), used: word.used(), is_unknown: false }
}

fn seen(era: Era, word: LaneWord, at: At) -> Seen {
    let (stored, index) = (parts(word), era.index(at.unix_ns()));
    let is_unknown = stored.index > index && BudgetWord(word).has_salt();
    if stored.index < index { Seen { index, used: 0, is_unknown } } else { Seen { is_unknown, ..stored } }
}

impl Seen {
    fn left(self, limit: CountLimit) -> u64 {
        if self.is_unknown { 0 } else { limit.count().saturating_sub(self.used) }
    }

    /// How long until there is more left: until the window ends, or, if it is
    /// unknown what was used before it, until it begins.
    fn more_in(self, era: Era, at: At) -> u64 {
        let index = if self.is_unknown { self.index.saturating_sub(1) } else { self.index };
        u64::try_from(era.end(index).saturating_sub(at.unix_ns())).unwrap_or(0)
    }
}

fn put(word: LaneWord, seen: Seen) -> LaneWord {
    BudgetWord(word).put(seen.index, seen.used.min(CAPACITY_MAX))
}

/// The same tenancy with nothing used, in the window of `floor` or later. What
/// was used before is no longer known, so an older `now` is denied until that
/// window begins.
fn emptied(era: Era, word: LaneWord, floor: At) -> LaneWord {
    let word = BudgetWord(word);
    word.put(word.index().max(era.index(floor.unix_ns())), word.low().max(SALT_MIN))
}

/// The word with its salt moved on; `None` if something was used.
fn salted(word: LaneWord) -> Option<LaneWord> {
    let word = BudgetWord(word);
    let next = if word.low() == USED_MASK { SALT_MIN } else { word.low() + 1 };
    word.has_salt().then(|| word.put(word.index(), next))
}

/// Whether nothing is used of the window of `at`.
fn is_idle(era: Era, word: LaneWord, at: At) -> bool {
    let Seen { used, is_unknown, .. } = seen(era, word, at);
    used == 0 && !is_unknown
}

/// Charges `cost` if that much is left of the window.
fn step(era: Era, word: LaneWord, at: At, limit: CountLimit, cost: u64) -> Outcome<Result<Verdict, Error>> {
    if let Some(answer) = limit.uncounted(cost).or(limit.error(cost).map(Err)) {
        return Outcome { next: None, answer };
    }
    let seen = seen(era, word, at);
    let (left, more_in) = (seen.left(limit), seen.more_in(era, at));
    let verdict = |decision, remaining, wait, used| {
        let full_in = if used == 0 && !seen.is_unknown { 0 } else { more_in };
        Ok(Verdict::counted(decision, limit.count(), remaining, wait, full_in, era.length_ns()))
    };
    if cost > left || at.now == Tick::MAX {
        let wait = if at.now == Tick::MAX { RETRY_NEVER } else { more_in };
        return Outcome { next: None, answer: verdict(Finding::DENY, left, wait, seen.used) };
    }
    let used = seen.used + cost;
    let answer = verdict(limit.decision(left - cost), left - cost, 0, used);
    Outcome { next: Some(put(word, Seen { used, ..seen })), answer }
}

/// Gives `cost` back, unless the window is over.
fn refund(era: Era, word: LaneWord, at: At, limit: CountLimit, cost: u64) -> Outcome<LaneState> {
    let before = seen(era, word, at);
    let used = before.used.saturating_sub(cost);
    let after = Seen { used, ..before };
    let next = if used == 0 { emptied(era, word, at) } else { put(word, after) };
    Outcome { next: (after != before).then_some(next), answer: status_of(era, after, at, limit) }
}

/// How much may be given back: what is used and not `reserved` in its window.
fn refundable(era: Era, word: LaneWord, at: At, reserved: impl Fn(u64) -> u64) -> u64 {
    let Seen { index, used, .. } = seen(era, word, at);
    used.saturating_sub(reserved(index))
}

/// The number of a word's window, and what is used of it.
#[cfg(feature = "cluster")]
pub(super) fn counted(word: LaneWord) -> (u64, u64) {
    let Seen { index, used, .. } = parts(word);
    (index, used)
}

/// The same tenancy with this much used of this window.
#[cfg(feature = "cluster")]
pub(super) fn with_counted(word: LaneWord, window: u64, used: u64) -> LaneWord {
    put(word, Seen { index: window, used, is_unknown: false })
}

/// The number of the window in which something is used, and how much; `None` if
/// that window is over in window `now`.
#[cfg(feature = "persist")]
pub(crate) fn used(word: LaneWord, now: u64) -> Option<(u64, u64)> {
    let Seen { index, used, .. } = parts(word);
    (used > 0 && index >= now).then_some((index, used))
}

/// A window's number and what is used of it as one number, which is 0 only if
/// nothing is used.
#[cfg(feature = "persist")]
pub(crate) fn packed(window: u64, used: u64) -> u64 {
    if used == 0 { 0 } else { window << USED_BITS | used }
}

/// What was [`packed`].
#[cfg(feature = "persist")]
pub(crate) fn unpacked(word: u64) -> (u64, u64) {
    (word >> USED_BITS, word & USED_MASK)
}

/// Adds what was used of a window before a restart, unless the next has begun.
#[cfg(feature = "persist")]
pub(crate) fn restore(word: LaneWord, window: u64, used: u64) -> Outcome<()> {
    let stored = parts(word);
    let next = match stored.index.cmp(&window) {
        _ if used == 0 => None,
        Ordering::Less => Some(Seen { index: window, used, is_unknown: false }),
        Ordering::Equal => Some(Seen { used: stored.used.saturating_add(used), ..stored }),
        Ordering::Greater => None,
    };
    let next = next.map(|seen| put(word, seen)).filter(|next| *next != word);
    Outcome { next, answer: () }
}

/// The number of the window in which the charge that wrote this word was made.
fn receipt(word: LaneWord) -> u64 {
    parts(word).index
}

/// Takes back a charge that was made in the window of this number, unless that is
/// over.
fn undo(era: Era, word: LaneWord, at: At, window: u64, cost: u64) -> Outcome<()> {
    let before = parts(word);
    if before.index != window || before.used == 0 {
        return Outcome { next: None, answer: () };
    }
    let used = before.used.saturating_sub(cost);
    let next = if used == 0 { emptied(era, word, at) } else { put(word, Seen { used, ..before }) };
    Outcome { next: Some(next), answer: () }
}

/// Charges `cost` whatever the limit, up to what the word can count.
fn force(era: Era, word: LaneWord, at: At, cost: u64) -> Outcome<()> {
    let seen = seen(era, word, at);
    let next = put(word, Seen { used: seen.used.saturating_add(cost), ..seen });
    Outcome { next: (next != word).then_some(next), answer: () }
}

/// The budget's state.
fn state(era: Era, word: LaneWord, at: At, limit: CountLimit) -> LaneState {
    status_of(era, seen(era, word, at), at, limit)
}

fn status_of(era: Era, seen: Seen, at: At, limit: CountLimit) -> LaneState {
    let more_in = if seen.used == 0 && !seen.is_unknown { 0 } else { seen.more_in(era, at) };
    LaneState::counted(limit.count(), seen.left(limit), more_in, more_in, era.length_ns())
}

#[cfg(all(test, not(loom)))]
mod tests;
