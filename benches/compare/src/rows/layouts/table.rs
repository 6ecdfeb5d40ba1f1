//! The table that the sketches search: records in groups of eight, a
//! fingerprint per record, and a hash like ours. Nothing is measured here.

use crate::ids::{Id, Random};
use crate::misses::advise_huge;
use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Records whose fingerprints share a word.
pub(super) const GROUP: usize = 8;
/// Records in a neighbourhood.
const WINDOW: usize = 12 * GROUP;
const LANE: usize = 3;

/// A tag, six lanes and conduct.
#[derive(Default)]
#[repr(align(64))]
struct Record([AtomicU64; 8]);

pub(super) struct Table {
    /// Groups that are homes; the rest of the last neighbourhood follows them.
    homes: usize,
    records: Vec<Record>,
    /// A word per group, a byte per record.
    fingerprints: Vec<AtomicU64>,
    key: [u128; 3],
}

impl Table {
    /// Contains these agents, as far as they find room, at load 3/4. In groups,
    /// an agent takes its favourite slot of a group, else the first vacant one,
    /// as in ours; otherwise the first vacant record from its favourite on.
    pub(super) fn new(ids: &[Id], in_groups: bool) -> Self {
        let homes = (ids.len() * 4).div_ceil(3 * GROUP);
        let count = homes * GROUP + WINDOW;
        let mut records: Vec<Record> = Vec::with_capacity(count);
        advise_huge(records.as_mut_ptr().cast(), count * size_of::<Record>());
        records.extend((0..count).map(|_| Record::default()));
        let fingerprints = (0..count / GROUP).map(|_| AtomicU64::new(0)).collect();
        let mut random = Random::new(7);
        let key = [(); 3].map(|()| u128::from(random.word()) << 64 | u128::from(random.word()));
        let table = Self { homes, records, fingerprints, key };
        for hash in ids.iter().map(|id| table.hash(id)) {
            let is_vacant = |position: &usize| table.tag(*position) == 0;
            let slots = |group| [slot(hash)].into_iter().chain(0..GROUP).map(move |slot| group * GROUP + slot);
            let vacant = if in_groups {
                table.neighbourhood(hash).flat_map(slots).find(is_vacant)
            } else {
                table.window(hash).find(is_vacant)
            };
            if let Some(position) = vacant {
                table.records[position].0[0].store(hash, Ordering::Relaxed);
                let shown = (hash & 0xff) << (position % GROUP * 8);
                table.fingerprints[position / GROUP].fetch_or(shown, Ordering::Relaxed);
            }
        }
        table
    }

    /// Also the tag. Its low byte is the fingerprint and never 0.
    #[inline(always)]
    pub(super) fn hash(&self, id: &Id) -> u64 {
        let [start, first, second] = self.key;
        let id = u128::from_le_bytes(*id);
        let sum = first.wrapping_mul(id & u128::from(u64::MAX)).wrapping_add(second.wrapping_mul(id >> 64));
        let sum = (start.wrapping_add(sum) >> 64) as u64;
        let mixed = (sum ^ sum >> 32).wrapping_mul(0x9fb2_1c65_1e98_df25);
        let hash = mixed ^ mixed >> 32;
        hash + u64::from(hash as u8 == 0)
    }

    #[inline(always)]
    pub(super) fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.homes as u128) >> 64) as usize
    }

    /// The home group and those after it.
    #[inline(always)]
    fn neighbourhood(&self, hash: u64) -> Range<usize> {
        self.home(hash)..self.home(hash) + WINDOW / GROUP
    }

    /// The favourite record and those after it.
    #[inline(always)]
    fn window(&self, hash: u64) -> Range<usize> {
        self.favourite(hash)..self.favourite(hash) + WINDOW
    }

    #[inline(always)]
    pub(super) fn favourite(&self, hash: u64) -> usize {
        self.home(hash) * GROUP + slot(hash)
    }

    #[inline(always)]
    pub(super) fn tag(&self, position: usize) -> u64 {
        self.records[position].0[0].load(Ordering::Acquire)
    }

    #[inline(always)]
    pub(super) fn lane(&self, position: usize) -> &AtomicU64 {
        &self.records[position].0[LANE]
    }

    #[inline(always)]
    pub(super) fn shows_favourite(&self, hash: u64) -> bool {
        let shown = self.fingerprints[self.home(hash)].load(Ordering::Relaxed);
        (shown >> (slot(hash) * 8)) as u8 == hash as u8
    }

    /// The high bit of each byte in the group that shows the fingerprint, with occasional false positives.
    #[inline(always)]
    fn matches(&self, group: usize, hash: u64) -> u64 {
        const LOW_BITS: u64 = u64::from_ne_bytes([0x01; GROUP]);
        let different = self.fingerprints[group].load(Ordering::Relaxed) ^ (LOW_BITS * (hash & 0xff));
        different.wrapping_sub(LOW_BITS) & !different & (LOW_BITS << 7)
    }

    /// The first record of the home group that shows the fingerprint.
    #[inline(always)]
    pub(super) fn first_at_home(&self, hash: u64) -> Option<usize> {
        let matches = self.matches(self.home(hash), hash);
        (matches != 0).then(|| self.home(hash) * GROUP + matches.trailing_zeros() as usize / 8)
    }

    /// The first record of the home group and the next that shows the fingerprint.
    #[inline(always)]
    pub(super) fn first_of_pair(&self, hash: u64) -> Option<usize> {
        let home = self.home(hash);
        let [first, second] = [home, home + 1].map(|group| self.fingerprints[group].load(Ordering::Relaxed) as i64);
        // SAFETY: every x86-64 processor has SSE2.
        let matches = unsafe { same_bytes(first, second, hash as i8) };
        (matches != 0).then(|| home * GROUP + matches.trailing_zeros() as usize)
    }

    /// The record at `position` if it is the agent's, else what a full search finds.
    #[inline(always)]
    pub(super) fn confirm(&self, hash: u64, position: Option<usize>) -> Option<usize> {
        position.filter(|position| self.tag(*position) == hash).or_else(|| self.search(hash))
    }

    /// Through the whole neighbourhood, by fingerprints.
    #[inline(never)]
    pub(super) fn search(&self, hash: u64) -> Option<usize> {
        for group in self.neighbourhood(hash) {
            let mut matches = self.matches(group, hash);
            // Ends: each turn clears one bit.
            while matches != 0 {
                let position = group * GROUP + matches.trailing_zeros() as usize / 8;
                if self.tag(position) == hash {
                    return Some(position);
                }
                matches &= matches - 1;
            }
        }
        None
    }

    /// From the favourite record on, one tag after the other.
    #[inline(always)]
    pub(super) fn probe(&self, hash: u64) -> Option<usize> {
        self.window(hash).find(|position| self.tag(*position) == hash)
    }
}

/// A bit for each byte of the two words that is `wanted`.
#[inline]
#[target_feature(enable = "sse2")]
fn same_bytes(first: i64, second: i64, wanted: i8) -> i32 {
    _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_set_epi64x(second, first), _mm_set1_epi8(wanted)))
}

/// The favourite slot in a group. In ours it comes with the home; either way it is as good as random.
#[inline(always)]
fn slot(hash: u64) -> usize {
    (hash >> 8) as usize % GROUP
}
