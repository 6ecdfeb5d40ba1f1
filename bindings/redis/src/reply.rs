//! What the scripts answer, read strictly: a number that is none of theirs is an error.

use crate::error::ReplyError;
use crate::settlement::Settle;
use redis::Value;

const PAIR: &str = "two integers, what was granted and the debt or count";

/// Nothing larger is ever written, and doubles end there.
const LEVEL_MAX: i64 = 1 << 53;

/// `[granted, level]`.
pub(crate) fn settled<S: Settle>(settlement: &S, reply: &Value) -> Result<S::Settled, ReplyError> {
    match reply {
        Value::Array(pair) => match pair.as_slice() {
            [granted, level] => read(settlement, granted, level),
            _ => Err(ReplyError::unexpected(PAIR, reply)),
        },
        _ => Err(ReplyError::unexpected(PAIR, reply)),
    }
}

/// Two answers for each settlement, in their order.
pub(crate) fn settled_many<'a, S: Settle + 'a>(
    settlements: impl ExactSizeIterator<Item = &'a S>,
    reply: &Value,
) -> Result<Vec<Result<S::Settled, ReplyError>>, ReplyError> {
    match reply {
        Value::Array(answers) if answers.len() == 2 * settlements.len() => {
            let pairs = answers.chunks_exact(2);
            Ok(settlements.zip(pairs).map(|(settlement, pair)| read(settlement, &pair[0], &pair[1])).collect())
        }
        _ => Err(ReplyError::unexpected("two answers for each key", reply)),
    }
}

fn read<S: Settle>(settlement: &S, granted: &Value, level: &Value) -> Result<S::Settled, ReplyError> {
    match (granted, level) {
        (Value::Int(granted @ 0..), Value::Int(level @ 0..=LEVEL_MAX)) => {
            settlement.settled(granted.cast_unsigned(), level.cast_unsigned())
        }
        (Value::Int(-1), Value::BulkString(why)) => {
            Err(ReplyError::Refused { why: String::from_utf8_lossy(why).into_owned() })
        }
        other => Err(ReplyError::unexpected(PAIR, &other)),
    }
}

/// The digest with which a script that was loaded is called.
pub(crate) fn digest(reply: &Value) -> Result<String, ReplyError> {
    let text = match reply {
        Value::BulkString(bytes) => str::from_utf8(bytes).unwrap_or_default(),
        Value::SimpleString(text) => text,
        _ => "",
    };
    let is_digest = text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_digest { Ok(text.to_owned()) } else { Err(ReplyError::unexpected("the digest of a script", reply)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settled, Settlement};

    const ASKED: Settlement =
        Settlement { token_ns: 1, capacity: 9, owed: 0, give: 0, min: 0, want: 5, share: 1, over: 0, floor_ns: 0 };

    fn pair(granted: i64, level: i64) -> Value {
        Value::Array(vec![Value::Int(granted), Value::Int(level)])
    }

    #[test]
    fn two_integers_are_what_was_settled() {
        assert_eq!(settled(&ASKED, &pair(5, 7)), Ok(Settled { granted: 5, debt_ns: 7 }));
    }

    #[test]
    fn anything_else_is_shown() {
        let short = Value::Array(vec![Value::Int(1)]);
        let text = Value::Array(vec![Value::Int(1), Value::BulkString(b"7".to_vec())]);
        for wrong in [Value::Nil, Value::Okay, Value::Int(3), short, text, pair(-1, 7), pair(1, -7), pair(6, 7)] {
            let error = settled(&ASKED, &wrong).unwrap_err();
            assert!(error.to_string().contains("the server answered "), "{wrong:?}: {error}");
        }
        let error = settled(&ASKED, &Value::Int(3)).unwrap_err();
        assert!(error.to_string().ends_with("the server answered int(3)"), "{error}");
    }

    #[test]
    fn one_refused_key_does_not_spoil_the_others() {
        let why = || Value::BulkString(b"tollgate:{x}:y: why".to_vec());
        let reply = Value::Array(vec![Value::Int(1), Value::Int(2), Value::Int(-1), why()]);
        let answers = settled_many([ASKED, ASKED].iter(), &reply).unwrap();
        assert_eq!(answers[0], Ok(Settled { granted: 1, debt_ns: 2 }));
        assert_eq!(answers[1], Err(ReplyError::Refused { why: "tollgate:{x}:y: why".to_owned() }));
        assert!(settled_many([ASKED].iter(), &reply).is_err(), "four answers for one key");
    }
}
