//! Machines, a server, and the network between them.

use crate::oracle::{Bucket, Oracle};
use crate::random::Random;
use std::collections::HashMap;
use std::num::NonZeroU16;
use std::time::Duration;
use tollgate::cluster::{Cluster, Link, WhenLost};
use tollgate::{LaneId, Limiter, ManualClock, Policy, Request};
use tollgate_redis::{AgentKey, Batch, KeyStep, Settled, Settler, State, Step, StepReply};

/// How long a machine waits for an answer.
const TIMEOUT_US: u64 = 200_000;

/// What is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What is given back is sent twice.
    GiveResent,
    /// After a loss the server is told nothing.
    NoFloor,
    /// What was spent in advance is not paid.
    NotPaid,
    /// What is granted to nobody is handed out all the same: it is granted and not debited.
    GrantNotDebited,
}

impl Fault {
    pub(crate) const ALL: [Self; 4] = [Self::GiveResent, Self::NoFloor, Self::NotPaid, Self::GrantNotDebited];
}

/// What a seed is about.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    seed: u64,
    nodes: usize,
    /// As the policy says it, and as numbers.
    limit: String,
    capacity: u64,
    token_ns: u64,
    slack_percent: u8,
    agents: usize,
    cost_max: u64,
    /// Checks a second, of each machine.
    rate: u64,
    /// How long a message takes, at most.
    delay_us: u64,
    /// How many of a thousand messages are lost.
    lost_permille: u64,
    /// Whether the server stops now and then, and whether it forgets then.
    stops: bool,
    forgets: bool,
    /// Whether machines pause, and whether they die and start anew.
    pauses: bool,
    dies: bool,
    seconds: u64,
}

impl Scenario {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed);
        let mut one_of = |values: &[u64]| values[random.below(values.len() as u64) as usize];
        let (tokens, per, burst) = match one_of(&[0, 1, 2, 3, 4]) {
            0 => (10, 60, 10),
            1 => (60, 60, 60),
            2 => (1_000, 1, 1_000),
            3 => (100, 1, 40),
            _ => (5, 1, 200),
        };
        Self {
            seed,
            nodes: one_of(&[1, 2, 3, 3, 5, 8]) as usize,
            limit: format!("{tokens} per {per} seconds burst {burst}"),
            capacity: burst,
            token_ns: per * 1_000_000_000_u64.div_ceil(tokens),
            slack_percent: one_of(&[1, 10, 10, 40, 100]) as u8,
            agents: one_of(&[1, 1, 2, 6]) as usize,
            cost_max: one_of(&[1, 1, 3, burst]),
            rate: one_of(&[20, 200, 2_000]),
            delay_us: one_of(&[200, 2_000, 20_000, 150_000]),
            lost_permille: one_of(&[0, 0, 0, 2, 20]),
            stops: one_of(&[0, 1]) == 1,
            forgets: one_of(&[0, 1]) == 1,
            pauses: one_of(&[0, 0, 1]) == 1,
            dies: one_of(&[0, 0, 1]) == 1,
            seconds: one_of(&[3, 8]),
        }
    }
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) time: Duration,
    pub(crate) admitted: u64,
    pub(crate) denied: u64,
    pub(crate) losses: u64,
    pub(crate) seeded: u64,
    pub(crate) forgotten: u64,
    pub(crate) steps: u64,
}

impl Report {
    pub(crate) fn add(&mut self, other: &Self) {
        self.time += other.time;
        self.admitted += other.admitted;
        self.denied += other.denied;
        self.losses += other.losses;
        self.seeded += other.seeded;
        self.forgotten += other.forgotten;
        self.steps += other.steps;
    }
}

/// What all machines may have admitted to one agent, in any window: as a bucket that is larger by what the bound adds.
struct Bound {
    debt_ns: i128,
    at_us: u64,
    /// How much larger, in nanoseconds of refill.
    extra_ns: i128,
}

