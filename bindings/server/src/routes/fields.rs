//! The fields of a body, and what is wrong with a body that has others.

use super::request::short;
use crate::id::Id;
use crate::problem::Problem;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fmt;

/// The fields that a body may have.
pub(super) struct Fields {
    pub(super) all: &'static [(&'static str, Shape)],
    pub(super) needed: &'static [&'static str],
    pub(super) example: &'static str,
}

/// The type of a field.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    Agent,
    Text,
    /// A number from 1.
    Count,
    /// A number from 0.
    Number,
    Flag,
    /// A list of bodies with these fields.
    List(&'static Fields),
}

const LIST: &str = "a list";

/// Reads a body.
///
/// # Errors
///
/// A problem with the name of the field.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a [u8], fields: &Fields) -> Result<T, Problem> {
    serde_json::from_slice(body).map_err(|error| if error.is_data() { fields.mistake(body) } else { not_json(&error) })
}

pub(crate) fn not_json(error: &serde_json::Error) -> Problem {
    Problem::bad_request(format!("the body is not valid JSON: {error}")).with_reason("json")
}

impl Fields {
    /// What is wrong with a body that is JSON and could not be read.
    ///
    /// It is walked, not parsed into values: a megabyte of JSON would take a hundred.
    fn mistake(&self, body: &[u8]) -> Problem {
        let found = Cell::new(None);
        let walked =
            ObjectWalk { fields: self, found: &found }.deserialize(&mut serde_json::Deserializer::from_slice(body));
        match (found.into_inner(), walked) {
            (Some(problem), _) => problem,
            (None, Err(error)) => not_json(&error),
            (None, Ok(())) => Problem::bad_request("the body is not valid"),
        }
    }

    fn is_needed(&self, name: &str) -> bool {
        self.needed.contains(&name)
    }

    /// What is wrong with a body that has these fields, each of them valid.
    fn missing(&self, seen: &[&str]) -> Option<Problem> {
        if seen.contains(&"agent") && seen.contains(&"agent_id") {
            return Some(Problem::field("agent", "it is given twice; give agent or agent_id"));
        }
        let is_there = |name: &str| seen.contains(&name) || name == "agent" && seen.contains(&"agent_id");
        let missing = self.needed.iter().find(|name| !is_there(name))?;
        let wanted = self.all.iter().find(|(name, _)| name == missing).map_or("", |(_, shape)| shape.wanted());
        Some(Problem::field(*missing, format!("it is missing; give {wanted}, as in {}", self.example)))
    }
}

/// Visits of everything that is not expected: each is the same mistake.
macro_rules! reject_scalars {
    () => {
        fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
            self.reject()
        }

        fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
            self.reject()
        }

        fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
            self.reject()
        }

        fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
            self.reject()
        }

        fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
            self.reject()
        }

        fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
            self.reject()
        }
    };
}

/// A walk through a body, up to the first mistake. Its error does not matter: the mistake is in `found`.
#[derive(Clone, Copy)]
struct ObjectWalk<'f> {
    fields: &'f Fields,
    found: &'f Cell<Option<Problem>>,
}

impl ObjectWalk<'_> {
    fn found<E: serde::de::Error>(self, problem: Problem) -> E {
        self.found.set(Some(problem));
        E::custom("found")
    }

    fn reject<E: serde::de::Error>(self) -> Result<(), E> {
        let detail = format!("the body is not a JSON object; give {}", self.fields.example);
        Err(self.found(Problem::bad_request(detail)))
    }
}

impl<'de> DeserializeSeed<'de> for ObjectWalk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ObjectWalk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    reject_scalars!();

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        self.reject()
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let fields = self.fields;
        // Never longer than the list of fields: a repeated one is refused.
        let mut seen = Vec::with_capacity(fields.all.len());
        while let Some(name) = map.next_key::<String>()? {
            let Some((name, shape)) = fields.all.iter().find(|(known, _)| *known == name) else {
                // The alias is for older clients.
                let known = fields.all.iter().map(|(name, _)| *name).filter(|name| *name != "agent_id");
                let known = known.collect::<Vec<_>>().join(", ");
                let problem = Problem::field(short(&name), format!("there is no such field; there are {known}"));
                return Err(self.found(problem));
            };
            if seen.contains(name) {
                return Err(self.found(Problem::bad_request("a field is given twice; give it once")));
            }
            seen.push(*name);
            if let Shape::List(fields) = shape {
                map.next_value_seed(ListWalk { name, items: ObjectWalk { fields, ..self } })?;
                continue;
            }
            let value = map.next_value_seed(Shallow { is_outer: true })?;
            // An optional field may be null.
            let is_left_out = value.is_null() && !fields.is_needed(name);
            if let Some(problem) = shape.mistake(name, &value).filter(|_| !is_left_out) {
                return Err(self.found(problem));
            }
        }
        fields.missing(&seen).map_or(Ok(()), |problem| Err(self.found(problem)))
    }
}

/// A walk through a list of bodies.
struct ListWalk<'f> {
    name: &'f str,
    items: ObjectWalk<'f>,
}

impl ListWalk<'_> {
    fn reject<E: serde::de::Error>(self) -> Result<(), E> {
        Err(self.items.found(Problem::field(self.name, format!("give {LIST}"))))
    }
}

impl<'de> DeserializeSeed<'de> for ListWalk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ListWalk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    reject_scalars!();

    fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        self.reject()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        // Ends with the list.
        for index in 0_usize.. {
            match list.next_element_seed(self.items) {
                Ok(Some(())) => {}
                Ok(None) => break,
                Err(error) => {
                    let within = |problem: Problem| problem.within(&format!("{}[{index}]", self.name));
                    self.items.found.set(self.items.found.take().map(within));
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

/// A value without its depths: an agent may be an object of one string.
struct Shallow {
    is_outer: bool,
}

/// How many fields of an object are kept: one more than a valid one has.
const FIELDS_KEPT: usize = 2;

impl<'de> DeserializeSeed<'de> for Shallow {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Shallow {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(Vec::new()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        while self.is_outer && kept.len() < FIELDS_KEPT {
            let Some(name) = map.next_key::<String>()? else { return Ok(kept.into()) };
            kept.insert(name, map.next_value_seed(Shallow { is_outer: false })?);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(kept.into())
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
            Self::List(_) => LIST,
        }
    }

    fn mistake(self, name: &str, value: &Value) -> Option<Problem> {
        let is_right = match (self, value) {
            (Self::Agent, value) => return Id::from_json(value).err().map(|wrong| Problem::field(name, wrong)),
            (Self::Text, value) => value.is_string(),
            (Self::Count | Self::Number, value) => value.is_u64(),
            (Self::Flag, value) => value.is_boolean(),
            // Lists are walked.
            (Self::List(_), value) => value.is_array(),
        };
        (!is_right).then(|| Problem::field(name, format!("give {}", self.wanted())))
    }
}
