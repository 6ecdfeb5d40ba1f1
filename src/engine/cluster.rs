//! What a check asks of the store that machines share lanes through, and what the
//! answers do to records.
//!
//! A check never waits for the store. It marks the lane's word as asked about and
//! puts an [`Ask`] into a ring; a thread of its own, the *engine* of the crate
//! `tollgate-redis`, takes asks out and settles them, many at a time:
//!
//! 1. [`take_due`](Engine::take_due) reads what the lane owes, and takes off what
//!    is to be given back.
//! 2. The engine asks the store.
//! 3. [`settle`](Engine::settle_due) adds what was paid and granted. If the record
//!    has changed hands, nothing is added, and the engine gives the grant back.
//!
//! [`lane::clustered`](crate::lane::clustered) shows that no machine admits more
//! than it was granted and its advance, whatever is lost in between.
//!
//! An ask that finds the ring full is dropped, and the mark taken back, so the
//! next check asks again. Nothing is spent in advance while the ring is nearly
//! full: tokens that were spent so would not be paid for.

use super::request::{ResolvedRequest, Target};
use super::reservers::Reservers;
use super::{Agent, Engine, stand_in_row};
use crate::bounds::{ASKS_KEPT, ASKS_MIN};
use crate::clock::Tick;
use crate::error::Error;
use crate::lane::clustered::{Applied, Balance, Known, LinkWord, Source};
use crate::lane::kind::LimitWords;
use crate::lane::{Choice, Kind, LaneWord};
use crate::machine::process::unforked;
use crate::observe::sources::SourceCounters;
use crate::policy::{LaneId, PlanId, Policy};
use crate::slab::hash::AgentHash;
use crate::sync::{Counter, Ordering};
use crossbeam_queue::ArrayQueue;
use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;
use std::time::Duration;

/// A question to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    key: [u8; 16],
    hash: AgentHash,
    lane: LaneId,
    plan: Option<PlanId>,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// To settle the lane; for a request of this cost that was denied, if it is not 0.
    Settle { cost: u64 },
    /// To give tokens back that the lane's word knows nothing of: to this window, if it is a budget.
    Refund { tokens: u64, window: Option<u64> },
    /// To forget all that the agent has spent on the lane: in this window, if it is a budget.
    Reset { window: Option<u64> },
}

/// A calendar window of a budget that machines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetWindow {
    /// Its number: no other window of the lane has it.
    pub number: u64,
    /// How long it goes on, by this machine's calendar.
    pub left: Duration,
    /// How much of it is used as far as this machine knows, without what it owes.
    pub used: u64,
}

impl Ask {
    /// A question that nobody asked, about what the lane has left.
    #[cfg(all(test, loom))]
    pub(crate) fn for_test(engine: &Engine, agent: &str, lane: LaneId) -> Self {
        let hash = engine.hash(agent.as_bytes()).unwrap();
        Self::to_settle([0; 16], hash, lane, None)
    }

    /// A question about what the lane has left, for no request that waits.
    pub(super) const fn to_settle(key: [u8; 16], hash: AgentHash, lane: LaneId, plan: Option<PlanId>) -> Self {
        Self { key, hash, lane, plan, what: What::Settle { cost: 0 } }
    }

    /// The agent, as a keyed hash of its id: the same on every machine with the same key.
    #[must_use]
    pub const fn key(&self) -> [u8; 16] {
        self.key
    }

    /// The lane.
    #[must_use]
    pub const fn lane(&self) -> LaneId {
        self.lane
    }

    /// Whether two asks concern one lane of one agent. The last plan asked about counts.
    #[must_use]
    pub fn is_of_same_lane(&self, other: &Ask) -> bool {
        (self.key, self.lane) == (other.key, other.lane)
    }

    /// Whether the store has to forget what the agent has spent on the lane.
    #[must_use]
    pub const fn is_reset(&self) -> bool {
        matches!(self.what, What::Reset { .. })
    }

    /// The window of a budget whose use is to be forgotten.
    #[must_use]
    pub const fn reset_window(&self) -> Option<u64> {
        match self.what {
            What::Reset { window } => window,
            _ => None,
        }
    }

    /// Whether tokens are to be given back that the lane's word knows nothing of.
    #[must_use]
    pub const fn is_refund(&self) -> bool {
        matches!(self.what, What::Refund { .. })
    }

