//! The table `[envoy]`: where Envoy asks, and the rules for its descriptors.

use super::entry::{Entry, Section, Value};
use crate::address::Address;
use crate::envoy::written::{Step, WrittenLimit, WrittenRule};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tollgate::ConfigError;
use tollgate::bounds::LANE_NAME_BYTES_MAX;

/// The default port: that of envoyproxy/ratelimit.
pub const ENVOY_PORT: u16 = 8081;

/// Envoy's rate limit service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnvoySettings {
    /// Where it listens: a port, or a Unix socket.
    pub listen: Address,
    /// Configuration of envoyproxy/ratelimit to serve: a file, or a directory of files.
    pub config: Option<PathBuf>,
    /// The lane of the limits that rules and requests bring along.
    pub lane: String,
    /// Whether requests are counted and never denied.
    pub shadow: bool,
    /// How many connections can be open at once.
    pub max_connections: usize,
    /// The rules of the table.
    pub(crate) rules: Vec<WrittenRule>,
    /// The text that they are in, for errors about them.
    pub(crate) text: FileText,
}

/// The text of a policy file. It may have tokens in it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct FileText(pub(crate) String);

/// Does not show it.
impl fmt::Debug for FileText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileText")
    }
}

impl Default for EnvoySettings {
    fn default() -> Self {
        Self {
            listen: Address::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, ENVOY_PORT))),
            config: None,
            lane: "envoy".to_owned(),
            shadow: false,
            max_connections: 1_024,
            rules: Vec::new(),
            text: FileText::default(),
        }
    }
}

/// The keys of `[envoy]`; a test checks that each is read.
pub(crate) const ENVOY_KEYS: [&str; 6] = ["listen", "config", "lane", "shadow", "max_connections", "rules"];

const RULE_KEYS: [&str; 9] = ["domain", "descriptor", "lane", "limit", "agent", "name", "replaces", "shadow", "quota"];
const STEP_KEYS: [&str; 3] = ["key", "value", "shared"];

const DESCRIPTOR: &str = "the entries of a descriptor, such as [{ key = \"path\", value = \"/login\" }, \
                          { key = \"remote_address\" }]";

impl EnvoySettings {
    /// Leaves out the rules, and what a reload reads with them.
    pub(crate) fn clear_rules(&mut self) {
        (self.rules, self.text, self.shadow) = (Vec::new(), FileText::default(), false);
    }

    pub(super) fn read(section: &Section<'_>, value: &Value<'_>) -> Result<Self, ConfigError> {
        let mut settings = Self { text: FileText(section.text.to_owned()), ..Self::default() };
        for (name, value) in section.entries(value, &ENVOY_KEYS)? {
            let entry = Entry { section, name, value };
            match name {
                "listen" => settings.listen = entry.one_address()?,
                "config" => settings.config = Some(entry.path()?),
                "lane" => settings.lane = entry.string("the name of a dynamic lane")?.to_owned(),
                "shadow" => settings.shadow = entry.boolean()?,
                "max_connections" => settings.max_connections = entry.integer(1..=100_000)? as usize,
                "rules" => {
                    let rules = value.get_ref().as_array().ok_or_else(|| entry.wrong("rules: [[envoy.rules]]"))?;
                    settings.rules = rules.iter().map(|rule| read_rule(section, rule)).collect::<Result<_, _>>()?;
                }
                _ => return Err(entry.error("is not known".to_owned())),
            }
        }
        Ok(settings)
    }
}

