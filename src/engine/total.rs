//! A plan's total: one limit over all its lanes.
//!
//! The total is a lane, with a word in every record, that is charged together
//! with the lane of the request; see
//! [`PolicyBuilder::total`](crate::PolicyBuilder::total). Buckets of a policy
//! without a total never come here: they take the
//! [fast](crate::limits::LimitTable::is_fast) path, which no bucket of a policy
//! with a total does.
//!
//! # Both or neither
//!
//! 1. **Peek** at the total. If it has no room, that is the answer: nothing is
//!    exchanged, no record is claimed, and nobody is evicted. If the plan has
//!    no total, only the lane is charged.
//! 2. **Charge the lane.** A newcomer that would inherit a record in debt must
//!    pass on both words, under the locks of its claim.
//! 3. **Charge the total**, at the instant at which the lane was charged. If
//!    another caller has taken its last tokens since the peek, **take back** the
//!    lane's charge by its receipt, as a call of
//!    [`check_all`](Engine::check_all) does.
//!
//! No more passes than the total has, since each call that passes has exchanged
//! its word; the same holds for the lane. And a denied call mints nothing: step 3
//! gives back at most the part of its price that time has not paid (`roll_back`
//! in `lane/bucket.rs` has the argument). Between steps 2 and 3 another caller
//! of the same lane may meet a charge that is about to be taken back, and be
//! denied once though its own cost would have fitted; that takes a total that was
//! just used up.
//!
//! The total comes last, in `check_all` too, so callers on different lanes meet
//! in one word, and of two that race for its last token exactly one passes.
//! `check_all` charges an agent's total once, with the sum of its parts.
//!
//! # What is reported
//!
//! A verdict has the numbers of one limit, lane or total, so that capacity,
//! remaining and waits fit together. A denial reports the limit that is in the
//! way, and if both are, the one with the longer wait. Otherwise it is the one
//! with less left, which is what the agent can still spend; it warns if either
//! of them does.

use super::Engine;
use super::charge::{Answer, LaneCharge};
use super::request::{ResolvedRequest, Target};
use crate::clock::nanos_saturating;
use crate::error::Error;
use crate::lane::kind::{LaneLimit, look};
use crate::lane::{Choice, Decision, LaneState, Verdict};
use crate::sync::{Fault, broken};
use std::time::Duration;

/// The result of charging a lane and its total.
pub(super) struct BothCharges {
    /// The charge of the lane, or the denial.
    pub(super) lane: LaneCharge,
    /// The charge of the total, if it was made.
    pub(super) total: Option<LaneCharge>,
}

impl BothCharges {
    const fn only(lane: LaneCharge) -> Self {
        Self { lane, total: None }
    }

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

/// The one of two verdicts that leaves less.
fn tighter(lane: Verdict, total: Verdict) -> Verdict {
    let warns = [lane, total].iter().any(|verdict| verdict.decision() == Decision::Warn);
    let tighter = if total.remaining() < lane.remaining() { total } else { lane };
    if warns { tighter.with_warning() } else { tighter }
}

impl Engine {
    /// Charges a lane and its total, both or neither.
    pub(super) fn charge_both(&self, request: &ResolvedRequest<'_>) -> BothCharges {
        let Some(total) = self.limits.total_with(request.lane()) else {
            return BothCharges::only(self.charge_lane(request));
        };
        let of_total = request.with_lane(total);
        match self.would(&of_total, request.cost) {
            Ok(verdict) if verdict.decision() == Decision::Exempt => {
                return BothCharges::only(self.charge_lane(request));
            }
            Ok(verdict) if verdict.is_allowed() => {}
            in_the_way => {
                let answer = both(self.would(request, request.cost), in_the_way);
                return BothCharges::only(LaneCharge::none(answer));
            }
        }
        let forgiven = self.slab.forgiven.so_far();
        let lane = self.charge_lane(request);
        let Some(receipt) = lane.receipt else {
            return BothCharges::only(lane); // Denied, or the agent has become exempt meanwhile.
        };
        // A newcomer's words may be later than its instant: the lane was charged there.
        let now = request.target.now.max(receipt.at);
        let total = self.charge_lane(&of_total.at(now));
        if total.answer.is_ok_and(|verdict| verdict.is_allowed()) {
            return BothCharges { lane, total: Some(total) };
        }
        if !broken(Fault::LaneKept) {
            self.roll_back(&request.target, request.cost, receipt, forgiven);
        }
        BothCharges::only(LaneCharge::none(total.answer))
    }

