//! What a limiter answers beside verdicts, as plain values.

use crate::arguments::{id_object, seconds};
use crate::verdict::{LaneState, nanos};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use tollgate::observe;

/// A class of attributes that cannot be set, shown with all of them.
macro_rules! view {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $about:literal])+ $field:ident: $type:ty,)+ }) => {
        $(#[doc = $doc])+
        #[pyclass(frozen, get_all, module = "tollgate_limiter")]
        pub(crate) struct $name {
            $($(#[doc = $about])+ pub(crate) $field: $type,)+
        }

        #[pymethods]
        impl $name {
            fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
                let fields = [$(stringify!($field)),+].map(|name| {
                    let value = slf.getattr(name)?.repr()?;
                    Ok::<_, PyErr>(format!("{name}={value}"))
                });
                let fields = fields.into_iter().collect::<PyResult<Vec<_>>>()?.join(", ");
                Ok(format!(concat!(stringify!($name), "({})"), fields))
            }
        }
    };
}
pub(crate) use view;

/// A tuple of objects.
pub(crate) fn tuple<T>(
    py: Python<'_>,
    items: impl IntoIterator<Item = T>,
    object: impl Fn(T) -> PyResult<Py<PyAny>>,
) -> PyResult<Py<PyTuple>> {
    let objects = items.into_iter().map(object).collect::<PyResult<Vec<_>>>()?;
    Ok(PyTuple::new(py, objects)?.unbind())
}

view! {
    /// How a reservation was settled.
    Settlement {
        /// Charged but not used: given back, unless the window that was charged is over.
        unused: u64,
        /// Used beyond what was reserved: charged now, into debt if need be.
        overspent: u64,
        /// Still reserved; 0 once the reservation is closed.
        left: u64,
    }
}

impl Settlement {
    pub(crate) fn of(py: Python<'_>, settled: tollgate::Settlement) -> PyResult<Py<Self>> {
        let tollgate::Settlement { unused, overspent, left } = settled;
        Py::new(py, Self { unused, overspent, left })
    }
}

view! {
    /// A recorded violation, and what follows from it.
    Violation {
        /// How many violations in a row this makes, without a quiet period between them.
        in_a_row: u32,
        /// The wait for it on the policy's curve, in seconds.
        step: f64,
        /// The wait that the agent is given, in seconds.
        wait: f64,
        /// The same two in nanoseconds.
        step_ns: u64,
        /// The wait in nanoseconds.
        wait_ns: u64,
        /// Whether this violation made the agent's conduct sustained abuse.
        sustained_abuse: bool,
    }
}

impl Violation {
    pub(crate) fn of(py: Python<'_>, seen: tollgate::Violation) -> PyResult<Py<Self>> {
        let (step, wait) = (seen.step(), seen.wait());
        let (step_ns, wait_ns) = (nanos(step), nanos(wait));
        let (in_a_row, sustained_abuse) = (seen.in_a_row(), seen.sustained_abuse());
        let violation = Self { in_a_row, step: seconds(step), wait: seconds(wait), step_ns, wait_ns, sustained_abuse };
        Py::new(py, violation)
    }
}

view! {
    /// An agent's violations at an instant.
    Conduct {
        /// Violations in the present window of the abuse threshold. Counts to 63.
        violations: u32,
        /// When the present window began, in nanoseconds on the limiter's clock.
        window_start: Option<u64>,
        /// Violations without a quiet period between them. Counts to 15.
        in_a_row: u32,
        /// When the last violation was, if it still matters.
        last_violation: Option<u64>,
        /// What is left of the wait that the last violation brought, in seconds.
        wait: f64,
        /// The same in nanoseconds.
        wait_ns: u64,
        /// Whether the agent has violated a limit and has not been quiet since.
        is_rate_limited: bool,
    }
}

impl Conduct {
    pub(crate) fn of(py: Python<'_>, seen: tollgate::Conduct) -> PyResult<Py<Self>> {
        let conduct = Self {
            violations: seen.violations(),
            window_start: seen.window_start().map(tollgate::Tick::as_nanos),
            in_a_row: seen.in_a_row(),
            last_violation: seen.last_violation().map(tollgate::Tick::as_nanos),
            wait: seconds(seen.wait()),
            wait_ns: nanos(seen.wait()),
            is_rate_limited: seen.is_rate_limited(),
        };
        Py::new(py, conduct)
    }
}

view! {
    /// One lane of an agent.
    LaneView {
        /// The lane's name.
        name: String,
        /// The text of the limit that applies to the agent; None if it is exempt.
        limit: Option<String>,
        /// Whether that limit is an override for this agent.
        is_override: bool,
        /// How many whole tokens are used.
        used: u64,
        /// How much of the lane is used, 0 to 100.
        used_percent: f64,
        /// `"green"` below half, `"yellow"`, or `"red"` above 80 %.
        level: &'static str,
        /// What is left, of what capacity, and when there is more.
        state: Py<LaneState>,
    }
}

impl LaneView {
    fn of(py: Python<'_>, lane: &observe::LaneView) -> PyResult<Py<Self>> {
        let level = match lane.level() {
            observe::UsageLevel::Green => "green",
            observe::UsageLevel::Yellow => "yellow",
            _ => "red",
        };
        let view = Self {
            name: lane.name.clone(),
            limit: lane.limit.map(|limit| limit.to_string()),
            is_override: lane.is_override,
            used: lane.used(),
            used_percent: lane.used_percent(),
            level,
            state: Py::new(py, LaneState(lane.state))?,
        };
        Py::new(py, view)
    }
}

view! {
    /// One agent's state.
    AgentView {
        /// When it was read, in nanoseconds on the limiter's clock.
        at: u64,
        /// Whether it has a record. If not, all its lanes are full and it has no violations.
        is_known: bool,
        /// The plan that it is assigned to.
        plan: Option<String>,
        /// Whether it is never limited.
        is_exempt: bool,
        /// Its lanes, in the order of the policy.
        lanes: Py<PyTuple>,
        /// The lane nearest to its limit; None if the agent is exempt, or every lane denies everything.
        dominant: Option<Py<LaneView>>,
        /// Its violations.
        conduct: Py<Conduct>,
        /// Whether it has violated a limit and has not been quiet since. An exempt agent never is.
        is_rate_limited: bool,
    }
}

impl AgentView {
    pub(crate) fn of(py: Python<'_>, seen: &observe::AgentView) -> PyResult<Py<Self>> {
        let view = Self {
            at: seen.at.as_nanos(),
            is_known: seen.is_known,
            plan: seen.plan.clone(),
            is_exempt: seen.is_exempt,
            lanes: tuple(py, &seen.lanes, |lane| Ok(LaneView::of(py, lane)?.into_any()))?,
            dominant: seen.dominant().map(|lane| LaneView::of(py, lane)).transpose()?,
            conduct: Conduct::of(py, seen.conduct)?,
            is_rate_limited: seen.is_rate_limited(),
        };
        Py::new(py, view)
    }
}

view! {
    /// An agent of a list.
    ListedAgent {
        /// Its id: a str if it is UTF-8, else bytes.
        agent: Py<PyAny>,
        /// Its state.
        view: Py<AgentView>,
    }
}

view! {
    /// A page of a list of agents.
    AgentPage {
        /// The agents of the page.
        agents: Py<PyTuple>,
        /// How many agents match, on all pages.
        matched: u64,
        /// How many agents could be listed.
        listed: u64,
        /// How many have a record but cannot be listed, because there is no roster or it is too small.
        not_listed: u64,
    }
}

impl AgentPage {
    pub(crate) fn of(py: Python<'_>, page: &observe::AgentPage) -> PyResult<Py<Self>> {
        let agents = tuple(py, &page.agents, |listed| {
            let view = AgentView::of(py, &listed.view)?;
            Ok(Py::new(py, ListedAgent { agent: id_object(py, &listed.id).unbind(), view })?.into_any())
        })?;
        Py::new(py, Self { agents, matched: page.matched, listed: page.listed, not_listed: page.not_listed })
    }
}

view! {
    /// An agent that violates limits.
    Offender {
        /// Its id.
        agent: Py<PyAny>,
        /// Its violations in the last hour.
        violations: u64,
        /// At most this many of them may be other agents'.
        error: u64,
    }
}

view! {
    /// The agents that violate limits the most.
    Offenders {
        /// The worst first.
        list: Py<PyTuple>,
        /// Violations of all agents in the last hour.
        violations: u64,
        /// The counts in `list` are too high by at most this.
        error_max: u64,
        /// Violations that are in no agent's count.
        missed: u64,
    }
}

impl Offenders {
    pub(crate) fn of(py: Python<'_>, top: &observe::Offenders) -> PyResult<Py<Self>> {
        let list = tuple(py, &top.list, |offender| {
            let agent = id_object(py, &offender.agent).unbind();
            let offender = Offender { agent, violations: offender.violations, error: offender.error };
            Ok(Py::new(py, offender)?.into_any())
        })?;
        Py::new(py, Self { list, violations: top.violations, error_max: top.error_max, missed: top.missed })
    }
}
