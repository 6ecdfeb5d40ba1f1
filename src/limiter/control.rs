//! What an operator changes at run time: plans, overrides, exemptions, a new policy.

use super::Limiter;
use crate::control::{Control, ControlError};
use crate::engine::{Assignment, Assignments};
use crate::error::Error;
use crate::policy::{LaneId, Limit, LimitError, PlanId, Policy};

impl Limiter {
    /// Assigns the agent to a plan of the policy. The assignment outlives the agent's record.
    ///
    /// An agent that is assigned to `default` has the lanes' own limits, even if a request names [a
    /// plan](crate::Request::plan).
    ///
    /// # Errors
    ///
    /// [`ControlError::Agent`] if the id is invalid or there is no such plan.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy};
    ///
    /// let policy = Policy::builder().lane("api", "20/min").plan("pro", [("api", "500/min")]).build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).build()?;
    /// let (api, pro) = (limiter.lane("api").expect("named above"), limiter.plan("pro").expect("named above"));
    ///
    /// limiter.assign("agent-7", pro)?;
    /// assert_eq!(limiter.check("agent-7", api)?.capacity(), 500);
    /// limiter.set_override("agent-7", "api", "1000/min")?;
    /// assert_eq!(limiter.check("agent-7", api)?.capacity(), 1_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn assign(&self, agent: impl AsRef<[u8]>, plan: PlanId) -> Result<(), ControlError> {
        self.control().assign(agent.as_ref(), Some(plan))
    }

    /// Takes the agent's plan away. Its overrides and its exemption stay.
    ///
    /// # Errors
    ///
    /// [`ControlError::Agent`] if the id is invalid.
    pub fn unassign(&self, agent: impl AsRef<[u8]>) -> Result<(), ControlError> {
        self.control().assign(agent.as_ref(), None)
    }

    /// Gives the agent its own limit for a lane, or for a tier in every channel: `heavy` means
    /// `ws/heavy` and `http/heavy`.
    ///
    /// A check that runs meanwhile is answered by the old limits or by the new ones. If a check
    /// stalls while its agent's limits change sixteen times over, it may still charge a window, a
    /// budget or a held slot by the limits it began with, provided that the lane then holds exactly
    /// what it held before.
    ///
    /// # Errors
    ///
    /// If there is no such lane or tier, the limit is invalid, or
    /// [`OVERRIDES_MAX`](crate::bounds::OVERRIDES_MAX) agents have overrides already.
    pub fn set_override<L>(&self, agent: impl AsRef<[u8]>, lane_or_tier: &str, limit: L) -> Result<(), ControlError>
    where
        L: TryInto<Limit, Error: Into<LimitError>>,
    {
        let limit: Limit = limit.try_into().map_err(|problem| ControlError::Limit(problem.into()))?;
        self.control().set_override(agent.as_ref(), lane_or_tier, limit)
    }

    /// Removes the agent's own limit for a lane or tier.
    ///
    /// # Errors
    ///
    /// If the id is invalid, or there is no such lane or tier.
    pub fn remove_override(&self, agent: impl AsRef<[u8]>, lane_or_tier: &str) -> Result<(), ControlError> {
        self.control().remove_override(agent.as_ref(), lane_or_tier)
    }

    /// Removes all of the agent's own limits.
    ///
    /// # Errors
    ///
    /// [`ControlError::Agent`] if the id is invalid.
    pub fn remove_overrides(&self, agent: impl AsRef<[u8]>) -> Result<(), ControlError> {
        self.control().remove_overrides(agent.as_ref())
    }

    /// Never limits the agent from now on: every check of it is answered with
    /// [`Decision::Exempt`](crate::Decision::Exempt) and charges nothing.
    ///
    /// An exempt agent needs no record, and its checks take no lock. If it has a record when it
    /// becomes exempt, it keeps its debt until time has paid for it: an exemption is not a reset.
    ///
    /// # Errors
    ///
    /// [`ControlError::Agent`] if the id is invalid.
    pub fn exempt(&self, agent: impl AsRef<[u8]>) -> Result<(), ControlError> {
        self.control().set_exempt(agent.as_ref(), true)
    }

    /// Limits the agent again, by its overrides and its plan, unless the policy
    /// [exempts](Policy::exempt) it.
    ///
    /// # Errors
    ///
    /// [`ControlError::Agent`] if the id is invalid.
    pub fn unexempt(&self, agent: impl AsRef<[u8]>) -> Result<(), ControlError> {
        self.control().set_exempt(agent.as_ref(), false)
    }

    /// The agent's assignment: its plan, its overrides, its exemption.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn assignment(&self, agent: impl AsRef<[u8]>) -> Result<Assignment, Error> {
        self.engine.assignment(agent.as_ref())
    }

    /// Whether the agent is exempt: by an operator, or by the [policy](Policy::exempt).
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn is_exempt(&self, agent: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.engine.is_exempt(agent.as_ref())
    }

    /// Every agent that has an assignment, sorted by id. Copies them all.
    #[must_use]
    pub fn assignments(&self) -> Assignments {
        self.engine.assignments()
    }

    /// Replaces the assignments of many agents at once, all or none. All other agents stay as they
    /// are. An empty assignment makes an agent like any other.
    ///
    /// # Errors
    ///
    /// If an id or a limit is invalid, there is no such plan or lane, or there are too many
    /// overrides. After an error nothing has changed.
    ///
    /// ```
    /// use tollgate::{Assignment, Limiter, Policy};
    ///
    /// let policy = Policy::builder().lane("api", "20/min").build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).build()?;
    /// let mut exempt = Assignment::default();
    /// exempt.set_exempt(true);
    /// limiter.set_assignments([("dashboard", exempt.clone()), ("probe", exempt)])?;
    /// assert!(limiter.is_exempt("probe")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_assignments<A: AsRef<[u8]>>(
        &self,
        assignments: impl IntoIterator<Item = (A, Assignment)>,
    ) -> Result<(), ControlError> {
        // First, since the iterator may call the limiter.
        let assignments: Vec<_> = assignments.into_iter().collect();
        self.control().set_assignments(assignments.iter().map(|(id, assignment)| (id.as_ref(), assignment)))
    }

    /// Keeps assignments in a file from now on, and puts in force what it holds already; see
    /// [`AssignmentFile`](crate::keep::AssignmentFile). Call it before the first check, so that no
    /// agent is met without its limits.
    ///
    /// Assignments made before this call are added to the file, unless the file has that agent. If
    /// the file holds all of them already, it is not written.
    ///
    /// From then on a control call returns when its change is in the file and in force. If the file
    /// cannot be written, the call fails and nothing changes. The exception is
    /// [`PersistError::NotSynced`](crate::keep::PersistError::NotSynced): the file has the change
    /// already, so repeat the call.
    ///
    /// One process keeps the file. A child that is forked from it does not: what it changes in a
    /// shared slab reaches the file with the keeper's next [save](Limiter::save_assignments), and in
    /// a private limiter, which is then the child's own, stays out of it.
    ///
    /// # Errors
    ///
    /// [`ControlError::File`] if the file cannot be read or is in use; the errors of
    /// [`set_assignments`](Limiter::set_assignments) if it names a plan or lane that the policy does
    /// not have. After an error nothing has changed.
    #[cfg(feature = "persist")]
    pub fn keep_assignments_in(&self, path: impl AsRef<std::path::Path>) -> Result<(), ControlError> {
        self.control().keep_assignments_in(path.as_ref())
    }

    /// Reads the file of assignments again, after somebody has edited it, and puts it in force.
    /// Agents that it does not name have no assignment any more.
    ///
    /// What other processes that share the limiter have changed since the last
    /// [save](Limiter::save_assignments) is written to the file first, and stays. If the file was
    /// edited too, that is [`PersistError::Unsaved`](crate::keep::PersistError::Unsaved), and says
    /// what to do.
    ///
    /// # Errors
    ///
    /// As [`keep_assignments_in`](Limiter::keep_assignments_in), and [`ControlError::NoFile`] if
    /// this process does not keep assignments in a file. After an error control calls fail until the file is
    /// corrected and reloaded, so that no call overwrites the edit.
    #[cfg(feature = "persist")]
    pub fn reload_assignments(&self) -> Result<(), ControlError> {
        self.control().reload_assignments()
    }

    /// The agent's limit for a lane: its override, or else its plan's. `None` if it is exempt.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`] or [`Error::UnknownLane`].
    pub fn limit_of(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<Option<Limit>, Error> {
        self.engine.limit_of(agent.as_ref(), lane)
    }

    /// Puts another policy in force: other numbers for the same lanes, and perhaps more plans.
    /// Assignments stay.
    ///
    /// Walks all records, so that every check uses the new numbers when it returns. Checks go on
    /// meanwhile. The new policy says what becomes of debt ([`OnChange`](crate::OnChange)).
    ///
    /// # Errors
    ///
    /// If the lanes differ in name or order, or a plan is missing: plans keep their numbers, so
    /// they can be added but not removed. The [total](crate::PolicyBuilder::total) is a lane too: a
    /// policy that may need one later starts with `"unlimited"`, and goes back to that. After an
    /// error nothing has changed.
    pub fn replace_policy(&self, policy: Policy) -> Result<(), ControlError> {
        self.control().replace_policy(policy)
    }

    /// Writes to the [kept](Limiter::keep_assignments_in) file what other processes that share the limiter have
    /// changed. Call it every few seconds; a process that keeps no file, or a limiter that is not shared, has nothing
    /// to write. Changes of this process are in the file when their call returns.
    ///
    /// # Errors
    ///
    /// [`ControlError::File`] if the file could not be written; [`ControlError::Busy`].
    #[cfg(feature = "persist")]
    pub fn save_assignments(&self) -> Result<(), ControlError> {
        self.control().save_assignments()
    }

    /// As if a process had died in [`assign`](Self::assign) when the change counted and was not in force.
    #[cfg(all(test, loom))]
    pub(crate) fn die_assigning(&self, agent: &[u8], plan: PlanId, holder: u64) {
        self.control().die_assigning(agent, plan, holder);
    }

    /// The limiter as an operator changes it.
    pub(crate) fn control(&self) -> Control<'_> {
        Control::new(&self.engine, &self.control)
    }
}
