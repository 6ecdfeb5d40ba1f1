//! Several charges, all or none.
//!
//! A call peeks first: would each part pass, with parts of one lane added up? If
//! one would be denied, or can never pass, that is the answer. Nothing was
//! charged, no agent lost a record, and there is nothing to take back. If all
//! others pass, the first part is charged without a peek.
//!
//! If all pass, the parts are charged one after the other, in an order that is
//! the same for every caller, and then the [totals](super::total), each once
//! for all parts of its agent. A part may be denied even so, because another
//! caller charged its lane since the peek, or because no record is free for its
//! agent. Then what was charged is taken back, each charge by its receipt:
//!
//! | kind | what is taken back |
//! |---|---|
//! | bucket | the part of its price that time has not paid since: `roll_back` in `lane/bucket.rs` has the argument |
//! | window, budget | its count, off the window that it was made in |
//! | exact window | the rest of its own permit, which nobody else can have taken meanwhile |
//! | held | its slots |
//!
//! So a denied call lets no other request pass that would not have passed
//! without it. It may leave a bucket that was not full with less than it had: by
//! the time between charge and rollback, about a microsecond. A charge of a
//! bucket stays if the agent's limits change during the call, or if it may have
//! been forgiven meanwhile: [`slab::forgiven`](crate::slab::forgiven).
//!
//! Agents that seem to have no record come first, so that [`Error::Full`] finds
//! nothing charged that time would not bring back: a fresh bucket is full.
//!
//! A caller that is alone meets only its own charges, and is denied only if a
//! part is. If two callers cross, each may meet a charge that the other is about
//! to take back, and both may be denied once.
//!
//! `all/parts.rs` puts the parts in order, `all/verdict.rs` is the answer.

mod parts;
mod verdict;

pub use verdict::AllVerdict;

use super::charge::Answer;
use super::request::{ResolvedRequest, Target};
use super::total::both;
use super::{Engine, Request};
use crate::bounds::PARTS_MAX;
use crate::clock::Tick;
use crate::error::Error;
use crate::lane::Choice;
use crate::lane::kind::{Charged, LaneLimit, Receipt, look};
use crate::machine::processor::finish_loads;
use crate::slab::hash::AgentHash;
use crate::sync::{Fault, broken};
use parts::{OrderedParts, Part, Share};

