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
//! - `decisions.rs`: the thread that carries what operators decide
//! - `sentinel.rs`: asks sentinels who the master is
//! - `slots.rs`: which of a cluster's masters has a key
//! - `problem.rs`: why a connection ended
//! - `status.rs`: what an engine shows of itself
//! - `warnings.rs`: what an operator should change

mod builder;
mod connection;
mod decisions;
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
mod warnings;

pub use builder::EngineBuilder;
pub use error::EngineError;
pub use status::{Losses, RoundTrips, Status};
pub use tls::Tls;

use status::Shared;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// A running engine.
///
/// When it is dropped, its threads give the credit back that was not spent, pay what is owed, write what was decided
/// here, and leave the list of machines, as far as that gets in about the time-out. From then on checks take the server
/// for lost, until another engine is attached.
///
/// A child that is forked has no thread, and its copy says so: checks in it take the server for lost and spend no
/// credit. Attach an engine in the child, if it checks anything.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    handles: Vec<JoinHandle<()>>,
    timeout: Duration,
    /// The one whose threads they are.
    process: u32,
}

impl Engine {
    /// How it goes.
    #[must_use]
    pub fn status(&self) -> Status {
        if self.is_copied() {
            // The thread may have held the lock when it was copied.
            let why = "this process was forked, and the engine's thread is its parent's; attach an engine here";
            return Status { last_problem: Some(why.to_owned()), ..Shared::new(std::num::NonZeroU16::MIN).status() };
        }
        self.shared.status()
    }

    /// Ends it, and returns how it went: as dropping it.
    pub fn stop(mut self) -> Status {
        self.end();
        self.status()
    }

    fn is_copied(&self) -> bool {
        self.process != std::process::id()
    }

    fn end(&mut self) {
        // Release: a thread that sees this sees what was decided before.
        self.shared.ends.store(true, Ordering::Release);
        let handles = std::mem::take(&mut self.handles);
        if self.is_copied() {
            // There are no such threads here, neither to wait for nor to let go.
            return std::mem::forget(handles);
        }
        // What it waits for, what is left to settle, and leaving. A host name that is being looked up may take longer:
        // then the thread ends by itself.
        let until = Instant::now() + 4 * self.timeout;
        while !handles.iter().all(JoinHandle::is_finished) && Instant::now() < until {
            sleep(Duration::from_millis(1));
        }
        for handle in handles.into_iter().filter(JoinHandle::is_finished) {
            let _ = handle.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.end();
    }
}
