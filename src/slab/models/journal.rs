//! The journal of holds: what a dead process has taken or given back, while the living take and give back.

use super::*;
use crate::lane::{LaneWord, Outcome, held};
use crate::shared::modelled::DEAD;
use crate::slab::holds::Holds;

fn holding() -> (Model, Request<'static>) {
    let policy = Policy::builder().lane("lane-0", Limit::held(2)).build().unwrap();
    let model = Model::shared(policy, OnFull::Deny);
    let request = Request::new(A, FIRST).at(Tick::ZERO);
    // It has a record, and holds nothing.
    assert!(model.0.hold_until_released(request).unwrap().is_allowed());
    model.0.release(request).unwrap();
    (model, request)
}

/// A dead process was about to take a slot; `exchanged` says whether it came as far as the word.
fn dies_holding(model: &Model, exchanged: bool) {
    let engine = &model.0.engine;
    let (hash, holds): (_, &Holds) = (engine.hash(A.as_bytes()).unwrap(), engine.slab.holds().unwrap());
    let operation = holds.begin(hash, FIRST, 1, DEAD).unwrap();
    let found = engine.slab.find(hash).unwrap();
    if exchanged {
        let step = |word: LaneWord| {
            holds.confirm(word);
            let taken = word.with_payload(word.payload() + 1);
            Outcome { next: Some(held::marked(taken, operation.mark())), answer: () }
        };
        found.record.update_word(found.tag, FIRST, || (), step).unwrap();
    }
}

/// The dead one's slot is given back once, and no other, while a living one takes and releases slots of the same word.
fn burying(exchanged: bool) -> impl Fn() + Sync + Send + 'static {
    move || {
        let (model, request) = holding();
        dies_holding(&model, exchanged);
        let rival = model.spawn(move |model| {
            let is_held = model.0.hold_until_released(request).unwrap().is_allowed();
            assert!(is_held, "at most one of two slots is held by others");
        });
        model.0.engine.bury_all();
        rival.join().unwrap();
        assert_eq!(model.0.peek(request).unwrap().remaining(), 1);
        model.0.release(request).unwrap();
        assert_eq!(model.0.peek(request).unwrap().remaining(), 2);
        assert!(model.0.release(request).is_err());
    }
}

model! {
    /// Killed after its exchange: whoever replaces its mark confirms it first.
    journal_against_a_hold_after_the_exchange, Some(3), breaks with [NotConfirmed, ConfirmedBeforeWord], burying(true)
}

model! {
    /// Killed before its exchange: nothing was taken, and nothing is given back.
    journal_against_a_hold_before_the_exchange, Some(3), breaks with [Unjudged], burying(false)
}

model! {
    /// Two processes bury the same dead one: its slot comes back once.
    journal_against_journal, Some(3), breaks with [EntryTakenByStore], || {
        let (model, request) = holding();
        assert!(model.0.hold_until_released(request).unwrap().is_allowed());
        dies_holding(&model, true);
        let rival = model.spawn(|model| model.0.engine.bury_all());
        model.0.engine.bury_all();
        rival.join().unwrap();
        assert_eq!(model.0.peek(request).unwrap().remaining(), 1);
    }
}

model! {
    /// Two threads give back one slot each of an entry that has both: neither is told that it holds none.
    release_against_release_of_one_entry, Some(3), breaks with [ReleaseNotAwaited], || {
        let (model, request) = holding();
        assert!(model.0.hold_until_released(request.cost(2)).unwrap().is_allowed());
        let rival = model.spawn(move |model| model.0.release(request).map(drop));
        let mine = model.0.release(request).map(drop);
        assert_eq!((mine, rival.join().unwrap()), (Ok(()), Ok(())));
        assert_eq!(model.0.peek(request).unwrap().remaining(), 2);
    }
}

model! {
    /// Two threads give back one slot and two, held by an entry each, whichever they take first.
    release_against_release_of_two_entries, Some(2), breaks with [ReleaseNotAwaited], || {
        let policy = Policy::builder().lane("lane-0", Limit::held(3)).build().unwrap();
        let model = Model::shared(policy, OnFull::Deny);
        let request = Request::new(A, FIRST).at(Tick::ZERO);
        for cost in [2, 1] {
            assert!(model.0.hold_until_released(request.cost(cost)).unwrap().is_allowed());
        }
        let rival = model.spawn(move |model| model.0.release(request.cost(2)).map(drop));
        let mine = model.0.release(request).map(drop);
        assert_eq!((mine, rival.join().unwrap()), (Ok(()), Ok(())));
        assert_eq!(model.0.peek(request).unwrap().remaining(), 3);
    }
}
