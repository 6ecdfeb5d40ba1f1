//! A WebSocket that was admitted: its messages are checked, and its slot is given back.

use super::head::Request;
use super::{Gate, Lanes, Ruled, as_bytes, shown};
use crate::arguments::Whole;
use crate::errors::of_call;
use crate::hold::Slot;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::sync::Arc;
use tollgate::{LaneId, PlanId};
use tollgate_gate::{Asked, Delivery, Holding, Ruling};

/// A connection that was admitted.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct Connection {
    gate: Arc<tollgate_gate::Gate>,
    agent: Vec<u8>,
    plan: Option<PlanId>,
    /// The lane of its messages.
    lane: Option<LaneId>,
    slot: Slot,
}

#[pymethods]
impl Connection {
    /// Rules on a message. `None`: it is delivered. A pair: whether it is, and the frame that the client gets.
    #[pyo3(signature = (cost=None))]
    fn message<'py>(&self, py: Python<'py>, cost: Option<Whole>) -> PyResult<Option<(bool, Bound<'py, PyString>)>> {
        let Some(lane) = self.lane else { return Ok(None) };
        let cost = cost.map_or(1, |Whole(cost)| cost);
        Ok(match self.gate.message(&self.agent, lane, cost, self.plan).map_err(of_call)? {
            Delivery::Deliver => None,
            Delivery::Warn(frame) => Some((true, PyString::new(py, &frame))),
            Delivery::Refuse(frame) => Some((false, PyString::new(py, &frame))),
        })
    }

    /// Gives the slot back. More calls change nothing.
    fn release(&self, py: Python<'_>) {
        self.slot.release(py);
    }
}

/// The one lane of a list.
fn only(lanes: &[LaneId]) -> PyResult<LaneId> {
    match lanes {
        [lane] => Ok(*lane),
        _ => Err(PyValueError::new_err("connections and messages each have one lane")),
    }
}

/// [`Gate::connect`].
pub(super) fn connect<'py>(
    gate: &Gate,
    scope: &Bound<'py, PyDict>,
    connections: Option<&Bound<'py, Lanes>>,
    messages: Option<&Bound<'py, Lanes>>,
) -> PyResult<(Bound<'py, PyAny>, Option<Connection>)> {
    let py = scope.py();
    let connections = connections.map(|lanes| only(&lanes.get().lanes)).transpose()?;
    let messages = messages.map(|lanes| only(lanes.get().charged()?)).transpose()?;
    let answer = |response| Ok((shown(py, Ruled::Answer(response), as_bytes)?, None));
    let mut request = Request::of_scope(scope, &gate.read)?;
    let call = gate.call(&mut request, scope);
    let head = request.head();
    let of_route = gate.gate.lanes(&head);
    // A connection without a limit of its own may still need a slot.
    let any: Vec<LaneId> = connections.into_iter().chain(messages).collect();
    let lanes = if of_route.is_empty() { &any } else { of_route };
    let mut question = match gate.asked(&head, lanes, scope, None, call.as_deref())? {
        Asked::Pass => return Ok((py.None().into_bound(py), None)),
        Asked::Answer(response) => return answer(response),
        Asked::Decide(question) => question,
    };
    gate.choose_plan(&mut question, scope)?;
    // The slot first: if the charge is refused it is given back, and a charge could not be.
    let slot = match connections.map(|lane| py.detach(|| gate.gate.hold(&head, &question, lane))) {
        Some(Holding::Answer(response)) => return answer(response),
        Some(Holding::Slot(slot)) => Slot::new(slot),
        None => Slot::new(None),
    };
    let mut headers = None;
    if !of_route.is_empty() {
        match gate.gate.decide(&head, &question) {
            Ruling::Answer(response) => return answer(response),
            Ruling::Pass(limits) => {
                headers = limits.map(|limits| {
                    let mut headers = http::HeaderMap::new();
                    gate.gate.write_headers(&mut headers, &limits);
                    headers
                });
            }
        }
    }
    let connection = Connection {
        gate: Arc::clone(&gate.gate),
        agent: question.agent.as_bytes().to_vec(),
        plan: question.plan,
        lane: messages,
        slot,
    };
    Ok((shown(py, Ruled::Pass(headers), as_bytes)?, Some(connection)))
}
