//! The table `[gate]`: whom gateways ask about, on which lane, and what their clients see.
//!
//! Rules name lanes and plans, so the policy is read too, and a rule that cannot work is refused with its line.

use super::entry::{Entry, Section, Value};
use http::HeaderName;
use tollgate::bounds::ID_BYTES_MAX;
use tollgate::{ConfigError, Policy};
use tollgate_tower::address::Networks;
use tollgate_tower::route::Routes;
use tollgate_tower::{Profile, Style};

/// How gateways' questions are answered: the path `/v1/gate`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateSettings {
    /// Where the agent's id is, tried in this order; empty: the client's address.
    pub agent: Vec<AgentSource>,
    /// The lane of requests that no rule matches.
    pub lane: Option<String>,
    /// Whether those pass without a limit instead.
    pub pass_others: bool,
    /// Rules by method and path.
    pub routes: Vec<GateRoute>,
    /// Texts in paths and their lanes, searched in this order after the routes.
    pub path_contains: Vec<(String, String)>,
    /// Networks whose clients are never limited.
    pub allow_networks: Vec<String>,
    /// Routes that are never limited.
    pub allow_routes: Vec<String>,
    /// Paths below which nothing is limited.
    pub allow_prefixes: Vec<String>,
    /// What happens to a request that the limiter cannot decide.
    pub on_error: OnError,
    /// The body of a refusal; `None`: that of `[server]`.
    pub profile: Option<Profile>,
    /// The headers that carry limits; `None`: those of the profile here, or of `[server]`.
    pub headers: Option<Style>,
    /// Whether headers are left out while plenty is left.
    pub headers_only_when_low: bool,
}

/// Where the id of an agent is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AgentSource {
    /// What is read.
    pub kind: SourceKind,
    /// A text before the id, so that ids from different sources differ.
    pub prefix: String,
}

/// What an agent's id is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourceKind {
    /// A header that the gateway sets: an id, or a claim that it has verified.
    Header(String),
    /// The same, and no response shows it.
    SecretHeader(String),
    /// The client's address; IPv6 addresses count by their first bits, this many.
    Address(u8),
    /// One id for all requests.
    Shared(String),
}

/// The lane of a route, what a request to it costs, and under which plan it is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GateRoute {
    /// `POST /agents/{id}/run`, or a path alone for all methods.
    pub rule: String,
    /// Its lane.
    pub lane: String,
    /// What a request costs; 1 by default.
    pub cost: Option<u64>,
    /// The plan of an agent without an assignment.
    pub plan: Option<String>,
}

/// What happens to a request that the limiter cannot decide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// It is refused with status 503.
    #[default]
    Closed,
    /// It passes.
    Open,
}

/// The keys of `[gate]`; a test checks that each is read.
pub(crate) const GATE_KEYS: [&str; 12] = [
    "agent",
    "lane",
    "pass_others",
    "routes",
    "path_contains",
    "allow_networks",
    "allow_routes",
    "allow_prefixes",
    "on_error",
    "profile",
    "headers",
    "headers_only_when_low",
];

const AGENT: &str = "a list such as [\"x-user-id\", \"address\"], or [{ header = \"x-user-id\", prefix = \"user:\" }, { address = 64 }]";
const AGENT_SOURCE: &str = "one of header, secret_header, address and shared, and perhaps a prefix";
const PAIRS: &str = "a list of texts and lanes, such as [[\"/auth\", \"http/auth\"]]";
const RULE: &str = "a lane, or { lane = \"...\", cost = 5, plan = \"...\" } with what differs";

impl GateSettings {
    /// Reads the table.
    pub(super) fn read(section: &Section<'_>, value: &Value<'_>) -> Result<Self, ConfigError> {
        let policy = Policy::from_toml(section.text)?;
        let mut settings = Self::default();
        for (name, value) in section.entries(value, &GATE_KEYS)? {
            settings.set(&Entry { section, name, value }, &policy)?;
        }
        Ok(settings)
    }

