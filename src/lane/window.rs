//! Never more than so many in any trailing window, at two words whatever the
//! count; in return a charge counts for up to a third of the window longer.
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
//! A charge in part *i* counts until the end of part *i* + 3: for longer than
//! three parts, which is no less than the window, and for at most four.
//!
//! - **No trailing window holds more than the limit.** Take the last charge of
//!   a trailing window. When it passed, all others of that window still counted.
//! - **Nobody waits for longer than four thirds of the window.** Who charges all
//!   of the limit at once waits for one window and up to a third of it; who
//!   charges evenly, and never stops, gets three quarters of the rate through.
//!
//! | limit | most in any minute | a charge counts for | evenly, a minute |
//! |---|---|---|---|
//! | `window 20/min` | 20 | 60 s to 80 s | 15 |
//! | `window 100/min` | 100 | 60 s to 80 s | 75 |
//! | `exact 100/min` | 100 | 60 s | 100 |
//! | `100/min`, a bucket | 199 | - | 100 |
//!
//! To count only a share of the oldest part, as the usual counter of two
//! windows does, is kinder and breaks the promise, however many parts there
//! are: who charges all of the limit in the last instant of a part is told
//! that most of it is over before any of it is, and gets up to twice the limit.
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
//! Both are packed alike: the number of a part, how much was charged in it and
//! in the one before. The first word has the two latest parts, and every charge
//! is an exchange of it. The second has the two parts before those.
//!
//! When a charge finds that its part, *w*, is later than the first word's, *h*,
//! the counts that fall off there have to go to the second word first:
//!
//! 1. **record**: exchange the second word for the counts of the parts *w* - 2
//!    and *w* - 3, each the larger of what the two words say of it;
//! 2. **move on**: exchange the first word, from the very value whose counts
//!    are recorded, for one of part *w*, with the charge in it.
//!
//! A caller whose second exchange fails looks again, and records again if more
//! was charged meanwhile. Whoever finds the second word ahead (its part later
//! than *h* - 2, so that somebody has recorded and not moved on) takes *w* for
//! the present and moves the first word on itself. So nobody waits for anybody.
//!
//! *Claim*: a charge that passes has counted everything that counts at *w*.
//! The first word is loaded before the second and is the same when it is
//! exchanged. Its part never goes back, so it was the same all the time, and
//! nobody moved it on after the load. Whoever moved it to *h* had seen the
//! counts that fell off in the second word, and the load of the first word
//! (Acquire) lets the load of the second see them, or what came after. After
//! that the counts of a part that the first word no longer has only shrink, by
//! what is given back; and the second word drops a part only when it is
//! recorded for a *w* that the part does not count at. A caller that sees that
//! takes this *w* for the present; for one that does not, more counts, not less.
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
//! An older `now`, of a part before the latest that the words know of, is
//! taken for the start of that part.
//!
//! A word of which the previous count is all ones says that nothing was
//! charged; its current count is then salt, so that words do not return when
//! the generations start over. If the first word says so for a part that lies
//! ahead of an older `now`, nobody knows what was charged before, and the answer
//! is a denial until that part begins.

use super::kind::Refunded;
use super::{Choice, Finding, LaneWord, Outcome, RETRY_NEVER, Status, Verdict, counted::CountLimit};
use crate::clock::Tick;
use crate::error::Error;
use crate::policy::{Frame, PARTS};
use crate::sync::{Fault, broken};

/// The latest parts that count: the present one, and as many as a window has.
const COUNTED: usize = PARTS as usize + 1;

/// The places of the two words among the lane's.
const FIRST: usize = 0;
const SECOND: usize = 1;

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    index: u64,
    previous: u64,
    current: u64,
}

impl Counts {
    /// What was charged in a part, as far as the word knows.
    const fn of(self, index: u64) -> u64 {
        match self.index.checked_sub(index) {
            Some(0) => self.current,
            Some(1) => self.previous,
            _ => 0,
        }
    }

    const fn has(self, index: u64) -> bool {
        matches!(self.index.checked_sub(index), Some(0 | 1))
    }

