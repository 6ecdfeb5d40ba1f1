//! Budgets over real servers: spent at once by several machines, over the edge of a day, while the server is stopped
//! and after it forgot. The date is set by hand, and goes on with the clock.

use super::node::{Node, PATIENCE, SECRET, admitted};
use super::server::{Server, on_each};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::clock::ManualWallClock;
use tollgate::cluster::Cluster;
use tollgate::{Limiter, Policy, Request, Settle};
use tollgate_redis::{EngineBuilder, Keyring, State};

/// What each machine may spend in advance of a budget of 1,000, of three machines: a sixth of a tenth.
const ADVANCE: u64 = 16;
const DAY: Duration = Duration::from_secs(86_400);
/// Noon of a day in 2026.
const NOON: Duration = Duration::from_secs(1_794_744_000);

fn machines<const N: usize>(server: &Server) -> [(Node, ManualWallClock); N] {
    std::array::from_fn(|_| {
        let wall = ManualWallClock::new(NOON);
        let policy = Policy::builder().lane("llm", "budget 1000/day").build().unwrap();
        let cluster = Cluster::new(Keyring::new(SECRET).unwrap().key());
        let builder = Limiter::builder(policy).agents(1_000).wall_clock(wall.clone()).cluster(cluster);
        let limiter = Arc::new(builder.build().unwrap());
        let nodes = NonZeroU16::new(N as u16).unwrap();
        let engine = EngineBuilder::new(&server.url()).unwrap().nodes_at_least(nodes).attach(Arc::clone(&limiter));
        let node = Node { limiter, engine: engine.unwrap() };
        node.wait_for(|status| status.state == State::Connected);
        (node, wall)
    })
}

/// The machines alone, and their wall clocks.
fn apart<const N: usize>(server: &Server) -> (Vec<Node>, Vec<ManualWallClock>) {
    machines::<N>(server).into_iter().unzip()
}

/// How much all of them admit in this time.
fn spend(nodes: &[Node], agent: &str, time: Duration) -> u64 {
    admitted(nodes, agent, "llm", Duration::from_millis(1), time).0
}

/// Tries until a request of this cost is allowed.
fn allows_soon(node: &Node, agent: &str, cost: u64) {
    let (begin, request) = (Instant::now(), Request::new(agent, node.lane("llm")).cost(cost));
    while !node.limiter.check_request(request).unwrap().is_allowed() {
        assert!(begin.elapsed() < PATIENCE, "{:?}", node.status());
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn three_machines_spend_one_budget_and_the_next_day_another() {
    on_each(|server| {
        let (nodes, walls) = apart::<3>(server);
        let spent = spend(&nodes, "agent-1", Duration::from_secs(5));
        println!("{:?}: {spent} of 1000", server.kind());
        assert!((980..=1_000 + 3 * ADVANCE).contains(&spent), "{spent}");
        // One machine's day begins before the others'. It has the new budget to itself, and they nothing of it.
        walls[0].set(NOON + DAY);
        let first = spend(&nodes[..1], "agent-1", Duration::from_millis(300));
        let others = spend(&nodes[1..], "agent-1", Duration::from_millis(300));
        assert!(first > 0 && others <= 3 * ADVANCE, "{first}, and {others}");
        walls[1..].iter().for_each(|wall| wall.set(NOON + DAY));
        let rest = first + spend(&nodes, "agent-1", Duration::from_secs(5));
        println!("{:?}: {rest} of 1000 on the next day", server.kind());
        assert!((980..=1_000 + 3 * ADVANCE).contains(&rest), "{rest}");
    });
}

/// While the server is stopped each machine spends its share, and afterwards pays all of it.
#[test]
fn shares_of_a_budget_are_paid_when_the_server_is_back() {
    on_each(|server| {
        let (nodes, _walls) = apart::<3>(server);
        server.pause();
        nodes.iter().for_each(|node| {
            let _ = node.allows("other", "llm");
            node.wait_for(|status| status.state == State::Lost);
        });
        // Until nothing more is allowed: a machine that gets no time spends its share later.
        let (begin, mut shares) = (Instant::now(), 0);
        while shares < 999 && begin.elapsed() < PATIENCE {
            shares += spend(&nodes, "agent-1", Duration::from_millis(100));
        }
        shares += spend(&nodes, "agent-1", Duration::from_millis(100));
        assert_eq!(shares, 999, "three shares are one budget");
        server.resume();
        nodes.iter().for_each(|node| node.wait_for(|status| status.state == State::Connected));
        let more = spend(&nodes, "agent-1", Duration::from_millis(500));
        assert!(more <= 1 + 3 * ADVANCE, "the server was told what was spent: {more}");
    });
}

#[test]
fn a_server_that_forgets_a_budget_is_told_what_is_known() {
    on_each(|server| {
        let (nodes, _walls) = apart::<2>(server);
        let spent = spend(&nodes, "agent-1", Duration::from_secs(4));
        assert!(spent >= 980, "{spent}");
        server.kill();
        nodes.iter().for_each(|node| node.wait_for(|status| status.state == State::Lost));
        server.restart_empty();
        nodes.iter().for_each(|node| node.wait_for(|status| status.state == State::Connected));
        // Nobody asked about it while the server was lost: each machine tells it with its first settlement.
        let more = spend(&nodes, "agent-1", Duration::from_secs(2));
        println!("{:?}: {more} after it forgot", server.kind());
        assert!(more <= 4 * 25, "{more}: {:?}", nodes[0].status());
    });
}

/// An answer of a language model on one machine: what its estimate did not need, another machine can spend.
#[test]
fn what_a_reservation_leaves_refunds_and_resets_reach_all_machines() {
    on_each(|server| {
        let (nodes, _walls) = apart::<2>(server);
        let (one, other) = (&nodes[0], &nodes[1]);
        let request = Request::new("agent-1", one.lane("llm")).cost(800);
        let begin = Instant::now();
        let reservation = loop {
            let reserved = one.limiter.reserve(request, Duration::from_secs(60)).unwrap();
            if let Some(id) = reserved.id() {
                break id;
            }
            assert!(begin.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(2));
        };
        assert!(!other.limiter.check_request(request).unwrap().is_allowed(), "it has to ask");
        one.limiter.settle(reservation, Settle::used(100)).unwrap();
        allows_soon(other, "agent-1", 850);
        other.limiter.refund(Request::new("agent-1", other.lane("llm")).cost(850)).unwrap();
        allows_soon(one, "agent-1", 850);
        one.limiter.reset("agent-1").unwrap();
        allows_soon(other, "agent-1", 950);
    });
}
