//! Independent lanes and agents, warnings, and peeking without charging.

use super::*;
use tollgate::bounds::ID_BYTES_MAX;
use tollgate::{Decision, Request};

#[test]
fn lanes_of_an_agent_are_independent() {
    let (limiter, _) = platform();
    assert_eq!(admitted(&limiter, "agent-7", NORMAL), 60);
    assert_eq!(check(&limiter, "agent-7", HTTP_NORMAL).remaining(), 59);
    assert_eq!(check(&limiter, "agent-7", LIGHT).remaining(), 119);
    assert!(!check(&limiter, "agent-7", NORMAL).is_allowed());
}

#[test]
fn agents_are_independent() {
    let (limiter, _) = platform();
    assert_eq!(admitted(&limiter, "agent-7", HEAVY), 10);
    assert_eq!(admitted(&limiter, "agent-8", HEAVY), 10);
    // Ids are bytes: neither case, nor padding, nor a NUL is ignored.
    for id in ["Agent-7", "agent-7 ", "agent-7\0", "agent-", "\0"] {
        assert_eq!(check(&limiter, id, HEAVY).remaining(), 9, "{id:?}");
    }
}

#[test]
fn ids_of_every_allowed_length_are_separate_agents() {
    let (limiter, _) = build(platform_policy(), 1_000, OnFull::Deny);
    for length in 1..=ID_BYTES_MAX {
        let verdict = limiter.check(vec![b'a'; length], NORMAL).expect("an allowed length");
        assert_eq!(verdict.remaining(), 59, "{length} bytes");
    }
    assert_eq!(limiter.stats().agents, ID_BYTES_MAX as u64);
}

#[test]
fn a_policy_with_any_number_of_lanes_keeps_them_independent() {
    for lanes in [1, 2, 3, 6, 7, 14, 15, 30, 31, 62] {
        let policy = (0..lanes).fold(Policy::builder(), |b, i| b.lane(format!("lane/{i}"), Limit::per_minute(i + 1)));
        let (limiter, _) = build(policy.build().expect("valid"), 100, OnFull::Deny);
        for agent in ["agent-7", "agent-8"] {
            for (lane, _) in limiter.policy().lanes() {
                assert_eq!(admitted(&limiter, agent, lane), u64::from(lane.number()) + 1, "lane {lane:?} of {lanes}");
            }
        }
    }
}

#[test]
fn the_first_warning_comes_below_a_fifth_of_the_capacity() {
    let (limiter, _) = platform();
    for (lane, warned_at) in [(LIGHT, 23), (NORMAL, 11), (HEAVY, 1)] {
        let first = (0..)
            .map(|_| check(&limiter, "agent-7", lane))
            .find(|verdict| verdict.decision() != Decision::Allow)
            .expect("an endless search");
        assert_eq!((first.decision(), first.remaining()), (Decision::Warn, warned_at));
        assert!(first.is_allowed());
    }
}

#[test]
fn the_warning_threshold_is_configurable() {
    for (percent, first_warning) in [(0, None), (50, Some(4)), (100, Some(9))] {
        let policy = Policy::builder().lane("lane", Limit::per_minute(10)).warn_below_percent(percent).build();
        let (limiter, _) = build(policy.expect("valid"), 100, OnFull::Deny);
        let verdicts: Vec<Verdict> = (0..10).map(|_| check(&limiter, "agent-7", LANE)).collect();
        let warned = verdicts.iter().find(|verdict| verdict.decision() == Decision::Warn).map(Verdict::remaining);
        assert_eq!(warned, first_warning, "below {percent} %");
    }
}

#[test]
fn a_peek_neither_charges_nor_claims_a_record() {
    let (limiter, clock) = platform();
    let fresh = limiter.peek(Request::new("agent-7", NORMAL)).expect("valid");
    assert_eq!((fresh.remaining(), fresh.capacity()), (60, 60));
    assert_eq!((fresh.next_in(), fresh.full_in()), (None, Duration::ZERO));
    assert_eq!(limiter.stats().claims, 0);

    assert_eq!(check(&limiter, "agent-7", NORMAL).remaining(), 59);
    clock.advance(SECOND / 4);
    for _ in 0..100 {
        let status = limiter.peek(Request::new("agent-7", NORMAL)).expect("valid");
        assert_eq!((status.remaining(), status.capacity()), (59, 60));
        assert_eq!((status.next_in(), status.full_in()), (Some(SECOND * 3 / 4), SECOND * 3 / 4));
    }
}

#[test]
fn a_peek_reports_when_the_next_token_comes() {
    for limit in several_limits() {
        let (limiter, clock) = one_lane(limit);
        assert_eq!(admitted(&limiter, "agent-7", LANE), limit.capacity());
        for expected in 1..=limit.capacity().min(20) {
            let next_in = limiter.peek(Request::new("agent-7", LANE)).expect("valid").next_in().expect("not full yet");
            clock.advance(next_in - NANOSECOND);
            assert_eq!(remaining(&limiter, "agent-7", LANE), expected - 1, "{limit}");
            clock.advance(NANOSECOND);
            assert_eq!(remaining(&limiter, "agent-7", LANE), expected, "{limit}");
        }
    }
}
