//! Which lanes machines share, and how each of them.

use super::super::entry::{Entry, Section, Value};
use super::{SLACK_PERCENT, WAIT, WAIT_MS_MAX, when_lost};
use std::ops::Range;
use std::time::Duration;
use tollgate::cluster::{Cluster, WhenLost};
use tollgate::{ConfigError, Policy};

/// A lane that machines share.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedLane {
    /// Its name.
    pub name: String,
    /// Whether nothing is spent in advance.
    pub is_exact: bool,
    /// How much of its capacity may be in credit and in advance at once, in percent.
    pub slack_percent: u8,
    /// What a machine does while the store is lost.
    pub when_lost: WhenLost,
    /// How long a check waits for the store, if the lane is exact.
    pub wait: Duration,
}

/// A lane that each machine keeps for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnLane {
    /// Its name.
    pub name: String,
    /// Why it cannot be shared; `None` if the file does not ask for it.
    pub why: Option<String>,
}

/// An entry of `lanes`, and where it stands.
pub(super) struct Pattern {
    text: String,
    at: Range<usize>,
}

impl Pattern {
    /// Whether it is a lane's name rather than a pattern.
    fn is_name(&self) -> bool {
        !self.text.contains('*')
    }

    fn matches(&self, name: &str) -> bool {
        matches(&self.text, name)
    }
}

/// Whether a lane's name matches a pattern.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => {
            name.strip_prefix(before).is_some_and(|rest| rest.len() >= after.len() && rest.ends_with(after))
        }
    }
}

/// What stands in `[cluster]` for all lanes, or in `[cluster.lane."..."]` for one.
#[derive(Default)]
pub(super) struct LaneTable {
    name: String,
    at: Option<Range<usize>>,
    is_exact: bool,
    slack_percent: Option<u8>,
    when_lost: Option<WhenLost>,
    wait: Option<Duration>,
}

/// The keys of `[cluster.lane."..."]`.
const LANE_KEYS: [&str; 4] = ["exact", "slack", "when_lost", "wait"];

impl LaneTable {
    pub(super) fn set(&mut self, entry: &Entry<'_, '_>) -> Result<(), ConfigError> {
        match entry.name {
            "exact" => self.is_exact = entry.boolean()?,
            "slack" => self.slack_percent = Some(percent(entry)?),
            "when_lost" => self.when_lost = Some(when_lost(entry)?),
            "wait" => self.wait = Some(entry.milliseconds(0, WAIT_MS_MAX)?),
            _ => return Err(entry.error("is not known".to_owned())),
        }
        Ok(())
    }
}

/// A share as `"10%"`.
fn percent(entry: &Entry<'_, '_>) -> Result<u8, ConfigError> {
    let wanted = "a share of the capacity from \"1%\" to \"100%\"";
    let text = entry.string(wanted)?;
    let percent = text.strip_suffix('%').and_then(|number| number.trim_end().parse().ok());
    percent.filter(|percent| (1..=100).contains(percent)).ok_or_else(|| entry.error(format!("{text:?}; give {wanted}")))
}

pub(super) fn patterns(entry: &Entry<'_, '_>) -> Result<Vec<Pattern>, ConfigError> {
    let wanted = "a list of lanes, such as [\"http/*\", \"ws/normal\"]";
    if entry.value.get_ref().as_table().is_some() {
        return Err(entry.error("how one lane is shared stands in [cluster.lane.\"...\"], without the s".to_owned()));
    }
    let patterns = entry.value.get_ref().as_array().ok_or_else(|| entry.wrong(wanted))?;
    let pattern = |value: &Value<'_>| {
        let entry = Entry { value, ..*entry };
        let text = entry.string(wanted)?;
        if text.is_empty() || text.matches('*').count() > 1 {
            let problem = format!("{text:?} is not a lane; give its name, with one * at most for any text");
            return Err(entry.error(problem));
        }
        Ok(Pattern { text: text.to_owned(), at: value.span() })
    };
    patterns.iter().map(pattern).collect()
}

