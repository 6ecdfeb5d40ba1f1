//! The weighted counter of two windows.

use super::*;
use proptest::prelude::*;
use std::time::Duration;
use tollgate::{Error, Limit};

/// Every charge with its instant; the estimate in exact fractions.
#[derive(Default)]
struct Exact {
    charges: Vec<(u64, u64)>,
}

impl Exact {
    fn in_window(&self, index: u64, length: u64) -> u128 {
        let charges = self.charges.iter().filter(|(at, _)| at / length == index);
        charges.map(|(_, cost)| u128::from(*cost)).sum()
    }

    /// The estimate, times the length.
    fn estimate(&self, now: u64, length: u64) -> u128 {
        let (index, left) = (now / length, length - now % length);
        let previous = index.checked_sub(1).map_or(0, |before| self.in_window(before, length));
        previous * u128::from(left) + self.in_window(index, length) * u128::from(length)
    }

    fn affords(&self, now: u64, length: u64, count: u64, cost: u64) -> bool {
        self.estimate(now, length) + u128::from(cost) * u128::from(length) <= u128::from(count) * u128::from(length)
    }

    /// The most that was charged in any trailing window.
    fn worst(&self, length: u64) -> u64 {
        let in_trailing = |end: u64| {
            let covered = |at: &u64| *at <= end && end - at < length;
            self.charges.iter().filter(|(at, _)| covered(at)).map(|(_, cost)| cost).sum()
        };
        self.charges.iter().map(|(at, _)| in_trailing(*at)).max().unwrap_or(0)
    }
}

fn any_window() -> impl Strategy<Value = (u64, u64)> {
    let length = prop_oneof![Just(1_000_000_u64), Just(1_000_000_000), 1_000_000..=2_678_400_000_000_000_u64];
    length.prop_flat_map(|length| {
        let most = (1..=510).rev().find(|count| Limit::window(*count, Duration::from_nanos(length)).validate().is_ok());
        (1..=most.unwrap_or(1), Just(length))
    })
}

/// How far time moves: not at all, a little, to the next window or beyond.
#[derive(Clone, Copy, Debug)]
enum Move {
    Stay,
    Share(f64),
    ToNext(u64),
    Waited,
}

impl Move {
    fn from(self, now: u64, length: u64, wait: u64) -> u64 {
        let ahead = match self {
            Move::Stay => 0,
            Move::Share(share) => (length as f64 * share) as u64,
            Move::ToNext(more) => length - now % length + more - 1,
            Move::Waited => wait,
        };
        now.saturating_add(ahead).min(Tick::MAX.as_nanos() - 1)
    }
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        Just(Move::Stay),
        (0.0..2.5).prop_map(Move::Share),
        (0_u64..3).prop_map(Move::ToNext),
        Just(Move::Waited)
    ]
}

proptest! {
    /// The estimate, and with it every answer, is that of exact fractions.
    #[test]
    fn a_window_equals_exact_arithmetic(
        (count, length) in any_window(),
        phase in 0..(1_u64 << 58),
        calls in prop::collection::vec((any_move(), 0.0..1.0), 1..60),
    ) {
        let (limiter, _) = limiter(&Limit::window(count, Duration::from_nanos(length)).to_string());
        let (mut exact, mut now, mut wait) = (Exact::default(), phase, 0);
        for (moved, share) in calls {
            now = moved.from(now, length, wait);
            let cost = 1 + ((count - 1) as f64 * share) as u64;
            let expected = exact.affords(now, length, count, cost);
            let verdict = check_at(&limiter, now, cost);
            prop_assert_eq!(verdict.is_allowed(), expected, "{} at {}", cost, now);
            if expected {
                exact.charges.push((now, cost));
            } else {
                wait = u64::try_from(verdict.retry_after().expect("a wait helps").as_nanos()).unwrap();
                prop_assert!(exact.affords(now + wait, length, count, cost));
                prop_assert!(!exact.affords(now + wait - 1, length, count, cost));
            }
            let left = count - u64::try_from(exact.estimate(now, length).div_ceil(u128::from(length))).unwrap();
            prop_assert_eq!(verdict.remaining(), left);
            let status = limiter.status_at(AGENT, LANE, Tick::from_nanos(now)).unwrap();
            prop_assert_eq!((status.remaining(), status.capacity()), (left, count));
            prop_assert_eq!(status.full_in(), verdict.full_in());
            if let Some(next_in) = status.next_in() {
                let next = now + u64::try_from(next_in.as_nanos()).unwrap();
                prop_assert!(exact.affords(next, length, count, left + 1) && !exact.affords(next - 1, length, count, left + 1));
            }
            let full = now + u64::try_from(verdict.full_in().as_nanos()).unwrap();
            prop_assert_eq!(exact.estimate(full, length), 0);
        }
        prop_assert!(exact.worst(length) < 2 * count, "{} of {}", exact.worst(length), count);
    }

    /// A caller with an older instant is told the same or less.
    #[test]
    fn an_older_instant_is_only_stricter(
        (count, length) in any_window(),
        charges in prop::collection::vec((0.0..2.0, 0.0..1.0), 1..20),
        back in 0.0..3.0,
    ) {
        let (limiter, _) = limiter(&Limit::window(count, Duration::from_nanos(length)).to_string());
        let mut now = 5 * length;
        for (moved, share) in charges {
            now = Move::Share(moved).from(now, length, 0);
            let left = |now| limiter.status_at(AGENT, LANE, Tick::from_nanos(now)).unwrap().remaining();
            let earlier = now - Move::Share(back).from(0, length, 0).min(now);
            prop_assert!(left(earlier) <= left(now));
            let _ = check_at(&limiter, now, 1 + ((count - 1) as f64 * share) as u64);
        }
    }
}