impl Engine {
    /// Charges every part, or none.
    pub(crate) fn check_all(&self, parts: &[Request<'_>]) -> Result<AllVerdict, Error> {
        let parts = self.resolve_all(parts)?;
        let decided = match self.blocked_by_conduct(&parts) {
            Ok(Some(blocked)) => Ok(blocked),
            Ok(None) => self.peek_and_charge(&parts),
            Err(error) => Err(error),
        };
        let mut verdict = decided.inspect_err(|_| self.note_impossible(&parts))?;
        if !verdict.is_allowed() {
            self.judge_all(&parts, &mut verdict);
        }
        self.note_all(&parts, &verdict);
        Ok(verdict)
    }

    fn resolve_all<'a>(&'a self, requests: &'a [Request<'a>]) -> Result<OrderedParts<'a>, Error> {
        if !(1..=PARTS_MAX).contains(&requests.len()) {
            return Err(Error::Parts { parts: requests.len() });
        }
        let is_any_now = requests.iter().any(|request| request.at.is_none());
        let start = is_any_now.then(|| self.clock.now());
        let mut parts = OrderedParts([None; PARTS_MAX]);
        for (index, request) in requests.iter().enumerate() {
            let resolved = self.resolve_from(*request, start)?;
            let total = self.limits.total_with(request.lane).map(|lane| Share { lane, sum: 0, is_last: true });
            let part = Part { request: resolved, is_counted: request.is_counted, index, sum: 0, total };
            // They are few: insertion sort, and equal ones keep their order.
            let rank = (part.hash(), part.request.lane());
            let place = parts.iter().take_while(|other| (other.hash(), other.request.lane()) <= rank).count();
            parts.0.copy_within(place..index, place + 1);
            parts.0[place] = Some(part);
        }
        parts.add_up_lanes()?;
        if self.limits.has_total() {
            parts.add_up_totals();
        }
        Ok(parts)
    }

    /// Judges the first denied part of each agent, if it is counted.
    fn judge_all(&self, parts: &OrderedParts<'_>, verdict: &mut AllVerdict) {
        let mut last = AgentHash::NOBODY;
        for part in parts.iter() {
            let answer = &mut verdict.verdicts[part.index];
            // An agent's parts are adjacent.
            if part.is_counted && !answer.is_allowed() && part.hash() != last {
                last = part.hash();
                *answer = self.judged(*answer, &part.request);
            }
        }
    }

    /// Counts the parts that can never pass, alone or with others of their lane.
    fn note_impossible(&self, parts: &OrderedParts<'_>) {
        for part in parts.iter().filter(|_| self.watch.is_some()) {
            let answer = self.peek_part(part);
            if let Err(Error::CostAboveCapacity { .. }) = answer {
                self.note_answer(part.request.agent, part.request.lane(), &answer);
            }
        }
    }

    /// The answer if an agent has to wait, whatever its lanes hold.
    fn blocked_by_conduct(&self, parts: &OrderedParts<'_>) -> Result<Option<AllVerdict>, Error> {
        if !parts.iter().any(|part| part.is_counted) || !self.limits.conduct().enforces_wait() {
            return Ok(None);
        }
        let (mut verdict, mut is_blocked) = (AllVerdict::new(parts.iter().count()), false);
        for part in parts.iter() {
            let blocked = if part.is_counted { self.blocked(&part.request)? } else { None };
            // An exempt agent does not wait.
            is_blocked |= blocked.is_some_and(|verdict| !verdict.is_allowed());
            verdict.verdicts[part.index] = blocked.map_or_else(|| self.peek_part(part), Ok)?;
        }
        Ok(is_blocked.then_some(verdict))
    }

    /// Charges every part if a peek at each finds room for it.
    fn peek_and_charge(&self, parts: &OrderedParts<'_>) -> Result<AllVerdict, Error> {
        let mut verdict = AllVerdict::new(parts.iter().count());
        let newcomers = self.peek_all(parts, &mut verdict)?;
        if verdict.is_allowed() {
            self.charge_all(parts, newcomers, &mut verdict)?;
        }
        if verdict.is_allowed() {
            for Part { request, index, .. } in parts.iter() {
                let verdict = &mut verdict.verdicts[*index];
                *verdict = self.warn_once(request.agent, request.lane(), request.cost, Ok(*verdict))?;
            }
        }
        Ok(verdict)
    }

    /// Counts every part that was charged, or those that are blocking.
    fn note_all(&self, parts: &OrderedParts<'_>, verdict: &AllVerdict) {
        for Part { request, index, .. } in parts.iter().filter(|_| self.watch.is_some()) {
            let of_part = verdict.verdicts[*index];
            if verdict.is_allowed() || !of_part.is_allowed() {
                self.note_answer(request.agent, request.lane(), &Ok(of_part));
            }
        }
    }

    /// Finds whether each part would pass; the first only if another is denied
    /// or a newcomer's. Returns the parts of agents that seem to have no record,
    /// as bits.
    fn peek_all(&self, parts: &OrderedParts<'_>, verdict: &mut AllVerdict) -> Result<u32, Error> {
        let mut newcomers = 0;
        let mut peek = |part: &Part<'_>| {
            let known = self.peek_record(part);
            newcomers |= u32::from(known.is_none()) << part.index;
            let lane = known.map_or_else(|| self.would(&part.request, part.sum), Charged::verdict);
            verdict.verdicts[part.index] = self.with_total(part, lane)?;
            Ok::<_, Error>(verdict.is_allowed() && newcomers == 0)
        };
        let mut is_simple = true;
        for part in parts.iter().skip(1) {
            is_simple = peek(part)?;
        }
        let first = parts.iter().next().filter(|part| !is_simple || part.total.is_some());
        first.map_or(Ok(is_simple), peek)?;
        Ok(newcomers)
    }

    /// Charges every part, or rolls back what was charged.
    fn charge_all(&self, parts: &OrderedParts<'_>, newcomers: u32, verdict: &mut AllVerdict) -> Result<(), Error> {
        let (mut receipts, mut totals) = ([None; PARTS_MAX], [None; PARTS_MAX]);
        let forgiven = self.slab.forgiven.so_far();
        let roll_back = |receipts: &[Option<Receipt>], totals: &[Option<Receipt>]| {
            for Part { request, index, total, .. } in parts.iter().filter(|_| !broken(Fault::NoRollback)) {
                if let Some(receipt) = receipts[*index] {
                    self.roll_back(&request.target, request.cost, receipt, forgiven);
                }
                if let (Some(share), Some(receipt)) = (total, totals[*index]) {
                    self.roll_back(&request.target.with_lane(share.lane), share.sum, receipt, forgiven);
                }
            }
        };
        let is_newcomer = |part: &&Part<'_>| newcomers >> part.index & 1 == 1;
        let newcomers_first = parts.iter().filter(is_newcomer).chain(parts.iter().filter(|part| !is_newcomer(part)));
        for part in newcomers_first {
            let charge = self.charge_lane(&part.request);
            receipts[part.index] = charge.receipt;
            let is_in_the_way = charge.answer.map_or(true, |verdict| !verdict.is_allowed());
            if is_in_the_way {
                roll_back(&receipts, &totals);
            }
            verdict.verdicts[part.index] = charge.answer?;
            if is_in_the_way {
                return Ok(());
            }
        }
        for part in parts.iter() {
            let Some(share) = part.total.filter(|share| share.is_last) else { continue };
            let theirs = || parts.iter().filter(|other| other.hash() == part.hash() && other.total.is_some());
            // A newcomer's words may be later than its instant: its lanes were charged there.
            let charged = theirs().filter_map(|part| receipts[part.index]).map(|receipt: Receipt| receipt.at);
            let latest = charged.fold(part.request.target.now, Tick::max);
            let request = ResolvedRequest { cost: share.sum, ..part.request.with_lane(share.lane).at(latest) };
            let charge = self.charge_lane(&request);
            totals[part.index] = charge.receipt;
            match charge.answer {
                Ok(total) if total.is_allowed() => {
                    for index in theirs().map(|part| part.index) {
                        verdict.verdicts[index] = both(Ok(verdict.verdicts[index]), Ok(total))?;
                    }
                }
                in_the_way => {
                    roll_back(&receipts, &totals);
                    verdict.verdicts[part.index] = in_the_way?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes back one of several charges. `forgiven` is how many charges had
    /// been forgiven before it.
    pub(super) fn roll_back(&self, target: &Target<'_>, cost: u64, receipt: Receipt, forgiven: u64) {
        if let Some(holds) = self.holds_of(target.lane.id()) {
            // Slots are never forgiven: it holds them.
            let _ = self.release(holds, target, cost, crate::bounds::CONTROL_WITHIN);
            return;
        }
        let (kind, at) = (self.kind(target.lane.id()), self.at(receipt.at));
        self.update_charged(target.hash, target.lane.id(), receipt.position, |words| {
            // After the words: the caller that charged them read the clock before.
            finish_loads();
            let clock = if broken(Fault::RollbackAtCharge) { receipt.at } else { self.clock.now() };
            let at = at.with(clock.max(receipt.at));
            let rolled_back = kind.roll_back(words, at, receipt, cost, self.slab.forgiven.is_any_since(forgiven));
            self.spare_reserved(target, words, at, rolled_back)
        });
    }

    /// The answer that a part would get, with those of the same lane before it.
    fn peek_part(&self, part: &Part<'_>) -> Answer {
        self.with_total(part, self.would(&part.request, part.sum))
    }

    /// The answer that a part would get, given its lane's answer.
    fn with_total(&self, part: &Part<'_>, lane: Answer) -> Answer {
        match part.total {
            Some(share) => both(lane, self.would(&part.request.with_lane(share.lane), share.sum)),
            None => lane,
        }
    }

    /// The answer that a part would get without its total; `None` if its agent has no record.
    fn peek_record(&self, part: &Part<'_>) -> Option<Charged> {
        let (cost, sum) = (part.request.cost, part.sum);
        let would = |limit: LaneLimit, words: &[_], at| Choice::of(look(limit.would(words, at, cost, sum)));
        self.update(&part.request.target, would)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
