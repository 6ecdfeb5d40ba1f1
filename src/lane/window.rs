//! Never more than the limit in any trailing window, for two words whatever the
//! count. In return a charge counts for up to a third of the window longer.
//! `window/counts.rs` reads and writes the words.
//!
//! Time is cut into parts, three to a window. What was charged in a part
//! counts, all of it, until the part's last instant is a whole window old:
//!
//! ```text
//! part      = ceil(length / 3)
//! index     = floor(now / part)
//! charged   = what was charged in the parts index - 3 to index
//! allowed  <=> charged + cost <= limit
//! ```
//!
//! # What passes, and what that costs
//!
//! A charge in part *i* counts until the end of part *i* + 3: for more than
//! three parts, which are no shorter than the window, and for at most four.
//!
//! - **No trailing window holds more than the limit.** Take the last charge of
//!   a trailing window. When it passed, all others of that window still counted.
//! - **No client waits longer than four thirds of the window.** A client that
//!   spends the whole limit at once waits for one window and up to a third of
//!   it; one that asks evenly, and never stops, gets three quarters of the rate.
//!
//! | limit | most in any minute | a charge counts for | evenly, a minute |
//! |---|---|---|---|
//! | `window 20/min` | 20 | 60 s to 80 s | 15 |
//! | `window 100/min` | 100 | 60 s to 80 s | 75 |
//! | `exact 100/min` | 100 | 60 s | 100 |
//! | `100/min`, a bucket | 199 | - | 100 |
//!
//! The usual counter of two windows counts only a share of the oldest part. That
//! is kinder, but breaks the promise, however many parts there are: if a client
//! spends the whole limit in the last instant of a part, most of it stops
//! counting before any of it is a window old, and up to twice the limit passes.
//!
//! # Two words
//!
//! ```text
//!  63                  4+2c 4+c        4 3        0
//! ┌────────────────────────┬────────┬─────────┬──────────┐
//! │ index, 60 - 2c bits    │previous│ current │generation│   c as large as the index leaves room for
//! └────────────────────────┴────────┴─────────┴──────────┘
//! ```
//!
//! Both have the same layout: the number of a part, and how much was charged in it
//! and in the one before. The first word has the two latest parts, and every charge
//! is an exchange of it. The second has the two parts before those.
//!
//! When a charge finds that its part, *w*, is later than the first word's, *h*,
//! the counts that fall off there have to go to the second word first:
//!
//! 1. **record**: exchange the second word for the counts of the parts *w* - 2
//!    and *w* - 3, each the larger of its counts in the two words;
//! 2. **move on**: exchange the first word, from the very value whose counts
//!    are recorded, for one of part *w*, with the charge in it.
//!
//! A caller whose second exchange fails looks again, and records again if more
//! was charged meanwhile. A caller that finds the second word ahead (its part
//! later than *h* - 2: another caller has recorded but not moved on) takes *w*
//! for the present and moves the first word on itself. So no caller waits for
//! another.
//!
//! *Claim*: a charge that passes has counted everything that counts at *w*.
//! The first word is loaded before the second and is the same when it is
//! exchanged. Its part never goes back, so it was the same all the time, and
//! nobody moved it on after the load. The caller that moved it to *h* had seen
//! in the second word the counts that fell off, and the load of the first word
//! (Acquire) lets the load of the second see them, or what came after. After
//! that the counts of a part that the first word no longer has only shrink, by
//! what is given back; and the second word drops a part only when it is
//! recorded for a *w* at which the part no longer counts. A caller that sees
//! that takes this *w* for the present; a caller that does not counts more, not
//! less.
//!
//! *Claim*: what was recorded is never less than what was charged. A record
//! only raises the counts that its caller saw in the second word. It succeeds
//! only on that word. If others recorded and moved on in between, the word has
//! changed, to larger counts or a later part; it is the same again only if a
//! charge was given back since, and then the record is too large, by what was
//! given back: stricter, until the part is over.
//!
//! A record looks at the first word once more before its exchange (`again` in
//! [`Choice`]). So the two words it saw were there at one moment, and a record
//! that was prepared before a reset, which fills the first word and then the
//! second, fails on the second or is filled with it. Changes of tenant and of
//! limits bump the words in the same order.
//!
//! # Older instants, and words without counts
//!
//! A `now` in a part before the latest in the words is taken for the start of
//! that latest part.
//!
//! If a word's previous count is all ones, nothing was charged, and its current
//! count is salt, so that words do not return when the generations start over.
//! If that is the first word, for a part after an older `now`, it is unknown
//! what was charged before, and the answer is a denial until that part begins.

mod counts;

