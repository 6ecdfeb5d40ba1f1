//! The native module of the Python package `tollgate-limiter`.
//!
//! It translates and decides nothing: every method is a call of the Rust crate, under the same word.
//!
//! - `arguments.rs`: what callers pass: ids, costs, spans of time, plans
//! - `errors.rs`: the core's errors as Python's exceptions
//! - `policy.rs`: policies from a preset, text, a file or a dict
//! - `clock.rs`: the clock that tests move
//! - `verdict.rs`: the answer to a check
//! - `limit.rs`: a limit that a call brings along
//! - `limiter.rs`: how a limiter is built, and what is found in it by name
//! - `redis.rs`: how limits are shared with other machines
//! - `engine.rs`: the engine that shares them
//! - `lane.rs`: the checks
//! - `batch.rs`: many requests, each decided by itself, or all charged or none
//! - `reserve.rs`: charges that are settled later
//! - `hold.rs`: slots that are held until they are released
//! - `awaitable.rs`: what makes those two work with `async with`
//! - `conduct.rs`: violations
//! - `control.rs`: plans, overrides, exemptions, a new policy
//! - `observe.rs`: counts, agents, events, files, who shares it
//! - `gate/`: what a middleware asks about a request
//! - `views.rs`, `counts.rs`: what those answer, as plain values
//!
//! A check never releases the interpreter's lock: that costs more than the check. What may wait for a file or a
//! server, or walks all records, does, through [`Python::detach`](pyo3::Python::detach).

mod arguments;
mod awaitable;
mod batch;
mod clock;
mod conduct;
mod control;
mod counts;
mod engine;
mod errors;
mod gate;
mod hold;
mod lane;
mod limit;
mod limiter;
mod observe;
mod policy;
mod redis;
mod reserve;
mod verdict;
mod views;

use pyo3::prelude::*;

/// The native module of `tollgate_limiter`.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<limiter::Limiter>()?;
    module.add_class::<lane::Lane>()?;
    module.add_class::<limit::CallLimit>()?;
    module.add_class::<lane::Plan>()?;
    module.add_class::<batch::Request>()?;
    module.add_class::<verdict::Verdict>()?;
    module.add_class::<verdict::LaneState>()?;
    module.add_class::<batch::AllVerdict>()?;
    module.add_class::<reserve::Reservation>()?;
    module.add_class::<views::Settlement>()?;
    module.add_class::<hold::Hold>()?;
    module.add_class::<clock::ManualClock>()?;
    module.add_class::<gate::Gate>()?;
    module.add_class::<gate::Key>()?;
    module.add_class::<gate::Lanes>()?;
    module.add_class::<gate::Connection>()?;
    module.add_class::<control::Assignment>()?;
    module.add_class::<views::Violation>()?;
    module.add_class::<views::Conduct>()?;
    module.add_class::<views::AgentView>()?;
    module.add_class::<views::LaneView>()?;
    module.add_class::<views::AgentPage>()?;
    module.add_class::<views::ListedAgent>()?;
    module.add_class::<views::Offenders>()?;
    module.add_class::<views::Offender>()?;
    module.add_class::<observe::Event>()?;
    module.add_class::<observe::ActionLane>()?;
    module.add_class::<observe::LogThrottle>()?;
    module.add_class::<observe::LogLine>()?;
    module.add_class::<counts::Snapshot>()?;
    module.add_class::<counts::LaneCounts>()?;
    module.add_class::<counts::Stats>()?;
    module.add_class::<counts::UnknownActions>()?;
    module.add_class::<counts::BudgetsLoaded>()?;
    module.add_class::<counts::BudgetsSaved>()?;
    module.add_class::<counts::Sharing>()?;
    module.add_class::<counts::Process>()?;
    module.add_class::<redis::Redis>()?;
    module.add_class::<engine::EngineStatus>()?;
    module.add_class::<engine::SharedLane>()?;
    module.add_class::<engine::DecisionsStatus>()?;
    Ok(())
}
