//! The hub's other rules, as far as the core implements them.

use super::*;
use tollgate::{ConductRules, Decision, Limit, Request};

/// An unknown action is limited as normal and reported once, and a
/// stream of made-up names takes no more memory than 256 of them.
#[test]
fn an_unknown_action_is_normal_and_reported_once() {
    let hub = Hub::new();
    for channel in CHANNELS {
        let first = hub.limiter.lane_for(channel, "dance").unwrap();
        assert_eq!(first.lane(), hub.lane(&format!("{channel}/normal")));
        assert!(!first.is_known() && first.is_first_seen());
        let second = hub.limiter.lane_for(channel, "dance").unwrap();
        assert!(!second.is_known() && !second.is_first_seen());
    }
    let first_seen = (0..10_000).filter(|i| hub.limiter.lane_for("ws", &format!("a{i}")).unwrap().is_first_seen());
    assert_eq!(first_seen.count(), 254);
    let seen = hub.limiter.unknown_actions();
    assert_eq!((seen.total, seen.names.len(), seen.not_listed), (10_004, 256, 10_000 - 254));
}

/// The first warnings come with 23, 11 and 1 left, and the request passes.
#[test]
fn the_first_warning_of_each_tier() {
    let hub = Hub::new();
    for (lane, first) in [("ws/light", 23), ("ws/normal", 11), ("ws/heavy", 1)] {
        let warning =
            (0..1_000).map(|_| hub.check("agent-7", lane)).find(|verdict| verdict.decision() != Decision::Allow);
        let warning = warning.unwrap();
        assert_eq!((warning.decision(), warning.remaining()), (Decision::Warn, first), "{lane}");
        assert!(warning.is_allowed());
    }
}

/// Exact in the core, whole seconds for the hub's agents, a minute if no wait helps.
#[test]
fn waits_are_exact_and_reported_in_whole_seconds() {
    let hub = Hub::new();
    hub.drain("agent-7", "ws/heavy");
    hub.clock.advance(SECOND - NANOSECOND);
    let wait = hub.check("agent-7", "ws/heavy").retry_after();
    assert_eq!(wait, Some(5 * SECOND + NANOSECOND));
    assert_eq!(retry_after_ms(wait), 6_000);
    hub.limiter.set_override("agent-7", "heavy", Limit::deny_all()).unwrap();
    let denied = hub.check("agent-7", "ws/heavy");
    assert_eq!((denied.decision(), denied.retry_after()), (Decision::Deny, None));
    assert_eq!(retry_after_ms(denied.retry_after()), 60_000);
    assert_eq!(retry_after_ms(hub.check_counted("agent-7", "ws/heavy").retry_after()), 60_000);
}

/// The wait is the longer of the bucket's and the curve's, and each is
/// available separately. The curve's takes no tokens.
#[test]
fn a_denied_agent_gets_the_longer_wait() {
    let hub = Hub::new();
    hub.drain("agent-7", "ws/heavy");
    for step in [1, 2, 5, 10, 30] {
        let denied = hub.check_counted("agent-7", "ws/heavy");
        assert_eq!(denied.lane_wait(), Some(6 * SECOND));
        assert_eq!(denied.conduct_wait(), step * SECOND);
        assert_eq!(denied.retry_after(), Some((step * SECOND).max(6 * SECOND)));
    }
    hub.clock.advance(6 * SECOND);
    assert!(hub.check_counted("agent-7", "ws/heavy").is_allowed(), "the wait is advice");
}

/// Every denial counts, even five at once. Sparing parallel requests is an option.
#[test]
fn every_denial_is_a_violation() {
    let consecutive = |policy| {
        let hub = Hub::with(policy);
        hub.drain("agent-7", "http/heavy");
        [(); 5].map(|()| hub.check_counted("agent-7", "http/heavy").violations_in_a_row())
    };
    assert_eq!(consecutive(Policy::preset("hub").unwrap()), [1, 2, 3, 4, 5]);
    let sparing = ConductRules::default().with_every_denial(false);
    let sparing = Policy::builder().lane("http/heavy", "10/min").conduct(sparing);
    assert_eq!(consecutive(sparing.build().unwrap()), [0; 5]);
}

/// The count in the window, its start, and the count in a row.
#[test]
fn the_record_of_violations() {
    let hub = Hub::new();
    let start = hub.clock.now();
    for _ in 0..3 {
        hub.limiter.record_violation("agent-7").unwrap();
        hub.clock.advance(61 * SECOND);
    }
    hub.limiter.record_violation("agent-7").unwrap();
    hub.limiter.record_violation("agent-7").unwrap();
    let seen = hub.limiter.violations("agent-7").unwrap();
    assert_eq!((seen.violations(), seen.window_start(), seen.in_a_row()), (5, Some(start), 2));
    assert_eq!(seen.last_violation(), Some(hub.clock.now()));
    assert_eq!(hub.limiter.violations("agent-8").unwrap(), Default::default());
}

