//! What a dead process leaves behind, while the living go on.

use super::*;
use crate::record::tag::TagWord;
use crate::shared::lock::{self, Holders, Taken};
use crate::shared::modelled::DEAD;
use crate::sync::AtomicU64 as Word;

/// A process of this mark, which knows who is dead.
struct Process(u64);

impl Holders for Process {
    fn me(&self) -> u64 {
        self.0
    }

    fn is_dead(&self, holder: u64) -> bool {
        holder == DEAD
    }
}

/// Takes the lock, and sees that nobody else has it; returns whether it was a dead one's.
fn take(lock: &Word, inside: &Word, process: &Process) -> bool {
    let taken = lock::take(lock, process, &mut { Duration::ZERO }).unwrap();
    assert_eq!(inside.fetch_add(1, loom::sync::atomic::Ordering::Relaxed), 0, "two have the lock");
    inside.store(0, loom::sync::atomic::Ordering::Relaxed);
    lock::release(lock);
    taken == Taken::FromDead
}

model! {
    /// Two processes find a third one dead: one of them takes its lock over, and then the other gets it free.
    dead_lock_is_taken_over_once, UNBOUNDED, breaks with [TakenOverByStore], || {
        let words = Arc::new([Word::new(DEAD), Word::new(0)]);
        let rival = thread::spawn({
            let words = Arc::clone(&words);
            move || take(&words[0], &words[1], &Process(3))
        });
        let mine = take(&words[0], &words[1], &Process(4));
        assert!(mine ^ rival.join().unwrap());
    }
}

model! {
    /// Nobody takes a lock from the living.
    live_lock_is_not_taken_over, UNBOUNDED, breaks with [LiveLockTaken], || {
        let words = Arc::new([Word::new(0), Word::new(0)]);
        let rival = thread::spawn({
            let words = Arc::clone(&words);
            move || take(&words[0], &words[1], &Process(3))
        });
        assert!(!take(&words[0], &words[1], &Process(4)) && !rival.join().unwrap());
    }
}

/// A process that has just taken its seat, in its first generation, or that judges who has: the word is the generation.
struct Seated<'a>(u64, &'a Word);

impl Holders for Seated<'_> {
    fn me(&self) -> u64 {
        self.0
    }

    fn is_dead(&self, holder: u64) -> bool {
        holder == SEATED && self.1.load(loom::sync::atomic::Ordering::Acquire) != 1
    }
}

/// The mark of the process whose seat is in a model.
const SEATED: u64 = 5;

model! {
    /// Whoever sees a process's mark in a lock also sees that it has its seat: nobody robs it by the generation that
    /// the seat had before.
    mark_is_seen_with_its_seat, UNBOUNDED, breaks with [RelaxedMark], || {
        let words = Arc::new([Word::new(0), Word::new(0)]);
        let judge = thread::spawn({
            let words = Arc::clone(&words);
            move || {
                let taken = lock::take(&words[0], &Seated(6, &words[1]), &mut { Duration::ZERO }).unwrap();
                lock::release(&words[0]);
                taken
            }
        });
        // It takes its seat, and then the lock.
        words[1].store(1, loom::sync::atomic::Ordering::Release);
        let taken = lock::take(&words[0], &Seated(SEATED, &words[1]), &mut { Duration::ZERO }).unwrap();
        lock::release(&words[0]);
        assert_eq!((taken, judge.join().unwrap()), (Taken::Free, Taken::Free));
    }
}

/// A has a record that a dead process was about to evict, with this tag; B wants it.
fn half_evicted(tag: fn(TagWord) -> TagWord) -> Model {
    let model = Model::shared(buckets(1, 2), OnFull::Deny);
    assert!(model.allows(A, FIRST, Tick::ZERO));
    let slab = &model.0.engine.slab;
    let hash = model.0.engine.hash(A.as_bytes()).unwrap();
    let found = slab.find(hash).unwrap();
    found.record.set_tag(tag(found.tag));
    slab.leave_behind(0, DEAD);
    model
}

model! {
    /// The tenant opens its tag, while a newcomer takes over the lock and puts right the same record: one of them
    /// has it, with exactly its own charge.
    takeover_against_tenant, Some(4), breaks with [IdleUnchecked, NoLookAfterLoad], || {
        let model = half_evicted(TagWord::closed);
        let newcomer = model.spawn(move |model| model.check(B, FIRST, PAID));
        let tenant = model.check(A, FIRST, PAID);
        let newcomer = newcomer.join().unwrap();
        assert!(tenant.is_ok() ^ newcomer.is_ok(), "{tenant:?} {newcomer:?}");
        assert_eq!(model.remaining(A, FIRST, PAID), if tenant.is_ok() { 1 } else { 2 });
        assert_eq!(model.remaining(B, FIRST, PAID), if newcomer.is_ok() { 1 } else { 2 });
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// The record was nobody's when its evictor died: two newcomers take over, and one has it.
    takeover_against_takeover, Some(3), breaks with [NotPutRight], || {
        let model = half_evicted(|_| TagWord::BETWEEN);
        let rival = model.spawn(move |model| model.check(B, FIRST, Tick::ZERO).is_ok());
        let mine = model.check(C, FIRST, Tick::ZERO).is_ok();
        assert!(mine ^ rival.join().unwrap());
        assert_eq!(model.agents(), 1);
    }
}

model! {
    /// A control call died when its change counted already: the next one, whatever it does, puts it in force, while
    /// the agent is checked by the old limits or by the new ones.
    intent_against_control, Some(2), breaks with [NotEnded], || {
        let policy = Policy::builder().lane("lane-0", "5/s").plan("pro", [("lane-0", "9/s")]).build().unwrap();
        let model = Model::shared(policy, OnFull::Deny);
        let pro = model.0.plan("pro").unwrap();
        assert!(model.allows(A, FIRST, Tick::ZERO));
        model.0.die_assigning(A.as_bytes(), pro, DEAD);
        let rival = model.spawn(|model| model.0.exempt(B).unwrap());
        let seen = model.check(A, FIRST, Tick::ZERO).unwrap().capacity();
        assert!([5, 9].contains(&seen), "{seen}");
        rival.join().unwrap();
        assert_eq!(model.check(A, FIRST, Tick::ZERO).unwrap().capacity(), 9);
        assert_eq!(model.0.assignment(A).unwrap().plan(), Some("pro"));
    }
}
