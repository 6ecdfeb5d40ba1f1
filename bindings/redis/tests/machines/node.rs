//! A machine as a process of its own: this program again, which checks at a given rate from an instant of the
//! machine's clock on, and prints what it admitted and when the store was lost and back.

use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::io::Read;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;
use tollgate::cluster::{Cluster, Link};
use tollgate::{Limiter, Policy};
use tollgate_redis::{Engine, EngineBuilder, Keyring};

/// The variable with what such a process is to do.
pub(crate) const VARIABLE: &str = "TOLLGATE_TEST_MACHINE";

const MILLI: Duration = Duration::from_millis(1);

/// What all processes of a test read alike.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// What a machine is to do.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    /// Where the servers are: one; or sentinels or servers of a cluster, after `sentinels` or `cluster`.
    pub(crate) urls: Vec<String>,
    pub(crate) limit: String,
    pub(crate) nodes: u16,
    pub(crate) agents: usize,
    /// Checks a second.
    pub(crate) rate: u64,
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
}

impl Orders {
    pub(crate) fn to_text(&self) -> String {
        let Self { urls, limit, nodes, agents, rate, begin_ns, end_ns } = self;
        format!("{};{limit};{nodes};{agents};{rate};{begin_ns};{end_ns}", urls.join(","))
    }

    fn of_text(text: &str) -> Option<Self> {
        let mut parts = text.split(';');
        let mut next = || parts.next();
        Some(Self {
            urls: next()?.split(',').map(str::to_owned).collect(),
            limit: next()?.to_owned(),
            nodes: next()?.parse().ok()?,
            agents: next()?.parse().ok()?,
            rate: next()?.parse().ok()?,
            begin_ns: next()?.parse().ok()?,
            end_ns: next()?.parse().ok()?,
        })
    }

    fn engine(&self, limiter: &Arc<Limiter>) -> Engine {
        let builder = match &self.urls[..] {
            [kind, urls @ ..] if kind == "sentinels" => EngineBuilder::sentinel(urls, "main"),
            [kind, urls @ ..] if kind == "cluster" => EngineBuilder::cluster(urls),
            urls => EngineBuilder::new(&urls[0]),
        };
        let nodes = NonZeroU16::new(self.nodes).unwrap();
        builder.unwrap().nodes_at_least(nodes).attach(Arc::clone(limiter)).unwrap()
    }
}

/// Does what the variable says. Not part of a test run unless it is there.
pub(crate) fn run() {
    let Some(orders) = std::env::var(VARIABLE).ok().and_then(|text| Orders::of_text(&text)) else { return };
    let policy = Policy::builder().lane("http", orders.limit.as_str()).build().unwrap();
    let cluster = Cluster::new(Keyring::new(b"a secret for tests only").unwrap().key());
    let limiter = Arc::new(Limiter::builder(policy).agents(1_000).cluster(cluster).build().unwrap());
    let engine = orders.engine(&limiter);
    let (lane, link) = (limiter.lane("http").unwrap(), Link::of(&limiter).unwrap());
    let ids: Vec<_> = (0..orders.agents).map(|agent| format!("agent-{agent}")).collect();
    let mut bins: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    let (mut asked, mut was_connected) = (0, true);
    let ended = Arc::new(AtomicBool::new(false));
    let of_pipe = Arc::clone(&ended);
    spawn(move || {
        _ = std::io::stdin().read_to_end(&mut Vec::new());
        of_pipe.store(true, Ordering::Relaxed);
    });
    // The first answers are asked for before the clock runs, so that nobody waits for a connection.
    while now_ns() < orders.begin_ns {
        sleep(MILLI);
    }
    // Ends at the given instant, or when whoever started it closes the pipe.
    loop {
        let now = now_ns();
        if link.is_connected() != was_connected {
            was_connected = !was_connected;
            println!("{} {now}", if was_connected { "back" } else { "lost" });
        }
        if now >= orders.end_ns || ended.load(Ordering::Relaxed) {
            break;
        }
        // What is due by now, at once: a machine that was starved catches up.
        let due = (now - orders.begin_ns) as u128 * u128::from(orders.rate) / 1_000_000_000;
        while asked < due {
            let agent = asked as usize % ids.len();
            if limiter.check(&ids[agent], lane).unwrap().is_allowed() {
                *bins.entry((agent, now_ns() / 1_000_000)).or_default() += 1;
            }
            asked += 1;
        }
        sleep(MILLI / 2);
    }
    for ((agent, milli), count) in bins {
        println!("bin {agent} {milli} {count}");
    }
    let status = engine.status();
    let (counts, trips) = (status.counts, status.round_trip.as_micros());
    println!("end {asked} {} {} {trips} {:?}", counts.sent, counts.losses, status.losses);
}
