//! A rate limiter for platforms where many agents hit a service.
//!
//! Every request asks one question: *may agent A do this, on lane L, for cost
//! C, now?* The answer is exact under any concurrency, takes tens of
//! nanoseconds, allocates nothing, takes no lock for a known agent, and the
//! memory is fixed when the limiter is built, whatever ids arrive.
//!
//! ```
//! use tollgate::{Error, Limit, Limiter, Policy, Request};
//!
//! let policy = Policy::builder()
//!     .lane("ws/light", Limit::per_minute(120))
//!     .lane("ws/normal", Limit::per_minute(60))
//!     .lane("http/heavy", "10/min burst 20")
//!     .build()?;
//! let limiter = Limiter::builder(policy).agents(100_000).build()?;
//! let normal = limiter.lane("ws/normal").expect("named above");
//!
//! // One request, one token.
//! assert_eq!(limiter.check("agent-7", normal)?.remaining(), 59);
//! // Fifty tokens at once, all or none; half of them turn out not to be needed.
//! assert!(limiter.check_request(Request::new("agent-7", normal).cost(50))?.is_allowed());
//! limiter.refund(Request::new("agent-7", normal).cost(25))?;
//! // Look without charging.
//! assert_eq!(limiter.peek(Request::new("agent-7", normal))?.remaining(), 34);
//! // A batch, at one reading of the clock.
//! let requests = [Request::new(b"agent-8", normal); 3];
//! let mut answers = [Err(Error::EmptyId); 3];
//! limiter.check_many(&requests, &mut answers)?;
//! assert!(answers.iter().all(|answer| answer.is_ok_and(|verdict| verdict.is_allowed())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The design on one page
//!
//! **One agent is one cache line. One lane is one word. One decision is one
//! pure function and one compare-exchange.**
//!
//! - *Lane words* (`lane/`): a token bucket is the instant at which it will be
//!   full again. A step on it is pure: no atomics, no clock, no allocation.
//!   Property tests hold it against exact rational arithmetic.
//! - *Records* (`record/`): a tag word, a word per lane and a conduct word. One
//!   loop applies any step to a lane: load the lane, then look at the tag,
//!   exchange. The proof is there, and loom models explore it.
//! - *The slab* (`slab/`): a preallocated mapping of records. A keyed hash of
//!   the id names a home; the agent lives within 96 records of it, and is
//!   nearly always found by one look at sixteen fingerprints. Tenants change
//!   under a lock per 1,024 records that no charge ever takes.
//! - *Time* (`clock/`): `now` is an argument everywhere below `engine/`.
//!
//! | promise | shown by |
//! |---|---|
//! | never more than `capacity + refill * elapsed` admitted, on any interleaving, for every agent not lossily evicted, and for all under [`OnFull::Deny`] | loom models; stress against an exact oracle |
//! | no charge lost, doubled or made to another agent, across claim, evict, reset, refund, forget | loom models of every pair of operations |
//! | a step equals exact arithmetic, up to rounding in the stricter direction | property tests |
//! | no allocation and no lock in the check of a known agent | a counting allocator |
//! | memory is constant under any stream of ids | a flood that watches resident memory |
//! | a denied check writes nothing | a test on every word of the slab |
//! | bad input never panics: it gets a named error | property tests |
//!
//! # What happens when it is full
//!
//! A record whose lanes are all full again carries no information, so it is
//! given to a newcomer without loss. If the newcomer's neighbourhood has no such
//! record, [`OnFull`] decides: give up the record with the least debt
//! (the default, counted in [`Stats::lossy_evictions`]) or refuse the newcomer.

// Tests may unwrap: a panic there is a failure that names its line.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("tollgate needs a 64-bit target: a slab may be larger than 4 GB");

pub mod bounds;
pub mod clock;
mod conduct;
mod control;
mod engine;
mod error;
#[cfg(feature = "capi")]
pub mod ffi;
#[cfg(feature = "persist")]
pub mod keep;
mod lane;
mod limiter;
mod limits;
mod machine;
pub mod observe;
mod policy;
mod record;
#[cfg(feature = "shared")]
pub mod shared;
#[cfg(not(feature = "shared"))]
mod shared;
mod slab;
mod sync;

/// Limits that machines share through a store, such as Redis (feature `cluster`).
#[cfg(feature = "cluster")]
pub mod cluster {
    pub use crate::control::{Changed, Followed};
    pub use crate::engine::{Ask, BudgetWindow, Due, Settled};
    pub use crate::lane::clustered::{Source, WhenLost};
    pub use crate::limiter::cluster::{Cluster, ClusterError, ClusterLane, ClusterStatus, Link, Operators};
    pub use crate::limiter::cluster::{SECRET_BYTES_MIN, SharedLane};
}

pub use clock::{Clock, ManualClock, Tick};
pub use conduct::{Conduct, Violation};
pub use control::ControlError;
pub use engine::{
    ActionLane, Agent, AllVerdict, Assignment, Assignments, Request, Reservation, ReservationId, Settle, Settlement,
};
pub use error::{BuildError, Error};
pub use lane::{Decision, LaneState, Verdict};
pub use limiter::{HeldSlot, Hold, Limiter, LimiterBuilder};
pub use observe::stats::Stats;
#[cfg(feature = "config")]
pub use policy::ConfigError;
pub use policy::{
    Calendar, CallLimit, Classification, ConductError, ConductRules, LaneId, Limit, LimitError, OnChange, PlanId,
    Policy, PolicyBuilder, PolicyError, preset,
};
pub use slab::{IdHash, OnFull};

/// The examples of the README and of the pages run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/how-it-works.md")]
    struct HowItWorks;
    #[doc = include_str!("../docs/limits.md")]
    struct Limits;
    #[doc = include_str!("../docs/plans-and-conduct.md")]
    struct PlansAndConduct;
    #[doc = include_str!("../docs/operations.md")]
    struct Operations;
    #[doc = include_str!("../docs/rust.md")]
    struct Rust;
}
