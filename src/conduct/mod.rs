//! An agent's violations, in one word.
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
//! - *age*: how long before *last* the window began in which violations are
//!   counted towards abuse. Its start is rounded up likewise.
//! - *count*: violations in that window, up to 63. A window begins with the
//!   first violation after the one before has passed.
//! - *in a row*: violations without a quiet period between them, up to 15.
//! - *raised*: sustained abuse was reported. It is reported again only after a
//!   window without any violation.
//!
//! A word whose counts are 0 says that nothing is known, whatever *last* is.
//!
//! Once both counts are at their maximum, *last* is rounded up to a whole
//! second: an agent that is denied a million times a second writes its word
//! 63 times in each window, and else once a second.
//!
//! A denial is a violation in any case, or only if it comes before an announced
//! wait is over: `announced.rs` is the word of that.

pub(crate) mod announced;

use crate::bounds::{ABUSE_VIOLATIONS_MAX, ABUSE_WINDOW_MAX, CURVE_STEPS_MAX};
use crate::clock::{Tick, nanos_saturating};
use crate::lane::Outcome;
use crate::policy::ConductRules;
use crate::record::Word;
use std::fmt;
use std::time::Duration;

const GENERATION_MASK: u64 = 0xf;
const RAISED_SHIFT: u32 = 4;
const IN_A_ROW_SHIFT: u32 = 5;
const IN_A_ROW_MAX: u64 = 15;
const COUNT_SHIFT: u32 = 9;
const COUNT_MAX: u64 = 63;
const AGE_SHIFT: u32 = 15;
const AGE_MAX: u64 = (1 << 15) - 1;
const LAST_SHIFT: u32 = 30;

/// Units of time in a second, and nanoseconds in one.
const UNITS_PER_SECOND: u64 = 8;
const UNIT_NANOS: u64 = 1_000_000_000 / UNITS_PER_SECOND;

const _: () = assert!(CURVE_STEPS_MAX as u64 == IN_A_ROW_MAX);
const _: () = assert!(ABUSE_VIOLATIONS_MAX as u64 == COUNT_MAX);
const _: () = assert!(ABUSE_WINDOW_MAX.as_secs() * UNITS_PER_SECOND <= AGE_MAX);
const _: () = assert!(Tick::MAX.as_nanos().div_ceil(UNIT_NANOS) + UNITS_PER_SECOND < 1 << (64 - LAST_SHIFT));

/// A record's conduct word. Zero is an agent of which nothing is known.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct ConductWord(u64);

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
struct ConductFields {
    last: u64,
    age: u64,
    count: u64,
    in_a_row: u64,
    raised: bool,
}

impl ConductWord {
    const fn fields(self) -> ConductFields {
        ConductFields {
            last: self.0 >> LAST_SHIFT,
            age: self.0 >> AGE_SHIFT & AGE_MAX,
            count: self.0 >> COUNT_SHIFT & COUNT_MAX,
            in_a_row: self.0 >> IN_A_ROW_SHIFT & IN_A_ROW_MAX,
            raised: self.0 >> RAISED_SHIFT & 1 != 0,
        }
    }

    /// The same tenancy with other fields.
    const fn with(self, fields: ConductFields) -> Self {
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

    /// Nothing known, in the next tenancy. When the generations start over,
    /// the age moves on, so that the word of sixteen tenancies ago does not
    /// return. It means nothing else while nothing is known.
    ///
    /// Once something is, the age has a meaning: a word with violations
    /// returns if the tenant sixteen tenancies later has as many of them in
    /// the same eighth of a second. A call that stalled all the while would
    /// then count as a violation of that tenant.
    pub(crate) const fn next_tenancy(self) -> Self {
        let ConductFields { last, age, .. } = self.fields();
        let generation = self.0.wrapping_add(1) & GENERATION_MASK;
        let age = if generation == 0 { age.wrapping_add(1) & AGE_MAX } else { age };
        Self(last << LAST_SHIFT | age << AGE_SHIFT | generation)
    }

    /// Whether nothing of it matters any more: no violation after `since`.
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

/// An instant in units, rounded up, and never 0.
fn units(now: Tick) -> u64 {
    now.as_nanos().div_ceil(UNIT_NANOS).max(1)
}

/// An instant in whole seconds, rounded up, in units.
fn units_of_seconds(now: Tick) -> u64 {
    units(now).next_multiple_of(UNITS_PER_SECOND)
}

/// The rules of conduct, ready to compute with. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConductNumbers {
    steps: u64,
    quiet: u64,
    threshold: u64,
    window: u64,
    every_denial: bool,
    enforce: bool,
    curve: [u64; CURVE_STEPS_MAX],
}

impl ConductNumbers {
    pub(crate) const WORDS: usize = 5 + CURVE_STEPS_MAX;

