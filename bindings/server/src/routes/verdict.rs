//! A decision, and how it is told.

use crate::app::App;
use crate::id::{Id, Text};
use crate::problem::Problem;
use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::{Duration, SystemTime};
use tollgate::{Decision, Error, LaneId, Policy, Tick};
use tollgate_tower::{Form, Profile, Quota, Reason, Refusal};

/// What a body asks.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ask<'a> {
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
}

/// An ask whose names are known.
pub(super) struct Known<'a> {
    agent: Id<'a>,
    lane: LaneId,
    plan: Option<tollgate::PlanId>,
    cost: u64,
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
            (None, None, None) => match (policy.lanes().len(), policy.lanes().next()) {
                (1, Some((only, _))) => only,
                _ => {
                    let detail = format!("give a lane, or a channel and an action; the lanes are {}", lanes(policy));
                    return Err(Problem::field("lane", detail));
                }
            },
        };
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

/// Says what is wrong with a body that is no ask, by field.
pub(super) fn mistake(value: &Value) -> Problem {
    const FIELDS: [&str; 7] = ["agent", "agent_id", "lane", "channel", "action", "plan", "cost"];
    let Value::Object(fields) = value else {
        return Problem::bad("this is no JSON object; give {\"agent\": \"...\", \"lane\": \"...\"}");
    };
    for (name, value) in fields {
        if !FIELDS.contains(&name.as_str()) {
            let detail = "there is no such field; there are agent, lane, channel, action, plan and cost";
            return Problem::field(short(name), detail);
        }
        let wrong = match (name.as_str(), value) {
            ("agent" | "agent_id", value) => Id::from_json(value).err(),
            ("cost", Value::Number(cost)) if cost.is_u64() => None,
            ("cost", Value::Null) => None,
            ("cost", _) => Some("give a whole number from 1".to_owned()),
            (_, Value::String(_) | Value::Null) => None,
            _ => Some("give a string".to_owned()),
        };
        if let Some(wrong) = wrong {
            return Problem::field(name, wrong);
        }
    }
    match (fields.contains_key("agent"), fields.contains_key("agent_id")) {
        (false, false) => Problem::field("agent", format!("it is missing; give {}", Id::WANTED)),
        (true, true) => Problem::field("agent", "it is named twice; give agent or agent_id"),
        _ => Problem::bad("a field is named twice; name it once"),
    }
}

/// A decision with all that can be told of it.
pub(super) struct Decided {
    decision: Decision,
    lane: LaneId,
    quota: Quota,
    reason: Reason,
    /// The wait that the lane asks for, and the one that the agent's conduct asks for.
    waits: (Option<Duration>, Option<Duration>),
}

impl Known<'_> {
    /// Decides, and charges if it is allowed. A denial is a violation.
    pub(super) fn decide(&self, app: &App, now: Tick) -> Result<Decided, Problem> {
        let (limiter, agent, lane, cost) = (app.limiter(), self.agent.as_bytes(), self.lane, self.cost);
        let admission = match self.plan {
            Some(plan) => limiter.admit_as_at(agent, plan, lane, cost, now),
            None => limiter.admit_at(agent, lane, cost, now),
        };
        let admission = match admission {
            Ok(admission) => admission,
            Err(Error::CostAboveCapacity { cost, capacity }) => {
                let status = match self.plan {
                    Some(plan) => limiter.status_as_at(agent, plan, lane, now)?,
                    None => limiter.status_at(agent, lane, now)?,
                };
                let quota = Quota { capacity, denied: true, ..Quota::from(&status) };
                let reason = Reason::Cost(cost);
                self.denied(app, false);
                return Ok(Decided { decision: Decision::Deny, lane, quota, reason, waits: (None, None) });
            }
            Err(error) => return Err(error.into()),
        };
        let verdict = admission.verdict();
        let quota = Quota { retry_after: admission.retry_after(), ..Quota::from(&verdict) };
        // It is the agent's conduct if it has to wait longer than for its tokens.
        let is_conduct = quota.denied && (quota.retry_after > verdict.retry_after() || quota.remaining >= cost);
        let reason = if is_conduct { Reason::Conduct } else { Reason::Quota };
        let waits = (verdict.retry_after(), admission.violation().map(|violation| violation.wait()));
        match verdict.decision() {
            Decision::Allow | Decision::Warn => app.meter().charged(lane, cost),
            Decision::Deny => {
                self.denied(app, admission.violation().is_some_and(|violation| violation.sustained_abuse()))
            }
            _ => {}
        }
        Ok(Decided { decision: verdict.decision(), lane, quota, reason, waits })
    }
}

