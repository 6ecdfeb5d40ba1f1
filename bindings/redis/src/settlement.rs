//! What a node asks of the scripts, checked, and what they answer.

use crate::error::{RangeError, ReplyError};
use crate::script::Script;

/// The longest debt of a shared bucket: 52 days. Sums of two such numbers are
/// less than 2^53, up to which the doubles of the server's Lua are exact.
pub const DEBT_NS_MAX: u64 = (1 << 52) - 1;

/// The largest count of a shared budget, and the largest number of tokens that
/// can be wanted. It has 15 digits: sums of two are exact in doubles.
pub const COUNT_MAX: u64 = 999_999_999_999_999;

/// How long a budget's key outlives its window. The wall clocks of nodes may
/// differ by that much; beyond it a node whose clock is behind would find the
/// budget unused for the rest of its window.
pub const EXPIRY_MARGIN_MS: u64 = 10 * 60 * 1_000;

/// The longest that a budget's window may go on: 400 days.
const LEFT_MS_MAX: u64 = 400 * 24 * 60 * 60 * 1_000;

/// A settlement with a bucket. The [crate's documentation](crate#the-contract) says in which order it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// How long one token takes to come back, in nanoseconds: at least 1.
    pub token_ns: u64,
    /// What the full bucket holds: at least 1 token.
    pub capacity: u64,
    /// Tokens that were spent before they were paid.
    pub owed: u64,
    /// Tokens of credit that were not spent, taken at this `token_ns`.
    pub give: u64,
    /// Take nothing unless so many tokens are left; of what is wanted, not more than `want`.
    pub min: u64,
    /// Tokens to take, at most.
    pub want: u64,
    /// Take at most one in `share` of the tokens left, or `min`: at least 1.
    pub share: u64,
    /// Tokens beyond the capacity up to which what is owed is charged.
    pub over: u64,
    /// The debt is at least this.
    pub floor_ns: u64,
}

/// What a [`Settlement`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Tokens taken: 0 to `want`.
    pub granted: u64,
    /// How long the bucket takes to be full again, what was granted included.
    pub debt_ns: u64,
}

/// A settlement with a budget in one calendar window, which is part of the key.
///
/// The node says how long the window goes on, and by its own clock: windows are
/// the calendar's, and the server knows no calendar. A duration travels and no
/// instant, so the server's clock need not agree with the node's. Each write sets
/// the key's expiry anew, to [`EXPIRY_MARGIN_MS`] after the window's end, so that
/// nodes whose clocks differ by less still meet at one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSettlement {
    /// How long the window goes on, in milliseconds.
    pub left_ms: u64,
    /// What may be used in the window: at least 1.
    pub capacity: u64,
    /// What was used before it was paid.
    pub owed: u64,
    /// Credit of this window that was not used.
    pub give: u64,
    /// Take nothing unless so much is left; not more than `want`.
    pub min: u64,
    /// How much to take, at most.
    pub want: u64,
    /// Take at most one in `share` of what is left, or `min`: at least 1.
    pub share: u64,
    /// How far beyond the capacity what is owed is charged.
    pub over: u64,
    /// At least this much is used.
    pub floor: u64,
}

/// What a [`BudgetSettlement`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetSettled {
    /// How much was taken: 0 to `want`.
    pub granted: u64,
    /// How much of the budget is used in this window, what was granted included.
    pub used: u64,
}

/// A [`Settlement`] or a [`BudgetSettlement`].
pub trait Settle: sealed::Arguments + Copy {
    /// What it comes to.
    type Settled: Copy;

    /// Refuses what the script could not compute exactly. The commands check by themselves.
    fn check(&self) -> Result<(), RangeError>;
}

pub(crate) mod sealed {
    use super::{ReplyError, Script};

    /// The side of a settlement that faces the script.
    pub trait Arguments {
        /// The script for one key, and that for many.
        const SCRIPTS: (Script, Script);

        /// In the script's order.
        fn arguments(&self) -> [u64; 9];

        /// What came back, as what was settled.
        fn settled(&self, granted: u64, level: u64) -> Result<<Self as super::Settle>::Settled, ReplyError>
        where
            Self: super::Settle;
    }
}

/// What bucket and budget have in common.
fn check_grant(min: u64, want: u64, share: u64) -> Result<(), RangeError> {
    RangeError::check("want", u128::from(want), 0, COUNT_MAX)?;
    RangeError::check("min, which is part of want", u128::from(min), 0, want)?;
    RangeError::check("share", u128::from(share), 1, COUNT_MAX)
}

/// The script never grants more than is wanted; whoever answered so is not the script.
fn check_granted(granted: u64, want: u64) -> Result<(), ReplyError> {
    let came = (granted, want);
    if granted > want { Err(ReplyError::unexpected("at most what is wanted (granted, wanted)", &came)) } else { Ok(()) }
}

impl Settle for Settlement {
    type Settled = Settled;

    fn check(&self) -> Result<(), RangeError> {
        let ns = |tokens: u64| u128::from(tokens) * u128::from(self.token_ns);
        RangeError::check("token_ns", u128::from(self.token_ns), 1, DEBT_NS_MAX)?;
        RangeError::check("capacity", u128::from(self.capacity), 1, COUNT_MAX)?;
        RangeError::check("capacity with overdraft, in ns", ns(self.capacity) + ns(self.over), 1, DEBT_NS_MAX)?;
        RangeError::check("owed, in ns", ns(self.owed), 0, DEBT_NS_MAX)?;
        RangeError::check("give, in ns", ns(self.give), 0, DEBT_NS_MAX)?;
        RangeError::check("floor_ns", u128::from(self.floor_ns), 0, DEBT_NS_MAX)?;
        check_grant(self.min, self.want, self.share)
    }
}

