//! The journal of holds: what a dead process has taken or given back, while the living take and give back.

use super::*;
use crate::lane::{LaneWord, Outcome, held};
use crate::shared::modelled::{DEAD, LIVING};
use crate::slab::FoundRecord;
use crate::slab::hash::AgentHash;
use crate::slab::holds::{Begun, Holds, Operation};

/// A lane of so many slots, none of which is held, and a request for one.
fn vacant_lane(slots: u64) -> (Model, Request<'static>) {
    let policy = Policy::builder().lane("lane-0", Limit::held(slots)).build().unwrap();
    let model = Model::shared(policy, OnFull::Deny);
    let request = Request::new(A, FIRST).at(Tick::ZERO);
    // It has a record.
    assert!(model.0.hold_until_released(request).unwrap().is_allowed());
    model.0.release(request).unwrap();
    (model, request)
}

fn holding() -> (Model, Request<'static>) {
    vacant_lane(2)
}

/// What a dead process still did in A's name.
struct Dying<'a> {
    slab: &'a Slab,
    holds: &'a Holds,
    hash: AgentHash,
}

impl<'a> Dying<'a> {
    fn of(model: &'a Model) -> Self {
        let engine = &model.0.engine;
        let hash = engine.hash(A.as_bytes()).unwrap();
        Self { slab: &engine.slab, holds: engine.slab.holds().unwrap(), hash }
    }

    fn exchanges(&self, operation: &Operation, step: impl Fn(LaneWord) -> LaneWord) {
        let step = |word: LaneWord| {
            self.holds.confirm(word);
            Outcome { next: Some(held::marked(step(word), operation.mark())), answer: () }
        };
        let exchange = |found: FoundRecord<'_>| found.record.update_word(found.tag, FIRST, || (), step);
        // Ends: each further round is a change of the agent's limits.
        while exchange(self.slab.find(self.hash).unwrap()).is_none() {}
    }

    /// About to take a slot; `exchanged` says whether it came as far as the word.
    fn takes(&self, exchanged: bool) -> Operation {
        let operation = self.holds.begin(self.hash, FIRST, 1, DEAD).unwrap();
        if exchanged {
            self.exchanges(&operation, |word| word.with_payload(word.payload() + 1));
        }
        operation
    }

    /// About to give back a slot of the entry in which `owner` has this many.
    fn gives_back(&self, owner: u64, held: u64, exchanged: bool) {
        let mut begun = self
            .holds
            .likely(self.hash)
            .map(|number| self.holds.begin_release(number, self.hash, FIRST, Some(owner), held, DEAD));
        let Some(Begun::Operation(operation)) = begun.find(|begun| matches!(begun, Begun::Operation(_))) else {
            panic!("it holds them")
        };
        self.holds.set_releasing(&operation, 1);
        if exchanged {
            self.exchanges(&operation, |word| held::release(word, 1).next.unwrap());
        }
    }
}

fn dies_holding(model: &Model, exchanged: bool) {
    let _ = Dying::of(model).takes(exchanged);
}

/// A dead process gives back the one slot that it held.
fn dies_releasing(model: &Model, exchanged: bool) {
    let dying = Dying::of(model);
    dying.holds.opened(dying.takes(true));
    dying.gives_back(DEAD, 1, exchanged);
}

/// What is left is what the lane's word says, and the living hold the rest: nothing leaks, or is given back twice.
fn agree(model: &Model, request: Request<'_>, left: u64) {
    let state = model.0.peek(request).unwrap();
    let (held, busy) = model.0.engine.slab.holds().unwrap().held();
    let held: u64 = held.values().sum();
    assert_eq!((state.remaining(), state.capacity() - held, busy), (left, left, 0));
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
        agree(&model, request, 1);
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
        agree(&model, request, 1);
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
        let (model, request) = vacant_lane(3);
        for cost in [2, 1] {
            assert!(model.0.hold_until_released(request.cost(cost)).unwrap().is_allowed());
        }
        let rival = model.spawn(move |model| model.0.release(request.cost(2)).map(drop));
        let mine = model.0.release(request).map(drop);
        assert_eq!((mine, rival.join().unwrap()), (Ok(()), Ok(())));
        assert_eq!(model.0.peek(request).unwrap().remaining(), 3);
    }
}

/// Killed while it gave back its slot: a living process buries it, while another takes one.
fn burying_a_release_against_a_hold(exchanged: bool) -> impl Fn() + Sync + Send + 'static {
    move || {
        let (model, request) = holding();
        dies_releasing(&model, exchanged);
        let rival = model.spawn(move |model| model.0.hold_until_released(request).unwrap().is_allowed());
        model.0.engine.bury_all();
        assert!(rival.join().unwrap(), "at most one of two slots is held by others");
        agree(&model, request, 1);
    }
}

