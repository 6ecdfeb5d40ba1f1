//! `/v1/check` and `/v1/check/many`.

use super::fields::{self, Fields, Shape};
use super::outcome::{RefusalFormat, VerdictJson};
use super::request::{CheckBody, CheckRequest};
use crate::app::App;
use crate::net::body;
use crate::net::flight::InFlight;
use crate::problem::Problem;
use crate::tokens::Scope;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// How many bytes a single request may have.
pub(super) const BODY_BYTES_MAX: usize = 4 * 1024;

/// How many bytes a batch may have.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// How many checks a batch may have: some milliseconds of work.
const BATCH_MAX: usize = 10_000;

/// How many bytes one request of a batch takes while it is read, decided and answered.
const REQUEST_BYTES: usize = 600;

/// How many requests of a batch are decided before other tasks get their turn: a fraction of a millisecond.
const AT_A_TIME: usize = 500;

pub(crate) async fn one(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let peer = super::peer(request.extensions());
    decide(&app, peer, request).await
}

/// The same as [`one`], without the router: most requests are checks, and finding
/// their route would cost as much as the check.
pub(crate) async fn decide(
    app: &App,
    peer: IpAddr,
    request: http::Request<impl HttpBody<Data = Bytes> + Unpin>,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let scope = app.keys().require_check(&parts.headers, || peer)?;
    let body = body::read(&parts.headers, body, BODY_BYTES_MAX, app.settings().body_timeout, None).await?;
    let begun = Instant::now();
    let body: CheckBody<'_> = fields::read(&body, &CheckBody::FIELDS)?;
    let policy = app.limiter().policy();
    let request = body.resolve_for_check(app, &policy, &scope)?;
    let outcome = request.decide_exactly(app).await?;
    let format = RefusalFormat::new("/v1/check", app, &parts.headers);
    let response = outcome.response(app, &policy, &request.agent, format);
    app.meter().record_duration(begun.elapsed());
    Ok(response)
}

/// The body of a request from a client that may check, and the lanes in which it may.
pub(super) async fn read_body(app: &App, request: Request, bytes_max: usize) -> Result<(Bytes, Scope), Problem> {
    let (parts, body) = request.into_parts();
    let scope = app.keys().require_check(&parts.headers, || super::peer(&parts.extensions))?;
    let timeout = app.settings().body_timeout;
    let body = body::read(&parts.headers, body, bytes_max, timeout, parts.extensions.get()).await?;
    Ok((body, scope))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    requests: Vec<CheckBody<'a>>,
}

const BATCH: Fields = Fields {
    all: &[("requests", Shape::List(&CheckBody::FIELDS))],
    needed: &["requests"],
    example: "{\"requests\": [{\"agent\": \"...\", \"lane\": \"...\"}, ...]}",
};

#[derive(Serialize)]
struct Verdicts<'a> {
    verdicts: Vec<VerdictJson<'a>>,
}

/// Decides many requests in order, at one reading of the clock. If one of them is
/// invalid, none is charged.
pub(crate) async fn many(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let in_flight: Option<InFlight> = request.extensions().get().cloned();
    let (body, scope) = read_body(&app, request, BATCH_BYTES_MAX).await?;
    // Each request is an object, so there are at most as many requests as braces.
    let requests_max = body.iter().filter(|byte| **byte == b'{').count().min(BATCH_MAX);
    if let Some(in_flight) = in_flight {
        in_flight.set(body.len() + requests_max * REQUEST_BYTES)?;
    }
    let Batch { requests } = fields::read(&body, &BATCH)?;
    if requests.len() > BATCH_MAX {
        let detail = format!("there are {} requests; a batch has {BATCH_MAX} at most", requests.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail).in_field("requests"));
    }
    let policy = app.limiter().policy();
    let requests = resolve_each(requests, |body| body.resolve_for_check(&app, &policy, &scope))?;
    let (now, wall_clock) = (app.limiter().now(), app.wall_clock());
    let mut verdicts = Vec::with_capacity(requests.len());
    for (number, some) in requests.chunks(AT_A_TIME).enumerate() {
        if number > 0 {
            // This thread serves other connections too.
            tokio::task::yield_now().await;
        }
        for request in some {
            match request.decide(&app, now) {
                Ok(outcome) => verdicts.push(outcome.to_json(&policy, wall_clock)),
                Err(problem) => {
                    verdicts.push(VerdictJson::error(&policy, request.lane, &problem));
                    if problem.is_busy() {
                        // It waited for another process, and the next one may wait as long.
                        tokio::task::yield_now().await;
                    }
                }
            }
        }
    }
    let body = serde_json::to_vec(&Verdicts { verdicts }).unwrap_or_default();
    let mut response = Response::new(body.into());
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}

/// Resolves each of several requests; a problem says which one it is in.
pub(super) fn resolve_each<'a>(
    requests: Vec<CheckBody<'a>>,
    resolve: impl Fn(CheckBody<'a>) -> Result<CheckRequest<'a>, Problem>,
) -> Result<Vec<CheckRequest<'a>>, Problem> {
    let resolve = |(index, body)| resolve(body).map_err(|problem| problem.within(&format!("requests[{index}]")));
    requests.into_iter().enumerate().map(resolve).collect()
}
