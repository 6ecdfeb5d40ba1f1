//! Counts, offenders, events, and the report.

use super::Engine;
use crate::clock::Tick;
use crate::observe::counters::Other;
use crate::observe::report::{self, Report};
use crate::observe::{AgentQuery, AgentSort, Event, LaneCounts, Offenders, Snapshot};
#[cfg(feature = "shared")]
use crate::{lane, limits::Row, policy::LaneId, slab::hash::AgentHash};
use std::time::SystemTime;

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
        faults
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
