//! The fields of a body, and what is wrong with one that has others.

use super::verdict::short;
use crate::id::Id;
use crate::problem::Problem;
use serde::Deserialize;
use serde_json::Value;

/// What a body may say.
pub(super) struct Fields {
    pub(super) all: &'static [(&'static str, Shape)],
    pub(super) needed: &'static [&'static str],
    pub(super) example: &'static str,
}

/// What a field may say.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Agent,
    Text,
    /// A number from 1.
    Count,
    /// A number from 0.
    Number,
    Flag,
    /// Bodies of this kind.
    List(&'static Fields),
}

/// Reads a body.
///
/// # Errors
///
/// A problem that names the field.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a [u8], fields: &Fields) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| match serde_json::from_slice(body) {
        Ok(value) => fields.mistake(&value).unwrap_or_else(|| Problem::bad("a field is named twice; name it once")),
        Err(_) => not_json(&error),
    })
}

pub(crate) fn not_json(error: &serde_json::Error) -> Problem {
    Problem::bad(format!("the body is not valid JSON: {error}")).because("json")
}

impl Fields {
    /// What is wrong with a body that could not be read, if that can be seen
    /// from its value: of a field that is named twice only one is left.
    fn mistake(&self, value: &Value) -> Option<Problem> {
        let example = self.example;
        let Value::Object(fields) = value else {
            return Some(Problem::bad(format!("this is no JSON object; give {example}")));
        };
        for (name, value) in fields {
            let Some((_, shape)) = self.all.iter().find(|(known, _)| known == name) else {
                // The other name of the agent is for earlier clients.
                let known = self.all.iter().map(|(name, _)| *name).filter(|name| *name != "agent_id");
                let known = known.collect::<Vec<_>>().join(", ");
                return Some(Problem::field(short(name), format!("there is no such field; there are {known}")));
            };
            // What may be left out may be null as well.
            if value.is_null() && !self.needed.contains(&name.as_str()) {
                continue;
            }
            if let Some(problem) = shape.mistake(name, value) {
                return Some(problem);
            }
        }
        if fields.contains_key("agent") && fields.contains_key("agent_id") {
            return Some(Problem::field("agent", "it is named twice; give agent or agent_id"));
        }
        let is_there = |name: &str| fields.contains_key(name) || name == "agent" && fields.contains_key("agent_id");
        let missing = self.needed.iter().find(|name| !is_there(name))?;
        let wanted = self.all.iter().find(|(name, _)| name == missing).map_or("", |(_, shape)| shape.wanted());
        Some(Problem::field(*missing, format!("it is missing; give {wanted}, as in {example}")))
    }
}

impl Shape {
    fn wanted(self) -> &'static str {
        match self {
            Self::Agent => Id::WANTED,
            Self::Text => "a string",
            Self::Count => "a whole number from 1",
            Self::Number => "a whole number from 0",
            Self::Flag => "true or false",
            Self::List(_) => "a list",
        }
    }

    fn mistake(self, name: &str, value: &Value) -> Option<Problem> {
        let is_right = match (self, value) {
            (Self::Agent, value) => return Id::from_json(value).err().map(|wrong| Problem::field(name, wrong)),
            (Self::List(fields), Value::Array(parts)) => {
                let wrong = |(index, part)| Some(fields.mistake(part)?.within(&format!("{name}[{index}]")));
                return parts.iter().enumerate().find_map(wrong);
            }
            (Self::Text, value) => value.is_string(),
            (Self::Count | Self::Number, value) => value.is_u64(),
            (Self::Flag, value) => value.is_boolean(),
            (Self::List(_), _) => false,
        };
        (!is_right).then(|| Problem::field(name, format!("give {}", self.wanted())))
    }
}
