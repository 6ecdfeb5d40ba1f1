//! `/metrics`, for Prometheus: text 0.0.4, or OpenMetrics 1.0 for those who accept it.
//!
//! No agent's id is in it, except of those that `metrics_agents` in the settings
//! names: labels are bounded by the policy.

use crate::app::App;
use crate::leases::Counts;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderValue, header};
use std::fmt::{Display, Write as _};
use std::sync::Arc;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let is_open = accepted
        .flat_map(|accept| accept.split(','))
        .any(|kind| kind.trim().starts_with("application/openmetrics-text"));
    let mut response = exposition(&app, is_open).into_response();
    let kind = HeaderValue::from_static(if is_open { OPEN_METRICS } else { TEXT });
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
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
    /// Starts a family. Of a counter OpenMetrics names the family without `_total`.
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
        // A `String` takes whatever is written.
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

    /// A family of one number.
    fn one(&mut self, kind: Kind, name: &str, help: &str, value: impl Display) {
        self.family(kind, name, help);
        self.sample(name, &[], value);
    }
}

/// A label's value: the format has three characters to escape.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn exposition(app: &App, is_open: bool) -> String {
    let mut page = Page { text: String::with_capacity(8 * 1024), is_open };
    decisions(app, &mut page);
    records(app, &mut page);
    server(app, &mut page);
    process(app, &mut page);
    if is_open {
        page.text.push_str("# EOF\n");
    }
    page.text
}

fn decisions(app: &App, page: &mut Page) {
    let snapshot = app.limiter().snapshot();
    let name = "tollgate_decisions_total";
    page.family(Kind::Counter, name, "Checks that were answered, by lane and outcome.");
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
    page.family(Kind::Counter, name, "Tokens that were charged, by lane.");
    for lane in &snapshot.lanes {
        page.sample(name, &[("policy", &lane.name)], app.meter().cost(lane.lane));
    }
    let name = "tollgate_errors_total";
    page.family(
        Kind::Counter,
        name,
        "Requests that were refused as bad ones, and checks for which no record was free.",
    );
    let answers = app.meter().answers();
    let bad = answers.iter().filter(|((status, reason), _)| (400..500).contains(status) && *reason != "denied");
    page.sample(name, &[("reason", "request")], bad.map(|(_, count)| count).sum::<u64>());
    page.sample(name, &[("reason", "full")], snapshot.full);
    let name = "tollgate_responses_total";
    page.family(Kind::Counter, name, "Answers to HTTP requests, by status and reason.");
    for ((status, reason), count) in answers {
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
        page.family(Kind::Gauge, name, "Tokens left, of the agents that the settings name.");
        for agent in pinned {
            let view = app.limiter().agent(agent).ok();
            let lanes = view.iter().flat_map(|view| &view.lanes).filter(|lane| !lane.status.is_exempt());
            for lane in lanes {
                page.sample(name, &[("user_id", agent), ("endpoint", &lane.name)], lane.status.remaining());
            }
        }
    }
    let durations = app.meter().durations();
    let name = "tollgate_check_duration_seconds";
    page.family(Kind::Histogram, name, "How long checks took, from a whole body to a whole answer.");
    for (bound, count) in durations.buckets {
        page.sample(&format!("{name}_bucket"), &[("le", &bound.to_string())], count);
    }
    page.sample(&format!("{name}_bucket"), &[("le", "+Inf")], durations.count);
    page.sample(&format!("{name}_sum"), &[], durations.seconds);
    page.sample(&format!("{name}_count"), &[], durations.count);
}

