//! Limits that machines share: the engine that settles with the store, and what is
//! shown of it.

use crate::error::StartError;
use crate::settings::ClusterSettings;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tollgate::cluster::{ClusterStatus, Link, Source, WhenLost};
use tollgate::{LaneId, Limiter};
use tollgate_redis::{DecisionsStatus, Engine, State, Status};

/// The engine, and how it was set up.
pub(crate) struct Machines {
    engine: Engine,
    limiter: Arc<Limiter>,
    settings: ClusterSettings,
    /// How long a check of each lane may wait for the store, by the lane's number.
    waits: Vec<Duration>,
}

impl Machines {
    /// Starts the engine. Returns at once: the store counts as lost until it has answered.
    pub(crate) fn start(settings: &ClusterSettings, limiter: &Arc<Limiter>) -> Result<Self, StartError> {
        let failed = |error: &dyn std::fmt::Display| StartError::new(format!("[cluster]: {error}"));
        let engine = settings.engine().map_err(|error| failed(&error))?;
        let engine = engine.attach(Arc::clone(limiter)).map_err(|error| failed(&error))?;
        let wait = |(_, name): (LaneId, &str)| {
            settings.lane(name).filter(|lane| lane.is_exact).map_or(Duration::ZERO, |lane| lane.wait)
        };
        let waits = limiter.policy().lanes().map(wait).collect();
        Ok(Self { engine, limiter: Arc::clone(limiter), settings: settings.clone(), waits })
    }

    /// How long a check of a lane may wait for the store: not at all, unless the lane is exact.
    pub(crate) fn wait(&self, lane: LaneId) -> Duration {
        self.waits.get(lane.number() as usize).copied().unwrap_or_default()
    }

    /// How the engine is.
    pub(crate) fn status(&self) -> Status {
        self.engine.status()
    }

    /// Waits until the store has answered, or has failed to, and not for long: this is for the first lines that
    /// the server prints.
    pub(crate) async fn wait_for_store(&self) {
        let is_undecided = || {
            let status = self.status();
            status.state != State::Connected && status.last_problem.is_none()
        };
        for _ in 0..100 {
            if !is_undecided() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Who shares the limiter, for the first lines that the server prints.
    pub(crate) fn text(&self) -> String {
        let (status, settings) = (self.status(), &self.settings);
        let lanes = settings.lanes.len();
        let all = lanes + settings.own.len();
        let mut text = format!("shared by machines: {} through {}", of(lanes, all, "lane"), settings.store);
        match (status.state, status.last_problem) {
            (State::Lost, problem) => {
                let problem = problem.map_or("no answer yet".to_owned(), |problem| problem.trim().to_owned());
                text.push_str(&format!(", not connected: {problem}; until then {}", self.without_store()));
            }
            _ => text.push_str(&format!(", connected, {}", count(u64::from(status.nodes.get()), "machine"))),
        }
        if !settings.own.is_empty() {
            let own = settings.own.iter().map(|lane| lane.name.as_str()).collect::<Vec<_>>().join(", ");
            text.push_str(&format!("\n            of this machine alone: {own}"));
        }
        status.warnings.iter().for_each(|warning| text.push_str(&format!("\n            warning: {warning}")));
        text
    }

    /// What machines do without the store, in words.
    pub(crate) fn without_store(&self) -> String {
        let first = self.settings.lanes.first().map(|lane| lane.when_lost).unwrap_or_default();
        if self.settings.lanes.iter().any(|lane| lane.when_lost != first) {
            return "every lane does as its when_lost says".to_owned();
        }
        match (first, self.status().nodes.get()) {
            (WhenLost::Closed, _) => "every machine denies everything".to_owned(),
            (WhenLost::Open, _) => "every machine allows everything".to_owned(),
            (WhenLost::Alone, _) | (_, 1) => "every machine allows the whole limit".to_owned(),
            (_, 2) => "every machine allows half".to_owned(),
            (_, 3) => "every machine allows a third".to_owned(),
            (_, 4) => "every machine allows a quarter".to_owned(),
            (_, nodes) => format!("every machine allows 1 of {nodes} parts"),
        }
    }

    /// What checks found of the lanes that are shared.
    pub(crate) fn lanes(&self) -> Option<ClusterStatus> {
        Link::of(&self.limiter).map(|link| link.status())
    }

    /// Everything about it, for `GET /v1/engine`.
    pub(crate) fn to_json(&self) -> Value {
        let (status, settings) = (self.status(), &self.settings);
        let counts = status.counts;
        let (policy, checks) = (self.limiter.policy(), self.lanes());
        let lanes = checks.iter().flat_map(|checks| &checks.lanes).map(|lane| {
            let limit = policy.limit(lane.lane);
            let out = status.out.get(&lane.lane).copied().unwrap_or_default();
            json!({
                "lane": lane.name,
                "limit": limit.map(|limit| limit.to_string()),
                "capacity": limit.map(|limit| limit.capacity()),
                "exact": lane.is_exact,
                "slack_percent": lane.slack_percent,
                "when_lost": lane.when_lost.name(),
                "bound": lane.bound_tokens,
                "credit": out.credit,
                "advance": out.advance,
                "answers": Source::ALL.map(|from| (from.name(), lane.answers(from))).into_iter().collect::<BTreeMap<_, _>>(),
            })
        });
        let lanes: Vec<_> = lanes.collect();
        let own: Vec<_> = settings.own.iter().map(|lane| json!({"lane": lane.name, "why": lane.why})).collect();
        json!({
            "shared_by": "machines",
            "store": settings.store.to_string(),
            "state": state_name(status.state),
            "since": seconds(status.since),
            "since_ms": ms(status.since.elapsed().unwrap_or_default()),
            "without_store": self.without_store(),
            "nodes": status.nodes,
            "nodes_seen": status.nodes_seen,
            "nodes_at_least": settings.nodes,
            "round_trip_us": u64::try_from(status.round_trip.as_micros()).unwrap_or(u64::MAX),
            "round_trip_us_max": u64::try_from(status.round_trips.max.as_micros()).unwrap_or(u64::MAX),
            "losses": status.losses.by_reason().into_iter().collect::<BTreeMap<_, _>>(),
            "lost_ms": ms(status.lost_for),
            "last_problem": status.last_problem,
            "warnings": status.warnings,
            "settled": counts.sent,
            "granted": counts.granted,
            "given": counts.given,
            "paid": counts.paid,
            "seeded": counts.seeded,
            "asks": checks.as_ref().map(|checks| checks.asks),
            "asks_dropped": checks.as_ref().map(|checks| checks.asks_dropped + counts.dropped),
            "decisions": decisions_json(&status.decisions),
            "lanes": lanes,
            "own_lanes": own,
        })
    }
}

/// How what operators decide follows.
fn decisions_json(decisions: &DecisionsStatus) -> Value {
    json!({
        "current": decisions.is_current,
        "version": decisions.version,
        "agents": decisions.agents,
        "waiting": decisions.waiting,
        "refused": decisions.refused,
        "written": decisions.written,
        "followed": decisions.followed,
        "put_back": decisions.put_back,
        "last_problem": decisions.last_problem,
    })
}

/// The state's name.
pub(crate) const fn state_name(state: State) -> &'static str {
    match state {
        State::Lost => "lost",
        State::Seeding => "seeding",
        State::Connected => "connected",
    }
}

fn of(some: usize, all: usize, what: &str) -> String {
    if some == all { count(all as u64, what) } else { format!("{some} of {}", count(all as u64, what)) }
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn seconds(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as f64 / 1e3
}

fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
