//! Reads the configuration of envoyproxy/ratelimit, as it is.
//!
//! A file has a domain and descriptors in descriptors; here each descriptor that decides something becomes a rule. What
//! that server refuses is refused here too, and what it reads without using it here is named by
//! [`Unused`], so that `tollgate import envoy` can say so.

use super::rules::STEPS_MAX;
use super::wire::Unit;
use super::written::{Rate, Step, WrittenLimit, WrittenRule};
use super::yaml::{self, Node, Value};
use std::ops::Range;
use tollgate::ConfigError;

/// A file, read.
#[derive(Debug)]
pub(crate) struct File {
    pub(super) domain: String,
    pub(super) rules: Vec<WrittenRule>,
    pub(super) unused: Vec<Unused>,
}

/// A key that has no effect here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unused {
    pub(super) line: usize,
    pub(super) key: &'static str,
}

const FILE_KEYS: [&str; 2] = ["domain", "descriptors"];
const DESCRIPTOR_KEYS: [&str; 10] = [
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];
const LIMIT_KEYS: [&str; 5] = ["requests_per_unit", "unit", "unlimited", "name", "replaces"];

struct Reader<'t> {
    text: &'t str,
    file: File,
}

/// Reads the text of a file.
pub(super) fn read(text: &str) -> Result<File, ConfigError> {
    let root = yaml::parse(text)?;
    let mut reader = Reader { text, file: File { domain: String::new(), rules: Vec::new(), unused: Vec::new() } };
    let mut descriptors = None;
    for (key, value) in reader.map(&root, "the file", &FILE_KEYS)? {
        match key {
            "domain" => reader.file.domain = reader.string(value, key)?,
            _ => descriptors = Some(value),
        }
    }
    if reader.file.domain.is_empty() {
        return Err(reader.error(&(0..1), "there is no domain; write the one that Envoy's filter names: domain: edge"));
    }
    if let Some(descriptors) = descriptors {
        reader.descriptors(descriptors, &mut Vec::new())?;
    }
    Ok(reader.file)
}

