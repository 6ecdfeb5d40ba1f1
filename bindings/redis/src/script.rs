//! The scripts, and the commands that send them.
//!
//! A script is put together from parts, so that none stands twice: a bucket or a
//! budget, each for one key or for many.

use crate::error::{RangeError, ReplyError};
use crate::reply;
use crate::settlement::Settle;
use redis::{Cmd, Value};

/// The most settlements in one command. The server does nothing else while a
/// script runs: this many take it half a millisecond.
pub const SETTLEMENTS_MAX: usize = 64;

/// One of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// Settles with one bucket.
    Bucket,
    /// Settles with up to [`SETTLEMENTS_MAX`] buckets at one instant.
    BucketMany,
    /// Settles with one budget.
    Budget,
    /// Settles with up to [`SETTLEMENTS_MAX`] budgets.
    BudgetMany,
}

macro_rules! parts {
    ($($part:literal),*) => { concat!($(include_str!(concat!("lua/", $part, ".lua"))),*) };
}

impl Script {
    /// Every script, in the order of [`Scripts::load`].
    pub const ALL: [Self; 4] = [Self::Bucket, Self::BucketMany, Self::Budget, Self::BudgetMany];

    /// Its text.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Bucket => parts!("time", "grant", "bucket", "settle"),
            Self::BucketMany => parts!("time", "grant", "bucket", "settle_many"),
            Self::Budget => parts!("grant", "budget", "settle"),
            Self::BudgetMany => parts!("grant", "budget", "settle_many"),
        }
    }
}

/// The scripts as a server knows them.
///
/// The digests are those of the texts, the same on every server. A server
/// forgets scripts when it restarts and on `SCRIPT FLUSH`, so load them on every
/// new connection. A command for a script that is gone fails with `NOSCRIPT` and
/// changes nothing.
///
/// A command is to be sent once. If no reply comes, it may have been carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scripts {
    digests: [String; 4],
}

impl Scripts {
    /// The commands that load the scripts: send them in this order, before any other.
    #[must_use]
    pub fn load() -> [Cmd; 4] {
        Script::ALL.map(|script| {
            let mut command = redis::cmd("SCRIPT");
            command.arg("LOAD").arg(script.text());
            command
        })
    }

    /// Takes the four replies to [`Scripts::load`].
    pub fn loaded(replies: &[Value]) -> Result<Self, ReplyError> {
        let [bucket, bucket_many, budget, budget_many] = replies else {
            return Err(ReplyError::unexpected("the digests of four scripts", &replies));
        };
        let digests =
            [reply::digest(bucket)?, reply::digest(bucket_many)?, reply::digest(budget)?, reply::digest(budget_many)?];
        Ok(Self { digests })
    }

    /// The digest by which a script is called.
    #[must_use]
    pub fn digest(&self, script: Script) -> &str {
        &self.digests[script as usize]
    }

    /// The command that settles with one key.
    pub fn settle<S: Settle>(&self, key: &str, settlement: &S) -> Result<Cmd, RangeError> {
        self.call(S::SCRIPTS.0, &[(key, *settlement)])
    }

    /// The command that settles with many keys at once, for servers without cluster mode.
    ///
    /// A key may appear more than once; settlements are applied in order. If the
    /// command fails as a whole, each of them may have been carried out.
    pub fn settle_many<K: AsRef<str>, S: Settle>(&self, settlements: &[(K, S)]) -> Result<Cmd, RangeError> {
        let count = settlements.len();
        RangeError::check("settlements in one command", count as u128, 1, SETTLEMENTS_MAX as u64)?;
        self.call(S::SCRIPTS.1, settlements)
    }

    fn call<K: AsRef<str>, S: Settle>(&self, script: Script, settlements: &[(K, S)]) -> Result<Cmd, RangeError> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.digest(script)).arg(settlements.len());
        for (key, _) in settlements {
            command.arg(key.as_ref());
        }
        for (_, settlement) in settlements {
            settlement.check()?;
            for argument in settlement.arguments() {
                command.arg(argument);
            }
        }
        Ok(command)
    }

    /// Reads the reply to [`Scripts::settle`].
    pub fn settled<S: Settle>(&self, settlement: &S, reply: &Value) -> Result<S::Settled, ReplyError> {
        reply::settled(settlement, reply)
    }

    /// Reads the reply to [`Scripts::settle_many`]: for each settlement what it
    /// came to, or why it was refused.
    pub fn settled_many<K, S: Settle>(
        &self,
        settlements: &[(K, S)],
        reply: &Value,
    ) -> Result<Vec<Result<S::Settled, ReplyError>>, ReplyError> {
        reply::settled_many(settlements.iter().map(|(_, settlement)| settlement), reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settlement;

    const DIGEST: &str = "0123456789012345678901234567890123456789";
    const ASKED: Settlement =
        Settlement { token_ns: 1, capacity: 2, owed: 3, give: 4, min: 5, want: 6, share: 7, over: 8, floor_ns: 9 };

    fn scripts() -> Scripts {
        Scripts { digests: [(); 4].map(|()| DIGEST.to_owned()) }
    }

    fn sent(command: &Cmd) -> Vec<String> {
        let text = |argument| match argument {
            redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => "a cursor".to_owned(),
        };
        command.args_iter().map(text).collect()
    }

    #[test]
    fn arguments_stand_in_the_order_that_the_script_reads() {
        let command = scripts().settle("key", &ASKED).unwrap();
        let expected = ["EVALSHA", DIGEST, "1", "key", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        assert_eq!(sent(&command), expected);
        let command = scripts().settle_many(&[("a", ASKED), ("b", ASKED)]).unwrap();
        assert_eq!(sent(&command)[2..6], ["2", "a", "b", "1"]);
        assert_eq!(sent(&command).len(), 5 + 2 * 9);
    }

    #[test]
    fn what_is_out_of_range_is_not_sent() {
        let beyond = Settlement { share: 0, ..ASKED };
        assert!(scripts().settle("key", &beyond).is_err());
        assert!(scripts().settle_many(&[("a", ASKED), ("b", beyond)]).is_err());
        assert!(scripts().settle_many::<&str, Settlement>(&[]).is_err());
        assert!(scripts().settle_many(&vec![("a", ASKED); SETTLEMENTS_MAX]).is_ok());
        assert!(scripts().settle_many(&vec![("a", ASKED); SETTLEMENTS_MAX + 1]).is_err());
    }

    #[test]
    fn no_logic_stands_in_two_scripts() {
        for script in Script::ALL {
            let text = script.text();
            assert_eq!(text.matches("local function settle(").count(), 1, "{script:?}");
            assert_eq!(text.matches("local function grant(").count(), 1, "{script:?}");
            let clocks = usize::from(matches!(script, Script::Bucket | Script::BucketMany));
            assert_eq!(text.matches("redis.call('TIME')").count(), clocks, "{script:?}");
        }
    }

    #[test]
    fn digests_are_taken_and_nothing_else() {
        let digest = || Value::BulkString(DIGEST.as_bytes().to_vec());
        assert_eq!(Scripts::loaded(&[digest(), digest(), digest(), digest()]), Ok(scripts()));
        assert!(Scripts::loaded(&[digest(), digest(), digest()]).is_err());
        assert!(Scripts::loaded(&[digest(), digest(), digest(), Value::Okay]).is_err());
    }
}