fn records(app: &App, page: &mut Page) {
    let snapshot = app.limiter().snapshot();
    page.one(Kind::Gauge, "tollgate_keys", "Agents that hold a record.", snapshot.stats.agents);
    page.one(Kind::Gauge, "tollgate_keys_limit", "Records in all.", snapshot.stats.records);
    let name = "tollgate_evictions_total";
    page.family(Kind::Counter, name, "Records given to other agents: idle ones without loss, or in debt.");
    page.sample(name, &[("reason", "idle")], snapshot.stats.idle_evictions);
    page.sample(name, &[("reason", "lossy")], snapshot.stats.lossy_evictions);
    let (sweeps, swept) = app.meter().sweeps();
    page.one(Kind::Counter, "tollgate_sweeps_total", "Sweeps for records of idle agents.", sweeps);
    page.one(Kind::Counter, "tollgate_swept_records_total", "Records of idle agents that sweeps gave up.", swept);
    let name = "tollgate_agents_assigned";
    page.family(Kind::Gauge, name, "Agents about which something was decided.");
    page.sample(name, &[("what", "any")], snapshot.assigned);
    page.sample(name, &[("what", "overrides")], snapshot.overridden);
    page.sample(name, &[("what", "exempt")], snapshot.exempt);
    let stats = snapshot.stats;
    page.one(Kind::Gauge, "tollgate_reservations", "Reservations that are open.", stats.reservations);
    let help = "Reservations that may be open at once.";
    page.one(Kind::Gauge, "tollgate_reservations_limit", help, app.settings().reservations);
    let help = "Reservations that expired unsettled: their estimates stay charged.";
    page.one(Kind::Counter, "tollgate_reservations_expired_total", help, stats.reservations_expired);
    let help = "Reservations that were refused: the agent had too many open, or all agents together.";
    page.one(Kind::Counter, "tollgate_reservations_refused_total", help, stats.reservations_refused);
    let Counts { leases, max, run_out, refused } = app.leases().counts();
    page.one(Kind::Gauge, "tollgate_leases", "Slots that are leased.", leases);
    page.one(Kind::Gauge, "tollgate_leases_limit", "Slots that may be leased at once.", max);
    let help = "Leases that ran out, so that their slots were released.";
    page.one(Kind::Counter, "tollgate_leases_run_out_total", help, run_out);
    let help = "Leases that were refused: the agent had too many, or all agents together.";
    page.one(Kind::Counter, "tollgate_leases_refused_total", help, refused);
    let help = "Checks whose action the policy does not name.";
    page.one(Kind::Counter, "tollgate_unknown_actions_total", help, snapshot.unknown_actions);
    let help = "How often a clock that was trusted was given up.";
    page.one(Kind::Counter, "tollgate_clock_fallbacks_total", help, snapshot.clock_fallbacks);
}

fn server(app: &App, page: &mut Page) {
    let (failed, done) = app.meter().reloads();
    let name = "tollgate_config_reloads_total";
    page.family(Kind::Counter, name, "How often the policy was read again.");
    page.sample(name, &[("result", "success")], done);
    page.sample(name, &[("result", "failure")], failed);
    let name = "tollgate_save_failures_total";
    page.family(Kind::Counter, name, "How often something could not be written to the disk.");
    for (kept, count) in app.meter().saves_failed() {
        page.sample(name, &[("what", kept)], count);
    }
    let name = "tollgate_config_last_success_timestamp_seconds";
    page.one(Kind::Gauge, name, "When the policy in force was read.", app.meter().policy_since());
    let name = "tollgate_webhook_events_total";
    page.family(Kind::Counter, name, "Events of sustained abuse, by what became of them.");
    for (result, count) in app.webhook_counts() {
        page.sample(name, &[("result", result)], count);
    }
    let help = "Log lines that were lost: they came too fast, or could not be written.";
    page.one(Kind::Counter, "tollgate_log_lines_dropped_total", help, crate::log::dropped());
    page.family(Kind::Gauge, "tollgate_build_info", "Always 1; its labels say what runs.");
    let revision = option_env!("TOLLGATE_REVISION").unwrap_or("unknown");
    page.sample("tollgate_build_info", &[("version", env!("CARGO_PKG_VERSION")), ("revision", revision)], 1);
}

/// What every process tells under these names.
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
