//! The progress of one connection: what it is doing, and since when.
//!
//! A connection is *idle*, receives the *head* of a request or its *body*, is
//! *serving* it, is *responding* until the last byte of the response is handed to
//! the system, is *blocked* on a client that does not read, or is *closing*. One
//! word has the phase and the tick at which it began; only the connection's own
//! task writes it. So requests set no timer and read no clock.

use super::flight::{Flight, SMALL_BYTES};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use tokio::sync::Notify;
use tollgate_tower::address::Group;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Head,
    Serving,
    /// Serving, once the rest of the body has arrived.
    Body,
    Responding,
    /// Responding, once the client reads on.
    Blocked,
    Closing,
}

/// The bits of a phase in the word.
const PHASE_BITS: u32 = 3;

/// The progress of one connection.
pub(crate) struct Progress {
    /// The phase in the low bits, the tick at which it began above.
    word: AtomicU64,
    clock: Arc<AtomicU64>,
    /// Makes the connection's task drop it.
    end: Notify,
    /// Whether `end` was notified.
    is_ended: AtomicBool,
    /// Whether the server stops.
    stops: AtomicBool,
    /// Whether it has several requests at once, each with a stream of its own (`multiplex.rs`).
    is_multiplexed: AtomicBool,
    /// How many of them there are, and the bytes that they have in flight.
    streams: AtomicUsize,
    stream_bytes: AtomicUsize,
    /// Whether all of the last request has arrived.
    is_whole: AtomicBool,
    /// Whether some of the next request arrived during the response to the last.
    is_ahead: AtomicBool,
    /// Whether all of the response is written or buffered.
    is_sent: AtomicBool,
    /// The peer, if its connections are bounded; those of a trusted proxy are not.
    address: Option<Group>,
    flight: Arc<Flight>,
    /// How many bytes it has in flight, and since when it has any.
    bytes: AtomicUsize,
    bytes_since: AtomicU64,
}

impl Progress {
    /// A new connection.
    pub(super) fn new(clock: Arc<AtomicU64>, flight: Arc<Flight>, address: Option<IpAddr>) -> Self {
        let progress = Self {
            word: AtomicU64::new(0),
            clock,
            end: Notify::new(),
            is_ended: AtomicBool::new(false),
            stops: AtomicBool::new(false),
            is_multiplexed: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            stream_bytes: AtomicUsize::new(0),
            is_whole: AtomicBool::new(true),
            is_ahead: AtomicBool::new(false),
            is_sent: AtomicBool::new(true),
            // A client with one IPv6 address has a whole /64 of them.
            address: address.map(|address| Group::of(address, 64)),
            flight,
            bytes: AtomicUsize::new(0),
            bytes_since: AtomicU64::new(0),
        };
        progress.enter(Phase::Idle);
        progress
    }

    /// The address that it counts for, if it has a bound.
    pub(super) fn address(&self) -> Option<Group> {
        self.address
    }

    /// The head of a request has arrived, and all of it if it has no body.
    pub(super) fn on_request(&self, has_body: bool) {
        self.is_whole.store(!has_body, Relaxed);
        self.is_ahead.store(false, Relaxed);
        self.enter(Phase::Serving);
    }

    /// The rest of the body is awaited. Sending it bit by bit gains no time.
    pub(super) fn on_body_pending(&self) {
        if let (Phase::Serving, since) = self.phase() {
            self.store(Phase::Body, since);
        }
    }

    /// All of the body has arrived.
    pub(super) fn on_body_complete(&self) {
        self.is_whole.store(true, Relaxed);
        self.enter(Phase::Serving);
    }

