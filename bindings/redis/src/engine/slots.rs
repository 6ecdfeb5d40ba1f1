//! Which of a cluster's masters has a key.
//!
//! A key is in one of 16,384 slots: its hash, or the hash of what stands in its first braces. Each slot has a master.

use redis::Value;

const SLOTS: usize = 1 << 14;

/// A server, by its host and port.
pub(super) type Address = (String, u16);

/// The masters of a cluster, and the slots of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) masters: Vec<Address>,
    /// Of each slot the place of its master in the list.
    of: Vec<u16>,
}

/// CRC-16 as XMODEM has it: the polynomial 0x1021, from 0.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    })
}

/// The slot of a key.
fn slot(key: &str) -> usize {
    let hashed = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(inner, _)| inner);
    let hashed = hashed.filter(|inner| !inner.is_empty()).unwrap_or(key);
    usize::from(crc16(hashed.as_bytes())) % SLOTS
}

impl Slots {
    /// Reads the reply to `CLUSTER SLOTS` of the server at `asked`. The error says what is wrong with the cluster.
    pub(super) fn read(reply: &Value, asked: &str) -> Result<Self, String> {
        let strange = || "the reply to CLUSTER SLOTS cannot be read".to_owned();
        let Value::Array(ranges) = reply else { return Err(strange()) };
        let (mut masters, mut of): (Vec<Address>, _) = (Vec::new(), vec![None; SLOTS]);
        for range in ranges {
            let (first, last, address) = read_range(range, asked).ok_or_else(strange)?;
            let place = masters.iter().position(|master| *master == address).unwrap_or(masters.len());
            if place == masters.len() {
                masters.push(address);
            }
            let place = u16::try_from(place).map_err(|_| strange())?;
            of.get_mut(first..=last).ok_or_else(strange)?.fill(Some(place));
        }
        let missing = of.iter().filter(|place| place.is_none()).count();
        if missing > 0 {
            return Err(format!("{missing} of {SLOTS} slots of the cluster have no master"));
        }
        Ok(Self { masters, of: of.into_iter().flatten().collect() })
    }

    /// The place of a key's master.
    pub(super) fn of(&self, key: &str) -> usize {
        // Each slot has one.
        usize::from(self.of[slot(key)])
    }
}

/// `[first, last, [host, port, ..], replicas..]`.
fn read_range(range: &Value, asked: &str) -> Option<(usize, usize, Address)> {
    let Value::Array(parts) = range else { return None };
    let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else { return None };
    let [host, Value::Int(port), ..] = master.as_slice() else { return None };
    let host = match host {
        Value::BulkString(host) => str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        Value::Nil => "",
        _ => return None,
    };
    // A server that does not know its own host is where it was asked.
    let host = if matches!(host, "" | "?") { asked } else { host };
    Some((usize::try_from(*first).ok()?, usize::try_from(*last).ok()?, (host.to_owned(), u16::try_from(*port).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(vec![host, Value::Int(port)])])
    }

    fn text(host: &str) -> Value {
        Value::BulkString(host.as_bytes().to_vec())
    }

    #[test]
    fn hashes_are_those_of_the_servers() {
        // The check value of the algorithm, and slots as `CLUSTER KEYSLOT` of Redis 7.0 names them.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, expected) in [("foo", 12_182), ("x{foo}y{bar}", 12_182), ("tollgate:nodes", 15_683), ("{}foo", 9_500)]
        {
            assert_eq!(slot(key), expected, "{key}");
        }
    }

    #[test]
    fn each_slot_has_its_master() {
        let reply = Value::Array(vec![
            range(0, 99, text("a"), 1),
            range(200, 16_383, text("b"), 2),
            range(100, 199, text("a"), 1),
        ]);
        let slots = Slots::read(&reply, "asked").unwrap();
        assert_eq!(slots.masters, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        assert_eq!((slots.of[99], slots.of[150], slots.of[200], slots.of("foo")), (0, 0, 1, 1));
    }

    #[test]
    fn a_host_that_does_not_know_itself_is_the_one_that_was_asked() {
        for host in [Value::Nil, text(""), text("?")] {
            let slots = Slots::read(&Value::Array(vec![range(0, 16_383, host, 7)]), "asked").unwrap();
            assert_eq!(slots.masters, [("asked".to_owned(), 7)]);
        }
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let read = |ranges| Slots::read(&Value::Array(ranges), "asked").unwrap_err();
        assert_eq!(read(vec![range(0, 16_380, text("a"), 1)]), "3 of 16384 slots of the cluster have no master");
        for range in [range(0, 16_384, text("a"), 1), range(-1, 9, text("a"), 1), range(9, 1, text("a"), 1), Value::Nil]
        {
            assert_eq!(read(vec![range]), "the reply to CLUSTER SLOTS cannot be read");
        }
        assert!(Slots::read(&Value::Okay, "asked").is_err());
    }
}
