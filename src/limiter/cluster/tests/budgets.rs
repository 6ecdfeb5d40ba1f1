//! Budgets that machines share: what is spent of which window, and what becomes of it at the edge.

use super::*;
use crate::LaneState;
use crate::cluster::BudgetWindow;

const HOUR: Duration = Duration::from_secs(3_600);

/// A limiter of three machines that share `budget 1000/hour`, ten minutes into the second hour of 1970.
fn limiter(lane: ClusterLane) -> (Limiter, ManualClock) {
    limited("budget 1000/hour", lane)
}

fn limited(limit: &str, lane: ClusterLane) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(HOUR + Duration::from_secs(600));
    let policy = Policy::builder().lane("api", limit).plan("pro", [("api", "budget 5000/hour")]).build().unwrap();
    let cluster = Cluster::new([7; 16]).lane("api", lane);
    let limiter = Limiter::builder(policy).agents(4).clock(clock.clone()).cluster(cluster).build().unwrap();
    connect(&limiter);
    (limiter, clock)
}

fn request<'a>(limiter: &Limiter, agent: &'a str) -> Request<'a> {
    Request::new(agent, limiter.lane("api").unwrap())
}

fn peek(limiter: &Limiter) -> LaneState {
    limiter.peek(request(limiter, "agent-7")).unwrap()
}

/// What was settled of a window: its number, what is known to be used, what is owed and what is given.
type Paid = (u64, u64, u64, u64);

/// Settles what was asked, if anything: the store grants this and reports so much as used.
fn settle(limiter: &Limiter, granted: u64, used: u64) -> Option<(Paid, Settled)> {
    let link = Link::of(limiter).unwrap();
    let ask = link.asks(1).next()?;
    let due = link.due(&ask)?;
    let BudgetWindow { number, used: known, .. } = due.window().unwrap();
    Some(((number, known, due.owed(), due.given()), link.settle(&ask, &due, granted, used)))
}

#[test]
fn an_advance_is_paid_in_its_window_and_what_was_granted_is_spent() {
    let (limiter, _clock) = limiter(ClusterLane::new());
    assert!(allows(&limiter, 16) && !allows(&limiter, 1), "a sixth of the slack in advance, and no more");
    assert_eq!(answer(&limiter, 1).source(), Some(Source::Pending));
    assert_eq!(settle(&limiter, 5, 121), Some(((1, 0, 16, 0), Settled::Done)));
    let state = peek(&limiter);
    assert_eq!((state.remaining(), state.capacity(), state.full_in()), (884, 1_000, Duration::from_secs(3_000)));
    assert_eq!(answer(&limiter, 5).source(), Some(Source::Credit));
    let verdict = answer(&limiter, 10);
    assert_eq!((verdict.source(), verdict.remaining()), (Some(Source::Advance), 869));
    assert_eq!(verdict.window(), HOUR);
    assert_eq!(settle(&limiter, 0, 1_000), Some(((1, 121, 10, 0), Settled::Done)));
    let denied = answer(&limiter, 1);
    assert_eq!((denied.source(), denied.remaining()), (Some(Source::View), 0));
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(3_000)), "until the hour ends");
    assert_eq!(settle(&limiter, 0, 0), None, "believed for a second, without a question");
}

#[test]
fn credit_of_a_window_is_not_spent_in_the_next_nor_given_back_into_it() {
    let (limiter, clock) = limiter(ClusterLane::new());
    assert!(allows(&limiter, 1));
    assert_eq!(settle(&limiter, 16, 17), Some(((1, 0, 1, 0), Settled::Done)));
    clock.advance(Duration::from_secs(3_000));
    connect(&limiter);
    assert_eq!(peek(&limiter).remaining(), 1_000, "of the new window nothing is used");
    // 16 in advance, and not one of the 16 that were granted.
    assert_eq!((0..40).filter(|_| allows(&limiter, 1)).count(), 16);
    assert_eq!(settle(&limiter, 0, 16), Some(((2, 0, 16, 0), Settled::Done)), "and nothing is given");
}

