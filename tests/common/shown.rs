//! What has to be so wherever an id is shown: it does nothing there, and can be
//! told from every other. For the property in `src/observe/shown.rs` and for the
//! fuzz target in `bindings/c/fuzz`.

use base64::Engine as _;

/// An id in each place.
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) html: String,
    pub(crate) label: String,
    pub(crate) url: String,
    pub(crate) json: String,
}

/// Panics if one of them acts where it is shown, or does not say which id it is.
pub(crate) fn read_back(id: &[u8], shown: &Shown) {
    in_logs(id, &shown.text);
    on_a_page(&shown.text, &shown.html);
    in_a_label(&shown.text, &shown.label);
    in_a_url(id, &shown.url);
    in_json(id, &shown.json);
}

fn in_logs(id: &[u8], text: &str) {
    assert!(is_harmless(text), "{text:?}");
    assert_eq!(unescaped(text), id, "{text:?}");
}

fn on_a_page(text: &str, html: &str) {
    assert!(is_harmless(html) && !html.contains(['<', '>', '"', '\'']), "{html:?}");
    let entities = [("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'")];
    assert_eq!(unreplaced(html, &entities), text);
}

fn in_a_label(text: &str, label: &str) {
    assert!(is_harmless(label), "{label:?}");
    assert_eq!(unreplaced(label, &[("\\\\", "\\"), ("\\\"", "\""), ("\\n", "\n")]), text);
    // Every quote has an odd number of backslashes before it, and the end has none left over.
    let mut escaped = false;
    for character in label.chars() {
        assert!(character != '"' || escaped, "{label:?}");
        escaped = character == '\\' && !escaped;
    }
    assert!(!escaped, "{label:?}");
}

fn in_a_url(id: &[u8], url: &str) {
    assert!(url.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%".contains(&byte)), "{url:?}");
    let mut bytes = Vec::new();
    let mut rest = url.bytes();
    while let Some(byte) = rest.next() {
        let hex = |bytes: [u8; 2]| u8::from_str_radix(std::str::from_utf8(&bytes).unwrap(), 16).unwrap();
        bytes.push(if byte == b'%' { hex([rest.next().unwrap(), rest.next().unwrap()]) } else { byte });
    }
    assert_eq!(bytes, id, "{url:?}");
}

fn in_json(id: &[u8], json: &str) {
    assert!(!json.contains(['<', '>', '&', '\n', '\u{2028}']), "{json:?}");
    let bytes = match serde_json::from_str::<serde_json::Value>(json).unwrap() {
        serde_json::Value::String(text) => text.into_bytes(),
        other => base64::engine::general_purpose::STANDARD.decode(other["base64"].as_str().unwrap()).unwrap(),
    };
    assert_eq!(bytes, id, "{json:?}");
}

/// Nothing that a terminal or a reader of lines acts upon, or that changes
/// how what stands around it looks.
fn is_harmless(text: &str) -> bool {
    let is_odd = |c: char| {
        c.is_control()
            || (c.is_whitespace() && c != ' ')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    !text.contains(is_odd)
}

/// The id that was shown in a log.
fn unescaped(shown: &str) -> Vec<u8> {
    let mut id = Vec::new();
    let mut rest = shown.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            id.extend(character.to_string().bytes());
            continue;
        }
        match rest.next().unwrap() {
            'n' => id.push(b'\n'),
            'r' => id.push(b'\r'),
            't' => id.push(b'\t'),
            '0' => id.push(0),
            'x' => id.push(u8::from_str_radix(&rest.by_ref().take(2).collect::<String>(), 16).unwrap()),
            'u' => {
                let digits: String = rest.by_ref().skip(1).take_while(|digit| *digit != '}').collect();
                let character = char::from_u32(u32::from_str_radix(&digits, 16).unwrap()).unwrap();
                id.extend(character.to_string().bytes());
            }
            quoted => {
                assert!(quoted == '"' || quoted == '\\', "{shown}");
                id.push(quoted as u8);
            }
        }
    }
    id
}

/// The text before these were replaced.
fn unreplaced(text: &str, pairs: &[(&str, &str)]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let (skip, shown) = match pairs.iter().find(|(from, _)| rest.starts_with(from)) {
            Some((from, to)) => (from.len(), (*to).to_owned()),
            None => (character.len_utf8(), character.to_string()),
        };
        out += &shown;
        rest = &rest[skip..];
    }
    out
}