use super::count::CountLimit;
use super::kind::Kind;
use super::limit::{Numbers, Terms};
use super::limit_error::LimitError;
use super::rules::{Charged, LimitWords, Refunded, Rules, look};
use super::text::{self, Parts, Per};
use super::{Choice, Finding, LaneState, LaneWord, Outcome, RETRY_NEVER, Verdict};
use crate::bounds::{WINDOW_MAX, WINDOW_MIN};
use crate::clock::{At, Tick, nanos_saturating};
use crate::error::Error;
pub(crate) use counts::Frame;
use counts::{Seen, both};
use std::fmt;
use std::time::Duration;

/// `window 100/min`: a hundred in any trailing minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WindowTerms {
    pub(super) count: u64,
    pub(super) length: Duration,
}

impl Terms for WindowTerms {
    fn kind(&self) -> Kind {
        Kind::Window(Window::new(nanos_saturating(self.length).max(1)))
    }

    fn capacity(&self) -> u64 {
        self.count
    }

    fn words(&self) -> usize {
        2
    }

    fn check(&self) -> Result<Numbers, LimitError> {
        let Self { count, length } = *self;
        if count == 0 {
            return Err(LimitError::Zero);
        }
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&length) {
            return Err(LimitError::WindowLength { length });
        }
        // Lossless: a window is at most a month long.
        let most = Frame::new(nanos_saturating(length)).count_max();
        if count > most { Err(LimitError::WindowCount { count, length, most }) } else { Ok(Numbers::Count(count)) }
    }
}

impl WindowTerms {
    pub(super) const KEYWORD: &str = "window";

    /// What follows the keyword; `None` if it is something else.
    pub(super) fn read(parts: &mut Parts<'_>) -> Result<Option<Self>, LimitError> {
        Ok(text::rate(parts)?.map(|(count, length)| Self { count, length }))
    }
}

impl fmt::Display for WindowTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", Self::KEYWORD, self.count, Per(self.length))
    }
}

/// The places of the two words among the lane's.
const FIRST: usize = 0;
const SECOND: usize = 1;

/// One of the two words of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    frame: Frame,
    /// Whether it is the second, with the two parts before those of the first.
    is_second: bool,
}

impl Window {
    /// The first word of a window of this length, in nanoseconds; not 0.
    pub(crate) const fn new(length: u64) -> Self {
        Self { frame: Frame::new(length), is_second: false }
    }

    pub(super) const fn second(self) -> Self {
        Self { is_second: true, ..self }
    }
}

impl Rules for Window {
    fn is_idle(&self, word: LaneWord, at: At) -> bool {
        self.frame.is_idle(word, at.now)
    }

    fn emptied(&self, word: LaneWord, floor: At) -> LaneWord {
        self.frame.emptied(word, floor.now)
    }

    fn inherited(&self, word: LaneWord, floor: At) -> LaneWord {
        if self.is_second { self.frame.past_lifted(word, floor.now) } else { self.frame.lifted(word, floor.now) }
    }

    /// One more in an inherited count is only stricter.
    fn renewed(&self, word: LaneWord, _present: Tick, is_other_tenant: bool) -> LaneWord {
        let raised = || if is_other_tenant { self.frame.raised(word) } else { word };
        self.frame.salted(word).unwrap_or_else(raised)
    }

    fn under_other_limit(&self, word: LaneWord, at: At, is_reset: bool, _debt_max: Duration) -> LaneWord {
        if is_reset { self.frame.emptied(word, at.now) } else { word }
    }

    fn place(&self, charged: LaneWord) -> u64 {
        self.frame.counts(charged).index
    }

    fn undo(&self, words: &[LaneWord], _at: At, place: u64, cost: u64) -> Choice<()> {
        undo(self.frame, words, place, cost)
    }

    fn step(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64) -> Choice<Charged> {
        step(self.frame, words, at.now, CountLimit::from_words(limit), cost).map(Charged::Counted)
    }

    fn refund(
        &self,
        words: &[LaneWord],
        at: At,
        limit: LimitWords,
        cost: u64,
        reserved: &dyn Fn(u64) -> u64,
    ) -> Choice<Result<Refunded, Error>> {
        let limit = CountLimit::from_words(limit);
        if let Some(answer) = limit.uncounted_refund(cost) {
            return Choice::of(look(answer.map(Refunded::all)));
        }
        if let Some(error) = limit.error(cost) {
            return Choice::of(look(Err(error)));
        }
        let cost = cost.min(refundable(self.frame, words, at.now, reserved));
        refund(self.frame, words, at.now, limit, cost).map(Ok)
    }

    fn force(&self, words: &[LaneWord], at: At, _limit: LimitWords, cost: u64) -> Choice<()> {
        force(self.frame, words, at.now, cost)
    }

    /// The first word first: see "Two words" above.
    fn next_to_reset(&self, words: &[LaneWord], _now: Tick, round: usize) -> Option<(usize, bool)> {
        let cell = round.min(words.len().saturating_sub(1));
        Some((cell, cell + 1 < words.len()))
    }

