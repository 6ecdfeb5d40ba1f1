//! Writes JSON objects, with the members in the order in which they are added.

use crate::inline::push_number;
use std::fmt::Write;

/// An object that is being written. Names come from this crate and need no escaping.
pub(crate) struct Object(String);

/// Room for a problem with all its members, so that writing a refusal reallocates nothing.
const ROOM: usize = 640;

impl Object {
    pub(crate) fn new() -> Self {
        let mut json = String::with_capacity(ROOM);
        json.push('{');
        Self(json)
    }

    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        string(&mut self.0, value);
        self
    }

    pub(crate) fn number(mut self, name: &str, value: u64) -> Self {
        self.name(name);
        push_number(&mut self.0, value);
        self
    }

    /// A number, or `null`.
    pub(crate) fn optional(self, name: &str, value: Option<u64>) -> Self {
        match value {
            Some(value) => self.number(name, value),
            None => self.raw(name, "null"),
        }
    }

    /// An agent's id: a string if it is UTF-8, else its bytes in base64; `null` if it is hidden.
    pub(crate) fn agent(self, name: &str, id: Option<&[u8]>) -> Self {
        match id.map(|id| (id, std::str::from_utf8(id))) {
            Some((_, Ok(text))) => self.text(name, text),
            Some((id, Err(_))) => self.object(name, Self::new().text("base64", &base64(id))),
            None => self.raw(name, "null"),
        }
    }

    /// A list of one string.
    pub(crate) fn list_of(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        self.0.push('[');
        string(&mut self.0, value);
        self.0.push(']');
        self
    }

    pub(crate) fn object(self, name: &str, value: Self) -> Self {
        self.raw(name, &value.end())
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn raw(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        self.0.push_str(value);
        self
    }

    fn name(&mut self, name: &str) {
        self.0.push_str(if self.0.len() > 1 { ",\"" } else { "\"" });
        self.0.push_str(name);
        self.0.push_str("\":");
    }
}

fn string(json: &mut String, text: &str) {
    json.push('"');
    let is_special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    // A loop without an early exit is vectorised, and hardly any text needs escaping.
    if !text.bytes().fold(false, |found, byte| found | is_special(byte)) {
        json.push_str(text);
        json.push('"');
        return;
    }
    // The start of what is still to be copied. Only ASCII is escaped, so the text
    // is never cut inside a character.
    let mut plain = 0;
    for (at, byte) in text.bytes().enumerate() {
        if !is_special(byte) {
            continue;
        }
        json.push_str(&text[plain..at]);
        plain = at + 1;
        match byte {
            b'"' => json.push_str("\\\""),
            b'\\' => json.push_str("\\\\"),
            // Writing to a `String` never fails.
            _ => _ = write!(json, "\\u{byte:04x}"),
        }
    }
    json.push_str(&text[plain..]);
    json.push('"');
}

/// Base64 of RFC 4648, padded.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| chunk.get(index).copied().map_or(0, u32::from);
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit) & 0x3f) as usize;
            text.push(if digit > chunk.len() { '=' } else { char::from(DIGITS[index]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn base64_is_padded_as_in_rfc_4648() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }

    proptest! {
        #[test]
        fn a_real_parser_reads_back_what_was_written(text: String, id: Vec<u8>, number: Option<u64>) {
            let written = Object::new()
                .text("text", &text)
                .agent("id", Some(&id))
                .optional("number", number)
                .list_of("list", &text)
                .object("inner", Object::new().agent("hidden", None))
                .end();
            let read: serde_json::Value = serde_json::from_str(&written).expect("JSON");
            let id = match std::str::from_utf8(&id) {
                Ok(id) => serde_json::json!(id),
                Err(_) => serde_json::json!({"base64": base64(&id)}),
            };
            let expected = serde_json::json!(
                {"text": text, "id": id, "number": number, "list": [text], "inner": {"hidden": null}}
            );
            prop_assert_eq!(read, expected);
        }
    }
}
