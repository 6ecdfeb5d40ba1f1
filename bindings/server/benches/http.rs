//! What a decision over HTTP costs the server, beside throttlecrab-server.
//!
//! A figure is the CPU time (user and system) of the server's process per decision:
//! what the scheduler has counted for its threads, before and after a round. The
//! clients run in this process, over loopback, with four connections that stay
//! open, one request at a time on each, from 1,000 agents in turn. So the clients'
//! time is not included; the kernel's work for the server's sockets is.
//!
//! The cases take short turns, many in a round, so that other load on the machine
//! affects all alike; the median of the rounds counts.
//!
//! `make bench-http` also runs the peer; `cargo bench -p tollgate-server` measures
//! the server alone. `--quick` is a short run.

#[path = "common/process.rs"]
mod process;

use process::{Server, free, median};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

const CONNECTIONS: usize = 4;
const AGENTS: usize = 1_000;
const BATCH: usize = 100;

/// Turns of each case in a round.
const TURNS: usize = 20;

/// One thing to measure.
struct Case<'a> {
    name: &'static str,
    server: &'a Server,
    path: &'static str,
    /// A body for the agent with this number.
    body: Box<dyn Fn(usize) -> String + Sync>,
    decisions_per_request: usize,
    status: &'static str,
    figures: Vec<f64>,
}

impl Case<'_> {
    /// How many requests it sends in a turn.
    fn requests(&self, single: usize) -> usize {
        if self.decisions_per_request > 1 { single / 20 } else { single }
    }

    /// The CPU time of this many requests, in nanoseconds.
    fn turn(&self, requests: usize) -> u64 {
        let before = self.server.cpu();
        std::thread::scope(|scope| {
            for connection in 0..CONNECTIONS {
                scope.spawn(move || self.send(connection, requests / CONNECTIONS));
            }
        });
        self.server.cpu() - before
    }

    fn send(&self, connection: usize, requests: usize) {
        let mut stream = TcpStream::connect(self.server.address).expect("a connection");
        stream.set_nodelay(true).expect("a socket option");
        let mut answer = vec![0; 256 * 1024];
        for number in 0..requests {
            let body = (self.body)((connection + CONNECTIONS * number) % AGENTS);
            let (path, host, length) = (self.path, self.server.address, body.len());
            let request = format!(
                "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            stream.write_all(request.as_bytes()).expect("an open connection");
            let status = read(&mut stream, &mut answer);
            assert!(status.starts_with(self.status), "{}: {status}", self.name);
        }
    }
}

/// Reads a whole response and returns its status.
fn read(stream: &mut TcpStream, answer: &mut [u8]) -> String {
    let mut length = 0;
    loop {
        let more = stream.read(&mut answer[length..]).expect("an answer");
        assert_ne!(more, 0, "the server closed the connection");
        length += more;
        let Some(head) = answer[..length].windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&answer[..head]).to_ascii_lowercase();
        let body =
            text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.trim().parse::<usize>().ok());
        if length >= head + 4 + body.expect("a length") {
            return text["http/1.1 ".len()..].lines().next().unwrap_or_default().to_owned();
        }
    }
}

