//! The answer to several charges at once.

use crate::bounds::PARTS_MAX;
use crate::lane::{Decision, Verdict};
use std::time::Duration;

/// The answer to several charges at once: all were made, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the verdict decides whether the request may go on"]
pub struct AllVerdict {
    pub(super) verdicts: [Verdict; PARTS_MAX],
    parts: usize,
}

impl AllVerdict {
    /// Whether all parts were charged.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.verdicts().iter().all(Verdict::is_allowed)
    }

    /// The decision on the whole: `Deny` if a part is denied, `Warn` if an agent
    /// is near its limit, `Exempt` if every part's agent is exempt, otherwise
    /// `Allow`.
    #[must_use]
    pub fn decision(&self) -> Decision {
        let is_any = |decision| self.verdicts().iter().any(|verdict| verdict.decision() == decision);
        let worst = [Decision::Deny, Decision::Warn, Decision::Allow].into_iter().find(|decision| is_any(*decision));
        worst.unwrap_or(Decision::Exempt)
    }

    /// The verdict on each part, in the order in which they were given. If any
    /// is a denial, nothing was charged, and the others are what would have been.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts[..self.parts]
    }

    /// The indexes of the parts that were denied; empty if all were allowed.
    pub fn blocking(&self) -> impl Iterator<Item = usize> + '_ {
        self.verdicts().iter().enumerate().filter(|(_, verdict)| !verdict.is_allowed()).map(|(part, _)| part)
    }

    /// The longest wait of the denied parts. `None` if all were allowed, or if
    /// no wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let mut waits = self.blocking().map(|part| self.verdicts[part].retry_after());
        let first = waits.next()??;
        waits.try_fold(first, |longest, wait| Some(longest.max(wait?)))
    }

    /// All parts exempt, until each is decided.
    pub(super) const fn new(parts: usize) -> Self {
        Self { verdicts: [Verdict::EXEMPT; PARTS_MAX], parts }
    }
}
