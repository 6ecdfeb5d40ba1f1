//! The request of a body: its names resolved, and what the limiter decides about it.

use super::fields::{Fields, Shape};
use super::outcome::Outcome;
use crate::app::App;
use crate::id::{Id, Text};
use crate::problem::Problem;
use crate::tokens::Scope;
use serde::Deserialize;
use std::time::{Duration, Instant};
use tollgate::bounds::OVERSPEND_MAX;
use tollgate::{CallLimit, Decision, Error, LaneId, Policy, Request, Tick, Verdict};
use tollgate_tower::{Quota, Reason};

/// How often a check that waits for the store looks again: the timer is no finer, and the store may have answered
/// sooner than it usually does.
const POLL_MIN: Duration = Duration::from_millis(1);
const POLL_MAX: Duration = Duration::from_millis(5);

/// The body of a check.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckBody<'a> {
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
    /// Of a lane that the policy declares dynamic.
    #[serde(borrow)]
    pub(super) limit: Option<Text<'a>>,
}

impl CheckBody<'_> {
    pub(super) const FIELDS: Fields = Fields {
        all: &[
            ("agent", Shape::Agent),
            ("agent_id", Shape::Agent),
            ("lane", Shape::Text),
            ("channel", Shape::Text),
            ("action", Shape::Text),
            ("plan", Shape::Text),
            ("cost", Shape::Count),
            ("limit", Shape::Text),
        ],
        needed: &["agent"],
        example: "{\"agent\": \"...\", \"lane\": \"...\"}",
    };
}

/// A request whose names are resolved.
pub(super) struct CheckRequest<'a> {
    pub(super) agent: Id<'a>,
    pub(super) lane: LaneId,
    pub(super) plan: Option<tollgate::PlanId>,
    pub(super) cost: u64,
    pub(super) limit: Option<CallLimit>,
}

impl<'a> CheckBody<'a> {
    /// Looks up the lane, which has to be one of the client's, and the plan. Charges nothing.
    pub(super) fn resolve(self, app: &App, policy: &Policy, scope: &Scope) -> Result<CheckRequest<'a>, Problem> {
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
                            format!("give a lane, or a channel and an action; the lanes are {}", lane_names(policy));
                        return Err(Problem::field("lane", detail));
                    }
                }
            }
        };
        if policy.total() == Some(lane) {
            let detail = format!(
                "the total is charged with every other lane and never alone; the lanes are {}",
                lane_names(policy)
            );
            return Err(Problem::field("lane", detail));
        }
        scope.require(lane_name(policy, lane))?;
        let plan = match &self.plan {
            None => None,
            Some(Text(name)) => Some(policy.plan(name).ok_or_else(|| no_plan(policy, name))?),
        };
        let cost = self.cost.unwrap_or(1);
        if cost == 0 {
            return Err(Error::ZeroCost.into());
        }
        let limit = self.limit.map(|Text(limit)| CallLimit::try_from(&*limit)).transpose();
        let limit = limit.map_err(|error| Problem::field("limit", error.to_string()))?;
        Ok(CheckRequest { agent: self.agent, lane, plan, cost, limit })
    }

    /// The same, but refuses a held lane: a client without a lease could not release
    /// its slot.
    pub(super) fn resolve_for_check(
        self,
        app: &App,
        policy: &Policy,
        scope: &Scope,
    ) -> Result<CheckRequest<'a>, Problem> {
        let request = self.resolve(app, policy, scope)?;
        if app.limiter().is_held(request.lane)? {
            let name = lane_name(policy, request.lane);
            return Err(Problem::field("lane", format!("{name} is a held lane; take a slot with /v1/hold")));
        }
        Ok(request)
    }
}

