//! What operators decide on one machine, and when it holds on the others.

use super::node::{Node, PATIENCE, SECRET, limiter};
use super::server::group::{Cluster, Sentinels, ask};
use super::server::{Kind, Server, on_each};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::{Assignment, Limiter, Policy};
use tollgate_redis::{EngineBuilder, Keyring};

const MILLI: Duration = Duration::from_millis(1);

/// Waits until it is so, and says how long that took.
fn until(what: &str, is_so: impl Fn() -> bool) -> Duration {
    let begin = Instant::now();
    while !is_so() {
        // Beside other tests another master may take long to be elected.
        assert!(begin.elapsed() < 3 * PATIENCE, "never: {what}");
        thread::sleep(MILLI);
    }
    begin.elapsed()
}

fn override_of(limiter: &Limiter, agent: &str) -> Option<String> {
    let assignment = limiter.assignment(agent).unwrap();
    assignment.override_of("slow").map(|limit| limit.to_string())
}

fn has(node: &Node, agent: &str, limit: &str) -> bool {
    override_of(&node.limiter, agent).as_deref() == Some(limit)
}

fn is_current(node: &Node) -> bool {
    node.status().decisions.is_current && node.status().decisions.waiting == 0
}

/// Two machines that know all that the store has.
fn two(server: &Server) -> [Node; 2] {
    let nodes = super::node::nodes(server);
    for node in &nodes {
        until("current", || is_current(node));
    }
    nodes
}

/// Real time: a second is what is promised, and much less is usual.
#[test]
fn what_is_decided_on_one_machine_holds_on_the_others_within_a_second() {
    on_each(|server| {
        let [a, b] = two(server);
        let mut took = Vec::new();
        for round in 1..=10 {
            let limit = format!("{round}/second");
            a.limiter.set_override("agent-1", "slow", limit.as_str()).unwrap();
            took.push(until("the override", || has(&b, "agent-1", &limit)));
        }
        b.limiter.exempt("probe").unwrap();
        took.push(until("the exemption", || a.limiter.is_exempt("probe").unwrap()));
        b.limiter.remove_overrides("agent-1").unwrap();
        took.push(until("the removal", || override_of(&a.limiter, "agent-1").is_none()));
        took.sort();
        // The middle one: a machine may be busy for a moment.
        let (middle, slowest) = (took[took.len() / 2], took[took.len() - 1]);
        println!("{:?}: {middle:?} in the middle, {slowest:?} at the most", server.kind());
        assert!(middle < Duration::from_secs(1), "{middle:?}");
        // A check on the other machine is answered by it.
        a.limiter.set_override("agent-2", "slow", "7/s").unwrap();
        until("the limit", || b.limiter.check("agent-2", b.lane("slow")).unwrap().capacity() == 7);
        let status = b.status().decisions;
        assert_eq!((status.refused, status.warnings.as_slice(), &status.last_problem), (0, [].as_slice(), &None));
        let ids: Vec<_> = ask::<Vec<String>>(&mut server.connect(), "KEYS *decisions*").unwrap();
        assert!(ids.iter().all(|key| !key.contains("agent")), "{ids:?}");
    });
}

#[test]
fn another_policy_holds_on_all_machines_or_is_named() {
    let Some(server) = Server::start(Kind::Redis, &[]) else { return };
    let [a, b] = two(&server);
    let more = |limit: &str| {
        let policy = Policy::builder().lane("slow", limit).lane("fast", "1000/s").lane("login", "10/min");
        policy.lane("large", "10/s burst 6000").lane("ws", "held 3")
    };
    let with_plan = more("30/min").plan("pro", [("slow", "90/min")]).build().unwrap();
    a.limiter.replace_policy(with_plan).unwrap();
    let pro = a.limiter.plan("pro").unwrap();
    a.limiter.assign("agent-1", pro).unwrap();
    until("the plan", || b.limiter.assignment("agent-1").unwrap().plan() == Some("pro"));
    let limit = |node: &Node| node.limiter.policy().limit(node.lane("slow")).unwrap().to_string();
    assert_eq!(limit(&b), "30/minute");
    // A machine that starts takes it.
    let c = Node::start(&server, 3);
    until("the policy", || limit(&c) == "30/minute");
    let says_so = |warning: &String| warning.contains("operator has put another one in force since");
    until("said", || c.status().decisions.warnings.iter().any(says_so));
    until("the plan", || c.limiter.assignment("agent-1").unwrap().plan() == Some("pro"));
    // One with other lanes does not, and says why; assignments follow all the same, as far as they can.
    let policy = Policy::builder().lane("slow", "60/min").build().unwrap();
    let cluster = tollgate::cluster::Cluster::new(Keyring::new(SECRET).unwrap().key());
    let other = Arc::new(Limiter::builder(policy).agents(100).cluster(cluster).build().unwrap());
    let engine = EngineBuilder::new(&server.url()).unwrap().attach(Arc::clone(&other)).unwrap();
    until("two refused", || engine.status().decisions.refused == 2);
    let warnings = engine.status().decisions.warnings;
    assert!(
        warnings[0].contains("the new policy has other lanes") && warnings[0].ends_with("and 1 more"),
        "{warnings:?}"
    );
    assert_eq!(other.policy().limit(other.lane("slow").unwrap()).unwrap().to_string(), "60/minute");
}

