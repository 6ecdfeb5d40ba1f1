//! Machines that share a budget, a server, and the network between them.

use super::scenario::{Fault, Scenario};
use crate::oracle::{Budget, Oracle};
use crate::random::Random;
use std::collections::HashMap;
use std::num::NonZeroU16;
use std::time::Duration;
use tollgate::clock::ManualWallClock;
use tollgate::cluster::{Cluster, ClusterLane, Link, WhenLost};
use tollgate::{LaneId, Limiter, ManualClock, Policy, Request, ReservationId, Settle};
use tollgate_redis::{AgentKey, Batch, BudgetSettled, BudgetSettlement, KeyStep, Settler, State, Step, StepReply};

/// How long a machine waits for an answer.
const TIMEOUT_US: u64 = 200_000;
const HOUR_US: u64 = 3_600_000_000;
/// The most reservations that a machine has open.
const RESERVATIONS_MAX: usize = 100;

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Report {
    pub(super) admitted: u64,
    pub(super) denied: u64,
    pub(super) losses: u64,
    pub(super) forgotten: u64,
    pub(super) deaths: u64,
    pub(super) reserved: u64,
    pub(super) windows: u64,
}

/// A window of an agent.
type Of = (usize, u64);

struct Message {
    arrives_us: u64,
    node: usize,
    /// The connection that it belongs to, and the life of the server.
    connection: u64,
    life: u64,
    number: u64,
    content: Content,
}

enum Content {
    Steps(Vec<KeyStep>),
    Replies(Vec<StepReply>),
}

struct Node {
    clock: ManualClock,
    wall: ManualWallClock,
    limiter: Limiter,
    settler: Settler,
    lane: LaneId,
    skew_us: u64,
    connection: u64,
    sent_us: HashMap<u64, u64>,
    paused_until_us: u64,
    connects_at_us: u64,
    /// What was admitted while the server was lost, and the server may not know of.
    alone: HashMap<Of, u64>,
    reservations: Vec<(ReservationId, Of, u64)>,
}

impl Node {
    fn new(scenario: &Scenario, now_us: u64, skew_us: u64) -> Self {
        let policy =
            Policy::builder().lane("llm", format!("budget {}/hour", scenario.capacity).as_str()).build().unwrap();
        let clock = ManualClock::new();
        clock.advance(Duration::from_micros(now_us));
        let lane = ClusterLane::new().when_lost(scenario.when_lost).slack_percent(scenario.slack_percent);
        let lane = if scenario.is_exact { lane.exact() } else { lane };
        let wall = ManualWallClock::new(Duration::from_micros(now_us + skew_us));
        let builder = Limiter::builder(policy).agents(64).clock(clock.clone()).wall_clock(wall.clone());
        let limiter = builder.cluster(Cluster::new([7; 16]).lane("llm", lane)).build().unwrap();
        let nodes = NonZeroU16::new(scenario.nodes as u16).unwrap();
        Link::of(&limiter).unwrap().lost(nodes);
        Self {
            clock,
            wall,
            lane: limiter.lane("llm").unwrap(),
            settler: Settler::new(nodes),
            limiter,
            skew_us,
            connection: 0,
            sent_us: HashMap::new(),
            paused_until_us: 0,
            connects_at_us: 0,
            alone: HashMap::new(),
            reservations: Vec::new(),
        }
    }

    fn advance(&self, now_us: u64, step_us: u64) {
        self.clock.advance(Duration::from_micros(step_us));
        self.wall.set(Duration::from_micros(now_us + self.skew_us));
    }

    /// The window that the machine is in.
    fn window(&self, now_us: u64) -> u64 {
        (now_us + self.skew_us) / HOUR_US
    }
}

pub(super) struct World {
    pub(super) scenario: Scenario,
    fault: Option<Fault>,
    random: Random,
    now_us: u64,
    nodes: Vec<Node>,
    used: HashMap<(AgentKey, u64), Budget>,
    life: u64,
    down_until_us: u64,
    messages: Vec<Message>,
    /// What was admitted, less what was given back, and what may be admitted beyond the budget.
    pub(super) admitted: HashMap<Of, u64>,
    extra: HashMap<Of, u64>,
    /// The same for every window.
    extra_of_all: u64,
    pub(super) report: Report,
}

