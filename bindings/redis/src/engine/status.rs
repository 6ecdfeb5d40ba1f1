//! What an engine shows of itself.

use super::problem::Reason;
use crate::decisions::DecisionsStatus;
use crate::followed::Out;
use crate::steps::{Counts, State};
use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tollgate::cluster::Link;
use tollgate::{LaneId, Limiter};

/// What an engine shows of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// Whether the server answers.
    pub state: State,
    /// Since when.
    pub since: SystemTime,
    /// How many machines there are, as far as this one knows, and at least as many as it was told.
    pub nodes: NonZeroU16,
    /// How many machines have shown themselves lately, this one among them; 0 before the first connection.
    pub nodes_seen: u16,
    /// How long the last question took.
    pub round_trip: Duration,
    /// How long all questions took.
    pub round_trips: RoundTrips,
    /// What was counted.
    pub counts: Counts,
    /// What this machine has of each lane in credit, and owes: of all agents together.
    pub out: BTreeMap<LaneId, Out>,
    /// How often the server was lost, by reason.
    pub losses: Losses,
    /// How long the server was lost in all, the time before the first connection aside.
    pub lost_for: Duration,
    /// Why the server was lost the last time.
    pub last_problem: Option<String>,
    /// What an operator should change or look at: the server evicts keys, say, or a decision cannot be in force here.
    pub warnings: Vec<String>,
    /// How what operators decide follows to all machines.
    pub decisions: DecisionsStatus,
}

/// How often the server was lost, by reason. What did not work again and again while it was lost counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Losses {
    /// No answer in time.
    pub timeout: u64,
    /// The connection was refused or closed.
    pub connection: u64,
    /// The server is a replica by now.
    pub read_only: u64,
    /// The server is reading its data.
    pub loading: u64,
    /// The server has no memory left.
    pub out_of_memory: u64,
    /// The server does not know the user or the password, or the user may not do what is needed.
    pub no_auth: u64,
    /// The key is on another server of the cluster, or on none.
    pub cluster_down: u64,
    /// The server has forgotten the scripts.
    pub no_script: u64,
    /// Anything else.
    pub other: u64,
}

impl Losses {
    /// Every reason with its name and count.
    #[must_use]
    pub const fn by_reason(&self) -> [(&'static str, u64); 9] {
        [
            ("timeout", self.timeout),
            ("connection", self.connection),
            ("read_only", self.read_only),
            ("loading", self.loading),
            ("out_of_memory", self.out_of_memory),
            ("no_auth", self.no_auth),
            ("cluster_down", self.cluster_down),
            ("no_script", self.no_script),
            ("other", self.other),
        ]
    }

    pub(super) fn count(&mut self, reason: Reason) {
        *match reason {
            Reason::Timeout => &mut self.timeout,
            Reason::Connection => &mut self.connection,
            Reason::ReadOnly => &mut self.read_only,
            Reason::Loading => &mut self.loading,
            Reason::OutOfMemory => &mut self.out_of_memory,
            Reason::NoAuth => &mut self.no_auth,
            Reason::ClusterDown => &mut self.cluster_down,
            Reason::NoScript => &mut self.no_script,
            Reason::Other => &mut self.other,
        } += 1;
    }
}

/// How long questions took, from what was sent to the last answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoundTrips {
    /// How many there were.
    pub count: u64,
    /// How long all of them took.
    pub sum: Duration,
    /// How long the slowest took.
    pub max: Duration,
    /// How many took no longer than each of [`RoundTrips::BOUNDS`]; the next bound counts them again.
    pub within: [u64; Self::BOUNDS.len()],
}

impl RoundTrips {
    /// The bounds of [`RoundTrips::within`].
    pub const BOUNDS: [Duration; 8] = [
        Duration::from_micros(250),
        Duration::from_micros(500),
        Duration::from_millis(1),
        Duration::from_micros(2_500),
        Duration::from_millis(5),
        Duration::from_millis(20),
        Duration::from_millis(50),
        Duration::from_millis(200),
    ];

    pub(super) fn add(&mut self, took: Duration) {
        self.count += 1;
        self.sum += took;
        self.max = self.max.max(took);
        for (within, bound) in self.within.iter_mut().zip(Self::BOUNDS) {
            *within += u64::from(took <= bound);
        }
    }
}

/// What the thread and its owner share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ends: AtomicBool,
    status: Mutex<(Status, Since)>,
}

/// Since when the server is lost, after it was connected once.
#[derive(Clone, Copy, Debug)]
struct Since(Option<Instant>);

