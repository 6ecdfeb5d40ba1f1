//! `/v1/check/all`: several requests, all of them charged or none.

use super::check::{read_body, resolve_each};
use super::fields::{self, Fields, Shape};
use super::hold::{grant, lock_with_room};
use super::outcome::{Outcome, RefusalFormat, VerdictJson};
use super::request::{CheckBody, CheckRequest, lane_name};
use super::reserve::{TTL_SECONDS, ttl};
use crate::app::App;
use crate::problem::Problem;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tollgate::bounds::PARTS_MAX;
use tollgate::{Error, Policy, Tick, Verdict};
use tollgate_tower::Profile;

/// How many bytes a body with the most parts may have.
const BYTES_MAX: usize = PARTS_MAX * super::check::BODY_BYTES_MAX;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct All<'a> {
    #[serde(borrow)]
    requests: Vec<CheckBody<'a>>,
    ttl_seconds: Option<u64>,
}

const ALL: Fields = Fields {
    all: &[("requests", Shape::List(&CheckBody::FIELDS)), TTL_SECONDS],
    needed: &["requests"],
    example: "{\"requests\": [{\"agent\": \"...\", \"lane\": \"...\"}, ...]}",
};

#[derive(Serialize)]
struct AllAllowed<'a> {
    allowed: bool,
    verdicts: Vec<VerdictJson<'a>>,
}

/// Charges all or none, over several lanes and agents. Held slots are leased.
pub(crate) async fn all(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let format = RefusalFormat::new("/v1/check/all", &app, request.headers());
    let (body, scope) = read_body(&app, request, BYTES_MAX).await?;
    let All { requests, ttl_seconds } = fields::read(&body, &ALL)?;
    let ttl = ttl(ttl_seconds)?;
    if !(1..=PARTS_MAX).contains(&requests.len()) {
        return Err(Problem::from(Error::Parts { parts: requests.len() }).in_field("requests"));
    }
    let policy = app.limiter().policy();
    let parts = resolve_each(requests, |body| body.resolve(&app, &policy, &scope))?;
    let now = app.limiter().now();
    let is_held = |part: &CheckRequest<'_>| app.limiter().is_held(part.lane) == Ok(true);
    let holders: Vec<_> = parts.iter().filter(|part| is_held(part)).map(|part| part.agent.as_bytes()).collect();
    let mut leases = if holders.is_empty() { None } else { Some(lock_with_room(&app, now, &holders)?) };
    let outcomes = decide(&app, &parts, now)?;
    if outcomes.iter().any(|outcome| outcome.quota.denied) {
        drop(leases);
        return Ok(refusal(&app, &policy, &parts, &outcomes, format));
    }
    let wall_clock = app.wall_clock();
    let mut verdicts: Vec<_> = outcomes.iter().map(|outcome| outcome.to_json(&policy, wall_clock)).collect();
    for ((part, outcome), verdict) in parts.iter().zip(&outcomes).zip(&mut verdicts) {
        if let Some(leases) = leases.as_mut().filter(|_| is_held(part)) {
            verdict.lease = Some(grant(leases, part, outcome.decision, ttl)?);
            verdict.ttl_seconds = Some(ttl.as_secs());
        }
    }
    drop(leases);
    // Plain data, so this never fails.
    let body = serde_json::to_vec(&AllAllowed { allowed: true, verdicts }).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let share = |outcome: &&Outcome| {
        u128::from(outcome.quota.remaining) * 1_000_000 / u128::from(outcome.quota.capacity.max(1))
    };
    if let Some(tightest) = outcomes.iter().min_by_key(share) {
        tightest.write_headers(&app, lane_name(&policy, tightest.lane), response.headers_mut());
    }
    Ok(response)
}

/// Decides about every part, and counts it.
fn decide(app: &App, parts: &[CheckRequest<'_>], now: Tick) -> Result<Vec<Outcome>, Problem> {
    let requests: Vec<_> = parts.iter().map(|part| part.to_request(now)).collect();
    let all = match app.limiter().check_all(&requests) {
        Ok(all) => all,
        Err(Error::CostAboveCapacity { .. }) => {
            // Parts that can never pass are denied, alone or with others of their lane. The others are reported
            // as they would be, and no violation is counted.
            let decide = |part: &CheckRequest<'_>| {
                let is_same = |other: &&CheckRequest<'_>| other.lane == part.lane && other.agent == part.agent;
                let together = parts.iter().filter(is_same).fold(0, |sum: u64, other| sum.saturating_add(other.cost));
                let too_costly = part.too_costly(app, now, together)?;
                let outcome = too_costly.map_or_else(|| part.peek(app, now), Ok)?;
                if outcome.quota.denied {
                    part.count(app, &outcome, false);
                }
                Ok(outcome)
            };
            return parts.iter().map(decide).collect();
        }
        Err(error) => return Err(error.into()),
    };
    let decide = |(part, verdict): (&CheckRequest<'_>, &Verdict)| {
        let outcome = part.outcome(verdict);
        if all.is_allowed() || outcome.quota.denied {
            part.count(app, &outcome, verdict.is_sustained_abuse());
        }
        outcome
    };
    Ok(parts.iter().zip(all.verdicts()).map(decide).collect())
}

/// The refusal of the part with the longest wait; a problem has the verdicts on all parts.
fn refusal(
    app: &App,
    policy: &Policy,
    parts: &[CheckRequest<'_>],
    outcomes: &[Outcome],
    format: RefusalFormat,
) -> Response {
    let blocking = || outcomes.iter().enumerate().filter(|(_, outcome)| outcome.quota.denied);
    // Where waiting does not help, the wait is the longest of all.
    let wait = |(_, outcome): &(usize, &Outcome)| outcome.quota.retry_after.unwrap_or(Duration::MAX);
    let Some((index, worst)) = blocking().min_by_key(|part| Reverse(wait(part))) else {
        return Response::new(Body::empty());
    };
    let mut response = worst.refusal(app, policy, &parts[index].agent, format);
    if format.profile == Profile::Standard {
        let mut problem: Map<String, Value> = serde_json::from_slice(response.body()).unwrap_or_default();
        let wall_clock = app.wall_clock();
        let verdicts: Vec<_> = outcomes.iter().map(|outcome| outcome.to_json(policy, wall_clock)).collect();
        let violated: BTreeSet<_> = blocking().map(|(_, outcome)| lane_name(policy, outcome.lane)).collect();
        problem.insert("verdicts".to_owned(), json!(verdicts));
        problem.insert("blocking".to_owned(), blocking().map(|(index, _)| index).collect());
        problem.insert("violated-policies".to_owned(), json!(violated));
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Value::from(problem).to_string().into();
    }
    response.map(Body::from)
}
