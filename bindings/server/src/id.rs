//! Agents' ids in JSON and in URLs: any bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt;
use tollgate::bounds::ID_BYTES_MAX;

/// An agent's id: in JSON a string, or `{"base64": "..."}` if it is not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Id<'a>(Cow<'a, [u8]>);

impl<'a> Id<'a> {
    /// The id's bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its bytes, owned.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_owned()
    }

    /// What a valid id looks like, for errors.
    pub(crate) const WANTED: &'static str = "a string of 1 to 256 bytes, or {\"base64\": \"...\"} for other bytes";

    /// Reads a segment of a URL: percent-encoded bytes.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(crate) fn from_segment(segment: &'a str) -> Result<Self, String> {
        let Some(first) = segment.find('%') else { return Self::checked(Cow::Borrowed(segment.as_bytes())) };
        let bytes = segment.as_bytes();
        let mut decoded = bytes[..first].to_vec();
        let mut rest = &bytes[first..];
        while let [byte, after @ ..] = rest {
            rest = after;
            match (byte, after) {
                (b'%', [high, low, after @ ..]) => {
                    let digit = |byte: u8| char::from(byte).to_digit(16);
                    let (Some(high), Some(low)) = (digit(*high), digit(*low)) else {
                        return Err("a % in the path is not followed by two hexadecimal digits".to_owned());
                    };
                    // Lossless: both are below 16.
                    decoded.push((high << 4 | low) as u8);
                    rest = after;
                }
                (b'%', _) => return Err("a % in the path is not followed by two hexadecimal digits".to_owned()),
                (byte, _) => decoded.push(*byte),
            }
        }
        Self::checked(Cow::Owned(decoded))
    }

    /// Reads an id from parsed JSON.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(crate) fn from_json(value: &'a Value) -> Result<Self, String> {
        let bytes = match value {
            Value::String(text) => Some(Cow::Borrowed(text.as_bytes())),
            Value::Object(map) => match (map.len(), map.get("base64")) {
                (1, Some(Value::String(text))) => STANDARD.decode(text).ok().map(Cow::Owned),
                _ => None,
            },
            _ => None,
        };
        Self::checked(bytes.ok_or_else(|| format!("give {}", Self::WANTED))?)
    }

    /// An agent's id that was checked elsewhere.
    pub(crate) const fn of_agent(id: &'a [u8]) -> Self {
        Self(Cow::Borrowed(id))
    }

    fn checked(bytes: Cow<'a, [u8]>) -> Result<Self, String> {
        match bytes.len() {
            1..=ID_BYTES_MAX => Ok(Self(bytes)),
            0 => Err(tollgate::Error::EmptyId.to_string()),
            bytes => Err(tollgate::Error::IdTooLong { bytes }.to_string()),
        }
    }
}

/// An id in JSON.
pub(crate) fn to_json(id: &[u8]) -> Value {
    match std::str::from_utf8(id) {
        Ok(text) => text.into(),
        Err(_) => json!({"base64": STANDARD.encode(id)}),
    }
}

/// An id as a segment of a URL.
pub(crate) fn to_segment(id: &[u8]) -> String {
    use fmt::Write as _;
    let mut segment = String::with_capacity(id.len());
    for byte in id {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => segment.push(char::from(*byte)),
            // A dot would be allowed, but clients read "." and ".." as directories.
            // Writing to a `String` never fails.
            _ => _ = write!(segment, "%{byte:02X}"),
        }
    }
    segment
}

/// A string, borrowed from the body where possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct IdVisitor;

impl<'de> Visitor<'de> for IdVisitor {
    type Value = Id<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Id::WANTED)
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Id::checked(Cow::Borrowed(text.as_bytes())).map_err(E::custom)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Id::checked(Cow::Owned(text.as_bytes().to_vec())).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let wrong = || A::Error::custom(Id::WANTED);
        let (key, text) = map.next_entry::<Text<'de>, Text<'de>>()?.ok_or_else(wrong)?;
        if key.0 != "base64" || map.next_key::<Text<'de>>()?.is_some() {
            return Err(wrong());
        }
        let bytes = STANDARD.decode(text.0.as_bytes()).map_err(|_| wrong())?;
        Id::checked(Cow::Owned(bytes)).map_err(A::Error::custom)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Id<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IdVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_id_survives_json_and_urls(id in proptest::collection::vec(any::<u8>(), 1..=ID_BYTES_MAX)) {
            let json = to_json(&id);
            prop_assert_eq!(&Id::from_json(&json).unwrap().into_bytes(), &id);
            let text = json.to_string();
            prop_assert_eq!(&serde_json::from_str::<Id<'_>>(&text).unwrap().into_bytes(), &id);
            let segment = to_segment(&id);
            prop_assert!(segment.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b'.'));
            prop_assert_eq!(&Id::from_segment(&segment).unwrap().into_bytes(), &id);
        }

        #[test]
        fn both_readers_of_json_agree(text in r#"("[a\\n"é]{0,4}"|\{"base64": ?"[A-Za-z=+/]{0,6}"(, "b": 1)?\}|\[1\]|null|7)"#) {
            let Ok(value) = serde_json::from_str::<Value>(&text) else { return Ok(()) };
            let (one, other) = (Id::from_json(&value).ok(), serde_json::from_str::<Id<'_>>(&text).ok());
            prop_assert_eq!(one.map(Id::into_bytes), other.map(Id::into_bytes), "{}", text);
        }
    }

    #[test]
    fn invalid_ids_are_refused() {
        for text in ["", "%", "%4", "%zz", &"a".repeat(257)] {
            assert!(Id::from_segment(text).is_err(), "{text}");
        }
        for value in [json!(""), json!(7), json!({"base64": "!"}), json!({"base64": ""}), json!({}), json!(null)] {
            assert!(Id::from_json(&value).is_err(), "{value}");
        }
    }
}
