//! Several charges, all or none.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tollgate::bounds::PARTS_MAX;
use tollgate::{Decision, Error, Request};

/// Lanes of every kind.
const LIMITS: [&str; 5] = ["20/min", "window 20/min", "exact 20/min", "budget 20/day", "held 20"];

fn every_kind() -> (Limiter, ManualClock) {
    let policy = LIMITS.iter().fold(Policy::builder(), |policy, limit| policy.lane(limit.replace(' ', "-"), *limit));
    let (clock, policy) = (ManualClock::new(), policy.build().expect("limits of the allowed range"));
    (Limiter::builder(policy).agents(100).clock(clock.clone()).build().expect("a small slab"), clock)
}

fn part(agent: &'static str, lane: u32, cost: u64) -> Request<'static> {
    Request::new(agent, LaneId::new(lane)).cost(cost)
}

fn left(limiter: &Limiter, agent: &str) -> [u64; 5] {
    [0, 1, 2, 3, 4].map(|lane| limiter.peek(Request::new(agent, LaneId::new(lane))).expect("a lane").remaining())
}

#[test]
fn every_part_is_charged_or_none() {
    let (limiter, _) = every_kind();
    let parts = |lanes: [u64; 4]| {
        let [bucket, window, budget, held] = lanes;
        let agent = [part("agent", 0, bucket), part("agent", 1, window), part("agent", 2, 1)];
        let others = [part("team", 3, budget), part("organisation", 4, held)];
        [agent[0], agent[1], agent[2], others[0], others[1]]
    };
    let allowed = limiter.check_all(&parts([5, 6, 7, 8])).unwrap();
    assert!(allowed.is_allowed() && allowed.blocking().next().is_none());
    assert_eq!(allowed.retry_after(), None);
    assert_eq!(allowed.verdicts().iter().map(Verdict::remaining).collect::<Vec<_>>(), [15, 14, 19, 13, 12]);
    let before = ["agent", "team", "organisation"].map(|agent| left(&limiter, agent));
    // Each of them blocks in turn, and then two at once.
    for (lanes, blocking) in [
        ([16, 1, 1, 1], vec![0]),
        ([1, 15, 1, 1], vec![1]),
        ([1, 1, 14, 1], vec![3]),
        ([1, 1, 1, 13], vec![4]),
        ([16, 1, 14, 1], vec![0, 3]),
    ] {
        let denied = limiter.check_all(&parts(lanes)).unwrap();
        assert!(!denied.is_allowed());
        assert_eq!(denied.blocking().collect::<Vec<_>>(), blocking);
        let waits = blocking.iter().map(|part| denied.verdicts()[*part].retry_after());
        assert_eq!(denied.retry_after(), waits.collect::<Option<Vec<_>>>().and_then(|waits| waits.into_iter().max()));
        assert_eq!(["agent", "team", "organisation"].map(|agent| left(&limiter, agent)), before, "{lanes:?}");
    }
    assert_eq!(limiter.check_all(&parts([16, 1, 14, 1])).unwrap().retry_after(), Some(Duration::from_secs(86_400)));
}

#[test]
fn what_cannot_be_answered_charges_nothing() {
    let (limiter, _) = every_kind();
    assert_eq!(limiter.check_all(&[]), Err(Error::Parts { parts: 0 }));
    assert_eq!(limiter.check_all(&[part("a", 0, 1); PARTS_MAX + 1]), Err(Error::Parts { parts: 17 }));
    let error = |bad| limiter.check_all(&[part("a", 0, 1), part("b", 3, 1), bad, part("z", 1, 1)]).unwrap_err();
    assert_eq!(error(part("c", 0, 21)), Error::CostAboveCapacity { cost: 21, capacity: 20 });
    assert_eq!(error(part("c", 0, 0)), Error::ZeroCost);
    assert_eq!(error(part("", 0, 1)), Error::EmptyId);
    assert_eq!(error(part("c", 5, 1)), Error::UnknownLane { lane: 5, lanes: 5 });
    for agent in ["a", "b", "c", "z"] {
        assert_eq!(left(&limiter, agent), [20; 5], "{agent}");
    }
    assert!(limiter.check_all(&[part("a", 0, 1); PARTS_MAX]).unwrap().is_allowed());
    assert_eq!(left(&limiter, "a"), [4, 20, 20, 20, 20]);
    assert!(!limiter.check_all(&[part("a", 0, 3); 2]).unwrap().is_allowed());
    assert_eq!(left(&limiter, "a"), [4, 20, 20, 20, 20]);
}

/// Two parts of one lane that together exceeded its burst were given a wait, again and again.
#[test]
fn parts_of_one_lane_that_never_pass_together_are_an_error() {
    let (limiter, _) = every_kind();
    for lane in [0, 1, 3, 4] {
        let parts = |last| [part("agent", lane, 10), part("other", 0, 1), part("agent", lane, last)];
        let above = |cost| Err(Error::CostAboveCapacity { cost, capacity: 20 });
        assert_eq!(limiter.check_all(&parts(11)), above(21), "lane {lane}");
        assert_eq!(limiter.check_all(&parts(u64::MAX)), above(u64::MAX), "lane {lane}");
        assert_eq!(limiter.check_all(&parts(0)), Err(Error::ZeroCost), "lane {lane}");
        assert_eq!(limiter.stats().claims, 0, "lane {lane}");
        let (fresh, _) = every_kind();
        assert!(fresh.check_all(&parts(10)).unwrap().is_allowed(), "lane {lane}");
    }
}

/// Each part takes one from an exact window.
#[test]
fn parts_of_an_exact_window_count_one_each() {
    let (limiter, clock) = limiter("exact 2/min");
    let parts = [part("agent", 0, 1); 3];
    assert_eq!(limiter.check_all(&parts), Err(Error::CostAboveCapacity { cost: 3, capacity: 2 }));
    let two = [parts[0], part("agent", 0, 2)];
    assert_eq!(limiter.check_all(&two), Err(Error::CostAboveCapacity { cost: 2, capacity: 1 }));
    assert!(limiter.check("agent", LANE).unwrap().is_allowed());
    clock.advance(Duration::from_secs(1));
    let denied = limiter.check_all(&parts[..2]).unwrap();
    assert_eq!((denied.blocking().collect::<Vec<_>>(), denied.retry_after()), (vec![1], Some(Duration::from_secs(59))));
    clock.advance(Duration::from_secs(59));
    assert!(limiter.check_all(&parts[..2]).unwrap().is_allowed());
}

/// A newcomer's part was charged before a later part was denied: 999 such calls
/// took 408 records from agents in debt.
#[test]
fn a_denied_call_takes_nobodys_record() {
    let policy = Policy::builder().lane("lane", "20/min").build().unwrap();
    let (limiter, _) = full(policy, OnFull::Evict);
    assert!(limiter.check_request(Request::new("tenant-0", LANE).cost(19)).unwrap().is_allowed());
    let before = limiter.stats();
    for newcomer in 0..200 {
        let id = format!("newcomer-{newcomer}");
        let newcomer = Request::new(&id, LANE);
        assert!(!limiter.check_all(&[newcomer, part("tenant-0", 0, 1)]).unwrap().is_allowed());
        assert!(limiter.check_all(&[newcomer, part("tenant-0", 0, 21)]).is_err());
    }
    assert_eq!(limiter.stats(), before);
}

/// A part without a record comes first, and charges nothing.
#[test]
fn a_part_without_a_record_leaves_the_others_uncharged() {
    let policy = Policy::builder().lane("lane", "20/min").build().unwrap();
    let (limiter, _) = full(policy, OnFull::Deny);
    let before = limiter.stats();
    for newcomer in 0..50 {
        let id = format!("newcomer-{newcomer}");
        let newcomer = Request::new(&id, LANE);
        assert_eq!(limiter.check_all(&[part("tenant-0", 0, 1), newcomer, part("tenant-1", 0, 1)]), Err(Error::Full));
        // A running clock would leave its time in a bucket that was charged.
        let full_in = |agent| limiter.peek(Request::new(agent, LANE)).unwrap().full_in();
        assert_eq!([full_in("tenant-0"), full_in("tenant-1")], [Duration::from_secs(3); 2]);
    }
    assert_eq!(limiter.stats(), before);
}

#[test]
fn an_early_return_is_a_violation_of_the_blocking_agents() {
    let (limiter, clock) = every_kind();
    limiter.exempt("dashboard").unwrap();
    let parts = [part("a", 0, 1), part("b", 4, 20), part("b", 3, 20), part("dashboard", 0, 1)].map(Request::counted);
    let first = limiter.check_all(&parts).unwrap();
    assert!(first.is_allowed());
    assert_eq!(first.verdicts()[3].decision(), Decision::Exempt);
    assert!(!limiter.check_all(&parts).unwrap().is_allowed());
    assert_eq!(limiter.rate_limited("b"), Ok(false));
    clock.advance(Duration::from_secs(2));
    assert!(!limiter.check_all(&parts).unwrap().is_allowed());
    assert_eq!((limiter.rate_limited("a"), limiter.rate_limited("b")), (Ok(false), Ok(true)));
    assert_eq!(limiter.violations("b").unwrap().in_a_row(), 1, "once for both lanes");
    assert_eq!(left(&limiter, "a")[0], 19);
}

proptest! {
    /// A lone caller is denied exactly if a part is, and what is charged in the
    /// end is the sum of the admitted sets, in any order.
    #[test]
    fn a_lone_caller_is_never_denied_for_nothing(
        calls in prop::collection::vec(
            (prop::collection::vec((0..3_usize, 0..5_u32, 1..=8_u64), 1..=PARTS_MAX), 0..3_u64),
            1..20,
        ),
    ) {
        const AGENTS: [&str; 3] = ["agent", "team", "organisation"];
        let (limiter, _) = every_kind();
        let mut used = [[0_u64; 5]; 3];
        for (parts, _) in calls {
            let cost = |lane: u32, cost| if lane == 2 { 1 } else { cost };
            let request = |(agent, lane, amount): &(usize, u32, u64)| part(AGENTS[*agent], *lane, cost(*lane, *amount));
            let requests: Vec<_> = parts.iter().map(request).collect();
            let mut after = used;
            for (agent, lane, amount) in &parts {
                after[*agent][*lane as usize] += cost(*lane, *amount);
            }
            let fits = after.iter().flatten().all(|used| *used <= 20);
            let sums = after.iter().flatten().zip(used.iter().flatten()).map(|(after, used)| after - used);
            if sums.max() > Some(20) {
                let never = matches!(limiter.check_all(&requests), Err(Error::CostAboveCapacity { capacity: 20, .. }));
                prop_assert!(never);
                continue;
            }
            let verdict = limiter.check_all(&requests).unwrap();
            prop_assert_eq!(verdict.is_allowed(), fits);
            if fits {
                used = after;
            }
            for (agent, used) in AGENTS.iter().zip(used) {
                prop_assert_eq!(left(&limiter, agent), used.map(|used| 20 - used));
            }
        }
    }
}

proptest! {
    /// A denied call passes when its wait is over, and not a nanosecond before.
    #[test]
    fn a_denied_call_passes_exactly_when_its_wait_is_over(
        used in prop::collection::vec((0..4_u32, 1..=8_u64, 0..40_u64), 0..30),
        parts in prop::collection::vec((0..4_u32, 1..=10_u64), 1..=4),
        is_fewer: bool,
    ) {
        let (limiter, clock) = every_kind();
        let cost = |lane: u32, cost| if lane == 2 { 1 } else { cost };
        for (lane, amount, seconds) in used {
            let _ = limiter.check_request(Request::new("agent", LaneId::new(lane)).cost(cost(lane, amount))).unwrap();
            clock.advance(Duration::from_secs(seconds));
        }
        if is_fewer {
            limiter.set_override("agent", "exact-20/min", "exact 3/min").unwrap();
        }
        let parts: Vec<_> = parts.iter().map(|(lane, amount)| part("agent", *lane, cost(*lane, *amount))).collect();
        let Ok(denied) = limiter.check_all(&parts) else {
            return Ok(()); // Together they never pass.
        };
        if let Some(wait) = denied.retry_after() {
            let now = limiter.now();
            let at = |now| parts.iter().map(|part| part.at(now)).collect::<Vec<_>>();
            let just_before = now.saturating_add(wait - Duration::from_nanos(1));
            prop_assert!(!limiter.check_all(&at(just_before)).unwrap().is_allowed());
            prop_assert!(limiter.check_all(&at(now.saturating_add(wait))).unwrap().is_allowed());
        } else {
            prop_assert!(denied.is_allowed());
        }
    }
}

/// A rollback missed its permit when the agent's limits changed meanwhile: a
/// permit's rest then ends a nanosecond later, one time in sixteen.
#[test]
fn a_denied_call_keeps_no_permit_when_limits_change() {
    let policy = Policy::builder().lane("exact", "exact 20/min").lane("held", "held 1").build().unwrap();
    let (limiter, _) = of_policy(policy);
    let held = LaneId::new(1);
    assert!(
        limiter.hold_until_released(Request::new(AGENT, held)).unwrap().is_allowed()
            && limiter.release(Request::new(AGENT, held)).is_ok()
    );
    let stop = std::sync::atomic::AtomicBool::new(false);
    // A refund names no charge: it might return the permit that a call is about to take back.
    let calls = std::sync::RwLock::new(());
    std::thread::scope(|scope| {
        let callers = [0, 1].map(|_| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let both = [part(AGENT, 0, 1), part(AGENT, 1, 1)];
                    let calling = calls.read().unwrap();
                    let is_allowed = limiter.check_all(&both).unwrap().is_allowed();
                    drop(calling);
                    if is_allowed {
                        let _alone = calls.write().unwrap();
                        limiter.release(Request::new(AGENT, held)).unwrap();
                        limiter.refund(Request::new(AGENT, LANE)).unwrap();
                    }
                }
            })
        });
        let stop = &stop;
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for limit in ["exact 19/min", "exact 18/min"] {
                    limiter.set_override(AGENT, "exact", limit).unwrap();
                }
            }
        });
        for caller in callers {
            caller.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    limiter.remove_overrides(AGENT).unwrap();
    assert_eq!(limiter.peek(Request::new(AGENT, LANE)).unwrap().remaining(), 20);
}

