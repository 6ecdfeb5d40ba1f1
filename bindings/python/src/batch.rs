//! Many requests: each decided by itself, or all of them charged or none.

use crate::arguments::{Id, Instant, Whole, wrong_type};
use crate::errors::of_call;
use crate::lane::{Lane, plan_id};
use crate::limit::{CallLimit, Given};
use crate::limiter::Limiter;
use crate::verdict::{Verdict, word};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::sync::Arc;
use tollgate::{Error, LaneId, PlanId, Policy, Tick};

/// One question: may this agent do this, on this lane? For `check_many` and `check_all`; a tuple of agent, lane and
/// perhaps a cost does as well.
#[pyclass(frozen, get_all, module = "tollgate_limiter")]
pub(crate) struct Request {
    agent: Py<PyAny>,
    lane: Py<PyAny>,
    cost: u64,
    plan: Option<Py<PyAny>>,
    counted: bool,
    at: Option<u64>,
    limit: Option<Py<CallLimit>>,
}

#[pymethods]
impl Request {
    #[new]
    #[pyo3(signature = (agent, lane, cost=None, plan=None, *, counted=false, at=None, limit=None))]
    #[expect(clippy::too_many_arguments, reason = "the arguments of a Python class")]
    fn new(
        py: Python<'_>,
        agent: Py<PyAny>,
        lane: Py<PyAny>,
        cost: Option<Whole>,
        plan: Option<Py<PyAny>>,
        counted: bool,
        at: Option<Instant>,
        limit: Option<Given>,
    ) -> PyResult<Self> {
        let at = at.map(|Instant(at)| at.as_nanos());
        let limit = limit.map(|Given(limit)| Py::new(py, CallLimit(limit))).transpose()?;
        Ok(Self { agent, lane, cost: cost.map_or(1, |cost| cost.0), plan, counted, at, limit })
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<Request of {} on {}>", self.agent.bind(py).repr()?, self.lane.bind(py).repr()?))
    }
}

/// The answer to `check_all`. True if every part was charged; otherwise none was.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct AllVerdict(tollgate::AllVerdict);

#[pymethods]
impl AllVerdict {
    fn __bool__(&self) -> bool {
        self.0.is_allowed()
    }

    /// The decision on the whole: `"deny"` if a part is denied, else `"warn"` if one warns.
    #[getter]
    fn decision(&self) -> &'static str {
        word(self.0.decision())
    }

    /// The verdict on each part, in order.
    #[getter]
    fn verdicts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.verdicts().iter().map(|verdict| Verdict(*verdict)))
    }

    /// The indexes of the parts that were denied.
    #[getter]
    fn blocking<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.blocking().collect::<Vec<_>>())
    }

    /// The longest wait of the denied parts, in seconds. None if all were allowed, or no wait helps.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.0.retry_after().map(crate::arguments::seconds)
    }

    /// The same in nanoseconds.
    #[getter]
    fn retry_after_ns(&self) -> Option<u64> {
        self.0.retry_after().map(crate::verdict::nanos)
    }

    fn __repr__(&self) -> String {
        format!("<AllVerdict {} on {} parts>", self.decision(), self.0.verdicts().len())
    }
}

/// A request whose lane and plan are known; its id stays with Python.
struct Part<'py> {
    agent: Bound<'py, PyAny>,
    lane: LaneId,
    cost: u64,
    plan: Option<PlanId>,
    counted: bool,
    at: Option<Tick>,
    limit: Option<tollgate::CallLimit>,
}

impl Part<'_> {
    fn request(&self) -> PyResult<tollgate::Request<'_>> {
        let agent: Id<'_> = self.agent.extract()?;
        let mut request = tollgate::Request::new(agent.0, self.lane).cost(self.cost).plan(self.plan).limit(self.limit);
        if self.counted {
            request = request.counted();
        }
        Ok(self.at.map_or(request, |at| request.at(at)))
    }
}

impl Limiter {
    fn lane_of(&self, policy: &Policy, lane: &Bound<'_, PyAny>) -> PyResult<LaneId> {
        let Ok(lane) = lane.cast::<Lane>() else { return Self::lane_id(policy, lane) };
        let lane = lane.get();
        match Arc::ptr_eq(&lane.limiter, &self.0) {
            true => Ok(lane.id),
            false => Err(PyValueError::new_err("the lane is another limiter's; get it from this one")),
        }
    }

    fn part<'py>(&self, policy: &Policy, item: &Bound<'py, PyAny>) -> PyResult<Part<'py>> {
        let py = item.py();
        if let Ok(tuple) = item.cast::<PyTuple>() {
            let cost = match tuple.len() {
                2 => 1,
                3 => tuple.get_item(2)?.extract::<Whole>()?.0,
                length => {
                    let expected = "a request is (agent, lane), (agent, lane, cost) or a Request";
                    return Err(PyTypeError::new_err(format!("{expected}, not a tuple of {length}")));
                }
            };
            let (agent, lane) = (tuple.get_item(0)?, self.lane_of(policy, &tuple.get_item(1)?)?);
            return Ok(Part { agent, lane, cost, plan: None, counted: false, at: None, limit: None });
        }
        let Ok(asked) = item.cast::<Request>() else {
            return Err(wrong_type("a request is (agent, lane), (agent, lane, cost) or a Request", item.as_borrowed()));
        };
        let asked = asked.get();
        Ok(Part {
            agent: asked.agent.bind(py).clone(),
            lane: self.lane_of(policy, asked.lane.bind(py))?,
            cost: asked.cost,
            plan: plan_id(&self.0, asked.plan.as_ref().map(|plan| plan.bind(py)))?,
            counted: asked.counted,
            at: asked.at.map(Tick::from_nanos),
            limit: asked.limit.as_ref().map(|limit| limit.get().0),
        })
    }

    fn parts<'py>(&self, requests: &Bound<'py, PyAny>) -> PyResult<Vec<Part<'py>>> {
        let policy = self.0.policy();
        requests.try_iter()?.map(|item| self.part(&policy, &item?)).collect()
    }
}

#[pymethods]
impl Limiter {
    /// Decides many requests in order, each by itself, at one reading of the clock. One that cannot be answered gets
    /// its error in the list, and the others proceed.
    fn check_many<'py>(&self, requests: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let (py, parts) = (requests.py(), self.parts(requests)?);
        let requests = parts.iter().map(Part::request).collect::<PyResult<Vec<_>>>()?;
        let mut answers = vec![Err(Error::EmptyId); requests.len()];
        self.0.check_many(&requests, &mut answers).map_err(of_call)?;
        let object = |answer: Result<tollgate::Verdict, Error>| match answer {
            Ok(verdict) => Ok(Bound::new(py, Verdict(verdict))?.into_any()),
            Err(error) => Ok(of_call(error).into_value(py).into_bound(py).into_any()),
        };
        PyList::new(py, answers.into_iter().map(object).collect::<PyResult<Vec<_>>>()?)
    }

    /// Charges up to 16 parts, or none of them.
    fn check_all(&self, parts: &Bound<'_, PyAny>) -> PyResult<AllVerdict> {
        let parts = self.parts(parts)?;
        let requests = parts.iter().map(Part::request).collect::<PyResult<Vec<_>>>()?;
        self.0.check_all(&requests).map(AllVerdict).map_err(of_call)
    }
}
