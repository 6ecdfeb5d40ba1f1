//! What all requests share.

use crate::auth::Keys;
use crate::control::Control;
use crate::error::StartError;
use crate::leases::Leases;
use crate::meter::{Kept, Meter};
use crate::page::feed::Feed;
use crate::problem::{Cause, reason_of};
use crate::settings::Settings;
use crate::source::Source;
use crate::webhook::Webhook;
use http::StatusCode;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use tollgate::observe::{LogLine, LogThrottle, ShownId};
use tollgate::{Clock, Limiter};

/// A limiter and everything that is needed to serve it.
pub struct App {
    limiter: Arc<Limiter>,
    settings: Settings,
    keys: Keys,
    made_up_token: Option<String>,
    control: Control,
    leases: Leases,
    meter: Arc<Meter>,
    webhook: OnceLock<Webhook>,
    log: LogThrottle,
    /// Held while the status document is written: the last one, at the end, waits for the one before.
    status_turn: Mutex<()>,
    feed: Arc<Feed>,
    is_draining: AtomicBool,
}

impl App {
    /// Builds the limiter and takes up what the state directory keeps.
    ///
    /// `clock` is for tests; `None` is the machine's.
    ///
    /// # Errors
    ///
    /// What is wrong with the policy, the settings or the state.
    pub fn new(settings: Settings, source: Source, clock: Option<Clock>) -> Result<Self, StartError> {
        let (keys, made_up_token) = Keys::new(&settings)?;
        if let Some(directory) = &settings.audit_directory {
            std::fs::create_dir_all(directory).map_err(|error| {
                StartError::new(format!("cannot make the audit directory {}: {error}", directory.display()))
            })?;
        }
        let meter = Arc::new(Meter::new());
        let (control, limiter) = Control::start(source, &settings, clock, Arc::clone(&meter))?;
        let (webhook, log, is_draining) = (OnceLock::new(), LogThrottle::new(), AtomicBool::new(false));
        let status_turn = Mutex::default();
        let feed = Feed::new(Arc::clone(&limiter));
        let leases = Leases::new(Arc::clone(&limiter), settings.leases, settings.leases_per_agent);
        Ok(Self {
            limiter,
            keys,
            made_up_token,
            control,
            leases,
            meter,
            webhook,
            log,
            status_turn,
            feed,
            settings,
            is_draining,
        })
    }

    /// The limiter.
    #[must_use]
    pub fn limiter(&self) -> &Arc<Limiter> {
        &self.limiter
    }

    /// How it runs.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The admin token, if it was made up.
    #[must_use]
    pub fn made_up_token(&self) -> Option<&str> {
        self.made_up_token.as_deref()
    }

    /// What an operator changes at run time.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Slots that are held over HTTP.
    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Starts what runs beside the requests. Needs a runtime.
    pub(crate) fn start(self: &Arc<Self>) {
        tokio::spawn(do_what_is_due(Arc::downgrade(self)));
        tokio::spawn(sweep_for_ever(Arc::downgrade(self), self.settings.sweep_every));
        if self.settings.audit_directory.is_some() {
            tokio::spawn(write_status_for_ever(Arc::downgrade(self)));
        }
        if self.settings.state.is_some() {
            tokio::spawn(save_budgets_for_ever(Arc::downgrade(self)));
        }
        if let Some(url) = &self.settings.webhook {
            self.webhook.get_or_init(|| Webhook::start(url.clone(), self.settings.webhook_pause));
        }
        self.feed.start();
    }

    /// Logs a denial, unless there was a line about the agent a short while ago.
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

    /// Counts an answer, and logs the first of each kind that is not as it should be.
    pub(crate) fn count_answer(&self, response: &axum::response::Response, peer: SocketAddr) {
        let status = response.status();
        match response.extensions().get::<Cause>() {
            Some(Cause { reason, detail }) => self.count_problem(status, reason, detail, peer),
            // A verdict: nothing is wrong with the request.
            None if status == StatusCode::TOO_MANY_REQUESTS => _ = self.meter.answered(status, "denied"),
            None => _ = self.meter.answered(status, reason_of(status)),
        }
    }

    /// The same of an answer that is not ours to see.
    pub(crate) fn count_problem(&self, status: StatusCode, reason: &'static str, detail: &str, peer: SocketAddr) {
        if self.meter.answered(status, reason) {
            let status = status.as_u16();
            tracing::warn!(status, reason, %peer, detail, "a request was refused; further ones like it are only counted");
        }
    }

    /// Writes the status document into the directory of the audit log, if there is one.
    pub(crate) fn write_status(&self) {
        let Some(directory) = &self.settings.audit_directory else { return };
        let _turn = self.status_turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.limiter.write_report(directory.join(tollgate::observe::REPORT_FILE)) {
            self.meter.save_failed(Kept::Status);
            tracing::warn!(%error, "the status document was not written");
        }
    }

