//! What a bucket holds, how it refills, and what a denial reports.

use super::*;
use tollgate::{Decision, Error, Request};

#[test]
fn the_first_check_of_an_agent_charges_a_full_bucket() {
    let (limiter, _) = platform();
    let first = check(&limiter, "agent-7", NORMAL);
    assert_eq!((first.decision(), first.remaining(), first.capacity()), (Decision::Allow, 59, 60));
    assert_eq!((first.retry_after(), first.full_in()), (None, SECOND));
}

#[test]
fn a_fresh_agent_is_admitted_exactly_as_often_as_its_capacity() {
    let (limiter, _) = platform();
    for (lane, capacity) in [(LIGHT, 120), (NORMAL, 60), (HEAVY, 10)] {
        for left in (0..capacity).rev() {
            let verdict = check(&limiter, "agent-7", lane);
            assert!(verdict.is_allowed());
            assert_eq!(verdict.remaining(), left);
        }
        let denied = check(&limiter, "agent-7", lane);
        assert_eq!((denied.decision(), denied.remaining(), denied.capacity()), (Decision::Deny, 0, capacity));
    }
}

#[test]
fn half_the_period_refills_half_and_the_whole_period_all() {
    let (limiter, clock) = platform();
    for (lane, capacity) in [(LIGHT, 120), (NORMAL, 60), (HEAVY, 10)] {
        assert_eq!(admitted(&limiter, "agent-7", lane), capacity);
        clock.advance(MINUTE / 2);
        assert_eq!(admitted(&limiter, "agent-7", lane), capacity / 2);
        clock.advance(MINUTE);
        assert_eq!(admitted(&limiter, "agent-7", lane), capacity);
    }
}

#[test]
fn a_wait_refills_its_length_times_the_rate_rounded_down() {
    for (lane, capacity) in [(LIGHT, 120_u128), (NORMAL, 60), (HEAVY, 10)] {
        for millis in [1, 499, 500, 501, 999, 1_000, 5_999, 6_000, 6_001, 12_345, 29_999, 47_113, 59_999] {
            let (limiter, clock) = platform();
            assert_eq!(u128::from(admitted(&limiter, "agent-7", lane)), capacity);
            clock.advance(Duration::from_millis(millis));
            let exact = u128::from(millis) * capacity / MINUTE.as_millis();
            assert_eq!(u128::from(admitted(&limiter, "agent-7", lane)), exact, "{capacity}/min after {millis} ms");
        }
    }
}

#[test]
fn a_bucket_holds_its_capacity_after_any_idle_time_and_never_more() {
    for limit in several_limits() {
        let (limiter, clock) = one_lane(limit);
        let capacity = limit.capacity();
        assert_eq!(admitted(&limiter, "agent-7", LANE), capacity);
        let depth = limiter.peek(Request::new("agent-7", LANE)).expect("valid").full_in();
        for extra in [Duration::ZERO, NANOSECOND, depth - NANOSECOND, depth, YEAR] {
            clock.advance(depth + extra);
            assert_eq!(admitted(&limiter, "agent-7", LANE), capacity, "{limit}, idle {extra:?} beyond full");
        }
        // One nanosecond before it is full, the last token is not whole yet.
        clock.advance(depth - NANOSECOND);
        assert_eq!(admitted(&limiter, "agent-7", LANE), capacity - 1, "{limit}");
    }
}

#[test]
fn a_million_checks_do_not_drift_from_the_exact_rate() {
    // One token takes a second; polled every 7 ms for 7,000 s, and almost always denied.
    let (limiter, clock) = one_lane(Limit::per_minute(60));
    let mut passed = 0_u64;
    for _ in 0..1_000_000 {
        passed += u64::from(check(&limiter, "agent-7", LANE).is_allowed());
        clock.advance(Duration::from_millis(7));
    }
    // The last poll was at 6,999.993 s.
    assert_eq!(passed, 60 + 6_999);
}

