//! What can be wrong with a limit.

use crate::bounds::{
    CAPACITY_MAX, EXACT_MAX, HELD_MAX, REFILL_MAX, TOKENS_PER_SECOND_MAX, WINDOW_MAX, WINDOW_MIN, ZONE_MINUTES_MAX,
};
use std::convert::Infallible;
use std::fmt;
use std::time::Duration;

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
    /// A window is [`WINDOW_MIN`] to [`WINDOW_MAX`] long.
    WindowLength {
        /// The length as given.
        length: Duration,
    },
    /// The counts of a window do not fit into its words: the shorter the window,
    /// the more of a word numbers its thirds.
    WindowCount {
        /// The count as given.
        count: u64,
        /// The length of the window.
        length: Duration,
        /// The largest count for this length.
        most: u64,
    },
    /// An exact window has up to [`EXACT_MAX`] permits.
    ExactCount {
        /// The count as given.
        count: u64,
    },
    /// The lane's records have fewer words for permits than the limit needs.
    ExactRoom {
        /// The count as given.
        count: u64,
        /// How many there are: the largest limit of the policy that the
        /// limiter was built with.
        room: usize,
    },
    /// A zone is at most [`ZONE_MINUTES_MAX`] from UTC.
    Zone {
        /// The zone as given.
        minutes: i16,
    },
    /// At most [`HELD_MAX`] slots.
    Held {
        /// The number as given.
        slots: u64,
    },
    /// The lane is of another kind, or its window of another length.
    OtherKind {
        /// The limit as text.
        limit: String,
        /// A limit of the lane as text.
        known: String,
    },
    /// Only a bucket can say what happens to a cost above its capacity.
    Oversize {
        /// The limit as text, without `oversize`.
        limit: String,
    },
    /// Only a plan's total can be `"unlimited"`.
    Unlimited,
    /// A plan's total is a bucket, a window or a budget.
    Total {
        /// The limit as text.
        limit: String,
    },
    /// A call brings a bucket without debt along, and no other kind of limit.
    OfCall {
        /// The limit as text.
        limit: String,
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
                write!(f, "capacity {capacity}; allowed: 1 to {CAPACITY_MAX}")
            }
            LimitError::TooFast { tokens, per } => {
                write!(f, "{tokens} tokens per {per:?}; at most {TOKENS_PER_SECOND_MAX} per second are allowed")
            }
            LimitError::TooSlow { tokens, per, capacity } => write!(
                f,
                "{capacity} tokens at {tokens} per {per:?} take ten years or more to refill; allowed: less than {} seconds",
                REFILL_MAX.as_secs()
            ),
            LimitError::WindowLength { length } => {
                write!(f, "a window of {length:?}; allowed: {WINDOW_MIN:?} to {} days", WINDOW_MAX.as_secs() / 86_400)
            }
            LimitError::WindowCount { count, length, most } => write!(
                f,
                "{count} in a window of {length:?}; at most {most} fit into its words; take a longer window, or a bucket"
            ),
            LimitError::ExactCount { count } => write!(
                f,
                "an exact window of {count}; allowed: 1 to {EXACT_MAX}; take a window for more, which is stricter"
            ),
            LimitError::ExactRoom { count, room } => write!(
                f,
                "an exact window of {count}; the records of this limiter have room for {room}; name the larger limit in a plan when the limiter is built"
            ),
            LimitError::Zone { minutes } => {
                write!(f, "a zone {minutes} minutes ahead of UTC; allowed: -{ZONE_MINUTES_MAX} to {ZONE_MINUTES_MAX}")
            }
            LimitError::Held { slots } => write!(f, "{slots} slots; allowed: 1 to {HELD_MAX}"),
            LimitError::OtherKind { limit, known } => write!(
                f,
                "{limit:?} is of another kind than {known:?}; a lane keeps its kind and its period in every plan, and changes its numbers or is \"deny\""
            ),
            LimitError::Oversize { limit } => write!(
                f,
                "{limit:?} can't have \"oversize\"; only a bucket can take a cost above its capacity on credit, such as \"10/second oversize debt\""
            ),
            LimitError::Unlimited => write!(
                f,
                "\"unlimited\" is for the total of a plan; give a lane a large limit, or exempt the agents that are never limited"
            ),
            LimitError::Total { limit } => write!(
                f,
                "{limit:?} is the limit of a single lane; a total is a bucket, a window or a budget, such as \"20/min\" or \"budget 1000/day\""
            ),
            LimitError::OfCall { limit } => {
                write!(f, "{limit:?} can't travel with a call; a call brings a bucket, such as \"10/second burst 20\"")
            }
            LimitError::TooLarge { number } => write!(
                f,
                "{number} is too large; capacities are up to {CAPACITY_MAX}, rates up to {TOKENS_PER_SECOND_MAX} per second, periods less than {} seconds",
                REFILL_MAX.as_secs()
            ),
            LimitError::Syntax { text } => write!(
                f,
                "{text:?} is not a limit; write \"10/second burst 20\", \"60/min\", \"5 per 5 minutes\" or \"deny\", or of another kind \"window 100/min\", \"exact 5/5min\", \"budget 10000/day\", \"held 3\" or \"dynamic\""
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