    fn set(&mut self, entry: &Entry<'_, '_>, policy: &Policy) -> Result<(), ConfigError> {
        match entry.name {
            "agent" => self.agent = list(entry, AGENT, agent)?,
            "lane" => self.lane = Some(lane(entry, policy, entry.string("a lane of the policy")?)?),
            "pass_others" => self.pass_others = entry.boolean()?,
            "routes" => self.routes = routes(entry, policy)?,
            "path_contains" => self.path_contains = list(entry, PAIRS, |entry| pair(entry, policy))?,
            "allow_networks" => self.allow_networks = list(entry, "a list of networks", network)?,
            "allow_routes" => {
                self.allow_routes = list(entry, "a list of routes, such as [\"GET /health\"]", text)?;
                let mut routes = Routes::default();
                for rule in &self.allow_routes {
                    routes.insert(rule, ()).map_err(|error| entry.error(error.to_string()))?;
                }
            }
            "allow_prefixes" => self.allow_prefixes = list(entry, "a list of paths, such as [\"/static/\"]", path)?,
            "on_error" => self.on_error = on_error(entry)?,
            "profile" => self.profile = Some(entry.named()?),
            "headers" => self.headers = Some(entry.named()?),
            "headers_only_when_low" => self.headers_only_when_low = entry.boolean()?,
            _ => return Err(entry.error("is not known".to_owned())),
        }
        Ok(())
    }

    /// The header fields that carry limits, of a server with these of its own.
    pub(crate) fn style(&self, own: Style) -> Style {
        self.headers.or(self.profile.map(Profile::style)).unwrap_or(own)
    }
}

/// A list, each item with its own location.
fn list<T>(
    entry: &Entry<'_, '_>,
    wanted: &str,
    read: impl Fn(&Entry<'_, '_>) -> Result<T, ConfigError>,
) -> Result<Vec<T>, ConfigError> {
    let items = entry.value.get_ref().as_array().ok_or_else(|| entry.wrong(wanted))?;
    items.iter().map(|value| read(&Entry { section: entry.section, name: entry.name, value })).collect()
}

fn text(entry: &Entry<'_, '_>) -> Result<String, ConfigError> {
    entry.string("a text").map(str::to_owned)
}

fn network(entry: &Entry<'_, '_>) -> Result<String, ConfigError> {
    let text = text(entry)?;
    Networks::parse([&text]).map_err(|error| entry.error(error.to_string()))?;
    Ok(text)
}

fn path(entry: &Entry<'_, '_>) -> Result<String, ConfigError> {
    let text = text(entry)?;
    if text.starts_with('/') { Ok(text) } else { Err(entry.error(format!("{text:?} does not begin with /"))) }
}

fn pair(entry: &Entry<'_, '_>, policy: &Policy) -> Result<(String, String), ConfigError> {
    match list(entry, PAIRS, text)?.as_slice() {
        [text, name] if text.starts_with('/') => Ok((text.clone(), lane(entry, policy, name)?)),
        _ => Err(entry.error(format!("give {PAIRS}; each text begins with /"))),
    }
}

fn on_error(entry: &Entry<'_, '_>) -> Result<OnError, ConfigError> {
    match entry.string("\"closed\" or \"open\"")? {
        "closed" => Ok(OnError::Closed),
        "open" => Ok(OnError::Open),
        other => Err(entry.error(format!("{other:?}; allowed: \"closed\" and \"open\""))),
    }
}

