//! The JSON of the files that a limiter keeps. Formatted by hand, one agent per
//! line, because a JSON writer breaks lines everywhere or nowhere; and read
//! piece by piece, so that an error names its location and its agent.

use crate::bounds::ID_BYTES_MAX;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// An agent's id as JSON: a string if it is UTF-8, else `{"base64": "..."}`.
pub(crate) fn id_text(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(id) => quoted(id),
        Err(_) => base64_text(id),
    }
}

/// An agent's id in a message, without anything that a terminal would interpret.
pub(crate) fn id_shown(id: &[u8]) -> String {
    match std::str::from_utf8(id) {
        Ok(id) => format!("{id:?}"),
        Err(_) => base64_text(id),
    }
}

fn base64_text(id: &[u8]) -> String {
    format!("{{\"base64\": \"{}\"}}", BASE64.encode(id))
}

pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

pub(crate) fn check_id(id: &[u8]) -> Result<(), String> {
    match id.len() {
        1..=ID_BYTES_MAX => Ok(()),
        bytes => Err(format!("an id of {bytes} bytes; allowed: 1 to {ID_BYTES_MAX}")),
    }
}

/// What is wrong with a file's text, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// Counted from 1.
    pub(crate) line: usize,
    /// In bytes, counted from 1.
    pub(crate) column: usize,
    pub(crate) agent: Option<Vec<u8>>,
    pub(crate) problem: String,
}

impl Mistake {
    fn at(before: &[u8], problem: impl fmt::Display) -> Self {
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Self { line, column: 1 + before.len() - line_start(before), agent: None, problem: problem.to_string() }
    }

    pub(crate) fn of(mut self, agent: &[u8]) -> Self {
        self.agent = Some(agent.to_vec());
        self
    }
}

/// Where the last line of a text begins.
fn line_start(text: &[u8]) -> usize {
    text.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1)
}

pub(crate) fn read_id(piece: Piece<'_>) -> Result<Vec<u8>, Mistake> {
    let id = if piece.text.starts_with('{') {
        let fields = piece.object()?;
        only_keys(&fields, &["base64"])?;
        let encoded = piece.need(&fields, "base64")?;
        BASE64
            .decode(encoded.value::<String>()?)
            .map_err(|_| encoded.mistake("an id that is not base64; write it as in \"/w==\""))?
    } else {
        piece.value::<String>()?.into_bytes()
    };
    check_id(&id).map_err(|problem| piece.mistake(problem))?;
    Ok(id)
}

pub(crate) type Fields<'a> = BTreeMap<String, Piece<'a>>;

pub(crate) fn only_keys(fields: &Fields<'_>, allowed: &[&str]) -> Result<(), Mistake> {
    match fields.iter().find(|(key, _)| !allowed.contains(&key.as_str())) {
        Some((key, value)) => Err(value.mistake(format!("unknown key {key:?}; allowed: {}", allowed.join(", ")))),
        None => Ok(()),
    }
}

/// A value in the file that knows its location.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    file: &'a str,
    /// Invariant: a part of `file`.
    text: &'a str,
}

impl<'a> Piece<'a> {
    /// All of a file's text; or if not all of it is UTF-8, the lines up to the
    /// first invalid byte, and an error there.
    pub(crate) fn whole(text: &'a [u8]) -> (Self, Option<Mistake>) {
        let (valid, mistake) = match std::str::from_utf8(text) {
            Ok(_) => (text, None),
            Err(error) => {
                let valid = &text[..error.valid_up_to()];
                let mistake = Mistake::at(valid, "not UTF-8; write an id that is not UTF-8 as {\"base64\": ...}");
                (&text[..line_start(valid)], Some(mistake))
            }
        };
        // The check above found it valid.
        let file = std::str::from_utf8(valid).unwrap_or_default();
        (Self { file, text: file }, mistake)
    }

