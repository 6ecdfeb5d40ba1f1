//! Never more than n in any trailing window, in two words.

use super::*;
use proptest::prelude::*;
use std::time::Duration;
use tollgate::{Error, Limit, Request};

/// Every charge with its instant.
#[derive(Default)]
struct Log {
    charges: Vec<(u64, u64)>,
}

impl Log {
    /// What was charged in the thirds that count at `now`: the current one and the three before.
    fn counted(&self, now: u64, length: u64) -> u64 {
        let part = length.div_ceil(3);
        self.charges.iter().filter(|(at, _)| at / part + 3 >= now / part).map(|(_, cost)| cost).sum()
    }

    fn affords(&self, now: u64, length: u64, count: u64, cost: u64) -> bool {
        self.counted(now, length) + cost <= count
    }

    /// Removes what was charged last and still counts.
    fn refund(&mut self, now: u64, length: u64, mut cost: u64) {
        let part = length.div_ceil(3);
        for (_, charged) in self.charges.iter_mut().rev().filter(|(at, _)| at / part + 3 >= now / part) {
            let back = cost.min(*charged);
            (*charged, cost) = (*charged - back, cost - back);
        }
    }

    /// What was charged in the span that ends at `now`.
    fn trailing(&self, now: u64, span: u64) -> u64 {
        let covered = |at: u64| at <= now && now - at < span;
        self.charges.iter().filter(|(at, _)| covered(*at)).map(|(_, cost)| cost).sum()
    }

    /// The most that was charged in any trailing window.
    fn worst(&self, length: u64) -> u64 {
        self.charges.iter().map(|(at, _)| self.trailing(*at, length)).max().unwrap_or(0)
    }
}

/// The longest time a charge counts: the window and a third of it, plus the
/// rounding to whole nanoseconds.
fn longest(length: u64) -> u64 {
    4 * length.div_ceil(3)
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
            // Just before the next third, at its start, and just after.
            Move::ToNext(more) => length.div_ceil(3) - now % length.div_ceil(3) + more - 1,
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
    /// Every answer matches a log of thirds. No trailing window admits more
    /// than the count, and no call is denied for charges older than stated.
    #[test]
    fn a_window_equals_a_log(
        (count, length) in any_window(),
        phase in 0..(1_u64 << 58),
        calls in prop::collection::vec((any_move(), 0.0..1.0, 0..8), 1..100),
    ) {
        let (limiter, _) = limiter(&Limit::window(count, Duration::from_nanos(length)).to_string());
        let (mut log, mut now, mut wait) = (Log::default(), phase, 0);
        for (moved, share, call) in calls {
            now = moved.from(now, length, wait);
            let cost = 1 + ((count - 1) as f64 * share) as u64;
            if call == 0 {
                log.refund(now, length, cost);
                let status = limiter.refund(Request::new(AGENT, LANE).cost(cost).at(Tick::from_nanos(now))).unwrap();
                prop_assert_eq!(status.remaining(), count - log.counted(now, length));
                continue;
            }
            let expected = log.affords(now, length, count, cost);
            let verdict = check_at(&limiter, now, cost);
            prop_assert_eq!(verdict.is_allowed(), expected, "{} at {}", cost, now);
            if expected {
                log.charges.push((now, cost));
            } else {
                prop_assert!(log.trailing(now, longest(length)) + cost > count, "stricter than stated");
                wait = u64::try_from(verdict.retry_after().expect("a wait helps").as_nanos()).unwrap();
                prop_assert!(wait <= longest(length));
                prop_assert!(log.affords(now + wait, length, count, cost));
                prop_assert!(!log.affords(now + wait - 1, length, count, cost));
            }
            let left = count - log.counted(now, length);
            prop_assert_eq!(verdict.remaining(), left);
            let status = limiter.peek(Request::new(AGENT, LANE).at(Tick::from_nanos(now))).unwrap();
            prop_assert_eq!((status.remaining(), status.capacity()), (left, count));
            prop_assert_eq!(status.full_in(), verdict.full_in());
            if let Some(next_in) = status.next_in() {
                let next = now + u64::try_from(next_in.as_nanos()).unwrap();
                prop_assert!(log.affords(next, length, count, left + 1));
                prop_assert!(!log.affords(next - 1, length, count, left + 1));
            }
            let full = now + u64::try_from(verdict.full_in().as_nanos()).unwrap();
            prop_assert_eq!(log.counted(full, length), 0);
        }
        prop_assert!(log.worst(length) <= count, "{} of {}", log.worst(length), count);
    }

    /// A caller with an older instant gets the same or less.
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
            let left = |now| limiter.peek(Request::new(AGENT, LANE).at(Tick::from_nanos(now))).unwrap().remaining();
            let earlier = now - Move::Share(back).from(0, length, 0).min(now);
            prop_assert!(left(earlier) <= left(now));
            let _ = check_at(&limiter, now, 1 + ((count - 1) as f64 * share) as u64);
        }
    }
}