/// The worst that an adversary gets through, and that it gets no more.
#[test]
fn the_worst_trailing_window_holds_one_less_than_twice_the_count() {
    const LENGTH: u64 = 1_000_000_000;
    for count in [1, 2, 10, 100] {
        let (limiter, _) = limiter(&format!("window {count}/s"));
        let mut exact = Exact::default();
        let mut charge =
            |now, cost| check_at(&limiter, now, cost).is_allowed().then(|| exact.charges.push((now, cost)));
        charge(2 * LENGTH - 1, count).expect("a fresh window");
        // One by one, as soon as each passes.
        for step in 0..LENGTH / 100_000 {
            while charge(2 * LENGTH + step * 100_000, 1).is_some() {}
        }
        charge(3 * LENGTH - 2, 1);
        assert_eq!(exact.worst(LENGTH), 2 * count - 1, "{count}");
    }
}

#[test]
fn all_at_once_early_in_a_window_gets_no_more_in_any_trailing_window() {
    let (limiter, clock) = limiter("window 20/min");
    let mut admitted = Vec::new();
    for second in 0..600 {
        while limiter.check(AGENT, LANE).unwrap().is_allowed() {
            admitted.push(second);
        }
        clock.advance(Duration::from_secs(1));
        let trailing = admitted.iter().filter(|at| second - *at < 60).count();
        assert!(trailing <= 20 + 20 * (second % 60) / 60, "{trailing} at {second}");
    }
    assert_eq!(admitted[..20], [0; 20]);
    assert_eq!(admitted.iter().filter(|second| **second < 60).count(), 20);
}

#[test]
fn a_refund_takes_off_what_was_charged_last_and_never_more() {
    let (limiter, clock) = limiter("window 10/min");
    assert!(limiter.check_cost(AGENT, LANE, 10).unwrap().is_allowed());
    clock.advance(Duration::from_secs(60));
    assert_eq!(limiter.refund(AGENT, LANE, 4).unwrap().remaining(), 4);
    assert!(limiter.check_cost(AGENT, LANE, 2).unwrap().is_allowed());
    assert_eq!(limiter.refund(AGENT, LANE, 10).unwrap().remaining(), 10);
    assert_eq!(limiter.refund(AGENT, LANE, 10).unwrap().remaining(), 10);
    assert_eq!(limiter.refund(AGENT, LANE, 11), Err(Error::CostAboveCapacity { cost: 11, capacity: 10 }));
}

#[test]
fn an_idle_window_is_swept_and_a_busy_one_is_not() {
    let (limiter, clock) = limiter("window 10/min");
    let swept_after = |seconds| {
        clock.advance(Duration::from_secs(seconds));
        limiter.sweep(Duration::ZERO)
    };
    assert!(limiter.check(AGENT, LANE).unwrap().is_allowed());
    assert_eq!((swept_after(0), swept_after(119), swept_after(1)), (0, 0, 1));
    assert_eq!(limiter.check_cost(AGENT, LANE, 10).unwrap().remaining(), 0);
    limiter.reset(AGENT).unwrap();
    assert_eq!(swept_after(0), 1);
}

/// A record is given up for a newcomer, which takes over what was charged.
#[test]
fn a_newcomer_inherits_the_window_with_the_least_in_it() {
    let policy = Policy::builder().lane("lane", "window 3/min").build().unwrap();
    let (limiter, _) = full(policy, OnFull::Evict);
    assert_eq!(limiter.check("newcomer", LANE).unwrap().remaining(), 1);
    assert_eq!(limiter.stats().lossy_evictions, 1);
}

#[test]
fn a_full_slab_takes_the_record_of_an_idle_window() {
    let policy = Policy::builder().lane("lane", "window 3/min").build().unwrap();
    let (limiter, clock) = full(policy, OnFull::Deny);
    clock.advance(Duration::from_secs(119));
    assert_eq!(limiter.check("newcomer", LANE), Err(Error::Full));
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiter.check("newcomer", LANE).unwrap().remaining(), 2);
}

