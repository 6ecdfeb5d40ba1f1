//! The engine of a limiter that machines share: the threads that settle with the store, and how they get on.
//!
//! It lives as long as something can check: the limiter, its lanes, its gates. What ends it waits for the store, for
//! about the time-out, so it lets other threads run. A fork copies no threads: the child says so, and attaches an
//! engine of its own.

use crate::errors::{Class, raise};
use crate::limiter::Limiter;
use crate::observe::unix_time;
use crate::views::{tuple, view};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tollgate::cluster::{Link, Source};
use tollgate_redis::{EngineBuilder, EngineError, State};

/// How a limiter's engine is started, and the one that runs.
pub(crate) struct Attached {
    builder: EngineBuilder,
    /// Never locked without the interpreter's lock, which a fork takes: no child finds it locked.
    now: Mutex<Now>,
}

enum Now {
    Ended,
    /// A thread of this process starts or ends it.
    Changing(u32),
    /// It is this process's, or this is a copy of it.
    Runs(tollgate_redis::Engine, u32),
}

impl Attached {
    pub(crate) fn start(
        py: Python<'_>,
        builder: EngineBuilder,
        limiter: &Arc<tollgate::Limiter>,
    ) -> PyResult<Arc<Self>> {
        let attached = Self { builder, now: Mutex::new(Now::Ended) };
        attached.attach(py, limiter)?;
        Ok(Arc::new(attached))
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was there, if another thread does not change it; then this one does.
    fn change(&self, leave: impl FnOnce(&Now) -> bool) -> PyResult<Option<Now>> {
        let (mut now, process) = (self.now(), std::process::id());
        if matches!(*now, Now::Changing(by) if by == process) {
            return Err(raise(Class::Busy, "busy", "another thread starts or ends the engine; try again"));
        }
        if leave(&now) {
            return Ok(None);
        }
        Ok(Some(std::mem::replace(&mut *now, Now::Changing(process))))
    }

    /// Starts one, unless one of this process runs.
    fn attach(&self, py: Python<'_>, limiter: &Arc<tollgate::Limiter>) -> PyResult<()> {
        let process = std::process::id();
        let Some(before) = self.change(|now| matches!(now, Now::Runs(_, of) if *of == process))? else {
            return Ok(());
        };
        let (builder, limiter) = (self.builder.clone(), Arc::clone(limiter));
        let started = py.detach(move || {
            drop(before);
            builder.attach(limiter)
        });
        let mut now = self.now();
        match started {
            Ok(engine) => *now = Now::Runs(engine, process),
            Err(error) => {
                *now = Now::Ended;
                return Err(of_engine(error));
            }
        }
        Ok(())
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        let Some(before) = self.change(|now| matches!(now, Now::Ended))? else { return Ok(()) };
        py.detach(move || drop(before));
        *self.now() = Now::Ended;
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Nobody else has it, so nobody changes it.
        let _ = Python::attach(|py| self.end(py));
    }
}

#[cold]
fn of_engine(error: EngineError) -> PyErr {
    match error {
        EngineError::Thread { .. } => PyRuntimeError::new_err(error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

view! {
    /// A lane that machines share.
    SharedLane {
        /// The lane's name.
        name: String,
        /// What it holds when it is full.
        capacity: u64,
        /// How much of its capacity all machines may hold in credit and owe in advance, in percent.
        slack: u8,
        /// Whether nothing is spent in advance.
        exact: bool,
        /// What this machine does with it while the store is lost.
        when_lost: &'static str,
        /// What all machines together may admit to an agent beyond the limit in any window, while the store answers.
        bound: u64,
        /// Tokens that this machine was given and has not spent, of all agents.
        credit: u64,
        /// Tokens that it has spent in advance and not paid.
        advance: u64,
        /// Its answers by source.
        answers: Py<PyDict>,
    }
}

view! {
    /// How what operators decide follows to all machines.
    DecisionsStatus {
        /// Whether this machine knows all that the store has.
        is_current: bool,
        /// Agents about whom the store has a decision.
        agents: u64,
        /// Decisions of this machine that the store does not know yet.
        waiting: u64,
        /// Decisions of other machines that cannot be in force here.
        refused: u64,
        /// Why decisions did not follow the last time.
        last_problem: Option<String>,
        /// What an operator should look at.
        warnings: Vec<String>,
    }
}

view! {
    /// How a limiter's engine gets on.
    EngineStatus {
        /// `"connected"`, `"seeding"` (the store is back, and hears what it missed) or `"lost"`.
        state: &'static str,
        /// The Unix time since when.
        since: f64,
        /// By how many machines shares are divided.
        nodes: u16,
        /// How many machines have shown themselves lately; 0 before the first connection.
        nodes_seen: u16,
        /// How long the last question took, in seconds.
        round_trip: f64,
        /// How long the slowest one took.
        round_trip_max: f64,
        /// How often the store was lost, by reason.
        losses: Py<PyDict>,
        /// For how many seconds it was lost in all.
        lost_for: f64,
        /// Why it was lost the last time.
        last_problem: Option<String>,
        /// What an operator should change.
        warnings: Vec<String>,
        /// Settlements that were sent.
        settled: u64,
        /// Questions that were not asked, because too many were waiting: checks ask faster than the store answers.
        asks_dropped: u64,
        /// Each lane that machines share: what is out of it, and what it answered.
        lanes: Py<PyTuple>,
        /// How what operators decide follows to all machines.
        decisions: Py<DecisionsStatus>,
    }
}

fn status(py: Python<'_>, limiter: &tollgate::Limiter, seen: tollgate_redis::Status) -> PyResult<EngineStatus> {
    let losses = PyDict::new(py);
    seen.losses.by_reason().into_iter().try_for_each(|(reason, count)| losses.set_item(reason, count))?;
    let link = Link::of(limiter).map(|link| link.status());
    let asks_dropped = link.as_ref().map_or(0, |link| link.asks_dropped);
    let lanes = tuple(py, link.into_iter().flat_map(|link| link.lanes), |lane| {
        let answers = PyDict::new(py);
        Source::ALL.into_iter().try_for_each(|source| answers.set_item(source.name(), lane.answers(source)))?;
        let out = seen.out.get(&lane.lane).copied().unwrap_or_default();
        let lane = SharedLane {
            name: lane.name,
            capacity: lane.capacity,
            slack: lane.slack_percent,
            exact: lane.is_exact,
            when_lost: lane.when_lost.name(),
            bound: lane.bound_tokens,
            credit: out.credit,
            advance: out.advance,
            answers: answers.unbind(),
        };
        Ok(Py::new(py, lane)?.into_any())
    })?;
    let decisions = DecisionsStatus {
        is_current: seen.decisions.is_current,
        agents: seen.decisions.agents,
        waiting: seen.decisions.waiting,
        refused: seen.decisions.refused,
        last_problem: seen.decisions.last_problem,
        warnings: seen.decisions.warnings,
    };
    Ok(EngineStatus {
        state: match seen.state {
            State::Connected => "connected",
            State::Seeding => "seeding",
            State::Lost => "lost",
        },
        since: unix_time(seen.since),
        nodes: seen.nodes.get(),
        nodes_seen: seen.nodes_seen,
        round_trip: seen.round_trip.as_secs_f64(),
        round_trip_max: seen.round_trips.max.as_secs_f64(),
        losses: losses.unbind(),
        lost_for: seen.lost_for.as_secs_f64(),
        last_problem: seen.last_problem,
        warnings: seen.warnings,
        settled: seen.counts.sent,
        asks_dropped,
        lanes,
        decisions: Py::new(py, decisions)?,
    })
}

#[pymethods]
impl Limiter {
    /// How its engine gets on; None if no engine runs.
    fn engine(&self, py: Python<'_>) -> PyResult<Option<EngineStatus>> {
        let Some(attached) = &self.1 else { return Ok(None) };
        let seen = match &*attached.now() {
            Now::Runs(engine, _) => engine.status(),
            _ => return Ok(None),
        };
        status(py, &self.0, seen).map(Some)
    }

    /// Starts an engine where none runs: in a forked child, or after `close`. Needs `redis`.
    fn attach(&self, py: Python<'_>) -> PyResult<()> {
        match &self.1 {
            Some(attached) => attached.attach(py, &self.0),
            None => Err(of_engine_missing()),
        }
    }

    /// Ends its engine, which gives back the credit that was not spent. Checks go on, as while the store is lost.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.1.as_ref().map_or(Ok(()), |attached| attached.end(py))
    }
}

fn of_engine_missing() -> PyErr {
    raise(Class::Request, "not_clustered", "the limiter shares no lanes with machines; build it with redis=Redis(...)")
}
