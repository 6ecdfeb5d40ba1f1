//! Status: how a call ended.

use crate as tollgate;
use std::ffi::{CStr, c_char};

/// How a call ended. Each function lists the statuses that it returns; all of them
/// may also return NULL_POINTER and PANIC and, with a shared limiter, BUSY and
/// SHARED. A later version may add statuses, and never changes the meaning of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// The call succeeded. So does a check that denies: see the verdict.
    Ok = 0,

    /// A pointer is NULL where NULL is not allowed.
    NullPointer = 1,
    /// A struct_size is smaller than the struct ever was, or above 4,096. Set it to sizeof.
    StructSize = 2,
    /// A flag, an enum value or an option that this version does not know, or
    /// two options that contradict each other. Clear a struct before you fill it.
    InvalidOption = 3,
    /// The buffer has no room for the text and its NUL. Ask for the length with NULL and 0.
    BufferTooSmall = 4,
    /// A text is not UTF-8. Ids need not be: they are bytes.
    NotUtf8 = 5,
    /// A text has more than TOLLGATE_TEXT_BYTES_MAX bytes.
    TextTooLong = 6,
    /// An array has more than TOLLGATE_BATCH_MAX elements, or the overrides of an
    /// agent are more than TOLLGATE_LANES_MAX. Split it.
    BatchSize = 7,
    /// tollgate_check_all takes 1 to TOLLGATE_PARTS_MAX requests.
    Parts = 8,
    /// The library was built without this feature; see tollgate_features.
    NotBuiltIn = 9,
    /// A bug in tollgate: please report it. The call stopped midway and may have
    /// charged something; the limiter stays usable.
    Panic = 10,

    /// The agent id has no bytes.
    EmptyId = 11,
    /// The agent id has more than TOLLGATE_ID_BYTES_MAX bytes. Hash it first.
    IdTooLong = 12,
    /// The policy has no such lane.
    UnknownLane = 13,
    /// The policy has no such plan.
    UnknownPlan = 14,
    /// The cost is 0. Ask for at least 1, or look with tollgate_peek.
    ZeroCost = 15,
    /// The cost is above the lane's capacity, so it can never pass.
    CostAboveCapacity = 16,
    /// The lane's limit is of a kind that this function does not work with.
    WrongKind = 17,
    /// The agent holds fewer slots than were to be released.
    NotHeld = 18,
    /// The agent is new, and no record is free for it. Build the limiter for
    /// more agents, or with TOLLGATE_ON_FULL_EVICT.
    Full = 19,

    /// All reservations that the limiter was built for are open.
    ReservationsFull = 20,
    /// The agent has as many open reservations as one agent may have. Settle some first.
    TooManyReservations = 21,
    /// The reservation was settled, or expired, or never existed.
    UnknownReservation = 22,
    /// The settlement overspends by more than TOLLGATE_OVERSPEND_MAX times the
    /// lane's capacity, which is most likely a mistake of units.
    UsedTooLarge = 23,

    /// The policy is invalid; the error says why, and where.
    InvalidPolicy = 24,
    /// A limit is invalid; the error says why.
    InvalidLimit = 25,
    /// There is no preset of this name; see tollgate_preset_name.
    UnknownPreset = 26,
    /// A limiter holds 1 to TOLLGATE_AGENTS_MAX agents.
    AgentsOutOfRange = 27,
    /// The system refused the memory. Build for fewer agents or lanes.
    OutOfMemory = 28,
    /// Only a manual clock can be moved.
    NotManual = 29,

    /// TOLLGATE_OVERRIDES_MAX agents have overrides already. Put agents with
    /// the same limits into a plan.
    TooManyOverrides = 30,
    /// Another assigned agent has the same hash: a chance of 1 in 2^64. Build a
    /// new limiter, which hashes differently.
    SameHash = 31,
    /// This process was forked while another thread was changing assignments or
    /// the policy. Checks still work; for more changes, build a limiter in the child.
    Forked = 32,
    /// The new policy has other lanes than the one in force, or another order of them.
    OtherLanes = 33,
    /// The new policy lacks a plan of the one in force. Keep the plan: callers
    /// may use its number.
    PlanMissing = 34,
    /// A file could not be read or written; the error says why. If it says that
    /// the change may not survive a power failure, the change is in force and in
    /// the file: repeat the call to make it safe.
    File = 35,
    /// No file was named: see tollgate_keep_assignments_in and tollgate_keep_budgets_in.
    NoFile = 36,

    /// Another process that shares the limiter holds a lock that the call needs,
    /// and does not go on: it is stopped, or the machine is overloaded. Try again.
    /// A check of an agent that has a record never gets this.
    Busy = 37,
    /// The shared slab cannot be made or joined, or has no room for the change, or
    /// this process was forked and can have no seat in it; the error says why.
    Shared = 38,
    /// As many calls hold slots of the shared limiter as it has room for: as many as
    /// it has agents, and at least 16,384. Release some, or make it for more agents.
    HoldsFull = 39,

    /// The lane is dynamic and has no default, and the request brings no limit.
    NoLimit = 40,
    /// The request brings a limit, and the lane has its own.
    LimitGiven = 41,
    /// Two requests of one call bring different limits for one lane of an agent.
    LimitsDiffer = 42,
}

