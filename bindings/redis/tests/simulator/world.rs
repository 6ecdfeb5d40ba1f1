//! Machines, a server, and the network between them.

use crate::bound::Bound;
use crate::node::Node;
use crate::oracle::{Bucket, Oracle};
use crate::random::Random;
use crate::scenario::{Fault, Scenario};
use std::collections::HashMap;
use std::num::NonZeroU16;
use std::ops::Range;
use std::time::Duration;
use tollgate::cluster::Link;
use tollgate::{LaneId, Request};
use tollgate_redis::{AgentKey, Batch, KeyStep, Settled, Settlement, State, Step, StepReply};

/// How long a machine waits for an answer.
const TIMEOUT_US: u64 = 200_000;

/// How often a machine shows itself, and for how long it is believed.
const BEAT_US: u64 = 1_000_000;
const NODE_FOR_US: u64 = 10_000_000;

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
    pub(crate) asks: u64,
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
        self.asks += other.asks;
    }
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

#[derive(Default)]
pub(crate) struct Server {
    pub(crate) buckets: HashMap<(AgentKey, LaneId), Bucket>,
    /// When each machine has shown itself.
    pub(crate) beats_us: HashMap<usize, u64>,
    /// Until when it does not answer.
    pub(crate) down_until_us: u64,
    /// What its clock shows beyond the time, in microseconds.
    pub(crate) ahead_us: i64,
}

pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) fault: Option<Fault>,
    pub(crate) random: Random,
    begin_us: u64,
    pub(crate) now_us: u64,
    pub(crate) nodes: Vec<Node>,
    pub(crate) server: Server,
    messages: Vec<Message>,
    /// The burst that is on, or comes next.
    burst: Range<u64>,
    burst_rate: u64,
    pub(crate) ids: Vec<String>,
    pub(crate) bounds: Vec<Bound>,
    pub(crate) report: Report,
}

impl World {
    pub(crate) fn new(scenario: Scenario, fault: Option<Fault>) -> Self {
        let begin_us = 1_000_000;
        let starts = |node: usize| begin_us + if scenario.joins { 700_000 * node as u64 } else { 0 };
        let mut world = Self {
            random: Random::new(scenario.seed),
            fault,
            begin_us,
            now_us: begin_us,
            nodes: (0..scenario.nodes).map(|node| Node::new(&scenario, starts(node))).collect(),
            server: Server::default(),
            messages: Vec::new(),
            burst: begin_us..begin_us + 300_000,
            burst_rate: 20,
            ids: (0..scenario.agents).map(|agent| agent.to_string()).collect(),
            bounds: (0..scenario.agents).map(|_| Bound::new(&scenario, begin_us)).collect(),
            report: Report::default(),
            scenario,
        };
        world.prepare();
        world
    }

    fn prepare(&mut self) {
        if matches!(self.fault, Some(Fault::NoExpiry | Fault::AskedBitLost)) {
            self.nodes.iter_mut().for_each(|node| node.get_asks(&self.scenario, &self.ids));
        }
    }

    pub(crate) fn run(mut self) -> Result<Report, String> {
        let end = self.begin_us + self.scenario.seconds * 1_000_000;
        let outcome = self.run_until(end);
        outcome.map_err(|problem| format!("{problem}, at {} us; {:?}", self.now_us - self.begin_us, self.scenario))?;
        self.report.time = Duration::from_micros(end - self.begin_us);
        for at in 0..self.nodes.len() {
            self.count(at);
        }
        Ok(self.report)
    }

    fn run_until(&mut self, end: u64) -> Result<(), String> {
        while self.now_us < end {
            let rate = self.rate();
            // In the silence between two bursts little happens, and nobody looks.
            let step = (100 + self.random.below(1_900)) * if rate == 0 { 20 } else { 1 };
            self.now_us += step;
            for node in &self.nodes {
                if node.paused_until_us <= self.now_us || !node.clock_stops {
                    node.clock.advance(Duration::from_micros(step));
                }
            }
            self.trouble();
            self.deliver();
            for at in 0..self.nodes.len() {
                if self.nodes[at].paused_until_us.max(self.nodes[at].starts_us) > self.now_us {
                    continue;
                }
                if self.nodes[at].stalled_until_us <= self.now_us {
                    self.drive(at);
                }
                self.plant(at);
                self.notice(at);
                self.check(at, rate * step)?;
            }
            self.lost_for(step);
        }
        self.questions()?;
        self.is_enough()
    }

    /// Checks a second, of each machine.
    fn rate(&mut self) -> u64 {
        if !self.scenario.bursts {
            return self.scenario.rate;
        }
        if self.now_us >= self.burst.end {
            let begin = self.now_us + 2_000_000 + self.random.below(12_000_000);
            self.burst = begin..begin + 300_000;
            self.burst_rate = [20, 100, 1_000][self.random.below(3) as usize];
        }
        if self.burst.contains(&self.now_us) { self.burst_rate } else { 0 }
    }

