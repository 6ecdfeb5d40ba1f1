//! The engine's decisions where a hostile day takes them: limits that change under what is owed, agents that do not
//! come back, an engine that stood still, a store that is away for long. In virtual time, without a server.

#![expect(clippy::unwrap_used, reason = "a panic names the line that failed")]

use std::num::NonZeroU16;
use std::time::Duration;
use tollgate::cluster::{Cluster, Link};
use tollgate::{LaneId, Limiter, ManualClock, Policy, Request};
use tollgate_redis::{DEBT_NS_MAX, Settle, Settled, Settlement, Settler, State, Step, StepReply};

const MILLI: Duration = Duration::from_millis(1);

/// A machine, alone with a server that a test answers for.
struct Machine {
    clock: ManualClock,
    limiter: Limiter,
    settler: Settler,
    lane: LaneId,
    now: Duration,
}

impl Machine {
    /// Connected.
    fn new(limit: &str, agents: u64) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_000));
        let policy = Policy::builder().lane("http", limit).build().unwrap();
        let cluster = Cluster::new([7; 16]).slack_percent(100);
        let limiter = Limiter::builder(policy).agents(agents).clock(clock.clone()).cluster(cluster).build().unwrap();
        let lane = limiter.lane("http").unwrap();
        let mut machine =
            Self { clock, limiter, settler: Settler::new(NonZeroU16::MIN), lane, now: Duration::from_secs(1) };
        machine.connect();
        machine
    }

    fn link(&self) -> Link<'_> {
        Link::of(&self.limiter).unwrap()
    }

    fn connect(&mut self) {
        self.settler.connected(&Link::of(&self.limiter).unwrap(), self.now);
    }

    fn lose(&mut self) {
        self.settler.lost(&Link::of(&self.limiter).unwrap());
    }

    /// Time passes, and the engine sleeps.
    fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        self.now += time;
    }

    fn tend(&mut self) {
        self.settler.tend(&Link::of(&self.limiter).unwrap(), self.now);
    }

    fn allows(&self, agent: &str, cost: u64) -> bool {
        self.limiter.check_request(Request::new(agent, self.lane).cost(cost)).unwrap().is_allowed()
    }

    /// Sends the next batch and answers it. Empty if there is none.
    fn settle(&mut self, answer: impl Fn(&Settlement) -> Settled) -> Vec<Step> {
        let link = Link::of(&self.limiter).unwrap();
        let Some(batch) = self.settler.next_batch(&link, self.now, 64) else { return Vec::new() };
        let steps: Vec<_> = batch.steps.iter().map(|step| step.step).collect();
        let reply = |step: &Step| match step {
            Step::Settle(settlement) => {
                settlement.check().unwrap();
                StepReply::Done(answer(settlement))
            }
            Step::Forget(_) => StepReply::Forgotten,
            Step::SettleBudget(..) => StepReply::Refused,
        };
        let replies: Vec<_> = steps.iter().map(reply).collect();
        self.settler.answered(&link, self.now, batch.number, &replies);
        steps
    }
}

/// A server whose bucket is empty.
fn nothing_left(settlement: &Settlement) -> Settled {
    Settled { granted: 0, debt_ns: settlement.capacity * settlement.token_ns }
}

/// A server that grants what is wanted.
fn plenty(settlement: &Settlement) -> Settled {
    Settled { granted: settlement.want, debt_ns: 0 }
}

