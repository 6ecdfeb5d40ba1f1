//! The table `[resp]`: where clients of Redis connect.

use super::entry::{Entry, Section, Value};
use crate::address::{self, Address};
use crate::resp::listener::{CLIENTS_MAX, IDLE};
use std::net::SocketAddr;
use std::time::Duration;
use tollgate::ConfigError;

/// How clients of Redis are served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RespSettings {
    /// Where they connect.
    pub listen: SocketAddr,
    /// The dynamic lane that they charge; `None`: the only one.
    pub lane: Option<String>,
    /// How many can be connected at once.
    pub max_connections: usize,
    /// How long a client may be silent.
    pub idle_timeout: Duration,
}

/// The keys of `[resp]`; a test checks that each is read.
pub(crate) const RESP_KEYS: &[&str] = &["listen", "lane", "max_connections", "idle_timeout"];

impl RespSettings {
    /// Listens there, for clients that charge the only dynamic lane.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, lane: None, max_connections: CLIENTS_MAX, idle_timeout: IDLE }
    }

    pub(super) fn read(section: &Section<'_>, value: &Value<'_>) -> Result<Self, ConfigError> {
        let (mut listen, mut settings) = (None, Self::new(SocketAddr::from(([127, 0, 0, 1], 0))));
        for (name, value) in section.entries(value, RESP_KEYS)? {
            let entry = Entry { section, name, value };
            match name {
                "listen" => {
                    let text = entry.string(address::WANTED)?;
                    listen = match text.parse().map_err(|problem| entry.error(problem))? {
                        Address::Tcp(address) => Some(address),
                        Address::Unix(_) => return Err(entry.error("give an address and a port".to_owned())),
                    };
                }
                "lane" => settings.lane = Some(entry.string("the name of a dynamic lane")?.to_owned()),
                "max_connections" => settings.max_connections = entry.integer(1..=1_000_000)? as usize,
                "idle_timeout" => settings.idle_timeout = entry.duration()?,
                _ => return Err(entry.error("is not known".to_owned())),
            }
        }
        match listen {
            Some(listen) => Ok(Self { listen, ..settings }),
            None => {
                let example = "resp has no address; add listen = \"127.0.0.1:6380\"".to_owned();
                Err(ConfigError::new(section.text, value.span(), example))
            }
        }
    }
}
