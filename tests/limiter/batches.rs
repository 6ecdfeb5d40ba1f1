//! Many requests in one call.

use super::*;
use proptest::prelude::*;
use tollgate::bounds::BATCH_MAX;
use tollgate::{Error, Request};

#[test]
fn a_batch_is_answered_as_if_its_requests_came_one_by_one() {
    let (limiter, _) = platform();
    let ask = |agent: &'static str, lane, cost| Request::new(agent, lane).cost(cost);
    let requests = [
        ask("a", HEAVY, 6),
        ask("", HEAVY, 1),
        ask("a", HEAVY, 5),
        ask("a", HEAVY, 4),
        ask("b", HEAVY, 11),
        ask("b", HEAVY, 1),
        ask("a", LaneId::new(9), 1),
        ask("a", HEAVY, 0),
        ask("a", HEAVY, 1),
        ask("a", NORMAL, 1),
    ];
    let mut answers = [Err(Error::Full); 10];
    limiter.check_many(&requests, &mut answers).expect("as many answers as requests");
    let seen = answers.map(|answer| answer.map(|verdict| (verdict.is_allowed(), verdict.remaining())));
    assert_eq!(
        seen,
        [
            Ok((true, 4)),
            Err(Error::EmptyId),
            Ok((false, 4)),
            Ok((true, 0)),
            Err(Error::CostAboveCapacity { cost: 11, capacity: 10 }),
            Ok((true, 9)),
            Err(Error::UnknownLane { lane: 9, lanes: 6 }),
            Err(Error::ZeroCost),
            Ok((false, 0)),
            Ok((true, 59)),
        ]
    );
}

#[test]
fn a_batch_with_a_wrong_number_of_answers_is_refused_and_charges_nothing() {
    let (limiter, _) = one_lane(Limit::per_minute(60));
    let request = Request::new(b"agent-7", LANE);
    for (requests, answers) in [(2, 1), (1, 2), (1, 0), (0, 1), (BATCH_MAX + 1, BATCH_MAX + 1)] {
        let refused = limiter.check_many(&vec![request; requests], &mut vec![Err(Error::Full); answers]);
        assert_eq!(refused, Err(Error::BatchSize { requests, answers }));
    }
    assert_eq!(limiter.stats().claims, 0);
    assert_eq!(limiter.check_many(&[], &mut []), Ok(()));
}

proptest! {
    /// Two limiters: one checked in a batch, one in order.
    #[test]
    fn any_batch_equals_its_requests_in_order(
        asks in prop::collection::vec((0..4_usize, 0..4_u32, 0..12_u64), 0..60),
        nanos in 0..200_000_000_000_u64,
    ) {
        let ids: [&[u8]; 4] = [b"a", b"b", b"", b"c"];
        let policy = || {
            let lanes = Policy::builder().lane("x", "10/min").lane("y", "7/s burst 11").lane("z", "deny");
            lanes.build().expect("valid")
        };
        let now = Tick::from_nanos(nanos);
        let request = |(id, lane, cost): &(usize, u32, u64)| {
            Request::new(ids[*id], LaneId::new(*lane)).cost(*cost).at(now)
        };
        let requests: Vec<_> = asks.iter().map(request).collect();
        let ((together, _), (one_by_one, _)) = (build(policy(), 10, OnFull::Deny), build(policy(), 10, OnFull::Deny));
        let mut answers = vec![Err(Error::Full); requests.len()];
        prop_assert_eq!(together.check_many(&requests, &mut answers), Ok(()));
        for (request, answer) in requests.iter().zip(answers) {
            prop_assert_eq!(one_by_one.check_request(*request), answer);
        }
    }
}
