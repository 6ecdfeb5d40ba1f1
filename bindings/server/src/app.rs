//! The app: everything that requests share.

use crate::access::AccessLog;
use crate::audit::Audit;
use crate::auth::Keys;
use crate::control::{Control, ReloadOutcome};
use crate::envoy::Envoy;
use crate::error::StartError;
use crate::leases::Leases;
use crate::machines::Machines;
use crate::meter::{Meter, SavedFile};
use crate::net::stages::Stages;
use crate::net::tls::Tls;
use crate::page::feed::Feed;
use crate::problem::{Cause, Refused, reason_of};
use crate::routes::gate::GateRules;
use crate::settings::Settings;
use crate::source::Source;
use crate::webhook::{Receiver, Webhook};
use http::StatusCode;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use tollgate::observe::{LogLine, LogThrottle, ShownId};
use tollgate::{Clock, Limiter};

/// A limiter and everything needed to serve it.
pub struct App {
    limiter: Arc<Limiter>,
    /// The engine, if machines share lanes.
    machines: Option<Machines>,
    settings: Settings,
    keys: Keys,
    generated_token: Option<String>,
    control: Control,
    gate: GateRules,
    leases: Leases,
    meter: Arc<Meter>,
    webhook: OnceLock<Webhook>,
    /// Until it is started.
    receiver: Mutex<Option<Receiver>>,
    access_log: Option<AccessLog>,
    audit: Audit,
    log: LogThrottle,
    /// Locked while the report is written, so that the last one, at shutdown, waits for the one before.
    report_lock: Mutex<()>,
    feed: Arc<Feed>,
    stages: Stages,
    tls: Option<Arc<Tls>>,
    wall_clock: fn() -> SystemTime,
}

impl App {
    /// Builds the limiter and loads the state directory.
    ///
    /// `clock` is for tests; `None` uses the machine's.
    ///
    /// # Errors
    ///
    /// What is wrong with the policy, the settings or the state.
    pub fn new(settings: Settings, source: Source, clock: Option<Clock>) -> Result<Self, StartError> {
        let (mut keys, generated_token) = Keys::new(&settings)?;
        if let Some(directory) = &settings.audit_directory {
            std::fs::create_dir_all(directory).map_err(|error| {
                StartError::new(format!("cannot create the audit directory {}: {error}", directory.display()))
            })?;
        }
        let receiver = Mutex::new(Receiver::new(&settings)?);
        let access_log = settings.access_log.as_deref().map(AccessLog::start).transpose()?;
        let audit = Audit::start(settings.audit_log.as_deref())?;
        let tls = settings.tls.as_ref().map(Tls::load).transpose()?.map(Arc::new);
        let meter = Arc::new(Meter::new());
        let (control, limiter) = Control::start(source, &settings, clock, Arc::clone(&meter))?;
        limiter.sharing().into_iter().for_each(|sharing| keys.share(sharing.secret));
        let machines = settings.cluster.as_ref().map(|cluster| Machines::start(cluster, &limiter)).transpose()?;
        let gate = GateRules::new(&limiter, &settings, SystemTime::now)?;
        let (webhook, log) = (OnceLock::new(), LogThrottle::new());
        let report_lock = Mutex::default();
        let feed = Feed::new(Arc::clone(&limiter));
        let leases = Leases::new(Arc::clone(&limiter), settings.leases, settings.leases_per_agent);
        Ok(Self {
            limiter,
            machines,
            keys,
            generated_token,
            control,
            gate,
            leases,
            meter,
            webhook,
            receiver,
            access_log,
            audit,
            log,
            report_lock,
            feed,
            settings,
            stages: Stages::new(),
            tls,
            wall_clock: SystemTime::now,
        })
    }

