//! Several machines at once, and what they admitted together.

use super::node::{Orders, VARIABLE, now_ns};
use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long machines get to start and to connect: there may be sixteen on two processors.
const START: Duration = Duration::from_secs(1);

/// Machines that run.
pub(crate) struct Fleet {
    children: Vec<Child>,
    pub(crate) begin_ns: u64,
}

/// What they did.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Of each agent what was admitted in each millisecond.
    pub(crate) bins: Vec<BTreeMap<u64, u64>>,
    /// Of each machine, when it took the store for lost, and for back.
    pub(crate) changes: Vec<Vec<(bool, u64)>>,
    pub(crate) asked: u64,
    pub(crate) steps: u64,
    pub(crate) losses: u64,
    pub(crate) round_trip_us: u64,
    pub(crate) seconds: f64,
}

impl Fleet {
    /// Starts machines that check for this long, or until they are [ended](Self::end).
    pub(crate) fn start(urls: &[String], limit: &str, nodes: u16, agents: usize, rate: u64, length: Duration) -> Self {
        let begin_ns = now_ns() + (START + Duration::from_millis(60) * u32::from(nodes)).as_nanos() as u64;
        let end_ns = begin_ns + length.as_nanos() as u64;
        let orders = Orders { urls: urls.to_vec(), limit: limit.to_owned(), nodes, agents, rate, begin_ns, end_ns };
        let spawn = |_| {
            let mut program = Command::new(std::env::current_exe().expect("this program"));
            program.args(["--exact", "a_machine", "--ignored", "--nocapture"]).env(VARIABLE, orders.to_text());
            program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program again")
        };
        Self { children: (0..nodes).map(spawn).collect(), begin_ns }
    }

    /// Ends them now.
    pub(crate) fn end(mut self, agents: usize) -> Report {
        self.children.iter_mut().for_each(|child| drop(child.stdin.take()));
        self.join(agents)
    }

    /// Waits for the end.
    pub(crate) fn join(mut self, agents: usize) -> Report {
        let mut report = Report { bins: vec![BTreeMap::new(); agents], ..Report::default() };
        for child in &mut self.children {
            let mut text = String::new();
            child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
            assert!(child.wait().expect("our child").success(), "{text}");
            report.changes.push(Vec::new());
            for line in text.lines() {
                report.read(line);
            }
        }
        report.seconds = (now_ns().saturating_sub(self.begin_ns)) as f64 / 1e9;
        report
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for child in &mut self.children {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

impl Report {
    fn read(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |place: usize| words.get(place).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match words[0] {
            "bin" => *self.bins[number(1) as usize].entry(number(2)).or_default() += number(3),
            "lost" | "back" => self.changes.last_mut().expect("a machine").push((words[0] == "back", number(1))),
            "end" => {
                self.asked += number(1);
                self.steps += number(2);
                self.losses += number(3);
                self.round_trip_us = self.round_trip_us.max(number(4));
            }
            _ => {}
        }
    }

    /// All that an agent was admitted.
    pub(crate) fn admitted(&self, agent: usize) -> u64 {
        self.bins[agent].values().sum()
    }

    /// The most that an agent was admitted in any window, less what is refilled in it.
    pub(crate) fn at_once(&self, agent: usize, per_second: f64) -> f64 {
        let (mut debt, mut most, mut last) = (0.0_f64, 0.0_f64, 0);
        for (&milli, &count) in &self.bins[agent] {
            debt = (debt - (milli - last) as f64 / 1e3 * per_second).max(0.0) + count as f64;
            (most, last) = (most.max(debt), milli);
        }
        most
    }

    /// The same, with so much that may be admitted once after each event: how much of that was used, at most.
    pub(crate) fn beyond(&self, agent: usize, per_second: f64, depth: f64, events_ns: &[u64]) -> f64 {
        let (mut debt, mut beyond, mut most, mut last) = (0.0_f64, 0.0_f64, 0.0_f64, 0);
        let mut events = events_ns.iter().peekable();
        for (&milli, &count) in &self.bins[agent] {
            while events.next_if(|event| **event / 1_000_000 <= milli).is_some() {
                beyond = 0.0;
            }
            debt = (debt - (milli - last) as f64 / 1e3 * per_second).max(0.0) + count as f64;
            beyond += (debt - depth).max(0.0);
            (debt, most, last) = (debt.min(depth), most.max(beyond), milli);
        }
        most
    }

    /// Of each machine, how long after an instant it changed so, at the latest one of all; `None` if one did not before
    /// the end.
    pub(crate) fn after(&self, at_ns: u64, end_ns: u64, is_back: bool) -> Option<Duration> {
        let one = |changes: &Vec<(bool, u64)>| {
            let in_time = |(back, when): &&(bool, u64)| *back == is_back && (at_ns..end_ns).contains(when);
            changes.iter().find(in_time).map(|(_, when)| when - at_ns)
        };
        let times: Option<Vec<_>> = self.changes.iter().map(one).collect();
        times?.into_iter().max().map(Duration::from_nanos)
    }
}