    const fn is_zero(self) -> bool {
        self.previous == 0 && self.current == 0
    }

    /// What of these counts at a part, or one before it.
    fn counting_at(self, index: u64) -> Self {
        let counts = |of: u64| of.saturating_add(PARTS) >= index;
        let current = if counts(self.index) { self.current } else { 0 };
        let previous = if self.index > 0 && counts(self.index - 1) { self.previous } else { 0 };
        Self { index: self.index, previous, current }
    }

    /// Less `cost`, off the later part first; and how much of it there was.
    fn less(self, cost: u64) -> (Self, u64) {
        let of_current = cost.min(self.current);
        let of_previous = (cost - of_current).min(self.previous);
        let left =
            Self { current: self.current - of_current, previous: self.previous - of_previous, index: self.index };
        (left, of_current + of_previous)
    }

    /// Less `cost`, off a part that it has.
    fn less_of(self, index: u64, cost: u64) -> Self {
        match self.index.checked_sub(index) {
            Some(0) => Self { current: self.current.saturating_sub(cost), ..self },
            Some(1) => Self { previous: self.previous.saturating_sub(cost), ..self },
            _ => self,
        }
    }
}

/// What two words say at an instant.
#[derive(Clone, Copy, Debug)]
struct Seen {
    now: u64,
    /// The part that a charge is made in.
    index: u64,
    /// What was charged in it, and in those before it.
    counts: [u64; COUNTED],
    /// What the second word has to say before the first moves on to this part.
    record: Option<Counts>,
    /// The instant from which on it is known what counts, or 0.
    known_from: u64,
}

impl Seen {
    fn is_unknown(&self) -> bool {
        self.now < self.known_from
    }

    /// What counts as charged: all of the limit, if it is not known.
    fn charged(&self, limit: CountLimit) -> u64 {
        if self.is_unknown() { limit.count() } else { self.counts.iter().sum() }
    }

    fn with(mut self, cost: u64) -> Self {
        self.counts[0] = self.counts[0].saturating_add(cost);
        self
    }

    /// The instant at which the counts of this age count no more.
    fn over_at(&self, frame: Frame, age: usize) -> u64 {
        (self.index + COUNTED as u64 - age as u64).saturating_mul(frame.part)
    }

    /// How long until `cost` passes, if nothing more is charged. It is at most the limit.
    fn wait(&self, frame: Frame, limit: u64, cost: u64) -> u64 {
        let (mut sum, mut until) = (self.counts.iter().sum::<u64>(), self.known_from);
        for (age, count) in self.counts.iter().enumerate().rev().filter(|(_, count)| **count > 0) {
            if sum <= limit.saturating_sub(cost) {
                break;
            }
            sum -= count;
            until = until.max(self.over_at(frame, age));
        }
        until.saturating_sub(self.now)
    }

    /// How long until nothing counts any more.
    fn empty_in(&self, frame: Frame) -> u64 {
        let latest = self.counts.iter().position(|count| *count > 0);
        let over = latest.map_or(0, |age| self.over_at(frame, age));
        over.max(self.known_from).saturating_sub(self.now)
    }
}

impl Frame {
    const fn counts(self, word: LaneWord) -> Counts {
        let payload = word.payload();
        let (previous, current) = (payload >> self.bits & self.ones(), payload & self.ones());
        let index = payload >> (2 * self.bits);
        if previous == self.ones() {
            return Counts { index, previous: 0, current: 0 };
        }
        Counts { index, previous, current }
    }

    /// The same tenancy with other counts. Counts of a torn limit may be too
    /// large; such a word is thrown away.
    fn put(self, word: LaneWord, counts: Counts) -> LaneWord {
        let Counts { index, previous, current } = counts;
        let count = |count: u64| count.min(self.count_max());
        word.with_payload(index << (2 * self.bits) | count(previous) << self.bits | count(current))
    }

