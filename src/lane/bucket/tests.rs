//! Charges that are taken back; and charges at the edges: of the range of the
//! clock, of a warning, of limits without a bucket.

use super::*;
use crate::lane::{Decision, Finding, Limit, RETRY_NEVER, Verdict};
use proptest::prelude::*;

fn limit(text: &str) -> BucketLimit {
    BucketLimit::new(text.parse::<Limit>().unwrap().compile().unwrap(), 20)
}

fn time(word: LaneWord) -> Tick {
    InstantWord::of(word).time()
}

fn at(word: LaneWord, time: Tick) -> LaneWord {
    InstantWord::of(word).at(time)
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
        calls in prop::collection::vec(
            (0..3_u8, 0..15_u64, 0..=AGE_MAX, 1..6_u64, any::<prop::sample::Index>()),
            1..60,
        ),
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
            prop_assert!(time(with) >= time(without));
        }
        with = pending.into_iter().fold(with, |with, receipt| take_back(with, clock, receipt));
        let debt = |word: LaneWord| time(word).as_nanos().saturating_sub(clock);
        prop_assert!((debt(without)..=debt(without) + lost + AGE_MAX).contains(&debt(with)), "{with:?}, not {without:?}");
    }
}

/// What a bucket was filled with meanwhile is not given back again.
#[test]
fn a_charge_that_was_forgiven_is_not_taken_back() {
    let (limit, now) = (limit("1/10ns burst 20"), Tick::from_nanos(1_000));
    let word = LaneWord::default();
    let charged = step(word, now, limit, 10).next.unwrap();
    let receipt = Kind::Bucket.receipt(0, 0, word, charged, now);
    assert_eq!(roll_back(charged, now, receipt).next, Some(at(word, now)));
    let filled = at(charged, now);
    let spent = step(filled, now, limit, 9).next.unwrap();
    assert_eq!(roll_back(spent, now, receipt).next, None);
}

/// A bucket in debt until `full_at`, in each of the generations.
fn words(full_at: u64) -> impl Iterator<Item = LaneWord> {
    let first = at(LaneWord::default(), Tick::from_nanos(full_at));
    std::iter::successors(Some(first), |word| Some(word.next_generation())).take(16)
}

fn charged(word: LaneWord, now: u64, limit: BucketLimit, cost: u64) -> Result<Verdict, Error> {
    verdict(step(word, Tick::from_nanos(now), limit, cost).answer)
}

#[test]
fn a_warning_begins_below_the_share_and_denials_beyond_the_depth_in_every_generation() {
    let limit = limit("1/10ns burst 10");
    for word in words(1_000) {
        let after = |cost| charged(word, 1_000, limit, cost).unwrap();
        let decisions = [7, 8, 9, 10].map(|cost| after(cost).decision());
        assert_eq!(decisions, [Decision::Allow, Decision::Allow, Decision::Warn, Decision::Warn], "{word:?}");
        let denied = charged(word, 993, limit, 10).unwrap();
        assert_eq!((denied.decision(), denied.retry_after_ns, denied.full_in_ns), (Decision::Deny, 7, 7), "{word:?}");
    }
}

/// The debt would fit the bucket but not the clock, and with this generation it
/// is exactly as deep as the bucket.
#[test]
fn past_the_range_no_wait_helps_in_any_generation() {
    let limit = limit("1/10ns burst 10");
    let now = Tick::MAX.as_nanos() - 50;
    for (debt, cost) in [(0, 10), (0, 6), (20, 8), (45, 5)] {
        for word in words(now + debt) {
            let denied = charged(word, now, limit, cost).unwrap();
            assert_eq!((denied.decision(), denied.retry_after_ns), (Decision::Deny, RETRY_NEVER), "{word:?}, {cost}");
            assert_eq!((denied.capacity, denied.token_ns(), denied.full_in_ns), (10, 10, debt), "{word:?}, {cost}");
        }
    }
}

#[test]
fn a_cost_of_nothing_is_an_error_however_deep_the_debt() {
    let limit = limit("1/10ns burst 10");
    for word in [0, 1_050, 1_100, 1_101, 5_000].into_iter().flat_map(words) {
        assert_eq!(charged(word, 1_000, limit, 0), Err(Error::ZeroCost), "{word:?}");
    }
}

