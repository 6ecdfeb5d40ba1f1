//! May the agent do this?

use super::{Limiter, Request, stand_in_row};
use crate::clock::{At, Offset, Tick};
use crate::error::Error;
use crate::lane::bucket::{self, Charge};
use crate::lane::kind::{Charged, Receipt};
use crate::lane::table::LaneLimits;
use crate::lane::{Choice, LaneWord, Outcome, Verdict};
use crate::policy::{Kind, LaneId, PlanId};
use crate::record::tag::{Row, TagWord};
use crate::record::{Attempt, Record, with_words};
use crate::slab::hash::AgentHash;
use crate::slab::{Found, Newcomer, Refusal};
use crate::sync::{Fault, broken};
use std::cell::Cell;
use std::convert::identity;

/// What is asked: by whom, of which lane.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) agent: &'a [u8],
    pub(super) lane: LaneLimits<'a>,
    pub(super) cost: u64,
    /// The plan that stands in for an assignment.
    pub(super) stand_in: Option<PlanId>,
    /// Whether the caller gave the instant; otherwise the clock was read
    /// during the call, and may be read again.
    pub(super) is_given: bool,
}

/// The answer to a check.
pub(crate) type Answer = Result<Verdict, Error>;

/// Why a check takes more than the charge of a bucket of a record that is found at the first look.
pub(super) enum Unusual {
    /// What was not made comes to no denial.
    Charge(Charge),
    /// The agent was not found there, or another thread was faster.
    Place,
}

/// The answer to a charge, and a receipt if something was charged.
pub(super) struct Made {
    pub(super) answer: Result<Verdict, Error>,
    pub(super) receipt: Option<Receipt>,
    /// The record that was charged.
    pub(super) position: usize,
}

impl Made {
    /// Nothing was charged.
    pub(super) const fn unmade(answer: Answer) -> Self {
        Self { answer, receipt: None, position: 0 }
    }
}