/// An operator gave a busy agent a slow limit. What it owed by the old one, at the new one's price, was more than a
/// settlement can say. The engine took that for a broken connection, and came back to the same settlement for ever: one
/// agent cost all others the store.
#[test]
fn what_was_owed_under_a_fast_limit_can_be_settled_under_a_slow_one() {
    let mut machine = Machine::new("1000/s burst 1000000", 10);
    assert!(machine.allows("agent-1", 300_000), "in advance");
    machine.limiter.set_override("agent-1", "http", "1 per 1728000 seconds").unwrap();
    machine.tend();
    let steps = machine.settle(nothing_left);
    assert!(matches!(steps[..], [Step::Settle(Settlement { owed: 1.., .. })]), "{steps:?}");
    // The same for credit that is to be given back.
    let mut machine = Machine::new("1000/s burst 1000000", 10);
    assert!(!machine.allows("agent-1", 600_000), "it has to ask first");
    machine.tend();
    let _ = machine.settle(plenty);
    machine.limiter.set_override("agent-1", "http", "1 per 1728000 seconds").unwrap();
    machine.pass(1_300 * MILLI);
    machine.tend();
    let steps = machine.settle(nothing_left);
    assert!(matches!(steps[..], [Step::Settle(Settlement { give: 1.., .. })]), "{steps:?}");
}

/// A limit that takes longer to refill than the store can count was never shared; put in force at run time, it must not
/// cost other agents the store either.
#[test]
fn a_limit_that_the_store_cannot_count_costs_its_own_agent_alone() {
    let mut machine = Machine::new("1000/s", 10);
    machine.limiter.set_override("agent-1", "http", "1/day burst 60").unwrap();
    const { assert!(60 * 86_400_000_000_000 > DEBT_NS_MAX) };
    assert!(machine.allows("agent-1", 1) && machine.allows("agent-2", 1));
    machine.tend();
    let steps = machine.settle(plenty);
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert_eq!(machine.settler.counts().refused, 1);
    assert!((0..100).filter(|_| machine.allows("agent-1", 1)).count() < 60, "what nobody pays for is bounded");
}

/// Agents that had been fast, were denied and went away were followed for ever. A quarter of a million of them, and no
/// new agent was settled any more.
#[test]
fn an_agent_that_went_away_denied_is_not_followed_for_ever() {
    let mut machine = Machine::new("1000/s", 10);
    for answer in [plenty, nothing_left] {
        for _ in 0..200 {
            let _ = (machine.allows("agent-1", 1), machine.allows("agent-1", 1));
            machine.tend();
            let _ = machine.settle(answer);
            machine.pass(MILLI);
        }
        assert_eq!(machine.settler.followed(), 1);
    }
    for _ in 0..300 {
        machine.pass(100 * MILLI);
        machine.tend();
        while !machine.settle(nothing_left).is_empty() {}
    }
    assert_eq!(machine.settler.followed(), 0);
}

/// An agent without credit was forgotten with each answer. So one that sent a hundred requests a second was new each
/// time, had no rate, got no credit, and cost the store a settlement for each request.
#[test]
fn an_agent_that_sends_all_the_time_takes_credit() {
    let mut machine = Machine::new("1000/s", 10);
    let mut settlements = 0;
    for _ in 0..300 {
        assert!(machine.allows("agent-1", 1));
        machine.tend();
        settlements += machine.settle(plenty).len();
        machine.pass(10 * MILLI);
    }
    println!("{settlements} settlements for 300 requests");
    assert!(settlements < 60, "{settlements} settlements for 300 requests");
}

/// The first of eight machines took itself for the only one for a second. It ended the debt of an agent where one
/// machine's could end, and so forgot what the others owed.
#[test]
fn a_machine_that_takes_itself_for_the_only_one_forgets_no_debt_of_others() {
    let mut machine = Machine::new("60/min", 10);
    assert!(machine.allows("agent-1", 1));
    machine.tend();
    let steps = machine.settle(plenty);
    // Half of the capacity is the advance of one machine.
    assert!(matches!(steps[..], [Step::Settle(Settlement { over: 240.., .. })]), "{steps:?}");
}

/// Refunds piled up in memory for as long as the store was away.
#[test]
fn refunds_of_a_long_outage_take_bounded_memory() {
    let mut machine = Machine::new("1000/s burst 100000", 10);
    machine.lose();
    for _ in 0..300 {
        for _ in 0..500 {
            machine.limiter.refund(Request::new("agent-1", machine.lane).cost(1)).unwrap();
        }
        machine.pass(5 * MILLI);
        machine.tend();
    }
    machine.connect();
    let mut sent = 0;
    // Ends: what waits is finite, and each turn sends some of it.
    loop {
        let steps = machine.settle(plenty);
        sent += steps.len();
        if steps.is_empty() {
            break;
        }
    }
    assert!((60_000..70_000).contains(&sent), "{sent}");
    assert_eq!(sent as u64 + machine.settler.counts().dropped, 150_000, "what was dropped is counted");
}

