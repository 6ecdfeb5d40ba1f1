//! A decision, and how it is told.

use super::fields::{Fields, Shape};
use crate::app::App;
use crate::id::{Id, Text};
use crate::problem::Problem;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};
use tollgate::bounds::OVERSPEND_MAX;
use tollgate::{Decision, Error, LaneId, Policy, Request, Tick, Verdict};
use tollgate_tower::{Profile, Quota, Reason, Refusal};

/// What a body asks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask<'a> {
    #[serde(borrow, alias = "agent_id")]
    pub(super) agent: Id<'a>,
    #[serde(borrow)]
    pub(super) lane: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) channel: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) action: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) plan: Option<Text<'a>>,
    pub(super) cost: Option<u64>,
}

impl Ask<'_> {
    pub(super) const FIELDS: Fields = Fields {
        all: &[
            ("agent", Shape::Agent),
            ("agent_id", Shape::Agent),
            ("lane", Shape::Text),
            ("channel", Shape::Text),
            ("action", Shape::Text),
            ("plan", Shape::Text),
            ("cost", Shape::Count),
        ],
        needed: &["agent"],
        example: "{\"agent\": \"...\", \"lane\": \"...\"}",
    };
}

/// An ask whose names are known.
pub(super) struct Known<'a> {
    pub(super) agent: Id<'a>,
    pub(super) lane: LaneId,
    pub(super) plan: Option<tollgate::PlanId>,
    pub(super) cost: u64,
}

impl<'a> Ask<'a> {
    /// Looks the names up. Charges nothing.
    pub(super) fn known(self, app: &App, policy: &Policy) -> Result<Known<'a>, Problem> {
        let lane = match (&self.lane, &self.channel, &self.action) {
            (Some(Text(lane)), None, None) => policy.lane(lane).ok_or_else(|| no_lane(policy, lane))?,
            (None, Some(Text(channel)), Some(Text(action))) => lane_for(app, policy, channel, action)?,
            (Some(_), ..) => return Err(Problem::field("lane", "give a lane, or a channel and an action, not both")),
            (None, Some(_), None) => return Err(Problem::field("action", "a channel needs an action; give both")),
            (None, None, Some(_)) => return Err(Problem::field("channel", "an action needs a channel; give both")),
            (None, None, None) => {
                match (policy.lanes().len() - usize::from(policy.total().is_some()), policy.lanes().next()) {
                    (1, Some((only, _))) => only,
                    _ => {
                        let detail =
                            format!("give a lane, or a channel and an action; the lanes are {}", lanes(policy));
                        return Err(Problem::field("lane", detail));
                    }
                }
            }
        };
        if policy.total() == Some(lane) {
            let detail =
                format!("the total is charged with every other lane and never alone; the lanes are {}", lanes(policy));
            return Err(Problem::field("lane", detail));
        }
        let plan = match &self.plan {
            None => None,
            Some(Text(name)) => Some(policy.plan(name).ok_or_else(|| no_plan(policy, name))?),
        };
        let cost = self.cost.unwrap_or(1);
        if cost == 0 {
            return Err(Error::ZeroCost.into());
        }
        Ok(Known { agent: self.agent, lane, plan, cost })
    }

    /// The same, of a lane from which nothing is held: who took a slot without
    /// a lease could not give it back.
    pub(super) fn known_to_pass(self, app: &App, policy: &Policy) -> Result<Known<'a>, Problem> {
        let known = self.known(app, policy)?;
        if app.limiter().is_held(known.lane)? {
            let name = lane_name(policy, known.lane);
            return Err(Problem::field("lane", format!("slots of {name} are held; take one with /v1/hold")));
        }
        Ok(known)
    }
}

fn lane_for(app: &App, policy: &Policy, channel: &str, action: &str) -> Result<LaneId, Problem> {
    let Some(found) = app.limiter().lane_for(channel, action) else {
        let known: std::collections::BTreeSet<_> = policy.actions().map(|(channel, ..)| channel).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        let detail = if known.is_empty() {
            "this policy names no actions; give a lane".to_owned()
        } else {
            format!("this policy names no actions of the channel {:?}; the channels are {known}", short(channel))
        };
        return Err(Problem::field("channel", detail));
    };
    if found.is_first_seen() {
        tracing::warn!(channel = short(channel), action = short(action), "an action that no policy names; classify it");
    }
    Ok(found.lane())
}

/// What was seen, short enough for a sentence or a line in the log.
pub(super) fn short(seen: &str) -> String {
    seen.chars().take(64).flat_map(char::escape_debug).collect()
}

pub(crate) fn lanes(policy: &Policy) -> String {
    policy.lanes().map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

fn no_lane(policy: &Policy, name: &str) -> Problem {
    Problem::field("lane", format!("there is no lane \"{}\"; the lanes are {}", short(name), lanes(policy)))
}

fn no_plan(policy: &Policy, name: &str) -> Problem {
    let plans = policy.plans().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
    Problem::field("plan", format!("there is no plan \"{}\"; the plans are {plans}", short(name)))
}

/// Where a request was sent, and what its refusal is to look like.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    path: &'static str,
    pub(super) profile: Profile,
}

