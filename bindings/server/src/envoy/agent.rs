//! Which agent a descriptor is.
//!
//! | a rule's `agent` | the agent's id |
//! |---|---|
//! | none | the whole descriptor: `envoy:4:edge14:remote_address8:10.0.0.1` |
//! | one key | the value of that key as it is, so that it is the agent of `/v1/check` too |
//! | several keys | `envoy:` and each key with its value, as in the first row |
//!
//! Each part has its length in front, so that no value can pass for another descriptor: with a separator alone,
//! `a_b` and `c` would be `a` and `b_c`. For the same reason a value that begins with `envoy:` is written like the
//! value of several keys. An id that would be too long is a SHA-256 of itself: values are chosen by clients, and no two
//! of them may meet.

use super::wire::Entry;
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;
use tollgate::bounds::ID_BYTES_MAX;

/// What the ids begin with that are made here.
const PREFIX: &str = "envoy:";

/// The id of a descriptor while it is matched: the domain, then each key with its value.
pub(super) struct Id(String);

impl Id {
    /// An id of nothing yet.
    pub(super) fn new() -> Self {
        let mut id = String::with_capacity(96);
        id.push_str(PREFIX);
        Self(id)
    }

    /// Adds a part.
    pub(super) fn push(&mut self, part: &str) {
        // Writing to a `String` never fails.
        _ = write!(self.0, "{}:{part}", part.len());
    }

    /// The whole id, within the bounds of ids.
    pub(super) fn end(self) -> Vec<u8> {
        if self.0.len() <= ID_BYTES_MAX {
            return self.0.into_bytes();
        }
        let mut hashed = String::with_capacity(PREFIX.len() + 7 + 64);
        hashed.push_str(PREFIX);
        // No id that is written out continues so: a number comes first.
        hashed.push_str("sha256:");
        for byte in digest(&SHA256, self.0.as_bytes()).as_ref() {
            _ = write!(hashed, "{byte:02x}");
        }
        hashed.into_bytes()
    }
}

/// The id that consists of the values of these keys.
pub(super) fn of_values(keys: &[String], entries: &[Entry]) -> Vec<u8> {
    // A rule names keys that its descriptors have; the first entry of a key counts.
    let value = |key: &String| entries.iter().find(|entry| entry.key == *key).map_or("", |entry| entry.value.as_str());
    if let [key] = keys {
        let value = value(key);
        if (1..=ID_BYTES_MAX).contains(&value.len()) && !value.starts_with(PREFIX) {
            return value.as_bytes().to_vec();
        }
    }
    let mut id = Id::new();
    for key in keys {
        id.push(key);
        id.push(value(key));
    }
    id.end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries(pairs: &[(&str, &str)]) -> Vec<Entry> {
        pairs.iter().map(|(key, value)| Entry { key: (*key).to_owned(), value: (*value).to_owned() }).collect()
    }

    fn text(keys: &[&str], pairs: &[(&str, &str)]) -> String {
        let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
        String::from_utf8(of_values(&keys, &entries(pairs))).unwrap()
    }

    #[test]
    fn one_value_is_the_agent_as_it_is() {
        let pairs = [("path", "/login"), ("user", "agent-7")];
        assert_eq!(text(&["user"], &pairs), "agent-7");
        assert_eq!(text(&["path", "user"], &pairs), "envoy:4:path6:/login4:user7:agent-7");
    }

    #[test]
    fn a_value_that_is_no_id_is_written_out_or_hashed() {
        assert_eq!(text(&["user"], &[("user", "")]), "envoy:4:user0:");
        assert_eq!(text(&["user"], &[("user", "envoy:4:user1:a")]), "envoy:4:user15:envoy:4:user1:a");
        let long = "x".repeat(ID_BYTES_MAX + 1);
        let hashed = text(&["user"], &[("user", &long)]);
        assert!(hashed.starts_with("envoy:sha256:") && hashed.len() == 77, "{hashed}");
        assert_ne!(hashed, text(&["user"], &[("user", &format!("{}y", &long[1..]))]));
    }

    proptest! {
        /// Values of every kind, among them such as look like ids themselves.
        #[test]
        fn different_values_are_different_agents(
            one in proptest::collection::vec("(envoy:)?[0-9:a]{0,6}", 1..4),
            other in proptest::collection::vec("(envoy:)?[0-9:a]{0,6}", 1..4),
        ) {
            let id = |values: &[String]| {
                let keys: Vec<_> = (0..values.len()).map(|number| format!("k{number}")).collect();
                let pair = |(key, value): (&String, &String)| Entry { key: key.clone(), value: value.clone() };
                of_values(&keys, &keys.iter().zip(values).map(pair).collect::<Vec<_>>())
            };
            prop_assert_eq!(one == other, id(&one) == id(&other));
            prop_assert!((1..=ID_BYTES_MAX).contains(&id(&one).len()));
        }
    }
}
