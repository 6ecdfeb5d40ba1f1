//! The tables `[server]`, `[shared]`, `[cluster]`, `[envoy]` and `[gate]` of a policy file: where the server
//! listens, what it trusts, how much clients may take, with whom it shares its limiter, and
//! how it answers gateways.

mod cluster;
mod entry;
mod envoy;
mod gate;
mod resp;
mod tls;
mod tokens;

#[cfg(test)]
pub(crate) use cluster::CLUSTER_KEYS;
pub(crate) use cluster::check_url;
pub(crate) use cluster::lanes::matches;
pub use cluster::{ClusterSettings, OwnLane, Secret, SharedLane, Store, TlsSettings};
pub(crate) use entry::check_token;
#[cfg(test)]
pub(crate) use envoy::ENVOY_KEYS;
pub use envoy::{ENVOY_PORT, EnvoySettings};
#[cfg(test)]
pub(crate) use gate::GATE_KEYS;
pub use gate::{AgentSource, GateRoute, GateSettings, OnError, SourceKind};
#[cfg(test)]
pub(crate) use resp::RESP_KEYS;
pub use resp::RespSettings;
pub use tls::TlsFiles;
use tls::TlsKeys;
pub use tokens::{May, NamedToken};

use crate::address::Listen;
use crate::leases::{LEASES_DEFAULT, LEASES_MAX};
use crate::webhook::Url;
use entry::{Entry, Section, TOKEN, Value};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tollgate::bounds::{AGENTS_DEFAULT, AGENTS_MAX, RESERVATIONS_DEFAULT, RESERVATIONS_MAX};
use tollgate::{ConfigError, OnFull};
use tollgate_tower::address::Networks;
use tollgate_tower::{Profile, Style};
use toml::de::DeTable;

/// The default port.
pub const PORT: u16 = 8787;

