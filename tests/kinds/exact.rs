//! Never more than n in any trailing window.

use super::*;
use proptest::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::bounds::EXACT_MAX;
use tollgate::{Error, Limit, Request};

/// The instants of all calls that passed.
#[derive(Default)]
struct Log(Vec<u64>);

impl Log {
    /// How many passed in the window that ends at `now`.
    fn trailing(&self, now: u64, length: u64) -> u64 {
        self.0.iter().filter(|at| **at <= now && now - **at < length).count() as u64
    }

    /// The most that passed in any trailing window.
    fn worst(&self, length: u64) -> u64 {
        self.0.iter().map(|end| self.trailing(*end, length)).max().unwrap_or(0)
    }
}

fn exact(count: u64, length: u64) -> Limiter {
    limiter(&Limit::exact(count, Duration::from_nanos(length)).to_string()).0
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a span within the range")
}

proptest! {
    /// What passes, what is left and every wait match a full log.
    #[test]
    fn an_exact_window_equals_a_log_of_timestamps(
        count in prop_oneof![1..=24_u64, 1..=EXACT_MAX],
        length in 1_000_000..2_678_400_000_000_000_u64,
        phase in 0..(1_u64 << 58),
        calls in prop::collection::vec((prop_oneof![4 => Just(0.0), 1 => Just(2.0), 1 => 0.0..0.3], 0..10), 1..300),
    ) {
        let limiter = exact(count, length);
        let (mut log, mut now, mut wait) = (Log::default(), phase, 0);
        for (share, call) in calls {
            // A share of 2 stands for the wait of the last denial.
            now += if share == 2.0 { wait } else { (length as f64 * share) as u64 };
            let used = log.trailing(now, length);
            if call == 0 {
                let status = limiter.refund(Request::new(AGENT, LANE).at(Tick::from_nanos(now))).unwrap();
                if used > 0 {
                    log.0.pop();
                }
                prop_assert_eq!(status.remaining(), count - used.saturating_sub(1));
                continue;
            }
            let verdict = check_at(&limiter, now, 1);
            prop_assert_eq!(verdict.is_allowed(), used < count, "{} of {} at {}", used, count, now);
            if verdict.is_allowed() {
                log.0.push(now);
            } else {
                wait = nanos(verdict.retry_after().expect("a wait helps"));
                prop_assert_eq!(log.trailing(now + wait - 1, length), count);
                prop_assert!(log.trailing(now + wait, length) < count);
            }
            let left = count - log.trailing(now, length);
            prop_assert_eq!(verdict.remaining(), left);
            let status = limiter.peek(Request::new(AGENT, LANE).at(Tick::from_nanos(now))).unwrap();
            prop_assert_eq!((status.remaining(), status.capacity()), (left, count));
            prop_assert_eq!(status.full_in(), verdict.full_in());
            prop_assert_eq!(log.trailing(now + nanos(status.full_in()), length), 0);
            if let Some(next_in) = status.next_in() {
                prop_assert_eq!(count - log.trailing(now + nanos(next_in) - 1, length), left);
                prop_assert!(count - log.trailing(now + nanos(next_in), length) > left);
            }
        }
        prop_assert!(log.worst(length) <= count);
    }
}

/// Threads that pass their own instants, in order: no window admits more than
/// the limit, and none admits less than it could.
#[test]
fn no_trailing_window_of_many_threads_holds_more() {
    const LENGTH: u64 = 1_000_000;
    const CALLS: u64 = 40_000;
    let limiter = exact(5, LENGTH);
    let (time, log) = (AtomicU64::new(LENGTH), Mutex::new(Log::default()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut passed = Vec::new();
                for _ in 0..CALLS {
                    let now = time.fetch_add(97, Ordering::Relaxed);
                    if check_at(&limiter, now, 1).is_allowed() {
                        passed.push(now);
                    }
                }
                log.lock().unwrap().0.extend(passed);
            });
        }
    });
    let log = log.into_inner().unwrap();
    assert_eq!(log.worst(LENGTH), 5);
    let windows = 4 * CALLS * 97 / LENGTH;
    assert!(log.0.len() as u64 >= 5 * windows - 5, "{} in {windows} windows", log.0.len());
}

#[test]
fn a_request_costs_one() {
    let limiter = exact(5, 1_000_000_000);
    assert_eq!(
        limiter.check_request(Request::new(AGENT, LANE).cost(2)),
        Err(Error::CostAboveCapacity { cost: 2, capacity: 1 })
    );
    assert_eq!(limiter.check_request(Request::new(AGENT, LANE).cost(0)), Err(Error::ZeroCost));
    assert_eq!(
        limiter.refund(Request::new(AGENT, LANE).cost(2)),
        Err(Error::CostAboveCapacity { cost: 2, capacity: 1 })
    );
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 5);
}

