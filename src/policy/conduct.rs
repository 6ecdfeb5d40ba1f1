//! What happens to an agent that does not wait.

use crate::bounds::{ABUSE_VIOLATIONS_MAX, ABUSE_WINDOW_MAX, CURVE_STEPS_MAX, QUIET_MAX};
use std::fmt;
use std::time::Duration;

/// What a violation is and what follows from it: how long the agent has to wait,
/// when it is forgiven, and when its conduct is sustained abuse.
///
/// A denial comes with the wait for the tokens. An agent violates the limit if it
/// comes back earlier and is denied again. Parallel requests within one moment
/// count once; up to 15 that may have been under way do not count. With a curve,
/// violations make the wait longer.
///
/// ```
/// use std::time::Duration;
/// use tollgate::ConductRules;
///
/// let rules = ConductRules::default();
/// assert_eq!(rules.curve().len(), 0);
/// assert!(!rules.counts_every_denial());
/// assert_eq!(rules.quiet_period(), Duration::from_secs(60));
/// assert_eq!(rules.abuse_threshold(), (10, Duration::from_secs(300)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ConductRules {
    curve: Vec<Duration>,
    quiet: Duration,
    abuse_violations: u32,
    abuse_window: Duration,
    every_denial: bool,
    enforce: bool,
}

impl Default for ConductRules {
    /// No curve; forgiven after 60 quiet seconds; abuse is ten violations
    /// within five minutes.
    fn default() -> Self {
        Self {
            curve: Vec::new(),
            quiet: Duration::from_secs(60),
            abuse_violations: 10,
            abuse_window: Duration::from_secs(300),
            every_denial: false,
            enforce: false,
        }
    }
}

impl ConductRules {
    /// The wait after the first, second, ... violation in a row; the last one
    /// applies to all that follow. No reported wait is shorter than the first.
    /// Without a curve, the default, waits are those of the lanes.
    pub fn with_curve(mut self, steps: impl IntoIterator<Item = Duration>) -> Self {
        self.curve = steps.into_iter().collect();
        self
    }

    /// After this long without a violation, the agent is forgiven: the next
    /// violation is the first again, and even a longer wait is over.
    pub fn with_quiet_period(mut self, quiet: Duration) -> Self {
        self.quiet = quiet;
        self
    }

    /// This many violations within `window` of the first of them are sustained abuse.
    pub fn with_abuse_threshold(mut self, violations: u32, window: Duration) -> Self {
        (self.abuse_violations, self.abuse_window) = (violations, window);
        self
    }

    /// Whether every denial is a violation, even if the agent has waited long
    /// enough. Off by default. It punishes an agent for its parallel
    /// requests: five at once climb the curve by five steps.
    pub fn with_every_denial(mut self, counts: bool) -> Self {
        self.every_denial = counts;
        self
    }

    /// Whether the wait after a violation is a block: until it is over,
    /// [counted](crate::Request::counted) requests are denied on every lane. Off
    /// by default: the wait is advice, and a request that its bucket can pay for
    /// passes.
    pub fn with_enforced_wait(mut self, enforce: bool) -> Self {
        self.enforce = enforce;
        self
    }

    /// The waits, in order.
    pub fn curve(&self) -> impl ExactSizeIterator<Item = Duration> + '_ {
        self.curve.iter().copied()
    }

    /// How long an agent has to be quiet to be forgiven.
    #[must_use]
    pub fn quiet_period(&self) -> Duration {
        self.quiet
    }

    /// How many violations within how long are sustained abuse.
    #[must_use]
    pub fn abuse_threshold(&self) -> (u32, Duration) {
        (self.abuse_violations, self.abuse_window)
    }

    /// Whether every denial is a violation.
    #[must_use]
    pub fn counts_every_denial(&self) -> bool {
        self.every_denial
    }

    /// Whether the wait after a violation is a block.
    #[must_use]
    pub fn enforces_wait(&self) -> bool {
        self.enforce
    }

    pub(super) fn validate(&self) -> Result<(), ConductError> {
        if self.curve.len() > CURVE_STEPS_MAX {
            return Err(ConductError::Steps { steps: self.curve.len() });
        }
        if let Some(step) = self.curve.iter().find(|step| step.is_zero() || **step > QUIET_MAX) {
            return Err(ConductError::Step { step: *step });
        }
        if self.quiet.is_zero() || self.quiet > QUIET_MAX {
            return Err(ConductError::Quiet { quiet: self.quiet });
        }
        if !(1..=ABUSE_VIOLATIONS_MAX).contains(&self.abuse_violations) {
            return Err(ConductError::Violations { violations: self.abuse_violations });
        }
        if self.abuse_window.is_zero() || self.abuse_window > ABUSE_WINDOW_MAX {
            return Err(ConductError::Window { window: self.abuse_window });
        }
        Ok(())
    }
}

/// What is wrong with conduct rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConductError {
    /// A curve has up to 15 steps.
    Steps {
        /// How many were given.
        steps: usize,
    },
    /// A wait of the curve is out of range.
    Step {
        /// The wait as given.
        step: Duration,
    },
    /// The quiet period is out of range.
    Quiet {
        /// The period as given.
        quiet: Duration,
    },
    /// The threshold of violations for sustained abuse is out of range.
    Violations {
        /// The number as given.
        violations: u32,
    },
    /// The window for sustained abuse is out of range.
    Window {
        /// The window as given.
        window: Duration,
    },
}

impl fmt::Display for ConductError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConductError::Steps { steps } => {
                write!(f, "a curve of {steps} waits; allowed: up to {CURVE_STEPS_MAX}")
            }
            ConductError::Step { step } => {
                write!(f, "a wait of {step:?} in the curve; allowed: more than 0, up to {QUIET_MAX:?}")
            }
            ConductError::Quiet { quiet } => {
                write!(f, "a quiet period of {quiet:?}; allowed: more than 0, up to {QUIET_MAX:?}")
            }
            ConductError::Violations { violations } => {
                write!(f, "abuse from {violations} violations on; allowed: 1 to {ABUSE_VIOLATIONS_MAX}")
            }
            ConductError::Window { window } => {
                write!(f, "an abuse window of {window:?}; allowed: more than 0, up to {ABUSE_WINDOW_MAX:?}")
            }
        }
    }
}

impl std::error::Error for ConductError {}
