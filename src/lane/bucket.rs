//! A token bucket, kept as the instant at which it will be full again.
//!
//! That is lazy refill in its purest form: one number instead of a token
//! count and the time of the last refill.
//!
//! ```text
//! token_ns    = ceil(period / tokens)          time per token, rounded up once
//! depth       = capacity * token_ns            the whole bucket, as time
//! price       = cost * token_ns
//! debt        = max(full_at - now, 0)          time needed to refill completely
//! allowed    <=> debt + price <= depth
//! full_at'    = now + debt + price
//! remaining   = floor((depth - debt - price) / token_ns)
//! retry_after = debt + price - depth           when denied
//! ```
//!
//! The same rounded `token_ns` prices a request and measures the bucket, so a
//! capacity of C admits exactly C once the bucket is full, and the rate never
//! exceeds what was configured; it falls short by less than rate / 10^9.
//! Every charge moves `full_at`, so no two charges can be mistaken for one.
//! A `now` older than the bucket's time makes the debt larger, never smaller.
//!
//! `bucket/charge.rs` is the charge itself, and `bucket/debt.rs` handles a cost
//! above the capacity.

mod charge;
pub(super) mod debt;

use super::instant::InstantWord;
use super::kind::{Kind, Receipt};
use super::limit::{Numbers, Terms};
use super::limit_error::LimitError;
use super::rules::{Charged, LimitWords, Refunded, Rules, first};
use super::text::{self, Parts, Per};
use super::{Choice, LaneState, LaneWord, Outcome};
use crate::bounds::{CAPACITY_MAX, OVERSPEND_MAX, REFILL_MAX};
use crate::clock::{At, Tick};
use crate::error::Error;
use charge::nanos;
pub(crate) use charge::{BucketLimit, Charge, odd_verdict, step, usual_verdict};
pub(super) use charge::{blocked, verdict};
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// `10/second burst 20`, perhaps with `oversize debt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BucketTerms {
    pub(super) tokens: u64,
    pub(super) per: Duration,
    pub(super) capacity: u64,
    /// Whether a cost above the capacity is taken on credit.
    pub(super) takes_oversize: bool,
}

impl Terms for BucketTerms {
    fn kind(&self) -> Kind {
        if self.takes_oversize { Kind::Debt } else { Kind::Bucket }
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn check(&self) -> Result<Numbers, LimitError> {
        self.numbers().map(Numbers::Bucket)
    }
}

impl BucketTerms {
    /// A limit without a keyword is a bucket.
    pub(super) const KEYWORD: &str = "";

    /// The checked numbers.
    pub(super) fn numbers(&self) -> Result<BucketNumbers, LimitError> {
        let Self { tokens, per, capacity, .. } = *self;
        if tokens == 0 || capacity == 0 {
            return Err(LimitError::Zero);
        }
        if per.is_zero() {
            return Err(LimitError::ZeroPeriod);
        }
        if capacity > CAPACITY_MAX {
            return Err(LimitError::Capacity { capacity });
        }
        // Rounded up once, here: a token never takes less time than configured.
        let token_ns = per.as_nanos().div_ceil(u128::from(tokens));
        if u64::try_from(per.as_nanos()).is_err() {
            return Err(LimitError::TooSlow { tokens, per, capacity });
        }
        if u128::from(tokens) > per.as_nanos() {
            return Err(LimitError::TooFast { tokens, per });
        }
        match u64::try_from(token_ns).ok().and_then(NonZeroU64::new) {
            Some(token_ns) if u128::from(token_ns.get()) * u128::from(capacity) < REFILL_MAX.as_nanos() => {
                Ok(BucketNumbers { token_ns, capacity })
            }
            _ => Err(LimitError::TooSlow { tokens, per, capacity }),
        }
    }

    /// `None` if it is something else.
    pub(super) fn read(parts: &mut Parts<'_>) -> Result<Option<Self>, LimitError> {
        let Some((tokens, per)) = text::rate(parts)? else {
            return Ok(None);
        };
        let capacity = if parts.take("burst") { text::number_in(parts)? } else { Some(tokens) };
        let takes_oversize = match (parts.take("oversize"), parts.word()) {
            (false, "") | (true, "reject") => false,
            (true, "debt") => true,
            _ => return Ok(None),
        };
        Ok(capacity.map(|capacity| Self { tokens, per, capacity, takes_oversize }))
    }
}

impl fmt::Display for BucketTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.tokens, Per(self.per))?;
        if self.capacity != self.tokens {
            write!(f, " burst {}", self.capacity)?;
        }
        f.write_str(if self.takes_oversize { " oversize debt" } else { "" })
    }
}

/// Checked numbers: a whole bucket refills in less than [`REFILL_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BucketNumbers {
    pub(super) token_ns: NonZeroU64,
    pub(super) capacity: u64,
}

