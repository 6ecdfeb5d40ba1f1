//! A token bucket, kept as the instant at which it will be full again.
//!
//! That is lazy refill in its purest form: one number in place of a token
//! count and the time of the last refill.
//!
//! ```text
//! ticks_per_token = ceil(period / tokens)          rounded up once, in the policy
//! depth           = capacity * ticks_per_token     the whole bucket, as time
//! price           = cost * ticks_per_token
//! debt            = max(full_at - now, 0)          time needed to refill completely
//! allowed        <=> debt + price <= depth
//! full_at'        = now + debt + price
//! remaining       = floor((depth - debt - price) / ticks_per_token)
//! retry_after     = debt + price - depth           when denied
//! ```
//!
//! The same rounded `ticks_per_token` prices a token and measures the bucket,
//! so a capacity of C admits exactly C after any idle time, and the rate never
//! exceeds what was configured; it falls short by less than rate / 10^9.
//! Every charge moves `full_at`, so no two charges can be mistaken for one.
//! A `now` older than the bucket's time makes the debt larger, never smaller.
//!
//! A charge computes in *parts*, sixteenths of a nanosecond, which is what a
//! lane word counts if it is read as one number: the generation, in its low
//! four bits, is a fraction of a nanosecond. Prices are whole nanoseconds, so
//! adding one keeps the generation; and as the depth has its own four bits
//! set, a comparison with it comes out as if there were no generation.

use super::counted::CountLimit;
use super::kind::Receipt;
use super::{Finding, GENERATION_BITS, GENERATION_MASK, LaneWord, Outcome, RETRY_NEVER, Status, Verdict};
use crate::bounds::{OVERSPEND_MAX, REFILL_MAX};
use crate::clock::Tick;
use crate::error::Error;
use crate::policy::{BucketNumbers, Numbers};
use crate::record::Word;

/// The nanoseconds in so many parts, rounded down.
#[inline]
const fn nanos(parts: u64) -> u64 {
    parts >> GENERATION_BITS
}

/// The parts in so many nanoseconds, which are below 2^60.
#[inline]
const fn parts(nanos: u64) -> u64 {
    nanos << GENERATION_BITS
}

/// A bucket's limit, ready to compute with. Times are in parts.
///
/// As read from the table it may be torn, made of two limits; then what is
/// computed from it is thrown away. So nothing here relies on its numbers
/// fitting together: sums and products wrap, and a division
/// by one of them asks whether it is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketLimit {
    /// The price of one token.
    token: u64,
    /// Invariant: `capacity * token`, with the bits of the generation set;
    /// less than [`REFILL_MAX`]. 0 for those that are never limited: their
    /// charges fail, as do those of lanes that deny everything, and why is
    /// found out where time is plenty.
    depth: u64,
    /// 0 if everything is denied, `u64::MAX` if nothing.
    capacity: u64,
    /// An allowed request warns when less time than this is left in the bucket.
    warn_below: u64,
}

impl BucketLimit {
    /// The limit of those that are never limited.
    pub(crate) const EXEMPT: Self = Self { token: parts(1), depth: 0, capacity: u64::MAX, warn_below: 0 };

    pub(crate) fn new(numbers: Numbers, warn_below_percent: u8) -> Self {
        let BucketNumbers { ticks_per_token, capacity } = match numbers {
            Numbers::Bucket(numbers) => numbers,
            Numbers::Count(count) => return Self::counted(CountLimit::new(count, warn_below_percent)),
            Numbers::Unlimited => return Self::EXEMPT,
        };
        let token = ticks_per_token.get();
        debug_assert!(u128::from(capacity * token) < REFILL_MAX.as_nanos());
        // Fewer whole tokens than a share of the capacity is fewer than that
        // share rounded up; a capacity of 10^12 times 100 fits.
        let warn_tokens = (capacity * u64::from(warn_below_percent)).div_ceil(100);
        Self {
            token: parts(token),
            depth: parts(capacity * token) | GENERATION_MASK,
            capacity,
            warn_below: parts(warn_tokens * token),
        }
    }

    /// The limit of a lane that counts, in the words of a bucket: without a
    /// capacity, and without a depth, which one that denies everything has.
    pub(crate) const fn counted(limit: CountLimit) -> Self {
        Self { token: limit.count(), depth: 0, capacity: 0, warn_below: limit.warn_below() }
    }

    /// The limit of a lane that counts, if it is one.
    pub(crate) const fn count(&self) -> Option<CountLimit> {
        match (self.depth, self.capacity) {
            (0, 0) => Some(CountLimit::from_parts(self.token, self.warn_below)),
            _ => None,
        }
    }

    #[inline]
    pub(crate) const fn from_words([token, depth, capacity, warn_below]: [u64; 4]) -> Self {
        Self { token, depth, capacity, warn_below }
    }