/// What a client is admitted that asks once a millisecond, from an instant on, for ten windows.
fn greedy(count: u64, start: u64, first: u64) -> Log {
    const LENGTH: u64 = 1_000_000_000;
    let (limiter, _) = limiter(&format!("window {count}/s"));
    let mut log = Log::default();
    let mut charge = |now, cost| check_at(&limiter, now, cost).is_allowed().then(|| log.charges.push((now, cost)));
    charge(start, first).expect("a fresh window");
    for step in 1..10 * LENGTH / 1_000_000 {
        while charge(start + step * 1_000_000, 1).is_some() {}
    }
    log
}

/// As the documentation states: no more than the count in any trailing window.
/// With the weighted counter of two windows, a client that spent all of it in
/// the last instant of a window reached `2 * count - 1`: 39 of 20.
#[test]
fn no_trailing_window_holds_more_than_the_count() {
    const LENGTH: u64 = 1_000_000_000;
    let part = LENGTH.div_ceil(3);
    for count in [1_u64, 2, 20, 100] {
        for start in [2 * LENGTH - 1, 6 * part, 6 * part - 1, 6 * part + part / 2, 7 * part - 1] {
            for first in [1, count.div_ceil(2), count] {
                let worst = greedy(count, start, first).worst(LENGTH);
                assert_eq!(worst, count, "{count} from {start}, {first} at first");
            }
        }
    }
}

/// The price, as stated: a burst comes back after one window, or up to a third of it later.
#[test]
fn a_charge_counts_for_up_to_a_third_longer() {
    for (second, wait) in [(0, 80), (1, 79), (19, 61), (20, 80), (39, 61), (40, 80), (59, 61)] {
        for count in [20, 100] {
            let (limiter, clock) = limiter(&format!("window {count}/min"));
            clock.advance(Duration::from_secs(second));
            assert!(limiter.check_request(Request::new(AGENT, LANE).cost(count)).unwrap().is_allowed());
            let denied = limiter.check(AGENT, LANE).unwrap();
            assert_eq!(denied.retry_after(), Some(Duration::from_secs(wait)), "at {second} s");
            assert_eq!(denied.full_in(), Duration::from_secs(wait));
        }
    }
}

/// Limits, the most that passes in any minute, and the highest even rate per
/// minute that always passes: as `docs/limits.md` and `Limit::window` state
/// them.
const STATED: [(&str, usize, u64); 6] = [
    ("exact 20/min", 20, 20),
    ("window 20/min", 20, 15),
    ("exact 100/min", 100, 100),
    ("window 100/min", 100, 75),
    ("window 1000/min", 1_000, 750),
    ("100/min", 199, 100),
];

#[test]
fn the_most_in_any_minute_is_as_stated() {
    for (limit, most, _) in STATED {
        let (limiter, clock) = limiter(limit);
        let mut admitted = Vec::new();
        clock.advance(Duration::from_millis(59_900));
        for ask in 0..3_000_u64 {
            while limiter.check(AGENT, LANE).unwrap().is_allowed() {
                admitted.push(ask);
            }
            clock.advance(Duration::from_millis(100));
        }
        let trailing = |end: &u64| admitted.iter().filter(|at| *at <= end && end - *at < 600).count();
        assert_eq!(admitted.iter().map(trailing).max(), Some(most), "{limit}");
    }
}

