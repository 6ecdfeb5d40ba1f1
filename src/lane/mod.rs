//! Lane words and the pure steps on them.
//!
//! A lane is one word, or a few. Every kind of limit is a pure function from these and
//! the present instant to an [`Outcome`]: no atomics, no clock, no allocation.
//! [`Record`](crate::record::Record) applies it with one compare-exchange.
//!
//! | kind | file | the word's 60 bits | fresh |
//! |---|---|---|---|
//! | token bucket | `bucket.rs` | the instant at which the bucket is full again | 0 |
//! | bucket with debt | `debt.rs` | the same | 0 |
//! | exact window | `exact.rs` | the instant at which a permit has rested; a lane has several such words | 0 |
//! | budget | `budget.rs` | a calendar window's number, and what was used of it | 0 |
//! | held slots | `held.rs` | how many are held | 0 |
//! | window | `window.rs` | the number of a third of a window, and the counts of it and of the one before; a lane has two such words | 0 |
//!
//! ```text
//!  63                                        4 3        0
//! ┌───────────────────────────────────────────┬──────────┐
//! │      time: nanoseconds, 60 bits           │generation│
//! └───────────────────────────────────────────┴──────────┘
//! ```
//!
//! A step keeps the generation; only a change of tenant or of the tenant's
//! limits moves it on. So an exchange that was prepared for one tenant fails
//! on the next, even when a refund or a reset has brought the time back to
//! what it was, and one that was prepared with old limits fails under new
//! ones. When the generations start over, the time moves on to the present.

pub(crate) mod bucket;
pub(crate) mod budget;
pub(crate) mod counted;
pub(crate) mod debt;
pub(crate) mod exact;
pub(crate) mod held;
pub(crate) mod kind;
pub(crate) mod window;

use crate::clock::{TICK_BITS, Tick, nanos_saturating};
use crate::record::Word;
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

const GENERATION_BITS: u32 = 4;
const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;
const _: () = assert!(TICK_BITS + GENERATION_BITS == u64::BITS);

/// A lane's state. Zero is a lane that was never used.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct LaneWord(u64);

impl Word for LaneWord {
    #[inline]
    fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    fn bits(self) -> u64 {
        self.0
    }
}

impl LaneWord {
    pub(crate) const fn time(self) -> Tick {
        Tick::from_nanos(self.0 >> GENERATION_BITS)
    }

    pub(crate) const fn generation(self) -> u64 {
        self.0 & GENERATION_MASK
    }

    /// The 60 bits that are the kind's own.
    pub(crate) const fn payload(self) -> u64 {
        self.0 >> GENERATION_BITS
    }

    /// The same tenancy with another payload, of 60 bits.
    pub(crate) const fn with_payload(self, payload: u64) -> Self {
        Self(payload << GENERATION_BITS | self.generation())
    }

    /// The same tenancy at another time.
    pub(crate) const fn at(self, time: Tick) -> Self {
        Self(time.as_nanos() << GENERATION_BITS | self.generation())
    }

    /// The next tenancy, with the same payload.
    pub(crate) const fn next_generation(self) -> Self {
        Self(self.0 & !GENERATION_MASK | (self.generation() + 1) & GENERATION_MASK)
    }

    /// Whether the next tenancy starts the generations over.
    pub(crate) const fn is_last_generation(self) -> bool {
        self.generation() == GENERATION_MASK
    }

    /// Whether the lane carries no information at `now`: forgetting it changes nothing.
    pub(crate) fn is_idle(self, now: Tick) -> bool {
        self.time() <= now
    }
}

impl fmt::Debug for LaneWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneWord").field("time", &self.time()).field("generation", &self.generation()).finish()
    }
}

/// What a step would do: the word to put in place, if any, and the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome<A, W = LaneWord> {
    /// `None` leaves the word as it is: a denial writes nothing.
    pub(crate) next: Option<W>,
    pub(crate) answer: A,
}

/// What a step on a lane of several words would do: to which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice<A> {
    pub(crate) cell: usize,
    pub(crate) outcome: Outcome<A>,
    /// The change only prepares the step, which is then to be made: on the
    /// words as they are after it, if the lane's own word is still the same.
    pub(crate) again: bool,
}

impl<A> Choice<A> {
    /// Of the only word, or of none.
    pub(crate) const fn of(outcome: Outcome<A>) -> Self {
        Self::at(0, outcome)
    }

    pub(crate) const fn at(cell: usize, outcome: Outcome<A>) -> Self {
        Self { cell, outcome, again: false }
    }

    pub(crate) fn map<B>(self, answer: impl FnOnce(A) -> B) -> Choice<B> {
        let Outcome { next, answer: told } = self.outcome;
        Choice { cell: self.cell, outcome: Outcome { next, answer: answer(told) }, again: self.again }
    }
}

