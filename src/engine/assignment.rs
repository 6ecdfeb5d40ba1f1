//! What an operator has assigned to single agents, as plain data.
//! `keep/assignments.rs` is the file that keeps it across restarts.

use crate::policy::Limit;

/// Agents' ids, sorted, and what each is assigned.
pub type Assignments = Vec<(Vec<u8>, Assignment)>;

/// What an operator has assigned to one agent: a plan, overrides for some lanes,
/// an exemption.
///
/// Plans and lanes are named, so that an assignment outlives the policy it was
/// made under. They are not checked against a policy here.
///
/// ```
/// use tollgate::{Assignment, Limit};
///
/// let mut assignment = Assignment::default();
/// assert!(assignment.is_empty());
/// assignment.set_plan(Some("pro".into()));
/// assignment.set_override("ws/light", Limit::per_minute(500));
/// assignment.set_override("ws/heavy", Limit::per_minute(100));
/// assert_eq!(assignment.plan(), Some("pro"));
/// assert_eq!(assignment.override_of("ws/heavy"), Some(Limit::per_minute(100)));
/// // In the order of the names, whatever the order of the calls.
/// assert_eq!(assignment.overrides().map(|(lane, _)| lane).collect::<Vec<_>>(), ["ws/heavy", "ws/light"]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    plan: Option<String>,
    /// Invariant: sorted by the lane's name, each lane once.
    overrides: Vec<(String, Limit)>,
    exempt: bool,
}

impl Assignment {
    /// Whether nothing is assigned: the agent is like any other.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.plan.is_none() && self.overrides.is_empty() && !self.exempt
    }

    /// The name of its plan; `None` for an agent without one.
    #[must_use]
    pub fn plan(&self) -> Option<&str> {
        self.plan.as_deref()
    }

    /// Sets its plan by name; `None` removes it.
    pub fn set_plan(&mut self, plan: Option<String>) {
        self.plan = plan;
    }

    /// Whether the agent is never limited.
    #[must_use]
    pub fn is_exempt(&self) -> bool {
        self.exempt
    }

    /// Exempts the agent, or limits it again.
    pub fn set_exempt(&mut self, exempt: bool) {
        self.exempt = exempt;
    }

    /// Its own limits by lane, sorted by name.
    pub fn overrides(&self) -> impl ExactSizeIterator<Item = (&str, Limit)> {
        self.overrides.iter().map(|(lane, limit)| (lane.as_str(), *limit))
    }

    /// Its own limit for a lane, if it has one.
    #[must_use]
    pub fn override_of(&self, lane: &str) -> Option<Limit> {
        self.find(lane).ok().map(|index| self.overrides[index].1)
    }

    /// Sets its own limit for a lane. Returns the one it had before.
    pub fn set_override(&mut self, lane: impl Into<String>, limit: Limit) -> Option<Limit> {
        let lane = lane.into();
        match self.find(&lane) {
            Ok(index) => Some(std::mem::replace(&mut self.overrides[index].1, limit)),
            Err(index) => {
                self.overrides.insert(index, (lane, limit));
                None
            }
        }
    }

    /// Removes its own limit for a lane. Returns the one it had.
    pub fn remove_override(&mut self, lane: &str) -> Option<Limit> {
        self.find(lane).ok().map(|index| self.overrides.remove(index).1)
    }

    /// The index of a lane, or where it would be inserted.
    fn find(&self, lane: &str) -> Result<usize, usize> {
        self.overrides.binary_search_by(|(known, _)| known.as_str().cmp(lane))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_override_replaces_the_one_before_and_can_be_removed() {
        let mut assignment = Assignment::default();
        assert_eq!(assignment.set_override("b", Limit::per_second(1)), None);
        assert_eq!(assignment.set_override("a", Limit::per_second(2)), None);
        assert_eq!(assignment.set_override("b", Limit::per_second(3)), Some(Limit::per_second(1)));
        let overrides: Vec<_> = assignment.overrides().collect();
        assert_eq!(overrides, [("a", Limit::per_second(2)), ("b", Limit::per_second(3))]);
        assert_eq!(assignment.remove_override("a"), Some(Limit::per_second(2)));
        assert_eq!(assignment.remove_override("a"), None);
        assert_eq!(assignment.remove_override("b"), Some(Limit::per_second(3)));
        assert!(assignment.is_empty());
    }

    #[test]
    fn an_assignment_of_anything_is_not_empty() {
        let mut planned = Assignment::default();
        planned.set_plan(Some("pro".into()));
        let mut exempt = Assignment::default();
        exempt.set_exempt(true);
        let mut overridden = Assignment::default();
        overridden.set_override("a", Limit::deny_all());
        assert!([&planned, &exempt, &overridden].iter().all(|assignment| !assignment.is_empty()));
        planned.set_plan(None);
        exempt.set_exempt(false);
        assert!(planned.is_empty() && exempt.is_empty());
    }
}