impl Status {
    const ALL: [Self; 43] = [
        Self::Ok,
        Self::NullPointer,
        Self::StructSize,
        Self::InvalidOption,
        Self::BufferTooSmall,
        Self::NotUtf8,
        Self::TextTooLong,
        Self::BatchSize,
        Self::Parts,
        Self::NotBuiltIn,
        Self::Panic,
        Self::EmptyId,
        Self::IdTooLong,
        Self::UnknownLane,
        Self::UnknownPlan,
        Self::ZeroCost,
        Self::CostAboveCapacity,
        Self::WrongKind,
        Self::NotHeld,
        Self::Full,
        Self::ReservationsFull,
        Self::TooManyReservations,
        Self::UnknownReservation,
        Self::UsedTooLarge,
        Self::InvalidPolicy,
        Self::InvalidLimit,
        Self::UnknownPreset,
        Self::AgentsOutOfRange,
        Self::OutOfMemory,
        Self::NotManual,
        Self::TooManyOverrides,
        Self::SameHash,
        Self::Forked,
        Self::OtherLanes,
        Self::PlanMissing,
        Self::File,
        Self::NoFile,
        Self::Busy,
        Self::Shared,
        Self::HoldsFull,
        Self::NoLimit,
        Self::LimitGiven,
        Self::LimitsDiffer,
    ];

