//! Machines on which operators decide, a store, and the network between them.

use super::{Fault, Report, Scenario};
use crate::decided::DecidedStore;
use crate::random::Random;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;
use tollgate::cluster::{Cluster, Operators};
use tollgate::{Assignment, Limiter, Policy};
use tollgate_redis::{Decisions, Field, StoreReply, StoreRequest};

/// How long a machine waits for an answer.
const TIMEOUT_US: u64 = 200_000;
const BEGIN_US: u64 = 1_700_000_000_000_000;

struct Node {
    limiter: Limiter,
    decisions: Decisions,
    name: String,
    is_connected: bool,
    /// What is under way: the message's number, and when it was sent.
    asked: Option<(u64, u64)>,
    paused_until_us: u64,
    connects_at_us: u64,
    /// What its file had a while ago.
    file: Vec<(Vec<u8>, Assignment)>,
}

struct Message {
    arrives_us: u64,
    node: usize,
    /// A machine that has started again, or connected again, knows nothing of it.
    number: u64,
    name: String,
    content: Content,
}

enum Content {
    Request(StoreRequest),
    Reply(StoreReply),
}

pub(super) struct World {
    scenario: Scenario,
    fault: Option<Fault>,
    random: Random,
    now_us: u64,
    next: u64,
    store: DecidedStore,
    /// The store as a replica has it.
    replica: DecidedStore,
    down_until_us: u64,
    nodes: Vec<Node>,
    messages: Vec<Message>,
    /// What each sealed decision says.
    meant: HashMap<Box<[u8]>, Meant>,
    accepted: HashSet<(String, u64)>,
    /// Of each agent what was accepted last, with its stamp.
    expected: BTreeMap<Field, (u64, Meant)>,
    report: Report,
}

/// An agent and its assignment, or a policy's text.
type Meant = (String, Result<Assignment, String>);

fn policy(limit: u64) -> Policy {
    Policy::builder().lane("api", &*format!("{limit}/s")).lane("ws", "5/s").build().unwrap()
}

fn limiter() -> Limiter {
    Limiter::builder(policy(1_000_000)).agents(16).cluster(Cluster::new([7; 16])).build().unwrap()
}

impl Node {
    fn of(name: u64, limiter: Limiter) -> Self {
        let decisions = Decisions::new([7; 16], u128::from(name) << 64);
        Self {
            limiter,
            decisions,
            name: name.to_string(),
            is_connected: false,
            asked: None,
            paused_until_us: 0,
            connects_at_us: 0,
            file: Vec::new(),
        }
    }
}

impl World {
    pub(super) fn new(scenario: Scenario, fault: Option<Fault>) -> Self {
        let store = DecidedStore::new(scenario.lives_us, 1_000_000);
        Self {
            random: Random::new(scenario.seed ^ 0x5eed),
            fault,
            now_us: BEGIN_US,
            next: scenario.nodes as u64,
            replica: store.clone(),
            store,
            down_until_us: 0,
            nodes: (0..scenario.nodes as u64).map(|name| Node::of(name, limiter())).collect(),
            messages: Vec::new(),
            meant: HashMap::new(),
            accepted: HashSet::new(),
            expected: BTreeMap::new(),
            report: Report::default(),
            scenario,
        }
    }

    pub(super) fn run(mut self) -> Result<Report, String> {
        let end = BEGIN_US + self.scenario.seconds * 1_000_000;
        while self.now_us < end {
            self.trouble();
            self.operate();
            self.step();
        }
        (self.scenario.lost_permille, self.down_until_us) = (0, 0);
        // Both ways together take less than the time-out.
        self.scenario.delay_us = self.scenario.delay_us.min(TIMEOUT_US / 4);
        self.nodes.iter_mut().for_each(|node| node.paused_until_us = 0);
        let is_calm = !self.scenario.stops && !self.scenario.pauses && self.scenario.delay_us <= 20_000;
        // Without trouble a second is enough; after it, what waits for time-outs and comparisons too.
        self.rest(if is_calm { 1_000_000 } else { 6_000_000 });
        self.agree()?;
        let head = self.store.head();
        self.rest(1_500_000);
        if self.store.head() != head {
            return Err(format!("no rest: {head:?}, {:?}", self.store.head()));
        }
        for node in &self.nodes {
            let status = node.decisions.status();
            self.report.written += status.written;
            self.report.followed += status.followed;
            self.report.put_back += status.put_back;
        }
        self.report.horizon += u64::from(head.horizon > 0);
        Ok(self.report)
    }

    fn rest(&mut self, length_us: u64) {
        let end = self.now_us + length_us;
        while self.now_us < end {
            self.step();
        }
    }

