//! All connections, by number, and how many of them each address has.
//!
//! When connections have to make room, those that have waited longest for their
//! client are ended, starting with the address that has the most. A half-sent
//! request is no protection, and an address that opens many takes no room from
//! others.

use super::progress::{Phase, Progress};
use super::watch::TICKS_PER_SECOND;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use tollgate_tower::address::Group;

/// A connection whose phase began within this many ticks is not ended to make room:
/// its response may be on the way.
pub(super) const FRESH_TICKS: u64 = TICKS_PER_SECOND;

/// The connections.
#[derive(Default)]
pub(super) struct Connections {
    all: HashMap<u64, Arc<Progress>>,
    /// How many each address has, without those that were asked to end.
    by_address: HashMap<Group, usize>,
}

impl Connections {
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn of(&self, address: Option<Group>) -> usize {
        address.and_then(|address| self.by_address.get(&address)).copied().unwrap_or_default()
    }

    pub(super) fn insert(&mut self, number: u64, progress: Arc<Progress>) {
        if let Some(address) = progress.address() {
            *self.by_address.entry(address).or_default() += 1;
        }
        self.all.insert(number, progress);
    }

    pub(super) fn remove(&mut self, number: u64) {
        if let Some(progress) = self.all.remove(&number).filter(|progress| !progress.is_ended()) {
            uncount(&mut self.by_address, &progress);
        }
    }

    /// Ends those for which `ends` returns true.
    pub(super) fn end_if(&mut self, ends: impl Fn(&Progress) -> bool) {
        let Self { all, by_address } = self;
        all.values().filter(|progress| ends(progress)).for_each(|progress| end(by_address, progress));
    }

    /// Ends those that have waited longest for their client, starting with the
    /// address that has the most connections, and returns how many.
    pub(super) fn end_idlest(&mut self, now: u64, victims: usize, is_candidate: impl Fn(&Progress) -> bool) -> usize {
        let Self { all, by_address } = self;
        let mut idle: Vec<_> = all
            .values()
            .map(|progress| (progress.phase(), progress))
            .filter(|((phase, since), _)| *phase != Phase::Serving && now.saturating_sub(*since) >= FRESH_TICKS)
            .filter(|(_, progress)| !progress.is_ended() && is_candidate(progress))
            .map(|((_, since), progress)| {
                let many = progress.address().and_then(|address| by_address.get(&address)).copied().unwrap_or(1);
                ((Reverse(many), since), progress)
            })
            .collect();
        let victims = victims.min(idle.len());
        if victims > 0 {
            idle.select_nth_unstable_by_key(victims - 1, |(rank, _)| *rank);
        }
        idle[..victims].iter().for_each(|(_, progress)| end(by_address, progress));
        victims
    }

    /// Ends those that have had bytes in flight for longest, until this many bytes are freed.
    pub(super) fn end_oldest_in_flight(&mut self, now: u64, bytes: usize) {
        let Self { all, by_address } = self;
        let mut oldest: Vec<_> = all
            .values()
            .map(|progress| (progress.in_flight(), progress))
            .filter(|((bytes, since), _)| *bytes > 0 && now.saturating_sub(*since) >= FRESH_TICKS)
            .collect();
        oldest.sort_unstable_by_key(|((_, since), _)| *since);
        let mut freed = 0;
        for ((in_flight, _), progress) in oldest {
            if freed >= bytes {
                break;
            }
            end(by_address, progress);
            freed += in_flight;
        }
    }

    /// How many addresses have connections.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> usize {
        self.by_address.len()
    }
}

fn end(by_address: &mut HashMap<Group, usize>, progress: &Progress) {
    if progress.end() {
        uncount(by_address, progress);
    }
}

fn uncount(by_address: &mut HashMap<Group, usize>, progress: &Progress) {
    let Some(address) = progress.address() else { return };
    if let Some(count) = by_address.get_mut(&address) {
        *count -= 1;
        if *count == 0 {
            by_address.remove(&address);
        }
    }
}
