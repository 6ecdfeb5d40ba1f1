//! The state of agents, and lists of them.

use super::request::Target;
use super::{Agent, Engine};
use crate::clock::Tick;
use crate::error::Error;
use crate::observe::roster::Entry;
use crate::observe::{AgentPage, AgentQuery, AgentSort, AgentView, LaneView, ListedAgent};
use crate::policy::LaneId;
use crate::slab::hash::AgentHash;
use std::cmp::Reverse;

impl Engine {
    /// The agent's state: each lane, its plan, its conduct.
    pub(crate) fn agent(&self, agent: Agent<'_>) -> Result<AgentView, Error> {
        let Agent { id, at } = agent;
        self.view(id, at, at.unwrap_or_else(|| self.clock.now()))
    }

    /// The agent's state at `now`, which is `given` or the clock's.
    fn view(&self, agent: &[u8], given: Option<Tick>, now: Tick) -> Result<AgentView, Error> {
        let (assignment, hash) = (self.assignment(agent)?, self.hash(agent)?);
        let floor = self.floor_of(hash, given);
        let view = |(lane, name): (LaneId, &str)| {
            Ok(LaneView {
                lane,
                name: name.to_owned(),
                limit: self.limit_of(agent, lane)?,
                is_override: assignment.override_of(name).is_some(),
                state: self.state(&Target { floor, ..Target::new(hash, self.limits.lane(lane)?, None, now) }),
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

    /// A page of the agents that have a record, and of the exempt ones. Calls `now` for each.
    pub(crate) fn list(&self, query: &AgentQuery, now: impl Fn() -> Tick) -> AgentPage {
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
        let roster = self.roster();
        let mut holders = 0;
        for Entry { position, id } in roster.into_iter().flat_map(|roster| roster.entries()) {
            let Ok(hash) = self.hash(&id) else { continue };
            // Otherwise it has lost its record since.
            if self.slab.is_occupied_by(position, hash) {
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
            let state = self.state(&Target::new(hash, lane, None, now));
            let used = u128::from(state.capacity().saturating_sub(state.remaining()));
            // At most 2^32, since no more is used than the capacity.
            ((used << 32) / u128::from(state.capacity().max(1))) as u64
        };
        self.limits.lanes().map(usage).max().unwrap_or(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::observe::Observe;
    use crate::{Limiter, ManualClock, Policy, Request};
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
        let readings = Cell::new(0);
        let page = limiter.engine.list(&AgentQuery::new().sort(AgentSort::Usage), || {
            readings.set(readings.get() + 1);
            limiter.now()
        });
        assert_eq!(page.agents[0].view.lanes[0].used(), 1);
        assert_eq!(readings.get(), 2, "once for its place, once for its card");
        let late = limiter.engine.list(&AgentQuery::new(), || began);
        assert_eq!(late.agents[0].view.lanes[0].used(), 20, "by an older time it is only stricter");
    }

    /// Exempt agents need no record, and agents without one were not listed.
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
    /// left no trace: no count, no offender, no event.
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
