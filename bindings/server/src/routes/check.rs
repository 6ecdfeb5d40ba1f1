//! May the agent do this?

use super::fields::{self, Fields, Shape};
use super::verdict::{Ask, Asked, Known, Told};
use crate::app::App;
use crate::net::body;
use crate::net::flight::InFlight;
use crate::problem::Problem;
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
pub(super) const ASK_BYTES_MAX: usize = 4 * 1024;

/// How many bytes a batch may have.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// How many checks a batch may have: some milliseconds of work.
const BATCH_MAX: usize = 10_000;

/// How many bytes one of a batch takes while it is read, decided and told.
const DECIDED_BYTES: usize = 600;

/// How many of a batch are decided before others have their turn: a fraction of a millisecond.
const AT_A_TIME: usize = 500;

pub(crate) async fn one(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let peer = super::peer(request.extensions());
    decide(&app, peer, request).await
}

/// As [`one`], for those who know the way: most requests are checks, and for
/// them the search for a route would cost as much as the check.
pub(crate) async fn decide(
    app: &App,
    peer: IpAddr,
    request: http::Request<impl HttpBody<Data = Bytes> + Unpin>,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    app.keys().require_check(&parts.headers, || peer)?;
    let body = body::read(&parts.headers, body, ASK_BYTES_MAX, app.settings().body_timeout, None).await?;
    let begun = Instant::now();
    let ask: Ask<'_> = fields::read(&body, &Ask::FIELDS)?;
    let policy = app.limiter().policy();
    let known = ask.known_to_pass(app, &policy)?;
    let decided = known.decide(app, app.limiter().now())?;
    let asked = Asked::at("/v1/check", app, &parts.headers);
    let response = decided.response(app, &policy, &known.agent, asked);
    app.meter().took(begun.elapsed());
    Ok(response)
}

/// The body of a request by somebody who may check.
pub(super) async fn asked(app: &App, request: Request, bytes_max: usize) -> Result<Bytes, Problem> {
    let (parts, body) = request.into_parts();
    app.keys().require_check(&parts.headers, || super::peer(&parts.extensions))?;
    body::read(&parts.headers, body, bytes_max, app.settings().body_timeout, parts.extensions.get()).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    requests: Vec<Ask<'a>>,
}

const BATCH: Fields = Fields {
    all: &[("requests", Shape::List(&Ask::FIELDS))],
    needed: &["requests"],
    example: "{\"requests\": [{\"agent\": \"...\", \"lane\": \"...\"}, ...]}",
};

#[derive(Serialize)]
struct Verdicts<'a> {
    verdicts: Vec<Told<'a>>,
}

/// Decides many, in order, at one reading of the clock. If one of them makes
/// no sense, none is charged.
pub(crate) async fn many(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let in_flight: Option<InFlight> = request.extensions().get().cloned();
    let body = asked(&app, request, BATCH_BYTES_MAX).await?;
    // Each request is an object; there may be fewer of them than braces.
    let requests_max = body.iter().filter(|byte| **byte == b'{').count().min(BATCH_MAX);
    if let Some(in_flight) = in_flight {
        in_flight.hold(body.len() + requests_max * DECIDED_BYTES)?;
    }
    let Batch { requests } = fields::read(&body, &BATCH)?;
    if requests.len() > BATCH_MAX {
        let detail = format!("{} requests; a batch has {BATCH_MAX} at most", requests.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail).of_field("requests"));
    }
    let policy = app.limiter().policy();
    let known = each(requests, |ask| ask.known_to_pass(&app, &policy))?;
    let (now, wall_clock) = (app.limiter().now(), app.wall_clock());
    let mut verdicts = Vec::with_capacity(known.len());
    for (number, some) in known.chunks(AT_A_TIME).enumerate() {
        if number > 0 {
            // Others are served by this thread too.
            tokio::task::yield_now().await;
        }
        verdicts.extend(some.iter().map(|known| match known.decide(&app, now) {
            Ok(decided) => decided.told(&policy, wall_clock),
            Err(problem) => known.undecided(&policy, &problem),
        }));
    }
    let body = serde_json::to_vec(&Verdicts { verdicts }).unwrap_or_default();
    let mut response = Response::new(body.into());
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}

/// Looks up each of several requests; a problem says which it is about.
pub(super) fn each<'a>(
    requests: Vec<Ask<'a>>,
    look_up: impl Fn(Ask<'a>) -> Result<Known<'a>, Problem>,
) -> Result<Vec<Known<'a>>, Problem> {
    let known = |(index, ask)| look_up(ask).map_err(|problem| problem.within(&format!("requests[{index}]")));
    requests.into_iter().enumerate().map(known).collect()
}
