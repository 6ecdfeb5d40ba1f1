//! A machine: a limiter, and its engine.

use super::server::Server;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tollgate::cluster::{Cluster, ClusterLane, WhenLost};
use tollgate::{LaneId, Limiter, Policy};
use tollgate_redis::{Engine, EngineBuilder, Keyring, State, Status};

pub(crate) const SECRET: &[u8] = b"a secret for tests only";

/// The longest that anything may take on a busy machine. A sentinel that stood still for two seconds elects nobody for
/// another thirty.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One machine.
pub(crate) struct Node {
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) engine: Engine,
}

pub(crate) fn policy() -> Policy {
    let policy = Policy::builder().lane("slow", "60/min").lane("fast", "1000/s").lane("login", "10/min");
    policy.lane("large", "10/s burst 6000").lane("ws", "held 3").build().unwrap()
}

pub(crate) fn limiter() -> Arc<Limiter> {
    let cluster = Cluster::new(Keyring::new(SECRET).unwrap().key()).except("ws");
    let cluster = cluster.lane("login", ClusterLane::new().exact().when_lost(WhenLost::Closed));
    Arc::new(Limiter::builder(policy()).agents(1_000).cluster(cluster).build().unwrap())
}

impl Node {
    pub(crate) fn start(server: &Server, nodes: u16) -> Self {
        let builder = EngineBuilder::new(&server.url()).unwrap().nodes_at_least(NonZeroU16::new(nodes).unwrap());
        Self::with(builder)
    }

    /// Starts one, and waits until it is connected.
    pub(crate) fn with(builder: EngineBuilder) -> Self {
        let limiter = limiter();
        let engine = builder.attach(Arc::clone(&limiter)).unwrap();
        let node = Self { limiter, engine };
        node.wait_for(|status| status.state == State::Connected);
        node
    }

    pub(crate) fn lane(&self, name: &str) -> LaneId {
        self.limiter.lane(name).unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        self.engine.status()
    }

    pub(crate) fn wait_for(&self, is_so: impl Fn(&Status) -> bool) {
        let begin = Instant::now();
        while !is_so(&self.status()) {
            assert!(begin.elapsed() < PATIENCE, "{:?}", self.status());
            thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn allows(&self, agent: &str, lane: &str) -> bool {
        self.limiter.check(agent, self.lane(lane)).unwrap().is_allowed()
    }

    /// Tries until it is allowed.
    pub(crate) fn allows_soon(&self, agent: &str, lane: &str) {
        let begin = Instant::now();
        while !self.allows(agent, lane) {
            assert!(begin.elapsed() < PATIENCE, "{:?}", self.status());
            thread::sleep(Duration::from_millis(2));
        }
    }
}

pub(crate) fn nodes<const N: usize>(server: &Server) -> [Node; N] {
    std::array::from_fn(|_| Node::start(server, N as u16))
}

/// How many requests of an agent all machines admit together, each asking every so often for this long.
pub(crate) fn admitted(nodes: &[Node], agent: &str, lane: &str, every: Duration, length: Duration) -> (u64, Duration) {
    let begin = Instant::now();
    let one = |node: &Node| {
        let mut allowed = 0;
        while begin.elapsed() < length {
            allowed += u64::from(node.allows(agent, lane));
            thread::sleep(every);
        }
        allowed
    };
    let total = thread::scope(|scope| {
        let threads: Vec<_> = nodes.iter().map(|node| scope.spawn(|| one(node))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    (total, begin.elapsed())
}
