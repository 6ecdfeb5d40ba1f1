//! A lane's numbers, in the words people use: so many per period, and a burst.

use super::text::{self, Parts};
use crate::bounds::{CAPACITY_MAX, REFILL_MAX, TOKENS_PER_SECOND_MAX};
use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// How much a lane lets through: a token bucket that holds `capacity` tokens
/// and refills `tokens` of them every `per`.
///
/// The capacity is the number of tokens unless [`burst`](Limit::burst) says
/// otherwise. A limit is a description: it is checked when the policy is built.
///
/// ```
/// use std::time::Duration;
/// use tollgate::Limit;
///
/// let limit = Limit::new(10, Duration::from_secs(1)).burst(20);
/// assert_eq!("10/second burst 20".parse(), Ok(limit));
/// assert_eq!("60/min".parse(), Ok(Limit::per_minute(60)));
/// assert_eq!("5 per 5 minutes".parse(), Ok(Limit::new(5, Duration::from_secs(300))));
/// assert_eq!("deny".parse(), Ok(Limit::deny_all()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Bucket { tokens: u64, per: Duration, capacity: u64 },
    DenyAll,
}

impl Limit {
    /// `tokens` every `per`, with a burst of as many.
    #[must_use]
    pub const fn new(tokens: u64, per: Duration) -> Self {
        Self(Kind::Bucket { tokens, per, capacity: tokens })
    }

    /// `tokens` every second, with a burst of as many.
    #[must_use]
    pub const fn per_second(tokens: u64) -> Self {
        Self::new(tokens, Duration::from_secs(1))
    }

    /// `tokens` every minute, with a burst of as many.
    #[must_use]
    pub const fn per_minute(tokens: u64) -> Self {
        Self::new(tokens, MINUTE)
    }

    /// `tokens` every hour, with a burst of as many.
    #[must_use]
    pub const fn per_hour(tokens: u64) -> Self {
        Self::new(tokens, HOUR)
    }

    /// `tokens` every 24 hours, with a burst of as many.
    #[must_use]
    pub const fn per_day(tokens: u64) -> Self {
        Self::new(tokens, DAY)
    }

    /// Nothing passes, and no wait helps.
    #[must_use]
    pub const fn deny_all() -> Self {
        Self(Kind::DenyAll)
    }

    /// The same rate with room for `capacity` tokens at once.
    ///
    /// Says nothing about [`deny_all`](Limit::deny_all), which stays what it is.
    #[must_use]
    pub const fn burst(self, capacity: u64) -> Self {
        match self.0 {
            Kind::Bucket { tokens, per, .. } => Self(Kind::Bucket { tokens, per, capacity }),
            Kind::DenyAll => self,
        }
    }

    /// How many tokens a full bucket holds; 0 for [`deny_all`](Limit::deny_all).
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match self.0 {
            Kind::Bucket { capacity, .. } => capacity,
            Kind::DenyAll => 0,
        }
    }

    /// Checks the numbers against what a word can hold.
    ///
    /// # Errors
    ///
    /// Says which number is out of range and what is allowed.
    pub fn validate(&self) -> Result<(), LimitError> {
        self.compile().map(|_| ())
    }

    /// The numbers a bucket computes with.
    pub(crate) fn compile(&self) -> Result<BucketNumbers, LimitError> {
        let Kind::Bucket { tokens, per, capacity } = self.0 else {
            return Ok(BucketNumbers { ticks_per_token: NonZeroU64::MIN, capacity: 0 });
        };
        if tokens == 0 || capacity == 0 {
            return Err(LimitError::Zero);
        }
        if per.is_zero() {
            return Err(LimitError::ZeroPeriod);
        }
        if capacity > CAPACITY_MAX {
            return Err(LimitError::Capacity { capacity });
        }
        // Rounded up once, here: a token never takes less time than configured.
        let ticks_per_token = per.as_nanos().div_ceil(u128::from(tokens));
        if u64::try_from(per.as_nanos()).is_err() {
            return Err(LimitError::TooSlow { tokens, per, capacity });
        }
        if u128::from(tokens) > per.as_nanos() {
            return Err(LimitError::TooFast { tokens, per });
        }
        match u64::try_from(ticks_per_token).ok().and_then(NonZeroU64::new) {
            Some(ticks) if u128::from(ticks.get()) * u128::from(capacity) < REFILL_MAX.as_nanos() => {
                Ok(BucketNumbers { ticks_per_token: ticks, capacity })
            }
            _ => Err(LimitError::TooSlow { tokens, per, capacity }),
        }
    }
}

