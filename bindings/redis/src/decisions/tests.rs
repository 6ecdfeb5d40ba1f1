//! Machines and a model of the store, step by step.

#[allow(dead_code, reason = "for the scripts")]
#[path = "../../tests/script/decided.rs"]
mod decided;

use super::*;
use decided::DecidedStore;
use tollgate::cluster::Cluster;
use tollgate::{Assignment, Limiter, Policy};

/// How long the store remembers removals, and how many.
const LIVES_US: u64 = 1_000_000_000;
const REMOVALS_MAX: usize = 1_000;

fn policy(limit: &str) -> Policy {
    Policy::builder().lane("api", limit).plan("pro", [("api", "20/s")]).build().unwrap()
}

fn exempt() -> Assignment {
    let mut exempt = Assignment::default();
    exempt.set_exempt(true);
    exempt
}

struct World {
    store: DecidedStore,
    now: Duration,
}

struct Machine {
    limiter: Limiter,
    decisions: Decisions,
    name: String,
}

impl Machine {
    fn new(name: u128) -> Self {
        Self::with(name, policy("10/s"))
    }

    fn with(name: u128, policy: Policy) -> Self {
        let limiter = Limiter::builder(policy).agents(100).cluster(Cluster::new([7; 16])).build().unwrap();
        Self::of(name, limiter)
    }

    fn of(name: u128, limiter: Limiter) -> Self {
        let mut decisions = Decisions::new([7; 16], name << 64);
        decisions.connected();
        Self { limiter, decisions, name: name.to_string() }
    }

    /// As after a restart: an engine that knows nothing, and a limiter with what its file has.
    fn restarted(self, name: u128) -> Self {
        let _ = Operators::of(&self.limiter).unwrap().changed().unwrap();
        Self::of(name, self.limiter)
    }

    fn api(&self, agent: &str) -> String {
        let assignment = self.limiter.assignment(agent).unwrap();
        assignment.override_of("api").map(|limit| limit.to_string()).unwrap_or_default()
    }

    fn set(&self, agent: &str, limit: &str) {
        self.limiter.set_override(agent, "api", limit).unwrap();
    }

    fn limit(&self) -> String {
        self.limiter.policy().limit(self.limiter.lane("api").unwrap()).unwrap().to_string()
    }

    /// Loses the connection, and makes another.
    fn reconnect(&mut self) {
        self.decisions.lost();
        self.decisions.connected();
    }
}

impl World {
    fn new() -> Self {
        Self { store: DecidedStore::new(LIVES_US, REMOVALS_MAX), now: Duration::from_secs(1_700_000_000) }
    }

    fn answer(&mut self, name: &str, request: &StoreRequest) -> StoreReply {
        self.now += Duration::from_micros(100);
        self.store.answer(self.now.as_micros() as u64, name, request)
    }

    /// What a machine asks next, and does not get an answer to.
    fn ask(&mut self, machine: &mut Machine) -> Option<StoreRequest> {
        let operators = Operators::of(&machine.limiter).unwrap();
        machine.decisions.tend(&operators).unwrap();
        machine.decisions.next(&operators, self.now)
    }

    fn serve(&mut self, machine: &mut Machine, request: &StoreRequest) {
        let reply = self.answer(&machine.name, request);
        let operators = Operators::of(&machine.limiter).unwrap();
        machine.decisions.answered(&operators, self.now, reply);
    }

    /// Lets a machine do all that it has to do. Returns how many calls it made.
    fn run(&mut self, machine: &mut Machine) -> usize {
        let mut calls = 0;
        while let Some(request) = self.ask(machine) {
            self.serve(machine, &request);
            calls += 1;
            assert!(calls < 1_000, "no end: {request:?}");
        }
        calls
    }

