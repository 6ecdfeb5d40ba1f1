//! Counts, offenders, events, and the report.

use super::Engine;
use crate::clock::Tick;
use crate::observe::counters::Other;
use crate::observe::report::{self, Report};
use crate::observe::{AgentQuery, AgentSort, Event, LaneCounts, Offenders, Snapshot};
use std::time::SystemTime;
#[cfg(feature = "shared")]
use {
    crate::bounds::CONTROL_WITHIN,
    crate::shared::Section,
    crate::shared::lock::Holders as _,
    crate::sync::{AtomicU64, Ordering},
    crate::{lane, limits::Row, policy::LaneId, slab::hash::AgentHash},
    std::time::{Duration, Instant},
};

impl Engine {
    /// What it holds and has done.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let counters = self.watch.as_ref().map(|watch| &watch.counters);
        let sum = |other| counters.map_or(0, |counters| counters.sum(counters.other(other)));
        let tally = self.registry.tally();
        let now = self.clock.now();
        Snapshot {
            at: now,
            is_counting: counters.is_some(),
            lanes: LaneCounts::of(&self.policy(), counters),
            errors: sum(Other::Error),
            full: sum(Other::Full),
            violations: sum(Other::Violation),
            violations_last_hour: self.watch.as_ref().map_or(0, |watch| watch.violations.last_hour(now)),
            sustained_abuse: sum(Other::Abuse),
            stats: self.stats(),
            assigned: tally.assigned,
            overridden: tally.overridden,
            exempt: tally.exempt,
            unknown_actions: self.unknown_actions.total(),
            events_dropped: self.watch.as_ref().map_or(0, |watch| watch.events.dropped()),
            clock: self.clock.source(),
            clock_fallbacks: self.clock.fallbacks(),
        }
    }

    /// The agents that violated limits the most in the hour before `now`.
    pub(crate) fn top_offenders(&self, most: usize, now: Tick) -> Offenders {
        self.watch.as_ref().map(|watch| watch.violations.top(most, now)).unwrap_or_default()
    }

    /// The report for an operator, as JSON.
    pub(crate) fn report(&self) -> String {
        let now = self.clock.now();
        let busiest = AgentQuery::new().sort(AgentSort::Usage).per_page(report::BUSIEST);
        let report = Report {
            written: SystemTime::now(),
            snapshot: &self.snapshot(),
            offenders: &self.top_offenders(report::OFFENDERS, now),
            busiest: &self.list(&busiest, || now),
        };
        report.document()
    }

    /// What is wrong with the slab and the assignments, as sentences.
    #[cfg(feature = "shared")]
    pub(crate) fn audit(&self) -> Vec<String> {
        let (epoch, table) = (self.limits.epoch(), self.registry.shared());
        let is_row = |row: Row| match row.is_of_plan() {
            true => row.in_epoch(epoch) == row,
            false => row == Row::EXEMPT || table.is_none_or(|table| table.is_taken(row)),
        };
        let mut faults = self.slab.faults(is_row);
        faults.extend(table.into_iter().flat_map(|table| table.faults()));
        faults.extend(self.faults_of_holds());
        faults.extend(self.reservations.faults());
        faults.extend(self.roster().into_iter().flat_map(|roster| roster.faults()));
        faults.extend(self.fault_of_control());
        faults
    }

    /// Whether a living process has the lock of control calls for too long. It is the first word of its section. One
    /// that died with it is in nobody's way: the next control call takes it over.
    #[cfg(feature = "shared")]
    fn fault_of_control(&self) -> Option<String> {
        let joined = self.memory.joined()?;
        let words = self.memory.words::<AtomicU64>(Section::Control, 1).ok()?;
        let holder = || words[0].load(Ordering::Relaxed);
        let seen = holder();
        let (began, pid) = (Instant::now(), joined.pid(seen));
        // Ends with the call that is under way, or when it takes too long.
        while holder() == seen && seen != 0 {
            if joined.is_dead(seen) {
                return None;
            }
            if began.elapsed() > CONTROL_WITHIN {
                return Some(format!("process {pid} has the lock of control calls and does not go on"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Where the lanes' words and the table of holds differ.
    #[cfg(feature = "shared")]
    fn faults_of_holds(&self) -> Vec<String> {
        let Some(holds) = self.slab.holds() else { return Vec::new() };
        let (held, busy) = holds.held();
        let mut faults: Vec<_> = (busy > 0).then(|| format!("{busy} holds did not end")).into_iter().collect();
        let lane_of = |number: u64| LaneId::new(number as u32);
        for ((hash, lane), slots) in &held {
            let found = self.slab.find(AgentHash::from_bits(*hash));
            let counted = found.map_or(0, |found| lane::held::count(found.record.lane_now(lane_of(*lane))));
            if counted != *slots {
                faults.push(format!("{hash:#x} holds {slots} slots of lane {lane}, and its record counts {counted}"));
            }
        }
        let counted = self.slab.held(self.limits.kinds());
        let slots: u64 = held.values().sum();
        if counted != slots {
            faults.push(format!("records count {counted} held slots, and {slots} are known"));
        }
        faults
    }

    /// The oldest event that nobody has polled yet.
    pub(crate) fn poll_event(&self) -> Option<Event> {
        let watch = self.watch.as_ref()?;
        watch.clock_fell_back(self.clock.fallbacks(), self.clock.now());
        watch.events.poll()
    }
}

#[cfg(all(test, feature = "shared", target_os = "linux", not(loom)))]
mod tests {
    use super::*;
    use crate::observe::Observe;
    use crate::shared::Shared;
    use crate::{Limiter, Policy, Request};

    /// A seat that nobody ever had, as marks name it.
    const DEAD: u64 = 1 << 16 | 9;
    const DEAD_SHORT: u64 = 1 << 11 | 9;

    #[test]
    fn what_a_dead_process_left_is_put_right_before_it_is_taken_for_a_fault() {
        let policy = Policy::builder().lane("http", "10/min").build().unwrap();
        let builder = Limiter::builder(policy).agents(1_000).observe(Observe::new().roster(10));
        let limiter = builder.shared(Shared::memfd()).build().unwrap();
        let http = limiter.lane("http").unwrap();
        assert!(limiter.check("agent-7", http).unwrap().is_allowed());
        assert_eq!(limiter.audit(), [""; 0]);
        let set = |section, word: u64| {
            let words = limiter.engine.memory.words::<AtomicU64>(section, 1).unwrap();
            words[0].swap(word, Ordering::Relaxed)
        };
        set(Section::Slab, DEAD);
        assert_eq!(limiter.audit(), [""; 0]);
        assert_eq!(set(Section::Slab, 0), 0, "the audit has taken the lock over");
        for phase in [1, 3] {
            set(Section::Reservations, DEAD_SHORT << 42 | phase);
            assert_eq!(limiter.engine.audit(), ["a process died with slot 0 of the reservations"]);
            assert_eq!(limiter.audit(), [""; 0]);
        }
        set(Section::RosterUsed, 1);
        let sequence = set(Section::Roster, 3);
        assert_eq!(limiter.engine.audit(), ["a write of place 0 of the roster did not end"]);
        assert_eq!(limiter.audit(), [""; 0], "it was {sequence}");
        set(Section::Control, DEAD);
        assert_eq!(limiter.audit(), [""; 0]);
        limiter.unassign("nobody").unwrap();
        assert_eq!(limiter.audit(), [""; 0]);
        // A living holder that does not go on: this very process.
        set(Section::Control, limiter.engine.memory.joined().unwrap().me());
        let said = format!("process {} has the lock of control calls and does not go on", std::process::id());
        assert_eq!(limiter.audit(), [said]);
        assert!(limiter.reserve(Request::new("agent-7", http), Duration::from_secs(1)).is_ok());
    }
}