impl Reader<'_> {
    fn error(&self, at: &Range<usize>, message: &str) -> ConfigError {
        ConfigError::new(self.text, at.clone(), message.to_owned())
    }

    /// The known keys of a map, each at most once.
    fn map<'n>(
        &self,
        node: &'n Node,
        what: &str,
        keys: &[&'static str],
    ) -> Result<Vec<(&'static str, &'n Node)>, ConfigError> {
        let Value::Map(map) = &node.value else {
            let problem = format!("{what} is {}; write a map with the keys {}", node.value.kind(), keys.join(", "));
            return Err(self.error(&node.at, &problem));
        };
        let mut found: Vec<(&'static str, &Node)> = Vec::new();
        for (key, value) in map {
            let Value::Scalar(name, _) = &key.value else {
                return Err(self.error(&key.at, &format!("a key is {}; write a name", key.value.kind())));
            };
            let Some(known) = keys.iter().find(|known| **known == *name) else {
                let seen: String = name.chars().take(40).collect();
                let problem = format!("{what} has no key {seen:?}; allowed: {}", keys.join(", "));
                return Err(self.error(&key.at, &problem));
            };
            if found.iter().any(|(name, _)| name == known) {
                return Err(self.error(&key.at, &format!("{known} is named twice; name it once")));
            }
            found.push((known, value));
        }
        Ok(found)
    }

    /// A text; null is an empty one.
    fn string(&self, node: &Node, what: &str) -> Result<String, ConfigError> {
        match &node.value {
            value if value.is_null() => Ok(String::new()),
            Value::Scalar(text, _) => Ok(text.clone()),
            other => Err(self.error(&node.at, &format!("{what} is {}; write a text", other.kind()))),
        }
    }

    fn boolean(&self, node: &Node, what: &str) -> Result<bool, ConfigError> {
        let plain = match &node.value {
            Value::Scalar(text, true) => text.to_ascii_lowercase(),
            _ => String::new(),
        };
        match &*plain {
            "true" | "yes" | "on" | "y" => Ok(true),
            "false" | "no" | "off" | "n" | "" | "~" | "null" if !matches!(node.value, Value::Scalar(_, false)) => {
                Ok(false)
            }
            _ => Err(self.error(&node.at, &format!("{what} is not a truth value; write true or false"))),
        }
    }

    fn list<'n>(&self, node: &'n Node, what: &str) -> Result<&'n [Node], ConfigError> {
        match &node.value {
            value if value.is_null() => Ok(&[]),
            Value::List(list) => Ok(list),
            other => Err(self.error(&node.at, &format!("{what} is {}; write a list", other.kind()))),
        }
    }

    fn unused(&mut self, at: &Range<usize>, key: &'static str) {
        let line = self.text[..at.start.min(self.text.len())].matches('\n').count() + 1;
        self.file.unused.push(Unused { line, key });
    }

    /// Descriptors below these steps.
    fn descriptors(&mut self, node: &Node, steps: &mut Vec<Step>) -> Result<(), ConfigError> {
        let list = self.list(node, "descriptors")?;
        let mut known: Vec<Step> = Vec::with_capacity(list.len());
        for descriptor in list {
            let (step, rule, below) = self.descriptor(descriptor, steps)?;
            let is_same = |other: &Step| other.key == step.key && other.value == step.value;
            if known.iter().any(is_same) {
                let problem = match &step.value {
                    Some(value) => format!("there are two descriptors with the key {} and the value {value}", step.key),
                    None => format!("there are two descriptors with the key {} and no value", step.key),
                };
                return Err(self.error(&descriptor.at, &problem));
            }
            if steps.len() >= STEPS_MAX {
                return Err(
                    self.error(&descriptor.at, "descriptors are nested too deeply; Envoy sends no so long ones")
                );
            }
            steps.push(step);
            // What neither limits nor leads on exempts its descriptor.
            if rule.limit != WrittenLimit::None || below.is_none() {
                self.file.rules.push(WrittenRule { domain: self.file.domain.clone(), steps: steps.clone(), ..rule });
            }
            if let Some(below) = below {
                self.descriptors(below, steps)?;
            }
            known.extend(steps.pop());
        }
        Ok(())
    }

    /// A descriptor: its own step, its rule without domain and steps, and what is below it.
    fn descriptor<'n>(
        &mut self,
        node: &'n Node,
        above: &[Step],
    ) -> Result<(Step, WrittenRule, Option<&'n Node>), ConfigError> {
        let mut step = Step { key: String::new(), value: None, is_shared: false };
        let mut rule = WrittenRule {
            domain: String::new(),
            steps: Vec::new(),
            limit: WrittenLimit::None,
            agent: None,
            name: None,
            replaces: Vec::new(),
            is_shadow: false,
            is_quota: false,
            at: node.at.clone(),
        };
        let mut below = None;
        for (key, value) in self.map(node, "a descriptor", &DESCRIPTOR_KEYS)? {
            match key {
                "key" => step.key = self.string(value, key)?,
                "value" => step.value = Some(self.string(value, key)?).filter(|value| !value.is_empty()),
                "rate_limit" if value.value.is_null() => {}
                "rate_limit" => self.rate_limit(value, &mut rule)?,
                "descriptors" => below = Some(value).filter(|_| !self.list(value, key).is_ok_and(<[_]>::is_empty)),
                "shadow_mode" => rule.is_shadow = self.boolean(value, key)?,
                "quota_mode" => rule.is_quota = self.boolean(value, key)?,
                "share_threshold" => step.is_shared = self.boolean(value, key)?,
                // Any content: it is for answers that nobody here sends.
                "metadata" => self.unused(&value.at, key),
                _ => {
                    if self.boolean(value, key)? {
                        self.unused(&value.at, key);
                    }
                }
            }
        }
        if step.key.is_empty() {
            return Err(self.error(&node.at, "this descriptor has no key; write the key that Envoy sends"));
        }
        if step.key.contains('*') {
            return Err(self.error(&node.at, "a key has no wildcard; write it in the value"));
        }
        if step.is_shared && !step.value.as_ref().is_some_and(|value| value.contains('*')) {
            return Err(self.error(&node.at, "share_threshold is for a value with a wildcard: *"));
        }
        debug_assert!(above.len() <= STEPS_MAX);
        Ok((step, rule, below))
    }

    fn rate_limit(&self, node: &Node, rule: &mut WrittenRule) -> Result<(), ConfigError> {
        let (mut count, mut unit, mut is_unlimited) = (None, None, false);
        for (key, value) in self.map(node, "a rate_limit", &LIMIT_KEYS)? {
            match key {
                "requests_per_unit" => {
                    let count_of = |text: &str| text.replace('_', "").parse::<u32>().ok();
                    let number = match &value.value {
                        Value::Scalar(text, true) => count_of(text),
                        _ => None,
                    };
                    let problem = "requests_per_unit is a whole number, 0 to 4294967295";
                    count = Some(number.ok_or_else(|| self.error(&value.at, problem))?);
                }
                "unit" => {
                    let name = self.string(value, key)?;
                    unit = Some((name, &value.at));
                }
                "unlimited" => is_unlimited = self.boolean(value, key)?,
                "name" => rule.name = Some(self.string(value, key)?).filter(|name| !name.is_empty()),
                _ => rule.replaces = self.replaces(value)?,
            }
        }
        if rule.name.as_ref().is_some_and(|name| rule.replaces.contains(name)) {
            return Err(self.error(&node.at, "this rate_limit replaces itself; name another one in replaces"));
        }
        let units = || Unit::NAMES.map(|(name, _)| name).join(", ");
        let known = unit.map(|(name, at)| {
            let found = Unit::NAMES.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(&name));
            let problem = || format!("{name:?} is no unit; the units are {}", units());
            found.map(|(_, unit)| unit).ok_or_else(|| self.error(at, &problem()))
        });
        rule.limit = match (is_unlimited, known) {
            (true, None) => WrittenLimit::Unlimited,
            (true, Some(_)) => {
                return Err(self.error(&node.at, "this rate_limit is unlimited and has a unit; leave one of them out"));
            }
            (false, None) => {
                let problem = format!("this rate_limit has no unit; the units are {}", units());
                return Err(self.error(&node.at, &problem));
            }
            (false, Some(unit)) => match (count.unwrap_or(0), unit?) {
                (0, _) => WrittenLimit::Deny,
                (requests_per_unit, unit) => {
                    let rate = Rate { requests_per_unit, unit };
                    rate.call_limit().map_err(|error| self.error(&node.at, &error.to_string()))?;
                    WrittenLimit::Rate(rate)
                }
            },
        };
        Ok(())
    }

    fn replaces(&self, node: &Node) -> Result<Vec<String>, ConfigError> {
        let name = |node: &Node| {
            let keys = self.map(node, "an entry of replaces", &["name"])?;
            let name = keys.first().map_or(Ok(String::new()), |(key, value)| self.string(value, key))?;
            if name.is_empty() {
                return Err(self.error(&node.at, "this entry of replaces has no name; write - name: NAME"));
            }
            Ok(name)
        };
        self.list(node, "replaces")?.iter().map(name).collect()
    }
}

#[cfg(test)]
mod tests;
