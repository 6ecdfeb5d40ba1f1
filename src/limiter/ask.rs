//! May the agent do this?

use super::{Limiter, Request};
use crate::error::Error;
use crate::lane::Verdict;
use crate::policy::LaneId;
use std::convert::identity;

impl Limiter {
    /// May the agent do this once, now? Charges one token if so.
    ///
    /// # Errors
    ///
    /// See [`check_request`](Limiter::check_request).
    #[inline(always)]
    pub fn check(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<Verdict, Error> {
        self.check_request(Request::new(agent.as_ref(), lane))
    }

    /// May the agent do this? Charges what the [request](Request) costs, or
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`], [`Error::UnknownLane`],
    /// [`Error::UnknownPlan`], [`Error::ZeroCost`], [`Error::CostAboveCapacity`];
    /// [`Error::Full`] if the agent is new and no record is free for it;
    /// [`Error::WrongKind`] if the lane is the
    /// [total](crate::PolicyBuilder::total), which is charged with others alone.
    /// An error charges nothing.
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
        self.check_with(request, identity)
    }
}
