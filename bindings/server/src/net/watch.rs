//! Watches all connections, ends those that take too long, and makes room.
//!
//! A task walks all of them once a second. When there are too many, those that
//! have waited longest for their client are ended (`lines.rs`).

use super::flight::Flight;
use super::line::{Line, Phase};
use super::lines::Lines;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tollgate_tower::address::Networks;

/// The unit in which the age of a connection is measured.
const TICK: Duration = Duration::from_millis(250);

pub(super) const TICKS_PER_SECOND: u64 = 4;

/// How many connections are ended at once when there are too many, so that one
/// walk makes room for as many new ones.
const VICTIMS: usize = 64;

/// How long each phase may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) waiting: Duration,
    pub(super) head: Duration,
    pub(super) served: Duration,
    /// While the client reads nothing of an answer.
    pub(super) stuck: Duration,
}

/// How many connections there may be, and how many bytes they may have in flight.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) connections: usize,
    /// From one address, unless it is a proxy's.
    pub(super) per_address: usize,
    pub(super) bytes: usize,
    pub(super) proxies: Networks,
}

/// All connections.
pub(super) struct Watch {
    clock: Arc<AtomicU64>,
    lines: Mutex<Lines>,
    next: AtomicU64,
    bounds: Bounds,
    flight: Arc<Flight>,
    patience: Patience,
    /// Notified when a connection is gone.
    freed: Notify,
    /// Whether the bound on all connections was reached since the last log line about it.
    full: AtomicBool,
    /// Likewise the bound of an address.
    crowded: AtomicBool,
}

/// Keeps a connection among those that are watched, until it is dropped.
pub(super) struct Registration {
    watch: Arc<Watch>,
    number: u64,
    line: Arc<Line>,
}

impl Watch {
    pub(super) fn new(bounds: Bounds, patience: Patience) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::new(AtomicU64::new(0)),
            lines: Mutex::default(),
            next: AtomicU64::new(0),
            flight: Arc::new(Flight::new(bounds.bytes)),
            bounds,
            patience,
            freed: Notify::new(),
            full: AtomicBool::new(false),
            crowded: AtomicBool::new(false),
        })
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.lines().count()
    }

    pub(super) fn has_room(&self) -> bool {
        self.count() < self.bounds.connections
    }

    /// Waits until there is room for one more connection, and makes some if
    /// there are connections that wait for their client.
    ///
    /// The wait ends: a connection that is served is so for a bounded time.
    pub(super) async fn room(&self) {
        while !self.has_room() {
            self.full.store(true, Relaxed);
            self.make_room();
            _ = tokio::time::timeout(TICK, self.freed.notified()).await;
        }
    }

    /// Ends some connections that wait for their client.
    pub(super) fn make_room(&self) {
        self.lines().end_idlest(self.clock.load(Relaxed), VICTIMS, |_| true);
    }

    /// Waits until no connection is left.
    pub(super) async fn emptied(&self) {
        while self.count() > 0 {
            _ = tokio::time::timeout(TICK, self.freed.notified()).await;
        }
    }

    /// Ends all connections.
    pub(super) fn end_all(&self) {
        self.lines().end_if(|_| true);
    }

    /// Adds a connection. `None` if its address has reached its bound and every
    /// one of its connections is being served or came just now.
    pub(super) fn register(self: &Arc<Self>, peer: IpAddr) -> Option<Registration> {
        let address = (!self.bounds.proxies.contains(peer)).then_some(peer);
        let line = Arc::new(Line::new(Arc::clone(&self.clock), Arc::clone(&self.flight), address));
        let (mut lines, address, max) = (self.lines(), line.address(), self.bounds.per_address);
        if lines.of(address) >= max {
            self.crowded.store(true, Relaxed);
            // Some more than needed, so that one walk makes room for several.
            let victims = (max / 16).clamp(1, VICTIMS);
            if lines.end_idlest(self.clock.load(Relaxed), victims, |line| line.address() == address) == 0 {
                return None;
            }
        }
        let number = self.next.fetch_add(1, Relaxed);
        lines.insert(number, Arc::clone(&line));
        drop(lines);
        Some(Registration { watch: Arc::clone(self), number, line })
    }

    /// Walks the connections until it is dropped.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let now = self.clock.fetch_add(1, Relaxed) + 1;
            if self.flight.was_short() {
                self.end_holders();
            }
            if now % TICKS_PER_SECOND == 0 {
                self.end_late();
            }
            if now % (60 * TICKS_PER_SECOND) == 0 {
                self.log_bounds();
            }
        }
    }

    /// Ends connections that have had bytes in flight for longest, until a quarter of all is free.
    fn end_holders(&self) {
        self.lines().end_holders(self.clock.load(Relaxed), self.flight.bytes_max() / 4);
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
                "an address reached its bound on connections; if it is a proxy, name it in trusted_proxies"
            );
        }
    }

    /// Ends connections that have been in their phase for too long.
    fn end_late(&self) {
        let ticks = |span: Duration| (span.as_millis() / TICK.as_millis()) as u64;
        let Patience { waiting, head, served, stuck } = self.patience;
        let [waiting, head, served, stuck] = [waiting, head, served, stuck].map(ticks);
        let now = self.clock.load(Relaxed);
        self.lines().end_if(|line| {
            let (phase, since) = line.state();
            let patience = match phase {
                Phase::Waiting | Phase::Answered => waiting,
                Phase::Head | Phase::Leaving => head,
                Phase::Served | Phase::Body => served,
                Phase::Stuck => stuck,
            };
            now.saturating_sub(since) > patience
        });
    }
}

