//! Bytes in flight: a bound on the memory of bodies and responses.
//!
//! A client that sends a large body bit by bit, or does not read a large response,
//! makes the server keep it in memory. So everything larger than [`SMALL_BYTES`]
//! is counted before it is kept, per connection and in all. If it is too much in
//! all, the request is refused, and the connections that have had bytes in flight
//! for longest are ended. A request's body and response are bounded, so a connection
//! that serves one at a time has a few megabytes at most.

use super::multiplex::Exchange;
use crate::problem::Problem;
use http::StatusCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// What a connection may keep uncounted: about as much as its buffers take anyway.
pub(crate) const SMALL_BYTES: usize = 16 * 1024;

/// The bytes in flight of all connections.
pub(super) struct Flight {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Whether something did not fit since the last call of `was_short`.
    is_short: AtomicBool,
}

impl Flight {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), bytes_max, is_short: AtomicBool::new(false) }
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Adds bytes, if there is room for them.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let fits = |sum: usize| sum.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        let is_taken = self.bytes.fetch_update(Relaxed, Relaxed, fits).is_ok();
        if !is_taken {
            self.is_short.store(true, Relaxed);
        }
        is_taken
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Whether something did not fit since the last call.
    pub(super) fn was_short(&self) -> bool {
        self.is_short.swap(false, Relaxed)
    }
}

/// The bytes in flight of a request's connection; one of the request's extensions.
#[derive(Clone)]
pub(crate) struct InFlight(pub(super) Exchange);

impl InFlight {
    /// Sets how many bytes the connection has in flight.
    ///
    /// # Errors
    ///
    /// If too much is in flight.
    pub(crate) fn set(&self, bytes: usize) -> Result<(), Problem> {
        if self.0.set_in_flight(bytes) { Ok(()) } else { Err(too_much()) }
    }
}

pub(super) fn too_much() -> Problem {
    let detail = "too many large requests are in flight; send it again, or send less at once";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_reason("in_flight").retry_after(1)
}
