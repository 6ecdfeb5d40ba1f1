//! Rules as they are written: in `[[envoy.rules]]` of a policy file, or in the files of envoyproxy/ratelimit.

use super::wire::Unit;
use std::fmt;
use std::ops::Range;
use std::time::Duration;
use tollgate::{CallLimit, LimitError};

/// Which descriptors a rule is for, and what it does with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenRule {
    pub(crate) domain: String,
    /// The entries of a descriptor, all of them, in order.
    pub(crate) steps: Vec<Step>,
    pub(crate) limit: WrittenLimit,
    /// The keys whose values are the agent; `None`: the whole descriptor is.
    pub(crate) agent: Option<Vec<String>>,
    pub(crate) name: Option<String>,
    /// Names of rules that this one takes the place of, if both match one request.
    pub(crate) replaces: Vec<String>,
    /// It counts, and never denies.
    pub(crate) is_shadow: bool,
    /// It denies only together with all other quotas of the request.
    pub(crate) is_quota: bool,
    /// Where it stands in its file.
    pub(crate) at: Range<usize>,
}

/// One entry of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) key: String,
    /// The value, in which each `*` stands for any text; `None`: any value.
    pub(crate) value: Option<String>,
    /// All values that match the wildcard are one agent.
    pub(crate) is_shared: bool,
}

/// What a rule allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WrittenLimit {
    /// The rule exempts its descriptors.
    None,
    Unlimited,
    /// Nothing passes.
    Deny,
    /// The limit of a lane of the policy.
    Lane(String, Range<usize>),
    /// A limit of its own, as a policy file writes it.
    Text(String, Range<usize>),
    /// A limit of its own, as Envoy counts it.
    Rate(Rate),
}

/// So many requests in a unit of time. Its text is a limit of a policy file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) requests_per_unit: u32,
    pub(crate) unit: Unit,
}

impl Rate {
    /// The same as a bucket: as many at once, and as many more in each unit.
    pub(crate) fn call_limit(self) -> Result<CallLimit, LimitError> {
        let count = u64::from(self.requests_per_unit);
        CallLimit::new(count, count, self.unit.duration())
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests_per_unit, unit } = self;
        match unit {
            Unit::Week => write!(f, "{requests_per_unit}/7d"),
            Unit::Month => write!(f, "{requests_per_unit}/30d"),
            Unit::Year => write!(f, "{requests_per_unit}/365d"),
            unit => {
                let name = Unit::NAMES.iter().find(|(_, known)| known == unit).map_or("", |(name, _)| name);
                write!(f, "{requests_per_unit}/{name}")
            }
        }
    }
}

impl Unit {
    /// Units of the configuration, by name.
    pub(crate) const NAMES: [(&'static str, Self); 7] = [
        ("second", Self::Second),
        ("minute", Self::Minute),
        ("hour", Self::Hour),
        ("day", Self::Day),
        ("week", Self::Week),
        ("month", Self::Month),
        ("year", Self::Year),
    ];

    /// How long it is: a month has 30 days and a year 365, as in envoyproxy/ratelimit.
    pub(crate) fn duration(self) -> Duration {
        const DAY: u64 = 86_400;
        Duration::from_secs(match self {
            Self::Unknown => 0,
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
            Self::Week => 7 * DAY,
            Self::Month => 30 * DAY,
            Self::Year => 365 * DAY,
        })
    }

    /// The unit that is this long, to a thousandth: the price of a token is rounded up.
    pub(crate) fn of(window: Duration) -> Self {
        let is_near = |unit: &Self| unit.duration().abs_diff(window) * 1_000 <= unit.duration();
        Self::NAMES.map(|(_, unit)| unit).into_iter().find(is_near).unwrap_or(Self::Unknown)
    }
}

/// How a rule is called in metrics, like the statistics of envoyproxy/ratelimit: `path_/login.remote_address`.
pub(crate) fn label(steps: &[Step]) -> String {
    let step = |step: &Step| match &step.value {
        Some(value) => format!("{}_{value}", step.key),
        None => step.key.clone(),
    };
    steps.iter().map(step).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_the_unit_of_its_length() {
        for (_, unit) in Unit::NAMES {
            assert_eq!(Unit::of(unit.duration()), unit);
            assert_eq!(Unit::of(unit.duration() + Duration::from_nanos(7)), unit);
        }
        assert_eq!(Unit::of(Duration::from_secs(12)), Unit::Unknown);
        assert_eq!(Unit::of(Duration::from_millis(1_500)), Unit::Unknown);
        assert_eq!(Unit::of(Duration::ZERO), Unit::Unknown);
    }
}
