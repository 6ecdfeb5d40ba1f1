//! The settings of a gate, checked once.

use crate::address::{Networks, Proxies};
use crate::error::BuildError;
use crate::gate::{CostOf, Gate, PeerOf, PlanWhen, WallClock};
use crate::head::Head;
use crate::headers::Style;
use crate::key::{Key, Keys};
use crate::lanes::{Bypass, Lanes};
use crate::profile::Profile;
use crate::route::Routes;
use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;
use tollgate::{LaneId, Limiter, PlanId, Policy};

/// Builds a [`Gate`], or a `T` around one; [`build`](GateBuilder::build) checks everything.
#[must_use]
pub struct GateBuilder<T = Gate> {
    limiter: Arc<Limiter>,
    keys: Vec<Key>,
    peer: Option<Box<PeerOf>>,
    proxies: Vec<String>,
    no_address: Option<String>,
    routes: Vec<(String, String)>,
    substrings: Vec<(String, String)>,
    lane: Option<String>,
    pass_others: bool,
    cost: Option<Box<CostOf>>,
    plans: Vec<(String, Box<PlanWhen>)>,
    counts_violations: bool,
    answers_head: bool,
    allowed_networks: Vec<String>,
    allowed_routes: Vec<String>,
    allowed_prefixes: Vec<String>,
    profile: Profile,
    style: Option<Style>,
    only_when_low: bool,
    wall_clock: Box<WallClock>,
    built: PhantomData<fn() -> T>,
}

impl<T: From<Gate>> GateBuilder<T> {
    /// Starts with a limiter, owned or shared in an `Arc`.
    pub fn new(limiter: impl Into<Arc<Limiter>>) -> Self {
        Self {
            limiter: limiter.into(),
            keys: Vec::new(),
            peer: None,
            proxies: Vec::new(),
            no_address: None,
            routes: Vec::new(),
            substrings: Vec::new(),
            lane: None,
            pass_others: false,
            cost: None,
            plans: Vec::new(),
            counts_violations: false,
            answers_head: false,
            allowed_networks: Vec::new(),
            allowed_routes: Vec::new(),
            allowed_prefixes: Vec::new(),
            profile: Profile::default(),
            style: None,
            only_when_low: false,
            wall_clock: Box::new(SystemTime::now),
            built: PhantomData,
        }
    }
}

/// # Who is limited
impl<T: From<Gate>> GateBuilder<T> {
    /// Adds a way to find the agent's id. Keys are tried in the order in which they are added.
    pub fn key(mut self, key: Key) -> Self {
        self.keys.push(key);
        self
    }

    /// The type of the extension that contains the peer's address: axum's
    /// `ConnectInfo<SocketAddr>`, or [`Peer`](crate::Peer).
    pub fn peer<E>(self) -> Self
    where
        E: Deref<Target = SocketAddr> + Send + Sync + 'static,
    {
        self.peer_with(|head| head.extensions.get::<E>().map(|peer| peer.ip()))
    }

    /// Finds the peer's address, for other servers.
    pub fn peer_with(mut self, peer: impl Fn(&Head<'_>) -> Option<IpAddr> + Send + Sync + 'static) -> Self {
        self.peer = Some(Box::new(peer));
        self
    }

    /// What the answer to a request says if its address is needed and the server provides none.
    /// By default it is advice for axum and hyper.
    pub fn no_address(mut self, detail: impl Into<String>) -> Self {
        self.no_address = Some(detail.into());
        self
    }

    /// Trusts these networks to report whom they forward: if the peer is in one of
    /// them, the client's address is the first entry of `X-Forwarded-For`, from the
    /// right, that is in none of them. By default no network is trusted.
    pub fn trusted_proxies(mut self, networks: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.proxies.extend(networks.into_iter().map(Into::into));
        self
    }
}

/// # Which lane a request is charged to, and how much
///
/// Rules are tried in this order: routes with a method, routes without one,
/// texts in the path, all others.
impl<T: From<Gate>> GateBuilder<T> {
    /// Puts requests to a route on a lane: `POST /agents/{id}/run`, or a
    /// template alone for all methods.
    ///
    /// The path is the one that the gate sees. Inside axum's `nest` the outer
    /// part is gone, so put a layer around the outermost router.
    pub fn route(mut self, rule: impl Into<String>, lane: impl Into<String>) -> Self {
        self.routes.push((rule.into(), lane.into()));
        self
    }

