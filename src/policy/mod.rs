//! What an operator configures, checked once when it is built.

mod limit;

pub(crate) use limit::BucketNumbers;
pub use limit::{Limit, LimitError};

use crate::bounds::{LANE_NAME_BYTES_MAX, LANES_MAX};
use std::fmt;

/// A lane's number within its policy, in the order the lanes were named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(u32);

impl LaneId {
    /// The lane with this number. A number the policy does not have is
    /// answered with [`Error::UnknownLane`](crate::Error::UnknownLane).
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Named lanes, each with its limit: everything a limiter needs to know.
///
/// ```
/// use tollgate::{Limit, Policy};
///
/// let policy = Policy::builder()
///     .lane("ws/light", Limit::per_minute(120))
///     .lane("ws/heavy", "10/min burst 20")
///     .build()?;
/// let heavy = policy.lane("ws/heavy").expect("named above");
/// assert_eq!(policy.limit(heavy), Some(Limit::per_minute(10).burst(20)));
///
/// let error = Policy::builder().lane("ws/light", "0/min").build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "lane \"ws/light\": a rate or burst of 0; give at least 1, or \"deny\" to let nothing through",
/// );
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    lanes: Vec<Lane>,
    warn_below_percent: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Lane {
    name: String,
    limit: Limit,
    /// Invariant: what `limit` compiles to.
    numbers: BucketNumbers,
}

impl Policy {
    /// Starts a policy without lanes.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder { lanes: Vec::new(), warn_below_percent: 20 }
    }

    /// The lane of this name.
    #[must_use]
    pub fn lane(&self, name: &str) -> Option<LaneId> {
        self.lanes().find(|(_, known)| *known == name).map(|(lane, _)| lane)
    }

    /// Every lane with its name, in order.
    pub fn lanes(&self) -> impl ExactSizeIterator<Item = (LaneId, &str)> {
        // Lossless: `build` admits at most `LANES_MAX` lanes.
        self.lanes.iter().enumerate().map(|(index, lane)| (LaneId(index as u32), lane.name.as_str()))
    }

    /// A lane's limit.
    #[must_use]
    pub fn limit(&self, lane: LaneId) -> Option<Limit> {
        self.lanes.get(lane.index()).map(|lane| lane.limit)
    }

    /// A verdict warns when less than this share of the capacity is left.
    #[must_use]
    pub fn warn_below_percent(&self) -> u8 {
        self.warn_below_percent
    }

    /// What the lanes compute with, in order.
    pub(crate) fn numbers(&self) -> impl ExactSizeIterator<Item = BucketNumbers> {
        self.lanes.iter().map(|lane| lane.numbers)
    }
}

/// Collects lanes; [`build`](PolicyBuilder::build) checks them all.
#[derive(Clone, Debug)]
#[must_use]
pub struct PolicyBuilder {
    lanes: Vec<(String, Result<Limit, LimitError>)>,
    warn_below_percent: u8,
}

impl PolicyBuilder {
    /// Adds a lane with its limit: a [`Limit`], or its text.
    pub fn lane<L>(mut self, name: impl Into<String>, limit: L) -> Self
    where
        L: TryInto<Limit, Error: Into<LimitError>>,
    {
        self.lanes.push((name.into(), limit.try_into().map_err(Into::into)));
        self
    }

    /// Warns when less than this share of the capacity is left; 20 by
    /// default, 0 for never.
    pub fn warn_below_percent(mut self, percent: u8) -> Self {
        self.warn_below_percent = percent;
        self
    }