    pub(crate) const fn to_words(self) -> [u64; 4] {
        [self.token, self.depth, self.capacity, self.warn_below]
    }

    pub(crate) const fn is_exempt(&self) -> bool {
        self.capacity == u64::MAX
    }

    /// 0 if everything is denied, `u64::MAX` if nothing.
    pub(crate) const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// What a token takes to refill, in nanoseconds. 0 only of a torn limit.
    pub(crate) const fn ticks_per_token(&self) -> u64 {
        nanos(self.token)
    }

    /// Whether a request warns that leaves nothing.
    pub(crate) const fn warns(&self) -> bool {
        self.warn_below > 0
    }

    /// The longest debt that a lane keeps when this limit begins to apply to
    /// it, in nanoseconds: what its bucket takes to refill. Without a bucket
    /// there is nothing to measure by, so all of it stays, for the limit that
    /// comes next.
    pub(crate) const fn debt_max(&self) -> u64 {
        if self.capacity == 0 || self.is_exempt() { u64::MAX } else { nanos(self.depth) }
    }

    /// What `cost` tokens take: more than the depth if there can never be so many.
    #[inline]
    const fn price(&self, cost: u64) -> u64 {
        cost.saturating_mul(self.token)
    }

    /// Why a cost is an error; `None` if the bucket can hold it, denies
    /// everything, or nothing.
    pub(crate) const fn error(&self, cost: u64) -> Option<Error> {
        match (cost, self.capacity) {
            (0, _) => Some(Error::ZeroCost),
            (_, 0) => None,
            (cost, capacity) if cost > capacity => Some(Error::CostAboveCapacity { cost, capacity }),
            _ => None,
        }
    }

    /// How full of debt a bucket is: 0 for none, `u32::MAX` and above for all of it.
    pub(crate) fn debt_ratio(&self, word: LaneWord, now: Tick) -> u64 {
        let debt = word.time().as_nanos().saturating_sub(now.as_nanos());
        if debt == 0 {
            return 0;
        }
        let ratio = u128::from(debt) * u128::from(u32::MAX) / u128::from(nanos(self.depth).max(1));
        u64::try_from(ratio).unwrap_or(u64::MAX)
    }
}

/// What a charge comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    limit: BucketLimit,
    cost: u64,
    /// The debt after it, in parts, whether it was allowed or not.
    debt: u64,
    allowed: bool,
}

/// Takes `cost` tokens from the bucket at `now`, if the bucket has them.
#[inline]
pub(crate) fn step(word: LaneWord, now: Tick, limit: BucketLimit, cost: u64) -> Outcome<Charge> {
    let (now, word, price) = (parts(now.as_nanos()), word.bits(), limit.price(cost));
    let full_at = if word >= now { word } else { now | word & GENERATION_MASK };
    let next = full_at.wrapping_add(price);
    let past_range = next < price;
    let debt = next.wrapping_sub(now);
    // Past the range of the clock there is nothing to refill from.
    let allowed = debt <= limit.depth && !past_range && cost > 0;
    let next = allowed.then_some(LaneWord::from_bits(next));
    Outcome { next, answer: Charge { limit, cost, debt, allowed } }
}

/// What a charge came to.
pub(crate) fn verdict(charge: Charge) -> Result<Verdict, Error> {
    usual_verdict(charge).map_or_else(|| odd_verdict(charge), Ok)
}

/// What a charge came to, if it was allowed, or short of tokens.
#[inline(always)]
pub(crate) fn usual_verdict(charge: Charge) -> Option<Verdict> {
    let Charge { limit, cost, debt, allowed } = charge;
    let (finding, retry_after_ns, full_in_ns) = if allowed {
        let near = limit.depth - debt < limit.warn_below;
        (if near { Finding::WARN } else { Finding::ALLOW }, 0, nanos(debt))
    } else if limit.price(cost) <= limit.depth && debt > limit.depth && cost > 0 {
        // The depth's low bits are set, and the wait is rounded up.
        (Finding::DENY, nanos(debt - limit.depth + GENERATION_MASK), nanos(debt.wrapping_sub(limit.price(cost))))
    } else {
        return None;
    };
    let ticks_per_token = nanos(limit.token);
    Some(Verdict { finding, capacity: limit.capacity, ticks_per_token, retry_after_ns, full_in_ns })
}

/// What a charge that is neither came to; nothing was charged.
///
/// In line, since the limit in memory would be written there by every check.
#[inline(always)]
pub(crate) fn odd_verdict(charge: Charge) -> Result<Verdict, Error> {
    let Charge { limit, cost, debt, .. } = charge;
    odd_verdict_of(limit.capacity, limit.token, cost, debt)
}

