//! What the layer adds to an axum route that answers hello.
//!
//! A figure is the CPU time of one request through an axum `Router` in this
//! process, on one thread, without a socket: the request is built, routed and
//! answered, and the body of the response read to the end. The cases take turns,
//! with 1,024 agents each. The median of the rounds counts; beside it is the best
//! round, which a busy machine disturbs least. What is added includes what axum
//! does for any layer; the layer that does nothing shows how much that is.
//!
//! `cargo bench -p tollgate-tower`; the aim is less than 1,000 ns added to an
//! admitted request.

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use axum::routing::get;
use http::{HeaderValue, Request};
use http_body_util::BodyExt;
use std::net::SocketAddr;
use std::time::Duration;
use tollgate::{Limiter, Policy};
use tollgate_tower::{Key, Profile, Style, TollgateLayer, TollgateLayerBuilder};
use tower::util::MapResponseLayer;
use tower::{Service, ServiceExt};

const AGENTS: usize = 1_024;
const ROUNDS: usize = 75;
const REQUESTS: usize = 4_000;

/// Enough that no request is refused.
const PLENTY: &str = "1000000/s burst 1000000";

fn layer(limit: &str) -> TollgateLayerBuilder {
    let policy = Policy::builder().lane("api", limit).lane("run", limit).build().expect("valid");
    TollgateLayer::builder(Limiter::builder(policy).agents(100_000).build().expect("memory")).lane("api")
}

fn cases() -> Vec<(&'static str, Router)> {
    let route = || Router::new().route("/", get(|| async { "hello" }));
    let limited = |layer: TollgateLayerBuilder| route().layer(layer.build().expect("a valid layer"));
    let by_header = |limit| layer(limit).key(Key::header("x-agent-id"));
    let by_address = || layer(PLENTY).key(Key::address()).peer::<ConnectInfo<SocketAddr>>();
    let every_rule = by_address()
        .trusted_proxies(["10.0.0.0/8"])
        .route("POST /api/v1/agents/{id}/run", "run")
        .path_contains("/auth", "run")
        .allow_network("192.0.2.0/24")
        .allow_route("GET /metrics")
        .allow_prefix("/static/");
    vec![
        ("the bare route", route()),
        ("a layer that does nothing", route().layer(MapResponseLayer::new(|response: Response| response))),
        ("by header, style off", limited(by_header(PLENTY).style(Style::Off))),
        ("by header, draft-10", limited(by_header(PLENTY))),
        ("by header, legacy", limited(by_header(PLENTY).style(Style::Legacy))),
        ("by address, draft-10", limited(by_address())),
        ("by address, with every kind of rule", limited(every_rule)),
        ("refused, standard", limited(by_header("deny"))),
        ("refused, hub", limited(by_header("deny").profile(Profile::Hub))),
    ]
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable and lives until the call returns.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "the clock of this process");
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

async fn round(app: &mut Router, agents: &[HeaderValue]) -> Duration {
    let start = cpu_time();
    for agent in agents.iter().cycle().take(REQUESTS) {
        let mut request = Request::new(Body::empty());
        request.headers_mut().insert("x-agent-id", agent.clone());
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from(([127, 0, 0, 1], 4_711))));
        let app: &mut Router = ServiceExt::<Request<Body>>::ready(app).await.expect("ready");
        let response = app.call(request).await.expect("a response");
        let body = response.into_body().collect().await.expect("a body");
        std::hint::black_box(body.to_bytes());
    }
    cpu_time() - start
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let agents: Vec<HeaderValue> =
        (0..AGENTS).map(|agent| format!("agent-{agent:010}").parse().expect("valid")).collect();
    // Runs one case alone, for a profiler.
    let only = std::env::var("TOLLGATE_CASE").ok();
    let is_wanted = |(name, _): &(&str, Router)| only.as_deref().is_none_or(|only| only == *name);
    let mut cases: Vec<_> =
        cases().into_iter().filter(is_wanted).map(|(name, app)| (name, app, Vec::with_capacity(ROUNDS))).collect();
    for _ in 0..ROUNDS {
        for (_, app, times) in &mut cases {
            times.push(runtime.block_on(round(app, &agents)));
        }
    }
    println!("{:<40} {:>10} {:>10} {:>10} {:>10}", "CPU time of a request, ns", "median", "added", "best", "added");
    let mut bare = None;
    for (name, _, mut times) in cases {
        times.sort_unstable();
        let [median, best] = [ROUNDS / 2, 0].map(|round| times[round].as_nanos() as f64 / REQUESTS as f64);
        let bare = *bare.get_or_insert([median, best]);
        println!("{name:<40} {median:>10.0} {:>10.0} {best:>10.0} {:>10.0}", median - bare[0], best - bare[1]);
    }
}
