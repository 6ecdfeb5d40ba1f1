//! Costs, and calls that cannot be answered.

use super::*;
use tollgate::bounds::{AGENTS_MAX, ID_BYTES_MAX};
use tollgate::{BuildError, Decision, Error, Request};

#[test]
fn a_cost_is_charged_whole_or_not_at_all() {
    let (limiter, clock) = one_lane(Limit::per_minute(60));
    assert_eq!(spend(&limiter, "agent-7", LANE, 50).remaining(), 10);
    let denied = spend(&limiter, "agent-7", LANE, 11);
    assert_eq!((denied.decision(), denied.remaining()), (Decision::Deny, 10));
    assert_eq!(denied.retry_after(), Some(SECOND));
    clock.advance(SECOND);
    assert_eq!(spend(&limiter, "agent-7", LANE, 11).remaining(), 0);
}

#[test]
fn a_cost_of_the_whole_capacity_passes() {
    for limit in several_limits() {
        let (limiter, _) = one_lane(limit);
        let verdict = spend(&limiter, "agent-7", LANE, limit.capacity());
        assert_eq!((verdict.is_allowed(), verdict.remaining()), (true, 0), "{limit}");
    }
}

#[test]
fn a_cost_above_capacity_is_an_error_and_not_a_denial() {
    let (limiter, _) = one_lane(Limit::per_minute(60));
    for cost in [61, 1 << 40, u64::MAX] {
        let error = Error::CostAboveCapacity { cost, capacity: 60 };
        assert_eq!(limiter.check_request(Request::new("agent-7", LANE).cost(cost)), Err(error));
        assert_eq!(limiter.refund(Request::new("agent-7", LANE).cost(cost)), Err(error));
    }
}

#[test]
fn a_request_that_cannot_be_answered_has_a_named_error() {
    let (limiter, _) = platform();
    let long = [b'a'; ID_BYTES_MAX + 1];
    let unknown = LaneId::new(6);
    let no_lane = Error::UnknownLane { lane: 6, lanes: 6 };
    let too_long = Error::IdTooLong { bytes: 257 };

    assert_eq!(limiter.check("", LANE), Err(Error::EmptyId));
    assert_eq!(limiter.check(long, LANE), Err(too_long));
    assert_eq!(limiter.check("agent-7", unknown), Err(no_lane));
    assert_eq!(limiter.check_request(Request::new("agent-7", LANE).cost(0)), Err(Error::ZeroCost));

    assert_eq!(limiter.peek(Request::new("", LANE)), Err(Error::EmptyId));
    assert_eq!(limiter.peek(Request::new(&long, LANE)), Err(too_long));
    assert_eq!(limiter.peek(Request::new("agent-7", unknown)), Err(no_lane));

    assert_eq!(limiter.refund(Request::new("", LANE)), Err(Error::EmptyId));
    assert_eq!(limiter.refund(Request::new(&long, LANE)), Err(too_long));
    assert_eq!(limiter.refund(Request::new("agent-7", unknown)), Err(no_lane));
    assert_eq!(limiter.refund(Request::new("agent-7", LANE).cost(0)), Err(Error::ZeroCost));

    assert_eq!(limiter.reset_lane("", LANE), Err(Error::EmptyId));
    assert_eq!(
        limiter.reset_lane("agent-7", LaneId::new(u32::MAX)),
        Err(Error::UnknownLane { lane: u32::MAX, lanes: 6 })
    );
    assert_eq!(limiter.reset(""), Err(Error::EmptyId));
    assert_eq!(limiter.reset(&long), Err(too_long));
    assert_eq!(limiter.forget(""), Err(Error::EmptyId));
    assert_eq!(limiter.forget(&long), Err(too_long));
}

#[test]
fn an_error_charges_nothing_and_claims_no_record() {
    let (limiter, _) = one_lane(Limit::per_minute(60));
    let errors = |agent: &[u8]| {
        assert!(limiter.check_request(Request::new(agent, LANE).cost(0)).is_err());
        assert!(limiter.check_request(Request::new(agent, LANE).cost(61)).is_err());
        assert!(limiter.check(agent, LaneId::new(1)).is_err());
        assert!(limiter.refund(Request::new(agent, LANE).cost(0)).is_err());
        assert!(limiter.refund(Request::new(agent, LANE).cost(61)).is_err());
        assert!(limiter.check([agent, &[b'a'; ID_BYTES_MAX]].concat(), LANE).is_err());
        assert!(limiter.check([], LANE).is_err());
    };
    errors(b"stranger");
    assert_eq!((limiter.stats().agents, limiter.stats().claims), (0, 0));

    assert_eq!(check(&limiter, "agent-7", LANE).remaining(), 59);
    errors(b"agent-7");
    assert_eq!(remaining(&limiter, "agent-7", LANE), 59);
}

#[test]
fn errors_read_as_sentences_that_name_the_bound() {
    let (limiter, _) = one_lane(Limit::per_minute(5));
    let text = |error: Result<Verdict, Error>| error.expect_err("cannot be answered").to_string();
    assert_eq!(
        text(limiter.check_request(Request::new("a", LANE).cost(9))),
        "cost 9 exceeds capacity 5 and can never pass"
    );
    assert!(text(limiter.check([b'a'; 300], LANE)).contains("300 bytes; at most 256"));
    assert!(text(limiter.check("a", LaneId::new(3))).contains("no lane 3; this policy has 1"));
}

#[test]
fn a_limiter_is_built_for_at_least_one_agent_and_at_most_the_maximum() {
    for agents in [0, AGENTS_MAX + 1, u64::MAX] {
        let refused = Limiter::builder(platform_policy()).agents(agents).build().map(|_| ());
        assert_eq!(refused, Err(BuildError::Agents { agents }));
        let text = BuildError::Agents { agents }.to_string();
        assert!(text.contains(&agents.to_string()) && text.contains(&AGENTS_MAX.to_string()), "{text}");
    }
    assert!(Limiter::builder(platform_policy()).agents(1).build().is_ok());
}