/// A message under way.
struct Message {
    arrives_us: u64,
    node: usize,
    /// The connection that it belongs to: a later one knows nothing of it.
    connection: u64,
    number: u64,
    content: Content,
}

enum Content {
    Steps(Vec<KeyStep>),
    Replies(Vec<StepReply>),
}

struct Node {
    clock: ManualClock,
    limiter: Limiter,
    settler: Settler,
    lane: LaneId,
    connection: u64,
    /// When each batch was sent.
    sent_us: HashMap<u64, u64>,
    paused_until_us: u64,
    connects_at_us: u64,
    /// Since when checks take the server for lost.
    lost_since_us: Option<u64>,
}

impl Node {
    fn new(scenario: &Scenario) -> Self {
        let policy = Policy::builder().lane("http", scenario.limit.as_str()).build().unwrap();
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_000));
        let cluster = Cluster::new([7; 16]).slack_percent(scenario.slack_percent).when_lost(WhenLost::Share);
        let limiter = Limiter::builder(policy).agents(64).clock(clock.clone()).cluster(cluster).build().unwrap();
        let nodes = NonZeroU16::new(scenario.nodes as u16).unwrap();
        Link::of(&limiter).unwrap().lost(nodes);
        let lane = limiter.lane("http").unwrap();
        Self {
            clock,
            lane,
            settler: Settler::new(nodes),
            limiter,
            connection: 0,
            sent_us: HashMap::new(),
            paused_until_us: 0,
            connects_at_us: 0,
            lost_since_us: Some(0),
        }
    }
}

pub(crate) struct World {
    scenario: Scenario,
    fault: Option<Fault>,
    random: Random,
    now_us: u64,
    nodes: Vec<Node>,
    buckets: HashMap<(AgentKey, LaneId), Bucket>,
    /// Until when the server does not answer.
    down_until_us: u64,
    messages: Vec<Message>,
    bounds: Vec<Bound>,
    report: Report,
}

impl World {
    pub(crate) fn new(scenario: Scenario, fault: Option<Fault>) -> Self {
        let nodes = scenario.nodes as u64;
        // Of each machine: its credit, and its advance.
        let share = scenario.capacity * u64::from(scenario.slack_percent) / (200 * nodes);
        // A request that costs more than the advance is paid for in full before it passes, and its tokens wait for it.
        let waits = if scenario.cost_max > share.max(1) { scenario.cost_max } else { 0 };
        let extra = nodes * (share.max(waits) + share.max(1));
        let bound = || Bound { debt_ns: 0, at_us: 0, extra_ns: i128::from(extra) * i128::from(scenario.token_ns) };
        Self {
            random: Random::new(scenario.seed),
            fault,
            now_us: 1_000_000,
            nodes: (0..scenario.nodes).map(|_| Node::new(&scenario)).collect(),
            buckets: HashMap::new(),
            down_until_us: 0,
            messages: Vec::new(),
            bounds: (0..scenario.agents).map(|_| bound()).collect(),
            report: Report::default(),
            scenario,
        }
    }

    pub(crate) fn run(mut self) -> Result<Report, String> {
        let begin = self.now_us;
        let end = begin + self.scenario.seconds * 1_000_000;
        while self.now_us < end {
            let step = 100 + self.random.below(1_900);
            self.now_us += step;
            self.nodes.iter().for_each(|node| node.clock.advance(Duration::from_micros(step)));
            self.trouble();
            self.lost_for(step);
            self.deliver();
            for node in 0..self.nodes.len() {
                if self.nodes[node].paused_until_us <= self.now_us {
                    self.drive(node);
                    self.check(node, step)?;
                }
            }
        }
        self.report.time = Duration::from_micros(end - begin);
        for node in &self.nodes {
            let counts = node.settler.counts();
            self.report.losses += counts.losses;
            self.report.seeded += counts.seeded;
            self.report.steps += counts.sent;
        }
        Ok(self.report)
    }

    /// Whether something happens that happens once in so many seconds, on average. A step is about a millisecond.
    fn once_in(&mut self, seconds: u64) -> bool {
        self.random.below(seconds * 1_000) == 0
    }

