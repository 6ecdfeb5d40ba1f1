//! The range of the clock, clocks that step back, and extreme rates.

use super::*;
use tollgate::{Decision, Request};

#[test]
fn past_the_range_of_the_clock_everything_is_denied_and_nothing_wraps() {
    let (limiter, clock) = one_lane(Limit::per_second(1).burst(10));
    clock.set(Tick::MAX);
    for _ in 0..3 {
        let denied = check(&limiter, "agent-7", LANE);
        assert_eq!((denied.decision(), denied.retry_after()), (Decision::Deny, None));
        clock.advance(Duration::MAX);
    }
    assert_eq!(limiter.stats().claims, 0);

    // Five seconds before the end there is room for five tokens of a second each.
    let edge = Tick::from_nanos(Tick::MAX.as_nanos() - 5_000_000_000);
    clock.set(edge);
    assert_eq!(admitted(&limiter, "agent-7", LANE), 5);
    let denied = check(&limiter, "agent-7", LANE);
    assert_eq!((denied.decision(), denied.retry_after()), (Decision::Deny, None));
    clock.set(Tick::MAX);
    assert!(!check(&limiter, "agent-7", LANE).is_allowed());
    let full = limiter.peek(Request::new("agent-7", LANE)).expect("valid");
    assert_eq!((full.remaining(), full.full_in()), (10, Duration::ZERO));
}

#[test]
fn a_clock_that_steps_back_is_only_stricter() {
    let (limiter, clock) = one_lane(Limit::per_minute(60));
    clock.set(Tick::from_nanos(1_000_000_000_000));
    assert_eq!(spend(&limiter, "agent-7", LANE, 30).remaining(), 30);
    for (back_secs, left) in [(1, 29), (29, 1), (30, 0), (31, 0), (900, 0)] {
        let earlier = Tick::from_nanos((1_000 - back_secs) * 1_000_000_000);
        let status = limiter.peek(Request::new("agent-7", LANE).at(earlier)).expect("valid");
        assert_eq!(status.remaining(), left, "{back_secs} s back");
        assert_eq!(status.full_in(), SECOND * (30 + back_secs as u32));
        let verdict = limiter.check_request(Request::new("agent-7", LANE).cost(31).at(earlier)).expect("valid");
        assert_eq!(verdict.retry_after(), Some(SECOND * (1 + back_secs as u32)));
    }
    assert_eq!(admitted(&limiter, "agent-7", LANE), 30);
}

#[test]
fn an_agent_evicted_as_idle_gains_nothing_from_an_older_instant() {
    // Drained at 0 and idle at 60 s, when it is evicted. A call that read the
    // clock at 0 and arrives now must not find a fresh bucket at 0, or the
    // minute in between would count twice.
    let (limiter, clock) = neighbourhood(Limit::per_minute(60), OnFull::Deny);
    assert_eq!(admitted(&limiter, "agent-7", LANE), 60);
    clock.advance(MINUTE);
    assert_eq!(limiter.sweep(Duration::ZERO), 1);
    let mut passed = 0;
    while limiter.check_request(Request::new("agent-7", LANE).at(Tick::ZERO)).expect("valid").is_allowed() {
        passed += 1;
    }
    passed += admitted(&limiter, "agent-7", LANE);
    assert_eq!(passed, 60);
}

#[test]
fn the_slowest_rate_gives_a_token_a_day() {
    let (limiter, clock) = one_lane(Limit::per_day(1));
    assert_eq!(admitted(&limiter, "agent-7", LANE), 1);
    let denied = check(&limiter, "agent-7", LANE);
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(86_400)));
    clock.advance(Duration::from_secs(86_400) - NANOSECOND);
    assert!(!check(&limiter, "agent-7", LANE).is_allowed());
    clock.advance(NANOSECOND);
    assert_eq!(admitted(&limiter, "agent-7", LANE), 1);
}

#[test]
fn the_fastest_rate_gives_a_token_a_nanosecond_into_the_largest_bucket() {
    let capacity = 1_000_000_000_000;
    let (limiter, clock) = one_lane(Limit::per_second(1_000_000_000).burst(capacity));
    assert_eq!(spend(&limiter, "agent-7", LANE, capacity).remaining(), 0);
    assert_eq!(check(&limiter, "agent-7", LANE).retry_after(), Some(NANOSECOND));
    clock.advance(NANOSECOND);
    assert_eq!(admitted(&limiter, "agent-7", LANE), 1);
    clock.advance(Duration::from_secs(1_000));
    assert_eq!(spend(&limiter, "agent-7", LANE, capacity).remaining(), 0);
    assert!(!check(&limiter, "agent-7", LANE).is_allowed());
}

#[test]
fn a_newcomer_waits_no_longer_than_until_another_agents_eviction() {
    // Its instant is a nanosecond before another agent was evicted as idle. The
    // limiter cannot know that it was another agent, so the newcomer waits for
    // that nanosecond.
    let (limiter, clock) = neighbourhood(Limit::per_minute(1), OnFull::Deny);
    assert!(check(&limiter, "old", LANE).is_allowed());
    clock.advance(MINUTE + NANOSECOND);
    assert_eq!(limiter.sweep(Duration::ZERO), 1);
    let before = Tick::ZERO.saturating_add(MINUTE);
    let denied = limiter.check_request(Request::new("new", LANE).at(before)).expect("valid");
    assert_eq!(denied.retry_after(), Some(NANOSECOND));
    assert!(check(&limiter, "new", LANE).is_allowed());
}
