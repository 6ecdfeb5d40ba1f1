//! Why a policy cannot be built.

use super::conduct::ConductError;
use crate::bounds::{ACTIONS_MAX, ID_BYTES_MAX, LANE_NAME_BYTES_MAX, LANE_WORDS_MAX, LANES_MAX, PLANS_MAX};
use crate::lane::LimitError;
use std::fmt;

/// Why a policy cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// A policy has 1 to [`LANES_MAX`] lanes.
    Lanes {
        /// How many were named.
        lanes: usize,
    },
    /// A record has room for [`LANE_WORDS_MAX`] words of lanes.
    Words {
        /// How many the lanes need: one each, two for a window, and one for each
        /// permit of an exact window.
        words: usize,
    },
    /// A lane's name is empty, too long, or has white space in it.
    LaneName {
        /// The name as given.
        lane: String,
    },
    /// Two lanes have the same name.
    LaneTwice {
        /// The name.
        lane: String,
    },
    /// A lane's limit is invalid.
    Limit {
        /// The lane.
        lane: String,
        /// What is wrong with its limit.
        problem: LimitError,
    },
    /// A policy has at most [`PLANS_MAX`] plans.
    Plans {
        /// How many there would be, `default` among them.
        plans: usize,
    },
    /// A plan's name is empty, too long, has white space in it, or is reserved.
    PlanName {
        /// The name as given.
        plan: String,
    },
    /// Two plans have the same name.
    PlanTwice {
        /// The name.
        plan: String,
    },
    /// A plan names a lane that does not exist.
    PlanLane {
        /// The plan.
        plan: String,
        /// The lane as given.
        lane: String,
    },
    /// A plan names a lane twice.
    PlanLaneTwice {
        /// The plan.
        plan: String,
        /// The lane.
        lane: String,
    },
    /// A plan's limit is invalid.
    PlanLimit {
        /// The plan.
        plan: String,
        /// The lane.
        lane: String,
        /// What is wrong with its limit.
        problem: LimitError,
    },
    /// A lane that should be outside the total does not exist.
    OutsideTotal {
        /// The lane as given.
        lane: String,
    },
    /// A policy names at most [`ACTIONS_MAX`] actions.
    Actions {
        /// How many were named.
        actions: usize,
    },
    /// Actions are named for a lane that does not exist.
    ActionLane {
        /// The channel as given.
        channel: String,
        /// The tier as given.
        tier: String,
    },
    /// An action's name is empty, too long, or has white space in it.
    ActionName {
        /// The channel.
        channel: String,
        /// The name as given.
        action: String,
    },
    /// An action is named twice in one channel.
    ActionTwice {
        /// The channel.
        channel: String,
        /// The action.
        action: String,
    },
    /// A channel has no lane of the tier that takes unknown actions.
    UnknownTier {
        /// A channel that names actions; `None` if no channel has such a lane.
        channel: Option<String>,
        /// The tier.
        tier: String,
    },
    /// The rules of conduct are invalid.
    Conduct(ConductError),
    /// The id of an agent that the policy exempts is invalid.
    Exempt {
        /// The id as given.
        agent: String,
    },
    /// The warning threshold is a share in percent.
    WarnPercent {
        /// The value as given.
        percent: u8,
    },
    /// The share after which an agent is warned again must be at least the
    /// warning threshold and at most 100 percent.
    WarnAgainPercent {
        /// The value as given.
        percent: u8,
        /// The warning threshold.
        below: u8,
    },
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Lanes { lanes } => {
                write!(f, "a policy of {lanes} lanes; allowed: 1 to {LANES_MAX}")
            }
            PolicyError::Words { words } => write!(
                f,
                "the lanes take {words} words, one each, two for a window, and as many as it allows for an exact window; allowed: up to {LANE_WORDS_MAX}"
            ),
            PolicyError::LaneName { lane } => write!(
                f,
                "lane name {lane:?}; allowed: 1 to {LANE_NAME_BYTES_MAX} bytes without white space or control characters"
            ),
            PolicyError::LaneTwice { lane } => write!(f, "lane {lane:?} is named twice; names must differ"),
            PolicyError::Limit { lane, problem } => write!(f, "lane {lane:?}: {problem}"),
            PolicyError::Plans { plans } => write!(f, "a policy of {plans} plans; allowed: 1 to {PLANS_MAX}"),
            PolicyError::PlanName { plan } => write!(
                f,
                "plan name {plan:?}; allowed: 1 to {LANE_NAME_BYTES_MAX} bytes without white space or control characters, other than \"default\" (the lanes' own limits) and \"exempt\""
            ),
            PolicyError::PlanTwice { plan } => write!(f, "plan {plan:?} is named twice; names must differ"),
            PolicyError::PlanLane { plan, lane } => {
                write!(f, "plan {plan:?}: there is no lane {lane:?}; name it with a limit first")
            }
            PolicyError::PlanLaneTwice { plan, lane } => {
                write!(f, "plan {plan:?}: lane {lane:?} is named twice; name it once")
            }
            PolicyError::PlanLimit { plan, lane, problem } => write!(f, "plan {plan:?}, lane {lane:?}: {problem}"),
            PolicyError::OutsideTotal { lane } => {
                write!(f, "outside_total: there is no lane {lane:?}; name lanes that the total would count")
            }
            PolicyError::Actions { actions } => {
                write!(f, "a policy of {actions} actions; allowed: up to {ACTIONS_MAX}")
            }
            PolicyError::ActionLane { channel, tier } => {
                write!(f, "actions of \"{channel}/{tier}\": there is no such lane; name it with a limit first")
            }
            PolicyError::ActionName { channel, action } => write!(
                f,
                "channel {channel:?}: action name {action:?}; allowed: 1 to {LANE_NAME_BYTES_MAX} bytes without white space or control characters"
            ),
            PolicyError::ActionTwice { channel, action } => {
                write!(f, "channel {channel:?}: action {action:?} is named twice; name it once")
            }
            PolicyError::UnknownTier { channel: Some(channel), tier } => write!(
                f,
                "channel {channel:?}: unknown actions go to \"{channel}/{tier}\", which is not a lane; add it, or name another tier"
            ),
            PolicyError::UnknownTier { channel: None, tier } => write!(
                f,
                "unknown actions go to the tier {tier:?}, which no channel has; add such a lane, or name another tier"
            ),
            PolicyError::Conduct(problem) => write!(f, "conduct: {problem}"),
            PolicyError::Exempt { agent } => {
                write!(f, "exempt: an id of {} bytes; allowed: 1 to {ID_BYTES_MAX}", agent.len())
            }
            PolicyError::WarnPercent { percent } => {
                write!(f, "a warning below {percent} percent; allowed: 0 to 100")
            }
            PolicyError::WarnAgainPercent { percent, below } => write!(
                f,
                "a warning below {below} percent, and again after {percent} percent were left; allowed: {below} to 100"
            ),
        }
    }
}

impl std::error::Error for PolicyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PolicyError::Limit { problem, .. } | PolicyError::PlanLimit { problem, .. } => Some(problem),
            PolicyError::Conduct(problem) => Some(problem),
            _ => None,
        }
    }
}
