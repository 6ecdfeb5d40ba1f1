//! What to settle and when, and what follows from an answer or from none: the
//! decisions of the engine, without a clock, a thread or a socket. The thread that
//! drives it gives the time and carries batches to the server; so does a simulator,
//! with a server and a network of its own.
//!
//! ```text
//!              connected()                 all settled that waited then
//!   Lost ─────────────────────▶ Seeding ─────────────────────────────▶ Connected
//!     ▲                            │                                       │
//!     └──────── lost() ◀───────────┴───────────────────────────────────────┘
//! ```
//!
//! While the server is lost, checks go on by their views, and charge them. So on
//! the way back each lane that was asked about meanwhile is settled with its view
//! and what it owes as the *floor*, before checks hear that the server is there:
//! what the server has forgotten, or never heard of, it then knows.
//!
//! What is sent, and what is not answered:
//!
//! - *owed* stays owed until an answer says it was paid, and may be paid twice;
//! - *give* came off the lane before it was sent, and is never sent again;
//! - a *grant* whose answer is lost is spent by nobody.
//!
//! Each is on the strict side: no machine admits what the server does not know of.

use crate::demand::{self, Demand};
use crate::followed::{FollowedLanes, Of, Out};
use crate::steps::{Batch, Counts, KeyStep, State, Step, StepReply};
use crate::{AgentKey, BudgetSettled, Settled};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::num::NonZeroU16;
use std::time::Duration;
use tollgate::LaneId;
use tollgate::cluster::{self, Ask, Due, Link};

/// How long a grant is meant to last: what a machine wants is what it spends in this time.
const AHEAD: Duration = Duration::from_millis(500);

/// How long credit lies before it is given back.
const CREDIT_FOR: Duration = Duration::from_millis(1_200);

/// How often checks are told that the server is there. They take it for lost after about a second.
const SHOW_EVERY: Duration = Duration::from_millis(100);

/// For how long checks believe that the server is there, at least.
const SHOWN_FOR: Duration = Duration::from_millis(750);

/// The most questions that are taken out of the ring at a time, and more than it ever holds.
const ASKS_AT_ONCE: usize = 4_096;
const ASKS_MAX: usize = 1 << 17;

/// The most lanes of agents that are followed at a time: some 40 MB. Those beyond are asked about again by their next
/// checks.
const FOLLOWED_MAX: usize = 1 << 18;

/// The most steps that wait and belong to no record: some 10 MB. Those beyond are dropped: a refund is not given back,
/// and a reset has to be made again.
const OTHERS_MAX: usize = 1 << 16;

/// The most batches under way at a time.
const BATCHES_MAX: usize = 16;

/// A step under way, and what it will be answered to.
enum UnderWay {
    Lane {
        of: Of,
        ask: Ask,
        due: Box<Due>,
        wanted_at: Duration,
    },
    /// Nothing of a record follows from the answer.
    Other,
}

/// Decides what is settled, and when.
pub struct Settler {
    state: State,
    nodes: NonZeroU16,
    /// How long a question takes.
    round_trip: Duration,
    followed: FollowedLanes,
    /// Lanes that wait to be settled.
    queue: VecDeque<Of>,
    /// Steps that belong to no record: what is given back for agents that have none.
    others: VecDeque<KeyStep>,
    /// Lanes whose credit ends, in the order of their ends.
    ends: VecDeque<(Duration, Of)>,
    under_way: HashMap<u64, Vec<UnderWay>>,
    next_batch: u64,
    /// How many lanes are to be settled until the server knows what it missed.
    seeds_left: usize,
    shown_at: Option<Duration>,
    /// Whether all is given back and paid, and nothing taken.
    is_ending: bool,
    counts: Counts,
}

impl Settler {
    /// For a machine among at least so many.
    #[must_use]
    pub fn new(nodes: NonZeroU16) -> Self {
        Self {
            state: State::Lost,
            nodes,
            round_trip: Duration::from_millis(1),
            followed: FollowedLanes::default(),
            queue: VecDeque::new(),
            others: VecDeque::new(),
            ends: VecDeque::new(),
            under_way: HashMap::new(),
            next_batch: 0,
            seeds_left: 0,
            shown_at: None,
            is_ending: false,
            counts: Counts::default(),
        }
    }

