//! The live connection of an open page, as server-sent events.
//!
//! First `hello`: what does not change while the page is open. Then `snapshot` at
//! the interval that the page requests, and `happened` for each event at once.

use super::feed::{DatedEvent, Sample, unix_ms};
use super::parse_query;
use crate::app::App;
use crate::auth::Right;
use crate::id;
use crate::machines::{Machines, state_name};
use crate::problem::Problem;
use crate::routes::{PeerAddress, agents::IN_A_ROW_MAX};
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use http_body_util::channel::{Channel, Sender};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tollgate::cluster::Source;
use tollgate::observe::{EventKind, ShownId};
use tollgate::shared::Sharing;

/// The default interval in seconds, and the longest: a connection that is silent for
/// longer might be closed.
const EVERY_MAX: u64 = 10;

/// How many offenders are shown.
const OFFENDERS: usize = 3;

#[derive(Deserialize)]
pub(super) struct LiveQuery {
    /// Seconds from one snapshot to the next.
    every: Option<u64>,
}

/// The connection to one page.
struct Page {
    app: Arc<App>,
    sender: Sender<Bytes, Infallible>,
    headers: HeaderMap,
    peer: IpAddr,
    /// The time of the last sample that it has.
    sampled_ms: u64,
    next_event: u64,
}

/// The page is gone, or its session has ended.
struct Gone;

pub(super) async fn live(
    State(app): State<Arc<App>>,
    PeerAddress(peer): PeerAddress,
    query: Result<Query<LiveQuery>, QueryRejection>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    _ = app.keys().require(Right::Admin, &headers, peer)?;
    let every = interval(parse_query(query)?.every);
    let (sender, body) = Channel::new(1);
    let page = Page { app, sender, headers, peer, sampled_ms: 0, next_event: 0 };
    tokio::spawn(page.run(every));
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A proxy must not buffer the events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// The time between two snapshots.
fn interval(every: Option<u64>) -> Duration {
    Duration::from_secs(every.unwrap_or(EVERY_MAX).clamp(1, EVERY_MAX))
}

impl Page {
    /// Sends until the page is gone, its session ends or the server stops.
    async fn run(mut self, every: Duration) {
        let mut news = self.app.feed().news();
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        if self.send("hello", None, &hello(&self.app)).await.is_err() {
            return;
        }
        loop {
            let sent = tokio::select! {
                biased;
                changed = news.changed() => match changed {
                    Ok(()) if !news.borrow_and_update().is_over => self.send_events().await,
                    _ => break,
                },
                _ = ticks.tick() => self.send_snapshot().await,
            };
            if sent.is_err() {
                break;
            }
        }
    }

    async fn send_snapshot(&mut self) -> Result<(), Gone> {
        // The session may have ended meanwhile.
        _ = self.app.keys().require(Right::Admin, &self.headers, self.peer).map_err(|_| Gone)?;
        self.send_events().await?;
        let snapshot = self.snapshot();
        self.send("snapshot", None, &snapshot).await
    }

    async fn send_events(&mut self) -> Result<(), Gone> {
        for event in self.app.feed().events_from(self.next_event) {
            self.next_event = event.number + 1;
            self.send("happened", Some(event.number), &happened(&event)).await?;
        }
        Ok(())
    }

    async fn send(&mut self, event: &str, id: Option<u64>, data: &Value) -> Result<(), Gone> {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        // The only line breaks in JSON are escaped.
        let text = format!("event: {event}\n{id}retry: 1000\ndata: {data}\n\n");
        self.sender.send_data(text.into()).await.map_err(|_| Gone)
    }

    fn snapshot(&mut self) -> Value {
        let limiter = self.app.limiter();
        let now = limiter.snapshot();
        let samples = self.app.feed().samples_after(self.sampled_ms, &now);
        self.sampled_ms = samples.last().map_or(self.sampled_ms, |sample| sample.at_ms);
        let samples: Vec<_> =
            samples.iter().map(|Sample { at_ms, counts: [a, w, d, e] }| json!([at_ms, a, w, d, e])).collect();
        let offenders: Vec<_> = limiter
            .top_offenders(OFFENDERS)
            .list
            .iter()
            .map(|offender| {
                json!({
                    "key": id::to_segment(&offender.agent),
                    "shown": ShownId::new(&offender.agent).to_string(),
                    "violations": offender.violations,
                    "error": offender.error,
                })
            })
            .collect();
        json!({
            "samples": samples,
            "checks": now.checks(),
            "violations_last_hour": now.violations_last_hour,
            "sustained_abuse": now.sustained_abuse,
            "agents": now.stats.agents,
            "exempt": now.exempt,
            "overridden": now.overridden,
            "offenders": offenders,
            "sharing": limiter.sharing().map(|sharing| shared(&sharing)),
            "engine": self.app.machines().map(engine),
        })
    }
}

/// Who shares the limiter.
fn shared(sharing: &Sharing) -> Value {
    let processes = sharing.processes.iter().map(|process| {
        let [major, minor, patch] = process.version;
        json!({
            "pid": process.pid,
            "joined_ms": unix_ms(process.joined),
            "version": format!("{major}.{minor}.{patch}"),
            "this": process.is_this,
        })
    });
    json!({
        "path": sharing.path.display().to_string(),
        "processes": processes.collect::<Vec<_>>(),
        "takeovers": sharing.takeovers,
        "busy": sharing.busy,
        "detached": sharing.is_detached,
        "policy_differs": sharing.policy_differs,
    })
}

/// How machines share the limiter.
fn engine(machines: &Machines) -> Value {
    let status = machines.status();
    let lanes = machines.lanes().map(|checks| checks.lanes).unwrap_or_default();
    let answers = Source::ALL.map(|from| (from.name(), lanes.iter().map(|lane| lane.answers(from)).sum::<u64>()));
    json!({
        "state": state_name(status.state),
        "since_ms": unix_ms(status.since),
        "nodes": status.nodes,
        "without_store": machines.without_store(),
        "last_problem": status.last_problem,
        "warnings": status.warnings,
        "answers": answers.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect::<Map<_, _>>(),
    })
}

fn hello(app: &App) -> Value {
    let policy = app.limiter().policy();
    let lanes: Vec<_> = policy
        .lanes()
        .map(|(lane, name)| json!({"name": name, "limit": policy.limit(lane).map(|limit| limit.to_string())}))
        .collect();
    let plans: Vec<_> = policy.plans().skip(1).map(|(_, name)| name).collect();
    let (violations, within) = policy.conduct().abuse_threshold();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        // The numbers of events start again with the server.
        "started": app.meter().started(),
        "lanes": lanes,
        "plans": plans,
        "agents_max": app.settings().agents,
        "abuse": {"violations": violations, "within_seconds": within.as_secs()},
        "kept_in": app.settings().state.as_ref().map(|state| state.display().to_string()),
    })
}

