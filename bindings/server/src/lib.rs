//! tollgate over HTTP: checks, the state of agents, an admin API, a dashboard.
//!
//! The program `tollgate` is this crate with a command line; `tollgate --help`
//! is its manual. As a library it serves tests, and programs that run their own
//! limiter beside other things.
//!
//! ```no_run
//! use std::sync::Arc;
//! use tollgate_server::{App, Server, Settings, Source};
//!
//! # async fn serve() -> Result<(), tollgate_server::StartError> {
//! let app = App::new(Settings::default(), Source::Preset("standard".into()), None)?;
//! let server = Server::bind(Arc::new(app)).await?;
//! println!("http://{}", server.address());
//! server.run(std::future::pending()).await;
//! # Ok(()) }
//! ```
//!
//! - `net/`: the listener, connections and their bounds, checks that apply to every request
//! - `routes/`: one file per group of paths; `page/`: the dashboard
//! - `envoy/`: Envoy's rate limit service, over gRPC
//! - `auth.rs`: rights and sessions; `tokens.rs`: tokens with names; `control.rs`: changes at run time;
//!   `defaults.rs`: limits set through the admin API; `state.rs`: who keeps the files of the state directory
//! - `resp/`: the protocol of Redis, for clients of redis-cell
//! - `leases.rs`: slots that are held until they are released or their lease expires
//! - `meter.rs`: counters; `log.rs`: the log; `access.rs`: the log of requests; `audit.rs`: who changed
//!   what; `webhook.rs`: notifications of abuse
//! - `address.rs`: listen addresses; `settings/`: the tables `[server]`,
//!   `[shared]`, `[cluster]`, `[envoy]`, `[gate]` and `[resp]`; `source.rs`: the policy file
//! - `machines.rs`: the engine that settles with the store, and what is shown of it
//! - `commands/`: the command line; `dry_run.rs`: what `check-config` tries; `client.rs`: how its
//!   commands ask a server
//! - `app.rs`: all of it together; `problem.rs`: answers that are errors; `error.rs`: why it does not
//!   start; `id.rs`: ids in JSON and in paths; `random.rs`: tokens that it generates

#![forbid(unsafe_code)]
// Tests may unwrap: a panic there names the line that failed.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod access;
mod address;
mod app;
mod audit;
mod auth;
#[doc(hidden)]
pub mod client;
#[doc(hidden)]
pub mod commands;
mod control;
mod defaults;
mod dry_run;
mod envoy;
mod error;
mod id;
mod leases;
mod log;
mod machines;
mod meter;
mod net;
mod page;
mod problem;
mod random;
mod resp;
mod routes;
mod settings;
mod source;
mod state;
mod tokens;
mod webhook;

pub use address::{Address, Listen};
pub use app::App;
pub use control::{Control, ReloadOutcome};
pub use defaults::Defaults;
pub use error::StartError;
pub use net::listener::Server;
pub use problem::Problem;
pub use settings::{AgentSource, GateRoute, GateSettings, OnError, SourceKind};
pub use settings::{
    ClusterSettings, ENVOY_PORT, EnvoySettings, May, NamedToken, OwnLane, PORT, RespSettings, Secret, Settings,
    SharedLane, Store, TlsFiles, TlsSettings,
};
pub use source::Source;
pub use webhook::Url;
