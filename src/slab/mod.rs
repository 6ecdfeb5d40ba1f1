//! The slab: where agents' records live.
//!
//! One mapping of words, reserved once and never resized:
//!
//! ```text
//! ┌─────────┬──────────────┬──────────────────────────────┐
//! │ regions │ fingerprints │ records                      │
//! └─────────┴──────────────┴──────────────────────────────┘
//! ```
//!
//! Records are in groups of eight. An agent's hash names its home group. Its
//! record is somewhere in the *neighbourhood*, the [`Geometry::window`] groups
//! from there on, if possible in a favourite slot of the home group. A lookup
//! compares the sixteen fingerprints of two groups at once and reads the tag of
//! the first that matches, so it touches one or two cache lines of fingerprints
//! and, nearly always, exactly one record. (If that is the favourite slot, its
//! line is known before the fingerprints are read, so the two misses overlap.)
//!
//! Six lanes take 64 bytes for the record and 1 for the fingerprint; at the
//! assumed load of 3/4 that is 87 bytes per agent.
//!
//! - `geometry.rs`: how large everything is, and where
//! - `hash.rs`: from an id to its home and tag
//! - `fingerprints.rs`: a byte per record, to search by
//! - `region.rs`: the locks under which tenants change
//! - `tenancy.rs`: claim, evict, forget, sweep; `newcomer.rs`: what a claim is given
//! - `audit.rs` (feature `shared`): looks for records that contradict each other
//! - `holds.rs`: who holds slots of a shared slab
//! - `forgiven.rs`: charges that are forgiven while a call is under way

#[cfg(feature = "shared")]
mod audit;
pub(crate) mod fingerprints;
pub(crate) mod forgiven;
mod geometry;
pub(crate) mod hash;
pub(crate) mod holds;
#[cfg(all(test, loom))]
pub(crate) mod models;
mod newcomer;
mod region;
mod tenancy;

pub(crate) use geometry::{Geometry, REGION_RECORDS};
pub use hash::IdHash;
pub use newcomer::OnFull;
pub(crate) use newcomer::{Newcomer, Refusal, RowChange};
pub(crate) use tenancy::Claim;

use crate::clock::Tick;
use crate::machine::arena::{Arena, Home};
use crate::machine::processor::prefetch;
use crate::policy::Kind;
use crate::record::tag::TagWord;
use crate::record::{Confirm, Record};
use crate::shared::{Joined, Memory, Section};
use crate::sync::{AtomicU64, Counter, Fault, Ordering, broken};
use crossbeam_utils::CachePadded;
use fingerprints::{GROUP, Slots, slots_of_pair};
use hash::{AgentHash, HashKey};
use region::{REGION_WORDS, Region};

/// How often an exchange was lost, counted in a few places by thread, so that
/// the count itself does not become a contended word.
const RETRY_SHARDS: usize = 8;

/// A record's number.
type Position = usize;

/// The key, stored in the slab for every lookup. In models it is boxed: loom's
/// stacks are too small to pass a slab with the key inside.
#[cfg(not(loom))]
type KeptKey = HashKey;
#[cfg(loom)]
type KeptKey = Box<HashKey>;

/// Records, their fingerprints and the locks under which tenants change.
pub(crate) struct Slab {
    /// Everything; a block is a record.
    memory: Arena,
    /// Whether other processes have it too.
    sharing: Memory,
    key: KeptKey,
    geometry: Geometry,
    /// The kind of each lane: what its words mean.
    kinds: Box<[Kind]>,
    /// Derived from the geometry, stored for every lookup.
    fingerprints_start: usize,
    retries: [CachePadded<Counter>; RETRY_SHARDS],
    pub(crate) forgiven: forgiven::Forgiven,
    /// Who holds slots, if processes share the slab and a lane has any.
    holds: Option<holds::Holds>,
}

/// A record that an agent occupies, with the open tag that shows it.
#[derive(Clone, Copy)]
pub(crate) struct FoundRecord<'a> {
    pub(crate) record: Record<'a>,
    pub(crate) tag: TagWord,
    pub(crate) position: Position,
}

