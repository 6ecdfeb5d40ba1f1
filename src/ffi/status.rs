//! Status codes.

use crate as tollgate;
use std::ffi::{CStr, c_char};

/// What came of a call. The numbers are part of the ABI: later versions add
/// to them and never use one again.
///
/// Any function that returns a status may also return
/// TOLLGATE_STATUS_NULL_POINTER and TOLLGATE_STATUS_PANIC; its comment lists
/// the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// The call did what it says. A denial is this too: it is a verdict.
    Ok = 0,
    /// A pointer is NULL that must not be.
    NullPointer = 1,
    /// The struct_size of a struct is smaller than any version of the struct,
    /// or absurdly large. Set it to sizeof the struct.
    StructSize = 2,
    /// The agent id has no bytes.
    EmptyId = 3,
    /// The agent id has more than TOLLGATE_ID_BYTES_MAX bytes.
    IdTooLong = 4,
    /// The policy has no such lane.
    UnknownLane = 5,
    /// A cost of 0 asks nothing; look with tollgate_limiter_status.
    ZeroCost = 6,
    /// The cost is larger than the lane's capacity, so it can never pass.
    CostAboveCapacity = 7,
    /// The agent is new, and no record may be given up for it.
    Full = 8,
    /// More than TOLLGATE_BATCH_MAX requests in one batch.
    BatchSize = 9,
    /// The policy makes no sense; the error's message says why.
    InvalidPolicy = 10,
    /// A limiter holds 1 to TOLLGATE_AGENTS_MAX agents.
    AgentsOutOfRange = 11,
    /// The system would not reserve the memory.
    OutOfMemory = 12,
    /// An option has a value that this version does not know.
    InvalidOption = 13,
    /// A text is not UTF-8. Agent ids need not be: they are bytes.
    NotUtf8 = 14,
    /// A text has more than TOLLGATE_TEXT_BYTES_MAX bytes.
    TextTooLong = 15,
    /// The buffer cannot hold the text and its NUL.
    BufferTooSmall = 16,
    /// Only a manual clock can be moved.
    NotManual = 17,
    /// The default limiter exists already.
    AlreadyMade = 18,
    /// A bug in tollgate: please report it. The call was given up midway; the
    /// limiter can be used further.
    Panic = 19,
    /// The policy has no such plan.
    UnknownPlan = 20,
    /// A limit makes no sense; the error's message says why.
    InvalidLimit = 21,
    /// TOLLGATE_OVERRIDES_MAX agents have overrides already.
    TooManyOverrides = 22,
    /// Another agent with an assignment has the same hash: a chance of 1 in
    /// 2^64.
    SameHash = 23,
    /// The process was forked while another thread changed something, and the
    /// change is half made. Checks go on.
    Forked = 24,
    /// The new policy has other lanes than the one in force.
    OtherLanes = 25,
    /// The new policy lacks a plan of the one in force.
    PlanMissing = 26,
    /// The file of assignments could not be read or written; the error's
    /// message says why. If it says that the file may not outlive a power
    /// failure, the file has the change already: repeat the call.
    File = 27,
    /// Assignments are not kept in a file.
    NoFile = 28,
    /// The library was built without what this needs; see tollgate_features.
    NotBuiltIn = 29,
    /// There is no preset of this name; the error's message lists those there are.
    UnknownPreset = 30,
    /// There is no element of this number.
    OutOfRange = 31,
    /// More slots were released than the agent holds.
    NotHeld = 32,
    /// The call does not make sense for a lane of this kind.
    WrongKind = 33,
    /// All or none: 1 to 16 parts.
    Parts = 34,
    /// As many reservations are open as the limiter was built for.
    ReservationsFull = 35,
    /// The reservation was settled, its time has passed, or it never was.
    UnknownReservation = 36,
    /// The agent has as many reservations open as one agent may.
    TooManyReservations = 37,
    /// A commit used so much more than was reserved that it must be a mistake:
    /// more than TOLLGATE_OVERSPEND_MAX times the lane's capacity.
    UsedTooLarge = 38,
}

impl Status {
    const ALL: [Self; 39] = [
        Self::Ok,
        Self::NullPointer,
        Self::StructSize,
        Self::EmptyId,
        Self::IdTooLong,
        Self::UnknownLane,
        Self::ZeroCost,
        Self::CostAboveCapacity,
        Self::Full,
        Self::BatchSize,
        Self::InvalidPolicy,
        Self::AgentsOutOfRange,
        Self::OutOfMemory,
        Self::InvalidOption,
        Self::NotUtf8,
        Self::TextTooLong,
        Self::BufferTooSmall,
        Self::NotManual,
        Self::AlreadyMade,
        Self::Panic,
        Self::UnknownPlan,
        Self::InvalidLimit,
        Self::TooManyOverrides,
        Self::SameHash,
        Self::Forked,
        Self::OtherLanes,
        Self::PlanMissing,
        Self::File,
        Self::NoFile,
        Self::NotBuiltIn,
        Self::UnknownPreset,
        Self::OutOfRange,
        Self::NotHeld,
        Self::WrongKind,
        Self::Parts,
        Self::ReservationsFull,
        Self::UnknownReservation,
        Self::TooManyReservations,
        Self::UsedTooLarge,
    ];

