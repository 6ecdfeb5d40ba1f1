//! The table `[cluster]`: the store through which machines share lanes, which lanes, and how.
//!
//! What is secret stands elsewhere, `"env:NAME"` or `"file:/path"`, and is read at once: so a file is valid, or says
//! where it is not. Which lanes can be shared depends on the policy, so that is read too.

pub(crate) mod lanes;

pub use lanes::{OwnLane, SharedLane};

use super::entry::{Entry, Section, Value};
use lanes::{LaneTable, Pattern};
use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;
use tollgate::cluster::{Cluster, ClusterLane, WhenLost};
use tollgate::{ConfigError, Policy};
use tollgate_redis::{EngineBuilder, Keyring, Tls};

/// How this machine shares lanes with others.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterSettings {
    /// Where the store is.
    pub store: Store,
    /// The same on every machine: the store knows agents by hashes with it.
    pub secret: Secret,
    /// The store's user; `None` for its default one.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// The user on the sentinels, if they have one.
    pub sentinel_user: Option<String>,
    /// The password on the sentinels.
    pub sentinel_password: Option<Secret>,
    /// For URLs that begin with `rediss://`.
    pub tls: TlsSettings,
    /// How many machines there are at least.
    pub nodes: NonZeroU16,
    /// How long an answer of the store may take.
    pub timeout: Duration,
    /// The lanes that are shared.
    pub lanes: Vec<SharedLane>,
    /// The other lanes, which each machine keeps for itself.
    pub own: Vec<OwnLane>,
}

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Store {
    /// One server, by its URL.
    One(String),
    /// The master of this name, which the sentinels know.
    Sentinels {
        /// Their URLs.
        sentinels: Vec<String>,
        /// The master's name.
        master: String,
    },
    /// A cluster, by the URLs of some of its nodes.
    Cluster(Vec<String>),
}

/// What a connection over TLS needs, as PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsSettings {
    /// Who signed the store's certificate; `None` for the system's list.
    pub ca: Option<String>,
    /// This machine's certificate and its key, if the store asks for one.
    pub client: Option<(String, Secret)>,
}

/// What must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// These bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Does not show it.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What a secret looks like in the file, for errors.
const SECRET: &str = "\"env:NAME\", a variable of the environment, or \"file:/path\"";
/// The longest time-out, and the shortest, below which a busy store is taken for a lost one.
const TIMEOUT_MS: (u64, u64) = (50, 1_000);
/// The longest that a check of an exact lane may wait for the store.
const WAIT_MS_MAX: u64 = 1_000;

const SLACK_PERCENT: u8 = 10;
const TIMEOUT: Duration = Duration::from_millis(200);
const WAIT: Duration = Duration::from_millis(5);

/// The keys of `[cluster]`; a test checks that each is read.
pub(crate) const CLUSTER_KEYS: [&str; 19] = [
    "redis",
    "sentinels",
    "master",
    "cluster",
    "secret",
    "user",
    "password",
    "sentinel_user",
    "sentinel_password",
    "tls_ca",
    "tls_certificate",
    "tls_key",
    "slack",
    "nodes",
    "timeout",
    "when_lost",
    "wait",
    "lanes",
    "lane",
];

/// What the table has, as it is read.
#[derive(Default)]
struct Read {
    redis: Option<String>,
    sentinels: Option<Vec<String>>,
    master: Option<String>,
    cluster: Option<Vec<String>>,
    secret: Option<Secret>,
    user: Option<String>,
    password: Option<Secret>,
    sentinel_user: Option<String>,
    sentinel_password: Option<Secret>,
    tls_ca: Option<String>,
    tls_certificate: Option<String>,
    tls_key: Option<String>,
    nodes: Option<NonZeroU16>,
    timeout: Option<Duration>,
    defaults: LaneTable,
    patterns: Option<Vec<Pattern>>,
    lanes: Vec<LaneTable>,
}