fn happened(DatedEvent { number, at_ms, kind }: &DatedEvent) -> Value {
    let of = |agent: &[u8]| json!({"key": id::to_segment(agent), "shown": ShownId::new(agent).to_string()});
    let (kind, agent, text) = match kind {
        EventKind::SustainedAbuse { agent, in_a_row } => {
            let or_more = if *in_a_row >= IN_A_ROW_MAX { " or more" } else { "" };
            ("sustained_abuse", Some(of(agent)), format!("{in_a_row}{or_more} violations in a row"))
        }
        EventKind::AssignmentChanged { agent } => ("assignment", Some(of(agent)), String::new()),
        EventKind::AssignmentsChanged { agents } => ("assignments", None, format!("{agents} agents")),
        EventKind::PolicyReplaced => ("policy", None, String::new()),
        EventKind::Saturated { lossy_evictions, refused } => {
            ("saturated", None, format!("{lossy_evictions} records given up, {refused} agents refused so far"))
        }
        EventKind::UnknownAction { channel, action } => {
            let [channel, action] = [channel, action].map(|name| ShownId::new(name).to_string());
            ("unknown_action", None, format!("{action} on {channel}"))
        }
        EventKind::ClockFellBack => ("clock", None, String::new()),
        _ => ("other", None, String::new()),
    };
    json!({"number": number, "at_ms": at_ms, "kind": kind, "agent": agent, "text": text})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_sent_every_ten_seconds_or_more_often_on_request() {
        let seconds =
            [None, Some(0), Some(1), Some(5), Some(10), Some(u64::MAX)].map(|every| interval(every).as_secs());
        assert_eq!(seconds, [10, 1, 1, 5, 10, 10]);
    }
}
