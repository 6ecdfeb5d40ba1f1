//! Changing tenants: claim, evict, forget, sweep.
//!
//! All of it is rare and runs under the lock of every region that the
//! neighbourhood touches, while charges run without a lock. So at most one
//! thread at a time closes a record, at most one claims an agent, and
//! fingerprints are exact under the lock. The proof is in [`record`](crate::record).
//!
//! # An agent is never claimed twice
//!
//! Only a claim puts an agent's tag into a record, always in its own
//! neighbourhood, and the claimer holds the locks of that whole neighbourhood
//! while it searches and while it publishes. A record that is being evicted
//! still shows its tenant's tag and fingerprint, so the search finds it. The
//! newcomer's first charge is made before the locks are released: no thread can
//! evict the newcomer in between, so two newcomers cannot evict each other for
//! ever.
//!
//! # Absent without a lock
//!
//! Refund, reset and peek search without a lock. If they do not find an agent
//! that had a record when they began, its record was taken from it meanwhile,
//! and at that moment the agent had none: the answer is right for that moment.
//!
//! # Stale instants
//!
//! A caller reads the clock, and may stall before it looks up its agent. If the
//! agent is evicted meanwhile, as idle at a later instant, then a fresh bucket
//! at the caller's earlier instant would count the time between twice. So every
//! region remembers the latest instant at which it evicted an idle record, its
//! *floor*, and a claim lifts all lanes of its record to that instant. An
//! agent's old and new record lie in regions that its claim has locked, so the
//! instant of its own eviction is always among those. The floor never lies in
//! the clock's future, whatever `now` a caller passes.
//!
//! *Claim*: whatever the instants, an agent that lost an idle record passes no
//! more often than one that kept it. A lane that was evicted as idle at `e` was
//! full from `e` on, and the floor is not before that. So a bucket or a permit
//! is lifted to where it was, or beyond: its word never goes back, and every
//! charge is the step of its own instant, as if there had been no eviction.
//! Windows and budgets have a number where buckets have an instant. A lifted
//! one records that the earlier windows are unknown, and denies an older
//! instant until its own window begins. Held slots have no time.
//!
//! So a claim at an instant before the floor is charged at its own instant, on
//! lanes that are at the floor, and most likely denied, with the wait until the
//! floor. If the call itself read the clock, it reads it again instead:
//! under the lock the clock is not before the floor, and a call that stalled or
//! waited for the lock finds a full lane.
//!
//! # Assignments
//!
//! Which row of limits an agent has is decided outside the slab. Both a claim,
//! which asks for it, and a change of it hold the locks of the agent's
//! neighbourhood: a claim publishes the row that was decided before it, and a
//! later change finds the record. An agent that is being evicted still shows
//! its tag, so a change finds it too; the eviction is over by then, since it
//! held the lock.
//!
//! # Forks
//!
//! A child goes on with its own copy of the slab. A lock that another thread
//! held at the fork has no holder in the child; the first to take it over
//! puts right what was left half changed: tags decide, and
//! fingerprints and the number of occupied records follow from them.
//!
//! # Other processes
//!
//! In a [shared](crate::shared) slab a lock that its holder died with is taken
//! over, and the region put right in the same way, while other processes go on
//! to charge its records. That is sound because a tenant may open its closed tag
//! at any time: putting right is one more caller that opens it. Putting right can
//! be repeated, so it does not matter if it is cut off too. Until it is done, an
//! agent whose fingerprint is not shown is not found without the lock, and a claim
//! waits for the lock: so nobody gets a second record.

use super::fingerprints::{self, Fingerprint, GROUP, Group};
use super::hash::AgentHash;
use super::newcomer::{Newcomer, OnFull, Refusal, RowChange};
use super::region::RegionGuard;
use super::{FoundRecord, Position, REGION_RECORDS, Slab};
use crate::bounds::{CLAIM_WITHIN, CONTROL_WITHIN, LOSSY_TRIES_MAX};
use crate::clock::{At, Tick};
use crate::limits::Row;
use crate::record::tag::TagWord;
use crate::record::{Moment, Succession};
use crate::shared::Memory;
use crate::shared::lock::Busy;
use crate::sync::{Fault, broken};
use std::ops::Range;
use std::time::Duration;

/// The locks of a neighbourhood: its home's region, and the next if it
/// reaches there.
struct Locks<'a> {
    home: RegionGuard<'a>,
    next: Option<RegionGuard<'a>>,
    home_region: usize,
}