    /// Checks everything.
    ///
    /// # Errors
    ///
    /// The first thing that makes no sense, with the lane's name, the value
    /// and what is allowed.
    pub fn build(self) -> Result<Policy, PolicyError> {
        if self.warn_below_percent > 100 {
            return Err(PolicyError::WarnPercent { percent: self.warn_below_percent });
        }
        if self.lanes.is_empty() || self.lanes.len() > LANES_MAX {
            return Err(PolicyError::Lanes { lanes: self.lanes.len() });
        }
        let mut lanes: Vec<Lane> = Vec::with_capacity(self.lanes.len());
        for (name, limit) in self.lanes {
            let printable = name.chars().all(|c| !c.is_control() && !c.is_whitespace());
            if name.is_empty() || name.len() > LANE_NAME_BYTES_MAX || !printable {
                return Err(PolicyError::LaneName { lane: name });
            }
            if lanes.iter().any(|known| known.name == name) {
                return Err(PolicyError::LaneTwice { lane: name });
            }
            match limit.and_then(|limit| Ok((limit, limit.compile()?))) {
                Ok((limit, numbers)) => lanes.push(Lane { name, limit, numbers }),
                Err(problem) => return Err(PolicyError::Limit { lane: name, problem }),
            }
        }
        Ok(Policy { lanes, warn_below_percent: self.warn_below_percent })
    }
}

/// Why a policy cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// A policy has 1 to [`LANES_MAX`] lanes.
    Lanes {
        /// How many were named.
        lanes: usize,
    },
    /// A lane's name is empty, too long, or has white space in it.
    LaneName {
        /// The name as given.
        lane: String,
    },
    /// Two lanes have one name.
    LaneTwice {
        /// The name.
        lane: String,
    },
    /// A lane's limit makes no sense.
    Limit {
        /// The lane.
        lane: String,
        /// What is wrong with its limit.
        problem: LimitError,
    },
    /// The warning threshold is a share in percent.
    WarnPercent {
        /// The value as given.
        percent: u8,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Lanes { lanes } => {
                write!(f, "a policy of {lanes} lanes; allowed are 1 to {LANES_MAX}")
            }
            PolicyError::LaneName { lane } => write!(
                f,
                "lane name {lane:?}; allowed are 1 to {LANE_NAME_BYTES_MAX} bytes without white space or control characters"
            ),
            PolicyError::LaneTwice { lane } => write!(f, "lane {lane:?} is named twice; names must differ"),
            PolicyError::Limit { lane, problem } => write!(f, "lane {lane:?}: {problem}"),
            PolicyError::WarnPercent { percent } => {
                write!(f, "a warning below {percent} percent; allowed are 0 to 100")
            }
        }
    }
}

impl std::error::Error for PolicyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PolicyError::Limit { problem, .. } => Some(problem),
            _ => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn error_of(builder: PolicyBuilder) -> String {
        builder.build().expect_err("must be refused").to_string()
    }

    #[test]
    fn a_policy_has_between_one_and_sixty_two_lanes() {
        let many =
            |count: usize| (0..count).fold(Policy::builder(), |b, i| b.lane(format!("lane/{i}"), Limit::per_second(1)));
        assert_eq!(error_of(many(0)), "a policy of 0 lanes; allowed are 1 to 62");
        assert!(many(62).build().is_ok());
        assert_eq!(error_of(many(63)), "a policy of 63 lanes; allowed are 1 to 62");
    }

    #[test]
    fn errors_name_the_lane_the_value_and_the_range() {
        let lane = |name: &str, limit: Limit| Policy::builder().lane(name, limit);
        assert_eq!(
            error_of(lane("http/read", Limit::per_second(2_000_000_000))),
            "lane \"http/read\": 2000000000 tokens per 1s; at most 1000000000 per second are allowed"
        );
        assert_eq!(
            error_of(lane("http/read", Limit::per_second(1).burst(1 << 50))),
            "lane \"http/read\": capacity 1125899906842624; allowed are 1 to 1000000000000"
        );
        assert_eq!(
            error_of(lane("a", Limit::per_second(1)).lane("a", Limit::per_second(2))),
            "lane \"a\" is named twice; names must differ"
        );
        assert!(error_of(lane("", Limit::per_second(1))).starts_with("lane name \"\""));
        assert!(error_of(lane("a b", Limit::per_second(1))).starts_with("lane name \"a b\""));
        assert!(error_of(lane("a", Limit::per_second(1)).warn_below_percent(101)).contains("101 percent"));
    }
}
