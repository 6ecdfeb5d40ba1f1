//! At most so many at once: connections, say.
//!
//! ```text
//!  63                        24 23          4 3        0
//! ┌────────────────────────────┬─────────────┬──────────┐
//! │       salt, 40 bits        │ held, 20    │generation│
//! └────────────────────────────┴─────────────┴──────────┘
//! ```
//!
//! Time plays no part in it. The salt means nothing; it moves on when the
//! generations start over, so that words do not return.

use super::counted::CountLimit;
use super::{Decision, LaneWord, Outcome, RETRY_NEVER, Status, Verdict};
use crate::bounds::HELD_MAX;
use crate::error::Error;

const HELD_BITS: u32 = 20;
const HELD_MASK: u64 = (1 << HELD_BITS) - 1;
const _: () = assert!(HELD_MAX <= HELD_MASK);

fn put(word: LaneWord, held: u64) -> LaneWord {
    word.with_payload(word.payload() & !HELD_MASK | held.min(HELD_MASK))
}

pub(crate) fn count(word: LaneWord) -> u64 {
    word.payload() & HELD_MASK
}

/// The same tenancy with nothing held.
pub(crate) fn emptied(word: LaneWord) -> LaneWord {
    put(word, 0)
}

/// The word with its salt moved on.
pub(crate) fn salted(word: LaneWord) -> LaneWord {
    // The salt is at the top of the payload, so it wraps by itself.
    word.with_payload(word.payload().wrapping_add(1 << HELD_BITS) & ((1 << crate::clock::TICK_BITS) - 1))
}

/// Takes `cost` slots, if so many are free. How long a denied caller has to
/// wait nobody knows.
pub(crate) fn step(word: LaneWord, limit: CountLimit, cost: u64) -> Outcome<Result<Verdict, Error>> {
    if let Some(error) = limit.error(cost) {
        return Outcome { next: None, answer: Err(error) };
    }
    let held = count(word);
    let left = limit.count().saturating_sub(held);
    let told = |decision, left, wait| Ok(Verdict::counted(decision, limit.count(), left, wait, 0, 0));
    if cost > left {
        return Outcome { next: None, answer: told(Decision::Deny, left, RETRY_NEVER) };
    }
    Outcome { next: Some(put(word, held + cost)), answer: told(limit.decision(left - cost), left - cost, 0) }
}

/// Gives `cost` slots back. Those that are not held are an error.
pub(crate) fn release(word: LaneWord, cost: u64) -> Outcome<Result<(), Error>> {
    match count(word).checked_sub(cost) {
        _ if cost == 0 => Outcome { next: None, answer: Err(Error::ZeroCost) },
        Some(held) => Outcome { next: Some(put(word, held)), answer: Ok(()) },
        None => Outcome { next: None, answer: Err(Error::NotHeld { held: count(word), released: cost }) },
    }
}

/// The slots as they stand.
pub(crate) fn status(word: LaneWord, limit: CountLimit) -> Status {
    Status::counted(limit.count(), limit.count().saturating_sub(count(word)), RETRY_NEVER, 0)
}