    /// Whether all of the request has arrived.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole.load(Relaxed)
    }

    /// The response is ready to be sent.
    pub(super) fn on_response(&self) {
        self.is_sent.store(false, Relaxed);
        self.enter(Phase::Responding);
    }

    /// All of the response is written or buffered.
    pub(super) fn on_response_sent(&self) {
        self.is_sent.store(true, Relaxed);
        self.set_in_flight(0);
    }

    /// Sets how many bytes it has in flight. Returns false, and changes nothing, if
    /// there is no room for them. Small amounts are not counted.
    pub(super) fn set_in_flight(&self, bytes: usize) -> bool {
        let bytes = if bytes > SMALL_BYTES { bytes } else { 0 };
        let before = self.bytes.load(Relaxed);
        if bytes > before && !self.flight.take(bytes - before) {
            return false;
        }
        self.flight.give_back(before.saturating_sub(bytes));
        if before == 0 {
            self.bytes_since.store(self.clock.load(Relaxed), Relaxed);
        }
        self.bytes.store(bytes, Relaxed);
        true
    }

    /// How many bytes it has in flight, and since when it has any.
    pub(super) fn in_flight(&self) -> (usize, u64) {
        (self.bytes.load(Relaxed), self.bytes_since.load(Relaxed))
    }

    /// The client speaks HTTP/2: from now on streams say what it is doing, and no single read or write does.
    pub(super) fn multiplex(&self) {
        self.is_multiplexed.store(true, Relaxed);
        self.enter(Phase::Idle);
    }

    pub(super) fn is_multiplexed(&self) -> bool {
        self.is_multiplexed.load(Relaxed)
    }

    /// Something happened in one of the streams.
    pub(super) fn on_stream_activity(&self) {
        self.enter(if self.streams.load(Relaxed) > 0 { Phase::Serving } else { Phase::Idle });
    }

    /// Adds a stream with this many bytes in flight. Returns false if there is no room for them.
    pub(super) fn open_stream(&self, bytes: usize) -> bool {
        let is_open = self.resize_stream(0, bytes);
        if is_open {
            self.streams.fetch_add(1, Relaxed);
            self.on_stream_activity();
        }
        is_open
    }

    /// Removes a stream.
    pub(super) fn close_stream(&self, bytes: usize) {
        self.resize_stream(bytes, 0);
        self.streams.fetch_sub(1, Relaxed);
        self.on_stream_activity();
    }

    /// Changes how many bytes a stream has in flight. Returns false, and changes nothing, if there is no room for them.
    pub(super) fn resize_stream(&self, before: usize, bytes: usize) -> bool {
        // Only the thread of the connection writes it.
        let all = self.stream_bytes.load(Relaxed) - before + bytes;
        let fits = self.set_in_flight(all);
        if fits {
            self.stream_bytes.store(all, Relaxed);
        }
        fits
    }

    /// Everything buffered is written.
    pub(super) fn on_flushed(&self) {
        if self.phase().0 == Phase::Responding && self.is_sent.load(Relaxed) {
            self.enter(if self.is_ahead.load(Relaxed) { Phase::Head } else { Phase::Idle });
        }
    }

    /// The server stops: a request that has arrived is answered, no other is awaited,
    /// and a closing client is not waited for.
    pub(super) fn stop(&self) {
        self.stops.store(true, Relaxed);
    }

    pub(super) fn stops(&self) -> bool {
        self.stops.load(Relaxed)
    }

    /// Makes the connection end. Returns whether this was the first call.
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

    /// The phase, and the tick at which it began.
    pub(super) fn phase(&self) -> (Phase, u64) {
        let word = self.word.load(Relaxed);
        let phase = match word & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Serving,
            3 => Phase::Body,
            4 => Phase::Responding,
            5 => Phase::Blocked,
            _ => Phase::Closing,
        };
        (phase, word >> PHASE_BITS)
    }

    /// Bytes were read.
    pub(super) fn on_read(&self) {
        match self.phase().0 {
            Phase::Idle if self.is_multiplexed() => {}
            Phase::Idle => self.enter(Phase::Head),
            Phase::Responding | Phase::Blocked => self.is_ahead.store(true, Relaxed),
            _ => {}
        }
    }

    /// Bytes were written. A response that is sent slowly keeps its connection.
    pub(super) fn on_write(&self) {
        if matches!(self.phase().0, Phase::Responding | Phase::Blocked) {
            self.enter(Phase::Responding);
        }
    }

    /// Nothing more can be written until the client reads.
    pub(super) fn on_blocked(&self) {
        if self.phase().0 == Phase::Responding {
            self.enter(Phase::Blocked);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.flight.give_back(*self.bytes.get_mut());
    }
}
