//! May the agent do this?

use super::verdict::{self, Ask, Told};
use crate::app::App;
use crate::net::body;
use crate::problem::Problem;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

/// How many bytes a single check may have.
const CHECK_BYTES_MAX: usize = 4 * 1024;

/// How many bytes a batch may have.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// How many checks a batch may have: some milliseconds of work.
const BATCH_MAX: usize = 10_000;

pub(crate) async fn one(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    app.keys().require_check(&parts.headers, || super::peer(&parts.extensions))?;
    let body = body::read(&parts.headers, body, CHECK_BYTES_MAX, app.settings().body_timeout).await?;
    let begun = Instant::now();
    let ask: Ask<'_> = serde_json::from_slice(&body).map_err(|error| match serde_json::from_slice(&body) {
        Ok(value) => verdict::mistake(&value),
        Err(_) => not_json(&error),
    })?;
    let policy = app.limiter().policy();
    let known = ask.known(&app, &policy)?;
    let decided = known.decide(&app, app.limiter().now())?;
    let response = decided.response(&app, &policy, known.agent());
    app.meter().took(begun.elapsed());
    Ok(response)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Batch<'a> {
    #[serde(borrow)]
    requests: Vec<Ask<'a>>,
}

#[derive(Serialize)]
struct Verdicts<'a> {
    verdicts: Vec<Told<'a>>,
}

/// Decides many, in order, at one reading of the clock. If one of them makes
/// no sense, none is charged.
pub(crate) async fn batch(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    app.keys().require_check(&parts.headers, || super::peer(&parts.extensions))?;
    let body = body::read(&parts.headers, body, BATCH_BYTES_MAX, app.settings().body_timeout).await?;
    let batch: Batch<'_> = serde_json::from_slice(&body).map_err(|error| match serde_json::from_slice(&body) {
        Ok(value) => batch_mistake(&value),
        Err(_) => not_json(&error),
    })?;
    if batch.requests.len() > BATCH_MAX {
        let detail = format!("{} requests; a batch has {BATCH_MAX} at most", batch.requests.len());
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail).of_field("requests"));
    }
    let policy = app.limiter().policy();
    let known =
        batch.requests.into_iter().enumerate().map(|(index, ask)| {
            ask.known(&app, &policy).map_err(|problem| problem.within(&format!("requests[{index}]")))
        });
    let known = known.collect::<Result<Vec<_>, _>>()?;
    let (now, wall_clock) = (app.limiter().now(), app.wall_clock());
    let told = known.iter().map(|known| match known.decide(&app, now) {
        Ok(decided) => decided.told(&policy, wall_clock),
        Err(problem) => known.undecided(&policy, &problem),
    });
    let body = serde_json::to_vec(&Verdicts { verdicts: told.collect() }).unwrap_or_default();
    let mut response = Response::new(body.into());
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    Ok(response)
}

fn batch_mistake(value: &Value) -> Problem {
    let wanted = "give {\"requests\": [{\"agent\": \"...\", \"lane\": \"...\"}, ...]}";
    let Value::Object(fields) = value else { return Problem::bad(format!("this is no JSON object; {wanted}")) };
    if let Some(other) = fields.keys().find(|name| *name != "requests") {
        return Problem::field(verdict::short(other), format!("there is no such field; {wanted}"));
    }
    let Some(Value::Array(requests)) = fields.get("requests") else {
        return Problem::field("requests", format!("it is no list; {wanted}"));
    };
    let wrong = requests.iter().position(|request| Ask::deserialize(request).is_err());
    match wrong {
        Some(index) => verdict::mistake(&requests[index]).within(&format!("requests[{index}]")),
        None => Problem::bad("a field is named twice; name it once"),
    }
}

pub(crate) fn not_json(error: &serde_json::Error) -> Problem {
    Problem::bad(format!("the body is no JSON: {error}"))
}