impl Limiter {
    /// May the agent do this once, now? Charges one token if so.
    ///
    /// # Errors
    ///
    /// See [`check_request`](Limiter::check_request).
    #[inline(always)]
    pub fn check(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<Verdict, Error> {
        self.check_request(Request::new(agent.as_ref(), lane))
    }

    /// May the agent do this? Charges what the [request](Request) costs, or
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`], [`Error::UnknownLane`],
    /// [`Error::UnknownPlan`], [`Error::ZeroCost`], [`Error::CostAboveCapacity`];
    /// [`Error::Full`] if the agent is new and no record is free for it;
    /// [`Error::WrongKind`] if the lane is the
    /// [total](crate::PolicyBuilder::total), which is charged with others alone.
    /// An error charges nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, ManualClock, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("http", "10/min").build()?;
    /// let clock = ManualClock::new();
    /// let limiter = Limiter::builder(policy).agents(10).clock(clock.clone()).build()?;
    /// let http = limiter.lane("http").expect("named above");
    /// let request = Request::new("agent-7", http).counted();
    ///
    /// assert!(limiter.check_request(request.cost(10))?.is_allowed());
    /// let denied = limiter.check_request(request)?;
    /// assert_eq!((denied.retry_after(), denied.violations_in_a_row()), (Some(Duration::from_secs(6)), 0));
    ///
    /// clock.advance(Duration::from_secs(2));
    /// assert_eq!(limiter.check_request(request)?.violations_in_a_row(), 1, "four seconds early");
    /// assert!(limiter.rate_limited("agent-7")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn check_request(&self, request: Request<'_>) -> Result<Verdict, Error> {
        self.check_told(request, identity)
    }

    /// A request with its lane's limits.
    pub(super) fn ask<'a>(&'a self, request: Request<'a>) -> Result<Ask<'a>, Error> {
        let Request { agent, lane, cost, plan, at, .. } = request;
        Ok(Ask { agent, lane: self.limits.chargeable(lane)?, cost, stand_in: plan, is_given: at.is_some() })
    }

    /// Answers a request.
    ///
    /// One comparison tells whether the lane exists, whether it is a bucket and
    /// whether anybody watches, so a bucket that is not watched pays for nothing else.
    ///
    /// The answer goes to `tell`, wherever it was found: there it may still be
    /// in registers, and what wants it elsewhere need not fetch it from memory.
    #[inline(always)]
    pub(crate) fn check_told<R>(&self, request: Request<'_>, tell: impl FnOnce(Answer) -> R) -> R {
        if request.is_counted {
            return tell(self.check_judged(&request));
        }
        let Request { agent, lane, cost, plan, at, .. } = request;
        let Some(lane) = self.limits.unwatched_lane(lane) else {
            return tell(self.check_watched(agent, lane, cost, plan, at));
        };
        self.check_bucket(Ask { agent, lane, cost, stand_in: plan, is_given: at.is_some() }, at, tell)
    }

    /// The check of a lane that is a bucket.
    ///
    /// A processor may let a reading of its counter wait for all that comes
    /// before it, and what follows for the reading. So the record is asked for
    /// before, without being waited for: in a favourite slot as soon as the hash
    /// is known, elsewhere once it is found. Its memory then comes while the
    /// check before this one, and the reading, are still under way. And no other
    /// thread has time to take the cache line away between the look at the tag
    /// and the exchange of the lane.
    #[inline(always)]
    pub(super) fn check_bucket<R>(&self, ask: Ask<'_>, now: Option<Tick>, tell: impl FnOnce(Answer) -> R) -> R {
        let Ask { agent, lane, cost, stand_in, is_given } = ask;
        let hash = match self.hash_ask(&ask) {
            Ok(hash) => hash,
            Err(error) => return tell(Err(error)),
        };
        if now.is_none() {
            self.slab.prefetch_favourite(hash);
        }
        let Some(likely) = self.slab.likely_record(hash) else {
            let now = now.unwrap_or_else(|| self.now_out_of_line());
            return tell(self.check_elsewhere(hash, agent, lane.id(), cost, stand_in, now, is_given));
        };
        let now = now.unwrap_or_else(|| {
            likely.prefetch();
            self.clock.now()
        });
        match self.check_likely(likely, hash, lane, cost, stand_in, now) {
            Ok(verdict) => tell(Ok(verdict)),
            Err(Unusual::Charge(charge)) => tell(bucket::odd_verdict(charge)),
            Err(Unusual::Place) => tell(self.check_elsewhere(hash, agent, lane.id(), cost, stand_in, now, is_given)),
        }
    }

    /// The clock's time, where it is not worth being in line.
    #[cold]
    #[inline(never)]
    fn now_out_of_line(&self) -> Tick {
        self.clock.now()
    }

    /// Checks the id and the plan, and finds the agent's place.
    #[inline(always)]
    pub(super) fn hash_ask(&self, ask: &Ask<'_>) -> Result<AgentHash, Error> {
        let hash = self.hash(ask.agent)?;
        ask.stand_in.map_or(Ok(()), |plan| self.limits.check_plan(plan))?;
        Ok(hash)
    }

    /// The check of a lane of whichever kind.
    #[inline(always)]
    pub(super) fn check_lane(&self, hash: AgentHash, ask: Ask<'_>, now: Tick) -> Answer {
        let likely = if self.limits.is_fast(ask.lane.id()) { self.slab.likely_record(hash) } else { None };
        let check = |record| self.check_likely(record, hash, ask.lane, ask.cost, ask.stand_in, now);
        match likely.ok_or(Unusual::Place).and_then(check) {
            Ok(verdict) => Ok(verdict),
            Err(Unusual::Charge(charge)) => bucket::odd_verdict(charge),
            Err(Unusual::Place) => {
                let Ask { agent, lane, cost, stand_in, is_given } = ask;
                self.check_elsewhere(hash, agent, lane.id(), cost, stand_in, now, is_given)
            }
        }
    }

    /// The check of a lane that is a bucket, in the record that is likely the agent's:
    /// the one look that the charge takes at its tag tells.
    #[inline(always)]
    pub(super) fn check_likely(
        &self,
        record: Record<'_>,
        hash: AgentHash,
        lane: LaneLimits<'_>,
        cost: u64,
        stand_in: Option<PlanId>,
        now: Tick,
    ) -> Result<Verdict, Unusual> {
        let charge = |word, row| bucket::step(word, now, lane.limit(stand_in_row(row, stand_in)), cost);
        match record.try_update_lane_of(hash.tag(), lane.id(), charge) {
            Attempt::Done(charge) => bucket::usual_verdict(charge).ok_or(Unusual::Charge(charge)),
            Attempt::Lost => {
                self.slab.count_retry();
                Err(Unusual::Place)
            }
            Attempt::Moved => Err(Unusual::Place),
        }
    }

    /// The check of an agent that is not where it is looked for first, or for
    /// which another thread was faster: one in thirty at the assumed load. And
    /// every check of a lane that is no bucket.
    ///
    /// It takes the question in pieces, or they would be put together for every check.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "see above")]
    fn check_elsewhere(
        &self,
        hash: AgentHash,
        agent: &[u8],
        lane: LaneId,
        cost: u64,
        stand_in: Option<PlanId>,
        now: Tick,
        is_given: bool,
    ) -> Answer {
        let ask = Ask { agent, lane: self.limits.lane(lane)?, cost, stand_in, is_given };
        if !self.limits.is_fast(lane) {
            return self.check_slowly(hash, ask, now);
        }
        let Some(found) = self.slab.find(hash) else {
            return self.make_for_newcomer(hash, ask, self.at(now)).answer;
        };
        match self.check_likely(found.record, hash, ask.lane, cost, stand_in, now) {
            Ok(verdict) => Ok(verdict),
            Err(Unusual::Charge(charge)) => bucket::odd_verdict(charge),
            Err(Unusual::Place) => self.check_slowly(hash, ask, now),
        }
    }

    /// The step of whichever kind the lane is.
    fn step(&self, words: &[LaneWord], row: Row, ask: Ask<'_>, at: At) -> Choice<Charged> {
        self.limits.lane_limit(ask.lane, row).step(words, at, ask.cost)
    }

    /// Charges a record. `None` if it is no longer the agent's.
    fn charge(&self, found: Found<'_>, ask: Ask<'_>, at: At) -> Option<Made> {
        let row = stand_in_row(found.tag.row(), ask.stand_in);
        let (kind, cells) = (self.limits.kinds()[ask.lane.id().index()], self.limits.cells(ask.lane.id()));
        let step = |words: &[LaneWord]| {
            let choice = self.step(words, row, ask, at);
            let cell = choice.cell;
            let receipt = choice.outcome.next.map(|next| kind.receipt(cell, words[cell], next, at.now));
            choice.map(|charged| (charged, receipt))
        };
        let (charged, receipt) = found.record.update_lane(found.tag, cells, step, || self.slab.count_retry())?;
        Some(Made { answer: charged.verdict(), receipt, position: found.position })
    }

    /// The check of an agent that was not found open: perhaps somebody is about
    /// to evict it, perhaps it has no record yet. And every check of a lane that
    /// is no bucket.
    ///
    /// The loop ends when the agent keeps a record for one round; each further
    /// one is an eviction or a change of row that was completed meanwhile.
    #[inline(never)]
    fn check_slowly(&self, hash: AgentHash, ask: Ask<'_>, now: Tick) -> Result<Verdict, Error> {
        self.make_both(hash, ask, now).answer()
    }

    /// Charges a lane of one word of a record that is found open: most lanes
    /// have one, and most records are. `None` if not, or if another thread was faster.
    fn make_simply(&self, hash: AgentHash, ask: Ask<'_>, now: Tick) -> Option<Made> {
        let (lane, kind) = (ask.lane.id(), self.limits.kinds()[ask.lane.id().index()]);
        if let Kind::Exact { .. } | Kind::Window(_) = kind {
            return None;
        }
        let (Found { record, tag, position }, row) = self.slab.find_open(hash)?;
        let row = stand_in_row(row, ask.stand_in);
        let attempt = if kind == Kind::Bucket {
            record.try_update_lane(tag, lane, |word| {
                let Outcome { next, answer } = bucket::step(word, now, ask.lane.limit(row), ask.cost);
                Outcome { next, answer: (Charged::Bucket(answer), (word, next)) }
            })
        } else {
            // Only budgets ask for the date.
            let at = if let Kind::Budget(_) = kind { self.at(now) } else { At { now, offset: Offset::default() } };
            record.try_update_lane(tag, lane, |word| {
                let Outcome { next, answer } = self.step(&[word], row, ask, at).outcome;
                Outcome { next, answer: (answer, (word, next)) }
            })
        };
        match attempt {
            Attempt::Done((charged, (word, next))) => {
                let receipt = next.map(|next| kind.receipt(0, word, next, now));
                Some(Made { answer: charged.verdict(), receipt, position })
            }
            Attempt::Lost => {
                self.slab.count_retry();
                None
            }
            Attempt::Moved => None,
        }
    }

    /// As [`check_slowly`](Self::check_slowly), with a receipt for what was
    /// charged, and without the total.
    pub(super) fn make(&self, hash: AgentHash, ask: Ask<'_>, now: Tick) -> Made {
        if let Some(made) = self.make_simply(hash, ask, now) {
            return made;
        }
        let at = self.at(now);
        while let Some(found) = self.slab.find(hash) {
            if let Some(made) = self.charge(found, ask, at) {
                return made;
            }
        }
        self.make_for_newcomer(hash, ask, at)
    }

    /// The charge of an agent that had no record a moment ago.
    ///
    /// The loop ends with its first round: a claim keeps the record the agent's
    /// until it is charged.
    fn make_for_newcomer(&self, hash: AgentHash, ask: Ask<'_>, at: At) -> Made {
        let unmade = Made::unmade;
        let (now, cells) = (at.now, self.limits.cells(ask.lane.id()));
        let limit = self.limit_of_stranger(hash, ask.stand_in, ask.lane);
        let fresh = with_words(cells.count, |words| limit.step(words, at, ask.cost).outcome);
        if fresh.next.is_none() || limit.is_exempt() {
            // Denied even when full, or exempt: not worth a record.
            return unmade(fresh.answer.verdict());
        }
        // The answer is made with the question: once the locks are released,
        // the record may have been filled, and the row be another agent's.
        let inherited = Cell::new(fresh.answer);
        let passes_lane = |row, record: Record<'_>, ask: Ask<'_>| {
            let step = |words: &[LaneWord]| self.step(words, row, ask, at);
            let Outcome { next, answer } = record.peek_cells(self.limits.cells(ask.lane.id()), step).outcome;
            inherited.set(answer);
            next.is_some()
        };
        let total = self.limits.total_with(ask.lane.id());
        let passes = |row, record: Record<'_>| {
            let row = stand_in_row(row, ask.stand_in);
            let is_unlimited = |total| self.limits.lane_limit(total, row).is_exempt();
            let passes_total = |lane| is_unlimited(lane) || passes_lane(row, record, Ask { lane, ..ask });
            // The total is charged next, and must not be found empty after somebody has lost a record.
            passes_lane(row, record, ask) && total.is_none_or(passes_total)
        };
        let is_first = Cell::new(true);
        let may_have = |tag: TagWord| {
            if self.reservations.may_have(tag.low_bits()) && is_first.replace(false) {
                // What has expired keeps no record.
                self.reservations.close_expired(self.clock.now());
            }
            self.reservations.may_have(tag.low_bits())
        };
        let ranking = |tag, record: Record<'_>| if may_have(tag) { None } else { self.debt_ratio(tag, record, at) };
        let newcomer = Newcomer {
            hash,
            row: &|| {
                let row = self.row_of_newcomer(hash);
                (row != Row::EXEMPT || broken(Fault::ExemptClaims)).then_some(row)
            },
            now,
            quiet_since: self.quiet_since(now),
            clock: self.clock.now(),
            offset: at.offset,
            on_full: self.on_full,
            ranking: &ranking,
            reserved: &|tag| self.reservations.may_have(tag.low_bits()),
            passes: &passes,
        };
        loop {
            match self.slab.claim(&newcomer) {
                Ok(claimed) => {
                    self.note_claim(ask.agent, &claimed);
                    // The lanes stand at the floor. An instant that the caller
                    // gave meets them as it is, and is answered more strictly.
                    let is_late = now < claimed.floor && !ask.is_given && !broken(Fault::ClockNotReadAgain);
                    let at = if is_late { at.with(self.clock.now().max(now)) } else { at };
                    if let Some(made) = self.charge(claimed.found, ask, at) {
                        return made;
                    }
                }
                // It has become exempt since it was asked for its limit.
                Err(Refusal::Unwanted) => return unmade(Ok(Verdict::EXEMPT)),
                Err(Refusal::Full) => {
                    self.note_refusal();
                    return unmade(Err(Error::Full));
                }
                Err(Refusal::Denied) => return unmade(inherited.get().verdict()),
            }
        }
    }

    /// A record's largest share of debt over its lanes; `None` if one of them
    /// is kept. The caller holds the lock of its region, which keeps its row.
    fn debt_ratio(&self, tag: TagWord, record: Record<'_>, at: At) -> Option<u64> {
        let mut loads = self.limits.lanes().zip(self.limits.kinds()).map(|(lane, kind)| {
            record.peek_cells(self.limits.cells(lane.id()), |words| {
                let is_kept = words.iter().any(|word| kind.is_kept(*word, at));
                (!is_kept).then(|| self.limits.lane_limit(lane, tag.row()).load(words, at.now))
            })
        });
        loads.try_fold(0, |most, load| Some(load?.max(most)))
    }
}
