//! A bucket whose limit travels with each call.
//!
//! The word of a bucket is the instant at which it is full again. That instant
//! means the same whatever the limit: the debt, `full_at - now`, is time. So a
//! call can bring the limit along, and each is answered exactly by its own:
//!
//! ```text
//! token_ns    = ceil(period / count)           of this call
//! allowed    <=> debt + cost * token_ns <= capacity * token_ns
//! full_at'    = now + debt + cost * token_ns
//! ```
//!
//! A changed limit applies at once to the time that earlier calls have left,
//! and nothing is cut: after a call with a deep limit, one with a shallow limit
//! waits until the debt fits into it. What all calls were charged, as time, is
//! never forgotten early. So if every call brings the same limit, the lane is
//! a bucket of that limit; and if the limits differ, the prices of all that
//! passed between two instants add up to at most the time between them plus the
//! depth of the last limit by which a call passed.
//!
//! # What the policy decides
//!
//! A row has a default for the calls that bring no limit, or none: then such a
//! call is [`Error::NoLimit`]. `deny` and an exemption come before the limit of a
//! call: both are an operator's decision about an agent. The default is not: a
//! caller that brings a limit has looked the agent up.
//!
//! # Idle, and how full
//!
//! Whether a word is idle, and what the next tenant finds, follow from the
//! instant alone, so nothing differs from a bucket. Other limits of the policy
//! cut no debt, since it was charged by limits that the policy does not know.
//!
//! When a record has to be given up that is not idle, records are ranked by the
//! share of their limits that is in use. For that share a depth is needed, and
//! the word does not show by which it was charged. The depth is the default's,
//! or [`DYNAMIC_DEPTH`] if there is none. Any depth is safe: the newcomer
//! inherits the word as it is, so whoever is chosen, no more passes than the
//! words admit. What the ranking has to do is to spare the agent that would
//! gain most, and for that, one depth for all agents of a lane is enough: an
//! agent that was charged more is never chosen before one that was charged
//! less, and the one that is chosen would have been full again soonest. The
//! share depends on no other agent's calls, so none can bring a limit that
//! makes the records of others worthless. And a call can make its own record
//! worth more only by charging more.

use super::bucket::{self, Bucket, BucketLimit, BucketTerms};
use super::call_limit::CallLimit;
use super::instant::InstantWord;
use super::kind::{Kind, Receipt};
use super::limit::{Limit, Numbers, Terms, Written};
use super::limit_error::LimitError;
use super::rules::{Charged, LimitWords, Refunded, Rules, first, look};
use super::text::Parts;
use super::{Choice, LaneState, LaneWord};
use crate::bounds::DYNAMIC_DEPTH;
use crate::clock::{At, Tick};
use crate::error::Error;
use std::fmt;
use std::time::Duration;

/// `dynamic`, or `dynamic 60/minute` with a default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DynamicTerms {
    default: Option<BucketTerms>,
}

impl Limit {
    /// Each call brings its limit along: see
    /// [`Request::limit`](crate::Request::limit). In text, `"dynamic"`.
    ///
    /// For limits that are known only with the request: of a route, of a
    /// subscription that another service knows, or for a proxy that has its own
    /// configuration. A call that brings none is
    /// [`Error::NoLimit`](crate::Error::NoLimit); with
    /// [`unless_given`](Limit::unless_given) the lane has a default for it.
    ///
    /// An agent has one bucket on such a lane, whatever limits its calls bring.
    /// For independent limits, put what they are for into the agent's id.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{CallLimit, Error, Limit, Limiter, ManualClock, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("any", Limit::dynamic()).build()?;
    /// let limiter = Limiter::builder(policy).agents(10).clock(ManualClock::new()).build()?;
    /// let any = limiter.lane("any").expect("named above");
    ///
    /// let (three, five) = (CallLimit::try_from("3/minute")?, CallLimit::try_from("5/minute")?);
    /// let ask = |limit| limiter.check_request(Request::new("agent-7", any).limit(limit));
    /// assert_eq!(ask(three)?.remaining(), 2);
    /// assert_eq!(ask(five)?.remaining(), 2); // 20 of 60 seconds were in use, and 12 more.
    /// assert_eq!(limiter.check("agent-7", any), Err(Error::NoLimit { lane: 0 }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn dynamic() -> Self {
        Self(Written::Dynamic(DynamicTerms { default: None }))
    }

    /// A [dynamic](Limit::dynamic) lane with this bucket as the default for
    /// calls that bring no limit. In text, `"dynamic 60/minute"`.
    ///
    /// Limits of other kinds stay as they are.
    ///
    /// ```
    /// use tollgate::Limit;
    ///
    /// assert_eq!("dynamic 60/minute burst 10".parse(), Ok(Limit::per_minute(60).burst(10).unless_given()));
    /// ```
    #[must_use]
    pub const fn unless_given(self) -> Self {
        match self.0 {
            Written::Bucket(terms) => Self(Written::Dynamic(DynamicTerms { default: Some(terms) })),
            _ => self,
        }
    }

    /// Whether each call brings its limit along; see [`dynamic`](Limit::dynamic).
    #[must_use]
    pub const fn is_dynamic(&self) -> bool {
        matches!(self.0, Written::Dynamic(_))
    }
}

