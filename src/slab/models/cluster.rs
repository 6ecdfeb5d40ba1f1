//! Lanes that machines share: what a machine may spend, against what the store
//! answers and who has the record by then.

use super::*;
use crate::cluster::{Cluster, Due, Link, Settled};
use crate::lane::clustered::{Clustered, LinkWord, WhenLost};
use std::num::NonZeroU16;

/// One record and one lane of which this machine, the only one, may spend half the capacity in advance; the store is
/// there.
fn model(capacity: u64, on_full: OnFull) -> Model {
    let lane = Clustered { slack_permille: 1_000, is_exact: false, when_lost: WhenLost::Closed, link: LinkWord::LOST };
    built(buckets(1, capacity).with_clustered(vec![(FIRST, lane)]), on_full)
}

fn built(policy: Policy, on_full: OnFull) -> Model {
    built_on(policy, on_full, ManualClock::new(), NOW)
}

pub(super) fn built_on(policy: Policy, on_full: OnFull, clock: ManualClock, now: Tick) -> Model {
    clock.set(now);
    let build = move || {
        let kinds = policy.cell_kinds();
        let geometry = Geometry { groups: 1, window: 1, records: 1, lanes: kinds.len() };
        let slab = Slab::within(Memory::Private, geometry, fixed_key(KEY), kinds, 2).unwrap();
        let builder = Limiter::builder(policy).clock(clock.clone()).on_full(on_full).cluster(Cluster::new([7; 16]));
        let limiter = builder.over(slab).unwrap();
        limiter.engine.set_link(LinkWord::connected(NonZeroU16::MIN, 1, now));
        Arc::new(limiter)
    };
    let builder = thread::Builder::new().stack_size(STACK_WORDS).spawn(build);
    Model(builder.unwrap().join().unwrap())
}

pub(super) const NOW: Tick = Tick::from_nanos(1_000);

/// Settles what was asked, with a store that grants this much, and returns what it was paid and has granted in the end.
pub(super) fn settle(model: &Model, grants: u64) -> u64 {
    let link = Link::of(&model.0).unwrap();
    let mut debited = 0;
    for ask in link.asks(1) {
        let Some(due) = link.due(&ask) else { continue };
        debited += due.owed() + grants;
        match link.settle(&ask, &due, grants, 0) {
            Settled::Done | Settled::Again => {}
            // What it grants it takes back; what was owed was spent.
            Settled::Gone => debited -= grants,
        }
    }
    debited
}

/// What the machine still has of A's lane, or owes: at most one of both.
pub(super) fn left(model: &Model) -> i64 {
    let link = Link::of(&model.0).unwrap();
    let ask = crate::cluster::Ask::for_test(&model.0.engine, A, FIRST);
    let tokens = |due: Due| (due.credit() + due.given()) as i64 - due.owed() as i64;
    link.due(&ask).map_or(0, tokens)
}

model! {
    /// Two callers race for the one token that may be spent in advance.
    advance_against_advance, Some(2), breaks with [PermitByStore], || {
        let model = model(2, OnFull::Deny);
        let rival = model.spawn(|model| model.allows(A, FIRST, NOW));
        let mine = model.allows(A, FIRST, NOW);
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(left(&model), -1);
    }
}

model! {
    /// A check and a settlement: every token that was admitted is paid for, or owed.
    check_against_settle, Some(2), breaks with [PermitByStore], || {
        let model = model(4, OnFull::Deny);
        assert!(model.allows(A, FIRST, NOW));
        let engine = model.spawn(|model| settle(model, 1));
        let admitted = 1 + i64::from(model.allows(A, FIRST, NOW));
        let debited = engine.join().unwrap() as i64;
        assert_eq!(left(&model), debited - admitted);
    }
}

model! {
    /// A reset while the store is asked: what was owed before it is not taken for credit after it.
    reset_against_settle, Some(2), breaks with [CreditToAnother], || {
        let model = model(2, OnFull::Deny);
        assert!(model.allows(A, FIRST, NOW));
        let engine = model.spawn(|model| settle(model, 0));
        model.0.reset(Agent::new(A).at(NOW)).unwrap();
        engine.join().unwrap();
        assert!(left(&model) <= 0, "a token that nobody was debited for: {}", left(&model));
    }
}
