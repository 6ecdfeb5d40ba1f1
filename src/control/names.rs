//! From an assignment, which names plans and lanes, to an entry, which numbers them.

use super::ControlError;
use crate::engine::Assignment;
use crate::engine::registry::Entry;
use crate::policy::{LaneId, Policy};
use std::collections::BTreeMap;

pub(super) fn lane_names(policy: &Policy) -> String {
    policy.lanes().map(|(_, name)| name).collect::<Vec<_>>().join(", ")
}

/// The lanes of a name.
pub(super) fn lanes_of(policy: &Policy, lane_or_tier: &str) -> Result<Vec<LaneId>, ControlError> {
    let lanes = policy.lanes_of(lane_or_tier);
    if lanes.is_empty() { Err(unknown_lane(policy, lane_or_tier)) } else { Ok(lanes) }
}

fn unknown_lane(policy: &Policy, name: &str) -> ControlError {
    ControlError::UnknownLane { lane: name.chars().take(80).collect(), known: lane_names(policy) }
}

/// An assignment in the numbers of the policy.
pub(super) fn entry_of(policy: &Policy, assignment: &Assignment) -> Result<Entry, ControlError> {
    let plan = |name: &str| {
        let known = || policy.plans().map(|(_, name)| name).collect::<Vec<_>>().join(", ");
        policy
            .plan(name)
            .ok_or_else(|| ControlError::UnknownPlan { plan: name.chars().take(80).collect(), known: known() })
    };
    let mut overrides = BTreeMap::new();
    for (name, limit) in assignment.overrides() {
        limit.validate().map_err(ControlError::Limit)?;
        let lane = policy.lane(name).ok_or_else(|| unknown_lane(policy, name))?;
        overrides.insert(lane, limit);
    }
    Ok(Entry {
        plan: assignment.plan().map(plan).transpose()?,
        overrides,
        exempt: assignment.is_exempt(),
        by_policy: false,
        override_row: None,
    })
}
