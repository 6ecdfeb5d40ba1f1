//! A bucket that takes a cost above its capacity on credit.
//!
//! A cost that fits into the bucket is charged as in any other. A cost above the
//! capacity could never pass there; here it passes when the bucket is full, and
//! leaves it in debt for the rest:
//!
//! ```text
//! allowed    <=> full_at <= now
//! full_at'    = now + cost * token_ns
//! retry_after = full_at - now              when denied
//! ```
//!
//! The word is that of a bucket, and debt is the same time whether it is less
//! than the depth or more. So the code that gives back to a bucket, moves it on
//! or forgets it does not need to know about this.
//!
//! # What passes
//!
//! After a charge of `c` at `t`, `full_at` is at most `t` plus the larger of the
//! bucket's depth and the price of `c`. Each charge moves `full_at` on by its
//! price, and to `now` at least; so all prices between two instants add up to at
//! most the time between them plus that larger one. Within any span,
//!
//! ```text
//! admitted <= capacity + rate * span + max(largest cost - capacity, 0)
//! ```
//!
//! the excess of *one* request, however many there were: the next has to wait
//! until it is paid for. A cost is at most [`OVERSPEND_MAX`] times the capacity,
//! and takes less than [`REFILL_MAX`] to pay for.

use super::super::left::LeftWord;
use super::super::{Finding, LaneState, LaneWord, Outcome, RETRY_NEVER, Verdict};
use super::{BucketLimit, InstantWord};
use crate::bounds::{OVERSPEND_MAX, REFILL_MAX};
use crate::clock::Tick;
use crate::error::Error;

/// The answer to a charge above the capacity. The verdict is computed once the
/// limit is known to be whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Oversize {
    limit: BucketLimit,
    /// The debt before it, in nanoseconds.
    debt: u64,
    /// Its price in nanoseconds; or why it can never pass.
    price: Result<u64, Error>,
    allowed: bool,
}

/// Whether a cost is above what the bucket holds, and the bucket holds anything.
pub(super) const fn is_oversize(limit: BucketLimit, cost: u64) -> bool {
    limit.capacity() > 0 && cost > limit.capacity()
}

/// How long a cost above the capacity takes to pay for, in nanoseconds.
fn price(limit: BucketLimit, cost: u64) -> Result<u64, Error> {
    let token = limit.token_ns().max(1);
    let payable = (REFILL_MAX.as_nanos() as u64 - 1) / token;
    let most = limit.capacity().saturating_mul(OVERSPEND_MAX).min(payable);
    // No overflow: `payable` tokens take less than ten years.
    if cost <= most { Ok(cost * token) } else { Err(Error::CostAboveCapacity { cost, capacity: most }) }
}

/// Takes a cost above the capacity, if the bucket is full.
pub(super) fn step(word: LaneWord, now: Tick, limit: BucketLimit, cost: u64) -> Outcome<Oversize> {
    let (debt, price) = (InstantWord::of(word).wait(now), price(limit, cost));
    let full_at = price.ok().and_then(|price| now.as_nanos().checked_add(price));
    // Past the range of the clock there is nothing to refill from.
    let full_at = full_at.filter(|full_at| *full_at <= Tick::MAX.as_nanos() && debt == 0);
    let answer = Oversize { limit, debt, price, allowed: full_at.is_some() };
    Outcome { next: full_at.map(|full_at| InstantWord::of(word).at(Tick::from_nanos(full_at))), answer }
}

impl Oversize {
    pub(in super::super) fn verdict(self) -> Result<Verdict, Error> {
        let Self { limit, debt, allowed, .. } = self;
        let price = self.price?;
        let (finding, retry_after_ns, full_in_ns) = match (allowed, debt) {
            (true, _) if limit.warns() => (Finding::WARN, 0, price),
            (true, _) => (Finding::ALLOW, 0, price),
            (false, 0) => (Finding::DENY, RETRY_NEVER, 0),
            (false, debt) => (Finding::DENY, debt, debt),
        };
        let left = LeftWord::refills(limit.token_ns());
        Ok(Verdict { finding, capacity: limit.capacity(), left, retry_after_ns, full_in_ns })
    }

    /// The verdict if the charge is not made, because the agent has to wait
    /// `block` nanoseconds whatever its bucket holds.
    pub(in super::super) fn blocked(self, block: u64) -> Result<Verdict, Error> {
        let verdict = self.verdict()?;
        let retry_after_ns = verdict.retry_after_ns.max(block);
        Ok(Verdict { finding: Finding::DENY, retry_after_ns, full_in_ns: self.debt, ..verdict })
    }
}

