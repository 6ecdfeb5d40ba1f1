//! A plan's total: one limit over all its lanes.
//!
//! The total is a lane of its own, with a word in every record, that is charged
//! together with whichever lane is asked for; see
//! [`PolicyBuilder::total`](crate::PolicyBuilder::total). A policy without a
//! total never comes here: its buckets are checked before anybody asks
//! ([`LimitTable::is_fast`](crate::lane::table::LimitTable::is_fast)), and no
//! bucket of a policy with one is.
//!
//! # Both or neither
//!
//! 1. **Look** at the total. If it has no room, that is the answer: nothing is
//!    exchanged, no record is claimed, and nobody is evicted. Where a plan has
//!    no total, the charge of the lane is all there is.
//! 2. **Charge the lane.** A newcomer that would inherit a record in debt is
//!    asked about both words, under the locks of its claim.
//! 3. **Charge the total**, at the instant at which the lane was charged. If
//!    somebody has taken its last tokens since the look, **take back** the
//!    lane's charge by its receipt, as a call of
//!    [`check_all`](Limiter::check_all) does.
//!
//! No more passes the total than it has, since each call that passes has
//! exchanged its word, and no more passes a lane. And a call that is denied
//! mints nothing: step 3 gives back at most what of its price time has not paid
//! (`roll_back` in `lane/bucket.rs` has the argument). Between steps 2 and 3
//! another caller of the same lane may meet a charge that is about to be taken
//! back, and be denied once though its own cost would have fitted; that takes
//! a total that was just used up.
//!
//! The total comes last, also in `check_all`, so callers on different lanes
//! meet in one word, and of two that race for its last token exactly one
//! passes. `check_all` charges an agent's total once, with the sum of its parts.
//!
//! # What is reported
//!
//! A verdict has the numbers of one limit, lane or total, so that capacity,
//! remaining and waits fit together. A denial reports the limit that is in the
//! way, and if both are, the one with the longer wait. Otherwise it is the one
//! with less left, which is what the agent can still spend; it warns if either
//! of them does.

use super::Limiter;
use super::check::{Answer, Ask, Made};
use crate::clock::{Tick, nanos_saturating};
use crate::error::Error;
use crate::lane::kind::{LaneLimit, look};
use crate::lane::table::LaneLimits;
use crate::lane::{Choice, Decision, Finding, LaneWord, Status, Verdict};
use crate::policy::PlanId;
use crate::slab::hash::AgentHash;
use crate::sync::{Fault, broken};
use std::time::Duration;

/// What a charge came to, of a lane and of its total.
pub(super) struct Both {
    /// Of the lane, or what was in the way.
    pub(super) lane: Made,
    /// Of the total, if it was charged.
    pub(super) total: Option<Made>,
}

impl Both {
    pub(super) fn answer(&self) -> Answer {
        match &self.total {
            None => self.lane.answer,
            Some(total) => both(self.lane.answer, total.answer),
        }
    }
}

/// The answer to a charge of a lane and of its total.
pub(super) fn both(lane: Answer, total: Answer) -> Answer {
    let (lane, total) = (lane?, total?);
    match (lane.is_allowed(), total.is_allowed()) {
        (true, true) => Ok(tighter(lane, total)),
        (false, false) if total.retry_after_ns > lane.retry_after_ns => Ok(total),
        (false, _) => Ok(lane),
        (true, false) => Ok(total),
    }
}

/// Of two that pass, the one that leaves less.
fn tighter(lane: Verdict, total: Verdict) -> Verdict {
    let warns = [lane, total].iter().any(|verdict| verdict.decision() == Decision::Warn);
    let tighter = if total.remaining() < lane.remaining() { total } else { lane };
    Verdict { finding: if warns { Finding::WARN } else { tighter.finding }, ..tighter }
}

impl Limiter {
    /// Charges a lane and the total that goes with it, both or neither.
    pub(super) fn make_both(&self, hash: AgentHash, ask: Ask<'_>, now: Tick) -> Both {
        let alone = |lane| Both { lane, total: None };
        let Some(total) = self.limits.total_with(ask.lane.id()) else {
            return alone(self.make(hash, ask, now));
        };
        let whole = Ask { lane: total, ..ask };
        match self.would(hash, whole, ask.cost, now) {
            Ok(verdict) if verdict.decision() == Decision::Exempt => return alone(self.make(hash, ask, now)),
            Ok(verdict) if verdict.is_allowed() => {}
            in_the_way => return alone(Made::unmade(both(self.would(hash, ask, ask.cost, now), in_the_way))),
        }
        let lane = self.make(hash, ask, now);
        let Some(receipt) = lane.receipt else {
            return alone(lane); // Denied, or the agent has become exempt meanwhile.
        };
        // A newcomer's words may stand later than `now`: the lane was charged there.
        let total = self.make(hash, whole, now.max(receipt.at));
        if total.answer.is_ok_and(|verdict| verdict.is_allowed()) {
            return Both { lane, total: Some(total) };
        }
        if !broken(Fault::LaneKept) {
            self.take_back(hash, ask.lane, ask.cost, receipt);
        }
        alone(Made::unmade(total.answer))
    }

