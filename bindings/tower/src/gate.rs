//! The decision: everything it needs, shared by all clones of a layer.

use crate::address::{Client, Networks, Proxies};
use crate::head::Head;
use crate::headers::Style;
use crate::key::{AgentId, Keys};
use crate::profile::Profile;
use crate::quota::Quota;
use crate::refusal::{Form, Reason, Refusal, error_response};
use crate::route::{Routes, has_prefix, is_plain};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;
use tollgate::{Decision, Error, LaneId, Limiter, PlanId, Request, Status, Tick, Verdict};

pub(crate) type PeerOf = dyn Fn(&Head<'_>) -> Option<IpAddr> + Send + Sync;
pub(crate) type CostOf = dyn Fn(&Head<'_>) -> u64 + Send + Sync;
pub(crate) type PlanWhen = dyn Fn(&Head<'_>) -> bool + Send + Sync;
pub(crate) type WallClock = dyn Fn() -> SystemTime + Send + Sync;

pub(crate) struct Gate {
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) allowed: Allowed,
    pub(crate) lanes: Lanes,
    pub(crate) cost: Option<Box<CostOf>>,
    /// Plans for those who are assigned none, in the order in which they are asked for.
    pub(crate) plans: Vec<(PlanId, Box<PlanWhen>)>,
    /// Whether a refusal is a violation that makes the next wait longer.
    pub(crate) counts_violations: bool,
    /// Whether `HEAD` is answered here with how the agent stands.
    pub(crate) answers_head: bool,
    pub(crate) keys: Keys,
    pub(crate) peer: Option<Box<PeerOf>>,
    pub(crate) proxies: Proxies,
    pub(crate) profile: Profile,
    pub(crate) style: Style,
    /// Whether headers are left out while there is plenty.
    pub(crate) only_when_low: bool,
    pub(crate) wall_clock: Box<WallClock>,
}

/// What is never limited.
#[derive(Default)]
pub(crate) struct Allowed {
    pub(crate) networks: Networks,
    pub(crate) routes: Routes<()>,
    pub(crate) prefixes: Vec<String>,
}

/// Which lane a request is on.
pub(crate) struct Lanes {
    pub(crate) names: Vec<String>,
    pub(crate) routes: Routes<LaneId>,
    /// Parts of paths, in the order in which they are looked for.
    pub(crate) parts: Vec<(String, LaneId)>,
    /// For all other requests; `None` lets them pass.
    pub(crate) others: Option<LaneId>,
}

/// What becomes of a request.
pub(crate) enum Ruling {
    /// It goes on, and its response tells this.
    Pass(Option<Told>),
    /// It is answered here.
    Answer(Response<Bytes>),
}

/// What the response to an admitted request will tell.
#[derive(Clone, Copy)]
pub(crate) struct Told {
    lane: LaneId,
    verdict: Verdict,
    /// When the verdict was given, if the style tells moments.
    decided: Option<Tick>,
}

impl Gate {
    pub(crate) fn rule(&self, head: &Head<'_>) -> Ruling {
        let Some(lane) = self.lanes.of(head) else {
            return Ruling::Pass(None);
        };
        let client = if self.allowed.networks.is_empty() { None } else { self.client(head) };
        if self.allowed.has(head, client) {
            return Ruling::Pass(None);
        }
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head));
        if cost == 0 {
            return Ruling::Pass(None);
        }
        let address = || client.or_else(|| self.client(head)).map(|client| client.address);
        let agent = match self.keys.agent(head, address) {
            Ok(agent) => agent,
            Err(error) => {
                return Ruling::Answer(error_response(error.status(), &error.to_string(), &Form::of(head.headers)));
            }
        };
        if self.answers_head && head.method == Method::HEAD {
            return self.standing(head, &agent, lane);
        }
        let decided = self.style.tells_moments().then(|| self.limiter.now());
        match self.decide(head, &agent, lane, cost) {
            Ok(verdict) => match verdict.decision() {
                Decision::Allow if self.only_when_low => Ruling::Pass(None),
                Decision::Allow | Decision::Warn => Ruling::Pass(Some(Told { lane, verdict, decided })),
                Decision::Deny => {
                    let quota = Quota::from(&verdict);
                    // It is the agent's conduct if it has to wait longer than for its tokens.
                    let is_conduct = quota.retry_after > verdict.lane_wait() || quota.remaining >= cost;
                    let reason = if is_conduct { Reason::Conduct } else { Reason::Quota };
                    Ruling::Answer(self.refuse(head, &agent, lane, reason, quota))
                }
                // Whoever is under no limit has none to be told.
                _ => Ruling::Pass(None),
            },
            Err(error) => Ruling::Answer(self.answer_error(head, &agent, lane, error)),
        }
    }

    /// How the agent stands, as an answer without a body. It charges nothing,
    /// and the service behind is not asked: else `HEAD` would be a way past the limit.
    fn standing(&self, head: &Head<'_>, agent: &AgentId, lane: LaneId) -> Ruling {
        let mut response = Response::new(Bytes::new());
        match self.status(head, agent, lane) {
            Ok(status) if status.is_exempt() => {}
            Ok(status) => {
                let quota = Quota::from(&status);
                self.style.write(response.headers_mut(), self.lanes.name(lane), &quota, &self.wall_clock);
            }
            Err(error) => response = self.answer_error(head, agent, lane, error),
        }
        Ruling::Answer(response)
    }

    /// The lane as it stands, under the plan of the request.
    fn status(&self, head: &Head<'_>, agent: &AgentId, lane: LaneId) -> Result<Status, Error> {
        self.limiter.peek(Request::new(agent.as_bytes(), lane).plan(self.plan(head)))
    }

    fn plan(&self, head: &Head<'_>) -> Option<PlanId> {
        self.plans.iter().find(|(_, when)| when(head)).map(|(plan, _)| *plan)
    }

    /// Asks the limiter; nothing else here charges.
    fn decide(&self, head: &Head<'_>, agent: &AgentId, lane: LaneId, cost: u64) -> Result<Verdict, Error> {
        let request = Request::new(agent.as_bytes(), lane).cost(cost).plan(self.plan(head));
        self.limiter.check_request(if self.counts_violations { request.counted() } else { request })
    }

    /// Adds to the response of an admitted request what it has to tell.
    pub(crate) fn tell(&self, headers: &mut HeaderMap, told: &Told) {
        let elapsed = told.decided.map(|decided| self.limiter.now().saturating_since(decided));
        let quota = Quota::from(&told.verdict).after(elapsed.unwrap_or_default());
        self.style.write(headers, self.lanes.name(told.lane), &quota, &self.wall_clock);
    }

    fn refuse(&self, head: &Head<'_>, agent: &AgentId, lane: LaneId, reason: Reason, quota: Quota) -> Response<Bytes> {
        let instance = Some(head.uri.path());
        let refusal = Refusal { agent: agent.shown(), lane: self.lanes.name(lane), instance, reason, quota };
        refusal.response(self.profile.accepted(head.headers), self.style, &Form::of(head.headers), &self.wall_clock)
    }

    fn answer_error(&self, head: &Head<'_>, agent: &AgentId, lane: LaneId, error: Error) -> Response<Bytes> {
        let status = match error {
            Error::CostAboveCapacity { cost, capacity } => match self.status(head, agent, lane) {
                Ok(status) => {
                    let quota = Quota { capacity, denied: true, ..Quota::from(&status) };
                    return self.refuse(head, agent, lane, Reason::Cost(cost), quota);
                }
                Err(_) => StatusCode::TOO_MANY_REQUESTS,
            },
            Error::Full => StatusCode::SERVICE_UNAVAILABLE,
            // Everything else was seen to before the limiter was asked.
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        error_response(status, &error.to_string(), &Form::of(head.headers))
    }

    fn client(&self, head: &Head<'_>) -> Option<Client> {
        let peer = self.peer.as_ref()?(head)?;
        Some(self.proxies.client(peer, head.headers))
    }
}

impl Allowed {
    fn has(&self, head: &Head<'_>, client: Option<Client>) -> bool {
        // Behind a proxy that is not trusted anybody may stand.
        if client.is_some_and(|client| client.is_certain && self.networks.contains(client.address)) {
            return true;
        }
        let path = head.uri.path();
        let is_named =
            self.routes.at(head.method, path).is_some() || self.prefixes.iter().any(|prefix| has_prefix(path, prefix));
        is_named && is_plain(path)
    }
}

impl Lanes {
    fn of(&self, head: &Head<'_>) -> Option<LaneId> {
        let path = head.uri.path();
        let part = || self.parts.iter().find(|(part, _)| path.contains(part.as_str())).map(|(_, lane)| *lane);
        self.routes.at(head.method, path).copied().or_else(part).or(self.others)
    }

    /// The name of a lane that `of` has told.
    fn name(&self, lane: LaneId) -> &str {
        self.names.get(lane.number() as usize).map_or("", String::as_str)
    }
}
