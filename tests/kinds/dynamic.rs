//! A bucket whose limit travels with each call, through every verb.

use super::*;
use proptest::prelude::*;
use std::time::Duration;
use tollgate::observe::Observe;
use tollgate::{CallLimit, ConductRules, Decision, Error, Limit, OnChange, Settle};

const SECOND: Duration = Duration::from_secs(1);
const OTHER: LaneId = LaneId::new(1);
const MISSING: Error = Error::NoLimit { lane: 0 };
const GIVEN: Error = Error::LimitGiven { lane: 1 };

fn of(text: &str) -> CallLimit {
    text.parse().expect("a bucket")
}

/// A dynamic lane and a bucket.
fn lanes(dynamic: &str) -> (Limiter, ManualClock) {
    of_policy(Policy::builder().lane("lane", dynamic).lane("other", "10/s").build().expect("a policy"))
}

fn ask(limit: &str) -> Request<'static> {
    Request::new(AGENT, LANE).limit(of(limit))
}

fn decision(limiter: &Limiter, request: Request<'_>) -> Result<(Decision, u64), Error> {
    limiter.check_request(request).map(|verdict| (verdict.decision(), verdict.remaining()))
}

#[test]
fn every_verb_takes_the_limit_and_refuses_to_do_without() {
    let (limiter, clock) = lanes("dynamic");
    let (with, without) = (ask("10/s"), Request::new(AGENT, LANE));
    assert_eq!(limiter.check(AGENT, LANE), Err(MISSING));
    assert_eq!(limiter.check_request(without.counted()), Err(MISSING));
    assert_eq!(limiter.peek(without), Err(MISSING));
    assert_eq!(limiter.refund(without), Err(MISSING));
    assert_eq!(limiter.reserve(without, SECOND).err(), Some(MISSING));
    assert_eq!(limiter.check_all(&[without]).err(), Some(MISSING));
    let mut answers = [Ok(limiter.check("another", OTHER).unwrap()); 2];
    limiter.check_many(&[without, with], &mut answers).unwrap();
    assert_eq!(answers.map(|answer| answer.map(|verdict| verdict.remaining())), [Err(MISSING), Ok(9)]);
    assert_eq!((limiter.stats().agents, limiter.stats().reservations), (2, 0));

    assert_eq!(decision(&limiter, with.cost(2)), Ok((Decision::Allow, 7)));
    assert_eq!(decision(&limiter, with.counted()), Ok((Decision::Allow, 6)));
    assert_eq!(limiter.peek(with).map(|state| (state.remaining(), state.capacity())), Ok((6, 10)));
    assert_eq!(limiter.refund(with.cost(3)).map(|state| state.remaining()), Ok(9));
    assert!(limiter.check_all(&[with, with.cost(8)]).unwrap().is_allowed());
    let denied = limiter.check_all(&[with, Request::new(AGENT, OTHER)]).unwrap();
    assert_eq!((denied.is_allowed(), denied.retry_after()), (false, Some(SECOND / 10)));
    assert_eq!(limiter.peek(Request::new(AGENT, OTHER)).unwrap().remaining(), 10);
    clock.advance(SECOND);
    assert_eq!(decision(&limiter, with.cost(10)), Ok((Decision::Warn, 0)));
}

#[test]
fn a_lane_with_its_own_limit_takes_none_from_a_call() {
    let policy = Policy::builder().lane("lane", "dynamic").lane("other", "10/s").lane("held", "held 3");
    let (limiter, _) = of_policy(policy.build().unwrap());
    let request = Request::new(AGENT, OTHER).limit(of("99/s"));
    assert_eq!(limiter.check_request(request), Err(GIVEN));
    assert_eq!(limiter.check_request(request.counted()), Err(GIVEN));
    assert_eq!(limiter.peek(request), Err(GIVEN));
    assert_eq!(limiter.refund(request), Err(GIVEN));
    assert_eq!(limiter.reserve(request, SECOND).err(), Some(GIVEN));
    assert_eq!(limiter.check_all(&[ask("9/s"), request]).err(), Some(GIVEN));
    let mut answers = [Ok(limiter.check("another", OTHER).unwrap()); 1];
    limiter.check_many(&[request], &mut answers).unwrap();
    assert_eq!(answers, [Err(GIVEN)]);
    let held = Request::new(AGENT, LaneId::new(2)).limit(of("99/s"));
    assert_eq!(limiter.hold_until_released(held), Err(Error::LimitGiven { lane: 2 }));
    assert_eq!(limiter.release(held), Err(Error::LimitGiven { lane: 2 }));
    assert_eq!(limiter.hold_until_released(ask("9/s")), Err(Error::WrongKind { lane: 0 }));
    let message = GIVEN.to_string();
    assert!(message.contains("lane 1") && message.contains("\"dynamic\""), "{message}");
}

