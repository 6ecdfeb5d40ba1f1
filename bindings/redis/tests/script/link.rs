//! A connection with the scripts loaded, as a node has one.

use redis::{Connection, RedisError, Value};
use tollgate_redis::{AgentKey, LaneKey, Scripts, Settle, Settlement};

/// A bucket of a token a second, ten at once, and nothing asked.
pub(crate) const BUCKET: Settlement = Settlement {
    token_ns: 1_000_000_000,
    capacity: 10,
    owed: 0,
    give: 0,
    min: 0,
    want: 0,
    share: 1,
    over: 0,
    floor_ns: 0,
};

pub(crate) struct Link {
    pub(crate) connection: Connection,
    pub(crate) scripts: Scripts,
}

impl Link {
    pub(crate) fn new(mut connection: Connection) -> Self {
        let replies = Scripts::load().map(|command| command.query(&mut connection).unwrap());
        Self { scripts: Scripts::loaded(&replies).unwrap(), connection }
    }

    /// Settles with one key.
    pub(crate) fn settle<S: Settle>(&mut self, key: &str, settlement: &S) -> Result<S::Settled, RedisError> {
        let reply: Value = self.scripts.settle(key, settlement).unwrap().query(&mut self.connection)?;
        Ok(self.scripts.settled(settlement, &reply).unwrap())
    }

    /// Sends a command of words.
    pub(crate) fn send(&mut self, words: &[&str]) -> Result<Value, RedisError> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]).query(&mut self.connection)
    }

    /// The milliseconds that a key goes on to live; -2 if there is none.
    pub(crate) fn ttl_ms(&mut self, key: &str) -> i64 {
        redis::cmd("PTTL").arg(key).query(&mut self.connection).unwrap()
    }
}

/// The key of a lane of an agent.
pub(crate) fn key(agent: u128, lane: &str) -> String {
    AgentKey::from_bits(agent).bucket(&LaneKey::new(lane))
}