/// A lane that a request can be charged to.
fn lane(entry: &Entry<'_, '_>, policy: &Policy, name: &str) -> Result<String, ConfigError> {
    let found = policy.lane(name).filter(|lane| policy.total() != Some(*lane));
    let Some(found) = found else {
        let lanes = policy.lanes().filter(|(lane, _)| policy.total() != Some(*lane));
        let lanes = lanes.map(|(_, name)| name).collect::<Vec<_>>().join(", ");
        return Err(entry.error(format!("there is no lane {name:?}; the lanes are {lanes}")));
    };
    // Only a text says of which kind a limit is; a lane is of one kind in every plan.
    let mut limits = policy.plans().filter_map(|(plan, _)| policy.plan_limit(plan, found));
    if limits.any(|limit| limit.to_string().starts_with("held ")) {
        return Err(entry.error(format!("{name} is a held lane, and a gateway never releases a slot; name another")));
    }
    Ok(name.to_owned())
}

/// The table of routes, in the order of the file.
fn routes(entry: &Entry<'_, '_>, policy: &Policy) -> Result<Vec<GateRoute>, ConfigError> {
    let table = entry.value.get_ref().as_table();
    let table = table.ok_or_else(|| entry.wrong("a table: [gate.routes], with \"POST /run\" = \"http/heavy\""))?;
    let mut rules: Vec<_> = table.iter().collect();
    rules.sort_by_key(|(key, _)| key.span().start);
    let (mut known, mut routes) = (Routes::default(), Vec::with_capacity(rules.len()));
    for (key, value) in rules {
        let rule = key.get_ref().as_ref();
        known.insert(rule, ()).map_err(|error| {
            ConfigError::new(entry.section.text, key.span(), format!("{}.routes: {error}", entry.section.name))
        })?;
        routes.push(route(&Entry { section: entry.section, name: "routes", value }, rule, policy)?);
    }
    Ok(routes)
}

fn route(entry: &Entry<'_, '_>, rule: &str, policy: &Policy) -> Result<GateRoute, ConfigError> {
    let mut route = GateRoute { rule: rule.to_owned(), lane: String::new(), cost: None, plan: None };
    if let Some(name) = entry.value.get_ref().as_str() {
        route.lane = lane(entry, policy, name)?;
        return Ok(route);
    }
    let table = entry.value.get_ref().as_table().ok_or_else(|| entry.wrong(RULE))?;
    for (key, value) in table {
        let of = Entry { section: entry.section, name: "routes", value };
        match key.get_ref().as_ref() {
            "lane" => route.lane = lane(&of, policy, of.string("a lane of the policy")?)?,
            "cost" => route.cost = Some(of.integer(0..=u64::from(u32::MAX))?),
            "plan" => {
                let name = of.string("a plan of the policy")?;
                policy.plan(name).ok_or_else(|| {
                    let plans = policy.plans().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
                    of.error(format!("there is no plan {name:?}; the plans are {plans}"))
                })?;
                route.plan = Some(name.to_owned());
            }
            other => return Err(entry.error(format!("a route has no {other:?}; give {RULE}"))),
        }
    }
    if route.lane.is_empty() {
        return Err(entry.error(format!("the route {rule:?} has no lane; give {RULE}")));
    }
    Ok(route)
}

/// One source of the agent's id: a header by its name, `"address"`, or a table.
fn agent(entry: &Entry<'_, '_>) -> Result<AgentSource, ConfigError> {
    let plain = |kind| Ok(AgentSource { prefix: prefix_of(&kind).to_owned(), kind });
    if let Some(text) = entry.value.get_ref().as_str() {
        return plain(if text == "address" {
            SourceKind::Address(64)
        } else {
            SourceKind::Header(header(entry, text)?)
        });
    }
    let table = entry.value.get_ref().as_table().ok_or_else(|| entry.wrong(AGENT))?;
    let (mut kinds, mut prefix) = (Vec::new(), None);
    for (key, value) in table {
        let of = Entry { section: entry.section, name: "agent", value };
        match key.get_ref().as_ref() {
            "header" => kinds.push(SourceKind::Header(header(&of, of.string("a header's name")?)?)),
            "secret_header" => kinds.push(SourceKind::SecretHeader(header(&of, of.string("a header's name")?)?)),
            // Lossless: at most 128.
            "address" => kinds.push(SourceKind::Address(of.integer(1..=128)? as u8)),
            "shared" => kinds.push(SourceKind::Shared(shared(&of)?)),
            "prefix" => prefix = Some(of.string("a text")?.to_owned()),
            other => return Err(entry.error(format!("an agent's source has no {other:?}; give {AGENT_SOURCE}"))),
        }
    }
    match <[SourceKind; 1]>::try_from(kinds) {
        Ok([kind]) => Ok(AgentSource { prefix: prefix.unwrap_or_else(|| prefix_of(&kind).to_owned()), kind }),
        Err(_) => Err(entry.error(format!("give {AGENT_SOURCE}"))),
    }
}

