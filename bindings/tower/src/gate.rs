//! The gate: what a decision needs, shared by all clones of a layer.

use crate::address::{Client, Networks, Proxies};
use crate::head::Head;
use crate::headers::Style;
use crate::key::{AgentId, Keys};
use crate::profile::Profile;
use crate::quota::Quota;
use crate::refusal::{Form, Reason, Refusal, error_response};
use crate::route::{Routes, has_prefix, is_plain};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;
use tollgate::{Decision, Error, LaneId, LaneState, Limiter, PlanId, Request, Tick, Verdict};

pub(crate) type PeerOf = dyn Fn(&Head<'_>) -> Option<IpAddr> + Send + Sync;
pub(crate) type CostOf = dyn Fn(&Head<'_>) -> u64 + Send + Sync;
pub(crate) type PlanWhen = dyn Fn(&Head<'_>) -> bool + Send + Sync;
pub(crate) type WallClock = dyn Fn() -> SystemTime + Send + Sync;

pub(crate) struct Gate {
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) bypass: Bypass,
    pub(crate) lanes: Lanes,
    pub(crate) cost: Option<Box<CostOf>>,
    /// Plans for agents without an assignment, tried in this order.
    pub(crate) plans: Vec<(PlanId, Box<PlanWhen>)>,
    /// Whether a refusal counts as a violation, so that the next wait is longer.
    pub(crate) counts_violations: bool,
    /// Whether the layer answers `HEAD` itself, with the agent's limits.
    pub(crate) answers_head: bool,
    pub(crate) keys: Keys,
    pub(crate) peer: Option<Box<PeerOf>>,
    pub(crate) proxies: Proxies,
    pub(crate) profile: Profile,
    pub(crate) style: Style,
    /// Whether headers are omitted while plenty is left.
    pub(crate) only_when_low: bool,
    pub(crate) wall_clock: Box<WallClock>,
}

/// Requests that bypass the limiter.
#[derive(Default)]
pub(crate) struct Bypass {
    pub(crate) networks: Networks,
    pub(crate) routes: Routes<()>,
    pub(crate) prefixes: Vec<String>,
}

/// Which lane a request is on.
pub(crate) struct Lanes {
    pub(crate) names: Vec<String>,
    pub(crate) routes: Routes<LaneId>,
    /// Texts in paths, searched in this order.
    pub(crate) substrings: Vec<(String, LaneId)>,
    /// The lane of all other requests; `None` lets them pass.
    pub(crate) others: Option<LaneId>,
}

/// What happens to a request.
pub(crate) enum Ruling {
    /// The service gets it, and its response carries these headers.
    Pass(Option<LimitHeaders>),
    /// The layer answers it.
    Answer(Response<Bytes>),
}

/// The headers that the response to an admitted request will carry.
#[derive(Clone, Copy)]
pub(crate) struct LimitHeaders {
    lane: LaneId,
    verdict: Verdict,
    /// When the verdict was given, if the style reports a point in time.
    decided: Option<Tick>,
}

impl Gate {
    pub(crate) fn rule(&self, head: &Head<'_>) -> Ruling {
        let Some(lane) = self.lanes.of(head) else {
            return Ruling::Pass(None);
        };
        let client = if self.bypass.networks.is_empty() { None } else { self.client(head) };
        if self.bypass.contains(head, client) {
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
            return self.report(head, &agent, lane);
        }
        let decided = self.style.reports_instants().then(|| self.limiter.now());
        match self.decide(head, &agent, lane, cost) {
            Ok(verdict) => match verdict.decision() {
                Decision::Allow if self.only_when_low => Ruling::Pass(None),
                Decision::Allow | Decision::Warn => Ruling::Pass(Some(LimitHeaders { lane, verdict, decided })),
                Decision::Deny => {
                    let quota = Quota::from(&verdict);
                    // A wait longer than the lane's own is due to the agent's conduct.
                    let is_conduct = quota.retry_after > verdict.lane_wait() || quota.remaining >= cost;
                    let reason = match is_conduct {
                        _ if is_pending(&verdict) => Reason::Pending,
                        true => Reason::Conduct,
                        false => Reason::Quota,
                    };
                    Ruling::Answer(self.refuse(head, &agent, lane, reason, quota))
                }
                // An exempt agent has no limit to report.
                _ => Ruling::Pass(None),
            },
            Err(error) => Ruling::Answer(self.answer_error(head, &agent, lane, error)),
        }
    }

    /// Answers with the agent's limits in headers and no body. It charges nothing and
    /// does not call the service; otherwise `HEAD` would be a way around the limit.
    fn report(&self, head: &Head<'_>, agent: &AgentId, lane: LaneId) -> Ruling {
        let mut response = Response::new(Bytes::new());
        match self.lane_state(head, agent, lane) {
            Ok(state) if state.is_exempt() => {}
            Ok(state) => {
                let quota = Quota::from(&state);
                self.style.write(response.headers_mut(), self.lanes.name(lane), &quota, &self.wall_clock);
            }
            Err(error) => response = self.answer_error(head, agent, lane, error),
        }
        Ruling::Answer(response)
    }

    /// The state of the lane, under the plan of the request.
    fn lane_state(&self, head: &Head<'_>, agent: &AgentId, lane: LaneId) -> Result<LaneState, Error> {
        self.limiter.peek(Request::new(agent.as_bytes(), lane).plan(self.plan(head)))
    }

    fn plan(&self, head: &Head<'_>) -> Option<PlanId> {
        self.plans.iter().find(|(_, when)| when(head)).map(|(plan, _)| *plan)
    }

    /// The only place that charges.
    fn decide(&self, head: &Head<'_>, agent: &AgentId, lane: LaneId, cost: u64) -> Result<Verdict, Error> {
        let request = Request::new(agent.as_bytes(), lane).cost(cost).plan(self.plan(head));
        self.limiter.check_request(if self.counts_violations { request.counted() } else { request })
    }

    /// Adds the limits to the response to an admitted request.
    pub(crate) fn write_headers(&self, headers: &mut HeaderMap, limit: &LimitHeaders) {
        let elapsed = limit.decided.map(|decided| self.limiter.now().saturating_since(decided));
        let quota = Quota::from(&limit.verdict).after(elapsed.unwrap_or_default());
        self.style.write(headers, self.lanes.name(limit.lane), &quota, &self.wall_clock);
    }

    fn refuse(&self, head: &Head<'_>, agent: &AgentId, lane: LaneId, reason: Reason, quota: Quota) -> Response<Bytes> {
        let instance = Some(head.uri.path());
        let refusal = Refusal { agent: agent.shown(), lane: self.lanes.name(lane), instance, reason, quota };
        refusal.response(self.profile.accepted(head.headers), self.style, &Form::of(head.headers), &self.wall_clock)
    }

    fn answer_error(&self, head: &Head<'_>, agent: &AgentId, lane: LaneId, error: Error) -> Response<Bytes> {
        let status = match error {
            Error::CostAboveCapacity { cost, capacity } => match self.lane_state(head, agent, lane) {
                Ok(state) => {
                    let quota = Quota { capacity, denied: true, ..Quota::from(&state) };
                    return self.refuse(head, agent, lane, Reason::Cost(cost), quota);
                }
                Err(_) => StatusCode::TOO_MANY_REQUESTS,
            },
            Error::Full | Error::HoldsFull | Error::Busy | Error::NoSeat { .. } => StatusCode::SERVICE_UNAVAILABLE,
            // Everything else was ruled out when the layer was built.
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let mut response = error_response(status, &error.to_string(), &Form::of(head.headers));
        if error == Error::Busy {
            // The lock that stands in the way is another process's, and is held for a moment.
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }

    fn client(&self, head: &Head<'_>) -> Option<Client> {
        let peer = self.peer.as_ref()?(head)?;
        Some(self.proxies.client(peer, head.headers))
    }
}

impl Bypass {
    fn contains(&self, head: &Head<'_>, client: Option<Client>) -> bool {
        // Any client may be behind a proxy that is not trusted.
        if client.is_some_and(|client| client.is_certain && self.networks.contains(client.address)) {
            return true;
        }
        let path = head.uri.path();
        let is_listed =
            self.routes.at(head.method, path).is_some() || self.prefixes.iter().any(|prefix| has_prefix(path, prefix));
        is_listed && is_plain(path)
    }
}

impl Lanes {
    fn of(&self, head: &Head<'_>) -> Option<LaneId> {
        let path = head.uri.path();
        let mut substrings = self.substrings.iter();
        let by_substring = || substrings.find(|(text, _)| path.contains(text.as_str())).map(|(_, lane)| *lane);
        self.routes.at(head.method, path).copied().or_else(by_substring).or(self.others)
    }

    /// The name of a lane that `of` returned.
    fn name(&self, lane: LaneId) -> &str {
        self.names.get(lane.number() as usize).map_or("", String::as_str)
    }
}

/// Whether the store that machines share the lane through is still being asked.
#[cfg(feature = "cluster")]
const fn is_pending(verdict: &Verdict) -> bool {
    verdict.is_provisional()
}

/// Machines share nothing.
#[cfg(not(feature = "cluster"))]
const fn is_pending(_: &Verdict) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use crate::head::Head;
    use crate::key::Key;
    use http::header::{CONTENT_TYPE, RETRY_AFTER};
    use http::{Request, StatusCode};
    use tollgate::{Error, LaneId, Limiter, Policy};

    /// Only another process that is stopped at the wrong instruction makes a limiter answer `Busy`.
    #[test]
    fn a_busy_limiter_answers_503_and_asks_to_come_back_in_a_second() {
        let policy = Policy::builder().lane("api", "5/min").build().unwrap();
        let limiter = Limiter::builder(policy).agents(10).build().unwrap();
        let layer = crate::TollgateLayer::builder(limiter).key(Key::header("x-agent-id")).build().unwrap();
        let named = Request::builder().header("x-agent-id", "a").body(()).unwrap();
        let agent = layer.gate.keys.agent(&Head::from(&named), || None).ok().unwrap();
        let answer =
            |request: Request<()>, error| layer.gate.answer_error(&Head::from(&request), &agent, LaneId::new(0), error);
        let response = answer(Request::new(()), Error::Busy);
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        let body = String::from_utf8(response.body().to_vec()).unwrap();
        assert!(body.contains("temporary-reduced-capacity") && body.contains("try again"), "{body}");
        let grpc = Request::builder().header(CONTENT_TYPE, "application/grpc").body(()).unwrap();
        let response = answer(grpc, Error::Busy);
        assert_eq!(response.headers()["grpc-status"], "14");
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert!(!answer(Request::new(()), Error::Full).headers().contains_key(RETRY_AFTER));
    }
}
