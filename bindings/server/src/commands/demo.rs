//! `tollgate demo`: a server with simulated agents.

use super::check_config::columns;
use super::{runtime, say, serve};
use crate::app::App;
use crate::client::{Client, ClientError};
use crate::error::StartError;
use crate::log::Log;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tollgate::{LaneId, Limit, Limiter, Request, Verdict};

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    serve: serve::Arguments,
    /// How many agents behave well; besides them one is abusive, one impatient, one exempt
    #[arg(long, default_value_t = 30)]
    agents: u32,
    /// End after so many seconds; without it, with an interrupt
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

/// How an agent behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Has used so much of its lane already, and asks a little more slowly than it refills.
    Steady { used: u64, pace: Duration },
    /// Waits when it is told to, but never long enough.
    Impatient,
    /// Never waits.
    Abusive,
    /// Is never limited.
    Exempt,
}

/// What an agent has seen.
struct Tally {
    name: String,
    lane: String,
    manner: Manner,
    allowed: AtomicU64,
    denied: AtomicU64,
}

impl Arguments {
    pub(super) fn run(self) -> Result<(), StartError> {
        let log = Log::start(false)?;
        let done = runtime()?.block_on(async {
            // Room for those who take part and some more: the fewer, the faster they are listed.
            let mut serve = self.serve;
            serve.agents = Some(10_000);
            let started = serve.start().await?;
            say(&started.greeting());
            let (app, address) = (Arc::clone(&started.app), started.server.address());
            let tallies: Vec<_> = cast(&app, self.agents.min(1_000)).into_iter().map(Arc::new).collect();
            for tally in &tallies {
                tokio::spawn(Arc::clone(tally).live(address));
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
                    () = report(&tallies) => (),
                }
                say(&table(&tallies));
            };
            started.server.run(stop).await;
            Ok(())
        });
        log.end();
        done
    }
}

/// Who takes part: something of everything that the dashboard shows.
fn cast(app: &App, steady: u32) -> Vec<Tally> {
    let limiter = app.limiter();
    let policy = limiter.policy();
    let lanes: Vec<_> = policy.lanes().filter_map(|(lane, name)| Stage::of(limiter, lane, name)).collect();
    let Some(smallest) = lanes.iter().min_by_key(|lane| lane.capacity) else { return Vec::new() };
    let largest = lanes.iter().max_by_key(|lane| lane.capacity).map_or("", |lane| &lane.name);
    let mut cast = vec![
        Tally::new("abusive", &smallest.name, Manner::Abusive),
        Tally::new("impatient", &smallest.name, Manner::Impatient),
        Tally::new("exempt-monitor", largest, Manner::Exempt),
    ];
    cast.extend((1..=steady).zip(lanes.iter().cycle()).map(|(number, lane)| {
        // All over the scale: 37 and 90 have no common divisor.
        let used = lane.capacity * (u64::from(number) * 37 % 90) / 100;
        Tally::new(&format!("agent-{number}"), &lane.name, Manner::Steady { used, pace: lane.pace })
    }));
    // What is decided here is not to end up in somebody's state directory.
    if app.settings().state.is_none() {
        // That one of these fails only makes the page a little less lively.
        _ = limiter.exempt("exempt-monitor");
        if let Some((plan, _)) = policy.plans().last().filter(|_| policy.plans().len() > 1) {
            for agent in ["agent-4", "agent-9"] {
                _ = limiter.assign(agent, plan);
            }
        }
        _ = limiter.set_override("agent-2", largest, Limit::per_second(50));
    }
    cast
}

impl Tally {
    fn new(name: &str, lane: &str, manner: Manner) -> Self {
        let (allowed, denied) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { name: name.to_owned(), lane: lane.to_owned(), manner, allowed, denied }
    }

    /// Asks for ever, over a connection of its own.
    async fn live(self: Arc<Self>, address: SocketAddr) {
        loop {
            // The server ends when the demonstration does.
            if self.ask(address).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Asks until the connection breaks off.
    async fn ask(&self, address: SocketAddr) -> Result<(), ClientError> {
        let mut client = Client::connect(address).await?;
        let pace = match self.manner {
            Manner::Steady { pace, .. } => pace,
            Manner::Impatient => Duration::from_millis(300),
            Manner::Abusive => Duration::from_millis(25),
            Manner::Exempt => Duration::from_millis(80),
        };
        if let Manner::Steady { used: used @ 1.., .. } = self.manner {
            self.send(&mut client, used).await?;
        }
        loop {
            tokio::time::sleep(pace).await;
            let told = self.send(&mut client, 1).await?;
            match (self.manner, told) {
                (Manner::Steady { .. }, Some(wait)) => tokio::time::sleep(wait).await,
                (Manner::Impatient, Some(wait)) => tokio::time::sleep(wait / 3).await,
                _ => {}
            }
        }
    }

    /// Checks once; what it is told to wait, if it is denied.
    async fn send(&self, client: &mut Client, cost: u64) -> Result<Option<Duration>, ClientError> {
        let body = serde_json::json!({"agent": self.name, "lane": self.lane, "cost": cost}).to_string();
        let answer = client.send("POST", "/v1/check", &[], body).await?;
        if answer.status.is_success() {
            self.allowed.fetch_add(1, Relaxed);
            return Ok(None);
        }
        self.denied.fetch_add(1, Relaxed);
        let told = answer.headers.get("retry-after").and_then(|told| told.to_str().ok()?.parse().ok());
        Ok(Some(Duration::from_secs(told.unwrap_or(1))))
    }
}

/// A lane that somebody can ask for.
struct Stage {
    name: String,
    capacity: u64,
    /// A little longer than a token takes to come back.
    pace: Duration,
}

impl Stage {
    /// Tries the lane out, as an agent that is forgotten afterwards.
    fn of(limiter: &Limiter, lane: LaneId, name: &str) -> Option<Self> {
        let (agent, now) = ("tollgate-demo", limiter.now());
        let first = limiter.check_request(Request::new(agent, lane).at(now)).ok().filter(Verdict::is_allowed)?;
        let token = limiter.peek(Request::new(agent, lane).at(now)).ok()?.full_in();
        _ = limiter.forget(agent);
        let pace = token.mul_f64(1.05).clamp(Duration::from_millis(100), Duration::from_secs(60));
        Some(Self { name: name.to_owned(), capacity: first.capacity(), pace })
    }
}

async fn report(tallies: &[Arc<Tally>]) {
    let mut interval = tokio::time::interval(Duration::from_secs(5));
    interval.tick().await;
    loop {
        interval.tick().await;
        say(&table(tallies));
    }
}

fn table(tallies: &[Arc<Tally>]) -> String {
    let mut rows = vec![["", "agent", "allowed", "denied"].map(str::to_owned).to_vec()];
    for tally in tallies {
        let numbers = [&tally.allowed, &tally.denied].map(|count| count.load(Relaxed).to_string());
        let [allowed, denied] = numbers;
        rows.push(vec![String::new(), tally.name.clone(), allowed, denied]);
    }
    columns(&rows)
}