/// Tells what a charge that was not made comes to, for an agent that has to
/// wait `block` nanoseconds whatever its bucket holds.
pub(crate) fn blocked(charge: Charge, block: u64) -> Result<Verdict, Error> {
    let verdict = verdict(charge)?;
    if charge.limit.is_exempt() {
        return Ok(verdict);
    }
    let not_charged = if charge.allowed { nanos(charge.limit.price(charge.cost)) } else { 0 };
    Ok(Verdict {
        finding: Finding::DENY,
        retry_after_ns: verdict.retry_after_ns.max(block),
        full_in_ns: verdict.full_in_ns - not_charged,
        ..verdict
    })
}

/// What is neither allowed nor short of tokens: an error, an exemption, a lane
/// that denies everything, an instant past the range of the clock.
#[cold]
#[inline(never)]
fn odd_verdict_of(capacity: u64, token: u64, cost: u64, debt: u64) -> Result<Verdict, Error> {
    let limit = BucketLimit { token, capacity, ..BucketLimit::EXEMPT };
    if let Some(error) = limit.error(cost) {
        return Err(error);
    }
    if limit.is_exempt() {
        return Ok(Verdict::EXEMPT);
    }
    Ok(Verdict {
        finding: Finding::DENY,
        capacity: limit.capacity,
        ticks_per_token: nanos(limit.token),
        retry_after_ns: RETRY_NEVER,
        full_in_ns: if capacity == 0 { 0 } else { nanos(debt.saturating_sub(limit.price(cost))) },
    })
}

/// Gives `cost` tokens back, never beyond full.
pub(crate) fn refund(word: LaneWord, now: Tick, limit: BucketLimit, cost: u64) -> Outcome<Result<Status, Error>> {
    if let Some(error) = limit.error(cost) {
        return Outcome { next: None, answer: Err(error) };
    }
    if limit.is_exempt() || limit.capacity == 0 {
        return Outcome { next: None, answer: Ok(status(word, now, limit)) };
    }
    let full_at = word.time().as_nanos().saturating_sub(nanos(limit.price(cost))).max(now.as_nanos());
    let Outcome { next, answer } = put(word, now, limit, Tick::from_nanos(full_at));
    Outcome { next, answer: Ok(answer) }
}

/// Takes back a charge that was to be made only together with others. It gives
/// back what of its price time has not paid until `latest`, which is no earlier
/// than any instant at which the bucket was charged.
///
/// # Why that is never too much
///
/// Say that some charges are *pending*: made, and to be taken back. Compare the
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
/// - If the charge is a pending one, the left side grows by its price beside
///   that, and the right side by no more.
/// - Taking back `i` lowers the left side by what is given back, which is at
///   most `left_i`, and the right side by `left_i`.
///
/// So `a >= b`: whatever the threads and instants, old ones too, whoever is
/// let through would have been let through without the calls that were denied.
/// Refunds keep that true if each counts in full, also one that meets a bucket
/// that would be full.
///
/// And it is hardly too little. A bucket that was full without the charge is
/// full again. On any other, the time from charge to `latest` stays charged:
/// about a microsecond. It cannot come back: another pending charge may have
/// hidden that the bucket was full, and nobody can tell from the word. That the
/// word is the one that was put there does not tell it either, since others may
/// have charged it and taken back as much.
///
/// A bucket that stands before the charge was filled meanwhile, and gets nothing back.
pub(crate) fn roll_back(word: LaneWord, latest: Tick, charge: Receipt) -> Outcome<()> {
    let Receipt { at, price, .. } = charge;
    let back = price.saturating_sub(latest.as_nanos().saturating_sub(at.as_nanos()));
    let is_forgiven = word.time().as_nanos() < at.as_nanos().saturating_add(price);
    let full_at = Tick::from_nanos(word.time().as_nanos().saturating_sub(back));
    Outcome { next: (back > 0 && !is_forgiven).then(|| word.at(full_at)), answer: () }
}

/// Gives so much of a charge back, as time, never beyond full. Debt is time,
/// so this needs no limit.
pub(crate) fn give_back(word: LaneWord, now: Tick, price: u64) -> Outcome<()> {
    let full_at = word.time().as_nanos().saturating_sub(price).max(now.as_nanos());
    let next = word.at(Tick::from_nanos(full_at).min(word.time()));
    Outcome { next: (next != word).then_some(next), answer: () }
}

/// Takes `cost` tokens, into debt if need be: up to [`OVERSPEND_MAX`] times the depth.
pub(crate) fn force(word: LaneWord, now: Tick, limit: BucketLimit, cost: u64) -> Outcome<()> {
    if limit.is_exempt() || limit.capacity == 0 {
        return Outcome { next: None, answer: () };
    }
    let span = |ns| std::time::Duration::from_nanos(ns);
    let wanted = word.time().max(now).saturating_add(span(nanos(limit.price(cost))));
    let most = now.saturating_add(span(nanos(limit.depth).saturating_mul(OVERSPEND_MAX)));
    let next = word.at(wanted.min(most).max(word.time()));
    Outcome { next: (next != word).then_some(next), answer: () }
}

