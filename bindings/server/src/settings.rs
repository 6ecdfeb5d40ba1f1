//! The table `[server]` of a policy file: where the server listens, whom it
//! trusts, and how much it lets clients take.

use crate::leases::LEASES_DEFAULT;
use crate::webhook::Url;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tollgate::{AGENTS_DEFAULT, AGENTS_MAX, ConfigError, ID_BYTES_MAX, OnFull, RESERVATIONS_DEFAULT, RESERVATIONS_MAX};
use tollgate_tower::{Profile, Style};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

type Value<'t> = Spanned<DeValue<'t>>;

/// The port if nothing is said.
pub const PORT: u16 = 8787;

/// How the server runs; [`Settings::default`] is what it does if nothing is said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Host names it answers to, besides addresses and `localhost`.
    pub hosts: Vec<String>,
    /// The directory that keeps what the admin API changes; `None` keeps it in memory.
    pub state: Option<PathBuf>,
    /// The directory of the audit log, where the status document is written; `None` writes none.
    pub audit_directory: Option<PathBuf>,
    /// The token of the admin API; `None` makes one up at the start.
    pub admin_token: Option<String>,
    /// A token that may check and look, and change nothing.
    pub check_token: Option<String>,
    /// Whether checks need no token; `None`: on loopback, unless there is a check token.
    pub open_checks: Option<bool>,
    /// How many agents are held.
    pub agents: u64,
    /// Whether the memory of their records is taken from the system at the start.
    pub commit_memory: bool,
    /// What happens to a new agent when no record is free.
    pub on_full: OnFull,
    /// How many reservations may be open at once.
    pub reservations: usize,
    /// How many slots may be leased at once.
    pub leases: usize,
    /// What the body of a refusal looks like.
    pub profile: Profile,
    /// Which headers tell limits; `None`: those of the profile.
    pub headers: Option<Style>,
    /// Agents whose remaining tokens `/metrics` tells; no other's id is in it.
    pub metrics_agents: Vec<String>,
    /// Who is told of sustained abuse.
    pub webhook: Option<Url>,
    /// How long is waited before an event is sent again; twice as long from one try to the next.
    pub webhook_pause: Duration,
    /// How many connections are held at once.
    pub max_connections: usize,
    /// How long a client may take to send the head of a request; and to close the connection after the last answer.
    pub head_timeout: Duration,
    /// How long a client may take to send the body of a request.
    pub body_timeout: Duration,
    /// How long a connection is kept without a request.
    pub idle_timeout: Duration,
    /// How long requests in flight are waited for at the end.
    pub grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT),
            hosts: Vec::new(),
            state: None,
            audit_directory: None,
            admin_token: None,
            check_token: None,
            open_checks: None,
            agents: AGENTS_DEFAULT,
            commit_memory: false,
            on_full: OnFull::default(),
            reservations: RESERVATIONS_DEFAULT,
            leases: LEASES_DEFAULT,
            profile: Profile::default(),
            headers: None,
            metrics_agents: Vec::new(),
            webhook: None,
            webhook_pause: Duration::from_secs(1),
            max_connections: 10_000,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            grace: Duration::from_secs(10),
        }
    }
}

impl Settings {
    /// The header style in use.
    #[must_use]
    pub fn style(&self) -> Style {
        self.headers.unwrap_or_else(|| self.profile.style())
    }

    /// Reads the table `[server]` of a policy file. `directory` is the file's,
    /// from which relative paths are taken.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong: where it is, the value, what is allowed.
    pub fn from_toml(text: &str, directory: &Path) -> Result<Self, ConfigError> {
        let table = DeTable::parse(text)
            .map_err(|error| ConfigError::new(text, error.span().unwrap_or_default(), error.message().to_owned()))?;
        let mut settings = Self::default();
        let Some(server) = table.get_ref().get("server") else { return Ok(settings) };
        let Some(server) = server.get_ref().as_table() else {
            return Err(ConfigError::new(text, server.span(), "server is no table; write [server]".to_owned()));
        };
        let mut entries: Vec<_> = server.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let name = key.get_ref().as_ref();
            if !KEYS.contains(&name) {
                let seen: String = name.chars().take(40).collect();
                let message = format!("server has no key {seen:?}; allowed are {}", KEYS.join(", "));
                return Err(ConfigError::new(text, key.span(), message));
            }
            settings.set(&Entry { text, name, value, directory })?;
        }
        Ok(settings)
    }

    fn set(&mut self, entry: &Entry<'_, '_>) -> Result<(), ConfigError> {
        match entry.name {
            "listen" => self.listen = entry.parsed("an address with a port, such as \"127.0.0.1:8787\"")?,
            "hosts" => self.hosts = entry.hosts()?,
            "state" => self.state = Some(entry.path()?),
            "audit_directory" => self.audit_directory = Some(entry.path()?),
            "admin_token" => self.admin_token = Some(entry.token(entry.string(TOKEN)?)?),
            "admin_token_file" => self.admin_token = Some(entry.token_in_file()?),
            "check_token" => self.check_token = Some(entry.token(entry.string(TOKEN)?)?),
            "check_token_file" => self.check_token = Some(entry.token_in_file()?),
            "open_checks" => self.open_checks = Some(entry.boolean()?),
            "agents" => self.agents = entry.integer(1..=AGENTS_MAX)?,
            "commit_memory" => self.commit_memory = entry.boolean()?,
            "on_full" => self.on_full = entry.on_full()?,
            "reservations" => self.reservations = entry.integer(1..=RESERVATIONS_MAX as u64)? as usize,
            "leases" => self.leases = entry.integer(1..=1_000_000)? as usize,
            "profile" => self.profile = entry.named()?,
            "headers" => self.headers = Some(entry.named()?),
            "metrics_agents" => self.metrics_agents = entry.agents()?,
            "webhook" => self.webhook = Some(entry.named()?),
            "webhook_pause" => self.webhook_pause = entry.length()?,
            "max_connections" => self.max_connections = entry.integer(1..=1_000_000)? as usize,
            "head_timeout" => self.head_timeout = entry.length()?,
            "body_timeout" => self.body_timeout = entry.length()?,
            "idle_timeout" => self.idle_timeout = entry.length()?,
            "grace" => self.grace = entry.length()?,
            _ => return Err(entry.error("is not known".to_owned())),
        }
        Ok(())
    }
}