model! {
    /// After its exchange: whoever replaces its mark confirms it first, and nothing is given back again.
    dead_release_against_a_hold_after_the_exchange, Some(3), breaks with [NotConfirmed, ConfirmedBeforeWord],
    burying_a_release_against_a_hold(true)
}

model! {
    /// Before its exchange: the slot is given back by whoever finds it dead.
    dead_release_against_a_hold_before_the_exchange, Some(3), breaks with [Unjudged],
    burying_a_release_against_a_hold(false)
}

/// The same, while another gives back one of two slots of its own.
fn burying_a_release_against_a_release(exchanged: bool) -> impl Fn() + Sync + Send + 'static {
    move || {
        let (model, request) = vacant_lane(3);
        assert!(model.0.hold_until_released(request.cost(2)).unwrap().is_allowed());
        dies_releasing(&model, exchanged);
        let rival = model.spawn(move |model| model.0.release(request).map(drop));
        model.0.engine.bury_all();
        assert_eq!(rival.join().unwrap(), Ok(()));
        agree(&model, request, 2);
    }
}

model! {
    /// After its exchange.
    dead_release_against_a_release_after_the_exchange, Some(3), breaks with [NotConfirmed, ConfirmedBeforeWord],
    burying_a_release_against_a_release(true)
}

model! {
    /// Before its exchange.
    dead_release_against_a_release_before_the_exchange, Some(3), breaks with [Unjudged],
    burying_a_release_against_a_release(false)
}

/// A dead process was giving back one of three slots that a living one holds by one entry; its owner gives back
/// another,
/// and waits for the dead one, or finds that it was buried.
fn release_against_the_burial_of_its_entry(exchanged: bool) -> impl Fn() + Sync + Send + 'static {
    move || {
        let (model, request) = vacant_lane(4);
        assert!(model.0.hold_until_released(request.cost(4)).unwrap().is_allowed());
        // So the entry's last operation was a release, whose mark is in the word.
        model.0.release(request).unwrap();
        Dying::of(&model).gives_back(LIVING, 3, exchanged);
        let rival = model.spawn(move |model| model.0.release(request).map(drop));
        model.0.engine.bury_all();
        assert_eq!(rival.join().unwrap(), Ok(()));
        agree(&model, request, if exchanged { 3 } else { 2 });
    }
}

model! {
    /// After its exchange: the owner has one slot less.
    release_against_the_burial_of_its_entry_after_the_exchange, Some(3),
    breaks with [ReleaseNotAwaited], release_against_the_burial_of_its_entry(true)
}

model! {
    /// Before its exchange: the owner still has it.
    release_against_the_burial_of_its_entry_before_the_exchange, Some(3), breaks with [SameMark, Unjudged],
    release_against_the_burial_of_its_entry(false)
}

/// Two want the one slot of a process that died giving it back: they bury it, or it had given it back. One gets it.
fn denial_against_denial(exchanged: bool) -> impl Fn() + Sync + Send + 'static {
    move || {
        let (model, request) = vacant_lane(1);
        dies_releasing(&model, exchanged);
        // There are no more than two entries.
        let holds = move |model: &Model| match model.0.hold_until_released(request) {
            Err(Error::HoldsFull) => false,
            answer => answer.unwrap().is_allowed(),
        };
        let rival = model.spawn(holds);
        assert!(holds(&model) ^ rival.join().unwrap());
        model.0.engine.bury_all();
        agree(&model, request, 0);
    }
}

model! {
    /// After its exchange: the slot is free, and its entry is buried later.
    denial_against_denial_after_the_exchange, Some(2), breaks with [NotConfirmed], denial_against_denial(true)
}

model! {
    /// Before its exchange: one of them gives the slot back.
    denial_against_denial_before_the_exchange, Some(1),
    breaks with [Unjudged, EntryTakenByStore], denial_against_denial(false)
}

/// A dead process gives back the one slot that a living one holds, while B wants the record, which is idle without the
/// slot; then it is buried. Nobody has seen it at work before: they learn of each other by the words alone.
fn dying_release_against_eviction() -> impl Fn() + Sync + Send + 'static {
    move || {
        let (model, request) = holding();
        assert!(model.0.hold_until_released(request).unwrap().is_allowed());
        let dying = model.spawn(|model| Dying::of(model).gives_back(LIVING, 1, true));
        let other = Request::new(B, FIRST).at(Tick::ZERO);
        let left = match model.0.hold_until_released(other) {
            Err(Error::Full) => 2, // The slot is held, or the dying one is back.
            answer => answer.unwrap().remaining(),
        };
        dying.join().unwrap();
        model.0.engine.bury_all();
        agree(&model, other, left);
    }
}

model! {
    /// The record is not found when the dead one is buried, or is another's: then its eviction has confirmed what the
    /// word was marked with.
    dying_release_against_an_eviction, UNBOUNDED, breaks with [NotConfirmed], dying_release_against_eviction()
}