/// Brings `full_at` down to `target`; a bucket that is fuller stays as it is.
fn put(word: LaneWord, now: Tick, limit: BucketLimit, target: Tick) -> Outcome<Status> {
    let next = word.at(target.min(word.time()));
    Outcome { next: (next != word).then_some(next), answer: status(next, now, limit) }
}

/// The bucket as it stands.
pub(crate) fn status(word: LaneWord, now: Tick, limit: BucketLimit) -> Status {
    if limit.is_exempt() {
        return Status::EXEMPT;
    }
    let (depth, token) = (nanos(limit.depth), nanos(limit.token));
    let debt = word.time().as_nanos().saturating_sub(now.as_nanos());
    // Only a torn limit has no price: a count that was read as one.
    let remaining = depth.saturating_sub(debt).checked_div(token).unwrap_or(0);
    // What the bucket holds, as time, when it has one whole token more.
    let next_left = (remaining.wrapping_add(1)).min(limit.capacity).wrapping_mul(token);
    Status {
        remaining,
        capacity: limit.capacity,
        ticks_per_token: token,
        next_in_ns: debt.wrapping_add(next_left).saturating_sub(depth),
        full_in_ns: debt,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::policy::{Kind, LaneId, PlanId, Policy};
    use proptest::prelude::*;

    fn limit(text: &str) -> BucketLimit {
        let policy = Policy::builder().lane("lane", text).build().unwrap();
        assert_eq!(policy.lane("lane"), Some(LaneId::new(0)));
        BucketLimit::new(policy.numbers(PlanId::DEFAULT).next().unwrap(), 20)
    }

    /// How far behind the clock a caller's instant may be.
    const AGE_MAX: u64 = 20;

    proptest! {
        /// Charges that are pending and taken back, among others at any
        /// instants: the bucket is never fuller than without them, and once
        /// all are taken back it lacks at most the time that each was pending,
        /// and what an older instant gave it without them.
        #[test]
        fn a_rollback_lets_nobody_pass_who_would_not_have(
            calls in prop::collection::vec((0..3_u8, 0..15_u64, 0..=AGE_MAX, 1..6_u64, any::<prop::sample::Index>()), 1..60),
        ) {
            let limit = limit("1/10ns burst 20");
            let (mut with, mut without, mut clock) = (LaneWord::default(), LaneWord::default(), 1_000);
            let (mut pending, mut lost) = (Vec::new(), 0);
            let mut take_back = |with: LaneWord, clock, receipt: Receipt| {
                lost += clock - receipt.at.as_nanos();
                roll_back(with, Tick::from_nanos(clock), receipt).next.unwrap_or(with)
            };
            for (call, advance, age, cost, which) in calls {
                clock += advance;
                let now = Tick::from_nanos(clock - age);
                match (call, step(with, now, limit, cost).next) {
                    (0, Some(next)) => {
                        let passed = step(without, now, limit, cost).next;
                        prop_assert!(passed.is_some(), "it passes only because others were denied");
                        (with, without) = (next, passed.unwrap_or(without));
                    }
                    (1, Some(next)) => {
                        pending.push(Kind::Bucket.receipt(0, 0, with, next, now));
                        with = next;
                    }
                    (2, _) if !pending.is_empty() => {
                        with = take_back(with, clock, pending.swap_remove(which.index(pending.len())));
                    }
                    _ => {}
                }
                prop_assert!(with.time() >= without.time());
            }
            with = pending.into_iter().fold(with, |with, receipt| take_back(with, clock, receipt));
            let debt = |word: LaneWord| word.time().as_nanos().saturating_sub(clock);
            prop_assert!((debt(without)..=debt(without) + lost + AGE_MAX).contains(&debt(with)), "{with:?}, not {without:?}");
        }
    }

    /// What a bucket was filled with meanwhile does not come back once more.
    #[test]
    fn a_charge_that_was_forgiven_is_not_taken_back() {
        let (limit, now) = (limit("1/10ns burst 20"), Tick::from_nanos(1_000));
        let word = LaneWord::default();
        let charged = step(word, now, limit, 10).next.unwrap();
        let receipt = Kind::Bucket.receipt(0, 0, word, charged, now);
        assert_eq!(roll_back(charged, now, receipt).next, Some(word.at(now)));
        let filled = charged.at(now);
        let spent = step(filled, now, limit, 9).next.unwrap();
        assert_eq!(roll_back(spent, now, receipt).next, None);
    }
}

#[cfg(all(test, not(loom)))]
mod edges;
