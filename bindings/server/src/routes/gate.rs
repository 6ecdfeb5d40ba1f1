//! `/v1/gate`: what a gateway asks about a request before it passes it on.
//!
//! The gateway sends the head of its client's request, and any status but 200 means that
//! the client gets this response instead. Nothing that the client wrote decides what it is
//! charged: which headers name the agent is in the policy file, and the lane, the cost and
//! the plan are there too, or in the URL that the operator gave the gateway.

mod target;

use super::request::{CheckRequest, lane_name};
use crate::app::App;
use crate::error::StartError;
use crate::id::Id;
use crate::problem::{Cause, Problem, Refused, reason_of};
use crate::settings::{GateSettings, OnError, Settings, SourceKind};
use crate::tokens::Scope;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Instant, SystemTime};
use target::{Asked, Target};
use tollgate::{Error, LaneId, Limiter, PlanId, Policy};
use tollgate_gate::address::Networks;
use tollgate_gate::route::Routes;
use tollgate_gate::{self as gate, Gate, Head, Key, Peer, Ruling};

/// A check token for this path alone, so that the client's own `Authorization` can pass.
const TOKEN: HeaderName = HeaderName::from_static("x-tollgate-token");

/// The status that the client should get, where the URL asks for another one.
const STATUS: HeaderName = HeaderName::from_static("x-tollgate-status");

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// What the settings make of the path.
pub(crate) struct GateRules {
    gate: Gate,
    routes: Routes<Rule>,
    /// Whether a rule has a method, so that the client's has to be known.
    has_methods: bool,
    /// Whether a rule has a path, so that the client's has to be known.
    has_paths: bool,
    /// Whether a request that no rule matches has no limit.
    passes_others: bool,
    on_error: OnError,
    /// Whether the file has the table: then a gateway may send its client's host.
    is_configured: bool,
    needs_address: bool,
    proxies: Networks,
    has_warned: AtomicBool,
}

/// What a route says about its requests.
struct Rule {
    lane: LaneId,
    cost: u64,
    plan: Option<String>,
}

impl GateRules {
    /// Takes the settings of `[gate]`.
    pub(crate) fn new(
        limiter: &Arc<Limiter>,
        settings: &Settings,
        wall_clock: fn() -> SystemTime,
    ) -> Result<Self, StartError> {
        let wrong = |error: &dyn std::fmt::Display| StartError::new(format!("gate: {error}"));
        let configured = settings.gate.clone();
        let is_configured = configured.is_some();
        let own = configured.unwrap_or_default();
        let policy = limiter.policy();
        let mut routes = Routes::default();
        for route in &own.routes {
            let lane = policy.lane(&route.lane).ok_or_else(|| wrong(&format!("there is no lane {:?}", route.lane)))?;
            let rule = Rule { lane, cost: route.cost.unwrap_or(1), plan: route.plan.clone() };
            routes.insert(&route.rule, rule).map_err(|error| wrong(&error))?;
        }
        let rules = || own.routes.iter().map(|route| &route.rule).chain(&own.allow_routes);
        let has_paths = rules().next().is_some() || !own.path_contains.is_empty() || !own.allow_prefixes.is_empty();
        let sources = own.agent.iter().map(|source| &source.kind);
        Ok(Self {
            routes,
            has_methods: rules().any(|rule| !rule.starts_with('/')),
            has_paths,
            passes_others: own.pass_others,
            on_error: own.on_error,
            is_configured,
            needs_address: own.agent.is_empty() || sources.clone().any(|kind| matches!(kind, SourceKind::Address(_))),
            proxies: settings.trusted_proxies.clone(),
            has_warned: AtomicBool::new(false),
            gate: build(limiter, &policy, &own, settings, wall_clock).map_err(|error| wrong(&error))?,
        })
    }
}

