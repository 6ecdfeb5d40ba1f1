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
use super::{Finding, LaneWord, Outcome, RETRY_NEVER, Status, Verdict};
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
        return Outcome { next: None, answer: told(Finding::DENY, left, RETRY_NEVER) };
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::TICK_BITS;
    use crate::lane::Decision;

    const LIMIT: CountLimit = CountLimit::new(10, 20);

    /// With a salt, in a generation of its own.
    fn word(held: u64) -> LaneWord {
        LaneWord::default().next_generation().with_payload(77 << HELD_BITS | held)
    }

    #[test]
    fn slots_are_counted_and_the_salt_stays() {
        for (held, cost, decision, left) in [
            (0, 8, Decision::Allow, 2),
            (1, 8, Decision::Warn, 1),
            (3, 7, Decision::Warn, 0),
            (3, 8, Decision::Deny, 7),
        ] {
            let Outcome { next, answer } = step(word(held), LIMIT, cost);
            let verdict = answer.unwrap();
            assert_eq!((verdict.decision(), verdict.remaining()), (decision, left), "{held} and {cost}");
            assert_eq!(next, (decision != Decision::Deny).then(|| word(held + cost)));
            assert_eq!(verdict.retry_after_ns, if decision == Decision::Deny { RETRY_NEVER } else { 0 });
        }
        assert_eq!(step(word(3), LIMIT, 0).answer, Err(Error::ZeroCost));
        assert_eq!((count(word(3)), emptied(word(3))), (3, word(0)));
        let seen = status(word(3), LIMIT);
        assert_eq!((seen.remaining, seen.next_in_ns, seen.full_in_ns), (7, RETRY_NEVER, 0));
        assert_eq!(put(word(3), u64::MAX), word(HELD_MASK));
    }

    #[test]
    fn only_what_is_held_is_released() {
        assert_eq!(release(word(3), 2), Outcome { next: Some(word(1)), answer: Ok(()) });
        assert_eq!(release(word(3), 3), Outcome { next: Some(word(0)), answer: Ok(()) });
        assert_eq!(release(word(3), 0), Outcome { next: None, answer: Err(Error::ZeroCost) });
        assert_eq!(release(word(3), 4), Outcome { next: None, answer: Err(Error::NotHeld { held: 3, released: 4 }) });
    }

    #[test]
    fn the_salt_moves_on_and_starts_over() {
        assert_eq!(salted(word(3)), word(3).with_payload(78 << HELD_BITS | 3));
        let last = word(3).with_payload(((1 << TICK_BITS) - 1) & !HELD_MASK | 3);
        assert_eq!(salted(last), last.with_payload(3));
    }
}
