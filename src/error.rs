//! Calls that cannot be answered. A denial is not an error: it is a verdict.

use crate::bounds::{AGENTS_MAX, ID_BYTES_MAX, PROCESSES_MAX};
use std::fmt;

/// Why a call could not be answered. Nothing has been charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The agent id has no bytes.
    EmptyId,
    /// The agent id is longer than [`ID_BYTES_MAX`].
    IdTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The policy has no such lane.
    UnknownLane {
        /// The lane's number as given.
        lane: u32,
        /// How many lanes the policy has; they are numbered from 0.
        lanes: u32,
    },
    /// The policy has no such plan.
    UnknownPlan {
        /// The plan's number as given.
        plan: u16,
        /// How many plans the policy has; they are numbered from 0, which is `default`.
        plans: u16,
    },
    /// The cost is 0; use `peek` to look without charging.
    ZeroCost,
    /// The cost is larger than the lane's capacity, so it can never pass.
    CostAboveCapacity {
        /// The cost as given.
        cost: u64,
        /// What the lane holds when it is full, or the most that it takes on credit.
        capacity: u64,
    },
    /// The agent is new, and no record in its neighbourhood can be given up.
    Full,
    /// More slots were released than the agent holds.
    NotHeld {
        /// How many it holds.
        held: u64,
        /// How many were released.
        released: u64,
    },
    /// The call is for lanes of another kind; or the lane is the
    /// [total](crate::PolicyBuilder::total), which is charged with other lanes
    /// and never alone.
    WrongKind {
        /// The lane's number.
        lane: u32,
    },
    /// The lane takes its limit from each call, and this one brought none; see
    /// [`Limit::dynamic`](crate::Limit::dynamic).
    NoLimit {
        /// The lane's number.
        lane: u32,
    },
    /// The call brought a limit, and the lane has its own.
    LimitGiven {
        /// The lane's number.
        lane: u32,
    },
    /// Two parts of `check_all` concern the same lane of one agent, and bring different limits.
    LimitsDiffer {
        /// The lane's number.
        lane: u32,
    },
    /// `check_all` takes 1 to [`PARTS_MAX`](crate::bounds::PARTS_MAX) parts.
    Parts {
        /// How many there were.
        parts: usize,
    },
    /// As many reservations are open as the limiter was built for.
    ReservationsFull,
    /// The agent has as many reservations open as one agent may.
    TooManyReservations {
        /// How many one agent may have open.
        most: u64,
    },
    /// The reservation was settled, has expired, or never existed.
    UnknownReservation,
    /// Far more was used than was reserved, which must be a mistake.
    UsedTooLarge {
        /// What was used, as given.
        used: u64,
        /// The most it can be: what is reserved plus
        /// [`OVERSPEND_MAX`](crate::bounds::OVERSPEND_MAX) times the lane's capacity.
        most: u64,
    },
    /// `check_many` was given a different number of requests and answers, or
    /// more than [`BATCH_MAX`](crate::bounds::BATCH_MAX) of them.
    BatchSize {
        /// How many requests there were.
        requests: usize,
        /// How many answers there was room for.
        answers: usize,
    },
    /// Another process that shares the slab holds a lock that this call needs, and does not go on: it is stopped, or
    /// the machine is overloaded. Agents that have a record are not concerned. Try again.
    Busy,
    /// As many calls hold slots of the shared slab as it has room for: as many as it has agents, and at least
    /// 16,384, and at most [`HOLDS_MAX`](crate::bounds::HOLDS_MAX).
    HoldsFull,
    /// This process has no seat at the shared slab, without which it can hold no lock: it was forked, and may not open
    /// the slab itself, or has no descriptor left, or all seats are taken. Agents that have a record are not concerned.
    NoSeat {
        /// The system's error number; 0 if all seats are taken.
        errno: i32,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::EmptyId => write!(f, "the agent id is empty; give 1 to {ID_BYTES_MAX} bytes"),
            Error::IdTooLong { bytes } => {
                write!(f, "the agent id has {bytes} bytes; at most {ID_BYTES_MAX} are allowed")
            }
            Error::UnknownLane { lane, lanes } => {
                write!(f, "there is no lane {lane}; this policy has {lanes}, numbered from 0")
            }
            Error::UnknownPlan { plan, plans } => {
                write!(f, "there is no plan {plan}; this policy has {plans}, numbered from 0")
            }
            Error::ZeroCost => write!(f, "the cost is 0; give at least 1, or peek"),
            Error::CostAboveCapacity { cost, capacity } => {
                write!(f, "cost {cost} exceeds capacity {capacity} and can never pass")
            }
            Error::Full => {
                write!(f, "no record is free for this new agent; build the limiter for more agents, or let it evict")
            }
            Error::Busy => write!(
                f,
                "another process that shares the slab holds a lock and does not go on; try again, and see whether it is stopped"
            ),
            Error::HoldsFull => write!(
                f,
                "as many calls hold slots as the shared slab has room for; release some, or make it for more agents"
            ),
            Error::NoSeat { errno: 0 } => write!(
                f,
                "this process has no seat at the shared slab: all {PROCESSES_MAX} are taken; stop some processes, or use another slab for some"
            ),
            Error::NoSeat { errno } => {
                let reason = std::io::Error::from_raw_os_error(errno);
                write!(f, "this process has no seat at the shared slab: {reason}; {}", way_to_a_seat(reason.kind()))
            }
            Error::NotHeld { held, released } => {
                write!(f, "{released} released, but the agent holds {held}; release each slot once")
            }
            Error::WrongKind { lane } => {
                write!(f, "this call does not work for lane {lane}, because of its kind; name another lane")
            }
            Error::NoLimit { lane } => write!(
                f,
                "lane {lane} is dynamic and has no default: give the call a limit, such as \"10/second burst 20\""
            ),
            Error::LimitGiven { lane } => {
                write!(
                    f,
                    "lane {lane} has its own limit; leave out the call's, or make the lane \"dynamic\" in the policy"
                )
            }
            Error::LimitsDiffer { lane } => write!(
                f,
                "two parts bring different limits for lane {lane} of one agent; give them one limit, or check one by one"
            ),
            Error::Parts { parts } => write!(f, "{parts} parts; give 1 to {}", crate::bounds::PARTS_MAX),
            Error::ReservationsFull => {
                write!(f, "no more reservations can be open at once; settle some, or build the limiter for more")
            }
            Error::TooManyReservations { most } => write!(
                f,
                "the agent has {most} reservations open, the most for one agent; settle some, or build the limiter with more per agent"
            ),
            Error::UsedTooLarge { used, most } => write!(
                f,
                "{used} used, but the most is {most}: what is reserved plus {} times the lane's capacity; nothing was settled",
                crate::bounds::OVERSPEND_MAX
            ),
            Error::UnknownReservation => {
                write!(f, "there is no such reservation: it was settled already, has expired, or never existed")
            }
            Error::BatchSize { requests, answers } => write!(
                f,
                "{requests} requests and room for {answers} answers; give the same number of both, at most {}",
                crate::bounds::BATCH_MAX
            ),
        }
    }
}

