//! Which servers there are, and how a connection to each is made.

use super::error::EngineError;
use super::secret::Secret;
use super::tls::Tls;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};

/// As the connections show in the server's list of clients.
const LIBRARY: (&str, &str) = ("tollgate-redis", env!("CARGO_PKG_VERSION"));

/// Where the servers are, as a program gives it.
#[derive(Clone, Debug)]
pub(super) enum Servers {
    One(Box<Url>),
    Sentinel { sentinels: Vec<Url>, master: String },
    Cluster(Vec<Url>),
}

/// A URL that was understood. Its password is not shown.
#[derive(Clone, Debug)]
pub(super) struct Url {
    /// By which an error names it.
    which: String,
    info: ConnectionInfo,
    is_tls: bool,
}

/// A user of the servers' access lists, and its password.
#[derive(Clone, Debug, Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
}

/// How connections are made: what [`Servers`] comes to with logins and TLS.
#[derive(Clone, Debug)]
pub(super) enum Ways {
    One(Box<ConnectionInfo>),
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        master: String,
        /// To the master, but for its address.
        servers: Box<ConnectionInfo>,
    },
    Cluster(Vec<ConnectionInfo>),
}

impl Url {
    fn parse(which: String, text: &str) -> Result<Self, EngineError> {
        let error = |problem: &str| EngineError::url(&which, problem);
        let Some(url) = redis::parse_redis_url(text) else {
            return Err(error(
                "not the URL of a server; write redis://host:port, rediss://host:port for TLS, or redis+unix:///path",
            ));
        };
        let is_tls = matches!(url.scheme(), "rediss" | "valkeys");
        if is_tls && !cfg!(feature = "tls") {
            return Err(error("rediss:// needs TLS; build tollgate-redis with the feature `tls`"));
        }
        if url.fragment().is_some() {
            return Err(error("a URL ends before its #; to believe a server of your own, give its CA to Tls::ca(..)"));
        }
        let info = url.into_connection_info().map_err(|problem| error(&problem.to_string()))?;
        let redis = info.redis_settings().clone().set_lib_name(LIBRARY.0, LIBRARY.1);
        Ok(Self { which, info: info.set_redis_settings(redis), is_tls })
    }

    /// The connection, with what is given apart from the URL.
    fn way(&self, login: &Login, tls: Option<&Tls>) -> Result<ConnectionInfo, EngineError> {
        let redis = self.info.redis_settings();
        let is_twice = redis.username().is_some() && login.user.is_some()
            || redis.password().is_some() && login.password.is_some();
        if is_twice {
            let which = &self.which;
            return Err(EngineError::login(format!(
                "{which} has a user or a password, and one is given apart from it"
            )));
        }
        let info = login.apply(self.info.clone());
        if info.redis_settings().username().is_some() && info.redis_settings().password().is_none() {
            return Err(EngineError::login(format!("{}: a user needs a password", self.which)));
        }
        match info.addr().clone() {
            ConnectionAddr::TcpTls { host, port, .. } => tls.unwrap_or(&Tls::new()).apply(host, port, info),
            _ if tls.is_some() => Err(EngineError::tls(format!(
                "TLS is set, and {} does not use it; write rediss:// instead of redis://",
                self.which
            ))),
            _ => Ok(info),
        }
    }
}

impl Login {
    pub(super) fn check(&self, whose: &str) -> Result<(), EngineError> {
        let is_empty = |text: Option<&str>, what: &str| {
            text.is_some_and(str::is_empty).then(|| format!("{whose} {what} is empty"))
        };
        let problem = is_empty(self.user.as_deref(), "user")
            .or_else(|| is_empty(self.password.as_ref().map(|password| password.0.as_str()), "password"));
        problem.map_or(Ok(()), |problem| Err(EngineError::login(problem)))
    }

    fn apply(&self, info: ConnectionInfo) -> ConnectionInfo {
        let mut redis = info.redis_settings().clone();
        if let Some(user) = &self.user {
            redis = redis.set_username(user);
        }
        if let Some(password) = &self.password {
            redis = redis.set_password(&password.0);
        }
        info.set_redis_settings(redis)
    }
}