    /// Lets all machines do what they have to, until they have nothing to do but ask whether anything is new.
    fn settle(&mut self, machines: &mut [&mut Machine]) {
        for _ in 0..20 {
            // Longer than any of them waits for anything.
            self.now += Duration::from_millis(1_100);
            let calls: usize = machines.iter_mut().map(|machine| self.run(machine)).sum();
            if calls == machines.len() {
                return;
            }
        }
        panic!("they do not come to rest");
    }
}

#[test]
fn what_is_decided_here_holds_there_and_so_does_its_removal() {
    let (mut world, mut a, mut b) = (World::new(), Machine::new(1), Machine::new(2));
    a.set("x", "5/s");
    b.limiter.exempt("y").unwrap();
    b.limiter.assign("z", b.limiter.plan("pro").unwrap()).unwrap();
    world.settle(&mut [&mut a, &mut b]);
    for machine in [&a, &b] {
        assert_eq!(machine.api("x"), "5/second");
        assert!(machine.limiter.is_exempt("y").unwrap());
        assert_eq!(machine.limiter.assignment("z").unwrap().plan(), Some("pro"));
        let status = machine.decisions.status();
        assert_eq!((status.agents, status.waiting, status.refused, status.is_current), (3, 0, 0, true));
    }
    b.limiter.remove_overrides("x").unwrap();
    a.limiter.unexempt("y").unwrap();
    world.settle(&mut [&mut a, &mut b]);
    for machine in [&a, &b] {
        assert_eq!(machine.limiter.assignments().len(), 1);
        assert_eq!(machine.decisions.status().agents, 1);
    }
    let (written, followed) = (a.decisions.status().written, a.decisions.status().followed);
    assert_eq!((written, followed), (2, 3), "each once");
}

/// A call whose answer was lost is sent again. If it had been accepted as a new one, it would have come back over what
/// another operator decided in between.
#[test]
fn a_call_whose_answer_was_lost_counts_once() {
    for is_accepted in [true, false] {
        let (mut world, mut a, mut b) = (World::new(), Machine::new(1), Machine::new(2));
        world.settle(&mut [&mut a, &mut b]);
        a.set("x", "1/s");
        let request = world.ask(&mut a).unwrap();
        assert!(matches!(request, StoreRequest::Put { .. }));
        if is_accepted {
            let _ = world.answer("1", &request);
        }
        b.set("x", "2/s");
        world.run(&mut b);
        a.reconnect();
        assert_eq!(world.ask(&mut a), Some(request.clone()), "first of all, and as it was");
        world.serve(&mut a, &request);
        world.settle(&mut [&mut a, &mut b]);
        // If it was not accepted, it reached the store later.
        let expected = if is_accepted { "2/second" } else { "1/second" };
        assert_eq!((&*a.api("x"), &*b.api("x")), (expected, expected), "accepted: {is_accepted}");
    }
}

/// The store accepted a call, and forgot all before the machine had read what it accepted. The decision was in force
/// here alone, with no stamp, and an older one of another machine went over it.
#[test]
fn a_call_that_is_answered_at_last_is_known_with_its_stamp() {
    let (mut world, mut a, mut b) = (World::new(), Machine::new(1), Machine::new(2));
    b.set("x", "1/s");
    world.settle(&mut [&mut b]);
    world.settle(&mut [&mut a]);
    a.set("x", "2/s");
    let request = world.ask(&mut a).unwrap();
    let _ = world.answer("1", &request);
    a.reconnect();
    assert_eq!(world.ask(&mut a).as_ref(), Some(&request));
    world.serve(&mut a, &request);
    world.store = DecidedStore::new(LIVES_US, REMOVALS_MAX);
    world.settle(&mut [&mut b, &mut a]);
    assert_eq!((&*a.api("x"), &*b.api("x")), ("2/second", "2/second"));
}

