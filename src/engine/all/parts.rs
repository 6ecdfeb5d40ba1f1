//! The parts of a call, in the order in which they are charged.

use crate::bounds::PARTS_MAX;
use crate::engine::request::ResolvedRequest;
use crate::error::Error;
use crate::limits::LaneLimits;
use crate::slab::hash::AgentHash;

/// Newcomers are counted in bits.
const _: () = assert!(PARTS_MAX <= u32::BITS as usize);

/// One of the requests, resolved.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) request: ResolvedRequest<'a>,
    pub(super) is_counted: bool,
    /// Its index among the requests as they were given.
    pub(super) index: usize,
    /// Its cost plus that of the parts of the same lane before it.
    pub(super) sum: u64,
    /// The total that is charged with it.
    pub(super) total: Option<Share<'a>>,
}

impl Part<'_> {
    pub(super) fn hash(&self) -> AgentHash {
        self.request.target.hash
    }
}

/// What the parts of one agent take from its total.
#[derive(Clone, Copy)]
pub(super) struct Share<'a> {
    pub(super) lane: LaneLimits<'a>,
    /// The cost of this part plus those given before it.
    pub(super) sum: u64,
    /// Whether no other part comes after it, so that its sum covers all.
    pub(super) is_last: bool,
}

/// The parts in the order in which they are charged: by agent, by lane, and as
/// they were given. It is the same for every caller, so that two callers meet at
/// the first part they share, before either has charged what the other needs.
pub(super) struct OrderedParts<'a>(pub(super) [Option<Part<'a>>; PARTS_MAX]);

impl<'a> OrderedParts<'a> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Part<'a>> {
        self.0.iter().map_while(Option::as_ref)
    }

    /// The sums of each lane, once all parts are in their order.
    ///
    /// Tokens of different limits cannot be added up.
    pub(super) fn add_up_lanes(&mut self) -> Result<(), Error> {
        let mut before: Option<(_, _, u64)> = None;
        for part in self.0.iter_mut().map_while(Option::as_mut) {
            let (lane, limit) = ((part.hash(), part.request.lane()), part.request.target.limit);
            // Parts of one lane are adjacent.
            let sum = match before.filter(|(other, ..)| *other == lane) {
                Some((_, known, _)) if known != limit => {
                    return Err(Error::LimitsDiffer { lane: part.request.lane().number() });
                }
                Some((_, _, sum)) => sum,
                None => 0,
            };
            part.sum = part.request.cost.saturating_add(sum);
            before = Some((lane, limit, part.sum));
        }
        Ok(())
    }

    /// The sums of each total.
    pub(super) fn add_up_totals(&mut self) {
        for place in 0..PARTS_MAX {
            let Some(part) = self.0[place] else { return };
            let shared = || self.iter().filter(|other| other.hash() == part.hash() && other.total.is_some());
            let before = shared().filter(|other| other.index <= part.index).map(|other| other.request.cost);
            let sum = before.fold(0, u64::saturating_add);
            let is_last = !shared().any(|other| other.index > part.index);
            let total = part.total.map(|share| Share { sum, is_last, ..share });
            self.0[place] = Some(Part { total, ..part });
        }
    }
}