#[test]
fn a_machine_that_starts_with_a_higher_version_brings_its_policy_to_all() {
    let Some(server) = Server::start(Kind::Redis, &[]) else { return };
    let [a, _b] = two(&server);
    let limit = |limiter: &Limiter| limiter.policy().limit(limiter.lane("slow").unwrap()).unwrap().to_string();
    let policy = |limit: &str, version| Policy::builder().lane("slow", limit).version(version).build().unwrap();
    drop(a);
    let start = |policy: Policy| {
        let cluster = tollgate::cluster::Cluster::new(Keyring::new(b"another secret, as long").unwrap().key());
        let limiter = Arc::new(Limiter::builder(policy).agents(100).cluster(cluster).build().unwrap());
        let engine = EngineBuilder::new(&server.url()).unwrap().attach(Arc::clone(&limiter)).unwrap();
        let node = Node { limiter, engine };
        until("current", || is_current(&node));
        node
    };
    let first = start(policy("1/s", 1));
    first.limiter.replace_policy(policy("2/s", 1)).unwrap();
    until("written", || first.status().decisions.written == 1);
    let same = start(policy("1/s", 1));
    assert_eq!(limit(&same.limiter), "2/second", "changed at run time, after the file was written");
    let higher = start(policy("3/s", 2));
    assert_eq!(limit(&higher.limiter), "3/second");
    for node in [&first, &same] {
        until("the higher version", || limit(&node.limiter) == "3/second");
    }
}

fn exempt() -> Assignment {
    let mut exempt = Assignment::default();
    exempt.set_exempt(true);
    exempt
}

/// Both machines restart, one after the other and then together; the store restarts empty, and is emptied.
#[test]
fn decisions_outlive_machines_and_what_the_store_knew() {
    on_each(|server| {
        let [a, b] = two(server);
        a.limiter.set_override("agent-1", "slow", "7/s").unwrap();
        b.limiter.exempt("agent-2").unwrap();
        a.limiter.exempt("agent-3").unwrap();
        until("exempt", || b.limiter.is_exempt("agent-3").unwrap());
        b.limiter.unexempt("agent-3").unwrap();
        let holds = |node: &Node| {
            let is_exempt = |agent: &str| node.limiter.is_exempt(agent).unwrap();
            has(node, "agent-1", "7/second") && is_exempt("agent-2") && !is_exempt("agent-3")
        };
        until("all of it", || holds(&a) && holds(&b));
        drop((a, b));
        let [a, b] = two(server);
        assert!(holds(&a) && holds(&b), "from the store alone");
        server.restart_empty();
        let c = Node::start(server, 3);
        until("from the others", || holds(&c));
        ask::<()>(&mut server.connect(), "FLUSHALL").unwrap();
        until("put back", || a.status().decisions.put_back + b.status().decisions.put_back > 2);
        let d = Node::start(server, 4);
        until("from the others again", || holds(&d));
        assert!([&a, &b, &c].into_iter().all(holds));
        // And then it is quiet.
        let settled = || [&a, &b, &c, &d].map(|node| node.status().decisions.put_back);
        until("quiet", || {
            let before = settled();
            thread::sleep(500 * MILLI);
            before == settled()
        });
    });
}

#[test]
fn a_machine_that_was_away_catches_up_and_what_it_decided_meanwhile_wins() {
    on_each(|server| {
        let [a, b] = two(server);
        a.limiter.set_assignments([("both", exempt()), ("gone", exempt())]).unwrap();
        until("both", || b.limiter.is_exempt("gone").unwrap());
        // Refused for one of them: it has lost the store, and the other has not.
        let mut admin = server.connect();
        drop(b.engine);
        a.limiter.set_override("both", "slow", "1/s").unwrap();
        a.limiter.unexempt("gone").unwrap();
        a.limiter.exempt("new").unwrap();
        until("written", || is_current(&a) && a.status().decisions.written >= 5);
        b.limiter.set_override("both", "slow", "2/s").unwrap();
        let engine = EngineBuilder::new(&server.url()).unwrap().attach(Arc::clone(&b.limiter)).unwrap();
        let b = Node { limiter: b.limiter, engine };
        until("what it missed", || b.limiter.is_exempt("new").unwrap() && !b.limiter.is_exempt("gone").unwrap());
        until("what it decided", || has(&a, "both", "2/second"));
        assert!(has(&b, "both", "2/second"));
        // While the store is paused both go on, and each change arrives.
        server.pause();
        a.limiter.exempt("paused-a").unwrap();
        b.limiter.exempt("paused-b").unwrap();
        thread::sleep(400 * MILLI);
        server.resume();
        until("both changes", || a.limiter.is_exempt("paused-b").unwrap() && b.limiter.is_exempt("paused-a").unwrap());
        // Scripts that are gone and connections that are cut are no loss.
        ask::<()>(&mut admin, "SCRIPT FLUSH").unwrap();
        a.limiter.exempt("flushed").unwrap();
        until("after SCRIPT FLUSH", || b.limiter.is_exempt("flushed").unwrap());
        ask::<()>(&mut admin, "CLIENT KILL TYPE normal SKIPME yes").unwrap();
        b.limiter.exempt("killed").unwrap();
        until("after CLIENT KILL", || a.limiter.is_exempt("killed").unwrap());
    });
}

