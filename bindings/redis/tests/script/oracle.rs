//! What a settlement has to come to, in exact integers and from the contract, not from the script.

use tollgate_redis::{BudgetSettlement, Settlement};

/// What is granted and the level after it, as exact integers.
pub(crate) type Answer = (i128, i128);

/// A settlement that an oracle understands.
pub(crate) trait Oracle: Default {
    type Asked;

    /// What the call at this instant, in microseconds, comes to.
    fn settle(&mut self, now_us: i128, asked: &Self::Asked) -> Answer;
}

/// Of `left` tokens: the largest n that is wanted and, beyond `min`, no more than a share.
fn grant(left: i128, min: u64, want: u64, share: u64) -> i128 {
    let (min, want, share) = (i128::from(min), i128::from(want), i128::from(share));
    let mut granted = if left >= min { left.div_euclid(share) } else { return 0 };
    if granted < min {
        granted = min;
    }
    if granted > want {
        granted = want;
    }
    granted
}

/// A bucket that is full at an instant, and was last changed at another.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    full_at_ns: i128,
    changed_at_ns: i128,
}

impl Oracle for Bucket {
    type Asked = Settlement;

    fn settle(&mut self, now_us: i128, asked: &Settlement) -> Answer {
        let now = now_us * 1_000;
        let ns = |tokens: u64| i128::from(tokens) * i128::from(asked.token_ns);
        if now < self.changed_at_ns {
            // No time has passed: all instants move with the clock.
            self.full_at_ns -= self.changed_at_ns - now;
            self.changed_at_ns = now;
        }
        let found = if self.full_at_ns > now { self.full_at_ns - now } else { 0 };
        let kept = if found > ns(asked.give) { found - ns(asked.give) } else { 0 };
        let mut debt = kept + ns(asked.owed);
        if debt < i128::from(asked.floor_ns) {
            debt = i128::from(asked.floor_ns);
        }
        let most = ns(asked.capacity) + ns(asked.over);
        if debt > most {
            debt = if kept > most { kept } else { most };
        }
        let left = (ns(asked.capacity) - debt).div_euclid(i128::from(asked.token_ns));
        let granted = grant(left, asked.min, asked.want, asked.share);
        debt += granted * i128::from(asked.token_ns);
        if debt != found {
            // Of a full bucket nothing is remembered.
            (self.full_at_ns, self.changed_at_ns) = if debt > 0 { (now + debt, now) } else { (0, 0) };
        }
        (granted, debt)
    }
}

/// A budget of one window.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    used: i128,
}

impl Oracle for Budget {
    type Asked = BudgetSettlement;

    fn settle(&mut self, _: i128, asked: &BudgetSettlement) -> Answer {
        let (capacity, most) = (i128::from(asked.capacity), i128::from(asked.capacity) + i128::from(asked.over));
        let kept = if self.used > i128::from(asked.give) { self.used - i128::from(asked.give) } else { 0 };
        self.used = kept + i128::from(asked.owed);
        if self.used < i128::from(asked.floor) {
            self.used = i128::from(asked.floor);
        }
        if self.used > most {
            self.used = if kept > most { kept } else { most };
        }
        let granted = grant(capacity - self.used, asked.min, asked.want, asked.share);
        self.used += granted;
        (granted, self.used)
    }
}
