//! Warnings that are not repeated.

use super::{LANE, SECOND, build, check, spend};
use tollgate::observe::Observe;
use tollgate::{Decision, LaneId, Limiter, ManualClock, OnFull, Policy, Request};

/// Ten per second: warns below 2, and again once 4 were left.
fn policy(again: Option<u8>) -> Policy {
    let builder = Policy::builder()
        .lane("bucket", "10/s")
        .lane("window", "window 10/s")
        .lane("budget", "budget 10/day")
        .lane("held", "held 10");
    again.map_or(builder.clone(), |percent| builder.warn_again_percent(percent)).build().expect("a valid policy")
}

fn limiter(again: Option<u8>) -> (Limiter, ManualClock) {
    build(policy(again), 100, OnFull::Deny)
}

/// An agent at its threshold got a warning with every other verdict.
#[test]
fn an_agent_that_lingers_at_the_threshold_is_warned_once() {
    let warnings = |again| {
        let (limiter, clock) = limiter(again);
        assert_eq!(spend(&limiter, "agent-7", LANE, 8).decision(), Decision::Allow);
        let decisions = (0..100).map(|_| {
            let below = check(&limiter, "agent-7", LANE).decision();
            clock.advance(SECOND / 5);
            [below, check(&limiter, "agent-7", LANE).decision()]
        });
        decisions.flatten().filter(|decision| *decision == Decision::Warn).count()
    };
    assert_eq!(warnings(None), 100, "with every other verdict");
    assert_eq!(warnings(Some(20)), 100, "once per crossing");
    assert_eq!(warnings(Some(40)), 1);
}

#[test]
fn an_agent_is_warned_again_after_enough_was_left() {
    let (limiter, clock) = limiter(Some(40));
    let spend = |cost| spend(&limiter, "agent-7", LANE, cost).decision();
    assert_eq!([spend(9), spend(1)], [Decision::Warn, Decision::Allow]);
    clock.advance(SECOND * 3 / 10);
    assert_eq!(spend(2), Decision::Allow, "there were 3 of 10");
    clock.advance(SECOND * 3 / 10);
    assert_eq!(spend(3), Decision::Warn, "there were 4 of 10, before a large charge");
    clock.advance(SECOND * 4 / 10);
    assert_eq!(spend(1), Decision::Allow, "5 of 10, which is not near the limit");
    assert_eq!([spend(3), spend(1)], [Decision::Warn, Decision::Allow]);
    limiter.reset("agent-7").unwrap();
    assert_eq!(spend(9), Decision::Warn, "after a reset as well");
}

#[test]
fn a_denial_is_reported_every_time_and_leaves_the_warning_given() {
    let (limiter, clock) = limiter(Some(40));
    assert_eq!(spend(&limiter, "agent-7", LANE, 10).decision(), Decision::Warn);
    for _ in 0..3 {
        assert_eq!(check(&limiter, "agent-7", LANE).decision(), Decision::Deny);
    }
    clock.advance(SECOND / 10);
    assert_eq!(check(&limiter, "agent-7", LANE).decision(), Decision::Allow);
}

#[test]
fn every_kind_and_every_agent_has_its_own_warnings() {
    let (limiter, _) = limiter(Some(40));
    for agent in ["agent-7", "agent-8"] {
        for lane in (0..4).map(LaneId::new) {
            let decisions = [9, 1].map(|cost| spend(&limiter, agent, lane, cost).decision());
            assert_eq!(decisions, [Decision::Warn, Decision::Allow], "{agent}, {lane:?}");
        }
    }
}

/// Whichever verb warns first, the others do not, and the counts match the verdicts.
#[test]
fn every_verb_respects_an_earlier_warning() {
    let calls: [fn(&Limiter) -> Decision; 5] = [
        |limiter| limiter.check("agent-7", LANE).unwrap().decision(),
        |limiter| limiter.check_request(Request::new("agent-7", LANE).counted()).unwrap().decision(),
        |limiter| limiter.reserve(Request::new("agent-7", LANE), SECOND).unwrap().verdict().decision(),
        |limiter| {
            let parts = [Request::new(b"agent-7", LANE)];
            limiter.check_all(&parts).unwrap().verdicts()[0].decision()
        },
        |limiter| {
            let mut answers = [Err(tollgate::Error::Full)];
            limiter.check_many(&[Request::new(b"agent-7", LANE)], &mut answers).unwrap();
            answers[0].unwrap().decision()
        },
    ];
    for first in calls {
        for second in calls {
            for observe in [None, Some(Observe::new())] {
                let clock = ManualClock::new();
                let builder = Limiter::builder(policy(Some(40))).agents(100).clock(clock);
                let is_watched = observe.is_some();
                let limiter = observe.map_or(builder.clone(), |observe| builder.observe(observe)).build().unwrap();
                assert_eq!(spend(&limiter, "agent-7", LANE, 8).decision(), Decision::Allow);
                assert_eq!([first(&limiter), second(&limiter)], [Decision::Warn, Decision::Allow]);
                let counted = &limiter.snapshot().lanes[0];
                let expected = if is_watched { (2, 1) } else { (0, 0) };
                assert_eq!((counted.allowed, counted.warned), expected);
            }
        }
    }
}

#[test]
fn a_new_policy_turns_repeated_warnings_on_and_off() {
    let (limiter, _) = limiter(None);
    let decisions = |agent: &str| [9, 1].map(|cost| spend(&limiter, agent, LANE, cost).decision());
    assert_eq!(decisions("a"), [Decision::Warn, Decision::Warn]);
    limiter.replace_policy(policy(Some(40))).unwrap();
    assert_eq!(decisions("b"), [Decision::Warn, Decision::Allow]);
    limiter.replace_policy(policy(None)).unwrap();
    assert_eq!(decisions("c"), [Decision::Warn, Decision::Warn]);
}

/// Of many threads that bring an agent below the threshold, one warns.
#[test]
fn of_many_threads_one_warns() {
    let policy = Policy::builder().lane("lane", "budget 1000000/day").warn_below_percent(100).warn_again_percent(100);
    let limiter = Limiter::builder(policy.build().unwrap()).agents(100).clock(ManualClock::new()).build().unwrap();
    // The first charge of a full lane crosses the threshold; from then on it is not full.
    let warned = std::thread::scope(|scope| {
        let count = || (0..10_000).filter(|_| check(&limiter, "agent-7", LANE).decision() == Decision::Warn).count();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(warned, 1);
}
