//! One connection: what it is at, and since when.
//!
//! A connection is *waiting* for a request, is sending the *head* of one, is
//! sending its *body*, is being *served*, is *answered* until the last byte of
//! the answer is handed to the system, or is *leaving*. One word says which, and
//! since when; only the connection's own task writes it. So requests set up no
//! timer and read no clock.

use super::flight::{Flight, SMALL_BYTES};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use tokio::sync::Notify;
use tollgate_tower::address::Group;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    Head,
    Served,
    /// Served, as soon as the rest of the body has come.
    Body,
    Answered,
    /// Answered, as soon as the client reads on.
    Stuck,
    Leaving,
}

/// The bits of a phase in the word.
const PHASE_BITS: u32 = 3;

/// One connection.
pub(crate) struct Line {
    /// The phase in the low bits, the tick at which it began above.
    word: AtomicU64,
    clock: Arc<AtomicU64>,
    /// Tells the connection's task to drop it.
    end: Notify,
    /// Whether it was told.
    is_ended: AtomicBool,
    /// Whether the server stops.
    stops: AtomicBool,
    /// Whether all of the last request has come.
    is_whole: AtomicBool,
    /// Whether something of the next request came while the last was answered.
    is_ahead: AtomicBool,
    /// Whether all of the answer is written, or waits to be.
    is_sent: AtomicBool,
    /// Whose it is, if the address has a bound; a proxy that is trusted has none.
    address: Option<Group>,
    flight: Arc<Flight>,
    /// How many bytes it has in flight, and since when it has any.
    held: AtomicUsize,
    held_since: AtomicU64,
}

impl Line {
    /// A new connection.
    pub(super) fn new(clock: Arc<AtomicU64>, flight: Arc<Flight>, address: Option<IpAddr>) -> Self {
        let line = Self {
            word: AtomicU64::new(0),
            clock,
            end: Notify::new(),
            is_ended: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            is_whole: AtomicBool::new(true),
            is_ahead: AtomicBool::new(false),
            is_sent: AtomicBool::new(true),
            // Whoever has one IPv6 address has a whole /64 of them.
            address: address.map(|address| Group::of(address, 64)),
            flight,
            held: AtomicUsize::new(0),
            held_since: AtomicU64::new(0),
        };
        line.enter(Phase::Waiting);
        line
    }

    /// The address it counts for, if it does.
    pub(super) fn address(&self) -> Option<Group> {
        self.address
    }

    /// The head of a request has arrived, and its body too if it has none.
    pub(super) fn served(&self, has_body: bool) {
        self.is_whole.store(!has_body, Relaxed);
        self.is_ahead.store(false, Relaxed);
        self.enter(Phase::Served);
    }

    /// The rest of the body is waited for. To send it bit by bit gains no time.
    pub(super) fn awaits_body(&self) {
        if let (Phase::Served, since) = self.state() {
            self.store(Phase::Body, since);
        }
    }

    /// All of the body has come.
    pub(super) fn body_came(&self) {
        self.is_whole.store(true, Relaxed);
        self.enter(Phase::Served);
    }

    /// Whether all of the request has come.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole.load(Relaxed)
    }

    /// The answer is made.
    pub(super) fn answered(&self) {
        self.is_sent.store(false, Relaxed);
        self.enter(Phase::Answered);
    }

    /// All of the answer is written, or waits to be.
    pub(super) fn sent(&self) {
        self.is_sent.store(true, Relaxed);
        self.hold(0);
    }

    /// Has so many bytes in flight from now on: whether there is room for them.
    /// What is small is not counted.
    pub(super) fn hold(&self, bytes: usize) -> bool {
        let bytes = if bytes > SMALL_BYTES { bytes } else { 0 };
        let held = self.held.load(Relaxed);
        if bytes > held && !self.flight.take(bytes - held) {
            return false;
        }
        self.flight.give_back(held.saturating_sub(bytes));
        if held == 0 {
            self.held_since.store(self.clock.load(Relaxed), Relaxed);
        }
        self.held.store(bytes, Relaxed);
        true
    }

    /// How many bytes it has in flight, and since when it has any.
    pub(super) fn held(&self) -> (usize, u64) {
        (self.held.load(Relaxed), self.held_since.load(Relaxed))
    }

    /// Nothing waits to be written.
    pub(super) fn flushed(&self) {
        if self.state().0 == Phase::Answered && self.is_sent.load(Relaxed) {
            self.enter(if self.is_ahead.load(Relaxed) { Phase::Head } else { Phase::Waiting });
        }
    }

    /// The server stops: a request that has come is answered, no other is waited
    /// for, and nobody's leaving is either.
    pub(super) fn stop(&self) {
        self.stops.store(true, Relaxed);
    }

    pub(super) fn stops(&self) -> bool {
        self.stops.load(Relaxed)
    }

    /// Tells the connection to end: whether it was not told before.
    pub(super) fn end(&self) -> bool {
        self.end.notify_one();
        !self.is_ended.swap(true, Relaxed)
    }

    pub(super) fn is_ended(&self) -> bool {
        self.is_ended.load(Relaxed)
    }

    /// Waits until the connection has to end.
    pub(super) async fn ended(&self) {
        self.end.notified().await;
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.store(phase, self.clock.load(Relaxed));
    }

    fn store(&self, phase: Phase, since: u64) {
        self.word.store(since << PHASE_BITS | phase as u64, Relaxed);
    }

    pub(super) fn state(&self) -> (Phase, u64) {
        let word = self.word.load(Relaxed);
        let phase = match word & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Waiting,
            1 => Phase::Head,
            2 => Phase::Served,
            3 => Phase::Body,
            4 => Phase::Answered,
            5 => Phase::Stuck,
            _ => Phase::Leaving,
        };
        (phase, word >> PHASE_BITS)
    }

    /// Something was read.
    pub(super) fn heard(&self) {
        match self.state().0 {
            Phase::Waiting => self.enter(Phase::Head),
            Phase::Answered | Phase::Stuck => self.is_ahead.store(true, Relaxed),
            _ => {}
        }
    }

    /// Something was written. An answer that goes out bit by bit keeps its connection.
    pub(super) fn written(&self) {
        if matches!(self.state().0, Phase::Answered | Phase::Stuck) {
            self.enter(Phase::Answered);
        }
    }

    /// Nothing more can be written until the client reads.
    pub(super) fn stuck(&self) {
        if self.state().0 == Phase::Answered {
            self.enter(Phase::Stuck);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.flight.give_back(*self.held.get_mut());
    }
}