    /// The same tenancy with nothing charged, in the part of `time` or later.
    /// The salt stays, if there is one. Of what was charged before, nothing is
    /// known any more: an older `now` is denied until that part begins.
    pub(crate) fn emptied(self, word: LaneWord, time: Tick) -> LaneWord {
        let payload = word.payload();
        let salt = if self.is_emptied(word) { payload & self.ones() } else { 0 };
        let index = self.counts(word).index.max(time.as_nanos() / self.part);
        word.with_payload(index << (2 * self.bits) | self.ones() << self.bits | salt)
    }

    const fn is_emptied(self, word: LaneWord) -> bool {
        word.payload() >> self.bits & self.ones() == self.ones()
    }

    /// The word with its salt moved on; `None` if it has counts in its place.
    pub(crate) fn salted(self, word: LaneWord) -> Option<LaneWord> {
        let payload = word.payload();
        self.is_emptied(word).then(|| word.with_payload(payload & !self.ones() | payload.wrapping_add(1) & self.ones()))
    }

    /// The word with one more in its count.
    pub(crate) fn raised(self, word: LaneWord) -> LaneWord {
        let counts = self.counts(word);
        self.put(word, Counts { current: counts.current + 1, ..counts })
    }

    /// The first word as it is at `floor`, if that is later: no charge to come
    /// is made as of an earlier instant. What falls off counts as charged just
    /// before that, which is stricter: the second word is another's to change.
    pub(crate) fn lifted(self, word: LaneWord, floor: Tick) -> LaneWord {
        let index = floor.as_nanos() / self.part;
        let counts = self.counts(word).counting_at(index);
        match counts.index {
            _ if counts.is_zero() => self.emptied(word, floor),
            part if part >= index => self.put(word, counts),
            _ => self.put(word, Counts { index, previous: counts.previous + counts.current, current: 0 }),
        }
    }

    /// The second word as it is at `floor`.
    pub(crate) fn past_lifted(self, word: LaneWord, floor: Tick) -> LaneWord {
        let counts = self.counts(word).counting_at(floor.as_nanos() / self.part);
        if counts.is_zero() { self.emptied(word, floor) } else { word }
    }

    /// Whether nothing that this word says counts at `now`.
    pub(crate) fn is_idle(self, word: LaneWord, now: Tick) -> bool {
        let (counts, index) = (self.counts(word), now.as_nanos() / self.part);
        let is_unknown = self.is_emptied(word) && counts.index > index;
        counts.counting_at(index).is_zero() && !is_unknown
    }

    fn seen(self, words: &[LaneWord], now: Tick) -> Seen {
        let [first, second] = both(words);
        let (hot, cold, now) = (self.counts(first), self.counts(second), now.as_nanos());
        let present = now / self.part;
        // Recorded for a part that the first word is still to move on to.
        let recorded = if cold.is_zero() || broken(Fault::RecordIgnored) { 0 } else { cold.index + 2 };
        let index = present.max(hot.index).max(recorded);
        let of = |age: usize| index.checked_sub(age as u64).map_or(0, |part| hot.of(part).max(cold.of(part)));
        let counts: [u64; COUNTED] = std::array::from_fn(of);
        let falls_off = |age: u64| index.checked_sub(age).is_some_and(|part| hot.of(part) > cold.of(part));
        let is_due = index > hot.index && (falls_off(2) || falls_off(3)) && !broken(Fault::MovedOnUnrecorded);
        // A count that falls off is of a part that there was.
        let record = Counts { index: index.saturating_sub(2), previous: counts[3], current: counts[2] };
        let is_unknown = self.is_emptied(first) && hot.index > present;
        let known_from = if is_unknown { hot.index.saturating_mul(self.part) } else { 0 };
        Seen { now, index, counts, record: is_due.then_some(record), known_from }
    }

    /// Puts the counts into the first word, or first what falls off there into the second.
    fn change<A>(self, words: &[LaneWord], seen: &Seen, current: u64, answer: A) -> Choice<A> {
        let [first, second] = both(words);
        if let Some(record) = seen.record {
            let next = Some(self.put(second, record));
            return Choice { cell: SECOND, outcome: Outcome { next, answer }, again: true };
        }
        let next = self.put(first, Counts { index: seen.index, previous: seen.counts[1], current });
        Choice::at(FIRST, Outcome { next: (next != first).then_some(next), answer })
    }
}

