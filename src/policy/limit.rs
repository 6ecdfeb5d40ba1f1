//! A lane's numbers, in the words people use: so many per period, and a burst.

use super::calendar::{Calendar, Era};
use super::kind::{Frame, Kind as LaneKind};
use super::text::{self, Parts, Unit};
use crate::bounds::{
    CAPACITY_MAX, EXACT_MAX, HELD_MAX, REFILL_MAX, TOKENS_PER_SECOND_MAX, WINDOW_MAX, WINDOW_MIN, ZONE_MINUTES_MAX,
};
use crate::clock::nanos_saturating;
use std::convert::Infallible;
use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// How much a lane lets through: a token bucket that holds `capacity` tokens
/// and refills `tokens` of them every `per`, or another kind of limit.
///
/// The capacity is the number of tokens unless [`burst`](Limit::burst) says
/// otherwise. A limit is a description: it is checked when the policy is built.
///
/// | kind | text | what it promises |
/// |---|---|---|
/// | [bucket](Limit::new) | `"10/second burst 20"` | at most the burst and what the rate brings since |
/// | [bucket with debt](Limit::oversize_debt) | `"10/second burst 20 oversize debt"` | the same, and the excess of one request |
/// | [window](Limit::window) | `"window 1000/min"` | never more than so many in any trailing window; a charge counts for up to a third longer |
/// | [exact](Limit::exact) | `"exact 5/5min"` | never more than so many in any trailing window, and no denial before; up to 128 |
/// | [budget](Limit::budget) | `"budget 10_000/day"` | so many per calendar window |
/// | [held](Limit::held) | `"held 3"` | at most so many at once |
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
pub struct Limit(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Bucket { tokens: u64, per: Duration, capacity: u64, oversize: Oversize },
    Window { count: u64, length: Duration },
    Exact { count: u64, length: Duration },
    Budget { units: u64, era: Era },
    Held { slots: u64 },
    DenyAll,
    Unlimited,
}

/// What becomes of a cost above a bucket's capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Oversize {
    Reject,
    Debt,
}

impl Limit {
    /// `tokens` every `per`, with a burst of as many.
    #[must_use]
    pub const fn new(tokens: u64, per: Duration) -> Self {
        Self(Kind::Bucket { tokens, per, capacity: tokens, oversize: Oversize::Reject })
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

    /// Never more than `count` in any trailing window of this length, at two
    /// words of every agent's record whatever the count. In return it is
    /// stricter than [`exact`](Limit::exact): time is cut into thirds of the
    /// window, and a charge counts until its third is a whole window old.
    ///
    /// | limit | most in any minute | a charge counts for | who asks evenly gets, a minute | words |
    /// |---|---|---|---|---|
    /// | `window 20/min` | 20 | 60 s to 80 s | 15 | 2 |
    /// | `window 100/min` | 100 | 60 s to 80 s | 75 | 2 |
    /// | `exact 100/min` | 100 | 60 s | 100 | 100 |
    /// | `100/min`, a bucket | 199 | - | 100 | 1 |
    ///
    /// So take it for counts above [`EXACT_MAX`], for costs other than 1, or
    /// where memory matters. Who would have `count` a minute pass for a client
    /// that asks evenly asks for a third more, and accepts as many at once.
    ///
    /// An instant of the caller's own that is older than the latest third in
    /// which the lane was charged is taken for the start of that third.
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
        Self(Kind::Window { count, length })
    }

