//! A violation, and an agent's conduct.

use super::ConductNumbers;
use crate::clock::Tick;
use std::time::Duration;

/// A recorded violation, and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    pub(super) in_a_row: u32,
    pub(super) step: Duration,
    pub(super) wait: Duration,
    pub(super) sustained_abuse: bool,
}

impl Violation {
    /// A first violation that is not recorded.
    pub(crate) fn first(rules: &ConductNumbers) -> Self {
        Self::new(1, rules.step(1), false, rules)
    }

    /// `block` is how long every lane will deny, in nanoseconds, if the policy
    /// enforces waits.
    pub(super) fn new(in_a_row: u64, block: u64, sustained_abuse: bool, rules: &ConductNumbers) -> Self {
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
    /// between them. Counts to 15.
    #[must_use]
    pub const fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// The wait for it on the policy's curve.
    #[must_use]
    pub const fn step(&self) -> Duration {
        self.step
    }

    /// The wait that the agent is given: the step, or what is left of the block
    /// if the policy enforces waits. A block is up to an eighth of a second
    /// longer, or a second in a flood, since the word keeps time no finer.
    #[must_use]
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    /// Whether this violation made the agent's conduct sustained abuse.
    /// Reported once, and again only after a window without a violation.
    #[must_use]
    pub const fn sustained_abuse(&self) -> bool {
        self.sustained_abuse
    }
}

/// An agent's conduct at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    pub(super) count: u32,
    pub(super) window_start: Option<Tick>,
    pub(super) in_a_row: u32,
    pub(super) last: Option<Tick>,
    pub(super) wait_ns: u64,
}

impl Conduct {
    /// Violations in the present window of the abuse threshold. Counts to 63.
    #[must_use]
    pub const fn violations(&self) -> u32 {
        self.count
    }

    /// When the present window began, within an eighth of a second.
    #[must_use]
    pub const fn window_start(&self) -> Option<Tick> {
        self.window_start
    }

    /// Violations without a quiet period between them. Counts to 15.
    #[must_use]
    pub const fn in_a_row(&self) -> u32 {
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