/// A token bucket.
pub(super) struct Bucket {
    /// Whether a cost above the capacity is taken on credit.
    pub(super) takes_oversize: bool,
}

impl Bucket {
    /// The rules of a lane without oversize costs.
    pub(super) const PLAIN: Self = Self { takes_oversize: false };

    /// Whether the cost is taken on credit.
    fn is_on_credit(&self, limit: BucketLimit, cost: u64) -> bool {
        self.takes_oversize && debt::is_oversize(limit, cost)
    }
}

impl Rules for Bucket {
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

    fn price(&self, before: LaneWord, charged: LaneWord, at: Tick) -> u64 {
        InstantWord::of(charged).wait(InstantWord::of(before).time().max(at))
    }

    /// A bucket whose generation moved on was filled, or is another's.
    fn outlives_its_generation(&self, _is_forgiven: bool) -> bool {
        false
    }

    fn roll_back(&self, words: &[LaneWord], latest: At, receipt: Receipt, _cost: u64) -> Choice<()> {
        Choice::of(roll_back(first(words), latest.now, receipt))
    }

    fn row(&self, numbers: Numbers, warn_below_percent: u8) -> LimitWords {
        BucketLimit::new(numbers, warn_below_percent).to_words()
    }

    fn is_exempt(&self, limit: LimitWords) -> bool {
        BucketLimit::from_words(limit).is_exempt()
    }

    /// What was taken on credit stays too.
    fn debt_max(&self, limit: LimitWords) -> u64 {
        let buckets = if self.takes_oversize { OVERSPEND_MAX } else { 1 };
        BucketLimit::from_words(limit).debt_max().saturating_mul(buckets)
    }

    fn step(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64) -> Choice<Charged> {
        let (word, limit) = (first(words), BucketLimit::from_words(limit));
        if self.is_on_credit(limit, cost) {
            return Choice::of(debt::step(word, at.now, limit, cost)).map(Charged::Oversize);
        }
        Choice::of(step(word, at.now, limit, cost)).map(Charged::Bucket)
    }

    /// What is taken on credit is charged alone: nothing else passes with it.
    fn would(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64, sum: u64) -> Charged {
        let bucket = BucketLimit::from_words(limit);
        if cost > 0 && sum > cost && self.is_on_credit(bucket, sum) {
            let (cost, capacity) = (sum, bucket.capacity());
            return Charged::Counted(Err(Error::CostAboveCapacity { cost, capacity }));
        }
        self.step(words, at, limit, if cost == 0 { 0 } else { sum }).outcome.answer
    }

    fn refund(
        &self,
        words: &[LaneWord],
        at: At,
        limit: LimitWords,
        cost: u64,
        _reserved: &dyn Fn(u64) -> u64,
    ) -> Choice<Result<Refunded, Error>> {
        let (word, limit) = (first(words), BucketLimit::from_words(limit));
        let refund = match self.is_on_credit(limit, cost) {
            true => debt::refund(word, at.now, limit, cost),
            false => refund(word, at.now, limit, cost),
        };
        Choice::of(refund).map(|state| state.map(Refunded::all))
    }

    fn force(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64) -> Choice<()> {
        Choice::of(force(first(words), at.now, BucketLimit::from_words(limit), cost))
    }

    fn state(&self, words: &[LaneWord], at: At, limit: LimitWords) -> LaneState {
        state(first(words), at.now, BucketLimit::from_words(limit))
    }

    fn load(&self, words: &[LaneWord], now: Tick, limit: LimitWords) -> u64 {
        BucketLimit::from_words(limit).debt_ratio(first(words), now)
    }
}

/// Gives `cost` tokens back, never beyond full.
pub(super) fn refund(word: LaneWord, now: Tick, limit: BucketLimit, cost: u64) -> Outcome<Result<LaneState, Error>> {
    if let Some(error) = limit.error(cost) {
        return Outcome { next: None, answer: Err(error) };
    }
    if limit.is_exempt() || limit.capacity == 0 {
        return Outcome { next: None, answer: Ok(state(word, now, limit)) };
    }
    let next = give_back(word, now, nanos(limit.price(cost))).next;
    Outcome { next, answer: Ok(state(next.unwrap_or(word), now, limit)) }
}

