//! The thread that settles a limiter's lanes with a server.
//!
//! It has one connection, and sends one pipeline at a time; what checks ask
//! meanwhile is the next one. Any error ends the connection: then nobody knows what
//! was carried out, and the [`Settler`] goes on the strict side. The thread
//! connects again after 20 ms, and then later and later, up to 200 ms.

use crate::lane_key::LaneKeys;
use crate::settler::Settler;
use crate::steps::{Batch, Counts, State, Step, StepReply};
use crate::{NODES_KEY, ReplyError, Scripts, Settled, Settlement};
use redis::{Client, Connection, Pipeline, RedisError, RedisResult, Value};
use std::fmt;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tollgate::Limiter;
use tollgate::cluster::Link;

/// How long an answer may take, unless [`EngineBuilder::timeout`] says otherwise.
const TIMEOUT: Duration = Duration::from_millis(200);
/// A shorter one takes a busy server for a lost one.
const TIMEOUT_MIN: Duration = Duration::from_millis(50);

/// How long the thread rests if nobody asks.
const REST: Duration = Duration::from_micros(500);

const RECONNECT_FIRST: Duration = Duration::from_millis(20);
const RECONNECT_MAX: Duration = Duration::from_millis(200);

/// How often a machine shows that it is there, and for how long the others believe it.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(1);
const NODE_FOR: Duration = Duration::from_secs(10);

/// The most batches in one pipeline, and the most steps in one command.
const BATCHES_MAX: usize = 8;
const STEPS_MAX: usize = crate::SETTLEMENTS_MAX;

/// How a machine settles with a server.
#[derive(Clone, Debug)]
#[must_use]
pub struct EngineBuilder {
    client: Client,
    nodes_at_least: NonZeroU16,
    timeout: Duration,
}

/// The engine could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum EngineError {
    /// The URL is not one of a server.
    Url {
        /// What is wrong with it.
        problem: String,
    },
    /// The limiter was built without `cluster(..)`, so no lane is shared.
    NotClustered,
    /// The time-out is too short.
    Timeout {
        /// As given.
        timeout: Duration,
    },
    /// The system refused a thread.
    Thread {
        /// Why.
        problem: std::io::Error,
    },
}

impl fmt::Display for EngineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { problem } => write!(f, "{problem}; write redis://host:port, or redis+unix:///path"),
            Self::NotClustered => {
                f.write_str("the limiter shares no lanes; build it with cluster(..), and the key of the keyring")
            }
            Self::Timeout { timeout } => write!(
                f,
                "a time-out of {timeout:?} takes a busy server for a lost one; allowed: {TIMEOUT_MIN:?} or more"
            ),
            Self::Thread { problem } => write!(f, "no thread for the engine: {problem}"),
        }
    }
}

impl std::error::Error for EngineError {}

/// What an engine shows of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Whether the server answers.
    pub state: State,
    /// Since when.
    pub since: SystemTime,
    /// How many machines there are, as far as this one knows.
    pub nodes: NonZeroU16,
    /// How long the last question took.
    pub round_trip: Duration,
    /// What was counted.
    pub counts: Counts,
    /// Why the server was lost the last time.
    pub last_problem: Option<String>,
    /// What an operator should change: the server evicts keys, say.
    pub warnings: Vec<String>,
}

impl EngineBuilder {
    /// A machine that settles with the server at this URL: `redis://[user:password@]host[:port]`, or
    /// `redis+unix:///path`.
    pub fn new(url: &str) -> Result<Self, EngineError> {
        let client = Client::open(url).map_err(|problem| EngineError::Url { problem: problem.to_string() })?;
        Ok(Self { client, nodes_at_least: NonZeroU16::MIN, timeout: TIMEOUT })
    }

    /// How many machines there are at least. More are counted as they come; set it to the usual number, so that a
    /// machine that starts while the server is lost knows its share.
    pub const fn nodes_at_least(mut self, nodes: NonZeroU16) -> Self {
        self.nodes_at_least = nodes;
        self
    }

    /// How long an answer may take, before the server counts as lost. Default: 200 ms.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Starts the thread. Returns at once: the server counts as lost until it has answered.
    pub fn attach(self, limiter: Arc<Limiter>) -> Result<Engine, EngineError> {
        if self.timeout < TIMEOUT_MIN {
            return Err(EngineError::Timeout { timeout: self.timeout });
        }
        Link::of(&limiter).ok_or(EngineError::NotClustered)?.lost(self.nodes_at_least);
        let shared = Arc::new(Shared {
            ends: AtomicBool::new(false),
            status: Mutex::new(Status {
                state: State::Lost,
                since: SystemTime::now(),
                nodes: self.nodes_at_least,
                round_trip: Duration::ZERO,
                counts: Counts::default(),
                last_problem: None,
                warnings: Vec::new(),
            }),
        });
        let settler = Settler::new(self.nodes_at_least);
        let mut thread = Thread {
            lanes: LaneKeys::of(&limiter),
            limiter,
            node: node_name(),
            settings: self,
            settler,
            shared: Arc::clone(&shared),
            begin: Instant::now(),
            heartbeat_at: None,
            shown: State::Lost,
        };
        let handle = thread::Builder::new().name("tollgate-redis".to_owned()).spawn(move || thread.run());
        let handle = handle.map_err(|problem| EngineError::Thread { problem })?;
        Ok(Engine { shared, handle: Some(handle) })
    }
}