    /// Puts requests with this text in their path on a lane, if no route matches.
    /// Texts are searched in the order in which they are added.
    pub fn path_contains(mut self, text: impl Into<String>, lane: impl Into<String>) -> Self {
        self.substrings.push((text.into(), lane.into()));
        self
    }

    /// Puts all other requests on a lane. Not needed if the policy has one lane.
    pub fn lane(mut self, lane: impl Into<String>) -> Self {
        self.lane = Some(lane.into());
        self
    }

    /// Lets all other requests pass without a limit.
    pub fn pass_others(mut self) -> Self {
        self.pass_others = true;
        self
    }

    /// What a request costs; by default 1. A request that costs 0 passes without a
    /// limit. One that costs more than its lane's capacity is refused without a
    /// `Retry-After`.
    pub fn cost(mut self, cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.cost = Some(Box::new(cost));
        self
    }
}

/// # Under which plan, and with what consequences
impl<T: From<Gate>> GateBuilder<T> {
    /// Checks requests under a plan of the policy if `when` returns true: `jwt`, say,
    /// if an earlier layer has verified a token.
    ///
    /// Plans are tried in the order in which they are added. If none matches, the
    /// policy's `default` applies. An agent that was [assigned](Limiter::assign) a
    /// plan keeps it.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy};
    /// use tollgate_gate::{Gate, Key};
    /// # #[derive(Clone)] struct Claims { subject: String }
    ///
    /// let limiter = Limiter::builder(Policy::preset("adr")?).build()?;
    /// let gate = Gate::builder(limiter)
    ///     .lane("http/requests")
    ///     .key(Key::function("a token", |head| Some(head.extensions.get::<Claims>()?.subject.clone())))
    ///     .key(Key::shared("strangers"))
    ///     .plan("jwt", |head| head.extensions.get::<Claims>().is_some())
    ///     .plan("unauthenticated", |_| true)
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn plan(mut self, name: impl Into<String>, when: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.plans.push((name.into(), Box::new(when)));
        self
    }

    /// Applies the policy's conduct rules to refusals: a client that returns before
    /// its wait is over violates its limit. The limiter then reports the agent as
    /// [`rate_limited`](Limiter::rate_limited), and its waits grow if the policy has
    /// a curve. By default a refusal has no consequences.
    pub fn count_violations(mut self) -> Self {
        self.counts_violations = true;
        self
    }

    /// Answers `HEAD` on every limited route with the agent's limits in headers, under
    /// the plan of its request. It costs nothing, so a client can look before it
    /// sends a request, and the service is not called. By default `HEAD` is a request
    /// like any other.
    pub fn answer_head(mut self) -> Self {
        self.answers_head = true;
        self
    }
}

/// # What is never limited
///
/// Nothing by default. Requests listed here pass without a check and without headers.
impl<T: From<Gate>> GateBuilder<T> {
    /// Never limits clients of a network: `10.0.0.0/8`, or a single address.
    ///
    /// The client's address counts, not the proxy's. A request that an untrusted
    /// proxy has forwarded is limited even if the proxy is in the network, because
    /// any client may be behind it.
    pub fn allow_network(mut self, network: impl Into<String>) -> Self {
        self.allowed_networks.push(network.into());
        self
    }

    /// Never limits clients on this machine: `127.0.0.0/8` and `::1`.
    ///
    /// Not the default: behind a proxy on this machine that sends no header and is not
    /// among [`trusted_proxies`](Self::trusted_proxies), every client comes from loopback.
    pub fn allow_loopback(self) -> Self {
        self.allow_network("127.0.0.0/8").allow_network("::1")
    }

    /// Never limits a route: `GET /metrics`, or a template alone for all methods.
    pub fn allow_route(mut self, rule: impl Into<String>) -> Self {
        self.allowed_routes.push(rule.into());
        self
    }

    /// Never limits paths below a prefix: `/static/`. A path such as
    /// `/static/../run`, which another server may read differently, is limited.
    pub fn allow_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.allowed_prefixes.push(prefix.into());
        self
    }
}

/// # What clients see
impl<T: From<Gate>> GateBuilder<T> {
    /// The body of a refusal; by default [`Profile::Standard`].
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// The header fields; by default those of [`Profile::style`].
    pub fn style(mut self, style: Style) -> Self {
        self.style = Some(style);
        self
    }