    pub(super) const fn text(self) -> &'static CStr {
        match self {
            Self::Ok => c"ok",
            Self::NullPointer => c"a pointer is NULL that must not be",
            Self::StructSize => c"struct_size is too small or absurdly large; set it to sizeof the struct",
            Self::EmptyId => c"the agent id is empty; give 1 to 256 bytes",
            Self::IdTooLong => c"the agent id has more than 256 bytes",
            Self::UnknownLane => c"the policy has no such lane",
            Self::ZeroCost => c"cost 0 asks nothing; give at least 1, or look with the status call",
            Self::CostAboveCapacity => c"the cost exceeds the lane's capacity and can never pass",
            Self::Full => c"no record is free for this new agent; build for more agents, or let it give records up",
            Self::BatchSize => c"a batch of more than 1048576 requests; split it",
            Self::InvalidPolicy => c"the policy makes no sense; the error's message says why",
            Self::AgentsOutOfRange => c"a limiter holds 1 to 1073741824 agents",
            Self::OutOfMemory => c"the system would not reserve the memory; build for fewer agents or lanes",
            Self::InvalidOption => c"an option has a value that this version does not know",
            Self::NotUtf8 => c"a text is not UTF-8",
            Self::TextTooLong => c"a text of more than 1048576 bytes",
            Self::BufferTooSmall => c"the buffer cannot hold the text and its NUL; ask for the length first",
            Self::NotManual => c"only a manual clock can be moved",
            Self::AlreadyMade => c"the default limiter exists already; configure it before its first use",
            Self::Panic => c"a bug in tollgate; the call was given up midway",
            Self::UnknownPlan => c"the policy has no such plan",
            Self::InvalidLimit => c"the limit makes no sense; the error's message says why",
            Self::TooManyOverrides => {
                c"65000 agents have overrides already; put agents with the same limits into a plan"
            }
            Self::SameHash => c"another assigned agent has the same hash; make the limiter anew",
            Self::Forked => {
                c"this process was forked in the midst of another thread's change; make a limiter in the child"
            }
            Self::OtherLanes => {
                c"the new policy has other lanes than the one in force; give it the same, in the same order"
            }
            Self::PlanMissing => {
                c"the new policy lacks a plan of the one in force; keep it, since callers may use its number"
            }
            Self::File => c"the file of assignments could not be read or written; the error's message says why",
            Self::NoFile => c"assignments are not kept in a file; name one first",
            Self::NotBuiltIn => c"the library was built without what this needs",
            Self::UnknownPreset => c"there is no preset of this name",
            Self::OutOfRange => c"there is no element of this number",
            Self::NotHeld => c"more slots were released than the agent holds",
            Self::WrongKind => c"the call does not make sense for a lane of this kind",
            Self::Parts => c"all or none takes 1 to 16 parts",
            Self::ReservationsFull => c"no more reservations can be open at once; build the limiter for more",
            Self::TooManyReservations => {
                c"the agent has as many reservations open as one agent may; commit or cancel some, or allow more"
            }
            Self::UsedTooLarge => c"more than 100 times the lane's capacity was used beyond what was reserved",
            Self::UnknownReservation => c"the reservation was settled, its time has passed, or it never was",
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
            Error::BatchSize { .. } => Self::BatchSize,
            Error::NotHeld { .. } => Self::NotHeld,
            Error::WrongKind { .. } => Self::WrongKind,
            Error::Parts { .. } => Self::Parts,
            Error::ReservationsFull => Self::ReservationsFull,
            Error::UnknownReservation => Self::UnknownReservation,
            Error::TooManyReservations { .. } => Self::TooManyReservations,
            Error::UsedTooLarge { .. } => Self::UsedTooLarge,
        }
    }
}

impl From<tollgate::BuildError> for Status {
    fn from(error: tollgate::BuildError) -> Self {
        use tollgate::BuildError;
        match error {
            BuildError::Agents { .. } => Self::AgentsOutOfRange,
            BuildError::Reservations { .. } => Self::InvalidOption,
            BuildError::Memory { .. } => Self::OutOfMemory,
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

/// A sentence on a status, NUL-terminated. It is part of the library: never
/// free it. A number that is no status has a sentence too.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_status_text(status: i32) -> *const c_char {
    let known = Status::ALL.into_iter().find(|known| *known as i32 == status);
    known.map_or(c"no status of this version of tollgate", Status::text).as_ptr()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_published() {
        for (number, status) in Status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, number, "{status:?}");
        }
        assert_eq!(Status::UsedTooLarge as usize + 1, Status::ALL.len());
    }

    #[test]
    fn texts_name_the_bounds_as_they_are() {
        let says = |status: Status, bound: u64| status.text().to_str().unwrap().contains(&bound.to_string());
        assert!(says(Status::IdTooLong, tollgate::bounds::ID_BYTES_MAX as u64));
        assert!(says(Status::EmptyId, tollgate::bounds::ID_BYTES_MAX as u64));
        assert!(says(Status::BatchSize, tollgate::bounds::BATCH_MAX as u64));
        assert!(says(Status::AgentsOutOfRange, tollgate::bounds::AGENTS_MAX));
        assert!(says(Status::TooManyOverrides, tollgate::bounds::OVERRIDES_MAX as u64));
        assert!(says(Status::UsedTooLarge, tollgate::bounds::OVERSPEND_MAX));
        assert!(says(Status::TextTooLong, super::super::TOLLGATE_TEXT_BYTES_MAX as u64));
    }
}
