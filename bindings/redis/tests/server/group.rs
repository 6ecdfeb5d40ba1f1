//! Groups of servers on ports of this machine: a master with replicas and sentinels, or a cluster.

use super::{Kind, PATIENCE, Server, free_port};
use redis::{Connection, FromRedisValue, RedisResult, Value};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A server, and its port.
pub(crate) struct Member {
    pub(crate) server: Server,
    pub(crate) port: u16,
}

impl Member {
    pub(crate) fn start(kind: Kind, options: &[&str], file: Option<&str>) -> Option<Self> {
        let port = free_port();
        let number = port.to_string();
        let options: Vec<_> = ["--port", &number, "--bind", "127.0.0.1"].iter().chain(options).copied().collect();
        Some(Self { server: Server::start_with(kind, &options, file)?, port })
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn ask<T: FromRedisValue>(&self, command: &str) -> RedisResult<T> {
        ask(&mut self.server.connect(), command)
    }

    fn info(&self, section: &str, key: &str) -> String {
        let about: String = self.ask(&format!("INFO {section}")).unwrap_or_default();
        let value = about.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        value.unwrap_or_default().trim().to_owned()
    }

    /// Whether it takes writes.
    pub(crate) fn is_master(&self) -> bool {
        self.info("replication", "role") == "master"
    }
}

/// Sends a command that is written with spaces.
pub(crate) fn ask<T: FromRedisValue>(connection: &mut Connection, command: &str) -> RedisResult<T> {
    let words: Vec<_> = command.split(' ').collect();
    redis::cmd(words[0]).arg(&words[1..]).query(connection)
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A master called `main`, two replicas, and three sentinels that watch over them.
pub(crate) struct Sentinels {
    /// The master comes first, until another one is elected.
    pub(crate) servers: Vec<Member>,
    pub(crate) sentinels: Vec<Member>,
}

impl Sentinels {
    pub(crate) fn start(kind: Kind) -> Option<Self> {
        let master = Member::start(kind, &["--repl-diskless-sync-delay", "0"], None)?;
        let port = master.port.to_string();
        let mut servers = vec![master];
        for _ in 0..2 {
            servers.push(Member::start(kind, &["--replicaof", "127.0.0.1", &port], None)?);
        }
        for replica in &servers[1..] {
            wait("a replica follows", || replica.info("replication", "master_link_status") == "up");
        }
        let file = format!(
            "sentinel monitor main 127.0.0.1 {port} 2\nsentinel down-after-milliseconds main 500\n\
             sentinel failover-timeout main 3000\n"
        );
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(Member::start(kind, &["--sentinel"], Some(&file))?);
        }
        for sentinel in &sentinels {
            wait("the sentinels know each other", || {
                let about: HashMap<String, Value> = sentinel.ask("SENTINEL MASTER main").unwrap_or_default();
                let is = |key, count: &str| about.get(key) == Some(&Value::BulkString(count.as_bytes().to_vec()));
                is("num-other-sentinels", "2") && is("num-slaves", "2")
            });
            wait("a sentinel that stood still acts again", || sentinel.info("sentinel", "sentinel_tilt") == "0");
        }
        Some(Self { servers, sentinels })
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Member::url).collect()
    }
}

/// Three masters with a replica each.
pub(crate) struct Cluster {
    /// The masters come first, until others are elected.
    pub(crate) servers: Vec<Member>,
}

impl Cluster {
    pub(crate) fn start(kind: Kind) -> Option<Self> {
        let mut servers = Vec::new();
        for _ in 0..6 {
            let bus = free_port().to_string();
            let options = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "600"];
            let member = Member::start(kind, &options, None)?;
            servers.push((member, bus));
        }
        let (first, bus) = (servers[0].0.port, servers[0].1.clone());
        for (place, (member, _)) in servers.iter().enumerate() {
            if place > 0 {
                member.ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {first} {bus}")).expect("they meet");
            }
            if place < 3 {
                let (from, to) = ([0, 5_461, 10_923][place], [5_460, 10_922, 16_383][place]);
                member.ask::<()>(&format!("CLUSTER ADDSLOTSRANGE {from} {to}")).expect("it takes slots");
            }
        }
        let servers: Vec<_> = servers.into_iter().map(|(member, _)| member).collect();
        let all_know = |what: &str| {
            servers.iter().all(|member| {
                member.ask::<String>("CLUSTER NODES").is_ok_and(|nodes| {
                    nodes.lines().filter(|line| line.contains(what)).count() >= if what.is_empty() { 6 } else { 3 }
                })
            })
        };
        wait("the servers know each other", || all_know(""));
        for place in 0..3 {
            let id: String = servers[place].ask("CLUSTER MYID").expect("its id");
            let follow = format!("CLUSTER REPLICATE {id}");
            wait("a replica follows", || servers[place + 3].ask::<()>(&follow).is_ok());
        }
        wait("the cluster is whole", || {
            all_know("slave") && servers.iter().all(|member| member.info_of_cluster("cluster_state") == "ok")
        });
        for replica in &servers[3..] {
            wait("a replica has caught up", || replica.info("replication", "master_link_status") == "up");
        }
        Some(Self { servers })
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(Member::url).collect()
    }
}

impl Member {
    fn info_of_cluster(&self, key: &str) -> String {
        let about: String = self.ask("CLUSTER INFO").unwrap_or_default();
        let value = about.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        value.unwrap_or_default().trim().to_owned()
    }
}
