//! The six mistakes that the design rules out.

use super::*;
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;
use tollgate::clock::ClockSource;
use tollgate::{Clock, Decision, Error, Request, Tick};

const THREADS: usize = 4;

/// How many calls pass when several threads make `calls` each.
fn passed(calls: usize, call: impl Fn() -> bool + Sync) -> usize {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        let threads = [(); THREADS].map(|()| {
            scope.spawn(|| {
                start.wait();
                (0..calls).filter(|_| call()).count()
            })
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// Pitfall 1: setting the wall clock creates tokens, or destroys them. The
/// limiter's clock is monotonic, and even one that steps back only makes it
/// stricter.
#[test]
fn clock() {
    assert!(matches!(Clock::auto().source(), ClockSource::Tsc | ClockSource::Os), "never the wall clock");
    let hub = Hub::new();
    hub.drain("agent-7", "ws/heavy");
    let now = hub.clock.now();
    hub.clock.set(now.checked_sub(30 * MINUTE).unwrap());
    assert!(!hub.check("agent-7", "ws/heavy").is_allowed());
    hub.clock.set(now);
    assert!(!hub.check("agent-7", "ws/heavy").is_allowed());
    hub.clock.advance(6 * SECOND);
    assert_eq!(hub.drain("agent-7", "ws/heavy"), 1);
    // A caller with an older instant gains nothing and costs nothing.
    let heavy = hub.lane("ws/heavy");
    assert!(!hub.limiter.check_request(Request::new("agent-7", heavy).at(Tick::ZERO)).unwrap().is_allowed());
    hub.clock.advance(6 * SECOND);
    assert_eq!(hub.drain("agent-7", "ws/heavy"), 1);
}

/// Pitfall 2: two callers read the same count, both take the last token, and
/// one update is lost. Here exactly the capacity passes, however many ask.
#[test]
fn update_race() {
    let hub = Hub::new();
    let light = hub.lane("ws/light");
    assert!(hub.check("agent-7", "ws/light").is_allowed());
    for _ in 0..50 {
        hub.clock.advance(MINUTE);
        assert_eq!(passed(60, || hub.limiter.check("agent-7", light).unwrap().is_allowed()), 120);
    }
}

/// Pitfall 3: two callers find no bucket, and the second to create one drops
/// the charge of the first. Here fresh memory is a full bucket.
#[test]
fn init_race() {
    let hub = Hub::new();
    let heavy = hub.lane("ws/heavy");
    for round in 0..200 {
        let agent = format!("new-{round}");
        assert_eq!(passed(5, || hub.limiter.check(&agent, heavy).unwrap().is_allowed()), 10, "{agent}");
    }
    assert_eq!(hub.limiter.stats().agents, 200, "no agent has two records");
}

/// Pitfall 4: a limit is stored, but the copy that checks read is not updated. Here what is read back is what is
/// applied, in every thread, from the moment the change returns, and also for an agent whose record is new.
#[test]
fn cache_invalidation() {
    let hub = Hub::new();
    let heavy = hub.lane("ws/heavy");
    for capacity in 1..200 {
        hub.limiter.set_override("agent-7", "heavy", format!("{capacity}/min").as_str()).unwrap();
        let seen = thread::scope(|scope| {
            let check = || hub.limiter.check("agent-7", heavy).unwrap().capacity();
            [scope.spawn(check), scope.spawn(check)].map(|thread| thread.join().unwrap())
        });
        assert_eq!(seen, [capacity; 2]);
        let limit = hub.limiter.limit_of("agent-7", heavy).unwrap().unwrap();
        assert_eq!(limit.capacity(), capacity);
        assert_eq!(hub.limiter.assignment("agent-7").unwrap().override_of("ws/heavy"), Some(limit));
        if capacity % 2 == 0 {
            assert!(hub.limiter.forget("agent-7").unwrap());
        }
    }
    hub.limiter.remove_override("agent-7", "heavy").unwrap();
    assert_eq!(hub.check("agent-7", "ws/heavy").capacity(), 10);
    assert!(hub.limiter.assignments().is_empty());
}

/// Pitfall 5: `identify` is heavy, but a connection that has not identified has
/// no id to charge: all such connections would share one bucket. Here an empty
/// id is an error that charges nothing, so a caller has to skip the check.
#[test]
fn identify() {
    let hub = Hub::new();
    let identify = hub.limiter.lane_for("ws", "identify").unwrap();
    assert_eq!((identify.lane(), identify.is_known()), (hub.lane("ws/heavy"), true));
    for _ in 0..1_000 {
        assert_eq!(hub.limiter.check("", identify.lane()), Err(Error::EmptyId));
        assert_eq!(hub.limiter.check_request(Request::new("", identify.lane()).counted()), Err(Error::EmptyId));
    }
    assert_eq!(hub.limiter.stats().agents, 0);
    assert_eq!(hub.limiter.check("agent-7", identify.lane()).unwrap().remaining(), 9, "once it has a name");
}

/// Pitfall 6: the dashboard polls, runs into its limit and goes dark. Exempt by
/// policy, it stays exempt whatever is changed, and no other agent becomes
/// exempt. It used to be exempted by hand, and a new allowlist limited it
/// again.
#[test]
fn dashboard_exemption() {
    let hub = Hub::new();
    let all_exempt = || {
        let poll = || hub.check("dashboard", "http/light").decision();
        let decisions: BTreeSet<_> = (0..500).map(|_| format!("{:?}", poll())).collect();
        assert_eq!(decisions, BTreeSet::from(["Exempt".to_owned()]));
    };
    all_exempt();
    hub.limiter.set_override("dashboard", "light", "deny").unwrap();
    all_exempt();
    hub.limiter.forget("dashboard").unwrap();
    all_exempt();
    hub.limiter.replace_policy(Policy::preset("hub").unwrap()).unwrap();
    all_exempt();
    hub.limiter.remove_overrides("dashboard").unwrap();
    hub.limiter.unexempt("dashboard").unwrap();
    all_exempt();
    hub.limiter.record_violation("dashboard").unwrap();
    assert!(!hub.limiter.rate_limited("dashboard").unwrap());
    assert_eq!(hub.check("dashboard2", "http/light").decision(), Decision::Allow);
}
