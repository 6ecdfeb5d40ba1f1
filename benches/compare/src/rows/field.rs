//! The contestants of a row, and the streams of ids they run over.
//!
//! The forms of ours (own clock, OS clock, own `now`, batch) share one slab,
//! those with SipHash-1-3 another.
//! Before each timed stretch a quarter of it runs untimed.

use super::Who;
use crate::floor::{Floor, Piece, Tsc};
use crate::ids::{Id, Random, draws};
use crate::least::Least;
use crate::measure::{Samples, Work, interleaved, one_thread};
use crate::peers::{
    Contestant, Governor, Lane, OneLane, Ours, OursBatch, OursNow, OursOs, SixLanes, limiter, limiter_with,
};
use std::sync::Arc;
use tollgate::IdHash;

/// Contestants with their names, in the order in which they are rotated.
#[derive(Default)]
pub(super) struct Field {
    pub(super) names: Vec<Who>,
    contestants: Vec<Box<dyn Contestant>>,
}

impl Field {
    pub(super) fn with(mut self, who: Who, contestant: impl Contestant + 'static) -> Self {
        self.names.push(who);
        self.contestants.push(Box::new(contestant));
        self
    }

    pub(super) fn floor(self, piece: Piece, who: Who, tsc: Tsc) -> Self {
        self.with(who, Floor::new(piece, tsc))
    }

    /// All forms of ours, the peers and the least check, for this many agents.
    pub(super) fn limiters(agents: usize, lane: Lane, tsc: Tsc, batch: usize) -> Self {
        let limiter = Arc::new(limiter(agents));
        Self::default()
            .with(Who::Ours, Ours::new(Arc::clone(&limiter), lane))
            .with(Who::OursOs, OursOs::new(Arc::clone(&limiter), lane))
            .with(Who::OursNow, OursNow::new(Arc::clone(&limiter), lane))
            .with(Who::OursBatch, OursBatch::new(limiter, lane, batch))
            .with(Who::Governor, Governor::new(lane))
            .with(Who::DashMap, SixLanes::new(agents, lane, tsc))
            .with(Who::DashMapOneLane, OneLane::new(agents, lane, tsc))
            .with(Who::Least, Least::new(agents, lane, tsc))
    }

    /// Ours with SipHash-1-3, single calls and batches.
    pub(super) fn siphash(self, agents: usize, lane: Lane, batch: usize) -> Self {
        let limiter = Arc::new(limiter_with(IdHash::SipHash13, agents));
        self.with(Who::OursSip, Ours::new(Arc::clone(&limiter), lane))
            .with(Who::OursSipBatch, OursBatch::new(limiter, lane, batch))
    }

    pub(super) fn get(&self, index: usize) -> &dyn Contestant {
        &*self.contestants[index]
    }

    /// Lets every contestant check every agent once.
    pub(super) fn meet(&self, ids: &[Id]) {
        self.contestants.iter().for_each(|contestant| contestant.run(ids));
    }

    /// Makes sure that every contestant answers as the row assumes.
    pub(super) fn verify(&self, id: &Id, lane: Lane) {
        for (who, contestant) in self.names.iter().zip(&self.contestants) {
            let expected = lane == Lane::Allowed || who.is_floor();
            assert_eq!(contestant.allows(id), expected, "{who:?} on {lane:?}");
        }
    }

    /// Rounds in rotation on one thread.
    pub(super) fn one_thread(&self, rounds: usize, stream: &Stream) -> Vec<Samples> {
        interleaved(rounds, self.names.len(), |who, round| one_thread(self.get(who), stream.work(round)))
    }
}

/// Ids in the order in which they are checked.
pub(super) struct Stream {
    pub(super) ids: Vec<Id>,
    per_round: usize,
    times: usize,
}

/// Above this many agents a stretch is long, so that it covers many of them.
const MANY: usize = 50_000;

impl Stream {
    /// Draws from `ids` for rounds of about `checks / divisor` checks.
    ///
    /// One agent is a short stream that stays in the first cache. A few agents
    /// are a stream of 131,072 draws, longer than a branch predictor remembers,
    /// reread in each round. Many are a stream of 2 million draws, of which
    /// each round takes another part.
    pub(super) fn new(ids: &[Id], divisor: usize, random: &mut Random) -> Self {
        let (length, per_round, times) = match ids.len() {
            1 => (1 << 10, 1 << 10, (1 << 9) / divisor),
            2..MANY => (1 << 17, 1 << 17, (1 << 2) / divisor),
            _ => (1 << 21, (1 << 19) / divisor, 1),
        };
        Self { ids: draws(ids, length, random), per_round, times: times.max(1) }
    }

    pub(super) fn work(&self, round: usize) -> Work<'_> {
        let stretches = self.ids.len() / self.per_round;
        let start = round % stretches * self.per_round;
        let timed = &self.ids[start..start + self.per_round];
        // The ids before the stretch, or the end of the stream.
        let warm_len = self.per_round / 4;
        let warm_end = if start == 0 { self.ids.len() } else { start };
        Work { warm: &self.ids[warm_end - warm_len..warm_end], timed, times: self.times }
    }
}
