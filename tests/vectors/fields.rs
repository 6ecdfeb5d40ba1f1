//! Typed access to JSON objects.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The fields of an object. A field that is never read is a mistake.
pub(crate) struct Fields {
    fields: Map<String, Value>,
    used: RefCell<BTreeSet<String>>,
}

impl Fields {
    pub(crate) fn new(fields: Map<String, Value>) -> Self {
        Self { fields, used: RefCell::default() }
    }

    pub(crate) fn of(value: &Value) -> Self {
        Self::new(value.as_object().cloned().unwrap_or_default())
    }

    pub(crate) fn optional(&self, name: &str) -> Option<&Value> {
        self.used.borrow_mut().insert(name.to_owned());
        self.fields.get(name)
    }

    /// Whether there is such a field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Value, String> {
        self.optional(name).ok_or_else(|| format!("{name} is missing"))
    }

    fn optional_as<'a, T>(
        &'a self,
        name: &str,
        kind: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        match self.optional(name) {
            None => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| format!("{name} is {value}, which is not {kind}")),
        }
    }

    pub(crate) fn optional_text(&self, name: &str) -> Result<Option<&str>, String> {
        self.optional_as(name, "a string", Value::as_str)
    }

    pub(crate) fn text(&self, name: &str) -> Result<&str, String> {
        self.optional_text(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    pub(crate) fn optional_number(&self, name: &str) -> Result<Option<u64>, String> {
        self.optional_as(name, "a whole number", Value::as_u64)
    }

    pub(crate) fn number(&self, name: &str) -> Result<u64, String> {
        self.optional_number(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        Ok(self.optional_as(name, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    /// A non-empty list.
    pub(crate) fn list(&self, name: &str) -> Result<&[Value], String> {
        match self.optional_list(name)? {
            [] => Err(format!("{name} is empty or missing")),
            list => Ok(list),
        }
    }

    pub(crate) fn optional_list(&self, name: &str) -> Result<&[Value], String> {
        Ok(self.optional_as(name, "a list", Value::as_array)?.map_or(&[], Vec::as_slice))
    }

    pub(crate) fn optional_object(&self, name: &str) -> Result<Option<Map<String, Value>>, String> {
        self.optional_as(name, "an object", |value| value.as_object().cloned())
    }

    pub(crate) fn object(&self, name: &str) -> Result<Self, String> {
        self.optional_object(name)?.map(Self::new).ok_or_else(|| format!("{name} is missing"))
    }

    pub(crate) fn agent(&self, name: &str) -> Result<Vec<u8>, String> {
        agent_id(self.get(name)?)
    }

    pub(crate) fn all_used(&self) -> Result<(), String> {
        let used = self.used.borrow();
        match self.fields.keys().find(|name| !used.contains(*name)) {
            Some(name) => Err(format!("the field {name:?} means nothing here")),
            None => Ok(()),
        }
    }
}

pub(crate) fn texts(values: &[Value]) -> Result<Vec<&str>, String> {
    values.iter().map(|value| value.as_str().ok_or_else(|| format!("{value} is not a string"))).collect()
}

pub(crate) fn whole_number<N: TryFrom<u64>>(value: &Value) -> Result<N, String> {
    let number = value.as_u64().and_then(|number| N::try_from(number).ok());
    number.ok_or_else(|| format!("{value} is not a number that fits"))
}

pub(crate) fn agent_id(value: &Value) -> Result<Vec<u8>, String> {
    match (value.as_str(), value["base64"].as_str()) {
        (Some(id), _) => Ok(id.into()),
        (None, Some(id)) => BASE64.decode(id).map_err(|error| format!("{value}: {error}")),
        (None, None) => Err(format!("{value} is not an agent")),
    }
}

pub(crate) fn id_value(id: &[u8]) -> Value {
    std::str::from_utf8(id).map_or_else(|_| json!({ "base64": BASE64.encode(id) }), |id| json!(id))
}
