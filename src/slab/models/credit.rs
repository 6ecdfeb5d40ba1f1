//! The credit word of a lane that machines share: whoever spends, against another that spends, the engine that settles,
//! and the end of credit; and the view beside it while the store is lost.

use super::cluster::{NOW, built_on, left, settle};
use super::*;
use crate::cluster::{Link, WhenLost};
use crate::lane::clustered::{CREDIT_LIVES, Clustered, LinkWord};
use std::num::NonZeroU16;

/// A machine alone, of whose four tokens two may be in credit, and which spends nothing in advance.
fn exact(clock: ManualClock) -> Model {
    with(clock, OnFull::Deny, EXACT)
}

const EXACT: Clustered =
    Clustered { slack_permille: 1_000, is_exact: true, when_lost: WhenLost::Closed, link: LinkWord::LOST };

fn with(clock: ManualClock, on_full: OnFull, lane: Clustered) -> Model {
    built_on(buckets(1, 4).with_clustered(vec![(FIRST, lane)]), on_full, clock, NOW)
}

/// Asks for A, is denied, and is granted so many.
fn granted(grants: u64) -> Model {
    granted_on(ManualClock::new(), grants)
}

fn granted_on(clock: ManualClock, grants: u64) -> Model {
    let model = exact(clock);
    assert!(!model.allows(A, FIRST, NOW), "it has to ask first");
    assert_eq!(settle(&model, grants), grants);
    model
}

/// A has a record, of which nothing is owed and nobody is asked about.
fn known_and_idle() -> Model {
    let model = with(ManualClock::new(), OnFull::Evict, EXACT);
    assert!(!model.allows(A, FIRST, NOW), "it has to ask first");
    let link = Link::of(&model.0).unwrap();
    link.asks(1).for_each(drop);
    model.0.reset(Agent::new(A).at(NOW)).unwrap();
    link.asks(2).for_each(drop);
    model
}

model! {
    /// Two callers race for one token of credit.
    spend_against_spend, Some(3), breaks with [PermitByStore], || {
        let model = granted(1);
        let rival = model.spawn(|model| model.allows(A, FIRST, NOW));
        let mine = model.allows(A, FIRST, NOW);
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(left(&model), 0);
    }
}

model! {
    /// Two callers have credit enough, so that neither has to ask for more: each token is spent once.
    spend_against_spend_of_plenty, Some(3), breaks with [ChargeByStore], || {
        let model = granted(4);
        let rival = model.spawn(|model| model.allows(A, FIRST, NOW));
        let mine = model.allows(A, FIRST, NOW);
        assert!(mine && rival.join().unwrap());
        assert_eq!(left(&model), 2);
    }
}

model! {
    /// A token of credit is spent while the engine settles: none is spent twice, and none is lost.
    spend_against_settle, Some(3), breaks with [ChargeByStore, PermitByStore], || {
        let model = granted(1);
        // Denied, and so asked about once more.
        assert!(!model.0.check_request(Request::new(A, FIRST).cost(2).at(NOW)).unwrap().is_allowed());
        let engine = model.spawn(|model| settle(model, 1));
        let admitted = i64::from(model.allows(A, FIRST, NOW));
        let debited = 1 + engine.join().unwrap() as i64;
        assert_eq!(left(&model), debited - admitted);
    }
}

model! {
    /// Three at once: two that spend, and the engine.
    spend_against_spend_and_settle, Some(1), breaks with [ChargeByStore, PermitByStore], || {
        let model = granted(1);
        assert!(!model.0.check_request(Request::new(A, FIRST).cost(2).at(NOW)).unwrap().is_allowed());
        let engine = model.spawn(|model| settle(model, 1));
        let rival = model.spawn(|model| i64::from(model.allows(A, FIRST, NOW)));
        let admitted = i64::from(model.allows(A, FIRST, NOW)) + rival.join().unwrap();
        let debited = 1 + engine.join().unwrap() as i64;
        assert_eq!(left(&model), debited - admitted);
    }
}

model! {
    /// Credit ends, and is given back, while a caller that read the clock before spends a token: one of both has it.
    expire_against_spend, Some(3), breaks with [ChargeByStore, PermitByStore], || {
        let clock = ManualClock::new();
        let model = granted_on(clock.clone(), 4);
        clock.advance(2 * CREDIT_LIVES);
        let caller = model.spawn(|model| model.allows(A, FIRST, NOW));
        let link = Link::of(&model.0).unwrap();
        let ask = crate::cluster::Ask::for_test(&model.0.engine, A, FIRST);
        let given = link.due(&ask).map_or(0, |due| due.given());
        let spent = u64::from(caller.join().unwrap());
        assert_eq!(given + spent, 4, "{given} given back and {spent} spent, of four");
        assert_eq!(left(&model), 0);
    }
}

model! {
    /// A's record, of which nothing is owed, is given to B while the engine settles it: B gets nothing of what A was
    /// granted.
    evict_against_settle, Some(1), breaks with [SameGeneration], || {
        let model = known_and_idle();
        let engine = model.spawn(|model| {
            let link = Link::of(&model.0).unwrap();
            let ask = crate::cluster::Ask::for_test(&model.0.engine, A, FIRST);
            if let Some(due) = link.due(&ask) {
                let _ = link.settle(&ask, &due, 2, 0);
            }
        });
        let first = model.allows(B, FIRST, NOW);
        engine.join().unwrap();
        assert!(!first && !model.allows(B, FIRST, NOW), "B was admitted what A was granted");
    }
}

model! {
    /// A caller has found A's record when that is given to B, who is granted credit: A spends none of it.
    spend_against_next_tenant, Some(1), breaks with [NoLookAfterLoad], || {
        let model = known_and_idle();
        let caller = model.spawn(|model| model.allows(A, FIRST, NOW));
        let _ = model.allows(B, FIRST, NOW);
        settle(&model, 1);
        assert!(!caller.join().unwrap(), "A was admitted what B was granted");
    }
}

model! {
    /// The store is back and is told what the view shows, while a caller that takes it for lost charges the view.
    share_against_seeding, Some(3), breaks with [ViewOverCharge], || {
        let lane = Clustered { slack_permille: 500, is_exact: false, when_lost: WhenLost::Share, link: LinkWord::LOST };
        let model = with(ManualClock::new(), OnFull::Deny, lane);
        let link = Link::of(&model.0).unwrap();
        link.lost(NonZeroU16::MIN);
        assert!(model.allows(A, FIRST, NOW), "alone, its share is the limit");
        let caller = model.spawn(|model| model.allows(A, FIRST, NOW));
        let ask = link.asks(1).next().unwrap();
        let due = link.due(&ask).unwrap();
        // The floor: the store's bucket is no fuller than the view.
        let _ = link.settle(&ask, &due, 0, due.known_debt_ns());
        assert!(caller.join().unwrap());
        assert_eq!(model.remaining(A, FIRST, NOW), 2, "both charges are in the view, told or to be told");
    }
}