#[test]
fn long_run_admission_never_exceeds_the_rate_and_falls_short_by_less_than_a_billionth_of_it() {
    for (tokens, per) in [(7, MINUTE), (999_999_937, SECOND), (1_000_003, SECOND), (1, MINUTE * 1_440), (60, MINUTE)] {
        let limit = Limit::new(tokens, per).burst(1_000);
        let (limiter, clock) = one_lane(limit);
        assert!(spend(&limiter, "agent-7", LANE, 1_000).is_allowed());
        let depth = limiter.peek(Request::new("agent-7", LANE)).expect("valid").full_in();
        // Steps shorter than a refill, so that no time is lost to a full
        // bucket, and not round, so that every fraction of a token occurs.
        let step = depth * 997 / 1_009;
        let mut passed = 0_u128;
        // Ten years and a few refills at most, well within the clock's range.
        while passed < 2_000_000 && clock.now() < Tick::ZERO.saturating_add(YEAR * 10) {
            clock.advance(step);
            let left = remaining(&limiter, "agent-7", LANE);
            assert!(left < 1_000 && spend(&limiter, "agent-7", LANE, left).is_allowed());
            passed += u128::from(left);
        }
        let elapsed = u128::from(clock.now().as_nanos());
        let (tokens, per) = (u128::from(tokens), per.as_nanos());
        assert!(passed * per <= elapsed * tokens, "{limit}: {passed} in {elapsed} ns is faster than configured");
        // Short by less than the share tokens / per, the rate in tokens per
        // nanosecond, and by less than the one token that is not whole yet.
        let least = elapsed * tokens / per * (per - tokens) / per;
        assert!(passed + 1 >= least, "{limit}: {passed} in {elapsed} ns, at least {least} wanted");
    }
}

#[test]
fn a_lane_that_denies_everything_gives_no_retry_and_claims_no_record() {
    let policy = Policy::builder().lane("off", "deny").lane("on", Limit::per_minute(60)).build();
    let (limiter, clock) = build(policy.expect("valid"), 100, OnFull::Deny);
    let (off, on) = (LaneId::new(0), LaneId::new(1));
    for cost in [1, 5, u64::MAX] {
        let denied = spend(&limiter, "agent-7", off, cost);
        assert_eq!((denied.decision(), denied.retry_after()), (Decision::Deny, None));
        assert_eq!((denied.remaining(), denied.capacity()), (0, 0));
        assert_eq!((denied.next_in(), denied.window()), (None, Duration::ZERO));
    }
    assert_eq!(limiter.check_request(Request::new("agent-7", off).cost(0)), Err(Error::ZeroCost));
    assert_eq!((limiter.stats().agents, limiter.stats().claims), (0, 0));

    // Not for an agent with a record either, nor after any wait, refund or reset.
    assert_eq!(check(&limiter, "agent-7", on).remaining(), 59);
    clock.advance(YEAR);
    assert_eq!(limiter.refund(Request::new("agent-7", off)).map(|status| status.remaining()), Ok(0));
    limiter.reset("agent-7").expect("valid");
    let denied = check(&limiter, "agent-7", off);
    assert_eq!((denied.decision(), denied.retry_after()), (Decision::Deny, None));
    let status = limiter.peek(Request::new("agent-7", off)).expect("valid");
    assert_eq!((status.remaining(), status.capacity(), status.next_in()), (0, 0, None));
}

#[test]
fn a_denial_charges_nothing() {
    for limit in several_limits() {
        let (limiter, _) = one_lane(limit);
        assert_eq!(admitted(&limiter, "agent-7", LANE), limit.capacity());
        let before = limiter.peek(Request::new("agent-7", LANE));
        for cost in [1, limit.capacity()] {
            assert!((0..1_000).all(|_| !spend(&limiter, "agent-7", LANE, cost).is_allowed()));
        }
        assert_eq!(limiter.peek(Request::new("agent-7", LANE)), before, "{limit}");
    }
}

#[test]
fn an_agent_is_admitted_after_retry_after_and_not_a_nanosecond_earlier() {
    for limit in several_limits() {
        let capacity = limit.capacity();
        for cost in [1, capacity.div_ceil(2), capacity] {
            for idle in [Duration::ZERO, NANOSECOND, Duration::from_nanos(777)] {
                let (limiter, clock) = one_lane(limit);
                assert_eq!(admitted(&limiter, "agent-7", LANE), capacity);
                clock.advance(idle);
                let denied = spend(&limiter, "agent-7", LANE, cost);
                let Some(wait) = denied.retry_after() else {
                    assert!(denied.is_allowed(), "{limit}: a denial without a retry");
                    continue; // The fastest limits have refilled already.
                };
                clock.advance(wait - NANOSECOND);
                assert!(!spend(&limiter, "agent-7", LANE, cost).is_allowed(), "{limit}, cost {cost}: too early");
                clock.advance(NANOSECOND);
                assert!(
                    spend(&limiter, "agent-7", LANE, cost).is_allowed(),
                    "{limit}, cost {cost}: denied after its wait"
                );
            }
        }
    }
}
