//! Several requests of which all are admitted, or none.

use super::check::{asked, each};
use super::fields::{self, Fields, Shape};
use super::hold::{grant, turn_with_room};
use super::reserve::{TTL_SECONDS, ttl};
use super::verdict::{Ask, Asked, Decided, Known, Told, lane_name};
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

/// How many bytes so many parts may have.
const BYTES_MAX: usize = PARTS_MAX * super::check::ASK_BYTES_MAX;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct All<'a> {
    #[serde(borrow)]
    requests: Vec<Ask<'a>>,
    ttl_seconds: Option<u64>,
}

const ALL: Fields = Fields {
    all: &[("requests", Shape::List(&Ask::FIELDS)), TTL_SECONDS],
    needed: &["requests"],
    example: "{\"requests\": [{\"agent\": \"...\", \"lane\": \"...\"}, ...]}",
};

#[derive(Serialize)]
struct Admitted<'a> {
    allowed: bool,
    verdicts: Vec<Told<'a>>,
}

/// Charges all, or none: of several lanes, and of several agents. Slots that
/// are held are leased.
pub(crate) async fn all(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let answered = Asked::at("/v1/check/all", &app, request.headers());
    let body = asked(&app, request, BYTES_MAX).await?;
    let All { requests, ttl_seconds } = fields::read(&body, &ALL)?;
    let ttl = ttl(ttl_seconds)?;
    if !(1..=PARTS_MAX).contains(&requests.len()) {
        return Err(Problem::from(Error::Parts { parts: requests.len() }).of_field("requests"));
    }
    let policy = app.limiter().policy();
    let known = each(requests, |ask| ask.known(&app, &policy))?;
    let now = app.limiter().now();
    let is_held = |known: &Known<'_>| app.limiter().is_held(known.lane) == Ok(true);
    let held: Vec<_> = known.iter().filter(|known| is_held(known)).map(|known| known.agent.as_bytes()).collect();
    let mut turn = if held.is_empty() { None } else { Some(turn_with_room(&app, now, &held)?) };
    let decided = decide(&app, &known, now)?;
    if decided.iter().any(|part| part.quota.denied) {
        drop(turn);
        return Ok(refusal(&app, &policy, &known, &decided, answered));
    }
    let wall_clock = app.wall_clock();
    let mut verdicts: Vec<_> = decided.iter().map(|part| part.told(&policy, wall_clock)).collect();
    for ((known, part), told) in known.iter().zip(&decided).zip(&mut verdicts) {
        if let Some(turn) = turn.as_mut().filter(|_| is_held(known)) {
            told.lease = Some(grant(turn, known, part.decision, ttl)?);
            told.ttl_seconds = Some(ttl.as_secs());
        }
    }
    drop(turn);
    // Plain data, so it can always be written.
    let body = serde_json::to_vec(&Admitted { allowed: true, verdicts }).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let share = |part: &&Decided| u128::from(part.quota.remaining) * 1_000_000 / u128::from(part.quota.capacity.max(1));
    if let Some(tightest) = decided.iter().min_by_key(share) {
        tightest.tell(&app, lane_name(&policy, tightest.lane), response.headers_mut());
    }
    Ok(response)
}

/// Decides about every part, and counts it.
fn decide(app: &App, known: &[Known<'_>], now: Tick) -> Result<Vec<Decided>, Problem> {
    let parts: Vec<_> = known.iter().map(|part| part.request(now)).collect();
    let all = match app.limiter().check_all(&parts) {
        Ok(all) => all,
        Err(Error::CostAboveCapacity { .. }) => {
            // Those that can never pass are denied, by themselves or with others of their lane.
            // The rest stand as they are, and nobody is to blame.
            let decide = |part: &Known<'_>| {
                let is_same = |other: &&Known<'_>| other.lane == part.lane && other.agent == part.agent;
                let together = known.iter().filter(is_same).fold(0, |sum: u64, other| sum.saturating_add(other.cost));
                let never = part.never(app, now, together)?;
                let decided = never.map_or_else(|| part.would_be(app, now), Ok)?;
                if decided.quota.denied {
                    part.count(app, &decided, false);
                }
                Ok(decided)
            };
            return known.iter().map(decide).collect();
        }
        Err(error) => return Err(error.into()),
    };
    let decide = |(part, verdict): (&Known<'_>, &Verdict)| {
        let decided = part.concluded(verdict);
        if all.is_allowed() || decided.quota.denied {
            part.count(app, &decided, verdict.is_sustained_abuse());
        }
        decided
    };
    Ok(known.iter().zip(all.verdicts()).map(decide).collect())
}

/// The refusal of the part that has to wait the longest; a problem tells of the others too.
fn refusal(app: &App, policy: &Policy, known: &[Known<'_>], decided: &[Decided], asked: Asked) -> Response {
    let in_the_way = || decided.iter().enumerate().filter(|(_, part)| part.quota.denied);
    // Where no wait helps is the longest of all.
    let wait = |(_, part): &(usize, &Decided)| part.quota.retry_after.unwrap_or(Duration::MAX);
    let Some((place, worst)) = in_the_way().min_by_key(|part| Reverse(wait(part))) else {
        return Response::new(Body::empty());
    };
    let mut response = worst.refused(app, policy, &known[place].agent, asked);
    if asked.profile == Profile::Standard {
        let mut problem: Map<String, Value> = serde_json::from_slice(response.body()).unwrap_or_default();
        let wall_clock = app.wall_clock();
        let verdicts: Vec<_> = decided.iter().map(|part| part.told(policy, wall_clock)).collect();
        let violated: BTreeSet<_> = in_the_way().map(|(_, part)| lane_name(policy, part.lane)).collect();
        problem.insert("verdicts".to_owned(), json!(verdicts));
        problem.insert("blocking".to_owned(), in_the_way().map(|(place, _)| place).collect());
        problem.insert("violated-policies".to_owned(), json!(violated));
        response.headers_mut().remove(CONTENT_LENGTH);
        *response.body_mut() = Value::from(problem).to_string().into();
    }
    response.map(Body::from)
}