impl Shared {
    pub(super) fn new(nodes: NonZeroU16) -> Self {
        let status = Status {
            state: State::Lost,
            since: SystemTime::now(),
            nodes,
            nodes_seen: 0,
            round_trip: Duration::ZERO,
            round_trips: RoundTrips::default(),
            counts: Counts::default(),
            out: BTreeMap::new(),
            losses: Losses::default(),
            lost_for: Duration::ZERO,
            last_problem: None,
            warnings: Vec::new(),
            decisions: DecisionsStatus::default(),
        };
        Self { ends: AtomicBool::new(false), status: Mutex::new((status, Since(None))) }
    }

    fn lock(&self) -> MutexGuard<'_, (Status, Since)> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn status(&self) -> Status {
        let (mut status, since) = self.lock().clone();
        status.lost_for += since.0.map_or(Duration::ZERO, |since| since.elapsed());
        status.warnings.extend(status.decisions.warnings.iter().cloned());
        if let (State::Connected, false, Some(problem)) =
            (status.state, status.decisions.is_current, &status.decisions.last_problem)
        {
            status.warnings.push(format!("what operators decide does not follow to or from this machine: {problem}"));
        }
        status
    }

    /// Runs what the thread does. If that panics, checks take the server for lost at once, and the status says why.
    pub(super) fn watch(&self, limiter: &Limiter, run: impl FnOnce()) {
        let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return };
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default();
        self.show(State::Lost, |status| {
            status.losses.other += 1;
            status.last_problem = Some(format!("the engine's thread has panicked: {text}; attach another engine"));
        });
        if let Some(link) = Link::of(limiter) {
            link.ended(self.status().nodes);
        }
    }

    /// Whether the engine was dropped.
    pub(super) fn ends(&self) -> bool {
        // Acquire, paired with the release in `Engine::end`.
        self.ends.load(Ordering::Acquire)
    }

    /// Runs what the thread of decisions does. If that panics, the status says so, and limits go on.
    pub(super) fn watch_decisions(&self, run: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            self.show_decisions(|status| {
                status.is_current = false;
                let problem = "the thread that carries decisions has panicked; attach another engine";
                status.last_problem = Some(problem.to_owned());
            });
        }
    }

    /// Changes what is shown of decisions.
    pub(super) fn show_decisions(&self, change: impl FnOnce(&mut DecisionsStatus)) {
        change(&mut self.lock().0.decisions);
    }

    /// Changes what is shown. The state has its time.
    pub(super) fn show(&self, state: State, change: impl FnOnce(&mut Status)) {
        let mut guard = self.lock();
        let (status, since) = &mut *guard;
        if status.state != state {
            status.since = SystemTime::now();
            match (status.state, state) {
                (State::Connected, _) => since.0 = Some(Instant::now()),
                (_, State::Connected) => {
                    status.lost_for += since.0.take().map_or(Duration::ZERO, |since| since.elapsed());
                }
                _ => {}
            }
            status.state = state;
        }
        change(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::Policy;
    use tollgate::cluster::Cluster;

    #[test]
    fn a_round_trip_counts_within_every_bound_that_it_keeps() {
        let mut round_trips = RoundTrips::default();
        [100, 600, 600_000].into_iter().for_each(|micros| round_trips.add(Duration::from_micros(micros)));
        assert_eq!(round_trips.within, [1, 1, 2, 2, 2, 2, 2, 2]);
        assert_eq!((round_trips.count, round_trips.max), (3, Duration::from_millis(600)));
    }

    #[test]
    fn a_thread_that_panics_leaves_its_limiter_lost_and_says_so() {
        let policy = Policy::builder().lane("http", "60/min").build().unwrap();
        let limiter = Limiter::builder(policy).agents(10).cluster(Cluster::new([7; 16])).build().unwrap();
        let link = Link::of(&limiter).unwrap();
        let shared = Shared::new(NonZeroU16::MIN);
        shared.watch(&limiter, || {
            link.connected(NonZeroU16::MIN, Duration::ZERO);
            shared.show(State::Connected, |_| ());
            assert!(link.is_connected());
            let nothing: [u8; 0] = [];
            let _ = nothing[usize::from(link.is_copied())];
        });
        let status = shared.status();
        assert!(!link.is_connected());
        assert_eq!((status.state, status.losses.other), (State::Lost, 1));
        let problem = status.last_problem.unwrap();
        assert!(
            problem.contains("panicked: index out of bounds") && problem.ends_with("attach another engine"),
            "{problem}"
        );
    }

    #[test]
    fn time_before_the_first_connection_is_not_lost() {
        let shared = Shared::new(NonZeroU16::MIN);
        assert_eq!(shared.status().lost_for, Duration::ZERO);
        shared.show(State::Connected, |_| ());
        assert_eq!(shared.status().lost_for, Duration::ZERO);
        shared.show(State::Lost, |_| ());
        let first = shared.status().lost_for;
        shared.show(State::Seeding, |_| ());
        shared.show(State::Connected, |_| ());
        assert!(shared.status().lost_for >= first && first > Duration::ZERO);
        assert_eq!(shared.status().lost_for, shared.status().lost_for);
    }
}
