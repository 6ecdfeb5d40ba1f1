//! So many per calendar window: LLM tokens per day, say.
//!
//! ```text
//!  63            44 43                      4 3        0
//! ┌────────────────┬─────────────────────────┬──────────┐
//! │ window, 20 bits│     used, 40 bits       │generation│
//! └────────────────┴─────────────────────────┴──────────┘
//! ```
//!
//! The window's number comes from the calendar, which never goes back
//! ([`clock::wall`](crate::clock::wall)); and a number from the future, which
//! an older `now` meets, is taken as it is. So what was used in a window counts
//! until the next begins, whatever becomes of the wall clock.
//!
//! More than [`CAPACITY_MAX`] used says that nothing was, and is salt, so that
//! words do not return when the generations start over.

use super::counted::CountLimit;
use super::{Finding, LaneWord, Outcome, RETRY_NEVER, Status, Verdict};
use crate::bounds::CAPACITY_MAX;
use crate::clock::{At, Tick};
use crate::error::Error;
use crate::policy::{Era, INDEX_BITS};
#[cfg(feature = "persist")]
use std::cmp::Ordering;

const USED_BITS: u32 = 40;
const USED_MASK: u64 = (1 << USED_BITS) - 1;
/// The first salt.
const SALT_MIN: u64 = CAPACITY_MAX + 1;

const _: () = assert!(USED_BITS + INDEX_BITS == crate::clock::TICK_BITS && SALT_MIN < USED_MASK);

/// What a word says at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    index: u64,
    used: u64,
    /// Whether the window lies ahead, and what was used before is not known.
    is_unknown: bool,
}

fn parts(word: LaneWord) -> Seen {
    let used = word.payload() & USED_MASK;
    Seen { index: word.payload() >> USED_BITS, used: if used >= SALT_MIN { 0 } else { used }, is_unknown: false }
}

fn seen(era: Era, word: LaneWord, at: At) -> Seen {
    let (stored, index) = (parts(word), era.index(at.unix_ns()));
    let is_unknown = stored.index > index && word.payload() & USED_MASK >= SALT_MIN;
    if stored.index < index { Seen { index, used: 0, is_unknown } } else { Seen { is_unknown, ..stored } }
}

impl Seen {
    fn left(self, limit: CountLimit) -> u64 {
        if self.is_unknown { 0 } else { limit.count().saturating_sub(self.used) }
    }

    /// How long until there is more left: until the window ends, or, if what
    /// was used before it is not known, until it begins.
    fn more_in(self, era: Era, at: At) -> u64 {
        let index = if self.is_unknown { self.index.saturating_sub(1) } else { self.index };
        u64::try_from(era.end(index).saturating_sub(at.unix_ns())).unwrap_or(0)
    }
}

fn put(word: LaneWord, seen: Seen) -> LaneWord {
    word.with_payload(seen.index << USED_BITS | seen.used.min(CAPACITY_MAX))
}

/// The same tenancy with nothing used, in the window of `floor` or later. Of
/// what was used before, nothing is known any more: an older `now` is denied
/// until that window begins.
pub(crate) fn emptied(era: Era, word: LaneWord, floor: At) -> LaneWord {
    let salt = (word.payload() & USED_MASK).max(SALT_MIN);
    word.with_payload(parts(word).index.max(era.index(floor.unix_ns())) << USED_BITS | salt)
}

/// The word with its salt moved on; `None` if something was used.
pub(crate) fn salted(word: LaneWord) -> Option<LaneWord> {
    let salt = word.payload() & USED_MASK;
    let next = if salt == USED_MASK { SALT_MIN } else { salt + 1 };
    (salt >= SALT_MIN).then(|| word.with_payload(word.payload() & !USED_MASK | next))
}

/// Whether nothing is used of the window of `at`.
pub(crate) fn is_idle(era: Era, word: LaneWord, at: At) -> bool {
    let Seen { used, is_unknown, .. } = seen(era, word, at);
    used == 0 && !is_unknown
}

