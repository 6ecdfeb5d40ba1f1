//! WebSocket frames, for services that check each message themselves.
//!
//! A layer sees the request that opens a WebSocket, but not the messages. These
//! are the JSON texts to send when the check of a message warns or denies.
//! Neither is a reason to close the connection.
//!
//! ```
//! use tollgate::{Decision, Limiter, ManualClock, Policy};
//! use tollgate_gate::{Quota, frame};
//!
//! let policy = Policy::builder().lane("ws/heavy", "10/min").build()?;
//! let limiter = Limiter::builder(policy).agents(10).clock(ManualClock::new()).build()?;
//! let lane = limiter.lane("ws/heavy").ok_or("named above")?;
//!
//! let mut sent = Vec::new();
//! for _ in 0..11 {
//!     let verdict = limiter.check("agent-7", lane)?;
//!     match verdict.decision() {
//!         Decision::Warn => sent.push(frame::warning("ws/heavy", &Quota::from(&verdict))),
//!         Decision::Deny => sent.push(frame::denial("ws/heavy", &Quota::from(&verdict))),
//!         _ => {}
//!     }
//! }
//! assert_eq!(sent, [
//!     r#"{"type":"rate_limit_warning","tier":"heavy","remaining":1,"capacity":10}"#,
//!     r#"{"type":"rate_limit_warning","tier":"heavy","remaining":0,"capacity":10}"#,
//!     r#"{"type":"rate_limited","retry_after_ms":6000,"tier":"heavy"}"#,
//! ]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::json::Object;
use crate::profile::tier;
use crate::quota::Quota;
use std::time::Duration;

/// For a message that was delivered: the agent is near its limit.
#[must_use]
pub fn warning(lane: &str, quota: &Quota) -> String {
    Object::new()
        .text("type", "rate_limit_warning")
        .text("tier", tier(lane))
        .number("remaining", quota.remaining)
        .number("capacity", quota.capacity)
        .end()
}

/// A wait in milliseconds, rounded up to whole seconds; a minute if waiting does
/// not help: an operator may have changed the limits by then.
pub(crate) fn whole_seconds_ms(wait: Option<Duration>) -> u64 {
    tollgate::clock::wait_ms(wait, 1_000, 60_000)
}

/// For a message that was not delivered. The wait is in milliseconds, rounded up
/// to whole seconds; a minute if waiting does not help.
#[must_use]
pub fn denial(lane: &str, quota: &Quota) -> String {
    let ms = whole_seconds_ms(quota.retry_after);
    Object::new().text("type", "rate_limited").number("retry_after_ms", ms).text("tier", tier(lane)).end()
}
