//! A lane's limit, in the words people use: a number per period, and a burst.

use super::bucket::{BucketNumbers, BucketTerms};
use super::budget::BudgetTerms;
use super::calendar::{Calendar, Era};
use super::dynamic::DynamicTerms;
use super::exact::ExactTerms;
use super::held::HeldTerms;
use super::kind::Kind;
use super::limit_error::LimitError;
use super::window::WindowTerms;
#[cfg(doc)]
use crate::bounds::{EXACT_MAX, REFILL_MAX};
use std::fmt;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// How much a lane lets through: a token bucket that holds `capacity` tokens
/// and refills `tokens` of them every `per`, or another kind of limit.
///
/// The capacity is the number of tokens unless [`burst`](Limit::burst) sets
/// it. A limit is a description: it is checked when the policy is built.
///
/// | kind | text | what it promises |
/// |---|---|---|
/// | [bucket](Limit::new) | `"10/second burst 20"` | at most the burst plus what has refilled |
/// | [bucket with debt](Limit::oversize_debt) | `"10/second burst 20 oversize debt"` | the same, and the excess of one request |
/// | [window](Limit::window) | `"window 1000/min"` | never more than the count in any trailing window; a charge counts for up to a third longer |
/// | [exact](Limit::exact) | `"exact 5/5min"` | never more than the count in any trailing window, and no denial before that; up to 128 |
/// | [budget](Limit::budget) | `"budget 10_000/day"` | a number per calendar window |
/// | [held](Limit::held) | `"held 3"` | at most that many at once |
/// | [dynamic](Limit::dynamic) | `"dynamic"`, `"dynamic 60/minute"` | what a bucket does, by the limit that each call brings |
/// | [deny](Limit::deny_all) | `"deny"` | nothing passes |
/// | [unlimited](Limit::unlimited) | `"unlimited"` | a plan's total alone: everything passes |
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
pub struct Limit(pub(super) Written);

/// A limit as it was written: the terms of one kind, or no number at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Written {
    Bucket(BucketTerms),
    Window(WindowTerms),
    Exact(ExactTerms),
    Budget(BudgetTerms),
    Held(HeldTerms),
    Dynamic(DynamicTerms),
    DenyAll,
    Unlimited,
}

/// The terms of a limit of some kind.
pub(super) trait Terms: fmt::Display {
    /// What the lane's words mean.
    fn kind(&self) -> Kind;

    /// How much a full lane holds.
    fn capacity(&self) -> u64;

    /// How many words such a lane takes.
    fn words(&self) -> usize {
        1
    }

    /// Whether a plan's total may be such a limit.
    fn can_be_total(&self) -> bool {
        true
    }

    /// The numbers that the lane computes with, or what is wrong with them.
    fn check(&self) -> Result<Numbers, LimitError>;
}

/// A checked limit, as the numbers that a lane computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    Bucket(BucketNumbers),
    /// What a window or a budget holds at most, or how many slots there are.
    Count(u64),
    /// Each call brings its own.
    OfCall,
    /// Nothing passes.
    Deny,
    /// No limit.
    Unlimited,
}

impl Limit {
    /// `tokens` every `per`, with a burst of as many.
    #[must_use]
    pub const fn new(tokens: u64, per: Duration) -> Self {
        Self(Written::Bucket(BucketTerms { tokens, per, capacity: tokens, takes_oversize: false }))
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

    /// Never more than `count` in any trailing window of this length, for two
    /// words of every agent's record whatever the count. In return it is
    /// stricter than [`exact`](Limit::exact): time is cut into thirds of the
    /// window, and a charge counts until its third is a whole window old.
    ///
    /// | limit | most in any minute | a charge counts for | a client that asks evenly gets, a minute | words |
    /// |---|---|---|---|---|
    /// | `window 20/min` | 20 | 60 s to 80 s | 15 | 2 |
    /// | `window 100/min` | 100 | 60 s to 80 s | 75 | 2 |
    /// | `exact 100/min` | 100 | 60 s | 100 | 100 |
    /// | `100/min`, a bucket | 199 | - | 100 | 1 |
    ///
    /// So take it for counts above [`EXACT_MAX`], for costs other than 1, or
    /// where memory matters. To let `count` a minute pass for a client that asks
    /// evenly, set a third more, and accept that many at once.
    ///
    /// If a request's [instant](crate::Request::at) is older than the latest
    /// third in which the lane was charged, the start of that third is used.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limit, Limiter, ManualClock, Policy, Request};
    ///
    /// let clock = ManualClock::new();
    /// let policy = Policy::builder().lane("search", Limit::window(10, Duration::from_secs(60))).build()?;
    /// let limiter = Limiter::builder(policy).agents(10).clock(clock.clone()).build()?;
    /// let search = limiter.lane("search").expect("named above");
    ///
    /// assert_eq!(limiter.check_request(Request::new("agent-7", search).cost(10))?.remaining(), 0);
    /// clock.advance(Duration::from_secs(59));
    /// let denied = limiter.check("agent-7", search)?;
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(1 + 20)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn window(count: u64, length: Duration) -> Self {
        Self(Written::Window(WindowTerms { count, length }))
    }

    /// Never more than `count` in any trailing window of this length, and never
    /// a denial before that: for logins and other targets of brute force, and
    /// for limits that promise "no burst". Up to [`EXACT_MAX`]; a request costs 1.
    ///
    /// Each of the `count` takes a word of every agent's record. A record is a
    /// power of two of words, and two of them are not lanes. With this lane alone
    /// an agent takes:
    ///
    /// | count | record | bytes per agent at the assumed load |
    /// |---|---|---|
    /// | up to 6 | 64 bytes | 87 |
    /// | up to 14 | 128 bytes | 172 |
    /// | up to 30 | 256 bytes | 343 |
    /// | up to 62 | 512 bytes | 684 |
    /// | up to 126 | 1 KB | 1,367 |
    /// | 127 and 128 | 2 KB | 2,732 |
    ///
    /// A plan or an override may have fewer, but no more than the largest
    /// limit that the limiter was built with. [`window`](Limit::window) takes
    /// two words, whatever its count.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limit, Limiter, ManualClock, Policy};
    ///
    /// let clock = ManualClock::new();
    /// let policy = Policy::builder().lane("login", Limit::exact(2, Duration::from_secs(60))).build()?;
    /// let limiter = Limiter::builder(policy).agents(10).clock(clock.clone()).build()?;
    /// let login = limiter.lane("login").expect("named above");
    ///
    /// assert!(limiter.check("user:42", login)?.is_allowed());
    /// clock.advance(Duration::from_secs(50));
    /// assert!(limiter.check("user:42", login)?.is_allowed());
    /// assert_eq!(limiter.check("user:42", login)?.retry_after(), Some(Duration::from_secs(10)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn exact(count: u64, length: Duration) -> Self {
        Self(Written::Exact(ExactTerms { count, length }))
    }

