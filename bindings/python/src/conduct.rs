//! Violations, and what follows from them.

use crate::arguments::{Id, Instant};
use crate::errors::of_call;
use crate::limiter::Limiter;
use crate::views::{Conduct, Violation};
use pyo3::prelude::*;
use pyo3::types::PyList;
use tollgate::Agent;

/// The agent, at an instant if there is one.
pub(crate) fn agent(id: Id<'_>, at: Option<Instant>) -> Agent<'_> {
    let agent = Agent::new(id.0);
    at.map_or(agent, |Instant(at)| agent.at(at))
}

#[pymethods]
impl Limiter {
    /// Records a violation that the caller has found.
    #[pyo3(signature = (agent, *, at=None))]
    fn record_violation(&self, py: Python<'_>, agent: Id<'_>, at: Option<Instant>) -> PyResult<Py<Violation>> {
        Violation::of(py, self.0.record_violation(self::agent(agent, at)).map_err(of_call)?)
    }

    /// The agent's conduct.
    #[pyo3(signature = (agent, *, at=None))]
    fn violations(&self, py: Python<'_>, agent: Id<'_>, at: Option<Instant>) -> PyResult<Py<Conduct>> {
        Conduct::of(py, self.0.violations(self::agent(agent, at)).map_err(of_call)?)
    }

    /// Whether the agent has violated a limit and has not been quiet since.
    #[pyo3(signature = (agent, *, at=None))]
    fn rate_limited(&self, agent: Id<'_>, at: Option<Instant>) -> PyResult<bool> {
        self.0.rate_limited(self::agent(agent, at)).map_err(of_call)
    }

    /// Those of the agents that may be given new work, because they are not rate limited. Leaves out invalid ids.
    fn assignable<'py>(&self, agents: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = agents.py();
        let agents = agents.try_iter()?.collect::<PyResult<Vec<_>>>()?;
        let ids = agents.iter().map(|agent| agent.extract::<Id<'_>>()).collect::<PyResult<Vec<_>>>()?;
        // Positions go along, so that the caller's own objects come back.
        struct Listed<'a>(Id<'a>, usize);
        impl AsRef<[u8]> for Listed<'_> {
            fn as_ref(&self) -> &[u8] {
                self.0.0
            }
        }
        let left = self.0.assignable(ids.iter().enumerate().map(|(place, id)| Listed(*id, place)));
        PyList::new(py, left.into_iter().map(|Listed(_, place)| &agents[place]))
    }

    /// Forgives all violations of the agent. False if none of them still mattered.
    fn reset_violations(&self, agent: Id<'_>) -> PyResult<bool> {
        self.0.reset_violations(agent).map_err(of_call)
    }
}
