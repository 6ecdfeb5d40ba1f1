//! What an operator changes at run time: plans, overrides, exemptions, a new policy.
//!
//! Each change may wait for a file, so each releases the interpreter's lock.

use crate::arguments::{Id, Instant, Span, id_object};
use crate::conduct::agent;
use crate::errors::{Class, of_call, of_control, raise};
use crate::lane::{Lane, plan_id};
use crate::limiter::Limiter;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};
use std::path::PathBuf;
use tollgate::ControlError;

/// What is decided about one agent: a plan, overrides for some lanes, an exemption.
#[pyclass(frozen, eq, module = "tollgate_limiter")]
#[derive(Clone, PartialEq)]
pub(crate) struct Assignment(tollgate::Assignment);

#[pymethods]
impl Assignment {
    #[new]
    #[pyo3(signature = (plan=None, overrides=None, exempt=false))]
    fn new(plan: Option<String>, overrides: Option<&Bound<'_, PyMapping>>, exempt: bool) -> PyResult<Self> {
        let mut assignment = tollgate::Assignment::default();
        assignment.set_plan(plan);
        assignment.set_exempt(exempt);
        if let Some(overrides) = overrides {
            for pair in overrides.items()? {
                let (lane, text): (String, String) = pair.extract()?;
                let limit = text.parse().map_err(|problem| raise(Class::Policy, "bad_limit", problem));
                assignment.set_override(lane, limit?);
            }
        }
        Ok(Self(assignment))
    }

    /// The name of its plan; None for an agent without one.
    #[getter]
    fn plan(&self) -> Option<&str> {
        self.0.plan()
    }

    /// Its own limits by lane, as text.
    #[getter]
    fn overrides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let overrides = PyDict::new(py);
        self.0.overrides().try_for_each(|(lane, limit)| overrides.set_item(lane, limit.to_string()))?;
        Ok(overrides)
    }

    /// Whether it is never limited.
    #[getter]
    fn exempt(&self) -> bool {
        self.0.is_exempt()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let plan = self.plan().map_or("None".to_owned(), |plan| format!("{plan:?}"));
        let exempt = if self.exempt() { "True" } else { "False" };
        Ok(format!("Assignment(plan={plan}, overrides={}, exempt={exempt})", self.overrides(py)?.repr()?))
    }
}

impl Limiter {
    /// Makes a change without the interpreter's lock.
    fn change(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&tollgate::Limiter) -> Result<(), ControlError> + Send,
    ) -> PyResult<()> {
        py.detach(|| change(&self.0)).map_err(of_control)
    }
}

#[pymethods]
impl Limiter {
    /// Assigns the agent to a plan. The assignment outlives the agent's record.
    fn assign(&self, py: Python<'_>, agent: Id<'_>, plan: &Bound<'_, PyAny>) -> PyResult<()> {
        let plan = plan_id(&self.0, Some(plan))?.unwrap_or(tollgate::PlanId::DEFAULT);
        self.change(py, |limiter| limiter.assign(agent, plan))
    }

    /// Takes the agent's plan away. Its overrides and its exemption stay.
    fn unassign(&self, py: Python<'_>, agent: Id<'_>) -> PyResult<()> {
        self.change(py, |limiter| limiter.unassign(agent))
    }

    /// Gives the agent its own limit for a lane, or for a tier in every channel.
    fn set_override(&self, py: Python<'_>, agent: Id<'_>, lane_or_tier: &str, limit: &str) -> PyResult<()> {
        self.change(py, |limiter| limiter.set_override(agent, lane_or_tier, limit))
    }

    /// Removes the agent's own limit for a lane or tier.
    fn remove_override(&self, py: Python<'_>, agent: Id<'_>, lane_or_tier: &str) -> PyResult<()> {
        self.change(py, |limiter| limiter.remove_override(agent, lane_or_tier))
    }

    /// Removes all of the agent's own limits.
    fn remove_overrides(&self, py: Python<'_>, agent: Id<'_>) -> PyResult<()> {
        self.change(py, |limiter| limiter.remove_overrides(agent))
    }

    /// Never limits the agent from now on.
    fn exempt(&self, py: Python<'_>, agent: Id<'_>) -> PyResult<()> {
        self.change(py, |limiter| limiter.exempt(agent))
    }

