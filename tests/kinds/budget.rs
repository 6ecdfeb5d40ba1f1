//! At most n per calendar window.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::clock::ManualWallClock;
use tollgate::{Error, Request};

const HOUR: u64 = 3_600_000_000_000;
const DAY: u64 = 24 * HOUR;

proptest! {
    /// What passes, what is left and every wait match a count per window.
    #[test]
    fn a_budget_equals_a_count_per_window(
        units in 1..=1_000_000_000_000_u64,
        (unit, length) in prop_oneof![Just(("hour", HOUR)), Just(("day", DAY))],
        zone in -840_i64..=840,
        calls in prop::collection::vec((prop_oneof![Just(0.0), 0.0..0.4, 0.9..3.0], 0.0..1.0, 0..8), 1..60),
    ) {
        let sign = if zone < 0 { '-' } else { '+' };
        let text = format!("budget {units}/{unit} zone {sign}{}:{:02}", zone.abs() / 60, zone.abs() % 60);
        let (limiter, clock) = limiter(&text);
        let mut used: BTreeMap<u64, u64> = BTreeMap::new();
        // Two days after 1970 began, so that no time zone is before it.
        clock.advance(Duration::from_nanos(2 * DAY));
        for (share, cost, call) in calls {
            clock.advance(Duration::from_nanos((length as f64 * share) as u64));
            let local = (clock.now().as_nanos() as i64 + zone * 60_000_000_000) as u64;
            let (window, ends_in) = (local / length, length - local % length);
            let used = used.entry(window).or_default();
            let cost = 1 + ((units - 1) as f64 * cost * 0.5) as u64;
            let left = units - *used;
            if call == 0 {
                *used = used.saturating_sub(cost);
                let state = limiter.refund(Request::new(AGENT, LANE).cost(cost)).unwrap();
                prop_assert_eq!(state.remaining(), units - *used);
                continue;
            }
            let verdict = limiter.check_request(Request::new(AGENT, LANE).cost(cost)).unwrap();
            prop_assert_eq!(verdict.is_allowed(), cost <= left);
            if verdict.is_allowed() {
                *used += cost;
            } else {
                prop_assert_eq!(verdict.retry_after(), Some(Duration::from_nanos(ends_in)));
            }
            prop_assert_eq!(verdict.remaining(), units - *used);
            let full_in = if *used == 0 { Duration::ZERO } else { Duration::from_nanos(ends_in) };
            prop_assert_eq!(verdict.full_in(), full_in);
            let status = limiter.peek(Request::new(AGENT, LANE)).unwrap();
            prop_assert_eq!((status.remaining(), status.full_in()), (units - *used, full_in));
        }
    }
}

/// A limiter whose wall clock is separate from its own clock.
fn with_wall(limit: &str) -> (Limiter, ManualClock, ManualWallClock) {
    let policy = Policy::builder().lane("lane", limit).build().expect("a limit of the allowed range");
    let (clock, wall) = (ManualClock::new(), ManualWallClock::new(Duration::from_secs(1_800_000_000)));
    let limiter =
        Limiter::builder(policy).agents(1).clock(clock.clone()).wall_clock(wall.clone()).build().expect("a small slab");
    (limiter, clock, wall)
}

/// 15 January 2027, 08:00 UTC.
const MORNING: Duration = Duration::from_secs(1_800_000_000);
const ONE_DAY: Duration = Duration::from_secs(86_400);

#[test]
fn a_wall_clock_that_is_set_back_reopens_no_window() {
    let (limiter, _, wall) = with_wall("budget 10/day");
    let left = |agent: &str| limiter.peek(Request::new(agent, LANE)).unwrap().remaining();
    let spend = |agent: &str, cost| limiter.check_request(Request::new(agent, LANE).cost(cost)).unwrap().is_allowed();
    assert!(spend("a", 10) && spend("b", 4));
    wall.set(MORNING + ONE_DAY);
    assert!(spend("a", 7));
    assert_eq!((left("a"), left("b")), (3, 10));
    // Back to the first day: the second stays current, with what was used of it.
    wall.set(MORNING);
    assert_eq!((left("a"), left("b")), (3, 10));
    assert!(spend("b", 10) && !spend("b", 1));
    // Forward again: still the second day.
    wall.set(MORNING + ONE_DAY);
    assert_eq!((left("a"), left("b")), (3, 0));
    wall.set(MORNING + 2 * ONE_DAY);
    assert_eq!((left("a"), left("b")), (10, 10));
}