impl ClusterSettings {
    /// Shares every lane of a policy that can be shared, through the server at a URL.
    ///
    /// # Errors
    ///
    /// If the secret is too short, or no lane can be shared.
    pub fn new(policy: &Policy, url: &str, secret: Secret) -> Result<Self, String> {
        check_url(url)?;
        Keyring::new(secret.bytes()).map_err(|error| error.to_string())?;
        let (lanes, own) = lanes::resolve(policy, &LaneTable::default(), None, &[]).map_err(|(_, problem)| problem)?;
        Ok(Self {
            store: Store::One(url.to_owned()),
            secret,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            tls: TlsSettings::default(),
            nodes: NonZeroU16::MIN,
            timeout: TIMEOUT,
            lanes,
            own,
        })
    }

    /// Reads the table.
    pub(super) fn read(section: &Section<'_>, value: &Value<'_>) -> Result<Self, ConfigError> {
        let mut read = Read::default();
        for (name, value) in section.entries(value, &CLUSTER_KEYS)? {
            read.set(&Entry { section, name, value })?;
        }
        read.end(section, value)
    }

    /// How the core shares lanes.
    pub(crate) fn cluster(&self) -> Result<Cluster, String> {
        let keyring = Keyring::new(self.secret.bytes()).map_err(|error| error.to_string())?;
        let mut cluster = Cluster::new(keyring.key());
        for lane in &self.lanes {
            let own = ClusterLane::new().slack_percent(lane.slack_percent).when_lost(lane.when_lost);
            cluster = cluster.lane(&lane.name, if lane.is_exact { own.exact() } else { own });
        }
        Ok(self.own.iter().fold(cluster, |cluster, lane| cluster.except(&lane.name)))
    }

    /// The engine that settles with the store.
    pub(crate) fn engine(&self) -> Result<EngineBuilder, String> {
        let builder = match &self.store {
            Store::One(url) => EngineBuilder::new(url),
            Store::Sentinels { sentinels, master } => EngineBuilder::sentinel(sentinels, master),
            Store::Cluster(urls) => EngineBuilder::cluster(urls),
        };
        let mut builder = builder.map_err(|error| error.to_string())?.nodes_at_least(self.nodes).timeout(self.timeout);
        let text = |secret: &Secret| {
            String::from_utf8(secret.0.clone()).map_err(|_| "a password or key is not text in UTF-8".to_owned())
        };
        if let Some(user) = &self.user {
            builder = builder.user(user);
        }
        if let Some(password) = &self.password {
            builder = builder.password(text(password)?);
        }
        if let Some(user) = &self.sentinel_user {
            builder = builder.sentinel_user(user);
        }
        if let Some(password) = &self.sentinel_password {
            builder = builder.sentinel_password(text(password)?);
        }
        if self.tls != TlsSettings::default() {
            let mut tls = Tls::new();
            if let Some(ca) = &self.tls.ca {
                tls = tls.ca(ca);
            }
            if let Some((certificate, key)) = &self.tls.client {
                tls = tls.client(certificate, text(key)?);
            }
            builder = builder.tls(tls);
        }
        Ok(builder)
    }

    /// How a lane is shared, if it is.
    pub(crate) fn lane(&self, name: &str) -> Option<&SharedLane> {
        self.lanes.iter().find(|lane| lane.name == name)
    }
}

/// Where the store is, in words, without what is secret.
impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(url) => f.write_str(url),
            Self::Sentinels { sentinels, master } => write!(f, "{master} of the sentinels {}", sentinels.join(", ")),
            Self::Cluster(urls) => write!(f, "the cluster {}", urls.join(", ")),
        }
    }
}

