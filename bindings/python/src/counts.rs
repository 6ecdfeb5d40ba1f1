//! What a limiter holds and has done, as plain values.

use crate::views::{tuple, view};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tollgate::clock::ClockSource;
use tollgate::{keep, observe};

view! {
    /// The verdicts of one lane.
    LaneCounts {
        /// The lane's name.
        name: String,
        /// Requests that were allowed, without a warning.
        allowed: u64,
        /// Requests that were allowed with a warning.
        warned: u64,
        /// Requests that were denied.
        denied: u64,
        /// Requests of exempt agents.
        exempt: u64,
    }
}

view! {
    /// What a limiter holds and has seen.
    Stats {
        /// Agents that have a record.
        agents: u64,
        /// Records there are.
        records: u64,
        /// How often a new agent got a record.
        claims: u64,
        /// Records that idle agents gave up to others.
        idle_evictions: u64,
        /// Records that agents in debt gave up to others.
        lossy_evictions: u64,
        /// How often a charge met another one, and was tried again.
        retries: u64,
        /// Reservations that are open.
        reservations: u64,
        /// Reservations that expired.
        reservations_expired: u64,
        /// Reservations that were refused.
        reservations_refused: u64,
    }
}

impl Stats {
    pub(crate) fn of(py: Python<'_>, stats: &tollgate::Stats) -> PyResult<Py<Self>> {
        let stats = Self {
            agents: stats.agents,
            records: stats.records,
            claims: stats.claims,
            idle_evictions: stats.idle_evictions,
            lossy_evictions: stats.lossy_evictions,
            retries: stats.retries,
            reservations: stats.reservations,
            reservations_expired: stats.reservations_expired,
            reservations_refused: stats.reservations_refused,
        };
        Py::new(py, stats)
    }
}

view! {
    /// What a limiter holds and has done, at one moment.
    Snapshot {
        /// When it was taken, in nanoseconds on the limiter's clock.
        at: u64,
        /// Whether verdicts are counted: whether the limiter was made with `observe=True`.
        is_counting: bool,
        /// The verdicts by lane.
        lanes: Py<PyTuple>,
        /// Requests that could not be answered.
        errors: u64,
        /// New agents that were refused because no record was free.
        full: u64,
        /// Violations.
        violations: u64,
        /// Violations in the last hour.
        violations_last_hour: u64,
        /// How often an agent's conduct became sustained abuse.
        sustained_abuse: u64,
        /// Records and reservations.
        stats: Py<Stats>,
        /// Agents with a plan.
        assigned: u64,
        /// Agents with limits of their own.
        overridden: u64,
        /// Agents that are never limited.
        exempt: u64,
        /// How many actions came that the policy does not name.
        unknown_actions: u64,
        /// Events that were overwritten before they were polled.
        events_dropped: u64,
        /// The clock that is read: `"tsc"`, `"os"`, `"coarse"`, `"boottime"` or `"manual"`.
        clock: &'static str,
        /// How often the clock fell back to the system's.
        clock_fallbacks: u64,
    }
}

impl Snapshot {
    pub(crate) fn of(py: Python<'_>, seen: &observe::Snapshot) -> PyResult<Py<Self>> {
        let lanes = tuple(py, &seen.lanes, |lane| {
            let observe::LaneCounts { allowed, warned, denied, exempt, .. } = *lane;
            Ok(Py::new(py, LaneCounts { name: lane.name.clone(), allowed, warned, denied, exempt })?.into_any())
        })?;
        let clock = match seen.clock {
            ClockSource::Tsc => "tsc",
            ClockSource::Os => "os",
            ClockSource::Coarse => "coarse",
            ClockSource::Boottime => "boottime",
            _ => "manual",
        };
        let snapshot = Self {
            at: seen.at.as_nanos(),
            is_counting: seen.is_counting,
            lanes,
            errors: seen.errors,
            full: seen.full,
            violations: seen.violations,
            violations_last_hour: seen.violations_last_hour,
            sustained_abuse: seen.sustained_abuse,
            stats: Stats::of(py, &seen.stats)?,
            assigned: seen.assigned,
            overridden: seen.overridden,
            exempt: seen.exempt,
            unknown_actions: seen.unknown_actions,
            events_dropped: seen.events_dropped,
            clock,
            clock_fallbacks: seen.clock_fallbacks,
        };
        Py::new(py, snapshot)
    }
}

view! {
    /// The actions that came although the policy does not name them.
    UnknownActions {
        /// How many came.
        total: u64,
        /// Pairs of channel and action, sorted: the first 256 different ones.
        names: Vec<(String, String)>,
        /// How many of `total` are not in `names`.
        not_listed: u64,
    }
}

view! {
    /// What a file of used budgets had.
    BudgetsLoaded {
        /// Budgets that are charged again as they were.
        loaded: u64,
        /// Budgets whose window is over.
        ended: u64,
        /// Budgets of lanes that the policy does not have, or has with another window.
        unknown: u64,
        /// Budgets of agents for which no record was free.
        full: u64,
        /// How far the calendar is ahead of the wall clock, in seconds.
        ahead: f64,
    }
}

impl BudgetsLoaded {
    pub(crate) fn of(py: Python<'_>, budgets: &keep::BudgetsLoaded) -> PyResult<Py<Self>> {
        let keep::BudgetsLoaded { loaded, ended, unknown, full, ahead, .. } = *budgets;
        Py::new(py, Self { loaded, ended, unknown, full, ahead: ahead.as_secs_f64() })
    }
}

view! {
    /// What was written of used budgets.
    BudgetsSaved {
        /// Budgets in the file.
        saved: u64,
        /// Budgets of agents whose id is not known: they had a record before the file was named.
        unsaved: u64,
    }
}

view! {
    /// A process that uses a shared limiter.
    Process {
        /// Its number, in its own pid namespace.
        pid: u32,
        /// When it joined, as Unix time.
        joined: f64,
        /// The version of the library that it uses.
        version: (u16, u16, u16),
        /// Whether it is the process that asks.
        is_this: bool,
    }
}

view! {
    /// Who shares a limiter, and how that goes.
    Sharing {
        /// The file.
        path: std::path::PathBuf,
        /// How long it is. Parts that nobody has used take no memory.
        bytes: u64,
        /// When it was made, as Unix time.
        made: f64,
        /// The processes that use it now, this one among them.
        processes: Py<PyTuple>,
        /// How often a lock was taken over from a process that had died with it.
        takeovers: u64,
        /// How often a call was answered that another process is busy.
        busy: u64,
        /// Whether the policy that this process asked for has other numbers than the one in force.
        policy_differs: bool,
        /// Whether the file at the path is another one by now, or gone.
        is_detached: bool,
    }
}