#[test]
fn a_default_is_for_calls_that_bring_no_limit() {
    let (limiter, _) = lanes("dynamic 5/second");
    assert_eq!(decision(&limiter, Request::new(AGENT, LANE).cost(2)), Ok((Decision::Allow, 3)));
    // 400 ms are in use.
    assert_eq!(decision(&limiter, ask("10/s").cost(4)), Ok((Decision::Allow, 2)));
    assert_eq!(limiter.check(AGENT, LANE).unwrap().remaining(), 0);
}

proptest! {
    /// Single checks, batches and `check_all` agree with a sum of prices,
    /// whatever limits the calls bring, with and without an observer.
    #[test]
    fn limits_that_change_at_every_call_equal_a_sum_of_prices(
        calls in prop::collection::vec((0..2_000_u64, 1..30_u64, 1..40_u64, 1..6_u64, 0..4_u8), 1..80),
        watched: bool,
    ) {
        let clock = ManualClock::new();
        let policy = Policy::builder().lane("lane", "dynamic").build().unwrap();
        let limiter = Limiter::builder(policy).agents(1).clock(clock.clone());
        let limiter = if watched { limiter.observe(Observe::new()) } else { limiter }.build().unwrap();
        let (mut now, mut full_at) = (0, 0);
        for (wait, capacity, token_ms, cost, verb) in calls {
            clock.advance(Duration::from_millis(wait));
            now += wait;
            let limit = CallLimit::new(capacity, 1, Duration::from_millis(token_ms)).unwrap();
            let request = Request::new(AGENT, LANE).limit(limit).cost(cost);
            let (debt, price) = (u64::saturating_sub(full_at, now), cost * token_ms);
            let verdict = match verb {
                0 => limiter.check_request(request),
                1 => limiter.check_request(request.counted()),
                2 => limiter.check_all(&[request]).map(|all| all.verdicts()[0]),
                _ => {
                    let mut answers = [Err(Error::Full)];
                    limiter.check_many(&[request], &mut answers).unwrap();
                    answers[0]
                }
            };
            if cost > capacity {
                prop_assert_eq!(verdict, Err(Error::CostAboveCapacity { cost, capacity }));
                continue;
            }
            let (verdict, depth) = (verdict.unwrap(), capacity * token_ms);
            prop_assert_eq!(verdict.is_allowed(), debt + price <= depth);
            if verdict.is_allowed() {
                full_at = now + debt + price;
                prop_assert_eq!(verdict.remaining(), (depth - debt - price) / token_ms);
            } else {
                prop_assert_eq!(verdict.lane_wait(), Some(Duration::from_millis(debt + price - depth)));
            }
            prop_assert_eq!(verdict.full_in(), Duration::from_millis(full_at.saturating_sub(now)));
        }
    }
}

