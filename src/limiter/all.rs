//! Several charges, all or none.
//!
//! The parts are charged one after the other, in an order that is the same for
//! every caller. The first that is denied ends that, and what was charged is
//! taken back, each charge by its receipt: a count is taken off the window that
//! it was made in, a slot is released, a permit has rested, a bucket is to be
//! full when it was before. So in the end exactly what the admitted sets come
//! to is charged. One case is stricter: if somebody else charged a bucket
//! during the call that would have been full without it, then what time would
//! not have brought to a full bucket stays charged, at most as much as the call
//! took, since the other may have spent it. A call at a given instant takes no time.
//!
//! A caller that is alone meets only its own charges, and is denied only if a
//! part is. Of callers that cross, each may meet what the other is about to
//! take back: both may be denied once.

use super::Limiter;
use super::check::{Ask, Made};
use crate::bounds::PARTS_MAX;
use crate::clock::{Tick, nanos_saturating};
use crate::error::Error;
use crate::lane::kind::{LaneLimit, Receipt, look};
use crate::lane::table::LaneLimits;
use crate::lane::{Choice, Decision, LaneWord, Verdict};
use crate::limiter::Request;
use crate::slab::hash::AgentHash;
use std::time::Duration;

/// The answer to several charges at once: all were made, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it says whether the request may go on"]
pub struct AllVerdict {
    verdicts: [Verdict; PARTS_MAX],
    parts: usize,
    /// The longest wait that conduct asks for.
    conduct_wait: Duration,
    /// The parts with which an agent's conduct became sustained abuse, as bits.
    sustained_abuse: u32,
}

const _: () = assert!(PARTS_MAX <= u32::BITS as usize);

impl AllVerdict {
    /// Whether all parts were charged.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.verdicts().iter().all(Verdict::is_allowed)
    }

    /// The decision on the whole: `Deny` if a part is denied, else `Warn` if an
    /// agent is near its limit, `Exempt` if none of them is ever limited,
    /// `Allow` otherwise.
    #[must_use]
    pub fn decision(&self) -> Decision {
        let is_any = |decision| self.verdicts().iter().any(|verdict| verdict.decision() == decision);
        let worst = [Decision::Deny, Decision::Warn, Decision::Allow].into_iter().find(|decision| is_any(*decision));
        worst.unwrap_or(Decision::Exempt)
    }

    /// The verdict on each part, in the order in which they were given. If any
    /// is a denial, nothing was charged, and the others say what would have been.
    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts[..self.parts]
    }

    /// The parts that stand in the way, by their place; none if it was allowed.
    pub fn blocking(&self) -> impl Iterator<Item = usize> + '_ {
        self.verdicts().iter().enumerate().filter(|(_, verdict)| !verdict.is_allowed()).map(|(part, _)| part)
    }

    /// The parts with whose denial the conduct of their agent became sustained
    /// abuse, by their place; of [`admit_all`](Limiter::admit_all) alone.
    pub fn sustained_abuse(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.parts).filter(|part| self.sustained_abuse >> part & 1 == 1)
    }

    /// The longest wait of the parts that stand in the way. `None` if it was
    /// allowed, or no wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let mut waits = self.blocking().map(|part| self.verdicts[part].retry_after());
        let first = waits.next()??;
        waits.try_fold(first.max(self.conduct_wait), |longest, wait| Some(longest.max(wait?)))
    }
}

/// A part, found.
#[derive(Clone, Copy)]
struct Part<'a> {
    hash: AgentHash,
    ask: Ask<'a>,
    /// Its place among the parts.
    place: usize,
}

/// The parts in the order in which they are charged: the same for everybody,
/// so that callers meet at the first part they share, and not each with what
/// the other still needs.
struct Order<'a> {
    parts: &'a [Request<'a>],
    /// By place.
    hashes: [AgentHash; PARTS_MAX],
    /// First those of the first `parts.len()`.
    places: [u8; PARTS_MAX],
}

impl Order<'_> {
    fn places(&self) -> impl Iterator<Item = usize> + '_ {
        self.places[..self.parts.len()].iter().map(|place| usize::from(*place))
    }
}

