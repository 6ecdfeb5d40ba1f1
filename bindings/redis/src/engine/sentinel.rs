//! Asks sentinels who the master is.
//!
//! Whoever they name may still be a replica, or one again: the first command on its connection is a write, and a
//! replica refuses it. A sentinel that the others cannot reach may name a master that is long gone: so each time
//! another one is asked first.

use super::connection::open;
use super::problem::Problem;
use super::servers::at;
use redis::{ConnectionInfo, RedisResult};
use std::time::Duration;

/// The sentinels, the one that answered last at the end.
pub(super) struct Sentinels {
    sentinels: Vec<ConnectionInfo>,
    master: String,
    servers: Box<ConnectionInfo>,
}

impl Sentinels {
    pub(super) const fn new(sentinels: Vec<ConnectionInfo>, master: String, servers: Box<ConnectionInfo>) -> Self {
        Self { sentinels, master, servers }
    }

    /// The way to the master: as the first sentinel says that knows it. It is the last one to be asked next time.
    pub(super) fn master(&mut self, timeout: Duration) -> Result<ConnectionInfo, Problem> {
        let mut problems = Vec::new();
        for index in 0..self.sentinels.len() {
            let sentinel = &self.sentinels[index];
            match self.ask(sentinel, timeout) {
                Ok(Some((host, port))) => {
                    let master = at(&self.servers, host, port);
                    self.sentinels.rotate_left(index + 1);
                    return Ok(master);
                }
                Ok(None) => problems.push(format!("{} knows no master {:?}", sentinel.addr(), self.master)),
                Err(problem) => problems.push(format!("{}: {problem}", sentinel.addr())),
            }
        }
        Err(Problem::Sentinels(format!("no sentinel names a master: {}", problems.join("; "))))
    }

    fn ask(&self, sentinel: &ConnectionInfo, timeout: Duration) -> RedisResult<Option<(String, u16)>> {
        let mut connection = open(sentinel, timeout)?;
        redis::cmd("SENTINEL").arg("get-master-addr-by-name").arg(&self.master).query(&mut connection)
    }
}
