//! Machines that share limits over real servers, and what happens to them when these stop, forget or die. Real time
//! itself is under test here.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic names the line that failed")]

mod budgets;
mod decisions;
mod ends;
mod groups;
mod node;
mod refusals;
#[path = "../server/mod.rs"]
mod server;
mod settings;
#[cfg(feature = "tls")]
mod tls;

use node::{Node, PATIENCE, admitted, limiter, nodes};
use server::on_each;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::Request;
use tollgate::cluster::Link;
use tollgate_redis::{EngineBuilder, State};

#[test]
fn three_machines_admit_one_limit() {
    on_each(|server| {
        let nodes: [Node; 3] = nodes(server);
        let (slow, took) = admitted(&nodes, "agent-1", "slow", Duration::from_millis(1), Duration::from_secs(1));
        // One for each machine beyond the bucket, and what is refilled.
        let most = 60 + 3 + took.as_secs() + 1;
        println!("{:?}: 60/min: {slow} of at most {most}", server.kind());
        assert!((58..=most).contains(&slow), "{slow} of at most {most}");

        let (fast, took) = admitted(&nodes, "agent-1", "fast", Duration::from_micros(100), Duration::from_secs(2));
        let refilled = (took.as_secs_f64() * 1_000.0) as u64;
        let most = 1_000 + refilled + 3 * (16 + 16) + 1;
        println!("{:?}: 1000/s: {fast} of at most {most}, {:?}", server.kind(), nodes[0].status().counts);
        assert!(fast <= most, "{fast} of at most {most}");
        // Shown once a second.
        nodes[0].wait_for(|status| status.out.contains_key(&nodes[0].lane("fast")));
        let out = nodes[0].status().out[&nodes[0].lane("fast")];
        assert!(out.credit <= 16 && out.advance <= 16, "of one agent, no more than it may have: {out:?}");
        assert!(nodes.iter().all(|node| node.status().nodes.get() >= 3));
    });
}

/// An exact lane spends nothing in advance: each token was granted first.
#[test]
fn an_exact_lane_admits_what_was_granted_and_nothing_more() {
    on_each(|server| {
        let nodes: [Node; 3] = nodes(server);
        assert!(!nodes[0].allows("agent-1", "login"), "it has to ask first");
        let (login, _) = admitted(&nodes, "agent-1", "login", Duration::from_millis(2), Duration::from_secs(1));
        assert!((9..=10).contains(&login), "{login}");
    });
}

#[test]
fn what_one_machine_resets_or_refunds_all_can_spend() {
    on_each(|server| {
        let nodes: [Node; 2] = nodes(server);
        let lane = nodes[0].lane("slow");
        // More than its share of the slack: paid for before it passes.
        let spend = |node: &Node| node.limiter.check_request(Request::new("agent-1", lane).cost(50)).unwrap();
        let begin = Instant::now();
        while !spend(&nodes[0]).is_allowed() {
            assert!(begin.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(2));
        }
        while spend(&nodes[1]).retry_after().is_none_or(|wait| wait < Duration::from_secs(30)) {
            assert!(begin.elapsed() < PATIENCE, "the second machine has not heard of it");
            thread::sleep(Duration::from_millis(2));
        }
        nodes[0].limiter.refund(Request::new("agent-1", lane).cost(45)).unwrap();
        while !spend(&nodes[1]).is_allowed() {
            assert!(begin.elapsed() < PATIENCE, "the second machine cannot spend what the first has given back");
            thread::sleep(Duration::from_millis(2));
        }
        nodes[0].limiter.reset("agent-1").unwrap();
        while !spend(&nodes[0]).is_allowed() {
            assert!(begin.elapsed() < PATIENCE, "a reset fills the lane");
            thread::sleep(Duration::from_millis(2));
        }
    });
}

/// While the server is stopped each machine has its share, and afterwards the server knows what was spent.
#[test]
fn a_server_that_stops_is_lost_and_comes_back() {
    on_each(|server| {
        let nodes: [Node; 3] = nodes(server);
        nodes.iter().for_each(|node| node.allows_soon("known", "slow"));
        server.pause();
        let begin = Instant::now();
        nodes.iter().for_each(|node| {
            // Something has to be asked for a loss to be noticed at once; a heartbeat notices it otherwise.
            let _ = node.allows("other", "slow");
            node.wait_for(|status| status.state == State::Lost);
        });
        println!("{:?}: lost after {:?}", server.kind(), begin.elapsed());
        assert!(!nodes[0].allows("agent-1", "login"), "this lane is closed without a server");
        let (shares, took) = admitted(&nodes, "agent-2", "slow", Duration::from_millis(1), Duration::from_millis(500));
        assert!((57..=60 + took.as_secs() + 1).contains(&shares), "three shares are one limit: {shares}");
        server.resume();
        let begin = Instant::now();
        nodes.iter().for_each(|node| node.wait_for(|status| status.state == State::Connected));
        println!("{:?}: back after {:?}", server.kind(), begin.elapsed());
        let (more, took) = admitted(&nodes, "agent-2", "slow", Duration::from_millis(1), Duration::from_millis(500));
        assert!(more <= 3 + 2 * (took.as_secs() + 1), "the server was told what was spent: {more}");
    });
}

#[test]
fn a_server_that_forgets_is_told_what_is_known() {
    on_each(|server| {
        let nodes: [Node; 2] = nodes(server);
        let (spent, _) = admitted(&nodes, "agent-1", "slow", Duration::from_millis(1), Duration::from_millis(500));
        assert!(spent >= 58, "{spent}");
        server.kill();
        nodes.iter().for_each(|node| node.wait_for(|status| status.state == State::Lost));
        // Asked about while it is lost, so each machine has something to tell.
        let (_, _) = admitted(&nodes, "agent-1", "slow", Duration::from_millis(1), Duration::from_millis(1_500));
        server.restart_empty();
        nodes.iter().for_each(|node| node.wait_for(|status| status.state == State::Connected));
        let (more, took) = admitted(&nodes, "agent-1", "slow", Duration::from_millis(1), Duration::from_millis(300));
        let most = 4 + 2 * (took.as_secs() + 2);
        assert!(more <= most, "{more} of at most {most}: {:?}", nodes[0].status());
    });
}

#[test]
fn an_engine_that_ends_leaves_its_limiter_lost() {
    on_each(|server| {
        let node = Node::start(server, 1);
        node.allows_soon("agent-1", "slow");
        let Node { limiter, engine } = node;
        assert!(Link::of(&limiter).unwrap().is_connected());
        drop(engine);
        assert!(!Link::of(&limiter).unwrap().is_connected());
    });
}

/// Nobody is there: the limiter works at once, by its share.
#[test]
fn a_machine_that_starts_without_a_server_has_its_share() {
    let limiter = limiter();
    let builder = EngineBuilder::new("redis+unix:///nowhere/at/all").unwrap();
    let engine = builder.nodes_at_least(NonZeroU16::new(3).unwrap()).attach(Arc::clone(&limiter)).unwrap();
    let slow = limiter.lane("slow").unwrap();
    let allowed = (0..100).filter(|_| limiter.check("agent-1", slow).unwrap().is_allowed()).count();
    assert_eq!(allowed, 20);
    let begin = Instant::now();
    while engine.status().last_problem.is_none() {
        assert!(begin.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(engine.status().state, State::Lost);
}