#[test]
fn a_plan_changes_the_count_and_keeps_what_was_charged() {
    let policy = Policy::builder().lane("lane", "window 3/min").plan("pro", [("lane", "window 9/min")]);
    let policy = policy.plan("off", [("lane", "deny")]).build().unwrap();
    let (limiter, _) = of_policy(policy);
    let left = || limiter.status(AGENT, LANE).unwrap().remaining();
    assert!(limiter.check_cost(AGENT, LANE, 2).unwrap().is_allowed());
    for (plan, expected) in [("pro", 7), ("off", 0), ("default", 1), ("pro", 7)] {
        // Sixteen generations and more.
        for _ in 0..17 {
            limiter.unassign(AGENT).unwrap();
            limiter.assign(AGENT, limiter.plan(plan).unwrap()).unwrap();
        }
        assert_eq!(left(), expected, "{plan}");
    }
    limiter.exempt(AGENT).unwrap();
    assert_eq!(limiter.check(AGENT, LANE).unwrap().decision(), tollgate::Decision::Exempt);
    limiter.unexempt(AGENT).unwrap();
    assert_eq!(left(), 7);
    assert_eq!(limiter.check_cost(AGENT, LANE, 10), Err(Error::CostAboveCapacity { cost: 10, capacity: 9 }));
    assert_eq!(limiter.check_cost(AGENT, LANE, 0), Err(Error::ZeroCost));
}

#[test]
fn a_lane_keeps_its_kind() {
    let other = "is of another kind than";
    let plan = Policy::builder().lane("lane", "window 3/min").plan("pro", [("lane", "9/min")]).build();
    let said = plan.unwrap_err().to_string();
    assert!(
        said.starts_with("plan \"pro\", lane \"lane\": \"9/minute\" is of another kind than \"window 3/minute\""),
        "{said}"
    );
    let (limiter, _) = limiter("window 3/min");
    for limit in ["3/min", "window 3/hour"] {
        let error = limiter.set_override(AGENT, "lane", limit).unwrap_err().to_string();
        assert!(error.contains(other), "{error}");
        let policy = Policy::builder().lane("lane", limit).build().unwrap();
        let error = limiter.replace_policy(policy).unwrap_err().to_string();
        assert!(error.starts_with("lane \"lane\": ") && error.contains(other), "{error}");
    }
    limiter.set_override(AGENT, "lane", "window 9/min").unwrap();
    limiter.replace_policy(Policy::builder().lane("lane", "deny").build().unwrap()).unwrap();
    assert_eq!(limiter.check(AGENT, LANE).unwrap().capacity(), 9);
    limiter.replace_policy(Policy::builder().lane("lane", "window 4/min").build().unwrap()).unwrap();
    assert_eq!(limiter.check("other", LANE).unwrap().capacity(), 4);
}

/// A bucket that is named after another kind is still a bucket.
#[test]
fn lanes_of_several_kinds_do_not_disturb_each_other() {
    let policy = Policy::builder().lane("a", "2/min").lane("b", "window 2/min").lane("c", "2/min").build().unwrap();
    let (limiter, clock) = of_policy(policy);
    let [a, b, c] = ["a", "b", "c"].map(|name| limiter.lane(name).unwrap());
    for lane in [a, b, c] {
        assert_eq!([1, 1].map(|cost| limiter.check_cost(AGENT, lane, cost).unwrap().remaining()), [1, 0]);
        assert!(!limiter.check(AGENT, lane).unwrap().is_allowed());
    }
    clock.advance(Duration::from_secs(30));
    assert_eq!([a, b, c].map(|lane| limiter.check(AGENT, lane).unwrap().is_allowed()), [true, false, true]);
    assert_eq!(limiter.check(AGENT, LaneId::new(3)), Err(Error::UnknownLane { lane: 3, lanes: 3 }));
    let admitted = limiter.admit(AGENT, b, 1).unwrap();
    assert_eq!(admitted.verdict().retry_after(), Some(Duration::from_secs(60)));
    assert_eq!(admitted.verdict().window(), Duration::from_secs(60));
    assert_eq!((admitted.violation(), admitted.retry_after()), (None, Some(Duration::from_secs(60))));
}

#[test]
fn the_last_instant_denies() {
    let (limiter, _) = limiter("window 3/min");
    let last = limiter.check_at(AGENT, LANE, 1, Tick::MAX).unwrap();
    assert_eq!((last.is_allowed(), last.retry_after()), (false, None));
    assert!(limiter.check_at(AGENT, LANE, 3, Tick::from_nanos(Tick::MAX.as_nanos() - 1)).unwrap().is_allowed());
    assert!(!limiter.check_at(AGENT, LANE, 1, Tick::from_nanos(Tick::MAX.as_nanos() - 1)).unwrap().is_allowed());
}
