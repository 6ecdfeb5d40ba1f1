//! Connections to the servers that take settlements.

use super::problem::Problem;
use super::sentinel::Sentinels;
use super::servers::{Ways, at};
use super::slots::Slots;
use crate::{DecisionScripts, Scripts, StoreReply, StoreRequest};
use redis::{Connection, ConnectionAddr, ConnectionInfo, RedisResult, Value};
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

/// Connections to all servers that keys are on.
pub(super) struct Masters {
    ready: Vec<Ready>,
    /// Of a cluster, which of them has a key.
    slots: Option<Slots>,
}

impl Masters {
    /// Whether there is one for all keys, so that a command may have many.
    pub(super) const fn is_one(&self) -> bool {
        self.slots.is_none()
    }

    pub(super) const fn count(&self) -> usize {
        self.ready.len()
    }

    /// The place of the server that has a key.
    pub(super) fn of(&self, key: &str) -> usize {
        self.slots.as_ref().map_or(0, |slots| slots.of(key))
    }

    /// The connection to the server at this place. There is one for each place of [`Masters::of`].
    pub(super) fn at(&mut self, place: usize) -> &mut Ready {
        &mut self.ready[place]
    }

    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Ready> {
        self.ready.iter_mut()
    }
}

/// Makes connections, again and again.
pub(super) enum Connector {
    One(Box<ConnectionInfo>),
    Sentinel(Sentinels),
    /// The servers of a cluster that are asked for the others, the one that answered last at the end.
    Cluster(Vec<ConnectionInfo>),
}

impl Connector {
    pub(super) fn new(ways: Ways) -> Self {
        match ways {
            Ways::One(info) => Self::One(info),
            Ways::Sentinel { sentinels, master, servers } => Self::Sentinel(Sentinels::new(sentinels, master, servers)),
            Ways::Cluster(servers) => Self::Cluster(servers),
        }
    }

    pub(super) fn connect(&mut self, timeout: Duration) -> Result<Masters, Problem> {
        let one = |info: &ConnectionInfo| Ok(Masters { ready: vec![ready(info, timeout)?], slots: None });
        match self {
            Self::One(info) => one(info),
            Self::Sentinel(sentinels) => one(&sentinels.master(timeout)?),
            Self::Cluster(servers) => cluster(servers, timeout),
        }
    }
}

/// A connection over which decisions are carried.
pub(super) struct Decider {
    connection: Connection,
    scripts: DecisionScripts,
}

impl Decider {
    pub(super) fn ask(&mut self, request: &StoreRequest) -> Result<StoreReply, Problem> {
        let reply: Value = self.scripts.command(request).query(&mut self.connection)?;
        Ok(self.scripts.reply(request, &reply)?)
    }
}

impl Connector {
    /// A connection to the master that has the decisions with this tag, for an engine of this name.
    pub(super) fn decider(&mut self, tag: &str, name: &str, timeout: Duration) -> Result<Decider, Problem> {
        let info = match self {
            Self::One(info) => ConnectionInfo::clone(info),
            Self::Sentinel(sentinels) => sentinels.master(timeout)?,
            Self::Cluster(servers) => {
                let slots = of_cluster(servers, timeout)?;
                let (host, port) = slots.masters[slots.of(&DecisionScripts::key_of(tag))].clone();
                at(&servers[0], host, port)
            }
        };
        let mut connection = open(&info, timeout)?;
        let mut load = redis::pipe();
        for command in DecisionScripts::load() {
            load.add_command(command);
        }
        let replies: Vec<Value> = load.query(&mut connection)?;
        Ok(Decider { scripts: DecisionScripts::loaded(&replies, tag, name)?, connection })
    }
}

/// Asks the servers for the masters, and connects to each master.
fn cluster(servers: &mut [ConnectionInfo], timeout: Duration) -> Result<Masters, Problem> {
    let slots = of_cluster(servers, timeout)?;
    let masters = slots.masters.iter().map(|(host, port)| ready(&at(&servers[0], host.clone(), *port), timeout));
    let ready = masters.collect::<Result<_, _>>()?;
    Ok(Masters { ready, slots: Some(slots) })
}

/// Asks the servers of a cluster who has which slots, one after the other. The one that answers is the last to be asked
/// next time: one that the others cannot reach may name masters that are long gone.
fn of_cluster(servers: &mut [ConnectionInfo], timeout: Duration) -> Result<Slots, Problem> {
    let mut problems = Vec::new();
    for index in 0..servers.len() {
        let server = &servers[index];
        let slots = match ask_for_slots(server, timeout) {
            Ok(slots) => slots,
            Err(problem) => {
                problems.push(format!("{}: {problem}", server.addr()));
                continue;
            }
        };
        servers.rotate_left(index + 1);
        return Ok(slots);
    }
    Err(Problem::Cluster(format!("no server knows the cluster: {}", problems.join("; "))))
}

fn ask_for_slots(server: &ConnectionInfo, timeout: Duration) -> Result<Slots, Problem> {
    let mut connection = open(server, timeout)?;
    let reply: Value = redis::cmd("CLUSTER").arg("SLOTS").query(&mut connection)?;
    let asked = match server.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.as_str(),
        _ => "",
    };
    Slots::read(&reply, asked).map_err(Problem::Cluster)
}
