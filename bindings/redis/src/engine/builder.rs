//! How a machine settles with servers: what a program, a configuration file or a binding fills in.

use super::Engine;
use super::decisions::Carrier;
use super::error::EngineError;
use super::secret::Secret;
use super::servers::{Login, Servers, Ways};
use super::status::Shared;
use super::thread::{Held, Thread};
use super::tls::Tls;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tollgate::Limiter;
use tollgate::cluster::Link;

/// How long an answer may take, unless [`EngineBuilder::timeout`] says otherwise.
const TIMEOUT: Duration = Duration::from_millis(200);
/// A shorter one takes a busy server for a lost one.
pub(super) const TIMEOUT_MIN: Duration = Duration::from_millis(50);
/// After about a second checks take the server for lost by themselves.
pub(super) const TIMEOUT_MAX: Duration = Duration::from_secs(1);

/// How a machine settles with servers: where they are, who it is to them, and how long it waits.
///
/// URLs are `redis://[user:password@]host[:port][/database]`, `rediss://` for TLS, or `redis+unix:///path`. User and
/// password may be given apart, as they come from a file or the environment. They are shown nowhere: not by `Debug`,
/// in no error and in no status.
///
/// ```
/// use tollgate_redis::{EngineBuilder, EngineError};
///
/// let one = EngineBuilder::new("redis://10.0.0.5")?.user("tollgate").password("of a file");
/// one.check()?;
/// // They are asked anew for each connection; the first that knows the master counts.
/// let sentinels = ["redis://10.0.0.5:26379", "redis://10.0.0.6:26379", "redis://10.0.0.7:26379"];
/// EngineBuilder::sentinel(sentinels, "main")?.password("of a file").check()?;
///
/// let error = EngineBuilder::new("http://10.0.0.5").unwrap_err();
/// assert!(error.to_string().contains("write redis://host:port"));
/// # Ok::<(), EngineError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct EngineBuilder {
    servers: Servers,
    login: Login,
    of_sentinels: Login,
    tls: Option<Tls>,
    nodes_at_least: NonZeroU16,
    timeout: Duration,
}

/// What the thread needs to know.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) ways: Ways,
    pub(super) nodes_at_least: NonZeroU16,
    pub(super) timeout: Duration,
}

impl EngineBuilder {
    fn of(servers: Servers) -> Self {
        Self {
            servers,
            login: Login::default(),
            of_sentinels: Login::default(),
            tls: None,
            nodes_at_least: NonZeroU16::MIN,
            timeout: TIMEOUT,
        }
    }

    /// A machine that settles with the server at this URL.
    pub fn new(url: &str) -> Result<Self, EngineError> {
        Servers::one(url).map(Self::of)
    }

    /// A machine that settles with the master of this name, which these sentinels know. They are asked anew for each
    /// connection.
    ///
    /// A user and a password in a sentinel's URL are for that sentinel. The servers are reached as the sentinels are:
    /// with TLS if the URLs say `rediss://`.
    pub fn sentinel<U: AsRef<str>>(
        sentinels: impl IntoIterator<Item = U>,
        master: impl Into<String>,
    ) -> Result<Self, EngineError> {
        Servers::sentinel(sentinels, master.into()).map(Self::of)
    }

    /// A machine that settles with a Redis Cluster, of which these are some servers; they say which others there are.
    ///
    /// They have one user and password, in all URLs or apart from them.
    pub fn cluster<U: AsRef<str>>(servers: impl IntoIterator<Item = U>) -> Result<Self, EngineError> {
        Servers::cluster(servers).map(Self::of)
    }

    /// The user on the servers, unless their URL names one. Default: the servers' default user.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.login.user = Some(user.into());
        self
    }

    /// The password on the servers, unless their URL has one.
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.login.password = Some(Secret(password.into()));
        self
    }

    /// The user on the sentinels, unless their URLs name one.
    pub fn sentinel_user(mut self, user: impl Into<String>) -> Self {
        self.of_sentinels.user = Some(user.into());
        self
    }

    /// The password on the sentinels, unless their URLs have one.
    pub fn sentinel_password(mut self, password: impl Into<String>) -> Self {
        self.of_sentinels.password = Some(Secret(password.into()));
        self
    }

    /// Whom to believe and what to show, if the URLs say `rediss://`. Default: the system's certificates, and none.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// How many machines there are at least. More are counted as they come; set it to the usual number, so that a
    /// machine that starts while the server is lost knows its share.
    pub const fn nodes_at_least(mut self, nodes: NonZeroU16) -> Self {
        self.nodes_at_least = nodes;
        self
    }

    /// How long an answer may take, before the server counts as lost. 50 ms to 1 s, default: 200 ms.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether all of this goes together, without starting anything.
    pub fn check(&self) -> Result<(), EngineError> {
        self.settings().map(drop)
    }

    fn settings(&self) -> Result<Settings, EngineError> {
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&self.timeout) {
            return Err(EngineError::Timeout { timeout: self.timeout });
        }
        let ways = self.servers.ways(&self.login, &self.of_sentinels, self.tls.as_ref())?;
        Ok(Settings { ways, nodes_at_least: self.nodes_at_least, timeout: self.timeout })
    }

    /// Starts the thread. Returns at once: the server counts as lost until it has answered.
    ///
    /// A limiter has one engine. In a process that was forked while one ran, this starts another one for the copy of
    /// the limiter, under a name of its own; it waits for about a second first, until the credit has ended that was
    /// copied too.
    pub fn attach<L>(self, limiter: Arc<L>) -> Result<Engine, EngineError>
    where
        L: AsRef<Limiter> + Send + Sync + 'static,
    {
        let settings = self.settings()?;
        let limiter: Held = limiter;
        let link = Link::of((*limiter).as_ref()).ok_or(EngineError::NotClustered)?;
        if !link.is_copied() {
            link.lost(settings.nodes_at_least);
        }
        let shared = Arc::new(Shared::new(settings.nodes_at_least));
        let (timeout, seen) = (settings.timeout, Arc::clone(&shared));
        let mut carrier = Carrier::new(Arc::clone(&limiter), &settings, Arc::clone(&shared));
        let mut thread = Thread::new(Arc::clone(&limiter), settings, Arc::clone(&shared));
        let run = move || seen.watch((*limiter).as_ref(), || thread.run());
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            thread::Builder::new().name(name.to_owned()).spawn(run).map_err(|problem| EngineError::Thread { problem })
        };
        // Dropped if the second thread is refused: then the first one ends too.
        let mut engine = Engine { handles: Vec::new(), timeout, process: std::process::id(), shared };
        engine.handles.push(spawn("tollgate-redis", Box::new(run))?);
        let seen = Arc::clone(&engine.shared);
        let carry = move || seen.watch_decisions(|| carrier.run());
        engine.handles.push(spawn("tollgate-decide", Box::new(carry))?);
        Ok(engine)
    }
}
