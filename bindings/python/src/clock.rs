//! The clock that tests move.

use crate::arguments::{Instant, Span};
use pyo3::prelude::*;

/// A clock that moves only when it is told to, for tests: `Limiter(..., clock=clock)`.
#[pyclass(frozen, module = "tollgate_limiter")]
#[derive(Clone)]
pub(crate) struct ManualClock(pub(crate) tollgate::ManualClock);

#[pymethods]
impl ManualClock {
    /// A clock at 0.
    #[new]
    fn new() -> Self {
        Self(tollgate::ManualClock::new())
    }

    /// Its instant, in nanoseconds.
    fn now(&self) -> u64 {
        self.0.now().as_nanos()
    }

    /// Moves it forwards, by seconds or a timedelta.
    fn advance(&self, by: Span) {
        self.0.advance(by.0);
    }

    /// Sets it, in nanoseconds. It may go back.
    fn set(&self, now: Instant) {
        self.0.set(now.0);
    }

    fn __repr__(&self) -> String {
        format!("<ManualClock at {} ns>", self.now())
    }
}
