//! `tollgate demo`: a server with simulated agents.

use super::check_config::columns;
use super::{machines, print_line, runtime, serve};
use crate::address::{Address, reachable_of};
use crate::app::App;
use crate::client::{Client, ClientError};
use crate::error::StartError;
use crate::log::Log;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tollgate::{LaneId, Limit, Limiter, Request, Verdict};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    serve: serve::Arguments,
    /// How many agents behave well; three more are abusive, impatient and exempt
    #[arg(long, default_value_t = 30)]
    agents: u32,
    /// Serve on three ports instead, with limits that the three share through a Redis or Valkey: one that it
    /// starts, or that of --redis; without simulated agents
    #[arg(long)]
    cluster: bool,
    /// End after this many seconds; by default, run until interrupted
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

/// How an agent behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// Has used some of its lane already, and sends requests a little more slowly than it refills.
    Steady { used: u64, pace: Duration },
    /// Waits after a denial, but never long enough.
    Impatient,
    /// Never waits.
    Abusive,
    /// Is never limited.
    Exempt,
}

/// A simulated agent, and how many of its requests were allowed and denied.
struct DemoAgent {
    name: String,
    lane: String,
    behaviour: Behaviour,
    allowed: AtomicU64,
    denied: AtomicU64,
}

impl Arguments {
    pub(super) fn run(self) -> Result<(), StartError> {
        if self.cluster {
            return machines::run(&self.serve, self.seconds);
        }
        let log = Log::start(false)?;
        let result = runtime()?.block_on(async {
            // Room for the simulated agents and some more: the fewer, the faster they are listed.
            let mut serve = self.serve;
            serve.agents = Some(10_000);
            let instance = serve.start().await?;
            print_line(&instance.greeting());
            let (app, address) = (Arc::clone(&instance.app), reachable_of(instance.server.addresses()));
            let agents: Vec<_> = demo_agents(&app, self.agents.min(1_000)).into_iter().map(Arc::new).collect();
            for agent in &agents {
                tokio::spawn(Arc::clone(agent).run(address.clone()));
            }
            let seconds = self.seconds;
            let stop = async move {
                let end = async {
                    match seconds {
                        Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds)).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = end => (),
                    _ = tokio::signal::ctrl_c() => (),
                    () = print_tables(&agents) => (),
                }
                print_line(&table(&agents));
            };
            instance.server.run(stop).await;
            Ok(())
        });
        log.end();
        result
    }
}

/// The simulated agents: some of everything that the dashboard shows.
fn demo_agents(app: &App, steady: u32) -> Vec<DemoAgent> {
    let limiter = app.limiter();
    let policy = limiter.policy();
    let lanes: Vec<_> = policy.lanes().filter_map(|(lane, name)| DemoLane::of(limiter, lane, name)).collect();
    let Some(smallest) = lanes.iter().min_by_key(|lane| lane.capacity) else { return Vec::new() };
    let largest = lanes.iter().max_by_key(|lane| lane.capacity).map_or("", |lane| &lane.name);
    let mut agents = vec![
        DemoAgent::new("abusive", &smallest.name, Behaviour::Abusive),
        DemoAgent::new("impatient", &smallest.name, Behaviour::Impatient),
        DemoAgent::new("exempt-monitor", largest, Behaviour::Exempt),
    ];
    agents.extend((1..=steady).zip(lanes.iter().cycle()).map(|(number, lane)| {
        // Spread over the whole scale: 37 and 90 have no common divisor.
        let used = lane.capacity * (u64::from(number) * 37 % 90) / 100;
        DemoAgent::new(&format!("agent-{number}"), &lane.name, Behaviour::Steady { used, pace: lane.pace })
    }));
    // These assignments must not end up in a state directory.
    if app.settings().state.is_none() {
        // If one of them fails, the page is only a little less lively.
        _ = limiter.exempt("exempt-monitor");
        if let Some((plan, _)) = policy.plans().last().filter(|_| policy.plans().len() > 1) {
            for agent in ["agent-4", "agent-9"] {
                _ = limiter.assign(agent, plan);
            }
        }
        _ = limiter.set_override("agent-2", largest, Limit::per_second(50));
    }
    agents
}

