//! Watches what connections are at, and ends those that take too long.
//!
//! A connection is *waiting* for a request, is sending the *head* of one, is
//! being *served*, or is *leaving*. One word says which, and since when; only
//! the connection's own task writes it. The watchman walks all of them once a
//! second. So requests set up no timer and read no clock.
//!
//! A request may be answered before all of it has come: its body is too long,
//! its token wrong. Were the connection closed with that, the system would
//! throw away the answer together with what nobody had read, and the client
//! would see a reset. So a connection that leaves says that it will write no
//! more, and reads until its client has closed it too, within bounds. When the
//! server stops, it does not wait for that.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// How often time moves on for the watchman.
const TICK: Duration = Duration::from_millis(250);

const TICKS_PER_SECOND: u64 = 4;

/// How many connections make room at once when there are too many: the walk
/// that finds them is then paid for by as many newcomers.
const VICTIMS: usize = 64;

/// A connection that changed within so many ticks is not given up for a newcomer:
/// its answer may be on the way.
const FRESH_TICKS: u64 = TICKS_PER_SECOND;

/// How much of what nobody wants is read at once, how often in a row before others have their
/// turn, and how much of it in all.
const UNREAD_BYTES: usize = 8 * 1024;
const UNREAD_READS: usize = 4;
const UNREAD_BYTES_MAX: usize = 64 << 20;

/// How long each phase may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) waiting: Duration,
    pub(super) head: Duration,
    pub(super) served: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Head,
    Served,
    Leaving,
}

/// One connection.
pub(super) struct Line {
    /// The phase in the low two bits, the tick at which it began above.
    word: AtomicU64,
    clock: Arc<AtomicU64>,
    /// Tells the connection's task to drop it.
    end: Notify,
    /// Whether the server stops: then nobody's leaving is waited for.
    hurries: AtomicBool,
}

impl Line {
    /// A request has arrived.
    pub(super) fn served(&self) {
        self.enter(Phase::Served);
    }

    /// Its response is made.
    pub(super) fn answered(&self) {
        self.enter(Phase::Waiting);
    }

    /// Leaves without waiting for the client.
    pub(super) fn hurry(&self) {
        self.hurries.store(true, Relaxed);
    }

    /// Waits until the connection has to end.
    pub(super) async fn ended(&self) {
        self.end.notified().await;
    }

    fn enter(&self, phase: Phase) {
        self.word.store(self.clock.load(Relaxed) << 2 | phase as u64, Relaxed);
    }

    fn state(&self) -> (Phase, u64) {
        let word = self.word.load(Relaxed);
        let phase = match word & 3 {
            0 => Phase::Waiting,
            1 => Phase::Head,
            2 => Phase::Served,
            _ => Phase::Leaving,
        };
        (phase, word >> 2)
    }

    fn heard(&self) {
        if self.state().0 == Phase::Waiting {
            self.enter(Phase::Head);
        }
    }

    /// A response that goes out bit by bit keeps its connection.
    fn written(&self) {
        if self.state().0 == Phase::Waiting {
            self.enter(Phase::Waiting);
        }
    }
}

/// All connections.
pub(super) struct Watch {
    clock: Arc<AtomicU64>,
    lines: Mutex<HashMap<u64, Arc<Line>>>,
    next: AtomicU64,
    max: usize,
    patience: Patience,
    /// Told when a connection is gone.
    freed: Notify,
    /// Whether the bound was reached since the log last said so.
    full: AtomicBool,
}

/// A connection's place among them, until it is dropped.
pub(super) struct Place {
    watch: Arc<Watch>,
    number: u64,
    line: Arc<Line>,
}

impl Watch {
    pub(super) fn new(max: usize, patience: Patience) -> Arc<Self> {
        Arc::new(Self {
            clock: Arc::new(AtomicU64::new(0)),
            lines: Mutex::new(HashMap::new()),
            next: AtomicU64::new(0),
            max,
            patience,
            freed: Notify::new(),
            full: AtomicBool::new(false),
        })
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<u64, Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.lines().len()
    }

    /// Waits until there is room for one more connection, and makes some if
    /// there are connections that do nothing.
    ///
    /// The wait ends: a connection that is served is so for a bounded time.
    pub(super) async fn room(&self) {
        while self.count() >= self.max {
            self.full.store(true, Relaxed);
            self.make_room();
            _ = tokio::time::timeout(TICK, self.freed.notified()).await;
        }
    }

    /// Ends those that have been without a request for longest.
    pub(super) fn make_room(&self) {
        let now = self.clock.load(Relaxed);
        let lines = self.lines();
        let mut idle: Vec<_> = lines
            .values()
            .map(|line| (line.state(), line))
            .filter(|((phase, since), _)| *phase != Phase::Served && now.saturating_sub(*since) >= FRESH_TICKS)
            .map(|((_, since), line)| (since, line))
            .collect();
        let victims = VICTIMS.min(idle.len());
        if victims > 0 {
            idle.select_nth_unstable_by_key(victims - 1, |(since, _)| *since);
        }
        for (_, line) in &idle[..victims] {
            line.end.notify_one();
        }
    }

    /// Waits until no connection is left.
    pub(super) async fn emptied(&self) {
        while self.count() > 0 {
            _ = tokio::time::timeout(TICK, self.freed.notified()).await;
        }
    }

    /// Ends all connections.
    pub(super) fn end_all(&self) {
        for line in self.lines().values() {
            line.end.notify_one();
        }
    }

