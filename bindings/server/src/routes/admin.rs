//! The admin API: defaults, agents, the allowlist, a reload.
//!
//! Every path needs the admin right, and every change has to be sent as JSON. When
//! a change is answered, it is in force for the next check, and on disk. An invalid
//! one is answered with the field that is wrong, and changes nothing.
//!
//! An agent whose id is one of the names below, `defaults` say, is found under
//! `/api/admin/rate-limits/agents/{agent}`, and so is every other.

use super::request::{lane_names, short};
use super::{AgentInPath, agents, fields, json};
use crate::app::App;
use crate::auth::Right;
use crate::defaults::Defaults;
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
    // The second name is an alias for older clients.
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

/// Proof that the client has the admin right.
struct Admin;

impl FromRequestParts<Arc<App>> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Problem> {
        _ = app.keys().require(Right::Admin, &parts.headers, super::peer(&parts.extensions))?;
        Ok(Self)
    }
}

/// The body of a change, from a client with the admin right; `Null` if it is empty.
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

/// Makes a change on a thread that may block: on a lock, of this process or of another that shares the limiter, and
/// on the disk.
async fn change<T: Send + 'static>(
    app: &Arc<App>,
    change: impl FnOnce(&App) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let app = Arc::clone(app);
    match tokio::task::spawn_blocking(move || change(&app)).await {
        Ok(result) => result,
        Err(_) => {
            let detail = "the change broke off; check the present state before you repeat it";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
        }
    }
}

async fn everything(State(app): State<Arc<App>>, _: Admin) -> Response {
    let policy = app.limiter().policy();
    let assignments = app.limiter().assignments();
    let assigned = assignments.iter().filter(|(_, given)| given.plan().is_some() || given.overrides().len() > 0);
    let assigned: Vec<_> = assigned
        .map(|(agent, given)| json!({"agent": id::to_json(agent), "plan": given.plan(), "overrides": overrides(given)}))
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
        "defaults_changed": changed_defaults(&app),
        "plans": plans,
        "overrides": assigned,
        "allowlist": exempt(app.limiter()),
        "kept_in": app.settings().state.as_ref().map(|state| state.display().to_string()),
    }))
}

pub(super) fn overrides(assignment: &Assignment) -> Map<String, Value> {
    assignment.overrides().map(|(lane, limit)| (lane.to_owned(), limit.to_string().into())).collect()
}

pub(super) fn limits(policy: &Policy) -> Map<String, Value> {
    let limits = policy.lanes().filter_map(|(lane, name)| Some((name.to_owned(), policy.limit(lane)?)));
    limits.map(|(name, limit)| (name, limit.to_string().into())).collect()
}

fn changed_defaults(app: &App) -> Map<String, Value> {
    app.control().defaults().into_iter().map(|(lane, limit)| (lane, limit.to_string().into())).collect()
}

// --- The defaults: the lanes' own limits.

async fn defaults(State(app): State<Arc<App>>, _: Admin) -> Response {
    defaults_response(&app)
}

fn defaults_response(app: &App) -> Response {
    json(&json!({"defaults": limits(&app.limiter().policy()), "defaults_changed": changed_defaults(app)}))
}

/// Sets the limits of the lanes that are named; the others stay.
async fn set_defaults(State(app): State<Arc<App>>, Change(body): Change) -> Result<Response, Problem> {
    let Value::Object(named) = body else {
        let detail = "give the lanes and their limits, such as {\"http/read\": \"20/second\"}";
        return Err(Problem::bad_request(detail));
    };
    let limits: Defaults = limits_by_lane(&app.limiter().policy(), &named)?.into_iter().collect();
    change(&app, move |app| app.control().set_defaults(Some(limits))).await?;
    tracing::info!("the defaults were changed through the admin API");
    Ok(defaults_response(&app))
}

/// Restores the limits of the policy.
async fn clear_defaults(State(app): State<Arc<App>>, _: Admin) -> Result<Response, Problem> {
    change(&app, |app| app.control().set_defaults(None)).await?;
    tracing::info!("the defaults were restored to those of the policy through the admin API");
    Ok(defaults_response(&app))
}

