//! The waits that were announced to agents, in a table that all threads share.

use crate::bounds::WAITS_KEPT;
use crate::clock::Tick;
use crate::conduct::announced::{self, Judgement, WaitWord};
use crate::lane::Outcome;
use crate::machine::mapping::Words;
use crate::policy::LaneId;
use crate::record::Word;
use crate::shared::{Memory, Section};
use crate::slab::hash::AgentHash;
use crate::sync::{AtomicU64, Fault, Ordering, broken};

/// The last [`WAITS_KEPT`] waits that were announced: a word for an agent and a
/// lane, found by their hash. A later wait may overwrite another agent's, which
/// makes no agent a violator.
///
/// # The protocol
///
/// A word holds everything about a wait, so one exchange is a whole judgement: of
/// several denials that have read the same word one is judged by it, and the
/// others lose. *Claim*: one moment of an agent has at most one violation. A
/// denial is [`Early`](Judgement::Early) only if it exchanged a word without a
/// counted violation for one with it. A denial that reads the new word within the
/// moment is [`Counted`](Judgement::Counted), and one that read the old word
/// loses the exchange. The loser does not try again: the winner was denied at the
/// same time, so the loser is a parallel request of the same moment.
///
/// No word returns while a denial stalls: an exchange writes a later instant, a
/// larger crowd, or another fingerprint. Two agents that share a word may between
/// them bring an old word back within the 4 ms of an instant's unit; then one
/// more denial of that moment is judged by it.
pub(crate) struct AnnouncedWaits(Words<AtomicU64>);

impl AnnouncedWaits {
    /// If the system refuses the memory, the error is how many bytes were needed.
    pub(super) fn within(memory: &Memory) -> Result<Self, u64> {
        memory.words(Section::Waits, WAITS_KEPT).map(Self)
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    /// Touches its pages now. If the system refuses, the error is how many bytes were needed.
    pub(super) fn prefault(&self) -> Result<(), u64> {
        if self.0.prefault() { Ok(()) } else { Err(self.reserved_bytes()) }
    }

    /// Judges a denial. If another denial was judged meanwhile, this one is
    /// in the same moment.
    ///
    /// Relaxed: the word guards no other memory.
    pub(super) fn judge(&self, hash: AgentHash, lane: LaneId, now: Tick, waits: announced::Waits) -> Judgement {
        let (index, fingerprint) = announced::index_and_fingerprint(hash.bits(), lane.number(), self.0.len());
        let word = self.0[index].load(Ordering::Relaxed);
        let Outcome { next, answer } = announced::judge(WaitWord::from_bits(word), fingerprint, now, waits);
        let exchange = |next: WaitWord| {
            if broken(Fault::AnnouncedByStore) {
                self.0[index].store(next.bits(), Ordering::Relaxed);
                return true;
            }
            self.0[index].compare_exchange(word, next.bits(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        if next.is_none_or(exchange) { answer } else { Judgement::Parallel }
    }
}