/// Gives back a cost above the capacity, never beyond full.
pub(super) fn refund(word: LaneWord, now: Tick, limit: BucketLimit, cost: u64) -> Outcome<Result<LaneState, Error>> {
    let price = match price(limit, cost) {
        Ok(price) => price,
        Err(error) => return Outcome { next: None, answer: Err(error) },
    };
    let next = super::give_back(word, now, price).next;
    Outcome { next, answer: Ok(super::state(next.unwrap_or(word), now, limit)) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::{At, Offset};
    use crate::lane::kind::LaneLimit;
    use crate::lane::{Kind, Limit, Numbers};
    use proptest::prelude::*;

    fn limit(text: &str) -> LaneLimit {
        let limit: Limit = text.parse().unwrap();
        let kind = limit.lane_kind().unwrap();
        LaneLimit::new(kind, kind.row(limit.compile().unwrap(), 20))
    }

    fn at(now: u64) -> At {
        At { now: Tick::from_nanos(now), offset: Offset::default() }
    }

    const CAPACITY: u64 = 5;
    const TOKEN: u64 = 10;

    proptest! {
        /// Beside exact arithmetic: a level that refills, and may be negative.
        #[test]
        fn it_is_a_level_that_may_be_negative(
            calls in prop::collection::vec((0..80_u64, 1..16_u64), 1..80),
            generation in 0..16_u64,
        ) {
            let limit = limit("1/10ns burst 5 oversize debt");
            let mut word = (0..generation).fold(LaneWord::default(), |word, _| word.next_generation());
            // In parts of a token.
            let (mut level, mut now, mut admitted) = (50_i64, 1_000, Vec::new());
            for (wait, cost) in calls {
                now += wait;
                level = (level + wait as i64).min(50);
                let price = (cost * TOKEN) as i64;
                let needed = price.min(50);
                let choice = limit.step(&[word], at(now), cost).outcome;
                let verdict = choice.answer.verdict().unwrap();
                prop_assert_eq!(verdict.is_allowed(), level >= needed);
                prop_assert_eq!(choice.next.is_some(), verdict.is_allowed());
                if let Some(next) = choice.next {
                    level -= price;
                    word = next;
                    admitted.push((now, cost));
                } else {
                    // Exact: it passes then, and not a nanosecond before.
                    let wait = verdict.retry_after().unwrap().as_nanos() as u64;
                    prop_assert_eq!(wait as i64, needed - level);
                    prop_assert!(limit.step(&[word], at(now + wait), cost).outcome.next.is_some());
                    prop_assert!(limit.step(&[word], at(now + wait - 1), cost).outcome.next.is_none());
                }
                prop_assert_eq!(verdict.remaining() as i64, level.max(0) / 10);
                prop_assert_eq!(verdict.full_in().as_nanos() as i64, 50 - level);
                let state = limit.state(&[word], at(now));
                prop_assert_eq!((state.remaining(), state.full_in()), (verdict.remaining(), verdict.full_in()));
                prop_assert_eq!(word.generation(), generation);
            }
            // The excess of one, whatever the span.
            let excess = admitted.iter().map(|(_, cost)| cost.saturating_sub(CAPACITY)).max().unwrap_or(0);
            for (index, (start, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for (end, cost) in &admitted[index..] {
                    sum += cost;
                    prop_assert!(sum * TOKEN <= (CAPACITY + excess) * TOKEN + end - start);
                }
            }
        }

        /// What fits is charged as in a bucket that rejects what does not.
        #[test]
        fn what_fits_is_charged_as_ever(debt in 0..200_u64, now in 0..100_u64, cost in 1..6_u64) {
            let word = LaneWord::default().with_payload(debt);
            let step = |text| limit(text).step(&[word], at(now), cost).outcome;
            let (one, other) = (step("1/10ns burst 5"), step("1/10ns burst 5 oversize debt"));
            prop_assert_eq!(one.next, other.next);
            prop_assert_eq!(one.answer.verdict(), other.answer.verdict());
        }

        #[test]
        fn a_refund_gives_back_what_was_charged(cost in 6..500_u64, wait in 0..6_000_u64) {
            let limit = limit("1/10ns burst 5 oversize debt");
            let charged = limit.step(&[LaneWord::default()], at(1_000), cost).outcome.next.unwrap();
            let now = at(1_000 + wait);
            let refunded = limit.refund(&[charged], now, cost, |_| 0).outcome;
            prop_assert_eq!(InstantWord::of(refunded.next.unwrap_or(charged)).time().max(now.now), now.now);
            prop_assert_eq!(refunded.answer.unwrap().state.remaining(), CAPACITY);
        }
    }

    #[test]
    fn a_cost_is_at_most_a_hundred_buckets_and_ten_years() {
        let step = |text, cost| limit(text).step(&[LaneWord::default()], at(5), cost).outcome.answer.verdict();
        let too_much = |cost, capacity| Err(Error::CostAboveCapacity { cost, capacity });
        assert!(step("1/10ns burst 5 oversize debt", 500).unwrap().is_allowed());
        assert_eq!(step("1/10ns burst 5 oversize debt", 501), too_much(501, 500));
        assert!(step("1/day burst 1000 oversize debt", 3_652).unwrap().is_allowed());
        assert_eq!(step("1/day burst 1000 oversize debt", 3_653), too_much(3_653, 3_652));
        assert_eq!(step("1/10ns burst 5 oversize debt", u64::MAX), too_much(u64::MAX, 500));
        assert_eq!(step("1/10ns burst 5 oversize debt", 0), Err(Error::ZeroCost));
    }

    #[test]
    fn past_the_range_of_the_clock_no_wait_helps() {
        let limit = limit("1/day burst 5 oversize debt");
        let step = limit.step(&[LaneWord::default()], At { now: Tick::MAX, offset: Offset::default() }, 6).outcome;
        assert_eq!(step.next, None);
        assert_eq!(step.answer.verdict().unwrap().retry_after(), None);
    }

    #[test]
    fn such_a_lane_may_deny_everything_or_nothing() {
        let denies = LaneLimit::new(Kind::Debt, Kind::Debt.row(Numbers::Deny, 20));
        let verdict = denies.step(&[LaneWord::default()], at(5), 9).outcome.answer.verdict().unwrap();
        assert_eq!((verdict.is_allowed(), verdict.retry_after()), (false, None));
        let exempt = LaneLimit::new(Kind::Debt, Kind::Debt.row(Numbers::Unlimited, 20));
        let outcome = exempt.step(&[LaneWord::default()], at(5), u64::MAX).outcome;
        assert_eq!((outcome.next, outcome.answer.verdict().unwrap().decision()), (None, crate::lane::Decision::Exempt));
    }
}
