//! May the agent do this?

use super::{Limiter, stand_in_row};
use crate::bounds::{BATCH_MAX, EXACT_MAX};
use crate::clock::{At, Tick};
use crate::error::Error;
use crate::lane::bucket::{self, Charge};
use crate::lane::kind::{Charged, Receipt};
use crate::lane::table::LaneLimits;
use crate::lane::{Choice, LaneWord, Outcome, Verdict};
use crate::policy::{LaneId, PlanId};
use crate::record::tag::{Row, TagWord};
use crate::record::{Attempt, Record};
use crate::slab::hash::AgentHash;
use crate::slab::{Found, Newcomer, OnFull, Refusal};
use std::cell::Cell;

/// How far a batch looks ahead: enough requests to keep the memory busy, few
/// enough that their records stay in the first cache.
pub(crate) const AHEAD: usize = 32;

/// One request of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Who asks.
    pub agent: &'a [u8],
    /// For what.
    pub lane: LaneId,
    /// How much.
    pub cost: u64,
}

/// What is asked: by whom, of which lane.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) agent: &'a [u8],
    pub(super) lane: LaneLimits<'a>,
    pub(super) cost: u64,
    /// The plan that stands in for an assignment.
    pub(super) stand_in: Option<PlanId>,
}

/// The answer to a charge, and a receipt if something was charged.
pub(super) struct Made {
    pub(super) answer: Result<Verdict, Error>,
    pub(super) receipt: Option<Receipt>,
}

impl Limiter {
    /// May the agent do this once, now? Charges one token if so.
    ///
    /// # Errors
    ///
    /// See [`check_at`](Limiter::check_at).
    #[inline(always)]
    pub fn check(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<Verdict, Error> {
        self.check_with(agent.as_ref(), lane, 1, None, None)
    }

    /// May the agent spend `cost` tokens now? Charges all of them or none.
    ///
    /// # Errors
    ///
    /// See [`check_at`](Limiter::check_at).
    #[inline(always)]
    pub fn check_cost(&self, agent: impl AsRef<[u8]>, lane: LaneId, cost: u64) -> Result<Verdict, Error> {
        self.check_with(agent.as_ref(), lane, cost, None, None)
    }

    /// May the agent spend `cost` tokens at `now`?
    ///
    /// For callers that have the time at hand, and for tests. `now` counts on
    /// this limiter's clock ([`Limiter::now`]). An older one than another
    /// caller's only makes the answer stricter; one that lies ahead of the
    /// clock lets the agent borrow from its future, and others look idle.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`], [`Error::UnknownLane`],
    /// [`Error::ZeroCost`], [`Error::CostAboveCapacity`]; [`Error::Full`] if
    /// the agent is new and no record is free for it. An error charges nothing.
    #[inline(always)]
    pub fn check_at(&self, agent: impl AsRef<[u8]>, lane: LaneId, cost: u64, now: Tick) -> Result<Verdict, Error> {
        self.check_with(agent.as_ref(), lane, cost, None, Some(now))
    }

    /// Answers a batch as if its requests were checked one by one, in order,
    /// at one reading of the clock.
    ///
    /// A request that cannot be answered gets its own error and the others
    /// proceed. `answers` takes one answer for each request.
    ///
    /// # Errors
    ///
    /// [`Error::BatchSize`] if the two slices differ in length or are longer
    /// than [`BATCH_MAX`]; then nothing was charged.
    ///
    /// ```
    /// use tollgate::{Error, Limit, Limiter, ManualClock, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("http", Limit::per_minute(1)).build()?;
    /// let limiter = Limiter::builder(policy).agents(10).clock(ManualClock::new()).build()?;
    /// let lane = limiter.lane("http").expect("named above");
    /// let ask = |agent: &'static str| Request { agent: agent.as_bytes(), lane, cost: 1 };
    ///
    /// let mut answers = [Err(Error::EmptyId); 4];
    /// limiter.check_many(&[ask("a"), ask(""), ask("a"), ask("b")], &mut answers)?;
    /// let allowed = answers.map(|answer| answer.map(|verdict| verdict.is_allowed()));
    /// assert_eq!(allowed, [Ok(true), Err(Error::EmptyId), Ok(false), Ok(true)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_many(&self, requests: &[Request<'_>], answers: &mut [Result<Verdict, Error>]) -> Result<(), Error> {
        self.check_many_at(requests, answers, self.clock.now())
    }

