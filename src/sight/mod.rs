//! Seeing what the limiter does, without slowing it down.
//!
//! | file | what | written |
//! |---|---|---|
//! | `counters.rs` | verdicts by lane | by every check, in a shard of the thread's own |
//! | `snapshot.rs` | all counts at one time | - |
//! | `agent.rs` | how one agent stands | - |
//!
//! A limiter without [`Sight`] has none of it: its checks don't even ask, and
//! the instructions of a check are the same as if there were no such module.
//! With it a check takes another way, on which everything is counted once the
//! answer is known. The facade is `limiter/sight.rs`.

mod agent;
pub(crate) mod counters;
mod snapshot;

pub use agent::{AgentView, LaneView, UsageLevel};
pub use snapshot::{LaneCounts, Snapshot};

use crate::lane::Verdict;
use crate::policy::LaneId;
use crate::{Decision, Error};
use counters::{Counters, Other};

/// What a limiter shall remember of what it does; see [`LimiterBuilder::sight`](crate::LimiterBuilder::sight).
///
/// ```
/// use tollgate::{Limiter, Policy, Sight};
///
/// let policy = Policy::builder().lane("http", "2/minute").build()?;
/// let limiter = Limiter::builder(policy).agents(1_000).sight(Sight::new()).build()?;
/// let http = limiter.lane("http").expect("named above");
/// for _ in 0..3 {
///     let _ = limiter.check("agent-7", http)?;
/// }
/// let counts = limiter.snapshot();
/// assert_eq!((counts.allowed(), counts.denied()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Sight {}

impl Sight {
    /// Counts verdicts by lane.
    pub fn new() -> Self {
        Self::default()
    }
}

/// What a limiter remembers of what it does.
pub(crate) struct Watch {
    pub(crate) counters: Counters,
}

impl Watch {
    pub(crate) fn new(_sight: &Sight, lanes: usize) -> Self {
        Self { counters: Counters::new(lanes) }
    }

    /// Counts the answer to a check.
    #[inline]
    pub(crate) fn answered(&self, lane: LaneId, answer: &Result<Verdict, Error>) {
        self.counters.add(match answer {
            Ok(verdict) => self.counters.verdict(lane, verdict.decision()),
            Err(Error::Full) => self.counters.other(Other::Full),
            Err(_) => self.counters.other(Other::Error),
        });
    }
}

/// Decisions in the order in which they are counted.
const DECISIONS: [Decision; 4] = [Decision::Allow, Decision::Warn, Decision::Deny, Decision::Exempt];