impl<'a> Locks<'a> {
    /// The guard of the record's region.
    fn of(&self, region: usize) -> &RegionGuard<'a> {
        match &self.next {
            Some(next) if region != self.home_region => next,
            _ => &self.home,
        }
    }

    /// No idle record here was evicted after this.
    fn evicted_at(&self) -> Tick {
        if broken(Fault::NoFloor) {
            return Tick::ZERO;
        }
        self.next.as_ref().map_or(Tick::ZERO, RegionGuard::evicted_at).max(self.home.evicted_at())
    }
}

/// A record that the agent now has, and the locks that keep it.
pub(crate) struct Claim<'a> {
    pub(crate) found: FoundRecord<'a>,
    /// If it is new, its lanes are no earlier than this.
    pub(crate) floor: Tick,
    /// Whether it was given the record in this call.
    pub(crate) is_new: bool,
    /// Whether another agent, in debt, lost the record for that.
    pub(crate) is_lossy: bool,
    _locks: Locks<'a>,
}

impl Slab {
    fn lock(&self, hash: AgentHash, within: Duration) -> Result<Locks<'_>, Busy> {
        let groups = self.neighbourhood(hash);
        let home_region = self.region_of(groups.start * GROUP);
        let last_region = self.region_of((groups.end - 1) * GROUP);
        // Ascending, like every other caller: see the module `region`.
        let mut left = within;
        let home = self.lock_region(home_region, &mut left)?;
        let next = (last_region != home_region).then(|| self.lock_region(last_region, &mut left)).transpose()?;
        Ok(Locks { home, next, home_region })
    }

    pub(super) fn lock_region(&self, region: usize, left: &mut Duration) -> Result<RegionGuard<'_>, Busy> {
        let guard = self.region(region).lock(&self.sharing, left)?;
        if guard.was_left_behind() && !broken(Fault::NotPutRight) {
            self.put_right(region, &guard);
        }
        Ok(guard)
    }

    /// Repairs a region whose lock was left behind, by a fork or by a dead process.
    #[cold]
    fn put_right(&self, region: usize, guard: &RegionGuard<'_>) {
        let mut occupied = 0;
        for position in self.positions_of(region) {
            let tag = self.record(position).put_right();
            self.show(position, Fingerprint::of_word(tag));
            occupied += u64::from(!tag.is_vacant());
        }
        guard.recount(occupied);
    }

    /// Finds the agent or gives it a record, which no other thread can take
    /// away until the result is dropped.
    pub(crate) fn claim(&self, newcomer: &Newcomer<'_>) -> Result<Claim<'_>, Refusal> {
        let stale_row = broken(Fault::StaleAssignment).then(|| (newcomer.row)());
        let locks = self.lock(newcomer.hash, CLAIM_WITHIN).map_err(|_| Refusal::Busy)?;
        if let Some(found) = self.find(newcomer.hash) {
            return Ok(Claim { found, floor: Tick::ZERO, is_new: false, is_lossy: false, _locks: locks });
        }
        let row = stale_row.unwrap_or_else(|| (newcomer.row)()).ok_or(Refusal::Unwanted)?;
        let tag = TagWord::new(newcomer.hash.tag(), row);
        let floor = locks.evicted_at();
        let lossless = self.take_vacant(&locks, newcomer, tag).or_else(|| self.take_idle(&locks, newcomer, tag));
        let is_lossy = lossless.is_none();
        let found = match lossless {
            Some(found) => found,
            None if newcomer.on_full == OnFull::Deny => return Err(Refusal::Full),
            None => self.take_least_in_debt(&locks, newcomer, tag)?,
        };
        Ok(Claim { found, floor, is_new: true, is_lossy, _locks: locks })
    }

    fn take_vacant(&self, locks: &Locks<'_>, newcomer: &Newcomer<'_>, tag: TagWord) -> Option<FoundRecord<'_>> {
        let favourite = self.memory.home(newcomer.hash.bits()).favourite_number();
        let position = self.neighbourhood(newcomer.hash).find_map(|group| {
            let shown = Group::load(self.group_word(group));
            let favourite = Some(favourite).filter(|slot| shown.shows(*slot, Fingerprint::VACANT));
            let mut slots = favourite.into_iter().chain(shown.vacant()).map(|slot| group * GROUP + slot);
            slots.find(|position| *position < self.geometry.records)
        })?;
        let found = self.hand_over(
            newcomer.moment(self, locks.evicted_at()),
            tag,
            position,
            TagWord::VACANT,
            Succession::Idle,
            &|| false,
        );
        if found.is_none() {
            debug_assert!(!self.is_trusted(), "under the lock a vacant fingerprint is a vacant record");
            self.show(position, Fingerprint::of_word(self.record(position).tag()));
            return None;
        }
        locks.of(self.region_of(position)).count_claim();
        found
    }

    fn take_idle(&self, locks: &Locks<'_>, newcomer: &Newcomer<'_>, tag: TagWord) -> Option<FoundRecord<'_>> {
        self.positions(newcomer.hash).find_map(|position| {
            let record = self.record(position);
            let seen = record.tag();
            // This eviction does not bind the newcomer: it is another agent's.
            let moment = newcomer.moment(self, locks.evicted_at());
            if seen.is_vacant() || !record.is_idle(moment) {
                return None;
            }
            let region = locks.of(self.region_of(position));
            region.raise_evicted_at(newcomer.now.min(newcomer.clock));
            let found = self.hand_over(moment, tag, position, seen, Succession::Idle, &|| false)?;
            region.count_idle_eviction(true);
            Some(found)
        })
    }

    /// Gives up the record with the least debt, if the newcomer's request then
    /// passes; never that of an agent that has an assignment, holds a slot, has
    /// used a budget or has a reservation. An attempt fails if the tenant
    /// returned at that moment; such a tenant is busy, so the next best is
    /// tried, each record once.
    fn take_least_in_debt(
        &self,
        locks: &Locks<'_>,
        newcomer: &Newcomer<'_>,
        tag: TagWord,
    ) -> Result<FoundRecord<'_>, Refusal> {
        let mut tried = [Position::MAX; LOSSY_TRIES_MAX];
        for round in 0..LOSSY_TRIES_MAX {
            let (position, seen) = self
                .positions(newcomer.hash)
                .filter(|position| !tried.contains(position))
                .map(|position| (position, self.record(position).tag()))
                .filter(|(_, seen)| seen.row().is_unassigned())
                .filter_map(|(position, seen)| Some(((newcomer.ranking)(seen, self.record(position))?, position, seen)))
                .min_by_key(|(rank, ..)| *rank)
                .map(|(_, position, seen)| (position, seen))
                .ok_or(Refusal::Full)?;
            if !(newcomer.passes)(tag.row(), self.record(position)) {
                return Err(Refusal::Denied);
            }
            let moment = newcomer.moment(self, locks.evicted_at());
            let stays = || (newcomer.reserved)(seen) && !broken(Fault::ReservedUnchecked);
            if let Some(found) = self.hand_over(moment, tag, position, seen, Succession::Inherit, &stays) {
                locks.of(self.region_of(position)).count_lossy_eviction();
                return Ok(found);
            }
            tried[round] = position;
        }
        Err(Refusal::Full)
    }

    /// Puts the newcomer in the place of `seen`.
    fn hand_over(
        &self,
        moment: Moment<'_>,
        tag: TagWord,
        position: Position,
        seen: TagWord,
        succession: Succession,
        stays: &dyn Fn() -> bool,
    ) -> Option<FoundRecord<'_>> {
        let record = self.record(position);
        record.replace_tenant(seen, tag, succession, moment, stays).then(|| {
            self.show(position, Fingerprint::of_word(tag));
            FoundRecord { record, tag, position }
        })
    }

    /// Changes the agent's row to the one that `decide` names under the locks.
    /// If that is Busy, nothing was decided.
    pub(crate) fn change_row(
        &self,
        hash: AgentHash,
        change: &RowChange<'_>,
        decide: impl FnOnce() -> Row,
    ) -> Result<(), Busy> {
        let locks = (!broken(Fault::NoChangeLock)).then(|| self.lock(hash, CONTROL_WITHIN)).transpose()?;
        let row = decide();
        if let Some(found) = self.find(hash) {
            change.apply(self, found, row);
        }
        drop(locks);
        Ok(())
    }

    /// Changes the row of every agent with a record in these regions for which
    /// `next` names another row, or the same one again. Takes one region's lock at a time.
    pub(crate) fn change_rows(
        &self,
        regions: Range<usize>,
        change: &RowChange<'_>,
        next: impl Fn(Row) -> Option<Row>,
    ) -> Result<(), Busy> {
        for region in regions {
            let _guard = self.lock_region(region, &mut { CONTROL_WITHIN })?;
            for position in self.positions_of(region) {
                let record = self.record(position);
                let seen = record.tag();
                let Some(row) = next(seen.row()).filter(|_| !seen.is_vacant()) else { continue };
                debug_assert!(
                    !seen.is_closed() || !self.is_trusted(),
                    "a thread that closes a tag holds this lock until it is open again"
                );
                change.apply(self, FoundRecord { record, tag: seen, position }, row);
            }
        }
        Ok(())
    }

    /// Vacates the agent's record, whatever its lanes contain. `false` if it has none.
    ///
    /// If the agent is checked meanwhile, it may keep its record, with lanes filled
    /// one by one. One that holds a slot keeps it too, with all other lanes filled.
    pub(crate) fn forget(&self, hash: AgentHash, at: At, clock: Tick) -> Result<bool, Busy> {
        let locks = self.lock(hash, CONTROL_WITHIN)?;
        let Some(found) = self.find(hash) else {
            return Ok(false);
        };
        let moment = Moment {
            kinds: &self.kinds,
            now: at.now,
            quiet_since: Tick::ZERO,
            clock,
            floor: locks.evicted_at(),
            offset: at.offset,
            confirm: self.confirm(),
        };
        let stays = || found.record.holds_slots(&self.kinds);
        if found.record.replace_tenant(found.tag, TagWord::VACANT, Succession::Forget, moment, &stays) {
            self.show(found.position, Fingerprint::VACANT);
            locks.of(self.region_of(found.position)).count_forgotten();
        }
        Ok(true)
    }

    /// Vacates every record whose lanes have been idle since `since` and whose
    /// conduct was quiet then, with no violation after `quiet_since`. Returns
    /// how many. `clock` is the clock's own time.
    ///
    /// Takes one region's lock at a time, and leaves out those that are busy.
    pub(crate) fn sweep(&self, since: At, quiet_since: Tick, clock: Tick) -> u64 {
        let At { now: since, offset } = since;
        let mut swept = 0;
        for region in 0..self.geometry.regions() {
            let Ok(guard) = self.lock_region(region, &mut { CLAIM_WITHIN }) else { continue };
            for position in self.positions_of(region) {
                let shown = Group::load(self.group_word(position / GROUP));
                if shown.shows(position % GROUP, Fingerprint::VACANT) {
                    continue;
                }
                let record = self.record(position);
                let seen = record.tag();
                let (kinds, floor, confirm) = (&*self.kinds, guard.evicted_at(), self.confirm());
                let moment = Moment { kinds, now: since, quiet_since, clock, floor, offset, confirm };
                if !record.is_idle(moment) {
                    continue;
                }
                guard.raise_evicted_at(since.min(clock));
                if record.replace_tenant(seen, TagWord::VACANT, Succession::Idle, moment, &|| false) {
                    self.show(position, Fingerprint::VACANT);
                    guard.count_idle_eviction(false);
                    swept += 1;
                }
            }
        }
        swept
    }

    /// The positions of all records in these regions.
    pub(crate) fn positions_in(&self, regions: &Range<usize>) -> Range<usize> {
        regions.start * REGION_RECORDS..(regions.end * REGION_RECORDS).min(self.geometry.records)
    }

    pub(crate) fn regions(&self) -> usize {
        self.geometry.regions()
    }

    /// Every record of a region.
    pub(super) fn positions_of(&self, region: usize) -> impl Iterator<Item = Position> + use<> {
        self.positions_in(&(region..region + 1))
    }

    /// Every record of the agent's neighbourhood.
    fn positions(&self, hash: AgentHash) -> impl Iterator<Item = Position> + use<> {
        let groups = self.neighbourhood(hash);
        groups.start * GROUP..(groups.end * GROUP).min(self.geometry.records)
    }

    /// Whether nothing but this protocol can have written its words. In a shared file any process may write any.
    fn is_trusted(&self) -> bool {
        cfg!(loom) || matches!(self.sharing, Memory::Private)
    }

    fn show(&self, position: Position, fingerprint: Fingerprint) {
        fingerprints::set(self.group_word(position / GROUP), position % GROUP, fingerprint);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
