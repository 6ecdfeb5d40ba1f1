//! Bytes in flight: how much bodies and answers may make the server hold.
//!
//! A client that sends a large body bit by bit, or does not read a large answer,
//! makes the server keep it. So what is larger than [`SMALL_BYTES`] is counted,
//! for its connection and in all, before it is kept; when there is too much in
//! all, the request is refused, and the connections that have held something
//! for longest are ended. A connection serves one request at a time, whose body
//! and answer are bounded, so it holds a few megabytes at most.

use super::line::Line;
use crate::problem::Problem;
use http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// What a connection may hold uncounted: about as much as its buffers take anyway.
pub(crate) const SMALL_BYTES: usize = 16 * 1024;

/// What all connections hold.
pub(super) struct Flight {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Whether something did not fit since it was last asked.
    is_short: AtomicBool,
}

impl Flight {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), bytes_max, is_short: AtomicBool::new(false) }
    }

    pub(super) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Counts more, if there is room for it.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let fits = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.bytes_max);
        let is_taken = self.bytes.fetch_update(Relaxed, Relaxed, fits).is_ok();
        if !is_taken {
            self.is_short.store(true, Relaxed);
        }
        is_taken
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Relaxed);
    }

    /// Whether something did not fit since this was last asked.
    pub(super) fn was_short(&self) -> bool {
        self.is_short.swap(false, Relaxed)
    }
}

/// What the connection of a request holds; it is among the request's extensions.
#[derive(Clone)]
pub(crate) struct InFlight(pub(super) Arc<Line>);

impl InFlight {
    /// Holds so much from now on.
    ///
    /// # Errors
    ///
    /// There is too much in flight.
    pub(crate) fn hold(&self, bytes: usize) -> Result<(), Problem> {
        if self.0.hold(bytes) { Ok(()) } else { Err(too_much()) }
    }
}

pub(super) fn too_much() -> Problem {
    let detail = "too many large requests are in flight; ask again, or for less at once";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).because("in_flight").retry_after(1)
}
