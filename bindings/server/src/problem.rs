//! Error responses: problems as in RFC 9457.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{StatusCode, header};
use std::borrow::Cow;
use tollgate::{ControlError, Error};

/// The reason of a request that another process's lock stood in the way of.
const BUSY: &str = "busy";

/// What is wrong with a request, in which field, and what to do.
#[derive(Debug)]
pub struct Problem {
    status: StatusCode,
    reason: &'static str,
    detail: Cow<'static, str>,
    field: Option<String>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem whose detail says what is wrong and what to do.
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, reason: reason_of(status), detail: detail.into(), field: None, headers: Vec::new() }
    }

    /// An invalid request.
    pub fn bad_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// An invalid field of a request.
    pub fn field(field: impl Into<String>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { field: Some(field.into()), ..Self::bad_request(detail).with_reason("field") }
    }

    /// The same problem, counted under another reason than its status has.
    #[must_use]
    pub(crate) fn with_reason(self, reason: &'static str) -> Self {
        Self { reason, ..self }
    }

    /// The same problem, in a field.
    #[must_use]
    pub fn in_field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// The same problem, inside an item of a larger body: `requests[3]`.
    #[must_use]
    pub fn within(mut self, item: &str) -> Self {
        self.field = Some(match self.field {
            Some(field) => format!("{item}.{field}"),
            None => item.to_owned(),
        });
        self
    }

    /// A request without a valid token.
    pub fn unauthorized(detail: impl Into<Cow<'static, str>>) -> Self {
        let challenge = (WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Self { headers: vec![challenge], ..Self::new(StatusCode::UNAUTHORIZED, detail) }
    }

    /// Another process holds a lock that the request needs.
    pub(crate) fn busy(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_reason(BUSY).retry_after(1)
    }

    /// Adds how long to wait.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.headers.push((RETRY_AFTER, seconds.into()));
        self
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.reason == BUSY
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// What is wrong.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::EmptyId | Error::IdTooLong { .. } => Self::field("agent", error.to_string()),
            Error::UnknownLane { .. } => Self::field("lane", error.to_string()),
            Error::UnknownPlan { .. } => Self::field("plan", error.to_string()),
            Error::NoLimit { .. } | Error::LimitGiven { .. } | Error::LimitsDiffer { .. } => {
                Self::field("limit", error.to_string())
            }
            Error::ZeroCost => Self::field(
                "cost",
                "cost 0 charges nothing; give at least 1, or read the state with GET /v1/agents/{agent}",
            ),
            Error::UnknownReservation => Self::new(StatusCode::NOT_FOUND, error.to_string()).in_field("reservation"),
            Error::Busy => Self::busy(error.to_string()),
            Error::NoSeat { .. } => Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
            Error::UsedTooLarge { .. } => Self::field("used", error.to_string()),
            Error::TooManyReservations { most } => {
                let detail = format!(
                    "the agent has {most} reservations open, as many as one agent may; settle or cancel some, or raise \
                     reservations_per_agent in [server]"
                );
                Self::new(StatusCode::TOO_MANY_REQUESTS, detail)
                    .in_field("agent")
                    .with_reason("reservations")
                    .retry_after(1)
            }
            Error::Full | Error::HoldsFull | Error::ReservationsFull => {
                let (reason, detail) = match error {
                    Error::Full => ("full", "no record is free for this new agent; raise agents in [server]"),
                    Error::HoldsFull => (
                        "holds",
                        "as many calls hold slots as the shared slab has room for; release some, or raise agents in \
                         [server]",
                    ),
                    _ => (
                        "reservations",
                        "all reservations are open; settle or cancel some, or raise reservations in [server]",
                    ),
                };
                Self::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_reason(reason).retry_after(1)
            }
            _ => Self::bad_request(error.to_string()),
        }
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        let status = match innermost(&error) {
            ControlError::Busy { .. } | ControlError::Agent(Error::Busy) => return Self::busy(error.to_string()),
            ControlError::NoMemory | ControlError::Agent(Error::NoSeat { .. }) => StatusCode::SERVICE_UNAVAILABLE,
            ControlError::File(_)
            | ControlError::NoFile
            | ControlError::SameHash
            | ControlError::Forked
            | ControlError::PolicyText
            | ControlError::PolicyUnreadable => StatusCode::INTERNAL_SERVER_ERROR,
            ControlError::TooManyOverrides
            | ControlError::TooManyAssignments { .. }
            | ControlError::OtherLanes { .. }
            | ControlError::PlanMissing { .. }
            | ControlError::Fixed { .. }
            | ControlError::PolicyTooLong { .. } => StatusCode::CONFLICT,
            _ => StatusCode::BAD_REQUEST,
        };
        let field = match innermost(&error) {
            ControlError::Agent(Error::EmptyId | Error::IdTooLong { .. }) => Some("agent"),
            ControlError::UnknownPlan { .. } => Some("plan"),
            ControlError::UnknownLane { .. } | ControlError::Limit(_) => Some("overrides"),
            _ => None,
        };
        Self { field: field.map(str::to_owned), ..Self::new(status, error.to_string()) }
    }
}