impl Limiter {
    /// May all of this be done now? Charges every part or none: one request
    /// against several lanes of an agent, or of several agents.
    ///
    /// # Errors
    ///
    /// [`Error::Parts`] if there are none, or more than [`PARTS_MAX`]; those of
    /// [`check_at`](Limiter::check_at) if a part cannot be answered. Then
    /// nothing was charged.
    ///
    /// ```
    /// use tollgate::{Limit, Limiter, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("requests", "10/min").lane("tokens", "budget 100/day").build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).build()?;
    /// let [requests, tokens] = ["requests", "tokens"].map(|name| limiter.lane(name).expect("named above"));
    /// let parts = |cost| {
    ///     [
    ///         Request { agent: b"user:42", lane: requests, cost: 1 },
    ///         Request { agent: b"user:42", lane: tokens, cost },
    ///         Request { agent: b"team:7", lane: tokens, cost },
    ///     ]
    /// };
    /// assert!(limiter.check_all(&parts(80))?.is_allowed());
    /// let denied = limiter.check_all(&parts(30))?;
    /// assert_eq!(denied.blocking().collect::<Vec<_>>(), [1, 2]);
    /// assert_eq!(limiter.status("user:42", requests)?.remaining(), 9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_all(&self, parts: &[Request<'_>]) -> Result<AllVerdict, Error> {
        self.check_all_with(parts, None)
    }

    /// As [`check_all`](Limiter::check_all), at `now`, as if no time passed meanwhile.
    ///
    /// # Errors
    ///
    /// As [`check_all`](Limiter::check_all).
    pub fn check_all_at(&self, parts: &[Request<'_>], now: Tick) -> Result<AllVerdict, Error> {
        self.check_all_with(parts, Some(now))
    }

    /// As [`check_all`](Limiter::check_all), and a denial is recorded as a
    /// violation of each agent that stands in the way; see
    /// [`admit`](Limiter::admit).
    ///
    /// # Errors
    ///
    /// As [`check_all`](Limiter::check_all).
    pub fn admit_all(&self, parts: &[Request<'_>]) -> Result<AllVerdict, Error> {
        self.admit_all_with(parts, None)
    }

    /// As [`admit_all`](Limiter::admit_all), at `now`, as if no time passed meanwhile.
    ///
    /// # Errors
    ///
    /// As [`check_all`](Limiter::check_all).
    pub fn admit_all_at(&self, parts: &[Request<'_>], now: Tick) -> Result<AllVerdict, Error> {
        self.admit_all_with(parts, Some(now))
    }

    fn admit_all_with(&self, parts: &[Request<'_>], now: Option<Tick>) -> Result<AllVerdict, Error> {
        let rules = self.limits.conduct();
        let start = now.unwrap_or_else(|| self.clock.now());
        let order = self.order(parts)?;
        let blocked = if rules.enforces_wait() { self.blocked_by_conduct(&order, start)? } else { None };
        let mut verdict = match blocked {
            Some(blocked) => blocked,
            None => self.check_all_with(parts, now)?,
        };
        let mut last = AgentHash::NOBODY;
        for part in self.parts(&order) {
            // An agent's parts stand together.
            if !verdict.verdicts[part.place].is_allowed() && part.hash != last {
                last = part.hash;
                let violation = self.violation_of(part.ask.agent, part.hash, start, &rules);
                self.note_violation(part.ask.agent, &violation, start);
                verdict.conduct_wait = verdict.conduct_wait.max(violation.wait());
                verdict.sustained_abuse |= u32::from(violation.sustained_abuse()) << part.place;
            }
        }
        Ok(verdict)
    }

    /// The answer if an agent has to wait, whatever its lanes hold.
    fn blocked_by_conduct(&self, order: &Order<'_>, now: Tick) -> Result<Option<AllVerdict>, Error> {
        let rules = self.limits.conduct();
        let mut verdict = AllVerdict::new(order.parts.len());
        for part in self.parts(order) {
            let block = self.look_at_conduct(part.hash, now, &rules).wait();
            verdict.verdicts[part.place] = match block.is_zero() {
                true => self.look_at(&part, now)?,
                false => {
                    let Ask { lane, cost, .. } = part.ask;
                    let blocked =
                        |limit: LaneLimit, words: &[LaneWord], at| Choice::of(look(limit.blocked(words, at, cost)));
                    self.change(part.hash, None, lane, now, blocked).verdict(nanos_saturating(block))?
                }
            };
        }
        // If no agent has to wait, or only those that are exempt, lanes decide.
        let is_blocked = |part: &Part<'_>| !self.look_at_conduct(part.hash, now, &rules).wait().is_zero();
        let in_the_way = self.parts(order).any(|part| !verdict.verdicts[part.place].is_allowed() && is_blocked(&part));
        Ok(in_the_way.then_some(verdict))
    }

    fn order<'a>(&self, parts: &'a [Request<'a>]) -> Result<Order<'a>, Error> {
        let mut order = Order { parts, hashes: [AgentHash::NOBODY; PARTS_MAX], places: [0; PARTS_MAX] };
        if !(1..=PARTS_MAX).contains(&parts.len()) {
            return Err(Error::Parts { parts: parts.len() });
        }
        for (place, Request { agent, lane, .. }) in parts.iter().enumerate() {
            self.limits.lane(*lane)?;
            order.hashes[place] = self.hash(agent)?;
            // They are few: by insertion, each behind those that come before it.
            let rank = |place: usize| (order.hashes[place], parts[place].lane, place);
            let sorted = &order.places[..place];
            let index = sorted.partition_point(|other| rank(usize::from(*other)) < rank(place));
            order.places.copy_within(index..place, index + 1);
            order.places[index] = place as u8;
        }
        Ok(order)
    }

    /// The parts in order, whose lanes exist: that was found out with the order.
    fn parts<'a>(&'a self, order: &'a Order<'a>) -> impl Iterator<Item = Part<'a>> + 'a {
        order.places().filter_map(|place| self.part(order, place))
    }

    fn part<'a>(&'a self, order: &Order<'a>, place: usize) -> Option<Part<'a>> {
        let Request { agent, lane, cost } = order.parts[place];
        let ask = Ask { agent, lane: self.limits.lane(lane).ok()?, cost, stand_in: None };
        Some(Part { hash: order.hashes[place], ask, place })
    }

    fn check_all_with(&self, parts: &[Request<'_>], now: Option<Tick>) -> Result<AllVerdict, Error> {
        let order = self.order(parts)?;
        let start = now.unwrap_or_else(|| self.clock.now());
        let mut verdict = AllVerdict::new(parts.len());
        let mut receipts = [None; PARTS_MAX];
        let mut rest = self.parts(&order);
        while let Some(part) = rest.next() {
            let Made { answer, receipt } = self.make(part.hash, part.ask, start);
            receipts[part.place] = receipt;
            let is_in_the_way = answer.as_ref().map_or(true, |verdict| !verdict.is_allowed());
            if is_in_the_way && !crate::sync::broken(crate::sync::Fault::NoRollback) {
                let charged = self.parts(&order).take_while(|other| other.place != part.place);
                charged.for_each(|part| self.take_back(&part, receipts[part.place], now));
            }
            verdict.verdicts[part.place] = answer?;
            if is_in_the_way {
                for part in rest {
                    verdict.verdicts[part.place] = self.look_at(&part, start)?;
                }
                break;
            }
        }
        if self.watch.is_some() {
            for part in self.parts(&order) {
                let told = verdict.verdicts[part.place];
                if verdict.is_allowed() || !told.is_allowed() {
                    self.note_answer(part.ask.agent, part.ask.lane.id(), &Ok(told));
                }
            }
        }
        Ok(verdict)
    }

    fn take_back(&self, part: &Part<'_>, receipt: Option<Receipt>, now: Option<Tick>) {
        if let Some(receipt) = receipt {
            self.undo(part.hash, part.ask.lane, now, receipt, part.ask.cost);
        }
    }

    /// Takes back a charge, or `cost` of it, at `now` or else at the clock's time.
    pub(super) fn undo(&self, hash: AgentHash, lane: LaneLimits<'_>, now: Option<Tick>, receipt: Receipt, cost: u64) {
        // A claim may have charged as of a later instant than the caller's.
        let start = now.unwrap_or_else(|| self.clock.now()).max(receipt.at);
        self.change(hash, None, lane, start, |limit, words, at| {
            // Read after the words: whoever charged them read the clock before.
            let latest = if now.is_some() { start } else { self.clock.now().max(start) };
            limit.undo(words, at.with(latest), receipt, cost)
        });
    }

    /// What a part would come to.
    fn look_at(&self, part: &Part<'_>, now: Tick) -> Result<Verdict, Error> {
        let Ask { lane, cost, .. } = part.ask;
        let would =
            |limit: LaneLimit, words: &[LaneWord], at| Choice::of(look(limit.step(words, at, cost).outcome.answer));
        self.change(part.hash, None, lane, now, would).verdict()
    }
}

impl AllVerdict {
    fn new(parts: usize) -> Self {
        Self { verdicts: [Verdict::EXEMPT; PARTS_MAX], parts, conduct_wait: Duration::ZERO, sustained_abuse: 0 }
    }
}