    /// The cost of a request that was denied, and may pass once the store has granted that much; 0 if there was none.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        match self.what {
            What::Settle { cost } => cost,
            What::Refund { .. } | What::Reset { .. } => 0,
        }
    }

    /// The same question, with no request that waits for tokens: only to pay, and to give back what was not spent.
    #[must_use]
    pub const fn later(self) -> Self {
        Self { what: What::Settle { cost: 0 }, ..self }
    }
}

/// What a lane of an agent has to settle with the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is given back has been taken off already"]
pub struct Due {
    balance: Balance,
    /// Whether the answer belongs to a record.
    is_of_record: bool,
}

impl Due {
    /// Tokens that were spent in advance, to be debited whatever the bucket holds.
    #[must_use]
    pub const fn owed(&self) -> u64 {
        self.balance.owed
    }

    /// Tokens to be given back. They came off the lane already, so they may be sent once at most.
    #[must_use]
    pub const fn given(&self) -> u64 {
        self.balance.given
    }

    /// What is left of the credit.
    #[must_use]
    pub const fn credit(&self) -> u64 {
        self.balance.credit
    }

    /// How much credit this machine may have.
    #[must_use]
    pub const fn credit_max(&self) -> u64 {
        self.balance.credit_max
    }

    /// How much this machine may spend in advance.
    #[must_use]
    pub const fn advance_max(&self) -> u64 {
        self.balance.advance_max
    }

    /// How long a token takes to refill, in nanoseconds; 0 if the lane is a budget.
    #[must_use]
    pub const fn token_ns(&self) -> u64 {
        match self.balance.known {
            Known::Debt { token_ns, .. } => token_ns,
            Known::Used { .. } => 0,
        }
    }

    /// The window that is settled, if the lane is a budget.
    #[must_use]
    pub const fn window(&self) -> Option<BudgetWindow> {
        match self.balance.known {
            Known::Debt { .. } => None,
            Known::Used { used, window: number, left } => Some(BudgetWindow { number, left, used }),
        }
    }

    /// What the bucket holds when it is full, or the whole budget.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.balance.capacity
    }

    /// What the bucket lacks to be full as far as this machine knows, in nanoseconds of refill; 0 if it is a budget.
    #[must_use]
    pub const fn known_debt_ns(&self) -> u64 {
        match self.balance.known {
            Known::Debt { debt_ns, .. } => debt_ns,
            Known::Used { .. } => 0,
        }
    }
}

/// What an answer of the store did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a grant may have found nobody"]
pub enum Settled {
    /// The lane has what it was granted.
    Done,
    /// The same, but more was spent meanwhile: ask once more.
    Again,
    /// The lane is another agent's, or was reset, or the window is over: nobody has what was granted.
    Gone,
}

/// The questions that wait to be taken, and how ids are hashed for the store.
pub(crate) struct Asks {
    ring: ArrayQueue<Ask>,
    key: [u8; 16],
    asked: Counter,
    dropped: Counter,
    /// Answers of the lanes that machines share.
    sources: SourceCounters,
    /// Whose reservations there are; empty if machines share no lane that can be reserved.
    pub(super) reservers: Reservers,
}

impl Asks {
    /// If there is no memory, the error is how many bytes were needed.
    pub(crate) fn new(key: [u8; 16], agents: u64, policy: &Policy, reservations: usize) -> Result<Self, u64> {
        // No more than there are agents, and enough for many lanes of a few. Lossless: bounded.
        let kept = agents.saturating_mul(2).clamp(ASKS_MIN, ASKS_KEPT as u64) as usize;
        let (asked, dropped) = (Counter::new(0), Counter::new(0));
        let has_budget = policy.kinds().any(|kind| matches!(kind, Kind::ClusteredBudget(_)));
        let reservers = Reservers::new(if has_budget { reservations } else { 0 })?;
        let sources = SourceCounters::new(policy.lanes().len())?;
        Ok(Self { ring: ArrayQueue::new(kept), key, asked, dropped, sources, reservers })
    }

    /// The agent's key in the store.
    pub(super) fn key_of(&self, agent: &[u8]) -> [u8; 16] {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(agent);
        hasher.finish128().as_bytes()
    }

    /// Puts a question into the ring. `false` if it is full.
    pub(super) fn push(&self, ask: Ask) -> bool {
        // A half-done push would make the ring of a forked child wait for its other half.
        let is_in = unforked(|| self.ring.push(ask)).is_ok();
        if is_in { &self.asked } else { &self.dropped }.fetch_add(1, Ordering::Relaxed);
        is_in
    }