/// How the server runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Where it listens.
    pub listen: Listen,
    /// Who may use its Unix sockets, as for `chmod`.
    pub listen_mode: u32,
    /// The certificate that it has on its ports; `None` for no TLS.
    pub tls: Option<TlsFiles>,
    /// Host names that it answers to, besides addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Networks,
    /// The directory that keeps what the admin API changes; `None` keeps it in memory.
    pub state: Option<PathBuf>,
    /// The audit directory, where the report is written; `None` writes none.
    pub audit_directory: Option<PathBuf>,
    /// The token of the admin API; `None` generates one at the start.
    pub admin_token: Option<String>,
    /// A token that may check and read, and change nothing.
    pub check_token: Option<String>,
    /// More tokens, each with a name. A reload reads them again.
    pub tokens: Vec<NamedToken>,
    /// Whether `/metrics` needs no token.
    pub open_metrics: bool,
    /// Origins whose pages may use `/v1/`, or `*`.
    pub cors_origins: Vec<String>,
    /// Whether checks need no token; `None`: only on loopback, and without a token for checks.
    pub open_checks: Option<bool>,
    /// How many agents can be active at once.
    pub agents: u64,
    /// Whether the memory of their records is committed at the start.
    pub prefault: bool,
    /// What happens to a new agent when no record is free.
    pub on_full: OnFull,
    /// The slab that this process shares with others; `None` for a limiter of its own.
    pub slab: Option<PathBuf>,
    /// Who may use the slab's file, as for `chmod`.
    pub slab_mode: u32,
    /// Where clients of Redis connect; `None`: nowhere.
    pub resp: Option<RespSettings>,
    /// How machines share lanes; `None` for a limiter of this machine alone.
    pub cluster: Option<ClusterSettings>,
    /// How gateways' questions are answered; `None`: by the client's address, on the lane that they name.
    pub gate: Option<GateSettings>,
    /// Envoy's rate limit service; `None` serves none.
    pub envoy: Option<EnvoySettings>,
    /// How many reservations can be open at once.
    pub reservations: usize,
    /// How many of them one agent may have; `None`: one in 64, but at least 16.
    pub reservations_per_agent: Option<usize>,
    /// How many slots can be leased at once.
    pub leases: usize,
    /// How many of them one agent may have; `None`: one in 64, but at least 16.
    pub leases_per_agent: Option<usize>,
    /// The body of a refusal.
    pub profile: Profile,
    /// The headers that carry limits; `None`: those of the profile.
    pub headers: Option<Style>,
    /// Agents whose remaining tokens are in `/metrics`; no other id is.
    pub metrics_agents: Vec<String>,
    /// Where sustained abuse is posted to.
    pub webhook: Option<Url>,
    /// The key with which events are signed; `None` signs none.
    pub webhook_secret: Option<String>,
    /// The certificates that an `https` webhook is checked against; `None`: those that the system trusts.
    pub webhook_ca: Option<PathBuf>,
    /// The file with a line for every request; `None` writes none.
    pub access_log: Option<PathBuf>,
    /// The file with a line for every change by an operator; `None` keeps the last ones in memory alone.
    pub audit_log: Option<PathBuf>,
    /// How long to wait before an event is sent again; it doubles from one try to the next.
    pub webhook_pause: Duration,
    /// How many connections can be open at once.
    pub max_connections: usize,
    /// How many of them one address may have, unless it is a trusted proxy; `None`: a quarter, on loopback all.
    pub max_connections_per_address: Option<usize>,
    /// How many MiB large bodies and responses may take in all.
    pub max_in_flight_mib: usize,
    /// How long a client may take to send the head of a request, and to close the connection after the last response.
    pub head_timeout: Duration,
    /// How long a client may take to send the body of a request, and to read more of a response.
    pub body_timeout: Duration,
    /// How long a connection may be idle.
    pub idle_timeout: Duration,
    /// How often the records of idle agents are given up, so that counts show recent agents.
    pub sweep_every: Duration,
    /// How long it serves as before at shutdown, while `/readyz` answers 503.
    pub notice: Duration,
    /// How long it keeps serving after that, each response being the last on its connection.
    pub drain: Duration,
    /// How long it waits for requests in flight after that.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: Listen::new(crate::address::DEFAULT, []),
            listen_mode: LISTEN_MODE,
            tls: None,
            hosts: Vec::new(),
            trusted_proxies: Networks::default(),
            state: None,
            audit_directory: None,
            admin_token: None,
            check_token: None,
            tokens: Vec::new(),
            open_metrics: true,
            cors_origins: Vec::new(),
            open_checks: None,
            agents: AGENTS_DEFAULT,
            prefault: false,
            on_full: OnFull::default(),
            slab: None,
            slab_mode: SLAB_MODE,
            resp: None,
            cluster: None,
            gate: None,
            envoy: None,
            reservations: RESERVATIONS_DEFAULT,
            reservations_per_agent: None,
            leases: LEASES_DEFAULT,
            leases_per_agent: None,
            profile: Profile::default(),
            headers: None,
            metrics_agents: Vec::new(),
            webhook: None,
            webhook_secret: None,
            webhook_ca: None,
            access_log: None,
            audit_log: None,
            webhook_pause: Duration::from_secs(1),
            max_connections: 10_000,
            max_connections_per_address: None,
            max_in_flight_mib: 64,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            notice: Duration::from_secs(1),
            drain: Duration::from_secs(1),
            sweep_every: Duration::from_secs(300),
            grace: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// Whether checks need no token.
    #[must_use]
    pub fn checks_are_open(&self) -> bool {
        self.open_checks.unwrap_or(self.listen.is_local() && self.check_token.is_none() && self.tokens.is_empty())
    }

    /// The header style in use.
    #[must_use]
    pub fn style(&self) -> Style {
        self.headers.unwrap_or_else(|| self.profile.style())
    }

    /// Reads the tables `[server]`, `[shared]`, `[cluster]`, `[envoy]` and `[gate]` of a policy file. Relative
    /// paths start from `directory`, the file's own.
    ///
    /// # Errors
    ///
    /// The first mistake: its location, the value, what is allowed.
    pub fn from_toml(text: &str, directory: &Path) -> Result<Self, ConfigError> {
        let table = DeTable::parse(text)
            .map_err(|error| ConfigError::new(text, error.span().unwrap_or_default(), error.message().to_owned()))?;
        let (mut settings, mut tls) = (Self::default(), TlsKeys::default());
        for (name, keys) in [("server", KEYS), ("shared", SHARED_KEYS)] {
            if let Some(value) = table.get_ref().get(name) {
                let section = Section { text, name, directory };
                settings.read(&section, keys, value, &mut tls)?;
                settings.tls = tls.files(&section, value)?.or(settings.tls);
            }
        }
        if let Some(value) = table.get_ref().get("resp") {
            settings.resp = Some(RespSettings::read(&Section { text, name: "resp", directory }, value)?);
        }
        if let Some(value) = table.get_ref().get("cluster") {
            settings.cluster = Some(ClusterSettings::read(&Section { text, name: "cluster", directory }, value)?);
        }
        if let Some(value) = table.get_ref().get("gate") {
            settings.gate = Some(GateSettings::read(&Section { text, name: "gate", directory }, value)?);
        }
        if let Some(value) = table.get_ref().get("envoy") {
            settings.envoy = Some(EnvoySettings::read(&Section { text, name: "envoy", directory }, value)?);
        }
        Ok(settings)
    }

    /// Reads one of the tables.
    fn read(
        &mut self,
        section: &Section<'_>,
        keys: &[&str],
        value: &Value<'_>,
        tls: &mut TlsKeys,
    ) -> Result<(), ConfigError> {
        for (name, value) in section.entries(value, keys)? {
            let entry = Entry { section, name, value };
            match section.name {
                "shared" => self.set_shared(&entry)?,
                _ if tls.set(&entry)? => {}
                _ => self.set(&entry)?,
            }
        }
        Ok(())
    }

    fn set_shared(&mut self, entry: &Entry<'_, '_>) -> Result<(), ConfigError> {
        match entry.name {
            "slab" => self.slab = Some(entry.path()?),
            "mode" => self.slab_mode = entry.mode()?,
            _ => return Err(entry.error("is not known".to_owned())),
        }
        Ok(())
    }

    fn set(&mut self, entry: &Entry<'_, '_>) -> Result<(), ConfigError> {
        match entry.name {
            "listen" => self.listen = entry.listen()?,
            "listen_mode" => self.listen_mode = entry.mode()?,
            "hosts" => self.hosts = entry.hosts()?,
            "trusted_proxies" => self.trusted_proxies = entry.networks()?,
            "state" => self.state = Some(entry.path()?),
            "audit_directory" => self.audit_directory = Some(entry.path()?),
            "admin_token" => self.admin_token = Some(entry.token(entry.string(TOKEN)?)?),
            "admin_token_file" => self.admin_token = Some(entry.token_in_file()?),
            "check_token" => self.check_token = Some(entry.token(entry.string(TOKEN)?)?),
            "check_token_file" => self.check_token = Some(entry.token_in_file()?),
            "tokens" => self.tokens = tokens::tables(entry)?,
            "open_metrics" => self.open_metrics = entry.boolean()?,
            "cors_origins" => self.cors_origins = entry.origins()?,
            "open_checks" => self.open_checks = Some(entry.boolean()?),
            "agents" => self.agents = entry.integer(1..=AGENTS_MAX)?,
            "prefault" => self.prefault = entry.boolean()?,
            "on_full" => self.on_full = entry.on_full()?,
            "reservations" => self.reservations = entry.integer(1..=RESERVATIONS_MAX as u64)? as usize,
            "reservations_per_agent" => {
                self.reservations_per_agent = Some(entry.integer(1..=RESERVATIONS_MAX as u64)? as usize);
            }
            "leases" => self.leases = entry.integer(1..=LEASES_MAX)? as usize,
            "leases_per_agent" => self.leases_per_agent = Some(entry.integer(1..=LEASES_MAX)? as usize),
            "profile" => self.profile = entry.named()?,
            "headers" => self.headers = Some(entry.named()?),
            "metrics_agents" => self.metrics_agents = entry.agents()?,
            "webhook" => self.webhook = Some(entry.named()?),
            "webhook_secret" => self.webhook_secret = Some(entry.token(entry.string(TOKEN)?)?),
            "webhook_secret_file" => self.webhook_secret = Some(entry.token_in_file()?),
            "webhook_ca" => self.webhook_ca = Some(entry.path()?),
            "audit_log" => self.audit_log = Some(entry.path()?),
            "access_log" => self.access_log = Some(entry.path()?),
            "webhook_pause" => self.webhook_pause = entry.duration()?,
            "max_connections" => self.max_connections = entry.integer(1..=1_000_000)? as usize,
            "max_connections_per_address" => {
                self.max_connections_per_address = Some(entry.integer(1..=1_000_000)? as usize);
            }
            // The largest batch needs seven.
            "max_in_flight_mib" => self.max_in_flight_mib = entry.integer(8..=1_048_576)? as usize,
            "head_timeout" => self.head_timeout = entry.duration()?,
            "body_timeout" => self.body_timeout = entry.duration()?,
            "idle_timeout" => self.idle_timeout = entry.duration()?,
            "notice" => self.notice = entry.duration_or_zero()?,
            "drain" => self.drain = entry.duration_or_zero()?,
            "sweep_every" => self.sweep_every = entry.duration()?,
            "grace" => self.grace = entry.duration()?,
            _ => return Err(entry.error("is not known".to_owned())),
        }
        Ok(())
    }
}

