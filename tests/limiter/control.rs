//! Refund, reset, forget and sweep.

use super::*;
use tollgate::Request;

#[test]
fn a_refund_gives_back_what_was_charged() {
    let (limiter, _) = platform();
    assert_eq!(spend(&limiter, "agent-7", NORMAL, 30).remaining(), 30);
    assert_eq!(limiter.refund(Request::new("agent-7", NORMAL).cost(10)).map(|status| status.remaining()), Ok(40));
    assert_eq!(remaining(&limiter, "agent-7", NORMAL), 40);
    assert_eq!(remaining(&limiter, "agent-7", LIGHT), 120);
    assert_eq!(admitted(&limiter, "agent-7", NORMAL), 40);
}

#[test]
fn a_refund_never_lifts_a_bucket_above_full() {
    let (limiter, clock) = one_lane(Limit::per_minute(60));
    assert_eq!(spend(&limiter, "agent-7", LANE, 5).remaining(), 55);
    for _ in 0..10 {
        let status = limiter.refund(Request::new("agent-7", LANE).cost(60)).expect("valid");
        assert_eq!((status.remaining(), status.full_in()), (60, Duration::ZERO));
    }
    assert_eq!(admitted(&limiter, "agent-7", LANE), 60);

    // Nor above full after an idle time, when the debt lies in the past.
    clock.advance(MINUTE * 5);
    assert_eq!(limiter.refund(Request::new("agent-7", LANE).cost(60)).map(|status| status.remaining()), Ok(60));
    assert_eq!(admitted(&limiter, "agent-7", LANE), 60);
}

#[test]
fn a_refund_to_an_unknown_agent_changes_nothing() {
    let (limiter, _) = one_lane(Limit::per_minute(60));
    assert_eq!(limiter.refund(Request::new("agent-7", LANE).cost(5)).map(|status| status.remaining()), Ok(60));
    assert_eq!(limiter.stats().claims, 0);
    assert_eq!(admitted(&limiter, "agent-7", LANE), 60);
}

#[test]
fn resetting_a_lane_fills_that_lane_alone() {
    let (limiter, _) = platform();
    assert_eq!(admitted(&limiter, "agent-7", NORMAL), 60);
    assert_eq!(admitted(&limiter, "agent-7", HEAVY), 10);
    assert_eq!(admitted(&limiter, "agent-8", NORMAL), 60);
    limiter.reset_lane("agent-7", NORMAL).expect("valid");
    assert_eq!(remaining(&limiter, "agent-7", NORMAL), 60);
    assert_eq!(remaining(&limiter, "agent-7", HEAVY), 0);
    assert_eq!(remaining(&limiter, "agent-8", NORMAL), 0);
    assert_eq!(admitted(&limiter, "agent-7", NORMAL), 60);
}

#[test]
fn resetting_an_agent_fills_all_its_lanes_and_no_other_agents() {
    let (limiter, _) = platform();
    for (lane, _) in limiter.policy().lanes() {
        admitted(&limiter, "agent-7", lane);
        admitted(&limiter, "agent-8", lane);
    }
    limiter.reset("agent-7").expect("valid");
    for (lane, _) in limiter.policy().lanes() {
        let status = limiter.peek(Request::new("agent-7", lane)).expect("valid");
        assert_eq!(status.remaining(), status.capacity());
        assert_eq!(remaining(&limiter, "agent-8", lane), 0);
    }
    limiter.reset("stranger").expect("an unknown agent is full already");
    assert_eq!(limiter.stats().agents, 2);
}

#[test]
fn the_next_check_of_a_forgotten_agent_is_its_first() {
    let (limiter, _) = platform();
    assert_eq!(admitted(&limiter, "agent-7", NORMAL), 60);
    assert_eq!(admitted(&limiter, "agent-7", HEAVY), 10);
    assert_eq!(admitted(&limiter, "agent-8", HEAVY), 10);
    assert_eq!(limiter.forget("agent-7"), Ok(true));
    assert_eq!(limiter.stats().agents, 1);
    assert_eq!(check(&limiter, "agent-7", NORMAL).remaining(), 59);
    assert_eq!(check(&limiter, "agent-7", HEAVY).remaining(), 9);
    assert_eq!(remaining(&limiter, "agent-8", HEAVY), 0);
    assert_eq!((limiter.stats().agents, limiter.stats().claims), (2, 3));
}

#[test]
fn forgetting_an_unknown_agent_is_false() {
    let (limiter, _) = platform();
    assert_eq!(limiter.forget("agent-7"), Ok(false));
    touch(&limiter, "agent-7", NORMAL);
    assert_eq!(limiter.forget("agent-8"), Ok(false));
    assert_eq!(limiter.forget("agent-7"), Ok(true));
    assert_eq!(limiter.forget("agent-7"), Ok(false));
}

#[test]
fn a_sweep_vacates_the_agents_that_have_been_idle_for_long_enough() {
    let (limiter, clock) = one_lane(Limit::per_minute(60));
    for agent in 0..50 {
        touch(&limiter, &format!("early-{agent}"), LANE);
    }
    clock.advance(MINUTE);
    for agent in 0..20 {
        touch(&limiter, &format!("late-{agent}"), LANE);
    }
    assert_eq!(limiter.stats().agents, 70);

    // A bucket is idle once it is full: the early ones at 1 s, the late ones at 61 s.
    assert_eq!(limiter.sweep(MINUTE), 0);
    assert_eq!(limiter.sweep(MINUTE - SECOND), 50);
    assert_eq!(limiter.stats().agents, 20);
    assert_eq!(limiter.sweep(Duration::ZERO), 0);
    clock.advance(SECOND);
    assert_eq!(limiter.sweep(NANOSECOND), 0);
    assert_eq!(limiter.sweep(Duration::ZERO), 20);
    assert_eq!((limiter.stats().agents, limiter.stats().idle_evictions), (0, 70));
    assert_eq!(check(&limiter, "early-0", LANE).remaining(), 59);
}

#[test]
fn a_sweep_leaves_an_agent_with_one_lane_in_debt_alone() {
    let (limiter, clock) = platform();
    touch(&limiter, "agent-7", LIGHT);
    assert_eq!(admitted(&limiter, "agent-7", HEAVY), 10);
    clock.advance(MINUTE - NANOSECOND);
    assert_eq!(limiter.sweep(Duration::ZERO), 0);
    assert_eq!(remaining(&limiter, "agent-7", HEAVY), 9);
    clock.advance(NANOSECOND);
    assert_eq!(limiter.sweep(Duration::ZERO), 1);
}

#[test]
fn swept_every_five_minutes_an_agent_idle_for_ten_is_gone_within_fifteen() {
    let (limiter, clock) = one_lane(Limit::per_minute(60));
    assert_eq!(admitted(&limiter, "agent-7", LANE), 60);
    let gone_after = (1..=4).find(|_| {
        clock.advance(MINUTE * 5);
        limiter.sweep(MINUTE * 10) == 1
    });
    assert_eq!(gone_after, Some(3));
    assert_eq!(limiter.stats().agents, 0);
}

#[test]
fn a_sweep_for_longer_than_the_clock_has_run_takes_no_record() {
    let (limiter, clock) = one_lane(Limit::per_minute(60));
    touch(&limiter, "agent-7", LANE);
    clock.advance(MINUTE);
    assert_eq!(limiter.sweep(MINUTE + NANOSECOND), 0);
    assert_eq!(limiter.sweep(Duration::MAX), 0);
}
