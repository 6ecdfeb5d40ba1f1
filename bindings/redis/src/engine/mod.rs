//! The engine: a thread that settles a limiter's lanes with servers.
//!
//! - `builder.rs`: what a program, a configuration file or a binding fills in
//! - `servers.rs`: which servers there are, and how a connection to each is made
//! - `tls.rs`: certificates, of the servers and for them
//! - `secret.rs`: a text that is never shown
//! - `error.rs`: why an engine cannot be started
//! - `thread.rs`: the thread
//! - `connection.rs`: its connections
//! - `exchange.rs`: what goes over them
//! - `sentinel.rs`: asks sentinels who the master is
//! - `slots.rs`: which of a cluster's masters has a key
//! - `problem.rs`: why a connection ended
//! - `status.rs`: what an engine shows of itself

mod builder;
mod connection;
mod error;
mod exchange;
mod problem;
mod secret;
mod sentinel;
mod servers;
mod slots;
mod status;
mod thread;
mod tls;

pub use builder::EngineBuilder;
pub use error::EngineError;
pub use status::{Losses, RoundTrips, Status};
pub use tls::Tls;

use status::Shared;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// A running engine. Dropping it ends its thread; checks then take the server for lost.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

impl Engine {
    /// How it goes.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            // It ends after the answer that it waits for, or the time-out.
            let _ = handle.join();
        }
    }
}
