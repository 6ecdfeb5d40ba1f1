//! Counters of the server, besides those of the limiter.

use crate::resp::Counts;
use http::StatusCode;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};
use tollgate::LaneId;
use tollgate::bounds::LANES_MAX;

/// The upper bounds of the histogram of check durations, in nanoseconds.
const BOUNDS_NS: [u64; 12] =
    [500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000, 100_000_000];

/// Counters; every one but the open connections only grows.
pub(crate) struct Meter {
    /// Tokens that were charged, by lane.
    costs: Vec<AtomicU64>,
    /// Denials by lane and plan; locked for writing only by the first of a kind.
    denials: RwLock<BTreeMap<LaneId, BTreeMap<String, AtomicU64>>>,
    /// Responses by status and reason; locked for writing only by the first of a kind.
    responses: RwLock<BTreeMap<(u16, &'static str), AtomicU64>>,
    /// Open connections, by the kind of their listener.
    connections: [AtomicU64; ListenerKind::ALL.len()],
    durations: [AtomicU64; BOUNDS_NS.len() + 1],
    durations_ns: AtomicU64,
    reloads: [AtomicU64; 2],
    certificates: [AtomicU64; 2],
    failed_saves: [AtomicU64; SavedFile::ALL.len()],
    sweeps: AtomicU64,
    /// Records that sweeps gave up.
    swept: AtomicU64,
    /// When the policy in force was read, in Unix milliseconds.
    policy_since: AtomicU64,
    resp: Counts,
    started: SystemTime,
}

/// A file that the server writes.
#[derive(Clone, Copy)]
pub(crate) enum SavedFile {
    /// Plans, overrides, exemptions.
    Assignments,
    /// Limits set through the admin API.
    Defaults,
    /// Used budgets.
    Budgets,
    /// The report.
    Report,
    /// The audit log.
    Audit,
}

impl SavedFile {
    const ALL: [Self; 5] = [Self::Assignments, Self::Defaults, Self::Budgets, Self::Report, Self::Audit];

    const fn name(self) -> &'static str {
        match self {
            Self::Assignments => "assignments",
            Self::Defaults => "defaults",
            Self::Budgets => "budgets",
            Self::Report => "report",
            Self::Audit => "audit",
        }
    }
}

/// The kind of listener at which a client has connected.
#[derive(Clone, Copy)]
pub(crate) enum ListenerKind {
    Tcp,
    Tls,
    Unix,
}

impl ListenerKind {
    const ALL: [Self; 3] = [Self::Tcp, Self::Tls, Self::Unix];

    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Unix => "unix",
        }
    }
}

/// Counts a connection as open until it is dropped.
pub(crate) struct OpenConnection {
    meter: Arc<Meter>,
    kind: ListenerKind,
}

impl OpenConnection {
    pub(crate) fn new(meter: &Arc<Meter>, kind: ListenerKind) -> Self {
        meter.connections[kind as usize].fetch_add(1, Relaxed);
        Self { meter: Arc::clone(meter), kind }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.meter.connections[self.kind as usize].fetch_sub(1, Relaxed);
    }
}

