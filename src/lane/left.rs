//! What is left of a lane, in one word of a verdict.

/// How a verdict stores what is left. Its finding holds the form, so that the
/// verdict of a bucket, the most frequent one, needs no extra word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Refills,
    Counts,
}

/// What is left of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// In a bucket it follows from the time until it is full. The division waits
    /// until somebody asks for it.
    Refills { token_ns: u64 },
    /// In every other kind it was counted. A window length of 0 means no window.
    Counted { left: u64, window_ns: u64 },
}

/// The word behind [`Left`]. For a lane that refills it is how long a token takes,
/// in nanoseconds; for one that counts:
///
/// ```text
///  63  62      41    40     39                  0
/// ┌───┬──────────┬──────────┬─────────────────────┐
/// │ 0 │length, 22│ seconds? │      left, 40       │   the length is in seconds or milliseconds
/// └───┴──────────┴──────────┴─────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct LeftWord(u64);

const SECONDS_SHIFT: u32 = 40;
const LENGTH_SHIFT: u32 = 41;
const LENGTH_MAX: u64 = (1 << 22) - 1;
const LEFT_MAX: u64 = (1 << SECONDS_SHIFT) - 1;
/// From here on a length is kept in seconds.
const HOUR_MS: u64 = 3_600_000;
const MILLI_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

const _: () = assert!(crate::bounds::CAPACITY_MAX <= LEFT_MAX);
const _: () = assert!(HOUR_MS <= LENGTH_MAX && crate::bounds::WINDOW_MAX.as_secs() <= LENGTH_MAX);

impl LeftWord {
    #[inline(always)]
    pub(super) const fn refills(token_ns: u64) -> Self {
        Self(token_ns)
    }

    /// The count of a torn limit may be too large; such a verdict is thrown away.
    pub(super) const fn counted(left: u64, window_ns: u64) -> Self {
        let millis = window_ns.div_ceil(MILLI_NS);
        let (length, is_seconds) =
            if millis < HOUR_MS { (millis, 0) } else { (window_ns.div_ceil(SECOND_NS) & LENGTH_MAX, 1) };
        let left = if left > LEFT_MAX { LEFT_MAX } else { left };
        Self(length << LENGTH_SHIFT | is_seconds << SECONDS_SHIFT | left)
    }

    #[inline(always)]
    pub(super) const fn read(self, form: Form) -> Left {
        let word = self.0;
        match form {
            Form::Refills => Left::Refills { token_ns: word },
            Form::Counts => {
                let unit = if word >> SECONDS_SHIFT & 1 == 1 { SECOND_NS } else { MILLI_NS };
                Left::Counted { left: word & LEFT_MAX, window_ns: (word >> LENGTH_SHIFT) * unit }
            }
        }
    }
}

/// A window's length as verdicts report it: rounded up to the millisecond, from
/// an hour on to the second.
pub(super) const fn reported_ns(window_ns: u64) -> u64 {
    match LeftWord::counted(0, window_ns).read(Form::Counts) {
        Left::Counted { window_ns, .. } => window_ns,
        Left::Refills { .. } => 0,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::bounds::{CAPACITY_MAX, WINDOW_MAX};
    use crate::clock::nanos_saturating;

    const HOUR_NS: u64 = HOUR_MS * MILLI_NS;

    fn counted(left: u64, window_ns: u64) -> Left {
        LeftWord::counted(left, window_ns).read(Form::Counts)
    }

    #[test]
    fn what_is_left_and_the_length_round_trip() {
        for left in [0, 1, CAPACITY_MAX] {
            for (length, reported) in [
                (0, 0),
                (1, MILLI_NS),
                (60 * SECOND_NS, 60 * SECOND_NS),
                (HOUR_NS + 1, HOUR_NS + SECOND_NS),
                (nanos_saturating(WINDOW_MAX), nanos_saturating(WINDOW_MAX)),
            ] {
                assert_eq!(counted(left, length), Left::Counted { left, window_ns: reported }, "{left} in {length}");
                assert_eq!(reported_ns(length), reported);
            }
        }
        assert_eq!(LeftWord::refills(5).read(Form::Refills), Left::Refills { token_ns: 5 });
    }

    #[test]
    fn lengths_are_kept_in_seconds_from_an_hour_on_and_no_count_spills() {
        assert_eq!(LeftWord::counted(7, HOUR_NS - MILLI_NS), LeftWord(3_599_999 << LENGTH_SHIFT | 7));
        for length in [HOUR_NS - 999_999, HOUR_NS, HOUR_NS + 1 - SECOND_NS] {
            assert_eq!(reported_ns(length), length.next_multiple_of(MILLI_NS), "{length}");
        }
        assert_eq!(LeftWord::counted(7, HOUR_NS), LeftWord(3_600 << LENGTH_SHIFT | 1 << SECONDS_SHIFT | 7));
        assert_eq!(counted(u64::MAX, 0), Left::Counted { left: LEFT_MAX, window_ns: 0 });
        assert_eq!(counted(LEFT_MAX, HOUR_NS), Left::Counted { left: LEFT_MAX, window_ns: HOUR_NS });
    }
}