    pub(crate) fn new(rules: &ConductRules) -> Self {
        let mut curve = [0; CURVE_STEPS_MAX];
        for (word, step) in curve.iter_mut().zip(rules.curve()) {
            *word = nanos_saturating(step);
        }
        let (threshold, window) = rules.abuse_threshold();
        Self {
            steps: rules.curve().len() as u64,
            quiet: nanos_saturating(rules.quiet_period()),
            threshold: u64::from(threshold),
            window: nanos_saturating(window),
            every_denial: rules.counts_every_denial(),
            enforce: rules.enforces_wait(),
            curve,
        }
    }

    pub(crate) fn to_words(self) -> impl Iterator<Item = u64> {
        let flags = u64::from(self.every_denial) | u64::from(self.enforce) << 1;
        [self.steps, self.quiet, self.threshold, self.window, flags].into_iter().chain(self.curve)
    }

    pub(crate) fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [steps, quiet, threshold, window, flags, ref curve @ ..] = words;
        let (every_denial, enforce) = (flags & 1 != 0, flags & 2 != 0);
        Self { steps, quiet, threshold, window, every_denial, enforce, curve: *curve }
    }

    /// The wait after this many violations in a row; 0 without a curve.
    fn step(&self, in_a_row: u64) -> u64 {
        let index = in_a_row.min(self.steps).saturating_sub(1);
        self.curve[(index as usize).min(CURVE_STEPS_MAX - 1)]
    }

    /// How long after its last violation an agent's conduct matters.
    pub(crate) fn keep(&self) -> Duration {
        Duration::from_nanos(self.quiet.max(self.window))
    }

    pub(crate) const fn enforces_wait(&self) -> bool {
        self.enforce
    }

    pub(crate) const fn counts_every_denial(&self) -> bool {
        self.every_denial
    }

    /// The waits of an agent that is denied, in nanoseconds, where the lane
    /// asks for `lane`.
    pub(crate) fn waits(&self, seen: &Conduct, lane: u64) -> announced::Waits {
        let in_a_row = u64::from(seen.in_a_row);
        // During a block the wait is what is left of it, no less and no more.
        let step = |in_a_row: u64| if self.enforce && seen.wait_ns > 0 { seen.wait_ns } else { self.step(in_a_row) };
        announced::Waits { lane, first: step(1), counted: step(in_a_row.max(1)), early: self.step(in_a_row + 1) }
    }
}

/// A violation as it was recorded, and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    in_a_row: u32,
    step: Duration,
    wait: Duration,
    sustained_abuse: bool,
}

impl Violation {
    /// What a first violation would be.
    pub(crate) fn first(rules: &ConductNumbers) -> Self {
        Self::new(1, rules.step(1), false, rules)
    }

    /// `block` is how long every lane will deny, in nanoseconds, if the policy
    /// enforces waits.
    fn new(in_a_row: u64, block: u64, sustained_abuse: bool, rules: &ConductNumbers) -> Self {
        let step = rules.step(in_a_row);
        let wait = if rules.enforce { block } else { step };
        // Lossless: the word counts to 15.
        Self {
            in_a_row: in_a_row as u32,
            step: Duration::from_nanos(step),
            wait: Duration::from_nanos(wait),
            sustained_abuse,
        }
    }

    /// How many violations in a row this makes, without a quiet period
    /// between them; it stays at 15.
    #[must_use]
    pub const fn consecutive(&self) -> u32 {
        self.in_a_row
    }

    /// The wait that the curve of the policy names for it.
    #[must_use]
    pub const fn step(&self) -> Duration {
        self.step
    }

    /// The wait that the agent is given: the step, or what is left of the block
    /// if the policy enforces waits. That is up to an eighth of a second more,
    /// or a second in a flood, since the word keeps time no finer.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    /// Whether with this violation the agent's conduct became sustained
    /// abuse. Reported once, and again only after a window without a violation.
    #[must_use]
    pub const fn sustained_abuse(&self) -> bool {
        self.sustained_abuse
    }
}

