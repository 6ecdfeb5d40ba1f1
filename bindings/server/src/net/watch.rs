//! Watches all connections, ends those that take too long, and makes room.
//!
//! The watchman walks all of them once a second. When there are too many, those
//! that have waited for their client for longest make room, of the address that
//! has the most of them first: half a request is no reason to stay, and whoever
//! opens many connections takes the room of nobody else.

use super::flight::Flight;
use super::line::{Line, Phase};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tollgate_tower::address::{Group, Networks};

/// How often time moves on for the watchman.
const TICK: Duration = Duration::from_millis(250);

const TICKS_PER_SECOND: u64 = 4;

/// How many connections make room at once when there are too many: the walk
/// that finds them is then paid for by as many newcomers.
const VICTIMS: usize = 64;

/// A connection that changed within so many ticks is not given up for a newcomer:
/// its answer may be on the way.
const FRESH_TICKS: u64 = TICKS_PER_SECOND;

/// How long each phase may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) waiting: Duration,
    pub(super) head: Duration,
    pub(super) served: Duration,
    /// Without reading anything of an answer.
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

/// Connections by number, and how many each address has that were not told to end.
#[derive(Default)]
struct Lines {
    all: HashMap<u64, Arc<Line>>,
    by_address: HashMap<Group, usize>,
}

/// All connections.
pub(super) struct Watch {
    clock: Arc<AtomicU64>,
    lines: Mutex<Lines>,
    next: AtomicU64,
    bounds: Bounds,
    flight: Arc<Flight>,
    patience: Patience,
    /// Told when a connection is gone.
    freed: Notify,
    /// Whether a bound was reached since the log last said so: on all, on those of an address.
    full: AtomicBool,
    crowded: AtomicBool,
}

/// A connection's place among them, until it is dropped.
pub(super) struct Place {
    watch: Arc<Watch>,
    number: u64,
    line: Arc<Line>,
}

impl Lines {
    fn of(&self, address: Option<Group>) -> usize {
        address.and_then(|address| self.by_address.get(&address)).copied().unwrap_or_default()
    }

    fn end(by_address: &mut HashMap<Group, usize>, line: &Line) {
        if line.end() {
            Self::uncount(by_address, line);
        }
    }

    fn uncount(by_address: &mut HashMap<Group, usize>, line: &Line) {
        let Some(address) = line.address() else { return };
        if let Some(count) = by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                by_address.remove(&address);
            }
        }
    }

    /// Ends those that have waited for their client for longest, of the address
    /// that has the most of them first: how many.
    fn end_idlest(&mut self, now: u64, victims: usize, is_candidate: impl Fn(&Line) -> bool) -> usize {
        let Self { all, by_address } = self;
        let mut idle: Vec<_> = all
            .values()
            .map(|line| (line.state(), line))
            .filter(|((phase, since), _)| *phase != Phase::Served && now.saturating_sub(*since) >= FRESH_TICKS)
            .filter(|(_, line)| !line.is_ended() && is_candidate(line))
            .map(|((_, since), line)| {
                let many = line.address().and_then(|address| by_address.get(&address)).copied().unwrap_or(1);
                ((Reverse(many), since), line)
            })
            .collect();
        let victims = victims.min(idle.len());
        if victims > 0 {
            idle.select_nth_unstable_by_key(victims - 1, |(rank, _)| *rank);
        }
        for (_, line) in &idle[..victims] {
            Self::end(by_address, line);
        }
        victims
    }
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
        self.lines().all.len()
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
        for line in self.lines().all.values() {
            line.end();
        }
    }

    /// Takes a new connection in. `None` if its address has as many as it may
    /// have, and each of them is being served or came just now.
    pub(super) fn place(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let address = (!self.bounds.proxies.contains(peer)).then_some(peer);
        let line = Arc::new(Line::new(Arc::clone(&self.clock), Arc::clone(&self.flight), address));
        let (mut lines, address, max) = (self.lines(), line.address(), self.bounds.per_address);
        if lines.of(address) >= max {
            self.crowded.store(true, Relaxed);
            // A share of them, so that the walk is paid for by several newcomers.
            let victims = (max / 16).clamp(1, VICTIMS);
            if lines.end_idlest(self.clock.load(Relaxed), victims, |line| line.address() == address) == 0 {
                return None;
            }
        }
        let number = self.next.fetch_add(1, Relaxed);
        lines.all.insert(number, Arc::clone(&line));
        if let Some(address) = address {
            *lines.by_address.entry(address).or_default() += 1;
        }
        drop(lines);
        Some(Place { watch: Arc::clone(self), number, line })
    }

    /// Walks the connections for ever; drop it to stop.
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
                self.say_what_is_full();
            }
        }
    }

    /// Ends connections that have had bytes in flight for longest, until a quarter of all is free.
    fn end_holders(&self) {
        let now = self.clock.load(Relaxed);
        let Lines { all, by_address } = &mut *self.lines();
        let mut holders: Vec<_> = all
            .values()
            .map(|line| (line.held(), line))
            .filter(|((bytes, since), _)| *bytes > 0 && now.saturating_sub(*since) >= FRESH_TICKS)
            .collect();
        holders.sort_unstable_by_key(|((_, since), _)| *since);
        let mut freed = 0;
        for ((bytes, _), line) in holders {
            if freed >= self.flight.bytes_max() / 4 {
                break;
            }
            Lines::end(by_address, line);
            freed += bytes;
        }
    }

    fn say_what_is_full(&self) {
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

    fn end_late(&self) {
        let ticks = |span: Duration| (span.as_millis() / TICK.as_millis()) as u64;
        let Patience { waiting, head, served, stuck } = self.patience;
        let [waiting, head, served, stuck] = [waiting, head, served, stuck].map(ticks);
        let now = self.clock.load(Relaxed);
        let Lines { all, by_address } = &mut *self.lines();
        for line in all.values() {
            let (phase, since) = line.state();
            let patience = match phase {
                Phase::Waiting | Phase::Answered => waiting,
                Phase::Head | Phase::Leaving => head,
                Phase::Served | Phase::Body => served,
                Phase::Stuck => stuck,
            };
            if now.saturating_sub(since) > patience {
                Lines::end(by_address, line);
            }
        }
    }
}