    /// Never more than `count` in any trailing window of this length, and never
    /// a denial before that: for logins and other targets of brute force, and
    /// for limits that promise "no burst". Up to [`EXACT_MAX`]; a request costs 1.
    ///
    /// Each of the `count` takes a word of every agent's record, and a record is
    /// a power of two of words, two of which are no lane's. With this lane alone
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
    /// A plan or an override may have fewer, and no more than the largest
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
        Self(Kind::Exact { count, length })
    }

    /// `units` per calendar window, in UTC unless [`zone_minutes`](Limit::zone_minutes)
    /// says otherwise: LLM tokens per day, say. What is not used is gone when
    /// the next window begins.
    ///
    /// The date comes from the wall clock. If that is put back, the window in
    /// use stays open, and none is opened again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Calendar, Limit, Limiter, ManualClock, Policy, Request};
    ///
    /// // By itself a manual clock counts from 1970, at midnight UTC.
    /// let clock = ManualClock::new();
    /// let policy = Policy::builder().lane("llm", Limit::budget(10_000, Calendar::Day)).build()?;
    /// let limiter = Limiter::builder(policy).agents(10).clock(clock.clone()).build()?;
    /// let llm = limiter.lane("llm").expect("named above");
    ///
    /// clock.advance(Duration::from_secs(23 * 3_600));
    /// assert_eq!(limiter.check_request(Request::new("user:42", llm).cost(9_000))?.remaining(), 1_000);
    /// assert_eq!(limiter.check_request(Request::new("user:42", llm).cost(2_000))?.retry_after(), Some(Duration::from_secs(3_600)));
    /// clock.advance(Duration::from_secs(3_600));
    /// assert!(limiter.check_request(Request::new("user:42", llm).cost(2_000))?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn budget(units: u64, per: Calendar) -> Self {
        Self(Kind::Budget { units, era: Era { calendar: per, zone_minutes: 0 } })
    }

    /// The same budget by the calendar of a zone that is so many minutes ahead
    /// of UTC. Zones that change their clocks in spring and autumn have no
    /// such number.
    ///
    /// Says nothing about other kinds, which stay what they are.
    #[must_use]
    pub const fn zone_minutes(self, zone_minutes: i16) -> Self {
        match self.0 {
            Kind::Budget { units, era: Era { calendar, .. } } => {
                Self(Kind::Budget { units, era: Era { calendar, zone_minutes } })
            }
            _ => self,
        }
    }

    /// At most `slots` at once: connections, say. See
    /// [`acquire`](crate::Limiter::acquire).
    #[must_use]
    pub const fn held(slots: u64) -> Self {
        Self(Kind::Held { slots })
    }

    /// Nothing passes, and no wait helps.
    #[must_use]
    pub const fn deny_all() -> Self {
        Self(Kind::DenyAll)
    }

    /// No limit at all: how a plan goes without the [total](crate::PolicyBuilder::total)
    /// that others have. Only the lane `total` takes it.
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
        Self(Kind::Unlimited)
    }

    /// Whether it is [`unlimited`](Limit::unlimited).
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        matches!(self.0, Kind::Unlimited)
    }

    /// The same rate with room for `capacity` tokens at once.
    ///
    /// Says nothing about other kinds, which stay what they are.
    #[must_use]
    pub const fn burst(self, capacity: u64) -> Self {
        match self.0 {
            Kind::Bucket { tokens, per, oversize, .. } => Self(Kind::Bucket { tokens, per, capacity, oversize }),
            _ => self,
        }
    }

    /// The same bucket, which takes a cost above its capacity on credit: for
    /// requests that are larger than any sensible burst, such as those of LLMs.
    /// In text, `"10/s burst 20 oversize debt"`.
    ///
    /// Such a cost passes when the bucket is full, and nothing passes after it
    /// until the bucket has paid for it. So in any span at most the capacity,
    /// what the rate brings, and the excess of one request pass. A cost is at
    /// most [`OVERSPEND_MAX`](crate::bounds::OVERSPEND_MAX) times the capacity and takes
    /// less than [`REFILL_MAX`] to pay for; more is
    /// [`Error::CostAboveCapacity`](crate::Error::CostAboveCapacity), as every cost
    /// above the capacity is of other lanes.
    ///
    /// Says nothing about other kinds, which stay what they are. A lane does
    /// this in every plan or in none.
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
            Kind::Bucket { tokens, per, capacity, .. } => {
                Self(Kind::Bucket { tokens, per, capacity, oversize: Oversize::Debt })
            }
            _ => self,
        }
    }

    /// Whether it takes a cost above its capacity on credit; see
    /// [`oversize_debt`](Limit::oversize_debt).
    #[must_use]
    pub const fn takes_oversize(&self) -> bool {
        matches!(self.0, Kind::Bucket { oversize: Oversize::Debt, .. })
    }

    /// How much a full lane holds; 0 for [`deny_all`](Limit::deny_all),
    /// `u64::MAX` for [`unlimited`](Limit::unlimited).
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        match self.0 {
            Kind::Bucket { capacity, .. } => capacity,
            Kind::Window { count, .. } | Kind::Exact { count, .. } => count,
            Kind::Budget { units, .. } => units,
            Kind::Held { slots } => slots,
            Kind::DenyAll => 0,
            Kind::Unlimited => u64::MAX,
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

    /// What the word of such a lane means; `None` for one that denies
    /// everything, or nothing, and leaves the word alone.
    pub(crate) fn lane_kind(&self) -> Option<LaneKind> {
        match self.0 {
            Kind::Bucket { oversize: Oversize::Reject, .. } => Some(LaneKind::Bucket),
            Kind::Bucket { oversize: Oversize::Debt, .. } => Some(LaneKind::Debt),
            Kind::Window { length, .. } => Some(LaneKind::Window(Frame::new(nanos_saturating(length).max(1)))),
            Kind::Exact { length, .. } => Some(LaneKind::Exact { length: nanos_saturating(length) }),
            Kind::Budget { era, .. } => Some(LaneKind::Budget(era)),
            Kind::Held { .. } => Some(LaneKind::Held),
            Kind::DenyAll | Kind::Unlimited => None,
        }
    }

    /// Refuses what only a total can be, or what a total cannot be.
    pub(crate) fn is_for_total(&self, is_total: bool) -> Result<(), LimitError> {
        match self.0 {
            Kind::Unlimited if !is_total => Err(LimitError::Unlimited),
            Kind::Exact { .. } | Kind::Held { .. } if is_total => Err(LimitError::Total { limit: self.to_string() }),
            _ => Ok(()),
        }
    }

    /// How many words such a lane takes.
    pub(crate) fn words(&self) -> usize {
        match self.0 {
            Kind::Exact { count, .. } => usize::try_from(count).unwrap_or(usize::MAX),
            Kind::Window { .. } => 2,
            _ => 1,
        }
    }

    /// Refuses a limit of another kind than those that the lane has already.
    pub(crate) fn is_of_kind_of(&self, known: impl IntoIterator<Item = Limit>) -> Result<(), LimitError> {
        let Some(kind) = self.lane_kind() else {
            return Ok(());
        };
        match known.into_iter().find(|limit| limit.lane_kind().is_some_and(|known| known != kind)) {
            Some(known) => Err(LimitError::OtherKind { limit: self.to_string(), known: known.to_string() }),
            None => Ok(()),
        }
    }

    /// The numbers that a lane computes with.
    pub(crate) fn compile(&self) -> Result<Numbers, LimitError> {
        match self.0 {
            Kind::Bucket { tokens, per, capacity, .. } => compile_bucket(tokens, per, capacity).map(Numbers::Bucket),
            Kind::Window { count, length } => compile_window(count, length).map(Numbers::Count),
            Kind::Exact { count, length } => compile_exact(count, length).map(Numbers::Count),
            Kind::Budget { units, era } => compile_budget(units, era).map(Numbers::Count),
            Kind::Held { slots } => match slots {
                0 => Err(LimitError::Zero),
                1..=HELD_MAX => Ok(Numbers::Count(slots)),
                _ => Err(LimitError::Held { slots }),
            },
            Kind::DenyAll => Ok(Numbers::Bucket(BucketNumbers { ticks_per_token: NonZeroU64::MIN, capacity: 0 })),
            Kind::Unlimited => Ok(Numbers::Unlimited),
        }
    }
}