/// An agent's conduct as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    count: u32,
    window_start: Option<Tick>,
    in_a_row: u32,
    last: Option<Tick>,
    wait_ns: u64,
}

impl Conduct {
    /// Violations in the present window of the abuse threshold; it stays at 63.
    #[must_use]
    pub const fn violations(&self) -> u32 {
        self.count
    }

    /// When the present window began, within an eighth of a second.
    #[must_use]
    pub const fn window_start(&self) -> Option<Tick> {
        self.window_start
    }

    /// Violations without a quiet period between them; it stays at 15.
    #[must_use]
    pub const fn consecutive(&self) -> u32 {
        self.in_a_row
    }

    /// When the last violation was, if it still matters: within an eighth of
    /// a second, or within a second in a flood of them.
    #[must_use]
    pub const fn last_violation(&self) -> Option<Tick> {
        self.last
    }

    /// What is left of the wait that the last violation brought.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        Duration::from_nanos(self.wait_ns)
    }

    /// Whether the agent has violated a limit and has not been quiet since:
    /// a scheduler gives such an agent no new work.
    #[must_use]
    pub const fn is_rate_limited(&self) -> bool {
        self.in_a_row > 0
    }
}

/// Records a violation at `now`.
pub(crate) fn violate(word: ConductWord, now: Tick, rules: &ConductNumbers) -> Outcome<Violation, ConductWord> {
    let before = assess(word, now, rules);
    let fields = word.fields();
    let in_a_row = (u64::from(before.in_a_row) + 1).min(IN_A_ROW_MAX);
    let count = (u64::from(before.count) + 1).min(COUNT_MAX);
    // A caller with an older instant does not move the last violation back.
    let flood = in_a_row == IN_A_ROW_MAX && count == COUNT_MAX;
    let at = if flood { units_of_seconds(now) } else { units(now) };
    let last = if before.last.is_some() { at.max(fields.last) } else { at };
    let start = if before.count == 0 { last } else { fields.last - fields.age.min(fields.last) };
    // Reported already, unless a whole window has passed without a violation.
    let reported = fields.raised && before.last.is_some() && now.as_nanos() < fields.last * UNIT_NANOS + rules.window;
    let sustained_abuse = !reported && count >= rules.threshold;
    let next = word.with(ConductFields {
        last,
        age: (last - start).min(AGE_MAX),
        count,
        in_a_row,
        raised: reported || sustained_abuse,
    });
    let answer = Violation::new(in_a_row, assess(next, now, rules).wait_ns, sustained_abuse, rules);
    Outcome { next: (next != word).then_some(next), answer }
}

/// The conduct as it stands at `now`.
pub(crate) fn assess(word: ConductWord, now: Tick, rules: &ConductNumbers) -> Conduct {
    let ConductFields { last, age, count, in_a_row, .. } = word.fields();
    let now = now.as_nanos();
    let (last_ns, start_ns) = (last * UNIT_NANOS, (last - age.min(last)) * UNIT_NANOS);
    let known = count > 0 || in_a_row > 0;
    let is_quiet = now >= last_ns + rules.quiet;
    let in_a_row = if is_quiet { 0 } else { in_a_row };
    let count = if now >= start_ns + rules.window { 0 } else { count };
    // A forgiven agent waits no longer, whatever the curve says. Without a curve there is no
    // wait to round up to the units that `last` is kept in.
    let wait = rules.step(in_a_row).min(rules.quiet);
    let wait_ns = if in_a_row > 0 && wait > 0 { (last_ns + wait).saturating_sub(now) } else { 0 };
    Conduct {
        count: count as u32,
        window_start: (count > 0).then(|| Tick::from_nanos(start_ns)),
        in_a_row: in_a_row as u32,
        last: (known && now < last_ns + rules.quiet.max(rules.window)).then(|| Tick::from_nanos(last_ns)),
        wait_ns,
    }
}

/// Forgives everything, and says whether anything mattered at `now`.
pub(crate) fn forgive(word: ConductWord, now: Tick, rules: &ConductNumbers) -> Outcome<bool, ConductWord> {
    let next = word.with(ConductFields { count: 0, in_a_row: 0, raised: false, ..word.fields() });
    Outcome { next: (next != word).then_some(next), answer: assess(word, now, rules).last.is_some() }
}

#[cfg(all(test, not(loom)))]
mod tests;
