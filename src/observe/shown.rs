//! Ids as they are shown to people and machines.
//!
//! An id is any bytes, chosen by the client. Shown as it is, it could end a
//! line of a log, close a tag of a page, or turn the text around it. So it is
//! shown as a [`ShownId`] everywhere.

use std::fmt::{self, Display, Write};

/// An agent's id, made safe for the place where it is shown.
///
/// Printed as it is, it suits logs and terminals: printable characters stay,
/// and all else, quotes and backslashes included, is escaped as in Rust. Two
/// different ids never look the same to a machine.
///
/// ```
/// use tollgate::observe::ShownId;
///
/// let id = ShownId::new("<b>\n");
/// assert_eq!(id.to_string(), r"<b>\n");
/// assert_eq!(id.html().to_string(), r"&lt;b&gt;\n");
/// assert_eq!(id.url().to_string(), "%3Cb%3E%0A");
/// assert_eq!(id.json().to_string(), r#""\u003cb\u003e\n""#);
/// assert_eq!(id.label().to_string(), r"<b>\\n");
///
/// let bytes = ShownId::new(b"a\xff");
/// assert_eq!(bytes.to_string(), r"a\xff");
/// assert_eq!(bytes.json().to_string(), r#"{"base64": "Yf8="}"#);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShownId<'a>(&'a [u8]);

impl<'a> ShownId<'a> {
    /// Shows this id.
    pub fn new<I: AsRef<[u8]> + ?Sized>(id: &'a I) -> Self {
        Self(id.as_ref())
    }

    /// For the text of an HTML page, or an attribute in quotes.
    pub fn html(self) -> impl Display + 'a {
        shown(move |out| write!(Replacing { out, replace: html_entity }, "{self}"))
    }

    /// For the value of a label in the text format of Prometheus, between its quotes.
    pub fn label(self) -> impl Display + 'a {
        shown(move |out| write!(Replacing { out, replace: label_escape }, "{self}"))
    }

    /// For a segment of the path of a URL, or a value of its query.
    pub fn url(self) -> impl Display + 'a {
        shown(move |out| {
            self.0.iter().try_for_each(|byte| match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.write_char(*byte as char),
                _ => write!(out, "%{byte:02X}"),
            })
        })
    }

    /// For JSON: a string if the id is UTF-8, else `{"base64": "..."}`. It can
    /// stand in a script of an HTML page too.
    pub fn json(self) -> impl Display + 'a {
        shown(move |out| match std::str::from_utf8(self.0) {
            Ok(text) => json_string(out, text),
            Err(_) => {
                out.write_str("{\"base64\": \"")?;
                base64(out, self.0)?;
                out.write_str("\"}")
            }
        })
    }
}

impl Display for ShownId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\'' => f.write_char('\'')?,
                    _ => write!(f, "{}", character.escape_debug())?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

impl fmt::Debug for ShownId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// What this function writes.
fn shown(write: impl Fn(&mut fmt::Formatter<'_>) -> fmt::Result) -> impl Display {
    struct Shown<F>(F);
    impl<F: Fn(&mut fmt::Formatter<'_>) -> fmt::Result> Display for Shown<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            (self.0)(f)
        }
    }
    Shown(write)
}

/// Writes on, with some characters replaced.
struct Replacing<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    replace: fn(char) -> Option<&'static str>,
}

impl Write for Replacing<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|character| match (self.replace)(character) {
            Some(other) => self.out.write_str(other),
            None => self.out.write_char(character),
        })
    }
}

fn html_entity(character: char) -> Option<&'static str> {
    Some(match character {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '"' => "&quot;",
        '\'' => "&#39;",
        _ => return None,
    })
}

fn label_escape(character: char) -> Option<&'static str> {
    Some(match character {
        '\\' => "\\\\",
        '"' => "\\\"",
        '\n' => "\\n",
        _ => return None,
    })
}

/// A JSON string, with its quotes.
pub(super) fn json_string(out: &mut impl Write, text: &str) -> fmt::Result {
    out.write_char('"')?;
    text.chars().try_for_each(|character| match character {
        '"' => out.write_str("\\\""),
        '\\' => out.write_str("\\\\"),
        '\n' => out.write_str("\\n"),
        '\r' => out.write_str("\\r"),
        '\t' => out.write_str("\\t"),
        // Those beyond the controls mean something in scripts and pages.
        '\0'..='\x1f' | '\x7f' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
            write!(out, "\\u{:04x}", character as u32)
        }
        _ => out.write_char(character),
    })?;
    out.write_char('"')
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    for chunk in bytes.chunks(3) {
        let group = (0..3).fold(0_u32, |group, i| group << 8 | u32::from(chunk.get(i).copied().unwrap_or(0)));
        for digit in 0..4 {
            // A chunk of n bytes takes n + 1 digits.
            let shown = if digit <= chunk.len() { BASE64[(group >> (18 - 6 * digit) & 63) as usize] } else { b'=' };
            out.write_char(shown as char)?;
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
#[path = "../../tests/common/shown.rs"]
mod reading;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::bounds::ID_BYTES_MAX;
    use proptest::prelude::*;

    /// Ids with much in them that means something somewhere.
    fn any_id() -> impl Strategy<Value = Vec<u8>> {
        let nasty = prop::sample::select(vec![
            "\n",
            "\r\n",
            "\0",
            "\x1b[2J",
            "\"",
            "'",
            "\\",
            "\\n",
            "<script>",
            "</",
            "&amp;",
            "%0A",
            "{\"",
            "${",
            "\u{202e}",
            "\u{2066}",
            "\u{200b}",
            "\u{feff}",
            "\u{2028}",
            "\u{85}",
            "e\u{301}",
            "\u{1F980}",
            " ",
            "~",
            "\x7f",
            "a",
            "-->",
        ]);
        let piece = prop_oneof![
            nasty.prop_map(|text| text.as_bytes().to_vec()),
            any::<u8>().prop_map(|byte| vec![byte]),
            any::<char>().prop_map(|character| character.to_string().into_bytes()),
        ];
        proptest::collection::vec(piece, 1..40).prop_map(|pieces| {
            let mut id = pieces.concat();
            id.truncate(ID_BYTES_MAX);
            id
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn wherever_it_is_shown_it_is_text_and_can_be_told(id in any_id()) {
            let id = ShownId::new(&id);
            reading::read_back(id.0, &reading::Shown {
                text: id.to_string(),
                html: id.html().to_string(),
                label: id.label().to_string(),
                url: id.url().to_string(),
                json: id.json().to_string(),
            });
        }
    }
}
