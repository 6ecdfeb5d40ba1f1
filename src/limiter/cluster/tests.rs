mod budgets;

use super::*;
use crate::clock::ManualClock;
use crate::engine::Request;
use crate::lane::Verdict;
use crate::lane::clustered::Source;
use crate::{Error, Reservation};

fn policy(limit: &str) -> Policy {
    Policy::builder().lane("api", limit).plan("pro", [("api", "20/s")]).build().unwrap()
}

/// A limiter of three machines that has just heard from the store.
fn limiter(limit: &str, lane: ClusterLane) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(100));
    let cluster = Cluster::new([7; 16]).lane("api", lane);
    let limiter = Limiter::builder(policy(limit)).agents(100).clock(clock.clone()).cluster(cluster).build().unwrap();
    connect(&limiter);
    (limiter, clock)
}

fn connect(limiter: &Limiter) {
    Link::of(limiter).unwrap().connected(NonZeroU16::new(3).unwrap(), Duration::from_millis(2));
}

fn allows(limiter: &Limiter, cost: u64) -> bool {
    let api = limiter.lane("api").unwrap();
    limiter.check_request(Request::new("agent-7", api).cost(cost)).unwrap().is_allowed()
}

/// Settles what was asked, if anything: the store grants and reports this.
fn settle(limiter: &Limiter, granted: u64, debt: Duration) -> Option<(u64, u64)> {
    let link = Link::of(limiter).unwrap();
    let ask = link.asks(1).next()?;
    let due = link.due(&ask).unwrap();
    assert_eq!(link.settle(&ask, &due, granted, debt.as_nanos() as u64), Settled::Done);
    Some((due.owed(), due.given()))
}

/// Sixty machines could owe 60 days of refill in advance, of which the store can count 26: it forgot the rest.
#[test]
fn machines_owe_no_more_in_advance_than_the_store_can_count() {
    let (limiter, _) = limiter("1/day burst 20", ClusterLane::new());
    let connected = |nodes| {
        Link::of(&limiter).unwrap().connected(NonZeroU16::new(nodes).unwrap(), Duration::from_millis(2));
    };
    connected(60);
    assert!(!allows(&limiter, 1), "it has to be granted first");
    connected(26);
    assert!(allows(&limiter, 1));
}

#[test]
fn what_cannot_be_shared_is_refused_with_a_way_out() {
    let refusal = |policy: Policy, cluster: Cluster| {
        let error = Limiter::builder(policy).agents(10).cluster(cluster).build().unwrap_err();
        error.to_string()
    };
    let new = || Cluster::new([7; 16]);
    assert_eq!(refusal(policy("9/s"), new().except("apo")), "the policy has no lane \"apo\" to share");
    let held = Policy::builder().lane("api", "9/s").lane("ws", "held 3").build().unwrap();
    assert!(refusal(held.clone(), new()).contains("\"ws\" is \"held 3\", and machines share only buckets"));
    assert_eq!(new().can_share(&held, "api"), Ok(()));
    for (lane, problem) in [("ws", "machines share only buckets"), ("apo", "has no lane")] {
        assert!(new().can_share(&held, lane).unwrap_err().to_string().contains(problem), "{lane}");
    }
    assert!(Limiter::builder(held).agents(10).cluster(new().except("ws")).build().is_ok());
    assert!(refusal(policy("1/day burst 40"), new()).contains("takes 26 days or more to refill"));
    let none = ClusterLane::new().slack_percent(0);
    assert!(refusal(policy("9/s"), new().lane("api", none)).ends_with("a slack of 0 percent; allowed: 1 to 100"));
    let total = Policy::builder().lane("api", "9/s").total("20/s").build().unwrap();
    assert!(refusal(total, new()).contains("lane \"total\""));
    assert!(Link::of(&Limiter::builder(policy("9/s")).agents(10).build().unwrap()).is_none());
    assert_eq!(format!("{:?}", new()).find('7'), None, "the key is not shown");
}

#[test]
fn an_advance_is_spent_once_and_paid_once() {
    let (limiter, _clock) = limiter("60/min", ClusterLane::new());
    assert!(allows(&limiter, 1) && !allows(&limiter, 1), "one token of slack for each machine");
    assert_eq!(settle(&limiter, 3, Duration::from_secs(4)), Some((1, 0)));
    assert_eq!((0..9).filter(|_| allows(&limiter, 1)).count(), 4, "three were granted, and one more in advance");
    assert_eq!(settle(&limiter, 0, Duration::from_secs(60)), Some((1, 0)));
    assert!(!allows(&limiter, 1), "the store has none left");
    assert_eq!(settle(&limiter, 0, Duration::ZERO), None, "believed for a second, without a question");
}

