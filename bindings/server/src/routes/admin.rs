//! What an operator decides at run time: defaults, agents, the allowlist, a reload.
//!
//! Every path needs the admin right, and every change says that it is JSON. A
//! change holds for the next check and is kept when it is answered; one that
//! makes no sense names the field and changes nothing.
//!
//! An agent whose id is one of the names below, `defaults` say, is found under
//! `/api/admin/rate-limits/agents/{agent}`, which is there for all others too.

use super::verdict::{lanes, short};
use super::{AgentInPath, agents, fields, json};
use crate::app::App;
use crate::auth::Right;
use crate::control::Defaults;
use crate::id::{self, Id};
use crate::net::{body, front};
use crate::problem::Problem;
use axum::Router;
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post};
use http::StatusCode;
use http::request::Parts;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use tollgate::{Assignment, Limit, Limiter, Policy};

/// How many bytes a change may have: a list of some ten thousand agents.
const BYTES_MAX: usize = 1024 * 1024;

pub(super) fn routes() -> Router<Arc<App>> {
    let base = |path: &str| format!("/api/admin/rate-limits{path}");
    let one: fn() -> MethodRouter<Arc<App>> = || get(agent).put(set_agent).delete(clear_agent);
    let mut router = Router::new()
        .route(&base(""), get(everything))
        .route(&base("/defaults"), get(defaults).put(set_defaults).delete(clear_defaults))
        .route("/api/admin/reload", post(reload));
    // The first name is ours, the second one that of earlier clients.
    for list in ["/allowlist", "/whitelist"] {
        router = router
            .route(&base(list), get(allowlist).put(replace_allowlist).post(add_to_allowlist))
            .route(&base(&format!("{list}/{{agent}}")), delete(remove_from_allowlist));
    }
    for agent in ["/{agent}", "/agents/{agent}"] {
        router = router
            .route(&base(agent), one())
            .route(&base(&format!("{agent}/reset_violations")), post(reset_violations))
            .route(&base(&format!("{agent}/reset")), post(reset))
            .route(&base(&format!("{agent}/forget")), post(forget));
    }
    router
}

/// That the sender may do everything.
struct Admin;

impl FromRequestParts<Arc<App>> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        app.keys().require(Right::Admin, &parts.headers, super::peer(&parts.extensions))?;
        Ok(Self)
    }
}

/// What a change says, from somebody who may make it; `Null` if it says nothing.
struct Change(Value);

impl FromRequest<Arc<App>> for Change {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        Admin::from_request_parts(&mut parts, app).await?;
        if !front::is_json(&parts.headers) {
            let detail = "send a change with the header: content-type: application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
        }
        let body =
            body::read(&parts.headers, body, BYTES_MAX, app.settings().body_timeout, parts.extensions.get()).await?;
        if body.is_empty() {
            return Ok(Self(Value::Null));
        }
        serde_json::from_slice(&body).map(Self).map_err(|error| fields::not_json(&error))
    }
}

/// Makes a change where it may wait: for its turn, and for the disk.
async fn change<T: Send + 'static>(
    app: &Arc<App>,
    change: impl FnOnce(&App) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let app = Arc::clone(app);
    match tokio::task::spawn_blocking(move || change(&app)).await {
        Ok(done) => done,
        Err(_) => {
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the change broke off; look before you repeat it"))
        }
    }
}

async fn everything(State(app): State<Arc<App>>, _: Admin) -> Response {
    let policy = app.limiter().policy();
    let assignments = app.limiter().assignments();
    let decided = assignments.iter().filter(|(_, decided)| decided.plan().is_some() || decided.overrides().len() > 0);
    let decided: Vec<_> = decided
        .map(|(agent, decided)| {
            json!({"agent": id::to_json(agent), "plan": decided.plan(), "overrides": overrides(decided)})
        })
        .collect();
    let plans: Map<_, _> = policy
        .plans()
        .skip(1)
        .map(|(plan, name)| {
            let limits = policy.lanes().filter_map(|(lane, name)| Some((name, policy.plan_limit(plan, lane)?)));
            (name.to_owned(), limits.map(|(name, limit)| (name.to_owned(), Value::from(limit.to_string()))).collect())
        })
        .collect();
    json(&json!({
        "defaults": limits(&policy),
        "defaults_changed": changed(&app),
        "plans": plans,
        "overrides": decided,
        "allowlist": exempt(app.limiter()),
        "kept_in": app.settings().state.as_ref().map(|state| state.display().to_string()),
    }))
}