    pub(super) const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"ok",
            Self::NullPointer => c"a pointer is NULL where NULL is not allowed",
            Self::StructSize => c"struct_size is too small or above 4096; set it to sizeof the struct",
            Self::InvalidOption => c"a flag or an option has a value that this version does not know",
            Self::BufferTooSmall => c"the buffer has no room for the text and its NUL; ask for the length first",
            Self::NotUtf8 => c"a text is not UTF-8",
            Self::TextTooLong => c"a text has more than 1048576 bytes",
            Self::BatchSize => c"an array has too many elements, above 1048576 in most calls; split it",
            Self::Parts => c"all or none takes 1 to 16 requests",
            Self::NotBuiltIn => c"the library was built without this feature",
            Self::Panic => c"a bug in tollgate; the call stopped midway",
            Self::EmptyId => c"the agent id is empty; give 1 to 256 bytes",
            Self::IdTooLong => c"the agent id has more than 256 bytes; hash it first",
            Self::UnknownLane => c"the policy has no such lane",
            Self::UnknownPlan => c"the policy has no such plan",
            Self::ZeroCost => c"the cost is 0; ask for at least 1, or peek",
            Self::CostAboveCapacity => c"the cost is above the lane's capacity and can never pass",
            Self::WrongKind => c"the lane's limit is of a kind that this function does not work with",
            Self::NotHeld => c"the agent holds fewer slots than were to be released",
            Self::Full => c"there is no record for this new agent; build for more agents, or with eviction",
            Self::ReservationsFull => c"no more reservations can be open at once; build the limiter for more",
            Self::TooManyReservations => {
                c"the agent has as many open reservations as one agent may have; settle some, or allow more"
            }
            Self::UnknownReservation => c"the reservation was settled, or expired, or never existed",
            Self::UsedTooLarge => c"the settlement overspends by more than 100 times the lane's capacity",
            Self::InvalidPolicy => c"the policy is invalid; the error says why",
            Self::InvalidLimit => c"the limit is invalid; the error says why",
            Self::UnknownPreset => c"there is no preset of this name",
            Self::AgentsOutOfRange => c"a limiter holds 1 to 1073741824 agents",
            Self::OutOfMemory => c"the system refused the memory; build for fewer agents or lanes",
            Self::NotManual => c"only a manual clock can be moved",
            Self::TooManyOverrides => {
                c"65000 agents have overrides already; put agents with the same limits into a plan"
            }
            Self::SameHash => c"another assigned agent has the same hash; build a new limiter",
            Self::Forked => c"this process was forked in the middle of a change; build a limiter in the child",
            Self::OtherLanes => c"the new policy has other lanes than the one in force; keep them, in the same order",
            Self::PlanMissing => c"the new policy lacks a plan of the one in force; keep it",
            Self::File => c"a file could not be read or written; the error says why",
            Self::NoFile => c"no file was named to keep this in",
            Self::Busy => c"another process that shares the limiter holds a lock and does not go on; try again",
            Self::Shared => c"the shared slab cannot be made or joined, or has no room; the error says why",
            Self::HoldsFull => c"as many calls hold slots as the shared slab has room for; release some",
            Self::NoLimit => c"the lane is dynamic and has no default; give the request a limit",
            Self::LimitGiven => c"the request brings a limit, and the lane has its own; leave it out",
            Self::LimitsDiffer => c"two requests bring different limits for one lane of an agent",
        }
    }
}

impl From<tollgate::Error> for Status {
    fn from(error: tollgate::Error) -> Self {
        use tollgate::Error;
        match error {
            Error::EmptyId => Self::EmptyId,
            Error::IdTooLong { .. } => Self::IdTooLong,
            Error::UnknownLane { .. } => Self::UnknownLane,
            Error::UnknownPlan { .. } => Self::UnknownPlan,
            Error::ZeroCost => Self::ZeroCost,
            Error::CostAboveCapacity { .. } => Self::CostAboveCapacity,
            Error::Full => Self::Full,
            Error::Busy => Self::Busy,
            Error::HoldsFull => Self::HoldsFull,
            Error::NoSeat { .. } => Self::Shared,
            Error::BatchSize { .. } => Self::BatchSize,
            Error::NotHeld { .. } => Self::NotHeld,
            Error::NoLimit { .. } => Self::NoLimit,
            Error::LimitGiven { .. } => Self::LimitGiven,
            Error::LimitsDiffer { .. } => Self::LimitsDiffer,
            Error::WrongKind { .. } => Self::WrongKind,
            Error::Parts { .. } => Self::Parts,
            Error::ReservationsFull => Self::ReservationsFull,
            Error::UnknownReservation => Self::UnknownReservation,
            Error::TooManyReservations { .. } => Self::TooManyReservations,
            Error::UsedTooLarge { .. } => Self::UsedTooLarge,
        }
    }
}