/// A running engine. Dropping it ends its thread; checks then take the server for lost within about a second.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<Shared>,
    handle: Option<JoinHandle<()>>,
}

impl Engine {
    /// How it goes.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(handle) = self.handle.take() {
            // It ends after the answer that it waits for, or the time-out.
            let _ = handle.join();
        }
    }
}

#[derive(Debug)]
struct Shared {
    ends: AtomicBool,
    status: Mutex<Status>,
}

/// A name that no other machine has: it counts machines, and says nothing about them.
fn node_name() -> String {
    let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{random:016x}{:08x}", nanos & 0xffff_ffff)
}

struct Thread {
    limiter: Arc<Limiter>,
    lanes: LaneKeys,
    node: String,
    settings: EngineBuilder,
    settler: Settler,
    shared: Arc<Shared>,
    begin: Instant,
    heartbeat_at: Option<Duration>,
    /// The state that was last shown.
    shown: State,
}

/// Why a connection ended.
enum Problem {
    Redis(RedisError),
    Reply(ReplyError),
}

impl From<RedisError> for Problem {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<ReplyError> for Problem {
    fn from(error: ReplyError) -> Self {
        Self::Reply(error)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(error) => error.fmt(f),
            Self::Reply(error) => error.fmt(f),
        }
    }
}

impl Thread {
    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Connects, serves until something goes wrong, and again, until the engine is dropped.
    fn run(&mut self) {
        let limiter = Arc::clone(&self.limiter);
        let Some(link) = Link::of(&limiter) else { return };
        let mut pause = RECONNECT_FIRST;
        while !self.shared.ends.load(Ordering::Relaxed) {
            let problem = match self.connect(&link) {
                Ok((mut connection, scripts)) => {
                    pause = RECONNECT_FIRST;
                    self.serve(&link, &mut connection, &scripts)
                }
                Err(problem) => Some(problem),
            };
            self.settler.lost(&link);
            self.show(problem.map(|problem| problem.to_string()));
            self.rest_for(&link, pause);
            pause = (2 * pause).min(RECONNECT_MAX);
        }
        link.lost(self.settings.nodes_at_least);
    }

