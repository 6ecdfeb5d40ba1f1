//! tollgate over HTTP: checks, status, an admin API.
//!
//! The program `tollgate` is this crate with a command line; `tollgate --help`
//! is its manual. As a library it is for tests, and for programs that serve a
//! limiter of their own beside other things.
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
//! - `net/`: listener, connections and their bounds, what every request has to pass
//! - `routes/`: a file for each group of paths; `page/`: the dashboard
//! - `auth.rs` tokens and sessions, `control.rs` changes and where they are kept
//! - `leases.rs` slots that are held until they are released or their time is up
//! - `meter.rs` what is counted, `log.rs` what is logged, `webhook.rs` who is told of abuse
//! - `address.rs` addresses as people write them, `settings.rs` the table `[server]`, `source.rs` the policy file
//! - `commands/`: the command line; `rehearsal.rs` what a start would come to

#![forbid(unsafe_code)]
// Tests may unwrap: a panic there is a failure that names its line.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod address;
mod app;
mod auth;
#[doc(hidden)]
pub mod client;
#[doc(hidden)]
pub mod commands;
mod control;
mod error;
mod id;
mod leases;
mod log;
mod meter;
mod net;
mod page;
mod problem;
mod random;
mod rehearsal;
mod routes;
mod settings;
mod source;
mod webhook;

pub use app::App;
pub use control::{Control, Defaults, Reloaded};
pub use error::StartError;
pub use net::listener::Server;
pub use problem::Problem;
pub use settings::{PORT, Settings};
pub use source::Source;
pub use webhook::Url;
