//! The history for pages that open later.
//!
//! Once a second all counts are recorded, and the limiter's events are polled. A
//! page that opens shows the last ten minutes at once, and does not lose them when
//! the connection breaks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tollgate::observe::{Event, EventKind, LaneCounts, Snapshot};
use tollgate::{Limiter, Tick};

/// How often counts are recorded.
const EVERY: Duration = Duration::from_secs(1);

/// How many samples are remembered: ten minutes of them.
const SAMPLES_KEPT: usize = 601;

/// How many events are remembered.
const EVENTS_KEPT: usize = 100;

/// The numbers of all verdicts so far, at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Unix milliseconds.
    pub(crate) at_ms: u64,
    /// Allowed, warned, denied, exempt.
    pub(crate) counts: [u64; 4],
}

/// An event with its wall-clock time.
#[derive(Clone, Debug)]
pub(crate) struct DatedEvent {
    pub(crate) number: u64,
    /// Unix milliseconds.
    pub(crate) at_ms: u64,
    pub(crate) kind: EventKind,
}

/// What open pages wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    /// The number that the next event will have.
    pub(crate) next_event: u64,
    /// Whether the feed has ended.
    pub(crate) is_over: bool,
}

/// The history, and a signal to open pages.
pub(crate) struct Feed {
    limiter: Arc<Limiter>,
    history: Mutex<History>,
    news: watch::Sender<News>,
}

#[derive(Default)]
struct History {
    samples: VecDeque<Sample>,
    events: VecDeque<DatedEvent>,
}

impl Feed {
    pub(crate) fn new(limiter: Arc<Limiter>) -> Arc<Self> {
        let (news, _) = watch::channel(News::default());
        Arc::new(Self { limiter, history: Mutex::default(), news })
    }

    /// Records counts and events until the feed is dropped or ends. Needs a runtime.
    pub(crate) fn start(self: &Arc<Self>) {
        let feed = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            loop {
                ticks.tick().await;
                match feed.upgrade() {
                    Some(feed) if !feed.news.borrow().is_over => feed.record(),
                    _ => break,
                }
            }
        });
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self) {
        let sample = sample(&self.limiter.snapshot());
        let mut history = self.history();
        push(&mut history.samples, sample, SAMPLES_KEPT);
        // The queue of the limiter is bounded; events that come meanwhile wait for the next time.
        for _ in 0..tollgate::bounds::EVENTS_KEPT {
            let Some(event) = self.limiter.poll_event() else { break };
            let event = dated(event, self.limiter.now());
            let next_event = event.number + 1;
            push(&mut history.events, event, EVENTS_KEPT);
            self.news.send_modify(|news| news.next_event = next_event);
        }
    }

    /// The samples recorded after this time, or the present counts if there are none.
    pub(crate) fn samples_after(&self, at_ms: u64, now: &Snapshot) -> Vec<Sample> {
        let history = self.history();
        let mut samples: Vec<_> = history.samples.iter().copied().filter(|sample| sample.at_ms > at_ms).collect();
        drop(history);
        if samples.is_empty() {
            samples.push(sample(now));
        }
        samples
    }

    /// Events from this number on, the oldest first.
    pub(crate) fn events_from(&self, number: u64) -> Vec<DatedEvent> {
        self.history().events.iter().filter(|event| event.number >= number).cloned().collect()
    }

    /// Signals new events, and the end.
    pub(crate) fn news(&self) -> watch::Receiver<News> {
        self.news.subscribe()
    }

    /// Ends the feed, and with it the connections of open pages.
    pub(crate) fn end(&self) {
        self.news.send_modify(|news| news.is_over = true);
    }
}

fn push<T>(queue: &mut VecDeque<T>, value: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(value);
}

pub(crate) fn unix_ms(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn sample(now: &Snapshot) -> Sample {
    let sum = |of: fn(&LaneCounts) -> u64| now.lanes.iter().map(of).fold(0, u64::wrapping_add);
    let counts = [sum(|lane| lane.allowed), sum(|lane| lane.warned), sum(|lane| lane.denied), sum(|lane| lane.exempt)];
    Sample { at_ms: unix_ms(SystemTime::now()), counts }
}

fn dated(event: Event, now: Tick) -> DatedEvent {
    let ago = u64::try_from(now.saturating_since(event.at).as_millis()).unwrap_or(u64::MAX);
    DatedEvent { number: event.number, at_ms: unix_ms(SystemTime::now()).saturating_sub(ago), kind: event.kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::observe::Observe;
    use tollgate::{ManualClock, Policy};

    fn feed() -> (Arc<Feed>, ManualClock) {
        let policy = Policy::builder().lane("api", "1/minute").build().unwrap();
        let clock = ManualClock::new();
        let limiter =
            Limiter::builder(policy).agents(1_000).clock(clock.clone()).observe(Observe::new()).build().unwrap();
        (Feed::new(Arc::new(limiter)), clock)
    }

    #[test]
    fn counts_are_recorded_and_the_oldest_dropped() {
        let (feed, _) = feed();
        let lane = feed.limiter.lane("api").unwrap();
        for _ in 0..SAMPLES_KEPT + 5 {
            feed.record();
        }
        assert_eq!(feed.history().samples.len(), SAMPLES_KEPT);
        for _ in 0..3 {
            let _ = feed.limiter.check("a", lane).unwrap();
        }
        feed.record();
        let now = feed.limiter.snapshot();
        assert_eq!(feed.samples_after(0, &now).last().unwrap().counts, [0, 1, 2, 0]);
        // Nothing newer was recorded, so the present counts are returned.
        assert_eq!(feed.samples_after(u64::MAX, &now).len(), 1);
    }

    #[test]
    fn events_are_recorded_once_and_kept() {
        let (feed, clock) = feed();
        let news = feed.news();
        feed.limiter.exempt("friend").unwrap();
        clock.advance(Duration::from_secs(5));
        let before = unix_ms(SystemTime::now());
        feed.record();
        assert_eq!(*news.borrow(), News { next_event: 1, is_over: false });
        let events = feed.events_from(0);
        assert_eq!(events[0].kind, EventKind::AssignmentChanged { agent: b"friend".to_vec() });
        // It was five seconds ago.
        assert!((before - 5_000..=unix_ms(SystemTime::now()) - 5_000).contains(&events[0].at_ms));
        feed.record();
        assert_eq!((feed.events_from(0).len(), feed.events_from(1).len()), (1, 0));
        for number in 0..2 * EVENTS_KEPT {
            feed.limiter.exempt(format!("friend-{number}")).unwrap();
        }
        feed.record();
        let numbers: Vec<_> = feed.events_from(0).iter().map(|event| event.number).collect();
        assert_eq!((numbers.len(), numbers[0], *numbers.last().unwrap()), (EVENTS_KEPT, 101, 200));
        feed.end();
        assert!(news.borrow().is_over);
    }
}