/// The keys of the table; a test holds `set` to know each.
const KEYS: [&str; 24] = [
    "listen",
    "hosts",
    "state",
    "audit_directory",
    "admin_token",
    "admin_token_file",
    "check_token",
    "check_token_file",
    "open_checks",
    "agents",
    "commit_memory",
    "on_full",
    "reservations",
    "leases",
    "profile",
    "headers",
    "metrics_agents",
    "webhook",
    "webhook_pause",
    "max_connections",
    "head_timeout",
    "body_timeout",
    "idle_timeout",
    "grace",
];

/// What a token is, and what it is good for that it is no shorter.
const TOKEN: &str = "a token of 16 to 256 letters, digits and signs, without white space";

/// Whether a text can be a token: long enough not to be guessed, and made of
/// what a header can carry.
///
/// # Errors
///
/// What a token is.
pub(crate) fn check_token(text: &str) -> Result<(), String> {
    if (16..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(format!("a token of {} bytes; give {TOKEN}", text.len()))
}

/// One key of the table with its value.
struct Entry<'a, 't> {
    text: &'a str,
    name: &'a str,
    value: &'a Value<'t>,
    directory: &'a Path,
}

impl Entry<'_, '_> {
    fn error(&self, problem: String) -> ConfigError {
        ConfigError::new(self.text, self.value.span(), format!("server.{}: {problem}", self.name))
    }

    fn wrong(&self, wanted: &str) -> ConfigError {
        let kind = self.value.get_ref().type_str();
        self.error(format!("this is of type {kind}; give {wanted}"))
    }

    fn string(&self, wanted: &str) -> Result<&str, ConfigError> {
        self.value.get_ref().as_str().ok_or_else(|| self.wrong(wanted))
    }

    fn boolean(&self) -> Result<bool, ConfigError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    fn integer(&self, allowed: RangeInclusive<u64>) -> Result<u64, ConfigError> {
        let range = format!("a whole number, {} to {}", allowed.start(), allowed.end());
        let DeValue::Integer(integer) = self.value.get_ref() else { return Err(self.wrong(&range)) };
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        number
            .filter(|number| allowed.contains(number))
            .ok_or_else(|| self.error(format!("out of range; give {range}")))
    }

    fn parsed<T: FromStr>(&self, wanted: &str) -> Result<T, ConfigError> {
        let text = self.string(wanted)?;
        text.parse().map_err(|_| self.error(format!("{text:?} is none; give {wanted}")))
    }

    /// A name whose error says which there are.
    fn named<T: FromStr<Err: std::fmt::Display>>(&self) -> Result<T, ConfigError> {
        self.string("a name")?.parse().map_err(|error: T::Err| self.error(error.to_string()))
    }

    fn on_full(&self) -> Result<OnFull, ConfigError> {
        match self.string("\"evict\" or \"deny\"")? {
            "evict" => Ok(OnFull::Evict),
            "deny" => Ok(OnFull::Deny),
            other => Err(self.error(format!("{other:?}; allowed are \"evict\" and \"deny\""))),
        }
    }

    fn hosts(&self) -> Result<Vec<String>, ConfigError> {
        let wanted = "a list of host names, such as [\"tollgate.example.com\"]";
        let hosts = self.value.get_ref().as_array().ok_or_else(|| self.wrong(wanted))?;
        let host = |value: &Value<'_>| match value.get_ref().as_str() {
            Some(host) if is_host_name(host) => Ok(host.to_ascii_lowercase()),
            _ => Err(self.error(format!("each is a name without scheme and port; give {wanted}"))),
        };
        hosts.iter().map(host).collect()
    }

    fn agents(&self) -> Result<Vec<String>, ConfigError> {
        let wanted = "a list of up to 100 agents' ids";
        let agents = self.value.get_ref().as_array().filter(|agents| agents.len() <= 100);
        let agents = agents.ok_or_else(|| self.wrong(wanted))?;
        let agent = |value: &Value<'_>| match value.get_ref().as_str() {
            Some(agent) if (1..=ID_BYTES_MAX).contains(&agent.len()) => Ok(agent.to_owned()),
            _ => Err(self.error(format!("an id has 1 to {ID_BYTES_MAX} bytes; give {wanted}"))),
        };
        agents.iter().map(agent).collect()
    }

    fn path(&self) -> Result<PathBuf, ConfigError> {
        let path = self.string("a path")?;
        if path.is_empty() { Err(self.error("an empty path".to_owned())) } else { Ok(self.directory.join(path)) }
    }

    fn token(&self, text: &str) -> Result<String, ConfigError> {
        check_token(text).map(|()| text.to_owned()).map_err(|problem| self.error(problem))
    }

    fn token_in_file(&self) -> Result<String, ConfigError> {
        let path = self.path()?;
        let text = std::fs::read_to_string(&path)
            .map_err(|error| self.error(format!("cannot read {}: {error}", path.display())))?;
        self.token(text.trim())
    }

    fn length(&self) -> Result<Duration, ConfigError> {
        let wanted = "a length of time from \"1s\" to \"1h\", such as \"10s\" or \"2min\"";
        let text = self.string(wanted)?;
        let length = length(text).filter(|length| (1..=3_600).contains(&length.as_secs()));
        length.ok_or_else(|| self.error(format!("{text:?}; give {wanted}")))
    }
}