fn overrides(decided: &Assignment) -> Map<String, Value> {
    decided.overrides().map(|(lane, limit)| (lane.to_owned(), limit.to_string().into())).collect()
}

fn limits(policy: &Policy) -> Map<String, Value> {
    let limits = policy.lanes().filter_map(|(lane, name)| Some((name.to_owned(), policy.limit(lane)?)));
    limits.map(|(name, limit)| (name, limit.to_string().into())).collect()
}

fn changed(app: &App) -> Map<String, Value> {
    app.control().defaults().into_iter().map(|(lane, limit)| (lane, limit.to_string().into())).collect()
}

// --- The lanes' own limits.

async fn defaults(State(app): State<Arc<App>>, _: Admin) -> Response {
    defaults_of(&app)
}

fn defaults_of(app: &App) -> Response {
    json(&json!({"defaults": limits(&app.limiter().policy()), "defaults_changed": changed(app)}))
}

/// Sets the limits of the lanes that are named; the others stay.
async fn set_defaults(State(app): State<Arc<App>>, Change(body): Change) -> Result<Response, Problem> {
    let Value::Object(named) = body else {
        return Err(Problem::bad("give the lanes and their limits, such as {\"http/read\": \"20/second\"}"));
    };
    let limits: Defaults = limits_by_lane(&app.limiter().policy(), &named)?.into_iter().collect();
    change(&app, move |app| app.control().set_defaults(Some(limits))).await?;
    tracing::info!("the defaults were changed through the admin API");
    Ok(defaults_of(&app))
}

/// Back to the limits of the policy.
async fn clear_defaults(State(app): State<Arc<App>>, _: Admin) -> Result<Response, Problem> {
    change(&app, |app| app.control().set_defaults(None)).await?;
    tracing::info!("the defaults were taken back to those of the policy through the admin API");
    Ok(defaults_of(&app))
}

/// Limits by the names of lanes, from limits by lane or by tier. A lane that is
/// named itself has its own, whatever its tier has.
fn limits_by_lane(policy: &Policy, named: &Map<String, Value>) -> Result<Vec<(String, Limit)>, Problem> {
    let mut limits = Vec::new();
    let is_lane = |name: &str| policy.lane(name).is_some();
    let tiers_first =
        named.iter().filter(|(name, _)| !is_lane(name)).chain(named.iter().filter(|(name, _)| is_lane(name)));
    for (name, value) in tiers_first {
        let found = policy.lanes_of(name);
        if found.is_empty() {
            let detail = format!("there is no such lane or tier; the lanes are {}", lanes(policy));
            return Err(Problem::field(short(name), detail));
        }
        let limit = limit(value).map_err(|problem| Problem::field(short(name), problem))?;
        let names = policy.lanes().filter(|(lane, _)| found.contains(lane));
        limits.extend(names.map(|(_, name)| (name.to_owned(), limit)));
    }
    Ok(limits)
}

/// A limit as text, or a number for so many a minute.
fn limit(value: &Value) -> Result<Limit, String> {
    let wanted = "give a limit such as \"10/second burst 20\", \"deny\", or a number for so many a minute";
    let limit = match value {
        Value::String(text) => text.parse().map_err(|problem: tollgate::LimitError| problem.to_string())?,
        Value::Number(number) => Limit::per_minute(number.as_u64().ok_or(wanted)?),
        _ => return Err(wanted.to_owned()),
    };
    limit.validate().map(|()| limit).map_err(|problem| problem.to_string())
}

// --- Single agents.

async fn agent(State(app): State<Arc<App>>, _: Admin, AgentInPath(agent): AgentInPath) -> Result<Response, Problem> {
    Ok(json(&agents::document(app.limiter(), &agent, true)?))
}