    /// Whether the server answers.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// What was counted so far.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// What is out of each lane: of all agents that are followed.
    #[must_use]
    pub fn out(&self) -> BTreeMap<LaneId, Out> {
        self.followed.out()
    }

    /// How many lanes of agents are followed.
    #[must_use]
    pub fn followed(&self) -> usize {
        self.followed.len()
    }

    /// How many machines there are.
    #[must_use]
    pub const fn nodes(&self) -> NonZeroU16 {
        self.nodes
    }

    /// How long a question takes.
    #[must_use]
    pub const fn round_trip(&self) -> Duration {
        self.round_trip
    }

    /// Changes how many machines there are.
    pub const fn set_nodes(&mut self, nodes: NonZeroU16) {
        self.nodes = nodes;
    }

    /// How long a question takes, as last measured.
    pub const fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
    }

    /// The server answers: first it is told what it missed.
    pub fn connected(&mut self, link: &Link<'_>, now: Duration) {
        if self.state != State::Lost {
            return;
        }
        self.state = State::Seeding;
        self.take_asks(link, ASKS_MAX);
        self.seeds_left = self.queue.len();
        self.counts.seeded += self.seeds_left as u64;
        self.end_seeding(link, now);
    }

    /// The engine ends. Checks spend no credit from now on: it is given back, and what they owe is paid, with what
    /// [`Settler::next_batch`] returns until there is no more.
    pub fn end(&mut self, link: &Link<'_>) {
        self.is_ending = true;
        link.ended(self.nodes);
        self.take_asks(link, ASKS_MAX);
        let followed: Vec<_> = self.followed.all().collect();
        followed.into_iter().for_each(|of| self.enqueue(of));
    }

    /// The server does not answer. What is under way stays without an answer.
    pub fn lost(&mut self, link: &Link<'_>) {
        if self.state == State::Lost {
            return;
        }
        self.state = State::Lost;
        if !self.is_ending {
            self.counts.losses += 1;
            link.lost(self.nodes);
        }
        self.shown_at = None;
        let numbers: Vec<_> = self.under_way.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.unanswered(number));
        // From now on checks charge their views.
        self.followed.values_mut().for_each(|followed| followed.has_floor = true);
        self.seeds_left = 0;
    }

    /// No answer will come for a batch. What it owed is owed still.
    pub fn unanswered(&mut self, number: u64) {
        let Some(steps) = self.under_way.remove(&number) else { return };
        self.counts.unanswered += 1;
        for step in steps {
            if let UnderWay::Lane { of, .. } = step {
                if let Some(followed) = self.followed.get_mut(of) {
                    followed.is_under_way = false;
                }
                self.enqueue(of);
            }
        }
    }

    /// Takes what checks have asked, and shows them the state. Call it at least every tenth of a second.
    pub fn tend(&mut self, link: &Link<'_>, now: Duration) {
        if self.shown_at.is_some_and(|shown| now.saturating_sub(shown) > SHOWN_FOR) {
            // It stood still for so long that checks have charged their views.
            self.lost(link);
            self.connected(link, now);
        }
        self.take_asks(link, ASKS_AT_ONCE);
        while self.ends.front().is_some_and(|(end, _)| *end <= now) {
            let Some((_, of)) = self.ends.pop_front() else { break };
            let Some(followed) = self.followed.get_mut(of) else { continue };
            match followed.ends {
                Some(end) if end > now => self.ends.push_back((end, of)), // It was extended.
                Some(_) if followed.is_queued || followed.is_under_way => followed.ends = None,
                Some(_) if followed.credit() == 0 && !followed.has_floor => self.followed.forget(of),
                Some(_) => {
                    followed.ends = None;
                    followed.ask = followed.ask.later();
                    self.enqueue(of);
                }
                None => {}
            }
        }
        let is_due = self.shown_at.is_none_or(|shown| now.saturating_sub(shown) >= SHOW_EVERY);
        if self.state == State::Connected && is_due && !self.is_ending {
            link.connected(self.nodes, 2 * self.round_trip);
            self.shown_at = Some(now);
        }
    }

    fn take_asks(&mut self, link: &Link<'_>, most: usize) {
        for ask in link.asks(most) {
            let agent = AgentKey::from_bits(u128::from_le_bytes(ask.key()));
            if ask.is_reset() {
                self.wait(KeyStep { agent, lane: ask.lane(), step: Step::Forget(ask.reset_window()) });
                continue;
            }
            if ask.is_refund() {
                if let Some(due) = link.due(&ask) {
                    self.give(agent, ask.lane(), &due, due.given());
                }
                continue;
            }
            let of = (agent.to_bits(), ask.lane());
            if !self.followed.contains(of) && self.followed.len() >= FOLLOWED_MAX {
                self.counts.dropped += 1;
                continue;
            }
            let is_lost = self.state != State::Connected;
            self.followed.follow(of, ask, self.counts.losses > 0).has_floor |= is_lost;
            self.enqueue(of);
        }
    }

    /// Puts a lane into the queue, unless it is there, or will be asked about again when its answer comes.
    fn enqueue(&mut self, of: Of) {
        let followed = self.followed.get_mut(of);
        if let Some(followed) = followed.filter(|followed| !followed.is_queued && !followed.is_under_way) {
            followed.is_queued = true;
            self.queue.push_back(of);
        }
    }

    /// The next steps to send, up to `most`. `None` if there are none, or the server is lost, or enough are under way.
    pub fn next_batch(&mut self, link: &Link<'_>, now: Duration, most: usize) -> Option<Batch> {
        if self.state == State::Lost || self.under_way.len() >= BATCHES_MAX {
            return None;
        }
        let (mut steps, mut under_way) = (Vec::new(), Vec::new());
        // Ends: each round sends a step, or takes a lane out of the queue.
        while steps.len() < most {
            if let Some(step) = self.others.pop_front() {
                steps.push(step);
                under_way.push(UnderWay::Other);
                continue;
            }
            let Some(of) = self.queue.pop_front() else { break };
            let Some(followed) = self.followed.get_mut(of) else { continue };
            followed.is_queued = false;
            let Some(due) = link.due(&followed.ask) else {
                // It has no record: it owes nothing, and its credit is lost.
                self.followed.forget(of);
                self.settled_one(link, now);
                continue;
            };
            let has_floor = self.followed.get_mut(of).is_some_and(|followed| followed.has_floor);
            if self.is_ending && (due.owed(), due.given(), has_floor) == (0, 0, false) {
                self.followed.forget(of);
                self.settled_one(link, now);
                continue;
            }
            let (Some(step), Some(followed)) = (self.settlement(of, &due, now), self.followed.get_mut(of)) else {
                self.counts.refused += 1;
                self.followed.forget(of);
                self.settled_one(link, now);
                continue;
            };
            followed.is_under_way = true;
            let ask = followed.ask;
            followed.ask = ask.later();
            self.counts.given += due.given();
            self.followed.set_out(of, Out { credit: due.credit(), advance: due.owed() });
            steps.push(KeyStep { agent: AgentKey::from_bits(of.0), lane: of.1, step });
            under_way.push(UnderWay::Lane { of, ask, due: Box::new(due), wanted_at: now });
        }
        if steps.is_empty() {
            return None;
        }
        self.counts.sent += steps.len() as u64;
        let number = self.next_batch;
        self.next_batch += 1;
        self.under_way.insert(number, under_way);
        Some(Batch { number, steps })
    }

    /// What to settle for a lane. `None` if the server cannot count its limit.
    fn settlement(&mut self, of: Of, due: &Due, now: Duration) -> Option<Step> {
        let followed = self.followed.get_mut(of)?;
        let spent = followed.credit().saturating_sub(due.credit() + due.given()) + due.owed();
        let since = now.saturating_sub(followed.settled_at).max(Duration::from_micros(100));
        // What was spent before the first settlement says nothing about a rate.
        let rate = if followed.settled_at.is_zero() { 0.0 } else { spent as f64 / since.as_secs_f64() };
        followed.rate = (followed.rate + rate) / 2.0;
        let demand = Demand {
            nodes: u64::from(self.nodes.get()),
            cost: followed.ask.cost(),
            // At least 0, and a rate is far below 2^53.
            wanted: (followed.rate * AHEAD.as_secs_f64()) as u64,
            has_floor: followed.has_floor,
            is_old: followed.is_old,
            is_ending: self.is_ending,
        };
        demand.step(due)
    }

    /// Gives tokens back that no record knows of.
    fn give(&mut self, agent: AgentKey, lane: LaneId, due: &Due, tokens: u64) {
        let Some((step, given)) = demand::give(due, tokens) else { return };
        self.counts.given += given;
        self.wait(KeyStep { agent, lane, step });
    }

    /// Lets a step wait that belongs to no record.
    fn wait(&mut self, step: KeyStep) {
        if self.others.len() < OTHERS_MAX {
            self.others.push_back(step);
        } else {
            self.counts.dropped += 1;
        }
    }

    /// A batch was answered, step by step.
    pub fn answered(&mut self, link: &Link<'_>, now: Duration, number: u64, replies: &[StepReply]) {
        let Some(steps) = self.under_way.remove(&number) else { return };
        debug_assert_eq!(steps.len(), replies.len());
        for (step, reply) in steps.into_iter().zip(replies) {
            if let UnderWay::Lane { of, ask, due, wanted_at } = step {
                self.received(link, now, of, &ask, &due, wanted_at, *reply);
                self.settled_one(link, now);
            }
            self.counts.refused += u64::from(*reply == StepReply::Refused);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of a step under way")]
    fn received(
        &mut self,
        link: &Link<'_>,
        now: Duration,
        of: Of,
        ask: &Ask,
        due: &Due,
        wanted_at: Duration,
        reply: StepReply,
    ) {
        let (granted, level) = match reply {
            StepReply::Done(Settled { granted, debt_ns }) => (granted, debt_ns),
            StepReply::DoneBudget(BudgetSettled { granted, used }) => (granted, used),
            // Nothing was paid: it is owed still, and asked about again by the next check.
            StepReply::Refused | StepReply::Forgotten => return self.followed.forget(of),
        };
        self.counts.granted += granted;
        self.counts.paid += due.owed();
        let settled = link.settle(ask, due, granted, level);
        let credit = due.credit() + granted;
        let is_gone = settled == cluster::Settled::Gone;
        self.followed.set_out(of, Out { credit: if is_gone { 0 } else { credit }, advance: 0 });
        let Some(followed) = self.followed.get_mut(of) else { return };
        followed.is_under_way = false;
        followed.settled_at = wanted_at.max(Duration::from_nanos(1));
        let is_asked_again = std::mem::take(&mut followed.is_asked_again);
        match settled {
            cluster::Settled::Gone => {
                if !followed.is_queued {
                    self.followed.forget(of);
                }
                // The store forgets what a budget was debited with a reset, and with its window.
                if due.window().is_none() {
                    self.give(AgentKey::from_bits(of.0), of.1, due, granted);
                }
            }
            cluster::Settled::Again => self.enqueue(of),
            cluster::Settled::Done if is_asked_again => self.enqueue(of),
            cluster::Settled::Done => {
                (followed.has_floor, followed.is_old) = (false, false);
                // Without credit too: whoever asks again until then has a rate.
                let ends = now + CREDIT_FOR;
                if followed.ends.replace(ends).is_none() {
                    self.ends.push_back((ends, of));
                }
            }
        }
    }

    /// One of the lanes that the server had to be told of is settled.
    fn settled_one(&mut self, link: &Link<'_>, now: Duration) {
        if self.state == State::Seeding {
            self.seeds_left = self.seeds_left.saturating_sub(1);
            self.end_seeding(link, now);
        }
    }

    fn end_seeding(&mut self, link: &Link<'_>, now: Duration) {
        if self.state == State::Seeding && self.seeds_left == 0 {
            self.state = State::Connected;
            if !self.is_ending {
                link.connected(self.nodes, 2 * self.round_trip);
                self.shown_at = Some(now);
            }
        }
    }
}