/// What gives a process a seat that the system refused it.
fn way_to_a_seat(kind: std::io::ErrorKind) -> &'static str {
    match kind {
        std::io::ErrorKind::PermissionDenied => {
            "give the slab a group and mode that let it write, such as 0660, or build the limiter after giving up rights"
        }
        std::io::ErrorKind::StorageFull => "make the slab's file system larger",
        _ => "see whether it may open more files, and has /proc",
    }
}

impl std::error::Error for Error {}

/// Why a limiter could not be built.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// A limiter holds 1 to [`AGENTS_MAX`] agents.
    Agents {
        /// The number as given.
        agents: u64,
    },
    /// At most [`RESERVATIONS_MAX`](crate::bounds::RESERVATIONS_MAX) reservations may be open at once.
    Reservations {
        /// The number as given.
        reservations: usize,
    },
    /// The system refused to reserve the memory.
    Memory {
        /// How many bytes were needed.
        bytes: u64,
    },
    /// The slab cannot be shared.
    #[cfg(feature = "shared")]
    Shared(crate::shared::SharedError),
    /// Machines cannot share its lanes.
    #[cfg(feature = "cluster")]
    Cluster(crate::cluster::ClusterError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Agents { agents } => {
                write!(f, "a limiter for {agents} agents; allowed: 1 to {AGENTS_MAX}")
            }
            BuildError::Reservations { reservations } => write!(
                f,
                "a limiter for {reservations} open reservations; allowed: up to {}",
                crate::bounds::RESERVATIONS_MAX
            ),
            BuildError::Memory { bytes } => {
                write!(f, "the system refused to reserve {bytes} bytes; build for fewer agents or lanes")
            }
            #[cfg(feature = "shared")]
            BuildError::Shared(problem) => problem.fmt(f),
            #[cfg(feature = "cluster")]
            BuildError::Cluster(problem) => problem.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            #[cfg(feature = "shared")]
            BuildError::Shared(problem) => Some(problem),
            #[cfg(feature = "cluster")]
            BuildError::Cluster(problem) => Some(problem),
            _ => None,
        }
    }
}

#[cfg(feature = "shared")]
impl From<crate::shared::SharedError> for BuildError {
    fn from(error: crate::shared::SharedError) -> Self {
        BuildError::Shared(error)
    }
}