/// Replaces the agent's own limits if `overrides` is named, and its plan if `plan` is.
async fn set_agent(
    State(app): State<Arc<App>>,
    AgentInPath(agent): AgentInPath,
    Change(body): Change,
) -> Result<Response, Problem> {
    let wanted = "give {\"overrides\": {\"http/heavy\": \"100/minute\"}, \"plan\": \"pro\"} or one of the two";
    let Value::Object(fields) = body else { return Err(Problem::bad(wanted)) };
    if let Some(other) = fields.keys().find(|name| !["overrides", "plan"].contains(&name.as_str())) {
        return Err(Problem::field(short(other), format!("there is no such field; {wanted}")));
    }
    if fields.is_empty() {
        return Err(Problem::field("overrides", format!("it is missing; {wanted}")));
    }
    let of = agent.clone();
    change(&app, move |app| {
        app.control().decide(|limiter| {
            let mut decided = limiter.assignment(&of)?;
            match fields.get("overrides") {
                None => {}
                Some(Value::Object(named)) => {
                    let limits = limits_by_lane(&limiter.policy(), named);
                    clear_overrides(&mut decided);
                    for (lane, limit) in limits.map_err(|problem| problem.within("overrides"))? {
                        decided.set_override(lane, limit);
                    }
                }
                Some(Value::Null) => clear_overrides(&mut decided),
                Some(_) => return Err(Problem::field("overrides", format!("give lanes and their limits; {wanted}"))),
            }
            match fields.get("plan") {
                None => {}
                Some(Value::String(plan)) => decided.set_plan(Some(plan.clone())),
                Some(Value::Null) => decided.set_plan(None),
                Some(_) => return Err(Problem::field("plan", "give the name of a plan, or null for none")),
            }
            Ok(vec![(of, decided)])
        })
    })
    .await?;
    tracing::info!(agent = %shown(&agent), "an agent was given limits through the admin API");
    Ok(json(&agents::document(app.limiter(), &agent, true)?))
}

/// Back to the defaults: no limits of its own, and no plan. Who is on the allowlist stays there.
async fn clear_agent(
    State(app): State<Arc<App>>,
    _: Admin,
    AgentInPath(agent): AgentInPath,
) -> Result<Response, Problem> {
    let of = agent.clone();
    change(&app, move |app| {
        app.control().decide(|limiter| {
            let mut decided = limiter.assignment(&of)?;
            clear_overrides(&mut decided);
            decided.set_plan(None);
            Ok(vec![(of, decided)])
        })
    })
    .await?;
    tracing::info!(agent = %shown(&agent), "an agent was taken back to the defaults through the admin API");
    Ok(json(&agents::document(app.limiter(), &agent, true)?))
}

fn clear_overrides(decided: &mut Assignment) {
    let names: Vec<_> = decided.overrides().map(|(lane, _)| lane.to_owned()).collect();
    for lane in names {
        decided.remove_override(&lane);
    }
}

async fn reset_violations(
    State(app): State<Arc<App>>,
    AgentInPath(agent): AgentInPath,
    Change(_): Change,
) -> Result<Response, Problem> {
    app.limiter().reset_violations(&agent)?;
    tracing::info!(agent = %shown(&agent), "an agent was forgiven through the admin API");
    Ok(json(&agents::document(app.limiter(), &agent, true)?))
}

/// Fills the agent's lanes. Slots that it holds stay leased.
async fn reset(
    State(app): State<Arc<App>>,
    AgentInPath(agent): AgentInPath,
    Change(_): Change,
) -> Result<Response, Problem> {
    app.limiter().reset(&agent)?;
    tracing::info!(agent = %shown(&agent), "an agent's lanes were filled through the admin API");
    Ok(json(&agents::document(app.limiter(), &agent, true)?))
}

/// Gives up the agent's record: its lanes are full, its violations forgotten,
/// its reservations closed, and it is listed no more until it comes back. What
/// was decided stays, and so do slots that it holds, and its record for them.
async fn forget(
    State(app): State<Arc<App>>,
    AgentInPath(agent): AgentInPath,
    Change(_): Change,
) -> Result<Response, Problem> {
    app.limiter().forget(&agent)?;
    tracing::info!(agent = %shown(&agent), "an agent was forgotten through the admin API");
    Ok(json(&agents::document(app.limiter(), &agent, true)?))
}

/// An id for the log.
fn shown(agent: &[u8]) -> String {
    agent.escape_ascii().to_string()
}

// --- The allowlist: agents that are never limited.

