//! What an operator sees: counts, cards, offenders, events, and a few log lines.
//!
//! ```sh
//! cargo run --example watch
//! ```

use std::error::Error;
use std::time::Duration;
use tollgate::observe::{AgentQuery, AgentSort, EventKind, LogThrottle, Observe, ShownId};
use tollgate::{Limiter, ManualClock, Policy, Request};

/// The agent, its requests per second, and the lane.
const CLIENTS: [(&str, u32, &str); 4] = [
    ("agent-7", 1, "ws/light"),
    ("agent-8", 4, "http/heavy"),
    ("crawler\n", 9, "http/heavy"),
    ("probe", 2, "ws/light"),
];

fn main() -> Result<(), Box<dyn Error>> {
    // A minute is simulated, so that nobody has to wait for it.
    let clock = ManualClock::new();
    let observe = Observe::new().roster(10_000);
    let limiter =
        Limiter::builder(Policy::preset("hub")?).agents(10_000).clock(clock.clone()).observe(observe).build()?;
    limiter.exempt("probe")?;

    let log = LogThrottle::new();
    for _ in 0..90 {
        for (agent, requests, lane) in CLIENTS {
            let lane = limiter.lane(lane).ok_or("the preset has no such lane")?;
            for _ in 0..requests {
                if !limiter.check_request(Request::new(agent, lane).counted())?.is_allowed() {
                    // One line for the first denial, then at most one per minute.
                    log.denied(agent, limiter.now()).into_iter().for_each(|line| println!("{:8} {line}", line.level()));
                }
            }
        }
        clock.advance(Duration::from_secs(1));
        log.due(limiter.now()).into_iter().for_each(|line| println!("{:8} {line}", line.level()));
    }

    println!("\nevents");
    while let Some(event) = limiter.poll_event() {
        match event.kind {
            EventKind::SustainedAbuse { agent, .. } => println!("  sustained abuse by {}", ShownId::new(&agent)),
            EventKind::AssignmentChanged { agent } => println!("  the assignment of {} changed", ShownId::new(&agent)),
            other => println!("  {other:?}"),
        }
    }

    println!("\nagents, the busiest first");
    let page = limiter.agents(&AgentQuery::new().sort(AgentSort::Usage));
    for agent in &page.agents {
        let id = ShownId::new(&agent.id).to_string();
        match agent.view.dominant() {
            Some(lane) => println!("  {id:12} {:12} {:5.1} % {:?}", lane.name, lane.used_percent(), lane.level()),
            None => println!("  {id:12} exempt"),
        }
    }
    println!("  and {} that are not listed", page.not_listed);

    let counts = limiter.snapshot();
    println!("\n{} checks, {} of them denied", counts.checks(), counts.denied());
    for lane in counts.lanes.iter().filter(|lane| lane.checks() > 0) {
        println!("  {:12} {:4} allowed {:4} denied", lane.name, lane.allowed + lane.warned, lane.denied);
    }
    let top = limiter.top_offenders(3);
    println!("{} violations in the last hour", top.violations);
    for offender in &top.list {
        println!("  {:12} {}", ShownId::new(&offender.agent).to_string(), offender.violations);
    }
    Ok(())
}
