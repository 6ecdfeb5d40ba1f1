//! One loop that applies a step to an agent's record.
//!
//! A step is a pure function on the words of a lane: a charge, a refund, a
//! reset, a look. [`with_record`](Engine::with_record) finds the agent's
//! record and tries the step on it until it holds. The other functions choose
//! the step, and what happens if the agent has no record:
//!
//! | | without a record |
//! |---|---|
//! | [`charge_lane`](Engine::charge_lane) | the agent claims one |
//! | [`update`](Engine::update) | `None` |
//! | [`apply`](Engine::apply) | the step is made on fresh words, and forgotten |
//! | [`impose`](Engine::impose) | the agent claims a vacant or idle one, if there is any |

use super::request::{ResolvedRequest, Target};
use super::{Engine, stand_in_row};
use crate::clock::{At, Offset, Tick};
use crate::error::Error;
use crate::lane::held::{self, HoldMark};
use crate::lane::kind::{Charged, LaneLimit, Receipt};
use crate::lane::{Choice, LaneWord, Outcome, Verdict, bucket};
use crate::policy::{Cells, Kind, LaneId, PlanId};
use crate::record::with_words;
use crate::slab::FoundRecord;
use crate::slab::hash::AgentHash;
use std::cell::Cell;

/// The answer to a check.
pub(crate) type Answer = Result<Verdict, Error>;

/// Which of a lane's words was replaced, and by what.
type Change = (usize, LaneWord, LaneWord);

/// The result of charging one lane.
pub(super) struct LaneCharge {
    pub(super) answer: Answer,
    /// `None` if nothing was charged.
    pub(super) receipt: Option<Receipt>,
}

impl LaneCharge {
    /// Nothing was charged.
    pub(super) const fn none(answer: Answer) -> Self {
        Self { answer, receipt: None }
    }
}