impl Registration {
    pub(super) fn line(&self) -> &Arc<Line> {
        &self.line
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.watch.lines().remove(self.number);
        self.watch.freed.notify_one();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::lines::FRESH_TICKS;
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
        Watch::new(bounds, Patience { waiting: 8 * second, head: 2 * second, served: 4 * second, stuck: 3 * second })
    }

    fn is_ended(line: &Line) -> bool {
        let mut ended = Box::pin(line.ended());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        ended.as_mut().poll(&mut cx).is_ready()
    }

    #[test]
    fn each_phase_has_its_patience() {
        for (phase, seconds) in [
            (Phase::Waiting, 8),
            (Phase::Head, 2),
            (Phase::Served, 4),
            (Phase::Body, 4),
            (Phase::Answered, 8),
            (Phase::Stuck, 3),
            (Phase::Leaving, 2),
        ] {
            let watch = watch(10);
            let one = watch.register(PEER).unwrap();
            one.line().enter(phase);
            watch.clock.store(seconds * 4, Relaxed);
            watch.end_late();
            assert!(!is_ended(one.line()), "{phase:?}");
            watch.clock.store(seconds * 4 + 1, Relaxed);
            watch.end_late();
            assert!(is_ended(one.line()), "{phase:?}");
        }
    }

    #[test]
    fn a_request_that_trickles_in_gains_no_time_and_an_answer_that_goes_out_does() {
        let watch = watch(10);
        let one = watch.register(PEER).unwrap();
        let line = one.line();
        line.heard();
        watch.clock.store(7, Relaxed);
        line.heard();
        assert_eq!(line.state(), (Phase::Head, 0));
        line.served(true);
        watch.clock.store(8, Relaxed);
        line.heard();
        line.awaits_body();
        line.awaits_body();
        assert_eq!((line.state(), line.is_whole()), ((Phase::Body, 7), false));
        line.body_came();
        assert_eq!((line.state(), line.is_whole()), ((Phase::Served, 8), true));
        line.answered();
        watch.clock.store(9, Relaxed);
        line.written();
        line.flushed();
        assert_eq!(line.state(), (Phase::Answered, 9), "more of it is to come");
        line.sent();
        assert_eq!(line.state(), (Phase::Answered, 9), "it is not written yet");
        line.flushed();
        assert_eq!(line.state(), (Phase::Waiting, 9));
        // Half of the next request came before the answer to this one was sent.
        line.served(false);
        line.answered();
        line.heard();
        line.sent();
        line.flushed();
        assert_eq!(line.state(), (Phase::Head, 9));
    }