    /// Lets some milliseconds pass.
    fn step(&mut self) {
        self.now_us += 1_000 + self.random.below(8_000);
        if self.random.below(40) == 0 {
            self.replica = self.store.clone();
        }
        self.deliver();
        for node in 0..self.nodes.len() {
            if self.nodes[node].paused_until_us <= self.now_us {
                self.drive(node);
            }
        }
    }

    /// Whether something happens that happens once in so many milliseconds, on average.
    fn once_in(&mut self, millis: u64) -> bool {
        self.random.below(millis / 5) == 0
    }

    fn trouble(&mut self) {
        if self.scenario.stops && self.once_in(1_500) {
            self.down_until_us = self.now_us + 1_000 + self.random.below(1_200_000);
            let lost = match (self.scenario.forgets, self.scenario.replaced) {
                (true, _) => Some(DecidedStore::new(self.scenario.lives_us, 1_000_000)),
                (_, true) => Some(self.replica.clone()),
                _ => None,
            };
            if let Some(store) = lost {
                self.store = store;
                self.replica = self.store.clone();
                // It may accept what it accepted before: it has lost the numbers too.
                self.accepted.clear();
                self.report.lost += 1;
            }
        }
        if self.scenario.pauses && self.once_in(1_500) {
            let node = self.random.below(self.nodes.len() as u64) as usize;
            self.nodes[node].paused_until_us = self.now_us + self.random.below(2_000_000);
        }
        if self.once_in(1_000) {
            let node = self.random.below(self.nodes.len() as u64) as usize;
            self.nodes[node].file = self.nodes[node].limiter.assignments();
        }
        if self.scenario.dies && self.once_in(1_500) {
            let at = self.random.below(self.nodes.len() as u64) as usize;
            let limiter = limiter();
            if self.random.below(2) == 0 {
                limiter.set_assignments(std::mem::take(&mut self.nodes[at].file)).unwrap();
                let _ = Operators::of(&limiter).unwrap().changed().unwrap();
            }
            self.next += 1;
            self.nodes[at] = Node::of(self.next, limiter);
        }
    }

    /// Operators decide something, each time something else.
    fn operate(&mut self) {
        if !self.once_in(60) {
            return;
        }
        self.report.decided += 1;
        self.next += 1;
        let limit = format!("{}/s", self.next);
        let (node, agent) = (self.random.below(self.nodes.len() as u64), self.random.below(self.scenario.agents));
        let (limiter, agent) = (&self.nodes[node as usize].limiter, agent.to_string());
        match self.random.below(12) {
            0..3 => limiter.remove_overrides(&agent).unwrap(),
            3 => limiter.exempt(&agent).unwrap(),
            4 => limiter.set_assignments([(&agent, Assignment::default())]).unwrap(),
            5 => limiter.replace_policy(policy(self.next)).unwrap(),
            6 => limiter.set_override(&agent, "ws", limit.as_str()).unwrap(),
            _ => limiter.set_override(&agent, "api", limit.as_str()).unwrap(),
        }
    }

    /// Brings messages to where they go.
    fn deliver(&mut self) {
        let now_us = self.now_us;
        let (mut arrived, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.messages).into_iter().partition(|message| message.arrives_us <= now_us);
        self.messages = rest;
        arrived.sort_by_key(|message| message.arrives_us);
        for Message { node, number, name, content, .. } in arrived {
            match content {
                Content::Request(_) if self.now_us < self.down_until_us => {}
                Content::Request(request) => {
                    let reply = self.serve(node, &name, request);
                    self.send(node, number, name, Content::Reply(reply));
                }
                Content::Reply(reply) => {
                    let of = &mut self.nodes[node];
                    if of.name == name && of.asked.is_some_and(|(asked, _)| asked == number) {
                        of.asked = None;
                        let operators = Operators::of(&of.limiter).unwrap();
                        of.decisions.answered(&operators, Duration::from_micros(now_us), reply);
                    }
                }
            }
        }
    }

    fn send(&mut self, node: usize, number: u64, name: String, content: Content) {
        if self.random.below(1_000) >= self.scenario.lost_permille {
            let arrives_us = self.now_us + 50 + self.random.below(self.scenario.delay_us);
            self.messages.push(Message { arrives_us, node, number, name, content });
        }
    }

