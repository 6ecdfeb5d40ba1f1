//! The rules of conduct as numbers.

use super::{Conduct, announced};
use crate::bounds::CURVE_STEPS_MAX;
use crate::clock::nanos_saturating;
use crate::policy::ConductRules;
use std::time::Duration;

/// The rules of conduct, ready to compute with. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConductNumbers {
    pub(super) steps: u64,
    pub(super) quiet: u64,
    pub(super) threshold: u64,
    pub(super) window: u64,
    pub(super) every_denial: bool,
    pub(super) enforce: bool,
    pub(super) curve: [u64; CURVE_STEPS_MAX],
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
    pub(super) fn step(&self, in_a_row: u64) -> u64 {
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

    /// The waits of an agent that is denied, in nanoseconds, if the lane asks
    /// for `lane`.
    pub(crate) fn waits(&self, seen: &Conduct, lane: u64) -> announced::Waits {
        let in_a_row = u64::from(seen.in_a_row);
        // During a block the wait is what is left of it, no less and no more.
        let step = |in_a_row: u64| if self.enforce && seen.wait_ns > 0 { seen.wait_ns } else { self.step(in_a_row) };
        announced::Waits { lane, first: step(1), counted: step(in_a_row.max(1)), early: self.step(in_a_row + 1) }
    }
}
