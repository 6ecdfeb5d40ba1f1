//! Looks at what the limiter does: counts, how agents stand, lists of them, events.

use super::charge::Answer;
use super::request::Target;
use super::{Agent, Limiter, Request};
use crate::clock::Tick;
use crate::conduct::Violation;
use crate::error::Error;
use crate::lane::Verdict;
use crate::observe::counters::Other;
use crate::observe::report;
use crate::observe::roster::Entry;
use crate::observe::{
    AgentPage, AgentQuery, AgentSort, AgentView, Event, LaneCounts, LaneView, ListedAgent, Note, Offenders, Snapshot,
};
use crate::policy::{LaneId, PlanId};
use crate::slab::Claimed;
use crate::slab::hash::AgentHash;
use std::cmp::Reverse;
use std::convert::identity;
use std::time::SystemTime;

impl Limiter {
    /// What it holds and has done. Without [`Observe`](crate::observe::Observe) only what
    /// it holds. Takes microseconds, and holds up nobody.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let counters = self.watch.as_ref().map(|watch| &watch.counters);
        let sum = |other| counters.map_or(0, |counters| counters.sum(counters.other(other)));
        let tally = self.registry.tally();
        let now = self.clock.now();
        Snapshot {
            at: now,
            is_counting: counters.is_some(),
            lanes: LaneCounts::of(&self.policy(), counters),
            errors: sum(Other::Error),
            full: sum(Other::Full),
            violations: sum(Other::Violation),
            violations_last_hour: self.watch.as_ref().map_or(0, |watch| watch.violations.last_hour(now)),
            sustained_abuse: sum(Other::Abuse),
            stats: self.stats(),
            assigned: tally.assigned,
            overridden: tally.overridden,
            exempt: tally.exempt,
            unknown_actions: self.unknown_actions.total(),
            events_dropped: self.watch.as_ref().map_or(0, |watch| watch.events.dropped()),
            clock: self.clock.source(),
            clock_fallbacks: self.clock.fallbacks(),
        }
    }

    /// How the agent stands: each lane, its plan, its conduct, and the lane
    /// that is nearest to its limit. Charges nothing and makes no agent known.
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
    /// assert_eq!((dominant.name.as_str(), dominant.status.remaining()), ("http", 1));
    /// assert_eq!(dominant.level(), UsageLevel::Red);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn agent<'a>(&self, agent: impl Into<Agent<'a>>) -> Result<AgentView, Error> {
        let Agent { id, at } = agent.into();
        self.view(id, at, at.unwrap_or_else(|| self.clock.now()))
    }

    /// How the agent stands at `now`, which is `given` or the clock's.
    fn view(&self, agent: &[u8], given: Option<Tick>, now: Tick) -> Result<AgentView, Error> {
        let (assignment, hash) = (self.assignment(agent)?, self.hash(agent)?);
        let floor = self.floor_of(hash, given);
        let view = |(lane, name): (LaneId, &str)| {
            Ok(LaneView {
                lane,
                name: name.to_owned(),
                limit: self.limit_of(agent, lane)?,
                is_override: assignment.override_of(name).is_some(),
                status: self.state(&Target { floor, ..Target::new(hash, self.limits.lane(lane)?, None, now) }),
            })
        };
        Ok(AgentView {
            at: now,
            is_known: self.slab.find(hash).is_some(),
            plan: assignment.plan().map(str::to_owned),
            is_exempt: self.is_exempt(agent)?,
            lanes: self.policy().lanes().map(view).collect::<Result<_, Error>>()?,
            conduct: self.violations(Agent::new(agent).at(now))?,
        })
    }

    /// Agents that hold a record, and those that are exempt, which need none:
    /// a page of them. Needs a [roster](crate::observe::Observe::roster); says how many
    /// agents are not listed.
    ///
    /// Reads the whole roster, so call it for people and not for requests: a
    /// million agents take some tenths of a second. Charges nobody, and holds
    /// up nobody.
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
        // Each agent by a time of its own: a long list takes longer than a
        // short bucket takes to fill, and by the time at which it began all
        // that were charged meanwhile would seem to be used up.
        self.list(query, || self.clock.now())
    }

    /// As [`agents`](Limiter::agents), at `now`.
    #[must_use]
    pub(crate) fn agents_at(&self, query: &AgentQuery, now: Tick) -> AgentPage {
        self.list(query, || now)
    }

    fn list(&self, query: &AgentQuery, now: impl Fn() -> Tick) -> AgentPage {
        let (mut listed, mut found) = (0, Vec::new());
        let mut list = |hash, id: Vec<u8>| {
            listed += 1;
            if query.matches(&id) {
                let rank = match query.sort {
                    AgentSort::Id => 0,
                    AgentSort::Usage => self.usage(hash, now()),
                    AgentSort::Violations => u64::from(self.conduct_of(hash, now()).violations()),
                };
                found.push((Reverse(rank), id));
            }
        };
        let roster = self.watch.as_ref().and_then(|watch| watch.roster.as_ref());
        let mut holders = 0;
        for Entry { position, id } in roster.into_iter().flat_map(|roster| roster.entries()) {
            let Ok(hash) = self.hash(&id) else { continue };
            // Otherwise it has lost its record since.
            if self.slab.is_held_by(position, hash) {
                holders += 1;
                list(hash, id);
            }
        }
        for (hash, id) in roster.into_iter().flat_map(|_| self.registry.exempt()) {
            if self.slab.find(hash).is_none() {
                list(hash, id.into_vec());
            }
        }
        found.sort_unstable();
        found.dedup(); // One may have lost its record in between.
        let matched = found.len() as u64;
        let start = query.page.saturating_mul(query.per_page);
        let page = found.into_iter().skip(start).take(query.per_page);
        let agents = page.filter_map(|(_, id)| self.view(&id, None, now()).ok().map(|view| ListedAgent { id, view }));
        let not_listed = self.stats().agents.saturating_sub(holders);
        AgentPage { agents: agents.collect(), matched, listed, not_listed }
    }

    /// How much of its dominant lane an agent uses, in parts of 2^32.
    fn usage(&self, hash: AgentHash, now: Tick) -> u64 {
        let usage = |lane| {
            let status = self.state(&Target::new(hash, lane, None, now));
            let used = u128::from(status.capacity().saturating_sub(status.remaining()));
            // At most 2^32, since not more is used than there is.
            ((used << 32) / u128::from(status.capacity().max(1))) as u64
        };
        self.limits.lanes().map(usage).max().unwrap_or(0)
    }

    /// Who has violated limits the most in the last hour: up to `most` agents,
    /// and no more than [`OFFENDERS_KEPT`](crate::bounds::OFFENDERS_KEPT). Without
    /// [`Observe`](crate::observe::Observe) there are none.
    ///
    /// A violation is a denial of a [counted](Request::counted) request, or one
    /// that was recorded with [`record_violation`](Limiter::record_violation).
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
        self.top_offenders_at(most, self.clock.now())
    }

    /// As [`top_offenders`](Limiter::top_offenders), in the hour before `now`.
    #[must_use]
    pub(crate) fn top_offenders_at(&self, most: usize, now: Tick) -> Offenders {
        self.watch.as_ref().map(|watch| watch.violations.top(most, now)).unwrap_or_default()
    }

    /// What an operator wants to know, as JSON: agents, counts by lane,
    /// violations, `top_offenders` and, with a roster, the `busiest` agents,
    /// 20 of each. It says how many agents are not listed.
    #[must_use]
    pub fn status_document(&self) -> String {
        let now = self.clock.now();
        let busiest = AgentQuery::new().sort(AgentSort::Usage).per_page(report::BUSIEST);
        let report = report::Report {
            written: SystemTime::now(),
            snapshot: &self.snapshot(),
            offenders: &self.top_offenders_at(report::OFFENDERS, now),
            busiest: &self.agents_at(&busiest, now),
        };
        report.document()
    }

    /// Writes the [status document](Limiter::status_document) to a file, by
    /// custom [`REPORT_FILE`](crate::observe::REPORT_FILE) in the directory of the
    /// audit log. Call it from a timer.
    ///
    /// Whoever reads the file finds the old document or the new one, whole:
    /// `NAME.tmp` is written and then put in its place. The file `NAME.lock`
    /// beside it keeps a second writer out.
    ///
    /// # Errors
    ///
    /// [`PersistError::InUse`](crate::keep::PersistError::InUse) if somebody else
    /// is writing it at this moment; otherwise what the system refused. Except
    /// after [`NotSynced`](crate::keep::PersistError::NotSynced) the file is as it was.
    #[cfg(feature = "persist")]
    pub fn write_status(&self, path: impl AsRef<std::path::Path>) -> Result<(), crate::keep::PersistError> {
        let file = crate::keep::Replaced::find(path.as_ref(), crate::keep::ANYBODY)?;
        let old = file.metadata()?;
        let _lock = file.lock()?;
        file.replace(self.status_document().as_bytes(), old.as_ref())?;
        file.sync()
    }

    /// The oldest event that nobody has polled yet. Any thread may poll; each
    /// event is given to one of them. Without [`Observe`](crate::observe::Observe) there
    /// are none.
    ///
    /// Events wait for a poll, the last [`EVENTS_KEPT`](crate::bounds::EVENTS_KEPT) of
    /// them; [`Snapshot::events_dropped`] counts those that did not.
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
    /// assert_eq!(event.kind, EventKind::SustainedAbuse { agent: b"agent-7".to_vec(), consecutive: 10 });
    /// assert_eq!(limiter.poll_event(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "each event is given once"]
    pub fn poll_event(&self) -> Option<Event> {
        let watch = self.watch.as_ref()?;
        watch.clock_fell_back(self.clock.fallbacks(), self.clock.now());
        watch.events.poll()
    }

    /// Checks a request of a limiter that observes, or of a lane that is not a
    /// bucket or does not exist. It takes pieces: see [`fast`](super::fast).
    #[cold]
    #[inline(never)]
    pub(super) fn check_observed(
        &self,
        agent: &[u8],
        lane: LaneId,
        cost: u64,
        plan: Option<PlanId>,
        at: Option<Tick>,
    ) -> Answer {
        let answer = match self.limits.lane(lane) {
            Ok(limits) if self.limits.is_fast(lane) => self.charge_bucket(agent, limits, cost, plan, at, identity),
            _ => return self.check_any(agent, lane, cost, plan, at),
        };
        self.note_answer(agent, lane, &answer);
        answer
    }

    /// Checks a request of whichever lane.
    #[cold]
    #[inline(never)]
    fn check_any(&self, agent: &[u8], lane: LaneId, cost: u64, plan: Option<PlanId>, at: Option<Tick>) -> Answer {
        let request = Request { agent, lane, cost, plan, at, is_counted: false };
        self.finish(agent, lane, cost, self.resolve(request).and_then(|request| self.charge(&request)))
    }

    /// Checks a request whose denial may be a violation.
    #[inline(never)]
    pub(super) fn check_counted(&self, request: &Request<'_>) -> Answer {
        let answer = self.resolve(*request).and_then(|request| self.charge_counted(&request));
        self.finish(request.agent, request.lane, request.cost, answer)
    }

    /// The answer to a charge as the caller gets it: without a warning that the
    /// agent was given before, and counted if the limiter observes.
    #[inline(always)]
    pub(super) fn finish(&self, agent: &[u8], lane: LaneId, cost: u64, answer: Answer) -> Answer {
        let answer = self.warn_once(agent, lane, cost, answer);
        self.note_answer(agent, lane, &answer);
        answer
    }

    /// Counts the answer to a check, if anybody watches. In line: the answer
    /// would be written to memory for it.
    #[inline(always)]
    pub(super) fn note_answer(&self, agent: &[u8], lane: LaneId, answer: &Result<Verdict, Error>) {
        if let Some(watch) = &self.watch {
            if watch.answered(lane, answer) {
                self.note_sample(agent, lane, answer);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn note_sample(&self, agent: &[u8], lane: LaneId, answer: &Result<Verdict, Error>) {
        if let Ok(verdict) = answer {
            let (decision, remaining) = (verdict.decision(), verdict.remaining());
            self.note(|| Note::Checked { agent, lane, decision, remaining });
        }
    }

    /// Tells of something that happens now.
    pub(super) fn note<'a>(&self, note: impl FnOnce() -> Note<'a>) {
        if let Some(watch) = &self.watch {
            watch.events.push(self.clock.now(), note());
        }
    }

    /// Counts a violation, and tells of one that makes sustained abuse.
    pub(super) fn note_violation(&self, agent: &[u8], violation: &Violation, now: Tick) {
        if let Some(watch) = &self.watch {
            // A caller's instant may lie ahead of the clock, and would stay the last hour's for ever.
            watch.violated(agent, violation, now.min(self.clock.now()));
        }
    }

    /// Writes down who has a record now, while the claim keeps it so.
    pub(super) fn note_claim(&self, agent: &[u8], claimed: &Claimed<'_>) {
        #[cfg(feature = "persist")]
        if let (Some(kept), true) = (self.budgets.get(), claimed.is_new) {
            kept.claimed(claimed.found.position, agent);
        }
        if let (Some(watch), true) = (&self.watch, claimed.is_new) {
            watch.claimed(claimed.found.position, agent, claimed.is_lossy, || self.clock.now());
        }
    }

    /// A new agent is refused.
    pub(super) fn note_refusal(&self) {
        if let Some(watch) = &self.watch {
            watch.refused(self.clock.now());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::observe::Observe;
    use crate::{ManualClock, Policy};
    use std::cell::Cell;
    use std::time::Duration;

    /// A list of a million agents took two seconds, and each agent that was
    /// charged meanwhile seemed to have used up a bucket that fills in two.
    #[test]
    fn a_list_that_takes_long_shows_each_agent_as_it_is_then() {
        let policy = Policy::builder().lane("ws", "10/second burst 20").build().unwrap();
        let clock = ManualClock::new();
        let builder = Limiter::builder(policy).agents(100).clock(clock.clone());
        let limiter = builder.observe(Observe::new().roster(100)).build().unwrap();
        let ws = limiter.lane("ws").unwrap();
        let began = limiter.now();
        // Charged after the list began, and before it comes to the agent.
        clock.advance(Duration::from_secs(3));
        assert!(limiter.check("agent-7", ws).unwrap().is_allowed());
        let looked = Cell::new(0);
        let page = limiter.list(&AgentQuery::new().sort(AgentSort::Usage), || {
            looked.set(looked.get() + 1);
            limiter.now()
        });
        assert_eq!(page.agents[0].view.lanes[0].used(), 1);
        assert_eq!(looked.get(), 2, "once for its place, once for its card");
        let late = limiter.agents_at(&AgentQuery::new(), began);
        assert_eq!(late.agents[0].view.lanes[0].used(), 20, "by an older time it is only stricter");
    }

    /// Exempt agents need no record, and who holds none was not listed.
    #[test]
    fn exempt_agents_are_counted_and_listed_without_a_record() {
        let policy = Policy::builder().lane("ws", "2/min").exempt(["dashboard"]).build().unwrap();
        let builder = Limiter::builder(policy).agents(100).clock(ManualClock::new());
        let limiter = builder.observe(Observe::new().roster(100)).build().unwrap();
        let ws = limiter.lane("ws").unwrap();
        limiter.exempt("probe").unwrap();
        for agent in ["dashboard", "probe", "probe", "agent-7"] {
            assert!(limiter.check(agent, ws).unwrap().is_allowed());
        }
        let snapshot = limiter.snapshot();
        assert_eq!((snapshot.lanes[0].exempt, snapshot.lanes[0].allowed, snapshot.stats.agents), (3, 1, 1));
        for sort in [AgentSort::Id, AgentSort::Usage, AgentSort::Violations] {
            let page = limiter.agents(&AgentQuery::new().sort(sort));
            let mut ids: Vec<_> = page.agents.iter().map(|agent| (&*agent.id, agent.view.is_exempt)).collect();
            ids.sort_unstable();
            assert_eq!(ids, [(&b"agent-7"[..], false), (b"dashboard", true), (b"probe", true)]);
            assert_eq!((page.matched, page.listed, page.not_listed), (3, 3, 0));
        }
        // One that has a record is listed once.
        limiter.exempt("agent-7").unwrap();
        assert_eq!(limiter.agents(&AgentQuery::new().contains("agent")).matched, 1);
    }

    /// Denials of several charges at once were violations of their agents, and
    /// nobody was told: no count, no offender, no event.
    #[test]
    fn violations_by_all_or_none_are_seen_too() {
        let rules = crate::ConductRules::default().with_every_denial(true);
        let policy = Policy::builder().lane("a", "1/hour").lane("b", "1/hour").conduct(rules).build().unwrap();
        let builder = Limiter::builder(policy).agents(100).clock(ManualClock::new());
        let limiter = builder.observe(Observe::new()).build().unwrap();
        let [a, b] = ["a", "b"].map(|name| limiter.lane(name).unwrap());
        let parts = [a, b].map(|lane| Request::new(b"agent-7", lane).counted());
        let allowed = (0..11).filter(|_| limiter.check_all(&parts).unwrap().is_allowed()).count();
        let seen = limiter.snapshot();
        assert_eq!((allowed, seen.violations, seen.sustained_abuse), (1, 10, 1), "one for both lanes");
        assert_eq!(limiter.top_offenders(3).list[0].violations, 10);
    }
}
