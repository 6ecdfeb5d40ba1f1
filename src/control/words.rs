//! The lock of all processes that share a limiter, and what its holder is about to do.
//!
//! A holder writes down what it is about to do before the first change that
//! others can see, and clears that when all is done. If it dies in between, the
//! next control call finds it written down, and does it.

use super::ControlError;
use crate::error::Error;
use crate::machine::mapping::Words;
use crate::policy::LaneId;
use crate::shared::lock::{self, Taken};
use crate::shared::{Joined, Memory, Section};
use crate::slab::hash::AgentHash;
use crate::sync::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

const LOCK: usize = 0;
/// Whether what is staged in the registry counts.
const EDITS: usize = 1;
/// The epoch that is about to begin; 0 for none.
const POLICY: usize = 2;
/// The first of the regions that are being moved on to it.
const REGION: usize = 3;
/// What is about to be forgiven, whose, and of which lane.
const FORGIVES: usize = 4;
const AGENT: usize = 5;
const LANE: usize = 6;
/// Whether a holder has died, so that rows and entries have to be counted anew.
const LEFT: usize = 7;

/// How many words that takes.
pub(crate) const CONTROL_WORDS: usize = 8;

/// What is about to be forgiven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forgives {
    /// One lane.
    Lane(LaneId),
    /// All lanes.
    Lanes,
    /// The whole record.
    Record,
}

pub(super) struct ControlWords {
    words: Words<AtomicU64>,
    joined: Arc<Joined>,
}

/// Holds the lock of all processes until it is dropped.
pub(super) struct WordsGuard<'a>(&'a ControlWords);

impl Drop for WordsGuard<'_> {
    fn drop(&mut self) {
        lock::release(&self.0.words[LOCK]);
    }
}

impl ControlWords {
    /// `None` in private memory.
    pub(super) fn within(memory: &Memory) -> Result<Option<Self>, u64> {
        let Some(joined) = memory.joined() else { return Ok(None) };
        let words = memory.words(Section::Control, CONTROL_WORDS)?;
        Ok(Some(Self { words, joined: Arc::clone(joined) }))
    }

    /// Takes the lock; other processes may keep it for about this long.
    pub(super) fn lock(&self, mut within: Duration) -> Result<WordsGuard<'_>, ControlError> {
        match lock::take(&self.words[LOCK], &*self.joined, &mut within) {
            Ok(Taken::Free) => Ok(WordsGuard(self)),
            Ok(Taken::FromDead) => {
                self.joined.count_takeover();
                self.put(LEFT, 1);
                Ok(WordsGuard(self))
            }
            Err(busy) => {
                self.joined.count_busy();
                Err(self.busy(busy, false))
            }
        }
    }

    /// As if a process had died with the lock.
    #[cfg(all(test, loom))]
    pub(super) fn die(&self, holder: u64) {
        self.put(LOCK, holder);
    }

    /// The error of a lock that could not be had.
    pub(super) fn busy(&self, busy: lock::Busy, has_begun: bool) -> ControlError {
        match self.joined.seat_refusal() {
            Some(errno) => Error::NoSeat { errno }.into(),
            None => ControlError::Busy { pid: self.joined.pid(busy.holder), has_begun },
        }
    }

    /// Release: whoever reads what is about to be done sees all that it needs for it.
    fn put(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Release);
    }

    fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Acquire)
    }

    /// Whether nothing is left of a control call that did not end.
    pub(super) fn is_clear(&self) -> bool {
        [EDITS, POLICY, FORGIVES, LEFT].iter().all(|word| self.get(*word) == 0)
    }

    /// What is staged in the registry counts from now on, or has been put in force.
    pub(super) fn set_edits(&self, count: bool) {
        self.put(EDITS, u64::from(count));
    }

    pub(super) fn edits_count(&self) -> bool {
        self.get(EDITS) != 0
    }

    /// A policy is about to come into force with this epoch; 0 when it is.
    pub(super) fn set_policy(&self, epoch: u64) {
        self.put(REGION, 0);
        self.put(POLICY, epoch);
    }

    /// The epoch that is about to begin, and the first region that may not be moved on to it.
    pub(super) fn policy(&self) -> Option<(u64, usize)> {
        let epoch = self.get(POLICY);
        // A number of a region is compared, and no address is made of it.
        (epoch != 0).then(|| (epoch, self.get(REGION) as usize))
    }

    /// All regions before this one are moved on.
    pub(super) fn set_region(&self, region: usize) {
        self.put(REGION, region as u64);
    }

    pub(super) fn set_forgives(&self, what: Forgives, hash: AgentHash) {
        let (number, lane) = match what {
            Forgives::Lane(lane) => (1, lane.number()),
            Forgives::Lanes => (2, 0),
            Forgives::Record => (3, 0),
        };
        self.put(AGENT, hash.bits());
        self.put(LANE, u64::from(lane));
        self.put(FORGIVES, number);
    }

    pub(super) fn clear_forgives(&self) {
        self.put(FORGIVES, 0);
    }

    pub(super) fn forgives(&self) -> Option<(Forgives, AgentHash)> {
        let what = match self.get(FORGIVES) {
            // A lane that does not exist is refused where it is used.
            1 => Forgives::Lane(LaneId::new(self.get(LANE) as u32)),
            2 => Forgives::Lanes,
            3 => Forgives::Record,
            _ => return None,
        };
        Some((what, AgentHash::from_bits(self.get(AGENT))))
    }

    /// Whether a holder has died since everything was last counted.
    pub(super) fn was_left(&self) -> bool {
        self.get(LEFT) != 0
    }

    pub(super) fn clear_left(&self) {
        self.put(LEFT, 0);
    }
}
