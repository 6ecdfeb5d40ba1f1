//! Which policy is in force: its epoch, and what changes with it.

use crate::conduct::ConductNumbers;
use crate::machine::mapping::Words;
use crate::shared::{Memory, Section};
use crate::sync::{Ordering, QuietU64};

/// How many policies came before the one in force. Its parity selects the rows
/// of the plans that are in use.
const EPOCH: usize = 0;

/// How many plans the policy in force has.
const PLANS: usize = 1;

/// Which files were loaded into a shared slab, and whether it keeps ids, as bits.
#[cfg(any(feature = "persist", feature = "shared"))]
const LOADED: usize = 2;
#[cfg(feature = "shared")]
const KEEPS_IDS: u64 = 4;

/// How far the used budgets of a file are charged to a shared slab, if no load was completed: up to this hash.
#[cfg(feature = "persist")]
const CHARGED: usize = 3;

/// The lanes that the total is charged with, as bits, for each parity of the epoch.
const IN_TOTAL: usize = 4;

/// The numbers of conduct, for each parity of the epoch.
const CONDUCT: usize = 6;

/// How many words that takes.
pub(crate) const STATE_WORDS: usize = CONDUCT + 2 * ConductNumbers::WORDS;

/// A file that is loaded into a slab once.
#[cfg(feature = "persist")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum LoadedFile {
    Assignments = 1,
    Budgets = 2,
}

/// The words that change with the policy.
pub(crate) struct StateWords(Words<QuietU64>);

impl StateWords {
    /// If there is no memory, the error is how many bytes were needed.
    pub(crate) fn within(memory: &Memory) -> Result<Self, u64> {
        memory.words(Section::LimitState, STATE_WORDS).map(Self)
    }

    /// The epoch of the policy in force. Acquire, paired with
    /// [`enter`](Self::enter): its rows are visible.
    pub(crate) fn epoch(&self) -> u64 {
        self.0[EPOCH].load(Ordering::Acquire)
    }

    pub(super) fn enter(&self, epoch: u64) {
        self.0[EPOCH].store(epoch, Ordering::Release);
    }

    /// The lanes of the total under the policy of this epoch.
    pub(super) fn in_total(&self, epoch: u64) -> &QuietU64 {
        &self.0[IN_TOTAL + (epoch & 1) as usize]
    }

    pub(super) fn plans(&self) -> &QuietU64 {
        &self.0[PLANS]
    }

    /// Whether a file was loaded before: then what a shared slab holds is newer than the file.
    #[cfg(feature = "persist")]
    pub(crate) fn is_loaded(&self, file: LoadedFile) -> bool {
        self.0[LOADED].load(Ordering::Acquire) & file as u64 != 0
    }

    #[cfg(feature = "persist")]
    pub(crate) fn set_loaded(&self, file: LoadedFile) {
        self.0[LOADED].fetch_or(file as u64, Ordering::Release);
    }

    /// Whether what a file says of the agent with this hash is charged to a shared slab. Loaders go by hash, upwards.
    #[cfg(feature = "persist")]
    pub(crate) fn is_charged(&self, hash: u64) -> bool {
        self.is_loaded(LoadedFile::Budgets) || hash <= self.0[CHARGED].load(Ordering::Acquire)
    }

    /// Release, after the charges: the next loader does not repeat them.
    #[cfg(feature = "persist")]
    pub(crate) fn set_charged(&self, hash: u64) {
        self.0[CHARGED].store(hash, Ordering::Release);
    }

    /// Whether every process stores the ids of agents that it gives a record. Acquire: they have memory.
    #[cfg(feature = "shared")]
    pub(crate) fn keeps_ids(&self) -> bool {
        self.0[LOADED].load(Ordering::Acquire) & KEEPS_IDS != 0
    }

    #[cfg(all(feature = "persist", feature = "shared"))]
    pub(crate) fn set_keeps_ids(&self) {
        self.0[LOADED].fetch_or(KEEPS_IDS, Ordering::Release);
    }

    /// The numbers of conduct of this epoch.
    pub(super) fn conduct(&self, epoch: u64) -> &[QuietU64] {
        &self.0[CONDUCT + (epoch & 1) as usize * ConductNumbers::WORDS..][..ConductNumbers::WORDS]
    }

    /// Reads from the policy in force, and never a mixture of two policies.
    ///
    /// The loop ends: each further round is a policy that came into force
    /// meanwhile. Rows of an epoch are overwritten only after the next epoch
    /// has begun, so a reader that sees such a word also sees the new epoch.
    pub(crate) fn of_epoch<T>(&self, read: impl Fn(u64) -> T) -> T {
        loop {
            let epoch = self.epoch();
            let value = read(epoch);
            if self.epoch() == epoch {
                return value;
            }
        }
    }
}
