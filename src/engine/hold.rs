//! Held slots of a shared slab: taken and given back so that a dead process keeps none. [`holds`](crate::slab::holds)
//! has the protocol.

use super::Engine;
use super::charge::LaneCharge;
use super::request::{ResolvedRequest, Target};
use crate::error::Error;
use crate::lane::{Choice, Decision, LaneState, Outcome, held};
use crate::policy::{Kind, LaneId};
use crate::slab::hash::AgentHash;
use crate::slab::holds::{Begun, Holds, Look, Operation, Remains};
use crate::sync;
use std::time::{Duration, Instant};

/// How often a caller looks at a busy entry before it asks whether its process is dead, and then again.
const ROUNDS: u32 = 500;

/// How long a release waits for other processes, and until when, once it does.
struct ReleaseWait {
    within: Duration,
    until: Option<Instant>,
}

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
            return LaneCharge::none(Err(super::in_the_way(&self.memory))); // It can have no seat for now.
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

    /// Gives slots back, all or none of them, whoever holds them. `within` is how long it waits for another process.
    pub(super) fn release(
        &self,
        holds: &Holds,
        target: &Target<'_>,
        slots: u64,
        within: Duration,
    ) -> Result<LaneState, Error> {
        if slots == 0 {
            return Err(Error::ZeroCost);
        }
        let process = self.holder();
        if process == 0 {
            return Err(super::in_the_way(&self.memory));
        }
        // Nearly always one entry has them all, and nobody else is about to give back any of it.
        let (hash, lane) = (target.hash, target.lane.id());
        let whole = holds.likely(hash).find_map(|number| {
            match holds.begin_release(number, hash, lane, Some(process), slots, process) {
                Begun::Operation(operation) => Some(operation),
                _ => None,
            }
        });
        if let Some(operation) = whole {
            self.give_slots_back(holds, target, operation, slots);
            return Ok(self.state(target));
        }
        let mut wait = ReleaseWait { within, until: None };
        let mut taken = self.take_held(holds, target, slots, Some(process), &mut wait);
        if matches!(taken, Err(Error::NotHeld { .. })) {
            taken = self.take_held(holds, target, slots, None, &mut wait);
        }
        let operations = match taken {
            Err(error @ Error::NotHeld { .. }) => {
                let state = self.state(target);
                return if state == LaneState::EXEMPT { Ok(state) } else { Err(error) };
            }
            taken => taken?,
        };
        let mut left = slots;
        for operation in operations {
            let slots = operation.count().min(left);
            left -= slots;
            self.give_slots_back(holds, target, operation, slots);
        }
        Ok(self.state(target))
    }

    /// Begins to give back as many slots, by as many entries as have them; with `owner`, only by those of that process.
    fn take_held(
        &self,
        holds: &Holds,
        target: &Target<'_>,
        slots: u64,
        owner: Option<u64>,
        wait: &mut ReleaseWait,
    ) -> Result<Vec<Operation>, Error> {
        let (hash, lane, process) = (target.hash, target.lane.id(), self.holder());
        let (mut operations, mut held) = (Vec::new(), 0);
        let mut refused = None;
        'entries: for number in holds.likely(hash) {
            let mut round = 0_u32;
            loop {
                match holds.begin_release(number, hash, lane, owner, 1, process) {
                    Begun::Operation(operation) => {
                        held += operation.count();
                        operations.push(operation);
                        break;
                    }
                    Begun::No => break,
                    // Ends: see the module `holds`.
                    Begun::Busy(of) if self.waits_for(holds, number, of, round, wait) => {
                        round = round.saturating_add(1);
                    }
                    Begun::Busy(_) => {
                        refused = Some(Error::Busy);
                        break 'entries;
                    }
                }
            }
            if held >= slots {
                return Ok(operations);
            }
        }
        operations.into_iter().for_each(|operation| holds.reopened(operation));
        Err(refused.unwrap_or(Error::NotHeld { held, released: slots }))
    }

    /// Waits a moment for a process that gives back slots of an entry, and buries it if it is dead. `false` if that has
    /// taken too long.
    fn waits_for(&self, holds: &Holds, number: usize, of: u64, round: u32, wait: &mut ReleaseWait) -> bool {
        let process = self.holder();
        let is_due = cfg!(loom) || round % ROUNDS == ROUNDS - 1;
        // A thread of this process runs while this one does.
        if is_due && of != process && of != 0 {
            if let Some(remains) = holds.take_over(number, process, |of| self.is_dead(of)) {
                self.bury(holds, &remains);
                return true;
            }
            let now = Instant::now();
            if now >= *wait.until.get_or_insert_with(|| now + wait.within) && !cfg!(loom) {
                self.slab.joined().into_iter().for_each(|joined| joined.count_busy());
                return false;
            }
        }
        sync::wait(round);
        true
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
        let Some(lane) = lane else { return holds.abandoned(remains.operation) };
        let word = || self.slab.find(remains.hash).map(|found| found.record.lane_now(lane.id()));
        if let Some(operation) = holds.judge(remains, word) {
            self.slab.joined().into_iter().for_each(|joined| joined.count_takeover());
            let target = Target::new(remains.hash, lane, None, self.clock.now());
            self.give_slots_back(holds, &target, operation, operation.count());
        }
    }
}