    fn state(&self, words: &[LaneWord], at: At, limit: LimitWords) -> LaneState {
        let limit = CountLimit::from_words(limit);
        limit.uncounted_state().unwrap_or_else(|| state(self.frame, words, at.now, limit))
    }

    /// How full of charges the window is.
    fn load(&self, words: &[LaneWord], now: Tick, limit: LimitWords) -> u64 {
        let limit = CountLimit::from_words(limit);
        if limit.uncounted_state().is_some() { 0 } else { limit.share(self.frame.seen(words, now).charged(limit)) }
    }
}

/// Charges `cost` if there is room for it.
fn step(frame: Frame, words: &[LaneWord], now: Tick, limit: CountLimit, cost: u64) -> Choice<Result<Verdict, Error>> {
    if let Some(answer) = limit.uncounted(cost).or(limit.error(cost).map(Err)) {
        return Choice::of(look(answer));
    }
    let seen = frame.seen(words, now);
    let before = seen.charged(limit);
    let verdict = |decision, charged, wait, seen: Seen| {
        let remaining = limit.count().saturating_sub(charged);
        Verdict::counted(decision, limit.count(), remaining, wait, seen.empty_in(frame), frame.length)
    };
    let charged = before.saturating_add(cost);
    if charged > limit.count() || now == Tick::MAX {
        let wait = if now == Tick::MAX { RETRY_NEVER } else { seen.wait(frame, limit.count(), cost) };
        return Choice::of(Outcome { next: None, answer: Ok(verdict(Finding::DENY, before, wait, seen)) });
    }
    let after = seen.with(cost);
    let decision = limit.decision(limit.count() - charged);
    frame.change(words, &seen, after.counts[0], Ok(verdict(decision, charged, 0, after)))
}

/// Takes `cost` off what was charged last and still counts: off the first word
/// if it has any of that, otherwise off the second.
fn refund(frame: Frame, words: &[LaneWord], now: Tick, limit: CountLimit, cost: u64) -> Choice<Refunded> {
    let [first, second] = both(words);
    let index = frame.seen(words, now).index;
    let [hot, cold] = [first, second].map(|word| frame.counts(word).counting_at(index));
    let refunded = |words, rest| Refunded { state: state(frame, words, now, limit), rest };
    let (left, taken) = hot.less(cost);
    if taken > 0 {
        let is_empty = left.is_zero() && cold.is_zero();
        let next = if is_empty { frame.emptied(first, now) } else { frame.put(first, left) };
        let rest = if cold.is_zero() { 0 } else { cost - taken };
        return Choice::at(FIRST, Outcome { next: Some(next), answer: refunded(&[next, second], rest) });
    }
    let (left, taken) = cold.less(cost);
    let next = frame.put(second, left);
    let is_changed = taken > 0;
    let after = if is_changed { next } else { second };
    Choice::at(SECOND, Outcome { next: is_changed.then_some(next), answer: refunded(&[first, after], 0) })
}

/// How much may be given back: what still counts and is not `reserved` in its
/// part. A refund takes what was charged last. If some of that is reserved, the
/// refund does not go on to the parts before.
fn refundable(frame: Frame, words: &[LaneWord], now: Tick, reserved: impl Fn(u64) -> u64) -> u64 {
    let Seen { index, counts, .. } = frame.seen(words, now);
    let (mut sum, mut part) = (0, index);
    for count in counts {
        let held = reserved(part);
        sum += count.saturating_sub(held);
        if held > 0 || part == 0 {
            break;
        }
        part -= 1;
    }
    sum
}

/// Takes back a charge that was made in the part of this number.
fn undo(frame: Frame, words: &[LaneWord], part: u64, cost: u64) -> Choice<()> {
    let words = both(words);
    let cell = if frame.counts(words[FIRST]).has(part) { FIRST } else { SECOND };
    let before = frame.counts(words[cell]);
    let after = before.less_of(part, cost);
    Choice::at(cell, Outcome { next: (after != before).then(|| frame.put(words[cell], after)), answer: () })
}

/// Charges `cost` whatever the limit, up to what the word can count.
fn force(frame: Frame, words: &[LaneWord], now: Tick, cost: u64) -> Choice<()> {
    let seen = frame.seen(words, now);
    frame.change(words, &seen, seen.with(cost).counts[0].min(frame.count_max()), ())
}

/// The window's state.
fn state(frame: Frame, words: &[LaneWord], now: Tick, limit: CountLimit) -> LaneState {
    let seen = frame.seen(words, now);
    let remaining = limit.count().saturating_sub(seen.charged(limit));
    // One more than now is left when a cost of that many fits.
    let next_in = if remaining < limit.count() { seen.wait(frame, limit.count(), remaining + 1) } else { 0 };
    LaneState::counted(limit.count(), remaining, next_in, seen.empty_in(frame), frame.length)
}
