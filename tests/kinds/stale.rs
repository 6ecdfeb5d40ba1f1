//! A sweep or an eviction never makes the answer to an older instant more lenient.
//!
//! A call at an old instant was denied, and allowed once its agent was swept: a
//! burst passed twice at the same instant.

use super::*;
use std::time::Duration;
use tollgate::Agent;

const OTHER: LaneId = LaneId::new(1);
const NANOSECOND: Duration = Duration::from_nanos(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// A limit, what it admits at once, and after how long it is idle again.
const KINDS: [(&str, u64, Duration); 5] = [
    ("60/min", 60, Duration::from_secs(60)),
    ("window 60/min", 60, Duration::from_secs(80)),
    ("exact 5/min", 5, Duration::from_secs(60)),
    ("budget 60/day", 60, DAY),
    ("budget 60/hour", 60, Duration::from_secs(3_600)),
];

fn admitted_at(limiter: &Limiter, now: Tick) -> u64 {
    (0..100)
        .take_while(|_| limiter.check_request(Request::new(AGENT, LANE).at(now)).expect("room").is_allowed())
        .count() as u64
}

/// The agent has drained its lane at the origin and is idle.
fn drained(limit: &str, count: u64, idle_at: Duration) -> (Limiter, ManualClock) {
    let policy = Policy::builder().lane("lane", limit).lane("other", "1000/s").build().expect("valid");
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy).agents(1).clock(clock.clone()).on_full(OnFull::Deny).build().expect("small");
    assert_eq!(admitted_at(&limiter, Tick::ZERO), count, "{limit}");
    clock.advance(idle_at);
    (limiter, clock)
}

