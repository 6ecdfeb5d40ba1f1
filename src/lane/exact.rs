//! Never more than n in any trailing window: n permits, each of which rests
//! for one window after its use.
//!
//! Each permit is a word of the record: the instant at which it has rested.
//! That is what a bucket of one token is, so everything that holds for the
//! words of buckets (what is idle, what is inherited, the instant to which a
//! claim lifts them) holds for permits.
//!
//! A charge at `now` takes a permit that has rested and sends it to rest until
//! `now + length`. A permit passes at most once in any span that is shorter
//! than the length, so n of them pass at most n in any window (t - length, t],
//! whatever the interleaving: that is a property of each word alone. And it is
//! not stricter than that: if fewer than n were let through in the window that
//! ends now, then fewer than n permits are at rest.
//!
//! A denial needs more than one word: it looks at all of them again, and holds
//! if none has changed, so that there was a moment at which none had rested.

use super::counted::CountLimit;
use super::{Choice, Decision, LaneWord, Outcome, RETRY_NEVER, Status, Verdict};
use crate::bounds::EXACT_MAX;
use crate::clock::Tick;
use crate::error::Error;
use std::time::Duration;

/// The permits that the limit allows: a plan may have fewer than there are words.
fn permits(words: &[LaneWord], limit: CountLimit) -> &[LaneWord] {
    let count = usize::try_from(limit.count()).unwrap_or(usize::MAX).min(words.len());
    &words[..count]
}

/// How many may be taken at `now`, and for how long the first and the last of
/// the others will rest.
///
/// After a change to fewer permits, those beyond them that are still at rest
/// count as well. They are no longer taken, so callers that race just then may
/// take as many more.
fn told(words: &[LaneWord], now: Tick, limit: CountLimit) -> (u64, u64, u64) {
    let rest = |word: &LaneWord| word.time().as_nanos().saturating_sub(now.as_nanos());
    let resting = |words: &[LaneWord]| words.iter().filter(|word| rest(word) > 0).count() as u64;
    let permits = permits(words, limit);
    let left = limit.count().saturating_sub(resting(words)).min(permits.len() as u64 - resting(permits));
    let first = words.iter().map(rest).filter(|rest| *rest > 0).min().unwrap_or(0);
    (left, first, words.iter().map(rest).max().unwrap_or(0))
}

/// Takes a permit that has rested.
pub(crate) fn step(
    length: u64,
    words: &[LaneWord],
    now: Tick,
    limit: CountLimit,
    cost: u64,
) -> Choice<Result<Verdict, Error>> {
    let error = match cost {
        0 => Some(Error::ZeroCost),
        1 => None,
        _ => Some(Error::CostAboveCapacity { cost, capacity: 1 }),
    };
    if let Some(error) = error {
        return Choice::of(Outcome { next: None, answer: Err(error) });
    }
    let (rested, first, last) = told(words, now, limit);
    let until = now.saturating_add(Duration::from_nanos(length));
    let verdict = |decision, left, wait, last| Ok(Verdict::counted(decision, limit.count(), left, wait, last, length));
    // The one that has rested longest, so that the words differ.
    let permits = permits(words, limit).iter().enumerate();
    let free = permits.filter(|(_, word)| rested > 0 && word.time() <= now).min_by_key(|(_, word)| word.time());
    match free {
        Some((cell, word)) if until < Tick::MAX => {
            let (left, last) = (rested - 1, last.max(length));
            let answer = verdict(limit.decision(left), left, 0, last);
            Choice { cell, outcome: Outcome { next: Some(word.at(until)), answer } }
        }
        Some(_) => Choice::of(Outcome { next: None, answer: verdict(Decision::Deny, rested, RETRY_NEVER, last) }),
        None => Choice::of(Outcome { next: None, answer: verdict(Decision::Deny, 0, first, last) }),
    }
}

/// Ends the rest of the permit that was used last.
pub(crate) fn refund(words: &[LaneWord], now: Tick, limit: CountLimit) -> Choice<Status> {
    let resting = words.iter().enumerate().filter(|(_, word)| word.time() > now);
    let Some((cell, word)) = resting.max_by_key(|(_, word)| word.time()) else {
        return Choice::of(Outcome { next: None, answer: status(words, now, limit) });
    };
    let rested = word.at(now);
    let mut after = [LaneWord::default(); EXACT_MAX as usize];
    after[..words.len()].copy_from_slice(words);
    after[cell] = rested;
    Choice { cell, outcome: Outcome { next: Some(rested), answer: status(&after[..words.len()], now, limit) } }
}

/// Takes back a charge: the permit that rests until then has rested.
pub(crate) fn undo(words: &[LaneWord], now: Tick, until: Tick) -> Choice<()> {
    match words.iter().enumerate().find(|(_, word)| word.time() == until && until > now) {
        Some((cell, word)) => Choice { cell, outcome: Outcome { next: Some(word.at(now)), answer: () } },
        None => Choice::of(Outcome { next: None, answer: () }),
    }
}

/// Ends the rest of one permit; `None` if none is at rest.
pub(crate) fn rest_ended(words: &[LaneWord], now: Tick) -> Option<(usize, LaneWord)> {
    words.iter().enumerate().find(|(_, word)| word.time() > now).map(|(cell, word)| (cell, word.at(now)))
}

/// The permits as they stand.
pub(crate) fn status(words: &[LaneWord], now: Tick, limit: CountLimit) -> Status {
    let (rested, first, last) = told(words, now, limit);
    Status::counted(limit.count(), rested, first, last)
}

/// How many permits are at rest, as a share: `u32::MAX` for all of them.
pub(crate) fn load(words: &[LaneWord], now: Tick, limit: CountLimit) -> u64 {
    let (rested, ..) = told(words, now, limit);
    limit.share(limit.count().saturating_sub(rested))
}