impl World {
    pub(super) fn new(scenario: Scenario, fault: Option<Fault>) -> Self {
        let mut random = Random::new(scenario.seed);
        let now_us = 3 * HOUR_US - scenario.edge_ms * 1_000;
        let nodes = (0..scenario.nodes).map(|_| {
            let skew_us = random.below(scenario.skew_ms * 1_000 + 1);
            Node::new(&scenario, now_us, skew_us)
        });
        Self {
            nodes: nodes.collect(),
            extra_of_all: scenario.advance_max() * scenario.nodes as u64,
            random,
            fault,
            now_us,
            used: HashMap::new(),
            life: 0,
            down_until_us: 0,
            messages: Vec::new(),
            admitted: HashMap::new(),
            extra: HashMap::new(),
            report: Report::default(),
            scenario,
        }
    }

    pub(super) fn run(mut self) -> Result<Self, String> {
        let end = self.now_us + self.scenario.seconds * 1_000_000;
        while self.now_us < end {
            let step = 100 + self.random.below(1_900);
            self.now_us += step;
            self.nodes.iter().for_each(|node| node.advance(self.now_us, step));
            self.trouble();
            self.deliver();
            for node in 0..self.nodes.len() {
                if self.nodes[node].paused_until_us <= self.now_us {
                    self.drive(node);
                    self.check(node, step)?;
                    self.settle_reservations(node)?;
                }
            }
        }
        self.report.losses += self.nodes.iter().map(|node| node.settler.counts().losses).sum::<u64>();
        self.report.windows = self.admitted.len() as u64;
        Ok(self)
    }

    fn once_in(&mut self, seconds: u64) -> bool {
        self.random.below(seconds * 1_000) == 0
    }

    fn trouble(&mut self) {
        if self.scenario.stops && self.once_in(2) {
            self.down_until_us = self.now_us + 1_000 + self.random.below(1_500_000);
            if self.scenario.forgets && self.random.below(2) == 0 {
                self.used.clear();
                self.report.forgotten += 1;
                // Every connection ends with the server that had it. One machine alone knows all that it has admitted.
                self.life += 1;
                (0..self.nodes.len()).for_each(|node| self.lose(node));
                let again = self.scenario.capacity + self.scenario.advance_max() * self.scenario.nodes as u64;
                let knows_all = self.nodes.len() == 1 && self.report.deaths == 0;
                self.extra_of_all += if knows_all { 0 } else { again };
            }
        }
        if self.scenario.pauses && self.once_in(2) {
            let node = self.random.below(self.nodes.len() as u64) as usize;
            self.nodes[node].paused_until_us = self.now_us + self.random.below(1_200_000);
        }
        if self.scenario.dies && self.once_in(4) {
            let at = self.random.below(self.nodes.len() as u64) as usize;
            let node = &self.nodes[at];
            self.report.losses += node.settler.counts().losses;
            self.report.deaths += 1;
            // It takes to its grave what it has admitted alone. The next one counts as one machine more.
            for (of, tokens) in &node.alone {
                *self.extra.entry(*of).or_default() += tokens;
            }
            self.extra_of_all += self.scenario.advance_max();
            let (connection, skew_us) = (node.connection + 1, node.skew_us);
            self.nodes[at] = Node { connection, ..Node::new(&self.scenario, self.now_us, skew_us) };
            self.begin_loss(at);
        }
    }

    /// The machine notices that its connection is gone.
    fn lose(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let was = node.settler.state();
        node.settler.lost(&Link::of(&node.limiter).unwrap());
        node.sent_us.clear();
        node.connection += 1;
        node.connects_at_us = self.now_us + 20_000 + self.random.below(180_000);
        if was == State::Connected {
            self.begin_loss(at);
        }
    }

