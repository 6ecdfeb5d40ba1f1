//! The question that every verb takes, and the agent that some take alone.

use super::Engine;
use crate::clock::Tick;
use crate::error::Error;
use crate::lane::CallLimit;
use crate::lane::held::HoldMark;
use crate::limits::LaneLimits;
use crate::policy::{LaneId, PlanId};
use crate::slab::hash::AgentHash;

/// One question: may this agent do this, on this lane?
///
/// Every verb takes it, and every option works with every verb:
/// [`check_request`](crate::Limiter::check_request), [`check_many`](crate::Limiter::check_many),
/// [`check_all`](crate::Limiter::check_all), [`peek`](crate::Limiter::peek),
/// [`refund`](crate::Limiter::refund), [`reserve`](crate::Limiter::reserve) and
/// [`hold`](crate::Limiter::hold).
///
/// ```
/// use tollgate::{Limiter, Policy, Request};
///
/// let policy = Policy::builder().lane("http", "10/s").plan("jwt", [("http", "20/s burst 100")]).build()?;
/// let limiter = Limiter::builder(policy).agents(1_000).build()?;
/// let (http, jwt) = (limiter.lane("http").expect("named above"), limiter.plan("jwt").expect("named above"));
///
/// let request = Request::new("user:42", http).cost(5).plan(jwt).counted();
/// assert_eq!(limiter.check_request(request)?.capacity(), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a request does nothing until it is passed to a limiter"]
pub struct Request<'a> {
    pub(crate) agent: &'a [u8],
    pub(crate) lane: LaneId,
    pub(crate) cost: u64,
    pub(crate) plan: Option<PlanId>,
    pub(crate) at: Option<Tick>,
    pub(crate) is_counted: bool,
    pub(crate) limit: Option<CallLimit>,
}

impl<'a> Request<'a> {
    /// A request that costs one token, now.
    #[inline(always)]
    pub fn new<A: AsRef<[u8]> + ?Sized>(agent: &'a A, lane: LaneId) -> Self {
        Self { agent: agent.as_ref(), lane, cost: 1, plan: None, at: None, is_counted: false, limit: None }
    }

    /// What it costs, in tokens. All of them are charged, or none. Default: 1.
    #[inline(always)]
    pub const fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// The plan that applies if the agent has no assignment: for what only the
    /// request shows, such as how the caller has authenticated. The limiter does
    /// not remember it; the agent's lanes are the same under every plan.
    /// Default, and `None`: the policy's default plan.
    #[inline(always)]
    pub fn plan(mut self, plan: impl Into<Option<PlanId>>) -> Self {
        self.plan = plan.into();
        self
    }

    /// The instant of the request on the limiter's clock
    /// ([`Limiter::now`](crate::Limiter::now)): for callers that have the time
    /// at hand, and for tests. Default: the limiter reads its clock.
    ///
    /// An older instant than another caller's only makes the answer stricter.
    /// An instant ahead of the clock lets the agent borrow from its future, and
    /// makes others look idle.
    #[inline(always)]
    pub const fn at(mut self, now: Tick) -> Self {
        self.at = Some(now);
        self
    }

    /// A denial counts against the agent's conduct: it is a violation if the
    /// agent came back before its last wait was over, or if the policy counts
    /// every denial. A policy that enforces waits denies a violator until its
    /// wait is over. See
    /// [`ConductRules`](crate::ConductRules). Default: a denial has no
    /// consequences.
    #[inline(always)]
    pub const fn counted(mut self) -> Self {
        self.is_counted = true;
        self
    }

    /// The limit by which this call is answered, on a lane that the policy
    /// declares [dynamic](crate::Limit::dynamic); on any other lane it is
    /// [`Error::LimitGiven`]. Default, and `None`: the lane's default, or
    /// [`Error::NoLimit`] if it has none.
    ///
    /// What the agent was charged before stays charged as time, whatever the
    /// limit: a changed limit applies at once. An agent that the policy or an
    /// operator exempts or denies stays so.
    #[inline(always)]
    pub fn limit(mut self, limit: impl Into<Option<CallLimit>>) -> Self {
        self.limit = limit.into();
        self
    }
}