/// A verdict as JSON.
#[derive(Serialize)]
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
    bucket_wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conduct_wait_ms: Option<u64>,
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
            bucket_wait_ms: self.waits.0.map(ms_up),
            conduct_wait_ms: self.waits.1.map(ms_up),
            error: None,
        }
    }

    /// The answer to a single check.
    pub(super) fn response(&self, app: &App, policy: &Policy, agent: &Id<'_>) -> Response {
        let (settings, now) = (app.settings(), || app.wall_clock());
        let (style, profile, lane) = (settings.style(), settings.profile, lane_name(policy, self.lane));
        if !self.quota.denied {
            let told = self.told(policy, now());
            // Plain data, so it can always be written.
            let body = serde_json::to_vec(&told).unwrap_or_default();
            let mut response = Response::new(Body::empty());
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            if self.decision != Decision::Exempt {
                style.write(headers, lane, &self.quota, &now);
            }
            *response.body_mut() = Body::from(body);
            return response;
        }
        let agent = Some(agent.as_bytes());
        let refusal = Refusal { agent, lane, instance: Some("/v1/check"), reason: self.reason, quota: self.quota };
        let mut refused = refusal.response(profile, style, &Form::Http, &now);
        if profile == Profile::Standard {
            // The members of a verdict come first, so that both answers can be read alike.
            let mut body = r#"{"allowed":false,"verdict":"deny","#.to_owned();
            if let Some(ms) = self.waits.0.map(ms_up) {
                body.push_str(&format!(r#""bucket_wait_ms":{ms},"#));
            }
            if let Some(ms) = self.waits.1.map(ms_up) {
                body.push_str(&format!(r#""conduct_wait_ms":{ms},"#));
            }
            body.push_str(std::str::from_utf8(refused.body()).unwrap_or("{}").trim_start_matches('{'));
            refused.headers_mut().remove(CONTENT_LENGTH);
            *refused.body_mut() = body.into();
        }
        refused.map(Body::from)
    }
}

impl Known<'_> {
    /// Counts a denial, and tells of sustained abuse.
    fn denied(&self, app: &App, is_abuse: bool) {
        let (limiter, agent) = (app.limiter(), self.agent.as_bytes());
        let policy = limiter.policy();
        let assigned = limiter.assignment(agent).unwrap_or_default();
        let named = |plan| policy.plans().find(|(known, _)| *known == plan).map(|(_, name)| name);
        let plan = assigned.plan().or_else(|| self.plan.and_then(named)).unwrap_or("default");
        app.meter().denied(self.lane, plan);
        app.log_denial(agent);
        if is_abuse {
            let lane = lane_name(&policy, self.lane);
            tracing::warn!(agent = %agent.escape_ascii(), lane, "sustained abuse");
            app.tell_abuse(agent, lane);
        }
    }
}

impl<'a> Known<'a> {
    pub(super) fn agent(&self) -> &Id<'a> {
        &self.agent
    }

    /// One of a batch that could not be decided: no record was free for it.
    pub(super) fn undecided<'p>(&self, policy: &'p Policy, problem: &Problem) -> Told<'p> {
        Told {
            allowed: false,
            verdict: "error",
            lane: lane_name(policy, self.lane),
            limit: None,
            remaining: None,
            reset_at: None,
            retry_after: None,
            retry_after_ms: None,
            bucket_wait_ms: None,
            conduct_wait_ms: None,
            error: Some(problem.detail().to_owned()),
        }
    }
}

fn lane_name(policy: &Policy, lane: LaneId) -> &str {
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