impl Engine {
    /// Tries `attempt` on the agent's record until it succeeds. `None` if the
    /// agent has no record.
    ///
    /// The loop ends: an attempt on a record fails only if its tag has changed
    /// since it was found. So each further round is an eviction or a change of
    /// row that was completed meanwhile, and one round in which the agent keeps
    /// its record is the last.
    #[inline]
    pub(super) fn with_record<A>(&self, hash: AgentHash, attempt: impl Fn(FoundRecord<'_>) -> Option<A>) -> Option<A> {
        while let Some(found) = self.slab.find(hash) {
            if let Some(answer) = attempt(found) {
                return Some(answer);
            }
        }
        None
    }

    /// Applies a step to a lane of a record, by the limits that its tag names.
    /// `None` if the tag has changed.
    fn update_found<A>(
        &self,
        found: FoundRecord<'_>,
        target: &Target<'_>,
        at: At,
        step: impl Fn(LaneLimit, &[LaneWord], At) -> Choice<A>,
    ) -> Option<A> {
        let row = stand_in_row(found.tag.row(), target.plan);
        let step = |words: &[LaneWord]| step(self.limits.lane_limit(target.lane, row, target.limit), words, at);
        let cells = self.limits.cells(target.lane.id());
        found.record.update_lane(found.tag, cells, step, || self.slab.count_retry())
    }

    /// Applies a step to the agent's lane. `None` if the agent has no record.
    pub(super) fn update<A>(
        &self,
        target: &Target<'_>,
        step: impl Fn(LaneLimit, &[LaneWord], At) -> Choice<A>,
    ) -> Option<A> {
        let at = self.instant(target);
        self.with_record(target.hash, |found| self.update_found(found, target, at, &step))
    }

    /// Applies a step to a lane of the record that was charged, unless the agent
    /// has another one by now, or none.
    pub(super) fn update_charged(
        &self,
        hash: AgentHash,
        lane: LaneId,
        position: usize,
        step: impl Fn(&[LaneWord]) -> Choice<()>,
    ) {
        let cells = self.limits.cells(lane);
        self.with_record(hash, |found| match found.position == position {
            true => found.record.update_lane(found.tag, cells, &step, || self.slab.count_retry()),
            false => Some(()),
        });
    }

    /// Applies a step to the agent's lane. An agent without a record has fresh
    /// lanes at the target's floor, and nothing to change.
    pub(super) fn apply<A>(&self, target: &Target<'_>, step: impl Fn(LaneLimit, &[LaneWord], At) -> Choice<A>) -> A {
        let at = self.instant(target);
        let of_record = self.with_record(target.hash, |found| self.update_found(found, target, at, &step));
        of_record.unwrap_or_else(|| {
            let (limit, kind) = (self.limit_without_record(target), self.kind(target.lane.id()));
            with_words(self.limits.cells(target.lane.id()).count, |fresh| {
                if target.floor > target.now {
                    fresh.iter_mut().for_each(|word| *word = kind.emptied(*word, at.with(target.floor)));
                }
                step(limit, fresh, at).outcome.answer
            })
        })
    }

    /// Applies a step that must not be lost: an agent without a record gets one
    /// for it. `None` if no record is free.
    pub(super) fn impose<A>(
        &self,
        target: &Target<'_>,
        step: impl Fn(LaneLimit, &[LaneWord], At) -> Choice<A>,
    ) -> Option<A> {
        let at = self.instant(target);
        self.with_record_or_claim(target.hash, None, target.now, |found, floor| {
            self.update_found(found, target, at.with(at.now.max(floor)), &step)
        })
    }

    /// The target's instant, with its date if the lane uses the calendar.
    fn instant(&self, target: &Target<'_>) -> At {
        match self.kind(target.lane.id()).uses_calendar() {
            true => self.at(target.now),
            false => At { now: target.now, offset: Offset::default() },
        }
    }

    pub(super) fn kind(&self, lane: LaneId) -> Kind {
        self.limits.kinds()[lane.index()]
    }

    /// Charges a lane of any kind, and its total.
    #[inline(always)]
    pub(super) fn charge(&self, request: &ResolvedRequest<'_>) -> Answer {
        let ResolvedRequest { agent, target: Target { hash, lane, plan, now, .. }, cost, is_given, .. } = *request;
        let elsewhere = || self.find_and_charge(hash, agent, lane.id(), cost, plan, now, is_given);
        let likely = if self.limits.is_fast(lane.id()) { self.slab.likely_record(hash) } else { None };
        match likely {
            Some(record) => self.charge_likely(record, hash, lane, cost, plan, now, std::convert::identity, elsewhere),
            #[cfg(feature = "cluster")]
            None => {
                self.charge_from_credit(hash, lane, cost, plan, now).map_or_else(|| self.charge_general(request), Ok)
            }
            #[cfg(not(feature = "cluster"))]
            None => self.charge_general(request),
        }
    }

    /// Charges a lane of any kind, and its total: finds the agent's record
    /// wherever it is, or claims one. See [`fast`](super::fast) for why it takes
    /// its arguments one by one.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "see the module `fast`")]
    pub(super) fn find_and_charge(
        &self,
        hash: AgentHash,
        agent: &[u8],
        lane: LaneId,
        cost: u64,
        plan: Option<PlanId>,
        now: Tick,
        is_given: bool,
    ) -> Answer {
        let target = Target::new(hash, self.limits.lane(lane)?, plan, now);
        self.charge_general(&ResolvedRequest { agent, target, cost, is_given, mark: None })
    }

    /// The same for a request that is in memory.
    #[inline(never)]
    fn charge_general(&self, request: &ResolvedRequest<'_>) -> Answer {
        match self.limits.total_with(request.lane()) {
            Some(_) => self.charge_both(request).answer(),
            None => self.charge_alone(request),
        }
    }

    /// Charges a lane that no total goes with, without a receipt.
    fn charge_alone(&self, request: &ResolvedRequest<'_>) -> Answer {
        if let Some(holds) = self.holds_of(request.lane()) {
            return self.hold(holds, request).answer;
        }
        let at = self.instant(&request.target);
        let answer =
            self.with_record(request.target.hash, |found| self.answer_found(found, request, at, &Cell::new(None)));
        answer.unwrap_or_else(|| self.charge_newcomer(request).answer)
    }

    /// Charges a lane without its total, with a receipt.
    pub(super) fn charge_lane(&self, request: &ResolvedRequest<'_>) -> LaneCharge {
        if let Some(holds) = self.holds_of(request.lane()) {
            return self.hold(holds, request);
        }
        let at = self.instant(&request.target);
        let charged = self.with_record(request.target.hash, |found| self.charge_found(found, request, at));
        charged.unwrap_or_else(|| self.charge_newcomer(request))
    }

    /// Charges a lane of a record, with a receipt. `None` if its tag has changed.
    pub(super) fn charge_found(
        &self,
        found: FoundRecord<'_>,
        request: &ResolvedRequest<'_>,
        at: At,
    ) -> Option<LaneCharge> {
        let (kind, change) = (self.kind(request.lane()), Cell::new(None));
        let answer = self.answer_found(found, request, at, &change)?;
        let receipt = |(cell, before, next)| kind.receipt(found.position, cell, before, next, at.now);
        Some(LaneCharge { answer, receipt: change.get().map(receipt) })
    }

    /// Counts the answer of a lane that machines share, and asks the store if the charge has found that it is time.
    #[inline]
    pub(super) fn note_clustered(&self, charged: &Charged, request: &ResolvedRequest<'_>) {
        #[cfg(feature = "cluster")]
        if let Charged::Clustered { asks, verdict: Ok(verdict) } = charged {
            self.count_source(request.lane(), verdict.source());
            if *asks {
                self.ask(request, verdict.is_allowed());
            }
        }
        #[cfg(not(feature = "cluster"))]
        let _ = (charged, request);
    }

    /// The next word of a lane, with its mark if it is a held one of a shared slab.
    #[inline(always)]
    fn marked(&self, mark: Option<HoldMark>, word: LaneWord, next: Option<LaneWord>) -> Option<LaneWord> {
        let Some(mark) = mark else { return next };
        next.map(|next| {
            self.slab.holds().into_iter().for_each(|holds| holds.confirm(word));
            held::marked(next, mark)
        })
    }

    /// Charges a lane of a record, and notes which word was replaced by which.
    /// `None` if its tag has changed.
    ///
    /// Answers and changes go straight to where they are read: each copy of
    /// what was just written costs a check some nanoseconds.
    #[inline(always)]
    fn answer_found(
        &self,
        found: FoundRecord<'_>,
        request: &ResolvedRequest<'_>,
        at: At,
        change: &Cell<Option<Change>>,
    ) -> Option<Answer> {
        let FoundRecord { record, tag, .. } = found;
        let ResolvedRequest { target: Target { lane, plan, limit: given, .. }, cost, .. } = *request;
        let (kind, row) = (self.kind(lane.id()), stand_in_row(tag.row(), plan));
        let retried = || self.slab.count_retry();
        let limit = || self.limits.lane_limit(lane, row, given);
        // Most lanes have one word, and most of those are buckets.
        match (kind, self.limits.cells(lane.id())) {
            (Kind::Bucket, _) => {
                let charge = record.update_word(tag, lane.id(), retried, |word| {
                    let outcome = bucket::step(word, at.now, lane.limit(row), cost);
                    change.set(outcome.next.map(|next| (0, word, next)));
                    outcome
                })?;
                Some(Charged::Bucket(charge).verdict())
            }
            (_, Cells { count: 1, .. }) => {
                let charged = Cell::new(None);
                record.update_word(tag, lane.id(), retried, |word| {
                    let Outcome { next, answer } = limit().step(&[word], at, cost).outcome;
                    let next = self.marked(request.mark, word, next);
                    change.set(next.map(|next| (0, word, next)));
                    charged.set(Some(answer));
                    Outcome { next, answer: () }
                })?;
                charged.into_inner().map(Charged::verdict)
            }
            (_, cells) => {
                let step = |words: &[LaneWord]| {
                    let choice = limit().step(words, at, cost);
                    change.set(choice.outcome.next.map(|next| (choice.cell, words[choice.cell], next)));
                    choice
                };
                let charged = record.update_lane(tag, cells, step, retried)?;
                self.note_clustered(&charged, request);
                Some(charged.verdict())
            }
        }
    }
}
