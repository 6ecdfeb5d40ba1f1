//! From TOML text to a policy.
//!
//! The reader checks only the shape: keys, types, lengths of time.
//! [`PolicyBuilder::build`] checks what the values mean, and its error is then
//! located in the file. So there is one check and one sentence for each mistake,
//! whether a policy is built or read.

use super::error::ConfigError;
use super::location::hint;
use crate::bounds::{ABUSE_VIOLATIONS_MAX, QUIET_MAX};
use crate::lane::text;
use crate::policy::actions::TierDraft;
use crate::policy::nearest::{did_you_mean, distance};
use crate::policy::preset::{self, UnknownPreset};
use crate::policy::{ConductRules, NamedLimit, OnChange, Policy, PolicyBuilder};
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

pub(super) type Key<'t> = Spanned<DeString<'t>>;
pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// The last six are for the server, which reads the same file, and are ignored here.
const KEYS: [&str; 18] = [
    "preset",
    "version",
    "warn_below_percent",
    "warn_again_percent",
    "on_change",
    "unknown_actions_to",
    "exempt",
    "outside_total",
    "lanes",
    "plans",
    "actions",
    "conduct",
    "server",
    "shared",
    "cluster",
    "gate",
    "envoy",
    "resp",
];
const CONDUCT_KEYS: [&str; 5] = ["curve", "quiet", "abuse", "every_denial", "enforce_wait"];
/// What to do about `ws/light = ...` and `ws.light = ...`.
const QUOTED: &str = "put a name like \"ws/light\" in quotes";
const ABUSE_KEYS: [&str; 2] = ["violations", "within"];

pub(super) fn policy(text: &str) -> Result<Policy, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or_default();
        let message = match (error.message(), text.get(at.clone())) {
            ("duplicate key", Some(key)) => format!("{} is named twice; name it once", shortened(key)),
            (message, _) if message.starts_with("invalid unquoted key") => {
                format!("this is not TOML: {message}; {QUOTED}")
            }
            (message, _) => format!("this is not TOML: {message}"),
        };
        ConfigError::new(text, at, message)
    })?;
    let file = File { text, table: table.into_inner() };
    let builder = file.builder()?;
    let lanes = names(&builder.lanes);
    builder.build().map_err(|error| {
        let at = file.place_of(&error).unwrap_or_default();
        file.error(at, format!("{error}{}", hint(&error, &lanes)))
    })
}

/// The text of a file, and its parsed table.
pub(super) struct File<'t> {
    text: &'t str,
    pub(super) table: DeTable<'t>,
}

impl<'t> File<'t> {
    fn error(&self, at: Range<usize>, message: String) -> ConfigError {
        ConfigError::new(self.text, at, message)
    }

    fn builder(&self) -> Result<PolicyBuilder, ConfigError> {
        self.only_keys(&self.table, "the file", &KEYS)?;
        let mut builder = match self.table.get("preset") {
            None => Policy::builder(),
            Some(value) => {
                let name = self.string("preset", value, "the name of a preset, such as \"standard\"")?;
                preset::builder(name).ok_or_else(|| self.error(value.span(), UnknownPreset::new(name).to_string()))?
            }
        };
        if let Some(value) = self.table.get("warn_below_percent") {
            // Lossless: at most 100.
            builder.warn_below_percent = self.integer("warn_below_percent", value, 0..=100)? as u8;
        }
        if let Some(value) = self.table.get("warn_again_percent") {
            // Lossless: at most 100.
            builder.warn_again_percent = Some(self.integer("warn_again_percent", value, 0..=100)? as u8);
        }
        if let Some(value) = self.table.get("version") {
            builder.version = Some(self.integer("version", value, 0..=u32::MAX)?);
        }
        if let Some(value) = self.table.get("on_change") {
            builder.on_change = self.on_change(value)?;
        }
        if let Some(value) = self.table.get("unknown_actions_to") {
            let tier = self.string("unknown_actions_to", value, "the name of a tier, such as \"normal\"")?;
            builder.actions.unknown_tier = Some(tier.to_owned());
        }
        if let Some(value) = self.table.get("exempt") {
            // Beside those of the preset.
            for agent in self.array("exempt", value, "a list of agents, such as [\"dashboard\"]")?.iter() {
                builder.exempt.push(self.string("exempt", agent, "the id of an agent, in quotes")?.to_owned());
            }
        }
        if let Some(value) = self.table.get("outside_total") {
            // Beside those of the preset.
            for lane in self.array("outside_total", value, "a list of lanes, such as [\"llm/tokens\"]")?.iter() {
                builder
                    .outside_total
                    .push(self.string("outside_total", lane, "the name of a lane, in quotes")?.to_owned());
            }
        }
        self.lanes(&mut builder)?;
        self.plans(&mut builder)?;
        self.actions(&mut builder)?;
        if let Some(value) = self.table.get("conduct") {
            let table = self.table("conduct", value, "rules, such as quiet = \"60s\"")?;
            builder.conduct = self.conduct(table, builder.conduct)?;
        }
        Ok(builder)
    }

