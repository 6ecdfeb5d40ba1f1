//! Servers that answer, and not with what was asked: nothing of that is taken for an answer.

use super::node::{Node, PATIENCE};
use super::server::group::ask;
use super::server::{Kind, Server, on_each};
use redis::Connection;
use std::num::NonZeroU16;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::cluster::Link;
use tollgate_redis::{EngineBuilder, Losses, State, Status};

const SLOW: u64 = 60;

/// What the README asks of a server of Redis 7.0.
pub(crate) const ALLOWED: &str = "resetkeys ~tollgate:* -@all +evalsha +script|load +get +set +del +time +ping +hello \
                                  +info +zadd +zcard +zremrangebyscore +hget +hset +hmget +hdel +zrem +zrangebyscore";

fn admin(server: &Server, commands: &[&str]) -> Connection {
    let mut connection = server.connect();
    commands.iter().for_each(|command| ask::<()>(&mut connection, command).unwrap());
    connection
}

/// Asks about a new agent each time until the server is lost for this reason once more than before.
fn lost_for(node: &Node, before: u64, reason: impl Fn(&Losses) -> u64) -> Status {
    let begin = Instant::now();
    for agent in 0.. {
        let _ = node.allows(&format!("asked-{agent}"), "slow");
        let status = node.status();
        if reason(&status.losses) > before {
            return status;
        }
        assert!(begin.elapsed() < PATIENCE, "it went unnoticed: {status:?}");
        thread::sleep(Duration::from_millis(1));
    }
    unreachable!("agents do not run out")
}

/// Refuses, is refused, and comes back; whatever happens in between, an agent is admitted its limit once.
fn refused(server: &Server, what: &str, refuse: &[&str], restore: &[&str], reason: impl Fn(&Losses) -> u64) {
    let node = Node::start(server, 1);
    let begin = Instant::now();
    let mut spent = 0;
    while spent < 40 {
        spent += u64::from(node.allows("agent-1", "slow"));
        assert!(begin.elapsed() < PATIENCE);
    }
    let before = reason(&node.status().losses);
    let mut admin = admin(server, refuse);
    let status = lost_for(&node, before, reason);
    println!("{:?}: {what}: {}", server.kind(), status.last_problem.unwrap());
    spent += (0..99).filter(|_| node.allows("agent-1", "slow")).count() as u64;
    restore.iter().for_each(|command| ask::<()>(&mut admin, command).unwrap());
    node.wait_for(|status| status.state == State::Connected);
    for _ in 0..200 {
        spent += u64::from(node.allows("agent-1", "slow"));
        thread::sleep(Duration::from_millis(1));
    }
    let most = SLOW + 3 + begin.elapsed().as_secs() + 1;
    assert!((SLOW - 2..=most).contains(&spent), "{what}: {spent} of at most {most}");
    assert!(node.status().lost_for > Duration::ZERO);
}

#[test]
fn forgotten_scripts_are_no_answer() {
    on_each(|server| refused(server, "SCRIPT FLUSH", &["SCRIPT FLUSH"], &[], |losses| losses.no_script));
}

#[test]
fn a_closed_connection_is_no_answer() {
    on_each(|server| refused(server, "CLIENT KILL", &["CLIENT KILL TYPE normal"], &[], |losses| losses.connection));
}

#[test]
fn a_replica_gives_no_answer() {
    // A replica of nobody, which refuses writes.
    let refuse = ["CONFIG SET replica-serve-stale-data yes", "REPLICAOF 127.0.0.1 1"];
    on_each(|server| refused(server, "READONLY", &refuse, &["REPLICAOF NO ONE"], |losses| losses.read_only));
}

#[test]
fn a_full_server_gives_no_answer() {
    let (refuse, restore) = (["CONFIG SET maxmemory 1"], ["CONFIG SET maxmemory 0"]);
    on_each(|server| refused(server, "OOM", &refuse, &restore, |losses| losses.out_of_memory));
}

