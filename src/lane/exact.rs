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
use super::kind::Receipt;
use super::{Choice, Finding, LaneWord, Outcome, RETRY_NEVER, Status, Verdict};
use crate::bounds::EXACT_MAX;
use crate::clock::Tick;
use crate::error::Error;
use std::time::Duration;

/// As far as 160,000 changes of limits move the end of a rest.
const DRIFT_MAX: Duration = Duration::from_micros(10);

/// The permits that the limit allows: a plan may have fewer than there are words.
fn permits(words: &[LaneWord], limit: CountLimit) -> &[LaneWord] {
    let count = usize::try_from(limit.count()).unwrap_or(usize::MAX).min(words.len());
    &words[..count]
}

/// For how long a permit is still to rest.
fn rest(word: LaneWord, now: Tick) -> u64 {
    word.time().as_nanos().saturating_sub(now.as_nanos())
}

/// How many may be taken at `now`, and how long until all have rested.
///
/// After a change to fewer permits, those beyond them that are still at rest
/// count as well. They are no longer taken, so callers that race just then may
/// take as many more.
fn told(words: &[LaneWord], now: Tick, limit: CountLimit) -> (u64, u64) {
    let resting = |words: &[LaneWord]| words.iter().filter(|word| rest(**word, now) > 0).count() as u64;
    let permits = permits(words, limit);
    let left = limit.count().saturating_sub(resting(words)).min(permits.len() as u64 - resting(permits));
    (left, words.iter().map(|word| rest(*word, now)).max().unwrap_or(0))
}

/// How long until `cost` permits may be taken, if none is meanwhile.
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

/// What taking `cost` permits comes to, at least one.
pub(crate) fn answer(
    length: u64,
    words: &[LaneWord],
    now: Tick,
    limit: CountLimit,
    cost: u64,
) -> Result<Verdict, Error> {
    if let Some(error) = limit.error(cost) {
        return Err(error);
    }
    let (left, last) = told(words, now, limit);
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
pub(crate) fn step(
    length: u64,
    words: &[LaneWord],
    now: Tick,
    limit: CountLimit,
    cost: u64,
) -> Choice<Result<Verdict, Error>> {
    let answer = match cost {
        0 => Err(Error::ZeroCost),
        1 => answer(length, words, now, limit, 1),
        _ => Err(Error::CostAboveCapacity { cost, capacity: 1 }),
    };
    let is_allowed = answer.as_ref().is_ok_and(Verdict::is_allowed);
    // The one that has rested longest, so that the words differ.
    let permits = permits(words, limit).iter().enumerate();
    let free = permits.filter(|(_, word)| is_allowed && word.time() <= now).min_by_key(|(_, word)| word.time());
    let (cell, next) = free.map_or((0, None), |(cell, word)| (cell, Some(word.at(rests_until(now, length)))));
    Choice::at(cell, Outcome { next, answer })
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
    Choice::at(cell, Outcome { next: Some(rested), answer: status(&after[..words.len()], now, limit) })
}

/// Takes back a charge that was to be made only together with others: its
/// permit has rested since then. Unless it was reset, nobody else can have taken
/// it meanwhile; if a refund ended its rest, the charge that was refunded stays,
/// which is stricter.
///
/// Every sixteenth change of limits moves the end of its rest by a nanosecond
/// (`Kind::moved_on` in `record/succession.rs`), and a caller that stalls may
/// meet many: up to [`DRIFT_MAX`] it is the same rest.
pub(crate) fn roll_back(words: &[LaneWord], charge: Receipt) -> Choice<()> {
    let until = charge.word.time();
    let ends = until..=until.saturating_add(DRIFT_MAX);
    let permit = words.get(charge.cell).filter(|word| ends.contains(&word.time()));
    let next = permit.map(|word| word.at(charge.at)).filter(|_| until > charge.at);
    Choice::at(charge.cell, Outcome { next, answer: () })
}

/// The permits as they stand.
pub(crate) fn status(words: &[LaneWord], now: Tick, limit: CountLimit) -> Status {
    let (left, last) = told(words, now, limit);
    Status::counted(limit.count(), left, wait(words, now, limit, left.saturating_add(1)), last)
}

/// How many permits are at rest, as a share: `u32::MAX` for all of them.
pub(crate) fn load(words: &[LaneWord], now: Tick, limit: CountLimit) -> u64 {
    let (left, _) = told(words, now, limit);
    limit.share(limit.count().saturating_sub(left))
}