    pub(crate) fn text(self) -> &'a str {
        self.text
    }

    /// The object at the start of the text, and its fields.
    pub(crate) fn first_object(self) -> Result<(Self, Fields<'a>), Mistake> {
        let mut stream = serde_json::Deserializer::from_str(self.text).into_iter::<Object<'a>>();
        let Some(object) = stream.next() else {
            return self.object().map(|fields| (self, fields)); // This reports that there is none.
        };
        let Object(entries) = object.map_err(|error| self.reading(&error))?;
        let first = Self { text: &self.text[..stream.byte_offset()], ..self };
        Ok((first, first.fields(entries)?))
    }

    /// The lines after a part of the text, each with its line break.
    pub(crate) fn lines_after(self, part: Self) -> impl Iterator<Item = Self> {
        let start = part.before().len() + part.text.len();
        self.file[start..].split_inclusive('\n').map(move |text| Self { text, ..self })
    }

    /// Whether these are the fields of a file of this version. Checked first:
    /// another version may have other keys.
    pub(crate) fn has_version(self, fields: &Fields<'a>, version: &str) -> Result<(), Mistake> {
        let found = self.need(fields, "version")?;
        if found.text != version {
            return Err(found.mistake(format!("version {:.20}; this build reads version {version}", found.text)));
        }
        Ok(())
    }

    pub(crate) fn value<T: Deserialize<'a>>(self) -> Result<T, Mistake> {
        serde_json::from_str(self.text).map_err(|error| self.reading(&error))
    }

    pub(crate) fn object(self) -> Result<Fields<'a>, Mistake> {
        let Object(entries) = self.value()?;
        self.fields(entries)
    }

    fn fields(self, entries: Vec<(String, &'a RawValue)>) -> Result<Fields<'a>, Mistake> {
        let mut fields = Fields::new();
        for (key, raw) in entries {
            let value = self.part(raw);
            if fields.contains_key(&key) {
                return Err(value.mistake(format!("the key {key:?} is given twice; keep one")));
            }
            fields.insert(key, value);
        }
        Ok(fields)
    }

    pub(crate) fn list(self) -> Result<impl Iterator<Item = Piece<'a>>, Mistake> {
        Ok(self.value::<Vec<&RawValue>>()?.into_iter().map(move |raw| self.part(raw)))
    }

    /// Reads the elements of a list in valid JSON, in order: with `quick`,
    /// which returns how long the element is, or else with `careful`.
    pub(crate) fn each(
        self,
        mut quick: impl FnMut(Self) -> Option<usize>,
        mut careful: impl FnMut(Self) -> Result<(), Mistake>,
    ) -> Result<(), Mistake> {
        let Some(mut rest) = self.text.strip_prefix('[') else {
            return self.value::<Vec<&RawValue>>().map(drop); // This reports that it is not a list.
        };
        // Ends with the text at the latest: each round consumes some of it.
        while !matches!(rest.trim_ascii_start(), "" | "]") {
            rest = rest.trim_ascii_start();
            let element = Self { text: rest, ..self };
            let length = match quick(element) {
                Some(length) => length,
                None => {
                    let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
                    let Some(Ok(raw)) = values.next() else { break };
                    careful(self.part(raw))?;
                    raw.get().len()
                }
            };
            let after = rest[length..].trim_ascii_start();
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        Ok(())
    }

    fn part(self, raw: &'a RawValue) -> Self {
        Self { text: raw.get(), ..self }
    }

    pub(crate) fn need(self, fields: &Fields<'a>, key: &str) -> Result<Self, Mistake> {
        fields.get(key).copied().ok_or_else(|| self.mistake(format!("the key {key:?} is missing")))
    }

    /// What comes before this piece in the file.
    pub(crate) fn before(self) -> &'a [u8] {
        &self.file.as_bytes()[..self.text.as_ptr().addr() - self.file.as_ptr().addr()]
    }

    pub(crate) fn mistake(self, problem: impl fmt::Display) -> Mistake {
        Mistake::at(self.before(), problem)
    }

    /// A mistake found while reading this piece, with its location in the file.
    fn reading(self, error: &serde_json::Error) -> Mistake {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let problem = text.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&text);
        let mut mistake = self.mistake(problem);
        if error.is_eof() {
            mistake.problem = format!("the file is cut off: {problem}");
        }
        // Invalid JSON is reported at the byte, counted from the start of the
        // piece. A value of the wrong type is reported at its start.
        if !error.is_data() {
            mistake.column = if line > 1 { column } else { mistake.column + column.saturating_sub(1) };
            mistake.line += line.saturating_sub(1);
        }
        mistake.column = mistake.column.max(1);
        mistake
    }
}

/// A JSON object whose values are not parsed yet.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut entries = Vec::new();
        // Ends with the text at the latest.
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Object(entries))
    }
}