/// What a lane computes with, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    Bucket(BucketNumbers),
    /// What a window or a budget holds at most, or how many slots there are.
    Count(u64),
    /// No limit.
    Unlimited,
}

fn compile_window(count: u64, length: Duration) -> Result<u64, LimitError> {
    if count == 0 {
        return Err(LimitError::Zero);
    }
    if !(WINDOW_MIN..=WINDOW_MAX).contains(&length) {
        return Err(LimitError::WindowLength { length });
    }
    // Lossless: a window is at most a month long.
    let most = Frame::new(nanos_saturating(length)).count_max();
    if count > most { Err(LimitError::WindowCount { count, length, most }) } else { Ok(count) }
}

fn compile_exact(count: u64, length: Duration) -> Result<u64, LimitError> {
    match count {
        0 => Err(LimitError::Zero),
        _ if !(WINDOW_MIN..=WINDOW_MAX).contains(&length) => Err(LimitError::WindowLength { length }),
        1..=EXACT_MAX => Ok(count),
        _ => Err(LimitError::ExactCount { count }),
    }
}

fn compile_budget(units: u64, era: Era) -> Result<u64, LimitError> {
    match units {
        0 => Err(LimitError::Zero),
        _ if era.zone_minutes.unsigned_abs() > ZONE_MINUTES_MAX.unsigned_abs() => {
            Err(LimitError::Zone { minutes: era.zone_minutes })
        }
        1..=CAPACITY_MAX => Ok(units),
        capacity => Err(LimitError::Capacity { capacity }),
    }
}

