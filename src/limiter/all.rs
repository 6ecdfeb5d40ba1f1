//! Several charges, all or none.
//!
//! A call looks first: at what each part would come to, parts of one lane added
//! up. If one would be denied, or can never pass, that is the answer. Nothing was
//! charged, nobody lost a record, and there is nothing to take back. The first
//! part is not looked at if all others pass, since its charge tells as much.
//!
//! If all pass, the parts are charged one after the other, in an order that is
//! the same for every caller, and then the [totals](super::total), each once
//! for all parts of its agent. A part may be denied even so, because somebody
//! else charged its lane since the look, or because no record is free for its
//! agent. Then what was charged is taken back, each charge by its receipt:
//!
//! | kind | what is taken back |
//! |---|---|
//! | bucket | what of its price time has not paid since: `roll_back` in `lane/bucket.rs` has the argument |
//! | window, budget | its count, off the window that it was made in |
//! | exact window | the rest of its own permit, which nobody else can have taken meanwhile |
//! | held | its slots |
//!
//! So a call that is denied lets nobody else pass who would not have passed
//! without it. It may leave a bucket with less than it had, if that was not full:
//! by the time between charge and rollback, about a microsecond. It keeps its
//! charge of a bucket if the limits of the agent change during the call.
//!
//! Agents that seem to have no record come first, so that [`Error::Full`] finds
//! nothing charged that time would not bring back: a fresh bucket is full.
//!
//! A caller that is alone meets only its own charges, and is denied only if a
//! part is. Of callers that cross, each may meet what the other is about to
//! take back: both may be denied once.

use super::check::{Answer, Ask, Made};
use super::total::both;
use super::{Limiter, Request, stand_in_row};
use crate::bounds::PARTS_MAX;
use crate::clock::{At, Offset, Tick};
use crate::error::Error;
use crate::lane::kind::{Charged, Receipt, look};
use crate::lane::table::LaneLimits;
use crate::lane::{Choice, Decision, LaneWord, Verdict};
use crate::policy::Kind;
use crate::processor::finish_loads;
use crate::slab::Found;
use crate::slab::hash::AgentHash;
use crate::sync::{Fault, broken};
use std::time::Duration;

/// The answer to several charges at once: all were made, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it says whether the request may go on"]
pub struct AllVerdict {
    verdicts: [Verdict; PARTS_MAX],
    parts: usize,
}

/// Newcomers are counted in bits.
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

    /// The longest wait of the parts that stand in the way. `None` if it was
    /// allowed, or no wait helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let mut waits = self.blocking().map(|part| self.verdicts[part].retry_after());
        let first = waits.next()??;
        waits.try_fold(first, |longest, wait| Some(longest.max(wait?)))
    }
}

/// A part, found.
#[derive(Clone, Copy)]
struct Part<'a> {
    hash: AgentHash,
    ask: Ask<'a>,
    now: Tick,
    is_counted: bool,
    /// What it and the parts of the same lane before it come to.
    sum: u64,
    /// Its place among the parts.
    place: usize,
    /// The total that is charged with it.
    total: Option<Share<'a>>,
}

/// What parts of one agent take of its total.
#[derive(Clone, Copy)]
struct Share<'a> {
    lane: LaneLimits<'a>,
    /// What this part and those before it come to.
    sum: u64,
    /// Whether no other part comes after it: its sum is that of all.
    is_last: bool,
}

