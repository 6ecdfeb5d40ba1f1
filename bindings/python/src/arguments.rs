//! What callers pass: ids, whole numbers, spans of time, instants, limits.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDelta, PyFloat, PyInt, PyString};
use std::time::Duration;
use tollgate::Tick;

/// An agent's id: a `str`, taken as UTF-8, or `bytes`.
#[derive(Clone, Copy)]
pub(crate) struct Id<'a>(pub(crate) &'a [u8]);

impl<'a> Id<'a> {
    /// What [`extract`](FromPyObject::extract) answers, sooner: nearly every id is a `str` and no subclass of it,
    /// which takes one comparison to see.
    #[inline(always)]
    pub(crate) fn of(id: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        match id.cast_exact::<PyString>() {
            Ok(text) => Ok(Self(text.to_str()?.as_bytes())),
            Err(_) => id.extract(),
        }
    }
}

impl AsRef<[u8]> for Id<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for Id<'a> {
    type Error = PyErr;

    #[inline(always)]
    fn extract(id: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if id.is_instance_of::<PyString>() {
            // Fails for lone surrogates, which UTF-8 has not.
            return Ok(Self(id.extract::<&'a str>()?.as_bytes()));
        }
        match id.is_instance_of::<PyBytes>() {
            true => Ok(Self(id.extract::<&'a [u8]>()?)),
            false => Err(wrong_type("an agent's id is a str or bytes", id)),
        }
    }
}

/// An id as Python has it: a `str` if it is UTF-8, else `bytes`.
pub(crate) fn id_object<'py>(py: Python<'py>, id: &[u8]) -> Bound<'py, PyAny> {
    match std::str::from_utf8(id) {
        Ok(text) => PyString::new(py, text).into_any(),
        Err(_) => PyBytes::new(py, id).into_any(),
    }
}

/// A whole number from 0 to 2^64 - 1: a cost, a number of agents.
#[derive(Clone, Copy)]
pub(crate) struct Whole(pub(crate) u64);

impl<'a, 'py> FromPyObject<'a, 'py> for Whole {
    type Error = PyErr;

    #[inline(always)]
    fn extract(number: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        number.extract::<u64>().map(Self).map_err(|error| out_of_range(number, error))
    }
}

impl Whole {
    /// The number as a type that holds less. `what` names it in the error.
    pub(crate) fn to<T: TryFrom<u64>>(self, what: &str) -> PyResult<T> {
        T::try_from(self.0).map_err(|_| PyValueError::new_err(format!("{what} of {} is too large", self.0)))
    }
}

#[cold]
fn out_of_range(number: Borrowed<'_, '_, PyAny>, error: PyErr) -> PyErr {
    if error.is_instance_of::<PyOverflowError>(number.py()) {
        return PyValueError::new_err("a whole number from 0 to 2**64 - 1 is expected");
    }
    error
}

/// An instant on the limiter's clock: nanoseconds, as [`Limiter.now`](crate::limiter::Limiter::now) gives them.
#[derive(Clone, Copy)]
pub(crate) struct Instant(pub(crate) Tick);

impl<'a, 'py> FromPyObject<'a, 'py> for Instant {
    type Error = PyErr;

    fn extract(nanos: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let Whole(nanos) = nanos.extract()?;
        Ok(Self(Tick::from_nanos(nanos)))
    }
}

/// A span of time: seconds as an `int` or a `float`, or a `timedelta`.
#[derive(Clone, Copy)]
pub(crate) struct Span(pub(crate) Duration);

impl<'a, 'py> FromPyObject<'a, 'py> for Span {
    type Error = PyErr;

    fn extract(span: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let invalid = || PyValueError::new_err("a span of time is 0 seconds or longer, and finite");
        if span.is_instance_of::<PyInt>() {
            return span.extract::<u64>().map(|seconds| Self(Duration::from_secs(seconds))).map_err(|_| invalid());
        }
        if span.is_instance_of::<PyFloat>() {
            return Duration::try_from_secs_f64(span.extract()?).map(Self).map_err(|_| invalid());
        }
        if span.is_instance_of::<PyDelta>() {
            return span.extract::<Duration>().map(Self).map_err(|_| invalid());
        }
        Err(wrong_type("a span of time is a number of seconds or a timedelta", span))
    }
}

/// Seconds as Python's functions take them, rounded up: who sleeps that long has waited long enough.
pub(crate) fn seconds(span: Duration) -> f64 {
    let seconds = span.as_secs_f64();
    // A float has 53 bits: past 104 days it cannot have all nanoseconds.
    match Duration::try_from_secs_f64(seconds) {
        Ok(rounded) if rounded < span => f64::from_bits(seconds.to_bits() + 1), // The next larger one.
        _ => seconds,
    }
}

#[cold]
pub(crate) fn wrong_type(expected: &str, given: Borrowed<'_, '_, PyAny>) -> PyErr {
    let name = given.get_type().name().map_or_else(|_| "something else".to_owned(), |name| name.to_string());
    PyTypeError::new_err(format!("{expected}, not {name}"))
}