    /// The answer to a charge after others of the same call; `sum` is all of
    /// them together.
    pub(super) fn would(&self, request: &ResolvedRequest<'_>, sum: u64) -> Answer {
        let would = |limit: LaneLimit, words: &[_], at| Choice::of(look(limit.would(words, at, request.cost, sum)));
        self.apply(&request.target, would).verdict()
    }

    /// The answer to a charge that is not made, because the agent has to wait
    /// `block` for its conduct.
    pub(super) fn denied_for(&self, request: &ResolvedRequest<'_>, block: Duration) -> Answer {
        let blocked = |limit: LaneLimit, words: &[_], at| Choice::of(look(limit.blocked(words, at, request.cost)));
        let of = |lane| self.apply(&request.target.with_lane(lane), blocked).verdict(nanos_saturating(block));
        let lane = of(request.target.lane);
        self.limits.total_with(request.lane()).map_or(lane, |total| both(lane, of(total)))
    }

    /// The state of a lane, or of its total if that has less left.
    pub(super) fn state_with_total(&self, target: &Target<'_>) -> LaneState {
        self.tighter_state(target, self.state(target), |total| self.state(total))
    }

    /// Gives back to a lane and to its total. A cost above the total's capacity
    /// fills it.
    pub(super) fn refund_both(&self, target: &Target<'_>, cost: u64) -> Result<LaneState, Error> {
        let state = self.refund_lane(target, cost)?;
        Ok(self.tighter_state(target, state, |total| {
            let capacity = self.state(total).capacity();
            // If other limits came into force since, the lane's state is all there is to report.
            self.refund_lane(total, cost.min(capacity.max(1))).unwrap_or(state)
        }))
    }

    fn tighter_state<'a>(
        &'a self,
        target: &Target<'a>,
        state: LaneState,
        of: impl FnOnce(&Target<'a>) -> LaneState,
    ) -> LaneState {
        let total = self.limits.total_with(target.lane.id()).map(|total| of(&target.with_lane(total)));
        total.filter(|total| total.remaining() < state.remaining()).unwrap_or(state)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{LaneId, Limiter, ManualClock, Policy, Request};

    /// A newcomer reads the clock, and before it has claimed its record others
    /// are evicted: its words are later than its instant. The lane reads the
    /// clock again, and the total must not be charged at the older instant.
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
        let hash = limiter.engine.hash(b"newcomer").unwrap();
        let lane = limiter.engine.limits.lane(read).unwrap();
        let target = Target::new(hash, lane, None, now);
        let both = limiter.engine.charge_both(&ResolvedRequest {
            agent: b"newcomer",
            target,
            cost: 3,
            is_given: false,
            mark: None,
        });
        assert_eq!(both.answer().map(|verdict| (verdict.is_allowed(), verdict.remaining())), Ok((true, 0)));
    }

    #[test]
    fn a_denial_leaves_every_word_of_the_slab_unchanged() {
        let policy = Policy::builder().lane("read", "9/min").lane("write", "9/min").total("3/min").build().unwrap();
        let limiter = Limiter::builder(policy).agents(1).clock(ManualClock::new()).build().unwrap();
        let [read, write] = [0, 1].map(LaneId::new);
        assert!(limiter.check_request(Request::new("agent", read).cost(3)).unwrap().is_allowed());
        let before = limiter.engine.slab.snapshot();
        for lane in [read, write] {
            assert!(!limiter.check("agent", lane).unwrap().is_allowed());
            assert!(limiter.check_request(Request::new("agent", lane).cost(4)).is_err());
            assert!(!limiter.check_request(Request::new("agent", lane).counted()).unwrap().is_allowed());
            let ttl = Duration::from_secs(1);
            assert!(limiter.reserve(Request::new("agent", lane), ttl).unwrap().id().is_none());
        }
        assert_eq!(limiter.engine.slab.snapshot(), before);
    }
}