/// An operator's program that decides something and ends at once.
#[test]
fn what_was_decided_before_an_engine_ends_is_in_the_store() {
    on_each(|server| {
        let [a, b] = two(server);
        for agent in 0..20 {
            a.limiter.exempt(agent.to_string()).unwrap();
        }
        drop(a);
        until("all of them", || b.limiter.assignments().len() == 20);
    });
}

/// Ten thousand at once: more than are named to an engine.
#[test]
fn ten_thousand_assignments_follow_while_limits_are_settled() {
    let Some(server) = Server::start(Kind::Redis, &[]) else { return };
    let [a, b] = two(&server);
    let agents = |range: std::ops::Range<u32>| range.map(|agent| (format!("agent-{agent}"), exempt()));
    a.limiter.set_assignments(agents(0..10_000)).unwrap();
    let took = until("all of them", || b.limiter.assignments().len() == 10_000);
    println!("10,000 assignments followed in {took:?}, {:?}", b.status().decisions);
    assert_eq!(b.status().counts.losses, 0, "the store was never lost meanwhile");
    a.limiter.set_assignments((0..10_000).map(|agent| (format!("agent-{agent}"), Assignment::default()))).unwrap();
    until("none of them", || b.limiter.assignments().is_empty());
    let c = Node::start(&server, 3);
    until("current", || is_current(&c));
    assert!(c.limiter.assignments().is_empty());
}

#[test]
fn decisions_follow_through_another_master() {
    let Some(mut group) = Sentinels::start(Kind::Redis) else { return };
    let builder = EngineBuilder::sentinel(group.urls(), "main").unwrap();
    let [a, b] = [Node::with(builder.clone()), Node::with(builder)];
    a.limiter.exempt("before").unwrap();
    until("before", || b.limiter.is_exempt("before").unwrap());
    group.servers[0].server.kill();
    b.limiter.exempt("meanwhile").unwrap();
    let took = until("meanwhile", || a.limiter.is_exempt("meanwhile").unwrap());
    println!("through the new master after {took:?}, {:?}", b.status().decisions);
    assert!(a.limiter.is_exempt("before").unwrap() && b.limiter.is_exempt("before").unwrap());
}

#[test]
fn decisions_are_in_one_slot_of_a_cluster() {
    let Some(mut group) = Cluster::start(Kind::Redis) else { return };
    let builder = EngineBuilder::cluster(group.urls()).unwrap();
    let [a, b] = [Node::with(builder.clone()), Node::with(builder)];
    a.limiter.set_assignments((0..600).map(|agent| (agent.to_string(), exempt()))).unwrap();
    until("600", || b.limiter.assignments().len() == 600);
    let has_them = |at: &usize| !group.servers[*at].ask::<Vec<String>>("KEYS *decisions").unwrap().is_empty();
    let owner = (0..3).find(has_them).unwrap();
    group.servers[owner].server.kill();
    b.limiter.exempt("elected").unwrap();
    until("through the new master", || a.limiter.is_exempt("elected").unwrap());
    assert_eq!(a.limiter.assignments().len(), 601);
}

/// A user of before, that may not touch the keys of decisions, settles all the same.
#[test]
fn without_the_rights_limits_are_shared_and_the_status_says_what_is_missing() {
    let Some(server) = Server::start(Kind::Redis, &[]) else { return };
    let rights = super::refusals::ALLOWED.replace(" +hget +hset +hmget +hdel +zrem +zrangebyscore", "");
    ask::<()>(&mut server.connect(), &format!("ACL SETUSER app on >secret {rights}")).unwrap();
    let limiter = limiter();
    let engine = EngineBuilder::new(&server.url_of("app", "secret")).unwrap().attach(Arc::clone(&limiter)).unwrap();
    let node = Node { limiter, engine };
    node.allows_soon("agent-1", "slow");
    until("named", || node.status().decisions.last_problem.is_some_and(|problem| problem.contains("hmget")));
    assert!(!node.status().decisions.is_current && node.status().counts.losses == 0);
    let says_so = |warning: &String| warning.starts_with("what operators decide does not follow");
    until("warned", || node.status().warnings.iter().any(says_so));
}