    /// Answers a batch at `now`; see [`check_many`](Limiter::check_many).
    ///
    /// # Errors
    ///
    /// As [`check_many`](Limiter::check_many).
    pub fn check_many_at(
        &self,
        requests: &[Request<'_>],
        answers: &mut [Result<Verdict, Error>],
        now: Tick,
    ) -> Result<(), Error> {
        if requests.len() != answers.len() || requests.len() > BATCH_MAX {
            return Err(Error::BatchSize { requests: requests.len(), answers: answers.len() });
        }
        for (requests, answers) in requests.chunks(AHEAD).zip(answers.chunks_mut(AHEAD)) {
            self.check_chunk(requests.iter().copied(), answers, now, |place, answer| *place = answer);
        }
        Ok(())
    }

    /// May the agent spend `cost` tokens now, under this plan if it has no
    /// assignment of its own?
    ///
    /// For what is known only with the request, such as how the caller has
    /// authenticated: the plans `jwt` and `unauthenticated`, say. Nothing is
    /// remembered of the plan; the agent's lanes are the same under each.
    ///
    /// # Errors
    ///
    /// As [`check_at`](Limiter::check_at), and [`Error::UnknownPlan`].
    ///
    /// ```
    /// use tollgate::{Limiter, Policy};
    ///
    /// let policy = Policy::builder().lane("http", "10/s").plan("jwt", [("http", "20/s burst 100")]).build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).build()?;
    /// let (http, jwt) = (limiter.lane("http").expect("named above"), limiter.plan("jwt").expect("named above"));
    /// assert_eq!(limiter.check_as("user:42", jwt, http, 1)?.capacity(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn check_as(&self, agent: impl AsRef<[u8]>, plan: PlanId, lane: LaneId, cost: u64) -> Result<Verdict, Error> {
        self.check_with(agent.as_ref(), lane, cost, Some(plan), None)
    }

    /// As [`check_as`](Limiter::check_as), at `now`.
    ///
    /// # Errors
    ///
    /// As [`check_as`](Limiter::check_as).
    #[inline(always)]
    pub fn check_as_at(
        &self,
        agent: impl AsRef<[u8]>,
        plan: PlanId,
        lane: LaneId,
        cost: u64,
        now: Tick,
    ) -> Result<Verdict, Error> {
        self.check_with(agent.as_ref(), lane, cost, Some(plan), Some(now))
    }