impl Read {
    fn set(&mut self, entry: &Entry<'_, '_>) -> Result<(), ConfigError> {
        match entry.name {
            "redis" => self.redis = Some(url(entry, entry.string("the server's URL, such as \"redis://10.0.0.5\"")?)?),
            "sentinels" => self.sentinels = Some(urls(entry)?),
            "master" => self.master = Some(entry.string("the name by which the sentinels know it")?.to_owned()),
            "cluster" => self.cluster = Some(urls(entry)?),
            "secret" => {
                let secret = secret(entry)?;
                Keyring::new(secret.bytes()).map_err(|error| entry.error(error.to_string()))?;
                self.secret = Some(secret);
            }
            "user" => self.user = Some(text_or_secret(entry)?),
            "password" => self.password = Some(secret(entry)?),
            "sentinel_user" => self.sentinel_user = Some(text_or_secret(entry)?),
            "sentinel_password" => self.sentinel_password = Some(secret(entry)?),
            "tls_ca" => self.tls_ca = Some(pem(entry)?),
            "tls_certificate" => self.tls_certificate = Some(pem(entry)?),
            "tls_key" => self.tls_key = Some(pem(entry)?),
            "nodes" => {
                self.nodes = u16::try_from(entry.integer(1..=u64::from(u16::MAX))?).ok().and_then(NonZeroU16::new)
            }
            "timeout" => self.timeout = Some(entry.milliseconds(TIMEOUT_MS.0, TIMEOUT_MS.1)?),
            "lanes" => self.patterns = Some(lanes::patterns(entry)?),
            "lane" => self.lanes = lanes::tables(entry)?,
            _ => return self.defaults.set(entry),
        }
        Ok(())
    }

    /// What the keys mean together.
    fn end(self, section: &Section<'_>, value: &Value<'_>) -> Result<ClusterSettings, ConfigError> {
        let error = |problem: String| ConfigError::new(section.text, value.span(), format!("cluster: {problem}"));
        let store = match (self.redis, self.sentinels, self.cluster) {
            (Some(url), None, None) => Store::One(url),
            (None, Some(sentinels), None) => {
                let master = self.master.clone().ok_or_else(|| {
                    error("sentinels know many masters by name; add master = \"...\", the one to use".to_owned())
                })?;
                Store::Sentinels { sentinels, master }
            }
            (None, None, Some(urls)) => Store::Cluster(urls),
            (None, None, None) => {
                return Err(error(
                    "no store is named; add redis = \"redis://...\", or sentinels and master, or cluster".to_owned(),
                ));
            }
            _ => return Err(error("there is one store; keep one of redis, sentinels and cluster".to_owned())),
        };
        if self.master.is_some() && !matches!(store, Store::Sentinels { .. }) {
            return Err(error("master is a name that sentinels know; add sentinels = [...]".to_owned()));
        }
        let client = match (self.tls_certificate, self.tls_key) {
            (Some(certificate), Some(key)) => Some((certificate, Secret::new(key))),
            (None, None) => None,
            _ => {
                let problem = "a certificate needs its key; set tls_certificate and tls_key, or neither";
                return Err(error(problem.to_owned()));
            }
        };
        let secret = self.secret.ok_or_else(|| {
            error(format!("add secret = {SECRET}: 16 random bytes or more, the same on every machine"))
        })?;
        let policy = Policy::from_toml(section.text)?;
        let (lanes, own) = lanes::resolve(&policy, &self.defaults, self.patterns.as_deref(), &self.lanes)
            .map_err(|(at, problem)| ConfigError::new(section.text, at.unwrap_or(value.span()), problem))?;
        let settings = ClusterSettings {
            store,
            secret,
            user: self.user,
            password: self.password,
            sentinel_user: self.sentinel_user,
            sentinel_password: self.sentinel_password,
            tls: TlsSettings { ca: self.tls_ca, client },
            nodes: self.nodes.unwrap_or(NonZeroU16::MIN),
            timeout: self.timeout.unwrap_or(TIMEOUT),
            lanes,
            own,
        };
        let checked = settings.engine().and_then(|engine| engine.check().map_err(|problem| problem.to_string()));
        checked
            .map(|()| settings)
            .map_err(|problem| ConfigError::new(section.text, value.span(), format!("cluster: {problem}")))
    }
}

