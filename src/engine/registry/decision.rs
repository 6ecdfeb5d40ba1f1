//! An assignment as a word, and its overrides as text.
//!
//! ```text
//!  63         40 39     32 31        16 15         0
//! ┌─────────────┬─────────┬────────────┬────────────┐
//! │   version   │  flags  │  plan + 1  │    row     │
//! └─────────────┴─────────┴────────────┴────────────┘
//! ```
//!
//! One store changes it all, so nobody sees half a change. The version grows
//! with each, so that a reader notices one that was changed and changed back.

use super::Entry;
use crate::limits::Row;
use crate::policy::PlanId;

const ROW_MASK: u64 = 0xffff;
const PLAN_SHIFT: u32 = 16;
const FLAGS_SHIFT: u32 = 32;
const VERSION_SHIFT: u32 = 40;

/// There is an entry.
const PRESENT: u64 = 1 << FLAGS_SHIFT;
const EXEMPT: u64 = 1 << (FLAGS_SHIFT + 1);
const BY_POLICY: u64 = 1 << (FLAGS_SHIFT + 2);
/// It is about to be in force.
const STAGED: u64 = 1 << (FLAGS_SHIFT + 3);

/// An assignment, its overrides aside. Zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decision(pub(super) u64);

impl Decision {
    /// The decision of an entry, after this one.
    pub(super) fn next(self, entry: &Entry) -> Self {
        let present = if entry.is_nothing() { 0 } else { PRESENT };
        let exempt = if entry.exempt { EXEMPT } else { 0 };
        let by_policy = if entry.by_policy { BY_POLICY } else { 0 };
        let plan = entry.plan.map_or(0, |plan| u64::from(plan.number()) + 1) << PLAN_SHIFT;
        let row = entry.override_row.map_or(0, |row| u64::from(row.number()));
        Self(self.next_version() | present | exempt | by_policy | plan | row)
    }

    /// No decision, after this one.
    pub(super) const fn removed(self) -> Self {
        Self(self.next_version())
    }

    const fn next_version(self) -> u64 {
        ((self.0 >> VERSION_SHIFT) + 1) << VERSION_SHIFT
    }

    pub(super) const fn staged(self) -> Self {
        Self(self.0 | STAGED)
    }

    pub(super) const fn unstaged(self) -> Self {
        Self(self.0 & !STAGED)
    }

    pub(super) const fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// The row of its overrides.
    pub(crate) const fn row(self) -> Option<Row> {
        let row = Row::from_number((self.0 & ROW_MASK) as u32);
        // Zero is none, and so is one that nobody here wrote.
        if row.is_of_overrides() { Some(row) } else { None }
    }

    /// The entry without its overrides. A plan or a row that there cannot be is left out.
    pub(crate) fn entry(self) -> Entry {
        // Lossless: sixteen bits.
        let plan = (self.0 >> PLAN_SHIFT & 0xffff).checked_sub(1).map(|number| PlanId::new(number as u16));
        Entry {
            plan: plan.filter(|plan| Row::has_plan(*plan)),
            exempt: self.0 & EXEMPT != 0,
            by_policy: self.0 & BY_POLICY != 0,
            override_row: self.row(),
            ..Entry::default()
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::bounds::PLANS_MAX;
    use crate::limits::ROWS;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decisions_round_trip(
            plan: Option<u8>,
            exempt: bool,
            by_policy: bool,
            row in proptest::option::of(515_u32..65_536),
        ) {
            let override_row = row.map(Row::from_number);
            let plan = plan.map(|number| PlanId::new(number.into()));
            let entry = Entry { plan, exempt, by_policy, override_row, ..Entry::default() };
            let first = Decision::default().next(&entry);
            let again = first.next(&entry);
            for decision in [first, again, again.staged().unstaged()] {
                let read = decision.entry();
                prop_assert_eq!((read.plan, read.exempt, read.by_policy), (plan, exempt, by_policy));
                prop_assert_eq!(read.override_row, override_row);
                prop_assert_eq!(decision.is_present(), plan.is_some() || exempt || by_policy);
            }
            prop_assert!(first != again && first.staged() != first && !first.removed().is_present());
        }

        /// A corrupt word of a shared slab named a row that the table of limits does not have, and claims panicked.
        #[test]
        fn words_that_nobody_wrote_name_rows_that_exist(word: u64, epoch in 0..4_u64) {
            let entry = Decision(word).entry();
            prop_assert!(entry.row(epoch).index() < ROWS);
            prop_assert!(entry.plan.is_none_or(|plan| usize::from(plan.number()) < PLANS_MAX));
            prop_assert!(entry.override_row.is_none_or(|row| !row.is_of_plan() && row != Row::EXEMPT));
        }
    }
}
