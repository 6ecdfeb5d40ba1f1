//! What `__aenter__` and `__aexit__` return.

use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;

/// An awaitable that is done already. It never suspends the task that awaits it, so that no cancellation can come
/// between a charge and the `async with` that settles it.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct Done(Py<PyAny>);

impl Done {
    pub(crate) fn with(value: Bound<'_, PyAny>) -> Self {
        Self(value.unbind())
    }

    /// For `__aexit__`: no exception is swallowed.
    pub(crate) fn raising_on(py: Python<'_>) -> Self {
        Self(py.None())
    }
}

#[pymethods]
impl Done {
    fn __await__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<()> {
        Err(PyStopIteration::new_err((self.0.clone_ref(py),)))
    }
}