    /// Rests between two attempts. The ring is emptied all the same, since what is asked twice has one place here.
    fn rest_for(&mut self, link: &Link<'_>, pause: Duration) {
        let until = self.now() + pause;
        while self.now() < until && !self.shared.ends.load(Ordering::Relaxed) {
            self.settler.tend(link, self.now());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// A connection with the scripts loaded.
    fn connect(&mut self, link: &Link<'_>) -> Result<(Connection, Scripts), Problem> {
        let timeout = self.settings.timeout;
        let mut connection = self.settings.client.get_connection_with_timeout(timeout)?;
        connection.set_read_timeout(Some(timeout))?;
        connection.set_write_timeout(Some(timeout))?;
        let replies: Vec<Value> =
            Scripts::load().iter().map(|command| command.query(&mut connection)).collect::<RedisResult<_>>()?;
        let scripts = Scripts::loaded(&replies)?;
        self.heartbeat_at = None;
        self.beat(&mut connection)?;
        self.warn(&mut connection);
        self.settler.connected(link, self.now());
        self.show(None);
        Ok((connection, scripts))
    }

    /// Settles until something goes wrong; `None` if the engine is dropped.
    fn serve(&mut self, link: &Link<'_>, connection: &mut Connection, scripts: &Scripts) -> Option<Problem> {
        while !self.shared.ends.load(Ordering::Relaxed) {
            self.settler.tend(link, self.now());
            let next = |thread: &mut Self| thread.settler.next_batch(link, thread.now(), STEPS_MAX);
            let batches: Vec<_> = (0..BATCHES_MAX).map_while(|_| next(self)).collect();
            let outcome = if batches.is_empty() {
                thread::sleep(REST);
                self.beat(connection)
            } else {
                self.exchange(link, connection, scripts, &batches).and_then(|()| self.beat(connection))
            };
            if let Err(problem) = outcome {
                return Some(problem);
            }
            if self.shown != self.settler.state() {
                self.show(None);
            }
        }
        None
    }

    /// Sends batches in one pipeline, and applies what comes back.
    fn exchange(
        &mut self,
        link: &Link<'_>,
        connection: &mut Connection,
        scripts: &Scripts,
        batches: &[Batch],
    ) -> Result<(), Problem> {
        let mut pipeline = Pipeline::new();
        let commands: Vec<_> = batches.iter().flat_map(|batch| self.commands(batch)).collect();
        for command in &commands {
            match command {
                Command::Settle(settlements) => match scripts.settle_many(settlements) {
                    Ok(command) => drop(pipeline.add_command(command)),
                    // Checked when the limiter was built: a limit that is out of range is nobody's.
                    Err(error) => return Err(ReplyError::Refused { why: error.to_string() }.into()),
                },
                Command::Forget(key) => drop(pipeline.del(key)),
            }
        }
        let sent = Instant::now();
        let replies: Vec<RedisResult<Value>> = pipeline.ignore_errors().query(connection)?;
        let round_trip = sent.elapsed();
        self.settler.set_round_trip(round_trip);
        let mut of_steps = Vec::new();
        for (command, reply) in commands.iter().zip(replies) {
            match command {
                Command::Settle(settlements) => {
                    let settled = scripts.settled_many(settlements, &reply?)?;
                    of_steps.extend(settled.into_iter().map(|one| one.map_or(StepReply::Refused, StepReply::Done)));
                }
                Command::Forget(_) => {
                    reply?;
                    of_steps.push(StepReply::Done(Settled { granted: 0, debt_ns: 0 }));
                }
            }
        }
        let mut of_steps = of_steps.as_slice();
        for batch in batches {
            let Some((of_batch, rest)) = of_steps.split_at_checked(batch.steps.len()) else {
                return Err(ReplyError::Refused { why: "fewer replies than steps".to_owned() }.into());
            };
            self.settler.answered(link, self.now(), batch.number, of_batch);
            of_steps = rest;
        }
        Ok(())
    }

    /// A batch as commands, in its order.
    fn commands(&self, batch: &Batch) -> Vec<Command> {
        let mut commands = Vec::new();
        for step in &batch.steps {
            let key = step.agent.bucket(self.lanes.of_lane(step.lane));
            match (&step.step, commands.last_mut()) {
                (Step::Settle(settlement), Some(Command::Settle(settlements))) => settlements.push((key, *settlement)),
                (Step::Settle(settlement), _) => commands.push(Command::Settle(vec![(key, *settlement)])),
                (Step::Forget, _) => commands.push(Command::Forget(key)),
            }
        }
        commands
    }

    /// Shows the other machines that this one is there, and counts them, once in a while.
    fn beat(&mut self, connection: &mut Connection) -> Result<(), Problem> {
        let now = self.now();
        if self.heartbeat_at.is_some_and(|last| now - last < HEARTBEAT_EVERY) {
            return Ok(());
        }
        self.heartbeat_at = Some(now);
        // The server's clock: no machine's is compared with another's.
        let (seconds, _): (i64, i64) = redis::cmd("TIME").query(connection)?;
        let gone = seconds - NODE_FOR.as_secs() as i64;
        let (count,): (u64,) = redis::pipe()
            .zadd(NODES_KEY, &self.node, seconds)
            .ignore()
            .zrembyscore(NODES_KEY, "-inf", gone)
            .ignore()
            .zcard(NODES_KEY)
            .query(connection)?;
        let nodes = u16::try_from(count).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MAX);
        self.settler.set_nodes(nodes.max(self.settings.nodes_at_least));
        self.show(None);
        Ok(())
    }

    /// Looks for what an operator should change. A server that does not say is not asked again.
    fn warn(&self, connection: &mut Connection) {
        let about: RedisResult<String> = redis::cmd("INFO").arg("memory").query(connection);
        let policy = about.ok().and_then(|about| {
            let line = about.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"))?.trim().to_owned();
            let limited = about.lines().find_map(|line| line.strip_prefix("maxmemory:"))?.trim() != "0";
            (limited && line != "noeviction").then_some(line)
        });
        let warnings = policy.into_iter().map(|policy| {
            format!("the server evicts keys (maxmemory-policy {policy}), and limits would be forgotten; use noeviction")
        });
        self.shared.status.lock().unwrap_or_else(PoisonError::into_inner).warnings = warnings.collect();
    }

    fn show(&mut self, problem: Option<String>) {
        self.shown = self.settler.state();
        let mut status = self.shared.status.lock().unwrap_or_else(PoisonError::into_inner);
        let state = self.settler.state();
        if status.state != state {
            status.since = SystemTime::now();
        }
        *status = Status {
            state,
            nodes: self.settler.nodes(),
            round_trip: self.settler.round_trip(),
            counts: self.settler.counts(),
            last_problem: problem.or(status.last_problem.take()),
            ..status.clone()
        };
    }
}

enum Command {
    Settle(Vec<(String, Settlement)>),
    Forget(String),
}
