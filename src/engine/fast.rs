//! The fast path: about a hundred instructions that answer most checks.
//!
//! It charges a token bucket in the first record that shows the agent's
//! fingerprint, with one exchange. It misses if the agent is elsewhere or has
//! no record, if it is about to be evicted, or if another thread's exchange
//! came first: about one check in thirty at the assumed load. Then
//! [`find_and_charge`](Engine::find_and_charge) answers, as it does for every
//! other kind of lane.
//!
//! A bucket that machines share has a fast path of its own, for checks that are
//! answered from credit: the same steps, behind the look at what kind of lane it
//! is.
//!
//! Functions that leave this path take their arguments one by one: every check
//! would have to write a struct to memory to pass it by reference.

use super::charge::Answer;
use super::{Engine, Request, stand_in_row};
use crate::clock::Tick;
use crate::error::Error;
#[cfg(feature = "cluster")]
use crate::lane::Verdict;
use crate::lane::bucket;
#[cfg(feature = "cluster")]
use crate::lane::clustered::{self, LinkWord, Source};
use crate::limits::LaneLimits;
#[cfg(feature = "cluster")]
use crate::policy::LaneId;
use crate::policy::PlanId;
use crate::record::{Attempt, Record};
use crate::slab::hash::AgentHash;
use std::hint::spin_loop;

/// How long a thread gives way after a lost exchange; chosen by measuring, see `give_way`.
const PAUSES: u32 = 16;

impl Engine {
    /// Answers a request, and passes the answer to `give` while it may still be
    /// in registers, so that a caller that wants it elsewhere need not fetch it
    /// from memory.
    ///
    /// One comparison shows whether the lane exists, whether it is a bucket and
    /// whether anybody observes it, so most checks pay for nothing else.
    #[inline(always)]
    pub(crate) fn check_with<R>(&self, request: Request<'_>, give: impl FnOnce(Answer) -> R) -> R {
        if request.is_counted || request.limit.is_some() {
            return give(self.check_with_options(&request));
        }
        let Request { agent, lane, cost, plan, at, .. } = request;
        match self.limits.unobserved_lane(lane) {
            Some(lane) => self.charge_bucket(agent, lane, cost, plan, at, give),
            None => give(self.check_observed(agent, lane, cost, plan, at)),
        }
    }

    /// Charges a lane that is a bucket.
    ///
    /// To read its counter, a processor may wait for all that comes before, and
    /// what follows may wait for the reading. So the record is prefetched first:
    /// in a favourite slot as soon as the hash is known, elsewhere once it is
    /// found. Its memory then arrives while the previous check and the reading
    /// are still under way. And no other thread has time to take the cache line
    /// away between the look at the tag and the exchange.
    #[inline(always)]
    pub(super) fn charge_bucket<R>(
        &self,
        agent: &[u8],
        lane: LaneLimits<'_>,
        cost: u64,
        plan: Option<PlanId>,
        at: Option<Tick>,
        give: impl FnOnce(Answer) -> R,
    ) -> R {
        let hash = match self.hash_for(agent, plan) {
            Ok(hash) => hash,
            Err(error) => return give(Err(error)),
        };
        if at.is_none() {
            self.slab.prefetch_favourite(hash);
        }
        let Some(likely) = self.slab.likely_record(hash) else {
            let now = at.unwrap_or_else(|| self.now_out_of_line());
            return give(self.find_and_charge(hash, agent, lane.id(), cost, plan, now, at.is_some()));
        };
        let now = at.unwrap_or_else(|| {
            likely.prefetch();
            self.clock.now()
        });
        let elsewhere = || self.find_and_charge(hash, agent, lane.id(), cost, plan, now, at.is_some());
        self.charge_likely(likely, hash, lane, cost, plan, now, give, elsewhere)
    }

    /// Checks the id and the plan, and hashes the id.
    #[inline(always)]
    pub(super) fn hash_for(&self, agent: &[u8], plan: Option<PlanId>) -> Result<AgentHash, Error> {
        let hash = self.hash(agent)?;
        plan.map_or(Ok(()), |plan| self.limits.check_plan(plan))?;
        Ok(hash)
    }

