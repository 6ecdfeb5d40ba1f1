//! Sentinels that name another master, and clusters that elect one.

use super::node::{Node, admitted};
use super::server::Kind;
use super::server::group::{Cluster, Sentinels};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};
use tollgate_redis::{EngineBuilder, State};

const TWO: NonZeroU16 = NonZeroU16::new(2).unwrap();
const MILLI: Duration = Duration::from_millis(1);

fn connected(nodes: &[Node; 2]) {
    nodes.iter().for_each(|node| node.wait_for(|status| status.state == State::Connected));
}

/// The master is killed. Nobody waits meanwhile, and what was spent stays spent.
#[test]
fn another_master_is_found_through_the_sentinels() {
    let Some(mut group) = Sentinels::start(Kind::Redis) else { return };
    let builder = EngineBuilder::sentinel(group.urls(), "main").unwrap().nodes_at_least(TWO);
    let nodes = [Node::with(builder.clone()), Node::with(builder)];
    let (spent, _) = admitted(&nodes, "agent-1", "slow", MILLI, Duration::from_millis(500));
    assert!(spent >= 58, "{spent}");
    group.servers[0].server.kill();
    let begin = Instant::now();
    nodes.iter().for_each(|node| node.wait_for(|status| status.state == State::Lost));
    let (more, _) = admitted(&nodes, "agent-1", "slow", MILLI, Duration::from_millis(500));
    connected(&nodes);
    println!("connected again after {:?}", begin.elapsed());
    let (again, _) = admitted(&nodes, "agent-1", "slow", MILLI, Duration::from_millis(300));
    let passed = begin.elapsed().as_secs() + 2;
    // What the last writes were may be lost with the master: two machines, with their advance and credit.
    assert!(more + again <= 2 * (passed + 2 + 3), "{more} and {again} in {passed} s");
    assert!(group.servers[1..].iter().any(|member| member.is_master()));
}

/// A master that was demoted answers, and refuses writes: that is a loss like any other.
#[test]
fn a_demoted_master_is_lost() {
    let Some(group) = Sentinels::start(Kind::Redis) else { return };
    let node = Node::with(EngineBuilder::sentinel(group.urls(), "main").unwrap());
    group.sentinels[0].ask::<()>("SENTINEL FAILOVER main").unwrap();
    node.wait_for(|status| status.counts.losses > 0);
    node.wait_for(|status| status.state == State::Connected);
    node.allows_soon("agent-2", "slow");
    println!("{:?}", node.status().losses);
}

/// A master of a cluster is killed, and its replica takes over.
#[test]
fn a_cluster_elects_another_master() {
    let Some(mut group) = Cluster::start(Kind::Redis) else { return };
    let builder = EngineBuilder::cluster(group.urls()).unwrap().nodes_at_least(TWO);
    let nodes = [Node::with(builder.clone()), Node::with(builder)];
    // Agents of all masters.
    let agents: Vec<_> = (0..12).map(|agent| format!("agent-{agent}")).collect();
    for agent in &agents {
        let begin = Instant::now();
        let (spent, _) = admitted(&nodes, agent, "slow", MILLI, Duration::from_millis(200));
        assert!((58..=63 + begin.elapsed().as_secs()).contains(&spent), "{agent}: {spent}");
    }
    group.servers[0].server.kill();
    let begin = Instant::now();
    nodes.iter().for_each(|node| node.wait_for(|status| status.state == State::Lost));
    connected(&nodes);
    println!("connected again after {:?}", begin.elapsed());
    for agent in &agents {
        let (again, _) = admitted(&nodes, agent, "slow", MILLI, Duration::from_millis(50));
        let passed = begin.elapsed().as_secs() + 4;
        assert!(again <= 2 * (passed + 2 + 3), "{agent}: {again} in {passed} s");
    }
}
