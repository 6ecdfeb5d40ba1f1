//! A connection to the server that takes settlements.

use super::problem::Problem;
use super::sentinel::Sentinels;
use super::servers::Ways;
use crate::Scripts;
use redis::{Connection, ConnectionInfo, RedisResult, Value};
use std::time::Duration;

/// A connection on which the scripts are loaded.
pub(super) struct Ready {
    pub(super) connection: Connection,
    pub(super) scripts: Scripts,
}

/// A connection, each of whose answers may take so long.
pub(super) fn open(info: &ConnectionInfo, timeout: Duration) -> RedisResult<Connection> {
    let connection = redis::Client::open(info.clone())?.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    connection.set_write_timeout(Some(timeout))?;
    Ok(connection)
}

/// A connection with the scripts loaded.
fn ready(info: &ConnectionInfo, timeout: Duration) -> Result<Ready, Problem> {
    let mut connection = open(info, timeout)?;
    let mut load = redis::pipe();
    for command in Scripts::load() {
        load.add_command(command);
    }
    let replies: Vec<Value> = load.query(&mut connection)?;
    let scripts = Scripts::loaded(&replies)?;
    Ok(Ready { connection, scripts })
}

/// Makes one connection after the other.
pub(super) enum Connector {
    One(Box<ConnectionInfo>),
    Sentinel(Sentinels),
}

impl Connector {
    pub(super) fn new(ways: Ways) -> Self {
        match ways {
            Ways::One(info) => Self::One(info),
            Ways::Sentinel { sentinels, master, servers } => Self::Sentinel(Sentinels::new(sentinels, master, servers)),
        }
    }

    pub(super) fn connect(&mut self, timeout: Duration) -> Result<Ready, Problem> {
        match self {
            Self::One(info) => ready(info, timeout),
            Self::Sentinel(sentinels) => ready(&sentinels.master(timeout)?, timeout),
        }
    }
}