fn exempt(limiter: &Limiter) -> Vec<Value> {
    let decided = limiter.assignments().into_iter().filter(|(_, decided)| decided.is_exempt()).map(|(agent, _)| agent);
    // Those of the policy are on it whatever is decided.
    let all: BTreeSet<_> = decided.chain(limiter.policy().exempt().map(|agent| agent.as_bytes().to_vec())).collect();
    all.iter().map(|agent| id::to_json(agent)).collect()
}

fn allowlist_of(app: &App) -> Response {
    json(&json!({"agents": exempt(app.limiter())}))
}

async fn allowlist(State(app): State<Arc<App>>, _: Admin) -> Response {
    allowlist_of(&app)
}

/// These agents and no others.
async fn replace_allowlist(State(app): State<Arc<App>>, Change(body): Change) -> Result<Response, Problem> {
    let wanted = "give {\"agents\": [\"agent-7\", ...]}";
    let list = match &body {
        Value::Array(list) => list,
        body => match (only_field(body, "agents", wanted)?, wanted) {
            (Value::Array(list), _) => list,
            _ => return Err(Problem::field("agents", format!("it is no list; {wanted}"))),
        },
    };
    let read = |(index, value)| {
        let agent = Id::from_json(value).map_err(|problem| Problem::field(format!("agents[{index}]"), problem))?;
        Ok(agent.into_bytes())
    };
    let wanted: BTreeSet<_> = list.iter().enumerate().map(read).collect::<Result<_, Problem>>()?;
    change(&app, move |app| {
        app.control().decide(|limiter| {
            let mut decided = Vec::new();
            for (agent, mut now) in limiter.assignments() {
                if now.is_exempt() && !wanted.contains(&agent) {
                    now.set_exempt(false);
                    decided.push((agent, now));
                }
            }
            for agent in wanted {
                let mut now = limiter.assignment(&agent)?;
                now.set_exempt(true);
                decided.push((agent, now));
            }
            Ok(decided)
        })
    })
    .await?;
    tracing::info!("the allowlist was replaced through the admin API");
    Ok(allowlist_of(&app))
}

async fn add_to_allowlist(State(app): State<Arc<App>>, Change(body): Change) -> Result<Response, Problem> {
    let name = if body.get("agent_id").is_some() { "agent_id" } else { "agent" };
    let agent = only_field(&body, name, "give {\"agent\": \"agent-7\"}")?;
    let agent = Id::from_json(agent).map_err(|problem| Problem::field(name, problem))?.into_bytes();
    set_exempt(&app, agent, true).await
}

async fn remove_from_allowlist(
    State(app): State<Arc<App>>,
    _: Admin,
    AgentInPath(agent): AgentInPath,
) -> Result<Response, Problem> {
    set_exempt(&app, agent, false).await
}

async fn set_exempt(app: &Arc<App>, agent: Vec<u8>, is_exempt: bool) -> Result<Response, Problem> {
    let of = agent.clone();
    change(app, move |app| {
        app.control().decide(|limiter| {
            let mut decided = limiter.assignment(&of)?;
            decided.set_exempt(is_exempt);
            Ok(vec![(of, decided)])
        })
    })
    .await?;
    tracing::info!(agent = %shown(&agent), is_exempt, "the allowlist was changed through the admin API");
    Ok(allowlist_of(app))
}

/// The one field that a body has to have.
fn only_field<'a>(body: &'a Value, name: &str, wanted: &str) -> Result<&'a Value, Problem> {
    let Value::Object(fields) = body else {
        return Err(Problem::bad(format!("this is no JSON object; {wanted}")));
    };
    if let Some(other) = fields.keys().find(|field| *field != name) {
        return Err(Problem::field(short(other), format!("there is no such field; {wanted}")));
    }
    fields.get(name).ok_or_else(|| Problem::field(name, format!("it is missing; {wanted}")))
}

// --- The policy file.

async fn reload(State(app): State<Arc<App>>, Change(_): Change) -> Result<Response, Problem> {
    let reloaded = change(&app, |app| {
        let reloaded = app.control().reload_and_log();
        reloaded.map_err(|error| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))
    });
    let reloaded = reloaded.await?;
    Ok(json(&json!({
        "reloaded": true,
        "needs_restart": reloaded.needs_restart,
        "hidden_by_defaults": reloaded.hidden,
    })))
}