impl Asked {
    /// A client may ask for another profile than that of the settings.
    pub(super) fn at(path: &'static str, app: &App, headers: &HeaderMap) -> Self {
        Self { path, profile: app.settings().profile.accepted(headers) }
    }
}

/// A decision with all that can be told of it.
pub(super) struct Decided {
    pub(super) decision: Decision,
    pub(super) lane: LaneId,
    pub(super) quota: Quota,
    reason: Reason,
    /// The wait that the lane asks for, and the one that the agent's conduct asks for.
    waits: (Option<Duration>, Option<Duration>),
}

impl Known<'_> {
    /// Decides, and charges if it is allowed.
    pub(super) fn decide(&self, app: &App, now: Tick) -> Result<Decided, Problem> {
        match app.limiter().check_request(self.request(now)) {
            Ok(verdict) => {
                let decided = self.concluded(&verdict);
                self.count(app, &decided, verdict.is_sustained_abuse());
                Ok(decided)
            }
            Err(Error::CostAboveCapacity { .. }) => {
                let decided = self.would_be(app, now)?;
                self.count(app, &decided, false);
                Ok(decided)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What follows from a verdict.
    pub(super) fn concluded(&self, verdict: &Verdict) -> Decided {
        let waits = (verdict.lane_wait(), Some(verdict.conduct_wait()).filter(|wait| !wait.is_zero()));
        let quota = Quota::from(verdict);
        // It is the agent's conduct if it has to wait longer than for its tokens.
        let is_conduct = quota.denied && (quota.retry_after > verdict.lane_wait() || quota.remaining >= self.cost);
        let reason = if is_conduct { Reason::Conduct } else { Reason::Quota };
        Decided { decision: verdict.decision(), lane: self.lane, quota, reason, waits }
    }

    /// What a check would come to as the lane stands: nothing is charged, and
    /// of a denial no wait is told.
    pub(super) fn would_be(&self, app: &App, now: Tick) -> Result<Decided, Problem> {
        let status = app.limiter().peek(self.request(now))?;
        let (capacity, most) = (status.capacity(), self.cost_max(app, status.capacity()));
        let decision = match status.remaining() {
            _ if status.is_exempt() => Decision::Exempt,
            // A cost above the capacity needs a full lane.
            left if left < self.cost.min(capacity) || self.cost > most => Decision::Deny,
            _ => Decision::Allow,
        };
        let quota = Quota { denied: decision == Decision::Deny, ..Quota::from(&status) };
        let reason = if self.cost > most { Reason::Cost(self.cost) } else { Reason::Quota };
        Ok(Decided { decision, lane: self.lane, quota, reason, waits: (None, None) })
    }

    /// The largest cost that a lane of this capacity ever lets through.
    fn cost_max(&self, app: &App, capacity: u64) -> u64 {
        let policy = app.limiter().policy();
        let takes_oversize = |(plan, _)| policy.plan_limit(plan, self.lane).is_some_and(|limit| limit.takes_oversize());
        if policy.plans().any(takes_oversize) { capacity.saturating_mul(OVERSPEND_MAX) } else { capacity }
    }

    /// What a part comes to that can never pass with the others: together with
    /// those of its lane it costs so much. `None` if it is not in their way.
    pub(super) fn never(&self, app: &App, now: Tick, together: u64) -> Result<Option<Decided>, Problem> {
        let would_be = self.would_be(app, now)?;
        let capacity = would_be.quota.capacity;
        // What is taken on credit leaves nothing for others.
        let most = if together > self.cost { capacity } else { self.cost_max(app, capacity) };
        let quota = Quota { denied: true, ..would_be.quota };
        let never = Decided { decision: Decision::Deny, quota, reason: Reason::Cost(together), ..would_be };
        Ok((together > most && capacity > 0).then_some(never))
    }

    /// Counts what was decided, and tells of sustained abuse.
    pub(super) fn count(&self, app: &App, decided: &Decided, is_abuse: bool) {
        match decided.decision {
            Decision::Allow | Decision::Warn => app.meter().charged(self.lane, self.cost),
            Decision::Deny => self.denied(app, decided, is_abuse),
            _ => {}
        }
    }

    /// The question to the limiter.
    pub(super) fn request(&self, now: Tick) -> Request<'_> {
        Request::new(self.agent.as_bytes(), self.lane).cost(self.cost).plan(self.plan).at(now).counted()
    }
}

/// A verdict as JSON.
#[derive(Default, Serialize)]
pub(super) struct Told<'a> {
    allowed: bool,
    verdict: &'static str,
    lane: &'a str,
    limit: Option<u64>,
    remaining: Option<u64>,
    /// Unix time at which the lane is full again.
    reset_at: Option<f64>,
    retry_after: Option<u64>,
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane_wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conduct_wait_ms: Option<u64>,
    /// What was granted, and for how long: a reservation, or the lease of a slot.
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

impl Decided {
    pub(super) fn told<'p>(&self, policy: &'p Policy, now: SystemTime) -> Told<'p> {
        let quota = &self.quota;
        let is_limited = self.decision != Decision::Exempt;
        let reset_at = now.checked_add(quota.full_in).and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
        Told {
            allowed: !quota.denied,
            verdict: name(self.decision),
            lane: lane_name(policy, self.lane),
            limit: is_limited.then_some(quota.capacity),
            remaining: is_limited.then_some(quota.remaining),
            reset_at: reset_at.filter(|_| is_limited).map(|at| (at.as_secs_f64() * 1e3).ceil() / 1e3),
            retry_after: quota.retry_after_seconds(),
            retry_after_ms: quota.retry_after_ms(),
            lane_wait_ms: self.waits.0.map(ms_up),
            conduct_wait_ms: self.waits.1.map(ms_up),
            ..Told::default()
        }
    }

    /// The answer to a request for this alone.
    pub(super) fn response(&self, app: &App, policy: &Policy, agent: &Id<'_>, asked: Asked) -> Response {
        if self.quota.denied {
            return self.refused(app, policy, agent, asked).map(Body::from);
        }
        self.allowed(app, policy, |_| {})
    }

    /// The answer to a request that was allowed, after `complete` has added to it.
    pub(super) fn allowed(&self, app: &App, policy: &Policy, complete: impl FnOnce(&mut Told<'_>)) -> Response {
        let now = || app.wall_clock();
        let mut told = self.told(policy, now());
        complete(&mut told);
        // Plain data, so it can always be written.
        let mut response = Response::new(Body::from(serde_json::to_vec(&told).unwrap_or_default()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.tell(app, told.lane, headers);
        response
    }

    /// Tells the lane in the headers of an answer.
    pub(super) fn tell(&self, app: &App, lane: &str, headers: &mut HeaderMap) {
        if self.decision != Decision::Exempt {
            app.settings().style().write(headers, lane, &self.quota, &|| app.wall_clock());
        }
    }

    /// The answer to a request that was denied, by the profile.
    pub(super) fn refused(&self, app: &App, policy: &Policy, agent: &Id<'_>, asked: Asked) -> http::Response<Bytes> {
        let (style, now) = (app.settings().style(), || app.wall_clock());
        let (Asked { path: instance, profile }, lane) = (asked, lane_name(policy, self.lane));
        let agent = Some(agent.as_bytes());
        let refusal = Refusal { agent, lane, instance: Some(instance), reason: self.reason, quota: self.quota };
        let mut body = profile.body(&refusal);
        if profile == Profile::Standard {
            // The members of a verdict come first, so that both answers can be read alike.
            let mut start = String::with_capacity(96);
            start.push_str(r#""allowed":false,"verdict":"deny","#);
            for (name, wait) in [("lane_wait_ms", self.waits.0), ("conduct_wait_ms", self.waits.1)] {
                if let Some(ms) = wait.map(ms_up) {
                    for part in ["\"", name, "\":", &ms.to_string(), ","] {
                        start.push_str(part);
                    }
                }
            }
            body.insert_str(1, &start);
        }
        let mut refused = http::Response::new(Bytes::from(body));
        *refused.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        refused.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(profile.content_type()));
        style.write(refused.headers_mut(), lane, &self.quota, &now);
        refused
    }
}

impl Known<'_> {
    /// Counts a denial, and tells of sustained abuse.
    fn denied(&self, app: &App, decided: &Decided, is_abuse: bool) {
        let (limiter, agent) = (app.limiter(), self.agent.as_bytes());
        let policy = limiter.policy();
        let assigned = limiter.assignment(agent).unwrap_or_default();
        let named = |plan| policy.plans().find(|(known, _)| *known == plan).map(|(_, name)| name);
        let plan = assigned.plan().or_else(|| self.plan.and_then(named)).unwrap_or("default");
        app.meter().denied(self.lane, plan);
        let lane = lane_name(&policy, self.lane);
        let limit = || {
            // The request's plan is for an agent that is assigned nothing.
            let limit = match self.plan.filter(|_| assigned.is_empty()) {
                Some(plan) => policy.plan_limit(plan, self.lane),
                None => limiter.limit_of(agent, self.lane).ok().flatten(),
            };
            limit.map_or_else(String::new, |limit| limit.to_string())
        };
        app.log_denial(agent, lane, limit, decided.quota.retry_after_ms());
        if is_abuse {
            tracing::warn!(agent = %agent.escape_ascii(), lane, "sustained abuse");
            app.tell_abuse(agent, lane);
        }
    }
}

impl Known<'_> {
    /// One of a batch that could not be decided: no record was free for it.
    pub(super) fn undecided<'p>(&self, policy: &'p Policy, problem: &Problem) -> Told<'p> {
        Told {
            allowed: false,
            verdict: "error",
            lane: lane_name(policy, self.lane),
            error: Some(problem.detail().to_owned()),
            ..Told::default()
        }
    }
}

pub(super) fn lane_name(policy: &Policy, lane: LaneId) -> &str {
    policy.lanes().nth(lane.number() as usize).map_or("", |(_, name)| name)
}

fn ms_up(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

pub(crate) fn name(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Warn => "warn",
        Decision::Deny => "deny",
        _ => "exempt",
    }
}