    #[test]
    fn the_idlest_make_room_and_those_that_are_served_stay() {
        let watch = watch(200);
        let kept: Vec<_> = (0..200).map(|_| watch.register(PEER).unwrap()).collect();
        for (at, one) in (0..).zip(&kept) {
            watch.clock.store(at / 2, Relaxed);
            if at % 2 == 0 { one.line().served(false) } else { one.line().answered() }
        }
        watch.make_room();
        let ended: Vec<_> = (0..).zip(&kept).filter(|(_, one)| is_ended(one.line())).map(|(at, _)| at).collect();
        assert_eq!(ended, (0..VICTIMS).map(|at| 2 * at + 1).collect::<Vec<_>>());
        // What changed just now stays too.
        watch.clock.store(99, Relaxed);
        kept.iter().for_each(|one| one.line().answered());
        watch.make_room();
        assert!(!kept.iter().any(|one| is_ended(one.line())));
        drop(kept);
        assert_eq!(watch.count(), 0);
        assert!(watch.lines().addresses() == 0);
    }

    /// The others wait for longer, and have one connection each.
    #[test]
    fn the_address_with_the_most_connections_makes_room_first() {
        let watch = watch(200);
        let others: Vec<_> = (1..=50).map(|host| watch.register(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)))).collect();
        watch.clock.store(10, Relaxed);
        let many: Vec<_> = (0..150).map(|_| watch.register(PEER).unwrap()).collect();
        many.iter().for_each(|one| {
            one.line().served(true);
            one.line().awaits_body();
        });
        watch.clock.store(20, Relaxed);
        watch.make_room();
        assert_eq!(many.iter().filter(|one| is_ended(one.line())).count(), VICTIMS);
        assert!(!others.iter().flatten().any(|one| is_ended(one.line())));
    }

    #[test]
    fn an_address_has_a_bound_and_a_proxy_has_none() {
        let watch = bounded(1_000, 3);
        let kept: Vec<_> = (0..3).map(|_| watch.register(PEER).unwrap()).collect();
        assert!(watch.register(PEER).is_none(), "each of them came just now");
        let other = watch.register(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
        assert!(other.is_some());
        let proxied: Vec<_> = (0..10).map(|_| watch.register(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)))).collect();
        assert!(proxied.iter().all(Option::is_some));
        watch.clock.store(FRESH_TICKS, Relaxed);
        kept[0].line().served(false);
        let newcomer = watch.register(PEER).unwrap();
        let ended: Vec<_> = kept.iter().map(|one| is_ended(one.line())).collect();
        assert_eq!(ended.iter().filter(|ended| **ended).count(), 1, "{ended:?}");
        assert!(!ended[0], "it is being served");
        assert_eq!(watch.lines().of(newcomer.line().address()), 3);
        drop((kept, newcomer));
        assert_eq!(watch.lines().addresses(), 1);
    }

    #[test]
    fn with_too_many_bytes_in_flight_those_that_hold_them_longest_are_ended() {
        const MIB: usize = 1 << 20;
        let watch = watch(10);
        let kept: Vec<_> = (0..5).map(|_| watch.register(PEER).unwrap()).collect();
        for (at, one) in (0..).zip(&kept[..4]) {
            watch.clock.store(at, Relaxed);
            assert!(one.line().hold(MIB));
        }
        assert!(kept[4].line().hold(1_000), "small amounts are not counted");
        assert!(!watch.flight.was_short());
        assert!(!kept[4].line().hold(MIB));
        assert!(watch.flight.was_short());
        watch.clock.store(FRESH_TICKS, Relaxed);
        watch.end_holders();
        let ended: Vec<_> = kept.iter().map(|one| is_ended(one.line())).collect();
        assert_eq!(ended, [true, false, false, false, false]);
        // Neither an answer that was sent nor a connection that is gone holds bytes.
        kept[1].line().sent();
        assert!(kept[4].line().hold(MIB));
        assert!(!kept[1].line().hold(MIB));
        drop(kept);
        let one = watch.register(PEER).unwrap();
        assert!(one.line().hold(4 * MIB) && one.line().hold(MIB) && one.line().hold(2 * MIB));
        drop(one);
        assert!(watch.flight.take(4 * MIB) && !watch.flight.take(1));
    }
}