impl sealed::Arguments for Settlement {
    const SCRIPTS: (Script, Script) = (Script::Bucket, Script::BucketMany);

    fn arguments(&self) -> [u64; 9] {
        let Self { token_ns, capacity, owed, give, min, want, share, over, floor_ns } = *self;
        [token_ns, capacity, owed, give, min, want, share, over, floor_ns]
    }

    fn settled(&self, granted: u64, debt_ns: u64) -> Result<Settled, ReplyError> {
        check_granted(granted, self.want)?;
        Ok(Settled { granted, debt_ns })
    }
}

impl Settle for BudgetSettlement {
    type Settled = BudgetSettled;

    fn check(&self) -> Result<(), RangeError> {
        let both = u128::from(self.capacity) + u128::from(self.over);
        RangeError::check("left_ms", u128::from(self.left_ms), 0, LEFT_MS_MAX)?;
        RangeError::check("capacity", u128::from(self.capacity), 1, COUNT_MAX)?;
        RangeError::check("capacity with overdraft", both, 1, COUNT_MAX)?;
        RangeError::check("owed", u128::from(self.owed), 0, COUNT_MAX)?;
        RangeError::check("give", u128::from(self.give), 0, COUNT_MAX)?;
        RangeError::check("floor", u128::from(self.floor), 0, COUNT_MAX)?;
        check_grant(self.min, self.want, self.share)
    }
}

impl sealed::Arguments for BudgetSettlement {
    const SCRIPTS: (Script, Script) = (Script::Budget, Script::BudgetMany);

    fn arguments(&self) -> [u64; 9] {
        let Self { left_ms, capacity, owed, give, min, want, share, over, floor } = *self;
        [left_ms + EXPIRY_MARGIN_MS, capacity, owed, give, min, want, share, over, floor]
    }

    fn settled(&self, granted: u64, used: u64) -> Result<BudgetSettled, ReplyError> {
        check_granted(granted, self.want)?;
        Ok(BudgetSettled { granted, used })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKET: Settlement =
        Settlement { token_ns: 1, capacity: 1, owed: 0, give: 0, min: 0, want: 0, share: 1, over: 0, floor_ns: 0 };
    const BUDGET: BudgetSettlement =
        BudgetSettlement { left_ms: 0, capacity: 1, owed: 0, give: 0, min: 0, want: 0, share: 1, over: 0, floor: 0 };

    #[test]
    fn the_edges_of_what_is_exact_can_be_sent() {
        assert_eq!(BUCKET.check(), Ok(()));
        assert_eq!(Settlement { token_ns: DEBT_NS_MAX, owed: 1, give: 1, ..BUCKET }.check(), Ok(()));
        assert_eq!(Settlement { floor_ns: DEBT_NS_MAX, min: 3, want: 3, ..BUCKET }.check(), Ok(()));
        assert_eq!(BUDGET.check(), Ok(()));
        assert_eq!(BudgetSettlement { capacity: COUNT_MAX, owed: COUNT_MAX, ..BUDGET }.check(), Ok(()));
    }

    #[test]
    fn what_is_beyond_them_is_refused() {
        for beyond in [
            Settlement { token_ns: 0, ..BUCKET },
            Settlement { token_ns: DEBT_NS_MAX + 1, ..BUCKET },
            Settlement { token_ns: 1 << 51, capacity: 1, over: 1, ..BUCKET },
            Settlement { token_ns: 1 << 51, owed: 2, ..BUCKET },
            Settlement { token_ns: u64::MAX, capacity: u64::MAX, ..BUCKET },
            Settlement { capacity: 0, ..BUCKET },
            Settlement { give: DEBT_NS_MAX + 1, ..BUCKET },
            Settlement { floor_ns: DEBT_NS_MAX + 1, ..BUCKET },
            Settlement { share: 0, ..BUCKET },
            Settlement { want: COUNT_MAX + 1, ..BUCKET },
            Settlement { min: 1, ..BUCKET },
        ] {
            assert!(beyond.check().is_err(), "{beyond:?}");
        }
        for beyond in [
            BudgetSettlement { capacity: 0, ..BUDGET },
            BudgetSettlement { capacity: COUNT_MAX, over: 1, ..BUDGET },
            BudgetSettlement { owed: COUNT_MAX + 1, ..BUDGET },
            BudgetSettlement { give: COUNT_MAX + 1, ..BUDGET },
            BudgetSettlement { floor: COUNT_MAX + 1, ..BUDGET },
            BudgetSettlement { left_ms: u64::MAX, ..BUDGET },
            BudgetSettlement { min: 1, ..BUDGET },
        ] {
            assert!(beyond.check().is_err(), "{beyond:?}");
        }
    }

    #[test]
    fn an_error_names_both_values() {
        let error = Settlement { token_ns: 1 << 51, capacity: 1, over: 1, ..BUCKET }.check().unwrap_err();
        let text =
            "capacity with overdraft, in ns: 4503599627370496 is more than 4503599627370495, the most there may be";
        assert_eq!(error.to_string(), text);
        let error = Settlement { share: 0, ..BUCKET }.check().unwrap_err();
        assert_eq!(error.to_string(), "share: 0 is less than 1, the least there may be");
    }
}
