//! What the server counts besides what the limiter counts.

use http::StatusCode;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tollgate::LaneId;
use tollgate::bounds::LANES_MAX;

/// The upper bounds of the histogram of check durations, in nanoseconds.
const BOUNDS_NS: [u64; 12] =
    [500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000, 100_000_000];

/// Counters; every one only grows.
pub(crate) struct Meter {
    /// Tokens that were charged, by lane.
    costs: Vec<AtomicU64>,
    /// Denials by lane and plan; it is written when one is the first of its kind.
    denials: RwLock<BTreeMap<LaneId, BTreeMap<String, AtomicU64>>>,
    /// Answers by status and reason; it is written when one is the first of its kind.
    answers: RwLock<BTreeMap<(u16, &'static str), AtomicU64>>,
    durations: [AtomicU64; BOUNDS_NS.len() + 1],
    durations_ns: AtomicU64,
    reloads: [AtomicU64; 2],
    saves_failed: [AtomicU64; Kept::ALL.len()],
    sweeps: AtomicU64,
    /// Records that sweeps gave up.
    swept: AtomicU64,
    /// Unix milliseconds of the policy in force.
    policy_since: AtomicU64,
    started: SystemTime,
}

/// What is kept on the disk.
#[derive(Clone, Copy)]
pub(crate) enum Kept {
    /// Plans, overrides, exemptions.
    Assignments,
    /// Limits that were changed through the admin API.
    Defaults,
    /// What is used of budgets.
    Budgets,
    /// The status document.
    Status,
}

impl Kept {
    const ALL: [Self; 4] = [Self::Assignments, Self::Defaults, Self::Budgets, Self::Status];

    const fn name(self) -> &'static str {
        match self {
            Self::Assignments => "assignments",
            Self::Defaults => "defaults",
            Self::Budgets => "budgets",
            Self::Status => "status",
        }
    }
}

/// A histogram: for each bound in seconds how many were at most as long, how
/// many there were, and how many seconds they took.
pub(crate) struct Histogram {
    pub(crate) buckets: Vec<(f64, u64)>,
    pub(crate) count: u64,
    pub(crate) seconds: f64,
}

impl Meter {
    pub(crate) fn new() -> Self {
        let meter = Self {
            costs: (0..LANES_MAX).map(|_| AtomicU64::new(0)).collect(),
            denials: RwLock::default(),
            answers: RwLock::default(),
            durations: [const { AtomicU64::new(0) }; BOUNDS_NS.len() + 1],
            durations_ns: AtomicU64::new(0),
            reloads: [const { AtomicU64::new(0) }; 2],
            saves_failed: [const { AtomicU64::new(0) }; Kept::ALL.len()],
            sweeps: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            policy_since: AtomicU64::new(0),
            started: SystemTime::now(),
        };
        meter.policy_read();
        meter
    }

    /// A check was allowed for this cost.
    pub(crate) fn charged(&self, lane: LaneId, cost: u64) {
        if let Some(sum) = self.costs.get(lane.number() as usize) {
            // A sum that starts over would look like a restart, so it stops at its end. The
            // exchange is seldom lost: a cost is counted once for every request.
            let _ = sum.fetch_update(Relaxed, Relaxed, |sum| Some(sum.saturating_add(cost)));
        }
    }

    /// A check was denied to an agent of this plan.
    pub(crate) fn denied(&self, lane: LaneId, plan: &str) {
        let known = self.denials.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = known.get(&lane).and_then(|plans| plans.get(plan)) {
            count.fetch_add(1, Relaxed);
            return;
        }
        drop(known);
        let mut denials = self.denials.write().unwrap_or_else(PoisonError::into_inner);
        *denials.entry(lane).or_default().entry(plan.to_owned()).or_default().get_mut() += 1;
    }

    /// A request was answered. Whether that was the first of its kind.
    pub(crate) fn answered(&self, status: StatusCode, reason: &'static str) -> bool {
        let kind = (status.as_u16(), reason);
        let known = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = known.get(&kind) {
            count.fetch_add(1, Relaxed);
            return false;
        }
        drop(known);
        let mut answers = self.answers.write().unwrap_or_else(PoisonError::into_inner);
        let count = answers.entry(kind).or_default().get_mut();
        *count += 1;
        *count == 1
    }