/// Limits by lane, from limits by lane or by tier. A lane's own limit takes
/// precedence over its tier's.
fn limits_by_lane(policy: &Policy, named: &Map<String, Value>) -> Result<Vec<(String, Limit)>, Problem> {
    let mut limits = Vec::new();
    let is_lane = |name: &str| policy.lane(name).is_some();
    let tiers_first =
        named.iter().filter(|(name, _)| !is_lane(name)).chain(named.iter().filter(|(name, _)| is_lane(name)));
    for (name, value) in tiers_first {
        let found = policy.lanes_of(name);
        if found.is_empty() {
            let detail = format!("there is no such lane or tier; the lanes are {}", lane_names(policy));
            return Err(Problem::field(short(name), detail));
        }
        let limit = limit(value).map_err(|problem| Problem::field(short(name), problem))?;
        let names = policy.lanes().filter(|(lane, _)| found.contains(lane));
        limits.extend(names.map(|(_, name)| (name.to_owned(), limit)));
    }
    Ok(limits)
}

/// A limit as text, or a number per minute.
fn limit(value: &Value) -> Result<Limit, String> {
    let wanted = "give a limit such as \"10/second burst 20\", \"deny\", or a number per minute";
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

/// Replaces the agent's overrides if the body has `overrides`, and its plan if it has `plan`.
async fn set_agent(
    State(app): State<Arc<App>>,
    AgentInPath(agent): AgentInPath,
    Change(body): Change,
) -> Result<Response, Problem> {
    let wanted = "give {\"overrides\": {\"http/heavy\": \"100/minute\"}, \"plan\": \"pro\"} or one of the two";
    let Value::Object(fields) = body else { return Err(Problem::bad_request(wanted)) };
    if let Some(other) = fields.keys().find(|name| !["overrides", "plan"].contains(&name.as_str())) {
        return Err(Problem::field(short(other), format!("there is no such field; {wanted}")));
    }
    if fields.is_empty() {
        return Err(Problem::field("overrides", format!("it is missing; {wanted}")));
    }
    let of = agent.clone();
    change(&app, move |app| {
        app.control().decide(|limiter| {
            let mut assignment = limiter.assignment(&of)?;
            match fields.get("overrides") {
                None => {}
                Some(Value::Object(named)) => {
                    let limits = limits_by_lane(&limiter.policy(), named);
                    clear_overrides(&mut assignment);
                    for (lane, limit) in limits.map_err(|problem| problem.within("overrides"))? {
                        assignment.set_override(lane, limit);
                    }
                }
                Some(Value::Null) => clear_overrides(&mut assignment),
                Some(_) => return Err(Problem::field("overrides", format!("give lanes and their limits; {wanted}"))),
            }
            match fields.get("plan") {
                None => {}
                Some(Value::String(plan)) => assignment.set_plan(Some(plan.clone())),
                Some(Value::Null) => assignment.set_plan(None),
                Some(_) => return Err(Problem::field("plan", "give the name of a plan, or null for none")),
            }
            Ok(vec![(of, assignment)])
        })
    })
    .await?;
    tracing::info!(agent = %shown(&agent), "the plan or the overrides of an agent were set through the admin API");
    Ok(json(&agents::document(app.limiter(), &agent, true)?))
}

/// Deletes the agent's overrides and its plan. Its exemption stays.
async fn clear_agent(
    State(app): State<Arc<App>>,
    _: Admin,
    AgentInPath(agent): AgentInPath,
) -> Result<Response, Problem> {
    let of = agent.clone();
    change(&app, move |app| {
        app.control().decide(|limiter| {
            let mut assignment = limiter.assignment(&of)?;
            clear_overrides(&mut assignment);
            assignment.set_plan(None);
            Ok(vec![(of, assignment)])
        })
    })
    .await?;
    tracing::info!(agent = %shown(&agent), "the plan and the overrides of an agent were deleted through the admin API");
    Ok(json(&agents::document(app.limiter(), &agent, true)?))
}

fn clear_overrides(assignment: &mut Assignment) {
    let names: Vec<_> = assignment.overrides().map(|(lane, _)| lane.to_owned()).collect();
    for lane in names {
        assignment.remove_override(&lane);
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
    let of = agent.clone();
    change(&app, move |app| Ok(app.limiter().reset(&of)?)).await?;
    tracing::info!(agent = %shown(&agent), "an agent's lanes were filled through the admin API");
    Ok(json(&agents::document(app.limiter(), &agent, true)?))
}

/// Gives up the agent's record: its lanes are full, its violations forgotten, its
/// reservations closed, and it is not listed until it comes back. Its assignment
/// stays. If it holds slots, they stay leased, and its record is kept for them.
async fn forget(
    State(app): State<Arc<App>>,
    AgentInPath(agent): AgentInPath,
    Change(_): Change,
) -> Result<Response, Problem> {
    let of = agent.clone();
    change(&app, move |app| Ok(app.limiter().forget(&of)?)).await?;
    tracing::info!(agent = %shown(&agent), "an agent was forgotten through the admin API");
    Ok(json(&agents::document(app.limiter(), &agent, true)?))
}

/// An id in the log.
fn shown(agent: &[u8]) -> String {
    agent.escape_ascii().to_string()
}

// --- The allowlist: agents that are never limited.

pub(super) fn exempt(limiter: &Limiter) -> Vec<Value> {
    let assigned = limiter.assignments().into_iter().filter(|(_, given)| given.is_exempt()).map(|(agent, _)| agent);
    // The policy's exempt agents are always on it.
    let all: BTreeSet<_> = assigned.chain(limiter.policy().exempt().map(|agent| agent.as_bytes().to_vec())).collect();
    all.iter().map(|agent| id::to_json(agent)).collect()
}

fn allowlist_response(app: &App) -> Response {
    json(&json!({"agents": exempt(app.limiter())}))
}

async fn allowlist(State(app): State<Arc<App>>, _: Admin) -> Response {
    allowlist_response(&app)
}

/// Exempts these agents and no others.
async fn replace_allowlist(State(app): State<Arc<App>>, Change(body): Change) -> Result<Response, Problem> {
    let wanted = "give {\"agents\": [\"agent-7\", ...]}";
    let list = match &body {
        Value::Array(list) => list,
        body => match (only_field(body, "agents", wanted)?, wanted) {
            (Value::Array(list), _) => list,
            _ => return Err(Problem::field("agents", format!("it is not a list; {wanted}"))),
        },
    };
    let read = |(index, value)| {
        let agent = Id::from_json(value).map_err(|problem| Problem::field(format!("agents[{index}]"), problem))?;
        Ok(agent.into_bytes())
    };
    let wanted: BTreeSet<_> = list.iter().enumerate().map(read).collect::<Result<_, Problem>>()?;
    change(&app, move |app| {
        app.control().decide(|limiter| {
            let mut assignments = Vec::new();
            for (agent, mut assignment) in limiter.assignments() {
                if assignment.is_exempt() && !wanted.contains(&agent) {
                    assignment.set_exempt(false);
                    assignments.push((agent, assignment));
                }
            }
            for agent in wanted {
                let mut assignment = limiter.assignment(&agent)?;
                assignment.set_exempt(true);
                assignments.push((agent, assignment));
            }
            Ok(assignments)
        })
    })
    .await?;
    tracing::info!("the allowlist was replaced through the admin API");
    Ok(allowlist_response(&app))
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
            let mut assignment = limiter.assignment(&of)?;
            assignment.set_exempt(is_exempt);
            Ok(vec![(of, assignment)])
        })
    })
    .await?;
    tracing::info!(agent = %shown(&agent), is_exempt, "the allowlist was changed through the admin API");
    Ok(allowlist_response(app))
}

/// The only field of a body.
fn only_field<'a>(body: &'a Value, name: &str, wanted: &str) -> Result<&'a Value, Problem> {
    let Value::Object(fields) = body else {
        return Err(Problem::bad_request(format!("the body is not a JSON object; {wanted}")));
    };
    if let Some(other) = fields.keys().find(|field| *field != name) {
        return Err(Problem::field(short(other), format!("there is no such field; {wanted}")));
    }
    fields.get(name).ok_or_else(|| Problem::field(name, format!("it is missing; {wanted}")))
}

// --- The policy file.

async fn reload(State(app): State<Arc<App>>, Change(_): Change) -> Result<Response, Problem> {
    let outcome = change(&app, |app| {
        let outcome = app.reload();
        outcome.map_err(|error| match error.is_busy() {
            true => Problem::busy(error.to_string()),
            false => Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
        })
    });
    let outcome = outcome.await?;
    Ok(json(&json!({
        "reloaded": true,
        "needs_restart": outcome.needs_restart,
        "hidden_by_defaults": outcome.hidden,
    })))
}
