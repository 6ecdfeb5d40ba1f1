//! Keys: where a request has its agent's id. A key may be a function in Python.

use super::must_be_plain;
use crate::arguments::{Whole, wrong_type};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use tollgate_gate::Head;

/// What a function in Python is called with, and what it raised.
pub(super) struct Call {
    request: Py<PyAny>,
    raised: Mutex<Option<PyErr>>,
}

impl Call {
    pub(super) fn new(request: Py<PyAny>) -> Arc<Self> {
        Arc::new(Self { request, raised: Mutex::new(None) })
    }

    /// The first exception.
    pub(super) fn raised(&self) -> PyResult<()> {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }

    fn raise(&self, error: PyErr) {
        self.raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// One way to find the agent's id in a request. Several in a list fall back from one to the next.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct Key {
    key: tollgate_gate::Key,
    pub(super) calls_python: bool,
}

impl Key {
    fn new(key: tollgate_gate::Key) -> Self {
        Self { key, calls_python: false }
    }

    pub(super) fn of_function(what: String, function: Py<PyAny>) -> Self {
        let find = move |head: &Head<'_>| {
            let call = head.extensions.get::<Arc<Call>>()?;
            Python::attach(|py| found(py, &function, call).map_err(|error| call.raise(error)).ok().flatten())
        };
        Self { key: tollgate_gate::Key::function(what, find), calls_python: true }
    }

    pub(super) fn key(&self) -> tollgate_gate::Key {
        self.key.clone()
    }
}

/// The id that a function returns: a `str`, an `int` or `None`.
fn found(py: Python<'_>, function: &Py<PyAny>, call: &Call) -> PyResult<Option<impl Display + use<>>> {
    let id = function.bind(py).call1((&call.request,))?;
    if id.is_none() {
        return Ok(None);
    }
    match id.is_instance_of::<PyString>() || id.is_instance_of::<PyInt>() {
        true => id.str()?.extract::<String>().map(Some),
        false => Err(wrong_type("a key's function returns a str, an int or None", id.as_borrowed())),
    }
}

#[pymethods]
impl Key {
    /// The value of a header, for example "x-agent-id". Only if something in front of the service has verified it.
    #[staticmethod]
    fn header(name: &str) -> Self {
        Self::new(tollgate_gate::Key::header(name))
    }

    /// The same, never shown in a response.
    #[staticmethod]
    fn secret_header(name: &str) -> Self {
        Self::new(tollgate_gate::Key::secret_header(name))
    }

    /// The client's address; IPv6 addresses count by their network of so many bits; default: 64.
    #[staticmethod]
    #[pyo3(signature = (*, ipv6_prefix=None))]
    fn address(ipv6_prefix: Option<Whole>) -> PyResult<Self> {
        let key = tollgate_gate::Key::address();
        Ok(Self::new(match ipv6_prefix {
            Some(bits) => key.ipv6_prefix(bits.to("an ipv6_prefix")?),
            None => key,
        }))
    }

    /// What a function finds in the request: a str, an int, or None. Errors call it `what`.
    #[staticmethod]
    fn function(what: String, function: &Bound<'_, PyAny>) -> PyResult<Self> {
        if !function.is_callable() {
            return Err(wrong_type("a key's function is a function of the request", function.as_borrowed()));
        }
        must_be_plain("a key's function", function)?;
        Ok(Self::of_function(what, function.clone().unbind()))
    }

    /// One id for all requests.
    #[staticmethod]
    fn shared(id: String) -> Self {
        Self::new(tollgate_gate::Key::shared(id))
    }

    /// This key with a text before the id, so that ids of different keys differ.
    fn prefix(&self, prefix: String) -> Self {
        Self { key: self.key.clone().prefix(prefix), calls_python: self.calls_python }
    }

    fn __repr__(&self) -> String {
        format!("<Key: {}>", self.key)
    }
}
