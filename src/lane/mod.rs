//! One kind of limit per file: what an operator writes, what the word means,
//! and the pure steps on it.
//!
//! A lane is one word, or a few. Every kind of limit is a pure function from
//! these and the present instant to an [`Outcome`]: no atomics, no clock, no
//! allocation. [`Record`](crate::record::Record) applies it with one
//! compare-exchange.
//!
//! | kind | file | the word's 60 bits | fresh |
//! |---|---|---|---|
//! | token bucket | `bucket.rs` | the instant at which the bucket is full again | 0 |
//! | bucket with debt | `bucket/debt.rs` | the same | 0 |
//! | exact window | `exact.rs` | the instant at which a permit is free again; a lane has several such words | 0 |
//! | window | `window.rs` | the number of a third of a window, and the counts of it and of the one before; a lane has two such words | 0 |
//! | budget | `budget.rs` | a calendar window's number, and what was used of it | 0 |
//! | held slots | `held.rs` | how many are held | 0 |
//! | bucket that machines share | `clustered.rs` | what this machine may spend or owes; a second word is a bucket's, as the store last reported it | 0 |
//! | bucket whose limit travels with each call | `dynamic.rs` | that of a bucket | 0 |
//! | budget that machines share | `clustered/budget.rs` | a calendar window's number, and what this machine may spend in it or owes; of two further words one is a budget's, as the store last reported it | 0 |
//!
//! `rules.rs` is the trait that every kind implements, and `kind.rs` has the one
//! enum of kinds and the one dispatch.
//!
//! | shared by the kinds | file |
//! |---|---|
//! | a word and its generation | `word.rs` |
//! | a word that is an instant | `instant.rs` |
//! | a limit that is a count | `count.rs` |
//! | a limit that a call brings along | `call_limit.rs` |
//! | what the next tenant of a word finds | `succession.rs` |
//! | [`Limit`], its text, what can be wrong with it | `limit.rs`, `limit_text.rs`, `limit_error.rs` |
//! | numbers and lengths of time as people write them | `text.rs` |
//! | calendar windows | `calendar.rs` |
//! | the answer to a check, the decision in it, and what is left | `verdict.rs`, `finding.rs`, `left.rs` |
//! | the state of a lane | `state.rs` |

pub(crate) mod bucket;
pub(crate) mod budget;
mod calendar;
mod call_limit;
#[cfg(feature = "cluster")]
pub(crate) mod clustered;
mod count;
pub(crate) mod dynamic;
mod exact;
mod finding;
pub(crate) mod held;
mod instant;
pub(crate) mod kind;
mod left;
mod limit;
mod limit_error;
mod limit_text;
mod rules;
mod state;
mod succession;
pub(crate) mod text;
mod verdict;
pub(crate) mod window;
mod word;

pub use calendar::Calendar;
#[cfg(any(feature = "persist", all(test, not(loom))))]
pub(crate) use calendar::Era;
pub use call_limit::CallLimit;
pub use finding::Decision;
pub(crate) use finding::Finding;
pub(crate) use kind::Kind;
pub use limit::Limit;
pub(crate) use limit::Numbers;
pub use limit_error::LimitError;
pub use state::LaneState;
pub(crate) use succession::{Passing, Succession};
pub(crate) use verdict::RETRY_NEVER;
pub use verdict::Verdict;
pub(crate) use word::{LaneWord, Word};

/// What a step would do: the word to put in place, if any, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome<A, W = LaneWord> {
    /// `None` leaves the word as it is: a denial writes nothing.
    pub(crate) next: Option<W>,
    pub(crate) answer: A,
}

/// What a step on a lane of several words would do, and to which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice<A> {
    pub(crate) cell: usize,
    pub(crate) outcome: Outcome<A>,
    /// The change only prepares the step, and is made only if the lane's own
    /// word is still the same. The step is then repeated on the words it finds.
    pub(crate) again: bool,
}

impl<A> Choice<A> {
    /// A step on the only word, or on none.
    pub(crate) const fn of(outcome: Outcome<A>) -> Self {
        Self::at(0, outcome)
    }

    pub(crate) const fn at(cell: usize, outcome: Outcome<A>) -> Self {
        Self { cell, outcome, again: false }
    }

    pub(crate) fn map<B>(self, answer: impl FnOnce(A) -> B) -> Choice<B> {
        let Outcome { next, answer: before } = self.outcome;
        Choice { cell: self.cell, outcome: Outcome { next, answer: answer(before) }, again: self.again }
    }
}