fn compile_bucket(tokens: u64, per: Duration, capacity: u64) -> Result<BucketNumbers, LimitError> {
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

/// Numbers that make sense: a whole bucket refills in less than [`REFILL_MAX`]. Capacity 0 is a lane that denies everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketNumbers {
    pub(crate) ticks_per_token: NonZeroU64,
    pub(crate) capacity: u64,
}

impl fmt::Display for Limit {
    /// Writes the text form, which parses back to the same limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::Bucket { tokens, per, capacity, oversize } => {
                write!(f, "{tokens}/{}", Per(per))?;
                if capacity != tokens {
                    write!(f, " burst {capacity}")?;
                }
                f.write_str(if oversize == Oversize::Debt { " oversize debt" } else { "" })
            }
            Kind::Window { count, length } => write!(f, "window {count}/{}", Per(length)),
            Kind::Exact { count, length } => write!(f, "exact {count}/{}", Per(length)),
            Kind::Budget { units, era } => write!(f, "budget {units}/{era}"),
            Kind::Held { slots } => write!(f, "held {slots}"),
            Kind::DenyAll => f.write_str("deny"),
            Kind::Unlimited => f.write_str("unlimited"),
        }
    }
}

/// A period as it stands after a slash.
struct Per(Duration);

impl fmt::Display for Per {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match text::unit_of(self.0) {
            (1, unit) => f.write_str(unit.name()),
            (count, unit) => write!(f, "{count}{}", unit.short()),
        }
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    /// Reads `"10/second burst 20"`, `"60/min"`, `"5 per 5 minutes"`,
    /// `"window 100/min"`, `"exact 5/5min"`, `"budget 10_000/day"`,
    /// `"budget 10_000/day zone +02:00"`, `"held 3"`, `"deny"` or
    /// `"unlimited"`. A bucket may end in `"oversize debt"` or `"oversize
    /// reject"`, the default. Numbers may have underscores; the numbers are
    /// checked too.
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let syntax = || LimitError::Syntax { text: text.chars().take(80).collect() };
        let mut parts = Parts(text.trim());
        let limit = match parts.word() {
            "" => {
                let (tokens, per) = rate(&mut parts)?.ok_or_else(syntax)?;
                let limit = Self::new(tokens, per);
                let limit =
                    if parts.take("burst") { limit.burst(number(&mut parts)?.ok_or_else(syntax)?) } else { limit };
                match (parts.take("oversize"), parts.word()) {
                    (false, "") | (true, "reject") => limit,
                    (true, "debt") => limit.oversize_debt(),
                    _ => return Err(syntax()),
                }
            }
            "window" => {
                let (count, length) = rate(&mut parts)?.ok_or_else(syntax)?;
                Self::window(count, length)
            }
            "exact" => {
                let (count, length) = rate(&mut parts)?.ok_or_else(syntax)?;
                Self::exact(count, length)
            }
            "budget" => budget(&mut parts)?.ok_or_else(syntax)?,
            "held" => Self::held(number(&mut parts)?.ok_or_else(syntax)?),
            "deny" => Self::deny_all(),
            "unlimited" => Self::unlimited(),
            _ => return Err(syntax()),
        };
        let is_bucket = limit.lane_kind().is_some_and(LaneKind::is_bucket);
        if !is_bucket && parts.take("oversize") {
            return Err(LimitError::Oversize { limit: limit.to_string() });
        }
        if !parts.0.is_empty() {
            return Err(syntax());
        }
        limit.validate()?;
        Ok(limit)
    }
}

/// A number; `None` if there is none.
fn number(parts: &mut Parts<'_>) -> Result<Option<u64>, LimitError> {
    let read = |digits| text::number(digits).ok_or_else(|| too_large(digits));
    parts.digits().map(read).transpose()
}

/// So many per period; `None` if it is not that.
fn rate(parts: &mut Parts<'_>) -> Result<Option<(u64, Duration)>, LimitError> {
    let Some(tokens) = number(parts)? else {
        return Ok(None);
    };
    if !parts.take("/") && !parts.take("per") {
        return Ok(None);
    }
    let count = number(parts)?.unwrap_or(1);
    let length = |unit: &Unit| unit.times(count).ok_or_else(|| too_large(&format!("{count}{}", unit.short())));
    let per = text::unit_named(parts.word()).map(length).transpose()?;
    Ok(per.map(|per| (tokens, per)))
}