fn build(
    limiter: &Arc<Limiter>,
    policy: &Policy,
    own: &GateSettings,
    settings: &Settings,
    wall_clock: fn() -> SystemTime,
) -> Result<Gate, gate::BuildError> {
    let builder = Gate::builder(Arc::clone(limiter));
    let builder = match only_lane(limiter, policy).or(own.lane.as_deref()).filter(|_| !own.pass_others) {
        Some(lane) => builder.lane(own.lane.as_deref().unwrap_or(lane)),
        // A request that reaches no lane is refused, unless the settings let it pass.
        None => builder.pass_others(),
    };
    let mut builder = builder
        .peer::<Peer>()
        .trusted_proxies(settings.trusted_proxies.texts())
        .profile(own.profile.unwrap_or(settings.profile))
        .style(own.style(settings.style()))
        .wall_clock(wall_clock);
    if own.agent.is_empty() {
        builder = builder.key(Key::address());
    }
    for source in &own.agent {
        let key = match &source.kind {
            SourceKind::Header(name) => Key::header(name),
            SourceKind::SecretHeader(name) => Key::secret_header(name),
            SourceKind::Address(bits) => Key::address().ipv6_prefix(*bits),
            // The prefix of this key is the id.
            SourceKind::Shared(id) => Key::shared(id),
        };
        let is_shared = matches!(source.kind, SourceKind::Shared(_));
        builder = builder.key(if is_shared { key } else { key.prefix(&source.prefix) });
    }
    builder = own.path_contains.iter().fold(builder, |builder, (text, lane)| builder.path_contains(text, lane));
    builder = own.allow_networks.iter().fold(builder, |builder, network| builder.allow_network(network));
    builder = own.allow_routes.iter().fold(builder, |builder, rule| builder.allow_route(rule));
    builder = own.allow_prefixes.iter().fold(builder, |builder, prefix| builder.allow_prefix(prefix));
    if own.headers_only_when_low { builder.headers_only_when_low().build() } else { builder.build() }
}

/// The lane of a policy that has one.
fn only_lane<'p>(limiter: &Limiter, policy: &'p Policy) -> Option<&'p str> {
    let mut lanes = policy.lanes().filter(|(lane, _)| policy.total() != Some(*lane));
    match (lanes.next(), lanes.next()) {
        (Some((lane, name)), None) if limiter.is_held(lane) == Ok(false) => Some(name),
        _ => None,
    }
}

