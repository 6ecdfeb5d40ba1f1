//! A daily budget of LLM tokens: reserve, stream, settle.
//!
//! ```sh
//! cargo run --example llm_budget
//! ```

use std::error::Error;
use std::time::Duration;
use tollgate::{Limiter, Policy, Request, Settle};

fn main() -> Result<(), Box<dyn Error>> {
    let policy = Policy::builder()
        .lane("http/requests", "10/second burst 20")
        .lane("llm/tokens", "budget 10_000/day")
        .plan("team", [("llm/tokens", "budget 50_000/day")])
        .build()?;
    let limiter = Limiter::builder(policy).agents(100_000).build()?;
    let requests = limiter.lane("http/requests").ok_or("the policy has no such lane")?;
    let tokens = limiter.lane("llm/tokens").ok_or("the policy has no such lane")?;
    limiter.assign("team:7", limiter.plan("team").ok_or("the policy has no such plan")?)?;

    // The request itself, and the tokens of its prompt from the user's and the team's budget: all or none.
    let part = |agent: &'static str, lane, cost| Request::new(agent, lane).cost(cost).counted();
    let prompt = 1_200;
    let parts = [part("user:42", requests, 1), part("user:42", tokens, prompt), part("team:7", tokens, prompt)];
    let answer = limiter.check_all(&parts)?;
    println!("prompt: {}", if answer.is_allowed() { "paid for" } else { "refused" });

    // The length of the answer is not known yet: reserve the most it may take.
    let reserved = limiter.reserve(Request::new("user:42", tokens).cost(4_000), Duration::from_secs(120))?;
    let Some(id) = reserved.id() else {
        println!("refused; the budget is full again in {:?}", reserved.verdict().full_in());
        return Ok(());
    };
    println!("reserved 4000, {} left", limiter.peek(Request::new("user:42", tokens))?.remaining());

    // While it streams, report what has been used. If the client goes away now,
    // that stays charged, and so does the rest of the reservation once it
    // expires.
    for chunk in [300, 450, 120] {
        let settled = limiter.settle(id, Settle::used_so_far(chunk))?;
        limiter.extend(id, Duration::from_secs(120))?;
        println!("streamed {chunk}, {} still reserved", settled.left);
    }

    // The end: the unused part comes back.
    let settled = limiter.settle(id, Settle::used(30))?;
    println!("{} came back, {} left", settled.unused, limiter.peek(Request::new("user:42", tokens))?.remaining());
    assert_eq!(limiter.peek(Request::new("user:42", tokens))?.remaining(), 10_000 - prompt - 900);

    // An id works once.
    assert!(limiter.settle(id, Settle::used(30)).is_err());
    Ok(())
}