/// All URLs of a list, each under its number in errors.
fn all<U: AsRef<str>>(what: &str, urls: impl IntoIterator<Item = U>) -> Result<Vec<Url>, EngineError> {
    let of = |(index, url): (usize, U)| Url::parse(format!("{what} {}", index + 1), url.as_ref());
    let urls: Vec<_> = urls.into_iter().enumerate().map(of).collect::<Result<_, _>>()?;
    let Some(first) = urls.first() else {
        return Err(EngineError::servers(format!("there is no {what}; name one at least, better three")));
    };
    if let Some(other) = urls.iter().find(|url| url.is_tls != first.is_tls) {
        let (first, other) = (&first.which, &other.which);
        return Err(EngineError::servers(format!("{first} and {other}: write rediss:// in both, or redis:// in both")));
    }
    Ok(urls)
}

impl Servers {
    pub(super) fn one(url: &str) -> Result<Self, EngineError> {
        Url::parse("the server's URL".to_owned(), url).map(Box::new).map(Self::One)
    }

    pub(super) fn sentinel<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        master: String,
    ) -> Result<Self, EngineError> {
        if master.is_empty() {
            return Err(EngineError::servers("the master has no name; it is the one in `sentinel monitor NAME ...`"));
        }
        let sentinels = all("sentinel", urls)?;
        if let Some(url) = sentinels.iter().find(|url| url.info.redis_settings().db() != 0) {
            return Err(EngineError::url(&url.which, "sentinels have no databases; leave out what follows the port"));
        }
        Ok(Self::Sentinel { sentinels, master })
    }

    pub(super) fn cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, EngineError> {
        let urls = all("server", urls)?;
        for Url { which, info, .. } in &urls {
            if info.redis_settings().db() != 0 {
                return Err(EngineError::url(which, "a cluster has no databases; leave out what follows the port"));
            }
            if matches!(info.addr(), ConnectionAddr::Unix(_)) {
                return Err(EngineError::url(
                    which,
                    "servers of a cluster have a host and a port; write redis://host:port",
                ));
            }
            let login = |info: &ConnectionInfo| {
                let redis = info.redis_settings();
                (redis.username().map(str::to_owned), redis.password().map(str::to_owned))
            };
            if login(info) != login(&urls[0].info) {
                return Err(EngineError::login(format!(
                    "{which}: all servers of a cluster have the same user and password"
                )));
            }
        }
        Ok(Self::Cluster(urls))
    }

    /// How connections are made. `login` is for the servers, `of_sentinels` for those who say where they are.
    pub(super) fn ways(&self, login: &Login, of_sentinels: &Login, tls: Option<&Tls>) -> Result<Ways, EngineError> {
        login.check("the")?;
        of_sentinels.check("the sentinels'")?;
        let has_sentinels = matches!(self, Self::Sentinel { .. });
        if !has_sentinels && (of_sentinels.user.is_some() || of_sentinels.password.is_some()) {
            return Err(EngineError::login("a password for sentinels, and there are none; give it as the servers'"));
        }
        match self {
            Self::One(url) => url.way(login, tls).map(Box::new).map(Ways::One),
            Self::Cluster(urls) => {
                urls.iter().map(|url| url.way(login, tls)).collect::<Result<_, _>>().map(Ways::Cluster)
            }
            Self::Sentinel { sentinels, master } => {
                let ways: Vec<_> = sentinels.iter().map(|url| url.way(of_sentinels, tls)).collect::<Result<_, _>>()?;
                // The servers are reached as their sentinels are, with a login of their own.
                let Some(first) = ways.first().cloned() else { return Err(EngineError::servers("no sentinels")) };
                let bare = redis::RedisConnectionInfo::default().set_lib_name(LIBRARY.0, LIBRARY.1);
                let servers = login.apply(first.set_redis_settings(bare));
                if login.user.is_some() && login.password.is_none() {
                    return Err(EngineError::login("the servers' user needs a password"));
                }
                Ok(Ways::Sentinel { sentinels: ways, master: master.clone(), servers: Box::new(servers) })
            }
        }
    }
}

/// The same connection, to another address.
pub(super) fn at(info: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let address = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(address)
}