/// The scheduler skips an agent, and then no longer does.
#[test]
fn rate_limited_agents_get_no_new_tasks() {
    let hub = Hub::new();
    let fleet = ["agent-6", "agent-7", "agent-8"];
    hub.drain("agent-7", "ws/heavy");
    assert!(!hub.check_counted("agent-7", "ws/heavy").is_allowed());
    assert_eq!(hub.limiter.assignable(fleet), ["agent-6", "agent-8"]);
    assert!(hub.check_counted("agent-7", "ws/normal").is_allowed(), "running work goes on");
    hub.clock.advance(MINUTE);
    assert_eq!(hub.limiter.assignable(fleet), fleet);
}

/// A thousand denials have no effect beyond a thousand verdicts.
#[test]
fn denials_never_shut_an_agent_out() {
    let hub = Hub::new();
    hub.drain("agent-7", "ws/heavy");
    for _ in 0..1_000 {
        let denied = hub.check_counted("agent-7", "ws/heavy");
        assert!(!denied.is_allowed() && denied.retry_after().unwrap() <= 30 * SECOND);
    }
    assert!(hub.check_counted("agent-7", "ws/light").is_allowed());
    hub.clock.advance(6 * SECOND);
    assert!(hub.check_counted("agent-7", "ws/heavy").is_allowed());
}

/// An override of a tier applies in both channels; it may also name one channel.
#[test]
fn an_override_of_a_tier_holds_in_both_channels() {
    let hub = Hub::new();
    hub.limiter.set_override("agent-7", "heavy", "100/min").unwrap();
    assert_eq!((hub.drain("agent-7", "ws/heavy"), hub.drain("agent-7", "http/heavy")), (100, 100));
    assert_eq!((hub.drain("agent-7", "ws/normal"), hub.drain("agent-8", "ws/heavy")), (60, 10));
    hub.limiter.set_override("agent-9", "http/heavy", "100/min").unwrap();
    assert_eq!((hub.drain("agent-9", "ws/heavy"), hub.drain("agent-9", "http/heavy")), (10, 100));
}

/// It applies to the next check, and fills all lanes of the agent; so do its
/// removal and a new policy.
#[test]
fn an_override_applies_at_once_and_fills_all_lanes_of_the_agent() {
    let hub = Hub::new();
    let full = |heavy: u64| {
        for (lane, capacity) in lanes() {
            let capacity = if lane.ends_with("heavy") { heavy } else { capacity };
            assert_eq!(hub.left("agent-7", &lane), capacity, "{lane}");
        }
    };
    hub.drain("agent-8", "ws/heavy");
    hub.drain_all("agent-7");
    hub.limiter.set_override("agent-7", "heavy", "20/min").unwrap();
    full(20);
    hub.drain_all("agent-7");
    hub.limiter.remove_override("agent-7", "heavy").unwrap();
    full(10);
    assert_eq!(hub.left("agent-8", "ws/heavy"), 0, "no other agent's");
    hub.drain_all("agent-7");
    hub.limiter.replace_policy(Policy::preset("hub").unwrap()).unwrap();
    full(10);
}

/// Filling lanes at every change would let an agent exceed its limits if others
/// can cause its changes. The hub chooses that; elsewhere debt stays.
#[test]
fn only_the_hub_fills_lanes_when_limits_change() {
    for name in Policy::PRESETS {
        let hub = Hub::with(Policy::preset(name).unwrap());
        let policy = hub.limiter.policy();
        let (_, lane) = policy.lanes().next().unwrap();
        let capacity = hub.drain("agent-7", lane);
        assert!(capacity > 1, "{name}");
        let limit = policy.limit(hub.lane(lane)).unwrap();
        // The same rate with one token less: the same amount is missing, or all there can be.
        hub.limiter.set_override("agent-7", lane, limit.burst(capacity - 1)).unwrap();
        assert_eq!(hub.left("agent-7", lane), if name == "hub" { capacity - 1 } else { 0 }, "{name}");
    }
    // The hub fills nothing either when nothing changes.
    let hub = Hub::new();
    hub.limiter.set_override("agent-7", "heavy", "20/min").unwrap();
    hub.drain("agent-7", "ws/heavy");
    hub.limiter.set_override("agent-7", "heavy", "20/min").unwrap();
    assert_eq!(hub.left("agent-7", "ws/heavy"), 0);
}

