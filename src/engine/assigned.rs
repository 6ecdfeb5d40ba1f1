//! An agent's assignment, and the limits that follow from it.

use super::registry::Entry;
use super::{Assignment, Assignments, Engine};
use crate::error::Error;
use crate::policy::{LaneId, Limit, PlanId, Policy};

impl Engine {
    /// The agent's assignment.
    pub(crate) fn assignment(&self, agent: &[u8]) -> Result<Assignment, Error> {
        Ok(named(&self.entry(agent)?, &self.policy()))
    }

    /// Whether the agent is exempt: by assignment, or by policy.
    pub(crate) fn is_exempt(&self, agent: &[u8]) -> Result<bool, Error> {
        Ok(self.entry(agent)?.is_exempt())
    }

    /// Every agent that has an assignment, sorted by id.
    pub(crate) fn assignments(&self) -> Assignments {
        let policy = self.policy();
        let all = self.registry.list().into_iter();
        let named = all.map(|(_, registered)| (registered.id.into_vec(), named(&registered.entry, &policy)));
        named.filter(|(_, assignment)| !assignment.is_empty()).collect() // Some are exempt by policy alone.
    }

    /// The agent's limit for a lane: its override, or else its plan's. `None` if it is exempt.
    pub(crate) fn limit_of(&self, agent: &[u8], lane: LaneId) -> Result<Option<Limit>, Error> {
        self.limits.lane(lane)?;
        let entry = self.entry(agent)?;
        Ok(if entry.is_exempt() { None } else { effective_limit(&entry, &self.policy(), lane) })
    }

    fn entry(&self, agent: &[u8]) -> Result<Entry, Error> {
        Ok(self.registry.get(self.hash(agent)?, agent).unwrap_or_default())
    }
}

/// A lane's limit: the agent's own, or else its plan's.
pub(crate) fn effective_limit(entry: &Entry, policy: &Policy, lane: LaneId) -> Option<Limit> {
    let of_plan = || policy.plan_limit(entry.plan.unwrap_or(PlanId::DEFAULT), lane);
    entry.overrides.get(&lane).copied().or_else(of_plan)
}

/// An entry as an assignment, with the names of the policy.
pub(crate) fn named(entry: &Entry, policy: &Policy) -> Assignment {
    let mut assignment = Assignment::default();
    let plan_name = |id| policy.plans().find(|(plan, _)| *plan == id).map(|(_, name)| name.to_owned());
    assignment.set_plan(entry.plan.and_then(plan_name));
    assignment.set_exempt(entry.exempt);
    for (lane, name) in policy.lanes() {
        if let Some(limit) = entry.overrides.get(&lane) {
            assignment.set_override(name, *limit);
        }
    }
    assignment
}
