//! What a limiter remembers of what it does, without slowing it down.
//!
//! | file | what | written |
//! |---|---|---|
//! | `counters.rs` | verdicts by lane | by every check, in the thread's shard |
//! | `sources.rs` (feature `cluster`) | answers of lanes that machines share, by source | by such a check, in the thread's shard |
//! | `snapshot.rs`, `stats.rs` | all counts at one time | - |
//! | `events.rs`, `ring.rs` | what an operator should know about | when it happens; no lock, no wait |
//! | `offenders.rs` | the agents that violate limits the most | by a violation |
//! | `log.rs` | rate-limited log lines about denials | by the caller that logs |
//! | `report.rs` | the report an operator reads | - |
//! | `shown.rs` | ids as they are shown | - |
//! | `roster.rs`, `list.rs` | ids of agents that have records | when an agent is given a record |
//! | `agent.rs` | one agent's state | - |
//! | `unknown.rs` | actions that the policy does not name | when one arrives |
//!
//! A limiter without [`Observe`] has none of this, and its checks have the same
//! instructions as if there were no such module. With it a check takes another
//! path, in `engine/observed.rs`, which counts the answer.

mod agent;
pub(crate) mod counters;
mod events;
mod list;
mod log;
mod offenders;
pub(crate) mod report;
mod ring;
pub(crate) mod roster;
mod shown;
mod snapshot;
#[cfg(feature = "cluster")]
pub(crate) mod sources;
pub(crate) mod stats;
pub(crate) mod unknown;

pub use agent::{AgentView, LaneView, UsageLevel};
pub(crate) use events::Note;
pub use events::{Event, EventKind};
pub use list::{AgentPage, AgentQuery, AgentSort, ListedAgent};
pub use log::{LogLine, LogThrottle};
pub use offenders::{Offender, Offenders};
pub use report::REPORT_FILE;
pub use shown::ShownId;
pub use snapshot::{LaneCounts, Snapshot};
pub use unknown::UnknownActionsSnapshot;

use crate::bounds::ROSTER_MAX;
use crate::clock::Tick;
use crate::conduct::Violation;
use crate::lane::Verdict;
use crate::policy::LaneId;
use crate::shared::Memory;
use crate::sync::{Counter, Ordering};
use crate::{Decision, Error};
use counters::{Counters, Other};
use events::Events;
use offenders::Violations;
use roster::Roster;
use std::cell::Cell;
use std::time::Duration;

/// What a limiter should remember of what it does; see [`LimiterBuilder::observe`](crate::LimiterBuilder::observe).
///
/// ```
/// use tollgate::observe::{EventKind, Observe};
/// use tollgate::{Limiter, Policy};
///
/// let policy = Policy::builder().lane("http", "2/minute").build()?;
/// let limiter = Limiter::builder(policy).agents(1_000).observe(Observe::new().roster(1_000)).build()?;
/// let http = limiter.lane("http").expect("named above");
/// for _ in 0..3 {
///     let _ = limiter.check("agent-7", http)?;
/// }
/// let counts = limiter.snapshot();
/// assert_eq!((counts.checks(), counts.denied()), (3, 1));
///
/// limiter.exempt("agent-8")?;
/// let event = limiter.poll_event().expect("something was decided");
/// assert_eq!(event.kind, EventKind::AssignmentChanged { agent: b"agent-8".to_vec() });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Observe {
    roster: usize,
    sample_every: u32,
}

impl Observe {
    /// Counts verdicts by lane, counts which agents violate limits the most,
    /// and keeps the last [`EVENTS_KEPT`](crate::bounds::EVENTS_KEPT) events:
    /// about 700 kB.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many agents a roster is wanted for.
    #[cfg(feature = "shared")]
    pub(crate) const fn roster_wanted(&self) -> usize {
        self.roster
    }

    /// Stores the ids of up to this many agents that have records, at most
    /// [`ROSTER_MAX`], so that they can be listed. Without it no agent can be
    /// listed, because records contain no ids.
    ///
    /// It reserves 272 bytes per agent, of which pages are used as they are
    /// touched, and costs an agent's first check some nanoseconds. With room
    /// for as many agents as the limiter has records, all are listed.
    pub fn roster(mut self, agents: usize) -> Self {
        self.roster = agents.min(ROSTER_MAX);
        self
    }

    /// Samples one check in `checks`, per thread, as an event with its verdict.
    /// 0, the default, samples none.
    pub fn sample_every(mut self, checks: u32) -> Self {
        self.sample_every = checks;
        self
    }
}

/// At most one event in this time reports that the limiter is full.
const SATURATED_EVERY: Duration = Duration::from_secs(60);

thread_local! {
    /// Checks of this thread since one was sampled.
    static UNSAMPLED: Cell<u32> = const { Cell::new(0) };
}

/// What a limiter remembers of what it does.
pub(crate) struct Watch {
    pub(crate) counters: Counters,
    pub(crate) events: Events,
    pub(crate) violations: Violations,
    pub(crate) roster: Option<Roster>,
    sample_every: u32,
    lossy_evictions: Counter,
    /// No event reports that the limiter is full before this instant.
    saturated_until: Counter,
    /// How many fallbacks of the clock were reported.
    fallbacks_reported: Counter,
}

