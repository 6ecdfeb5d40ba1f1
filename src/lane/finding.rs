//! A decision, and what a denial means for the agent's conduct, in one word.

use super::left::Form;
use std::fmt;
use std::num::NonZeroU64;

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

/// A decision, what a denial means for the agent's conduct, and the form of the
/// rest of the verdict. So a verdict has no fields for conduct, which most
/// verdicts would leave empty.
///
/// ```text
///  63                           13 12     9  8     7     6        3 2        0
/// ┌───────────────────────────────┬────────┬──────┬───────┬───────────┬──────────┐
/// │ wait for conduct: ns, 51 bits │ source │ form │ abuse │ in a row  │ decision │
/// └───────────────────────────────┴────────┴──────┴───────┴───────────┴──────────┘
/// decision: 1 allow   2 warn   3 exempt   4 deny
/// form:     0 a bucket's, which refills   1 a count
/// source:   of a lane that machines share, where the answer came from; else 0
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Finding(NonZeroU64);

const DECISION_MASK: u64 = 7;
const IN_A_ROW_SHIFT: u32 = 3;
const IN_A_ROW_MASK: u64 = 15;
const ABUSE_SHIFT: u32 = 7;
const FORM_SHIFT: u32 = 8;
const SOURCE_SHIFT: u32 = 9;
const SOURCE_MASK: u64 = 15;
/// What no judgement of conduct changes.
const LANE_MASK: u64 = SOURCE_MASK << SOURCE_SHIFT | 1 << FORM_SHIFT;
const CONDUCT_WAIT_SHIFT: u32 = 13;
const CONDUCT_WAIT_MAX: u64 = u64::MAX >> CONDUCT_WAIT_SHIFT;
const _: () = assert!(crate::bounds::CURVE_STEPS_MAX as u64 <= IN_A_ROW_MASK);
/// A wait for conduct ends when the agent is forgiven.
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

    /// Whether it is a decision and a form, and nothing else.
    #[cfg(feature = "capi")]
    #[inline(always)]
    pub(crate) const fn is_plain(self) -> bool {
        self.0.get() & !(DECISION_MASK | 1 << FORM_SHIFT) == 0
    }

    /// The same for a lane that counts.
    pub(super) const fn counting(self) -> Self {
        Self::new(self.0.get() | 1 << FORM_SHIFT)
    }

    /// How to read the rest of the verdict.
    #[inline(always)]
    pub(super) const fn form(self) -> Form {
        if self.0.get() >> FORM_SHIFT & 1 == 0 { Form::Refills } else { Form::Counts }
    }

    /// The same with the number of a source, from 1 to 15.
    #[cfg(feature = "cluster")]
    pub(super) const fn with_source(self, source: u64) -> Self {
        Self::new(self.0.get() & !(SOURCE_MASK << SOURCE_SHIFT) | (source & SOURCE_MASK) << SOURCE_SHIFT)
    }

    /// The number of its source; 0 if it has none.
    #[cfg(any(feature = "capi", feature = "cluster"))]
    pub(crate) const fn source(self) -> u64 {
        self.0.get() >> SOURCE_SHIFT & SOURCE_MASK
    }

    /// The same with another decision.
    pub(super) const fn with_decision(self, decision: Self) -> Self {
        Self::new(self.0.get() & !DECISION_MASK | decision.0.get() & DECISION_MASK)
    }

    /// A denial that is the agent's violation number `in_a_row`, or 0 if it is
    /// not a violation, with the wait for conduct. The form and the source stay.
    pub(super) const fn judged(self, in_a_row: u32, sustained_abuse: bool, wait_ns: u64) -> Self {
        let wait_ns = if wait_ns < CONDUCT_WAIT_MAX { wait_ns } else { CONDUCT_WAIT_MAX };
        Self::new(
            wait_ns << CONDUCT_WAIT_SHIFT
                | self.0.get() & LANE_MASK
                | (sustained_abuse as u64) << ABUSE_SHIFT
                | (in_a_row as u64 & IN_A_ROW_MASK) << IN_A_ROW_SHIFT
                | Self::DENY.0.get(),
        )
    }

    /// Violations in a row, and whether the last made them sustained abuse.
    pub(super) const fn conduct(self) -> (u32, bool) {
        let word = self.0.get();
        ((word >> IN_A_ROW_SHIFT & IN_A_ROW_MASK) as u32, word >> ABUSE_SHIFT & 1 == 1)
    }

    pub(crate) const fn conduct_wait_ns(self) -> u64 {
        self.0.get() >> CONDUCT_WAIT_SHIFT
    }

    #[inline(always)]
    pub(super) const fn is_denial(self) -> bool {
        self.0.get() & Self::DENY.0.get() != 0
    }

    #[inline(always)]
    pub(super) const fn decision(self) -> Decision {
        match self.0.get() & DECISION_MASK {
            1 => Decision::Allow,
            2 => Decision::Warn,
            3 => Decision::Exempt,
            _ => Decision::Deny,
        }
    }

    /// The number of the decision's variant.
    #[inline(always)]
    pub(crate) const fn decision_number(self) -> usize {
        // These bits are never 0.
        ((self.0.get() & DECISION_MASK) as usize).wrapping_sub(1)
    }
}

