//! What the server counts besides what the limiter counts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tollgate::{LANES_MAX, LaneId};

/// The upper bounds of the histogram of check durations, in nanoseconds.
const BOUNDS_NS: [u64; 12] =
    [500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000, 100_000_000];

/// Counters; every one only grows.
pub(crate) struct Meter {
    /// Tokens that were charged, by lane.
    costs: Vec<AtomicU64>,
    /// Denials by lane and plan; it is written when one is the first of its kind.
    denials: RwLock<BTreeMap<LaneId, BTreeMap<String, AtomicU64>>>,
    durations: [AtomicU64; BOUNDS_NS.len() + 1],
    durations_ns: AtomicU64,
    reloads: [AtomicU64; 2],
    /// Unix milliseconds of the policy in force.
    policy_since: AtomicU64,
    started: SystemTime,
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
            durations: [const { AtomicU64::new(0) }; BOUNDS_NS.len() + 1],
            durations_ns: AtomicU64::new(0),
            reloads: [const { AtomicU64::new(0) }; 2],
            policy_since: AtomicU64::new(0),
            started: SystemTime::now(),
        };
        meter.policy_read();
        meter
    }

    /// A check was allowed for this cost.
    pub(crate) fn charged(&self, lane: LaneId, cost: u64) {
        if let Some(sum) = self.costs.get(lane.number() as usize) {
            sum.fetch_add(cost, Relaxed);
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