impl Watch {
    /// The error is the number of bytes that the system refused.
    pub(crate) fn within(memory: &Memory, observe: &Observe, lanes: usize, records: u64) -> Result<Self, u64> {
        let records = usize::try_from(records).unwrap_or(usize::MAX);
        // A shared one is the engine's.
        let is_wanted = observe.roster > 0 && memory.joined().is_none();
        let roster = is_wanted.then(|| Roster::new(observe.roster, records)).transpose()?;
        Ok(Self {
            counters: Counters::within(memory, lanes)?,
            events: Events::new(),
            violations: Violations::new(),
            roster,
            sample_every: observe.sample_every,
            lossy_evictions: Counter::new(0),
            saturated_until: Counter::new(0),
            fallbacks_reported: Counter::new(0),
        })
    }

    /// See [`Roster::prefault`].
    pub(crate) fn prefault(&self) -> Result<(), u64> {
        self.roster.as_ref().map_or(Ok(()), Roster::prefault)
    }

    /// Counts the answer to a check. `true` if it should be sampled as an event too.
    #[inline(always)]
    pub(crate) fn answered(&self, lane: LaneId, answer: &Result<Verdict, Error>) -> bool {
        self.counters.add(match answer {
            Ok(verdict) => self.counters.finding(lane, verdict.finding),
            // Still an answer: a denial that no wait can lift.
            Err(Error::CostAboveCapacity { .. }) => self.counters.verdict(lane, Decision::Deny),
            Err(Error::Full) => return false, // Counted when it was refused.
            Err(_) => self.counters.other(Other::Error),
        });
        self.sample_every != 0 && self.is_sampled()
    }

    #[cold]
    #[inline(never)]
    fn is_sampled(&self) -> bool {
        let checks = UNSAMPLED.get() + 1;
        let is_sampled = checks >= self.sample_every;
        UNSAMPLED.set(if is_sampled { 0 } else { checks });
        is_sampled
    }

    /// An agent violated a limit.
    pub(crate) fn violated(&self, agent: &[u8], violation: &Violation, now: Tick) {
        self.counters.add(self.counters.other(Other::Violation));
        self.violations.add(agent, now);
        if violation.sustained_abuse() {
            self.counters.add(self.counters.other(Other::Abuse));
            self.events.push(now, Note::SustainedAbuse { agent, in_a_row: violation.in_a_row() });
        }
    }

    /// A record was given to an agent. The caller holds the record's lock.
    pub(crate) fn claimed(&self, position: usize, agent: &[u8], is_lossy: bool, clock: impl FnOnce() -> Tick) {
        if let Some(roster) = &self.roster {
            roster.write(position, agent);
        }
        if is_lossy {
            self.lossy_evictions.fetch_add(1, Ordering::Relaxed);
            self.saturated(clock());
        }
    }

    /// A new agent was refused.
    pub(crate) fn refused(&self, now: Tick) {
        self.counters.add(self.counters.other(Other::Full));
        self.saturated(now);
    }

    /// Reports that there is no room, unless that was reported a moment ago.
    fn saturated(&self, now: Tick) {
        let until = self.saturated_until.load(Ordering::Relaxed);
        let next = now.saturating_add(SATURATED_EVERY).as_nanos();
        // Of several threads, the one that moves the instant on reports.
        let is_due = now.as_nanos() >= until
            && self.saturated_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_due {
            let lossy_evictions = self.lossy_evictions.load(Ordering::Relaxed);
            let refused = self.counters.sum(self.counters.other(Other::Full));
            self.events.push(now, Note::Saturated { lossy_evictions, refused });
        }
    }

    /// Reports fallbacks of the clock that were not reported yet.
    pub(crate) fn clock_fell_back(&self, fallbacks: u64, now: Tick) {
        let reported = self.fallbacks_reported.load(Ordering::Relaxed);
        let is_news = fallbacks > reported
            && self
                .fallbacks_reported
                .compare_exchange(reported, fallbacks, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_news {
            self.events.push(now, Note::ClockFellBack);
        }
    }
}

/// Decisions in the order in which they are counted.
const DECISIONS: [Decision; 4] = [Decision::Allow, Decision::Warn, Decision::Exempt, Decision::Deny];

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_of_the_clock_is_reported_once() {
        let watch = Watch::within(&Memory::Private, &Observe::new(), 1, 96).unwrap();
        for fallbacks in [0, 0, 1, 1, 1] {
            watch.clock_fell_back(fallbacks, Tick::from_nanos(7));
        }
        let event = watch.events.poll().unwrap();
        assert_eq!((event.at, event.kind), (Tick::from_nanos(7), EventKind::ClockFellBack));
        assert_eq!(watch.events.poll(), None);
    }

    #[test]
    fn decisions_are_counted_in_the_order_of_their_numbers() {
        assert_eq!(DECISIONS.map(|decision| decision as usize), [0, 1, 2, 3]);
    }
}
