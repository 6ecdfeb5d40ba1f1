//! Which clocks of two processes can be compared.

use super::os::OsClock;
use super::{Clock, ManualClock, Source};

/// What instants of a clock mean: those of two clocks of one kind can be compared, in all processes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClockKind {
    /// The counter and the OS clock, which it is held to.
    Monotonic = 1,
    Coarse = 2,
    Boottime = 3,
    /// Of each process its own: for tests.
    Manual = 4,
}

impl ClockKind {
    pub(crate) const fn from_number(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Monotonic),
            2 => Some(Self::Coarse),
            3 => Some(Self::Boottime),
            4 => Some(Self::Manual),
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Monotonic => "auto or os",
            Self::Coarse => "coarse",
            Self::Boottime => "boottime",
            Self::Manual => "manual",
        }
    }
}

impl Clock {
    /// What its instants mean.
    pub(crate) fn kind(&self) -> ClockKind {
        match &self.0 {
            Source::Counter(_) | Source::Os(OsClock::Monotonic) => ClockKind::Monotonic,
            Source::Os(OsClock::Coarse) => ClockKind::Coarse,
            Source::Os(OsClock::Boottime) => ClockKind::Boottime,
            Source::Manual(_) => ClockKind::Manual,
        }
    }

    /// A clock of this kind.
    pub(crate) fn of_kind(kind: ClockKind) -> Self {
        match kind {
            ClockKind::Monotonic => Self::auto(),
            ClockKind::Coarse => Self::coarse(),
            ClockKind::Boottime => Self::boottime(),
            ClockKind::Manual => ManualClock::new().into(),
        }
    }
}