    fn is_nearly_full(&self) -> bool {
        8 * self.ring.len() >= 7 * self.ring.capacity()
    }

    /// How many questions were asked, and how many found the ring full.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.asked.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        (self.ring.capacity() * size_of::<Ask>() + self.reservers.bytes()) as u64 + self.sources.reserved_bytes()
    }
}

impl Engine {
    /// Asks the store to settle the lane of a request, unless somebody has.
    #[cold]
    #[inline(never)]
    pub(super) fn ask(&self, request: &ResolvedRequest<'_>, is_allowed: bool) {
        let ResolvedRequest { agent, target: Target { hash, lane, plan, now, .. }, cost, .. } = *request;
        let (Some(asks), Some(shared)) = (&self.asks, self.limits.clustered(lane.id())) else { return };
        let (retried, cells) = (|| self.slab.count_retry(), self.limits.cells(lane.id()));
        let marked = self.with_record_or_claim(hash, Some(agent), now, |found, _| {
            found.record.update_lane(found.tag, cells, |words| shared.ask(words, now), retried)
        });
        if marked != Some(true) {
            return;
        }
        let what = What::Settle { cost: if is_allowed { 0 } else { cost } };
        let is_in = asks.push(Ask { key: asks.key_of(agent), hash, lane: lane.id(), plan, what });
        if !is_in {
            let unmark = |words: &[_]| shared.not_asked(words);
            self.with_record(hash, |found| found.record.update_lane(found.tag, cells, unmark, retried));
        }
        if asks.is_nearly_full() {
            self.limits.set_link(self.limits.link().without_asks());
        }
    }

    /// Gives tokens of a lane that machines share back to the store.
    pub(super) fn refund_in_store(&self, agent: &[u8], target: &Target<'_>, tokens: u64) -> Result<(), Error> {
        let Some(asks) = &self.asks else { return Ok(()) };
        let (key, lane) = (asks.key_of(agent), target.lane.id());
        let what = What::Refund { tokens, window: self.window_now(lane, target.now.max(self.clock.now())) };
        let is_in = asks.push(Ask { key, hash: target.hash, lane, plan: target.plan, what });
        if is_in { Ok(()) } else { Err(Error::Busy) }
    }

    /// Lets the store forget what an agent has spent: on one lane, or on all.
    pub(crate) fn reset_in_store(&self, agent: Agent<'_>, lane: Option<LaneId>) -> Result<(), Error> {
        let (Some(asks), hash) = (&self.asks, self.hash(agent.id)?) else { return Ok(()) };
        let lanes = self.limits.lanes().map(|lane| lane.id()).filter(|known| lane.is_none_or(|lane| lane == *known));
        let now = self.clock.now();
        for lane in lanes.filter(|lane| self.is_clustered(*lane)) {
            let what = What::Reset { window: self.window_now(lane, now) };
            if !asks.push(Ask { key: asks.key_of(agent.id), hash, lane, plan: None, what }) {
                return Err(Error::Busy);
            }
        }
        Ok(())
    }

    /// Whether machines share the lane.
    pub(crate) fn is_clustered(&self, lane: LaneId) -> bool {
        matches!(self.kind(lane), Kind::Clustered(_) | Kind::ClusteredBudget(_))
    }

    /// The number of the window at this instant, if machines share the lane and it is a budget.
    fn window_now(&self, lane: LaneId, now: Tick) -> Option<u64> {
        self.limits.clustered(lane)?.window(self.at(now))
    }

