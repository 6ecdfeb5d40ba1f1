//! All connections, by number, and how many of them each address has.
//!
//! When connections have to make room, those that have waited longest for their
//! client are ended, starting with the address that has the most: half a request
//! is no reason to stay, and an address that opens many takes no room from others.

use super::line::{Line, Phase};
use super::watch::TICKS_PER_SECOND;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use tollgate_tower::address::Group;

/// A connection that changed within this many ticks is not ended to make room:
/// its answer may be on the way.
pub(super) const FRESH_TICKS: u64 = TICKS_PER_SECOND;

/// The connections.
#[derive(Default)]
pub(super) struct Lines {
    all: HashMap<u64, Arc<Line>>,
    /// How many there are of each address, those aside that were asked to end.
    by_address: HashMap<Group, usize>,
}

impl Lines {
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn of(&self, address: Option<Group>) -> usize {
        address.and_then(|address| self.by_address.get(&address)).copied().unwrap_or_default()
    }

    pub(super) fn insert(&mut self, number: u64, line: Arc<Line>) {
        if let Some(address) = line.address() {
            *self.by_address.entry(address).or_default() += 1;
        }
        self.all.insert(number, line);
    }

    pub(super) fn remove(&mut self, number: u64) {
        if let Some(line) = self.all.remove(&number).filter(|line| !line.is_ended()) {
            uncount(&mut self.by_address, &line);
        }
    }

    /// Ends those of which this is true.
    pub(super) fn end_if(&mut self, ends: impl Fn(&Line) -> bool) {
        let Self { all, by_address } = self;
        all.values().filter(|line| ends(line)).for_each(|line| end(by_address, line));
    }

    /// Ends those that have waited longest for their client, starting with the
    /// address that has the most connections, and returns how many.
    pub(super) fn end_idlest(&mut self, now: u64, victims: usize, is_candidate: impl Fn(&Line) -> bool) -> usize {
        let Self { all, by_address } = self;
        let mut idle: Vec<_> = all
            .values()
            .map(|line| (line.state(), line))
            .filter(|((phase, since), _)| *phase != Phase::Served && now.saturating_sub(*since) >= FRESH_TICKS)
            .filter(|(_, line)| !line.is_ended() && is_candidate(line))
            .map(|((_, since), line)| {
                let many = line.address().and_then(|address| by_address.get(&address)).copied().unwrap_or(1);
                ((Reverse(many), since), line)
            })
            .collect();
        let victims = victims.min(idle.len());
        if victims > 0 {
            idle.select_nth_unstable_by_key(victims - 1, |(rank, _)| *rank);
        }
        idle[..victims].iter().for_each(|(_, line)| end(by_address, line));
        victims
    }

    /// Ends those that have had bytes in flight for longest, until this many bytes are freed.
    pub(super) fn end_holders(&mut self, now: u64, bytes: usize) {
        let Self { all, by_address } = self;
        let mut holders: Vec<_> = all
            .values()
            .map(|line| (line.held(), line))
            .filter(|((held, since), _)| *held > 0 && now.saturating_sub(*since) >= FRESH_TICKS)
            .collect();
        holders.sort_unstable_by_key(|((_, since), _)| *since);
        let mut freed = 0;
        for ((held, _), line) in holders {
            if freed >= bytes {
                break;
            }
            end(by_address, line);
            freed += held;
        }
    }

    /// How many addresses have connections.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> usize {
        self.by_address.len()
    }
}

fn end(by_address: &mut HashMap<Group, usize>, line: &Line) {
    if line.end() {
        uncount(by_address, line);
    }
}

fn uncount(by_address: &mut HashMap<Group, usize>, line: &Line) {
    let Some(address) = line.address() else { return };
    if let Some(count) = by_address.get_mut(&address) {
        *count -= 1;
        if *count == 0 {
            by_address.remove(&address);
        }
    }
}
