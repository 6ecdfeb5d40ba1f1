//! Slots that are held until they are released: connections, say.

use crate::arguments::{Id, Instant, Whole};
use crate::awaitable::Done;
use crate::errors::of_call;
use crate::lane::Lane;
use crate::verdict::{LaneState, Verdict};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use tollgate::{HeldSlot, Limiter};

/// A slot until it is given back, which may have to wait for another process that gives back slots of the same agent.
/// So other threads run meanwhile, however it comes about.
pub(crate) struct Slot(Mutex<Option<HeldSlot<Arc<Limiter>>>>);

impl Slot {
    pub(crate) fn new(slot: Option<HeldSlot<Arc<Limiter>>>) -> Self {
        Self(Mutex::new(slot))
    }

    /// Gives the slot back. More calls change nothing.
    pub(crate) fn release(&self, py: Python<'_>) {
        // Taken first: no lock is held while this thread waits.
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if slot.is_some() {
            py.detach(|| drop(slot));
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Nobody else has it. Most are empty by now.
        if self.0.get_mut().unwrap_or_else(PoisonError::into_inner).is_some() {
            Python::attach(|py| self.release(py));
        }
    }
}

/// A slot that is held, or the denial of one. True if it is a slot.
///
/// It is released at the end of a `with` block, with or without `async` and however that ends, by `release`, or when
/// nothing refers to it any more.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct Hold {
    verdict: tollgate::Verdict,
    slot: Slot,
}

#[pymethods]
impl Lane {
    /// Takes a slot of a held lane, or as many as it costs.
    #[pyo3(signature = (agent, cost=None, plan=None, *, counted=false, at=None))]
    fn hold(
        &self,
        py: Python<'_>,
        agent: Id<'_>,
        cost: Option<Whole>,
        plan: Option<&Bound<'_, PyAny>>,
        counted: bool,
        at: Option<Instant>,
    ) -> PyResult<Hold> {
        let request = self.request(agent, cost, plan, counted, at, None)?;
        let limiter = Arc::clone(&self.limiter);
        let hold = py.detach(|| Limiter::hold(limiter, request)).map_err(of_call)?;
        Ok(Hold { verdict: hold.verdict(), slot: Slot::new(hold.into_slot()) })
    }

    /// Takes a slot until `release` gives it back: for slots that no object stands for.
    #[pyo3(signature = (agent, cost=None, plan=None, *, counted=false, at=None))]
    fn hold_until_released(
        &self,
        py: Python<'_>,
        agent: Id<'_>,
        cost: Option<Whole>,
        plan: Option<&Bound<'_, PyAny>>,
        counted: bool,
        at: Option<Instant>,
    ) -> PyResult<Verdict> {
        let request = self.request(agent, cost, plan, counted, at, None)?;
        py.detach(|| self.limiter.hold_until_released(request)).map(Verdict).map_err(of_call)
    }

    /// Releases a slot, or as many as it costs, that `hold_until_released` took.
    #[pyo3(signature = (agent, cost=None))]
    fn release(&self, py: Python<'_>, agent: Id<'_>, cost: Option<Whole>) -> PyResult<LaneState> {
        let request = self.request(agent, cost, None, false, None, None)?;
        py.detach(|| self.limiter.release(request)).map(LaneState).map_err(of_call)
    }

    /// Whether it is a held lane: its slots are held until they are released.
    #[getter]
    fn is_held(&self) -> PyResult<bool> {
        self.limiter.is_held(self.id).map_err(of_call)
    }
}

#[pymethods]
impl Hold {
    fn __bool__(&self) -> bool {
        self.verdict.is_allowed()
    }

    /// Whether there was a slot, and how many are left.
    #[getter]
    fn verdict(&self) -> Verdict {
        Verdict(self.verdict)
    }

    /// Releases the slot. Another call does nothing, and neither does one on a denial.
    fn release(&self, py: Python<'_>) {
        self.slot.release(py);
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __exit__(&self, exc_type: &Bound<'_, PyAny>, exc_value: &Bound<'_, PyAny>, traceback: &Bound<'_, PyAny>) {
        let _ = (exc_value, traceback);
        self.release(exc_type.py());
    }

    fn __aenter__(slf: &Bound<'_, Self>) -> Done {
        Done::with(slf.clone().into_any())
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __aexit__(
        &self,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> Done {
        let _ = (exc_value, traceback);
        self.release(exc_type.py());
        Done::raising_on(exc_type.py())
    }

    fn __repr__(&self) -> String {
        let verdict = Verdict(self.verdict);
        format!("<Hold {}>", if verdict.0.is_allowed() { "of a slot" } else { "denied" })
    }
}