    /// Takes a new connection in.
    pub(super) fn place(self: &Arc<Self>) -> Place {
        let line = Arc::new(Line {
            word: AtomicU64::new(0),
            clock: Arc::clone(&self.clock),
            end: Notify::new(),
            hurries: AtomicBool::new(false),
        });
        line.enter(Phase::Waiting);
        let number = self.next.fetch_add(1, Relaxed);
        self.lines().insert(number, Arc::clone(&line));
        Place { watch: Arc::clone(self), number, line }
    }

    /// Walks the connections for ever; drop it to stop.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let now = self.clock.fetch_add(1, Relaxed) + 1;
            if now % TICKS_PER_SECOND == 0 {
                self.end_late();
            }
            if now % (60 * TICKS_PER_SECOND) == 0 && self.full.swap(false, Relaxed) {
                tracing::warn!(max = self.max, "the bound on connections was reached; the idlest made room");
            }
        }
    }

    fn end_late(&self) {
        let ticks = |span: Duration| (span.as_millis() / TICK.as_millis()) as u64;
        let Patience { waiting, head, served } = self.patience;
        let [waiting, head, served] = [waiting, head, served].map(ticks);
        let now = self.clock.load(Relaxed);
        for line in self.lines().values() {
            let (phase, since) = line.state();
            let patience = match phase {
                Phase::Waiting => waiting,
                Phase::Head | Phase::Leaving => head,
                Phase::Served => served,
            };
            if now.saturating_sub(since) > patience {
                line.end.notify_one();
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
        self.watch.lines().remove(&self.number);
        self.watch.freed.notify_one();
    }
}

/// A stream whose connection is watched.
pub(super) struct Watched<S> {
    stream: S,
    line: Arc<Line>,
    /// Whether the client will write no more.
    is_over: bool,
    /// How much was read since the connection leaves.
    unread: usize,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, line: Arc<Line>) -> Self {
        Self { stream, line, is_over: false, unread: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.line.heard();
        } else if polled.is_ready() && buffer.remaining() > 0 {
            self.is_over = true;
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    fn note(&self, polled: Poll<std::io::Result<usize>>) -> Poll<std::io::Result<usize>> {
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.line.written();
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.line.state().0 != Phase::Leaving {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.line.enter(Phase::Leaving);
        }
        let mut unread = [0; UNREAD_BYTES];
        for _ in 0..UNREAD_READS {
            if self.is_over || self.unread > UNREAD_BYTES_MAX || self.line.hurries.load(Relaxed) {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut unread);
            _ = ready!(self.as_mut().poll_read(cx, &mut buffer));
            self.unread += buffer.filled().len();
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(max: usize) -> Arc<Watch> {
        let second = Duration::from_secs(1);
        Watch::new(max, Patience { waiting: 8 * second, head: 2 * second, served: 4 * second })
    }

    fn has_to_end(line: &Line) -> bool {
        let mut ended = Box::pin(line.ended());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        ended.as_mut().poll(&mut cx).is_ready()
    }

    #[test]
    fn each_phase_has_its_patience() {
        for (phase, seconds) in [(Phase::Waiting, 8), (Phase::Head, 2), (Phase::Served, 4), (Phase::Leaving, 2)] {
            let watch = watch(10);
            let place = watch.place();
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
    fn a_head_that_trickles_in_gains_no_time_and_an_answer_that_goes_out_does() {
        let watch = watch(10);
        let place = watch.place();
        let line = place.line();
        line.heard();
        watch.clock.store(7, Relaxed);
        line.heard();
        assert_eq!(line.state(), (Phase::Head, 0));
        line.served();
        line.heard();
        assert_eq!(line.state(), (Phase::Served, 7));
        line.answered();
        watch.clock.store(9, Relaxed);
        line.written();
        assert_eq!(line.state(), (Phase::Waiting, 9));
    }

    #[test]
    fn the_idlest_make_room_and_those_that_are_served_stay() {
        let watch = watch(200);
        let places: Vec<_> = (0..200).map(|_| watch.place()).collect();
        for (at, place) in (0..).zip(&places) {
            watch.clock.store(at / 2, Relaxed);
            if at % 2 == 0 { place.line().served() } else { place.line().answered() }
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
    }

    /// Writes all the time. Counts what is read of it.
    struct Endless(usize);

    impl AsyncRead for Endless {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            self.0 += buffer.remaining();
            buffer.advance(buffer.remaining());
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Endless {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Else the task would not come to hear that the server stops.
    #[test]
    fn a_client_that_writes_all_the_time_gets_a_few_turns_at_once_and_an_end() {
        let watch = watch(10);
        let place = watch.place();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut leaving = Watched::new(Endless(0), Arc::clone(place.line()));
        let mut polls = 0;
        while Pin::new(&mut leaving).poll_shutdown(&mut cx).is_pending() {
            polls += 1;
            assert_eq!(leaving.stream.0, polls * UNREAD_READS * UNREAD_BYTES);
            assert_eq!(place.line().state().0, Phase::Leaving);
        }
        assert_eq!(polls, UNREAD_BYTES_MAX / (UNREAD_READS * UNREAD_BYTES));
        let mut leaving = Watched::new(Endless(0), Arc::clone(place.line()));
        assert!(Pin::new(&mut leaving).poll_shutdown(&mut cx).is_pending());
        place.line().hurry();
        assert!(Pin::new(&mut leaving).poll_shutdown(&mut cx).is_ready());
    }
}
