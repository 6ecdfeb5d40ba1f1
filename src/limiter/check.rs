//! May the agent do this? One request, many, several at once; look, give back, forget.

use super::Limiter;
use crate::clock::Tick;
use crate::engine::{Agent, AllVerdict, Request};
#[cfg(feature = "capi")]
use crate::engine::{Answer, BatchItem};
use crate::error::Error;
use crate::lane::{LaneState, Verdict};
use crate::policy::LaneId;
use std::convert::identity;
use std::time::Duration;

impl Limiter {
    /// May the agent do this once, now? If so, charges one token.
    ///
    /// # Errors
    ///
    /// See [`check_request`](Limiter::check_request).
    #[inline(always)]
    pub fn check(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<Verdict, Error> {
        self.check_request(Request::new(agent.as_ref(), lane))
    }

    /// May the agent do this? If so, charges what the [request](Request) costs; otherwise nothing.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`], [`Error::UnknownLane`], [`Error::UnknownPlan`],
    /// [`Error::ZeroCost`], [`Error::CostAboveCapacity`]; [`Error::Full`] if the agent is new and
    /// no record is free for it; [`Error::Busy`] if it is new in a shared limiter and another process
    /// is stopped with a lock that it needs, [`Error::NoSeat`] if this process can have no lock;
    /// [`Error::WrongKind`] if the lane is the [total](crate::PolicyBuilder::total), which is only
    /// ever charged along with others. An error charges nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, ManualClock, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("http", "10/min").build()?;
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::builder(policy).agents(10).clock(clock.clone()).build()?;
    /// let http = limiter.lane("http").expect("named above");
    /// let request = Request::new("agent-7", http).counted();
    ///
    /// assert!(limiter.check_request(request.cost(10))?.is_allowed());
    /// let denied = limiter.check_request(request)?;
    /// assert_eq!((denied.retry_after(), denied.violations_in_a_row()), (Some(Duration::from_secs(6)), 0));
    ///
    /// clock.advance(Duration::from_secs(2));
    /// assert_eq!(limiter.check_request(request)?.violations_in_a_row(), 1, "four seconds early");
    /// assert!(limiter.rate_limited("agent-7")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn check_request(&self, request: Request<'_>) -> Result<Verdict, Error> {
        self.engine.check_with(request, identity)
    }

    /// Answers a request, and passes the answer to `give` while it may still be
    /// in registers.
    #[cfg(feature = "capi")]
    #[inline(always)]
    pub(crate) fn check_with<R>(&self, request: Request<'_>, give: impl FnOnce(Answer) -> R) -> R {
        self.engine.check_with(request, give)
    }