#[test]
fn parts_of_one_lane_bring_one_limit() {
    let (limiter, _) = lanes("dynamic 5/s");
    let differ = Err(Error::LimitsDiffer { lane: 0 });
    let all = |parts: &[Request<'_>]| limiter.check_all(parts).map(|verdict| verdict.is_allowed());
    assert_eq!(all(&[ask("10/s"), ask("20/s")]), differ);
    assert_eq!(all(&[ask("10/s"), Request::new(AGENT, LANE)]), differ);
    assert_eq!(
        all(&[ask("10/s"), Request::new(AGENT, OTHER), Request::new("agent-8", LANE).limit(of("20/s"))]),
        Ok(true)
    );
    assert_eq!(all(&[ask("10/s").cost(5), ask("10/s").cost(5)]), Ok(false));
    assert_eq!(limiter.peek(ask("10/s")).unwrap().remaining(), 9);
}

/// Nobody but the operator decides that an agent is denied or exempt.
#[test]
fn an_operator_decides_before_a_call_does() {
    let policy = Policy::builder().lane("lane", "dynamic").plan("small", [("lane", "dynamic 2/s")]);
    let (limiter, _) = of_policy(policy.plan("off", [("lane", "deny")]).build().unwrap());
    let [small, off] = ["small", "off"].map(|plan| limiter.plan(plan).unwrap());
    limiter.assign(AGENT, off).unwrap();
    assert_eq!(decision(&limiter, ask("9/s")), Ok((Decision::Deny, 0)));
    limiter.assign(AGENT, small).unwrap();
    assert_eq!(decision(&limiter, ask("9/s")), Ok((Decision::Allow, 8)));
    assert_eq!(limiter.check(AGENT, LANE).unwrap().capacity(), 2);
    limiter.set_override(AGENT, "lane", "deny").unwrap();
    assert_eq!(decision(&limiter, ask("9/s")), Ok((Decision::Deny, 0)));
    limiter.set_override(AGENT, "lane", "dynamic 7/s").unwrap();
    assert_eq!(limiter.limit_of(AGENT, LANE).unwrap(), Some("dynamic 7/second".parse().unwrap()));
    assert_eq!(limiter.check(AGENT, LANE).unwrap().capacity(), 7);
    assert!(limiter.set_override(AGENT, "lane", "7/s").is_err(), "a lane keeps its kind");
    limiter.exempt(AGENT).unwrap();
    for request in [ask("1/day").cost(1_000_000), Request::new(AGENT, LANE)] {
        assert_eq!(decision(&limiter, request).map(|(decision, _)| decision), Ok(Decision::Exempt));
        assert!(limiter.peek(request).unwrap().is_exempt());
    }
}

/// The policy does not know by which limit a debt was made, so it cuts none.
#[test]
fn other_limits_of_the_policy_leave_the_debt() {
    for on_change in [OnChange::KeepDebt, OnChange::Reset] {
        let policy = Policy::builder().lane("lane", "dynamic 5/s").plan("pro", [("lane", "dynamic 9/s")]);
        let (limiter, _) = of_policy(policy.on_change(on_change).build().unwrap());
        assert_eq!(decision(&limiter, ask("10/hour").cost(10)), Ok((Decision::Warn, 0)));
        limiter.assign(AGENT, limiter.plan("pro").unwrap()).unwrap();
        let debt = if on_change == OnChange::Reset { Duration::ZERO } else { SECOND * 3_600 };
        assert_eq!(limiter.peek(ask("10/hour")).unwrap().full_in(), debt);
    }
}

#[test]
fn a_total_goes_with_a_dynamic_lane_by_its_own_limit() {
    let policy = Policy::builder().lane("lane", "dynamic").total("5/min");
    let (limiter, _) = of_policy(policy.build().unwrap());
    assert_eq!(decision(&limiter, ask("100/s").cost(3)), Ok((Decision::Allow, 2)));
    assert_eq!(decision(&limiter, ask("100/s").cost(3)), Ok((Decision::Deny, 2)));
    assert_eq!(limiter.check(AGENT, LANE), Err(MISSING));
    assert_eq!(limiter.peek(ask("100/s")).unwrap().capacity(), 5);
    assert_eq!(limiter.refund(ask("100/s").cost(3)).unwrap().remaining(), 5);
    assert_eq!(limiter.peek(ask("2/s")).map(|state| (state.remaining(), state.capacity())), Ok((2, 2)));
    let error = Policy::builder().lane("lane", "5/s").total("dynamic").build().unwrap_err().to_string();
    assert!(error.contains("\"dynamic\" is the limit of a single lane"), "{error}");
}

#[test]
fn a_reservation_is_settled_at_the_price_of_its_call() {
    let (limiter, clock) = lanes("dynamic");
    clock.advance(SECOND);
    let reserve = |cost| limiter.reserve(ask("10/s").cost(cost), SECOND * 60).unwrap();
    let left = || limiter.peek(ask("10/s")).unwrap();
    let estimated = reserve(8);
    assert_eq!(limiter.settle(estimated.id().unwrap(), Settle::used(3)).unwrap().unused, 5);
    assert_eq!(left().remaining(), 7);
    let estimated = reserve(2);
    assert_eq!(limiter.settle(estimated.id().unwrap(), Settle::used(32)).unwrap().overspent, 30);
    assert_eq!((left().remaining(), left().full_in()), (0, SECOND * 35 / 10));
    clock.advance(SECOND * 5);
    let estimated = reserve(2).id().unwrap();
    let too_much = limiter.settle(estimated, Settle::used(u64::MAX)).unwrap_err();
    assert!(matches!(too_much, Error::UsedTooLarge { .. }), "{too_much}");
    assert_eq!(limiter.settle(estimated, Settle::cancelled()).unwrap().unused, 2);
    assert_eq!(left().remaining(), 10);
    assert!(reserve(10).id().is_some() && reserve(1).id().is_none());
}

#[test]
fn a_denial_of_a_dynamic_lane_counts_like_any_other() {
    let policy = Policy::builder().lane("lane", "dynamic");
    let rules = ConductRules::default().with_curve([SECOND * 4]).with_every_denial(true).with_enforced_wait(true);
    let (limiter, clock) = of_policy(policy.conduct(rules).build().unwrap());
    assert!(limiter.check_request(ask("1/s").counted()).unwrap().is_allowed());
    let denied = limiter.check_request(ask("1/s").counted()).unwrap();
    assert_eq!(denied.lane_wait(), Some(SECOND));
    // The curve's, on the next eighth of a second.
    assert_eq!(denied.retry_after(), Some(SECOND * 33 / 8));
    clock.advance(SECOND * 2);
    let blocked = limiter.check_request(ask("1/s").counted()).unwrap();
    assert_eq!((blocked.is_allowed(), blocked.capacity()), (false, 1));
    assert_eq!(limiter.check_request(Request::new(AGENT, LANE).counted()), Err(MISSING));
}

/// A newcomer inherits the word, so a full slab admits no more than before; and
/// the agent with the least debt is the one that loses its record.
#[test]
fn the_record_that_would_be_full_soonest_is_given_up_and_inherited() {
    let clock = ManualClock::new();
    let policy = Policy::builder().lane("lane", "dynamic").build().unwrap();
    let limiter = Limiter::builder(policy).agents(1).clock(clock.clone()).on_full(OnFull::Evict).build().unwrap();
    clock.advance(SECOND);
    let tenants: Vec<_> = (0..limiter.stats().records).map(|tenant| format!("tenant-{tenant}")).collect();
    let deep = of("10/hour");
    for (index, tenant) in tenants.iter().enumerate() {
        let cost = if index == 3 { 1 } else { 9 };
        assert!(limiter.check_request(Request::new(tenant, LANE).limit(deep).cost(cost)).unwrap().is_allowed());
    }
    let newcomer = Request::new(AGENT, LANE);
    // Six minutes of debt: a shallow limit denies, and nobody loses a record for it.
    let denied = limiter.check_request(newcomer.limit(of("10/s"))).unwrap();
    assert_eq!((denied.is_allowed(), limiter.stats().lossy_evictions), (false, 0));
    let inherited = limiter.check_request(newcomer.limit(deep)).unwrap();
    assert_eq!((inherited.remaining(), limiter.stats().lossy_evictions), (8, 1));
    let left = |tenant: &String| limiter.peek(Request::new(tenant, LANE).limit(deep)).unwrap().remaining();
    assert_eq!(tenants.iter().filter(|tenant| left(tenant) == 10).count(), 1);
    assert_eq!(left(&tenants[3]), 10, "the one with the least debt");
}

#[test]
fn an_observer_counts_the_answers_and_an_agents_lanes_show_the_debt() {
    let policy = Policy::builder().lane("lane", "dynamic").lane("other", "10/s").build().unwrap();
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(10).clock(clock).observe(Observe::new()).build().unwrap();
    for _ in 0..3 {
        let _ = limiter.check_request(ask("2/min")).unwrap();
    }
    assert_eq!(limiter.check(AGENT, LANE), Err(MISSING));
    let lane = &limiter.snapshot().lanes[0];
    assert_eq!((lane.allowed + lane.warned, lane.denied, limiter.snapshot().errors), (2, 1, 1));
    let view = limiter.agent(AGENT).unwrap();
    let state = view.lanes[0].state;
    assert_eq!((state.capacity(), state.remaining(), state.full_in()), (0, 0, SECOND * 60));
}

#[test]
fn the_text_of_a_dynamic_limit_is_that_of_its_default() {
    assert_eq!(Limit::dynamic().to_string(), "dynamic");
    let with_default = Limit::per_minute(60).burst(9).unless_given();
    assert_eq!(with_default.to_string(), "dynamic 60/minute burst 9");
    assert!(with_default.is_dynamic() && Limit::dynamic().is_dynamic() && !Limit::per_minute(60).is_dynamic());
    assert_eq!((with_default.capacity(), Limit::dynamic().capacity()), (9, 0));
    assert_eq!(Limit::held(3).unless_given(), Limit::held(3));
    assert!(Limit::per_minute(60).oversize_debt().unless_given().validate().is_err());
}
