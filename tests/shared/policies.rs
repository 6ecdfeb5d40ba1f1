//! A policy that one process puts in force is every process's at once, and survives the way through the file.

use crate::forks::{Ends, alone};
use crate::place::Place;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tollgate::{ControlError, Limiter, Policy, Request};

fn limiter(policy: &Policy, place: &Place) -> Limiter {
    Limiter::builder(policy.clone()).agents(100).shared(place.slab()).build().unwrap()
}

/// A process that learned of a policy said so before it had it. So another thread got the old policy after the new
/// one had come into force, and an override was computed from its numbers, for good.
#[test]
fn every_thread_has_the_new_policy_once_it_is_in_force() {
    const POLICIES: u64 = 400;
    let _alone = alone();
    let place = Place::new();
    let policy =
        |n: u64| Policy::builder().lane("http", format!("{n}/hour").as_str()).lane("other", "5/s").build().unwrap();
    let (first, second) = (limiter(&policy(10), &place), limiter(&policy(10), &place));
    let http = first.lane("http").unwrap();
    let (in_force, is_done, stale) = (AtomicU64::new(10), AtomicBool::new(false), AtomicU64::new(0));
    let mixed = std::thread::scope(|scope| {
        let _ends = Ends(&is_done);
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    let least = in_force.load(Ordering::SeqCst);
                    let seen = second.policy().limit(http).unwrap().capacity();
                    stale.fetch_add(u64::from(seen < least), Ordering::Relaxed);
                }
            });
        }
        let mixed = (11..11 + POLICIES).filter(|n| {
            first.replace_policy(policy(*n)).unwrap();
            in_force.store(*n, Ordering::SeqCst);
            second.set_override("agent-7", "other", if n % 2 == 0 { "7/s" } else { "8/s" }).unwrap();
            first.peek(Request::new("agent-7", http)).unwrap().capacity() != *n
        });
        mixed.count()
    });
    assert_eq!((stale.into_inner(), mixed), (0, 0));
}

/// The id of an exempt agent may have any character. One with a newline made a text that no process could read.
#[test]
fn exempt_ids_of_any_character_are_every_processs() {
    let _alone = alone();
    let place = Place::new();
    let policy = |http: &str, exempt: [&str; 3]| {
        Policy::builder().lane("http", http).plan("gold", [("http", "9/s")]).exempt(exempt).build().unwrap()
    };
    let (made, next) = (policy("1/day", ["a\nb", "\u{1}", "\u{7f}"]), policy("2/day", ["\"\r", "\\\t'", "\u{0}"]));
    let first = limiter(&made, &place);
    let second = limiter(&made, &place);
    assert_eq!(*second.policy(), made);
    assert!(second.is_exempt("a\nb").unwrap());
    first.replace_policy(next.clone()).unwrap();
    assert_eq!(*second.policy(), next);
    assert!(second.is_exempt("\u{0}").unwrap() && !second.is_exempt("a\nb").unwrap());
    second.exempt("agent-7").unwrap();
    assert_eq!(*limiter(&made, &place).policy(), next);
}

/// A policy with more exempt agents than there is room for was in force when it was refused, without some of them; and
/// each later call of every process tried it again before its own change.
#[test]
fn a_policy_whose_exempt_agents_find_no_room_is_refused_whole() {
    let _alone = alone();
    let place = Place::new();
    let policy = |http: &str, exempt: std::ops::Range<u32>| {
        Policy::builder().lane("http", http).exempt(exempt.map(|number| number.to_string())).build().unwrap()
    };
    let made = policy("1/day", 0..100);
    let (first, second) = (limiter(&made, &place), limiter(&made, &place));
    let refused = first.replace_policy(policy("2/day", 0..4_097)).unwrap_err();
    assert!(matches!(refused, ControlError::TooManyAssignments { most: 4_096 }), "{refused}");
    let http = first.lane("http").unwrap();
    for limiter in [&first, &second] {
        assert_eq!(*limiter.policy(), made);
        assert_eq!(limiter.check("agent-7", http).unwrap().capacity(), 1);
        assert!(!limiter.is_exempt("4000").unwrap() && limiter.audit().is_empty());
    }
    let next = policy("2/day", 50..3_000);
    second.replace_policy(next.clone()).unwrap();
    assert!(!first.is_exempt("49").unwrap() && first.is_exempt("2999").unwrap());
    assert_eq!((&*first.policy(), first.audit()), (&next, Vec::new()));
    first.exempt("agent-7").unwrap();
}