#[test]
fn a_settlement_that_crosses_the_edge_adds_nothing_to_the_new_window() {
    let (limiter, clock) = limiter(ClusterLane::new());
    assert!(allows(&limiter, 10));
    let link = Link::of(&limiter).unwrap();
    let ask = link.asks(1).next().unwrap();
    let due = link.due(&ask).unwrap();
    clock.advance(Duration::from_secs(3_000));
    connect(&limiter);
    assert!(allows(&limiter, 16), "the new window begins with all of the advance");
    assert_eq!(link.settle(&ask, &due, 16, 26), Settled::Gone);
    assert!(!allows(&limiter, 1));
    assert_eq!(peek(&limiter).remaining(), 984, "26 were used of the window that is over");
}

#[test]
fn what_is_owed_at_the_edge_stays_in_its_window() {
    let (limiter, clock) = limiter(ClusterLane::new());
    assert!(allows(&limiter, 10));
    clock.advance(Duration::from_secs(3_000));
    connect(&limiter);
    // Nobody has asked about the new window: the question of the old one finds nothing to pay there.
    assert_eq!(settle(&limiter, 0, 0), Some(((2, 0, 0, 0), Settled::Done)));
}

#[test]
fn credit_that_nobody_asks_about_is_given_back_once_in_its_window() {
    let (limiter, clock) = limiter(ClusterLane::new());
    assert!(allows(&limiter, 1));
    let link = Link::of(&limiter).unwrap();
    let ask = link.asks(1).next().unwrap();
    let due = link.due(&ask).unwrap();
    assert_eq!(link.settle(&ask, &due, 16, 17), Settled::Done);
    clock.advance(Duration::from_secs(2));
    let given = |_| link.due(&ask.later()).unwrap().given();
    assert_eq!([0, 1].map(given), [16, 0]);
}

#[test]
fn a_share_is_owed_exactly_and_paid_when_the_store_is_back() {
    let (limiter, _clock) = limiter(ClusterLane::new());
    let link = Link::of(&limiter).unwrap();
    link.lost(NonZeroU16::new(3).unwrap());
    assert_eq!((0..2_000).filter(|_| allows(&limiter, 1)).count(), 333);
    assert_eq!(peek(&limiter).remaining(), 0);
    let denied = answer(&limiter, 1);
    assert_eq!((denied.source(), denied.retry_after()), (Some(Source::Share), Some(Duration::from_secs(3_000))));
    assert_eq!(answer(&limiter, 334).retry_after(), None, "more than its share");
    connect(&limiter);
    assert_eq!(settle(&limiter, 0, 333), Some(((1, 0, 333, 0), Settled::Done)));
    assert!(allows(&limiter, 16));
    // The view counts: a third of what is left.
    link.lost(NonZeroU16::new(3).unwrap());
    assert_eq!((0..2_000).filter(|_| allows(&limiter, 1)).count(), (1_000 - 333 - 3 * 16) / 3);
}

#[test]
fn without_the_store_each_machine_does_as_it_was_told() {
    let after = |when_lost| {
        let (limiter, _clock) = limiter(ClusterLane::new().when_lost(when_lost));
        Link::of(&limiter).unwrap().lost(NonZeroU16::new(3).unwrap());
        (0..1_500).filter(|_| allows(&limiter, 1)).count()
    };
    assert_eq!([WhenLost::Alone, WhenLost::Closed, WhenLost::Open].map(after), [1_000, 0, 1_500]);
}

