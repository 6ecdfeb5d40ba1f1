//! What the limiter does: counts, the state of agents, lists of them, events.

use super::Limiter;
use crate::engine::Agent;
use crate::error::Error;
use crate::observe::{AgentPage, AgentQuery, AgentView, Event, Offenders, Snapshot};

impl Limiter {
    /// What it holds and has done. Without [`Observe`](crate::observe::Observe), only what it
    /// holds. Takes microseconds and delays no check.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.engine.snapshot()
    }

    /// The agent's state: each lane, its plan, its conduct, and the lane nearest to its limit.
    /// Charges nothing, and claims no record.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    ///
    /// ```
    /// use tollgate::observe::UsageLevel;
    /// use tollgate::{Limiter, ManualClock, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("ws", "120/minute").lane("http", "10/minute").build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).clock(ManualClock::new()).build()?;
    /// let (ws, http) = (limiter.lane("ws").expect("named above"), limiter.lane("http").expect("named above"));
    /// assert!(limiter.check_request(Request::new("agent-7", ws).cost(30))?.is_allowed());
    /// assert!(limiter.check_request(Request::new("agent-7", http).cost(9))?.is_allowed());
    ///
    /// let view = limiter.agent("agent-7")?;
    /// assert_eq!(view.lanes[0].used_percent(), 25.0);
    /// let dominant = view.dominant().expect("the agent is not exempt");
    /// assert_eq!((dominant.name.as_str(), dominant.state.remaining()), ("http", 1));
    /// assert_eq!(dominant.level(), UsageLevel::Red);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn agent<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<AgentView, Error> {
        self.engine.agent(agent.into())
    }

    /// A page of the agents that have a record, and of the exempt ones, which need none. Needs a
    /// [roster](crate::observe::Observe::roster). Counts the agents that it could not list.
    ///
    /// Reads the whole roster, so call it for people and not for requests: a million agents take
    /// some tenths of a second. Charges nothing and delays no check.
    ///
    /// ```
    /// use tollgate::observe::{AgentQuery, AgentSort, Observe};
    /// use tollgate::{Limiter, ManualClock, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("http", "10/minute").build()?;
    /// let builder = Limiter::builder(policy).agents(1_000).clock(ManualClock::new());
    /// let limiter = builder.observe(Observe::new().roster(2_000)).build()?;
    /// let http = limiter.lane("http").expect("named above");
    /// for (agent, cost) in [("user:1", 2), ("user:2", 9), ("ip:10.0.0.1", 5)] {
    ///     assert!(limiter.check_request(Request::new(agent, http).cost(cost))?.is_allowed());
    /// }
    /// let page = limiter.agents(&AgentQuery::new().prefix("user:").sort(AgentSort::Usage));
    /// assert_eq!((page.matched, page.listed, page.not_listed), (2, 3, 0));
    /// assert_eq!(page.agents[0].id, b"user:2");
    /// assert_eq!(page.agents[0].view.lanes[0].used_percent(), 90.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn agents(&self, query: &AgentQuery) -> AgentPage {
        // The clock is read for each agent: a long list takes longer than a short bucket takes to fill, and
        // agents charged meanwhile would seem to have used up everything.
        self.engine.list(query, || self.engine.clock.now())
    }

    /// The agents that violated limits most in the last hour: up to `most` of them, and at most
    /// [`OFFENDERS_KEPT`](crate::bounds::OFFENDERS_KEPT). Empty without
    /// [`Observe`](crate::observe::Observe).
    ///
    /// A violation is a denial of a [counted](crate::Request::counted) request, or one recorded
    /// with [`record_violation`](Limiter::record_violation).
    ///
    /// ```
    /// use tollgate::observe::Observe;
    /// use tollgate::{ConductRules, Limiter, ManualClock, Policy, Request};
    ///
    /// let rules = ConductRules::default().with_every_denial(true);
    /// let policy = Policy::builder().lane("http", "1/minute").conduct(rules).build()?;
    /// let builder = Limiter::builder(policy).agents(1_000).clock(ManualClock::new());
    /// let limiter = builder.observe(Observe::new()).build()?;
    /// let http = limiter.lane("http").expect("named above");
    /// for (agent, requests) in [("agent-7", 9), ("agent-8", 3)] {
    ///     for _ in 0..requests {
    ///         let _ = limiter.check_request(Request::new(agent, http).counted())?;
    ///     }
    /// }
    /// let top = limiter.top_offenders(3);
    /// assert_eq!((top.violations, top.error_max), (10, 0));
    /// assert_eq!((top.list[0].agent.as_slice(), top.list[0].violations), (b"agent-7".as_slice(), 8));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn top_offenders(&self, most: usize) -> Offenders {
        self.engine.top_offenders(most, self.engine.clock.now())
    }

    /// The report for an operator, as JSON: agents, counts by lane, violations, `top_offenders`
    /// and, with a roster, the `busiest` agents, 20 of each. It counts the agents that are not
    /// listed.
    #[must_use]
    pub fn report(&self) -> String {
        self.engine.report()
    }

    /// Writes the [report](Limiter::report) to a file, by convention
    /// [`REPORT_FILE`](crate::observe::REPORT_FILE) in the directory of the audit log. Call it from
    /// a timer.
    ///
    /// A reader finds the old report or the new one, whole: `NAME.tmp` is written and then renamed.
    /// The file `NAME.lock` beside it keeps a second writer out.
    ///
    /// # Errors
    ///
    /// [`PersistError::InUse`](crate::keep::PersistError::InUse) if another writer has the lock;
    /// otherwise what the system refused. Except after
    /// [`NotSynced`](crate::keep::PersistError::NotSynced), the file is as it was.
    #[cfg(feature = "persist")]
    pub fn write_report(&self, path: impl AsRef<std::path::Path>) -> Result<(), crate::keep::PersistError> {
        crate::keep::publish(path.as_ref(), &self.report())
    }

    /// The oldest event that nobody has polled yet. Any thread may poll, and each event is given
    /// out once. Without [`Observe`](crate::observe::Observe) there are no events.
    ///
    /// The last [`EVENTS_KEPT`](crate::bounds::EVENTS_KEPT) events wait to be polled;
    /// [`Snapshot::events_dropped`] counts those that were overwritten.
    ///
    /// ```
    /// use tollgate::observe::{EventKind, Observe};
    /// use tollgate::{ConductRules, Limiter, ManualClock, Policy, Request};
    ///
    /// let rules = ConductRules::default().with_every_denial(true);
    /// let policy = Policy::builder().lane("http", "1/minute").conduct(rules).build()?;
    /// let builder = Limiter::builder(policy).agents(1_000).clock(ManualClock::new());
    /// let limiter = builder.observe(Observe::new()).build()?;
    /// let http = limiter.lane("http").expect("named above");
    /// // One passes, and ten denials within five minutes are sustained abuse.
    /// for _ in 0..20 {
    ///     let _ = limiter.check_request(Request::new("agent-7", http).counted())?;
    /// }
    /// let event = limiter.poll_event().expect("sustained abuse");
    /// assert_eq!(event.kind, EventKind::SustainedAbuse { agent: b"agent-7".to_vec(), in_a_row: 10 });
    /// assert_eq!(limiter.poll_event(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "each event is given once"]
    pub fn poll_event(&self) -> Option<Event> {
        self.engine.poll_event()
    }
}