/// The answer to a check: may the agent do it, and what is left.
///
/// ```
/// use tollgate::{Decision, Limit, Limiter, ManualClock, Policy};
///
/// let policy = Policy::builder().lane("http", Limit::per_minute(2)).build()?;
/// let limiter = Limiter::builder(policy).agents(10).clock(ManualClock::new()).build()?;
/// let http = limiter.lane("http").expect("named above");
///
/// let first = limiter.check("agent-7", http)?;
/// assert_eq!((first.decision(), first.remaining(), first.capacity()), (Decision::Allow, 1, 2));
/// limiter.check("agent-7", http)?;
///
/// let third = limiter.check("agent-7", http)?;
/// assert!(!third.is_allowed());
/// assert_eq!(third.retry_after(), Some(std::time::Duration::from_secs(30)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a verdict says whether the request may go on"]
pub struct Verdict {
    pub(crate) finding: Finding,
    pub(crate) capacity: u64,
    /// What is left follows from this and `full_in_ns`; the division waits
    /// until somebody asks. A lane that counts says both here: see `counted.rs`.
    pub(crate) ticks_per_token: u64,
    pub(crate) retry_after_ns: u64,
    pub(crate) full_in_ns: u64,
}

/// The wait of a denial that no wait will lift.
pub(crate) const RETRY_NEVER: u64 = u64::MAX;

/// Whether a request may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// It may.
    Allow,
    /// It may, and the agent is near its limit.
    Warn,
    /// It may: the agent is never limited, and nothing was charged.
    Exempt,
    /// It may not; nothing was charged.
    Deny,
}

/// A decision, and what a denial means for the agent's conduct, in one word. So
/// a verdict has no fields for conduct that most of them would fill in vain.
///
/// ```text
///  63                                  8    7     6        3 2        0
/// ┌─────────────────────────────────────┬───────┬───────────┬──────────┐
/// │ wait for conduct: nanoseconds, 56   │ abuse │ in a row  │ decision │
/// └─────────────────────────────────────┴───────┴───────────┴──────────┘
/// 1 allow   2 warn   3 exempt   4 deny
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Finding(NonZeroU64);

const DECISION_MASK: u64 = 7;
const IN_A_ROW_SHIFT: u32 = 3;
const IN_A_ROW_MASK: u64 = 15;
const ABUSE_SHIFT: u32 = 7;
const CONDUCT_WAIT_SHIFT: u32 = 8;
const CONDUCT_WAIT_MAX: u64 = u64::MAX >> CONDUCT_WAIT_SHIFT;
const _: () = assert!(crate::bounds::CURVE_STEPS_MAX as u64 <= IN_A_ROW_MASK);
/// An agent waits no longer for its conduct than until it is forgiven.
const _: () = assert!(crate::bounds::QUIET_MAX.as_nanos() < CONDUCT_WAIT_MAX as u128);

impl Finding {
    pub(crate) const ALLOW: Self = Self::new(1);
    pub(crate) const WARN: Self = Self::new(2);
    pub(crate) const EXEMPT: Self = Self::new(3);
    pub(crate) const DENY: Self = Self::new(4);

    const fn new(word: u64) -> Self {
        match NonZeroU64::new(word) {
            Some(word) => Self(word),
            None => Self(NonZeroU64::MAX), // A denial; no word is 0.
        }
    }

    /// A denial that is the agent's violation number `in_a_row`, or none if
    /// that is 0, with what the agent has to wait for its conduct.
    const fn judged(in_a_row: u32, sustained_abuse: bool, wait_ns: u64) -> Self {
        let wait_ns = if wait_ns < CONDUCT_WAIT_MAX { wait_ns } else { CONDUCT_WAIT_MAX };
        Self::new(
            wait_ns << CONDUCT_WAIT_SHIFT
                | (sustained_abuse as u64) << ABUSE_SHIFT
                | (in_a_row as u64 & IN_A_ROW_MASK) << IN_A_ROW_SHIFT
                | Self::DENY.0.get(),
        )
    }

    /// Violations in a row, and whether the last made them sustained abuse.
    const fn conduct(self) -> (u32, bool) {
        let word = self.0.get();
        ((word >> IN_A_ROW_SHIFT & IN_A_ROW_MASK) as u32, word >> ABUSE_SHIFT & 1 == 1)
    }

    pub(crate) const fn conduct_wait_ns(self) -> u64 {
        self.0.get() >> CONDUCT_WAIT_SHIFT
    }

    #[inline(always)]
    const fn is_denial(self) -> bool {
        self.0.get() & Self::DENY.0.get() != 0
    }