    fn trouble(&mut self) {
        if self.scenario.stops && self.once_in(2) {
            self.down_until_us = self.now_us + 1_000 + self.random.below(1_500_000);
            if self.scenario.forgets && self.random.below(2) == 0 {
                self.buckets.clear();
                self.report.forgotten += 1;
                // Another full bucket, and what may be spent beyond it in advance.
                let again = self.scenario.capacity + self.advance_max() * self.scenario.nodes as u64;
                self.add(u128::from(again) * u128::from(self.scenario.token_ns));
            }
        }
        if self.scenario.pauses && self.once_in(2) {
            let node = self.random.below(self.nodes.len() as u64) as usize;
            self.nodes[node].paused_until_us = self.now_us + self.random.below(1_200_000);
        }
        if self.scenario.dies && self.once_in(4) {
            let node = self.random.below(self.nodes.len() as u64) as usize;
            self.report.losses += self.nodes[node].settler.counts().losses;
            // It takes to its grave what it has spent in advance, and what it has admitted by its share.
            let lost_for = self.nodes[node].lost_since_us.map_or(0, |since| self.now_us - since);
            self.add(u128::from(lost_for) * 1_000 / self.nodes.len() as u128);
            self.add(u128::from(self.advance_max()) * u128::from(self.scenario.token_ns));
            let connection = self.nodes[node].connection + 1;
            self.nodes[node] = Node { connection, ..Node::new(&self.scenario) };
            self.begin_loss(node);
        }
    }

    fn advance_max(&self) -> u64 {
        (self.scenario.capacity * u64::from(self.scenario.slack_percent) / (200 * self.scenario.nodes as u64)).max(1)
    }

    /// Lets the bounds grow.
    fn add(&mut self, ns: u128) {
        self.bounds.iter_mut().for_each(|bound| bound.extra_ns += i128::try_from(ns).unwrap());
    }

    /// A machine takes the server for lost: of each agent it may admit at once its share of what it takes for left.
    fn begin_loss(&mut self, at: usize) {
        self.nodes[at].lost_since_us = Some(self.now_us);
        let depth = u128::from(self.scenario.capacity) * u128::from(self.scenario.token_ns);
        let (node, nodes) = (&self.nodes[at], self.nodes.len() as u128);
        for (agent, bound) in self.bounds.iter_mut().enumerate() {
            let known = node.limiter.peek(Request::new(&agent.to_string(), node.lane)).unwrap().full_in().as_nanos();
            bound.extra_ns += i128::try_from(depth.saturating_sub(known) / nodes).unwrap();
        }
    }

    /// While some machines take the server for lost and others do not, the share of the first in the refill is extra.
    fn lost_for(&mut self, step_us: u64) {
        let (all, lost) = (self.nodes.len(), self.nodes.iter().filter(|node| node.lost_since_us.is_some()).count());
        if lost < all {
            self.add(u128::from(step_us) * 1_000 * lost as u128 / all as u128);
        }
    }

    /// Brings messages to where they go.
    fn deliver(&mut self) {
        let (mut arrived, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.messages).into_iter().partition(|message| message.arrives_us <= self.now_us);
        self.messages = rest;
        arrived.sort_by_key(|message| message.arrives_us);
        for message in arrived {
            let Message { node, connection, number, content, .. } = message;
            match content {
                Content::Steps(steps) => {
                    if self.now_us < self.down_until_us {
                        continue; // Into the void; a real one may answer later, which nobody hears.
                    }
                    let replies = steps.iter().map(|step| self.serve(step)).collect();
                    self.send(node, connection, number, Content::Replies(replies));
                }
                Content::Replies(replies) => {
                    let now = Duration::from_micros(self.now_us);
                    let of = &mut self.nodes[node];
                    if of.connection == connection && of.sent_us.remove(&number).is_some() {
                        let link = Link::of(&of.limiter).unwrap();
                        let was = of.settler.state();
                        of.settler.answered(&link, now, number, &replies);
                        if was != State::Connected && of.settler.state() == State::Connected {
                            self.nodes[node].lost_since_us = None;
                        }
                    }
                }
            }
        }
    }

