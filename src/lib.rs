//! A rate limiter for platforms where many agents hit a service.
//!
//! Every request asks one question: *may agent A do this, on lane L, for cost
//! C, now?* The answer is exact under any concurrency, takes tens of
//! nanoseconds, allocates nothing, takes no lock for a known agent, and the
//! memory is fixed when the limiter is built, whatever ids arrive.
mod bounds;
mod clock;
mod error;
mod lane;
mod limiter;
mod policy;
mod record;
mod slab;
mod sync;

pub use bounds::{
    AGENTS_DEFAULT, AGENTS_MAX, BATCH_MAX, CAPACITY_MAX, ID_BYTES_MAX, LANE_NAME_BYTES_MAX, LANES_MAX, REFILL_MAX,
    TOKENS_PER_SECOND_MAX,
};
pub use clock::{Clock, ManualClock, Tick};
pub use error::{BuildError, Error};
pub use lane::{Decision, Status, Verdict};
pub use limiter::{Limiter, LimiterBuilder, Request, Stats};
pub use policy::{LaneId, Limit, LimitError, Policy, PolicyBuilder, PolicyError};
pub use slab::OnFull;