/// How an agent loses its record.
type Loss = (&'static str, fn(&Limiter));

const LOSSES: [Loss; 3] = [
    ("swept", |limiter| assert_eq!(limiter.sweep(Duration::ZERO), 1)),
    ("evicted", |limiter| {
        for agent in 0..limiter.stats().records {
            let filled = limiter.check_request(Request::new(&format!("other-{agent}"), OTHER).cost(1_000));
            assert!(filled.expect("an idle record").is_allowed());
        }
        assert_eq!(limiter.stats().idle_evictions, 1);
        limiter.forget("other-0").expect("an id");
    }),
    ("swept, and back for another lane", |limiter| {
        assert_eq!(limiter.sweep(Duration::ZERO), 1);
        assert!(limiter.check(AGENT, OTHER).expect("room").is_allowed());
    }),
];

#[test]
fn who_lost_an_idle_record_gets_no_more_at_an_older_instant_than_before() {
    for (limit, count, idle_at) in KINDS {
        for (how, lose) in LOSSES {
            for before in [idle_at, idle_at * 2 / 3, idle_at / 3, SECOND, NANOSECOND] {
                let now = Tick::from_nanos((idle_at - before).as_nanos() as u64);
                let known = admitted_at(&drained(limit, count, idle_at).0, now);
                let (limiter, _) = drained(limit, count, idle_at);
                lose(&limiter);
                let lost = admitted_at(&limiter, now);
                assert!(lost <= known, "{limit}, {how}, at {now:?}: {lost} and not {known}");
            }
        }
    }
}

#[test]
fn who_lost_an_idle_record_has_a_full_lane_by_the_clock() {
    for (limit, count, idle_at) in KINDS {
        for (how, lose) in LOSSES {
            let (limiter, _) = drained(limit, count, idle_at);
            lose(&limiter);
            let admitted = (0..100).take_while(|_| limiter.check(AGENT, LANE).expect("room").is_allowed()).count();
            assert_eq!(admitted as u64, count, "{limit}, {how}");
        }
    }
}

/// A denial for lack of knowledge gives a wait, and after that wait the call passes.
#[test]
fn a_wait_given_after_a_sweep_is_long_enough() {
    for (limit, count, idle_at) in KINDS {
        let (limiter, _) = drained(limit, count, idle_at);
        limiter.sweep(Duration::ZERO);
        let denied = limiter.check_request(Request::new(AGENT, LANE).at(Tick::ZERO)).expect("room");
        let wait = denied.retry_after().expect("it ends");
        assert!(!denied.is_allowed() && denied.remaining() == 0 && denied.full_in() >= wait, "{limit}: {denied:?}");
        assert!(wait <= idle_at, "{limit}: {wait:?}");
        let then = Tick::ZERO.saturating_add(wait);
        assert!(
            limiter.check_request(Request::new(AGENT, LANE).at(then)).expect("room").is_allowed(),
            "{limit}: {denied:?}"
        );
    }
}

/// A peek reported the lane of a swept agent as full at an instant at which a check was denied.
#[test]
fn a_peek_at_an_older_instant_shows_what_a_check_would_find() {
    for (limit, count, idle_at) in KINDS {
        for (how, lose) in LOSSES {
            for before in [idle_at, idle_at * 2 / 3, idle_at / 3, SECOND, NANOSECOND, Duration::ZERO] {
                let now = Tick::from_nanos((idle_at - before).as_nanos() as u64);
                let (limiter, _) = drained(limit, count, idle_at);
                lose(&limiter);
                let status = limiter.peek(Request::new(AGENT, LANE).at(now)).expect("a lane");
                let view = limiter.agent(Agent::new(AGENT).at(now)).expect("an id").lanes[0].state;
                assert_eq!(view, status, "{limit}, {how}");
                let denied = limiter.check_request(Request::new(AGENT, LANE).at(now)).expect("room");
                let (admitted, wait) = if denied.is_allowed() {
                    (1 + admitted_at(&limiter, now), None)
                } else {
                    (0, denied.retry_after())
                };
                assert_eq!(status.remaining(), admitted, "{limit}, {how}, at {now:?}");
                if wait.is_some() {
                    assert_eq!(status.next_in(), wait, "{limit}, {how}, at {now:?}");
                }
            }
            let (limiter, _) = drained(limit, count, idle_at);
            lose(&limiter);
            assert_eq!(
                limiter.peek(Request::new(AGENT, LANE)).expect("a lane").remaining(),
                count,
                "{limit}, {how}: by the clock"
            );
        }
    }
}

/// A refund at an old instant gave back tokens that had already refilled, to a
/// check at an old instant: 20 out of 10 passed at once.
#[test]
fn a_refund_does_not_give_back_what_has_already_refilled() {
    let (limiter, clock) = limiter("1/10ns burst 10");
    clock.advance(Duration::from_nanos(1_000));
    assert!(limiter.check(AGENT, LANE).expect("room").is_allowed());
    let status =
        limiter.refund(Request::new(AGENT, LANE).cost(10).at(Tick::from_nanos(500))).expect("a cost within the limit");
    assert_eq!(status.remaining(), 10);
    let admitted = |now| admitted_at(&limiter, Tick::from_nanos(now));
    assert_eq!(admitted(910) + admitted(1_000), 10, "what it holds at the present");
}

proptest::proptest! {
    /// Calls at any instants, with refunds at old instants or the same refunds
    /// at the present: no later call can distinguish them.
    #[test]
    fn a_refund_at_an_older_instant_acts_at_the_present(
        kind in 0..KINDS.len(),
        calls in proptest::collection::vec((0..4_u8, 0..90_u64, 0..200_u64, 1..6_u64), 1..40),
    ) {
        let policy = |limit| Policy::builder().lane("lane", limit).build().expect("valid");
        let (limit, ..) = KINDS[kind];
        let [(stale, stale_clock), (present, clock)] = [(); 2].map(|()| of_policy(policy(limit)));
        for (call, advance, age, cost) in calls {
            let cost = if limit.starts_with("exact") { 1 } else { cost };
            for clock in [&stale_clock, &clock] {
                clock.advance(SECOND * advance as u32);
            }
            let now = Tick::from_nanos(clock.now().as_nanos().saturating_sub(age * 1_000_000_000));
            if call == 0 {
                let refunded = stale.refund(Request::new(AGENT, LANE).cost(cost).at(now));
                proptest::prop_assert_eq!(refunded, present.refund(Request::new(AGENT, LANE).cost(cost)));
            } else {
                let verdict = stale.check_request(Request::new(AGENT, LANE).cost(cost).at(now));
                proptest::prop_assert_eq!(verdict, present.check_request(Request::new(AGENT, LANE).cost(cost).at(now)));
            }
        }
    }
}