impl Terms for DynamicTerms {
    fn kind(&self) -> Kind {
        Kind::Dynamic
    }

    fn capacity(&self) -> u64 {
        self.default.map_or(0, |terms| terms.capacity)
    }

    /// A total goes with calls on other lanes, which bring no limit for it.
    fn can_be_total(&self) -> bool {
        false
    }

    fn check(&self) -> Result<Numbers, LimitError> {
        match self.default {
            Some(terms) if terms.takes_oversize => {
                let limit = Self { default: Some(BucketTerms { takes_oversize: false, ..terms }) };
                Err(LimitError::Oversize { limit: limit.to_string() })
            }
            Some(terms) => terms.numbers().map(Numbers::Bucket),
            None => Ok(Numbers::OfCall),
        }
    }
}

impl DynamicTerms {
    pub(super) const KEYWORD: &str = "dynamic";

    /// What follows the keyword; `None` if it is something else.
    pub(super) fn read(parts: &mut Parts<'_>) -> Result<Option<Self>, LimitError> {
        if parts.0.is_empty() {
            return Ok(Some(Self { default: None }));
        }
        let default = BucketTerms::read(parts)?;
        Ok(default.map(|terms| Self { default: Some(terms) }))
    }
}

impl fmt::Display for DynamicTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::KEYWORD)?;
        self.default.map_or(Ok(()), |terms| write!(f, " {terms}"))
    }
}

/// A row's default, or a call's limit in its place.
///
/// May be torn like any row, so nothing here relies on the numbers fitting
/// together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DynamicLimit {
    /// How long a token takes to refill, in nanoseconds; 0 if there is no limit.
    token_ns: u64,
    /// 0 if everything is denied, `u64::MAX` if nothing.
    capacity: u64,
    warn_below_percent: u64,
    /// The lane's number, for errors.
    lane: u64,
}

impl DynamicLimit {
    const fn from_words(LimitWords([token_ns, capacity, warn_below_percent, lane]): LimitWords) -> Self {
        Self { token_ns, capacity, warn_below_percent, lane }
    }

    const fn to_words(self) -> LimitWords {
        LimitWords([self.token_ns, self.capacity, self.warn_below_percent, self.lane])
    }

    /// Whether an operator lets everything or nothing pass.
    const fn is_decided(self) -> bool {
        self.token_ns > 0 && (self.capacity == 0 || self.capacity == u64::MAX)
    }

    /// The bucket by which a call is answered.
    fn bucket(self) -> Result<BucketLimit, Error> {
        let Self { token_ns, capacity, warn_below_percent, lane } = self;
        match capacity {
            // A lane's number has 32 bits.
            _ if token_ns == 0 => Err(Error::NoLimit { lane: lane as u32 }),
            0 => Ok(BucketLimit::DENY),
            u64::MAX => Ok(BucketLimit::EXEMPT),
            _ => Ok(BucketLimit::of(token_ns, capacity, warn_below_percent)),
        }
    }
}

/// The limit of a call: what the row decides, else what the call brings, else the
/// row's default.
pub(crate) fn of_call(row: LimitWords, given: Option<CallLimit>, lane: u32) -> LimitWords {
    let row = DynamicLimit { lane: u64::from(lane), ..DynamicLimit::from_words(row) };
    match given {
        Some(given) if !row.is_decided() => {
            DynamicLimit { token_ns: given.token_ns(), capacity: given.capacity(), ..row }.to_words()
        }
        _ => row.to_words(),
    }
}

/// Why a call cannot be answered: it has brought no limit, and there is no default.
pub(super) fn missing(limit: LimitWords) -> Option<Error> {
    DynamicLimit::from_words(limit).bucket().err()
}

/// A bucket whose limit travels with each call.
pub(super) struct Dynamic;

/// A bucket's rules, for all that does not depend on the limit.
const BUCKET: Bucket = Bucket::PLAIN;

impl Rules for Dynamic {
    fn is_idle(&self, word: LaneWord, at: At) -> bool {
        BUCKET.is_idle(word, at)
    }

