//! Budgets that machines share: what a machine may spend of which window, against what the store answers and who has
//! the record by then.

use super::cluster::{NOW, built_on, left, settle};
use super::*;
use crate::cluster::{Link, Settled};
use crate::lane::Calendar;
use crate::lane::clustered::{Clustered, LinkWord, WhenLost};

/// One record, and a budget of this many an hour, half of which this machine may spend in advance.
fn budget(capacity: u64, now: Tick) -> Model {
    let settings =
        Clustered { slack_permille: 1_000, is_exact: false, when_lost: WhenLost::Closed, link: LinkWord::LOST };
    let limit = Limit::budget(capacity, Calendar::Hour);
    let policy = Policy::builder().lane("lane-0", limit).build().unwrap();
    built_on(policy.with_clustered(vec![(FIRST, settings)]), OnFull::Deny, ManualClock::new(), now)
}

/// As [`settle`], but what was paid and granted in the second hour alone.
fn settle_next(model: &Model, grants: u64) -> u64 {
    let link = Link::of(&model.0).unwrap();
    let mut debited = 0;
    for ask in link.asks(1) {
        let Some(due) = link.due(&ask) else { continue };
        let is_next = due.window().unwrap().number == 1;
        let is_theirs = link.settle(&ask, &due, grants, 0) != Settled::Gone;
        debited += if is_next && is_theirs { due.owed() + grants } else { 0 };
    }
    debited
}

/// The last instant of an hour, and the first of the next.
const LAST: Tick = Tick::from_nanos(3_600_000_000_000 - 1);
const NEXT: Tick = Tick::from_nanos(3_600_000_000_000);

model! {
    /// Two callers race for the one token of a budget that may be spent in advance.
    budget_against_budget, Some(2), breaks with [PermitByStore], || {
        let model = budget(2, NOW);
        let rival = model.spawn(|model| model.allows(A, FIRST, NOW));
        let mine = model.allows(A, FIRST, NOW);
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(left(&model), -1);
    }
}

model! {
    /// A check and a settlement of one window: every token that was admitted is paid for, or owed.
    budget_against_settle, Some(2), breaks with [PermitByStore], || {
        let model = budget(4, NOW);
        assert!(model.allows(A, FIRST, NOW));
        let engine = model.spawn(|model| settle(model, 1));
        let admitted = 1 + i64::from(model.allows(A, FIRST, NOW));
        let debited = engine.join().unwrap() as i64;
        assert_eq!(left(&model), debited - admitted);
    }
}

model! {
    /// A window begins while the store is asked about the one before: what that one was granted is not spent in it.
    edge_against_settle, Some(2), breaks with [CreditOfOldWindow], || {
        let model = budget(2, LAST);
        assert!(model.allows(A, FIRST, LAST));
        let engine = model.spawn(|model| settle_next(model, 1));
        let mut admitted = (0..2).filter(|_| model.allows(A, FIRST, NEXT)).count();
        let debited = engine.join().unwrap();
        admitted += (0..2).filter(|_| model.allows(A, FIRST, NEXT)).count();
        // One token in advance, and what was debited in the new window, whatever the old one has or owes.
        assert!(admitted as u64 <= 1 + debited, "{admitted} of {debited} and one");
        assert!(admitted > 0);
    }
}

model! {
    /// A reset while the store is asked about a budget: what was owed before it is not taken for credit after it.
    reset_against_budget, Some(2), breaks with [CreditToAnother], || {
        let model = budget(2, NOW);
        assert!(model.allows(A, FIRST, NOW));
        let engine = model.spawn(|model| settle(model, 0));
        model.0.reset(Agent::new(A).at(NOW)).unwrap();
        engine.join().unwrap();
        assert!(left(&model) <= 0, "a token that nobody was debited for: {}", left(&model));
    }
}
