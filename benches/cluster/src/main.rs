//! What machines admit together, how long a check takes, also while Redis is stopped, and what Redis has to do for it:
//! beside limitador's cached Redis mode and a script for each request, three processes each, in one run.
//!
//! `bench-cluster [--quick] [--out FILE]`

mod machine;
mod peers;
mod server;

use machine::{Done, Load, quantile};
use peers::Rate;
use rustix::process::Signal;
use server::Server;
use std::fmt::Write;
use std::time::Duration;

const PEERS: [(&str, &str); 3] =
    [("tollgate", "tollgate"), ("limitador", "limitador 0.14, cached"), ("script", "a script for each request")];
const NODES: u16 = 3;

fn main() {
    if machine::run_if_asked() {
        return;
    }
    let arguments: Vec<_> = std::env::args().collect();
    let is_quick = arguments.iter().any(|argument| argument == "--quick");
    let out = arguments.iter().position(|argument| argument == "--out").and_then(|place| arguments.get(place + 1));
    let seconds = if is_quick { 1 } else { 5 };
    let server = Server::start();
    let mut text = format!(
        "Three processes and Redis {1} on one machine of {0} processors, without a network between them. Others may\n\
         have been at work on it: compare the columns, and take no time for what a quiet machine needs. Redis's time\n\
         is that of its whole process, with its network calls and its heartbeats.\n\n",
        std::thread::available_parallelism().map_or(0, usize::from),
        server.version()
    );
    admitted(&server, seconds, &mut text);
    latency(&server, seconds, &mut text);
    operations(&server, seconds, &mut text);
    println!("{text}");
    if let Some(out) = out {
        std::fs::write(out, text).expect("a file to write");
    }
}

fn run(server: &Server, load: &Load) -> Done {
    server.clear();
    load.start().join()
}

/// One agent, asked about by all machines at more than its limit.
fn admitted(server: &Server, seconds: u64, text: &mut String) {
    let limits = [
        ("10/min", Rate { tokens: 10, seconds: 60 }, 20),
        ("60/min", Rate { tokens: 60, seconds: 60 }, 100),
        ("1000/s", Rate { tokens: 1_000, seconds: 1 }, 2_000),
    ];
    let _ = writeln!(
        text,
        "| admitted of what the limit allows, in {seconds} s | {} | {} | {} |",
        PEERS[0].1, PEERS[1].1, PEERS[2].1
    );
    let _ = writeln!(text, "|---|---:|---:|---:|");
    for (name, limit, rate) in limits {
        let _ = write!(text, "| one agent, {name}, asked about {} times a second |", rate * u64::from(NODES));
        for (peer, _) in PEERS {
            let length = Duration::from_secs(seconds);
            let load =
                Load { peer, url: server.url(), limit, nodes: NODES, agents: 1, rate, length, stops_after: None };
            let done = run(server, &load);
            // Buckets refill all the time. A window holds its limit again when the next one begins.
            let refilled = if peer == "limitador" {
                (seconds - 1) / limit.seconds * limit.tokens
            } else {
                seconds * limit.tokens / limit.seconds
            };
            let _ = write!(text, " {} of {} |", done.allowed, limit.tokens + refilled);
        }
        text.push('\n');
    }
}

fn shown(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000..10_000_000 => format!("{:.0} µs", ns as f64 / 1e3),
        _ => format!("{:.0} ms", ns as f64 / 1e6),
    }
}

/// A hundred agents, a thousand checks a second on each machine; then Redis is stopped.
fn latency(server: &Server, seconds: u64, text: &mut String) {
    text.push_str("\n| a check takes (p50 / p99 / p99.9) | while Redis answers | while it is stopped | without an answer then |\n|---|---:|---:|---:|\n");
    for (peer, name) in PEERS {
        let half = Duration::from_secs(seconds);
        let load = Load {
            peer,
            url: server.url(),
            limit: Rate { tokens: 100, seconds: 1 },
            nodes: NODES,
            agents: 100,
            rate: 1_000,
            length: 2 * half,
            stops_after: Some(half),
        };
        server.clear();
        let machines = load.start();
        let at = machines.begin_ns + half.as_nanos() as u64;
        std::thread::sleep(Duration::from_nanos(at.saturating_sub(machine::now_ns())));
        server.signal(Signal::STOP);
        std::thread::sleep(half + Duration::from_millis(300));
        server.signal(Signal::CONT);
        let done = machines.join();
        let of = |times: &[u64]| [0.5, 0.99, 0.999].map(|part| shown(quantile(times, part))).join(" / ");
        let (connected, stopped) = (of(&done.connected), of(&done.stopped));
        let without = format!("{} of {}", done.unanswered, done.stopped.len());
        let _ = writeln!(text, "| {name} | {connected} | {stopped} | {without} |");
    }
}

/// What Redis does for a load.
fn operations(server: &Server, seconds: u64, text: &mut String) {
    text.push_str(
        "\n| load of tollgate on three machines together | settlements a check | Redis, µs a settlement | Redis, cores | \
         active agents a core |\n|---|---:|---:|---:|---:|\n",
    );
    // Each agent is asked about so often a second, on each machine a third of that.
    let loads: [(&str, usize, u64, Rate); 5] = [
        ("20,000 agents, one request each", 20_000, 4_000 / 3, Rate { tokens: 100, seconds: 1 }),
        ("3,000 agents, 1 request a second each", 3_000, 1_000, Rate { tokens: 100, seconds: 1 }),
        ("600 agents, 10 requests a second each", 600, 2_000, Rate { tokens: 100, seconds: 1 }),
        ("60 agents, 100 requests a second each, of 1000/s", 60, 2_000, Rate { tokens: 1_000, seconds: 1 }),
        ("one agent, 30,000 requests a second, of 100000/s", 1, 10_000, Rate { tokens: 100_000, seconds: 1 }),
    ];
    for (name, agents, rate, limit) in loads {
        let length = Duration::from_secs(seconds);
        let load =
            Load { peer: "tollgate", url: server.url(), limit, nodes: NODES, agents, rate, length, stops_after: None };
        server.clear();
        let machines = load.start();
        std::thread::sleep(Duration::from_nanos(machines.begin_ns.saturating_sub(machine::now_ns())));
        let before = server.processor_seconds();
        let done = machines.join();
        let used = server.processor_seconds() - before;
        let settlements = done.settlements.unwrap_or(0).max(1) as f64;
        let cores = used / length.as_secs_f64();
        let active = (agents as u64).min(done.checks) as f64;
        let _ = writeln!(
            text,
            "| {name} | {:.4} | {:.1} | {cores:.3} | {:.0} |",
            settlements / done.checks as f64,
            used * 1e6 / settlements,
            active / cores.max(1e-6)
        );
    }
}