#[test]
fn evenly_spaced_requests_pass_up_to_the_stated_rate() {
    // How many of an hour of requests at this rate pass.
    let passes = |limit: &str, per_minute: u64| {
        let (limiter, clock) = limiter(limit);
        let between = Duration::from_secs(60).div_f64(per_minute as f64);
        let asks = (0..60 * per_minute).filter(|_| {
            clock.advance(between);
            limiter.check(AGENT, LANE).unwrap().is_allowed()
        });
        asks.count() as u64
    };
    for (limit, _, evenly) in STATED {
        assert_eq!(passes(limit, evenly), 60 * evenly, "{limit}");
        // A bucket absorbs one more per minute for longer than an hour.
        assert!(limit == "100/min" || passes(limit, evenly + 1) < 60 * (evenly + 1), "{limit}");
    }
}

#[test]
fn a_client_that_asks_all_the_time_gets_at_most_the_count_in_every_minute() {
    let (limiter, clock) = limiter("window 20/min");
    let mut admitted = Vec::new();
    for second in 0..600 {
        while limiter.check(AGENT, LANE).unwrap().is_allowed() {
            admitted.push(second);
        }
        clock.advance(Duration::from_secs(1));
        let trailing = admitted.iter().filter(|at| second - *at < 60).count();
        assert!(trailing <= 20, "{trailing} at {second}");
    }
    assert_eq!(admitted[..20], [0; 20]);
    assert_eq!(admitted[20..40], [80; 20]);
}

/// A refund comes off both words if the charge is old enough.
#[test]
fn a_refund_reaches_every_third_that_counts() {
    let (limiter, clock) = limiter("window 10/min");
    for cost in [1, 2, 3, 4] {
        assert!(limiter.check_request(Request::new(AGENT, LANE).cost(cost)).unwrap().is_allowed());
        clock.advance(Duration::from_secs(20));
    }
    // The first charge has expired.
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 1);
    assert_eq!(limiter.refund(Request::new(AGENT, LANE).cost(8)).unwrap().remaining(), 9);
    let left = limiter.peek(Request::new(AGENT, LANE)).unwrap();
    assert_eq!((left.remaining(), left.full_in()), (9, Duration::from_secs(20)));
    assert_eq!(limiter.refund(Request::new(AGENT, LANE).cost(10)).unwrap().full_in(), Duration::ZERO);
    assert_eq!(limiter.check_request(Request::new(AGENT, LANE).cost(10)).unwrap().remaining(), 0);
}

/// All of it, including what has moved to the second word.
#[test]
fn a_reset_fills_both_words() {
    let (limiter, clock) = limiter("window 10/min");
    for cost in [1, 2, 3, 4] {
        assert!(limiter.check_request(Request::new(AGENT, LANE).cost(cost)).unwrap().is_allowed());
        clock.advance(Duration::from_secs(20));
    }
    limiter.reset_lane(AGENT, LANE).unwrap();
    assert_eq!(limiter.check_request(Request::new(AGENT, LANE).cost(10)).unwrap().remaining(), 0);
}

#[test]
fn a_refund_removes_what_was_charged_last_and_never_more() {
    let (limiter, clock) = limiter("window 10/min");
    assert!(limiter.check_request(Request::new(AGENT, LANE).cost(10)).unwrap().is_allowed());
    clock.advance(Duration::from_secs(60));
    assert_eq!(limiter.refund(Request::new(AGENT, LANE).cost(4)).unwrap().remaining(), 4);
    assert!(limiter.check_request(Request::new(AGENT, LANE).cost(2)).unwrap().is_allowed());
    assert_eq!(limiter.refund(Request::new(AGENT, LANE).cost(10)).unwrap().remaining(), 10);
    assert_eq!(limiter.refund(Request::new(AGENT, LANE).cost(10)).unwrap().remaining(), 10);
    assert_eq!(
        limiter.refund(Request::new(AGENT, LANE).cost(11)),
        Err(Error::CostAboveCapacity { cost: 11, capacity: 10 })
    );
}

