//! Engines that end, and children that are forked while one runs.

use super::node::{Node, PATIENCE, SECRET, admitted};
use super::server::group::ask;
use super::server::{Kind, Server, on_each};
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::cluster::Link;
use tollgate_redis::{EngineBuilder, Keyring, LaneKey, State};

const MILLI: Duration = Duration::from_millis(1);

/// What is charged for an agent of the lane `large`, in tokens.
fn charged(server: &Server, agent: &str) -> f64 {
    let key = Keyring::new(SECRET).unwrap().agent(agent.as_bytes()).bucket(&LaneKey::new("large"));
    let value: String = redis::cmd("GET").arg(key).query(&mut server.connect()).unwrap();
    value.split_once(':').unwrap().1.parse::<f64>().unwrap() / 1e8
}

/// How many machines have shown that they are there.
fn nodes_of(server: &Server) -> u64 {
    ask(&mut server.connect(), &format!("ZCARD {}", Keyring::new(SECRET).unwrap().nodes())).unwrap()
}

#[test]
fn an_engine_that_ends_gives_back_pays_and_leaves() {
    on_each(|server| {
        let node = Node::start(server, 1);
        node.allows_soon("agent-1", "large");
        let nodes = [node];
        let begin = Instant::now();
        let (spent, _) = admitted(&nodes, "agent-1", "large", MILLI / 10, 300 * MILLI);
        let spent = spent as f64 + 1.0;
        let [Node { limiter, engine }] = nodes;
        assert_eq!(nodes_of(server), 1);
        let status = engine.stop();
        // All that was spent, and nothing else: less what was refilled meanwhile.
        let charged = charged(server, "agent-1");
        let refilled = (begin.elapsed().as_secs_f64() + 1.0) * 10.0;
        println!("{:?}: {spent} spent, {charged:.1} charged, {:?}", server.kind(), status.counts);
        assert!((spent - refilled..spent + 0.1).contains(&charged), "{spent} spent, {charged} charged");
        assert!(status.counts.given > 20, "it had credit: {:?}", status.counts);
        assert_eq!((status.state, status.counts.losses), (State::Lost, 0));
        assert_eq!(nodes_of(server), 0);
        assert!(!Link::of(&limiter).unwrap().is_connected());
        // Another engine for the same limiter.
        let engine = EngineBuilder::new(&server.url()).unwrap().attach(Arc::clone(&limiter)).unwrap();
        Node { limiter, engine }.wait_for(|status| status.state == State::Connected);
    });
}

/// Real time: the time-out is 200 ms, and the machine may be busy.
#[test]
fn an_engine_ends_soon_even_if_the_server_does_not_answer() {
    on_each(|server| {
        let node = Node::start(server, 1);
        node.allows_soon("agent-1", "slow");
        server.pause();
        let begin = Instant::now();
        drop(node.engine);
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
        assert!(!Link::of(&node.limiter).unwrap().is_connected());
        server.resume();
    });
}

/// Runs this in a forked child, and fails if it panics there.
fn in_child(act: impl FnOnce()) {
    // SAFETY: the child runs what any forked server runs, with the allocator that the C library prepares for that,
    // and leaves without unwinding into the harness.
    match unsafe { libc::fork() } {
        -1 => panic!("no child"),
        0 => {
            let is_well = catch_unwind(AssertUnwindSafe(act)).is_ok();
            // SAFETY: ends this process and nothing else.
            unsafe { libc::_exit(i32::from(!is_well)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: our child, which nobody else waits for.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child has failed");
        }
    }
}

#[test]
fn a_forked_child_has_no_engine_until_it_attaches_its_own() {
    let Some(server) = Server::start(Kind::Redis, &[]) else { return };
    let node = Node::start(&server, 3);
    let (spent, _) = admitted(std::slice::from_ref(&node), "agent-1", "slow", 20 * MILLI, 400 * MILLI);
    assert!(spent > 5, "{spent}");
    let builder = EngineBuilder::new(&server.url()).unwrap().nodes_at_least(NonZeroU16::new(3).unwrap());
    in_child(|| {
        let link = Link::of(&node.limiter).unwrap();
        assert!(link.is_copied() && !link.is_connected());
        let status = node.engine.status();
        assert!(status.state == State::Lost && status.last_problem.unwrap().contains("was forked"));
        // Of an agent that nobody knows exactly its share, and not a token in advance.
        assert_eq!((0..60).filter(|_| node.allows("agent-2", "slow")).count(), 20);
        let attached = Instant::now();
        let engine = builder.attach(Arc::clone(&node.limiter)).unwrap();
        while engine.status().state != State::Connected {
            assert!(attached.elapsed() < PATIENCE);
            thread::sleep(MILLI);
        }
        assert!(attached.elapsed() >= Link::CREDIT_LIVES, "the parent's credit may live still");
        assert!(link.is_connected() && !link.is_copied());
        assert_eq!(nodes_of(&server), 2, "it has a name of its own");
        drop(engine);
    });
    let server_nodes = nodes_of(&server);
    assert_eq!(server_nodes, 1, "the parent is there still");
}
