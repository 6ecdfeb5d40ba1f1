//! The outcome of a request, and its response.

use super::ceil_ms;
use super::request::lane_name;
use crate::app::App;
use crate::id::Id;
use crate::problem::Problem;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Serialize;
use std::time::{Duration, SystemTime};
use tollgate::cluster::Source;
use tollgate::{Decision, LaneId, Policy};
use tollgate_tower::{Profile, Quota, Reason, Refusal};

/// What a refusal is made from besides the outcome: the path of the request, and the
/// format of the body.
#[derive(Clone, Copy)]
pub(super) struct RefusalFormat {
    path: &'static str,
    pub(super) profile: Profile,
}

impl RefusalFormat {
    /// A client may request another profile than that of the settings.
    pub(super) fn new(path: &'static str, app: &App, headers: &HeaderMap) -> Self {
        Self { path, profile: app.settings().profile.accepted(headers) }
    }
}

/// A decision, with everything that a response reports about it.
pub(super) struct Outcome {
    pub(super) decision: Decision,
    pub(super) lane: LaneId,
    pub(super) quota: Quota,
    pub(super) reason: Reason,
    /// The waits that the lane and the agent's conduct ask for.
    pub(super) waits: (Option<Duration>, Option<Duration>),
    /// Where the answer came from, if machines share the lane.
    pub(super) source: Option<Source>,
}

/// A verdict as JSON.
#[derive(Default, Serialize)]
pub(super) struct VerdictJson<'a> {
    allowed: bool,
    verdict: &'static str,
    lane: &'a str,
    limit: Option<u64>,
    remaining: Option<u64>,
    /// The Unix time at which the lane is full again.
    reset_at: Option<f64>,
    retry_after: Option<u64>,
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane_wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conduct_wait_ms: Option<u64>,
    /// Where the answer came from, if machines share the lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'static str>,
    /// A reservation, or the lease of a slot, and how long it lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reservation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lease: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ttl_seconds: Option<u64>,
    /// Why there is no verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl<'p> VerdictJson<'p> {
    /// For a request of a batch that could not be decided: no record was free, or another process's lock
    /// stood in the way.
    pub(super) fn error(policy: &'p Policy, lane: LaneId, problem: &Problem) -> Self {
        let error = Some(problem.detail().to_owned());
        Self { verdict: "error", lane: lane_name(policy, lane), error, ..Self::default() }
    }
}

impl Outcome {
    pub(super) fn to_json<'p>(&self, policy: &'p Policy, now: SystemTime) -> VerdictJson<'p> {
        let quota = &self.quota;
        let is_limited = self.decision != Decision::Exempt;
        let reset_at = now.checked_add(quota.full_in).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        VerdictJson {
            allowed: !quota.denied,
            verdict: name(self.decision),
            lane: lane_name(policy, self.lane),
            limit: is_limited.then_some(quota.capacity),
            remaining: is_limited.then_some(quota.remaining),
            reset_at: reset_at.filter(|_| is_limited).map(|at| (at.as_secs_f64() * 1e3).ceil() / 1e3),
            retry_after: quota.retry_after_seconds(),
            retry_after_ms: quota.retry_after_ms(),
            lane_wait_ms: self.waits.0.map(ceil_ms),
            conduct_wait_ms: self.waits.1.map(ceil_ms),
            from: self.source.map(Source::name),
            ..VerdictJson::default()
        }
    }

    /// The response to a single request.
    pub(super) fn response(&self, app: &App, policy: &Policy, agent: &Id<'_>, format: RefusalFormat) -> Response {
        if self.quota.denied {
            return self.refusal(app, policy, agent, format).map(Body::from);
        }
        self.allowed_response(app, policy, |_| {})
    }

    /// The response to an allowed request, after `complete` has added to it.
    pub(super) fn allowed_response(
        &self,
        app: &App,
        policy: &Policy,
        complete: impl FnOnce(&mut VerdictJson<'_>),
    ) -> Response {
        let now = || app.wall_clock();
        let mut verdict = self.to_json(policy, now());
        complete(&mut verdict);
        // Plain data, so this never fails.
        let mut response = Response::new(Body::from(serde_json::to_vec(&verdict).unwrap_or_default()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.write_headers(app, verdict.lane, headers);
        response
    }

    /// Writes the limit into the headers of a response.
    pub(super) fn write_headers(&self, app: &App, lane: &str, headers: &mut HeaderMap) {
        if self.decision != Decision::Exempt {
            app.settings().style().write(headers, lane, &self.quota, &|| app.wall_clock());
        }
    }

    /// The response to a denied request, in the format of its profile.
    pub(super) fn refusal(
        &self,
        app: &App,
        policy: &Policy,
        agent: &Id<'_>,
        format: RefusalFormat,
    ) -> http::Response<Bytes> {
        let (style, now) = (app.settings().style(), || app.wall_clock());
        let (RefusalFormat { path: instance, profile }, lane) = (format, lane_name(policy, self.lane));
        let agent = Some(agent.as_bytes());
        let refusal = Refusal { agent, lane, instance: Some(instance), reason: self.reason, quota: self.quota };
        let mut body = profile.body(&refusal);
        if profile == Profile::Standard {
            // The members of a verdict come first, so that clients can read both responses alike.
            let mut start = String::with_capacity(96);
            start.push_str(r#""allowed":false,"verdict":"deny","#);
            for (name, wait) in [("lane_wait_ms", self.waits.0), ("conduct_wait_ms", self.waits.1)] {
                if let Some(ms) = wait.map(ceil_ms) {
                    for text in ["\"", name, "\":", &ms.to_string(), ","] {
                        start.push_str(text);
                    }
                }
            }
            if let Some(from) = self.source {
                start.extend(["\"from\":\"", from.name(), "\","]);
            }
            body.insert_str(1, &start);
        }
        let mut response = http::Response::new(Bytes::from(body));
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(profile.content_type()));
        style.write(response.headers_mut(), lane, &self.quota, &now);
        response
    }
}

fn name(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Warn => "warn",
        Decision::Deny => "deny",
        _ => "exempt",
    }
}
