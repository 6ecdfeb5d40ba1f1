//! The waits that were announced to agents, in a table that all threads share.

use crate::bounds::WAITS_KEPT;
use crate::clock::Tick;
use crate::conduct::announced::{self, Judgement, WaitWord};
use crate::lane::Outcome;
use crate::machine::mapping::Words;
use crate::policy::LaneId;
use crate::record::Word;
use crate::slab::hash::AgentHash;
use crate::sync::{AtomicU64, Fault, Ordering, broken};

/// The last [`WAITS_KEPT`] waits that were announced: a word for an agent and a
/// lane, found by their hash. A later wait may overwrite another agent's, which
/// makes nobody a violator.
///
/// # The protocol
///
/// A word is all there is to know about a wait, so one exchange is a whole
/// judgement: of several denials that have read the same word one is judged by
/// it, and the others lose. *Claim*: one moment of an agent has at most one
/// violation. A denial is [`Early`](Judgement::Early) only if it exchanged a
/// word in which none was counted for one that says so. A denial that reads that
/// word within the moment is [`Counted`](Judgement::Counted), and one that read
/// the word before loses the exchange. The loser does not try again: the winner
/// was denied at the same time, so this is a parallel request of its moment.
///
/// No word returns while a denial stalls: an exchange puts in a later instant,
/// a larger crowd, or another fingerprint. Two agents that share a word may
/// bring an old word back between them within the 4 ms of an instant's unit;
/// then one more denial of that moment is judged by it.
pub(crate) struct AnnouncedWaits(Words<AtomicU64>);

impl AnnouncedWaits {
    /// On refusal, says how many bytes were asked for.
    pub(super) fn new() -> Result<Self, u64> {
        Words::reserve(WAITS_KEPT).map(Self).ok_or(8 * WAITS_KEPT as u64)
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    /// Takes its memory from the system now. On refusal, says how many bytes were asked for.
    pub(super) fn prefault(&self) -> Result<(), u64> {
        if self.0.prefault() { Ok(()) } else { Err(self.reserved_bytes()) }
    }

    /// Judges a denial. If another denial was judged meanwhile, this one is
    /// of the same moment.
    ///
    /// Relaxed: a word says all there is to say, and nothing is read by it.
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
