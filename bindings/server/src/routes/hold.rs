//! Slots that are held: at most so many at once.

use super::check::{ASK_BYTES_MAX, asked};
use super::fields::{self, Fields, Shape};
use super::json;
use super::reserve::{TTL_SECONDS, ttl};
use super::verdict::{Ask, Asked, Known, lane_name};
use crate::app::App;
use crate::id::{Id, Text};
use crate::leases::{LeaseId, NoRoom, Turn};
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

/// What asks for a slot: as an ask, and for how long.
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
    let answered = Asked::at("/v1/hold", &app, request.headers());
    let body = asked(&app, request, ASK_BYTES_MAX).await?;
    let Hold { agent, lane, channel, action, plan, cost, ttl_seconds } = fields::read(&body, &HOLD)?;
    let ttl = ttl(ttl_seconds)?;
    let policy = app.limiter().policy();
    let known = Ask { agent, lane, channel, action, plan, cost }.known(&app, &policy)?;
    if !app.limiter().is_held(known.lane)? {
        let name = lane_name(&policy, known.lane);
        return Err(Problem::field("lane", format!("nothing of {name} is held; ask with /v1/check")));
    }
    let now = app.limiter().now();
    let mut turn = turn_with_room(&app, now, &[known.agent.as_bytes()])?;
    let decided = known.decide(&app, now)?;
    if decided.quota.denied {
        drop(turn);
        return Ok(decided.response(&app, &policy, &known.agent, answered));
    }
    let lease = grant(&mut turn, &known, decided.decision, ttl)?;
    drop(turn);
    Ok(decided.allowed(&app, &policy, |told| {
        told.lease = Some(lease);
        told.ttl_seconds = Some(ttl.as_secs());
    }))
}

/// A turn in which there is room for one more lease for each of these agents.
pub(super) fn turn_with_room<'a>(app: &'a App, now: tollgate::Tick, agents: &[&[u8]]) -> Result<Turn<'a>, Problem> {
    let mut turn = app.leases().turn(now);
    let problem = match turn.room_for(agents) {
        Ok(()) => return Ok(turn),
        Err(NoRoom::InAll) => Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "no more slots can be leased at once; release some, or set leases in [server] higher",
        ),
        Err(NoRoom::ForAgent { most }) => Problem::new(
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "the agent has {most} slots leased, as many as one agent may; release some, or set leases_per_agent in [server] higher"
            ),
        )
        .of_field("agent"),
    };
    Err(problem.because("leases").retry_after(1))
}

/// Leases what was acquired: the lease as clients have it. An agent that is
/// exempt has taken no slot, and has a lease all the same, so that clients need
/// not care.
pub(super) fn grant(
    turn: &mut Turn<'_>,
    known: &Known<'_>,
    decision: Decision,
    ttl: Duration,
) -> Result<String, Problem> {
    let slots = if decision == Decision::Exempt { 0 } else { known.cost };
    let lease = turn.grant(known.agent.as_bytes(), known.lane, slots, ttl);
    let failed = |error: crate::StartError| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    lease.map(|id| URL_SAFE_NO_PAD.encode(id.to_be_bytes())).map_err(failed)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Release<'a> {
    #[serde(borrow)]
    lease: Text<'a>,
}

const RELEASE: Fields = Fields { all: &[("lease", Shape::Text)], needed: &["lease"], example: "{\"lease\": \"...\"}" };

/// Gives a slot back.
pub(crate) async fn release(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let body = asked(&app, request, ASK_BYTES_MAX).await?;
    let Release { lease } = fields::read(&body, &RELEASE)?;
    let now = app.limiter().now();
    let released = read_lease(&lease.0).and_then(|id| app.leases().release(id, now)).ok_or_else(no_lease)?;
    let policy = app.limiter().policy();
    Ok(json(&json!({
        "released": true,
        "lane": lane_name(&policy, released.lane),
        "limit": released.status.map(|status| status.capacity()),
        "remaining": released.status.map(|status| status.remaining()),
    })))
}

pub(super) fn read_lease(text: &str) -> Option<LeaseId> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    bytes.try_into().ok().map(LeaseId::from_be_bytes)
}

pub(super) fn no_lease() -> Problem {
    let detail = "there is no such lease: it was released already, its time has passed, or it never was";
    Problem::new(StatusCode::NOT_FOUND, detail).of_field("lease")
}
