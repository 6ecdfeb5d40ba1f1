//! Violations by agent, approximately, for the last hour.
//!
//! *Space-Saving* (Metwally, Agrawal, El Abbadi 2005): k counters with ids. A
//! violation by an agent that has a counter adds one to it. One by any other
//! agent takes over the least counter, c, which becomes c + 1 with an *error*
//! of c: that many may belong to earlier owners. After N violations the least
//! counter is at most N / k, so
//!
//! - a count is never too low, and too high by at most its error;
//! - an error is at most N / k;
//! - an agent without a counter has at most N / k violations.
//!
//! The last hour is [`PANES`] such summaries of ten minutes each, which are
//! added up on request: an agent that has no counter in one of them gets its
//! least counter as count and error. The three statements hold for the sum,
//! with N all violations of the hour.

use super::Offender;
use crate::bounds::{ID_BYTES_MAX, OFFENDERS_KEPT};
use crate::clock::{Tick, nanos_saturating};
use std::collections::BTreeMap;
use std::time::Duration;

/// Summaries in an hour.
const PANES: usize = 6;
/// The time one of them covers.
const PANE: Duration = Duration::from_secs(600);

/// The summaries of the hour, by their number modulo [`PANES`].
pub(super) struct Panes([Summary; PANES]);

impl Panes {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Summary::new()))
    }

    pub(super) fn add(&mut self, agent: &[u8], now: Tick) {
        let number = pane(now);
        let summary = &mut self.0[(number % PANES as u64) as usize];
        // An older `now` counts in the pane that has replaced its own.
        if summary.number < number {
            summary.clear(number);
        }
        summary.add(agent);
    }

    /// Every agent with a counter, and how far a count may be too high.
    pub(super) fn sum(&self, now: Tick) -> (Vec<Offender>, u64) {
        let number = pane(now);
        let recent = || self.0.iter().filter(|summary| summary.number + PANES as u64 > number);
        let mut sums: BTreeMap<&[u8], (u64, u64)> = BTreeMap::new();
        for agent in recent().flat_map(Summary::counters).map(Counted::id) {
            if !sums.contains_key(agent) {
                let counts = recent().map(|summary| summary.count_of(agent));
                sums.insert(agent, counts.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)));
            }
        }
        let offender = |(agent, (violations, error)): (&[u8], _)| Offender { agent: agent.to_vec(), violations, error };
        (sums.into_iter().map(offender).collect(), recent().map(Summary::least).sum())
    }
}

fn pane(now: Tick) -> u64 {
    now.as_nanos() / nanos_saturating(PANE)
}

/// A Space-Saving summary.
struct Summary {
    number: u64,
    /// A key per counter, compared before the ids.
    keys: [u64; OFFENDERS_KEPT],
    /// Reserved once, and never more than [`OFFENDERS_KEPT`].
    counters: Vec<Counted>,
}

struct Counted {
    count: u64,
    error: u64,
    length: u16,
    id: [u8; ID_BYTES_MAX],
}

impl Counted {
    fn new(id: &[u8], count: u64, error: u64) -> Self {
        let mut counted = Self { count, error, length: id.len() as u16, id: [0; ID_BYTES_MAX] };
        counted.id[..id.len()].copy_from_slice(id);
        counted
    }

    fn id(&self) -> &[u8] {
        &self.id[..self.length as usize]
    }
}

/// Differs for most pairs of ids.
pub(super) fn key(id: &[u8]) -> u64 {
    let read = |bytes: &[u8]| bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    let (first, last) = (&id[..id.len().min(8)], &id[id.len().saturating_sub(8)..]);
    read(first) ^ read(last).rotate_left(29) ^ id.len() as u64
}

impl Summary {
    fn new() -> Self {
        Self { number: 0, keys: [0; OFFENDERS_KEPT], counters: Vec::with_capacity(OFFENDERS_KEPT) }
    }

    fn clear(&mut self, number: u64) {
        self.number = number;
        self.counters.clear();
    }

    fn counters(&self) -> impl Iterator<Item = &Counted> {
        self.counters.iter()
    }

    fn find(&self, id: &[u8]) -> Option<usize> {
        let key = key(id);
        let keys = self.keys[..self.counters.len()].iter().enumerate();
        keys.filter(|(_, known)| **known == key).map(|(index, _)| index).find(|index| self.counters[*index].id() == id)
    }

    /// Counts a violation. `id` has at most [`ID_BYTES_MAX`] bytes.
    fn add(&mut self, id: &[u8]) {
        if let Some(index) = self.find(id) {
            self.counters[index].count += 1;
        } else if self.counters.len() < OFFENDERS_KEPT {
            self.keys[self.counters.len()] = key(id);
            self.counters.push(Counted::new(id, 1, 0));
        } else if let Some((index, least)) = self.counters.iter().enumerate().min_by_key(|(_, counted)| counted.count) {
            let error = least.count;
            self.keys[index] = key(id);
            self.counters[index] = Counted::new(id, error + 1, error);
        }
    }

    /// The most violations that an agent without a counter can have.
    fn least(&self) -> u64 {
        let is_full = self.counters.len() == OFFENDERS_KEPT;
        self.counters().map(|counted| counted.count).min().filter(|_| is_full).unwrap_or(0)
    }

    /// An agent's count and error.
    fn count_of(&self, id: &[u8]) -> (u64, u64) {
        self.find(id).map_or((self.least(), self.least()), |index| {
            let Counted { count, error, .. } = self.counters[index];
            (count, error)
        })
    }
}