    /// Answers by status and reason, in order.
    pub(crate) fn answers(&self) -> Vec<((u16, &'static str), u64)> {
        let answers = self.answers.read().unwrap_or_else(PoisonError::into_inner);
        answers.iter().map(|(kind, count)| (*kind, count.load(Relaxed))).collect()
    }

    /// A check took this long.
    pub(crate) fn took(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.partition_point(|bound| *bound < nanos);
        self.durations[bucket].fetch_add(1, Relaxed);
        self.durations_ns.fetch_add(nanos, Relaxed);
    }

    /// The policy was read again, or could not be.
    pub(crate) fn reloaded(&self, well: bool) {
        self.reloads[usize::from(well)].fetch_add(1, Relaxed);
        if well {
            self.policy_read();
        }
    }

    /// A sweep gave up this many records.
    pub(crate) fn swept(&self, records: u64) {
        self.sweeps.fetch_add(1, Relaxed);
        self.swept.fetch_add(records, Relaxed);
    }

    /// How many sweeps there were, and how many records they gave up.
    pub(crate) fn sweeps(&self) -> (u64, u64) {
        (self.sweeps.load(Relaxed), self.swept.load(Relaxed))
    }

    /// Something could not be written to the disk.
    pub(crate) fn save_failed(&self, kept: Kept) {
        self.saves_failed[kept as usize].fetch_add(1, Relaxed);
    }

    /// How often each of what is kept could not be written.
    pub(crate) fn saves_failed(&self) -> [(&'static str, u64); Kept::ALL.len()] {
        Kept::ALL.map(|kept| (kept.name(), self.saves_failed[kept as usize].load(Relaxed)))
    }

    fn policy_read(&self) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.policy_since.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(crate) fn cost(&self, lane: LaneId) -> u64 {
        self.costs.get(lane.number() as usize).map_or(0, |sum| sum.load(Relaxed))
    }

    /// Denials by lane and plan, in order.
    pub(crate) fn denials(&self) -> Vec<(LaneId, String, u64)> {
        let denials = self.denials.read().unwrap_or_else(PoisonError::into_inner);
        let plans = denials.iter().flat_map(|(lane, plans)| plans.iter().map(|(plan, count)| (*lane, plan, count)));
        plans.map(|(lane, plan, count)| (lane, plan.clone(), count.load(Relaxed))).collect()
    }

    pub(crate) fn durations(&self) -> Histogram {
        let counts = self.durations.each_ref().map(|count| count.load(Relaxed));
        let mut count = 0;
        let mut so_far = |more: &u64| {
            count += more;
            count
        };
        let at_most: Vec<_> = counts.iter().map(&mut so_far).collect();
        let buckets = BOUNDS_NS.iter().zip(&at_most).map(|(bound, count)| (*bound as f64 / 1e9, *count)).collect();
        Histogram { buckets, count, seconds: self.durations_ns.load(Relaxed) as f64 / 1e9 }
    }

    /// How often the policy could not be read again, and how often it was.
    pub(crate) fn reloads(&self) -> (u64, u64) {
        (self.reloads[0].load(Relaxed), self.reloads[1].load(Relaxed))
    }

    /// When the policy in force was read, in Unix seconds.
    pub(crate) fn policy_since(&self) -> f64 {
        self.policy_since.load(Relaxed) as f64 / 1e3
    }

    /// When it started, in Unix seconds.
    pub(crate) fn started(&self) -> f64 {
        self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A commit of `u64::MAX` made the sum start over.
    #[test]
    fn a_sum_of_costs_never_starts_over() {
        let (meter, lane) = (Meter::new(), LaneId::new(0));
        for cost in [5, u64::MAX, 7] {
            meter.charged(lane, cost);
        }
        assert_eq!(meter.cost(lane), u64::MAX);
    }

    #[test]
    fn a_histogram_counts_up_to_its_bounds() {
        let meter = Meter::new();
        for nanos in [0, 500, 501, 1_000, 99_000_000, 200_000_000] {
            meter.took(Duration::from_nanos(nanos));
        }
        let Histogram { buckets, count, seconds } = meter.durations();
        assert_eq!((buckets[0], buckets[1], buckets[11]), ((5e-7, 2), (1e-6, 4), (0.1, 5)));
        assert_eq!((count, seconds), (6, 0.299002001));
    }
}
