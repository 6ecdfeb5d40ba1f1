//! Rate limits for axum, hyper, tonic and any other tower service.
//!
//! [`TollgateLayer`] checks each request with a [`tollgate::Limiter`] before its
//! body is read. Every response carries the client's limits in headers, and a
//! request over its limit is answered 429.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tollgate::{Limiter, Policy};
//! use tollgate_tower::{Key, TollgateLayer};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limiter = Limiter::builder(Policy::builder().lane("api", "60/min").build()?).build()?;
//! let limit = TollgateLayer::builder(limiter).key(Key::header("x-agent-id")).build()?;
//! let app = Router::new().route("/", get(|| async { "hello" })).layer(limit);
//! # let _: Router = app;
//! # Ok(()) }
//! ```
//!
//! The response to an agent's 61st request within a minute:
//!
//! ```text
//! HTTP/1.1 429 Too Many Requests
//! content-type: application/problem+json
//! ratelimit-policy: "api";q=60;w=60
//! ratelimit: "api";r=0;t=1
//! retry-after: 1
//!
//! {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,
//!  "detail":"api has 0 of 60 left, too few for this request. Retry after 1 second.", ...}
//! ```
//!
//! # Who, what, how much
//!
//! ```
//! use axum::extract::ConnectInfo;
//! use std::net::SocketAddr;
//! use tollgate::{Limiter, Policy};
//! use tollgate_tower::{Key, Profile, TollgateLayer};
//! # #[derive(Clone)] struct User { id: u64 }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let policy = Policy::builder()
//!     .lane("default", "100/min burst 200")
//!     .lane("auth", "10/min burst 20")
//!     .lane("executions", "20/min burst 40")
//!     .build()?;
//! let limit = TollgateLayer::builder(Limiter::builder(policy).build()?)
//!     // Who: `user:42` if an earlier layer has signed in a user, else `ip:192.0.2.7`.
//!     .key(Key::function("a signed-in user", |head| Some(head.extensions.get::<User>()?.id)).prefix("user:"))
//!     .key(Key::address())
//!     .peer::<ConnectInfo<SocketAddr>>()
//!     .trusted_proxies(["10.0.0.0/8"])
//!     // What: the first rule that matches chooses the lane.
//!     .route("POST /api/v1/agents/{id}/run", "executions")
//!     .path_contains("/auth", "auth")
//!     .lane("default")
//!     // How much: one token per megabyte of the body, as announced.
//!     .cost(|head| {
//!         let bytes = head.headers.get("content-length").and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
//!         bytes.unwrap_or(0) / 1_000_000 + 1
//!     })
//!     .allow_route("GET /health")
//!     .profile(Profile::Platform)
//!     .build()?;
//! # drop(limit);
//! # Ok(()) }
//! ```
//!
//! [`Key::address`] needs the peer's address. With axum, serve the app's
//! `into_make_service_with_connect_info::<SocketAddr>()`.
//!
//! # Order of layers
//!
//! In axum the layer added last runs first.
//!
//! - Add authentication after this layer, so that it runs before. You can add a
//!   second tollgate layer, by address, after that: it saves the work of verifying
//!   a flood of bad tokens.
//! - Add a CORS layer after this one too, so that it answers preflight requests
//!   and lets browsers see refusals. Give it [`Style::names`] as the headers to
//!   expose.
//! - With several tollgate layers, a response carries the limits of all of them,
//!   or the tightest where a header has room for one.
//!
//! A cache may replay a response with outdated headers; its `Age` shows that. A
//! refusal is never cached.
//!
//! # Errors
//!
//! | cause | HTTP | gRPC |
//! |---|---|---|
//! | the limit is reached, or the cost can never pass (then without `Retry-After`) | 429 | `RESOURCE_EXHAUSTED` |
//! | the request does not identify its agent | 400 | `INVALID_ARGUMENT` |
//! | the limiter has no record free for a new agent | 503 | `UNAVAILABLE` |
//! | a stopped process holds a lock of a shared limiter | 503 with `Retry-After: 1` | `UNAVAILABLE` |
//! | the server did not provide the peer's address | 500 | `INTERNAL` |
//!
//! A gRPC request is recognised by its content type. Every error ends in advice.
//!
//! # In other servers
//!
//! What the layer decides and says is `tollgate-gate`, which works on the types of
//! the `http` crate and knows no server; this crate re-exports its names.
//! [`Quota`] and [`Style`] write headers, [`Profile`] and [`Refusal`] bodies,
//! [`frame`] WebSocket messages; [`key`], [`address`] and [`route`] read requests.

#![forbid(unsafe_code)]

mod body;
mod future;
mod layer;
mod service;

pub use body::ResponseBody;
pub use future::ResponseFuture;
pub use layer::{TollgateLayer, TollgateLayerBuilder};
pub use service::Tollgate;
pub use tollgate_gate::{
    BuildError, Form, Head, Key, Peer, Profile, Quota, Reason, Refusal, Style, address, frame, headers, key, profile,
    refusal, route,
};

/// The examples of the README and of the page run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/tower.md")]
    struct Tower;
}