    /// `units` per calendar window, in UTC unless [`zone_minutes`](Limit::zone_minutes)
    /// sets a zone: LLM tokens per day, say. What is left over is gone when the
    /// next window begins.
    ///
    /// The date comes from the wall clock. If that is set back, the window in
    /// use stays open, and no past window opens again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Calendar, Limit, Limiter, ManualClock, Policy, Request};
    ///
    /// // By default a manual clock counts from 1970, at midnight UTC.
    /// let clock = ManualClock::new();
    /// let policy = Policy::builder().lane("llm", Limit::budget(10_000, Calendar::Day)).build()?;
    /// let limiter = Limiter::builder(policy).agents(10).clock(clock.clone()).build()?;
    /// let llm = limiter.lane("llm").expect("named above");
    ///
    /// clock.advance(Duration::from_secs(23 * 3_600));
    /// assert_eq!(limiter.check_request(Request::new("user:42", llm).cost(9_000))?.remaining(), 1_000);
    /// let denied = limiter.check_request(Request::new("user:42", llm).cost(2_000))?;
    /// assert_eq!(denied.retry_after(), Some(Duration::from_secs(3_600)));
    /// clock.advance(Duration::from_secs(3_600));
    /// assert!(limiter.check_request(Request::new("user:42", llm).cost(2_000))?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn budget(units: u64, per: Calendar) -> Self {
        Self(Written::Budget(BudgetTerms { units, era: Era { calendar: per, zone_minutes: 0 } }))
    }

    /// The same budget in a time zone that is this many minutes ahead of UTC.
    /// Daylight saving time is not supported.
    ///
    /// Limits of other kinds stay as they are.
    #[must_use]
    pub const fn zone_minutes(self, zone_minutes: i16) -> Self {
        match self.0 {
            Written::Budget(BudgetTerms { units, era: Era { calendar, .. } }) => {
                Self(Written::Budget(BudgetTerms { units, era: Era { calendar, zone_minutes } }))
            }
            _ => self,
        }
    }

    /// At most `slots` at once: connections, say. See
    /// [`hold_until_released`](crate::Limiter::hold_until_released).
    #[must_use]
    pub const fn held(slots: u64) -> Self {
        Self(Written::Held(HeldTerms { slots }))
    }

    /// Nothing passes, and no wait helps.
    #[must_use]
    pub const fn deny_all() -> Self {
        Self(Written::DenyAll)
    }

    /// No limit at all: for a plan without the [total](crate::PolicyBuilder::total)
    /// that others have. Only the lane `total` accepts it.
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// let policy = Policy::builder().lane("read", "10/s").total("20/min").plan("staff", [("total", "unlimited")]);
    /// assert!(policy.build().is_ok());
    /// assert!(Policy::builder().lane("read", "unlimited").build().is_err());
    /// ```
    #[must_use]
    pub const fn unlimited() -> Self {
        Self(Written::Unlimited)
    }

    /// Whether it is [`unlimited`](Limit::unlimited).
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        matches!(self.0, Written::Unlimited)
    }

    /// The same rate with room for `capacity` tokens at once.
    ///
    /// Limits of other kinds stay as they are.
    #[must_use]
    pub const fn burst(self, capacity: u64) -> Self {
        match self.0 {
            Written::Bucket(terms) => Self(Written::Bucket(BucketTerms { capacity, ..terms })),
            _ => self,
        }
    }

    /// The same bucket, which takes a cost above its capacity on credit: for
    /// requests that are larger than any sensible burst, such as those of LLMs.
    /// In text, `"10/s burst 20 oversize debt"`.
    ///
    /// Such a cost passes when the bucket is full, and nothing passes after it
    /// until the bucket has paid for it. So in any span at most the capacity,
    /// what refills, and the excess of one request pass. A cost is at most
    /// [`OVERSPEND_MAX`](crate::bounds::OVERSPEND_MAX) times the capacity and takes
    /// less than [`REFILL_MAX`] to pay for; more is
    /// [`Error::CostAboveCapacity`](crate::Error::CostAboveCapacity), as any cost
    /// above the capacity is on other lanes.
    ///
    /// Limits of other kinds stay as they are. A lane does this in every plan or
    /// in none.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limit, Limiter, ManualClock, Policy, Request};
    ///
    /// let clock = ManualClock::new();
    /// let policy = Policy::builder().lane("llm", Limit::per_second(10).burst(20).oversize_debt()).build()?;
    /// let limiter = Limiter::builder(policy).agents(10).clock(clock.clone()).build()?;
    /// let llm = limiter.lane("llm").expect("named above");
    ///
    /// assert!(limiter.check_request(Request::new("agent-7", llm).cost(50))?.is_allowed());
    /// let denied = limiter.check("agent-7", llm)?;
    /// assert_eq!(denied.retry_after(), Some(Duration::from_millis(3_100))); // 30 in debt, and one more.
    /// clock.advance(Duration::from_millis(3_100));
    /// assert!(limiter.check("agent-7", llm)?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn oversize_debt(self) -> Self {
        match self.0 {
            Written::Bucket(terms) => Self(Written::Bucket(BucketTerms { takes_oversize: true, ..terms })),
            _ => self,
        }
    }

    /// Whether it takes a cost above its capacity on credit; see
    /// [`oversize_debt`](Limit::oversize_debt).
    #[must_use]
    pub const fn takes_oversize(&self) -> bool {
        matches!(self.0, Written::Bucket(BucketTerms { takes_oversize: true, .. }))
    }

    /// The terms of its kind; `None` if it denies everything or is unlimited.
    pub(super) fn terms(&self) -> Option<&dyn Terms> {
        match &self.0 {
            Written::Bucket(terms) => Some(terms),
            Written::Window(terms) => Some(terms),
            Written::Exact(terms) => Some(terms),
            Written::Budget(terms) => Some(terms),
            Written::Held(terms) => Some(terms),
            Written::Dynamic(terms) => Some(terms),
            Written::DenyAll | Written::Unlimited => None,
        }
    }

    /// How much a full lane holds; 0 for [`deny_all`](Limit::deny_all) and for
    /// [`dynamic`](Limit::dynamic) without a default, `u64::MAX` for [`unlimited`](Limit::unlimited).
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let without = if self.is_unlimited() { u64::MAX } else { 0 };
        self.terms().map_or(without, |terms| terms.capacity())
    }

    /// Checks the numbers against what a word can hold.
    ///
    /// # Errors
    ///
    /// The error names the number that is out of range, and what is allowed.
    pub fn validate(&self) -> Result<(), LimitError> {
        self.compile().map(|_| ())
    }

    /// The numbers that a lane computes with.
    pub(crate) fn compile(&self) -> Result<Numbers, LimitError> {
        let without = if self.is_unlimited() { Numbers::Unlimited } else { Numbers::Deny };
        self.terms().map_or(Ok(without), |terms| terms.check())
    }

    /// What the word of such a lane means; `None` if the limit denies everything
    /// or is unlimited, and so leaves the word alone.
    pub(crate) fn lane_kind(&self) -> Option<Kind> {
        self.terms().map(|terms| terms.kind())
    }

    /// How many words such a lane takes.
    pub(crate) fn words(&self) -> usize {
        self.terms().map_or(1, |terms| terms.words())
    }

    /// Refuses a limit that only a total can have, or that a total cannot have.
    pub(crate) fn is_for_total(&self, is_total: bool) -> Result<(), LimitError> {
        match self.terms() {
            None if !is_total && self.is_unlimited() => Err(LimitError::Unlimited),
            Some(terms) if is_total && !terms.can_be_total() => Err(LimitError::Total { limit: self.to_string() }),
            _ => Ok(()),
        }
    }

    /// Refuses a limit of another kind than the lane's other limits.
    pub(crate) fn is_of_kind_of(&self, known: impl IntoIterator<Item = Limit>) -> Result<(), LimitError> {
        let Some(kind) = self.lane_kind() else {
            return Ok(());
        };
        match known.into_iter().find(|limit| limit.lane_kind().is_some_and(|known| known != kind)) {
            Some(known) => Err(LimitError::OtherKind { limit: self.to_string(), known: known.to_string() }),
            None => Ok(()),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
