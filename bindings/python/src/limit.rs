//! A limit that a call brings along.

use crate::arguments::{Span, Whole, wrong_type};
use crate::errors::{Class, raise};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::hash::{DefaultHasher, Hash, Hasher};
use tollgate::LimitError;

/// The limit of a call on a lane that is `"dynamic"`, read once: `CallLimit("3/minute burst 5")`. A call takes the text
/// as well, and reads it each time.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct CallLimit(pub(crate) tollgate::CallLimit);

#[pymethods]
impl CallLimit {
    #[new]
    #[pyo3(signature = (limit, /))]
    fn new(limit: &str) -> PyResult<Self> {
        read(limit).map(Self)
    }

    /// `capacity` at once, and `count` more every `period`.
    #[staticmethod]
    fn of(capacity: Whole, count: Whole, period: Span) -> PyResult<Self> {
        tollgate::CallLimit::new(capacity.0, count.0, period.0).map(Self).map_err(bad_limit)
    }

    /// How many tokens a full lane holds.
    #[getter]
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().0 == self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<CallLimit of {}>", self.0.capacity())
    }
}

fn read(limit: &str) -> PyResult<tollgate::CallLimit> {
    limit.parse().map_err(bad_limit)
}

#[cold]
fn bad_limit(problem: LimitError) -> PyErr {
    raise(Class::Policy, "bad_limit", problem)
}

/// What a caller passes as a limit: a [`CallLimit`], or its text.
#[derive(Clone, Copy)]
pub(crate) struct Given(pub(crate) tollgate::CallLimit);

impl<'a, 'py> FromPyObject<'a, 'py> for Given {
    type Error = PyErr;

    fn extract(limit: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(limit) = limit.cast::<CallLimit>() {
            return Ok(Self(limit.get().0));
        }
        match limit.cast::<PyString>() {
            Ok(text) => read(text.to_str()?).map(Self),
            Err(_) => Err(wrong_type("a limit is a CallLimit or its text", limit)),
        }
    }
}
