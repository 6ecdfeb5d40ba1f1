//! Watches all connections, ends those that take too long, and makes room.
//!
//! A task looks at all of them once a second. When there are too many, those that
//! have waited longest for their client are ended (`connections.rs`).

use super::connections::Connections;
use super::flight::Flight;
use super::progress::{Phase, Progress};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tollgate_tower::address::Networks;

/// The unit in which the age of a connection is measured.
const TICK: Duration = Duration::from_millis(250);

pub(super) const TICKS_PER_SECOND: u64 = 4;

/// How many connections are ended at once when there are too many, so that one pass
/// makes room for as many new ones.
const VICTIMS: usize = 64;

/// How long each phase may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) idle: Duration,
    pub(super) head: Duration,
    pub(super) serving: Duration,
    /// While the client does not read its response.
    pub(super) blocked: Duration,
}

/// How many connections there may be, and how many bytes they may have in flight.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) connections: usize,
    /// From one address, unless it is a trusted proxy.
    pub(super) per_address: usize,
    pub(super) bytes: usize,
    pub(super) proxies: Networks,
}

/// All connections.
pub(super) struct Watch {
    clock: Arc<AtomicU64>,
    connections: Mutex<Connections>,
    next: AtomicU64,
    bounds: Bounds,
    flight: Arc<Flight>,
    timeouts: Timeouts,
    /// Notified when a connection is gone.
    freed: Notify,
    /// Whether the bound on all connections was reached since it was last logged.
    full: AtomicBool,
    /// The same for the bound of an address.
    crowded: AtomicBool,
}

/// Keeps a connection in the table until it is dropped.
pub(super) struct Registration {
    watch: Arc<Watch>,
    number: u64,
    progress: Arc<Progress>,
}

impl Watch {
    pub(super) fn new(bounds: Bounds, timeouts: Timeouts) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::new(AtomicU64::new(0)),
            connections: Mutex::default(),
            next: AtomicU64::new(0),
            flight: Arc::new(Flight::new(bounds.bytes)),
            bounds,
            timeouts,
            freed: Notify::new(),
            full: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
        })
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.connections().count()
    }

    pub(super) fn has_room(&self) -> bool {
        self.count() < self.bounds.connections
    }

    /// Waits until there is room for one more connection, and makes some if there are
    /// connections that wait for their client.
    ///
    /// The wait ends: serving a connection takes a bounded time.
    pub(super) async fn wait_for_room(&self) {
        while !self.has_room() {
            self.full.store(true, Relaxed);
            self.make_room();
            _ = tokio::time::timeout(TICK, self.freed.notified()).await;
        }
    }

    /// Ends some connections that wait for their client.
    pub(super) fn make_room(&self) {
        self.connections().end_idlest(self.clock.load(Relaxed), VICTIMS, |_| true);
    }

    /// Waits until no connection is left.
    pub(super) async fn wait_until_empty(&self) {
        while self.count() > 0 {
            _ = tokio::time::timeout(TICK, self.freed.notified()).await;
        }
    }

    /// Ends all connections.
    pub(super) fn end_all(&self) {
        self.connections().end_if(|_| true);
    }

    /// Adds a connection. `None` if its address has reached its bound and all of its
    /// connections are being served or have just arrived.
    ///
    /// Without an address it counts for none, like a connection of a trusted proxy.
    pub(super) fn register(self: &Arc<Self>, peer: impl Into<Option<IpAddr>>) -> Option<Registration> {
        let address = peer.into().filter(|peer| !self.bounds.proxies.contains(*peer));
        let progress = Arc::new(Progress::new(Arc::clone(&self.clock), Arc::clone(&self.flight), address));
        let (mut connections, address, max) = (self.connections(), progress.address(), self.bounds.per_address);
        if address.is_some() && connections.of(address) >= max {
            self.crowded.store(true, Relaxed);
            // A few more than needed, so that one pass makes room for several.
            let victims = (max / 16).clamp(1, VICTIMS);
            if connections.end_idlest(self.clock.load(Relaxed), victims, |progress| progress.address() == address) == 0
            {
                return None;
            }
        }
        let number = self.next.fetch_add(1, Relaxed);
        connections.insert(number, Arc::clone(&progress));
        drop(connections);
        Some(Registration { watch: Arc::clone(self), number, progress })
    }

    /// Checks the connections until it is dropped.
    pub(super) async fn run(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let now = self.clock.fetch_add(1, Relaxed) + 1;
            if self.flight.was_short() {
                self.end_oldest_in_flight();
            }
            if now.is_multiple_of(TICKS_PER_SECOND) {
                self.end_late();
            }
            if now.is_multiple_of(60 * TICKS_PER_SECOND) {
                self.log_bounds();
            }
        }
    }

    /// Ends the connections that have had bytes in flight for longest, until a quarter of all bytes is free.
    fn end_oldest_in_flight(&self) {
        self.connections().end_oldest_in_flight(self.clock.load(Relaxed), self.flight.bytes_max() / 4);
    }

    /// Logs which bounds were reached since the last call.
    fn log_bounds(&self) {
        let Bounds { connections, per_address, .. } = self.bounds;
        if self.full.swap(false, Relaxed) {
            tracing::warn!(max = connections, "the bound on connections was reached; the idlest made room");
        }
        if self.crowded.swap(false, Relaxed) {
            tracing::warn!(
                max = per_address,
                "an address reached its bound on connections; if it is a proxy, list it in trusted_proxies"
            );
        }
    }

    /// Ends connections that have been in their phase for too long.
    fn end_late(&self) {
        let ticks = |span: Duration| (span.as_millis() / TICK.as_millis()) as u64;
        let Timeouts { idle, head, serving, blocked } = self.timeouts;
        let [idle, head, serving, blocked] = [idle, head, serving, blocked].map(ticks);
        let now = self.clock.load(Relaxed);
        self.connections().end_if(|progress| {
            let (phase, since) = progress.phase();
            let timeout = match phase {
                Phase::Idle | Phase::Responding => idle,
                Phase::Head | Phase::Closing => head,
                Phase::Serving | Phase::Body => serving,
                Phase::Blocked => blocked,
            };
            now.saturating_sub(since) > timeout
        });
    }
}

