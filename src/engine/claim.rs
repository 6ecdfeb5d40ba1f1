//! Records for newcomers.
//!
//! [`charge_newcomer`](Engine::charge_newcomer) may take the record of an agent
//! in debt if the limiter is full; [`claim_free`](Engine::claim_free) takes only
//! a vacant or an idle one. The [slab](crate::slab) has the protocol.

use super::charge::LaneCharge;
use super::request::{ResolvedRequest, Target};
use super::{Engine, in_the_way, stand_in_row};
use crate::clock::{At, Tick};
use crate::error::Error;
use crate::lane::kind::LaneLimit;
use crate::lane::{Outcome, Verdict};
use crate::limits::Row;
use crate::record::tag::TagWord;
use crate::record::{Record, with_words};
use crate::slab::hash::AgentHash;
use crate::slab::{Claim, FoundRecord, Newcomer, OnFull, Refusal};
use crate::sync::{Fault, broken};
use std::cell::Cell;

impl Engine {
    /// Charges an agent that had no record a moment ago.
    ///
    /// The loop ends with its first round: a claim keeps the record for the
    /// agent until it is charged.
    pub(super) fn charge_newcomer(&self, request: &ResolvedRequest<'_>) -> LaneCharge {
        let ResolvedRequest { agent, target, cost, is_given, .. } = *request;
        let at = self.at(target.now);
        let limit = self.limit_without_record(&target);
        let cells = self.limits.cells(target.lane.id());
        let fresh = with_words(cells.count, |words| limit.step(words, at, cost).outcome);
        if fresh.next.is_none() || limit.is_exempt() {
            // Denied even when full, or exempt: not worth a record.
            self.note_clustered(&fresh.answer, request);
            return LaneCharge::none(fresh.answer.verdict());
        }
        // The answer is kept from the test: once the locks are released, the
        // record may have been filled, and the row be another agent's.
        let inherited = Cell::new(fresh.answer);
        let lane_passes = |lane, row, record: Record<'_>| {
            let limit = self.limits.lane_limit(lane, row, target.limit);
            let step = |words: &[_]| limit.step(words, at, cost);
            let Outcome { next, answer } = record.peek_cells(self.limits.cells(lane.id()), step).outcome;
            inherited.set(answer);
            next.is_some()
        };
        let total = self.limits.total_with(target.lane.id());
        let passes = |row, record: Record<'_>| {
            let row = stand_in_row(row, target.plan);
            let total_passes =
                |total| self.limits.lane_limit(total, row, None).is_exempt() || lane_passes(total, row, record);
            // The total is charged next, and must not be found empty after somebody has lost a record.
            lane_passes(target.lane, row, record) && total.is_none_or(total_passes)
        };
        let is_first = Cell::new(true);
        let may_have_reserved = |tag: TagWord| {
            if self.reservations.may_have(tag.low_bits()) && is_first.replace(false) {
                // An expired reservation keeps no record.
                self.reservations.close_expired(self.clock.now());
            }
            self.reservations.may_have(tag.low_bits())
        };
        let ranking = |tag, record: Record<'_>| match may_have_reserved(tag) {
            true => None,
            false => self.debt_ratio(tag, record, at),
        };
        let row = || {
            let row = self.row_for_claim(target.hash);
            (row != Row::EXEMPT || broken(Fault::ExemptClaims)).then_some(row)
        };
        let newcomer = Newcomer {
            on_full: self.on_full,
            ranking: &ranking,
            reserved: &|tag| self.reservations.may_have(tag.low_bits()),
            passes: &passes,
            ..self.newcomer(target.hash, at, &row)
        };
        loop {
            match self.slab.claim(&newcomer) {
                Ok(claimed) => {
                    self.note_claim(agent, &claimed);
                    // The lanes are at the floor. An instant that the caller
                    // gave stays as it is, and is answered more strictly.
                    let is_late = at.now < claimed.floor && !is_given && !broken(Fault::ClockNotReadAgain);
                    let at = if is_late { at.with(self.clock.now().max(at.now)) } else { at };
                    if let Some(charge) = self.charge_found(claimed.found, request, at) {
                        return charge;
                    }
                }
                // It has become exempt since its limit was read.
                Err(Refusal::Unwanted) => return LaneCharge::none(Ok(Verdict::EXEMPT)),
                Err(Refusal::Full) => {
                    self.note_refusal();
                    return LaneCharge::none(Err(Error::Full));
                }
                Err(Refusal::Busy) => return LaneCharge::none(Err(in_the_way(&self.memory))),
                Err(Refusal::Denied) => return LaneCharge::none(inherited.get().verdict()),
            }
        }
    }

    /// Applies `attempt` to the agent's record, or to a vacant or idle one that
    /// the agent claims. `None` if there is none. `attempt` also gets the
    /// earliest time that the lanes can have.
    pub(super) fn with_record_or_claim<A>(
        &self,
        hash: AgentHash,
        agent: Option<&[u8]>,
        now: Tick,
        attempt: impl Fn(FoundRecord<'_>, Tick) -> Option<A>,
    ) -> Option<A> {
        self.with_record(hash, |found| attempt(found, Tick::ZERO)).or_else(|| {
            // The claim keeps the record and its row for the agent.
            let claimed = self.claim_free(hash, agent, now)?;
            attempt(claimed.found, claimed.floor)
        })
    }

    /// The agent's record, or one that is vacant or idle: no agent loses its
    /// record to this. Without the agent's id, the roster does not list it.
    pub(crate) fn claim_free(&self, hash: AgentHash, agent: Option<&[u8]>, now: Tick) -> Option<Claim<'_>> {
        let row = || Some(self.row_for_claim(hash));
        let claimed = self.slab.claim(&self.newcomer(hash, self.at(now), &row)).ok()?;
        if let Some(agent) = agent {
            self.note_claim(agent, &claimed);
        }
        Some(claimed)
    }

    /// A newcomer that takes nobody's record.
    fn newcomer<'a>(&self, hash: AgentHash, at: At, row: &'a dyn Fn() -> Option<Row>) -> Newcomer<'a> {
        Newcomer {
            hash,
            row,
            now: at.now,
            quiet_since: self.quiet_since(at.now),
            clock: self.clock.now(),
            offset: at.offset,
            on_full: OnFull::Deny,
            ranking: &|_, _| None,
            reserved: &|_| false,
            passes: &|_, _| true,
        }
    }

    /// The limit of an agent without a record: its assignment's, or else that of
    /// the plan that stands in for one.
    pub(super) fn limit_without_record(&self, target: &Target<'_>) -> LaneLimit {
        let limit = |row| self.limits.lane_limit(target.lane, stand_in_row(row, target.plan), target.limit);
        self.limits.of_epoch(|epoch| self.registry.with_row(target.hash, epoch, limit))
    }

    /// The row of an agent that is about to get a record. The caller holds the
    /// locks of its neighbourhood, which keep the row in force.
    fn row_for_claim(&self, hash: AgentHash) -> Row {
        self.registry.with_row(hash, self.limits.epoch(), |row| row)
    }

    /// A record's largest share of debt over its lanes; `None` if one of them
    /// is kept. The caller holds the lock of its region, which keeps its row.
    fn debt_ratio(&self, tag: TagWord, record: Record<'_>, at: At) -> Option<u64> {
        let mut loads = self.limits.lanes().zip(self.limits.kinds()).map(|(lane, kind)| {
            record.peek_cells(self.limits.cells(lane.id()), |words| {
                let is_kept = words.iter().any(|word| kind.is_kept(*word, at));
                (!is_kept).then(|| self.limits.lane_limit(lane, tag.row(), None).load(words, at.now))
            })
        });
        loads.try_fold(0, |most, load| Some(load?.max(most)))
    }
}