    /// Takes questions out of the ring, up to this many.
    pub(crate) fn take_asks(&self, most: usize) -> impl Iterator<Item = Ask> + '_ {
        self.asks.iter().flat_map(move |asks| (0..most).map_while(|_| unforked(|| asks.ring.pop())))
    }

    /// The secret key with which ids are hashed for the store.
    pub(crate) fn cluster_key(&self) -> Option<[u8; 16]> {
        self.asks.as_ref().map(|asks| asks.key)
    }

    /// Whether machines share any lane.
    pub(crate) fn has_asks(&self) -> bool {
        self.asks.is_some()
    }

    /// How many questions were asked, and how many found the ring full.
    pub(crate) fn ask_counts(&self) -> (u64, u64) {
        self.asks.as_ref().map_or((0, 0), Asks::counts)
    }

    /// How many questions wait to be taken.
    pub(crate) fn asks_waiting(&self) -> usize {
        self.asks.as_ref().map_or(0, |asks| asks.ring.len())
    }

    /// Counts where an answer came from.
    #[inline]
    pub(super) fn count_source(&self, lane: LaneId, source: Option<Source>) {
        if let (Some(asks), Some(source)) = (&self.asks, source) {
            asks.sources.add(lane, source);
        }
    }

    /// How many answers of the lane came from there.
    pub(crate) fn answers_from(&self, lane: LaneId, source: Source) -> u64 {
        self.asks.as_ref().map_or(0, |asks| asks.sources.sum(lane, source))
    }

    /// Tells checks how the store is.
    pub(crate) fn set_link(&self, link: LinkWord) {
        let is_nearly_full = self.asks.as_ref().is_some_and(Asks::is_nearly_full);
        self.limits.set_link(if is_nearly_full { link.without_asks() } else { link });
    }

    /// What the lane has to settle. What is to be given back is taken off. `None` if there is nothing to settle.
    pub(crate) fn take_due(&self, ask: &Ask) -> Option<Due> {
        let target = self.target_of(ask)?;
        let (shared, at) = (self.limits.clustered(ask.lane)?, self.at(target.now));
        let balance = |limit, words: &[_]| shared.balance(words, at, limit);
        if let What::Refund { tokens, window } = ask.what {
            let fresh = balance(self.words_without_record(&target), &[]).outcome.answer;
            // What was used in a window that is over is not given back to the next.
            let is_of_now = window == fresh.known.window();
            return is_of_now.then_some(Due { balance: Balance { given: tokens, ..fresh }, is_of_record: false });
        }
        let cells = self.limits.cells(ask.lane);
        let balance = self.with_record(ask.hash, |found| {
            let row = stand_in_row(found.tag.row(), ask.plan);
            let step = |words: &[_]| balance(target.lane.limit_words(row), words);
            found.record.update_lane(found.tag, cells, step, || self.slab.count_retry())
        })?;
        Some(Due { balance, is_of_record: true })
    }

    /// Adds what the store was paid and has granted, and what it has reported: the debt, or how much is used.
    pub(crate) fn settle_due(&self, ask: &Ask, due: &Due, granted: u64, level: u64) -> Settled {
        let Some(shared) = self.limits.clustered(ask.lane).filter(|_| due.is_of_record) else { return Settled::Done };
        let (now, due) = (self.clock.now(), &due.balance);
        // The view first: a check that finds live credit finds the view that came with it.
        let applied = match self.apply_settled(ask, |words| shared.see(words, now, due, level)) {
            Some(seen @ (Applied::Done | Applied::Again)) => {
                let again = seen == Applied::Again;
                self.apply_settled(ask, |words| shared.receive(words, now, due, granted, again))
            }
            gone => gone,
        };
        let applied = applied.unwrap_or(Applied::Gone);
        if applied != Applied::Gone && due.known.window().is_some() {
            let again = applied == Applied::Again;
            self.apply_settled(ask, |words| shared.keep_pace(words, now, due, granted, again));
        }
        match applied {
            Applied::Done => Settled::Done,
            Applied::Again => Settled::Again,
            Applied::Gone => Settled::Gone,
        }
    }

    /// Applies a step of a settlement to the lane; `None` if the agent has no record.
    fn apply_settled<A>(&self, ask: &Ask, step: impl Fn(&[LaneWord]) -> Choice<A>) -> Option<A> {
        let (cells, retried) = (self.limits.cells(ask.lane), || self.slab.count_retry());
        self.with_record(ask.hash, |found| found.record.update_lane(found.tag, cells, &step, retried))
    }

    fn target_of(&self, ask: &Ask) -> Option<Target<'_>> {
        let lane = self.limits.lane(ask.lane).ok()?;
        Some(Target::new(ask.hash, lane, ask.plan, self.clock.now()))
    }

    /// The words of the limit of an agent without a record.
    fn words_without_record(&self, target: &Target<'_>) -> LimitWords {
        let words = |row| target.lane.limit_words(stand_in_row(row, target.plan));
        self.limits.of_epoch(|epoch| self.registry.with_row(target.hash, epoch, words))
    }
}
