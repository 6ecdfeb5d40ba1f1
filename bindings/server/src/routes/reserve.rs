//! Reservations: charge an estimate now, settle the real cost later.

use super::check::{BODY_BYTES_MAX, read_body};
use super::fields::{self, Fields, Shape};
use super::hold::{no_lease, read_lease};
use super::json;
use super::outcome::{Outcome, RefusalFormat};
use super::request::{CheckBody, lane_name};
use crate::app::App;
use crate::id::{Id, Text};
use crate::problem::Problem;
use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{Error, LaneId, ReservationId, Settle, Settlement};

/// How long a reservation or a lease lasts, by default.
const TTL_SECONDS_DEFAULT: u64 = 60;

/// How long a reservation or a lease may last. It can be extended any number of
/// times; a longer time would only keep abandoned ones.
const TTL_SECONDS_ALLOWED: RangeInclusive<u64> = 1..=3_600;

/// The field with the time.
pub(super) const TTL_SECONDS: (&str, Shape) = ("ttl_seconds", Shape::Count);

pub(super) fn ttl(seconds: Option<u64>) -> Result<Duration, Problem> {
    let seconds = seconds.unwrap_or(TTL_SECONDS_DEFAULT);
    if TTL_SECONDS_ALLOWED.contains(&seconds) {
        return Ok(Duration::from_secs(seconds));
    }
    let (least, most) = (TTL_SECONDS_ALLOWED.start(), TTL_SECONDS_ALLOWED.end());
    Err(Problem::field(TTL_SECONDS.0, format!("give {least} to {most} seconds, and extend it while it is needed")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reserve<'a> {
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
    estimate: u64,
    #[serde(borrow)]
    limit: Option<Text<'a>>,
    ttl_seconds: Option<u64>,
}

const RESERVE: Fields = Fields {
    all: &[
        ("agent", Shape::Agent),
        ("agent_id", Shape::Agent),
        ("lane", Shape::Text),
        ("channel", Shape::Text),
        ("action", Shape::Text),
        ("plan", Shape::Text),
        ("estimate", Shape::Count),
        ("limit", Shape::Text),
        TTL_SECONDS,
    ],
    needed: &["agent", "estimate"],
    example: "{\"agent\": \"...\", \"lane\": \"...\", \"estimate\": 4000, \"ttl_seconds\": 120}",
};

/// Charges an estimate. A denial has the same consequences as that of a check.
pub(crate) async fn reserve(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let format = RefusalFormat::new("/v1/reserve", &app, request.headers());
    let (body, scope) = read_body(&app, request, BODY_BYTES_MAX).await?;
    let Reserve { agent, lane, channel, action, plan, estimate, limit, ttl_seconds } = fields::read(&body, &RESERVE)?;
    let ttl = ttl(ttl_seconds)?;
    if estimate == 0 {
        return Err(Problem::field("estimate", "give a whole number from 1"));
    }
    let (limiter, policy) = (app.limiter(), app.limiter().policy());
    let request =
        CheckBody { agent, lane, channel, action, plan, cost: Some(estimate), limit }.resolve(&app, &policy, &scope)?;
    let now = limiter.now();
    let refuse = |outcome: Outcome, is_abuse| {
        request.count(&app, &outcome, is_abuse);
        Ok(outcome.response(&app, &policy, &request.agent, format))
    };
    let reservation = match limiter.reserve(request.to_request(now), ttl) {
        Ok(reservation) => reservation,
        Err(Error::CostAboveCapacity { .. }) => return refuse(request.peek(&app, now)?, false),
        Err(Error::WrongKind { .. }) => {
            let name = lane_name(&policy, request.lane);
            let detail = format!("{name} cannot be reserved; only buckets, windows and budgets can");
            return Err(Problem::field("lane", detail));
        }
        Err(error) => return Err(error.into()),
    };
    let outcome = request.outcome(&reservation.verdict());
    let Some(id) = reservation.id() else {
        return refuse(outcome, reservation.verdict().is_sustained_abuse());
    };
    request.count(&app, &outcome, false);
    Ok(outcome.allowed_response(&app, &policy, |verdict| {
        verdict.reservation = Some(app.keys().seal(id, request.lane));
        verdict.ttl_seconds = Some(ttl.as_secs());
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettleBody<'a> {
    #[serde(borrow)]
    reservation: Text<'a>,
    used: u64,
    /// Whether the reservation stays open.
    so_far: Option<bool>,
}

const SETTLE: Fields = Fields {
    all: &[("reservation", Shape::Text), ("used", Shape::Number), ("so_far", Shape::Flag)],
    needed: &["reservation", "used"],
    example: "{\"reservation\": \"...\", \"used\": 700, \"so_far\": false}",
};

/// Settles a reservation, or reports what has been used so far.
pub(crate) async fn settle(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    // Whoever has the reservation or the lease may settle, cancel and extend it.
    let (body, _) = read_body(&app, request, BODY_BYTES_MAX).await?;
    let SettleBody { reservation, used, so_far } = fields::read(&body, &SETTLE)?;
    let (id, lane) = unseal(&app, &reservation)?;
    let settle = if so_far == Some(true) { Settle::used_so_far(used) } else { Settle::used(used) };
    settlement(&app, lane, app.limiter().settle(id, settle))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cancel<'a> {
    #[serde(borrow)]
    reservation: Text<'a>,
}

const CANCEL: Fields =
    Fields { all: &[("reservation", Shape::Text)], needed: &["reservation"], example: "{\"reservation\": \"...\"}" };

/// Gives back what has not been reported as used.
pub(crate) async fn cancel(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    // Whoever has the reservation or the lease may settle, cancel and extend it.
    let (body, _) = read_body(&app, request, BODY_BYTES_MAX).await?;
    let Cancel { reservation } = fields::read(&body, &CANCEL)?;
    let (id, lane) = unseal(&app, &reservation)?;
    settlement(&app, lane, app.limiter().settle(id, Settle::cancelled()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Extend<'a> {
    #[serde(borrow)]
    reservation: Option<Text<'a>>,
    #[serde(borrow)]
    lease: Option<Text<'a>>,
    ttl_seconds: Option<u64>,
}

const EXTEND: Fields = Fields {
    all: &[("reservation", Shape::Text), ("lease", Shape::Text), TTL_SECONDS],
    needed: &[],
    example: "{\"reservation\": \"...\", \"ttl_seconds\": 60}",
};

/// Restarts the time of a reservation or a lease; it never becomes shorter.
pub(crate) async fn extend(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    // Whoever has the reservation or the lease may settle, cancel and extend it.
    let (body, _) = read_body(&app, request, BODY_BYTES_MAX).await?;
    let Extend { reservation, lease, ttl_seconds } = fields::read(&body, &EXTEND)?;
    let (ttl, now) = (ttl(ttl_seconds)?, app.limiter().now());
    let lane = match (reservation, lease) {
        (Some(reservation), None) => {
            let (id, lane) = unseal(&app, &reservation)?;
            app.limiter().extend(id, ttl)?;
            lane
        }
        (None, Some(Text(lease))) => {
            read_lease(&lease).and_then(|id| app.leases().extend(id, ttl, now)).ok_or_else(no_lease)?
        }
        (None, None) => return Err(Problem::field("reservation", "give a reservation or a lease")),
        _ => return Err(Problem::field("reservation", "give a reservation or a lease, not both")),
    };
    let policy = app.limiter().policy();
    Ok(json(&json!({"lane": lane_name(&policy, lane), "ttl_seconds": ttl.as_secs()})))
}

fn unseal(app: &App, sealed: &Text<'_>) -> Result<(ReservationId, LaneId), Problem> {
    app.keys().unseal(&sealed.0).ok_or_else(|| Error::UnknownReservation.into())
}

fn settlement(app: &App, lane: LaneId, result: Result<Settlement, Error>) -> Result<Response, Problem> {
    let Settlement { unused, overspent, left } = result?;
    app.meter().add_cost(lane, overspent);
    let policy = app.limiter().policy();
    let lane = lane_name(&policy, lane);
    Ok(json(&json!({"lane": lane, "unused": unused, "overspent": overspent, "left": left})))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    #[test]
    fn the_time_to_live_is_bounded() {
        assert_eq!(ttl(None).unwrap(), Duration::from_secs(60));
        assert_eq!((ttl(Some(1)).is_ok(), ttl(Some(3_600)).is_ok()), (true, true));
        for seconds in [0, 3_601, u64::MAX] {
            assert_eq!(ttl(Some(seconds)).unwrap_err().status(), StatusCode::BAD_REQUEST);
        }
    }
}