    #[inline(always)]
    const fn decision(self) -> Decision {
        match self.0.get() & DECISION_MASK {
            1 => Decision::Allow,
            2 => Decision::Warn,
            3 => Decision::Exempt,
            _ => Decision::Deny,
        }
    }

    /// The decision as a number: that of the enum's variant.
    #[inline(always)]
    pub(crate) const fn decision_number(self) -> usize {
        // No word has a 0 there.
        ((self.0.get() & DECISION_MASK) as usize).wrapping_sub(1)
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (in_a_row, sustained_abuse) = self.conduct();
        let mut finding = f.debug_struct("Finding");
        finding.field("decision", &self.decision());
        if in_a_row > 0 {
            finding.field("violations_in_a_row", &in_a_row).field("sustained_abuse", &sustained_abuse);
        }
        if self.conduct_wait_ns() > 0 {
            finding.field("conduct_wait_ns", &self.conduct_wait_ns());
        }
        finding.finish()
    }
}

impl Verdict {
    pub(crate) const EXEMPT: Self =
        Self { finding: Finding::EXEMPT, capacity: u64::MAX, ticks_per_token: 1, retry_after_ns: 0, full_in_ns: 0 };

    /// Whether the request may go on.
    pub const fn decision(&self) -> Decision {
        self.finding.decision()
    }

    /// Whether the request may go on, with or without a warning or a limit.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        !self.finding.is_denial()
    }

    /// The denial of a [counted](crate::Request::counted) request: its number
    /// among the agent's violations in a row, 0 if it is not one, and the wait
    /// that conduct asks for.
    pub(crate) fn judged(self, in_a_row: u32, sustained_abuse: bool, wait: Duration) -> Self {
        Self { finding: Finding::judged(in_a_row, sustained_abuse, nanos_saturating(wait)), ..self }
    }

    /// How many violations in a row the agent has, if this denial is one: it
    /// stays at 15. 0 for every other verdict, and unless the request was
    /// [counted](crate::Request::counted).
    #[must_use]
    pub const fn violations_in_a_row(&self) -> u32 {
        self.finding.conduct().0
    }

    /// Whether with this denial the agent's conduct became sustained abuse.
    /// Reported once, and again only after a window without a violation.
    #[must_use]
    pub const fn is_sustained_abuse(&self) -> bool {
        self.finding.conduct().1
    }

    /// Whole tokens left after this request; `u64::MAX` for an exempt agent.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        match (counted::remaining(self.ticks_per_token), self.ticks_per_token) {
            (Some(remaining), _) => remaining,
            (None, 0) => 0, // No verdict has that.
            // A token that is partly missing is missing.
            (None, ticks) => self.capacity.saturating_sub(self.full_in_ns.div_ceil(ticks)),
        }
    }

    /// What the lane holds when it is full; `u64::MAX` for an exempt agent.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How long a denied caller has to wait until the same request would pass:
    /// the longer of [the lane's wait](Self::lane_wait) and [that for the
    /// agent's conduct](Self::conduct_wait). `None` if the request was allowed,
    /// or if no wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.lane_wait().map(|wait| wait.max(self.conduct_wait()))
    }

    /// How long until the lane would let the same request pass, exact to the
    /// nanosecond. `None` if the request was allowed, or if no wait helps.
    #[must_use]
    pub const fn lane_wait(&self) -> Option<Duration> {
        match self.retry_after_ns {
            nanos if self.finding.is_denial() && nanos != RETRY_NEVER => Some(Duration::from_nanos(nanos)),
            _ => None,
        }
    }

    /// What a denied agent has to wait for its conduct: zero if the policy has
    /// no curve, or the request was not [counted](crate::Request::counted).
    #[must_use]
    pub const fn conduct_wait(&self) -> Duration {
        Duration::from_nanos(self.finding.conduct_wait_ns())
    }

    /// How long until there is one more whole token than now; `None` if there
    /// never is, because the lane is full or denies everything. A lane that is
    /// no bucket tells when it is full again, or when a denied request would
    /// pass, if that is sooner; [`peek`](crate::Limiter::peek) is exact.
    #[must_use]
    pub const fn next_in(&self) -> Option<Duration> {
        if counted::remaining(self.ticks_per_token).is_some() {
            let sooner = self.finding.is_denial() && self.retry_after_ns < self.full_in_ns;
            let nanos = if sooner { self.retry_after_ns } else { self.full_in_ns };
            return if nanos == 0 { None } else { Some(Duration::from_nanos(nanos)) };
        }
        let token = match self.ticks_per_token {
            0 => return None, // No verdict has that.
            ticks => ticks,
        };
        let missing = match self.full_in_ns.div_ceil(token) {
            // In deeper debt than the lane is deep, which a clock that stepped back can show.
            missing if missing > self.capacity => self.capacity,
            missing => missing,
        };
        // No overflow: all missing tokens but one take less than the debt.
        if missing == 0 { None } else { Some(Duration::from_nanos(self.full_in_ns - (missing - 1) * token)) }
    }

    /// How long until the lane is full again, if nothing more is charged.
    #[must_use]
    pub const fn full_in(&self) -> Duration {
        Duration::from_nanos(self.full_in_ns)
    }

    /// How long an empty lane takes to be full again: the capacity at the
    /// rate of the limit that was applied. Zero if it denies everything.
    ///
    /// The length of its window if the lane has one, to the millisecond, from
    /// an hour on to the second.
    #[must_use]
    pub const fn window(&self) -> Duration {
        if let Some(length) = counted::length_ns(self.ticks_per_token) {
            return Duration::from_nanos(length);
        }
        Duration::from_nanos(self.capacity.saturating_mul(self.ticks_per_token))
    }
}

