//! The thread that settles a limiter's lanes with a server.
//!
//! It has one connection, and sends one pipeline at a time; what checks ask
//! meanwhile is the next one. Any error ends the connection: then nobody knows what
//! was carried out, and the [`Settler`] goes on the strict side. The thread
//! connects again after 20 ms, and then later and later, up to 200 ms.

use super::builder::Settings;
use super::connection::{Connector, Masters};
use super::exchange::exchange;
use super::problem::Problem;
use super::status::Shared;
use super::warnings::Warnings;
use crate::key::Keyring;
use crate::lane_key::LaneKeys;
use crate::settler::Settler;
use crate::steps::{Batch, State};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tollgate::Limiter;
use tollgate::cluster::{Link, Operators};

/// How long the thread rests if nobody asks.
const REST: Duration = Duration::from_micros(500);

/// How often it looks whether it is to end while it waits for something else.
const TICK: Duration = Duration::from_millis(5);

const RECONNECT_FIRST: Duration = Duration::from_millis(20);
const RECONNECT_MAX: Duration = Duration::from_millis(200);
/// A connection that held for so long is tried again at once. Others come and go: slots that are being moved, say.
const STEADY: Duration = Duration::from_secs(1);

/// How often a machine shows that it is there, and for how long the others believe it.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);
const NODE_FOR: Duration = Duration::from_secs(10);

/// The most batches in one pipeline, and the most steps in one command.
const BATCHES_MAX: usize = 8;
const STEPS_MAX: usize = crate::SETTLEMENTS_MAX;

/// A name that no other machine has: it counts machines, and says nothing about them.
fn node_name() -> String {
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{random:016x}{:08x}", nanos & 0xffff_ffff)
}

/// A limiter, or what has one.
pub(super) type Held = Arc<dyn AsRef<Limiter> + Send + Sync>;

pub(super) struct Thread {
    limiter: Held,
    lanes: LaneKeys,
    node: String,
    nodes_key: String,
    nodes_at_least: NonZeroU16,
    timeout: Duration,
    connector: Connector,
    settler: Settler,
    shared: Arc<Shared>,
    begin: Instant,
    heartbeat_at: Option<Duration>,
    warnings: Warnings,
    /// The state that was last shown.
    shown: State,
}