impl Place {
    pub(super) fn line(&self) -> &Arc<Line> {
        &self.line
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.watch.lines();
        lines.all.remove(&self.number);
        if !self.line.is_ended() {
            Lines::uncount(&mut lines.by_address, &self.line);
        }
        drop(lines);
        self.watch.freed.notify_one();
    }
}

#[cfg(test)]
pub(super) mod tests {
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

    fn has_to_end(line: &Line) -> bool {
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
            let place = watch.place(PEER).unwrap();
            place.line().enter(phase);
            watch.clock.store(seconds * 4, Relaxed);
            watch.end_late();
            assert!(!has_to_end(place.line()), "{phase:?}");
            watch.clock.store(seconds * 4 + 1, Relaxed);
            watch.end_late();
            assert!(has_to_end(place.line()), "{phase:?}");
        }
    }

    #[test]
    fn what_trickles_in_gains_no_time_and_an_answer_that_goes_out_does() {
        let watch = watch(10);
        let place = watch.place(PEER).unwrap();
        let line = place.line();
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
        // Half of the next request came before the answer to this one was away.
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
        let places: Vec<_> = (0..200).map(|_| watch.place(PEER).unwrap()).collect();
        for (at, place) in (0..).zip(&places) {
            watch.clock.store(at / 2, Relaxed);
            if at % 2 == 0 { place.line().served(false) } else { place.line().answered() }
        }
        watch.make_room();
        let ended: Vec<_> =
            (0..).zip(&places).filter(|(_, place)| has_to_end(place.line())).map(|(at, _)| at).collect();
        assert_eq!(ended, (0..VICTIMS).map(|at| 2 * at + 1).collect::<Vec<_>>());
        // What changed just now stays too.
        watch.clock.store(99, Relaxed);
        places.iter().for_each(|place| place.line().answered());
        watch.make_room();
        assert!(!places.iter().any(|place| has_to_end(place.line())));
        drop(places);
        assert_eq!(watch.count(), 0);
        assert!(watch.lines().by_address.is_empty());
    }

    /// The others wait for longer, and have one connection each.
    #[test]
    fn whoever_has_the_most_makes_room_first() {
        let watch = watch(200);
        let others: Vec<_> = (1..=50).map(|host| watch.place(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)))).collect();
        watch.clock.store(10, Relaxed);
        let many: Vec<_> = (0..150).map(|_| watch.place(PEER).unwrap()).collect();
        many.iter().for_each(|place| {
            place.line().served(true);
            place.line().awaits_body();
        });
        watch.clock.store(20, Relaxed);
        watch.make_room();
        assert_eq!(many.iter().filter(|place| has_to_end(place.line())).count(), VICTIMS);
        assert!(!others.iter().flatten().any(|place| has_to_end(place.line())));
    }

    #[test]
    fn an_address_has_its_bound_and_a_proxy_none() {
        let watch = bounded(1_000, 3);
        let places: Vec<_> = (0..3).map(|_| watch.place(PEER).unwrap()).collect();
        assert!(watch.place(PEER).is_none(), "each of them came just now");
        let other = watch.place(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
        assert!(other.is_some());
        let proxied: Vec<_> = (0..10).map(|_| watch.place(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)))).collect();
        assert!(proxied.iter().all(Option::is_some));
        watch.clock.store(FRESH_TICKS, Relaxed);
        places[0].line().served(false);
        let newcomer = watch.place(PEER).unwrap();
        let ended: Vec<_> = places.iter().map(|place| has_to_end(place.line())).collect();
        assert_eq!(ended.iter().filter(|ended| **ended).count(), 1, "{ended:?}");
        assert!(!ended[0], "it is being served");
        assert_eq!(watch.lines().of(newcomer.line().address()), 3);
        drop((places, newcomer));
        assert_eq!(watch.lines().by_address.len(), 1);
    }

    #[test]
    fn when_there_is_too_much_in_flight_those_that_hold_it_longest_are_ended() {
        const MIB: usize = 1 << 20;
        let watch = watch(10);
        let places: Vec<_> = (0..5).map(|_| watch.place(PEER).unwrap()).collect();
        for (at, place) in (0..).zip(&places[..4]) {
            watch.clock.store(at, Relaxed);
            assert!(place.line().hold(MIB));
        }
        assert!(places[4].line().hold(1_000), "what is small is not counted");
        assert!(!watch.flight.was_short());
        assert!(!places[4].line().hold(MIB));
        assert!(watch.flight.was_short());
        watch.clock.store(FRESH_TICKS, Relaxed);
        watch.end_holders();
        let ended: Vec<_> = places.iter().map(|place| has_to_end(place.line())).collect();
        assert_eq!(ended, [true, false, false, false, false]);
        // An answer that is away, and a connection that is gone, hold nothing.
        places[1].line().sent();
        assert!(places[4].line().hold(MIB));
        assert!(!places[1].line().hold(MIB));
        drop(places);
        let place = watch.place(PEER).unwrap();
        assert!(place.line().hold(4 * MIB) && place.line().hold(MIB) && place.line().hold(2 * MIB));
        drop(place);
        assert!(watch.flight.take(4 * MIB) && !watch.flight.take(1));
    }
}
