//! A dynamic lane against exact arithmetic, with another limit at every call.

use super::*;
use crate::bounds::{CAPACITY_MAX, REFILL_MAX};
use crate::clock::Offset;
use crate::lane::kind::LaneLimit;
use crate::lane::{Decision, RETRY_NEVER, Verdict};
use proptest::prelude::*;

const WARN_BELOW_PERCENT: u8 = 20;

fn at(now: u64) -> At {
    At { now: Tick::from_nanos(now), offset: Offset::default() }
}

fn row(text: &str) -> LimitWords {
    Kind::Dynamic.row(text.parse::<Limit>().unwrap().compile().unwrap(), WARN_BELOW_PERCENT)
}

fn limit(row: LimitWords, given: Option<CallLimit>) -> LaneLimit {
    LaneLimit::new(Kind::Dynamic, of_call(row, given, 7))
}

fn given(text: &str) -> Option<CallLimit> {
    Some(text.parse().unwrap())
}

fn word(full_at: u64) -> LaneWord {
    LaneWord::default().next_generation().with_payload(full_at)
}

fn full_at(word: LaneWord) -> u64 {
    InstantWord::of(word).time().as_nanos()
}

/// What a call gets, worked out with whole numbers that cannot overflow: the
/// rule in the module, without words and without wrapping.
#[derive(Debug, PartialEq)]
struct Expected {
    decision: Decision,
    full_at: u64,
    remaining: u64,
    retry_after_ns: u64,
    full_in_ns: u64,
}

fn expected(full_at: u64, now: u64, (capacity, count, period): (u64, u64, u64), cost: u64) -> Expected {
    let token = u128::from(period).div_ceil(u128::from(count));
    let (debt, depth) = (u128::from(full_at.saturating_sub(now)), u128::from(capacity) * token);
    let price = u128::from(cost) * token;
    let due = u128::from(now) + debt + price;
    if debt + price <= depth && due <= u128::from(Tick::MAX.as_nanos()) {
        let left = depth - debt - price;
        let warn_below = (u128::from(capacity) * u128::from(WARN_BELOW_PERCENT)).div_ceil(100) * token;
        let decision = if left < warn_below { Decision::Warn } else { Decision::Allow };
        let [remaining, full_in] = [left / token, debt + price].map(|nanos| nanos as u64);
        return Expected { decision, full_at: due as u64, remaining, retry_after_ns: 0, full_in_ns: full_in };
    }
    let retry = if debt + price > depth { (debt + price - depth) as u64 } else { RETRY_NEVER };
    let remaining = if debt + price > depth { depth.saturating_sub(debt) / token } else { 0 };
    let (full_in_ns, remaining) = (debt as u64, remaining as u64);
    Expected { decision: Decision::Deny, full_at, remaining, retry_after_ns: retry, full_in_ns }
}

/// Limits over the whole range, and such as people write.
fn any_limit() -> impl Strategy<Value = (u64, u64, u64)> {
    let usual = (1..200_u64, 1..200_u64, prop::sample::select(vec![1_u64, 1_000_000_000, 60_000_000_000]));
    let wide = (1..=CAPACITY_MAX, 1..=CAPACITY_MAX, 1..REFILL_MAX.as_nanos() as u64);
    prop_oneof![3 => usual, 1 => wide]
}

