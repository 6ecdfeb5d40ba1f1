//! What is asked of the store about decisions, and what it answers.

use super::Field;
use crate::ReplyError;
use redis::{Cmd, Value};

/// The most decisions in one call, and about the most in one answer. The server does nothing else while it accepts
/// them.
pub const DECISIONS_MAX: usize = 256;

/// How long the store remembers that nothing is decided about an agent any more.
const REMOVALS_LIVE_US: u64 = 30 * 86_400 * 1_000_000;

/// How many such removals it remembers at the most.
const REMOVALS_MAX: u64 = 1 << 16;

/// Stamps and places are less than this: the script computes in doubles.
pub(super) const STAMP_END: u64 = 1 << 52;

/// What the store says of all decisions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Which store it is: given by the node that wrote to it first. `None` if nobody has.
    pub born: Option<u128>,
    /// The place of the last change.
    pub place: u64,
    /// The sum of the stamps of all that is decided, modulo 2^52.
    pub sum: u64,
    /// How much is decided: removals are not counted.
    pub live: u64,
    /// The stamp of the last removal that was forgotten.
    pub horizon: u64,
}

/// A decision to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// Whose.
    pub field: Field,
    /// Its stamp if it is put back; 0 if it is new, and gets one.
    pub stamp: u64,
    /// Whether anything is decided.
    pub is_live: bool,
    /// What.
    pub sealed: Box<[u8]>,
}

/// What is asked of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreRequest {
    /// What it has in all.
    Head,
    /// What was decided behind this place.
    Since(u64),
    /// Accept these, in one step.
    Put {
        /// The name of the store, if it has none.
        born: u128,
        /// The number of the call, by which it is accepted once: grows with each call of an engine. 0 if all is put
        /// back, which may be accepted again.
        number: u64,
        /// The decisions.
        puts: Vec<Put>,
    },
}

/// A decision as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Whose; `None` if nobody of ours has written it.
    pub field: Option<Field>,
    /// Its place.
    pub place: u64,
    /// Its stamp, whether anything is decided, and what. `None` if nobody of ours has written it.
    pub value: Option<(u64, bool, Box<[u8]>)>,
}

/// What the store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReply {
    /// To [`StoreRequest::Head`].
    Head(Head),
    /// To [`StoreRequest::Since`]: the first of them.
    Since(Head, Vec<Stored>),
    /// To [`StoreRequest::Put`].
    Put {
        /// Whether they were accepted now, or earlier.
        is_new: bool,
        /// The place of the last change before.
        before: u64,
        /// The stamp that the new ones among them got: now, or earlier.
        stamp: u64,
        /// What it has in all.
        head: Head,
    },
}

/// The scripts and keys of decisions, on a server where they are loaded.
#[derive(Clone, Debug)]
pub struct DecisionScripts {
    digests: [String; 2],
    keys: [String; 5],
    lives_us: u64,
    removals_max: u64,
}

impl DecisionScripts {
    /// The texts: the one that accepts decisions, and the one that reads them.
    #[must_use]
    pub const fn texts() -> [&'static str; 2] {
        let decide = concat!(include_str!("../lua/time.lua"), include_str!("../lua/decide.lua"));
        [decide, include_str!("../lua/decided.lua")]
    }

    /// The commands that load the scripts: send them in this order, before any other.
    #[must_use]
    pub fn load() -> [Cmd; 2] {
        Self::texts().map(|text| {
            let mut command = redis::cmd("SCRIPT");
            command.arg("LOAD").arg(text);
            command
        })
    }

    /// Takes the two replies to [`DecisionScripts::load`]. `tag` is that of the cluster, `name` that of the engine.
    pub fn loaded(replies: &[Value], tag: &str, name: &str) -> Result<Self, ReplyError> {
        let [decide, decided] = replies else {
            return Err(ReplyError::unexpected("the digests of two scripts", &replies));
        };
        let key = |part: &str| Self::key_of(tag) + part;
        Ok(Self {
            digests: [crate::reply::digest(decide)?, crate::reply::digest(decided)?],
            keys: [key(""), key(":order"), key(":head"), key(":removed"), key(&format!(":put:{name}"))],
            lives_us: REMOVALS_LIVE_US,
            removals_max: REMOVALS_MAX,
        })
    }

    /// Remembers removals so long, and so many of them. Default: 30 days, and 65,536.
    #[must_use]
    pub const fn removals(mut self, lives_us: u64, most: u64) -> Self {
        (self.lives_us, self.removals_max) = (lives_us, most);
        self
    }

    /// The key of decisions with this tag. Their other keys are in the same slot of a cluster.
    #[must_use]
    pub fn key_of(tag: &str) -> String {
        format!("tollgate:{{{tag}}}:decisions")
    }

    /// The command that asks.
    #[must_use]
    pub fn command(&self, request: &StoreRequest) -> Cmd {
        match request {
            StoreRequest::Head => {
                let mut command = redis::cmd("HMGET");
                command.arg(&self.keys[2]).arg(&["born", "place", "sum", "live", "horizon"]);
                command
            }
            StoreRequest::Since(place) => {
                let mut command = self.call(1, 3);
                command.arg(place).arg(DECISIONS_MAX);
                command
            }
            StoreRequest::Put { born, number, puts } => {
                let mut command = self.call(0, 5);
                command.arg(format!("{born:032x}")).arg(number).arg(self.lives_us).arg(self.removals_max);
                for Put { field, stamp, is_live, sealed } in puts {
                    command.arg(field.to_string()).arg(u8::from(*is_live)).arg(stamp).arg(&sealed[..]);
                }
                command
            }
        }
    }