fn read_rule(section: &Section<'_>, value: &Value<'_>) -> Result<WrittenRule, ConfigError> {
    let section = Section { name: "envoy.rules", ..*section };
    let wrong = |problem: &str| ConfigError::new(section.text, value.span(), problem.to_owned());
    let mut rule = WrittenRule {
        domain: String::new(),
        steps: Vec::new(),
        limit: WrittenLimit::None,
        agent: None,
        name: None,
        replaces: Vec::new(),
        is_shadow: false,
        is_quota: false,
        at: value.span(),
    };
    for (name, value) in section.entries(value, &RULE_KEYS)? {
        let entry = Entry { section: &section, name, value };
        let named = |wanted: &str| {
            let text = entry.string(wanted)?;
            let is_name = (1..=LANE_NAME_BYTES_MAX).contains(&text.len());
            is_name.then(|| text.to_owned()).ok_or_else(|| entry.error(format!("give {wanted} of 1 to 64 bytes")))
        };
        match name {
            "domain" => rule.domain = entry.string("the domain that Envoy's filter names")?.to_owned(),
            "descriptor" => rule.steps = read_steps(&entry)?,
            "lane" | "limit" if rule.limit != WrittenLimit::None => {
                return Err(entry.error("a rule has a lane or a limit of its own, not both".to_owned()));
            }
            "lane" => rule.limit = WrittenLimit::Lane(named("the name of a lane")?, value.span()),
            "limit" => {
                rule.limit = match entry.string("a limit, such as \"5/minute\", or \"unlimited\" or \"deny\"")? {
                    "unlimited" => WrittenLimit::Unlimited,
                    "deny" => WrittenLimit::Deny,
                    text => WrittenLimit::Text(text.to_owned(), value.span()),
                }
            }
            "agent" => rule.agent = Some(texts(&entry, "the key of an entry, or a list of keys")?),
            "name" => rule.name = Some(named("a name")?),
            "replaces" => rule.replaces = texts(&entry, "the name of a rule, or a list of names")?,
            "shadow" => rule.is_shadow = entry.boolean()?,
            "quota" => rule.is_quota = entry.boolean()?,
            _ => return Err(entry.error("is not known".to_owned())),
        }
    }
    if rule.domain.is_empty() {
        return Err(wrong("this rule has no domain; name the domain of Envoy's filter: domain = \"edge\""));
    }
    if rule.steps.is_empty() {
        return Err(wrong(&format!("this rule has no descriptor; give {DESCRIPTOR}")));
    }
    let is_step = |key: &String| rule.steps.iter().any(|step| step.key == *key);
    if let Some(unknown) = rule.agent.iter().flatten().find(|key| !is_step(key)) {
        return Err(wrong(&format!("the agent is the value of {unknown:?}, which the descriptor does not have")));
    }
    if rule.name.as_ref().is_some_and(|name| rule.replaces.contains(name)) {
        return Err(wrong("this rule replaces itself; name another one"));
    }
    Ok(rule)
}

fn read_steps(entry: &Entry<'_, '_>) -> Result<Vec<Step>, ConfigError> {
    let section = Section { name: "envoy.rules.descriptor", ..*entry.section };
    let steps = entry.value.get_ref().as_array().ok_or_else(|| entry.wrong(DESCRIPTOR))?;
    if !(1..=crate::envoy::STEPS_MAX).contains(&steps.len()) {
        return Err(entry.error(format!("there are {} entries; give {DESCRIPTOR}", steps.len())));
    }
    let read = |value: &Value<'_>| {
        let mut step = Step { key: String::new(), value: None, is_shared: false };
        if value.get_ref().as_table().is_none() {
            let message = format!("envoy.rules.descriptor: give {DESCRIPTOR}");
            return Err(ConfigError::new(section.text, value.span(), message));
        }
        for (name, value) in section.entries(value, &STEP_KEYS)? {
            let entry = Entry { section: &section, name, value };
            match name {
                "key" => step.key = entry.string("the key of an entry")?.to_owned(),
                "value" => step.value = Some(entry.string("a value, in which * stands for any text")?.to_owned()),
                "shared" => step.is_shared = entry.boolean()?,
                _ => return Err(entry.error("is not known".to_owned())),
            }
        }
        let problem = if step.key.is_empty() {
            "this entry has no key"
        } else if step.is_shared && !step.value.as_ref().is_some_and(|value| value.contains('*')) {
            "shared is for a value with a wildcard: all values that match it are one agent"
        } else {
            return Ok(step);
        };
        Err(ConfigError::new(section.text, value.span(), problem.to_owned()))
    };
    steps.iter().map(read).collect()
}

