//! What a machine asks of the server for a lane, as numbers that the script computes exactly.
//!
//! Limits change at run time, so what is owed or to be given back may have been counted by another price. As a debt it
//! may then be more than the server can hold: the rest is forgotten, as the script forgets a debt beyond the overdraft,
//! and less is given back than could be.

use crate::{COUNT_MAX, DEBT_NS_MAX, Settle, Settlement};
use tollgate::cluster::Due;

/// As many machines may owe at once, though this one may not have heard of them yet: one that forgot what others owe
/// would let more pass.
const NODES_UNSEEN: u64 = 8;

/// What a lane's settlement depends on, the lane itself aside.
pub(crate) struct Demand {
    pub(crate) nodes: u64,
    /// The cost of a request that waits, and what is likely to be spent before the next settlement.
    pub(crate) cost: u64,
    pub(crate) wanted: u64,
    /// Whether the server is told what this machine knows.
    pub(crate) has_floor: bool,
    /// Whether all is given back and paid, and nothing taken.
    pub(crate) is_ending: bool,
}

impl Demand {
    /// `None` for a limit that the server cannot count: one that was put in force at run time and refills too slowly.
    pub(crate) fn settlement(&self, due: &Due) -> Option<Settlement> {
        let (token_ns, capacity) = (due.token_ns().max(1), due.capacity());
        let most = DEBT_NS_MAX / token_ns;
        let min = self.cost.saturating_sub(due.credit()).min(capacity);
        let want = self.wanted.min(due.credit_max()).saturating_sub(due.credit()).max(min).min(COUNT_MAX);
        let depth = capacity.saturating_mul(token_ns);
        let over = (4 * self.nodes.max(NODES_UNSEEN)).saturating_mul(due.advance_max().max(1));
        let settlement = Settlement {
            token_ns,
            capacity,
            owed: due.owed().min(most),
            give: due.given().min(most),
            min: if self.is_ending { 0 } else { min },
            want: if self.is_ending { 0 } else { want },
            share: 2 * self.nodes,
            over: over.min((DEBT_NS_MAX - depth.min(DEBT_NS_MAX)) / token_ns),
            floor_ns: if self.has_floor { due.known_debt_ns().min(depth) } else { 0 },
        };
        settlement.check().is_ok().then_some(settlement)
    }
}

/// What gives tokens back that no record knows of.
pub(crate) fn give(due: &Due, tokens: u64) -> Option<Settlement> {
    let (token_ns, capacity) = (due.token_ns().max(1), due.capacity());
    let give = tokens.min(DEBT_NS_MAX / token_ns);
    let settlement = Settlement { token_ns, capacity, owed: 0, give, min: 0, want: 0, share: 1, over: 0, floor_ns: 0 };
    (give > 0 && settlement.check().is_ok()).then_some(settlement)
}