    /// The clock's time, for a path that is not worth inlining it.
    #[cold]
    #[inline(never)]
    fn now_out_of_line(&self) -> Tick {
        self.clock.now()
    }

    /// Charges a bucket in the record that is likely the agent's: the charge's
    /// one look at its tag decides. After a miss, `elsewhere` answers.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "see the module")]
    pub(super) fn charge_likely<R>(
        &self,
        record: Record<'_>,
        hash: AgentHash,
        lane: LaneLimits<'_>,
        cost: u64,
        plan: Option<PlanId>,
        now: Tick,
        give: impl FnOnce(Answer) -> R,
        elsewhere: impl FnOnce() -> Answer,
    ) -> R {
        let step = |word, row| bucket::step(word, now, lane.limit(stand_in_row(row, plan)), cost);
        match record.try_update_lane_of(hash.tag(), lane.id(), step) {
            Attempt::Done(charge) => match bucket::usual_verdict(charge) {
                Some(verdict) => give(Ok(verdict)),
                None => give(bucket::odd_verdict(charge)),
            },
            Attempt::Moved => give(elsewhere()),
            Attempt::Lost => {
                self.slab.count_retry();
                give_way();
                give(elsewhere())
            }
        }
    }

    /// Checks a bucket that machines share, if there is credit for it in the
    /// record that is likely the agent's. After a miss the caller goes on as
    /// with every other lane.
    #[cfg(feature = "cluster")]
    #[inline(always)]
    pub(super) fn check_credit(
        &self,
        agent: &[u8],
        lane: LaneId,
        cost: u64,
        plan: Option<PlanId>,
        at: Option<Tick>,
    ) -> Option<Verdict> {
        let lane = self.limits.lane(lane).ok()?;
        let link = self.limits.link_of_credit(lane.id())?;
        if self.warnings.is_used() {
            return None;
        }
        let hash = self.hash_for(agent, plan).ok()?;
        let record = self.slab.likely_record(hash)?;
        let now = at.unwrap_or_else(|| {
            record.prefetch();
            self.clock.now()
        });
        self.charge_credit(record, hash, link, lane, cost, plan, now)
    }

    /// The same for a request whose agent and instant are known.
    #[cfg(feature = "cluster")]
    #[inline(never)]
    pub(super) fn charge_from_credit(
        &self,
        hash: AgentHash,
        lane: LaneLimits<'_>,
        cost: u64,
        plan: Option<PlanId>,
        now: Tick,
    ) -> Option<Verdict> {
        let link = self.limits.link_of_credit(lane.id())?;
        let record = self.slab.likely_record(hash)?;
        self.charge_credit(record, hash, link, lane, cost, plan, now)
    }

    #[cfg(feature = "cluster")]
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "see the module")]
    fn charge_credit(
        &self,
        record: Record<'_>,
        hash: AgentHash,
        link: LinkWord,
        lane: LaneLimits<'_>,
        cost: u64,
        plan: Option<PlanId>,
        now: Tick,
    ) -> Option<Verdict> {
        let step = |words, row| clustered::spend_credit(words, now, lane.limit(stand_in_row(row, plan)), link, cost);
        match record.try_update_first_of(hash.tag(), self.limits.cells(lane.id()), step) {
            Attempt::Done(spent) => {
                self.count_source(lane.id(), Some(Source::Credit));
                Some(spent.verdict())
            }
            Attempt::Moved => None,
            Attempt::Lost => {
                self.slab.count_retry();
                give_way();
                None
            }
        }
    }
}

/// Lets the thread whose exchange came first go on for a moment.
///
/// Otherwise two threads that charge one agent take its cache line from each
/// other at every charge: 22 to 24 ns a check where a bare loop of exchanges
/// takes 10. With this, each makes several charges in a row, and a check takes
/// 14 to 15, by `benches/compare --only two-allowed`. Eight pauses gave 18; one,
/// two and four gave no less than none.
#[cold]
#[inline(never)]
fn give_way() {
    for _ in 0..PAUSES {
        spin_loop();
    }
}
