//! What happens to machines and to the server.

use crate::node::Node;
use crate::scenario::Fault;
use crate::world::World;
use std::time::Duration;
use tollgate::Request;
use tollgate::cluster::Link;
use tollgate_redis::State;

impl World {
    pub(crate) fn trouble(&mut self) {
        if self.scenario.stops && self.once_in(2) {
            self.server.down_until_us = self.now_us + 1_000 + self.random.below(1_500_000);
            if self.scenario.forgets && self.random.below(2) == 0 {
                self.server.buckets.clear();
                self.server.beats_us.clear();
                self.report.forgotten += 1;
                // Another full bucket, and what may be spent beyond it in advance.
                self.allow(self.depth_ns() + self.advances_ns());
            }
        }
        if self.scenario.clock_steps && self.once_in(3) {
            let by = i64::try_from(self.random.below(3_000_000)).unwrap_or(0) - 1_500_000;
            self.server.ahead_us += by;
            // A step forward refills, up to full.
            self.allow(u128::try_from(by).map_or(0, |by| (by * 1_000).min(self.depth_ns() + self.advances_ns())));
        }
        if self.scenario.pauses && self.once_in(2) {
            let at = self.any_node();
            self.nodes[at].paused_until_us = self.now_us + self.random.below(1_200_000);
            self.nodes[at].clock_stops = self.random.below(2) == 0;
        }
        if self.scenario.stalls && self.once_in(2) {
            let at = self.any_node();
            self.nodes[at].stalled_until_us = self.now_us + self.random.below(3_000_000);
        }
        if self.scenario.dies && self.once_in(4) {
            let at = self.any_node();
            self.dies(at);
        }
        if self.scenario.restarts && self.once_in(2) {
            let at = self.any_node();
            self.restarts(at);
        }
        if self.scenario.forgives && self.once_in(1) {
            self.forgives();
        }
    }

    /// A machine dies, and another begins in its place.
    fn dies(&mut self, at: usize) {
        self.count(at);
        // It takes to its grave what it has spent in advance, and what it has admitted by its share.
        let lost_for = self.nodes[at].lost_since_us.map_or(0, |since| self.now_us - since);
        let nodes = u128::from(self.nodes[at].settler.nodes().get());
        let advance = u128::from(self.scenario.advance_max()) * u128::from(self.scenario.token_ns);
        self.allow(u128::from(lost_for) * 1_000 / nodes + advance);
        let connection = self.nodes[at].connection + 1;
        self.nodes[at] = Node { connection, ..Node::new(&self.scenario, self.now_us) };
        if matches!(self.fault, Some(Fault::NoExpiry | Fault::AskedBitLost)) {
            self.nodes[at].get_asks(&self.scenario, &self.ids);
        }
    }

    /// An engine ends as a program does that stops: it gives back and pays, if it is heard. Another begins.
    fn restarts(&mut self, at: usize) {
        let now = Duration::from_micros(self.now_us);
        let mut batches = Vec::new();
        let node = &mut self.nodes[at];
        if node.settler.state() != State::Lost {
            let link = Link::of(&node.limiter).unwrap();
            node.settler.end(&link);
            while let Some(batch) = node.settler.next_batch(&link, now, 64) {
                batches.push(batch);
            }
            self.notice(at);
        }
        for batch in batches {
            // It ends at once, or hears the answer.
            if self.server.down_until_us > self.now_us || self.random.below(4) == 0 {
                continue;
            }
            let replies: Vec<_> = batch.steps.iter().map(|step| self.serve(step)).collect();
            let node = &mut self.nodes[at];
            let link = Link::of(&node.limiter).unwrap();
            node.settler.answered(&link, now, batch.number, &replies);
            node.answers += replies.len() as u64;
        }
        self.report.losses += self.nodes[at].settler.counts().losses;
        self.report.steps += self.nodes[at].settler.counts().sent;
        self.nodes[at].begin(&self.scenario);
        self.notice(at);
    }

    /// An operator resets an agent, or a program gives a request back.
    fn forgives(&mut self) {
        let (at, agent) = (self.any_node(), self.random.below(self.ids.len() as u64) as usize);
        let full = self.depth_ns() + self.advances_ns();
        let (id, node) = (&self.ids[agent], &mut self.nodes[at]);
        node.forgiven += 1;
        if self.random.below(2) == 0 {
            node.limiter.reset(id.as_str()).unwrap();
            self.bounds[agent].allow(full);
        } else {
            node.limiter.refund(Request::new(id, node.lane)).unwrap();
            self.bounds[agent].allow(u128::from(self.scenario.token_ns));
        }
    }
}