    /// Omits the headers while plenty is left: they come with a warning, when less
    /// than 20 % is left (or the policy's threshold), and with a refusal.
    pub fn headers_only_when_low(mut self) -> Self {
        self.only_when_low = true;
        self
    }

    /// The clock for the Unix time in `X-RateLimit-Reset`; by default the system's. It
    /// is for tests: no limit depends on it.
    pub fn wall_clock(mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.wall_clock = Box::new(clock);
        self
    }
}

impl<T: From<Gate>> GateBuilder<T> {
    /// Checks every setting and builds the gate.
    ///
    /// # Errors
    ///
    /// The first setting that cannot work, with advice.
    pub fn build(self) -> Result<T, BuildError> {
        let keys = Keys::new(self.keys)?;
        let needs_peer = keys.need_address() || !self.allowed_networks.is_empty() || !self.proxies.is_empty();
        if needs_peer && self.peer.is_none() {
            return Err(BuildError::NoPeer);
        }
        let trusted = Networks::parse(self.proxies)?;
        if let Some(network) = trusted.catch_all() {
            return Err(BuildError::TrustsEveryone { network });
        }
        let policy: &Policy = &self.limiter.policy();
        let lane = |name: &str| {
            let lane = lane(policy, name)?;
            match self.limiter.is_held(lane) {
                Ok(true) => Err(BuildError::HeldLane { lane: name.to_owned() }),
                _ => Ok(lane),
            }
        };
        let others = match (self.lane, lane_names(policy).len()) {
            (Some(name), _) => Some(lane(&name)?),
            (None, _) if self.pass_others => None,
            (None, 1) => policy.lanes().next().map(|(_, name)| lane(name)).transpose()?,
            (None, _) => return Err(BuildError::NoLane),
        };
        let mut plans = Vec::with_capacity(self.plans.len());
        for (name, when) in self.plans {
            plans.push((plan(policy, name)?, when));
        }
        let mut routes = Routes::default();
        for (rule, name) in &self.routes {
            routes.insert(rule, lane(name)?)?;
        }
        let mut substrings = Vec::with_capacity(self.substrings.len());
        for (text, name) in self.substrings {
            let lane = lane(&name)?;
            substrings.push((absolute_path(text)?, lane));
        }
        let mut allowed_routes = Routes::default();
        for rule in &self.allowed_routes {
            allowed_routes.insert(rule, ())?;
        }
        let bypass = Bypass {
            networks: Networks::parse(self.allowed_networks)?,
            routes: allowed_routes,
            prefixes: self.allowed_prefixes.into_iter().map(absolute_path).collect::<Result<_, _>>()?,
        };
        let names = policy.lanes().map(|(_, name)| name.to_string()).collect();
        let gate = Gate {
            bypass,
            lanes: Lanes { names, routes, substrings, others },
            cost: self.cost,
            plans,
            counts_violations: self.counts_violations,
            answers_head: self.answers_head,
            keys,
            peer: self.peer,
            proxies: Proxies::new(trusted),
            no_address: self.no_address,
            profile: self.profile,
            style: self.style.unwrap_or_else(|| self.profile.style()),
            only_when_low: self.only_when_low,
            wall_clock: self.wall_clock,
            limiter: self.limiter,
        };
        Ok(T::from(gate))
    }
}

fn lane(policy: &Policy, name: &str) -> Result<LaneId, BuildError> {
    let known = policy.lane(name).filter(|lane| policy.total() != Some(*lane));
    known.ok_or_else(|| BuildError::UnknownLane { lane: name.to_string(), known: lane_names(policy) })
}

/// The lanes that a request can be charged to. The total is not one: it is charged with each of them.
fn lane_names(policy: &Policy) -> Vec<String> {
    let lanes = policy.lanes().filter(|(lane, _)| policy.total() != Some(*lane));
    lanes.map(|(_, name)| name.to_string()).collect()
}

fn plan(policy: &Policy, name: String) -> Result<PlanId, BuildError> {
    let known = || policy.plans().map(|(_, name)| name.to_string()).collect();
    policy.plan(&name).ok_or_else(|| BuildError::UnknownPlan { known: known(), plan: name })
}

fn absolute_path(text: String) -> Result<String, BuildError> {
    if text.starts_with('/') { Ok(text) } else { Err(BuildError::Path { text }) }
}

impl<T> fmt::Debug for GateBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateBuilder").field("keys", &self.keys).finish_non_exhaustive()
    }
}