    fn call(&self, script: usize, keys: usize) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(&self.digests[script]).arg(keys).arg(&self.keys[..keys]);
        command
    }

    /// Reads the answer to [`DecisionScripts::command`].
    pub fn reply(&self, request: &StoreRequest, reply: &Value) -> Result<StoreReply, ReplyError> {
        let unexpected = || ReplyError::unexpected("what is decided", reply);
        let read = || match (request, reply) {
            (StoreRequest::Head, Value::Array(parts)) => Some(StoreReply::Head(head(parts)?)),
            (StoreRequest::Since(_), Value::Array(parts)) => {
                let (Value::Array(entries), parts) = parts.split_last()? else { return None };
                let stored = entries.chunks(3).map(stored).collect::<Option<_>>()?;
                Some(StoreReply::Since(head(parts)?, stored))
            }
            (StoreRequest::Put { .. }, Value::Array(parts)) => {
                let [is_new, before, stamp, parts @ ..] = parts.as_slice() else { return None };
                let (is_new, before, stamp) = (number(is_new)? == 1, number(before)?, number(stamp)?);
                Some(StoreReply::Put { is_new, before, stamp, head: head(parts)? })
            }
            _ => None,
        };
        read().ok_or_else(unexpected)
    }
}

fn head(parts: &[Value]) -> Option<Head> {
    let [born, place, sum, live, horizon] = parts else { return None };
    let born = match bytes(born)? {
        b"" => None,
        born => Some(u128::from_str_radix(str::from_utf8(born).ok()?, 16).ok()?),
    };
    Some(Head { born, place: number(place)?, sum: number(sum)?, live: number(live)?, horizon: number(horizon)? })
}

fn stored(parts: &[Value]) -> Option<Stored> {
    let [field, place, value] = parts else { return None };
    Some(Stored { field: Field::read(bytes(field)?), place: number(place)?, value: value_of(bytes(value)?) })
}

/// `STAMP LIVE SEALED`.
fn value_of(value: &[u8]) -> Option<(u64, bool, Box<[u8]>)> {
    let mut parts = value.splitn(3, |byte| *byte == b' ');
    let stamp = str::from_utf8(parts.next()?).ok()?.parse().ok().filter(|stamp| *stamp < STAMP_END)?;
    let is_live = match parts.next()? {
        b"1" => true,
        b"0" => false,
        _ => return None,
    };
    Some((stamp, is_live, parts.next()?.into()))
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        Value::Nil => Some(b""),
        _ => None,
    }
}

/// Of an integer, or of its text; what is not there is 0.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        other => match bytes(other)? {
            b"" => Some(0),
            text => str::from_utf8(text).ok()?.parse().ok(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn scripts() -> DecisionScripts {
        let digest = || text("0123456789012345678901234567890123456789");
        DecisionScripts::loaded(&[digest(), digest()], "tag", "node").unwrap()
    }

    #[test]
    fn an_empty_store_answers_with_nothing() {
        let reply = Value::Array(vec![Value::Nil; 5]);
        assert_eq!(scripts().reply(&StoreRequest::Head, &reply), Ok(StoreReply::Head(Head::default())));
        let reply = Value::Array(vec![text(""), text("0"), text("0"), text("0"), text("0"), Value::Array(Vec::new())]);
        let expected = StoreReply::Since(Head::default(), Vec::new());
        assert_eq!(scripts().reply(&StoreRequest::Since(7), &reply), Ok(expected));
    }

    #[test]
    fn what_nobody_of_ours_has_written_is_shown_as_that() {
        let mut entries = Vec::new();
        for value in ["5 1 sealed with spaces", "5 0 ", "5 2 x", "five 1 x", "", "5"] {
            entries.extend([text("policy"), text("9"), text(value)]);
        }
        entries.extend([text("some field"), text("9"), text("5 1 x")]);
        let parts = [text("0f"), text("9"), Value::Int(8), text("7"), text("6"), Value::Array(entries)];
        let reply = scripts().reply(&StoreRequest::Since(0), &Value::Array(parts.into())).unwrap();
        let StoreReply::Since(head, stored) = reply else { panic!("{reply:?}") };
        assert_eq!(head, Head { born: Some(15), place: 9, sum: 8, live: 7, horizon: 6 });
        let values: Vec<_> = stored.iter().map(|stored| stored.value.clone()).collect();
        assert_eq!(values[0], Some((5, true, b"sealed with spaces".as_slice().into())));
        assert_eq!(values[1], Some((5, false, Box::default())));
        assert_eq!(values[2..6], [None, None, None, None]);
        assert_eq!((stored[0].field, stored[6].field), (Some(Field::Policy), None));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        for reply in [Value::Nil, Value::Int(1), Value::Array(vec![Value::Int(-1)])] {
            let put = StoreRequest::Put { born: 1, number: 1, puts: Vec::new() };
            for request in [StoreRequest::Head, StoreRequest::Since(0), put] {
                assert!(scripts().reply(&request, &reply).is_err(), "{request:?} {reply:?}");
            }
        }
    }

    #[test]
    fn all_keys_are_in_one_slot_and_have_no_other_clusters_tag() {
        let scripts = scripts();
        assert!(scripts.keys.iter().all(|key| key.starts_with("tollgate:{tag}:decisions")), "{:?}", scripts.keys);
    }
}