/// An agent, for the verbs that concern all of its lanes.
///
/// They take anything that converts to one, so an id is enough; an `Agent` can
/// also have an instant.
///
/// ```
/// use tollgate::{Agent, Limiter, Policy};
///
/// let policy = Policy::builder().lane("http", "10/s").build()?;
/// let limiter = Limiter::builder(policy).agents(1_000).build()?;
/// limiter.reset("user:42")?;
/// limiter.reset(Agent::new("user:42").at(limiter.now()))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agent<'a> {
    pub(crate) id: &'a [u8],
    pub(crate) at: Option<Tick>,
}

impl<'a> Agent<'a> {
    /// The agent of this id, now.
    pub fn new<A: AsRef<[u8]> + ?Sized>(id: &'a A) -> Self {
        Self { id: id.as_ref(), at: None }
    }

    /// The instant of the call; see [`Request::at`].
    #[must_use]
    pub const fn at(mut self, now: Tick) -> Self {
        self.at = Some(now);
        self
    }
}

impl<'a, A: AsRef<[u8]> + ?Sized> From<&'a A> for Agent<'a> {
    fn from(id: &'a A) -> Self {
        Self::new(id)
    }
}

/// A lane of an agent, at an instant.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) hash: AgentHash,
    pub(super) lane: LaneLimits<'a>,
    /// The plan that applies if the agent has no assignment.
    pub(super) plan: Option<PlanId>,
    pub(super) now: Tick,
    /// The time of the lanes if the agent has no record: a check at the caller's
    /// instant would claim a record whose lanes are at this floor. Zero if the
    /// instant is the clock's, which a check would read again.
    pub(super) floor: Tick,
    /// What the call brings along, if the lane is dynamic.
    pub(super) limit: Option<CallLimit>,
}

impl<'a> Target<'a> {
    pub(super) const fn new(hash: AgentHash, lane: LaneLimits<'a>, plan: Option<PlanId>, now: Tick) -> Self {
        Self { hash, lane, plan, now, floor: Tick::ZERO, limit: None }
    }

    /// Another lane of the same agent.
    pub(super) fn with_lane(self, lane: LaneLimits<'a>) -> Self {
        Self { lane, ..self }
    }
}

/// A request whose agent, lane and instant are known.
#[derive(Clone, Copy)]
pub(super) struct ResolvedRequest<'a> {
    pub(super) agent: &'a [u8],
    pub(super) target: Target<'a>,
    pub(super) cost: u64,
    /// Whether the caller gave the instant. If not, the clock was read during
    /// the call, and may be read again.
    pub(super) is_given: bool,
    /// What a held word of a shared slab is marked with.
    pub(super) mark: Option<HoldMark>,
}

impl<'a> ResolvedRequest<'a> {
    /// The same request for another lane.
    pub(super) fn with_lane(self, lane: LaneLimits<'a>) -> Self {
        Self { target: self.target.with_lane(lane), ..self }
    }

    /// The same request at another instant.
    pub(super) fn at(self, now: Tick) -> Self {
        Self { target: Target { now, ..self.target }, ..self }
    }

    pub(super) fn lane(&self) -> LaneId {
        self.target.lane.id()
    }
}

impl Engine {
    /// Finds the lane, which must not be the total, and the agent; reads the
    /// clock if the request has no instant.
    #[inline(always)]
    pub(super) fn resolve<'a>(&'a self, request: Request<'a>) -> Result<ResolvedRequest<'a>, Error> {
        self.resolve_from(request, None)
    }

    /// The same, at `now` if the request has no instant.
    #[inline(always)]
    pub(super) fn resolve_from<'a>(
        &'a self,
        request: Request<'a>,
        now: Option<Tick>,
    ) -> Result<ResolvedRequest<'a>, Error> {
        let Request { agent, lane, cost, plan, at, limit, .. } = request;
        let (lane, hash) = (self.limits.chargeable(lane)?, self.hash_for(agent, plan)?);
        limit.map_or(Ok(()), |_| self.limits.must_be_dynamic(lane.id()))?;
        let now = at.or(now).unwrap_or_else(|| self.clock.now());
        let target = Target { limit, ..Target::new(hash, lane, plan, now) };
        Ok(ResolvedRequest { agent, target, cost, is_given: at.is_some(), mark: None })
    }
}