#[test]
fn an_agent_that_was_forgotten_meanwhile_gets_no_old_window_either() {
    let (limiter, _, wall) = with_wall("budget 10/day");
    assert!(limiter.check_request(Request::new(AGENT, LANE).cost(10)).unwrap().is_allowed());
    wall.set(MORNING + ONE_DAY);
    assert_eq!(limiter.sweep(Duration::ZERO), 1);
    wall.set(MORNING);
    assert!(limiter.check_request(Request::new(AGENT, LANE).cost(10)).unwrap().is_allowed());
    wall.set(MORNING + ONE_DAY);
    assert!(!limiter.check(AGENT, LANE).unwrap().is_allowed(), "the second day was used already");
}

#[test]
fn the_limiters_own_clock_moves_the_calendar_forward() {
    let (limiter, clock, _) = with_wall("budget 10/day");
    let denied = |limiter: &Limiter| limiter.check_request(Request::new(AGENT, LANE).cost(10)).unwrap().retry_after();
    assert_eq!(denied(&limiter), None);
    assert_eq!(denied(&limiter), Some(Duration::from_secs(16 * 3_600)));
    // The wall clock stands still, and falls behind from now on.
    clock.advance(Duration::from_secs(16 * 3_600));
    assert_eq!(denied(&limiter), None);
    assert_eq!(denied(&limiter), Some(ONE_DAY));
}

#[test]
fn months_and_weeks_end_with_the_calendar() {
    for (limit, days) in [("budget 1/week", 3), ("budget 1/month", 17)] {
        let (limiter, ..) = with_wall(limit);
        assert!(limiter.check(AGENT, LANE).unwrap().is_allowed());
        let expected = ONE_DAY * days - Duration::from_secs(8 * 3_600);
        assert_eq!(limiter.check(AGENT, LANE).unwrap().retry_after(), Some(expected), "{limit}");
    }
    let (limiter, ..) = with_wall("budget 1/month");
    assert_eq!(limiter.check(AGENT, LANE).unwrap().window(), ONE_DAY * 31);
}

#[test]
fn a_record_with_a_used_budget_is_never_given_up() {
    let policy = Policy::builder().lane("lane", "budget 10/day").build().unwrap();
    let (limiter, clock) = full(policy, OnFull::Evict);
    assert_eq!(limiter.check("newcomer", LANE), Err(Error::Full));
    limiter.refund(Request::new("tenant-0", LANE)).unwrap();
    assert_eq!(limiter.check("newcomer", LANE).unwrap().remaining(), 9);
    assert_eq!((limiter.check("another", LANE), limiter.stats().lossy_evictions), (Err(Error::Full), 0));
    clock.advance(ONE_DAY);
    assert_eq!(limiter.check("another", LANE).unwrap().remaining(), 9);
}

#[test]
fn a_hundred_threads_spend_a_budget_exactly() {
    let (limiter, _) = limiter("budget 100_000/day");
    let spent = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..100_u64 {
            let (limiter, spent) = (&limiter, &spent);
            scope.spawn(move || {
                for call in 0..100 {
                    let cost = 1 + (thread * 31 + call * 17) % 40;
                    if limiter.check_request(Request::new(AGENT, LANE).cost(cost)).unwrap().is_allowed() {
                        spent.fetch_add(cost, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let left = limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining();
    assert_eq!(spent.into_inner() + left, 100_000);
    assert!(left < 40, "{left} left though more was asked for");
}

#[test]
fn a_changed_limit_keeps_what_was_used() {
    let policy = Policy::builder().lane("lane", "budget 10/day").plan("pro", [("lane", "budget 100/day")]);
    let (limiter, _) = of_policy(policy.build().unwrap());
    assert!(limiter.check_request(Request::new(AGENT, LANE).cost(8)).unwrap().is_allowed());
    for round in 0..20 {
        limiter.assign(AGENT, limiter.plan("pro").unwrap()).unwrap();
        assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 92, "{round}");
        limiter.unassign(AGENT).unwrap();
        assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 2, "{round}");
    }
    let error = limiter.set_override(AGENT, "lane", "budget 10/day zone +01:00").unwrap_err();
    assert!(error.to_string().contains("is of another kind"), "{error}");
}