impl fmt::Debug for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (in_a_row, sustained_abuse) = self.conduct();
        let mut finding = f.debug_struct("Finding");
        finding.field("decision", &self.decision()).field("form", &self.form());
        if in_a_row > 0 {
            finding.field("violations_in_a_row", &in_a_row).field("sustained_abuse", &sustained_abuse);
        }
        if self.conduct_wait_ns() > 0 {
            finding.field("conduct_wait_ns", &self.conduct_wait_ns());
        }
        finding.finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_finding_holds_what_it_was_made_of() {
        use Decision::{Allow, Deny, Exempt, Warn};
        let plain = [(Finding::ALLOW, Allow), (Finding::WARN, Warn), (Finding::EXEMPT, Exempt), (Finding::DENY, Deny)];
        for (finding, decision) in plain {
            for (finding, form) in [(finding, Form::Refills), (finding.counting(), Form::Counts)] {
                #[cfg(feature = "capi")]
                assert!(finding.is_plain(), "{finding:?}");
                assert_eq!((finding.decision(), finding.decision_number()), (decision, decision as usize));
                assert_eq!(
                    (finding.is_denial(), finding.conduct(), finding.conduct_wait_ns()),
                    (decision == Deny, (0, false), 0)
                );
                for (other, decision) in plain {
                    let other = finding.with_decision(other);
                    assert_eq!((other.decision(), other.form(), finding.form()), (decision, form, form));
                }
            }
        }
        #[cfg(feature = "cluster")]
        for source in 0..=15 {
            let finding = Finding::DENY.counting().with_source(source);
            assert_eq!((finding.source(), finding.form(), finding.decision()), (source, Form::Counts, Deny));
            let judged = finding.judged(15, true, u64::MAX);
            assert_eq!((judged.source(), judged.conduct()), (source, (15, true)));
            #[cfg(feature = "capi")]
            assert!(!judged.is_plain() && finding.is_plain() == (source == 0), "{finding:?}");
            assert_eq!(judged.with_decision(Finding::ALLOW).source(), source);
            assert_eq!(finding.with_source(0), Finding::DENY.counting());
        }
        for in_a_row in 0..=15 {
            for wait in [0, 1, CONDUCT_WAIT_MAX, u64::MAX] {
                for abuse in [false, true] {
                    for before in [Finding::ALLOW, Finding::DENY.counting()] {
                        let finding = before.judged(in_a_row, abuse, wait);
                        assert_eq!((finding.decision(), finding.decision_number()), (Deny, Deny as usize));
                        assert_eq!((finding.is_denial(), finding.conduct()), (true, (in_a_row, abuse)));
                        assert_eq!(finding.conduct_wait_ns(), wait.min(CONDUCT_WAIT_MAX));
                        assert_eq!(finding.form(), before.form());
                    }
                }
            }
        }
    }
}