/// Charges `cost`, if so much is left of the window.
pub(crate) fn step(era: Era, word: LaneWord, at: At, limit: CountLimit, cost: u64) -> Outcome<Result<Verdict, Error>> {
    if let Some(error) = limit.error(cost) {
        return Outcome { next: None, answer: Err(error) };
    }
    let seen = seen(era, word, at);
    let (left, more_in) = (seen.left(limit), seen.more_in(era, at));
    let told = |decision, remaining, wait, used| {
        let full_in = if used == 0 && !seen.is_unknown { 0 } else { more_in };
        Ok(Verdict::counted(decision, limit.count(), remaining, wait, full_in, era.length_ns()))
    };
    if cost > left || at.now == Tick::MAX {
        let wait = if at.now == Tick::MAX { RETRY_NEVER } else { more_in };
        return Outcome { next: None, answer: told(Finding::DENY, left, wait, seen.used) };
    }
    let used = seen.used + cost;
    let answer = told(limit.decision(left - cost), left - cost, 0, used);
    Outcome { next: Some(put(word, Seen { used, ..seen })), answer }
}

/// Gives `cost` back. Of a window that is over nothing comes back.
pub(crate) fn refund(era: Era, word: LaneWord, at: At, limit: CountLimit, cost: u64) -> Outcome<Status> {
    let before = seen(era, word, at);
    let used = before.used.saturating_sub(cost);
    let after = Seen { used, ..before };
    let next = if used == 0 { emptied(era, word, at) } else { put(word, after) };
    Outcome { next: (after != before).then_some(next), answer: told(era, after, at, limit) }
}

/// How much may be given back, of what is used and not `reserved` of its window.
pub(crate) fn refundable(era: Era, word: LaneWord, at: At, reserved: impl Fn(u64) -> u64) -> u64 {
    let Seen { index, used, .. } = seen(era, word, at);
    used.saturating_sub(reserved(index))
}

/// The number of the window in which something is used, and how much, unless
/// that window is over in this one.
#[cfg(feature = "persist")]
pub(crate) fn used(word: LaneWord, now: u64) -> Option<(u64, u64)> {
    let Seen { index, used, .. } = parts(word);
    (used > 0 && index >= now).then_some((index, used))
}

/// A window's number and what is used of it as one number, which is 0 only if
/// nothing is.
#[cfg(feature = "persist")]
pub(crate) fn packed(window: u64, used: u64) -> u64 {
    if used == 0 { 0 } else { window << USED_BITS | used }
}

/// What was [`packed`].
#[cfg(feature = "persist")]
pub(crate) fn unpacked(word: u64) -> (u64, u64) {
    (word >> USED_BITS, word & USED_MASK)
}

/// Adds what was used of a window before a restart, unless another has begun since.
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

/// The number of the window that a charge made this word of.
pub(crate) fn receipt(word: LaneWord) -> u64 {
    parts(word).index
}

/// Takes back a charge that was made in the window of this number. Of one that
/// is over, nothing comes back.
pub(crate) fn undo(era: Era, word: LaneWord, at: At, window: u64, cost: u64) -> Outcome<()> {
    let before = parts(word);
    if before.index != window || before.used == 0 {
        return Outcome { next: None, answer: () };
    }
    let used = before.used.saturating_sub(cost);
    let next = if used == 0 { emptied(era, word, at) } else { put(word, Seen { used, ..before }) };
    Outcome { next: Some(next), answer: () }
}

/// Charges `cost` whatever the limit says, up to what the word can count.
pub(crate) fn force(era: Era, word: LaneWord, at: At, cost: u64) -> Outcome<()> {
    let seen = seen(era, word, at);
    let next = put(word, Seen { used: seen.used.saturating_add(cost), ..seen });
    Outcome { next: (next != word).then_some(next), answer: () }
}

/// The budget as it stands.
pub(crate) fn status(era: Era, word: LaneWord, at: At, limit: CountLimit) -> Status {
    told(era, seen(era, word, at), at, limit)
}

fn told(era: Era, seen: Seen, at: At, limit: CountLimit) -> Status {
    let more_in = if seen.used == 0 && !seen.is_unknown { 0 } else { seen.more_in(era, at) };
    Status::counted(limit.count(), seen.left(limit), more_in, more_in)
}

#[cfg(all(test, not(loom)))]
mod edges;