/// The two words of a lane; nothing was charged to those that are not there.
fn both(words: &[LaneWord]) -> [LaneWord; 2] {
    [FIRST, SECOND].map(|word| words.get(word).copied().unwrap_or_default())
}

/// Charges `cost`, if there is room for it.
pub(crate) fn step(
    frame: Frame,
    words: &[LaneWord],
    now: Tick,
    limit: CountLimit,
    cost: u64,
) -> Choice<Result<Verdict, Error>> {
    if let Some(error) = limit.error(cost) {
        return Choice::of(Outcome { next: None, answer: Err(error) });
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
/// if it has any of that, else off the second.
pub(crate) fn refund(frame: Frame, words: &[LaneWord], now: Tick, limit: CountLimit, cost: u64) -> Choice<Refunded> {
    let [first, second] = both(words);
    let index = frame.seen(words, now).index;
    let [hot, cold] = [first, second].map(|word| frame.counts(word).counting_at(index));
    let told = |words, rest| Refunded { status: status(frame, words, now, limit), rest };
    let (left, taken) = hot.less(cost);
    if taken > 0 {
        let is_empty = left.is_zero() && cold.is_zero();
        let next = if is_empty { frame.emptied(first, now) } else { frame.put(first, left) };
        let rest = if cold.is_zero() { 0 } else { cost - taken };
        return Choice::at(FIRST, Outcome { next: Some(next), answer: told(&[next, second], rest) });
    }
    let (left, taken) = cold.less(cost);
    let next = frame.put(second, left);
    let is_changed = taken > 0;
    let after = if is_changed { next } else { second };
    Choice::at(SECOND, Outcome { next: is_changed.then_some(next), answer: told(&[first, after], 0) })
}

/// How much may be given back, of what still counts and is not `reserved` of
/// its part. A refund takes what was charged last: where something of that is
/// reserved, it does not go on to the parts before.
pub(crate) fn refundable(frame: Frame, words: &[LaneWord], now: Tick, reserved: impl Fn(u64) -> u64) -> u64 {
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

/// The number of the part that a charge made this word of.
pub(crate) fn receipt(frame: Frame, word: LaneWord) -> u64 {
    frame.counts(word).index
}

/// Takes back a charge that was made in the part of this number.
pub(crate) fn undo(frame: Frame, words: &[LaneWord], part: u64, cost: u64) -> Choice<()> {
    let words = both(words);
    let cell = if frame.counts(words[FIRST]).has(part) { FIRST } else { SECOND };
    let before = frame.counts(words[cell]);
    let after = before.less_of(part, cost);
    Choice::at(cell, Outcome { next: (after != before).then(|| frame.put(words[cell], after)), answer: () })
}

/// Charges `cost` whatever the limit says, up to what the word can count.
pub(crate) fn force(frame: Frame, words: &[LaneWord], now: Tick, cost: u64) -> Choice<()> {
    let seen = frame.seen(words, now);
    frame.change(words, &seen, seen.with(cost).counts[0].min(frame.count_max()), ())
}

/// The window as it stands.
pub(crate) fn status(frame: Frame, words: &[LaneWord], now: Tick, limit: CountLimit) -> Status {
    let seen = frame.seen(words, now);
    let remaining = limit.count().saturating_sub(seen.charged(limit));
    // One more than now is the room for a cost of that many.
    let next_in = if remaining < limit.count() { seen.wait(frame, limit.count(), remaining + 1) } else { 0 };
    Status::counted(limit.count(), remaining, next_in, seen.empty_in(frame))
}

/// How full of charges the window is: 0 for not at all, `u32::MAX` for all of its limit.
pub(crate) fn load(frame: Frame, words: &[LaneWord], now: Tick, limit: CountLimit) -> u64 {
    limit.share(frame.seen(words, now).charged(limit))
}
