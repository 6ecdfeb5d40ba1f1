//! No call allocates: not for a known agent, not for a new one, not when a record changes tenants.

#[cfg(feature = "cluster")]
#[path = "common/machine.rs"]
mod machine;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::time::Duration;
use tollgate::observe::Observe;
use tollgate::{Clock, Error, LaneId, Limit, Limiter, ManualClock, OnFull, Policy, Request, Settle, Tick};

/// Counts per thread, so that other tests and the harness are not counted.
struct Counting;

thread_local! {
    // Constant and without a destructor, so that reaching it allocates nothing.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How often `work` allocates in this thread.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

const LANE: LaneId = LaneId::new(0);

/// A neighbourhood of 96 records.
fn limiter(clock: impl Into<Clock>, on_full: OnFull) -> Limiter {
    let policy = Policy::builder().lane("lane", Limit::per_minute(10)).lane("other", Limit::per_minute(60));
    let limiter = Limiter::builder(policy.build().expect("valid")).agents(1).clock(clock).on_full(on_full);
    limiter.build().expect("a small slab")
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(black_box(Box::new(7)))), 1);
    assert_eq!(allocations(|| drop(black_box(vec![0_u8; 100]))), 1);
    assert_eq!(allocations(|| ()), 0);
}

#[test]
fn a_check_allocates_nothing_whether_allowed_or_denied() {
    for clock in [Clock::os(), ManualClock::new().into()] {
        let limiter = limiter(clock, OnFull::Deny);
        assert!(limiter.check("agent-7", LANE).unwrap().is_allowed());
        let mut verdicts = [0, 0];
        let allocated = allocations(|| {
            for _ in 0..20 {
                let verdict = limiter.check("agent-7", LANE).unwrap();
                verdicts[usize::from(verdict.is_allowed())] += 1;
                let _ =
                    black_box(limiter.check_request(Request::new("agent-7", LANE).cost(3).at(limiter.now())).unwrap());
                let _ = black_box(limiter.check_request(Request::new("agent-7", LANE).cost(2)).unwrap());
            }
        });
        assert!(verdicts[0] > 0 && verdicts[1] > 0, "both kinds of verdict: {verdicts:?}");
        assert_eq!(allocated, 0);
    }
}

#[test]
fn first_contact_allocates_nothing() {
    let limiter = limiter(ManualClock::new(), OnFull::Deny);
    let allocated = allocations(|| {
        for agent in 0..96_u64 {
            assert!(limiter.check(agent.to_le_bytes(), LANE).unwrap().is_allowed());
        }
    });
    assert_eq!((allocated, limiter.stats().claims), (0, 96));
}

#[test]
fn a_change_of_tenants_allocates_nothing() {
    for (on_full, idle_evictions, lossy_evictions, refused) in [(OnFull::Deny, 96, 0, 96), (OnFull::Evict, 96, 96, 0)] {
        let clock = ManualClock::new();
        let limiter = limiter(clock.clone(), on_full);
        let mut full = 0;
        let allocated = allocations(|| {
            for agent in 0..288_u64 {
                if agent == 96 {
                    clock.advance(Duration::from_secs(60)); // From here on the first 96 are idle.
                }
                full += u64::from(limiter.check(agent.to_le_bytes(), LANE) == Err(Error::Full));
            }
        });
        let stats = limiter.stats();
        assert_eq!((stats.idle_evictions, stats.lossy_evictions, full), (idle_evictions, lossy_evictions, refused));
        assert_eq!(allocated, 0);
    }
}

#[test]
fn a_batch_allocates_nothing() {
    let limiter = limiter(ManualClock::new(), OnFull::Deny);
    let ids: [[u8; 8]; 32] = std::array::from_fn(|agent| (agent as u64 % 20).to_le_bytes());
    let requests = ids.each_ref().map(|agent| Request::new(agent, LANE).cost(6));
    let mut answers = [Err(Error::EmptyId); 32];
    assert_eq!(allocations(|| limiter.check_many(&requests, &mut answers).unwrap()), 0);
    let allowed = answers.iter().filter(|answer| answer.is_ok_and(|verdict| verdict.is_allowed())).count();
    assert_eq!(allowed, 20);
}

#[test]
fn peeking_refunding_resetting_forgetting_and_sweeping_allocate_nothing() {
    let clock = ManualClock::new();
    let limiter = limiter(clock.clone(), OnFull::Deny);
    assert!(limiter.check_request(Request::new("agent-7", LANE).cost(9)).unwrap().is_allowed());
    assert!(limiter.check_request(Request::new("agent-8", LANE).cost(9)).unwrap().is_allowed());
    let allocated = allocations(|| {
        for agent in ["agent-7", "stranger"] {
            black_box(limiter.peek(Request::new(agent, LANE)).unwrap());
            black_box(limiter.refund(Request::new(agent, LANE).cost(2)).unwrap());
            limiter.reset_lane(agent, LANE).unwrap();
            limiter.reset(agent).unwrap();
            black_box(limiter.forget(agent).unwrap());
        }
        clock.advance(Duration::from_secs(60));
        assert_eq!(limiter.sweep(Duration::ZERO), 1);
        black_box(limiter.stats());
    });
    assert_eq!(allocated, 0);
}