/// A budget, without the word; `None` if it is not that.
fn budget(parts: &mut Parts<'_>) -> Result<Option<Limit>, LimitError> {
    let Some(units) = number(parts)? else {
        return Ok(None);
    };
    if !parts.take("/") && !parts.take("per") {
        return Ok(None);
    }
    let name = parts.word();
    let Some((calendar, _)) = Calendar::ALL.into_iter().find(|(_, known)| *known == name) else {
        return Ok(None);
    };
    let limit = Limit::budget(units, calendar);
    if !parts.take("zone") {
        return Ok(Some(limit));
    }
    let sign = match (parts.take("+"), parts.take("-")) {
        (true, false) => 1,
        (false, true) => -1,
        _ => return Ok(None),
    };
    let hours = number(parts)?;
    let minutes = if parts.take(":") { number(parts)? } else { None };
    let (Some(hours), Some(minutes @ 0..60)) = (hours, minutes) else {
        return Ok(None);
    };
    let ahead = i16::try_from(hours.saturating_mul(60).saturating_add(minutes)).unwrap_or(i16::MAX);
    Ok(Some(limit.zone_minutes(sign * ahead)))
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
    /// Only a bucket says what becomes of a cost above its capacity.
    Oversize {
        /// The limit as text, without what it says of such costs.
        limit: String,
    },
    /// Only a plan's total can be `"unlimited"`.
    Unlimited,
    /// A plan's total is a bucket, a window or a budget.
    Total {
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
            LimitError::WindowLength { length } => {
                write!(
                    f,
                    "a window of {length:?}; allowed are {WINDOW_MIN:?} to {} days",
                    WINDOW_MAX.as_secs() / 86_400
                )
            }
            LimitError::WindowCount { count, length, most } => write!(
                f,
                "{count} in a window of {length:?}; at most {most} fit into its words; take a longer window, or a bucket"
            ),
            LimitError::ExactCount { count } => write!(
                f,
                "an exact window of {count}; allowed are 1 to {EXACT_MAX}; take a window for more, which is stricter"
            ),
            LimitError::ExactRoom { count, room } => write!(
                f,
                "an exact window of {count}; the records of this limiter have room for {room}; name the larger limit in a plan when the limiter is built"
            ),
            LimitError::Zone { minutes } => {
                write!(
                    f,
                    "a zone {minutes} minutes ahead of UTC; allowed are -{ZONE_MINUTES_MAX} to {ZONE_MINUTES_MAX}"
                )
            }
            LimitError::Held { slots } => write!(f, "{slots} slots; allowed are 1 to {HELD_MAX}"),
            LimitError::OtherKind { limit, known } => write!(
                f,
                "{limit:?} is of another kind than {known:?}; a lane keeps its kind and its period in every plan, and changes its numbers or is \"deny\""
            ),
            LimitError::Oversize { limit } => write!(
                f,
                "{limit:?} can't say \"oversize\"; only a bucket can take a cost above its capacity on credit, such as \"10/second oversize debt\""
            ),
            LimitError::Unlimited => write!(
                f,
                "\"unlimited\" is for the total of a plan; give a lane a large limit, or exempt the agents that are never limited"
            ),
            LimitError::Total { limit } => write!(
                f,
                "{limit:?} is the limit of a single lane; a total is a bucket, a window or a budget, such as \"20/min\" or \"budget 1000/day\""
            ),
            LimitError::TooLarge { number } => write!(
                f,
                "{number} is too large; capacities are up to {CAPACITY_MAX}, rates up to {TOKENS_PER_SECOND_MAX} per second, periods less than {} seconds",
                REFILL_MAX.as_secs()
            ),
            LimitError::Syntax { text } => write!(
                f,
                "{text:?} is not a limit; write \"10/second burst 20\", \"60/min\", \"5 per 5 minutes\" or \"deny\", or of another kind \"window 100/min\", \"exact 5/5min\", \"budget 10000/day\" or \"held 3\""
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
            ("5/s oversize debt", Limit::per_second(5).oversize_debt()),
            ("5 per 5 s burst 7 oversize  debt", Limit::new(5, Duration::from_secs(5)).burst(7).oversize_debt()),
            ("5/s burst 5 oversize reject", Limit::per_second(5)),
            ("7/250ms burst 1", Limit::new(7, Duration::from_millis(250)).burst(1)),
            ("deny", Limit::deny_all()),
            ("window 100/min", Limit::window(100, MINUTE)),
            (" window 3 per 300 s ", Limit::window(3, Duration::from_secs(300))),
            ("exact 5/5min", Limit::exact(5, Duration::from_secs(300))),
            ("budget 10_000/day", Limit::budget(10_000, Calendar::Day)),
            ("budget 1 per hour", Limit::budget(1, Calendar::Hour)),
            ("budget 5/week zone +05:30", Limit::budget(5, Calendar::Week).zone_minutes(330)),
            ("budget 5/month zone -8:00", Limit::budget(5, Calendar::Month).zone_minutes(-480)),
            ("held 3", Limit::held(3)),
            ("unlimited", Limit::unlimited()),
        ] {
            assert_eq!(text.parse(), Ok(limit), "{text}");
            assert_eq!(limit.to_string().parse(), Ok(limit), "{limit}");
        }
    }

    #[test]
    fn refuses_what_is_no_limit() {
        for text in [
            "",
            "60",
            "60/",
            "/min",
            "60/fortnight",
            "60/min burst",
            "60/min burst 5 x",
            "60/min oversize",
            "60/min oversize debts",
            "60/min oversize debt burst 5",
            "60/min oversize debt oversize debt",
            "60/min debt",
            "-1/s",
            "1.5/s",
            "_/s",
            "window",
            "window 5",
            "window 5/s burst 3",
            "deny all",
            "windows 1/s",
        ] {
            assert!(matches!(text.parse::<Limit>(), Err(LimitError::Syntax { .. })), "{text:?}");
        }
    }

    #[test]
    fn only_a_bucket_goes_into_debt() {
        for text in ["window 5/second", "exact 5/minute", "budget 5/day", "held 5", "deny"] {
            let error = format!("{text} oversize debt").parse::<Limit>().expect_err("only a bucket");
            assert!(error.to_string().starts_with(&format!("{text:?} can't say \"oversize\"")), "{error}");
            let limit: Limit = text.parse().unwrap();
            assert_eq!((limit.oversize_debt(), limit.takes_oversize()), (limit, false));
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
    fn a_window_is_as_large_as_its_word_can_count() {
        let fits = |count, length| Limit::window(count, length).validate();
        let second = Duration::from_secs(1);
        assert_eq!(fits(16_382, second), Ok(()));
        let most = LimitError::WindowCount { count: 16_383, length: second, most: 16_382 };
        assert_eq!(fits(16_383, second), Err(most));
        assert_eq!(fits(131_070, MINUTE), Ok(()));
        assert!(fits(131_071, MINUTE).is_err());
        assert_eq!(fits(1, WINDOW_MAX).and(fits(1, WINDOW_MIN)), Ok(()));
        for length in [Duration::ZERO, WINDOW_MIN - Duration::from_nanos(1), WINDOW_MAX + second, Duration::MAX] {
            assert_eq!(fits(1, length), Err(LimitError::WindowLength { length }));
        }
        assert_eq!(fits(0, MINUTE), Err(LimitError::Zero));
    }

    #[test]
    fn the_other_kinds_have_ranges_too() {
        let exact = |count| Limit::exact(count, MINUTE).validate();
        assert_eq!((exact(EXACT_MAX), exact(129)), (Ok(()), Err(LimitError::ExactCount { count: 129 })));
        assert!(Limit::exact(5, Duration::ZERO).validate().is_err());
        let budget = |units| Limit::budget(units, Calendar::Month).validate();
        assert_eq!(budget(CAPACITY_MAX), Ok(()));
        assert_eq!(budget(CAPACITY_MAX + 1), Err(LimitError::Capacity { capacity: CAPACITY_MAX + 1 }));
        let zone = |minutes| Limit::budget(1, Calendar::Day).zone_minutes(minutes).validate();
        assert_eq!((zone(840), zone(-841)), (Ok(()), Err(LimitError::Zone { minutes: -841 })));
        assert_eq!("budget 5/day zone +9999999:00".parse::<Limit>(), Err(LimitError::Zone { minutes: i16::MAX }));
        let held = |slots| Limit::held(slots).validate();
        assert_eq!((held(HELD_MAX), held(HELD_MAX + 1)), (Ok(()), Err(LimitError::Held { slots: HELD_MAX + 1 })));
        assert_eq!([exact(0), budget(0), held(0)], [const { Err(LimitError::Zero) }; 3]);
    }

    #[test]
    fn a_token_never_takes_less_time_than_configured() {
        let ticks = |limit: Limit| match limit.compile() {
            Ok(Numbers::Bucket(numbers)) => Some(numbers.ticks_per_token.get()),
            _ => None,
        };
        assert_eq!(ticks(Limit::per_minute(7)), Some(8_571_428_572));
        assert_eq!(ticks(Limit::per_minute(10)), Some(6_000_000_000));
    }
}