/// A call: how far the clock moves, by what limit and at what cost.
fn any_call() -> impl Strategy<Value = (i64, (u64, u64, u64), u64)> {
    let moves = prop_oneof![Just(0_i64), -1_000_000_000..5_000_000_000_i64, 0..1_000_000_000_000_000_000_i64];
    (moves, any_limit(), prop_oneof![1..20_u64, 1..CAPACITY_MAX])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_call_is_answered_exactly_by_its_own_limit(
        calls in prop::collection::vec(any_call(), 1..40),
        default in prop::sample::select(vec!["dynamic", "dynamic 5/second burst 9"]),
    ) {
        let (row, mut now, mut lane) = (row(default), 1_000_000_000_u64, word(0));
        for (moved, numbers, cost) in calls {
            now = now.saturating_add_signed(moved).min(Tick::MAX.as_nanos());
            let (capacity, count, period) = numbers;
            let Ok(call) = CallLimit::new(capacity, count, Duration::from_nanos(period)) else { continue };
            let limit = limit(row, Some(call));
            let charged = limit.step(&[lane], at(now), cost);
            if cost > capacity {
                prop_assert_eq!(charged.outcome.next, None);
                let above = Error::CostAboveCapacity { cost, capacity };
                prop_assert_eq!(charged.outcome.answer.verdict(), Err(above));
                continue;
            }
            let expected = expected(full_at(lane), now, numbers, cost);
            let verdict = charged.outcome.answer.verdict().unwrap();
            let next = charged.outcome.next.unwrap_or(lane);
            prop_assert_eq!(charged.outcome.next.is_some(), verdict.is_allowed());
            // Past the range of the clock, all that counts is that nothing passes.
            let remaining = if verdict.retry_after_ns == RETRY_NEVER { 0 } else { verdict.remaining() };
            let (decision, Verdict { retry_after_ns, full_in_ns, .. }) = (verdict.decision(), verdict);
            let got = Expected { decision, full_at: full_at(next), remaining, retry_after_ns, full_in_ns };
            prop_assert_eq!(got, expected);
            prop_assert_eq!((verdict.capacity(), next.generation()), (capacity, lane.generation()));
            if retry_after_ns > 0 && retry_after_ns < Tick::MAX.as_nanos() - now {
                // The wait is exact: not a nanosecond earlier.
                let passes = |wait| limit.step(&[lane], at(now + wait), cost).outcome.next.is_some();
                prop_assert!(!passes(retry_after_ns - 1));
                prop_assert!(passes(retry_after_ns) || now + retry_after_ns > Tick::MAX.as_nanos() / 2);
            }
            let state = limit.state(&[next], at(now));
            if verdict.is_allowed() {
                prop_assert_eq!((state.remaining, state.full_in_ns), (verdict.remaining(), full_in_ns));
                let back = limit.refund(&[next], at(now), cost, |_| 0).outcome;
                prop_assert_eq!(back.next.map(full_at), Some(full_at(lane).max(now)));
            }
            lane = next;
        }
    }

    /// What passes between two instants takes at most the time between them,
    /// and the depth of the last limit by which a call passed.
    #[test]
    fn limits_that_differ_admit_no_more_time_than_passes_and_the_last_depth(
        calls in prop::collection::vec((0..100_u64, 1..20_u64, 1..20_u64, 1..5_u64), 1..200),
    ) {
        let (row, start, mut lane) = (row("dynamic"), 1_000, word(0));
        let (mut now, mut admitted) = (start, 0);
        for (moved, capacity, token, cost) in calls {
            now += moved;
            let call = CallLimit::new(capacity, 1, Duration::from_nanos(token)).unwrap();
            if let Some(next) = limit(row, Some(call)).step(&[lane], at(now), cost).outcome.next {
                (lane, admitted) = (next, admitted + cost * token);
                prop_assert!(admitted <= now - start + capacity * token);
            }
        }
    }
}

#[test]
fn a_row_decides_denial_and_exemption_and_a_call_the_rest() {
    let passes = |row, given| limit(row, given).step(&[word(0)], at(1_000), 1).outcome.answer.verdict();
    let decided = |row, given| passes(row, given).map(|verdict| (verdict.decision(), verdict.capacity()));
    for given in [None, given("9/second")] {
        assert_eq!(decided(row("deny"), given), Ok((Decision::Deny, 0)));
        let exempt = Kind::Dynamic.row(Numbers::Unlimited, WARN_BELOW_PERCENT);
        assert_eq!(decided(exempt, given).map(|(decision, _)| decision), Ok(Decision::Exempt));
        assert!(limit(exempt, given).is_exempt() && !limit(row("dynamic"), given).is_exempt());
    }
    assert_eq!(decided(row("dynamic 5/second"), None), Ok((Decision::Allow, 5)));
    assert_eq!(decided(row("dynamic 5/second"), given("9/second")), Ok((Decision::Allow, 9)));
    assert_eq!(decided(row("dynamic"), given("9/second")), Ok((Decision::Allow, 9)));
    assert_eq!(decided(row("dynamic"), None), Err(Error::NoLimit { lane: 7 }));
}

