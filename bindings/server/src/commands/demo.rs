//! `tollgate demo`: a server with simulated agents.

use super::check_config::columns;
use super::{log_to_stderr, runtime, say, serve};
use crate::client::{Client, ClientError};
use crate::error::StartError;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    serve: serve::Arguments,
    /// How many agents behave well; there is always one more that does not
    #[arg(long, default_value_t = 7)]
    agents: u32,
    /// End after so many seconds; without it, with an interrupt
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
}

/// What an agent has seen.
struct Tally {
    name: String,
    /// The time between two requests, if all is well.
    pace: Duration,
    /// Whether it waits when it is told to.
    obeys: bool,
    allowed: AtomicU64,
    denied: AtomicU64,
}

impl Arguments {
    pub(super) fn run(self) -> Result<(), StartError> {
        log_to_stderr(false);
        runtime()?.block_on(async {
            let started = self.serve.start().await?;
            say(&started.greeting());
            let policy = started.app.limiter().policy();
            let lanes: Vec<_> = policy.lanes().map(|(_, name)| name.to_owned()).collect();
            let address = started.server.address();
            let mut tallies: Vec<_> = (1..=self.agents.min(1_000))
                .map(|number| {
                    let pace = Duration::from_millis(200 + 150 * u64::from(number % 10));
                    Tally::new(format!("agent-{number}"), pace, true)
                })
                .collect();
            tallies.push(Tally::new("abusive".to_owned(), Duration::from_millis(20), false));
            let tallies: Vec<_> = tallies.into_iter().map(Arc::new).collect();
            for (number, tally) in tallies.iter().enumerate() {
                let lane = lanes[number % lanes.len()].clone();
                tokio::spawn(Arc::clone(tally).live(address, lane));
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
        })
    }
}

impl Tally {
    fn new(name: String, pace: Duration, obeys: bool) -> Self {
        Self { name, pace, obeys, allowed: AtomicU64::new(0), denied: AtomicU64::new(0) }
    }

    /// Asks for ever, over a connection of its own.
    async fn live(self: Arc<Self>, address: SocketAddr, lane: String) {
        loop {
            // The server ends when the demonstration does.
            if self.ask(address, &lane).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Asks until the connection breaks off.
    async fn ask(&self, address: SocketAddr, lane: &str) -> Result<(), ClientError> {
        let mut client = Client::connect(address).await?;
        let body = serde_json::json!({"agent": self.name, "lane": lane}).to_string();
        loop {
            let answer = client.send("POST", "/v1/check", &[], body.clone()).await?;
            let mut pause = self.pace;
            if answer.status.is_success() {
                self.allowed.fetch_add(1, Relaxed);
            } else {
                self.denied.fetch_add(1, Relaxed);
                let told = answer.headers.get("retry-after").and_then(|told| told.to_str().ok()?.parse().ok());
                if let (true, Some(seconds)) = (self.obeys, told) {
                    pause = Duration::from_secs(seconds);
                }
            }
            tokio::time::sleep(pause).await;
        }
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
