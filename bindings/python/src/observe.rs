//! What a limiter does: counts, agents, offenders, events, files, who shares it.

use crate::arguments::{Id, Instant, Whole, id_object};
use crate::conduct::agent;
use crate::counts::{BudgetsLoaded, BudgetsSaved, Process, Sharing, Snapshot, Stats, UnknownActions};
use crate::errors::{of_call, of_file};
use crate::lane::Lane;
use crate::limiter::{Limiter, choose};
use crate::verdict::word;
use crate::views::{AgentPage, AgentView, Offenders, tuple, view};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::time::SystemTime;
use tollgate::Policy;
use tollgate::observe::{AgentQuery, AgentSort, EventKind};

view! {
    /// Something that an operator should know about.
    Event {
        /// Counts up from 0. A gap shows how many were dropped in between.
        number: u64,
        /// When it happened, in nanoseconds on the limiter's clock.
        at: u64,
        /// What happened: `"sustained_abuse"`, say.
        kind: &'static str,
        /// The agent, if it is about one.
        agent: Option<Py<PyAny>>,
        /// What else there is to know, by name.
        details: Py<PyDict>,
    }
}

impl Event {
    fn of(py: Python<'_>, event: tollgate::observe::Event, policy: &Policy) -> PyResult<Py<Self>> {
        let details = PyDict::new(py);
        let (kind, agent) = match event.kind {
            EventKind::SustainedAbuse { agent, in_a_row } => {
                details.set_item("in_a_row", in_a_row)?;
                ("sustained_abuse", Some(agent))
            }
            EventKind::UnknownAction { channel, action } => {
                details.set_item("channel", channel)?;
                details.set_item("action", action)?;
                ("unknown_action", None)
            }
            EventKind::Saturated { lossy_evictions, refused } => {
                details.set_item("lossy_evictions", lossy_evictions)?;
                details.set_item("refused", refused)?;
                ("saturated", None)
            }
            EventKind::PolicyReplaced => ("policy_replaced", None),
            EventKind::AssignmentChanged { agent } => ("assignment_changed", Some(agent)),
            EventKind::AssignmentsChanged { agents } => {
                details.set_item("agents", agents)?;
                ("assignments_changed", None)
            }
            EventKind::ClockFellBack => ("clock_fell_back", None),
            EventKind::Checked { agent, lane, decision, remaining } => {
                let name = policy.lanes().find(|(id, _)| *id == lane).map(|(_, name)| name);
                details.set_item("lane", name)?;
                details.set_item("decision", word(decision))?;
                details.set_item("remaining", (remaining < u64::MAX).then_some(remaining))?;
                ("checked", Some(agent))
            }
            _ => ("other", None),
        };
        let agent = agent.map(|agent| id_object(py, &agent).unbind());
        Py::new(py, Self { number: event.number, at: event.at.as_nanos(), kind, agent, details: details.unbind() })
    }
}

view! {
    /// The lane that pays for an action.
    ActionLane {
        /// The lane.
        lane: Py<Lane>,
        /// Whether the policy names the action.
        is_known: bool,
        /// Whether this call was the first with this action, which the policy does not name.
        is_first_seen: bool,
    }
}

view! {
    /// A line for the log.
    LogLine {
        /// `"INFO"`, `"THROTTLE"` or `"SUMMARY"`.
        level: &'static str,
        /// The line. Ids in it are escaped.
        text: String,
    }
}

impl LogLine {
    fn of(line: &tollgate::observe::LogLine) -> Self {
        Self { level: line.level(), text: line.to_string() }
    }
}

/// Keeps a flood of denials from being a flood of lines: the first denial of an agent is logged, then their number
/// once a minute, and a summary every five minutes.
#[pyclass(frozen, module = "tollgate_limiter")]
pub(crate) struct LogThrottle(tollgate::observe::LogThrottle);

#[pymethods]
impl LogThrottle {
    /// A throttle without any denials yet.
    #[new]
    fn new() -> Self {
        Self(tollgate::observe::LogThrottle::new())
    }

    /// Records that an agent was denied at `now`. Returns the line to log, if any.
    fn denied(&self, agent: Id<'_>, now: Instant) -> Option<LogLine> {
        self.0.denied(agent, now.0).as_ref().map(LogLine::of)
    }

    /// The lines that are due at `now`: call it every few seconds.
    fn due(&self, now: Instant) -> Vec<LogLine> {
        self.0.due(now.0).iter().map(LogLine::of).collect()
    }
}

