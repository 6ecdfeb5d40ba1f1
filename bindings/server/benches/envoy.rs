//! What a call of Envoy's rate limit service costs the server.
//!
//! A figure is the CPU time (user and system) of the server's process per call, as in `http.rs`: what the scheduler has
//! counted for its threads, before and after a round. The client runs in this process, over loopback, with HTTP/2 and
//! gRPC as Envoy speaks them, from 1,000 agents in turn.
//!
//! `make bench-http` runs it; `cargo bench -p tollgate-server --bench envoy -- --quick` is a short run.

#[path = "common/process.rs"]
mod process;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use process::{Server, free, median};
use std::net::SocketAddr;
use std::process::Command;
use tokio::net::TcpStream;

const AGENTS: usize = 1_000;
const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What a call may cost, in microseconds.
const AIM_US: f64 = 40.0;

/// Turns of each case in a round.
const TURNS: usize = 20;

const RULES: &str = "domain: edge
descriptors:
  - key: user
    rate_limit: {unit: second, requests_per_unit: 1000000}
  - key: path
    rate_limit: {unit: second, requests_per_unit: 1000000}
    descriptors:
      - key: user
        rate_limit: {unit: second, requests_per_unit: 1000000}
  - key: old
    rate_limit: {unit: day, requests_per_unit: 0}
";

/// One thing to measure.
struct Case {
    name: &'static str,
    /// How many connections, and how many calls at once on each.
    connections: usize,
    at_once: usize,
    /// The call of the agent with this number.
    calls: Vec<Bytes>,
    /// The overall code of the answer.
    code: u8,
    figures: Vec<f64>,
}

/// A field that has a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    assert!(content.len() < 128, "a length of one byte");
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

/// A call with these descriptors.
fn call(descriptors: &[&[(&str, &str)]]) -> Bytes {
    let entry =
        |(key, value): &(&str, &str)| field(1, &[field(1, key.as_bytes()), field(2, value.as_bytes())].concat());
    let descriptor = |entries: &&[(&str, &str)]| field(2, &entries.iter().flat_map(entry).collect::<Vec<_>>());
    let message = [field(1, b"edge"), descriptors.iter().flat_map(descriptor).collect()].concat();
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.put_slice(&message);
    frame.freeze()
}

/// Sends a call, and checks its answer.
async fn send(sender: &mut SendRequest<Full<Bytes>>, call: Bytes, code: u8) {
    let request = Request::post(format!("http://tollgate{PATH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(call))
        .expect("a request");
    sender.ready().await.expect("an open connection");
    let response = sender.send_request(request).await.expect("an answer");
    let body = response.into_body().collect().await.expect("a body");
    assert_eq!(body.trailers().and_then(|trailers| trailers.get("grpc-status")).expect("a status"), "0");
    assert_eq!(body.to_bytes()[5..7], [0x08, code]);
}

impl Case {
    /// The CPU time that about this many calls cost the server, in nanoseconds, and how many there were.
    async fn turn(&self, server: &Server, senders: &[SendRequest<Full<Bytes>>], calls: usize) -> (u64, usize) {
        let each = calls / (self.connections * self.at_once);
        let before = server.cpu();
        let mut tasks = tokio::task::JoinSet::new();
        for (number, sender) in senders[..self.connections].iter().enumerate() {
            for lane in 0..self.at_once {
                let (mut sender, code) = (sender.clone(), self.code);
                let first = (number * self.at_once + lane) * each;
                let calls: Vec<_> = (0..each).map(|at| self.calls[(first + at) % AGENTS].clone()).collect();
                tasks.spawn(async move {
                    for call in calls {
                        send(&mut sender, call, code).await;
                    }
                });
            }
        }
        tasks.join_all().await;
        (server.cpu() - before, each * self.connections * self.at_once)
    }
}

async fn connect(address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    stream.set_nodelay(true).expect("a socket option");
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a handshake");
    tokio::spawn(connection);
    sender
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let (rounds, calls) = if is_quick { (3, 400) } else { (5, 2_000) };
    let rules = std::env::temp_dir().join(format!("tollgate-bench-envoy-{}.yaml", std::process::id()));
    std::fs::write(&rules, RULES).expect("a file");
    let (http, envoy) = (free(), free());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.args(["serve", "--listen", &http.to_string(), "--envoy", &envoy.to_string(), "--envoy-config"]).arg(&rules);
    command.env_remove("TOLLGATE_ADMIN_TOKEN").env_remove("TOLLGATE_CHECK_TOKEN").env("TOLLGATE_LOG", "error");
    let server = Server::start(&mut command, envoy);
    let users: Vec<_> = (0..AGENTS).map(|agent| format!("agent-{agent:06}")).collect();
    let case = |name, connections, at_once, call: &dyn Fn(&str) -> Bytes, code| {
        let calls = users.iter().map(|user| call(user)).collect();
        Case { name, connections, at_once, calls, code, figures: Vec::new() }
    };
    let one = |user: &str| call(&[&[("user", user)]]);
    let three =
        |user: &str| call(&[&[("user", user)], &[("path", "/v1/agents")], &[("path", "/v1/agents"), ("user", user)]]);
    let denied = |user: &str| call(&[&[("user", user)], &[("old", user)]]);
    let mut cases = [
        case("one descriptor, a call at a time", 4, 1, &one, 1),
        case("one descriptor, 32 calls at once", 1, 32, &one, 1),
        case("three descriptors, 32 calls at once", 1, 32, &three, 1),
        case("denied, 32 calls at once", 1, 32, &denied, 2),
    ];
    let mut senders = Vec::new();
    for _ in 0..4 {
        senders.push(connect(server.address).await);
    }
    _ = std::fs::remove_file(&rules);
    for round in 0..=rounds {
        let mut sums = vec![(0, 0); cases.len()];
        for _ in 0..TURNS {
            for (case, sum) in cases.iter().zip(&mut sums) {
                let (time, calls) = case.turn(&server, &senders, calls).await;
                *sum = (sum.0 + time, sum.1 + calls);
            }
        }
        // The first round warms up.
        for (case, (time, calls)) in cases.iter_mut().zip(sums).filter(|_| round > 0) {
            case.figures.push(time as f64 / calls as f64 / 1e3);
        }
    }
    println!("{:<36} {:>12}", "CPU time of a call, us", "median");
    for case in &mut cases {
        let figure = median(&mut case.figures);
        let verdict = if figure <= AIM_US { "met" } else { "MISSED" };
        println!("{:<36} {figure:>12.1}   the aim is at most {AIM_US}: {verdict}", case.name);
    }
}