    /// What the store does, or what a broken one does.
    fn serve(&mut self, node: usize, name: &str, mut request: StoreRequest) -> StoreReply {
        let mut as_name = name.to_owned();
        if let StoreRequest::Put { number, puts, .. } = &mut request {
            match self.fault {
                Some(Fault::AcceptedTwice) if *number > 0 => {
                    self.next += 1;
                    as_name = format!("{name}, call {}", self.next);
                }
                Some(Fault::NotPutBack) if *number == 0 => puts.retain(|put| put.stamp < 1 << 41),
                Some(Fault::PutBackOverLater) if *number == 0 => puts.iter_mut().for_each(|put| put.stamp = 0),
                _ => {}
            }
        }
        let mut reply = self.store.answer(self.now_us, &as_name, &request);
        if let (StoreRequest::Put { number: number @ 1.., puts, .. }, StoreReply::Put { is_new: true, head, .. }) =
            (&request, &reply)
        {
            if self.accepted.insert((name.to_owned(), *number)) {
                for put in puts {
                    let meant = self.meant.get(&put.sealed).expect("it was noted when it was asked").clone();
                    self.expected.insert(put.field, (head.place, meant));
                }
            } else {
                self.report.again += 1;
            }
        }
        let hidden = |field: Option<Field>| match self.fault {
            Some(Fault::OverrideLost) => {
                node == 0 && matches!(field, Some(Field::Agent(bits)) if bits.is_multiple_of(4))
            }
            Some(Fault::NotRead) => true,
            _ => false,
        };
        match &mut reply {
            StoreReply::Since(head, stored) => {
                stored.retain(|stored| !hidden(stored.field));
                self.broken_head(head);
            }
            StoreReply::Head(head) | StoreReply::Put { head, .. } => self.broken_head(head),
        }
        reply
    }

    fn broken_head(&self, head: &mut tollgate_redis::Head) {
        if self.fault == Some(Fault::NoHorizon) {
            head.horizon = 0;
        }
    }

    /// What the thread that carries decisions does.
    fn drive(&mut self, at: usize) {
        let (now_us, is_up) = (self.now_us, self.now_us >= self.down_until_us);
        let wait = 20_000 + self.random.below(180_000);
        let node = &mut self.nodes[at];
        if node.asked.is_some_and(|(_, sent)| now_us - sent > TIMEOUT_US) {
            node.decisions.lost();
            (node.asked, node.is_connected, node.connects_at_us) = (None, false, now_us + wait);
        }
        if !node.is_connected && is_up && node.connects_at_us <= now_us {
            node.decisions.connected();
            node.is_connected = true;
        }
        let operators = Operators::of(&node.limiter).unwrap();
        node.decisions.tend(&operators).unwrap();
        let Some(request) = node.decisions.next(&operators, Duration::from_micros(now_us)) else { return };
        if let StoreRequest::Put { number: 1.., puts, .. } = &request {
            for put in puts.iter().filter(|put| !self.meant.contains_key(&put.sealed)).collect::<Vec<_>>() {
                let meant = meant(&node.limiter, put.field, self.scenario.agents);
                self.meant.insert(put.sealed.clone(), meant);
            }
        }
        self.next += 1;
        let (number, name) = (self.next, node.name.clone());
        node.asked = Some((number, now_us));
        self.send(at, number, name, Content::Request(request));
    }

    /// Whether all machines have what was accepted last.
    fn agree(&self) -> Result<(), String> {
        let all: Vec<_> = self.expected.values().map(|(_, meant)| meant).collect();
        for (at, node) in self.nodes.iter().enumerate() {
            let status = node.decisions.status();
            if !status.is_current || status.waiting + status.refused > 0 {
                return Err(format!("machine {at} is not current: {status:?}; {:?}", self.scenario));
            }
            for (agent, expected) in &all {
                let has = match expected {
                    Ok(_) => Ok(node.limiter.assignment(agent).unwrap()),
                    Err(_) => Err(node.limiter.policy().to_toml()),
                };
                if has != *expected {
                    let scenario = &self.scenario;
                    return Err(format!("machine {at}, {agent}: {has:?}, and {expected:?} was last; {scenario:?}"));
                }
            }
            if node.limiter.assignments() != self.nodes[0].limiter.assignments() {
                return Err(format!("machines 0 and {at} do not agree; {:?}", self.scenario));
            }
        }
        Ok(())
    }
}

/// What a machine says of a field when it writes it.
fn meant(limiter: &Limiter, field: Field, agents: u64) -> Meant {
    if field == Field::Policy {
        return ("the policy".to_owned(), Err(limiter.policy().to_toml()));
    }
    let key = |agent: &String| {
        let hasher = siphasher::sip128::SipHasher24::new_with_key(&[7; 16]);
        Field::Agent(hasher.hash(agent.as_bytes()).into())
    };
    let agent = (0..agents).map(|agent| agent.to_string()).find(|agent| key(agent) == field).expect("one of ours");
    let assignment = limiter.assignment(&agent).unwrap();
    (agent, Ok(assignment))
}