/// An address cannot be taken for an id from a header.
const fn prefix_of(kind: &SourceKind) -> &'static str {
    match kind {
        SourceKind::Address(_) => "ip:",
        _ => "",
    }
}

fn header(entry: &Entry<'_, '_>, name: &str) -> Result<String, ConfigError> {
    let known = HeaderName::try_from(name);
    known.map(|name| name.to_string()).map_err(|_| entry.error(format!("{name:?} is not a header name; give {AGENT}")))
}

fn shared(entry: &Entry<'_, '_>) -> Result<String, ConfigError> {
    let id = entry.string("an id for all requests")?;
    if (1..=ID_BYTES_MAX).contains(&id.len()) {
        return Ok(id.to_owned());
    }
    Err(entry.error(format!("an id has 1 to {ID_BYTES_MAX} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use std::path::Path;

    const POLICY: &str =
        "[lanes]\n\"api\" = \"5/min\"\n\"run\" = \"2/min\"\nws = \"held 1\"\n[plans.jwt]\napi = \"9/min\"\n";

    fn read(gate: &str) -> Result<GateSettings, String> {
        let text = format!("{POLICY}[gate]\n{gate}");
        let settings = Settings::from_toml(&text, Path::new("/srv")).map_err(|error| error.to_string())?;
        settings.gate.ok_or_else(|| "no gate".to_owned())
    }

    #[test]
    fn every_key_is_read() {
        for key in GATE_KEYS {
            let error = read(&format!("{key} = 1e3")).unwrap_err();
            assert!(error.contains(&format!("gate.{key}: this is of type float; give ")), "{error}");
        }
    }

    #[test]
    fn values_reach_their_settings() {
        let settings = read(
            r#"
            agent = ["X-User-Id", { secret_header = "x-api-key" }, { header = "x-sub", prefix = "user:" }, { address = 56 }, { shared = "all" }]
            lane = "api"
            path_contains = [["/run", "run"]]
            allow_networks = ["10.0.0.0/8"]
            allow_routes = ["GET /health"]
            allow_prefixes = ["/static/"]
            on_error = "open"
            profile = "platform"
            headers_only_when_low = true
            [gate.routes]
            "POST /agents/{id}/run" = "run"
            "POST /llm" = { lane = "api", cost = 100, plan = "jwt" }
            "#,
        )
        .unwrap();
        let source = |kind, prefix: &str| AgentSource { kind, prefix: prefix.into() };
        assert_eq!(
            settings.agent,
            [
                source(SourceKind::Header("x-user-id".into()), ""),
                source(SourceKind::SecretHeader("x-api-key".into()), ""),
                source(SourceKind::Header("x-sub".into()), "user:"),
                source(SourceKind::Address(56), "ip:"),
                source(SourceKind::Shared("all".into()), ""),
            ]
        );
        let route = |rule: &str, lane: &str, cost, plan: Option<&str>| {
            let plan = plan.map(str::to_owned);
            GateRoute { rule: rule.into(), lane: lane.into(), cost, plan }
        };
        let routes =
            [route("POST /agents/{id}/run", "run", None, None), route("POST /llm", "api", Some(100), Some("jwt"))];
        assert_eq!(settings.routes, routes);
        assert_eq!(settings.path_contains, [("/run".to_owned(), "run".to_owned())]);
        assert_eq!((settings.on_error, settings.headers_only_when_low), (OnError::Open, true));
        assert_eq!(settings.style(Style::Draft10), Style::Legacy);
        assert_eq!(GateSettings::default().style(Style::Off), Style::Off);
    }

    #[test]
    fn mistakes_are_reported_with_their_location_and_a_way_out() {
        for (gate, problem) in [
            ("lanes = 1", "line 8, column 1: gate has no key \"lanes\"; allowed: agent, lane,"),
            ("lane = \"heavy\"", "line 8, column 8: gate.lane: there is no lane \"heavy\"; the lanes are api, run, ws"),
            ("lane = \"ws\"", "ws is a held lane, and a gateway never releases a slot; name another"),
            (
                "agent = \"x-user\"",
                "gate.agent: this is of type string; give a list such as [\"x-user-id\", \"address\"]",
            ),
            ("agent = [\"x user\"]", "line 8, column 10: gate.agent: \"x user\" is not a header name; give"),
            ("agent = [{ header = \"a\", address = 64 }]", "give one of header, secret_header, address and shared"),
            ("agent = [{ prefix = \"a\" }]", "give one of header, secret_header, address and shared"),
            ("agent = [{ claim = \"a\" }]", "an agent's source has no \"claim\"; give one of header"),
            ("agent = [{ address = 0 }]", "gate.agent: out of range; give a whole number, 1 to 128"),
            ("agent = [{ shared = \"\" }]", "an id has 1 to 256 bytes"),
            ("path_contains = [[\"auth\", \"api\"]]", "each text begins with /"),
            ("path_contains = [[\"/auth\"]]", "gate.path_contains: give a list of texts and lanes"),
            ("path_contains = [[\"/auth\", \"aip\"]]", "there is no lane \"aip\""),
            ("allow_networks = [\"10.0.0.0/99\"]", "line 8, column 19: gate.allow_networks: \"10.0.0.0/99\" is not a"),
            ("allow_routes = [\"get /\"]", "gate.allow_routes: route \"get /\": the method has to be in capitals"),
            ("allow_prefixes = [\"static\"]", "gate.allow_prefixes: \"static\" does not begin with /"),
            ("on_error = \"allow\"", "gate.on_error: \"allow\"; allowed: \"closed\" and \"open\""),
            ("profile = \"hubs\"", "gate.profile: there is no profile \"hubs\""),
            ("headers = \"draft\"", "gate.headers: there is no header style"),
            ("[gate.routes]\n\"run\" = \"run\"", "line 9, column 1: gate.routes: route \"run\": the path has to begin"),
            ("[gate.routes]\n\"/run\" = \"walk\"", "line 9, column 10: gate.routes: there is no lane \"walk\""),
            ("[gate.routes]\n\"/run\" = 5", "gate.routes: this is of type integer; give a lane, or {"),
            ("[gate.routes]\n\"/run\" = { cost = 5 }", "the route \"/run\" has no lane; give a lane, or {"),
            ("[gate.routes]\n\"/run\" = { lane = \"run\", costs = 5 }", "a route has no \"costs\"; give a lane"),
            (
                "[gate.routes]\n\"/run\" = { lane = \"run\", plan = \"pro\" }",
                "no plan \"pro\"; the plans are default, jwt",
            ),
            ("[gate.routes]\n\"/a/{b}\" = \"run\"\n\"/a/{c}\" = \"run\"", "line 10, column 1: gate.routes: route"),
        ] {
            let error = read(gate).unwrap_err();
            assert!(error.contains(problem), "{gate}: {error}");
        }
        let error = Settings::from_toml("gate = 1\n[lanes]\na = \"1/s\"", Path::new("/srv")).unwrap_err().to_string();
        assert!(error.contains("gate is not a table; write [gate]"), "{error}");
    }
}