/// Takes back a charge that was meant to be made only together with others. Gives
/// back the part of its price that time has not paid by `latest`, which is no
/// earlier than any instant at which the bucket was charged.
///
/// # Why that is never too much
///
/// Call a charge *pending* if it was made and will be taken back. Compare the
/// word `a` with the word `b` that the bucket would have without them, and
/// write `t` for the latest instant of a charge so far. Pending charge `i` was
/// made at `t_i` for `p_i`, and `left_i = max(p_i - (t - t_i), 0)`. Then always
///
/// ```text
/// a - max(b, t) >= sum of left_i
/// ```
///
/// - A charge of `c` at `n` turns `a` into `max(a, n) + c`. If it is another's,
///   `b` becomes `max(b, n) + c`. If `n <= t`, the left side does not fall,
///   since `a >= t`. If `n > t`, then `t` becomes `n`, and the left side falls
///   by at most `n - t`, but not below 0. The right side falls by at least as
///   much, or to 0: every `left_i` that stays positive falls by `n - t`.
/// - If the charge is a pending one, the left side also grows by its price, and
///   the right side by no more.
/// - Taking back `i` lowers the left side by what is given back, which is at
///   most `left_i`, and the right side by `left_i`.
///
/// So `a >= b`: whatever the threads and instants, old ones too, every request
/// that passes would have passed without the calls that were denied. Refunds
/// keep that true if each counts in full, even one that meets a bucket that
/// would be full.
///
/// And it is hardly too little. A bucket that was full without the charge is
/// full again. On any other, the time from the charge to `latest` stays charged:
/// about a microsecond. It cannot be given back: another pending charge may have
/// hidden that the bucket was full, and the word does not show it. Nor does it
/// help that the word is the one this charge wrote, since others may have
/// charged it and taken back as much.
///
/// If the word is earlier than the charge left it, the bucket was filled
/// meanwhile and gets nothing back.
fn roll_back(word: LaneWord, latest: Tick, charge: Receipt) -> Outcome<()> {
    let Receipt { at, price, .. } = charge;
    let back = price.saturating_sub(latest.as_nanos().saturating_sub(at.as_nanos()));
    let word = InstantWord::of(word);
    let is_forgiven = word.time().as_nanos() < at.as_nanos().saturating_add(price);
    let full_at = Tick::from_nanos(word.time().as_nanos().saturating_sub(back));
    Outcome { next: (back > 0 && !is_forgiven).then(|| word.at(full_at)), answer: () }
}

/// Gives this much of a charge back, as time, never beyond full. Debt is time,
/// so this needs no limit.
pub(crate) fn give_back(word: LaneWord, now: Tick, price: u64) -> Outcome<()> {
    let full_at = InstantWord::of(word).time();
    let lowered = full_at.as_nanos().saturating_sub(price).max(now.as_nanos());
    let next = InstantWord::of(word).at(Tick::from_nanos(lowered).min(full_at));
    Outcome { next: (next != word).then_some(next), answer: () }
}

/// A change of `word` to the lower `next` that leaves at least `reserved`
/// nanoseconds of debt. `None` if nothing is left to change.
pub(crate) fn spare(word: LaneWord, next: LaneWord, now: Tick, reserved: u64) -> Option<LaneWord> {
    let [before, after] = [word, next].map(InstantWord::of);
    let least = now.saturating_add(Duration::from_nanos(reserved)).min(before.time());
    Some(after.lifted(least)).filter(|next| *next != word)
}

/// Takes `cost` tokens, into debt if need be: up to [`OVERSPEND_MAX`] times the depth.
pub(super) fn force(word: LaneWord, now: Tick, limit: BucketLimit, cost: u64) -> Outcome<()> {
    if limit.is_exempt() || limit.capacity == 0 {
        return Outcome { next: None, answer: () };
    }
    let full_at = InstantWord::of(word).time();
    let wanted = full_at.max(now).saturating_add(Duration::from_nanos(nanos(limit.price(cost))));
    let most = now.saturating_add(Duration::from_nanos(nanos(limit.depth).saturating_mul(OVERSPEND_MAX)));
    let next = InstantWord::of(word).at(wanted.min(most).max(full_at));
    Outcome { next: (next != word).then_some(next), answer: () }
}

/// How long the bucket takes to be full, in nanoseconds.
#[cfg(feature = "cluster")]
#[inline]
pub(super) fn full_in_ns(word: LaneWord, now: Tick) -> u64 {
    InstantWord::of(word).wait(now)
}

/// The bucket's state.
pub(super) fn state(word: LaneWord, now: Tick, limit: BucketLimit) -> LaneState {
    if limit.is_exempt() {
        return LaneState::EXEMPT;
    }
    let (depth, token) = (nanos(limit.depth), nanos(limit.token));
    let debt = InstantWord::of(word).wait(now);
    // Only a torn limit has no price.
    let remaining = depth.saturating_sub(debt).checked_div(token).unwrap_or(0);
    // What the bucket holds, as time, when it has one whole token more.
    let next_left = (remaining.wrapping_add(1)).min(limit.capacity).wrapping_mul(token);
    LaneState {
        remaining,
        capacity: limit.capacity,
        token_ns: token,
        window_ns: limit.capacity.saturating_mul(token),
        next_in_ns: debt.wrapping_add(next_left).saturating_sub(depth),
        full_in_ns: debt,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