    /// Limits the agent again, by its overrides and its plan, unless the policy exempts it.
    fn unexempt(&self, py: Python<'_>, agent: Id<'_>) -> PyResult<()> {
        self.change(py, |limiter| limiter.unexempt(agent))
    }

    /// Whether the agent is exempt: by an operator, or by the policy.
    fn is_exempt(&self, agent: Id<'_>) -> PyResult<bool> {
        self.0.is_exempt(agent).map_err(of_call)
    }

    /// The agent's plan, overrides and exemption.
    fn assignment(&self, py: Python<'_>, agent: Id<'_>) -> PyResult<Assignment> {
        py.detach(|| self.0.assignment(agent)).map(Assignment).map_err(of_call)
    }

    /// Every agent that has an assignment, in the order of their bytes.
    fn assignments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (assignments, listed) = (PyDict::new(py), py.detach(|| self.0.assignments()));
        for (id, assignment) in listed {
            assignments.set_item(id_object(py, &id), Assignment(assignment))?;
        }
        Ok(assignments)
    }

    /// Replaces the assignments of these agents at once, all or none. An empty one makes an agent like any other.
    fn set_assignments(&self, py: Python<'_>, assignments: &Bound<'_, PyMapping>) -> PyResult<()> {
        let pair = |pair: Bound<'_, PyAny>| {
            let (agent, assignment): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
            let assignment = assignment.cast::<Assignment>()?.get().0.clone();
            Ok((agent.extract::<Id<'_>>()?.0.to_vec(), assignment))
        };
        let pairs = assignments.items()?.iter().map(pair).collect::<PyResult<Vec<_>>>()?;
        self.change(py, |limiter| limiter.set_assignments(pairs))
    }

    /// Puts another policy in force: other numbers for the same lanes, and perhaps more plans.
    fn replace_policy(&self, py: Python<'_>, policy: &Bound<'_, PyAny>) -> PyResult<()> {
        let policy = crate::policy::policy(policy)?;
        self.change(py, |limiter| limiter.replace_policy(policy))
    }

    /// Keeps assignments in a file from now on, and puts in force what it holds already.
    fn keep_assignments_in(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.change(py, |limiter| limiter.keep_assignments_in(path))
    }

    /// Reads the file of assignments again, after somebody has edited it.
    fn reload_assignments(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, tollgate::Limiter::reload_assignments)
    }

    /// Writes to the file what other processes that share the limiter have changed.
    fn save_assignments(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, tollgate::Limiter::save_assignments)
    }

    /// Fills every lane of the agent. Slots stay held.
    #[pyo3(signature = (agent, *, at=None))]
    fn reset(&self, py: Python<'_>, agent: Id<'_>, at: Option<Instant>) -> PyResult<()> {
        py.detach(|| self.0.reset(self::agent(agent, at))).map_err(of_call)
    }

    /// Forgets the agent, so that its next check is its first. False if it had no record.
    #[pyo3(signature = (agent, *, at=None))]
    fn forget(&self, py: Python<'_>, agent: Id<'_>, at: Option<Instant>) -> PyResult<bool> {
        py.detach(|| self.0.forget(self::agent(agent, at))).map_err(of_call)
    }

    /// Gives up the records of agents that have been idle for so long. Returns how many. Walks all records.
    fn sweep(&self, py: Python<'_>, idle_for: Span) -> u64 {
        py.detach(|| self.0.sweep(idle_for.0))
    }
}

#[pymethods]
impl Lane {
    /// Fills this lane of the agent. Slots stay held.
    #[pyo3(signature = (agent, *, at=None))]
    fn reset(&self, py: Python<'_>, agent: Id<'_>, at: Option<Instant>) -> PyResult<()> {
        py.detach(|| self.limiter.reset_lane(self::agent(agent, at), self.id)).map_err(of_call)
    }

    /// The text of the agent's limit: its override, or else its plan's. None if it is exempt.
    fn limit_of(&self, agent: Id<'_>) -> PyResult<Option<String>> {
        let limit = self.limiter.limit_of(agent, self.id).map_err(of_call)?;
        Ok(limit.map(|limit| limit.to_string()))
    }
}