pub(crate) fn unix_time(at: SystemTime) -> f64 {
    at.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

#[pymethods]
impl Limiter {
    /// What it holds and has seen.
    fn stats(&self, py: Python<'_>) -> PyResult<Py<Stats>> {
        Stats::of(py, &py.detach(|| self.0.stats()))
    }

    /// What it holds and has done. Without `observe=True`, only what it holds.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Py<Snapshot>> {
        Snapshot::of(py, &py.detach(|| self.0.snapshot()))
    }

    /// The agent's state. Charges nothing.
    #[pyo3(signature = (agent, *, at=None))]
    fn agent(&self, py: Python<'_>, agent: Id<'_>, at: Option<Instant>) -> PyResult<Py<AgentView>> {
        AgentView::of(py, &self.0.agent(self::agent(agent, at)).map_err(of_call)?)
    }

    /// A page of the agents that have a record. Needs `observe=True` and a `roster`. Reads the whole roster.
    #[pyo3(signature = (*, prefix=None, contains=None, sort="id", page=None, per_page=None))]
    fn agents(
        &self,
        py: Python<'_>,
        prefix: Option<Id<'_>>,
        contains: Option<Id<'_>>,
        sort: &str,
        page: Option<Whole>,
        per_page: Option<Whole>,
    ) -> PyResult<Py<AgentPage>> {
        let sorts = [("id", AgentSort::Id), ("usage", AgentSort::Usage), ("violations", AgentSort::Violations)];
        let mut query = AgentQuery::new().sort(choose("sort", sort, &sorts)?);
        if let Some(prefix) = prefix {
            query = query.prefix(prefix);
        }
        if let Some(contains) = contains {
            query = query.contains(contains);
        }
        if let Some(page) = page {
            query = query.page(page.to("a page")?);
        }
        if let Some(agents) = per_page {
            query = query.per_page(agents.to("a page")?);
        }
        AgentPage::of(py, &py.detach(|| self.0.agents(&query)))
    }

    /// The agents that violated limits most in the last hour. Needs `observe=True`.
    #[pyo3(signature = (most=None))]
    fn top_offenders(&self, py: Python<'_>, most: Option<Whole>) -> PyResult<Py<Offenders>> {
        let most = most.unwrap_or(Whole(10)).to("a number of offenders")?;
        Offenders::of(py, &py.detach(|| self.0.top_offenders(most)))
    }

    /// The report for an operator, as JSON.
    fn report(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.report())
    }

    /// Writes the report to a file: a reader finds the old one or the new one, whole.
    fn write_report(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.write_report(path)).map_err(of_file)
    }

    /// The oldest event that nobody has polled yet. Needs `observe=True`.
    fn poll_event(&self, py: Python<'_>) -> PyResult<Option<Py<Event>>> {
        let event = self.0.poll_event();
        event.map(|event| Event::of(py, event, &self.0.policy())).transpose()
    }

    /// The lane that pays for an action of a channel, by the policy; None if the channel has none for it.
    fn lane_for(&self, py: Python<'_>, channel: &str, action: &str) -> PyResult<Option<ActionLane>> {
        let Some(found) = self.0.lane_for(channel, action) else { return Ok(None) };
        let lane = Py::new(py, self.lane_of_id(found.lane()))?;
        Ok(Some(ActionLane { lane, is_known: found.is_known(), is_first_seen: found.is_first_seen() }))
    }

    /// The actions that came although the policy does not name them.
    fn unknown_actions(&self) -> UnknownActions {
        let seen = self.0.unknown_actions();
        UnknownActions { total: seen.total, names: seen.names, not_listed: seen.not_listed }
    }

    /// Keeps used budgets in a file, and charges what it records for windows that are not over.
    fn keep_budgets_in(&self, py: Python<'_>, path: PathBuf) -> PyResult<Py<BudgetsLoaded>> {
        BudgetsLoaded::of(py, &py.detach(|| self.0.keep_budgets_in(path)).map_err(of_file)?)
    }

    /// Writes to the file what has been used of budgets since the last save. Call it every few seconds.
    fn save_budgets(&self, py: Python<'_>) -> PyResult<BudgetsSaved> {
        let saved = py.detach(|| self.0.save_budgets()).map_err(of_file)?;
        Ok(BudgetsSaved { saved: saved.saved, unsaved: saved.unsaved })
    }

    /// Who shares it, and how that goes; None if it is this process's alone.
    fn sharing(&self, py: Python<'_>) -> PyResult<Option<Sharing>> {
        let Some(seen) = py.detach(|| self.0.sharing()) else { return Ok(None) };
        let processes = tuple(py, &seen.processes, |process| {
            let [major, minor, patch] = process.version;
            let (pid, joined, is_this) = (process.pid, unix_time(process.joined), process.is_this);
            Ok(Py::new(py, Process { pid, joined, version: (major, minor, patch), is_this })?.into_any())
        })?;
        Ok(Some(Sharing {
            path: seen.path,
            bytes: seen.bytes,
            made: unix_time(seen.made),
            processes,
            takeovers: seen.takeovers,
            busy: seen.busy,
            policy_differs: seen.policy_differs,
            is_detached: seen.is_detached,
        }))
    }

    /// Looks for what cannot be in a shared limiter, and returns it as sentences. For tools and tests.
    fn audit(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.0.audit())
    }
}