    /// Checks at `now`, or else at the clock's time. That is read before the
    /// record is looked for: a reading takes as long as the rest of a check, and
    /// the processor goes on meanwhile; and no other thread can take the cache
    /// line away between the look at the tag and the exchange of the lane.
    ///
    /// One comparison tells whether the lane exists, whether it is a bucket and
    /// whether anybody watches, so a bucket that is not watched pays for nothing else.
    #[inline(always)]
    fn check_with(
        &self,
        agent: &[u8],
        lane: LaneId,
        cost: u64,
        stand_in: Option<PlanId>,
        now: Option<Tick>,
    ) -> Result<Verdict, Error> {
        let Some(lane) = self.limits.unwatched_lane(lane) else {
            return self.check_watched(agent, lane, cost, stand_in, now);
        };
        let ask = Ask { agent, lane, cost, stand_in };
        self.check_hashed(self.hash_ask(&ask)?, ask, now)
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
    pub(super) fn check_lane(&self, hash: AgentHash, ask: Ask<'_>, now: Option<Tick>) -> Result<Verdict, Error> {
        if self.limits.is_fast(ask.lane.id()) {
            return self.check_hashed(hash, ask, now);
        }
        self.check_slowly(hash, ask, now.unwrap_or_else(|| self.clock.now()))
    }

    /// The check of a lane that is a bucket.
    #[inline(always)]
    fn check_hashed(&self, hash: AgentHash, ask: Ask<'_>, now: Option<Tick>) -> Result<Verdict, Error> {
        let now = now.unwrap_or_else(|| self.clock.now());
        match self.slab.find_at_home(hash) {
            Some(found) => self.charge_bucket(found, ask, now),
            None => self.check_elsewhere(hash, ask.agent, ask.lane.id(), ask.cost, ask.stand_in, now),
        }
    }

    /// The check of a lane that is a bucket, of an agent that is not where it
    /// is looked for first: one in fifteen at the assumed load. It takes the
    /// question in pieces, or they would be put together for every check.
    #[inline(never)]
    fn check_elsewhere(
        &self,
        hash: AgentHash,
        agent: &[u8],
        lane: LaneId,
        cost: u64,
        stand_in: Option<PlanId>,
        now: Tick,
    ) -> Result<Verdict, Error> {
        let ask = Ask { agent, lane: self.limits.lane(lane)?, cost, stand_in };
        match self.slab.find_open(hash) {
            Some(found) => self.charge_bucket(found, ask, now),
            None => self.check_slowly(hash, ask, now),
        }
    }

    /// Charges a bucket of a record that was found open.
    #[inline(always)]
    fn charge_bucket(
        &self,
        (record, tag, row): (Record<'_>, TagWord, Row),
        ask: Ask<'_>,
        now: Tick,
    ) -> Result<Verdict, Error> {
        let row = stand_in_row(row, ask.stand_in);
        match record.try_update_lane(tag, ask.lane.id(), |word| self.bucket_step(word, row, ask, now)) {
            Attempt::Done(charge) => bucket::verdict(charge),
            Attempt::Lost => self.check_again(ask.agent, ask.lane.id(), ask.cost, ask.stand_in, now, true),
            Attempt::Moved => self.check_again(ask.agent, ask.lane.id(), ask.cost, ask.stand_in, now, false),
        }
    }

    #[inline(always)]
    fn bucket_step(&self, word: LaneWord, row: Row, ask: Ask<'_>, now: Tick) -> Outcome<Charge> {
        bucket::step(word, now, ask.lane.limit(row), ask.cost)
    }

    /// The step of whichever kind the lane is.
    fn step(&self, words: &[LaneWord], row: Row, ask: Ask<'_>, at: At) -> Choice<Charged> {
        self.limits.lane_limit(ask.lane, row).step(words, at, ask.cost)
    }

    /// The check of an agent for which another thread was faster, by an
    /// exchange of the lane (`lost`) or of the tag. It starts from the
    /// arguments: handing on what was found from them would cost registers
    /// where nobody was faster.
    #[cold]
    #[inline(never)]
    fn check_again(
        &self,
        agent: &[u8],
        lane: LaneId,
        cost: u64,
        stand_in: Option<PlanId>,
        now: Tick,
        lost: bool,
    ) -> Result<Verdict, Error> {
        if lost {
            self.slab.count_retry();
        }
        let ask = Ask { agent, lane: self.limits.lane(lane)?, cost, stand_in };
        self.check_slowly(self.hash(agent)?, ask, now)
    }

    /// Checks up to [`AHEAD`] requests in three rounds, each of which asks for
    /// the cache lines of the next, so that cache misses overlap: the hashes,
    /// the places, the charges.
    ///
    /// Requests are read and answers written where the caller has them, in
    /// whatever form: another language's too.
    #[inline(always)]
    pub(crate) fn check_chunk<'a, P>(
        &self,
        requests: impl ExactSizeIterator<Item = Request<'a>> + Clone,
        places: impl IntoIterator<Item = P>,
        now: Tick,
        answer: impl Fn(P, Result<Verdict, Error>),
    ) {
        let mut hashes = [AgentHash::NOBODY; AHEAD];
        for (request, hash) in requests.clone().zip(&mut hashes) {
            if let Ok(known) = self.limits.lane(request.lane).and_then(|_| self.hash(request.agent)) {
                self.slab.prefetch_group(known);
                *hash = known;
            }
        }
        for hash in hashes.iter().take(requests.len()) {
            self.slab.prefetch_record(*hash);
        }
        for ((request, hash), place) in requests.zip(hashes).zip(places) {
            let Request { agent, lane, cost } = request;
            let told = match (hash != AgentHash::NOBODY, self.limits.lane(lane)) {
                (true, Ok(lane)) => self.check_lane(hash, Ask { agent, lane, cost, stand_in: None }, Some(now)),
                _ => self.check_again(agent, lane, cost, None, now, false), // It finds what is wrong.
            };
            self.note_answer(agent, lane, &told);
            answer(place, told);
        }
    }

    /// Charges a record. `None` if it is no longer the agent's.
    fn charge(&self, found: Found<'_>, ask: Ask<'_>, at: At) -> Option<Made> {
        let row = stand_in_row(found.tag.row(), ask.stand_in);
        let (kind, cells) = (self.limits.kinds()[ask.lane.id().index()], self.limits.cells(ask.lane.id()));
        let step = |words: &[LaneWord]| {
            let choice = self.step(words, row, ask, at);
            let receipt = choice.outcome.next.map(|next| kind.receipt(next, at.now));
            choice.map(|charged| (charged, receipt))
        };
        let (charged, receipt) = found.record.update_lane(found.tag, cells, step, || self.slab.count_retry())?;
        Some(Made { answer: charged.verdict(), receipt })
    }

    /// The check of an agent that was not found open: perhaps somebody is about
    /// to evict it, perhaps it has no record yet. And every check of a lane that
    /// is no bucket.
    ///
    /// The loop ends when the agent keeps a record for one round; each further
    /// one is an eviction or a change of row that was completed meanwhile.
    #[inline(never)]
    fn check_slowly(&self, hash: AgentHash, ask: Ask<'_>, now: Tick) -> Result<Verdict, Error> {
        self.make(hash, ask, now).answer
    }

    /// As [`check_slowly`](Self::check_slowly), with a receipt for what was charged.
    pub(super) fn make(&self, hash: AgentHash, ask: Ask<'_>, now: Tick) -> Made {
        let unmade = |answer| Made { answer, receipt: None };
        let (at, cells) = (self.at(now), self.limits.cells(ask.lane.id()));
        while let Some(found) = self.slab.find(hash) {
            if let Some(made) = self.charge(found, ask, at) {
                return made;
            }
        }
        let limit = self.limit_of_stranger(hash, ask.stand_in, ask.lane);
        let words = [LaneWord::default(); EXACT_MAX as usize];
        let fresh = limit.step(&words[..cells.count], at, ask.cost).outcome;
        if fresh.next.is_none() && !limit.is_exempt() {
            return unmade(fresh.answer.verdict()); // Denied even when full: not worth a record.
        }
        // The answer is made with the question: once the locks are released,
        // the record may have been filled, and the row be another agent's.
        let inherited = Cell::new(fresh.answer);
        let passes = |row, record: Record<'_>| {
            let step = |words: &[LaneWord]| self.step(words, stand_in_row(row, ask.stand_in), ask, at);
            let Outcome { next, answer } = record.peek_cells(cells, step).outcome;
            inherited.set(answer);
            next.is_some()
        };
        let ranking = |tag, record: Record<'_>| self.debt_ratio(tag, record, at);
        let newcomer = Newcomer {
            hash,
            row: &|| self.row_of_newcomer(hash),
            now,
            quiet_since: self.quiet_since(now),
            clock: self.clock.now(),
            offset: at.offset,
            // Nobody loses a record for an agent that will not use its lanes.
            on_full: if limit.is_exempt() { OnFull::Deny } else { self.on_full },
            ranking: &ranking,
            reserved: &|tag| self.reservations.may_have(tag.low_bits()),
            passes: &passes,
        };
        loop {
            match self.slab.claim(&newcomer) {
                Ok(claimed) => {
                    self.note_claim(ask.agent, &claimed);
                    // The claim keeps the record the agent's, so the first round ends this.
                    if let Some(made) = self.charge(claimed.found, ask, at.with(now.max(claimed.floor))) {
                        return made;
                    }
                }
                Err(Refusal::Full) if limit.is_exempt() => return unmade(fresh.answer.verdict()),
                Err(Refusal::Full) => {
                    self.note_refusal();
                    return unmade(Err(Error::Full));
                }
                Err(Refusal::Denied) => return unmade(inherited.get().verdict()),
            }
        }
    }

    /// A record's largest share of debt over its lanes; `None` if one of them
    /// is kept, or the agent may have a reservation. The caller holds the lock of its region, which keeps its row.
    fn debt_ratio(&self, tag: TagWord, record: Record<'_>, at: At) -> Option<u64> {
        if self.reservations.may_have(tag.low_bits()) {
            return None;
        }
        let mut loads = self.limits.lanes().zip(self.limits.kinds()).map(|(lane, kind)| {
            record.peek_cells(self.limits.cells(lane.id()), |words| {
                let is_kept = words.iter().any(|word| kind.is_kept(*word, at));
                (!is_kept).then(|| self.limits.lane_limit(lane, tag.row()).load(words, at.now))
            })
        });
        loads.try_fold(0, |most, load| Some(load?.max(most)))
    }
}