#[test]
fn an_exact_budget_spends_nothing_in_advance() {
    let (limiter, _clock) = limiter(ClusterLane::new().exact());
    assert_eq!(answer(&limiter, 300).source(), Some(Source::Pending));
    let link = Link::of(&limiter).unwrap();
    let ask = link.asks(1).next().unwrap();
    assert_eq!(ask.cost(), 300);
    let due = link.due(&ask).unwrap();
    assert_eq!(link.settle(&ask, &due, 300, 300), Settled::Done);
    assert!(allows(&limiter, 300) && !allows(&limiter, 1));
    assert_eq!(link.status().lanes[0].bound_tokens, 0);
}

#[test]
fn the_bound_of_a_budget_is_the_advance_of_each_machine() {
    let (limiter, _clock) = limiter(ClusterLane::new());
    let lane = Link::of(&limiter).unwrap().status().lanes[0].clone();
    assert_eq!((lane.capacity, lane.token_ns, lane.bound_tokens), (1_000, 0, 3 * 16));
}

#[test]
fn a_record_with_a_used_budget_is_kept_until_its_window_ends() {
    let (limiter, clock) = limiter(ClusterLane::new());
    let check = |agent: &str| limiter.check_request(request(&limiter, agent));
    // Ends: the records are few.
    let known = (0..).take_while(|agent: &u32| check(&agent.to_string()).is_ok_and(|verdict| verdict.is_allowed()));
    let settled: Vec<_> = known.map(|_| settle(&limiter, 0, 7).unwrap()).collect();
    assert!(settled.len() >= 4);
    assert_eq!(check("e"), Err(Error::Full));
    clock.advance(Duration::from_secs(5));
    connect(&limiter);
    assert_eq!(
        (limiter.sweep(Duration::ZERO), check("e")),
        (0, Err(Error::Full)),
        "it would forget what the store said"
    );
    clock.advance(HOUR);
    connect(&limiter);
    assert!(check("e").unwrap().is_allowed());
}

#[test]
fn a_refund_is_of_the_window_in_which_it_was_made() {
    let (limiter, clock) = limiter(ClusterLane::new());
    let link = Link::of(&limiter).unwrap();
    limiter.refund(request(&limiter, "agent-7").cost(9)).unwrap();
    let ask = link.asks(1).next().unwrap();
    let due = link.due(&ask).unwrap();
    assert!(ask.is_refund() && due.given() == 9 && due.window().is_some_and(|window| window.number == 1));
    limiter.refund(request(&limiter, "agent-7").cost(9)).unwrap();
    clock.advance(HOUR);
    let late = link.asks(1).next().unwrap();
    assert_eq!(link.due(&late), None, "the next window has not used it");
    assert_eq!(
        limiter.refund(request(&limiter, "agent-7").cost(1_001)),
        Err(Error::CostAboveCapacity { cost: 1_001, capacity: 1_000 })
    );
    limiter.reset("agent-7").unwrap();
    let reset = link.asks(1).next().unwrap();
    assert_eq!((reset.is_reset(), reset.reset_window()), (true, Some(2)));
}

/// What a settlement in flight brings must not count after a reset: the store has forgotten that it was debited.
#[test]
fn a_reset_begins_the_window_anew() {
    let (limiter, _clock) = limiter(ClusterLane::new());
    assert!(allows(&limiter, 16));
    let link = Link::of(&limiter).unwrap();
    let ask = link.asks(1).next().unwrap();
    let due = link.due(&ask).unwrap();
    limiter.reset("agent-7").unwrap();
    assert_eq!(link.settle(&ask, &due, 16, 1_000), Settled::Gone);
    assert_eq!(peek(&limiter).remaining(), 1_000);
    assert!(allows(&limiter, 16) && !allows(&limiter, 1));
}

