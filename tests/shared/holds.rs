//! Who holds slots: how many calls may, and what a denial costs.

use crate::forks::{alone, in_child, stays};
use std::time::{Duration, Instant};
use tollgate::shared::Shared;
use tollgate::{Error, Limiter, Policy, Request};

fn limiter(slots: u64) -> Limiter {
    let policy = Policy::builder().lane("ws", format!("held {slots}").as_str()).build().unwrap();
    Limiter::builder(policy).agents(100).shared(Shared::memfd()).build().unwrap()
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