/// How full a slab is, and what has happened to its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occupancy {
    pub(crate) occupied: u64,
    pub(crate) claims: u64,
    pub(crate) idle_evictions: u64,
    pub(crate) lossy_evictions: u64,
    pub(crate) retries: u64,
}

impl Slab {
    /// Reserves a slab in private memory. The error is the number of bytes that the system refused.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn new(geometry: Geometry, key: HashKey, kinds: Box<[Kind]>) -> Result<Self, u64> {
        Self::within(Memory::Private, geometry, key, kinds, 0)
    }

    /// A slab in this memory. If there is none, the error is how many bytes were needed.
    pub(crate) fn within(
        sharing: Memory,
        geometry: Geometry,
        key: HashKey,
        kinds: Box<[Kind]>,
        holds: usize,
    ) -> Result<Self, u64> {
        debug_assert!(kinds.len() == geometry.lanes, "a kind for each lane");
        let memory = Arena::over(
            sharing.words(Section::Slab, geometry.words())?,
            geometry.fingerprints_start(),
            geometry.groups,
            geometry.records_start(),
            geometry.records,
            geometry.record_words().ilog2(),
        );
        let memory = memory.ok_or((geometry.words() as u64).saturating_mul(8))?;
        memory.words().ask_for_huge_pages();
        #[allow(clippy::useless_conversion, reason = "models box the key")]
        let key = KeptKey::from(key);
        Ok(Self {
            memory,
            key,
            geometry,
            kinds,
            fingerprints_start: geometry.fingerprints_start(),
            retries: Default::default(),
            forgiven: forgiven::Forgiven::new(&sharing)?,
            holds: holds::Holds::within(&sharing, holds)?,
            sharing,
        })
    }

    /// Who holds slots, if processes share the slab and a lane has any.
    pub(crate) fn holds(&self) -> Option<&holds::Holds> {
        self.holds.as_ref()
    }

    fn confirm(&self) -> Option<&dyn Confirm> {
        self.holds.as_ref().map(|holds| -> &dyn Confirm { holds })
    }

    /// Where its words are.
    #[cfg(test)]
    pub(crate) fn sharing(&self) -> &Memory {
        &self.sharing
    }

    /// The file that processes share.
    pub(crate) fn joined(&self) -> Option<&Joined> {
        self.sharing.joined().map(|joined| &**joined)
    }

    /// Touches all pages now. If the system refuses, the error is how many bytes were needed.
    pub(crate) fn prefault(&self) -> Result<(), u64> {
        if self.memory.words().prefault() { Ok(()) } else { Err(self.reserved_bytes()) }
    }

    /// Bytes of address space that the slab has reserved.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        size_of_val(&**self.memory.words()) as u64
    }

    pub(crate) fn records(&self) -> u64 {
        self.geometry.records as u64
    }

    pub(crate) fn hash(&self, id: &[u8]) -> AgentHash {
        self.key.hash(id)
    }

    #[inline]
    pub(crate) fn hash_short(&self, id: &[u8]) -> Option<AgentHash> {
        self.key.hash_short(id)
    }

    #[inline]
    fn group_word(&self, group: usize) -> &AtomicU64 {
        &self.memory.words()[self.fingerprints_start + group]
    }

    /// The words of a group and of the next.
    #[inline]
    fn group_pair(&self, group: usize) -> &[AtomicU64; 2] {
        let words = &self.memory.words()[self.fingerprints_start + group..];
        words.first_chunk().expect("records follow the fingerprints")
    }

    #[inline]
    fn record(&self, position: Position) -> Record<'_> {
        Record::new(self.memory.block(position), self.geometry.lanes)
    }

    fn region(&self, region: usize) -> Region<'_> {
        let start = region * REGION_WORDS;
        Region::new(&self.memory.words()[start..start + REGION_WORDS])
    }

    fn region_of(&self, position: Position) -> usize {
        position / REGION_RECORDS
    }

    /// The earliest time of the agent's lanes if it claimed a record now: no
    /// idle record of its neighbourhood was evicted later. A hint, without the
    /// locks.
    pub(crate) fn floor(&self, hash: AgentHash) -> Tick {
        let groups = self.neighbourhood(hash);
        let [first, last] = [groups.start, groups.end - 1].map(|group| self.region_of(group * GROUP));
        self.region(first).evicted_at().max(self.region(last).evicted_at())
    }

    /// The groups in which the agent may live.
    #[inline]
    fn neighbourhood(&self, hash: AgentHash) -> std::ops::Range<usize> {
        let home = self.memory.home(hash.bits()).number();
        home..home + self.geometry.window
    }

    /// The slots of the agent's home group and the next that show its fingerprint.
    #[inline]
    fn likely_slots(&self, hash: AgentHash) -> (Home<'_>, Slots) {
        let home = self.memory.home(hash.bits());
        (home, slots_of_pair(home.pair(), hash))
    }

    /// The agent's record, if it is the first in its home group and the next
    /// that shows the agent's fingerprint, as it nearly always is. Its tag
    /// decides.
    ///
    /// Choosing among the sixteen takes no branch: with many agents none could be predicted.
    #[inline]
    pub(crate) fn likely_record(&self, hash: AgentHash) -> Option<Record<'_>> {
        let (home, slots) = self.likely_slots(hash);
        Some(Record::new(home.block(slots.first()?), self.geometry.lanes))
    }

    /// The records that show the agent's fingerprint, in its neighbourhood.
    #[inline]
    fn likely(&self, hash: AgentHash) -> impl Iterator<Item = Position> {
        self.neighbourhood(hash)
            .step_by(2)
            .flat_map(move |group| slots_of_pair(self.group_pair(group), hash).map(move |slot| group * GROUP + slot))
    }

    /// Prefetches the record in the agent's favourite slot: most agents are in
    /// theirs, and its address is known before any fingerprint is.
    #[inline]
    pub(crate) fn prefetch_favourite(&self, hash: AgentHash) {
        prefetch(self.memory.home(hash.bits()).favourite().word(0));
    }

    /// Prefetches the fingerprints of the agent's home group.
    #[inline]
    pub(crate) fn prefetch_group(&self, hash: AgentHash) {
        prefetch(&self.memory.home(hash.bits()).pair()[0]);
    }

    /// The agent's record, reopened if another thread was about to evict it.
    ///
    /// Without the lock of the region, `None` means that the agent had no
    /// record at some moment during the call.
    #[inline]
    pub(crate) fn find(&self, hash: AgentHash) -> Option<FoundRecord<'_>> {
        self.likely(hash).find_map(|position| self.found_at(hash, position))
    }

    /// The record at `position` if it is the agent's.
    ///
    /// The loop ends: a failed reopening means that the record was published to
    /// another agent, or opened by another caller of the same agent.
    #[inline(always)]
    fn found_at(&self, hash: AgentHash, position: Position) -> Option<FoundRecord<'_>> {
        let record = self.record(position);
        loop {
            let tag = record.tag();
            if !tag.belongs_to(hash.tag()) {
                return None;
            }
            if !tag.is_closed() {
                return Some(FoundRecord { record, tag, position });
            }
            if broken(Fault::StayClosed) {
                return None;
            }
            // The tenant is back: see `record`.
            if let Some(tag) = record.reopen(tag) {
                return Some(FoundRecord { record, tag, position });
            }
        }
    }

    /// Whether the record at `position` is the agent's. A hint.
    pub(crate) fn is_occupied_by(&self, position: Position, hash: AgentHash) -> bool {
        position < self.geometry.records && self.record(position).tag().belongs_to(hash.tag())
    }

    /// Every occupied record. Without a lock: one that changes tenants
    /// meanwhile is returned with its old tenant, its new one, or not at all.
    #[cfg(any(feature = "persist", feature = "cluster"))]
    pub(crate) fn occupied(&self) -> impl Iterator<Item = FoundRecord<'_>> {
        (0..self.geometry.records).filter_map(|position| {
            // The fingerprint first: records that never had a tenant are not touched.
            let shown = fingerprints::Group::load(self.group_word(position / GROUP));
            if shown.shows(position % GROUP, fingerprints::Fingerprint::VACANT) {
                return None;
            }
            let record = self.record(position);
            let tag = record.tag();
            tag.tenant().map(|_| FoundRecord { record, tag, position })
        })
    }

    /// The rows of limits that records name, those of plans aside.
    pub(crate) fn rows(&self) -> std::collections::BTreeSet<u32> {
        let tags = (0..self.geometry.records).filter_map(|position| {
            let shown = fingerprints::Group::load(self.group_word(position / GROUP));
            let is_vacant = shown.shows(position % GROUP, fingerprints::Fingerprint::VACANT);
            (!is_vacant).then(|| self.record(position).tag())
        });
        tags.map(|tag| tag.row()).filter(|row| !row.is_of_plan()).map(|row| row.number()).collect()
    }

    /// Counts an exchange that another thread won.
    #[cold]
    #[inline(never)]
    pub(crate) fn count_retry(&self) {
        let here = 0_u8;
        // Threads have separate stacks, some megabytes apart, so the page of a
        // stack address, once scattered, distinguishes them.
        let page = std::ptr::from_ref(&here).addr() as u64 >> 12;
        let scattered = page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.retries[scattered as usize % RETRY_SHARDS].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn occupancy(&self) -> Occupancy {
        let retries = self.retries.iter().map(|shard| shard.load(Ordering::Relaxed)).sum();
        let none = Occupancy { occupied: 0, claims: 0, idle_evictions: 0, lossy_evictions: 0, retries };
        (0..self.geometry.regions()).map(|region| self.region(region).counts()).fold(none, |sum, counts| Occupancy {
            occupied: sum.occupied.wrapping_add(counts.occupied),
            claims: sum.claims.wrapping_add(counts.claims),
            idle_evictions: sum.idle_evictions.wrapping_add(counts.idle_evictions),
            lossy_evictions: sum.lossy_evictions.wrapping_add(counts.lossy_evictions),
            retries,
        })
    }

    /// As if a process had died with the lock of a region.
    #[cfg(all(test, loom))]
    pub(crate) fn leave_behind(&self, region: usize, holder: u64) {
        self.region(region).die(holder);
    }

    /// The agent's favourite slot.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn favourite(&self, hash: AgentHash) -> Position {
        self.neighbourhood(hash).start * GROUP + self.memory.home(hash.bits()).favourite_number()
    }

    /// Every word.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn snapshot(&self) -> Vec<u64> {
        self.memory.words().iter().map(|word| word.load(Ordering::Relaxed)).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::hash::fixed_key;
    use super::*;

    fn buckets(geometry: Geometry, key: HashKey) -> Slab {
        Slab::new(geometry, key, vec![Kind::Bucket; geometry.lanes].into()).unwrap()
    }

    #[test]
    fn three_to_six_lanes_are_one_cache_line() {
        let words = |lanes| Geometry::for_agents(1_000, lanes).record_words();
        assert_eq!(
            [1, 2, 3, 6, 7, 14, 15, 30, 31, 62, 63, 126, 127, 254].map(words),
            [4, 4, 8, 8, 16, 16, 32, 32, 64, 64, 128, 128, 256, 256]
        );
        assert_eq!(Geometry::for_agents(1_000, 6).records_start() * 8 % 64, 0);
    }

    #[test]
    fn sizes_are_not_rounded_up_to_a_power_of_two() {
        let records = |agents| Geometry::for_agents(agents, 6).records;
        assert_eq!(records(1_000_000) - records(999_000), 1_336);
        assert_eq!(records(1), geometry::WINDOW * GROUP);
    }

    #[test]
    fn every_home_is_within_the_slab() {
        let geometry = Geometry::for_agents(1, 1);
        let slab = buckets(geometry, fixed_key(2));
        for id in 0..10_000_u32 {
            let groups = slab.neighbourhood(slab.hash(&id.to_le_bytes()));
            assert!(groups.end <= geometry.all_groups());
        }
    }
}