#[test]
fn without_a_limit_nothing_is_charged_and_nothing_is_known() {
    let (lane, limit) = (word(2_000), limit(row("dynamic"), None));
    let missing = Error::NoLimit { lane: 7 };
    assert_eq!(limit.missing(), Some(missing));
    assert_eq!(limit.refund(&[lane], at(1_000), 1, |_| 0).outcome.answer, Err(missing));
    assert_eq!(limit.blocked(&[lane], at(1_000), 1).verdict(9), Err(missing));
    assert_eq!(limit.force(&[lane], at(1_000), 1).outcome.next, None);
    let state = limit.state(&[lane], at(1_000));
    assert_eq!((state.remaining(), state.capacity(), state.full_in_ns), (0, 0, 1_000));
    assert_eq!(limit.debt_max(), u64::MAX);
}

/// A deep debt met by a shallow limit: nothing is cut, and the wait is what is
/// missing to the shallow one.
#[test]
fn a_changed_limit_applies_to_what_was_charged_before() {
    let (row, mut lane) = (row("dynamic"), word(0));
    let deep = limit(row, given("10/100ns"));
    lane = deep.step(&[lane], at(1_000), 9).outcome.next.unwrap();
    assert_eq!(full_at(lane), 1_090);
    let shallow = limit(row, given("2/10ns"));
    let denied = shallow.step(&[lane], at(1_000), 1).outcome.answer.verdict().unwrap();
    assert_eq!((denied.retry_after_ns, denied.full_in_ns, denied.remaining()), (85, 90, 0));
    let passed = shallow.step(&[lane], at(1_085), 1).outcome;
    assert_eq!((passed.next.map(full_at), passed.answer.verdict().unwrap().remaining()), (Some(1_095), 0));
    let state = deep.state(&[lane], at(1_000));
    assert_eq!((state.remaining(), state.next_in_ns), (1, 10));
}

#[test]
fn how_full_is_measured_by_the_default_or_by_a_minute() {
    let all = u64::from(u32::MAX);
    let load = |text, debt| limit(row(text), None).load(&[word(1_000 + debt)], Tick::from_nanos(1_000));
    assert_eq!([0, 1, 50, 100, 300].map(|debt| load("dynamic 10/100ns", debt)), [0, all / 100, all / 2, all, 3 * all]);
    let minute = 60_000_000_000;
    for text in ["dynamic", "deny"] {
        assert_eq!([0, 1, minute / 2, minute, 2 * minute].map(|debt| load(text, debt)), [0, 1, all / 2, all, 2 * all]);
    }
    // The limit of a call plays no part: it is not known when a record is given up.
    assert_eq!(
        load("dynamic", Tick::MAX.as_nanos() / 2),
        (u128::from(Tick::MAX.as_nanos() / 2) * u128::from(all) / u128::from(minute)) as u64
    );
}

#[test]
fn a_charge_is_taken_back_as_that_of_a_bucket_is() {
    let (before, now) = (word(0), Tick::from_nanos(1_000));
    let charged = limit(row("dynamic"), given("1/10ns burst 9")).step(&[before], at(1_000), 4).outcome.next.unwrap();
    let receipt = Kind::Dynamic.receipt(3, 0, before, charged, now);
    assert_eq!((receipt.price, receipt.position), (40, 3));
    let taken = |clock| Kind::Dynamic.roll_back(&[charged], at(clock), receipt, 4, false).outcome.next.map(full_at);
    assert_eq!([1_000, 1_030, 1_040].map(taken), [Some(1_000), Some(1_030), None]);
    let moved = charged.next_generation();
    assert_eq!(Kind::Dynamic.roll_back(&[moved], at(1_000), receipt, 4, false).outcome.next, None);
}
