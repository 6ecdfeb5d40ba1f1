//! A limiter that shares lanes with other machines, brought to each way in which it answers.

use std::num::NonZeroU16;
use std::time::Duration;
use tollgate::cluster::{Cluster, ClusterLane, Link, Source};
use tollgate::{LaneId, Limiter, ManualClock, Policy};

/// Three machines; the lane `fast` has credit and advance, `exact` no advance, and `slow` one token of advance.
pub(crate) fn machine() -> Limiter {
    let policy = Policy::builder().lane("fast", "1000/s").lane("exact", "1000/s").lane("slow", "10/min");
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(100));
    let cluster = Cluster::new([7; 16]).lane("exact", ClusterLane::new().exact());
    let builder = Limiter::builder(policy.build().expect("a policy")).agents(100).clock(clock).cluster(cluster);
    let limiter = builder.build().expect("a small slab");
    let link = Link::of(&limiter).expect("it is shared");
    link.connected(NonZeroU16::new(3).expect("three"), Duration::from_millis(1));
    // Of `fast` there is credit, and of `slow` nothing is left as far as this machine knows.
    assert!(
        limiter.check("agent-7", lane(&limiter, "fast")).is_ok()
            && limiter.check("agent-7", lane(&limiter, "slow")).is_ok()
    );
    for ask in link.asks(2) {
        let due = link.due(&ask).expect("it owes a token");
        let is_fast = ask.lane() == lane(&limiter, "fast");
        let _ = link.settle(&ask, &due, if is_fast { 10 } else { 0 }, if is_fast { 0 } else { 60_000_000_000 });
    }
    limiter
}

fn lane(limiter: &Limiter, name: &str) -> LaneId {
    limiter.lane(name).expect("a lane")
}

/// Where the answers of checks came from, one bit each, by their place in [`Source::ALL`].
pub(crate) fn check_in_every_way(limiter: &Limiter, [fast, exact, slow]: [LaneId; 3]) -> u64 {
    let link = Link::of(limiter);
    let mut seen = 0;
    let mut check = |lane| {
        let source = limiter.check("agent-7", lane).ok().and_then(|verdict| verdict.source());
        let place = Source::ALL.iter().position(|one| Some(*one) == source);
        seen |= place.map_or(0, |place| 1 << place);
    };
    // Ten from credit, sixteen in advance, and no more until the store answers.
    (0..30).for_each(|_| check(fast));
    (0..3).for_each(|_| check(exact));
    (0..3).for_each(|_| check(slow));
    if let Some(link) = link {
        link.lost(NonZeroU16::MIN);
    }
    (0..3).for_each(|_| check(fast));
    seen
}

/// The lanes for [`check_in_every_way`].
pub(crate) fn lanes(limiter: &Limiter) -> [LaneId; 3] {
    ["fast", "exact", "slow"].map(|name| lane(limiter, name))
}

/// What [`check_in_every_way`] has to have seen.
pub(crate) fn every_way() -> u64 {
    let ways = [Source::Credit, Source::Advance, Source::View, Source::Pending, Source::Share];
    ways.iter().filter_map(|way| Source::ALL.iter().position(|one| one == way)).map(|place| 1 << place).sum()
}