/// A secret from where the file says that it is.
fn secret(entry: &Entry<'_, '_>) -> Result<Secret, ConfigError> {
    let text = entry.string(SECRET)?;
    let bytes = match (text.strip_prefix("env:"), text.strip_prefix("file:")) {
        (Some(name), _) => variable(name).map_err(|problem| entry.error(problem))?,
        (_, Some(path)) if !path.is_empty() => {
            let path = entry.section.directory.join(path);
            let text = crate::source::read_text(&path);
            let text = text.map_err(|error| entry.error(format!("cannot read {}: {error}", path.display())))?;
            text.trim().to_owned().into_bytes()
        }
        // It may be the secret itself, so it is not shown.
        _ => {
            let problem = format!("what is secret does not belong into this file; give {SECRET}");
            return Err(entry.error_about_secret(&problem));
        }
    };
    Ok(Secret(bytes))
}

/// The text of a PEM file.
fn pem(entry: &Entry<'_, '_>) -> Result<String, ConfigError> {
    let path = entry.path()?;
    let text = crate::source::read_text(&path);
    let text = text.map_err(|error| entry.error(format!("cannot read {}: {error}", path.display())))?;
    match text.contains("-----BEGIN ") {
        true => Ok(text),
        false => Err(entry.error(format!("{} is not PEM: it has no line -----BEGIN ...", path.display()))),
    }
}

/// A text, or a secret that is one.
fn text_or_secret(entry: &Entry<'_, '_>) -> Result<String, ConfigError> {
    let text = entry.string("a name")?;
    if !text.starts_with("env:") && !text.starts_with("file:") {
        return Ok(text.to_owned());
    }
    String::from_utf8(secret(entry)?.0).map_err(|_| entry.error("it is not text".to_owned()))
}

/// A variable of the environment.
fn variable(name: &str) -> Result<Vec<u8>, String> {
    use std::os::unix::ffi::OsStringExt as _;
    match std::env::var_os(name) {
        _ if name.is_empty() => Err(format!("it names no variable; give {SECRET}")),
        Some(value) => Ok(value.into_vec()),
        None => Err(format!("the environment has no {name}; set it, or give \"file:/path\"")),
    }
}

fn url(entry: &Entry<'_, '_>, text: &str) -> Result<String, ConfigError> {
    check_url(text).map(|()| text.to_owned()).map_err(|problem| entry.error_about_secret(&problem))
}

/// Refuses what is not a store's URL, and one with a password.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    let authority = url.split("://").nth(1).unwrap_or_default().split(['/', '?']).next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    // It is not shown.
    if user.contains(':') || url.contains("pass=") {
        return Err(format!("a password does not belong into a URL; set password = {SECRET} in [cluster]"));
    }
    EngineBuilder::new(url).map(drop).map_err(|error| error.to_string())
}

fn urls(entry: &Entry<'_, '_>) -> Result<Vec<String>, ConfigError> {
    let wanted = "a list of URLs, such as [\"redis://10.0.0.5\", \"redis://10.0.0.6\"]";
    let urls = entry.value.get_ref().as_array().filter(|urls| !urls.is_empty()).ok_or_else(|| entry.wrong(wanted))?;
    let each = |value: &Value<'_>| {
        let entry = Entry { value, ..*entry };
        url(&entry, entry.string(wanted)?)
    };
    urls.iter().map(each).collect()
}

/// What a machine does while the store is lost, by its name.
fn when_lost(entry: &Entry<'_, '_>) -> Result<WhenLost, ConfigError> {
    let wanted = "\"share\", \"closed\", \"open\" or \"alone\"";
    match entry.string(wanted)? {
        "share" => Ok(WhenLost::Share),
        "closed" => Ok(WhenLost::Closed),
        "open" => Ok(WhenLost::Open),
        "alone" => Ok(WhenLost::Alone),
        other => Err(entry.error(format!("{other:?}; give {wanted}"))),
    }
}

#[cfg(test)]
mod tests;