    /// Shows clients the time of another wall clock; by default it is the system's. For tests: no limit depends on it.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn with_wall_clock(mut self, wall_clock: fn() -> SystemTime) -> Result<Self, StartError> {
        self.gate = GateRules::new(&self.limiter, &self.settings, wall_clock)?;
        Ok(Self { wall_clock, ..self })
    }

    /// The limiter.
    #[must_use]
    pub fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    /// The engine, if machines share lanes.
    pub(crate) const fn machines(&self) -> Option<&Machines> {
        self.machines.as_ref()
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The admin token, if it was generated.
    #[must_use]
    pub fn generated_token(&self) -> Option<&str> {
        self.generated_token.as_deref()
    }

    /// Envoy's rate limit service, if it is served.
    pub(crate) fn envoy(&self) -> Option<&Arc<Envoy>> {
        self.control.envoy()
    }

    /// Changes at run time.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// How gateways' questions are answered.
    pub(crate) const fn gate(&self) -> &GateRules {
        &self.gate
    }

    /// The slots that are held over HTTP.
    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    pub(crate) fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Starts the background tasks. Needs a runtime.
    pub(crate) fn start(self: &Arc<Self>) {
        tokio::spawn(run_timers(Arc::downgrade(self)));
        let sweep_every = self.settings.sweep_every;
        tokio::spawn(repeat(Arc::downgrade(self), sweep_every, sweep_every, Self::sweep));
        if self.settings.audit_directory.is_some() {
            tokio::spawn(repeat(Arc::downgrade(self), Duration::ZERO, REPORT_EVERY, Self::write_report));
        }
        if self.tls.is_some() {
            tokio::spawn(repeat(Arc::downgrade(self), TLS_EVERY, TLS_EVERY, Self::reload_certificate));
        }
        if self.settings.state.is_some() {
            tokio::spawn(repeat(Arc::downgrade(self), Duration::ZERO, BUDGETS_EVERY, |app| app.control.save_budgets()));
        }
        if self.settings.state.is_some() && self.settings.slab.is_some() {
            let take_over = |app: &Self| app.control.take_over_files();
            tokio::spawn(repeat(Arc::downgrade(self), TAKE_OVER_EVERY, TAKE_OVER_EVERY, take_over));
        }
        if let Some(receiver) = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.webhook.get_or_init(|| Webhook::start(receiver));
        }
        self.feed.start();
    }

    /// Logs a denial, unless a line about the agent was logged shortly before.
    pub(crate) fn log_denial(&self, agent: &[u8], lane: &str, limit: impl FnOnce() -> String, wait_ms: Option<u64>) {
        match self.log.denied(agent, self.limiter.now()) {
            Some(line @ LogLine::Hit { .. }) => {
                let (agent, limit) = (ShownId::new(agent), limit());
                tracing::info!(kind = line.level(), %agent, lane, limit, wait_ms, "{line}");
            }
            Some(line) => log(&line),
            None => {}
        }
    }

    /// Counts a response, and logs the first of each kind of problem.
    pub(crate) fn count_response(&self, response: &axum::response::Response, peer: SocketAddr) {
        let status = response.status();
        match response.extensions().get::<Cause>() {
            Some(Cause { reason, detail }) => self.count_problem(status, reason, detail, peer),
            // A verdict: the request was valid.
            None if status == StatusCode::TOO_MANY_REQUESTS || response.extensions().get::<Refused>().is_some() => {
                _ = self.meter.count_response(status, "denied")
            }
            None => _ = self.meter.count_response(status, reason_of(status)),
        }
    }

    /// Counts a response that the HTTP library sends.
    pub(crate) fn count_problem(&self, status: StatusCode, reason: &'static str, detail: &str, peer: SocketAddr) {
        if self.meter.count_response(status, reason) {
            let status = status.as_u16();
            tracing::warn!(status, reason, %peer, detail, "a request was refused; others like it are only counted");
        }
    }

    /// Writes the report into the audit directory, if there is one.
    pub(crate) fn write_report(&self) {
        let Some(directory) = &self.settings.audit_directory else { return };
        let _lock = self.report_lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.limiter.write_report(directory.join(tollgate::observe::REPORT_FILE)) {
            self.meter.count_failed_save(SavedFile::Report);
            tracing::warn!(%error, "the report was not written");
        }
    }

    /// Notifies the webhook of sustained abuse, if there is one.
    pub(crate) fn notify_abuse(&self, agent: &[u8], lane: &str) {
        let (violations, within) = self.limiter.policy().conduct().abuse_threshold();
        if let Some(webhook) = self.webhook.get() {
            webhook.notify(agent, lane, violations, within);
        }
    }

    /// Who changed what.
    pub(crate) const fn audit(&self) -> &Audit {
        &self.audit
    }

    pub(crate) const fn access_log(&self) -> Option<&AccessLog> {
        self.access_log.as_ref()
    }

    pub(crate) fn webhook_counts(&self) -> [(&'static str, u64); 3] {
        self.webhook.get().map_or([("delivered", 0), ("failed", 0), ("dropped", 0)], Webhook::counts)
    }

    /// What open pages receive.
    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The certificate in force, if clients on ports speak TLS.
    pub(crate) const fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// Reads the certificate again if it has changed.
    fn reload_certificate(&self) {
        if let Some(is_reloaded) = self.tls.as_ref().and_then(|tls| tls.reload_if_changed()) {
            self.meter.count_certificate(is_reloaded);
        }
    }

    /// Reads the policy, the named tokens and the certificate again, and logs the outcome.
    ///
    /// # Errors
    ///
    /// Those of [`Control::reload`].
    pub fn reload(&self) -> Result<ReloadOutcome, StartError> {
        if let Some(is_reloaded) = self.tls.as_ref().and_then(|tls| tls.reload()) {
            self.meter.count_certificate(is_reloaded);
        }
        let outcome = self.control.reload_and_log()?;
        // Those of a server without a file come from its settings alone.
        if self.control.has_file() {
            self.keys.replace_tokens(&outcome.tokens).inspect_err(|error| {
                tracing::error!(%error, "the policy is in force, but the tokens were not read again");
            })?;
        }
        Ok(outcome)
    }

    /// The stages of a shutdown.
    pub(crate) fn stages(&self) -> &Stages {
        &self.stages
    }

    /// Releases slots whose lease has expired, closes expired reservations, and then
    /// gives up the records of idle agents: in this order, because an agent that
    /// holds a slot is not idle.
    fn sweep(&self) {
        drop(self.leases.lock(self.limiter.now()));
        self.meter.count_sweep(self.limiter.sweep(IDLE));
    }

    /// Closes the connections of open pages.
    pub(crate) fn end(&self) {
        self.feed.end();
    }

    /// The wall clock, for times shown to clients. No limit depends on it.
    pub(crate) fn wall_clock(&self) -> SystemTime {
        (self.wall_clock)()
    }
}