    /// Answers a batch as if its requests were checked one by one, in order. Reads the clock once,
    /// for all requests without an [instant](Request::at).
    ///
    /// A request that cannot be answered gets its own error, and the others proceed. `answers` has
    /// room for one answer per request.
    ///
    /// # Errors
    ///
    /// [`Error::BatchSize`] if the slices differ in length or are longer than
    /// [`BATCH_MAX`](crate::bounds::BATCH_MAX). Then nothing was charged.
    ///
    /// ```
    /// use tollgate::{Error, Limit, Limiter, ManualClock, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("http", Limit::per_minute(1)).build()?;
    /// let limiter = Limiter::builder(policy).agents(10).clock(ManualClock::new()).build()?;
    /// let lane = limiter.lane("http").expect("named above");
    /// let ask = |agent: &'static str| Request::new(agent, lane);
    ///
    /// let mut answers = [Err(Error::EmptyId); 4];
    /// limiter.check_many(&[ask("a"), ask(""), ask("a"), ask("b")], &mut answers)?;
    /// let allowed = answers.map(|answer| answer.map(|verdict| verdict.is_allowed()));
    /// assert_eq!(allowed, [Ok(true), Err(Error::EmptyId), Ok(false), Ok(true)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_many(&self, requests: &[Request<'_>], answers: &mut [Result<Verdict, Error>]) -> Result<(), Error> {
        self.engine.check_many(requests, answers)
    }

    /// Checks a batch in another language's layout: reads requests and writes answers
    /// where the caller keeps them.
    #[cfg(feature = "capi")]
    #[inline(always)]
    pub(crate) fn check_batch<R: BatchItem, P>(
        &self,
        requests: impl ExactSizeIterator<Item = R> + Clone,
        outputs: impl IntoIterator<Item = P>,
        now: Option<Tick>,
        answer: impl Fn(P, Answer),
    ) {
        self.engine.check_batch(requests, outputs, now, answer);
    }

    /// May all of this be done? Charges every part or none: one request against several lanes of an
    /// agent, or against several agents.
    ///
    /// If parts are [counted](Request::counted), a denial may be one violation for each agent whose
    /// parts are blocking.
    ///
    /// # Errors
    ///
    /// [`Error::Parts`] if there are no parts, or more than
    /// [`PARTS_MAX`](crate::bounds::PARTS_MAX); the errors of
    /// [`check_request`](Limiter::check_request) if a part cannot be answered, among them
    /// [`Error::CostAboveCapacity`] if the parts of one lane add up to more than it ever holds.
    /// Then nothing was charged.
    ///
    /// ```
    /// use tollgate::{Limit, Limiter, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("requests", "10/min").lane("tokens", "budget 100/day").build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).build()?;
    /// let [requests, tokens] = ["requests", "tokens"].map(|name| limiter.lane(name).expect("named above"));
    /// let parts = |cost| {
    ///     [
    ///         Request::new("user:42", requests),
    ///         Request::new("user:42", tokens).cost(cost),
    ///         Request::new("team:7", tokens).cost(cost),
    ///     ]
    /// };
    /// assert!(limiter.check_all(&parts(80))?.is_allowed());
    /// let denied = limiter.check_all(&parts(30))?;
    /// assert_eq!(denied.blocking().collect::<Vec<_>>(), [1, 2]);
    /// assert_eq!(limiter.peek(Request::new("user:42", requests))?.remaining(), 9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_all(&self, parts: &[Request<'_>]) -> Result<AllVerdict, Error> {
        self.engine.check_all(parts)
    }

    /// The state of the agent's lane: what a check at that instant would find. Charges nothing, and
    /// claims no record. The cost of the request does not matter. If the agent's plan has a
    /// [total](crate::PolicyBuilder::total) with less left, these are the numbers of the total.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`], [`Error::UnknownLane`] or [`Error::UnknownPlan`].
    pub fn peek(&self, request: Request<'_>) -> Result<LaneState, Error> {
        self.engine.peek(request)
    }

    /// Gives back what the request costs, never beyond full, to the lane and to the
    /// [total](crate::PolicyBuilder::total) if there is one. An agent without a record is full
    /// already. What is [reserved](Limiter::reserve) is not touched: only its reservation gives it
    /// back.
    ///
    /// A token is worth what it costs under the limit that applies, so name the
    /// [plan](Request::plan) that was charged. A refund happens at the clock's time or later: an
    /// older instant would give back what time has paid for already.
    ///
    /// # Errors
    ///
    /// As [`check_request`](Limiter::check_request), except [`Error::Full`].
    pub fn refund(&self, request: Request<'_>) -> Result<LaneState, Error> {
        self.engine.refund(request)
    }

    /// Fills one lane of the agent, and not its total. Open reservations of the lane have nothing
    /// left to give back. Slots stay held, since their holders are still there: a held lane does
    /// not change.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`] or [`Error::UnknownLane`]; in a shared limiter
    /// [`Error::Busy`] too.
    pub fn reset_lane<'a>(&self, agent: impl Into<Agent<'a>>, lane: LaneId) -> Result<(), Error> {
        self.control().reset_lane(agent.into(), lane)
    }

    /// Fills every lane of the agent, one after the other, as [`reset_lane`](Limiter::reset_lane)
    /// does.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`]; in a shared limiter [`Error::Busy`] too.
    pub fn reset<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<(), Error> {
        self.control().reset(agent.into())
    }

    /// Forgets the agent: vacates its record and closes its reservations, so that its next check is
    /// its first. `false` if it had no record.
    ///
    /// Slots stay held, since their holders are still there. So an agent that holds one keeps its
    /// record, with all other lanes filled. An agent that is checked at the same moment may keep
    /// its record too.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`]; in a shared limiter [`Error::Busy`] too.
    pub fn forget<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<bool, Error> {
        self.control().forget(agent.into())
    }

    /// Vacates the records of agents that have been idle, with every lane full, for `idle_for`.
    /// Returns how many. Closes reservations that have expired. In a shared limiter it also gives back
    /// the slots that dead processes hold.
    ///
    /// Correctness never needs it: an idle record is taken when a newcomer needs one. It lets
    /// [`Stats::agents`](crate::Stats::agents) count recent agents only. It walks all records, so
    /// call it from a timer, every few minutes, say.
    pub fn sweep(&self, idle_for: Duration) -> u64 {
        self.sweep_at(idle_for, self.engine.clock.now())
    }

    /// Sweeps at `now`.
    pub(crate) fn sweep_at(&self, idle_for: Duration, now: Tick) -> u64 {
        self.engine.sweep(idle_for, now)
    }
}