impl Thread {
    pub(super) fn new(limiter: Held, settings: Settings, shared: Arc<Shared>) -> Self {
        let key = Operators::of((*limiter).as_ref()).map(|operators| operators.key()).unwrap_or_default();
        let nodes_key = Keyring::of(key).nodes();
        Self {
            lanes: LaneKeys::of((*limiter).as_ref()),
            limiter,
            node: node_name(),
            nodes_key,
            nodes_at_least: settings.nodes_at_least,
            timeout: settings.timeout,
            connector: Connector::new(settings.ways),
            settler: Settler::new(settings.nodes_at_least),
            shared,
            begin: Instant::now(),
            heartbeat_at: None,
            warnings: Warnings::default(),
            shown: State::Lost,
        }
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Connects, serves until something goes wrong, and again, until the engine is dropped.
    pub(super) fn run(&mut self) {
        let limiter = Arc::clone(&self.limiter);
        let Some(link) = Link::of((*limiter).as_ref()) else { return };
        self.adopt(&link);
        let mut pause = RECONNECT_FIRST;
        while !self.ends() {
            let begin = self.now();
            let problem = match self.connect(&link) {
                Ok(mut masters) => match self.serve(&link, &mut masters) {
                    None => self.end(&link, &mut masters).err(),
                    problem => problem,
                },
                Err(problem) => Some(problem),
            };
            let was_lost = self.settler.state() == State::Lost;
            self.settler.lost(&link);
            self.show(problem.as_ref(), was_lost);
            if self.now() - begin > STEADY {
                pause = RECONNECT_FIRST;
            }
            self.rest_for(&link, pause);
            pause = (2 * pause).min(RECONNECT_MAX);
        }
        link.ended(self.settler.nodes());
    }

    /// Takes over the link of the limiter. In a process that was forked while an engine settled that takes as long as
    /// the credit lives that came with the copy: it is the parent's, and nobody's here.
    fn adopt(&self, link: &Link<'_>) {
        if link.is_copied() {
            while self.now() < Link::CREDIT_LIVES && !self.ends() {
                thread::sleep(TICK);
            }
            link.adopt();
        }
        link.lost(self.nodes_at_least);
    }

    fn ends(&self) -> bool {
        self.shared.ends()
    }

    /// Gives back what is not spent, pays what is owed, and leaves: as far as that gets in the time that an answer may
    /// take.
    fn end(&mut self, link: &Link<'_>, masters: &mut Masters) -> Result<(), Problem> {
        self.settler.end(link);
        let until = self.now() + self.timeout;
        while self.now() < until {
            let batches = self.batches(link);
            if batches.is_empty() {
                break;
            }
            self.exchange(link, masters, &batches)?;
        }
        let place = masters.of(&self.nodes_key);
        // A score before all times, and so the first to go.
        redis::pipe()
            .zadd(&self.nodes_key, &self.node, 0)
            .ignore()
            .zrembyscore(&self.nodes_key, "-inf", 0)
            .ignore()
            .exec(&mut masters.at(place).connection)?;
        Ok(())
    }

    /// Rests between two attempts. The ring is emptied all the same, since what is asked twice has one place here.
    fn rest_for(&mut self, link: &Link<'_>, pause: Duration) {
        let until = self.now() + pause;
        while self.now() < until && !self.ends() {
            self.settler.tend(link, self.now());
            thread::sleep(TICK);
        }
    }

    /// A connection that has shown the other machines that this one is there.
    fn connect(&mut self, link: &Link<'_>) -> Result<Masters, Problem> {
        let mut masters = self.connector.connect(self.timeout)?;
        self.heartbeat_at = None;
        self.warnings.connected(&mut masters);
        self.beat(link, &mut masters)?;
        self.settler.connected(link, self.now());
        self.show(None, false);
        Ok(masters)
    }

    /// Settles until something goes wrong; `None` if the engine is dropped.
    fn serve(&mut self, link: &Link<'_>, masters: &mut Masters) -> Option<Problem> {
        while !self.ends() {
            self.settler.tend(link, self.now());
            let batches = self.batches(link);
            let outcome = if batches.is_empty() {
                thread::sleep(REST);
                self.beat(link, masters)
            } else {
                self.exchange(link, masters, &batches).and_then(|()| self.beat(link, masters))
            };
            if let Err(problem) = outcome {
                return Some(problem);
            }
            if self.shown != self.settler.state() {
                self.show(None, false);
            }
        }
        None
    }

    /// What is to be sent now.
    fn batches(&mut self, link: &Link<'_>) -> Vec<Batch> {
        (0..BATCHES_MAX).map_while(|_| self.settler.next_batch(link, self.now(), STEPS_MAX)).collect()
    }

    /// Sends batches, and applies what comes back.
    fn exchange(&mut self, link: &Link<'_>, masters: &mut Masters, batches: &[Batch]) -> Result<(), Problem> {
        let steps: Vec<_> = batches.iter().flat_map(|batch| &batch.steps).collect();
        let sent = Instant::now();
        let replies = exchange(masters, &self.lanes, &steps)?;
        let round_trip = sent.elapsed();
        self.settler.set_round_trip(round_trip);
        self.warnings.round_trip(round_trip);
        self.shared.show(self.settler.state(), |status| status.round_trips.add(round_trip));
        let mut replies = replies.as_slice();
        for batch in batches {
            // There is one for each step.
            let (of_batch, rest) = replies.split_at(batch.steps.len());
            self.settler.answered(link, self.now(), batch.number, of_batch);
            replies = rest;
        }
        Ok(())
    }

    /// Shows the other machines that this one is there, and counts them, once in a while.
    fn beat(&mut self, link: &Link<'_>, masters: &mut Masters) -> Result<(), Problem> {
        let now = self.now();
        if self.heartbeat_at.is_some_and(|last| now - last < HEARTBEAT_EVERY) {
            return Ok(());
        }
        self.heartbeat_at = Some(now);
        let place = masters.of(&self.nodes_key);
        for (_, ready) in masters.all().enumerate().filter(|(other, _)| *other != place) {
            // One that nobody asks about anything is lost all the same if it does not answer.
            redis::cmd("PING").exec(&mut ready.connection)?;
        }
        let connection = &mut masters.at(place).connection;
        // The server's clock: no machine's is compared with another's.
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(connection)?;
        self.warnings.clock(seconds.saturating_mul(1_000_000).saturating_add(micros), self.now());
        let gone = seconds - NODE_FOR.as_secs() as i64;
        let (count,): (u64,) = redis::pipe()
            .zadd(&self.nodes_key, &self.node, seconds)
            .ignore()
            .zrembyscore(&self.nodes_key, "-inf", gone)
            .ignore()
            .zcard(&self.nodes_key)
            .query(connection)?;
        let nodes = u16::try_from(count).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MAX);
        self.settler.set_nodes(nodes.max(self.nodes_at_least));
        let warnings = self.warnings.all(&link.status().lanes);
        self.shared.show(self.settler.state(), |status| {
            status.warnings = warnings;
            status.nodes_seen = nodes.get();
        });
        self.show(None, false);
        Ok(())
    }

    /// Shows how it goes. A problem counts as a loss, unless the server was lost before.
    fn show(&mut self, problem: Option<&Problem>, was_lost: bool) {
        let state = self.settler.state();
        self.shown = state;
        self.shared.show(state, |status| {
            status.nodes = self.settler.nodes();
            status.round_trip = self.settler.round_trip();
            status.counts = self.settler.counts();
            status.out = self.settler.out();
            if let Some(problem) = problem {
                status.last_problem = Some(problem.to_string());
                if !was_lost {
                    status.losses.count(problem.reason());
                }
            }
        });
    }
}