impl Registration {
    pub(super) fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.watch.connections().remove(self.number);
        self.watch.freed.notify_one();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::connections::FRESH_TICKS;
    use super::*;
    use std::net::Ipv4Addr;
    use std::task::Context;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    pub(in super::super) fn watch(connections: usize) -> Arc<Watch> {
        bounded(connections, connections)
    }

    fn bounded(connections: usize, per_address: usize) -> Arc<Watch> {
        let second = Duration::from_secs(1);
        let bounds =
            Bounds { connections, per_address, bytes: 4 << 20, proxies: Networks::parse(["192.0.2.0/24"]).unwrap() };
        Watch::new(bounds, Timeouts { idle: 8 * second, head: 2 * second, serving: 4 * second, blocked: 3 * second })
    }

    fn is_ended(progress: &Progress) -> bool {
        let mut ended = Box::pin(progress.ended());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        ended.as_mut().poll(&mut cx).is_ready()
    }

    #[test]
    fn each_phase_has_its_timeout() {
        for (phase, seconds) in [
            (Phase::Idle, 8),
            (Phase::Head, 2),
            (Phase::Serving, 4),
            (Phase::Body, 4),
            (Phase::Responding, 8),
            (Phase::Blocked, 3),
            (Phase::Closing, 2),
        ] {
            let watch = watch(10);
            let one = watch.register(PEER).unwrap();
            one.progress().enter(phase);
            watch.clock.store(seconds * 4, Relaxed);
            watch.end_late();
            assert!(!is_ended(one.progress()), "{phase:?}");
            watch.clock.store(seconds * 4 + 1, Relaxed);
            watch.end_late();
            assert!(is_ended(one.progress()), "{phase:?}");
        }
    }

    #[test]
    fn a_slow_request_gains_no_time_and_a_slow_response_does() {
        let watch = watch(10);
        let one = watch.register(PEER).unwrap();
        let progress = one.progress();
        progress.on_read();
        watch.clock.store(7, Relaxed);
        progress.on_read();
        assert_eq!(progress.phase(), (Phase::Head, 0));
        progress.on_request(true);
        watch.clock.store(8, Relaxed);
        progress.on_read();
        progress.on_body_pending();
        progress.on_body_pending();
        assert_eq!((progress.phase(), progress.is_whole()), ((Phase::Body, 7), false));
        progress.on_body_complete();
        assert_eq!((progress.phase(), progress.is_whole()), ((Phase::Serving, 8), true));
        progress.on_response();
        watch.clock.store(9, Relaxed);
        progress.on_write();
        progress.on_flushed();
        assert_eq!(progress.phase(), (Phase::Responding, 9), "more of it is to come");
        progress.on_response_sent();
        assert_eq!(progress.phase(), (Phase::Responding, 9), "it is not written yet");
        progress.on_flushed();
        assert_eq!(progress.phase(), (Phase::Idle, 9));
        // Half of the next request arrived before the response to this one was sent.
        progress.on_request(false);
        progress.on_response();
        progress.on_read();
        progress.on_response_sent();
        progress.on_flushed();
        assert_eq!(progress.phase(), (Phase::Head, 9));
    }