    /// What the server does with a step.
    fn serve(&mut self, step: &KeyStep) -> StepReply {
        let at = (step.agent, step.lane);
        let Step::Settle(mut settlement) = step.step else {
            self.buckets.remove(&at);
            return StepReply::Done(Settled { granted: 0, debt_ns: 0 });
        };
        match self.fault {
            Some(Fault::GiveResent) => settlement.give *= 2,
            Some(Fault::NoFloor) => settlement.floor_ns = 0,
            Some(Fault::NotPaid) => settlement.owed = 0,
            Some(Fault::GrantNotDebited) | None => {}
        }
        let bucket = self.buckets.entry(at).or_default();
        let now_us = i128::from(self.now_us);
        let (granted, debt) = bucket.settle(now_us, &settlement);
        let granted = u64::try_from(granted).unwrap();
        if self.fault == Some(Fault::GrantNotDebited) {
            bucket.settle(
                now_us,
                &tollgate_redis::Settlement { give: granted, owed: 0, want: 0, min: 0, floor_ns: 0, ..settlement },
            );
        }
        StepReply::Done(Settled { granted, debt_ns: u64::try_from(debt).unwrap() })
    }

    fn send(&mut self, node: usize, connection: u64, number: u64, content: Content) {
        if self.random.below(1_000) < self.scenario.lost_permille {
            return;
        }
        let arrives_us = self.now_us + 50 + self.random.below(self.scenario.delay_us);
        self.messages.push(Message { arrives_us, node, connection, number, content });
    }

    /// What the thread of a machine's engine does.
    fn drive(&mut self, at: usize) {
        let now = Duration::from_micros(self.now_us);
        let is_up = self.now_us >= self.down_until_us;
        let node = &mut self.nodes[at];
        let link = Link::of(&node.limiter).unwrap();
        let is_late = node.sent_us.values().any(|sent| self.now_us - sent > TIMEOUT_US);
        if is_late && node.settler.state() != State::Lost {
            let was = node.settler.state();
            node.settler.lost(&link);
            node.sent_us.clear();
            node.connection += 1;
            node.connects_at_us = self.now_us + 20_000 + self.random.below(180_000);
            if was == State::Connected {
                self.begin_loss(at);
            }
        }
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
        let (connection, is_connected) = (node.connection, node.settler.state() == State::Connected);
        if is_connected {
            self.nodes[at].lost_since_us = None;
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
            let node = &self.nodes[at];
            let id = agent.to_string();
            let verdict = node.limiter.check_request(Request::new(&id, node.lane).cost(cost)).unwrap();
            if verdict.is_allowed() {
                self.report.admitted += cost;
                self.admitted(agent, cost)?;
            } else {
                self.report.denied += 1;
            }
        }
        Ok(())
    }

    /// Compares what all machines have admitted with the bound.
    fn admitted(&mut self, agent: usize, cost: u64) -> Result<(), String> {
        let depth = i128::from(self.scenario.capacity) * i128::from(self.scenario.token_ns);
        let bound = &mut self.bounds[agent];
        let passed = i128::from(self.now_us - bound.at_us) * 1_000;
        bound.at_us = self.now_us;
        bound.debt_ns = (bound.debt_ns - passed).max(0) + i128::from(cost) * i128::from(self.scenario.token_ns);
        let most = depth + bound.extra_ns;
        if bound.debt_ns > most {
            let tokens = |ns: i128| ns as f64 / self.scenario.token_ns as f64;
            return Err(format!(
                "agent {agent} was admitted {:.2} tokens at once, of {:.2} at {} us; {:?}",
                tokens(bound.debt_ns),
                tokens(most),
                self.now_us,
                self.scenario
            ));
        }
        Ok(())
    }
}