    /// Tells the webhook of sustained abuse, if there is one.
    pub(crate) fn tell_abuse(&self, agent: &[u8], lane: &str) {
        let (violations, within) = self.limiter.policy().conduct().abuse_threshold();
        if let Some(webhook) = self.webhook.get() {
            webhook.abuse(agent, lane, violations, within);
        }
    }

    pub(crate) fn webhook_counts(&self) -> [(&'static str, u64); 3] {
        self.webhook.get().map_or([("delivered", 0), ("failed", 0), ("dropped", 0)], Webhook::counts)
    }

    /// What open pages are told.
    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Says from now on that it is not ready; every answer is the last on its connection.
    pub(crate) fn drain(&self) {
        self.is_draining.store(true, Relaxed);
    }

    /// Gives back slots whose lease has run out, closes reservations that have
    /// expired, and then gives up records of idle agents: in this order, since
    /// an agent that holds a slot is not idle.
    fn sweep(&self) {
        drop(self.leases.turn(self.limiter.now()));
        self.meter.swept(self.limiter.sweep(IDLE));
    }

    /// Lets open pages go.
    pub(crate) fn end(&self) {
        self.feed.end();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// The wall clock, for moments that are told. No limit depends on it.
    pub(crate) fn wall_clock(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// How often is looked for what is due.
const DUE_EVERY: Duration = Duration::from_secs(1);

/// Logs what was held back and releases slots whose lease has run out, until the server is gone.
async fn do_what_is_due(app: Weak<App>) {
    let mut interval = tokio::time::interval(DUE_EVERY);
    loop {
        interval.tick().await;
        let Some(app) = app.upgrade() else { return };
        let now = app.limiter.now();
        app.log.due(now).iter().for_each(log);
        drop(app.leases.turn(now));
    }
}

/// How long a record is left alone after its lanes are full again.
const IDLE: Duration = Duration::from_secs(600);

/// Sweeps, until the server is gone.
async fn sweep_for_ever(app: Weak<App>, every: Duration) {
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    interval.tick().await;
    loop {
        interval.tick().await;
        let Some(app) = app.upgrade() else { return };
        // It walks all records.
        _ = tokio::task::spawn_blocking(move || app.sweep()).await;
    }
}

/// How often the status document is written.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// Writes the status document, until the server is gone.
async fn write_status_for_ever(app: Weak<App>) {
    let mut interval = tokio::time::interval(STATUS_EVERY);
    loop {
        interval.tick().await;
        let Some(app) = app.upgrade() else { return };
        // It waits for the disk.
        _ = tokio::task::spawn_blocking(move || app.write_status()).await;
    }
}

/// How often used budgets are saved: what a killed server loses of them.
const BUDGETS_EVERY: Duration = Duration::from_secs(5);

/// Saves used budgets, until the server is gone.
async fn save_budgets_for_ever(app: Weak<App>) {
    let mut interval = tokio::time::interval(BUDGETS_EVERY);
    loop {
        interval.tick().await;
        let Some(app) = app.upgrade() else { return };
        _ = tokio::task::spawn_blocking(move || app.control.save_budgets()).await;
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

    /// A sweep left slots to the timer of leases: an agent that had vanished
    /// with a slot was not idle, and kept its record for another round.
    #[test]
    fn a_sweep_gives_back_leases_and_reservations_that_have_run_out() {
        let policy = Policy::builder().lane("ws", Limit::held(1)).lane("llm", "10/min").build().unwrap();
        let clock = ManualClock::new();
        let app = App::new(Settings::default(), Source::Policy(Box::new(policy)), Some(clock.clone().into())).unwrap();
        let [ws, llm] = ["ws", "llm"].map(|name| app.limiter.lane(name).unwrap());
        let ttl = Duration::from_secs(30);
        assert!(app.limiter.acquire(tollgate::Request::new("gone", ws)).unwrap().is_allowed());
        app.leases.turn(clock.now()).grant(b"gone", ws, 1, ttl).unwrap();
        assert!(app.limiter.reserve(tollgate::Request::new("gone too", llm).cost(5), ttl).unwrap().id().is_some());
        app.sweep();
        assert_eq!((app.limiter.stats().agents, app.meter.sweeps()), (2, (1, 0)), "neither has run out");
        clock.advance(IDLE + Duration::from_secs(60));
        app.sweep();
        let stats = app.limiter.stats();
        assert_eq!((stats.agents, stats.reservations, stats.reservations_expired), (0, 0, 1));
        assert_eq!(app.meter.sweeps(), (2, 2));
        // Looked at without `counts`, which gives back too.
        assert_eq!(app.leases.run_out(), 1);
    }
}