/// Whether a path is this one, or below it.
pub(crate) fn is_gate(path: &str) -> bool {
    path.strip_prefix(target::PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether gateways may send the host that their client named: they are many names, and none is ours.
pub(crate) fn takes_any_host(app: &App) -> bool {
    app.gate().is_configured
}

/// Answers a gateway. The body is not read.
pub(crate) async fn rule(app: &App, peer: SocketAddr, mut parts: Parts) -> Response {
    let begun = Instant::now();
    parts.extensions.insert(Peer(peer));
    // Of the client's request, which may be gRPC; this one is not. A refusal must not have a status that passes.
    parts.headers.remove(header::CONTENT_TYPE);
    let answered = match require_check(app, &parts, peer) {
        Ok(scope) => decide(app, peer, &parts, &scope).await,
        Err(problem) => Err(problem),
    };
    let response = deny_with(answered.unwrap_or_else(Problem::into_response), target::deny(&parts.uri));
    app.meter().record_duration(begun.elapsed());
    response
}

/// Checks that the gateway may ask, and returns the lanes in which it may.
fn require_check(app: &App, parts: &Parts, peer: SocketAddr) -> Result<Scope, Problem> {
    // A client may send any token: where none is needed, none is looked at.
    if app.settings().checks_are_open() {
        return Ok(Scope::default());
    }
    let Some(token) = target::only(&parts.headers, &TOKEN)? else {
        return app.keys().require_check(&parts.headers, || peer.ip());
    };
    let mut headers = HeaderMap::with_capacity(2);
    let bearer = [b"Bearer ".as_slice(), token.as_bytes()].concat();
    let bearer = HeaderValue::from_bytes(&bearer).map_err(|_| Problem::unauthorized("the token is not a text"))?;
    headers.insert(header::AUTHORIZATION, bearer);
    for forwarded in parts.headers.get_all(&FORWARDED_FOR) {
        headers.append(FORWARDED_FOR, forwarded.clone());
    }
    app.keys().require_check(&headers, || peer.ip())
}

async fn decide(app: &App, peer: SocketAddr, parts: &Parts, scope: &Scope) -> Result<Response, Problem> {
    let (rules, policy) = (app.gate(), app.limiter().policy());
    let target = Target::of(parts)?;
    let asked = Asked::of(&target)?;
    let fallback = target.uri();
    let head = Head { method: target.method(), uri: &fallback, headers: &parts.headers, extensions: &parts.extensions };
    let own_lane = asked.lane.as_deref().map(|name| lane(app, &policy, name)).transpose()?;
    if own_lane.is_none() {
        target.must_be_known(rules.has_paths, rules.has_methods)?;
    }
    // Routes come first, as in every gate.
    let route = if own_lane.is_some() { None } else { rules.routes.at(head.method, head.uri.path()) };
    let by_rule = route.map(|rule| rule.lane).or_else(|| rules.gate.lanes(&head).first().copied());
    let Some(lane) = own_lane.or(by_rule) else {
        return if rules.passes_others { Ok(pass(None)) } else { Err(no_lane(&policy)) };
    };
    scope.require(lane_name(&policy, lane))?;
    let cost = asked.cost.or(route.map(|rule| rule.cost)).unwrap_or(1);
    let plan = match asked.plan.as_deref().or(route.and_then(|rule| rule.plan.as_deref())) {
        Some(name) => Some(plan(&policy, name)?),
        None => None,
    };
    rules.warn_about(peer, &parts.headers);
    let lanes = [lane];
    let ruling = match rules.gate.ask_on(&head, &lanes, |_| cost) {
        gate::Asked::Pass => Ruling::Pass(None),
        gate::Asked::Answer(response) => Ruling::Answer(response),
        gate::Asked::Decide(mut question) => {
            question.plan = plan;
            let agent = Id::of_agent(question.agent.as_bytes());
            let request = CheckRequest { agent, lane, plan, cost, limit: asked.limit };
            let (now, verdict) = request.ask(app).await;
            if let Err(error @ (Error::NoLimit { .. } | Error::LimitGiven { .. })) = verdict {
                return Err(error.into());
            }
            // It counts; what the client sees is the gate's.
            _ = request.conclude(app, now, verdict);
            rules.gate.conclude(&head, &question, verdict)
        }
    };
    Ok(match ruling {
        Ruling::Pass(limits) => pass(limits.map(|limits| (&rules.gate, limits))),
        Ruling::Answer(answer) if answer.status().is_server_error() && rules.on_error == OnError::Open => pass(None),
        Ruling::Answer(answer) => refuse(answer),
    })
}

/// The client's request may pass, with these limits.
fn pass(limits: Option<(&Gate, gate::LimitHeaders)>) -> Response {
    let mut response = Response::new(Body::empty());
    if let Some((gate, limits)) = limits {
        gate.write_headers(response.headers_mut(), &limits);
    }
    response
}

/// The client gets this response.
fn refuse(answer: http::Response<bytes::Bytes>) -> Response {
    let status = answer.status();
    let detail = || String::from_utf8_lossy(answer.body()).into_owned();
    let reason = if status == StatusCode::BAD_REQUEST { "gate" } else { reason_of(status) };
    // A refusal for lack of tokens is counted as one, whatever its status.
    let cause = (status != StatusCode::TOO_MANY_REQUESTS).then(|| Cause { reason, detail: detail().into() });
    let mut response = answer.map(Body::from);
    match cause {
        Some(cause) => _ = response.extensions_mut().insert(cause),
        None => _ = response.extensions_mut().insert(Refused),
    }
    response
}

/// The same refusal with the only status that the gateway can pass on. A wrong token stays one: it is the gateway's.
fn deny_with(mut response: Response, deny: Option<StatusCode>) -> Response {
    let status = response.status();
    if let Some(deny) = deny.filter(|_| status.is_client_error() && status != StatusCode::UNAUTHORIZED) {
        response.headers_mut().insert(STATUS, status.as_u16().into());
        *response.status_mut() = deny;
    }
    response
}

/// The lane that the operator's URL names.
fn lane(app: &App, policy: &Policy, name: &str) -> Result<LaneId, Problem> {
    let lane = policy.lane(name).filter(|lane| policy.total() != Some(*lane));
    let lane = lane.ok_or_else(|| {
        let lanes = super::request::lane_names(policy);
        Problem::field("lane", format!("there is no lane \"{}\"; the lanes are {lanes}", super::request::short(name)))
    })?;
    if app.limiter().is_held(lane)? {
        return Err(Problem::field("lane", format!("{name} is a held lane, and a gateway never releases a slot")));
    }
    Ok(lane)
}

/// The plan that the operator names.
fn plan(policy: &Policy, name: &str) -> Result<PlanId, Problem> {
    policy.plan(name).ok_or_else(|| super::request::no_plan(policy, name))
}

fn no_lane(policy: &Policy) -> Problem {
    let detail = format!(
        "no rule has a lane for this request; add ?lane= to the URL that the gateway asks, or lane to [gate] in the \
         policy file; the lanes are {}",
        super::request::lane_names(policy)
    );
    Problem::field("lane", detail)
}

impl GateRules {
    /// Behind a gateway that is not trusted, all clients are one agent. That is logged once.
    fn warn_about(&self, peer: SocketAddr, headers: &HeaderMap) {
        if self.needs_address
            && headers.contains_key(&FORWARDED_FOR)
            && !self.proxies.contains(peer.ip())
            && !self.has_warned.swap(true, Relaxed)
        {
            let address = peer.ip().to_canonical();
            tracing::warn!(
                "requests at /v1/gate come from {address}, which is not among trusted_proxies in [server]: its \
                 X-Forwarded-For is not believed, and all clients behind it are one agent"
            );
        }
    }
}