    #[test]
    fn the_idlest_make_room_and_those_being_served_stay() {
        let watch = watch(200);
        let kept: Vec<_> = (0..200).map(|_| watch.register(PEER).unwrap()).collect();
        for (at, one) in (0..).zip(&kept) {
            watch.clock.store(at / 2, Relaxed);
            if at % 2 == 0 { one.progress().on_request(false) } else { one.progress().on_response() }
        }
        watch.make_room();
        let ended: Vec<_> = (0..).zip(&kept).filter(|(_, one)| is_ended(one.progress())).map(|(at, _)| at).collect();
        assert_eq!(ended, (0..VICTIMS).map(|at| 2 * at + 1).collect::<Vec<_>>());
        // Those whose phase has just begun stay too.
        watch.clock.store(99, Relaxed);
        kept.iter().for_each(|one| one.progress().on_response());
        watch.make_room();
        assert!(!kept.iter().any(|one| is_ended(one.progress())));
        drop(kept);
        assert_eq!(watch.count(), 0);
        assert!(watch.connections().addresses() == 0);
    }

    /// The others have waited longer, and have one connection each.
    #[test]
    fn the_address_with_the_most_connections_makes_room_first() {
        let watch = watch(200);
        let others: Vec<_> = (1..=50).map(|host| watch.register(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)))).collect();
        watch.clock.store(10, Relaxed);
        let many: Vec<_> = (0..150).map(|_| watch.register(PEER).unwrap()).collect();
        many.iter().for_each(|one| {
            one.progress().on_request(true);
            one.progress().on_body_pending();
        });
        watch.clock.store(20, Relaxed);
        watch.make_room();
        assert_eq!(many.iter().filter(|one| is_ended(one.progress())).count(), VICTIMS);
        assert!(!others.iter().flatten().any(|one| is_ended(one.progress())));
    }

    #[test]
    fn an_address_has_a_bound_and_a_proxy_has_none() {
        let watch = bounded(1_000, 3);
        let kept: Vec<_> = (0..3).map(|_| watch.register(PEER).unwrap()).collect();
        assert!(watch.register(PEER).is_none(), "all of them have just arrived");
        let other = watch.register(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
        assert!(other.is_some());
        let proxied: Vec<_> = (0..10).map(|_| watch.register(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)))).collect();
        assert!(proxied.iter().all(Option::is_some));
        watch.clock.store(FRESH_TICKS, Relaxed);
        kept[0].progress().on_request(false);
        let newcomer = watch.register(PEER).unwrap();
        let ended: Vec<_> = kept.iter().map(|one| is_ended(one.progress())).collect();
        assert_eq!(ended.iter().filter(|ended| **ended).count(), 1, "{ended:?}");
        assert!(!ended[0], "it is being served");
        assert_eq!(watch.connections().of(newcomer.progress().address()), 3);
        drop((kept, newcomer));
        assert_eq!(watch.connections().addresses(), 1);
    }

    #[test]
    fn with_too_many_bytes_in_flight_the_oldest_are_ended() {
        const MIB: usize = 1 << 20;
        let watch = watch(10);
        let kept: Vec<_> = (0..5).map(|_| watch.register(PEER).unwrap()).collect();
        for (at, one) in (0..).zip(&kept[..4]) {
            watch.clock.store(at, Relaxed);
            assert!(one.progress().set_in_flight(MIB));
        }
        assert!(kept[4].progress().set_in_flight(1_000), "small amounts are not counted");
        assert!(!watch.flight.was_short());
        assert!(!kept[4].progress().set_in_flight(MIB));
        assert!(watch.flight.was_short());
        watch.clock.store(FRESH_TICKS, Relaxed);
        watch.end_oldest_in_flight();
        let ended: Vec<_> = kept.iter().map(|one| is_ended(one.progress())).collect();
        assert_eq!(ended, [true, false, false, false, false]);
        // Neither a response that was sent nor a connection that is gone has bytes in flight.
        kept[1].progress().on_response_sent();
        assert!(kept[4].progress().set_in_flight(MIB));
        assert!(!kept[1].progress().set_in_flight(MIB));
        drop(kept);
        let one = watch.register(PEER).unwrap();
        let is_set = |bytes| one.progress().set_in_flight(bytes);
        assert!(is_set(4 * MIB) && is_set(MIB) && is_set(2 * MIB));
        drop(one);
        assert!(watch.flight.take(4 * MIB) && !watch.flight.take(1));
    }
}