#[test]
fn an_engine_that_ends_takes_all_credit_with_it() {
    let (limiter, _clock) = limiter("60/min", ClusterLane::new());
    assert!(allows(&limiter, 1));
    settle(&limiter, 3, Duration::from_secs(4));
    let link = Link::of(&limiter).unwrap();
    link.ended(NonZeroU16::new(3).unwrap());
    assert!(!link.is_connected());
    // The share of what the store had left: 56 tokens, and then a third of them.
    assert_eq!((0..60).filter(|_| allows(&limiter, 1)).count(), 18);
    let (asks, mut given) = (link.asks(9), 0);
    asks.for_each(|ask| given += link.due(&ask).unwrap().given());
    assert_eq!(given, 3, "none of the credit was spent");
    assert!(!link.is_copied(), "this is no fork");
}

#[test]
fn credit_that_is_not_spent_in_time_is_given_back() {
    let (limiter, clock) = limiter("60/min", ClusterLane::new());
    assert!(allows(&limiter, 1));
    settle(&limiter, 3, Duration::from_secs(4));
    clock.advance(Duration::from_secs(2));
    connect(&limiter);
    assert!(allows(&limiter, 1), "in advance: the credit has ended");
    assert_eq!(
        settle(&limiter, 0, Duration::from_secs(5)),
        Some((1, 0)),
        "and it was lost with that, on the strict side"
    );
}

#[test]
fn an_exact_lane_waits_for_the_store_and_a_large_cost_too() {
    let (limiter, _clock) = limiter("60/min", ClusterLane::new().exact());
    assert!(!allows(&limiter, 1));
    assert_eq!(settle(&limiter, 1, Duration::from_secs(1)), Some((0, 0)));
    assert!(allows(&limiter, 1) && !allows(&limiter, 1));
    let (limiter, _clock) = self::limiter("60/min", ClusterLane::new());
    assert!(!allows(&limiter, 30));
    let link = Link::of(&limiter).unwrap();
    let ask = link.asks(1).next().unwrap();
    assert_eq!(ask.cost(), 30);
    let due = link.due(&ask).unwrap();
    let _ = link.settle(&ask, &due, 30, 30_000_000_000);
    assert!(allows(&limiter, 30));
}

#[test]
fn without_the_store_each_machine_does_as_it_was_told() {
    let after = |when_lost, cost| {
        let (limiter, _clock) = limiter("60/min", ClusterLane::new().when_lost(when_lost));
        Link::of(&limiter).unwrap().lost(NonZeroU16::new(3).unwrap());
        (0..100).filter(|_| allows(&limiter, cost)).count()
    };
    assert_eq!(after(WhenLost::Share, 1), 20);
    assert_eq!(after(WhenLost::Share, 21), 0, "more than its share");
    assert_eq!(after(WhenLost::Alone, 1), 60);
    assert_eq!((after(WhenLost::Closed, 1), after(WhenLost::Open, 1)), (0, 100));
}

/// An engine that has died says nothing more, and nobody else does.
#[test]
fn an_engine_that_is_silent_is_lost_after_a_second_or_two() {
    let (limiter, clock) = limiter("60/min", ClusterLane::new());
    let link = Link::of(&limiter).unwrap();
    assert!(link.is_connected());
    clock.advance(Duration::from_secs(2));
    assert!(!link.is_connected());
    assert_eq!((0..100).filter(|_| allows(&limiter, 1)).count(), 20);
}

#[test]
fn what_is_reset_or_refunded_is_asked_of_the_store() {
    let (limiter, _clock) = limiter("60/min", ClusterLane::new());
    let (api, link) = (limiter.lane("api").unwrap(), Link::of(&limiter).unwrap());
    let request = Request::new("agent-7", api);
    limiter.refund(request.cost(9)).unwrap();
    let ask = link.asks(1).next().unwrap();
    assert!(ask.is_refund() && link.due(&ask).unwrap().given() == 9);
    assert_eq!(limiter.refund(request.cost(61)), Err(Error::CostAboveCapacity { cost: 61, capacity: 60 }));
    limiter.reset("agent-7").unwrap();
    limiter.forget("agent-7").unwrap();
    assert_eq!(link.asks(9).filter(Ask::is_reset).count(), 2);
    let reserved: Result<Reservation, Error> = limiter.reserve(request, Duration::from_secs(1));
    assert_eq!(reserved, Err(Error::WrongKind { lane: api.number() }));
    // Plans and overrides hold as in any lane.
    limiter.assign("agent-8", limiter.plan("pro").unwrap()).unwrap();
    let capacity = |agent: &str| limiter.peek(Request::new(agent, api)).unwrap().capacity();
    assert_eq!((capacity("agent-7"), capacity("agent-8")), (60, 20));
    limiter.set_override("agent-8", "api", "5/s").unwrap();
    assert_eq!(capacity("agent-8"), 5);
    assert!(limiter.set_override("agent-8", "api", "window 5/s").is_err());
}