/// The tables `[cluster.lane."..."]`.
pub(super) fn tables(entry: &Entry<'_, '_>) -> Result<Vec<LaneTable>, ConfigError> {
    let wanted = "a table for each lane: [cluster.lane.\"http/login\"]";
    let tables = entry.value.get_ref().as_table().ok_or_else(|| entry.wrong(wanted))?;
    let table = |(name, value): (&toml::Spanned<_>, &Value<'_>)| {
        let name: &toml::de::DeString<'_> = name.get_ref();
        let of = format!("cluster.lane.{name:?}");
        let section = Section { name: &of, ..*entry.section };
        let mut table = LaneTable { name: name.to_string(), ..LaneTable::default() };
        for (name, value) in section.entries(value, &LANE_KEYS)? {
            table.set(&Entry { section: &section, name, value })?;
        }
        Ok(table)
    };
    let each = tables.iter().map(|(name, value)| {
        let at = name.span();
        table((name, value)).map(|table| LaneTable { at: Some(at), ..table })
    });
    each.collect()
}

/// A problem, and where it is if it is about one key.
pub(super) type Problem = (Option<Range<usize>>, String);

/// Which lanes of a policy are shared, and which are not.
pub(super) fn resolve(
    policy: &Policy,
    defaults: &LaneTable,
    patterns: Option<&[Pattern]>,
    tables: &[LaneTable],
) -> Result<(Vec<SharedLane>, Vec<OwnLane>), Problem> {
    // A key, slack and mode that any lane takes: whether one can be shared is a question of its limits.
    let cluster = Cluster::new([0; 16]);
    let names: Vec<_> = policy.lanes().map(|(_, name)| name).collect();
    let can_share = |name: &str| {
        let problem = cluster.can_share(policy, name).map_err(|error| error.to_string());
        // What follows is advice for programs.
        problem.map_err(|text| text.split("; ").next().unwrap_or_default().to_owned())
    };
    let named = patterns.into_iter().flatten().filter(|pattern| pattern.is_name());
    let named = named.map(|pattern| (&pattern.text, Some(pattern.at.clone())));
    for (name, at) in named.chain(tables.iter().map(|table| (&table.name, table.at.clone()))) {
        if !names.contains(&name.as_str()) {
            return Err((at, format!("cluster: there is no lane {name:?}; the lanes are {}", names.join(", "))));
        }
        can_share(name)
            .map_err(|why| (at, format!("cluster: {why}; take it out here, and each machine keeps it for itself")))?;
    }
    for pattern in patterns.into_iter().flatten() {
        if !names.iter().any(|name| pattern.matches(name)) {
            let text = &pattern.text;
            let problem = format!("cluster: no lane is called {text:?}; the lanes are {}", names.join(", "));
            return Err((Some(pattern.at.clone()), problem));
        }
    }
    let (mut shared, mut own) = (Vec::new(), Vec::new());
    for name in names {
        let table = tables.iter().find(|table| table.name == name);
        let is_wanted = patterns.is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(name)));
        let why = if table.is_some() || is_wanted { can_share(name).err() } else { None };
        if why.is_some() || !is_wanted && table.is_none() {
            own.push(OwnLane { name: name.to_owned(), why });
            continue;
        }
        shared.push(SharedLane {
            name: name.to_owned(),
            is_exact: table.is_some_and(|table| table.is_exact),
            slack_percent: table
                .and_then(|table| table.slack_percent)
                .or(defaults.slack_percent)
                .unwrap_or(SLACK_PERCENT),
            when_lost: table.and_then(|table| table.when_lost).or(defaults.when_lost).unwrap_or_default(),
            wait: table.and_then(|table| table.wait).or(defaults.wait).unwrap_or(WAIT),
        });
    }
    if shared.is_empty() {
        let why = own.iter().find_map(|lane| lane.why.as_deref()).unwrap_or("none is named");
        return Err((
            None,
            format!(
                "cluster: no lane can be shared: {why}; add a bucket such as \"60/min\" or a budget such as \"budget 1000/day\""
            ),
        ));
    }
    Ok((shared, own))
}