/// One text, or a list of texts.
fn texts(entry: &Entry<'_, '_>, wanted: &str) -> Result<Vec<String>, ConfigError> {
    let value = entry.value.get_ref();
    let texts = match (value.as_str(), value.as_array()) {
        (Some(text), _) => Some(vec![text.to_owned()]),
        (_, Some(list)) => list.iter().map(|text| text.get_ref().as_str().map(str::to_owned)).collect(),
        _ => None,
    };
    let texts: Vec<String> = texts.ok_or_else(|| entry.wrong(wanted))?;
    let is_valid = !texts.is_empty() && texts.iter().all(|text| !text.is_empty());
    if is_valid { Ok(texts) } else { Err(entry.error(format!("give {wanted}"))) }
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::*;
    use std::path::Path;

    fn read(text: &str) -> Result<EnvoySettings, String> {
        let settings = Settings::from_toml(text, Path::new("/etc/tollgate")).map_err(|error| error.to_string())?;
        Ok(settings.envoy.unwrap())
    }

    #[test]
    fn every_key_is_read() {
        for key in ENVOY_KEYS {
            let error = read(&format!("[envoy]\n{key} = 1e3")).unwrap_err();
            assert!(error.contains(&format!("envoy.{key}: this is of type float; give ")), "{error}");
        }
        for key in RULE_KEYS {
            let error = read(&format!("[[envoy.rules]]\n{key} = 1e3")).unwrap_err();
            assert!(error.contains(&format!("line 2, column {}", key.len() + 4)), "{error}");
            assert!(error.contains(&format!("envoy.rules.{key}: this is of type float; give ")), "{error}");
        }
        for key in STEP_KEYS {
            let error = read(&format!("[[envoy.rules]]\ndescriptor = [{{ {key} = 1e3 }}]")).unwrap_err();
            assert!(error.contains(&format!("envoy.rules.descriptor.{key}: this is of type float")), "{error}");
        }
    }

    #[test]
    fn values_reach_their_rule() {
        let settings = read(
            r#"
            [envoy]
            listen = "127.0.0.1:9000"
            config = "ratelimit"
            lane = "gateway"
            shadow = true

            [[envoy.rules]]
            domain = "edge"
            descriptor = [{ key = "path", value = "/files/*", shared = true }, { key = "user" }]
            lane = "edge/files"
            agent = "user"

            [[envoy.rules]]
            domain = "edge"
            descriptor = [{ key = "user" }]
            limit = "5/minute"
            agent = ["user"]
            name = "users"
            replaces = ["others"]
            shadow = true
            quota = true
            "#,
        )
        .unwrap();
        assert_eq!(settings.listen.to_string(), "127.0.0.1:9000");
        assert_eq!(settings.config.as_deref(), Some(Path::new("/etc/tollgate/ratelimit")));
        assert_eq!((&*settings.lane, settings.shadow), ("gateway", true));
        let [files, users] = &settings.rules[..] else { panic!("two rules") };
        let value = Some("/files/*".to_owned());
        assert_eq!(files.steps[0], Step { key: "path".to_owned(), value, is_shared: true });
        assert!(matches!(&files.limit, WrittenLimit::Lane(name, _) if name == "edge/files"));
        assert_eq!(files.agent, Some(vec!["user".to_owned()]));
        assert!(matches!(&users.limit, WrittenLimit::Text(text, _) if text == "5/minute"));
        assert_eq!((users.name.as_deref(), &users.replaces[..]), (Some("users"), &["others".to_owned()][..]));
        assert!(users.is_shadow && users.is_quota && !files.is_shadow && !files.is_quota);
    }

    #[test]
    fn mistakes_are_reported_with_their_location() {
        const RULE: &str = "[[envoy.rules]]\ndomain = \"edge\"\n";
        for (text, problem) in [
            ("[envoy]\nlistn = 1", "line 2, column 1: envoy has no key \"listn\"; allowed: listen,"),
            ("[[envoy.rules]]\ndomian = 1", "envoy.rules has no key \"domian\"; allowed: domain,"),
            ("[[envoy.rules]]", "this rule has no domain"),
            (RULE, "this rule has no descriptor"),
            (&format!("{RULE}descriptor = []"), "there are 0 entries; give the entries"),
            (&format!("{RULE}descriptor = [\"path\"]"), "line 3, column 15: envoy.rules.descriptor: give the entries"),
            (&format!("{RULE}descriptor = [{{ value = \"x\" }}]"), "line 3, column 15: this entry has no key"),
            (
                &format!("{RULE}descriptor = [{{ key = \"a\", value = \"x\", shared = true }}]"),
                "shared is for a value with a wildcard",
            ),
            (
                &format!("{RULE}descriptor = [{{ key = \"a\" }}]\nlane = \"a\"\nlimit = \"1/s\""),
                "line 5, column 9: envoy.rules.limit: a rule has a lane or a limit of its own, not both",
            ),
            (
                &format!("{RULE}descriptor = [{{ key = \"a\" }}]\nagent = \"b\""),
                "the agent is the value of \"b\", which the descriptor does not have",
            ),
            (
                &format!("{RULE}descriptor = [{{ key = \"a\" }}]\nname = \"x\"\nreplaces = \"x\""),
                "this rule replaces itself",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
