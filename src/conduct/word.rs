//! The word of an agent's conduct.
//!
//! ```text
//!  63                30 29        15 14    9 8         5  4      3        0
//! ┌────────────────────┬────────────┬───────┬───────────┬───────┬──────────┐
//! │   last, 34 bits    │ age, 15    │ count │ in a row  │raised │generation│
//! └────────────────────┴────────────┴───────┴───────────┴───────┴──────────┘
//! ```
//!
//! - *last*: the instant of the last violation, in eighths of a second,
//!   rounded up: an agent is forgiven up to an eighth of a second late, never early.
//! - *age*: how long before *last* the window of the abuse threshold began. Its
//!   start is rounded up likewise.
//! - *count*: violations in that window, up to 63. A window begins with the
//!   first violation after the previous window is over.
//! - *in a row*: violations without a quiet period between them, up to 15.
//! - *raised*: sustained abuse was reported. It is reported again only after a
//!   window without any violation.
//!
//! A word whose counts are 0 is blank, whatever *last* is.
//!
//! Once both counts are at their maximum, *last* is rounded up to a whole
//! second: an agent that is denied a million times a second writes its word
//! 63 times in each window, and otherwise once a second.

use crate::bounds::{ABUSE_VIOLATIONS_MAX, ABUSE_WINDOW_MAX, CURVE_STEPS_MAX};
use crate::clock::Tick;
use crate::lane::Word;
use std::fmt;

pub(super) const GENERATION_MASK: u64 = 0xf;
pub(super) const RAISED_SHIFT: u32 = 4;
pub(super) const IN_A_ROW_SHIFT: u32 = 5;
pub(super) const IN_A_ROW_MAX: u64 = 15;
pub(super) const COUNT_SHIFT: u32 = 9;
pub(super) const COUNT_MAX: u64 = 63;
pub(super) const AGE_SHIFT: u32 = 15;
pub(super) const AGE_MAX: u64 = (1 << 15) - 1;
pub(super) const LAST_SHIFT: u32 = 30;

/// Units of time in a second, and nanoseconds in one.
pub(super) const UNITS_PER_SECOND: u64 = 8;
pub(super) const UNIT_NANOS: u64 = 1_000_000_000 / UNITS_PER_SECOND;

const _: () = assert!(CURVE_STEPS_MAX as u64 == IN_A_ROW_MAX);
const _: () = assert!(ABUSE_VIOLATIONS_MAX as u64 == COUNT_MAX);
const _: () = assert!(ABUSE_WINDOW_MAX.as_secs() * UNITS_PER_SECOND <= AGE_MAX);
const _: () = assert!(Tick::MAX.as_nanos().div_ceil(UNIT_NANOS) + UNITS_PER_SECOND < 1 << (64 - LAST_SHIFT));

/// A record's conduct word. Zero, like every blank word, is an agent without violations.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct ConductWord(pub(super) u64);

impl Word for ConductWord {
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn bits(self) -> u64 {
        self.0
    }
}

/// The fields of the word, times in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConductFields {
    pub(super) last: u64,
    pub(super) age: u64,
    pub(super) count: u64,
    pub(super) in_a_row: u64,
    pub(super) raised: bool,
}

impl ConductWord {
    pub(super) const fn fields(self) -> ConductFields {
        ConductFields {
            last: self.0 >> LAST_SHIFT,
            age: self.0 >> AGE_SHIFT & AGE_MAX,
            count: self.0 >> COUNT_SHIFT & COUNT_MAX,
            in_a_row: self.0 >> IN_A_ROW_SHIFT & IN_A_ROW_MAX,
            raised: self.0 >> RAISED_SHIFT & 1 != 0,
        }
    }

    /// The same tenancy with other fields.
    pub(super) const fn with(self, fields: ConductFields) -> Self {
        let ConductFields { last, age, count, in_a_row, raised } = fields;
        debug_assert!(age <= AGE_MAX && count <= COUNT_MAX && in_a_row <= IN_A_ROW_MAX);
        Self(
            last << LAST_SHIFT
                | age << AGE_SHIFT
                | count << COUNT_SHIFT
                | in_a_row << IN_A_ROW_SHIFT
                | (raised as u64) << RAISED_SHIFT
                | self.0 & GENERATION_MASK,
        )
    }

    /// A blank word for the next tenancy. When the generations start over, the
    /// age moves on, so that the word of sixteen tenancies ago does not return.
    /// In a blank word the age has no other meaning.
    ///
    /// With violations it does, so a word with violations returns if the tenant
    /// sixteen tenancies later has as many of them in the same eighth of a
    /// second. A call that stalled all the while would then count as a
    /// violation of that tenant.
    pub(crate) const fn next_tenancy(self) -> Self {
        let ConductFields { last, age, .. } = self.fields();
        let generation = self.0.wrapping_add(1) & GENERATION_MASK;
        let age = if generation == 0 { age.wrapping_add(1) & AGE_MAX } else { age };
        Self(last << LAST_SHIFT | age << AGE_SHIFT | generation)
    }

    /// Whether it no longer matters: no violation after `since`.
    pub(crate) const fn is_idle(self, since: Tick) -> bool {
        let ConductFields { last, count, in_a_row, .. } = self.fields();
        (count == 0 && in_a_row == 0) || last * UNIT_NANOS <= since.as_nanos()
    }
}

impl fmt::Debug for ConductWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConductWord({:?}, generation {})", self.fields(), self.0 & GENERATION_MASK)
    }
}

/// An instant in units, rounded up, never 0.
pub(super) fn units(now: Tick) -> u64 {
    now.as_nanos().div_ceil(UNIT_NANOS).max(1)
}

/// An instant in whole seconds, rounded up, in units.
pub(super) fn units_of_seconds(now: Tick) -> u64 {
    units(now).next_multiple_of(UNITS_PER_SECOND)
}
