//! The gate: what a decision needs, and the ruling on a request.

use crate::address::{Client, Proxies};
use crate::builder::GateBuilder;
use crate::head::Head;
use crate::headers::Style;
use crate::key::{AgentId, KeyError, Keys};
use crate::lanes::{Bypass, Lanes};
use crate::profile::Profile;
use crate::quota::Quota;
use crate::refusal::{Form, Reason, Refusal, error_response};
use crate::verdicts::{Limits, Verdicts, reason};
use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;
use tollgate::{Decision, Error, LaneId, LaneState, Limiter, PlanId, Request, Tick, Verdict};

pub(crate) type PeerOf = dyn Fn(&Head<'_>) -> Option<IpAddr> + Send + Sync;
pub(crate) type CostOf = dyn Fn(&Head<'_>) -> u64 + Send + Sync;
pub(crate) type PlanWhen = dyn Fn(&Head<'_>) -> bool + Send + Sync;
pub(crate) type WallClock = dyn Fn() -> SystemTime + Send + Sync;

/// Rules on requests, by their heads. Any number of threads may use one at once.
pub struct Gate {
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) bypass: Bypass,
    pub(crate) lanes: Lanes,
    pub(crate) cost: Option<Box<CostOf>>,
    /// Plans for agents without an assignment, tried in this order.
    pub(crate) plans: Vec<(PlanId, Box<PlanWhen>)>,
    /// Whether a refusal counts as a violation, so that the next wait is longer.
    pub(crate) counts_violations: bool,
    /// Whether the gate answers `HEAD` itself, with the agent's limits.
    pub(crate) answers_head: bool,
    pub(crate) keys: Keys,
    pub(crate) peer: Option<Box<PeerOf>>,
    pub(crate) proxies: Proxies,
    /// What to do if the server provides no address; the key's own advice by default.
    pub(crate) no_address: Option<String>,
    pub(crate) profile: Profile,
    pub(crate) style: Style,
    /// Whether headers are omitted while plenty is left.
    pub(crate) only_when_low: bool,
    pub(crate) wall_clock: Box<WallClock>,
}

/// What happens to a request.
#[derive(Debug)]
pub enum Ruling {
    /// The service gets it, and its response carries these headers:
    /// [`Gate::write_headers`].
    Pass(Option<LimitHeaders>),
    /// The gate answers it.
    Answer(Response<Bytes>),
}

/// What is to be decided about a request, if anything is.
#[derive(Debug)]
pub enum Asked<'g> {
    /// Nothing: it has no limit.
    Pass,
    /// Nothing: the gate answers it.
    Answer(Response<Bytes>),
    /// This.
    Decide(Question<'g>),
}

/// Who asks for what: the argument of [`Gate::decide`].
#[derive(Clone, Debug)]
pub struct Question<'g> {
    /// Who.
    pub agent: AgentId,
    /// The lanes to charge: all of them or none. At most
    /// [`PARTS_MAX`](tollgate::bounds::PARTS_MAX).
    pub lanes: &'g [LaneId],
    /// What is charged to each lane.
    pub cost: u64,
    /// The plan of an agent without an assignment.
    pub plan: Option<PlanId>,
}

/// The headers that the response to an admitted request will carry.
#[derive(Clone, Debug)]
pub struct LimitHeaders {
    limits: Limits,
    /// When the verdict was given, if the style reports a point in time.
    decided: Option<Tick>,
}

impl Gate {
    /// Starts a gate over a limiter, owned or shared in an `Arc`.
    pub fn builder(limiter: impl Into<Arc<Limiter>>) -> GateBuilder {
        GateBuilder::new(limiter)
    }

    /// The limiter that decides.
    #[must_use]
    pub fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    /// Rules on a request: the only call that most servers need.
    pub fn rule(&self, head: &Head<'_>) -> Ruling {
        match self.ask(head) {
            Asked::Pass => Ruling::Pass(None),
            Asked::Answer(response) => Ruling::Answer(response),
            Asked::Decide(question) => self.decide(head, &question),
        }
    }

    /// What is to be decided about a request. Charges nothing.
    #[must_use]
    pub fn ask<'g>(&'g self, head: &Head<'_>) -> Asked<'g> {
        self.ask_on(head, self.lanes(head), |head| self.cost.as_ref().map_or(1, |cost| cost(head)))
    }

    /// The lane of a request by the gate's own rules; empty if it passes without a limit.
    #[must_use]
    pub fn lanes(&self, head: &Head<'_>) -> &[LaneId] {
        self.lanes.of(head)
    }

    /// The header fields that it writes.
    #[must_use]
    pub const fn style(&self) -> Style {
        self.style
    }

    /// The same with lanes and a cost from elsewhere than the gate's own rules.
    /// Without lanes the request has no limit.
    #[must_use]
    pub fn ask_on<'g, 'h>(
        &self,
        head: &Head<'h>,
        lanes: &'g [LaneId],
        cost: impl FnOnce(&Head<'h>) -> u64,
    ) -> Asked<'g> {
        if lanes.is_empty() {
            return Asked::Pass;
        }
        let client = if self.bypass.networks.is_empty() { None } else { self.client(head) };
        if self.bypass.contains(head, client) {
            return Asked::Pass;
        }
        let cost = cost(head);
        if cost == 0 {
            return Asked::Pass;
        }
        let address = || client.or_else(|| self.client(head)).map(|client| client.address);
        match self.keys.agent(head, address) {
            Ok(agent) => Asked::Decide(Question { agent, lanes, cost, plan: self.plan(head) }),
            Err(error) => {
                let advice = self.no_address.clone().filter(|_| error == KeyError::NoAddress);
                let detail = advice.unwrap_or_else(|| error.to_string());
                Asked::Answer(error_response(error.status(), &detail, &Form::of(head.headers)))
            }
        }
    }

    /// Decides, and charges if the request is admitted.
    pub fn decide(&self, head: &Head<'_>, question: &Question<'_>) -> Ruling {
        if self.answers_head && head.method == Method::HEAD {
            return Ruling::Answer(self.report(head, question));
        }
        self.conclude_on(head, question, self.check(question))
    }

    /// The ruling for a verdict, for a server that asks the limiter itself. The question has one lane.
    ///
    /// ```
    /// use http::Request;
    /// use tollgate::{Limiter, Policy};
    /// use tollgate_gate::{Asked, Gate, Head, Key, Ruling};
    ///
    /// let limiter = Limiter::builder(Policy::builder().lane("api", "60/min burst 1").build()?).build()?;
    /// let gate = Gate::builder(limiter).key(Key::header("x-agent-id")).build()?;
    /// let request = Request::get("/").header("x-agent-id", "agent-7").body(())?;
    /// let head = Head::from(&request);
    /// let Asked::Decide(question) = gate.ask(&head) else { return Err("a limited request".into()) };
    ///
    /// let verdict = gate.limiter().check(question.agent.as_bytes(), question.lanes[0]);
    /// assert!(matches!(gate.conclude(&head, &question, verdict), Ruling::Pass(Some(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn conclude(&self, head: &Head<'_>, question: &Question<'_>, verdict: Result<Verdict, Error>) -> Ruling {
        self.conclude_on(head, question, verdict.map(Verdicts::One))
    }

    fn conclude_on(&self, head: &Head<'_>, question: &Question<'_>, verdicts: Result<Verdicts, Error>) -> Ruling {
        let decided = self.style.reports_instants().then(|| self.limiter.now());
        match verdicts {
            Ok(verdicts) => match verdicts.decision() {
                Decision::Deny => Ruling::Answer(self.deny(head, question, &verdicts)),
                Decision::Allow if self.only_when_low => Ruling::Pass(None),
                Decision::Allow | Decision::Warn => {
                    Ruling::Pass(Some(LimitHeaders { limits: verdicts.limits(question), decided }))
                }
                // An exempt agent has no limit to report.
                _ => Ruling::Pass(None),
            },
            Err(error) => Ruling::Answer(self.answer_error(head, question, error)),
        }
    }

    /// The only place that charges.
    fn check(&self, question: &Question<'_>) -> Result<Verdicts, Error> {
        let part = |lane: &LaneId| {
            let request = Request::new(question.agent.as_bytes(), *lane).cost(question.cost).plan(question.plan);
            if self.counts_violations { request.counted() } else { request }
        };
        match question.lanes {
            [lane] => self.limiter.check_request(part(lane)).map(Verdicts::One),
            lanes => {
                let parts: Vec<_> = lanes.iter().map(part).collect();
                self.limiter.check_all(&parts).map(|all| Verdicts::All(Box::new(all)))
            }
        }
    }

    fn deny(&self, head: &Head<'_>, question: &Question<'_>, verdicts: &Verdicts) -> Response<Bytes> {
        let (lane, verdict) = verdicts.blocking(question);
        let quota = Quota::from(verdict);
        self.refuse(head, &question.agent, lane, reason(verdict, &quota, question.cost), quota)
    }

    /// Answers with the agent's limits in headers and no body. It charges nothing and
    /// does not call the service; otherwise `HEAD` would be a way around the limit.
    fn report(&self, head: &Head<'_>, question: &Question<'_>) -> Response<Bytes> {
        let mut response = Response::new(Bytes::new());
        for lane in question.lanes {
            match self.lane_state(question, *lane) {
                Ok(state) if state.is_exempt() => {}
                Ok(state) => {
                    let quota = Quota::from(&state);
                    self.style.write(response.headers_mut(), self.lanes.name(*lane), &quota, &self.wall_clock);
                }
                Err(error) => return self.answer_error(head, question, error),
            }
        }
        response
    }

    /// The state of a lane, under the plan of the request.
    fn lane_state(&self, question: &Question<'_>, lane: LaneId) -> Result<LaneState, Error> {
        self.limiter.peek(Request::new(question.agent.as_bytes(), lane).plan(question.plan))
    }

    fn plan(&self, head: &Head<'_>) -> Option<PlanId> {
        self.plans.iter().find(|(_, when)| when(head)).map(|(plan, _)| *plan)
    }

    /// Adds the limits to the response to an admitted request.
    pub fn write_headers(&self, headers: &mut HeaderMap, admitted: &LimitHeaders) {
        let elapsed = admitted.decided.map(|decided| self.limiter.now().saturating_since(decided)).unwrap_or_default();
        let mut write = |lane: LaneId, verdict: &Verdict| {
            let quota = Quota::from(verdict).after(elapsed);
            self.style.write(headers, self.lanes.name(lane), &quota, &self.wall_clock);
        };
        match &admitted.limits {
            Limits::One(lane, verdict) => write(*lane, verdict),
            Limits::All(limits) => {
                let limited = limits.iter().filter(|(_, verdict)| verdict.decision() != Decision::Exempt);
                limited.for_each(|(lane, verdict)| write(*lane, verdict));
            }
        }
    }

    pub(crate) fn refuse(
        &self,
        head: &Head<'_>,
        agent: &AgentId,
        lane: LaneId,
        reason: Reason,
        quota: Quota,
    ) -> Response<Bytes> {
        let instance = Some(head.uri.path());
        let refusal = Refusal { agent: agent.shown(), lane: self.lanes.name(lane), instance, reason, quota };
        refusal.response(self.profile.accepted(head.headers), self.style, &Form::of(head.headers), &self.wall_clock)
    }

    pub(crate) fn answer_error(&self, head: &Head<'_>, question: &Question<'_>, error: Error) -> Response<Bytes> {
        let status = match error {
            Error::CostAboveCapacity { cost, capacity } => {
                let state = |lane: &LaneId| Some((*lane, self.lane_state(question, *lane).ok()?));
                let states = question.lanes.iter().filter_map(state);
                if let Some((lane, state)) = states.min_by_key(|(_, state)| state.capacity().abs_diff(capacity)) {
                    let quota = Quota { capacity, denied: true, ..Quota::from(&state) };
                    return self.refuse(head, &question.agent, lane, Reason::Cost(cost), quota);
                }
                StatusCode::TOO_MANY_REQUESTS
            }
            Error::Full | Error::HoldsFull | Error::Busy | Error::NoSeat { .. } => StatusCode::SERVICE_UNAVAILABLE,
            // Everything else was ruled out when the gate was built.
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

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("lanes", &self.lanes.names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Gate};
    use crate::head::Head;
    use crate::key::Key;
    use http::header::{CONTENT_TYPE, RETRY_AFTER};
    use http::{Request, StatusCode};
    use tollgate::{Error, Limiter, Policy};

    /// Only another process that is stopped at the wrong instruction makes a limiter answer `Busy`.
    #[test]
    fn a_busy_limiter_answers_503_and_asks_to_come_back_in_a_second() {
        let policy = Policy::builder().lane("api", "5/min").build().unwrap();
        let limiter = Limiter::builder(policy).agents(10).build().unwrap();
        let gate = Gate::builder(limiter).key(Key::header("x-agent-id")).build().unwrap();
        let named = Request::builder().header("x-agent-id", "a").body(()).unwrap();
        let head = Head::from(&named);
        let Asked::Decide(question) = gate.ask(&head) else { panic!("a question") };
        let answer = |request: Request<()>, error| gate.answer_error(&Head::from(&request), &question, error);
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