/// How often `run_timers` runs.
const TIMERS_EVERY: Duration = Duration::from_secs(1);

/// Logs suppressed lines and releases slots whose lease has expired, until the app is gone.
async fn run_timers(app: Weak<App>) {
    let mut interval = tokio::time::interval(TIMERS_EVERY);
    loop {
        interval.tick().await;
        let Some(app) = app.upgrade() else { return };
        let now = app.limiter.now();
        app.log.due(now).iter().for_each(log);
        drop(app.leases.lock(now));
    }
}

/// How long a record is kept after its lanes are full again.
const IDLE: Duration = Duration::from_secs(600);

/// How often the report is written.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// How often used budgets are saved: a killed server loses at most this much of them.
const BUDGETS_EVERY: Duration = Duration::from_secs(5);

/// How often the files of the certificate are looked at.
const TLS_EVERY: Duration = Duration::from_secs(2);

/// How often a server tries to take over the files of one that has ended.
const TAKE_OVER_EVERY: Duration = Duration::from_secs(2);

/// Does some work for the first time after `delay` and then every `period`, until the app is gone. The work may
/// block: it walks all records, or waits for the disk.
async fn repeat(app: Weak<App>, delay: Duration, period: Duration, work: fn(&App)) {
    let mut interval = tokio::time::interval_at(tokio::time::Instant::now() + delay, period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        interval.tick().await;
        let Some(app) = app.upgrade() else { return };
        _ = tokio::task::spawn_blocking(move || work(&app)).await;
    }
}

fn log(line: &LogLine) {
    match line {
        LogLine::Throttled { agent: Some(agent), suppressed } => {
            tracing::info!(kind = line.level(), agent = %ShownId::new(agent), suppressed, "{line}");
        }
        _ => tracing::info!(kind = line.level(), "{line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate::{Limit, ManualClock, Policy};

    /// A sweep used to leave slots to the timer of leases: an agent that had vanished
    /// with a slot was not idle, and kept its record until the next sweep.
    #[test]
    fn a_sweep_releases_expired_leases_and_reservations() {
        let policy = Policy::builder().lane("ws", Limit::held(1)).lane("llm", "10/min").build().unwrap();
        let clock = ManualClock::new();
        let app = App::new(Settings::default(), Source::Policy(Box::new(policy)), Some(clock.clone().into())).unwrap();
        let [ws, llm] = ["ws", "llm"].map(|name| app.limiter.lane(name).unwrap());
        let ttl = Duration::from_secs(30);
        assert!(app.limiter.hold_until_released(tollgate::Request::new("gone", ws)).unwrap().is_allowed());
        app.leases.lock(clock.now()).grant(b"gone", ws, 1, ttl).unwrap();
        assert!(app.limiter.reserve(tollgate::Request::new("gone too", llm).cost(5), ttl).unwrap().id().is_some());
        app.sweep();
        assert_eq!((app.limiter.stats().agents, app.meter.sweeps()), (2, (1, 0)), "neither has expired");
        clock.advance(IDLE + Duration::from_secs(60));
        app.sweep();
        let stats = app.limiter.stats();
        assert_eq!((stats.agents, stats.reservations, stats.reservations_expired), (0, 0, 1));
        assert_eq!(app.meter.sweeps(), (2, 2));
        // Not `counts`, which would release them itself.
        assert_eq!(app.leases.expired(), 1);
    }
}