    /// A machine takes the server for lost: of each agent it may admit its share of what it takes for left, or all.
    fn begin_loss(&mut self, at: usize) {
        let (node, nodes) = (&self.nodes[at], self.nodes.len() as u64);
        let window = node.window(self.now_us);
        for agent in 0..self.scenario.agents {
            let left = node.limiter.peek(Request::new(&agent.to_string(), node.lane)).unwrap().remaining();
            // The state already has the share, or the whole. Of the next window nothing is used.
            let of_next = match self.scenario.when_lost {
                WhenLost::Closed => 0,
                WhenLost::Share => self.scenario.capacity / nodes,
                _ => self.scenario.capacity,
            };
            let left = if self.scenario.when_lost == WhenLost::Closed { 0 } else { left };
            // A machine alone exceeds nothing: what it owes counts for it.
            let (left, of_next) = if nodes == 1 && self.report.deaths == 0 { (0, 0) } else { (left, of_next) };
            *self.extra.entry((agent, window)).or_default() += left;
            *self.extra.entry((agent, window + 1)).or_default() += of_next;
        }
    }

    fn deliver(&mut self) {
        let (mut arrived, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.messages).into_iter().partition(|message| message.arrives_us <= self.now_us);
        self.messages = rest;
        arrived.sort_by_key(|message| message.arrives_us);
        for Message { node, connection, life, number, content, .. } in arrived {
            match content {
                Content::Steps(steps) if self.now_us >= self.down_until_us && life == self.life => {
                    let replies = steps.iter().map(|step| self.serve(step)).collect();
                    self.send(node, connection, number, Content::Replies(replies));
                }
                Content::Steps(_) => {} // Into the void; a late one is served though its machine has given up on it.
                Content::Replies(replies) => {
                    let of = &mut self.nodes[node];
                    if of.connection == connection && of.sent_us.remove(&number).is_some() {
                        let now = Duration::from_micros(self.now_us);
                        of.settler.answered(&Link::of(&of.limiter).unwrap(), now, number, &replies);
                    }
                }
            }
        }
    }

    /// What the server does with a step.
    fn serve(&mut self, step: &KeyStep) -> StepReply {
        let Step::SettleBudget(window, mut settlement) = step.step else { return StepReply::Forgotten };
        match self.fault {
            Some(Fault::GiveResent) => settlement.give *= 2,
            Some(Fault::NoFloor) => settlement.floor = 0,
            Some(Fault::NotPaid) => settlement.owed = 0,
            _ => {}
        }
        let no_window = self.fault == Some(Fault::NoWindow);
        let latest = self.used.keys().map(|(_, window)| *window).max().unwrap_or(window).max(window);
        let budget = self.used.entry((step.agent, if no_window { latest } else { window })).or_default();
        let (granted, used) = budget.settle(0, &settlement);
        let granted = u64::try_from(granted).unwrap();
        if self.fault == Some(Fault::GrantNotDebited) {
            let back = BudgetSettlement { give: granted, owed: 0, want: 0, min: 0, floor: 0, ..settlement };
            budget.settle(0, &back);
        }
        StepReply::DoneBudget(BudgetSettled { granted, used: u64::try_from(used).unwrap() })
    }

    fn send(&mut self, node: usize, connection: u64, number: u64, content: Content) {
        if self.random.below(1_000) < self.scenario.lost_permille {
            return;
        }
        let arrives_us = self.now_us + 50 + self.random.below(self.scenario.delay_us);
        self.messages.push(Message { arrives_us, node, connection, life: self.life, number, content });
    }

    /// What the thread of a machine's engine does.
    fn drive(&mut self, at: usize) {
        let now = Duration::from_micros(self.now_us);
        let is_late = self.nodes[at].sent_us.values().any(|sent| self.now_us - sent > TIMEOUT_US);
        if is_late && self.nodes[at].settler.state() != State::Lost {
            self.lose(at);
        }
        let (is_up, life) = (self.now_us >= self.down_until_us, self.nodes[at].settler.counts().losses);
        let node = &mut self.nodes[at];
        let link = Link::of(&node.limiter).unwrap();
        if node.settler.state() == State::Lost && is_up && node.connects_at_us <= self.now_us {
            node.settler.connected(&link, now);
        }
        node.settler.tend(&link, now);
        let mut batches = Vec::new();
        while let Some(batch) = node.settler.next_batch(&link, now, 64) {
            node.sent_us.insert(batch.number, self.now_us);
            batches.push(batch);
        }
        let connection = node.connection;
        if node.settler.state() == State::Connected {
            node.alone.clear();
        }
        // An engine that stood still for too long has taken the server for lost by itself.
        if node.settler.counts().losses > life {
            self.begin_loss(at);
        }
        for Batch { number, steps } in batches {
            self.send(at, connection, number, Content::Steps(steps));
        }
    }