fn lane_for(app: &App, policy: &Policy, channel: &str, action: &str) -> Result<LaneId, Problem> {
    let Some(found) = app.limiter().lane_for(channel, action) else {
        let known: std::collections::BTreeSet<_> = policy.actions().map(|(channel, ..)| channel).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        let detail = if known.is_empty() {
            "this policy has no actions; give a lane".to_owned()
        } else {
            format!("this policy has no actions of the channel {:?}; the channels are {known}", short(channel))
        };
        return Err(Problem::field("channel", detail));
    };
    if found.is_first_seen() {
        tracing::warn!(
            channel = short(channel),
            action = short(action),
            "an action is not in the policy; add it to [actions]"
        );
    }
    Ok(found.lane())
}

/// A text from a client, short enough for an error or a log line.
pub(super) fn short(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

pub(super) fn lane_names(policy: &Policy) -> String {
    policy.lanes().map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

fn no_lane(policy: &Policy, name: &str) -> Problem {
    Problem::field("lane", format!("there is no lane \"{}\"; the lanes are {}", short(name), lane_names(policy)))
}

pub(super) fn no_plan(policy: &Policy, name: &str) -> Problem {
    let plans = policy.plans().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
    Problem::field("plan", format!("there is no plan \"{}\"; the plans are {plans}", short(name)))
}

impl CheckRequest<'_> {
    /// Decides, and charges if allowed.
    pub(super) fn decide(&self, app: &App, now: Tick) -> Result<Outcome, Problem> {
        self.conclude(app, now, app.limiter().check_request(self.to_request(now)))
    }

    /// The same, waiting for the store as [`ask`](Self::ask) does.
    pub(super) async fn decide_exactly(&self, app: &App) -> Result<Outcome, Problem> {
        let (now, verdict) = self.ask(app).await;
        self.conclude(app, now, verdict)
    }

    /// The outcome of a verdict, which it counts.
    pub(super) fn conclude(&self, app: &App, now: Tick, verdict: Result<Verdict, Error>) -> Result<Outcome, Problem> {
        let (outcome, is_abuse) = match verdict {
            Ok(verdict) => (self.outcome(&verdict), verdict.is_sustained_abuse()),
            Err(Error::CostAboveCapacity { .. }) => (self.peek(app, now)?, false),
            Err(error) => return Err(error.into()),
        };
        self.count(app, &outcome, is_abuse);
        Ok(outcome)
    }

    /// The verdict, and when it was given. Waits for the store if that alone stands in the way: of an exact lane that
    /// machines share, and no longer than its `wait`. No violation is counted for that.
    pub(super) async fn ask(&self, app: &App) -> (Tick, Result<Verdict, Error>) {
        let wait = app.machines().map_or(Duration::ZERO, |machines| machines.wait(self.lane));
        let begun = Instant::now();
        // Ends: each round but the last sleeps, and `wait` passes.
        loop {
            let now = app.limiter().now();
            let verdict = app.limiter().check_request(self.to_request(now));
            let left = wait.saturating_sub(begun.elapsed());
            match verdict {
                Ok(verdict) if verdict.is_provisional() && !left.is_zero() => {
                    let round_trip = verdict.retry_after().unwrap_or_default();
                    tokio::time::sleep(round_trip.clamp(POLL_MIN, POLL_MAX).min(left)).await;
                }
                verdict => return (now, verdict),
            }
        }
    }

    /// The outcome of a verdict.
    pub(super) fn outcome(&self, verdict: &Verdict) -> Outcome {
        let waits = (verdict.lane_wait(), Some(verdict.conduct_wait()).filter(|wait| !wait.is_zero()));
        let quota = Quota::from(verdict);
        // A wait longer than the lane's own is due to the agent's conduct.
        let is_conduct = quota.denied && (quota.retry_after > verdict.lane_wait() || quota.remaining >= self.cost);
        let reason = match is_conduct {
            _ if verdict.is_provisional() => Reason::Pending,
            true => Reason::Conduct,
            false => Reason::Quota,
        };
        Outcome { decision: verdict.decision(), lane: self.lane, quota, reason, waits, source: verdict.source() }
    }

    /// The outcome that a check would have now. Charges nothing, and a denial has no
    /// wait.
    pub(super) fn peek(&self, app: &App, now: Tick) -> Result<Outcome, Problem> {
        let state = app.limiter().peek(self.to_request(now))?;
        let (capacity, most) = (state.capacity(), self.cost_max(app, state.capacity()));
        let decision = match state.remaining() {
            _ if state.is_exempt() => Decision::Exempt,
            // A cost above the capacity needs a full lane.
            left if left < self.cost.min(capacity) || self.cost > most => Decision::Deny,
            _ => Decision::Allow,
        };
        let quota = Quota { denied: decision == Decision::Deny, ..Quota::from(&state) };
        let reason = if self.cost > most { Reason::Cost(self.cost) } else { Reason::Quota };
        Ok(Outcome { decision, lane: self.lane, quota, reason, waits: (None, None), source: None })
    }

    /// The largest cost that a lane of this capacity ever admits.
    fn cost_max(&self, app: &App, capacity: u64) -> u64 {
        let policy = app.limiter().policy();
        let takes_oversize = |(plan, _)| policy.plan_limit(plan, self.lane).is_some_and(|limit| limit.takes_oversize());
        if policy.plans().any(takes_oversize) { capacity.saturating_mul(OVERSPEND_MAX) } else { capacity }
    }

    /// The denial of a part that can never pass because all parts of its lane together
    /// cost `together`. `None` if they can pass.
    pub(super) fn too_costly(&self, app: &App, now: Tick, together: u64) -> Result<Option<Outcome>, Problem> {
        let outcome = self.peek(app, now)?;
        let capacity = outcome.quota.capacity;
        // A cost above the capacity leaves nothing for other parts.
        let most = if together > self.cost { capacity } else { self.cost_max(app, capacity) };
        let quota = Quota { denied: true, ..outcome.quota };
        let denial = Outcome { decision: Decision::Deny, quota, reason: Reason::Cost(together), ..outcome };
        Ok((together > most && capacity > 0).then_some(denial))
    }

    /// Counts an outcome, and reports sustained abuse.
    pub(super) fn count(&self, app: &App, outcome: &Outcome, is_abuse: bool) {
        match outcome.decision {
            Decision::Allow | Decision::Warn => app.meter().add_cost(self.lane, self.cost),
            Decision::Deny => self.count_denial(app, outcome, is_abuse),
            _ => {}
        }
    }

    /// The request to the limiter.
    pub(super) fn to_request(&self, now: Tick) -> Request<'_> {
        let request = Request::new(self.agent.as_bytes(), self.lane).cost(self.cost).plan(self.plan);
        request.limit(self.limit).at(now).counted()
    }

    /// Counts and logs a denial, and reports sustained abuse.
    fn count_denial(&self, app: &App, outcome: &Outcome, is_abuse: bool) {
        let (limiter, agent) = (app.limiter(), self.agent.as_bytes());
        let policy = limiter.policy();
        let assigned = limiter.assignment(agent).unwrap_or_default();
        let named = |plan| policy.plans().find(|(known, _)| *known == plan).map(|(_, name)| name);
        let plan = assigned.plan().or_else(|| self.plan.and_then(named)).unwrap_or("default");
        app.meter().count_denial(self.lane, plan);
        let lane = lane_name(&policy, self.lane);
        let limit = || {
            // The request's plan applies to an agent without an assignment.
            let limit = match self.plan.filter(|_| assigned.is_empty()) {
                Some(plan) => policy.plan_limit(plan, self.lane),
                None => limiter.limit_of(agent, self.lane).ok().flatten(),
            };
            limit.map_or_else(String::new, |limit| limit.to_string())
        };
        app.log_denial(agent, lane, limit, outcome.quota.retry_after_ms());
        if is_abuse {
            tracing::warn!(agent = %agent.escape_ascii(), lane, "sustained abuse");
            app.notify_abuse(agent, lane);
        }
    }
}

pub(super) fn lane_name(policy: &Policy, lane: LaneId) -> &str {
    policy.lanes().nth(lane.number() as usize).map_or("", |(_, name)| name)
}
