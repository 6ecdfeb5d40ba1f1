//! A machine: the real limiter, and the engine's real decisions.

use crate::scenario::Scenario;
use std::num::NonZeroU16;
use std::time::Duration;
use tollgate::cluster::{Ask, Cluster, ClusterLane, Due, Link, WhenLost};
use tollgate::{LaneId, Limiter, ManualClock, Policy, Request};
use tollgate_redis::Settler;

pub(crate) struct Node {
    pub(crate) clock: ManualClock,
    pub(crate) limiter: Limiter,
    pub(crate) settler: Settler,
    pub(crate) lane: LaneId,
    /// The connection's number: what belongs to an earlier one is not heard.
    pub(crate) connection: u64,
    /// Batches under way, and when each was sent.
    pub(crate) sent_us: Vec<(u64, u64)>,
    pub(crate) starts_us: u64,
    /// Until when nothing runs, and whether the clock stands still meanwhile; and until when the engine does not.
    pub(crate) paused_until_us: u64,
    pub(crate) clock_stops: bool,
    pub(crate) stalled_until_us: u64,
    pub(crate) connects_at_us: u64,
    pub(crate) beats_at_us: u64,
    /// Whether checks take the server for lost, and since when.
    pub(crate) lost_since_us: Option<u64>,
    /// A question about each agent, for faults.
    pub(crate) asks: Vec<Ask>,
    /// How many answers it has heard, and how many resets and refunds it has asked for.
    pub(crate) answers: u64,
    pub(crate) forgiven: u64,
}

impl Node {
    pub(crate) fn new(scenario: &Scenario, starts_us: u64) -> Self {
        let policy = Policy::builder().lane("http", scenario.limit.as_str()).build().expect("a policy");
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_000));
        let when_lost = if scenario.is_closed { WhenLost::Closed } else { WhenLost::Share };
        let lane = if scenario.is_exact { ClusterLane::new().exact() } else { ClusterLane::new() };
        let cluster = Cluster::new([7; 16]).slack_percent(scenario.slack_percent).when_lost(when_lost);
        let cluster = cluster.lane("http", lane);
        let limiter = Limiter::builder(policy).agents(64).clock(clock.clone()).cluster(cluster).build();
        let limiter = limiter.expect("a limiter");
        let mut node = Self {
            clock,
            lane: limiter.lane("http").expect("its lane"),
            settler: Settler::new(NonZeroU16::MIN),
            limiter,
            connection: 0,
            sent_us: Vec::new(),
            starts_us,
            paused_until_us: 0,
            clock_stops: false,
            stalled_until_us: 0,
            connects_at_us: 0,
            beats_at_us: 0,
            lost_since_us: None,
            asks: Vec::new(),
            answers: 0,
            forgiven: 0,
        };
        node.begin(scenario);
        node
    }

    /// Another engine begins.
    pub(crate) fn begin(&mut self, scenario: &Scenario) {
        let nodes = u16::try_from(scenario.nodes_at_least).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MIN);
        self.settler = Settler::new(nodes);
        self.link().lost(nodes);
        self.sent_us.clear();
        self.connection += 1;
    }

    pub(crate) fn link(&self) -> Link<'_> {
        Link::of(&self.limiter).expect("it is shared")
    }

    /// Gets a question about each agent, and leaves nothing else behind.
    pub(crate) fn get_asks(&mut self, scenario: &Scenario, ids: &[String]) {
        let link = Link::of(&self.limiter).expect("it is shared");
        link.connected(NonZeroU16::MIN, Duration::ZERO);
        for id in ids {
            let _ = self.limiter.check_request(Request::new(id, self.lane).cost(scenario.capacity));
            self.asks.extend(link.asks(1));
            self.limiter.reset(id.as_str()).expect("a known agent");
            self.forgiven += 2;
        }
        link.asks(usize::MAX).for_each(drop);
        link.lost(self.settler.nodes());
    }

    /// Renews what the lanes hold, as if the server had answered that it grants nothing: credit does not end, and lanes
    /// forget that they were asked about.
    pub(crate) fn renew(&mut self) {
        let link = Link::of(&self.limiter).expect("it is shared");
        for ask in &self.asks {
            let of_nothing = |due: &Due| due.owed() == 0 && due.given() == 0;
            if let Some(due) = link.due(ask).filter(of_nothing) {
                let debt_ns = due.known_debt_ns();
                let _ = link.settle(ask, &due, 0, debt_ns);
            }
        }
    }
}