impl From<&tollgate::BuildError> for Status {
    fn from(error: &tollgate::BuildError) -> Self {
        use tollgate::BuildError;
        match error {
            BuildError::Agents { .. } => Self::AgentsOutOfRange,
            BuildError::Reservations { .. } => Self::InvalidOption,
            BuildError::Memory { .. } => Self::OutOfMemory,
            #[cfg(feature = "shared")]
            BuildError::Shared(_) => Self::Shared,
            #[cfg(feature = "cluster")]
            BuildError::Cluster(error) => Self::from(error),
        }
    }
}

#[cfg(feature = "cluster")]
impl From<&tollgate::cluster::ClusterError> for Status {
    fn from(error: &tollgate::cluster::ClusterError) -> Self {
        use tollgate::cluster::ClusterError;
        match error {
            ClusterError::UnknownLane { .. } => Self::UnknownLane,
            ClusterError::Kind { .. } => Self::WrongKind,
            ClusterError::TooSlow { .. } | ClusterError::TooLarge { .. } => Self::InvalidLimit,
            ClusterError::Slack { .. } | ClusterError::Secret { .. } | ClusterError::Shared => Self::InvalidOption,
        }
    }
}

impl From<&tollgate::ControlError> for Status {
    fn from(error: &tollgate::ControlError) -> Self {
        use tollgate::ControlError;
        match error {
            ControlError::Agent(error) => (*error).into(),
            ControlError::UnknownLane { .. } => Self::UnknownLane,
            ControlError::UnknownPlan { .. } => Self::UnknownPlan,
            ControlError::Limit(_) => Self::InvalidLimit,
            // They hold no others of their kind.
            ControlError::Of { problem, .. } | ControlError::OfLane { problem, .. } => Self::from(&**problem),
            ControlError::TooManyOverrides => Self::TooManyOverrides,
            ControlError::SameHash => Self::SameHash,
            ControlError::Busy { .. } => Self::Busy,
            ControlError::NoMemory => Self::OutOfMemory,
            ControlError::TooManyAssignments { .. }
            | ControlError::Fixed { .. }
            | ControlError::PolicyTooLong { .. }
            | ControlError::PolicyText
            | ControlError::PolicyUnreadable => Self::Shared,
            ControlError::Forked => Self::Forked,
            ControlError::OtherLanes { .. } => Self::OtherLanes,
            ControlError::PlanMissing { .. } => Self::PlanMissing,
            #[cfg(feature = "persist")]
            ControlError::File(_) => Self::File,
            #[cfg(feature = "persist")]
            ControlError::NoFile => Self::NoFile,
        }
    }
}

/// A sentence about a status, for a log: a static string, never NULL, even for a
/// number that is not a status.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_status_text(status: i32) -> *const c_char {
    let known = Status::ALL.into_iter().find(|known| *known as i32 == status);
    known.map_or(c"not a status of this version of tollgate", Status::text).as_ptr()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_published() {
        for (number, status) in Status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, number, "{status:?}");
        }
        assert_eq!(Status::LimitsDiffer as usize + 1, Status::ALL.len());
    }

    #[test]
    fn texts_name_the_bounds_as_they_are() {
        let says = |status: Status, bound: u64| status.text().to_str().unwrap().contains(&bound.to_string());
        assert!(says(Status::IdTooLong, tollgate::bounds::ID_BYTES_MAX as u64));
        assert!(says(Status::EmptyId, tollgate::bounds::ID_BYTES_MAX as u64));
        assert!(says(Status::BatchSize, tollgate::bounds::BATCH_MAX as u64));
        assert!(says(Status::Parts, tollgate::bounds::PARTS_MAX as u64));
        assert!(says(Status::AgentsOutOfRange, tollgate::bounds::AGENTS_MAX));
        assert!(says(Status::TooManyOverrides, tollgate::bounds::OVERRIDES_MAX as u64));
        assert!(says(Status::UsedTooLarge, tollgate::bounds::OVERSPEND_MAX));
        assert!(says(Status::TextTooLong, super::super::TOLLGATE_TEXT_BYTES_MAX as u64));
        assert!(says(Status::StructSize, super::super::pointers::TAG_MAX.into()));
    }
}