fn innermost(error: &ControlError) -> &ControlError {
    match error {
        ControlError::Of { problem, .. } => innermost(problem),
        error => error,
    }
}

/// Why a request was not served, attached to its response for the counters.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) detail: Cow<'static, str>,
}

/// Attached to the refusal of a valid request whose status is not 429.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused;

/// The reason under which a response of this status is counted, by default.
pub(crate) fn reason_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200..=399 => "ok",
        400 => "request",
        401 => "token",
        403 => "forbidden",
        404 => "unknown",
        405 => "method",
        408 => "timeout",
        409 => "conflict",
        413 => "too_large",
        415 => "media_type",
        421 => "host",
        422 => "policy",
        429 => "too_many",
        503 => "unavailable",
        500..=599 => "internal",
        _ => "other",
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let cause = Cause { reason: self.reason, detail: self.detail.clone() };
        let mut members = serde_json::Map::new();
        members.insert("type".into(), "about:blank".into());
        members.insert("title".into(), self.status.canonical_reason().unwrap_or("Error").into());
        members.insert("status".into(), self.status.as_u16().into());
        members.insert("detail".into(), self.detail.as_ref().into());
        if let Some(field) = self.field {
            members.insert("field".into(), field.into());
        }
        let mut response = Response::new(Body::from(serde_json::Value::Object(members).to_string()));
        *response.status_mut() = self.status;
        response.extensions_mut().insert(cause);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.extend(self.headers.into_iter().map(|(name, value)| (Some(name), value)));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only another process that is stopped at the wrong instruction makes a limiter answer `Busy`.
    #[test]
    fn a_busy_limiter_is_503_with_a_wait_of_a_second() {
        let of_one =
            ControlError::Of { agent: "a".to_owned(), problem: ControlError::Busy { pid: 7, has_begun: false }.into() };
        for problem in [
            Problem::from(Error::Busy),
            Problem::from(ControlError::from(Error::Busy)),
            Problem::from(ControlError::Busy { pid: 7, has_begun: false }),
            Problem::from(of_one),
        ] {
            assert!(problem.is_busy() && problem.detail().contains("try again"), "{problem:?}");
            let response = problem.into_response();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(response.headers()[RETRY_AFTER], "1");
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
            assert_eq!(response.extensions().get::<Cause>().unwrap().reason, "busy");
        }
    }

    #[test]
    fn what_a_shared_limiter_refuses_is_no_mistake_of_the_request() {
        for (error, status) in [
            (ControlError::TooManyAssignments { most: 4_096 }, StatusCode::CONFLICT),
            (ControlError::Fixed { setting: "warn_again_percent" }, StatusCode::CONFLICT),
            (ControlError::PolicyTooLong { bytes: 9, most: 8 }, StatusCode::CONFLICT),
            (ControlError::NoMemory, StatusCode::SERVICE_UNAVAILABLE),
        ] {
            assert_eq!(Problem::from(error).status(), status);
        }
    }
}