/// A lane as it stands, without having been charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub(crate) remaining: u64,
    pub(crate) capacity: u64,
    pub(crate) ticks_per_token: u64,
    pub(crate) next_in_ns: u64,
    pub(crate) full_in_ns: u64,
}

impl Status {
    pub(crate) const EXEMPT: Self =
        Self { remaining: u64::MAX, capacity: u64::MAX, ticks_per_token: 1, next_in_ns: 0, full_in_ns: 0 };

    /// Whether the agent is never limited. Then it has `u64::MAX` left of as many.
    #[must_use]
    pub const fn is_exempt(&self) -> bool {
        self.capacity == u64::MAX
    }

    /// Whole tokens that could be charged now.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// What the lane holds when it is full; 0 if it denies everything.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How long until there is one more whole token than now; `None` if there
    /// never is, because the lane is full or denies everything, or if nobody
    /// knows, because somebody must give back what is held.
    #[must_use]
    pub const fn next_in(&self) -> Option<Duration> {
        match self.next_in_ns {
            _ if self.remaining == self.capacity => None,
            RETRY_NEVER => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// How long until the lane is full again, if nothing more is charged.
    #[must_use]
    pub const fn full_in(&self) -> Duration {
        Duration::from_nanos(self.full_in_ns)
    }

    /// How long an empty lane takes to be full again, or the length of its window, as
    /// [`Verdict::window`] has it. Zero if there is no such time: the lane denies everything or
    /// is held, or the agent is exempt.
    #[must_use]
    pub const fn window(&self) -> Duration {
        match counted::length_ns(self.ticks_per_token) {
            Some(length) => Duration::from_nanos(length),
            None if self.is_exempt() => Duration::ZERO,
            None => Duration::from_nanos(self.capacity.saturating_mul(self.ticks_per_token)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_round_trip(time in 0..=Tick::MAX.as_nanos(), bits: u64) {
            let time = Tick::from_nanos(time);
            let word = LaneWord::from_bits(bits);
            prop_assert_eq!(LaneWord::from_bits(word.bits()), word);
            prop_assert_eq!(word.at(time).time(), time);
            prop_assert_eq!(word.at(time).generation(), word.generation());
            prop_assert_eq!(word.at(word.time()), word);
            prop_assert_eq!(word.with_payload(word.payload()), word);
            prop_assert_eq!(word.next_generation().payload(), word.payload());
            prop_assert_ne!(word.next_generation(), word);
        }
    }

    #[test]
    fn a_finding_holds_what_it_was_made_of() {
        use Decision::{Allow, Deny, Exempt, Warn};
        let plain = [(Finding::ALLOW, Allow), (Finding::WARN, Warn), (Finding::EXEMPT, Exempt), (Finding::DENY, Deny)];
        for (finding, decision) in plain {
            assert_eq!((finding.decision(), finding.decision_number()), (decision, decision as usize));
            assert_eq!(
                (finding.is_denial(), finding.conduct(), finding.conduct_wait_ns()),
                (decision == Deny, (0, false), 0)
            );
        }
        for in_a_row in 0..=15 {
            for wait in [0, 1, CONDUCT_WAIT_MAX, u64::MAX] {
                for abuse in [false, true] {
                    let finding = Finding::judged(in_a_row, abuse, wait);
                    assert_eq!((finding.decision(), finding.decision_number()), (Deny, Deny as usize));
                    assert_eq!((finding.is_denial(), finding.conduct()), (true, (in_a_row, abuse)));
                    assert_eq!(finding.conduct_wait_ns(), wait.min(CONDUCT_WAIT_MAX));
                }
            }
        }
    }

    #[test]
    fn a_generation_returns_after_sixteen_tenancies_and_not_before() {
        let first = LaneWord::default();
        let mut word = first;
        for _ in 1..16 {
            word = word.next_generation();
            assert_ne!(word, first);
        }
        assert_eq!(word.next_generation(), first);
    }
}