#[test]
fn of_two_decisions_the_one_that_reached_the_store_later_counts() {
    let (mut world, mut a, mut b) = (World::new(), Machine::new(1), Machine::new(2));
    world.settle(&mut [&mut a, &mut b]);
    a.decisions.lost();
    a.set("x", "1/s");
    a.set("y", "1/s");
    b.set("x", "2/s");
    b.limiter.exempt("z").unwrap();
    world.settle(&mut [&mut b]);
    a.limiter.exempt("z").unwrap(); // The same, and not written again.
    a.decisions.connected();
    world.settle(&mut [&mut a, &mut b]);
    for machine in [&a, &b] {
        assert_eq!((&*machine.api("x"), &*machine.api("y")), ("1/second", "1/second"));
    }
    assert_eq!((a.decisions.status().written, b.decisions.status().written), (2, 2));
}

/// An operator decides after the machine has asked what is new, and before the answer is in force.
#[test]
fn a_decision_made_here_is_not_undone_by_an_older_one_that_follows() {
    let (mut world, mut a, mut b) = (World::new(), Machine::new(1), Machine::new(2));
    world.settle(&mut [&mut a, &mut b]);
    a.set("x", "1/s");
    world.settle(&mut [&mut a]);
    world.now += HEAD_EVERY;
    let mut request = world.ask(&mut b).unwrap();
    while !matches!(request, StoreRequest::Since(_)) {
        world.serve(&mut b, &request);
        request = world.ask(&mut b).unwrap();
    }
    b.set("x", "2/s");
    world.serve(&mut b, &request);
    assert_eq!(b.api("x"), "2/second");
    world.settle(&mut [&mut b, &mut a]);
    assert_eq!((&*a.api("x"), &*b.api("x")), ("2/second", "2/second"));
}

#[test]
fn what_the_store_has_lost_is_put_back_once() {
    let (mut world, mut a, mut b, mut away) = (World::new(), Machine::new(1), Machine::new(2), Machine::new(3));
    a.set("x", "1/s");
    b.set("y", "1/s");
    b.set("gone", "1/s");
    a.limiter.replace_policy(policy("11/s")).unwrap();
    world.settle(&mut [&mut a, &mut b, &mut away]);
    away.decisions.lost();
    a.limiter.remove_overrides("gone").unwrap();
    a.set("x", "2/s");
    world.settle(&mut [&mut a, &mut b]);
    world.store = DecidedStore::new(LIVES_US, REMOVALS_MAX);
    away.decisions.connected();
    // The one that was away is the first to return, with what was so before.
    world.settle(&mut [&mut away, &mut a, &mut b]);
    let mut fresh = Machine::new(4);
    world.settle(&mut [&mut a, &mut b, &mut away, &mut fresh]);
    for machine in [&a, &b, &away, &fresh] {
        assert_eq!([machine.api("x"), machine.api("y"), machine.api("gone")], ["2/second", "1/second", ""]);
        assert_eq!(machine.limit(), "11/second");
    }
    let before = world.store.head();
    world.settle(&mut [&mut a, &mut b, &mut away, &mut fresh]);
    assert_eq!(world.store.head(), before, "it is quiet");
}

/// A replica takes over without the last writes, and others have written since: neither the name of the store nor its
/// place shows that.
#[test]
fn what_a_replica_has_missed_is_put_back() {
    let (mut world, mut a, mut b) = (World::new(), Machine::new(1), Machine::new(2));
    a.set("x", "1/s");
    world.settle(&mut [&mut a, &mut b]);
    let replica = world.store.clone();
    a.set("x", "2/s");
    a.limiter.exempt("missed").unwrap();
    world.settle(&mut [&mut a]);
    world.store = replica;
    b.set("y", "1/s");
    b.set("z", "1/s");
    world.settle(&mut [&mut b, &mut a]);
    world.settle(&mut [&mut b, &mut a]);
    for machine in [&a, &b] {
        assert_eq!([machine.api("x"), machine.api("y"), machine.api("z")], ["2/second", "1/second", "1/second"]);
        assert!(machine.limiter.is_exempt("missed").unwrap());
    }
}