#[test]
fn a_plan_may_allow_fewer_and_no_limit_more_than_there_are_words_for() {
    let policy = Policy::builder().lane("lane", "exact 2/min").plan("pro", [("lane", "exact 5/min")]).build().unwrap();
    let (limiter, clock) = of_policy(policy);
    let pro = limiter.plan("pro").unwrap();
    limiter.assign(AGENT, pro).unwrap();
    for _ in 0..4 {
        assert!(limiter.check(AGENT, LANE).unwrap().is_allowed());
        clock.advance(Duration::from_secs(1));
    }
    limiter.unassign(AGENT).unwrap();
    // Four permits rest, two of them in words that the plan does not use.
    assert!(!limiter.check(AGENT, LANE).unwrap().is_allowed());
    clock.advance(Duration::from_secs(57));
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 0);
    clock.advance(Duration::from_secs(1));
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 1);
    let error = limiter.set_override(AGENT, "lane", "exact 6/min").unwrap_err().to_string();
    assert!(error.contains("have room for 5"), "{error}");
    assert!(limiter.set_override(AGENT, "lane", "exact 5/min").is_ok());
}

/// A caller under a smaller limit got the wait for the first permit, 20 s, then
/// 10, then 10, and passed only after the last.
#[test]
fn after_a_change_to_a_smaller_limit_the_wait_is_long_enough() {
    let policy = Policy::builder().lane("lane", "exact 3/30s").build().unwrap();
    let (limiter, clock) = of_policy(policy);
    for _ in 0..3 {
        assert!(limiter.check(AGENT, LANE).unwrap().is_allowed());
        clock.advance(Duration::from_secs(10));
    }
    limiter.set_override(AGENT, "lane", "exact 1/30s").unwrap();
    clock.set(Tick::from_nanos(10_000_000_000));
    let denied = limiter.check(AGENT, LANE).unwrap();
    assert_eq!((denied.remaining(), denied.retry_after()), (0, Some(Duration::from_secs(40))));
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().next_in(), Some(Duration::from_secs(40)));
    clock.advance(Duration::from_nanos(39_999_999_999));
    assert_eq!(limiter.check(AGENT, LANE).unwrap().retry_after(), Some(Duration::from_nanos(1)));
    clock.advance(Duration::from_nanos(1));
    assert!(limiter.check(AGENT, LANE).unwrap().is_allowed());
}

#[test]
fn a_reset_returns_every_permit_and_leaves_other_lanes_alone() {
    let policy =
        Policy::builder().lane("a", "exact 3/min").lane("b", "exact 2/min").lane("c", "4/min").build().unwrap();
    let (limiter, clock) = of_policy(policy);
    let lanes = [0, 1, 2].map(LaneId::new);
    let left = || lanes.map(|lane| limiter.peek(Request::new(AGENT, lane)).unwrap().remaining());
    for lane in lanes {
        while limiter.check(AGENT, lane).unwrap().is_allowed() {}
    }
    assert_eq!(left(), [0, 0, 0]);
    limiter.reset_lane(AGENT, lanes[0]).unwrap();
    assert_eq!(left(), [3, 0, 0]);
    assert_eq!(limiter.sweep(Duration::ZERO), 0);
    clock.advance(Duration::from_secs(60));
    assert_eq!((left(), limiter.sweep(Duration::ZERO)), ([3, 2, 4], 1));
}

#[test]
fn words_of_lanes_and_permits_are_bounded() {
    let many = |lanes: usize| {
        (0..lanes).fold(Policy::builder(), |policy, lane| policy.lane(format!("lane-{lane}"), "exact 20/min")).build()
    };
    assert!(many(12).is_ok());
    assert!(many(13).unwrap_err().to_string().starts_with("the lanes take 260 words"));
}

/// The sizes that the documentation of `Limit::exact` states: a larger count,
/// or the next wider record.
#[test]
fn a_record_is_as_large_as_stated() {
    const AGENTS: u64 = 100_000;
    let bytes = |limit: &str| {
        let policy = Policy::builder().lane("lane", limit).build().unwrap();
        Limiter::builder(policy).agents(AGENTS).clock(ManualClock::new()).build().unwrap().memory()
    };
    let least = bytes("exact 2/min");
    for (count, record, stated) in
        [(6, 64, 87), (14, 128, 172), (30, 256, 343), (62, 512, 684), (126, 1_024, 1_367), (128, 2_048, 2_732)]
    {
        // Compared with the smallest record of 32 bytes, which takes 44.
        let more = bytes(&format!("exact {count}/min")) - least;
        let per_agent = 44 + more.div_ceil(AGENTS);
        assert!((stated..=stated + stated / 50).contains(&per_agent), "{per_agent} bytes for {count}, stated {stated}");
        assert!(more >= (record - 32) * AGENTS);
    }
}

/// All permits of the largest limit, returned in another order.
#[test]
fn the_largest_limit_counts_every_permit() {
    let (limiter, clock) = limiter("exact 128/min");
    for wave in 0..4 {
        clock.set(Tick::from_nanos(wave * 61_000_000_000));
        for left in (0..EXACT_MAX).rev() {
            clock.advance(Duration::from_millis(1 + wave));
            assert_eq!(limiter.check(AGENT, LANE).unwrap().remaining(), left);
        }
        assert!(!limiter.check(AGENT, LANE).unwrap().is_allowed());
    }
    limiter.reset(AGENT).unwrap();
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), EXACT_MAX);
}

#[test]
fn a_newcomer_inherits_permits() {
    let policy = Policy::builder().lane("lane", "exact 3/min").build().unwrap();
    let (limiter, _) = full(policy, OnFull::Evict);
    assert_eq!(limiter.check("newcomer", LANE).unwrap().remaining(), 1);
    assert_eq!(limiter.stats().lossy_evictions, 1);
}
