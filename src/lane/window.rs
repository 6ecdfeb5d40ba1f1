//! So many per trailing window, by the weighted counter of two windows.
//!
//! Time is cut into windows of one length. The word holds the number of a
//! window, how much was charged in it, and how much in the one before:
//!
//! ```text
//!  63                  4+2c 4+c        4 3        0
//! ┌────────────────────────┬────────┬─────────┬──────────┐
//! │ index, 60 - 2c bits    │previous│ current │generation│   c as large as the index leaves room for
//! └────────────────────────┴────────┴─────────┴──────────┘
//! ```
//!
//! ```text
//! index     = floor(now / length)
//! estimate  = ceil(previous * (length - elapsed) / length) + current
//! allowed  <=> estimate + cost <= limit
//! ```
//!
//! The estimate takes what was charged in the window before for spread evenly.
//!
//! # What an adversary gets through
//!
//! In any trailing window of the full length at most `2 * limit - 1`, and in
//! any span of `s` at most `limit * (1 + s / length)`. Say the trailing window
//! ends `e` into window *i*, where *c* was charged, and *P* in the window
//! before. *P* is at most the limit, since the estimate counts all of a
//! window's own charges. When the last of the *c* passed, at `f <= e`,
//! `P * (1 - f / length) + c <= limit`; so `P + c <= limit + P * f / length`.
//! `f` is less than the length, and with the share of *P* rounded up *c* is at
//! most `limit - 1` if there was any *P*: together at most `2 * limit - 1`.
//! It is reached by who charges all of the limit in the last instant of a
//! window, and then one by one as the estimate falls. A limit that must hold
//! in *every* trailing window needs the exact kind.
//!
//! Who charges evenly, or all at once early in a window, gets no more than the
//! limit in any trailing window; unlike a bucket, nothing comes back before
//! the window has ended.
//!
//! A word of which the previous count is all ones says that nothing was
//! charged; its current count is then salt, so that words do not return when
//! the generations start over. An index from the future, which an older `now`
//! meets, is taken as it is: the answer is as of the start of that window,
//! where the estimate is largest. If nothing was charged there, nobody knows
//! what was charged before, and the answer is a denial until it begins.

use super::{Decision, LaneWord, Outcome, RETRY_NEVER, Status, Verdict, counted::CountLimit};
use crate::clock::Tick;
use crate::error::Error;
use crate::policy::Frame;

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    index: u64,
    previous: u64,
    current: u64,
}

/// What a word says at an instant.
#[derive(Clone, Copy, Debug)]
struct Seen {
    counts: Counts,
    /// How much of its window has passed.
    elapsed: u64,
    /// How far its window lies ahead of an older `now`.
    ahead: u64,
    /// Whether what was charged before that window is not known.
    is_unknown: bool,
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