    fn lanes(&self, builder: &mut PolicyBuilder) -> Result<(), ConfigError> {
        let Some(value) = self.table.get("lanes") else { return Ok(()) };
        let of_preset = names(&builder.lanes);
        for (key, value) in in_order(self.table("lanes", value, "lanes and their limits")?) {
            let limit = self.limit(&format!("lane {:?}", key.get_ref()), key, value)?;
            match builder.lanes[..of_preset.len()].iter_mut().find(|(name, _)| *name == limit.0) {
                Some(old) => *old = limit,
                None => {
                    self.no_slip("lane", key, &of_preset)?;
                    builder.lanes.push(limit);
                }
            }
        }
        Ok(())
    }

    fn plans(&self, builder: &mut PolicyBuilder) -> Result<(), ConfigError> {
        let Some(value) = self.table.get("plans") else { return Ok(()) };
        let of_preset = names(&builder.plans);
        for (key, value) in in_order(self.table("plans", value, "plans, each a table of lanes and limits")?) {
            let what = format!("plan {:?}", key.get_ref());
            let table = self.table(&what, value, "lanes and their limits")?;
            let index = match of_preset.iter().position(|name| name == key.get_ref()) {
                Some(index) => index,
                None => {
                    self.no_slip("plan", key, &of_preset)?;
                    builder.plans.push((key.get_ref().to_string(), Vec::new()));
                    builder.plans.len() - 1
                }
            };
            let limits = &mut builder.plans[index].1;
            let of_preset = limits.len();
            for (key, value) in in_order(table) {
                let limit = self.limit(&format!("{what}, lane {:?}", key.get_ref()), key, value)?;
                match limits[..of_preset].iter_mut().find(|(name, _)| *name == limit.0) {
                    Some(old) => *old = limit,
                    None => limits.push(limit),
                }
            }
        }
        Ok(())
    }

    fn actions(&self, builder: &mut PolicyBuilder) -> Result<(), ConfigError> {
        let Some(value) = self.table.get("actions") else { return Ok(()) };
        let mut tiers: Vec<TierDraft> = Vec::new();
        for (channel, value) in in_order(self.table("actions", value, "channels, each a table of tiers")?) {
            let what = format!("actions of channel {:?}", channel.get_ref());
            for (tier, value) in in_order(self.table(&what, value, "tiers, each a list of actions")?) {
                let what = format!("actions of \"{}/{}\"", channel.get_ref(), tier.get_ref());
                let actions = self.array(&what, value, "a list of actions, such as [\"ping\"]")?;
                let actions = actions
                    .iter()
                    .map(|action| self.string(&what, action, "the name of an action, in quotes").map(str::to_owned));
                tiers.push(TierDraft {
                    channel: channel.get_ref().to_string(),
                    tier: tier.get_ref().to_string(),
                    actions: actions.collect::<Result<_, _>>()?,
                });
            }
        }
        // An action that the file names moves away from its lane in the preset.
        for old in &mut builder.actions.tiers {
            let moved =
                |action: &String| tiers.iter().any(|new| new.channel == old.channel && new.actions.contains(action));
            old.actions.retain(|action| !moved(action));
        }
        builder.actions.tiers.append(&mut tiers);
        Ok(())
    }