fn ours() -> Server {
    let directory = std::env::temp_dir().join(format!("tollgate-bench-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("tollgate.toml");
    let policy = "[lanes]\nplenty = \"1000000/s burst 1000000\"\nnone = \"1/hour\"\n[server]\nagents = 100_000\n";
    std::fs::write(&file, policy).expect("a file");
    let address = free();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("serve").arg("--config").arg(&file).arg("--listen").arg(address.to_string());
    command.env_remove("TOLLGATE_ADMIN_TOKEN").env_remove("TOLLGATE_CHECK_TOKEN").env("TOLLGATE_LOG", "error");
    let server = Server::start(&mut command, address);
    _ = std::fs::remove_dir_all(&directory);
    server
}

fn peer() -> Option<Server> {
    let program = std::env::var_os("TOLLGATE_PEER")?;
    let address = free();
    let port = address.port().to_string();
    let mut command = Command::new(program);
    command.args(["--http", "--http-host", "127.0.0.1", "--http-port", &port, "--log-level", "error"]);
    Some(Server::start(&mut command, address))
}

fn check(agent: usize, lane: &str) -> String {
    format!(r#"{{"agent":"agent-{agent:06}","lane":"{lane}"}}"#)
}

fn throttle(agent: usize, burst: u32, period: u32) -> String {
    format!(r#"{{"key":"agent-{agent:06}-{period}","max_burst":{burst},"count_per_period":{burst},"period":{period}}}"#)
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, requests) = if is_quick { (3, 400) } else { (5, 2_000) };
    let (ours, peer) = (ours(), peer());
    let case = |name, server, path, body: fn(usize) -> String, decisions_per_request, status| {
        let (body, figures) = (Box::new(body), Vec::new());
        Case { name, server, path, body, decisions_per_request, status, figures }
    };
    let batch = |agent| {
        let requests: Vec<_> = (0..BATCH).map(|more| check((agent + more) % AGENTS, "plenty")).collect();
        format!(r#"{{"requests":[{}]}}"#, requests.join(","))
    };
    let mut cases = vec![
        case("tollgate, allowed", &ours, "/v1/check", |agent| check(agent, "plenty"), 1, "200"),
        case("tollgate, denied", &ours, "/v1/check", |agent| check(agent, "none"), 1, "429"),
        case("tollgate, batch of 100, allowed", &ours, "/v1/check/many", batch, BATCH, "200"),
    ];
    if let Some(peer) = &peer {
        cases.push(case(
            "throttlecrab-server, allowed",
            peer,
            "/throttle",
            |agent| throttle(agent, 1_000_000, 1),
            1,
            "200",
        ));
        cases.push(case("throttlecrab-server, denied", peer, "/throttle", |agent| throttle(agent, 1, 3_600), 1, "200"));
    }
    for agent in 0..AGENTS {
        // The first request of each agent passes, so that all that are measured are denied.
        let mut answer = vec![0; 64 * 1024];
        for (server, path, body) in [(Some(&ours), "/v1/check", check(agent, "none"))].into_iter().chain([(
            peer.as_ref(),
            "/throttle",
            throttle(agent, 1, 3_600),
        )]) {
            let Some(server) = server else { continue };
            let mut stream = TcpStream::connect(server.address).expect("a connection");
            let length = body.len();
            let head =
                format!("POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n", server.address);
            stream.write_all(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes()).expect("open");
            read(&mut stream, &mut answer);
        }
    }
    for round in 0..=rounds {
        let mut times = vec![0; cases.len()];
        for _ in 0..TURNS {
            for (case, time) in cases.iter().zip(&mut times) {
                *time += case.turn(case.requests(requests));
            }
        }
        // The first round warms up.
        for (case, time) in cases.iter_mut().zip(times).filter(|_| round > 0) {
            let decisions = TURNS * case.requests(requests) * case.decisions_per_request;
            case.figures.push(time as f64 / decisions as f64);
        }
    }
    println!("{:<36} {:>12}", "CPU time of a decision, ns", "median");
    let figures: Vec<_> = cases.iter_mut().map(|case| (case.name, median(&mut case.figures))).collect();
    for (name, figure) in &figures {
        println!("{name:<36} {figure:>12.0}");
    }
    let of = |name: &str| figures.iter().find(|(known, _)| *known == name).map(|(_, figure)| *figure);
    let verdict = |is_met| if is_met { "met" } else { "MISSED" };
    if let (Some(single), Some(batch)) = (of("tollgate, allowed"), of("tollgate, batch of 100, allowed")) {
        println!("a batch is {:.1} times cheaper; the aim is 10: {}", single / batch, verdict(single >= 10.0 * batch));
    }
    for outcome in ["allowed", "denied"] {
        let [ours, peer] = ["tollgate", "throttlecrab-server"].map(|name| of(&format!("{name}, {outcome}")));
        if let (Some(ours), Some(peer)) = (ours, peer) {
            println!("{outcome}: {:.2} of the peer's; the aim is at most 1: {}", ours / peer, verdict(ours <= peer));
        }
    }
}