#[test]
fn plans_and_overrides_hold_and_all_parts_pass_or_none() {
    let (limiter, _clock) = limiter(ClusterLane::new());
    limiter.assign("agent-8", limiter.plan("pro").unwrap()).unwrap();
    let capacity = |agent: &str| limiter.peek(request(&limiter, agent)).unwrap().capacity();
    assert_eq!((capacity("agent-7"), capacity("agent-8")), (1_000, 5_000));
    assert!(limiter.set_override("agent-8", "api", "5/s").is_err(), "a lane stays a budget");
    limiter.set_override("agent-8", "api", "budget 10/hour").unwrap();
    assert_eq!(capacity("agent-8"), 10);
    // Two parts of 8 fit into the advance of 16, three do not.
    let part = request(&limiter, "agent-7").cost(8);
    assert!(!limiter.check_all(&[part, part, part]).unwrap().is_allowed());
    assert!(limiter.check_all(&[part, part]).unwrap().is_allowed());
    // What is taken back is not lost: agent-8 has one token of advance, and no two.
    let other = request(&limiter, "agent-8");
    assert!(!limiter.check_all(&[request(&limiter, "agent-9"), other, other]).unwrap().is_allowed());
    assert_eq!(limiter.peek(request(&limiter, "agent-9")).unwrap().remaining(), 1_000);
    let denied = Policy::builder().lane("api", "budget 9/day").plan("none", [("api", "deny")]).build().unwrap();
    assert!(Limiter::builder(denied).agents(9).cluster(Cluster::new([7; 16])).build().is_ok());
}

#[test]
fn a_budget_that_is_too_large_to_share_is_named() {
    let policy = Policy::builder().lane("api", "budget 500_000_000_001/month").build().unwrap();
    let error = Limiter::builder(policy).agents(9).cluster(Cluster::new([7; 16])).build().unwrap_err().to_string();
    assert!(error.contains("\"api\"") && error.contains("take at most 500000000000"), "{error}");
    let largest =
        limited("budget 500_000_000_000/hour", ClusterLane::new().slack_percent(100).when_lost(WhenLost::Alone));
    Link::of(&largest.0).unwrap().lost(NonZeroU16::MIN);
    assert!(allows(&largest.0, 500_000_000_000) && !allows(&largest.0, 1));
}

#[test]
fn windows_and_held_slots_say_what_to_use_instead() {
    for limit in ["window 9/s", "exact 9/s", "held 3"] {
        let policy = Policy::builder().lane("api", limit).build().unwrap();
        let error = Limiter::builder(policy).agents(9).cluster(Cluster::new([7; 16])).build().unwrap_err().to_string();
        let says =
            "machines share only buckets such as \"60/min\" and budgets such as \"budget 1000/day\"; make it one";
        assert!(error.contains("lane \"api\" is ") && error.contains(says), "{error}");
    }
}

/// An answer of a language model: an estimate is reserved, and less of it is used. What is left is given back to the
/// store, for all machines.
#[test]
fn what_a_reservation_does_not_use_is_given_back_to_the_store() {
    let (limiter, _clock) = limiter(ClusterLane::new().exact());
    let reserve = || limiter.reserve(request(&limiter, "agent-7").cost(300), Duration::from_secs(60)).unwrap();
    assert!(reserve().verdict().is_provisional(), "nobody has asked the store yet");
    let link = Link::of(&limiter).unwrap();
    let ask = link.asks(1).next().unwrap();
    let due = link.due(&ask).unwrap();
    assert_eq!(link.settle(&ask, &due, 300, 300), Settled::Done);
    let reservation = reserve();
    assert!(reservation.id().is_some());
    while link.asks(1).next().is_some() {}
    limiter.settle(reservation.id().unwrap(), crate::Settle::used(100)).unwrap();
    let asked = link.asks(9).next().unwrap();
    assert_eq!((asked.key(), asked.cost()), (ask.key(), 0), "the store knows the agent by the same key");
    let due = link.due(&asked).unwrap();
    assert_eq!((due.given(), due.credit()), (184, 16), "but for what a machine may have");
    assert_eq!(limiter.settle(reservation.id().unwrap(), crate::Settle::used(0)), Err(Error::UnknownReservation));
}

