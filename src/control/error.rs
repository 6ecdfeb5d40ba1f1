//! Why a control call changed nothing.

use crate::bounds::OVERRIDES_MAX;
use crate::error::Error;
use crate::policy::LimitError;
use std::fmt;

/// Why a control call changed nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// The agent's id or the plan's number is out of range; or this process has no seat at a shared slab.
    Agent(Error),
    /// The policy has neither a lane nor a tier of this name.
    UnknownLane {
        /// The name as given, its first 80 characters.
        lane: String,
        /// The lanes that there are.
        known: String,
    },
    /// The policy has no plan of this name.
    UnknownPlan {
        /// The name as given, its first 80 characters.
        plan: String,
        /// The plans that there are.
        known: String,
    },
    /// The limit is invalid.
    Limit(LimitError),
    /// One of many assignments is invalid.
    Of {
        /// The agent's id, its first 80 characters, escaped.
        agent: String,
        /// What is wrong.
        problem: Box<ControlError>,
    },
    /// A lane of the new policy does not fit this limiter.
    OfLane {
        /// The lane.
        lane: String,
        /// What is wrong.
        problem: Box<ControlError>,
    },
    /// [`OVERRIDES_MAX`] agents have overrides already.
    TooManyOverrides,
    /// Another assigned agent has the same hash: a chance of 1 in 2^64.
    SameHash,
    /// As many agents have an assignment as a shared limiter has room for: a quarter of those it was
    /// built for, but at least 4,096.
    TooManyAssignments {
        /// How many.
        most: u64,
    },
    /// There is no memory left for another assignment of a shared limiter.
    NoMemory,
    /// Another process that shares the limiter holds a lock, and does not go on.
    Busy {
        /// The process, in its own pid namespace.
        pid: u32,
        /// Whether the change has begun: then the next control call, of whatever process, completes it. Otherwise
        /// nothing has changed.
        has_begun: bool,
    },
    /// A setting of a shared limiter cannot be changed while it is in use.
    Fixed {
        /// The setting.
        setting: &'static str,
    },
    /// The policy's text is too long for a shared limiter.
    PolicyTooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// The policy's text does not read back as the same policy, so the other processes of a shared limiter would not
    /// learn it. No policy is known with which that happens.
    PolicyText,
    /// The policy in force in a shared limiter cannot be read: something else has written the file.
    PolicyUnreadable,
    /// The process was forked while another thread changed something.
    Forked,
    /// The new policy has other lanes than the one in force.
    OtherLanes {
        /// The lanes of the policy in force.
        known: String,
    },
    /// The new policy lacks a plan of the one in force.
    PlanMissing {
        /// The plan.
        plan: String,
    },
    /// The file of assignments could not be read or written.
    #[cfg(feature = "persist")]
    File(crate::keep::PersistError),
    /// Assignments are not kept in a file.
    #[cfg(feature = "persist")]
    NoFile,
}

impl ControlError {
    /// Whether the same call may do better later.
    pub(super) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. } | Self::NoMemory | Self::Forked | Self::Agent(Error::Busy | Error::NoSeat { .. })
        )
    }
}

#[cfg(feature = "persist")]
impl From<crate::keep::PersistError> for ControlError {
    fn from(error: crate::keep::PersistError) -> Self {
        ControlError::File(error)
    }
}

impl From<Error> for ControlError {
    fn from(error: Error) -> Self {
        ControlError::Agent(error)
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlError::Agent(error) => error.fmt(f),
            ControlError::UnknownLane { lane, known } => {
                write!(f, "there is no lane or tier {lane:?}; the lanes are {known}")
            }
            ControlError::UnknownPlan { plan, known } => write!(f, "there is no plan {plan:?}; the plans are {known}"),
            ControlError::Limit(problem) => problem.fmt(f),
            ControlError::Of { agent, problem } => write!(f, "agent \"{agent}\": {problem}"),
            ControlError::OfLane { lane, problem } => write!(f, "lane {lane:?}: {problem}"),
            ControlError::TooManyOverrides => write!(
                f,
                "{OVERRIDES_MAX} agents have overrides already; put agents with the same limits into a plan, or remove some"
            ),
            ControlError::SameHash => {
                write!(f, "another assigned agent has the same hash; build a new limiter, which has another key")
            }
            ControlError::TooManyAssignments { most } => write!(
                f,
                "{most} agents have an assignment already; remove some, or share a slab that was made for more agents"
            ),
            ControlError::NoMemory => write!(
                f,
                "the shared slab's file system is full, so there is no memory for another assignment; make it larger"
            ),
            ControlError::Busy { pid, has_begun } => {
                write!(
                    f,
                    "process {pid}, which shares this limiter, has held a lock for 2 s; see whether it is stopped"
                )?;
                match has_begun {
                    true => write!(f, "; the change has begun, and the next control call completes it"),
                    false => write!(f, ", and try again; nothing has changed"),
                }
            }
            ControlError::Fixed { setting } => write!(
                f,
                "{setting} cannot change while processes share the limiter; stop them all, and start them with the new policy"
            ),
            ControlError::PolicyTooLong { bytes, most } => write!(
                f,
                "the policy takes {bytes} bytes as text, and the shared slab has room for {most}; stop all processes that use it, and start them with the new policy"
            ),
            ControlError::PolicyText => {
                write!(f, "the policy does not read back from its text; please report it, and put another one in force")
            }
            ControlError::PolicyUnreadable => write!(
                f,
                "the policy in force cannot be read, since something else has written the shared slab; stop all processes that use it, and remove its file"
            ),
            ControlError::Forked => write!(
                f,
                "this process was forked while another thread made a change; fork earlier, or build a limiter in the child"
            ),
            ControlError::OtherLanes { known } => {
                write!(f, "the new policy has other lanes; give it these, in this order: {known}")
            }
            ControlError::PlanMissing { plan } => {
                write!(f, "the new policy lacks the plan {plan:?}; keep it, since callers may use its number")
            }
            #[cfg(feature = "persist")]
            ControlError::File(error) => error.fmt(f),
            #[cfg(feature = "persist")]
            ControlError::NoFile => write!(f, "assignments are not kept in a file; name one first"),
        }
    }
}

impl std::error::Error for ControlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ControlError::Agent(error) => Some(error),
            ControlError::Limit(problem) => Some(problem),
            ControlError::Of { problem, .. } | ControlError::OfLane { problem, .. } => Some(problem),
            #[cfg(feature = "persist")]
            ControlError::File(error) => Some(error),
            _ => None,
        }
    }
}