/// Numbers that make sense: a whole bucket refills in less than [`REFILL_MAX`]. Capacity 0 is a lane that denies everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketNumbers {
    pub(crate) ticks_per_token: NonZeroU64,
    pub(crate) capacity: u64,
}

impl fmt::Display for Limit {
    /// Writes the text form, which parses back to the same limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Kind::Bucket { tokens, per, capacity } = self.0 else {
            return f.write_str("deny");
        };
        write!(f, "{tokens}/")?;
        match text::unit_of(per) {
            (1, unit) => f.write_str(unit.name())?,
            (count, unit) => write!(f, "{count}{}", unit.short())?,
        }
        if capacity != tokens {
            write!(f, " burst {capacity}")?;
        }
        Ok(())
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    /// Reads `"10/second burst 20"`, `"60/min"`, `"5 per 5 minutes"` or
    /// `"deny"`. Numbers may have underscores; the numbers are checked too.
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let syntax = || LimitError::Syntax { text: text.chars().take(80).collect() };
        let number = |digits| text::number(digits).ok_or_else(|| too_large(digits));
        let mut parts = Parts(text.trim());
        if parts.0 == "deny" {
            return Ok(Self::deny_all());
        }
        let tokens = number(parts.digits().ok_or_else(syntax)?)?;
        if !parts.take("/") && !parts.take("per") {
            return Err(syntax());
        }
        let count = parts.digits().map_or(Ok(1), number)?;
        let unit = text::unit_named(parts.word()).ok_or_else(syntax)?;
        let per = unit.times(count).ok_or_else(|| too_large(&format!("{count}{}", unit.short())))?;
        let mut limit = Self::new(tokens, per);
        if parts.take("burst") {
            limit = limit.burst(number(parts.digits().ok_or_else(syntax)?)?);
        }
        if !parts.0.is_empty() {
            return Err(syntax());
        }
        limit.validate()?;
        Ok(limit)
    }
}

fn too_large(number: &str) -> LimitError {
    LimitError::TooLarge { number: number.chars().take(40).collect() }
}

impl TryFrom<&str> for Limit {
    type Error = LimitError;

    fn try_from(text: &str) -> Result<Self, LimitError> {
        text.parse()
    }
}

/// What is wrong with a limit's numbers or text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// A rate or a burst of 0.
    Zero,
    /// A period of no length.
    ZeroPeriod,
    /// The capacity is above [`CAPACITY_MAX`].
    Capacity {
        /// The capacity as given.
        capacity: u64,
    },
    /// The refill is faster than [`TOKENS_PER_SECOND_MAX`].
    TooFast {
        /// Tokens per period.
        tokens: u64,
        /// The period.
        per: Duration,
    },
    /// A full refill would take [`REFILL_MAX`] or longer.
    TooSlow {
        /// Tokens per period.
        tokens: u64,
        /// The period.
        per: Duration,
        /// How many tokens a full refill is.
        capacity: u64,
    },
    /// A number of the text is larger than any that is allowed.
    TooLarge {
        /// The number as given, its first 40 characters.
        number: String,
    },
    /// The text is not a limit.
    Syntax {
        /// The text as given, its first 80 characters.
        text: String,
    },
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitError::Zero => {
                write!(f, "a rate or burst of 0; give at least 1, or \"deny\" to let nothing through")
            }
            LimitError::ZeroPeriod => write!(f, "a period of 0; give at least 1 nanosecond"),
            LimitError::Capacity { capacity } => {
                write!(f, "capacity {capacity}; allowed are 1 to {CAPACITY_MAX}")
            }
            LimitError::TooFast { tokens, per } => {
                write!(f, "{tokens} tokens per {per:?}; at most {TOKENS_PER_SECOND_MAX} per second are allowed")
            }
            LimitError::TooSlow { tokens, per, capacity } => write!(
                f,
                "{capacity} tokens at {tokens} per {per:?} take ten years or more to refill; allowed is less than {} seconds",
                REFILL_MAX.as_secs()
            ),
            LimitError::TooLarge { number } => write!(
                f,
                "{number} is too large; capacities are up to {CAPACITY_MAX}, rates up to {TOKENS_PER_SECOND_MAX} per second, periods less than {} seconds",
                REFILL_MAX.as_secs()
            ),
            LimitError::Syntax { text } => write!(
                f,
                "{text:?} is not a limit; write \"10/second burst 20\", \"60/min\", \"5 per 5 minutes\" or \"deny\""
            ),
        }
    }
}