/// Of a slab's file, by default: its owner may read and write, and nobody else.
const SLAB_MODE: u32 = 0o600;

/// Of a Unix socket, by default: its owner and its group may connect.
const LISTEN_MODE: u32 = 0o660;

/// The keys of `[shared]`; a test checks that each is read.
pub(crate) const SHARED_KEYS: &[&str] = &["slab", "mode"];

/// The keys of `[server]`; a test checks that `set` knows each.
pub(crate) const KEYS: &[&str] = &[
    "listen",
    "listen_mode",
    "tls_certificate",
    "tls_key",
    "tls_client_ca",
    "hosts",
    "trusted_proxies",
    "state",
    "audit_directory",
    "admin_token",
    "admin_token_file",
    "check_token",
    "check_token_file",
    "tokens",
    "open_metrics",
    "cors_origins",
    "open_checks",
    "agents",
    "prefault",
    "on_full",
    "reservations",
    "reservations_per_agent",
    "leases",
    "leases_per_agent",
    "profile",
    "headers",
    "metrics_agents",
    "webhook",
    "webhook_secret",
    "webhook_secret_file",
    "webhook_ca",
    "access_log",
    "audit_log",
    "webhook_pause",
    "max_connections",
    "max_connections_per_address",
    "max_in_flight_mib",
    "head_timeout",
    "body_timeout",
    "idle_timeout",
    "notice",
    "drain",
    "sweep_every",
    "grace",
];

#[cfg(test)]
mod tests;
