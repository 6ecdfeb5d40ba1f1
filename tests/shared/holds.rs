//! Who holds slots: how many calls may, what a denial costs, and what is left when guards are dropped at once.

use crate::forks::{alone, in_child, stays};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tollgate::shared::Shared;
use tollgate::{Error, Limiter, Policy, Request};

fn limiter(slots: u64) -> Limiter {
    let policy = Policy::builder().lane("ws", format!("held {slots}").as_str()).build().unwrap();
    Limiter::builder(policy).agents(100).shared(Shared::memfd()).build().unwrap()
}

/// Two threads that act at the same instant, round after round. `before` is called by one of them between two rounds,
/// with the round's number.
fn at_once(rounds: usize, before: impl Fn(usize) + Sync, act: impl Fn(usize) + Sync) {
    // How many threads have come to a round's beginning and to its end, in all rounds.
    let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let come = |to: &AtomicUsize, round: usize| {
        to.fetch_add(1, Ordering::AcqRel);
        while to.load(Ordering::Acquire) < 2 * round + 2 {
            std::thread::yield_now();
        }
    };
    let run = |thread: usize| {
        for round in 0..rounds {
            if thread == 0 {
                before(round);
            }
            come(&begun, round);
            act(thread);
            come(&ended, round);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(1));
        run(0);
    });
}

/// Two guards took each other's entries away for a moment, and one of them found nothing to give back: its slots stayed
/// taken for as long as the process lived.
#[test]
fn guards_that_are_dropped_at_once_leave_nothing() {
    let _alone = alone();
    let limiter = limiter(3);
    let ws = limiter.lane("ws").unwrap();
    let guards = [std::sync::Mutex::new(None), std::sync::Mutex::new(None)];
    let take = |round: usize| {
        for (guard, cost) in guards.iter().zip([1, 2]) {
            let hold = Limiter::hold(&limiter, Request::new("agent-7", ws).cost(cost)).unwrap();
            assert!(hold.verdict().is_allowed(), "slots are lost before round {round}");
            *guard.lock().unwrap() = hold.into_slot();
        }
    };
    at_once(200, take, |thread| drop(guards[thread].lock().unwrap().take()));
    assert_eq!(limiter.peek(Request::new("agent-7", ws)).unwrap().remaining(), 3);
    assert_eq!(limiter.audit(), [""; 0]);
}

/// Two threads that each gave back one of two slots of one call: one was told that the agent holds none.
#[test]
fn slots_of_one_call_are_released_one_by_one_at_once() {
    let _alone = alone();
    let limiter = limiter(3);
    let ws = limiter.lane("ws").unwrap();
    let request = Request::new("agent-7", ws);
    let refused = AtomicUsize::new(0);
    let take = |_| {
        // A slot that was refused above is still held.
        while !limiter.hold_until_released(request.cost(2)).unwrap().is_allowed() {
            limiter.release(request).unwrap();
        }
    };
    at_once(200, take, |_| {
        refused.fetch_add(usize::from(limiter.release(request).is_err()), Ordering::Relaxed);
    });
    assert_eq!(refused.load(Ordering::Relaxed), 0, "of 400 releases");
    assert_eq!(limiter.release(request).map(drop), Err(Error::NotHeld { held: 0, released: 1 }));
}

/// A slab for few agents had room for 1,024 calls, and then said that it has no record.
#[test]
fn few_agents_may_hold_many_slots() {
    let _alone = alone();
    let limiter = limiter(100);
    let ws = limiter.lane("ws").unwrap();
    let held = (0..10_000).filter(|call| {
        let agent = format!("agent-{}", call % 100);
        limiter.hold_until_released(Request::new(&agent, ws)).is_ok_and(|verdict| verdict.is_allowed())
    });
    assert_eq!(held.count(), 10_000);
}

/// The table was full of entries of the dead, and nobody looked.
#[test]
fn a_full_table_is_an_error_of_its_own_and_the_dead_make_room() {
    let _alone = alone();
    let limiter = limiter(100_000);
    let ws = limiter.lane("ws").unwrap();
    let hold = |agent: usize| {
        let verdict = limiter.hold_until_released(Request::new(format!("agent-{agent}").as_bytes(), ws));
        verdict.map(|verdict| assert!(verdict.is_allowed()))
    };
    let fills = || {
        let refused = (0..).find_map(|call: usize| hold(call % 50).err().map(|error| (call, error)));
        refused.is_some_and(|(calls, error)| error == Error::HoldsFull && calls as u64 == tollgate::bounds::HOLDS_MIN)
    };
    let holder = stays(fills);
    assert_eq!(hold(51), Err(Error::HoldsFull));
    holder.kill();
    let began = Instant::now();
    while hold(51).is_err() {
        assert!(began.elapsed() < Duration::from_secs(10), "all that hold anything are dead");
        std::thread::yield_now();
    }
    assert_eq!(limiter.peek(Request::new("agent-7", ws)).unwrap().remaining(), 100_000);
    assert_eq!(limiter.audit(), [""; 0]);
}

/// Each denial asked the system about the holder of each slot: 64 ms where another process holds 2,000.
#[test]
fn a_denial_does_not_ask_about_every_slot() {
    let _alone = alone();
    let limiter = limiter(1_000);
    let ws = limiter.lane("ws").unwrap();
    let request = Request::new("agent-7", ws);
    let takes = || (0..1_000).all(|_| limiter.hold_until_released(request).unwrap().is_allowed());
    let holder = stays(takes);
    let began = Instant::now();
    for _ in 0..2_000 {
        assert!(!limiter.hold_until_released(request).unwrap().is_allowed());
    }
    // Real time, with room for a slow machine: this was a minute.
    let took = began.elapsed();
    println!("{:?} a denial", took / 2_000);
    assert!(took < Duration::from_secs(2), "{took:?}");
    // And yet the slots of the dead come back at once, or nearly so.
    holder.kill();
    let began = Instant::now();
    while !limiter.hold_until_released(request).unwrap().is_allowed() {
        assert!(began.elapsed() < Duration::from_secs(10), "the holder is dead");
        std::thread::yield_now();
    }
    assert_eq!(limiter.peek(request).unwrap().remaining(), 999);
}

/// A sweep and a join look at all entries: one that asks about each of them takes a second where 30,000 are held.
#[test]
fn a_sweep_asks_about_each_process_once() {
    let _alone = alone();
    let limiter = limiter(10_000);
    let ws = limiter.lane("ws").unwrap();
    let request = Request::new("agent-7", ws);
    let takes = || (0..10_000).all(|_| limiter.hold_until_released(request).unwrap().is_allowed());
    let holder = stays(takes);
    let began = Instant::now();
    for _ in 0..20 {
        limiter.sweep(Duration::from_secs(3_600));
    }
    // Real time: this was ten seconds.
    let took = began.elapsed();
    println!("{:?} a sweep", took / 20);
    assert!(took < Duration::from_secs(1), "{took:?}");
    // A sweep trusts no earlier answer.
    holder.kill();
    limiter.sweep(Duration::from_secs(3_600));
    assert_eq!(limiter.peek(request).unwrap().remaining(), 10_000);
    assert_eq!(in_child(|| u8::from(limiter.audit().is_empty())).wait(), 1);
}
