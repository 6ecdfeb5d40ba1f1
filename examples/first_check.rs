//! The first check: one agent, one lane, and what a server answers.
//!
//! ```sh
//! cargo run --example first_check
//! ```

use std::error::Error;
use std::time::Duration;
use tollgate::{Decision, Limit, Limiter, Policy};

fn main() -> Result<(), Box<dyn Error>> {
    // Ten reports a minute in the long run, and at most three at once.
    let policy = Policy::builder().lane("http/report", Limit::per_minute(10).burst(3)).build()?;
    let limiter = Limiter::builder(policy).agents(100_000).build()?;
    let report = limiter.lane("http/report").ok_or("the policy has no such lane")?;

    for request in 1..=5 {
        let verdict = limiter.check("agent-7", report)?;
        let (remaining, capacity) = (verdict.remaining(), verdict.capacity());
        match verdict.decision() {
            Decision::Deny => match verdict.retry_after() {
                Some(wait) => println!("{request}: 429 Too Many Requests, Retry-After: {}", whole_seconds(wait)),
                None => println!("{request}: 403 Forbidden, no wait helps"),
            },
            Decision::Warn => println!("{request}: 200 OK, {remaining} of {capacity} left, slow down"),
            _ => println!("{request}: 200 OK, {remaining} of {capacity} left"),
        }
    }

    // Limits are per agent: another one starts with a full bucket.
    let verdict = limiter.check("agent-8", report)?;
    println!("agent-8: {:?}, {} of {} left", verdict.decision(), verdict.remaining(), verdict.capacity());
    Ok(())
}

/// A wait as the header gives it: rounded up, so that a client that waits this long is admitted.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
