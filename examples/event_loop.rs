//! An event loop: each turn has one instant, and checks its requests in one batch.
//!
//! ```sh
//! cargo run --example event_loop
//! ```

use std::error::Error;
use std::time::Duration;
use tollgate::{Limiter, Policy, Request};

/// What arrives in each turn: the agent, and how many rows it requests.
const TURNS: [&[(&str, u64)]; 3] = [
    &[("agent-7", 60), ("agent-7", 60), ("agent-8", 10)],
    &[("agent-7", 60), ("", 1), ("agent-8", 101)],
    &[("agent-7", 60), ("agent-8", 10)],
];

const TURN: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    // A cost is a number of tokens; here a token is a row.
    let policy = Policy::builder().lane("db/rows", "40/second burst 100").build()?;
    let limiter = Limiter::builder(policy).agents(10_000).build()?;
    let rows = limiter.lane("db/rows").ok_or("the policy has no such lane")?;

    // Both are reused in every turn.
    let mut requests = Vec::new();
    let mut answers = Vec::new();

    // A loop in real time sets `now = limiter.now()` at the top of each turn.
    // This one simulates its turns, so that it does not have to wait.
    let mut now = limiter.now();
    for (turn, arrived) in TURNS.iter().enumerate() {
        requests.clear();
        requests.extend(arrived.iter().map(|&(agent, cost)| Request::new(agent, rows).cost(cost).at(now)));
        answers.clear();
        answers.resize(requests.len(), Err(tollgate::Error::ZeroCost)); // Each is overwritten.

        // As if checked one by one, in order, all at the same instant.
        limiter.check_many(&requests, &mut answers)?;

        println!("turn {turn}");
        for (&(agent, cost), answer) in arrived.iter().zip(&answers) {
            match answer {
                Ok(verdict) if verdict.is_allowed() => {
                    println!("  {agent:?} takes {cost} rows, {} left", verdict.remaining());
                }
                Ok(verdict) => {
                    let wait = verdict.retry_after().unwrap_or(Duration::MAX);
                    println!("  {agent:?} is denied {cost} rows, retry after {wait:?}");
                }
                Err(error) => println!("  {agent:?} gets no answer: {error}"),
            }
        }
        now = now.saturating_add(TURN);
    }

    // A peek charges nothing, and takes the same instant.
    let status = limiter.peek(Request::new("agent-7", rows).at(now))?;
    println!("agent-7 has {} of {} rows left", status.remaining(), status.capacity());
    Ok(())
}