    fn check(&mut self, at: usize, step_us: u64) -> Result<(), String> {
        let expected = self.scenario.rate * step_us;
        let checks = expected / 1_000_000 + u64::from(self.random.below(1_000_000) < expected % 1_000_000);
        for _ in 0..checks {
            let agent = self.random.below(self.scenario.agents as u64) as usize;
            let cost = 1 + self.random.below(self.scenario.cost_max);
            let (reserves, refunds) = (self.random.below(8) == 0, self.random.below(32) == 0);
            let node = &mut self.nodes[at];
            let of = (agent, node.window(self.now_us));
            let id = agent.to_string();
            let request = Request::new(&id, node.lane).cost(cost);
            let verdict = if self.scenario.reserves && reserves && node.reservations.len() < RESERVATIONS_MAX {
                let reserved = node.limiter.reserve(request, Duration::from_secs(60)).unwrap();
                node.reservations.extend(reserved.id().map(|id| (id, of, cost)));
                self.report.reserved += u64::from(reserved.id().is_some());
                reserved.verdict()
            } else {
                node.limiter.check_request(request).unwrap()
            };
            if !verdict.is_allowed() {
                self.report.denied += 1;
                continue;
            }
            self.admitted(at, of, cost)?;
            if self.scenario.refunds
                && refunds
                && self.nodes[at].limiter.refund(request_of(&id, self.nodes[at].lane, cost)).is_ok()
            {
                // It may be used again.
                *self.extra.entry(of).or_default() += cost;
            }
        }
        Ok(())
    }

    /// Settles an open reservation now and then: with less than its estimate, or with more.
    fn settle_reservations(&mut self, at: usize) -> Result<(), String> {
        if self.random.below(20) > 0 {
            return Ok(());
        }
        let Some((id, of, estimate)) = self.nodes[at].reservations.pop() else { return Ok(()) };
        let used = self.random.below(estimate + 2);
        let now = (of.0, self.nodes[at].window(self.now_us));
        self.nodes[at].limiter.settle(id, Settle::used(used)).unwrap();
        if self.fault == Some(Fault::SettledTwice) && used < estimate {
            let lane = self.nodes[at].lane;
            self.nodes[at].limiter.refund(request_of(&of.0.to_string(), lane, estimate - used)).unwrap();
        }
        if used > estimate {
            // By force, whatever is left.
            *self.extra.entry(now).or_default() += used - estimate;
            return self.admitted(at, now, used - estimate);
        }
        let admitted = self.admitted.entry(of).or_default();
        *admitted -= estimate - used;
        Ok(())
    }

    /// Compares what all machines have admitted in a window with the bound.
    fn admitted(&mut self, at: usize, of: Of, cost: u64) -> Result<(), String> {
        self.report.admitted += cost;
        let node = &mut self.nodes[at];
        if node.settler.state() != State::Connected {
            *node.alone.entry(of).or_default() += cost;
        }
        let admitted = self.admitted.entry(of).or_default();
        *admitted += cost;
        let most = self.scenario.capacity + self.extra_of_all + self.extra.get(&of).copied().unwrap_or_default();
        if *admitted > most {
            let us = self.now_us;
            return Err(format!(
                "agent {} was admitted {admitted} of {most} in window {} at {us} us; {:?}",
                of.0, of.1, self.scenario
            ));
        }
        Ok(())
    }
}

fn request_of(id: &str, lane: LaneId, cost: u64) -> Request<'_> {
    Request::new(id, lane).cost(cost)
}