#[test]
fn an_operator_forgives_violations() {
    let hub = Hub::new();
    for _ in 0..20 {
        hub.limiter.record_violation("agent-7").unwrap();
    }
    assert!(hub.limiter.reset_violations("agent-7").unwrap());
    assert_eq!(
        (hub.limiter.violations("agent-7").unwrap().in_a_row(), hub.limiter.rate_limited("agent-7")),
        (0, Ok(false))
    );
    assert_eq!(hub.limiter.record_violation("agent-7").unwrap().step(), SECOND);
    assert!(!hub.limiter.reset_violations("agent-8").unwrap());
}

/// Nine violations in five minutes report nothing, ten report once, however
/// many follow; after five quiet minutes it starts over.
#[test]
fn sustained_abuse_is_reported_once() {
    let hub = Hub::new();
    let reports = |violations: u32| {
        (0..violations).filter(|_| hub.limiter.record_violation("agent-7").unwrap().sustained_abuse()).count()
    };
    assert_eq!((reports(9), reports(1), reports(1_000)), (0, 1, 0));
    hub.clock.advance(4 * MINUTE);
    assert_eq!(reports(10), 0);
    hub.clock.advance(5 * MINUTE);
    assert_eq!((reports(9), reports(1), reports(10)), (0, 1, 0));
}

/// A safety net, not a cage.
#[test]
fn normal_load_is_never_warned() {
    let hub = Hub::new();
    for _ in 0..600 {
        for lane in ["ws/normal", "http/normal"] {
            assert_eq!(hub.check("agent-7", lane).decision(), Decision::Allow);
        }
        hub.clock.advance(MINUTE / 10);
    }
}

/// For display, before the agent has done anything.
#[test]
fn the_capacity_of_a_lane_can_be_read() {
    let hub = Hub::new();
    hub.limiter.set_override("agent-8", "heavy", "25/min").unwrap();
    for (lane, capacity) in lanes() {
        let of = |agent| hub.limiter.peek(Request::new(agent, hub.lane(&lane))).unwrap().capacity();
        assert_eq!((of("agent-7"), of("agent-8")), (capacity, if capacity == 10 { 25 } else { capacity }), "{lane}");
    }
    assert_eq!(hub.limiter.stats().agents, 0);
}

#[test]
fn deleting_the_buckets_of_an_agent_makes_its_next_check_its_first() {
    let hub = Hub::new();
    hub.drain_all("agent-7");
    assert!(hub.limiter.forget("agent-7").unwrap());
    for (lane, capacity) in lanes() {
        assert_eq!(hub.check("agent-7", &lane).remaining(), capacity - 1, "{lane}");
    }
}

/// Every call that the hub needs, under its name here.
#[test]
fn every_call_of_the_hub_has_a_counterpart() {
    let hub = Hub::new();
    let (limiter, heavy) = (&hub.limiter, hub.lane("ws/heavy"));
    assert!(limiter.check("agent-7", heavy).unwrap().is_allowed()); // check/3
    assert_eq!(limiter.record_violation("agent-7").unwrap().step(), SECOND); // record_violation/1
    assert!(limiter.rate_limited("agent-7").unwrap()); // rate_limited?/1
    assert!(limiter.reset_violations("agent-7").unwrap()); // reset_violations/1
    assert!(!limiter.is_exempt("agent-7").unwrap()); // exempt?/1
    assert_eq!(limiter.peek(Request::new("agent-7", heavy)).unwrap().capacity(), 10); // capacity/3
    assert_eq!(limiter.limit_of("agent-7", heavy).unwrap(), Some(Limit::per_minute(10))); // get_limits/3
    assert!(limiter.forget("agent-7").unwrap()); // delete_agent_buckets/1
    assert_eq!(limiter.lane_for("ws", "identify").unwrap().lane(), heavy); // the classifiers
    assert_eq!(limiter.policy().limit(heavy), Some(Limit::per_minute(10))); // defaults/1
}

/// A token every 0.5, 1 and 6 s, to the nanosecond, indefinitely.
#[test]
fn refill_is_exact() {
    for (tier, capacity) in TIERS {
        let hub = Hub::new();
        let (lane, token) = (format!("ws/{tier}"), MINUTE / capacity as u32);
        hub.drain("agent-7", &lane);
        for _ in 0..10_000 {
            hub.clock.advance(token - NANOSECOND);
            assert!(!hub.check("agent-7", &lane).is_allowed());
            hub.clock.advance(NANOSECOND);
            assert!(hub.check("agent-7", &lane).is_allowed());
        }
    }
}
