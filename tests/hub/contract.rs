//! The hub's own list of tests.

use super::hub_actions::{HTTP, WS};
use super::*;
use tollgate::{Assignment, Decision};

#[test]
fn tier_classification_of_every_name() {
    let hub = Hub::new();
    for (channel, tiers) in [("ws", WS), ("http", HTTP)] {
        for (tier, actions) in tiers {
            for action in actions {
                let found = hub.limiter.lane_for(channel, action).unwrap();
                assert_eq!(
                    (found.lane(), found.is_known()),
                    (hub.lane(&format!("{channel}/{tier}")), true),
                    "{channel} {action}"
                );
            }
        }
    }
    assert_eq!(hub.limiter.unknown_actions().total, 0);
}

#[test]
fn first_request_is_capacity_minus_one() {
    let hub = Hub::new();
    for (lane, capacity) in lanes() {
        let verdict = hub.check("agent-7", &lane);
        assert_eq!((verdict.remaining(), verdict.capacity()), (capacity - 1, capacity), "{lane}");
    }
}

#[test]
fn deny_after_capacity() {
    let hub = Hub::new();
    for (lane, capacity) in lanes() {
        assert_eq!(hub.drain("agent-7", &lane), capacity, "{lane}");
        assert_eq!(hub.check("agent-7", &lane).decision(), Decision::Deny, "{lane}");
    }
}

/// An agent that waits this long is admitted.
#[test]
fn retry_is_a_multiple_of_1000() {
    for (lane, _) in lanes() {
        for late in [Duration::ZERO, NANOSECOND, Duration::from_millis(1), Duration::from_millis(499)] {
            let hub = Hub::new();
            hub.drain("agent-7", &lane);
            hub.clock.advance(late);
            let wait = retry_after_ms(hub.check("agent-7", &lane).retry_after());
            assert!(wait > 0 && wait % 1_000 == 0, "{lane} after {late:?}: {wait}");
            hub.clock.advance(Duration::from_millis(wait));
            assert!(hub.check("agent-7", &lane).is_allowed(), "{lane} after {late:?}");
        }
    }
}

#[test]
fn refill_after_wait() {
    for (lane, capacity) in lanes() {
        let hub = Hub::new();
        hub.drain("agent-7", &lane);
        hub.clock.advance(MINUTE / 2);
        assert_eq!(hub.drain("agent-7", &lane), capacity / 2, "{lane}");
        hub.clock.advance(MINUTE);
        assert_eq!(hub.drain("agent-7", &lane), capacity, "{lane}");
        hub.clock.advance(100 * MINUTE);
        assert_eq!(hub.drain("agent-7", &lane), capacity, "{lane}");
    }
}

/// Strictly below a fifth, and at every call from there on.
#[test]
fn warn_band() {
    let hub = Hub::new();
    for (lane, capacity) in lanes() {
        for left in (0..capacity).rev() {
            let verdict = hub.check("agent-7", &lane);
            let expected = if left * 5 < capacity { Decision::Warn } else { Decision::Allow };
            assert_eq!((verdict.decision(), verdict.remaining()), (expected, left), "{lane}");
        }
    }
}

#[test]
fn independence_per_agent() {
    let hub = Hub::new();
    for (lane, capacity) in lanes() {
        hub.drain("agent-7", &lane);
        assert_eq!(hub.left("agent-8", &lane), capacity, "{lane}");
    }
}

#[test]
fn independence_per_channel() {
    for (tier, capacity) in TIERS {
        for (drained, other) in [("ws", "http"), ("http", "ws")] {
            let hub = Hub::new();
            hub.drain("agent-7", &format!("{drained}/{tier}"));
            assert_eq!(hub.left("agent-7", &format!("{other}/{tier}")), capacity, "{other}/{tier}");
        }
    }
}

#[test]
fn independence_per_tier() {
    for (drained, _) in TIERS {
        let hub = Hub::new();
        hub.drain("agent-7", &format!("ws/{drained}"));
        for (tier, capacity) in TIERS.into_iter().filter(|(tier, _)| *tier != drained) {
            assert_eq!(hub.left("agent-7", &format!("ws/{tier}")), capacity, "{drained} and {tier}");
        }
    }
}

/// 10^5 calls, all exempt, and no lane is charged.
#[test]
fn exemption() {
    let hub = Hub::new();
    hub.limiter.exempt("probe").unwrap();
    // By policy: it needs no call, and no call can revoke it.
    hub.limiter.unexempt("dashboard").unwrap();
    hub.limiter.set_assignments([("dashboard", Assignment::default())]).unwrap();
    assert_eq!(hub.limiter.assignments().len(), 1);
    assert!(hub.limiter.is_exempt("dashboard").unwrap() && !hub.limiter.is_exempt("agent-7").unwrap());
    for _ in 0..100_000 / 6 + 1 {
        for (lane, _) in lanes() {
            assert_eq!(hub.check("dashboard", &lane).decision(), Decision::Exempt, "{lane}");
        }
    }
    assert!(hub.check_counted("dashboard", "ws/heavy").is_allowed());
    hub.limiter.unexempt("probe").unwrap();
    for (lane, capacity) in lanes() {
        assert_eq!(hub.drain("probe", &lane), capacity, "{lane}");
    }
}

#[test]
fn backoff_series() {
    const SERIES: [u64; 6] = [1_000, 2_000, 5_000, 10_000, 30_000, 30_000];
    let hub = Hub::new();
    hub.drain("agent-7", "ws/light");
    // A light token takes half a second, so the series alone decides.
    let waits = SERIES.map(|_| retry_after_ms(hub.check_counted("agent-7", "ws/light").retry_after()));
    assert_eq!(waits, SERIES);
    let waits = SERIES.map(|_| hub.limiter.record_violation("agent-8").unwrap().step().as_millis() as u64);
    assert_eq!(waits, SERIES);
}

#[test]
fn quiet_reset() {
    let hub = Hub::new();
    let violate = || hub.limiter.record_violation("agent-7").unwrap();
    violate();
    hub.clock.advance(MINUTE - NANOSECOND);
    assert_eq!((violate().in_a_row(), violate().step()), (2, 5 * SECOND));
    // The second violation was recorded at the end of its eighth of a second.
    hub.clock.advance(MINUTE + NANOSECOND);
    assert_eq!((violate().in_a_row(), violate().in_a_row()), (1, 2));
}

/// It clears on its own, without a call in between.
#[test]
fn rate_limited() {
    let hub = Hub::new();
    let limited = || hub.limiter.rate_limited("agent-7").unwrap();
    assert!(!limited());
    hub.drain("agent-7", "ws/heavy");
    assert!(!limited(), "a check is not a violation");
    assert!(!hub.check_counted("agent-7", "ws/heavy").is_allowed());
    assert!(limited());
    hub.clock.advance(MINUTE - NANOSECOND);
    assert!(limited());
    hub.clock.advance(NANOSECOND);
    assert!(!limited());
}
