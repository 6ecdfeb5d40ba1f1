//! A lane of a limiter, and the checks.

use crate::arguments::{Id, Instant, Whole, wrong_type};
use crate::engine::Attached;
use crate::errors::of_call;
use crate::limit::Given;
use crate::verdict::{LaneState, Verdict};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::sync::Arc;
use tollgate::{LaneId, PlanId, Request};

/// A plan of a limiter. A plan's name does as well, and takes a look-up more.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct Plan {
    pub(crate) limiter: Arc<tollgate::Limiter>,
    pub(crate) id: PlanId,
}

#[pymethods]
impl Plan {
    /// The plan's name.
    #[getter]
    fn name(&self) -> String {
        let policy = self.limiter.policy();
        policy.plans().find(|(id, _)| *id == self.id).map(|(_, name)| name.to_owned()).unwrap_or_default()
    }

    fn __repr__(&self) -> String {
        format!("<Plan {:?}>", self.name())
    }
}

/// The plan that a caller names: a [`Plan`] of this limiter, or a name.
pub(crate) fn plan_id(limiter: &Arc<tollgate::Limiter>, plan: Option<&Bound<'_, PyAny>>) -> PyResult<Option<PlanId>> {
    let Some(plan) = plan else { return Ok(None) };
    if let Ok(plan) = plan.cast::<Plan>() {
        let plan = plan.get();
        return match Arc::ptr_eq(&plan.limiter, limiter) {
            true => Ok(Some(plan.id)),
            false => Err(PyValueError::new_err("the plan is another limiter's; get it from this one")),
        };
    }
    match plan.cast::<PyString>() {
        Ok(name) => Plan::find(limiter, name.to_str()?).map(Some),
        Err(_) => Err(wrong_type("a plan is its name or a Plan", plan.as_borrowed())),
    }
}

/// A lane of a limiter: `limiter.lane("http/heavy")`.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct Lane {
    pub(crate) limiter: Arc<tollgate::Limiter>,
    pub(crate) id: LaneId,
    /// Runs as long as this can check.
    pub(crate) _engine: Option<Arc<Attached>>,
}

impl Lane {
    /// The request that the arguments of a check describe.
    #[inline(always)]
    pub(crate) fn request<'a>(
        &self,
        agent: Id<'a>,
        cost: Option<Whole>,
        plan: Option<&Bound<'_, PyAny>>,
        counted: bool,
        at: Option<Instant>,
        limit: Option<Given>,
    ) -> PyResult<Request<'a>> {
        let mut request = Request::new(agent.0, self.id);
        if let Some(Whole(cost)) = cost {
            request = request.cost(cost);
        }
        if plan.is_some() {
            request = request.plan(plan_id(&self.limiter, plan)?);
        }
        if counted {
            request = request.counted();
        }
        if let Some(Instant(at)) = at {
            request = request.at(at);
        }
        if let Some(Given(limit)) = limit {
            request = request.limit(limit);
        }
        Ok(request)
    }
}

#[pymethods]
impl Lane {
    /// The lane's name.
    #[getter]
    fn name(&self) -> String {
        let policy = self.limiter.policy();
        policy.lanes().find(|(id, _)| *id == self.id).map(|(_, name)| name.to_owned()).unwrap_or_default()
    }

    /// The lane's number: its place in the policy, from 0.
    #[getter]
    fn number(&self) -> u32 {
        self.id.number()
    }

    /// May the agent do this once, now? If so, charges one token. The quickest form.
    #[inline]
    #[pyo3(signature = (agent, /))]
    fn allow(&self, agent: &Bound<'_, PyAny>) -> PyResult<bool> {
        match self.limiter.check(Id::of(agent)?, self.id) {
            Ok(verdict) => Ok(verdict.is_allowed()),
            Err(error) => Err(of_call(error)),
        }
    }

    /// May the agent do this? If so, charges the cost; otherwise nothing.
    #[inline]
    #[pyo3(signature = (agent, cost=None, plan=None, *, counted=false, at=None, limit=None))]
    fn check(
        &self,
        agent: &Bound<'_, PyAny>,
        cost: Option<Whole>,
        plan: Option<&Bound<'_, PyAny>>,
        counted: bool,
        at: Option<Instant>,
        limit: Option<Given>,
    ) -> PyResult<Verdict> {
        let request = self.request(Id::of(agent)?, cost, plan, counted, at, limit)?;
        self.limiter.check_request(request).map(Verdict).map_err(of_call)
    }

    /// The same, but None if the request is allowed: for code that only handles denials.
    #[inline]
    #[pyo3(signature = (agent, cost=None, plan=None, *, counted=false, at=None, limit=None))]
    fn denied(
        &self,
        agent: &Bound<'_, PyAny>,
        cost: Option<Whole>,
        plan: Option<&Bound<'_, PyAny>>,
        counted: bool,
        at: Option<Instant>,
        limit: Option<Given>,
    ) -> PyResult<Option<Verdict>> {
        let request = self.request(Id::of(agent)?, cost, plan, counted, at, limit)?;
        let verdict = self.limiter.check_request(request).map_err(of_call)?;
        Ok((!verdict.is_allowed()).then_some(Verdict(verdict)))
    }

    /// The state of the agent's lane. Charges nothing, and makes no agent known.
    #[pyo3(signature = (agent, plan=None, *, at=None, limit=None))]
    fn peek(
        &self,
        agent: Id<'_>,
        plan: Option<&Bound<'_, PyAny>>,
        at: Option<Instant>,
        limit: Option<Given>,
    ) -> PyResult<LaneState> {
        let request = self.request(agent, None, plan, false, at, limit)?;
        self.limiter.peek(request).map(LaneState).map_err(of_call)
    }

    /// Gives back what was charged, never beyond full.
    #[pyo3(signature = (agent, cost=None, plan=None, *, at=None, limit=None))]
    fn refund(
        &self,
        agent: Id<'_>,
        cost: Option<Whole>,
        plan: Option<&Bound<'_, PyAny>>,
        at: Option<Instant>,
        limit: Option<Given>,
    ) -> PyResult<LaneState> {
        let request = self.request(agent, cost, plan, false, at, limit)?;
        self.limiter.refund(request).map(LaneState).map_err(of_call)
    }

    fn __repr__(&self) -> String {
        format!("<Lane {:?}>", self.name())
    }
}