#[test]
fn what_was_removed_while_a_machine_was_away_for_long_stays_removed() {
    let (mut world, mut a, mut away) = (World::new(), Machine::new(1), Machine::new(2));
    a.set("gone", "1/s");
    a.set("kept", "1/s");
    world.settle(&mut [&mut a, &mut away]);
    away.decisions.lost();
    a.limiter.remove_overrides("gone").unwrap();
    world.settle(&mut [&mut a]);
    world.now += Duration::from_micros(2 * LIVES_US);
    a.set("new", "1/s");
    world.settle(&mut [&mut a]);
    assert!(world.store.head().horizon > 0, "the removal is forgotten");
    away.decisions.connected();
    world.settle(&mut [&mut away, &mut a]);
    for machine in [&a, &away] {
        assert_eq!([machine.api("gone"), machine.api("kept"), machine.api("new")], ["", "1/second", "1/second"]);
    }
    // What is lost later was not removed.
    let mut emptied = DecidedStore::new(LIVES_US, REMOVALS_MAX);
    std::mem::swap(&mut world.store, &mut emptied);
    world.settle(&mut [&mut away, &mut a]);
    assert_eq!(world.store.head().live, 2);
}

#[test]
fn for_a_machine_that_restarts_the_store_wins_and_what_only_its_file_has_is_written() {
    let (mut world, mut a, mut b) = (World::new(), Machine::new(1), Machine::new(2));
    for (agent, limit) in [("x", "1/s"), ("gone", "1/s")] {
        b.set(agent, limit);
    }
    world.settle(&mut [&mut a, &mut b]);
    b.limiter.exempt("of the file").unwrap();
    a.set("x", "2/s");
    a.limiter.remove_overrides("gone").unwrap();
    world.settle(&mut [&mut a]);
    let mut b = b.restarted(3);
    world.settle(&mut [&mut b, &mut a]);
    for machine in [&a, &b] {
        assert_eq!([machine.api("x"), machine.api("gone")], ["2/second", ""]);
        assert!(machine.limiter.is_exempt("of the file").unwrap());
    }
}

/// What only a file has was written, and the store forgot it before the machine had read that.
#[test]
fn what_only_a_file_has_is_put_back_too() {
    let (mut world, a) = (World::new(), Machine::new(1));
    a.set("x", "1/s");
    let (mut a, mut b) = (a.restarted(2), Machine::new(3));
    while a.decisions.status().put_back == 0 {
        let request = world.ask(&mut a).unwrap();
        world.serve(&mut a, &request);
    }
    world.store = DecidedStore::new(LIVES_US, REMOVALS_MAX);
    world.settle(&mut [&mut b, &mut a]);
    world.settle(&mut [&mut b, &mut a]);
    assert_eq!((&*a.api("x"), &*b.api("x")), ("1/second", "1/second"));
}

/// A machine with an old file was the first to reach a store that had lost everything, and what it had counted as new:
/// it went over what the others knew better.
#[test]
fn an_old_file_does_not_win_over_what_a_machine_knows() {
    let (mut world, mut a) = (World::new(), Machine::new(1));
    let [mut old, mut other] = [2, 3].map(Machine::new);
    a.set("x", "2/s");
    world.settle(&mut [&mut a]);
    for (machine, limit) in [(&old, "1/s"), (&other, "3/s")] {
        machine.set("x", limit);
        machine.set("y", limit);
    }
    world.store = DecidedStore::new(LIVES_US, REMOVALS_MAX);
    (old, other) = (old.restarted(4), other.restarted(5));
    world.settle(&mut [&mut old]);
    world.settle(&mut [&mut other, &mut old]);
    assert_eq!(other.api("x"), old.api("x"), "one of them");
    world.settle(&mut [&mut a, &mut old, &mut other]);
    for machine in [&a, &old, &other] {
        assert_eq!((machine.api("x"), machine.api("y")), ("2/second".to_owned(), old.api("y")));
    }
}

mod policies;
