//! What the listener counts.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Clients and commands.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    clients: AtomicUsize,
    accepted: AtomicU64,
    refused: AtomicU64,
    throttles: AtomicU64,
    others: AtomicU64,
    errors: AtomicU64,
}

impl Counts {
    /// Takes a place for a client, and returns its number; `None` if there are as many as there may be.
    pub(super) fn enter(&self, most: usize) -> Option<i64> {
        let enter = |clients: usize| (clients < most).then_some(clients + 1);
        if self.clients.fetch_update(Relaxed, Relaxed, enter).is_err() {
            self.refused.fetch_add(1, Relaxed);
            return None;
        }
        let before = self.accepted.fetch_add(1, Relaxed);
        i64::try_from(before).ok().and_then(|before| before.checked_add(1))
    }

    pub(super) fn leave(&self) {
        self.clients.fetch_sub(1, Relaxed);
    }

    /// Counts decisions, once for all of a batch of bytes.
    pub(super) fn add_throttles(&self, count: u64) {
        self.throttles.fetch_add(count, Relaxed);
    }

    pub(super) fn count_command(&self) {
        self.others.fetch_add(1, Relaxed);
    }

    pub(super) fn count_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// How many clients are connected.
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Relaxed)
    }

    /// Clients that were accepted, and those that found no place.
    pub(crate) fn accepted_and_refused(&self) -> (u64, u64) {
        (self.accepted.load(Relaxed), self.refused.load(Relaxed))
    }

    /// Commands by what they are, and how many were answered with an error.
    pub(crate) fn commands(&self) -> ([(&'static str, u64); 2], u64) {
        let commands = [("cl.throttle", self.throttles.load(Relaxed)), ("other", self.others.load(Relaxed))];
        (commands, self.errors.load(Relaxed))
    }
}