#[test]
fn a_server_that_reads_its_data_gives_no_answer() {
    // As a server does that starts with much to read: each key takes a millisecond, and it answers in between.
    let slowly = [
        "--key-load-delay",
        "1000",
        "--loading-process-events-interval-bytes",
        "1024",
        "--enable-debug-command",
        "yes",
    ];
    let Some(server) = Server::start(Kind::Redis, &slowly) else { return };
    let mut filler = server.connect();
    ask::<()>(&mut filler, "DEBUG POPULATE 1500 filler").unwrap();
    let reload = server.connect();
    let node = Node::start(&server, 1);
    let reloading = thread::spawn(move || {
        let mut reload = reload;
        ask::<()>(&mut reload, "DEBUG RELOAD").unwrap();
    });
    let status = lost_for(&node, 0, |losses| losses.loading + losses.timeout);
    println!("LOADING: {}, {:?}", status.last_problem.unwrap(), status.losses);
    reloading.join().unwrap();
    node.wait_for(|status| status.state == State::Connected);
    node.allows_soon("agent-1", "slow");
}

/// A user that is taken away, and one whose password is wrong.
#[test]
fn who_is_not_let_in_is_lost_and_shows_no_password() {
    on_each(|server| {
        let set_user = format!("ACL SETUSER app on >hunter2 {ALLOWED}");
        let mut admin = admin(server, &[&set_user]);
        let builder = || EngineBuilder::new(&server.url()).unwrap().user("app");
        let node = Node::with(builder().password("hunter2"));
        node.allows_soon("agent-1", "slow");
        for (what, restore) in [("ACL SETUSER app -evalsha", &*set_user), ("ACL DELUSER app", &*set_user)] {
            let losses = node.status().losses;
            ask::<()>(&mut admin, what).unwrap();
            // Whose user is gone is disconnected.
            let status =
                lost_for(&node, losses.no_auth + losses.connection, |losses| losses.no_auth + losses.connection);
            println!("{:?}: {what}: {} {:?}", server.kind(), status.last_problem.clone().unwrap(), status.losses);
            assert!(status.losses.no_auth > losses.no_auth || what.contains("DELUSER"));
            ask::<()>(&mut admin, restore).unwrap();
            node.wait_for(|status| status.state == State::Connected);
        }
        let limiter = super::node::limiter();
        let engine = builder().password("not hunter2").attach(std::sync::Arc::clone(&limiter)).unwrap();
        let begin = Instant::now();
        while engine.status().last_problem.is_none() {
            assert!(begin.elapsed() < PATIENCE);
            thread::sleep(Duration::from_millis(1));
        }
        let status = format!("{:?} {engine:?}", engine.status());
        assert!(status.contains("authentication failed") && !status.contains("hunter2"), "{status}");
        assert!(!Link::of(&limiter).unwrap().is_connected());
    });
}

#[test]
fn what_an_operator_should_change_is_in_the_status() {
    on_each(|server| {
        let _admin = admin(server, &["CONFIG SET maxmemory 100mb", "CONFIG SET maxmemory-policy allkeys-lru"]);
        let node = Node::start(server, 1);
        let warnings = node.status().warnings;
        assert!(warnings.iter().any(|warning| warning.contains("maxmemory-policy allkeys-lru")), "{warnings:?}");
    });
}

/// Real time is under test here, on a machine that may be busy: the bounds are those of the time-out and of the longest
/// pause between two attempts, with as much again.
#[test]
fn a_loss_and_a_return_are_noticed_soon() {
    on_each(|server| {
        let node = Node::with(EngineBuilder::new(&server.url()).unwrap().nodes_at_least(NonZeroU16::MIN));
        node.allows_soon("agent-1", "slow");
        server.pause();
        let begin = Instant::now();
        let _ = node.allows("agent-2", "slow");
        node.wait_for(|status| status.state == State::Lost);
        let lost = begin.elapsed();
        server.resume();
        let begin = Instant::now();
        node.wait_for(|status| status.state == State::Connected);
        let back = begin.elapsed();
        println!("{:?}: lost after {lost:?}, back after {back:?}", server.kind());
        assert!(lost < Duration::from_millis(500) && back < Duration::from_secs(1), "{lost:?}, {back:?}");
    });
}