    /// The same tenancy with nothing charged, in the window of `time` or later.
    /// The salt stays, if there is one. Of what was charged before, nothing is
    /// known any more: an older `now` is denied until that window begins.
    pub(crate) fn emptied(self, word: LaneWord, time: Tick) -> LaneWord {
        let payload = word.payload();
        let salt = if self.is_emptied(word) { payload & self.ones() } else { 0 };
        let index = self.counts(word).index.max(time.as_nanos() / self.length);
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

    /// The word as it is at `floor`, if that is later: no charge to come is
    /// made as of an earlier instant.
    pub(crate) fn lifted(self, word: LaneWord, floor: Tick) -> LaneWord {
        let Seen { counts, .. } = self.seen(word, floor);
        if counts.previous == 0 && counts.current == 0 { self.emptied(word, floor) } else { self.put(word, counts) }
    }

    /// Whether nothing that was charged counts at `now`.
    pub(crate) fn is_idle(self, word: LaneWord, now: Tick) -> bool {
        let Seen { counts, is_unknown, .. } = self.seen(word, now);
        counts.previous == 0 && counts.current == 0 && !is_unknown
    }

    fn seen(self, word: LaneWord, now: Tick) -> Seen {
        let (now, counts) = (now.as_nanos(), self.counts(word));
        let (index, elapsed) = (now / self.length, now % self.length);
        let counts = match index.checked_sub(counts.index) {
            None => {
                let ahead = counts.index.saturating_mul(self.length) - now;
                return Seen { counts, elapsed: 0, ahead, is_unknown: self.is_emptied(word) };
            }
            Some(0) => counts,
            Some(1) => Counts { index, previous: counts.current, current: 0 },
            Some(_) => Counts { index, previous: 0, current: 0 },
        };
        Seen { counts, elapsed, ahead: 0, is_unknown: false }
    }

    /// What counts as charged: all of the limit, if it is not known.
    fn estimate(self, seen: Seen, limit: CountLimit) -> u64 {
        let Seen { counts: Counts { previous, current, .. }, elapsed, is_unknown, .. } = seen;
        if is_unknown { limit.count() } else { self.weighted(previous, elapsed) + current }
    }

    /// What the window before still counts for, rounded up.
    fn weighted(self, previous: u64, elapsed: u64) -> u64 {
        let product = u128::from(previous) * u128::from(self.length - elapsed);
        // No more than `previous`, which is a `u64`.
        product.div_ceil(u128::from(self.length)) as u64
    }

    /// How far a window must have elapsed so that `previous` counts for at
    /// most `most`. Up to the whole length.
    fn elapsed_until(self, previous: u64, most: u64) -> u64 {
        if previous <= most {
            return 0;
        }
        // previous * (length - elapsed) <= most * length. The quotient is less than the length.
        let left = u128::from(most) * u128::from(self.length) / u128::from(previous);
        self.length - left as u64
    }

    /// How long until `cost` passes, if nothing more is charged. It is at most the limit.
    fn wait(self, seen: Seen, limit: u64, cost: u64) -> u64 {
        let Seen { counts: Counts { previous, current, .. }, elapsed, ahead, .. } = seen;
        let within = match limit.saturating_sub(cost).checked_sub(current) {
            Some(most) => self.elapsed_until(previous, most).saturating_sub(elapsed),
            // Not in this window: in the next, this one is the one before.
            None => self.length - elapsed + self.elapsed_until(current, limit.saturating_sub(cost)),
        };
        ahead.saturating_add(within)
    }

    /// How long until nothing counts any more.
    fn empty_in(self, seen: Seen) -> u64 {
        let Seen { counts: Counts { previous, current, .. }, elapsed, ahead, is_unknown } = seen;
        let windows = if current > 0 { 2 } else { u64::from(previous > 0) };
        if windows == 0 && !is_unknown { 0 } else { ahead.saturating_add(windows * self.length - elapsed) }
    }
}

/// Charges `cost`, if the estimate leaves room for it.
pub(crate) fn step(
    frame: Frame,
    word: LaneWord,
    now: Tick,
    limit: CountLimit,
    cost: u64,
) -> Outcome<Result<Verdict, Error>> {
    if let Some(error) = limit.error(cost) {
        return Outcome { next: None, answer: Err(error) };
    }
    let seen = frame.seen(word, now);
    let estimate = frame.estimate(seen, limit);
    let verdict = |decision, estimate, wait, seen| {
        let remaining = limit.count().saturating_sub(estimate);
        Verdict::counted(decision, limit.count(), remaining, wait, frame.empty_in(seen), frame.length)
    };
    let charged = estimate.saturating_add(cost);
    if charged > limit.count() || now == Tick::MAX {
        let wait = if now == Tick::MAX { RETRY_NEVER } else { frame.wait(seen, limit.count(), cost) };
        return Outcome { next: None, answer: Ok(verdict(Decision::Deny, estimate, wait, seen)) };
    }
    let counts = Counts { current: seen.counts.current + cost, ..seen.counts };
    let decision = limit.decision(limit.count() - charged);
    let answer = Ok(verdict(decision, charged, 0, Seen { counts, ..seen }));
    Outcome { next: Some(frame.put(word, counts)), answer }
}

/// Takes `cost` off what was charged last, in the window of this word and the one before.
pub(crate) fn refund(frame: Frame, word: LaneWord, now: Tick, limit: CountLimit, cost: u64) -> Outcome<Status> {
    let seen = frame.seen(word, now);
    let Counts { index, previous, current } = seen.counts;
    let of_current = cost.min(current);
    let counts = Counts { index, previous: previous.saturating_sub(cost - of_current), current: current - of_current };
    let is_changed = counts != seen.counts;
    let next =
        if counts.previous == 0 && counts.current == 0 { frame.emptied(word, now) } else { frame.put(word, counts) };
    Outcome { next: is_changed.then_some(next), answer: told(frame, Seen { counts, ..seen }, limit) }
}

/// The number of the window that a charge made this word of.
pub(crate) fn receipt(frame: Frame, word: LaneWord) -> u64 {
    frame.counts(word).index
}

/// Takes back a charge that was made in the window of this number.
pub(crate) fn undo(frame: Frame, word: LaneWord, window: u64, cost: u64) -> Outcome<()> {
    let before = frame.counts(word);
    let after = match before.index.checked_sub(window) {
        Some(0) => Counts { current: before.current.saturating_sub(cost), ..before },
        Some(1) => Counts { previous: before.previous.saturating_sub(cost), ..before },
        _ => before,
    };
    Outcome { next: (after != before).then(|| frame.put(word, after)), answer: () }
}

/// Charges `cost` whatever the limit says, up to what the word can count.
pub(crate) fn force(frame: Frame, word: LaneWord, now: Tick, cost: u64) -> Outcome<()> {
    let counts = frame.seen(word, now).counts;
    let current = counts.current.saturating_add(cost).min(frame.count_max());
    let next = frame.put(word, Counts { current, ..counts });
    Outcome { next: (next != word).then_some(next), answer: () }
}

/// The window as it stands.
pub(crate) fn status(frame: Frame, word: LaneWord, now: Tick, limit: CountLimit) -> Status {
    told(frame, frame.seen(word, now), limit)
}

fn told(frame: Frame, seen: Seen, limit: CountLimit) -> Status {
    let estimate = frame.estimate(seen, limit);
    let remaining = limit.count().saturating_sub(estimate);
    // One more than now is the room for a cost of that many.
    let next_in = if remaining < limit.count() { frame.wait(seen, limit.count(), remaining + 1) } else { 0 };
    Status::counted(limit.count(), remaining, next_in, frame.empty_in(seen))
}

/// How full of charges the window is: 0 for not at all, `u32::MAX` for all of its limit.
pub(crate) fn load(frame: Frame, word: LaneWord, now: Tick, limit: CountLimit) -> u64 {
    limit.share(frame.estimate(frame.seen(word, now), limit))
}