/// With everything on: counters, roster, and every check sampled.
#[test]
fn observing_allocates_nothing() {
    for (on_full, lossy_evictions, full) in [(OnFull::Deny, 0, 96), (OnFull::Evict, 96, 0)] {
        let policy = Policy::builder().lane("lane", Limit::per_minute(10)).lane("other", Limit::per_minute(60));
        let limiter = Limiter::builder(policy.build().expect("valid")).agents(1).clock(ManualClock::new());
        let limiter = limiter.on_full(on_full).observe(Observe::new().roster(1_000).sample_every(1));
        let limiter = limiter.build().expect("a small slab");
        let long = [b'x'; 256];
        let allocated = allocations(|| {
            for _ in 0..30 {
                let _ = black_box(limiter.check("agent-7", LANE).unwrap());
                let _ = black_box(limiter.check_request(Request::new(&long, LANE).counted()).unwrap());
                let _ = black_box(limiter.record_violation("agent-8").unwrap());
                assert!(limiter.check("", LANE).is_err());
            }
            // More violating agents than there are counters.
            for agent in 0..189_u64 {
                let _ = black_box(limiter.check(agent.to_le_bytes(), LANE));
                let _ = black_box(
                    limiter.check_request(Request::new(&agent.to_le_bytes(), LaneId::new(1)).cost(61).counted()),
                );
                let _ = black_box(limiter.record_violation(&agent.to_le_bytes()));
            }
        });
        assert_eq!(allocated, 0);
        let (snapshot, stats) = (limiter.snapshot(), limiter.stats());
        assert_eq!((stats.lossy_evictions, snapshot.full), (lossy_evictions, full));
        assert!(snapshot.violations > 100 && snapshot.denied() > 0 && snapshot.sustained_abuse > 0);
        assert!(std::iter::from_fn(|| limiter.poll_event()).count() > 100);
    }
}

#[test]
fn an_error_allocates_nothing() {
    let limiter = limiter(ManualClock::new(), OnFull::Deny);
    let long = [0; 257];
    let allocated = allocations(|| {
        assert!(limiter.check("", LANE).is_err());
        assert!(limiter.check(long, LANE).is_err());
        assert!(limiter.check("agent-7", LaneId::new(2)).is_err());
        assert!(limiter.check_request(Request::new("agent-7", LANE).cost(11)).is_err());
        assert!(!limiter.check_request(Request::new("agent-7", LANE).at(Tick::MAX)).unwrap().is_allowed());
    });
    assert_eq!(allocated, 0);
}

#[test]
fn finding_the_lane_of_an_action_allocates_nothing() {
    let policy = Policy::preset("hub").unwrap();
    let allocated = allocations(|| {
        for (channel, action) in [("ws", "ping"), ("http", "post_onboard_register"), ("ws", "dance"), ("smtp", "ping")]
        {
            let _ = black_box(policy.lane_for(channel, action));
        }
    });
    assert_eq!(allocated, 0);
}

/// Every kind of lane, all or none, reservations and held slots, allowed and denied.
#[test]
fn kinds_all_or_none_and_reservations_allocate_nothing() {
    let limits = ["10/min", "window 10/min", "exact 10/min", "budget 10/day", "held 10"];
    let policy = limits.iter().fold(Policy::builder(), |policy, limit| policy.lane(limit.replace(' ', "-"), *limit));
    let limiter = Limiter::builder(policy.build().expect("valid")).agents(1).clock(ManualClock::new()).build();
    let limiter = limiter.expect("a small slab");
    let lanes = [0, 1, 2, 3, 4].map(LaneId::new);
    let mut verdicts = [0, 0];
    let allocated = allocations(|| {
        for round in 0..20_u64 {
            for lane in lanes {
                verdicts[usize::from(limiter.check("agent-7", lane).unwrap().is_allowed())] += 1;
            }
            let all = lanes.map(|lane| Request::new(b"agent-8", lane));
            verdicts[usize::from(limiter.check_all(&all).unwrap().is_allowed())] += 1;
            verdicts[usize::from(limiter.check_all(&all.map(Request::counted)).unwrap().is_allowed())] += 1;
            let reserved = limiter.reserve(Request::new("agent-9", lanes[3]).cost(3), Duration::from_secs(1)).unwrap();
            if let Some(id) = reserved.id() {
                black_box(limiter.settle(id, Settle::used_so_far(1)).unwrap());
                limiter.extend(id, Duration::from_secs(9)).unwrap();
                black_box(limiter.settle(id, Settle::used(round % 4)).unwrap());
            }
            verdicts[usize::from(reserved.verdict().is_allowed())] += 1;
            drop(black_box(Limiter::hold(&limiter, Request::new("agent-9", lanes[4])).unwrap()));
        }
    });
    assert!(verdicts[0] > 0 && verdicts[1] > 0, "both kinds of verdict: {verdicts:?}");
    assert_eq!(allocated, 0);
}

#[cfg(feature = "cluster")]
#[test]
fn a_check_of_a_lane_that_machines_share_allocates_nothing() {
    let limiter = machine::machine();
    let (lanes, mut seen) = (machine::lanes(&limiter), 0);
    assert_eq!(allocations(|| seen = machine::check_in_every_way(&limiter, lanes)), 0);
    assert_eq!(seen, machine::every_way(), "credit, advance, view, pending and share");
}