    fn emptied(&self, word: LaneWord, floor: At) -> LaneWord {
        BUCKET.emptied(word, floor)
    }

    fn vacated(&self, word: LaneWord, present: Tick, floor: At) -> LaneWord {
        BUCKET.vacated(word, present, floor)
    }

    fn inherited(&self, word: LaneWord, floor: At) -> LaneWord {
        BUCKET.inherited(word, floor)
    }

    fn settled(&self, word: LaneWord, floor: At) -> LaneWord {
        BUCKET.settled(word, floor)
    }

    fn renewed(&self, word: LaneWord, present: Tick, is_other_tenant: bool) -> LaneWord {
        BUCKET.renewed(word, present, is_other_tenant)
    }

    fn under_other_limit(&self, word: LaneWord, at: At, is_reset: bool, debt_max: Duration) -> LaneWord {
        BUCKET.under_other_limit(word, at, is_reset, debt_max)
    }

    fn is_cut(&self, word: LaneWord, now: Tick, debt_max: Duration) -> bool {
        BUCKET.is_cut(word, now, debt_max)
    }

    fn place(&self, charged: LaneWord) -> u64 {
        BUCKET.place(charged)
    }

    fn price(&self, before: LaneWord, charged: LaneWord, at: Tick) -> u64 {
        BUCKET.price(before, charged, at)
    }

    fn outlives_its_generation(&self, is_forgiven: bool) -> bool {
        BUCKET.outlives_its_generation(is_forgiven)
    }

    fn roll_back(&self, words: &[LaneWord], latest: At, receipt: Receipt, cost: u64) -> Choice<()> {
        BUCKET.roll_back(words, latest, receipt, cost)
    }

    fn row(&self, numbers: Numbers, warn_below_percent: u8) -> LimitWords {
        let (token_ns, capacity) = match numbers {
            Numbers::Bucket(numbers) => (numbers.token_ns.get(), numbers.capacity),
            Numbers::OfCall => (0, 0),
            Numbers::Unlimited => (1, u64::MAX),
            // A policy gives no bucket the numbers of a lane that counts.
            Numbers::Deny | Numbers::Count(_) => (1, 0),
        };
        DynamicLimit { token_ns, capacity, warn_below_percent: u64::from(warn_below_percent), lane: 0 }.to_words()
    }

    fn is_exempt(&self, limit: LimitWords) -> bool {
        let limit = DynamicLimit::from_words(limit);
        limit.is_decided() && limit.capacity == u64::MAX
    }

    fn step(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64) -> Choice<Charged> {
        match DynamicLimit::from_words(limit).bucket() {
            Ok(bucket) => Choice::of(bucket::step(first(words), at.now, bucket, cost)).map(Charged::Bucket),
            Err(error) => Choice::of(look(Charged::Counted(Err(error)))),
        }
    }

    fn refund(
        &self,
        words: &[LaneWord],
        at: At,
        limit: LimitWords,
        cost: u64,
        _reserved: &dyn Fn(u64) -> u64,
    ) -> Choice<Result<Refunded, Error>> {
        match DynamicLimit::from_words(limit).bucket() {
            Ok(bucket) => {
                Choice::of(bucket::refund(first(words), at.now, bucket, cost)).map(|it| it.map(Refunded::all))
            }
            Err(error) => Choice::of(look(Err(error))),
        }
    }

    fn force(&self, words: &[LaneWord], at: At, limit: LimitWords, cost: u64) -> Choice<()> {
        let force = |bucket| bucket::force(first(words), at.now, bucket, cost);
        Choice::of(DynamicLimit::from_words(limit).bucket().map_or(look(()), force))
    }

    /// Without a limit there is nothing to measure by: nothing is left of nothing.
    fn state(&self, words: &[LaneWord], at: At, limit: LimitWords) -> LaneState {
        let limit = DynamicLimit::from_words(limit).bucket().unwrap_or(BucketLimit::DENY);
        bucket::state(first(words), at.now, limit)
    }

    /// See "how full" in the module.
    fn load(&self, words: &[LaneWord], now: Tick, limit: LimitWords) -> u64 {
        let limit = DynamicLimit::from_words(limit);
        let debt = InstantWord::of(first(words)).wait(now);
        let default = limit.token_ns.saturating_mul(limit.capacity);
        let has_default = limit.token_ns > 0 && !limit.is_decided();
        // Lossless: a minute.
        let depth = if has_default { default.max(1) } else { DYNAMIC_DEPTH.as_nanos() as u64 };
        let share = u128::from(debt) * u128::from(u32::MAX) / u128::from(depth);
        // No word in debt counts as idle, however deep the limit.
        u64::try_from(share).unwrap_or(u64::MAX).max(u64::from(debt > 0))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
