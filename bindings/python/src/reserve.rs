//! Charge an estimate now, settle the real cost later.

use crate::arguments::{Id, Instant, Span, Whole};
use crate::awaitable::Done;
use crate::errors::{Class, of_call, raise};
use crate::lane::Lane;
use crate::limit::Given;
use crate::limiter::Limiter;
use crate::verdict::Verdict;
use crate::views::Settlement;
use pyo3::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tollgate::{Error, ReservationId, Settle};

/// An estimate that was charged, or the denial of one. True if it was charged.
///
/// As a context manager, with or without `async`, it closes itself: what was reported as used stays charged, and the
/// rest is given back, also when an exception or a cancellation ends the block.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct Reservation {
    limiter: Arc<tollgate::Limiter>,
    answer: tollgate::Reservation,
    /// A forked child has a copy of this, and must not close what its parent still uses.
    process: u32,
    is_open: AtomicBool,
}

fn settle(used: Whole, so_far: bool, at: Option<Instant>) -> Settle {
    let settle = if so_far { Settle::used_so_far(used.0) } else { Settle::used(used.0) };
    at.map_or(settle, |Instant(at)| settle.at(at))
}

impl Reservation {
    fn denied() -> PyErr {
        let message = "the reservation was denied, so there is nothing to settle; look at it before you go on";
        raise(Class::Request, "unknown_reservation", message)
    }

    /// Gives back what is left, at the end of a `with` block.
    fn close(&self) -> PyResult<()> {
        let Some(id) = self.answer.id() else { return Ok(()) };
        // Relaxed: one thread enters and leaves a block.
        if std::process::id() != self.process || !self.is_open.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        match self.limiter.settle(id, Settle::cancelled()) {
            // It has expired, or its agent was forgotten: nothing is left to give back.
            Ok(_) | Err(Error::UnknownReservation) => Ok(()),
            Err(error) => Err(of_call(error)),
        }
    }
}

#[pymethods]
impl Lane {
    /// Charges an estimate, and keeps it open for `ttl`: settle what was really used. If nobody does, all of it stays
    /// charged.
    #[pyo3(signature = (agent, cost, ttl, plan=None, *, counted=false, at=None, limit=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn reserve(
        &self,
        agent: Id<'_>,
        cost: Whole,
        ttl: Span,
        plan: Option<&Bound<'_, PyAny>>,
        counted: bool,
        at: Option<Instant>,
        limit: Option<Given>,
    ) -> PyResult<Reservation> {
        let request = self.request(agent, Some(cost), plan, counted, at, limit)?;
        let answer = self.limiter.reserve(request, ttl.0).map_err(of_call)?;
        let is_open = AtomicBool::new(answer.id().is_some());
        Ok(Reservation { limiter: Arc::clone(&self.limiter), answer, process: std::process::id(), is_open })
    }
}

#[pymethods]
impl Limiter {
    /// Settles a reservation by its id, which another process that shares the limiter may have made.
    #[pyo3(signature = (id, used, *, so_far=false, at=None))]
    fn settle(
        &self,
        py: Python<'_>,
        id: Whole,
        used: Whole,
        so_far: bool,
        at: Option<Instant>,
    ) -> PyResult<Py<Settlement>> {
        let settled = self.0.settle(ReservationId::from_number(id.0), settle(used, so_far, at)).map_err(of_call)?;
        Settlement::of(py, settled)
    }

    /// Lets a reservation expire `ttl` from now, if that is later than before.
    fn extend(&self, id: Whole, ttl: Span) -> PyResult<()> {
        self.0.extend(ReservationId::from_number(id.0), ttl.0).map_err(of_call)
    }
}

#[pymethods]
impl Reservation {
    fn __bool__(&self) -> bool {
        self.answer.id().is_some()
    }

    /// Whether the estimate was charged.
    #[getter]
    fn verdict(&self) -> Verdict {
        Verdict(self.answer.verdict())
    }

    /// Its number, for `limiter.settle` in another process; None if it was denied.
    #[getter]
    fn id(&self) -> Option<u64> {
        self.answer.id().map(ReservationId::number)
    }

    /// What was really used. `so_far` keeps the rest open, while an answer streams; otherwise what was not used is
    /// given back, and what was used beyond the estimate is charged.
    #[pyo3(signature = (used, *, so_far=false, at=None))]
    fn settle(&self, py: Python<'_>, used: Whole, so_far: bool, at: Option<Instant>) -> PyResult<Py<Settlement>> {
        let id = self.answer.id().ok_or_else(Self::denied)?;
        let settled = self.limiter.settle(id, settle(used, so_far, at)).map_err(of_call)?;
        if !so_far {
            self.is_open.store(false, Ordering::Relaxed);
        }
        Settlement::of(py, settled)
    }

    /// Lets it expire `ttl` from now, if that is later than before.
    fn extend(&self, ttl: Span) -> PyResult<()> {
        let id = self.answer.id().ok_or_else(Self::denied)?;
        self.limiter.extend(id, ttl.0).map_err(of_call)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (exc_type, exc_value, traceback, /))]
    fn __exit__(
        &self,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let _ = (exc_type, exc_value, traceback);
        self.close()
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
    ) -> PyResult<Done> {
        let _ = (exc_value, traceback);
        self.close()?;
        Ok(Done::raising_on(exc_type.py()))
    }

    fn __repr__(&self) -> String {
        match self.answer.id() {
            Some(id) => format!("<Reservation {}>", id.number()),
            None => "<Reservation denied>".to_owned(),
        }
    }
}
