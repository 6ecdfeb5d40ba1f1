//! What a machine asks of the server for a lane, as numbers that the script computes exactly.
//!
//! Limits change at run time, so what is owed or to be given back may have been counted by another price. As a debt it
//! may then be more than the server can hold: the rest is forgotten, as the script forgets a debt beyond the overdraft,
//! and less is given back than could be.
//!
//! # The floor
//!
//! After a loss the server is told what it has to know at least: the machine's view, and on top of it what the machine
//! owes. A charge changes the view or the balance, never both:
//!
//! - what is spent in advance lowers the balance, and is not in the view;
//! - what is spent by a share of the limit while the server is lost is in the view, and the balance stays as it is.
//!
//! The script adds what is owed to the debt that it finds, and then applies the floor. Let `D` be that debt, `V` the
//! view and `o` what is owed. With a floor of `V + o` the debt becomes `max(D + o, V + o) = max(D, V) + o`: what was
//! owed is charged, whatever the server knows. With a floor of `V` it would become `max(D + o, V)`. If a machine had
//! spent `s` by its share since they agreed, so that `V = D + s`, then the smaller one of `s` and `o` would be
//! forgotten in each outage.
//!
//! A payment whose answer was lost is in `D` and in `o`. It counts twice, which is strict.
//!
//! # Budgets
//!
//! What is settled with a budget is of the window that the lane's balance was read in, whose number is part of the key.
//! So whatever is late, an answer or a give, is never counted in the next.

use crate::steps::Step;
use crate::{BudgetSettlement, COUNT_MAX, DEBT_NS_MAX, Settle, Settlement};
use std::time::Duration;
use tollgate::cluster::{BudgetWindow, Due};

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
    /// Whether what it knows may be from before the server was last lost.
    pub(crate) is_old: bool,
    /// Whether all is given back and paid, and nothing taken.
    pub(crate) is_ending: bool,
}

impl Demand {
    /// `None` for a limit that the server cannot count: one that was put in force at run time and refills too slowly.
    pub(crate) fn step(&self, due: &Due) -> Option<Step> {
        match due.window() {
            Some(window) => {
                self.of_budget(due, &window).map(|settlement| Step::SettleBudget(window.number, settlement))
            }
            None => self.of_bucket(due).map(Step::Settle),
        }
    }

    /// How much must be granted, and how much may be.
    fn min_and_want(&self, due: &Due) -> (u64, u64) {
        let min = self.cost.saturating_sub(due.credit()).min(due.capacity());
        let want = self.wanted.min(due.credit_max()).saturating_sub(due.credit()).max(min).min(COUNT_MAX);
        if self.is_ending { (0, 0) } else { (min, want) }
    }

    fn of_budget(&self, due: &Due, window: &BudgetWindow) -> Option<BudgetSettlement> {
        let (owed, (min, want)) = (due.owed().min(COUNT_MAX), self.min_and_want(due));
        // What this machine owes is not in its view. A budget has no refill: an old view of its window holds still.
        let floor = if self.has_floor || self.is_old { window.used.saturating_add(owed).min(COUNT_MAX) } else { 0 };
        let back = back(due, window, due.given());
        let settlement = BudgetSettlement { owed, min, want, share: 2 * self.nodes, floor, ..back };
        settlement.check().is_ok().then_some(settlement)
    }

    fn of_bucket(&self, due: &Due) -> Option<Settlement> {
        let (token_ns, capacity) = (due.token_ns().max(1), due.capacity());
        let most = DEBT_NS_MAX / token_ns;
        let (min, want) = self.min_and_want(due);
        let depth = capacity.saturating_mul(token_ns);
        let over = (4 * self.nodes.max(NODES_UNSEEN)).saturating_mul(due.advance_max().max(1));
        let owed = due.owed().min(most);
        // What this machine owes is not in its view.
        let known_ns = due.known_debt_ns().min(depth).saturating_add(owed * token_ns).min(DEBT_NS_MAX);
        let settlement = Settlement {
            token_ns,
            capacity,
            owed,
            give: due.given().min(most),
            min,
            want,
            share: 2 * self.nodes,
            over: over.min((DEBT_NS_MAX - depth.min(DEBT_NS_MAX)) / token_ns),
            floor_ns: if self.has_floor { known_ns } else { 0 },
        };
        settlement.check().is_ok().then_some(settlement)
    }
}

/// The longest time that a window may go on: a clock that is wrong by years would ask for more than the script takes.
const LEFT_MAX: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// A settlement with a budget that gives this much back, and no more.
fn back(due: &Due, window: &BudgetWindow, give: u64) -> BudgetSettlement {
    BudgetSettlement {
        // Lossless: 400 days.
        left_ms: window.left.min(LEFT_MAX).as_millis() as u64,
        capacity: due.capacity(),
        owed: 0,
        give: give.min(COUNT_MAX),
        min: 0,
        want: 0,
        share: 1,
        // What was used is used, however much that is: nothing that is paid is forgotten.
        over: COUNT_MAX.saturating_sub(due.capacity()),
        floor: 0,
    }
}

/// What gives tokens back that no record knows of, and how many.
pub(crate) fn give(due: &Due, tokens: u64) -> Option<(Step, u64)> {
    if let Some(window) = due.window() {
        let settlement = back(due, &window, tokens);
        let is_any = settlement.give > 0 && settlement.check().is_ok();
        return is_any.then_some((Step::SettleBudget(window.number, settlement), settlement.give));
    }
    let (token_ns, capacity) = (due.token_ns().max(1), due.capacity());
    let give = tokens.min(DEBT_NS_MAX / token_ns);
    let settlement = Settlement { token_ns, capacity, owed: 0, give, min: 0, want: 0, share: 1, over: 0, floor_ns: 0 };
    (give > 0 && settlement.check().is_ok()).then_some((Step::Settle(settlement), give))
}
