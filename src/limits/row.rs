//! The rows of the table of limits, by number.

use crate::bounds::PLANS_MAX;
use crate::policy::PlanId;

/// Bits of a row's number in a tag word.
pub(crate) const ROW_BITS: u32 = 16;

/// The number of a row in the table of limits.
///
/// Each plan has a pair of rows, one for each parity of the policy's epoch:
/// the policy in force uses one, and the policy that replaces it is written
/// to the other. The first pair is for agents without an assignment.
///
/// Wider than its 16 bits, so that what a look at the tag leaves needs no conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row(u32);

/// How many plans have rows: under loom just enough for the models.
const PLAN_PAIRS: u32 = if cfg!(loom) { 2 } else { PLANS_MAX as u32 };

/// Rows in all: as many as a tag word can number.
pub(crate) const ROWS: usize = if cfg!(loom) { 10 } else { 1 << ROW_BITS };

impl Row {
    /// The row with this number.
    #[inline]
    pub(crate) const fn from_number(number: u32) -> Self {
        Self(number)
    }

    #[inline]
    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// The row of agents that are never limited.
    pub(crate) const EXEMPT: Self = Self(2 * (PLAN_PAIRS + 1));

    /// The row of agents without an assignment.
    pub(crate) const fn unassigned(epoch: u64) -> Self {
        Self((epoch & 1) as u32)
    }

    /// The row of agents that are assigned to a plan.
    pub(crate) const fn of_plan(plan: PlanId, epoch: u64) -> Self {
        Self(2 * (plan.number() as u32 + 1) + (epoch & 1) as u32)
    }

    /// Every row that an override may have.
    pub(crate) fn of_overrides() -> impl Iterator<Item = Self> {
        (Self::EXEMPT.0 + 1..ROWS as u32).map(Self)
    }

    /// Whether an override may have it.
    pub(crate) const fn is_of_overrides(self) -> bool {
        self.0 > Self::EXEMPT.0 && self.0 < ROWS as u32
    }

    /// Whether there are rows for a plan of this number.
    pub(crate) const fn has_plan(plan: PlanId) -> bool {
        (plan.number() as u32) < PLAN_PAIRS
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    #[inline]
    pub(crate) const fn is_unassigned(self) -> bool {
        self.0 < 2
    }

    /// Whether it is the row of a plan, or of agents without one.
    pub(crate) const fn is_of_plan(self) -> bool {
        self.0 < Self::EXEMPT.0
    }

    /// The row of the same plan under the policy of this epoch.
    pub(crate) const fn in_epoch(self, epoch: u64) -> Self {
        debug_assert!(self.is_of_plan());
        Self(self.0 & !1 | (epoch & 1) as u32)
    }

    /// The row of the same policy for another plan. This one must be the row of
    /// a plan, or of agents without one.
    #[inline]
    pub(crate) const fn for_plan(self, plan: PlanId) -> Self {
        Self::of_plan(plan, self.0 as u64)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn rows_of_plans_and_overrides_do_not_overlap() {
        let last = PlanId::new(PLANS_MAX as u16 - 1);
        for epoch in 0..4 {
            let (unassigned, first, last) =
                (Row::unassigned(epoch), Row::of_plan(PlanId::DEFAULT, epoch), Row::of_plan(last, epoch));
            assert!(unassigned.is_unassigned() && !first.is_unassigned());
            assert!(unassigned.0 < first.0 && first.0 < last.0 && last.0 < Row::EXEMPT.0);
            assert_eq!(unassigned.for_plan(PlanId::DEFAULT), first);
            assert_eq!(last.in_epoch(epoch), last);
            assert_ne!(last.in_epoch(epoch + 1), last);
            assert_eq!(last.in_epoch(epoch + 1).in_epoch(epoch), last);
        }
        // One more than there can be overrides: a change writes the new row before it frees the old.
        assert!(Row::of_overrides().count() > crate::bounds::OVERRIDES_MAX);
        assert!(Row::of_overrides().all(|row| !row.is_of_plan() && row != Row::EXEMPT));
        let others = (0..=ROWS as u32).map(Row::from_number).filter(|row| !row.is_of_overrides());
        assert_eq!(others.count(), ROWS + 1 - Row::of_overrides().count());
        assert!(Row::of_overrides().all(Row::is_of_overrides));
        assert!(Row::has_plan(last) && !Row::has_plan(PlanId::new(PLANS_MAX as u16)));
    }
}
