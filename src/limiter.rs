//! The limiter: finds the agent's record, reads the clock, charges the lane.

use crate::bounds::{AGENTS_DEFAULT, AGENTS_MAX, BATCH_MAX, ID_BYTES_MAX};
use crate::clock::{Clock, Tick};
use crate::error::{BuildError, Error};
use crate::lane::bucket::{self, BucketLimit};
use crate::lane::table::LimitTable;
use crate::lane::{LaneWord, Outcome, Status, Verdict};
use crate::policy::{LaneId, Policy};
use crate::record::tag::{PlanId, TagWord};
use crate::record::{Attempt, Record};
use crate::slab::hash::{AgentHash, HashKey, IdHash};
use crate::slab::{Found, Geometry, Newcomer, OnFull, Refusal, Slab};
use std::fmt;
use std::time::Duration;

/// An exact rate limiter for a fixed number of agents.
///
/// Share it by reference or in an `Arc`: every method takes `&self`, and any
/// number of threads may call any of them at once. A check of a known agent
/// takes no lock, allocates nothing and enters the kernel for nothing.
///
/// ```
/// use tollgate::{Limit, Limiter, Policy};
///
/// let policy = Policy::builder()
///     .lane("ws/light", Limit::per_minute(120))
///     .lane("ws/heavy", Limit::per_minute(10))
///     .build()?;
/// let limiter = Limiter::builder(policy).agents(100_000).build()?;
///
/// let heavy = limiter.lane("ws/heavy").expect("named above");
/// let verdict = limiter.check("agent-7", heavy)?;
/// assert!(verdict.is_allowed());
/// assert_eq!(verdict.remaining(), 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Limiter {
    slab: Slab,
    limits: LimitTable,
    clock: Clock,
    on_full: OnFull,
    policy: Policy,
}

/// How far a batch looks ahead: enough requests to keep the memory busy, few
/// enough that their records stay in the first cache.
const AHEAD: usize = 32;

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

/// What a limiter holds and has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Agents that hold a record now. Idle ones hold theirs until somebody
    /// needs it or a sweep takes it.
    pub agents: u64,
    /// Records in all.
    pub records: u64,
    /// Records given to agents since the start.
    pub claims: u64,
    /// Idle records taken for newcomers or swept: nothing was lost.
    pub idle_evictions: u64,
    /// Records in debt given up for newcomers: their agents may return with
    /// fresh buckets.
    pub lossy_evictions: u64,
    /// Exchanges that were lost to another thread and tried again.
    pub retries: u64,
}

/// Builds a [`Limiter`].
#[derive(Clone, Debug)]
#[must_use]
pub struct LimiterBuilder {
    policy: Policy,
    agents: u64,
    clock: Option<Clock>,
    on_full: OnFull,
    hash: IdHash,
}

impl LimiterBuilder {
    /// How many agents it must hold; 1 million if nothing is said.
    ///
    /// With three to six lanes it reserves 87 bytes for each, of which the system
    /// commits what is touched: room for a third more agents than stated, so
    /// that a newcomer nearly always finds a vacant record near its home.
    pub fn agents(mut self, agents: u64) -> Self {
        self.agents = agents;
        self
    }

    /// Where its time comes from; [`Clock::auto`] if nothing is said.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = Some(clock.into());
        self
    }

    /// What happens to a new agent when no record near its home is free.
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.on_full = on_full;
        self
    }

    /// How ids are hashed; multilinear if nothing is said.
    pub fn hash(mut self, hash: IdHash) -> Self {
        self.hash = hash;
        self
    }

    /// Reserves the memory.
    ///
    /// # Errors
    ///
    /// If the number of agents is out of range, or the system refuses the memory.
    pub fn build(self) -> Result<Limiter, BuildError> {
        if !(1..=AGENTS_MAX).contains(&self.agents) {
            return Err(BuildError::Agents { agents: self.agents });
        }
        let geometry = Geometry::for_agents(self.agents, self.policy.lanes().len());
        let slab = Slab::new(geometry, HashKey::random(self.hash)).map_err(|bytes| BuildError::Memory { bytes })?;
        Ok(self.over(slab))
    }

    /// The limiter over a slab that has as many lanes as the policy.
    pub(crate) fn over(self, slab: Slab) -> Limiter {
        let limits = LimitTable::new(&self.policy);
        let clock = self.clock.unwrap_or_else(Clock::auto);
        Limiter { slab, limits, clock, on_full: self.on_full, policy: self.policy }
    }
}