    /// Whether something happens that happens once in so many seconds, on average. A step is about a millisecond.
    pub(crate) fn once_in(&mut self, seconds: u64) -> bool {
        self.random.below(seconds * 1_000) == 0
    }

    pub(crate) fn any_node(&mut self) -> usize {
        self.random.below(self.nodes.len() as u64) as usize
    }

    pub(crate) fn depth_ns(&self) -> u128 {
        u128::from(self.scenario.capacity) * u128::from(self.scenario.token_ns)
    }

    /// What all machines may spend in advance.
    pub(crate) fn advances_ns(&self) -> u128 {
        u128::from(self.scenario.advance_max() * self.scenario.nodes as u64) * u128::from(self.scenario.token_ns)
    }

    /// Lets the bounds grow.
    pub(crate) fn allow(&mut self, ns: u128) {
        self.bounds.iter_mut().for_each(|bound| bound.allow(ns));
    }

    /// A machine's checks take the server for lost, or no longer. Of each agent it may admit at once its share of what
    /// it takes for left.
    pub(crate) fn notice(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.link().is_connected() {
            node.lost_since_us = None;
        } else if node.lost_since_us.is_none() {
            node.lost_since_us = Some(self.now_us);
            if self.scenario.is_closed {
                return;
            }
            let (node, depth) = (&self.nodes[at], self.depth_ns());
            let nodes = u128::from(node.settler.nodes().get());
            for (id, bound) in self.ids.iter().zip(&mut self.bounds) {
                let known = node.limiter.peek(Request::new(id, node.lane)).unwrap().full_in().as_nanos();
                bound.allow(depth.saturating_sub(known) / nodes);
            }
        }
    }

    /// While some machines take the server for lost and others do not, the share of the first in the refill is extra.
    fn lost_for(&mut self, step_us: u64) {
        let step_ns = u128::from(step_us) * 1_000;
        let lost = |node: &&Node| node.lost_since_us.is_some();
        let shares = |node: &Node| step_ns / u128::from(node.settler.nodes().get()) + 1;
        let of_lost: u128 = self.nodes.iter().filter(lost).map(shares).sum();
        let of_connected = if self.nodes.iter().all(|node| lost(&node)) { 0 } else { step_ns };
        self.allow((of_lost + of_connected).saturating_sub(step_ns));
    }

    /// Brings messages to where they go.
    fn deliver(&mut self) {
        let now_us = self.now_us;
        let mut arrived: Vec<_> = self.messages.extract_if(.., |message| message.arrives_us <= now_us).collect();
        arrived.sort_by_key(|message| message.arrives_us);
        for message in arrived {
            let Message { node, connection, number, content, .. } = message;
            match content {
                Content::Steps(steps) => {
                    if self.now_us < self.server.down_until_us {
                        continue; // Into the void; a real one may answer later, which nobody hears.
                    }
                    let replies = steps.iter().map(|step| self.serve(step)).collect();
                    self.send(node, connection, number, Content::Replies(replies));
                }
                Content::Replies(replies) => self.hear(node, connection, number, &replies),
            }
        }
    }

    fn hear(&mut self, at: usize, connection: u64, number: u64, replies: &[StepReply]) {
        let times = 1 + u64::from(self.random.below(1_000) < self.scenario.twice_permille);
        let node = &mut self.nodes[at];
        let is_asleep = node.paused_until_us.max(node.stalled_until_us) > self.now_us;
        let sent = node.sent_us.iter().position(|(sent, _)| *sent == number);
        let (false, Some(sent)) = (is_asleep || node.connection != connection, sent) else { return };
        node.sent_us.swap_remove(sent);
        let link = Link::of(&node.limiter).unwrap();
        for _ in 0..times {
            node.settler.answered(&link, Duration::from_micros(self.now_us), number, replies);
        }
        node.answers += replies.len() as u64;
    }

