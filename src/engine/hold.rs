//! Held slots of a shared slab: taken and given back so that a dead process keeps none. [`holds`](crate::slab::holds)
//! has the protocol.

use super::Engine;
use super::charge::LaneCharge;
use super::request::{ResolvedRequest, Target};
use crate::error::Error;
use crate::lane::{Choice, Decision, LaneState, Outcome, held};
use crate::policy::{Kind, LaneId};
use crate::slab::hash::AgentHash;
use crate::slab::holds::{Holds, Look, Operation, Remains};

impl Engine {
    /// The table of holds, if the lane is a held one of a shared slab.
    #[inline]
    pub(super) fn holds_of(&self, lane: LaneId) -> Option<&Holds> {
        self.slab.holds().filter(|_| self.kind(lane) == Kind::Held)
    }

    /// The process that holds slots taken now; 0 in a private limiter.
    pub(crate) fn holder(&self) -> u64 {
        self.slab.joined().map_or(0, |joined| joined.short_mark())
    }

    /// Takes slots. If there are none, or no entry is free, what dead processes hold is given back first.
    pub(super) fn hold(&self, holds: &Holds, request: &ResolvedRequest<'_>) -> LaneCharge {
        let charge = self.hold_once(holds, request);
        let is_made_room = match charge.answer {
            Ok(verdict) => verdict.decision() == Decision::Deny && self.bury_of(holds, request.target.hash),
            Err(Error::HoldsFull) => self.bury_for_room(holds),
            Err(_) => false,
        };
        if is_made_room { self.hold_once(holds, request) } else { charge }
    }

    fn hold_once(&self, holds: &Holds, request: &ResolvedRequest<'_>) -> LaneCharge {
        let (hash, process) = (request.target.hash, self.holder());
        if process == 0 {
            return LaneCharge::none(Err(Error::Busy)); // It can have no seat for now.
        }
        let begin = || holds.begin(hash, request.lane(), request.cost, process);
        let Some(operation) = (!holds.lately().is_full()).then(begin).flatten() else {
            return LaneCharge::none(Err(Error::HoldsFull));
        };
        let request = ResolvedRequest { mark: Some(operation.mark()), ..*request };
        let at = self.at(request.target.now);
        let charged = self.with_record(hash, |found| self.charge_found(found, &request, at));
        let charge = charged.unwrap_or_else(|| self.charge_newcomer(&request));
        if charge.receipt.is_some() {
            holds.opened(operation);
        } else {
            holds.freed(operation);
        }
        charge
    }

    /// Gives slots back, all or none of them, whoever holds them.
    pub(super) fn release(&self, holds: &Holds, target: &Target<'_>, slots: u64) -> Result<LaneState, Error> {
        if slots == 0 {
            return Err(Error::ZeroCost);
        }
        let (hash, lane, process) = (target.hash, target.lane.id(), self.holder());
        if process == 0 {
            return Err(Error::Busy);
        }
        let begin = || holds.begin_release(hash, lane, process);
        let first = begin();
        if let Some(operation) = first.filter(|operation| operation.count() >= slots) {
            self.give_slots_back(holds, target, operation, slots);
            return Ok(self.state(target));
        }
        // Several calls took what this one gives back.
        let mut operations: Vec<Operation> = first.into_iter().collect();
        let mut held = operations.iter().map(Operation::count).sum::<u64>();
        while let Some(operation) = if held < slots { begin() } else { None } {
            held += operation.count();
            operations.push(operation);
        }
        if held < slots {
            operations.into_iter().for_each(|operation| holds.released(operation, 0));
            let state = self.state(target);
            return if state == LaneState::EXEMPT { Ok(state) } else { Err(Error::NotHeld { held, released: slots }) };
        }
        let mut left = slots;
        for operation in operations {
            let slots = operation.count().min(left);
            left -= slots;
            self.give_slots_back(holds, target, operation, slots);
        }
        Ok(self.state(target))
    }

    /// Ends an operation by giving slots back.
    fn give_slots_back(&self, holds: &Holds, target: &Target<'_>, operation: Operation, slots: u64) {
        holds.set_releasing(&operation, slots);
        self.update(target, |_, words, _| {
            let word = words[0];
            let next = held::release(word, slots).next.map(|next| {
                holds.confirm(word);
                held::marked(next, operation.mark())
            });
            Choice::of(Outcome { next, answer: () })
        });
        holds.released(operation, slots);
    }

    /// Gives back what dead processes hold of an agent, unless it was looked for in vain a moment ago. `false` if that
    /// is nothing.
    fn bury_of(&self, holds: &Holds, hash: AgentHash) -> bool {
        let (lately, look) = (holds.lately(), holds.lately().look());
        if !lately.is_due(&look, hash) {
            return false;
        }
        let is_any = self.bury_among(holds, holds.likely(hash), &look);
        if !is_any {
            lately.found_none_of(&look, hash);
        }
        is_any
    }

    /// The same for the whole table, which has no free entry.
    fn bury_for_room(&self, holds: &Holds) -> bool {
        let (lately, look) = (holds.lately(), holds.lately().look());
        let is_due = lately.is_table_due(&look);
        let is_any = is_due && self.bury_among(holds, holds.used(), &look);
        if is_due && !is_any {
            lately.found_none(&look);
        }
        if !is_any {
            lately.found_full(&look);
        }
        is_any
    }

    /// Gives back what dead processes hold of any agent.
    pub(crate) fn bury_all(&self) {
        let Some(holds) = self.slab.holds() else { return };
        self.bury_among(holds, holds.used(), &holds.lately().look_anew());
    }

    /// Gives back what dead processes hold by these entries. `false` if that is nothing.
    fn bury_among(&self, holds: &Holds, numbers: impl Iterator<Item = usize>, look: &Look) -> bool {
        let (process, mut is_any) = (self.holder(), false);
        if process == 0 {
            return false; // Without a seat it would be taken for dead itself.
        }
        let is_dead = |of| holds.lately().is_dead(look, of, |of| self.is_dead(of));
        for number in numbers {
            // Ends: each round ends an operation of a dead process, and such a process begins no other.
            while let Some(remains) = holds.take_over(number, process, is_dead) {
                self.bury(holds, &remains);
                is_any = true;
            }
        }
        is_any
    }

    fn is_dead(&self, process: u64) -> bool {
        self.slab.joined().is_some_and(|joined| joined.is_short_dead(process))
    }

    fn bury(&self, holds: &Holds, remains: &Remains) {
        let lane = self.limits.lane(remains.lane).ok().filter(|lane| self.kind(lane.id()) == Kind::Held);
        let Some(lane) = lane else { return holds.freed(remains.operation) };
        let word = self.slab.find(remains.hash).map(|found| found.record.lane_now(lane.id()));
        if let Some(operation) = holds.judge(remains, word) {
            self.slab.joined().into_iter().for_each(|joined| joined.count_takeover());
            let target = Target::new(remains.hash, lane, None, self.clock.now());
            self.give_slots_back(holds, &target, operation, operation.count());
        }
    }
}