    /// What a charge would come to after others of the same call; `sum` is what
    /// they and it come to.
    pub(super) fn would(&self, hash: AgentHash, ask: Ask<'_>, sum: u64, now: Tick) -> Answer {
        let would = |limit: LaneLimit, words: &[LaneWord], at| Choice::of(look(limit.would(words, at, ask.cost, sum)));
        self.change(hash, ask.stand_in, ask.lane, now, would).verdict()
    }

    /// What a charge comes to that is not made because the agent has to wait
    /// `block` for its conduct.
    pub(super) fn denied_for(&self, hash: AgentHash, ask: Ask<'_>, block: Duration, now: Tick) -> Answer {
        let blocked = |limit: LaneLimit, words: &[LaneWord], at| Choice::of(look(limit.blocked(words, at, ask.cost)));
        let of = |lane| self.change(hash, ask.stand_in, lane, now, blocked).verdict(nanos_saturating(block));
        let lane = of(ask.lane);
        self.limits.total_with(ask.lane.id()).map_or(lane, |total| both(lane, of(total)))
    }

    /// What can be charged of a lane now: what it has left, or its total if
    /// that has less.
    pub(super) fn status_with_total(
        &self,
        floor: Tick,
        hash: AgentHash,
        plan: Option<PlanId>,
        lane: LaneLimits<'_>,
        now: Tick,
    ) -> Status {
        let of = |lane| self.look_from(floor, hash, plan, lane, now);
        self.tighter_status(lane, of(lane), of)
    }

    /// Gives back to a lane and to its total. What the total cannot hold at all
    /// fills it.
    pub(super) fn give_both(
        &self,
        hash: AgentHash,
        plan: Option<PlanId>,
        lane: LaneLimits<'_>,
        cost: u64,
        now: Tick,
    ) -> Result<Status, Error> {
        let given = self.give(hash, plan, lane, cost, now)?;
        let Some(total) = self.limits.total_with(lane.id()) else {
            return Ok(given);
        };
        let capacity = self.look(hash, plan, total, now).capacity();
        let of_total = self.give(hash, plan, total, cost.min(capacity.max(1)), now);
        // Other limits may have come into force since; then the lane's status is all there is to say.
        Ok(self.tighter_status(lane, given, |_| of_total.unwrap_or(given)))
    }

    fn tighter_status<'a>(
        &'a self,
        lane: LaneLimits<'a>,
        status: Status,
        of: impl FnOnce(LaneLimits<'a>) -> Status,
    ) -> Status {
        let total = self.limits.total_with(lane.id()).map(of);
        total.filter(|total| total.remaining() < status.remaining()).unwrap_or(status)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{LaneId, ManualClock, Policy, Request};

    /// A newcomer reads the clock, and before it has claimed its record others
    /// are evicted: its words stand later than its instant. The lane reads the
    /// clock again, and the total must not be asked as of before.
    #[test]
    fn a_newcomer_after_an_eviction_finds_its_total_full() {
        let clock = ManualClock::new();
        let policy = Policy::builder().lane("read", "1/s burst 9").total("1/s burst 3").build().unwrap();
        let limiter = Limiter::builder(policy).agents(1).clock(clock.clone()).build().unwrap();
        let read = LaneId::new(0);
        assert!(limiter.check("tenant", read).unwrap().is_allowed());
        let now = limiter.now();
        clock.advance(Duration::from_secs(20));
        assert_eq!(limiter.sweep(Duration::ZERO), 1);
        let hash = limiter.hash(b"newcomer").unwrap();
        let lane = limiter.limits.lane(read).unwrap();
        let ask = Ask { agent: b"newcomer", lane, cost: 3, stand_in: None, is_given: false };
        let both = limiter.make_both(hash, ask, now);
        assert_eq!(both.answer().map(|verdict| (verdict.is_allowed(), verdict.remaining())), Ok((true, 0)));
    }

    #[test]
    fn a_denial_leaves_every_word_of_the_slab_unchanged() {
        let policy = Policy::builder().lane("read", "9/min").lane("write", "9/min").total("3/min").build().unwrap();
        let limiter = Limiter::builder(policy).agents(1).clock(ManualClock::new()).build().unwrap();
        let [read, write] = [0, 1].map(LaneId::new);
        assert!(limiter.check_request(Request::new("agent", read).cost(3)).unwrap().is_allowed());
        let before = limiter.slab.snapshot();
        for lane in [read, write] {
            assert!(!limiter.check("agent", lane).unwrap().is_allowed());
            assert!(limiter.check_request(Request::new("agent", lane).cost(4)).is_err());
            assert!(!limiter.check_request(Request::new("agent", lane).counted()).unwrap().is_allowed());
            let ttl = Duration::from_secs(1);
            assert!(limiter.reserve(Request::new("agent", lane), ttl).unwrap().id().is_none());
        }
        assert_eq!(limiter.slab.snapshot(), before);
    }
}