    fn conduct(&self, table: &DeTable<'t>, mut rules: ConductRules) -> Result<ConductRules, ConfigError> {
        self.only_keys(table, "conduct", &CONDUCT_KEYS)?;
        if let Some(value) = table.get("curve") {
            let steps = self.array("conduct.curve", value, "a list of waits, such as [\"1s\", \"5s\"]")?;
            let steps = steps.iter().map(|step| self.length("conduct.curve", step));
            rules = rules.with_curve(steps.collect::<Result<Vec<_>, _>>()?);
        }
        if let Some(value) = table.get("quiet") {
            rules = rules.with_quiet_period(self.length("conduct.quiet", value)?);
        }
        if let Some(value) = table.get("abuse") {
            let wanted = "numbers, such as { violations = 10, within = \"5min\" }";
            let abuse = self.table("conduct.abuse", value, wanted)?;
            self.only_keys(abuse, "conduct.abuse", &ABUSE_KEYS)?;
            let (mut violations, mut within) = rules.abuse_threshold();
            if let Some(value) = abuse.get("violations") {
                violations = self.integer("conduct.abuse.violations", value, 1..=ABUSE_VIOLATIONS_MAX)?;
            }
            if let Some(value) = abuse.get("within") {
                within = self.length("conduct.abuse.within", value)?;
            }
            rules = rules.with_abuse_threshold(violations, within);
        }
        if let Some(value) = table.get("every_denial") {
            rules = rules.with_every_denial(self.boolean("conduct.every_denial", value)?);
        }
        if let Some(value) = table.get("enforce_wait") {
            rules = rules.with_enforced_wait(self.boolean("conduct.enforce_wait", value)?);
        }
        Ok(rules)
    }

    fn on_change(&self, value: &Value<'t>) -> Result<OnChange, ConfigError> {
        match self.string("on_change", value, "\"keep\" or \"reset\"")? {
            "keep" => Ok(OnChange::KeepDebt),
            "reset" => Ok(OnChange::Reset),
            other => {
                let meant = did_you_mean(other, ["keep", "reset"]);
                let seen = shortened(other);
                Err(self.error(value.span(), format!("on_change: {seen:?}; allowed: \"keep\" and \"reset\"{meant}")))
            }
        }
    }

    /// Refuses a key that is not in the list.
    fn only_keys(&self, table: &DeTable<'t>, what: &str, known: &[&str]) -> Result<(), ConfigError> {
        match in_order(table).into_iter().find(|(key, _)| !known.contains(&key.get_ref().as_ref())) {
            None => Ok(()),
            Some((key, _)) => {
                let (seen, known) = (key.get_ref(), known.iter().copied());
                let meant = did_you_mean(seen, known.clone());
                let known = known.collect::<Vec<_>>().join(", ");
                let seen = shortened(seen);
                Err(self.error(key.span(), format!("{what} has no key {seen:?}; allowed: {known}{meant}")))
            }
        }
    }

    /// Refuses a new name that is one letter off a name of the preset.
    fn no_slip(&self, what: &str, key: &Key<'t>, of_preset: &[String]) -> Result<(), ConfigError> {
        let seen = key.get_ref();
        // A name that is too long is refused later, and not worth comparing.
        match of_preset.iter().find(|name| seen.len() <= name.len() + 4 && distance(seen, name) <= 1) {
            None => Ok(()),
            Some(name) => Err(self.error(
                key.span(),
                format!("the preset has no {what} {seen:?}; did you mean {name:?}? A new {what} needs a name that differs by more than a letter"),
            )),
        }
    }