    /// What the server does with a step.
    pub(crate) fn serve(&mut self, step: &KeyStep) -> StepReply {
        let at = (step.agent, step.lane);
        let Step::Settle(mut settlement) = step.step else {
            self.server.buckets.remove(&at);
            return StepReply::Forgotten;
        };
        match self.fault {
            Some(Fault::GiveResent) => settlement.give *= 2,
            Some(Fault::NoFloor) => settlement.floor_ns = 0,
            Some(Fault::NotPaid) => settlement.owed = 0,
            Some(Fault::ClampTooLow) => settlement.over = 0,
            _ => {}
        }
        let bucket = self.server.buckets.entry(at).or_default();
        let now_us = i128::from(self.now_us) + i128::from(self.server.ahead_us);
        let (granted, debt) = bucket.settle(now_us, &settlement);
        let granted = u64::try_from(granted).unwrap();
        if self.fault == Some(Fault::GrantNotDebited) {
            bucket.settle(now_us, &Settlement { give: granted, owed: 0, want: 0, min: 0, floor_ns: 0, ..settlement });
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
        let (now_us, now) = (self.now_us, Duration::from_micros(self.now_us));
        let is_up = now_us >= self.server.down_until_us;
        let pause = 20_000 + self.random.below(180_000);
        let node = &mut self.nodes[at];
        let link = Link::of(&node.limiter).unwrap();
        let is_late = node.sent_us.iter().any(|(_, sent)| now_us - sent > TIMEOUT_US);
        if is_late && node.settler.state() != State::Lost {
            node.settler.lost(&link);
            node.sent_us.clear();
            node.connection += 1;
            node.connects_at_us = now_us + pause;
        }
        let is_to_connect = node.settler.state() == State::Lost && node.connects_at_us <= now_us;
        let is_to_beat = node.settler.state() != State::Lost && node.beats_at_us <= now_us;
        if is_up && (is_to_connect || is_to_beat) {
            node.beats_at_us = now_us + BEAT_US;
            self.server.beats_us.insert(at, now_us);
            self.server.beats_us.retain(|_, beat| now_us - *beat < NODE_FOR_US);
            let nodes = self.server.beats_us.len().max(self.scenario.nodes_at_least);
            node.settler.set_nodes(u16::try_from(nodes).ok().and_then(NonZeroU16::new).unwrap());
        }
        if is_up && is_to_connect {
            node.settler.connected(&link, now);
        }
        node.settler.tend(&link, now);
        let mut batches = Vec::new();
        while let Some(batch) = node.settler.next_batch(&link, now, 64) {
            node.sent_us.push((batch.number, now_us));
            batches.push(batch);
        }
        let connection = node.connection;
        for Batch { number, steps } in batches {
            self.send(at, connection, number, Content::Steps(steps));
        }
    }

    /// Plants the faults of records.
    fn plant(&mut self, at: usize) {
        let is_due = match self.fault {
            Some(Fault::NoExpiry) => self.now_us % 1_000_000 < 400_000,
            Some(Fault::AskedBitLost) => true,
            _ => false,
        };
        if is_due {
            self.nodes[at].renew();
        }
    }

    /// So many millionths of a check.
    fn check(&mut self, at: usize, expected: u64) -> Result<(), String> {
        let checks = expected / 1_000_000 + u64::from(self.random.below(1_000_000) < expected % 1_000_000);
        for _ in 0..checks {
            let agent = self.random.below(self.ids.len() as u64) as usize;
            let cost = 1 + self.random.below(self.scenario.cost_max);
            let node = &self.nodes[at];
            let verdict = node.limiter.check_request(Request::new(&self.ids[agent], node.lane).cost(cost)).unwrap();
            if verdict.is_allowed() {
                self.report.admitted += cost;
                let admitted = self.bounds[agent].admit(self.now_us, cost);
                admitted.map_err(|problem| format!("agent {agent} was admitted {problem}"))?;
            } else {
                self.report.denied += 1;
            }
        }
        Ok(())
    }

    /// A flood of checks is no flood of questions: a lane is asked about once until it is answered, and again after two
    /// seconds.
    fn questions(&self) -> Result<(), String> {
        let lanes = self.ids.len() as u64 * (2 + self.scenario.seconds);
        for (at, node) in self.nodes.iter().enumerate() {
            let (asked, most) = (node.link().asked().0, 2 * node.answers + node.forgiven + lanes);
            if asked > most && self.fault != Some(Fault::NoExpiry) {
                return Err(format!("machine {at} has asked {asked} questions, and heard {} answers", node.answers));
            }
        }
        Ok(())
    }

    /// Where nothing goes wrong and enough is asked for, all of the limit is admitted but for what machines hold.
    fn is_enough(&self) -> Result<(), String> {
        let Scenario { capacity, token_ns, seconds, agents, rate, nodes, cost_max, .. } = self.scenario;
        let limit = capacity as f64 + seconds as f64 * 1e9 / token_ns as f64;
        let asked = (rate * seconds * nodes as u64) as f64 / agents as f64;
        let is_slack_enough = self.scenario.credit_max() as f64 * token_ns as f64 >= 40e6 * nodes as f64;
        // Of an exact lane every other request is denied until the store has answered.
        let least = if self.scenario.is_exact { 4.0 } else { 2.0 } * limit;
        if !self.scenario.is_calm() || cost_max > 1 || asked < least || !is_slack_enough {
            return Ok(());
        }
        let held = (nodes as u64 * (self.scenario.credit_max() + 1)) as f64;
        for (agent, bound) in self.bounds.iter().enumerate() {
            let admitted = bound.admitted_ns as f64 / token_ns as f64;
            if admitted < 0.98 * limit - held {
                return Err(format!("agent {agent} was admitted {admitted} of {limit:.1} tokens"));
            }
        }
        Ok(())
    }

    pub(crate) fn count(&mut self, at: usize) {
        let node = &self.nodes[at];
        self.report.losses += node.settler.counts().losses;
        self.report.seeded += node.settler.counts().seeded;
        self.report.steps += node.settler.counts().sent;
        self.report.asks += node.link().asked().0;
    }
}
