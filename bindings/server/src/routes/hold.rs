//! `/v1/hold` and `/v1/release`: slots of held lanes.

use super::check::{BODY_BYTES_MAX, read_body};
use super::fields::{self, Fields, Shape};
use super::json;
use super::outcome::RefusalFormat;
use super::request::{CheckBody, CheckRequest, lane_name};
use super::reserve::{TTL_SECONDS, ttl};
use crate::app::App;
use crate::id::{Id, Text};
use crate::leases::{Guard, LeaseId, NoRoom};
use crate::problem::Problem;
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tollgate::Decision;

/// The body of a hold: that of a check, and for how long.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hold<'a> {
    #[serde(borrow, alias = "agent_id")]
    agent: Id<'a>,
    #[serde(borrow)]
    lane: Option<Text<'a>>,
    #[serde(borrow)]
    channel: Option<Text<'a>>,
    #[serde(borrow)]
    action: Option<Text<'a>>,
    #[serde(borrow)]
    plan: Option<Text<'a>>,
    cost: Option<u64>,
    ttl_seconds: Option<u64>,
}

const HOLD: Fields = Fields {
    all: &[
        ("agent", Shape::Agent),
        ("agent_id", Shape::Agent),
        ("lane", Shape::Text),
        ("channel", Shape::Text),
        ("action", Shape::Text),
        ("plan", Shape::Text),
        ("cost", Shape::Count),
        TTL_SECONDS,
    ],
    needed: &["agent"],
    example: "{\"agent\": \"...\", \"lane\": \"...\", \"ttl_seconds\": 60}",
};

/// Takes a slot, if one is free, and leases it.
pub(crate) async fn hold(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let format = RefusalFormat::new("/v1/hold", &app, request.headers());
    let (body, scope) = read_body(&app, request, BODY_BYTES_MAX).await?;
    let Hold { agent, lane, channel, action, plan, cost, ttl_seconds } = fields::read(&body, &HOLD)?;
    let ttl = ttl(ttl_seconds)?;
    let policy = app.limiter().policy();
    let request = CheckBody { agent, lane, channel, action, plan, cost, limit: None }.resolve(&app, &policy, &scope)?;
    if !app.limiter().is_held(request.lane)? {
        let name = lane_name(&policy, request.lane);
        return Err(Problem::field("lane", format!("{name} is not a held lane; charge it with /v1/check")));
    }
    let now = app.limiter().now();
    let mut leases = lock_with_room(&app, now, &[request.agent.as_bytes()])?;
    let outcome = request.decide(&app, now)?;
    if outcome.quota.denied {
        drop(leases);
        return Ok(outcome.response(&app, &policy, &request.agent, format));
    }
    let lease = grant(&mut leases, &request, outcome.decision, ttl)?;
    drop(leases);
    Ok(outcome.allowed_response(&app, &policy, |verdict| {
        verdict.lease = Some(lease);
        verdict.ttl_seconds = Some(ttl.as_secs());
    }))
}

/// Locks the leases, if there is room for one more for each of these agents.
pub(super) fn lock_with_room<'a>(app: &'a App, now: tollgate::Tick, agents: &[&[u8]]) -> Result<Guard<'a>, Problem> {
    let mut leases = app.leases().lock(now);
    let problem = match leases.room_for(agents) {
        Ok(()) => return Ok(leases),
        Err(NoRoom::Overall) => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "all leases are taken; release some, or raise leases in [server]",
        ),
        Err(NoRoom::ForAgent { most }) => Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "the agent has {most} leases, as many as one agent may; release some, or raise leases_per_agent in \
                 [server]"
            ),
        )
        .in_field("agent"),
    };
    Err(problem.with_reason("leases").retry_after(1))
}

/// Leases the slots that were taken, and returns the lease as clients see it. An
/// exempt agent has taken no slot, and gets a lease all the same, so that clients
/// need no special case.
pub(super) fn grant(
    leases: &mut Guard<'_>,
    request: &CheckRequest<'_>,
    decision: Decision,
    ttl: Duration,
) -> Result<String, Problem> {
    let slots = if decision == Decision::Exempt { 0 } else { request.cost };
    let lease = leases.grant(request.agent.as_bytes(), request.lane, slots, ttl);
    let failed = |error: crate::StartError| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    lease.map(|id| URL_SAFE_NO_PAD.encode(id.to_be_bytes())).map_err(failed)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseBody<'a> {
    #[serde(borrow)]
    lease: Text<'a>,
}

const RELEASE: Fields = Fields { all: &[("lease", Shape::Text)], needed: &["lease"], example: "{\"lease\": \"...\"}" };

/// Gives a slot back.
pub(crate) async fn release(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    // Whoever has the lease may give it back.
    let (body, _) = read_body(&app, request, BODY_BYTES_MAX).await?;
    let ReleaseBody { lease } = fields::read(&body, &RELEASE)?;
    let now = app.limiter().now();
    let release = read_lease(&lease.0).and_then(|id| app.leases().release(id, now)).ok_or_else(no_lease)?;
    let policy = app.limiter().policy();
    Ok(json(&json!({
        "released": true,
        "lane": lane_name(&policy, release.lane),
        "limit": release.state.map(|state| state.capacity()),
        "remaining": release.state.map(|state| state.remaining()),
    })))
}

pub(super) fn read_lease(text: &str) -> Option<LeaseId> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    bytes.try_into().ok().map(LeaseId::from_be_bytes)
}

pub(super) fn no_lease() -> Problem {
    let detail = "there is no such lease: it was released, it has expired, or it never existed";
    Problem::new(StatusCode::NOT_FOUND, detail).in_field("lease")
}