    fn limit(&self, what: &str, key: &Key<'t>, value: &Value<'t>) -> Result<NamedLimit, ConfigError> {
        if value.get_ref().is_table() {
            return Err(self.error(key.span(), format!("{what} is a table, because its key has a dot; {QUOTED}")));
        }
        let text = self.string(what, value, "a limit in quotes, such as \"60/min\" or \"10/s burst 20\"")?;
        Ok((key.get_ref().to_string(), text.parse()))
    }

    fn length(&self, what: &str, value: &Value<'t>) -> Result<Duration, ConfigError> {
        let text = self.string(what, value, "a length of time in quotes, such as \"60s\"")?;
        text::length(text).ok_or_else(|| {
            let (seen, most) = (shortened(text), QUIET_MAX.as_secs() / 3_600);
            let message =
                format!("{what}: {seen:?} is not a length of time; write \"60s\", \"5min\", up to \"{most}h\"");
            self.error(value.span(), message)
        })
    }

    fn integer(&self, what: &str, value: &Value<'t>, allowed: RangeInclusive<u32>) -> Result<u32, ConfigError> {
        let range = format!("{} to {}", allowed.start(), allowed.end());
        let DeValue::Integer(integer) = value.get_ref() else {
            return Err(self.wrong_type(what, value, &format!("a whole number, {range}")));
        };
        let number = u32::from_str_radix(integer.as_str(), integer.radix()).ok();
        number.filter(|number| allowed.contains(number)).ok_or_else(|| {
            let seen = shortened(&integer.to_string());
            self.error(value.span(), format!("{what}: {seen}; allowed: {range}"))
        })
    }

    fn string<'v>(&self, what: &str, value: &'v Value<'t>, wanted: &str) -> Result<&'v str, ConfigError> {
        value.get_ref().as_str().ok_or_else(|| self.wrong_type(what, value, wanted))
    }

    fn boolean(&self, what: &str, value: &Value<'t>) -> Result<bool, ConfigError> {
        value.get_ref().as_bool().ok_or_else(|| self.wrong_type(what, value, "true or false"))
    }

    fn array<'v>(&self, what: &str, value: &'v Value<'t>, wanted: &str) -> Result<&'v [Value<'t>], ConfigError> {
        value.get_ref().as_array().map(|array| &**array).ok_or_else(|| self.wrong_type(what, value, wanted))
    }

    fn table<'v>(&self, what: &str, value: &'v Value<'t>, wanted: &str) -> Result<&'v DeTable<'t>, ConfigError> {
        value.get_ref().as_table().ok_or_else(|| self.wrong_type(what, value, &format!("a table of {wanted}")))
    }

    fn wrong_type(&self, what: &str, value: &Value<'t>, wanted: &str) -> ConfigError {
        let kind = value.get_ref().type_str();
        let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
        let seen = match value.get_ref() {
            DeValue::Array(_) | DeValue::Table(_) => String::new(),
            _ => format!(" {} is", shortened(self.text.get(value.span()).unwrap_or_default())),
        };
        let message = match seen.as_str() {
            "" => format!("{what} is {article} {kind}; give {wanted}"),
            seen => format!("{what}:{seen} {article} {kind}; give {wanted}"),
        };
        self.error(value.span(), message)
    }
}

fn names<T>(named: &[(String, T)]) -> Vec<String> {
    named.iter().map(|(name, _)| name.clone()).collect()
}

/// The entries of a table in the order of the file, which numbers the lanes.
pub(super) fn in_order<'v, 't>(table: &'v DeTable<'t>) -> Vec<(&'v Key<'t>, &'v Value<'t>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| key.span().start);
    entries
}

/// What was seen, short enough for a sentence.
fn shortened(seen: &str) -> String {
    const CHARS: usize = 40;
    let mut short: String = seen.chars().take(CHARS).collect();
    if short.len() < seen.len() {
        short.push_str("...");
    }
    short
}
