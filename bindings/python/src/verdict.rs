//! The answer to a check, and the state of a lane.

use crate::arguments::seconds;
use pyo3::prelude::*;
use std::time::{Duration, SystemTime};
use tollgate::Decision;

/// The decision as one word.
pub(crate) const fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Warn => "warn",
        Decision::Exempt => "exempt",
        _ => "deny",
    }
}

/// A span in nanoseconds.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn unix_time_in(span: Duration) -> Option<f64> {
    let at = SystemTime::now().checked_add(span)?;
    at.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
}

/// The answer to a check. True if the request may go on.
#[pyclass(frozen, eq, module = "tollgate_limiter")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Verdict(pub(crate) tollgate::Verdict);

impl Verdict {
    fn unless_exempt(&self, number: u64) -> Option<u64> {
        (self.0.decision() != Decision::Exempt).then_some(number)
    }
}

#[pymethods]
impl Verdict {
    fn __bool__(&self) -> bool {
        self.0.is_allowed()
    }

    /// `"allow"`, `"warn"` (allowed, and little is left), `"deny"` or `"exempt"`.
    #[getter]
    fn decision(&self) -> &'static str {
        word(self.0.decision())
    }

    /// Whether the request may go on: what the verdict is as a bool.
    #[getter]
    fn allowed(&self) -> bool {
        self.0.is_allowed()
    }

    /// Tokens left after this request. None for an exempt agent.
    #[getter]
    fn remaining(&self) -> Option<u64> {
        self.unless_exempt(self.0.remaining())
    }

    /// The lane's capacity, under the name that HTTP has for it. None for an exempt agent.
    #[getter]
    fn limit(&self) -> Option<u64> {
        self.capacity()
    }

    /// What the lane holds when it is full. None for an exempt agent.
    #[getter]
    fn capacity(&self) -> Option<u64> {
        self.unless_exempt(self.0.capacity())
    }

    /// How long to wait, in seconds, never less than the exact wait. None if the request was allowed, or no wait helps.
    #[getter]
    fn retry_after(&self) -> Option<f64> {
        self.0.retry_after().map(seconds)
    }

    /// The exact wait in nanoseconds.
    #[getter]
    fn retry_after_ns(&self) -> Option<u64> {
        self.0.retry_after().map(nanos)
    }

    /// The Unix time at which the lane is full again, as of this moment: it is worked out when it is read.
    #[getter]
    fn reset_at(&self) -> Option<f64> {
        if self.0.decision() == Decision::Exempt { None } else { unix_time_in(self.0.full_in()) }
    }

    /// Seconds until there is one token more. None if the lane is full, or no wait helps.
    #[getter]
    fn next_in(&self) -> Option<f64> {
        self.0.next_in().map(seconds)
    }

    /// Seconds until the lane is full again.
    #[getter]
    fn full_in(&self) -> f64 {
        seconds(self.0.full_in())
    }

    /// The same in nanoseconds.
    #[getter]
    fn full_in_ns(&self) -> u64 {
        nanos(self.0.full_in())
    }

    /// The wait of the lane alone, in nanoseconds. None if it was allowed, or no wait helps.
    #[getter]
    fn lane_wait_ns(&self) -> Option<u64> {
        self.0.lane_wait().map(nanos)
    }

    /// The wait that conduct asks for, in nanoseconds. 0 if the request was not counted.
    #[getter]
    fn conduct_wait_ns(&self) -> u64 {
        nanos(self.0.conduct_wait())
    }

    /// The lane's window in seconds: how long it takes to refill, or the span that it counts.
    #[getter]
    fn window(&self) -> f64 {
        seconds(self.0.window())
    }

    /// Of a denial that was counted: the agent's violations without a quiet period between them.
    #[getter]
    fn violations_in_a_row(&self) -> u32 {
        self.0.violations_in_a_row()
    }

    /// Where the answer of a lane that machines share came from: `"credit"`, `"advance"`, `"view"` or `"pending"`, and
    /// while the store is lost `"share"`, `"closed"`, `"open"` or `"alone"`. None for every other lane.
    #[getter]
    fn source(&self) -> Option<&'static str> {
        self.0.source().map(tollgate::cluster::Source::name)
    }

    /// Whether this denial made the agent's conduct sustained abuse.
    #[getter]
    fn is_sustained_abuse(&self) -> bool {
        self.0.is_sustained_abuse()
    }

    fn __repr__(&self) -> String {
        match (self.0.decision(), self.retry_after()) {
            (Decision::Exempt, _) => "<Verdict exempt>".to_owned(),
            (Decision::Deny, Some(wait)) => {
                format!("<Verdict deny: {} of {} left, retry after {wait} s>", self.0.remaining(), self.0.capacity())
            }
            (decision, _) => {
                format!("<Verdict {}: {} of {} left>", word(decision), self.0.remaining(), self.0.capacity())
            }
        }
    }
}

/// The state of a lane: what a check would find.
#[pyclass(frozen, eq, module = "tollgate_limiter")]
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct LaneState(pub(crate) tollgate::LaneState);

#[pymethods]
impl LaneState {
    /// Whether the agent is never limited. Then it has no numbers.
    #[getter]
    fn is_exempt(&self) -> bool {
        self.0.is_exempt()
    }

    /// Tokens left. None for an exempt agent.
    #[getter]
    fn remaining(&self) -> Option<u64> {
        (!self.0.is_exempt()).then(|| self.0.remaining())
    }

    /// What the lane holds when it is full. None for an exempt agent.
    #[getter]
    fn capacity(&self) -> Option<u64> {
        (!self.0.is_exempt()).then(|| self.0.capacity())
    }

    /// Seconds until there is one token more. None if the lane is full, or no wait helps.
    #[getter]
    fn next_in(&self) -> Option<f64> {
        self.0.next_in().map(seconds)
    }

    /// The same in nanoseconds.
    #[getter]
    fn next_in_ns(&self) -> Option<u64> {
        self.0.next_in().map(nanos)
    }

    /// Seconds until the lane is full again.
    #[getter]
    fn full_in(&self) -> f64 {
        seconds(self.0.full_in())
    }

    /// The same in nanoseconds.
    #[getter]
    fn full_in_ns(&self) -> u64 {
        nanos(self.0.full_in())
    }

    /// The lane's window in seconds.
    #[getter]
    fn window(&self) -> f64 {
        seconds(self.0.window())
    }

    fn __repr__(&self) -> String {
        match self.0.is_exempt() {
            true => "<LaneState exempt>".to_owned(),
            false => format!("<LaneState {} of {} left>", self.0.remaining(), self.0.capacity()),
        }
    }
}