#[test]
fn what_a_reservation_uses_beyond_its_estimate_is_owed() {
    let (limiter, _clock) = limiter(ClusterLane::new());
    let link = Link::of(&limiter).unwrap();
    let reserve = |cost| limiter.reserve(request(&limiter, "agent-7").cost(cost), Duration::from_secs(60)).unwrap();
    let first = reserve(10).id().unwrap();
    assert_eq!(settle(&limiter, 0, 10), Some(((1, 0, 10, 0), Settled::Done)));
    limiter.settle(first, crate::Settle::used_so_far(5)).unwrap();
    assert_eq!(link.asks(1).count(), 0, "nothing has changed");
    limiter.settle(first, crate::Settle::used(500)).unwrap();
    assert_eq!(settle(&limiter, 0, 505), Some(((1, 10, 495, 0), Settled::Done)), "whatever the advance is");
    assert_eq!(peek(&limiter).remaining(), 495);
}

#[test]
fn a_reservation_gives_nothing_back_into_another_window_or_a_later_tenancy() {
    let (limiter, clock) = limiter(ClusterLane::new());
    let reserve = || limiter.reserve(request(&limiter, "agent-7").cost(16), HOUR).unwrap().id().unwrap();
    let reservation = reserve();
    clock.advance(Duration::from_secs(3_000));
    connect(&limiter);
    assert!(allows(&limiter, 16) && !allows(&limiter, 1));
    limiter.settle(reservation, crate::Settle::cancelled()).unwrap();
    assert!(!allows(&limiter, 1), "what was not used of the window that is over");
    limiter.reset("agent-7").unwrap();
    let reservation = reserve();
    limiter.reset("agent-7").unwrap();
    limiter.settle(reservation, crate::Settle::cancelled()).unwrap();
    assert!(allows(&limiter, 16) && !allows(&limiter, 1), "what was reset");
    // While the lane is open nothing is counted, and so nothing is given back.
    let (limiter, _clock) = self::limiter(ClusterLane::new().when_lost(WhenLost::Open));
    let link = Link::of(&limiter).unwrap();
    assert!(allows(&limiter, 1));
    link.lost(NonZeroU16::MIN);
    let reservation = limiter.reserve(request(&limiter, "agent-7").cost(900), HOUR).unwrap();
    connect(&limiter);
    limiter.settle(reservation.id().unwrap(), crate::Settle::cancelled()).unwrap();
    assert!(allows(&limiter, 15) && !allows(&limiter, 1));
}

#[test]
fn a_shared_bucket_is_not_reserved() {
    let policy = Policy::builder().lane("api", "60/min").build().unwrap();
    let limiter = Limiter::builder(policy).agents(4).cluster(Cluster::new([7; 16])).build().unwrap();
    let reserved = limiter.reserve(request(&limiter, "agent-7"), HOUR);
    assert_eq!(reserved, Err(Error::WrongKind { lane: 0 }));
}

/// A forked child had a copy of its parent's credit. What it gave back of that, or spent, its parent spent too.
#[test]
fn credit_that_came_with_a_copy_is_dropped() {
    for limit in ["budget 1000/hour", "1000/min"] {
        let policy = Policy::builder().lane("api", limit).build().unwrap();
        let builder = Limiter::builder(policy).agents(4).clock(ManualClock::new());
        let limiter = builder.cluster(Cluster::new([7; 16])).build().unwrap();
        connect(&limiter);
        assert!(allows(&limiter, 1));
        let link = Link::of(&limiter).unwrap();
        let ask = link.asks(1).next().unwrap();
        let due = link.due(&ask).unwrap();
        assert_eq!(link.settle(&ask, &due, 16, 0), Settled::Done);
        link.adopt();
        let due = link.due(&ask.later()).unwrap();
        assert_eq!((due.credit(), due.given(), due.owed()), (0, 0, 0), "{limit}");
        assert!(allows(&limiter, 5));
        link.adopt();
        assert_eq!(link.due(&ask.later()).unwrap().owed(), 5, "{limit}: what is owed is paid");
    }
}