/// The parts in the order in which they are charged: the same for everybody,
/// so that callers meet at the first part they share, and not each with what
/// the other still needs.
struct Order<'a> {
    parts: &'a [Request<'a>],
    /// The instant of those that bring none.
    start: Tick,
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
    /// May all of this be done? Charges every part or none: one request
    /// against several lanes of an agent, or of several agents.
    ///
    /// If parts are [counted](Request::counted), a denial may be one violation
    /// of each agent that stands in the way.
    ///
    /// # Errors
    ///
    /// [`Error::Parts`] if there are none, or more than [`PARTS_MAX`]; those of
    /// [`check_request`](Limiter::check_request) if a part cannot be answered, among them
    /// [`Error::CostAboveCapacity`] if parts of one lane together are more than
    /// it ever holds. Then nothing was charged.
    ///
    /// ```
    /// use tollgate::{Limit, Limiter, Policy, Request};
    ///
    /// let policy = Policy::builder().lane("requests", "10/min").lane("tokens", "budget 100/day").build()?;
    /// let limiter = Limiter::builder(policy).agents(1_000).build()?;
    /// let [requests, tokens] = ["requests", "tokens"].map(|name| limiter.lane(name).expect("named above"));
    /// let parts = |cost| {
    ///     [
    ///         Request::new("user:42", requests),
    ///         Request::new("user:42", tokens).cost(cost),
    ///         Request::new("team:7", tokens).cost(cost),
    ///     ]
    /// };
    /// assert!(limiter.check_all(&parts(80))?.is_allowed());
    /// let denied = limiter.check_all(&parts(30))?;
    /// assert_eq!(denied.blocking().collect::<Vec<_>>(), [1, 2]);
    /// assert_eq!(limiter.peek(Request::new("user:42", requests))?.remaining(), 9);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_all(&self, parts: &[Request<'_>]) -> Result<AllVerdict, Error> {
        let order = self.order(parts)?;
        let decided = match self.blocked_by_conduct(&order) {
            Ok(Some(blocked)) => Ok(blocked),
            Ok(None) => self.look_and_charge(&order),
            Err(error) => Err(error),
        };
        let mut verdict = decided.inspect_err(|_| self.note_impossible(&order))?;
        if !verdict.is_allowed() {
            self.judge_all(&order, &mut verdict);
        }
        self.note_all(&order, &verdict);
        Ok(verdict)
    }

    /// Judges the first denied part of each agent, if it is counted.
    fn judge_all(&self, order: &Order<'_>, verdict: &mut AllVerdict) {
        let mut last = AgentHash::NOBODY;
        for part in self.parts(order) {
            let answer = &mut verdict.verdicts[part.place];
            // An agent's parts stand together.
            if part.is_counted && !answer.is_allowed() && part.hash != last {
                last = part.hash;
                *answer = self.judged(*answer, part.hash, part.ask, part.now);
            }
        }
    }

    /// Counts the parts that can never pass, by themselves or with others of
    /// their lane.
    fn note_impossible(&self, order: &Order<'_>) {
        for part in self.parts(order).filter(|_| self.watch.is_some()) {
            let answer = self.look_at(&part);
            if let Err(Error::CostAboveCapacity { .. }) = answer {
                self.note_answer(part.ask.agent, part.ask.lane.id(), &answer);
            }
        }
    }

    /// The answer if an agent has to wait, whatever its lanes hold.
    fn blocked_by_conduct(&self, order: &Order<'_>) -> Result<Option<AllVerdict>, Error> {
        if !order.parts.iter().any(|part| part.is_counted) || !self.limits.conduct().enforces_wait() {
            return Ok(None);
        }
        let (mut verdict, mut is_blocked) = (AllVerdict::new(order.parts.len()), false);
        for part in self.parts(order) {
            let blocked = if part.is_counted { self.blocked(part.hash, part.ask, part.now)? } else { None };
            // An exempt agent does not wait.
            is_blocked |= blocked.is_some_and(|verdict| !verdict.is_allowed());
            verdict.verdicts[part.place] = blocked.map_or_else(|| self.look_at(&part), Ok)?;
        }
        Ok(is_blocked.then_some(verdict))
    }

    fn order<'a>(&self, parts: &'a [Request<'a>]) -> Result<Order<'a>, Error> {
        if !(1..=PARTS_MAX).contains(&parts.len()) {
            return Err(Error::Parts { parts: parts.len() });
        }
        let (hashes, places) = ([AgentHash::NOBODY; PARTS_MAX], [0; PARTS_MAX]);
        let is_any_now = parts.iter().any(|part| part.at.is_none());
        let start = if is_any_now { self.clock.now() } else { Tick::ZERO };
        let mut order = Order { parts, start, hashes, places };
        for (place, part) in parts.iter().enumerate() {
            order.hashes[place] = self.hash_ask(&self.ask(*part)?)?;
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
        let mut before = None;
        order.places().filter_map(move |place| {
            let request = order.parts[place];
            let Request { lane, cost, at, is_counted, .. } = request;
            let hash = order.hashes[place];
            // Those of one lane stand together.
            let sum = before.filter(|(other, _)| *other == (hash, lane)).map_or(0, |(_, sum)| sum);
            let sum = cost.saturating_add(sum);
            before = Some(((hash, lane), sum));
            let (ask, now, total) = (self.ask(request).ok()?, at.unwrap_or(order.start), self.share(order, place));
            Some(Part { hash, ask, now, is_counted, sum, place, total })
        })
    }

    /// What a part takes of its agent's total, with those given before it.
    fn share(&self, order: &Order<'_>, place: usize) -> Option<Share<'_>> {
        let lane = self.limits.total_with(order.parts[place].lane)?;
        let is_shared = |other: &usize| {
            let is_theirs = order.hashes[*other] == order.hashes[place];
            is_theirs && self.limits.total_with(order.parts[*other].lane).is_some()
        };
        let before = (0..=place).filter(is_shared).map(|other| order.parts[other].cost);
        let sum = before.fold(0, u64::saturating_add);
        Some(Share { lane, sum, is_last: !(place + 1..order.parts.len()).any(|other| is_shared(&other)) })
    }

    /// Charges every part, if a look at each finds room for it.
    fn look_and_charge(&self, order: &Order<'_>) -> Result<AllVerdict, Error> {
        let mut verdict = AllVerdict::new(order.parts.len());
        let newcomers = self.look_at_all(order, &mut verdict)?;
        if verdict.is_allowed() {
            self.charge_all(order, newcomers, &mut verdict)?;
        }
        if verdict.is_allowed() && self.warnings.is_used() {
            for Part { ask, place, .. } in self.parts(order) {
                let mut answer = Ok(verdict.verdicts[place]);
                self.warn_once(ask.agent, ask.lane.id(), ask.cost, &mut answer);
                verdict.verdicts[place] = answer?;
            }
        }
        Ok(verdict)
    }

    /// Counts every part that was charged, or those that stand in the way.
    fn note_all(&self, order: &Order<'_>, verdict: &AllVerdict) {
        if self.watch.is_none() {
            return;
        }
        for part in self.parts(order) {
            let told = verdict.verdicts[part.place];
            if verdict.is_allowed() || !told.is_allowed() {
                self.note_answer(part.ask.agent, part.ask.lane.id(), &Ok(told));
            }
        }
    }

    /// Says of each part what it would come to; but of the first only if
    /// another is denied or a newcomer's. Says which are those of agents that
    /// seem to have no record, as bits.
    fn look_at_all(&self, order: &Order<'_>, verdict: &mut AllVerdict) -> Result<u32, Error> {
        let mut newcomers = 0;
        let mut look = |part: Part<'_>| {
            let known = self.look_at_known(&part);
            newcomers |= u32::from(known.is_none()) << part.place;
            let lane = known.map_or_else(|| self.look_at_lane(&part), Charged::verdict);
            verdict.verdicts[part.place] = self.with_total(&part, lane)?;
            Ok(verdict.is_allowed() && newcomers == 0)
        };
        let mut is_simple = true;
        for part in self.parts(order).skip(1) {
            is_simple = look(part)?;
        }
        let first = self.parts(order).next().filter(|part| !is_simple || part.total.is_some());
        first.map_or(Ok(is_simple), look)?;
        Ok(newcomers)
    }

    /// Charges every part, or takes back what was charged.
    fn charge_all(&self, order: &Order<'_>, newcomers: u32, verdict: &mut AllVerdict) -> Result<(), Error> {
        let mut receipts = [None; PARTS_MAX];
        let mut totals = [None; PARTS_MAX];
        let take_back = |receipts: &[Option<Receipt>], totals: &[Option<Receipt>]| {
            for Part { hash, ask, place, total, .. } in self.parts(order).filter(|_| !broken(Fault::NoRollback)) {
                receipts[place].inspect(|receipt| self.take_back(hash, ask.lane, ask.cost, *receipt));
                if let (Some(share), Some(receipt)) = (total, totals[place]) {
                    self.take_back(hash, share.lane, share.sum, receipt);
                }
            }
        };
        let of = |is_newcomer| self.parts(order).filter(move |part| (newcomers >> part.place & 1 == 1) == is_newcomer);
        let newcomers_first = of(true).take(newcomers.count_ones() as usize);
        for part in newcomers_first.chain(of(false)) {
            let Made { answer, receipt, .. } = self.make(part.hash, part.ask, part.now);
            receipts[part.place] = receipt;
            let is_in_the_way = answer.as_ref().map_or(true, |verdict| !verdict.is_allowed());
            if is_in_the_way {
                take_back(&receipts, &totals);
            }
            verdict.verdicts[part.place] = answer?;
            if is_in_the_way {
                return Ok(());
            }
        }
        if !self.limits.has_total() {
            return Ok(());
        }
        for (part, share) in
            self.parts(order).filter_map(|part| Some((part, part.total.filter(|share| share.is_last)?)))
        {
            let theirs = || self.parts(order).filter(|other| other.hash == part.hash && other.total.is_some());
            // A newcomer's words may stand later than its instant: its lanes were charged there.
            let charged = theirs().filter_map(|part| receipts[part.place]).map(|receipt| receipt.at);
            let latest = charged.fold(part.now, Tick::max);
            let ask = Ask { lane: share.lane, cost: share.sum, ..part.ask };
            let Made { answer, receipt, .. } = self.make(part.hash, ask, latest);
            totals[part.place] = receipt;
            match answer {
                Ok(total) if total.is_allowed() => {
                    for place in theirs().map(|part| part.place) {
                        verdict.verdicts[place] = both(Ok(verdict.verdicts[place]), Ok(total))?;
                    }
                }
                in_the_way => {
                    take_back(&receipts, &totals);
                    verdict.verdicts[part.place] = in_the_way?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Takes back a charge that was made as one of several.
    pub(super) fn take_back(&self, hash: AgentHash, lane: LaneLimits<'_>, cost: u64, receipt: Receipt) {
        self.change(hash, None, lane, receipt.at, |limit, words, at| {
            // After the words: whoever charged them read the clock before.
            finish_loads();
            let clock = if broken(Fault::RollbackAtCharge) { receipt.at } else { self.clock.now() };
            let at = at.with(clock.max(receipt.at));
            let taken = limit.roll_back(words, at, receipt, cost);
            self.but_for_reserved(hash, lane, words, at, taken)
        });
    }

    /// What a part would come to, with those of the same lane before it.
    fn look_at(&self, part: &Part<'_>) -> Answer {
        self.with_total(part, self.look_at_lane(part))
    }

    /// The same without its total.
    fn look_at_lane(&self, part: &Part<'_>) -> Answer {
        self.would(part.hash, part.ask, part.sum, part.now)
    }

    /// What a part would come to if this is what its lane says.
    fn with_total(&self, part: &Part<'_>, lane: Answer) -> Answer {
        let Some(Share { lane: total, sum, .. }) = part.total else {
            return lane;
        };
        both(lane, self.would(part.hash, Ask { lane: total, ..part.ask }, sum, part.now))
    }

    /// The same for an agent whose record is found open: most are. `None` if not.
    fn look_at_known(&self, part: &Part<'_>) -> Option<Charged> {
        let (Ask { lane, cost, stand_in, .. }, sum, now) = (part.ask, part.sum, part.now);
        let (Found { record, tag, .. }, row) = self.slab.find_open(part.hash)?;
        let row = stand_in_row(row, stand_in);
        // Only budgets ask for the date.
        let is_budget = matches!(self.limits.kinds()[lane.id().index()], Kind::Budget(_));
        let at = if is_budget { self.at(now) } else { At { now, offset: Offset::default() } };
        let would =
            |words: &[LaneWord]| Choice::of(look(self.limits.lane_limit(lane, row).would(words, at, cost, sum)));
        record.update_lane(tag, self.limits.cells(lane.id()), would, || self.slab.count_retry())
    }
}

impl AllVerdict {
    fn new(parts: usize) -> Self {
        Self { verdicts: [Verdict::EXEMPT; PARTS_MAX], parts }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