/// An engine that stood still for two seconds: checks took the store for lost, and charged their shares. When it went
/// on, it showed them that the store is there, and the store never heard of those charges.
#[test]
fn what_was_charged_while_the_engine_stood_still_is_told_first() {
    let mut machine = Machine::new("60/min", 10);
    machine.pass(3_000 * MILLI);
    assert!(!machine.link().is_connected(), "the engine says nothing");
    assert_eq!((0..60).filter(|_| machine.allows("agent-1", 1)).count(), 60, "alone, its share is the limit");
    machine.tend();
    assert_ne!(machine.settler.state(), State::Connected);
    assert!(!machine.link().is_connected(), "not before the store has been told");
    let steps = machine.settle(nothing_left);
    assert!(matches!(steps[..], [Step::Settle(Settlement { floor_ns: 59_000_000_000.., .. })]), "{steps:?}");
    assert!(machine.link().is_connected());
}

/// A machine owed 30 tokens when the store was lost, and admitted 20 by its share. The store knew of neither, and heard
/// of 30 in all: the view, which has the 20 alone, was told as the least that there is.
#[test]
fn what_was_owed_before_an_outage_is_told_beside_what_was_charged_in_it() {
    const SECOND_NS: u64 = 1_000_000_000;
    let mut machine = Machine::new("60/min", 10);
    assert!(machine.allows("agent-1", 30), "in advance");
    machine.lose();
    assert!(machine.allows("agent-1", 20), "by its share");
    machine.connect();
    let steps = machine.settle(nothing_left);
    let expected = (30, 50 * SECOND_NS);
    let told = |step: &Step| matches!(step, Step::Settle(told) if (told.owed, told.floor_ns) == expected);
    assert!(steps.len() == 1 && told(&steps[0]), "{steps:?}");
}

/// A machine charged its share while the store was told of what came before. It then took its old view for the store's
/// answer, and admitted in advance what the store had no room for.
#[test]
fn what_is_charged_while_the_store_is_told_leaves_no_room_that_the_store_has_not() {
    let mut machine = Machine::new("60/min", 10);
    machine.lose();
    assert!(machine.allows("agent-1", 10), "by its share");
    machine.connect();
    let link = Link::of(&machine.limiter).unwrap();
    let batch = machine.settler.next_batch(&link, machine.now, 64).unwrap();
    assert!(machine.allows("agent-1", 1), "by its share still");
    let nothing_left = Settled { granted: 0, debt_ns: 60_000_000_000 };
    machine.settler.answered(&link, machine.now, batch.number, &[StepReply::Done(nothing_left)]);
    assert!(link.is_connected());
    assert!(!machine.allows("agent-1", 1), "the store has nothing left");
}

/// Only the first few thousand agents that were charged during an outage were told to the store before checks heard
/// that it was back, and the others never.
#[test]
fn all_that_was_charged_during_an_outage_is_told_first() {
    const AGENTS: usize = 20_000;
    let mut machine = Machine::new("60/min", 2 * AGENTS as u64);
    machine.lose();
    for agent in 0..AGENTS {
        assert!(machine.allows(&format!("agent-{agent}"), 30));
    }
    machine.connect();
    let mut told = 0;
    while !machine.link().is_connected() {
        let steps = machine.settle(nothing_left);
        assert!(!steps.is_empty(), "{told} of {AGENTS}");
        let floors = steps.iter().filter(|step| matches!(step, Step::Settle(Settlement { floor_ns: 1.., .. })));
        told += floors.count();
    }
    assert_eq!(told, AGENTS);
}