#[test]
fn limits_without_a_bucket_leave_the_word_as_it_is() {
    let now = Tick::from_nanos(1_000);
    for limit in [limit("deny"), BucketLimit::EXEMPT] {
        for word in words(1_500).chain(words(500)) {
            assert_eq!(refund(word, now, limit, 3).next, None, "{word:?}");
            assert_eq!(force(word, now, limit, 3).next, None, "{word:?}");
        }
    }
    let denied = charged(words(1_500).next().unwrap(), 1_000, limit("deny"), 3).unwrap();
    assert_eq!((denied.decision(), denied.retry_after_ns, denied.full_in_ns), (Decision::Deny, RETRY_NEVER, 0));
}

/// Once time has paid for a charge there is nothing to write.
#[test]
fn a_charge_that_time_has_paid_for_is_not_taken_back() {
    let (limit, then) = (limit("1/10ns burst 10"), Tick::from_nanos(1_000));
    let before = at(LaneWord::default(), Tick::from_nanos(1_030));
    let charged = step(before, then, limit, 2).next.unwrap();
    let receipt = Kind::Bucket.receipt(0, 0, before, charged, then);
    let taken = [1_000, 1_019, 1_020, 1_021].map(|now| roll_back(charged, Tick::from_nanos(now), receipt).next);
    assert_eq!(taken, [Some(1_030), Some(1_049), None, None].map(|time| Some(at(before, Tick::from_nanos(time?)))));
}

#[test]
fn a_limit_knows_its_longest_debt_and_the_share_of_one() {
    let (bucket, denies) = (limit("1/10ns burst 10"), limit("deny"));
    for limit in [bucket, denies, BucketLimit::EXEMPT] {
        assert_eq!(BucketLimit::from_words(limit.to_words()), limit);
    }
    assert_eq!(BucketLimit::new(Numbers::Count(11), 20), denies);
    assert_eq!([bucket, denies, BucketLimit::EXEMPT].map(|limit| limit.debt_max()), [100, u64::MAX, u64::MAX]);
    let all = u64::from(u32::MAX);
    let ratio = |debt: u64| bucket.debt_ratio(words(1_000 + debt).next().unwrap(), Tick::from_nanos(1_000));
    assert_eq!([0, 1, 50, 100, 300].map(ratio), [0, all / 100, all / 2, all, 3 * all]);
    assert_eq!(bucket.debt_ratio(words(900).next().unwrap(), Tick::from_nanos(1_000)), 0);
}

#[test]
fn an_agent_that_is_blocked_gets_the_longer_wait() {
    let limit = limit("1/10ns burst 10");
    let waits = |debt: u64, cost, block| {
        let charge = step(words(1_000 + debt).next().unwrap(), Tick::from_nanos(1_000), limit, cost).answer;
        let Verdict { finding, retry_after_ns, full_in_ns, .. } = blocked(charge, block).unwrap();
        assert_eq!(finding, Finding::DENY);
        (retry_after_ns, full_in_ns)
    };
    assert_eq!((waits(30, 2, 7), waits(95, 2, 7), waits(95, 2, 77)), ((7, 30), (15, 95), (77, 95)));
    let exempt = step(words(0).next().unwrap(), Tick::ZERO, BucketLimit::EXEMPT, 2).answer;
    assert_eq!(blocked(exempt, 7), Ok(Verdict::EXEMPT));
}

#[test]
fn what_is_given_back_or_forced_changes_the_word_or_is_not_written() {
    let (limit, now) = (limit("1/10ns burst 10"), Tick::from_nanos(1_000));
    for word in words(1_050) {
        let full_at = |nanos| at(word, Tick::from_nanos(nanos));
        let given = [0, 1, 50, 51].map(|price| give_back(word, now, price).next);
        assert_eq!(given, [None, Some(full_at(1_049)), Some(full_at(1_000)), Some(full_at(1_000))]);
        assert_eq!(give_back(full_at(900), now, 5).next, None);
        assert_eq!([0, 3].map(|cost| force(word, now, limit, cost).next), [None, Some(full_at(1_080))]);
        let most = full_at(1_000 + 100 * OVERSPEND_MAX);
        assert_eq!(force(word, now, limit, u64::MAX).next, Some(most));
        assert_eq!(force(most, now, limit, 3).next, None);
    }
}