/// A histogram: for each bound in seconds the number of values up to it, the number
/// of all values, and their sum in seconds.
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
            responses: RwLock::default(),
            connections: [const { AtomicU64::new(0) }; ListenerKind::ALL.len()],
            durations: [const { AtomicU64::new(0) }; BOUNDS_NS.len() + 1],
            durations_ns: AtomicU64::new(0),
            reloads: [const { AtomicU64::new(0) }; 2],
            certificates: [const { AtomicU64::new(0) }; 2],
            failed_saves: [const { AtomicU64::new(0) }; SavedFile::ALL.len()],
            sweeps: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            policy_since: AtomicU64::new(0),
            resp: Counts::default(),
            started: SystemTime::now(),
        };
        meter.stamp_policy();
        meter
    }

    /// Adds the cost of an allowed check.
    pub(crate) fn add_cost(&self, lane: LaneId, cost: u64) {
        if let Some(sum) = self.costs.get(lane.number() as usize) {
            // A sum that wraps would look like a restart, so it saturates. The exchange is
            // rarely lost: a cost is added once per request.
            let _ = sum.fetch_update(Relaxed, Relaxed, |sum| Some(sum.saturating_add(cost)));
        }
    }

    /// Counts a denial of an agent with this plan.
    pub(crate) fn count_denial(&self, lane: LaneId, plan: &str) {
        let known = self.denials.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = known.get(&lane).and_then(|plans| plans.get(plan)) {
            count.fetch_add(1, Relaxed);
            return;
        }
        drop(known);
        let mut denials = self.denials.write().unwrap_or_else(PoisonError::into_inner);
        *denials.entry(lane).or_default().entry(plan.to_owned()).or_default().get_mut() += 1;
    }

    /// Counts a response. Returns whether it is the first of its kind.
    pub(crate) fn count_response(&self, status: StatusCode, reason: &'static str) -> bool {
        let kind = (status.as_u16(), reason);
        let known = self.responses.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = known.get(&kind) {
            count.fetch_add(1, Relaxed);
            return false;
        }
        drop(known);
        let mut responses = self.responses.write().unwrap_or_else(PoisonError::into_inner);
        let count = responses.entry(kind).or_default().get_mut();
        *count += 1;
        *count == 1
    }

    /// Responses by status and reason, in order.
    pub(crate) fn responses(&self) -> Vec<((u16, &'static str), u64)> {
        let responses = self.responses.read().unwrap_or_else(PoisonError::into_inner);
        responses.iter().map(|(kind, count)| (*kind, count.load(Relaxed))).collect()
    }

    /// Open connections, by the kind of their listener.
    pub(crate) fn connections(&self) -> [(&'static str, u64); ListenerKind::ALL.len()] {
        ListenerKind::ALL.map(|kind| (kind.name(), self.connections[kind as usize].load(Relaxed)))
    }

    /// Records how long a check took.
    pub(crate) fn record_duration(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.partition_point(|bound| *bound < nanos);
        self.durations[bucket].fetch_add(1, Relaxed);
        self.durations_ns.fetch_add(nanos, Relaxed);
    }

    /// Counts a reload, successful or not.
    pub(crate) fn count_reload(&self, succeeded: bool) {
        self.reloads[usize::from(succeeded)].fetch_add(1, Relaxed);
        if succeeded {
            self.stamp_policy();
        }
    }

    /// Counts a certificate that was read again, successfully or not.
    pub(crate) fn count_certificate(&self, succeeded: bool) {
        self.certificates[usize::from(succeeded)].fetch_add(1, Relaxed);
    }

    /// How often reading the certificate again has failed and succeeded.
    pub(crate) fn certificates(&self) -> (u64, u64) {
        (self.certificates[0].load(Relaxed), self.certificates[1].load(Relaxed))
    }

    /// Counts a sweep and the records that it gave up.
    pub(crate) fn count_sweep(&self, records: u64) {
        self.sweeps.fetch_add(1, Relaxed);
        self.swept.fetch_add(records, Relaxed);
    }

    /// The number of sweeps, and of the records that they gave up.
    pub(crate) fn sweeps(&self) -> (u64, u64) {
        (self.sweeps.load(Relaxed), self.swept.load(Relaxed))
    }

    /// Counts a file that could not be written.
    pub(crate) fn count_failed_save(&self, file: SavedFile) {
        self.failed_saves[file as usize].fetch_add(1, Relaxed);
    }

    /// How often each file could not be written.
    pub(crate) fn failed_saves(&self) -> [(&'static str, u64); SavedFile::ALL.len()] {
        SavedFile::ALL.map(|file| (file.name(), self.failed_saves[file as usize].load(Relaxed)))
    }

    /// Clients of Redis and their commands.
    pub(crate) const fn resp(&self) -> &Counts {
        &self.resp
    }

    fn stamp_policy(&self) {
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

    /// The numbers of failed and of successful reloads.
    pub(crate) fn reloads(&self) -> (u64, u64) {
        (self.reloads[0].load(Relaxed), self.reloads[1].load(Relaxed))
    }

    /// When the policy in force was read, in Unix seconds.
    pub(crate) fn policy_since(&self) -> f64 {
        self.policy_since.load(Relaxed) as f64 / 1e3
    }

    /// When the server started, in Unix seconds.
    pub(crate) fn started(&self) -> f64 {
        self.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Settling `u64::MAX` used to make the sum wrap.
    #[test]
    fn a_sum_of_costs_saturates() {
        let (meter, lane) = (Meter::new(), LaneId::new(0));
        for cost in [5, u64::MAX, 7] {
            meter.add_cost(lane, cost);
        }
        assert_eq!(meter.cost(lane), u64::MAX);
    }

    #[test]
    fn a_histogram_counts_up_to_its_bounds() {
        let meter = Meter::new();
        for nanos in [0, 500, 501, 1_000, 99_000_000, 200_000_000] {
            meter.record_duration(Duration::from_nanos(nanos));
        }
        let Histogram { buckets, count, seconds } = meter.durations();
        assert_eq!((buckets[0], buckets[1], buckets[11]), ((5e-7, 2), (1e-6, 4), (0.1, 5)));
        assert_eq!((count, seconds), (6, 0.299002001));
    }
}