/// A flood of questions that nobody takes: nothing more is spent in advance, and the memory stays.
#[test]
fn a_full_ring_stops_advances() {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(100));
    let builder = Limiter::builder(policy("60/min")).agents(1_000).clock(clock);
    let limiter = builder.cluster(Cluster::new([7; 16])).build().unwrap();
    connect(&limiter);
    let api = limiter.lane("api").unwrap();
    let allowed = (0..5_000).filter(|agent| limiter.check(agent.to_string(), api).is_ok_and(|v| v.is_allowed()));
    let (allowed, (asked, dropped)) = (allowed.count() as u64, Link::of(&limiter).unwrap().asked());
    assert!(allowed <= asked && asked <= 2_000, "{allowed} allowed, {asked} asked, {dropped} dropped");
    let drained = Link::of(&limiter).unwrap().asks(usize::MAX).count() as u64;
    assert_eq!(drained, asked);
}

fn answer(limiter: &Limiter, cost: u64) -> Verdict {
    limiter.check_request(Request::new("agent-7", limiter.lane("api").unwrap()).cost(cost)).unwrap()
}

#[test]
fn an_answer_says_where_it_came_from_and_is_counted_there() {
    let (limiter, _clock) = limiter("60/min", ClusterLane::new());
    let from = |cost| answer(&limiter, cost).source();
    assert_eq!((from(1), from(1)), (Some(Source::Advance), Some(Source::Pending)));
    let pending = answer(&limiter, 1);
    assert!(pending.is_provisional() && !pending.is_allowed());
    assert_eq!(pending.retry_after(), Some(Duration::from_millis(2)), "a round trip");
    settle(&limiter, 2, Duration::from_secs(60));
    assert_eq!((from(1), from(1), from(1)), (Some(Source::Credit), Some(Source::Credit), Some(Source::View)));
    assert!(!answer(&limiter, 1).is_provisional(), "the store has said so");

    let status = Link::of(&limiter).unwrap().status();
    let [lane] = status.lanes.as_slice() else { panic!("{status:?}") };
    let counted = Source::ALL.map(|source| lane.answers(source));
    assert_eq!(counted, [2, 1, 2, 2, 0, 0, 0, 0], "credit, advance, view, pending; nothing without the store");
    assert!(status.is_connected && status.nodes.get() == 3 && (status.asks, status.asks_waiting) == (2, 1));
    assert_eq!((&*lane.name, lane.slack_percent, lane.is_exact, lane.when_lost), ("api", 10, false, WhenLost::Share));
    assert_eq!(lane.bound_tokens, 3 * (1 + 1), "of each machine one token of credit, and one in advance");
}

/// A caller that asked again after a round trip, as it was told, was a violator if the store was slower than that.
#[test]
fn a_denial_that_waits_for_the_store_is_no_violation() {
    let conduct = crate::ConductRules::default().with_every_denial(true);
    let policy = Policy::builder().lane("api", "60/min").conduct(conduct).build().unwrap();
    let cluster = Cluster::new([7; 16]).lane("api", ClusterLane::new().exact());
    let limiter = Limiter::builder(policy).agents(9).clock(ManualClock::new()).cluster(cluster).build().unwrap();
    connect(&limiter);
    let api = limiter.lane("api").unwrap();
    let denied = || limiter.check_request(Request::new("agent-7", api).cost(2).counted()).unwrap();
    assert_eq!((denied().source(), denied().violations_in_a_row()), (Some(Source::Pending), 0));
    settle(&limiter, 0, Duration::from_secs(60));
    assert_eq!((denied().source(), denied().violations_in_a_row()), (Some(Source::View), 2));
}

#[test]
fn without_the_store_an_answer_says_what_was_chosen_for_that() {
    for (when_lost, source) in [
        (WhenLost::Share, Source::Share),
        (WhenLost::Alone, Source::Alone),
        (WhenLost::Closed, Source::Closed),
        (WhenLost::Open, Source::Open),
    ] {
        let (limiter, _clock) = limiter("60/min", ClusterLane::new().when_lost(when_lost));
        Link::of(&limiter).unwrap().lost(NonZeroU16::new(3).unwrap());
        let answers: Vec<_> = [1, 60, 60].map(|cost| answer(&limiter, cost)).into();
        assert!(answers.iter().all(|answer| answer.source() == Some(source) && !answer.is_provisional()));
        assert!(source.is_lost() && source.name() == when_lost.name());
        assert_eq!(Link::of(&limiter).unwrap().status().lanes[0].answers(source), 3);
    }
}

/// What decides without a look at the store has no source, and is not counted as the store's.
#[test]
fn an_exempt_agent_and_a_lane_of_this_machine_have_no_source() {
    let (limiter, _clock) = limiter("60/min", ClusterLane::new());
    limiter.exempt("agent-7").unwrap();
    assert_eq!(answer(&limiter, 1).source(), None);
    let policy = Policy::builder().lane("api", "9/s").lane("own", "9/s").build().unwrap();
    let limiter = Limiter::builder(policy).agents(9).cluster(Cluster::new([7; 16]).except("own")).build().unwrap();
    assert_eq!(limiter.check("agent-7", limiter.lane("own").unwrap()).unwrap().source(), None);
    let names: Vec<_> = Link::of(&limiter).unwrap().status().lanes.into_iter().map(|lane| lane.name).collect();
    assert_eq!(names, ["api"]);
}