impl Limiter {
    /// Starts a limiter with this policy.
    pub fn builder(policy: Policy) -> LimiterBuilder {
        LimiterBuilder {
            policy,
            agents: AGENTS_DEFAULT,
            clock: None,
            on_full: OnFull::default(),
            hash: IdHash::default(),
        }
    }

    /// The policy it was built with.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The lane of this name.
    #[must_use]
    pub fn lane(&self, name: &str) -> Option<LaneId> {
        self.policy.lane(name)
    }

    /// The present instant on its clock.
    #[must_use]
    pub fn now(&self) -> Tick {
        self.clock.now()
    }

    /// Bytes of address space it has reserved. It never takes more.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.slab.reserved_bytes()
    }

    /// May the agent do this once, now? Charges one token if so.
    ///
    /// # Errors
    ///
    /// See [`check_at`](Limiter::check_at).
    #[inline(always)]
    pub fn check(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<Verdict, Error> {
        self.check_with(agent.as_ref(), lane, 1, || self.clock.now())
    }

    /// May the agent spend `cost` tokens now? Charges all of them or none.
    ///
    /// # Errors
    ///
    /// See [`check_at`](Limiter::check_at).
    #[inline(always)]
    pub fn check_cost(&self, agent: impl AsRef<[u8]>, lane: LaneId, cost: u64) -> Result<Verdict, Error> {
        self.check_with(agent.as_ref(), lane, cost, || self.clock.now())
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
        self.check_with(agent.as_ref(), lane, cost, || now)
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
            self.check_chunk(requests, answers, now);
        }
        Ok(())
    }

    /// The agent's lane as it stands, without charging it or making the agent known.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`] or [`Error::UnknownLane`].
    pub fn status(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<Status, Error> {
        self.status_at(agent, lane, self.clock.now())
    }

    /// The agent's lane as it stands at `now`.
    ///
    /// # Errors
    ///
    /// As [`status`](Limiter::status).
    pub fn status_at(&self, agent: impl AsRef<[u8]>, lane: LaneId, now: Tick) -> Result<Status, Error> {
        let hash = self.hash(agent.as_ref(), lane)?;
        Ok(self.change(hash, lane, |limit, word| Outcome { next: None, answer: bucket::status(word, now, limit) }))
    }

    /// Gives `cost` tokens back, never beyond full. An agent without a record
    /// is full already.
    ///
    /// # Errors
    ///
    /// As [`check_at`](Limiter::check_at), less [`Error::Full`].
    pub fn refund(&self, agent: impl AsRef<[u8]>, lane: LaneId, cost: u64) -> Result<Status, Error> {
        self.refund_at(agent, lane, cost, self.clock.now())
    }

    /// Gives `cost` tokens back at `now`.
    ///
    /// # Errors
    ///
    /// As [`refund`](Limiter::refund).
    pub fn refund_at(&self, agent: impl AsRef<[u8]>, lane: LaneId, cost: u64, now: Tick) -> Result<Status, Error> {
        let hash = self.hash(agent.as_ref(), lane)?;
        let price = self.limits.limit(PlanId::DEFAULT, lane).price(cost)?;
        Ok(self.change(hash, lane, |limit, word| bucket::refund(word, now, limit, price)))
    }

    /// Fills one lane of the agent.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`], [`Error::IdTooLong`] or [`Error::UnknownLane`].
    pub fn reset_lane(&self, agent: impl AsRef<[u8]>, lane: LaneId) -> Result<(), Error> {
        self.reset_lane_at(agent, lane, self.clock.now())
    }

    /// Fills one lane of the agent at `now`.
    ///
    /// # Errors
    ///
    /// As [`reset_lane`](Limiter::reset_lane).
    pub fn reset_lane_at(&self, agent: impl AsRef<[u8]>, lane: LaneId, now: Tick) -> Result<(), Error> {
        let hash = self.hash(agent.as_ref(), lane)?;
        self.change(hash, lane, |limit, word| bucket::reset(word, now, limit));
        Ok(())
    }

    /// Fills every lane of the agent, one after the other.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn reset(&self, agent: impl AsRef<[u8]>) -> Result<(), Error> {
        self.reset_at(agent, self.clock.now())
    }

    /// Fills every lane of the agent at `now`.
    ///
    /// # Errors
    ///
    /// As [`reset`](Limiter::reset).
    pub fn reset_at(&self, agent: impl AsRef<[u8]>, now: Tick) -> Result<(), Error> {
        let agent = agent.as_ref();
        self.policy.lanes().try_for_each(|(lane, _)| self.reset_lane_at(agent, lane, now))
    }

    /// Forgets the agent: its record is vacant again, and its next check is
    /// its first. `false` if nothing was known of it. An agent that is checked
    /// in the same moment may keep its record, with its lanes filled.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyId`] or [`Error::IdTooLong`].
    pub fn forget(&self, agent: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.forget_at(agent, self.clock.now())
    }

    /// Forgets the agent at `now`.
    ///
    /// # Errors
    ///
    /// As [`forget`](Limiter::forget).
    pub fn forget_at(&self, agent: impl AsRef<[u8]>, now: Tick) -> Result<bool, Error> {
        let hash = self.hash(agent.as_ref(), LaneId::new(0))?;
        Ok(self.slab.forget(hash, now, self.clock.now()))
    }

    /// Vacates the records of agents that have been idle, with every lane
    /// full, for `idle_for`, and says how many.
    ///
    /// Never needed for correctness: an idle record is taken when somebody
    /// needs one. It makes [`Stats::agents`] count the agents of late. It
    /// walks all records, so call it from a timer, every few minutes, say.
    pub fn sweep(&self, idle_for: Duration) -> u64 {
        self.sweep_at(idle_for, self.clock.now())
    }

    /// Sweeps at `now`.
    pub fn sweep_at(&self, idle_for: Duration, now: Tick) -> u64 {
        // Before the origin nothing can have been idle.
        now.checked_sub(idle_for).map_or(0, |since| self.slab.sweep(since, self.clock.now()))
    }

    /// What it holds and has seen. Walks a counter per 1,024 records.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let seen = self.slab.occupancy();
        Stats {
            agents: seen.held,
            records: self.slab.records(),
            claims: seen.claims,
            idle_evictions: seen.idle_evictions,
            lossy_evictions: seen.lossy_evictions,
            retries: seen.retries,
        }
    }

    /// Checks what every call brings, and finds the agent's place.
    #[inline]
    fn hash(&self, agent: &[u8], lane: LaneId) -> Result<AgentHash, Error> {
        let bytes = agent.len();
        if bytes.wrapping_sub(1) >= ID_BYTES_MAX {
            return Err(if bytes == 0 { Error::EmptyId } else { Error::IdTooLong { bytes } });
        }
        let lanes = self.limits.lanes();
        if lane.index() >= lanes {
            return Err(Error::UnknownLane { lane: lane.number(), lanes: lanes as u32 });
        }
        Ok(self.slab.hash(agent))
    }

    /// Checks at the instant that `now` tells once the record is found: a
    /// counter register may keep the processor from looking ahead, and then
    /// it is best read with everything else at hand.
    #[inline(always)]
    fn check_with(&self, agent: &[u8], lane: LaneId, cost: u64, now: impl FnOnce() -> Tick) -> Result<Verdict, Error> {
        let hash = self.hash(agent, lane)?;
        self.check_hashed(hash, lane, cost, now)
    }

    #[inline(always)]
    fn check_hashed(
        &self,
        hash: AgentHash,
        lane: LaneId,
        cost: u64,
        now: impl FnOnce() -> Tick,
    ) -> Result<Verdict, Error> {
        let Some(found) = self.slab.find_at_home(hash) else {
            return self.check_slowly(hash, lane, cost, now());
        };
        let limit = self.limits.limit(found.tag.plan(), lane);
        let price = limit.price(cost)?;
        let now = now();
        match found.record.try_update(found.tag, lane, |word| bucket::step(word, now, limit, price)) {
            Attempt::Done(charge) => Ok(bucket::verdict(charge, limit, price)),
            Attempt::Lost => self.check_again(found, hash, lane, cost, now),
            Attempt::Moved => self.check_slowly(hash, lane, cost, now),
        }
    }

    /// The check of an agent for which another thread was faster.
    #[cold]
    #[inline(never)]
    fn check_again(
        &self,
        found: Found<'_>,
        hash: AgentHash,
        lane: LaneId,
        cost: u64,
        now: Tick,
    ) -> Result<Verdict, Error> {
        self.slab.count_retry();
        self.charge(found, lane, cost, now).unwrap_or_else(|| self.check_slowly(hash, lane, cost, now))
    }

    /// Checks up to [`AHEAD`] requests. All are hashed and their cache lines
    /// asked for before the first is charged, so that cache misses overlap.
    fn check_chunk(&self, requests: &[Request<'_>], answers: &mut [Result<Verdict, Error>], now: Tick) {
        let mut hashes = [Err(Error::EmptyId); AHEAD];
        for (request, hash) in requests.iter().zip(&mut hashes) {
            *hash = self.hash(request.agent, request.lane).inspect(|hash| self.slab.prefetch(*hash));
        }
        for ((request, answer), hash) in requests.iter().zip(answers).zip(hashes) {
            *answer = hash.and_then(|hash| self.check_hashed(hash, request.lane, request.cost, || now));
        }
    }

    /// Charges a record. `None` if it is no longer the agent's.
    fn charge(&self, found: Found<'_>, lane: LaneId, cost: u64, now: Tick) -> Option<Result<Verdict, Error>> {
        let limit = self.limits.limit(found.tag.plan(), lane);
        let price = match limit.price(cost) {
            Ok(price) => price,
            Err(error) => return Some(Err(error)),
        };
        let step = |word| bucket::step(word, now, limit, price);
        let charge = found.record.update(found.tag, lane, step, || self.slab.count_retry())?;
        Some(Ok(bucket::verdict(charge, limit, price)))
    }

    /// The check of an agent that is not in its favourite place: perhaps it is
    /// elsewhere in its neighbourhood, perhaps it has no record yet.
    ///
    /// The loop ends when the agent keeps a record for one round; each further
    /// one is an eviction or a change of plan that was completed meanwhile.
    #[inline(never)]
    fn check_slowly(&self, hash: AgentHash, lane: LaneId, cost: u64, now: Tick) -> Result<Verdict, Error> {
        while let Some(found) = self.slab.find(hash) {
            if let Some(answer) = self.charge(found, lane, cost, now) {
                return answer;
            }
        }
        let limit = self.limits.limit(PlanId::DEFAULT, lane);
        let price = limit.price(cost)?;
        let fresh = bucket::step(LaneWord::default(), now, limit, price);
        if fresh.next.is_none() {
            return Ok(bucket::verdict(fresh.answer, limit, price)); // Denied even when full: not worth a record.
        }
        let ranking = |tag, record: Record<'_>| self.debt_ratio(tag, record, now);
        let inherited = |record: Record<'_>| {
            let word = record.lane_words().nth(lane.index()).unwrap_or_default();
            bucket::step(word, now, limit, price)
        };
        let newcomer = Newcomer {
            hash,
            plan: PlanId::DEFAULT,
            now,
            clock: self.clock.now(),
            on_full: self.on_full,
            ranking: &ranking,
            passes: &|record| inherited(record).next.is_some(),
        };
        loop {
            match self.slab.claim(&newcomer) {
                Ok(claimed) => {
                    // The claim keeps the record the agent's, so the first round ends this.
                    if let Some(answer) = self.charge(claimed.found, lane, cost, now.max(claimed.floor)) {
                        return answer;
                    }
                }
                Err(Refusal::Full) => return Err(Error::Full),
                Err(Refusal::Denied(record)) => return Ok(bucket::verdict(inherited(record).answer, limit, price)),
            }
        }
    }

    /// A record's largest share of debt over its lanes.
    fn debt_ratio(&self, tag: TagWord, record: Record<'_>, now: Tick) -> u64 {
        let limits = self.limits.row(tag.plan());
        limits.iter().zip(record.lane_words()).map(|(limit, word)| limit.debt_ratio(word, now)).max().unwrap_or(0)
    }

    /// Applies a step other than a charge. An agent without a record has
    /// fresh lanes, and nothing to change.
    ///
    /// The loop ends when the agent keeps a record for one round; each further
    /// round is an eviction or a change of plan that was completed meanwhile.
    fn change<A>(&self, hash: AgentHash, lane: LaneId, step: impl Fn(&BucketLimit, LaneWord) -> Outcome<A>) -> A {
        loop {
            let Some(found) = self.slab.find(hash) else {
                return step(self.limits.limit(PlanId::DEFAULT, lane), LaneWord::default()).answer;
            };
            let limit = self.limits.limit(found.tag.plan(), lane);
            let step = |word| step(limit, word);
            if let Some(answer) = found.record.update(found.tag, lane, step, || self.slab.count_retry()) {
                return answer;
            }
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policy", &self.policy)
            .field("clock", &self.clock)
            .field("on_full", &self.on_full)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::policy::Limit;

    fn limiter(agents: u64, on_full: OnFull) -> Limiter {
        let policy = ["light", "normal", "heavy"]
            .into_iter()
            .fold(Policy::builder(), |policy, lane| policy.lane(lane, Limit::per_minute(2)));
        let clock = ManualClock::new();
        Limiter::builder(policy.build().unwrap()).agents(agents).clock(clock).on_full(on_full).build().unwrap()
    }

    #[test]
    fn a_denial_leaves_every_word_of_the_slab_unchanged() {
        let limiter = limiter(100, OnFull::Deny);
        let heavy = limiter.lane("heavy").unwrap();
        assert!(limiter.check_cost("agent", heavy, 2).unwrap().is_allowed());
        let before = limiter.slab.snapshot();
        for _ in 0..10 {
            assert!(!limiter.check("agent", heavy).unwrap().is_allowed());
        }
        assert_eq!(limiter.slab.snapshot(), before);
    }

    #[test]
    fn looking_and_errors_leave_every_word_of_the_slab_unchanged() {
        let limiter = limiter(100, OnFull::Deny);
        let heavy = limiter.lane("heavy").unwrap();
        assert!(limiter.check("agent", heavy).unwrap().is_allowed());
        let before = limiter.slab.snapshot();
        for agent in ["agent", "stranger"] {
            assert!(limiter.status(agent, heavy).is_ok());
            assert!(limiter.check_cost(agent, heavy, 3).is_err());
            assert!(limiter.check_cost(agent, heavy, 0).is_err());
            assert!(limiter.check(agent, LaneId::new(3)).is_err());
        }
        assert!(limiter.refund("stranger", heavy, 1).is_ok());
        assert!(limiter.reset("stranger").is_ok());
        assert_eq!(limiter.forget("stranger"), Ok(false));
        assert_eq!(limiter.slab.snapshot(), before);
    }
}