impl DemoAgent {
    fn new(name: &str, lane: &str, behaviour: Behaviour) -> Self {
        let (allowed, denied) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { name: name.to_owned(), lane: lane.to_owned(), behaviour, allowed, denied }
    }

    /// Sends requests for ever, and reconnects when the connection breaks.
    async fn run(self: Arc<Self>, address: Address) {
        loop {
            // The runtime ends with the demo.
            if self.send_requests(&address).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Sends requests until the connection breaks.
    async fn send_requests(&self, address: &Address) -> Result<(), ClientError> {
        let mut client = Client::connect(address.clone()).await?;
        let pace = match self.behaviour {
            Behaviour::Steady { pace, .. } => pace,
            Behaviour::Impatient => Duration::from_millis(300),
            Behaviour::Abusive => Duration::from_millis(25),
            Behaviour::Exempt => Duration::from_millis(80),
        };
        if let Behaviour::Steady { used: used @ 1.., .. } = self.behaviour {
            self.send(&mut client, used).await?;
        }
        loop {
            tokio::time::sleep(pace).await;
            let wait = self.send(&mut client, 1).await?;
            match (self.behaviour, wait) {
                (Behaviour::Steady { .. }, Some(wait)) => tokio::time::sleep(wait).await,
                (Behaviour::Impatient, Some(wait)) => tokio::time::sleep(wait / 3).await,
                _ => {}
            }
        }
    }

    /// Checks once, and returns the announced wait if it is denied.
    async fn send(&self, client: &mut Client, cost: u64) -> Result<Option<Duration>, ClientError> {
        let body = serde_json::json!({"agent": self.name, "lane": self.lane, "cost": cost}).to_string();
        let answer = client.send("POST", "/v1/check", &[], body).await?;
        if answer.status.is_success() {
            self.allowed.fetch_add(1, Relaxed);
            return Ok(None);
        }
        self.denied.fetch_add(1, Relaxed);
        let seconds = answer.headers.get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Some(Duration::from_secs(seconds.unwrap_or(1))))
    }
}

/// A lane that can be checked.
struct DemoLane {
    name: String,
    capacity: u64,
    /// A little longer than a token takes to refill.
    pace: Duration,
}

impl DemoLane {
    /// Tries the lane with an agent that is forgotten afterwards.
    fn of(limiter: &Limiter, lane: LaneId, name: &str) -> Option<Self> {
        let (agent, now) = ("tollgate-demo", limiter.now());
        let first = limiter.check_request(Request::new(agent, lane).at(now)).ok().filter(Verdict::is_allowed)?;
        let token = limiter.peek(Request::new(agent, lane).at(now)).ok()?.full_in();
        _ = limiter.forget(agent);
        let pace = token.mul_f64(1.05).clamp(Duration::from_millis(100), Duration::from_secs(60));
        Some(Self { name: name.to_owned(), capacity: first.capacity(), pace })
    }
}

async fn print_tables(agents: &[Arc<DemoAgent>]) {
    let mut interval = tokio::time::interval(Duration::from_secs(5));
    interval.tick().await;
    loop {
        interval.tick().await;
        print_line(&table(agents));
    }
}

fn table(agents: &[Arc<DemoAgent>]) -> String {
    let mut rows = vec![["", "agent", "allowed", "denied"].map(str::to_owned).to_vec()];
    for agent in agents {
        let numbers = [&agent.allowed, &agent.denied].map(|count| count.load(Relaxed).to_string());
        let [allowed, denied] = numbers;
        rows.push(vec![String::new(), agent.name.clone(), allowed, denied]);
    }
    columns(&rows)
}