impl std::error::Error for LimitError {}

impl From<Infallible> for LimitError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, limit) in [
            ("60/min", Limit::per_minute(60)),
            (" 60 / minute ", Limit::per_minute(60)),
            ("1_000/s burst 2_000", Limit::per_second(1_000).burst(2_000)),
            ("5 per 5 minutes", Limit::new(5, Duration::from_secs(300))),
            ("3/300s", Limit::new(3, Duration::from_secs(300))),
            ("1/day", Limit::per_day(1)),
            ("7/250ms burst 1", Limit::new(7, Duration::from_millis(250)).burst(1)),
            ("deny", Limit::deny_all()),
        ] {
            assert_eq!(text.parse(), Ok(limit), "{text}");
            assert_eq!(limit.to_string().parse(), Ok(limit), "{limit}");
        }
    }

    #[test]
    fn refuses_what_is_no_limit() {
        for text in
            ["", "60", "60/", "/min", "60/fortnight", "60/min burst", "60/min burst 5 x", "-1/s", "1.5/s", "_/s"]
        {
            assert!(matches!(text.parse::<Limit>(), Err(LimitError::Syntax { .. })), "{text:?}");
        }
    }

    #[test]
    fn a_number_past_every_range_is_named() {
        for (text, expected) in [
            ("99999999999999999999/s", "99999999999999999999"),
            ("1/99999999999999999999s", "99999999999999999999"),
            ("1/s burst 99_999_999_999_999_999_999", "99_999_999_999_999_999_999"),
            ("1/300000days", "300000d"),
        ] {
            assert_eq!(text.parse::<Limit>(), Err(LimitError::TooLarge { number: expected.into() }), "{text}");
        }
    }

    #[test]
    fn zero_is_an_error_that_names_deny() {
        for limit in [Limit::per_minute(0), Limit::per_minute(5).burst(0)] {
            let error = limit.validate().expect_err("zero must be refused");
            assert!(error.to_string().contains("\"deny\""), "{error}");
        }
        assert_eq!(Limit::new(5, Duration::ZERO).validate(), Err(LimitError::ZeroPeriod));
    }

    #[test]
    fn the_edges_of_the_range_are_allowed_and_one_past_them_is_not() {
        assert_eq!(Limit::per_second(TOKENS_PER_SECOND_MAX).validate(), Ok(()));
        assert!(Limit::per_second(TOKENS_PER_SECOND_MAX + 1).validate().is_err());
        assert_eq!(Limit::per_second(TOKENS_PER_SECOND_MAX).burst(CAPACITY_MAX).validate(), Ok(()));
        assert!(Limit::per_second(TOKENS_PER_SECOND_MAX).burst(CAPACITY_MAX + 1).validate().is_err());
        assert_eq!(Limit::per_day(1).burst(3_652).validate(), Ok(()));
        assert!(Limit::per_day(1).burst(3_653).validate().is_err());
        assert!(Limit::new(1, Duration::MAX).burst(CAPACITY_MAX).validate().is_err());
        // A thousand years: 32 seconds a token, but no text could say it.
        assert!(Limit::new(CAPACITY_MAX, Duration::from_secs(31_536_000_000)).burst(1).validate().is_err());
    }

    #[test]
    fn a_token_never_takes_less_time_than_configured() {
        assert_eq!(Limit::per_minute(7).compile().map(|numbers| numbers.ticks_per_token.get()), Ok(8_571_428_572));
        assert_eq!(Limit::per_minute(10).compile().map(|numbers| numbers.ticks_per_token.get()), Ok(6_000_000_000));
    }
}
