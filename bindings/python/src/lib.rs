//! The native module of the Python package `tollgate-limiter`.
//!
//! It translates and decides nothing: every method is a call of the Rust crate, under the same word.
//!
//! - `arguments.rs`: what callers pass: ids, costs, spans of time, plans
//! - `errors.rs`: the core's errors as Python's exceptions
//! - `policy.rs`: policies from a preset, text, a file or a dict
//! - `clock.rs`: the clock that tests move
//! - `verdict.rs`: the answer to a check
//! - `limiter.rs`: how a limiter is built, and what is found in it by name
//! - `lane.rs`: the checks
//!
//! A check never releases the interpreter's lock: that costs more than the check. What may wait for a file or walks
//! all records does, through [`Python::detach`](pyo3::Python::detach).

mod arguments;
mod clock;
mod errors;
mod lane;
mod limiter;
mod policy;
mod verdict;

use pyo3::prelude::*;

/// The native module of `tollgate_limiter`.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<limiter::Limiter>()?;
    module.add_class::<lane::Lane>()?;
    module.add_class::<lane::Plan>()?;
    module.add_class::<verdict::Verdict>()?;
    module.add_class::<verdict::LaneState>()?;
    module.add_class::<clock::ManualClock>()?;
    Ok(())
}