fn is_host_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

/// A whole number of seconds, minutes or hours.
fn length(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let seconds = match unit.trim() {
        "s" => 1,
        "min" => 60,
        "h" => 3_600,
        _ => return None,
    };
    digits.parse::<u32>().ok().map(|count| Duration::from_secs(u64::from(count) * seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Settings, String> {
        Settings::from_toml(text, Path::new("/etc/tollgate")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_without_the_table_has_the_defaults() {
        assert_eq!(read("preset = \"hub\""), Ok(Settings::default()));
        assert_eq!(read("[server]"), Ok(Settings::default()));
    }

    #[test]
    fn every_key_is_known_to_the_reader() {
        for key in KEYS {
            let error = read(&format!("[server]\n{key} = 1e3")).unwrap_err();
            assert!(error.contains(&format!("server.{key}: this is of type float; give ")), "{error}");
        }
    }

    #[test]
    fn values_arrive_where_they_belong() {
        let settings = read(
            r#"
            [server]
            listen = "0.0.0.0:80"
            hosts = ["Limits.Example.COM"]
            state = "state"
            admin_token = "0123456789abcdef"
            open_checks = true
            agents = 1_000
            commit_memory = true
            on_full = "deny"
            profile = "hub"
            max_connections = 50
            head_timeout = "2min"
            "#,
        );
        let expected = Settings {
            listen: "0.0.0.0:80".parse().unwrap(),
            hosts: vec!["limits.example.com".into()],
            state: Some("/etc/tollgate/state".into()),
            admin_token: Some("0123456789abcdef".into()),
            open_checks: Some(true),
            agents: 1_000,
            commit_memory: true,
            on_full: OnFull::Deny,
            profile: Profile::Hub,
            max_connections: 50,
            head_timeout: Duration::from_secs(120),
            ..Settings::default()
        };
        assert_eq!(settings, Ok(expected.clone()));
        assert_eq!(expected.style(), Style::Legacy);
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        for (line, problem) in [
            ("listn = 1", "line 2, column 1: server has no key \"listn\"; allowed are listen, hosts,"),
            ("listen = \"8787\"", "line 2, column 10: server.listen: \"8787\" is none; give an address with a port"),
            ("agents = 0", "out of range; give a whole number, 1 to"),
            ("agents = -1", "out of range"),
            ("commit_memory = 1", "server.commit_memory: this is of type integer; give true or false"),
            ("profile = \"hubs\"", "there is no profile \"hubs\"; there are standard, hub"),
            ("headers = \"draft\"", "there is no header style"),
            ("admin_token = \"short\"", "server.admin_token: a token of 5 bytes; give a token of 16 to 256"),
            ("admin_token = \"0123456789 abcdef\"", "without white space"),
            ("admin_token_file = \"none\"", "cannot read /etc/tollgate/none"),
            ("hosts = [\"https://a\"]", "a name without scheme and port"),
            ("on_full = \"drop\"", "allowed are \"evict\" and \"deny\""),
            ("webhook = \"https://a\"", "let a proxy on this machine speak it"),
            ("metrics_agents = [\"\"]", "1 to 256 bytes"),
            ("grace = \"0s\"", "from \"1s\" to \"1h\""),
            ("grace = \"10 parsecs\"", "such as \"10s\""),
        ] {
            let error = read(&format!("[server]\n{line}")).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
        assert!(read("server = 1").unwrap_err().contains("write [server]"));
        assert!(read("[server").unwrap_err().contains("line 1"));
    }
}