/// Callers collide on all kinds of lanes: no part is ever over-admitted, and
/// when all calls are done exactly what was admitted is charged.
#[test]
fn colliding_callers_leave_exactly_what_was_admitted() {
    let policy = Policy::builder().lane("a", "4000/day").lane("b", "window 4000/day").lane("c", "budget 4000/day");
    let policy = policy.lane("d", "held 4000").build().unwrap();
    let limiter = Limiter::builder(policy).agents(10).clock(ManualClock::new()).build().unwrap();
    let admitted: [[AtomicU64; 4]; 2] = Default::default();
    let denied = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (limiter, admitted, denied) = (&limiter, &admitted, &denied);
            scope.spawn(move || {
                for call in 0..1_500 {
                    let mix = (thread * 7_919 + call * 104_729) % 1_000;
                    let lanes = [mix % 4, (mix / 4) % 4, (mix / 16) % 4].map(|lane| lane as u32);
                    let cost = 1 + mix % 3;
                    let agents = if mix % 2 == 0 { ["x", "y", "x"] } else { ["y", "x", "y"] };
                    let parts = [0, 1, 2].map(|index| part(agents[index], lanes[index], cost));
                    if limiter.check_all(&parts).unwrap().is_allowed() {
                        for (agent, lane) in agents.iter().zip(lanes) {
                            admitted[usize::from(*agent == "y")][lane as usize].fetch_add(cost, Ordering::Relaxed);
                        }
                    } else {
                        denied.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(denied.into_inner() > 0, "the lanes were never full");
    for (agent, lanes) in ["x", "y"].iter().zip(&admitted) {
        for (lane, used) in (0..).zip(lanes) {
            let used = used.load(Ordering::Relaxed);
            let left = limiter.peek(Request::new(agent, LaneId::new(lane))).unwrap().remaining();
            assert_eq!(left + used, 4_000, "{agent}, lane {lane}");
        }
    }
}

/// A rollback does not give back what time already has: a stall between charge
/// and rollback would otherwise wipe out what others charged meanwhile.
#[test]
fn a_rollback_does_not_lift_above_full() {
    let (limiter, clock) = every_kind();
    assert!(limiter.check_request(Request::new("b", LaneId::new(4)).cost(20)).unwrap().is_allowed());
    for _ in 0..10 {
        assert!(!limiter.check_all(&[part("a", 0, 20), part("b", 4, 1)]).unwrap().is_allowed());
        assert_eq!(left(&limiter, "a")[0], 20);
        clock.advance(Duration::from_secs(1));
    }
    assert!(limiter.check_request(Request::new("a", LaneId::new(0)).cost(20)).unwrap().is_allowed());
    assert!(!limiter.check("a", LaneId::new(0)).unwrap().is_allowed());
}

/// A rollback left the duration of the call as debt, so a caller that was
/// repeatedly denied, which should cost nothing, ended up with less.
#[test]
fn a_rollback_on_a_running_clock_leaves_nothing() {
    let policy = Policy::builder().lane("bucket", "60/min").lane("held", "held 1").build().unwrap();
    let limiter = Limiter::builder(policy).agents(10).build().unwrap();
    let (bucket, held) = (LaneId::new(0), LaneId::new(1));
    assert!(limiter.hold_until_released(Request::new("b", held)).unwrap().is_allowed());
    assert!(limiter.check_request(Request::new("a", bucket).cost(30)).unwrap().is_allowed());
    let then = limiter.now();
    let full_in = || limiter.peek(Request::new("a", bucket).at(then)).unwrap().full_in();
    let before = full_in();
    for _ in 0..1_000 {
        assert!(!limiter.check_all(&[part("a", 0, 20), part("b", 1, 1)]).unwrap().is_allowed());
        assert_eq!(full_in(), before);
    }
    // A full bucket is full again.
    for _ in 0..1_000 {
        assert!(!limiter.check_all(&[part("c", 0, 60), part("b", 1, 1)]).unwrap().is_allowed());
    }
    assert!(limiter.check_request(Request::new("c", bucket).cost(60)).unwrap().is_allowed());
}

/// The same while the clock runs: the debt is never less than that of the
/// admitted sets, and a rollback adds at most the time of its call.
#[test]
fn colliding_callers_on_a_running_clock_leave_no_less_than_was_admitted() {
    const TOKEN: Duration = Duration::from_secs(60);
    let policy = Policy::builder().lane("a", "4000/4000min").lane("b", "held 1").build().unwrap();
    let limiter = Limiter::builder(policy).agents(10).build().unwrap();
    let lane = LaneId::new(0);
    for agent in ["x", "y"] {
        assert!(limiter.check_request(Request::new(agent, lane).cost(1_000)).unwrap().is_allowed());
    }
    let then = limiter.now();
    let debt = |agent: &str| limiter.peek(Request::new(agent, lane).at(then)).unwrap().full_in();
    let before = [debt("x"), debt("y")];
    let (admitted, denied, denied_ns) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (limiter, admitted, denied, denied_ns) = (&limiter, &admitted, &denied, &denied_ns);
            scope.spawn(move || {
                for call in 0..1_000 {
                    let start = limiter.now();
                    // Every other call needs the slot, which only one of them can have.
                    let agents = if (call + thread) % 2 == 0 { ["x", "y"] } else { ["y", "x"] };
                    let slot = part("z", 1, 1);
                    let two = [part(agents[0], 0, 1), part(agents[1], 0, 1), slot];
                    if limiter.check_all(&two).unwrap().is_allowed() {
                        admitted.fetch_add(1, Ordering::Relaxed);
                        std::thread::yield_now();
                        limiter.release(Request::new("z", LaneId::new(1))).unwrap();
                    } else {
                        denied.fetch_add(1, Ordering::Relaxed);
                        let taken = limiter.now().as_nanos() - start.as_nanos();
                        denied_ns.fetch_add(taken, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let admitted = u32::try_from(admitted.into_inner()).unwrap();
    assert!(admitted > 0 && denied.into_inner() > 0, "{admitted} admitted");
    let most = Duration::from_nanos(denied_ns.into_inner());
    for (debt, before) in [debt("x"), debt("y")].into_iter().zip(before) {
        let due = before + TOKEN * admitted;
        assert!((due..=due + most).contains(&debt), "{debt:?}, not {due:?} and at most {most:?} more");
    }
}
