//! `/metrics`, for Prometheus: text 0.0.4, or OpenMetrics 1.0 for clients that accept it.
//!
//! It has no agent's id, except those in the setting `metrics_agents`: labels are
//! bounded by the policy.

use super::PeerAddress;
use crate::app::App;
use crate::envoy::EnvoyCounters;
use crate::leases::Counts;
use crate::problem::Problem;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, header};
use std::fmt::{Display, Write as _};
use std::sync::Arc;
use tollgate::cluster::Source;
use tollgate_redis::{DecisionsStatus, Out, RoundTrips, State as StoreState};

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    PeerAddress(peer): PeerAddress,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    app.keys().require_metrics(&headers, peer)?;
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let is_open = accepted
        .flat_map(|accept| accept.split(','))
        .any(|kind| kind.trim().starts_with("application/openmetrics-text"));
    let mut response = exposition(&app, is_open).into_response();
    let kind = HeaderValue::from_static(if is_open { OPEN_METRICS } else { TEXT });
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// A text in one of the two formats.
struct Page {
    text: String,
    is_open: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Page {
    /// Starts a family. OpenMetrics names a counter's family without `_total`.
    fn family(&mut self, kind: Kind, name: &str, help: &str) {
        let family = match (self.is_open, kind) {
            (true, Kind::Counter) => name.trim_end_matches("_total"),
            _ => name,
        };
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a `String` never fails.
        _ = writeln!(self.text, "# HELP {family} {help}\n# TYPE {family} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.text.push(if index == 0 { '{' } else { ',' });
            _ = write!(self.text, "{label}=\"{}\"", escaped(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        _ = writeln!(self.text, " {value}");
    }

    /// A family with a single sample.
    fn one(&mut self, kind: Kind, name: &str, help: &str, value: impl Display) {
        self.family(kind, name, help);
        self.sample(name, &[], value);
    }
}

/// A label's value, with the three characters escaped that the format requires.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn exposition(app: &App, is_open: bool) -> String {
    let mut page = Page { text: String::with_capacity(8 * 1024), is_open };
    decisions(app, &mut page);
    records(app, &mut page);
    shared(app, &mut page);
    machines(app, &mut page);
    envoy(app, &mut page);
    server(app, &mut page);
    resp(app, &mut page);
    process(app, &mut page);
    if is_open {
        page.text.push_str("# EOF\n");
    }
    page.text
}

fn decisions(app: &App, page: &mut Page) {
    let snapshot = app.limiter().snapshot();
    let name = "tollgate_decisions_total";
    page.family(Kind::Counter, name, "Verdicts, by lane and outcome.");
    for lane in &snapshot.lanes {
        let (channel, tier) = lane.name.rsplit_once('/').unwrap_or(("", &lane.name));
        for (outcome, count) in
            [("allow", lane.allowed), ("warn", lane.warned), ("deny", lane.denied), ("exempt", lane.exempt)]
        {
            let labels = [("policy", &*lane.name), ("tier", tier), ("channel", channel), ("outcome", outcome)];
            page.sample(name, &labels, count);
        }
    }
    let name = "tollgate_cost_total";
    page.family(Kind::Counter, name, "Tokens charged, by lane.");
    for lane in &snapshot.lanes {
        page.sample(name, &[("policy", &lane.name)], app.meter().cost(lane.lane));
    }
    let name = "tollgate_errors_total";
    let help = "Invalid or unauthorized requests, and checks for which no record was free.";
    page.family(Kind::Counter, name, help);
    let responses = app.meter().responses();
    let bad = responses.iter().filter(|((status, reason), _)| (400..500).contains(status) && *reason != "denied");
    page.sample(name, &[("reason", "request")], bad.map(|(_, count)| count).sum::<u64>());
    page.sample(name, &[("reason", "full")], snapshot.full);
    let name = "tollgate_responses_total";
    page.family(Kind::Counter, name, "HTTP responses, by status and reason.");
    for ((status, reason), count) in responses {
        page.sample(name, &[("status", &status.to_string()), ("reason", reason)], count);
    }
    let name = "rate_limit_hits_total";
    page.family(Kind::Counter, name, "Denials, by lane and plan.");
    for (lane, plan, count) in app.meter().denials() {
        let lane = snapshot.lanes.get(lane.number() as usize).map_or("", |lane| &lane.name);
        page.sample(name, &[("endpoint", lane), ("user_tier", &plan)], count);
    }
    let pinned = &app.settings().metrics_agents;
    if !pinned.is_empty() {
        let name = "rate_limit_remaining";
        page.family(Kind::Gauge, name, "Tokens left to the agents in metrics_agents.");
        for agent in pinned {
            let view = app.limiter().agent(agent).ok();
            let lanes = view.iter().flat_map(|view| &view.lanes).filter(|lane| !lane.state.is_exempt());
            for lane in lanes {
                page.sample(name, &[("user_id", agent), ("endpoint", &lane.name)], lane.state.remaining());
            }
        }
    }
    let durations = app.meter().durations();
    let name = "tollgate_check_duration_seconds";
    page.family(Kind::Histogram, name, "How long checks took, from the whole body to the whole response.");
    for (bound, count) in durations.buckets {
        page.sample(&format!("{name}_bucket"), &[("le", &bound.to_string())], count);
    }
    page.sample(&format!("{name}_bucket"), &[("le", "+Inf")], durations.count);
    page.sample(&format!("{name}_sum"), &[], durations.seconds);
    page.sample(&format!("{name}_count"), &[], durations.count);
}

fn records(app: &App, page: &mut Page) {
    let snapshot = app.limiter().snapshot();
    page.one(Kind::Gauge, "tollgate_keys", "Agents with a record.", snapshot.stats.agents);
    page.one(Kind::Gauge, "tollgate_keys_limit", "All records.", snapshot.stats.records);
    let name = "tollgate_evictions_total";
    page.family(Kind::Counter, name, "Records given to other agents: idle ones without loss, others lossy.");
    page.sample(name, &[("reason", "idle")], snapshot.stats.idle_evictions);
    page.sample(name, &[("reason", "lossy")], snapshot.stats.lossy_evictions);
    let (sweeps, swept) = app.meter().sweeps();
    page.one(Kind::Counter, "tollgate_sweeps_total", "Sweeps of the records of idle agents.", sweeps);
    page.one(Kind::Counter, "tollgate_swept_records_total", "Records of idle agents given up by sweeps.", swept);
    let name = "tollgate_agents_assigned";
    page.family(Kind::Gauge, name, "Agents with an assignment.");
    page.sample(name, &[("what", "any")], snapshot.assigned);
    page.sample(name, &[("what", "overrides")], snapshot.overridden);
    page.sample(name, &[("what", "exempt")], snapshot.exempt);
    let stats = snapshot.stats;
    page.one(Kind::Gauge, "tollgate_reservations", "Open reservations.", stats.reservations);
    let help = "How many reservations can be open at once.";
    page.one(Kind::Gauge, "tollgate_reservations_limit", help, app.settings().reservations);
    let help = "Reservations that expired unsettled: their estimates stay charged.";
    page.one(Kind::Counter, "tollgate_reservations_expired_total", help, stats.reservations_expired);
    let help = "Refused reservations: the agent, or all agents together, had too many open.";
    page.one(Kind::Counter, "tollgate_reservations_refused_total", help, stats.reservations_refused);
    let Counts { leases, max, expired, refused } = app.leases().counts();
    page.one(Kind::Gauge, "tollgate_leases", "Leased slots.", leases);
    page.one(Kind::Gauge, "tollgate_leases_limit", "How many slots can be leased at once.", max);
    let help = "Leases that expired, so that their slots were released.";
    page.one(Kind::Counter, "tollgate_leases_expired_total", help, expired);
    let help = "Refused leases: the agent, or all agents together, had too many.";
    page.one(Kind::Counter, "tollgate_leases_refused_total", help, refused);
    let help = "Checks whose action is not in the policy.";
    page.one(Kind::Counter, "tollgate_unknown_actions_total", help, snapshot.unknown_actions);
    let help = "How often the limiter stopped trusting a clock.";
    page.one(Kind::Counter, "tollgate_clock_fallbacks_total", help, snapshot.clock_fallbacks);
}

/// What Envoy has asked, if it is served.
fn envoy(app: &App, page: &mut Page) {
    let Some(envoy) = app.envoy() else { return };
    let counters = envoy.counters();
    for (index, (what, help)) in EnvoyCounters::NAMES.iter().enumerate() {
        let name = format!("tollgate_envoy_{what}_total");
        page.family(Kind::Counter, &name, help);
        for (domain, rule, counts) in &counters {
            page.sample(&name, &[("domain", domain), ("rule", rule)], counts[index]);
        }
    }
    let help = "Limits of Envoy's requests that were ignored, because there is no dynamic lane.";
    page.one(Kind::Counter, "tollgate_envoy_ignored_limits_total", help, envoy.ignored_limits());
}

/// What processes share, if they do.
fn shared(app: &App, page: &mut Page) {
    let Some(sharing) = app.limiter().sharing() else { return };
    let help = "Processes that share the limiter, this one among them.";
    page.one(Kind::Gauge, "tollgate_shared_processes", help, sharing.processes.len());
    let help = "Locks taken over from processes that died with them.";
    page.one(Kind::Counter, "tollgate_shared_takeovers_total", help, sharing.takeovers);
    let help = "Calls of all processes that a lock stood in the way of, because its holder is stopped.";
    page.one(Kind::Counter, "tollgate_shared_busy_total", help, sharing.busy);
    let help = "Whether the slab's file was removed or replaced, so that later processes share another.";
    page.one(Kind::Gauge, "tollgate_shared_detached", help, u8::from(sharing.is_detached));
    let help = "Whether this server's policy has other numbers than the one in force.";
    page.one(Kind::Gauge, "tollgate_policy_differs", help, u8::from(sharing.policy_differs));
}

/// How what operators decide follows to all machines.
fn of_operators(decisions: &DecisionsStatus, page: &mut Page) {
    let help = "Whether this machine knows all that operators have decided on the others.";
    page.one(Kind::Gauge, "tollgate_engine_decisions_current", help, u8::from(decisions.is_current));
    let help = "Decisions of this machine that the store does not know yet.";
    page.one(Kind::Gauge, "tollgate_engine_decisions_waiting", help, decisions.waiting);
    let help = "Decisions of other machines that cannot be in force on this one.";
    page.one(Kind::Gauge, "tollgate_engine_decisions_refused", help, decisions.refused);
    let name = "tollgate_engine_decisions_total";
    let help = "Decisions: written to the store, followed from other machines, put back after the store has lost them.";
    page.family(Kind::Counter, name, help);
    for (what, count) in
        [("written", decisions.written), ("followed", decisions.followed), ("put_back", decisions.put_back)]
    {
        page.sample(name, &[("what", what)], count);
    }
}

/// One of two numbers.
type Of = fn(&Out) -> u64;

/// What machines share, if they do.
fn machines(app: &App, page: &mut Page) {
    let Some(machines) = app.machines() else { return };
    let status = machines.status();
    let state = match status.state {
        StoreState::Lost => 0,
        StoreState::Seeding => 1,
        StoreState::Connected => 2,
    };
    let help = "Whether the store answers: 0 it is lost, 1 it is told what it missed, 2 it is connected.";
    page.one(Kind::Gauge, "tollgate_engine_state", help, state);
    let help = "Machines by which shares and slack are divided.";
    page.one(Kind::Gauge, "tollgate_engine_nodes", help, status.nodes);
    let help = "Machines that have shown themselves lately, this one among them.";
    page.one(Kind::Gauge, "tollgate_engine_nodes_seen", help, status.nodes_seen);
    let name = "tollgate_engine_round_trip_seconds";
    page.family(Kind::Histogram, name, "How long the store took to answer.");
    for (bound, count) in RoundTrips::BOUNDS.iter().zip(status.round_trips.within) {
        page.sample(&format!("{name}_bucket"), &[("le", &bound.as_secs_f64().to_string())], count);
    }
    page.sample(&format!("{name}_bucket"), &[("le", "+Inf")], status.round_trips.count);
    page.sample(&format!("{name}_sum"), &[], status.round_trips.sum.as_secs_f64());
    page.sample(&format!("{name}_count"), &[], status.round_trips.count);
    let name = "tollgate_engine_losses_total";
    page.family(Kind::Counter, name, "How often the store was lost, by reason.");
    for (reason, count) in status.losses.by_reason() {
        page.sample(name, &[("reason", reason)], count);
    }
    let help = "How long the store was lost in all, the time before the first connection aside.";
    page.one(Kind::Counter, "tollgate_engine_lost_seconds_total", help, status.lost_for.as_secs_f64());
    let help = "What an operator should change about the store: how many warnings there are.";
    page.one(Kind::Gauge, "tollgate_engine_warnings", help, status.warnings.len());
    of_operators(&status.decisions, page);
    let counts = status.counts;
    let Some(checks) = machines.lanes() else { return };
    let (asks, dropped) = (checks.asks, checks.asks_dropped);
    for (name, help, count) in [
        ("tollgate_engine_settles_total", "Lanes of agents that were settled with the store.", counts.sent),
        ("tollgate_engine_unanswered_total", "Batches of them without an answer.", counts.unanswered),
        ("tollgate_engine_refused_total", "Settlements that the store refused.", counts.refused),
        ("tollgate_engine_asks_total", "Questions that checks have left to the engine.", asks),
        ("tollgate_engine_asks_dropped_total", "Questions that found no room.", dropped + counts.dropped),
        ("tollgate_engine_seeded_total", "Lanes of agents that the store was told of after a loss.", counts.seeded),
        ("tollgate_credit_granted_total", "Tokens that the store has granted as credit.", counts.granted),
        ("tollgate_credit_returned_total", "Tokens of credit that were given back.", counts.given),
        ("tollgate_advance_paid_total", "Tokens that were spent in advance, and paid.", counts.paid),
    ] {
        page.one(Kind::Counter, name, help, count);
    }
    let name = "tollgate_answers_total";
    page.family(Kind::Counter, name, "Answers of lanes that machines share, by lane and where they came from.");
    for (lane, from) in checks.lanes.iter().flat_map(|lane| Source::ALL.map(|from| (lane, from))) {
        page.sample(name, &[("lane", &lane.name), ("from", from.name())], lane.answers(from));
    }
    for (name, help, tokens) in [
        ("tollgate_credit_tokens", "Tokens of credit that this machine has not spent.", (|out: &Out| out.credit) as Of),
        ("tollgate_advance_tokens", "Tokens that this machine has spent in advance, and not paid.", |out| out.advance),
    ] {
        page.family(Kind::Gauge, name, help);
        for lane in &checks.lanes {
            let out = status.out.get(&lane.lane).copied().unwrap_or_default();
            page.sample(name, &[("lane", &lane.name)], tokens(&out));
        }
    }
    let name = "tollgate_bound_tokens";
    page.family(Kind::Gauge, name, "What all machines may admit in a window in addition to the limit, by lane.");
    for lane in &checks.lanes {
        page.sample(name, &[("lane", &lane.name)], lane.bound_tokens);
    }
}

fn server(app: &App, page: &mut Page) {
    let name = "tollgate_connections";
    page.family(Kind::Gauge, name, "Open connections of HTTP clients, by the kind of listener.");
    for (listener, count) in app.meter().connections() {
        page.sample(name, &[("listener", listener)], count);
    }
    let (failed, succeeded) = app.meter().reloads();
    let name = "tollgate_config_reloads_total";
    page.family(Kind::Counter, name, "Reloads of the policy.");
    page.sample(name, &[("result", "success")], succeeded);
    page.sample(name, &[("result", "failure")], failed);
    let uses = app.keys().tokens().uses();
    if !uses.is_empty() {
        let name = "tollgate_token_uses_total";
        page.family(Kind::Counter, name, "Requests with a named token, by its name and which of its secrets it was.");
        for (token, secret, count) in uses {
            page.sample(name, &[("token", &token), ("secret", &secret.to_string())], count);
        }
    }
    if app.tls().is_some() {
        let (failed, succeeded) = app.meter().certificates();
        let name = "tollgate_certificate_reloads_total";
        page.family(Kind::Counter, name, "Reloads of the TLS certificate.");
        page.sample(name, &[("result", "success")], succeeded);
        page.sample(name, &[("result", "failure")], failed);
    }
    let name = "tollgate_save_failures_total";
    page.family(Kind::Counter, name, "Files that could not be written.");
    for (file, count) in app.meter().failed_saves() {
        page.sample(name, &[("what", file)], count);
    }
    let name = "tollgate_config_last_success_timestamp_seconds";
    page.one(Kind::Gauge, name, "When the policy in force was read.", app.meter().policy_since());
    let name = "tollgate_webhook_events_total";
    page.family(Kind::Counter, name, "Events of sustained abuse, by result.");
    for (result, count) in app.webhook_counts() {
        page.sample(name, &[("result", result)], count);
    }
    let help = "Log lines that were lost: they came too fast, or could not be written.";
    page.one(Kind::Counter, "tollgate_log_lines_dropped_total", help, crate::log::dropped());
    if let Some(log) = app.access_log() {
        let help = "Lines of the access log that were lost: they came too fast, or could not be written.";
        page.one(Kind::Counter, "tollgate_access_lines_dropped_total", help, log.dropped());
    }
    page.family(Kind::Gauge, "tollgate_build_info", "Always 1; the labels identify the build.");
    let revision = option_env!("TOLLGATE_REVISION").unwrap_or("unknown");
    page.sample("tollgate_build_info", &[("version", env!("CARGO_PKG_VERSION")), ("revision", revision)], 1);
}

/// Clients of Redis.
fn resp(app: &App, page: &mut Page) {
    if app.settings().resp.is_none() {
        return;
    }
    let counts = app.meter().resp();
    let ((accepted, refused), (commands, errors)) = (counts.accepted_and_refused(), counts.commands());
    page.one(Kind::Gauge, "tollgate_resp_clients", "Clients of Redis that are connected.", counts.clients());
    let name = "tollgate_resp_connections_total";
    page.family(Kind::Counter, name, "Connections of clients of Redis, by what became of them.");
    for (result, count) in [("accepted", accepted), ("refused", refused)] {
        page.sample(name, &[("result", result)], count);
    }
    let name = "tollgate_resp_commands_total";
    page.family(Kind::Counter, name, "Commands of clients of Redis.");
    for (command, count) in commands {
        page.sample(name, &[("command", command)], count);
    }
    let help = "Commands of clients of Redis that were answered with an error.";
    page.one(Kind::Counter, "tollgate_resp_errors_total", help, errors);
}

/// The standard metrics of a process.
fn process(app: &App, page: &mut Page) {
    page.one(Kind::Gauge, "process_start_time_seconds", "When the process started.", app.meter().started());
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse::<u64>().ok()
        };
        if let Some(kilobytes) = kilobytes("VmRSS:") {
            page.one(Kind::Gauge, "process_resident_memory_bytes", "Memory in use.", kilobytes * 1024);
        }
        if let Some(kilobytes) = kilobytes("VmSize:") {
            page.one(Kind::Gauge, "process_virtual_memory_bytes", "Address space in use.", kilobytes * 1024);
        }
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        page.one(Kind::Gauge, "process_open_fds", "Open files and connections.", files.count());
    }
    if let Some(seconds) = cpu_seconds() {
        page.one(Kind::Counter, "process_cpu_seconds_total", "CPU time, user and system.", seconds);
    }
}

fn cpu_seconds() -> Option<f64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}