#[test]
fn an_idle_window_is_swept_and_a_busy_one_is_not() {
    let (limiter, clock) = limiter("window 10/min");
    let swept_after = |seconds| {
        clock.advance(Duration::from_secs(seconds));
        limiter.sweep(Duration::ZERO)
    };
    assert!(limiter.check(AGENT, LANE).unwrap().is_allowed());
    assert_eq!((swept_after(0), swept_after(79), swept_after(1)), (0, 0, 1));
    assert_eq!(limiter.check_request(Request::new(AGENT, LANE).cost(10)).unwrap().remaining(), 0);
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
    clock.advance(Duration::from_secs(79));
    assert_eq!(limiter.check("newcomer", LANE), Err(Error::Full));
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiter.check("newcomer", LANE).unwrap().remaining(), 2);
}

#[test]
fn a_plan_changes_the_count_and_keeps_what_was_charged() {
    let policy = Policy::builder().lane("lane", "window 3/min").plan("pro", [("lane", "window 9/min")]);
    let policy = policy.plan("off", [("lane", "deny")]).build().unwrap();
    let (limiter, _) = of_policy(policy);
    let left = || limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining();
    assert!(limiter.check_request(Request::new(AGENT, LANE).cost(2)).unwrap().is_allowed());
    for (plan, expected) in [("pro", 7), ("off", 0), ("default", 1), ("pro", 7)] {
        // More than sixteen generations.
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
    assert_eq!(
        limiter.check_request(Request::new(AGENT, LANE).cost(10)),
        Err(Error::CostAboveCapacity { cost: 10, capacity: 9 })
    );
    assert_eq!(limiter.check_request(Request::new(AGENT, LANE).cost(0)), Err(Error::ZeroCost));
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

/// A bucket lane named after another kind is still a bucket.
#[test]
fn lanes_of_several_kinds_do_not_disturb_each_other() {
    let policy = Policy::builder().lane("a", "2/min").lane("b", "window 2/min").lane("c", "2/min").build().unwrap();
    let (limiter, clock) = of_policy(policy);
    let [a, b, c] = ["a", "b", "c"].map(|name| limiter.lane(name).unwrap());
    for lane in [a, b, c] {
        assert_eq!(
            [1, 1].map(|cost| limiter.check_request(Request::new(AGENT, lane).cost(cost)).unwrap().remaining()),
            [1, 0]
        );
        assert!(!limiter.check(AGENT, lane).unwrap().is_allowed());
    }
    clock.advance(Duration::from_secs(30));
    assert_eq!([a, b, c].map(|lane| limiter.check(AGENT, lane).unwrap().is_allowed()), [true, false, true]);
    assert_eq!(limiter.check(AGENT, LaneId::new(3)), Err(Error::UnknownLane { lane: 3, lanes: 3 }));
    let admitted = limiter.check_request(Request::new(AGENT, b).counted()).unwrap();
    assert_eq!(admitted.lane_wait(), Some(Duration::from_secs(50)));
    assert_eq!(admitted.window(), Duration::from_secs(60));
    assert_eq!((admitted.violations_in_a_row(), admitted.retry_after()), (0, Some(Duration::from_secs(50))));
}

#[test]
fn the_last_instant_denies() {
    let (limiter, _) = limiter("window 3/min");
    let last = limiter.check_request(Request::new(AGENT, LANE).at(Tick::MAX)).unwrap();
    assert_eq!((last.is_allowed(), last.retry_after()), (false, None));
    assert!(
        limiter
            .check_request(Request::new(AGENT, LANE).cost(3).at(Tick::from_nanos(Tick::MAX.as_nanos() - 1)))
            .unwrap()
            .is_allowed()
    );
    assert!(
        !limiter
            .check_request(Request::new(AGENT, LANE).at(Tick::from_nanos(Tick::MAX.as_nanos() - 1)))
            .unwrap()
            .is_allowed()
    );
}
