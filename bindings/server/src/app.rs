//! What all requests share.

use crate::auth::Keys;
use crate::control::Control;
use crate::error::StartError;
use crate::meter::Meter;
use crate::page::feed::Feed;
use crate::settings::Settings;
use crate::source::Source;
use crate::webhook::Webhook;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;
use tollgate::{Clock, Limiter};

/// A limiter and everything that is needed to serve it.
pub struct App {
    limiter: Arc<Limiter>,
    settings: Settings,
    keys: Keys,
    made_up_token: Option<String>,
    control: Control,
    meter: Arc<Meter>,
    webhook: OnceLock<Webhook>,
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
        let meter = Arc::new(Meter::new());
        let (control, limiter) = Control::start(source, &settings, clock, Arc::clone(&meter))?;
        let (webhook, is_draining) = (OnceLock::new(), AtomicBool::new(false));
        let feed = Feed::new(Arc::clone(&limiter));
        Ok(Self { limiter, keys, made_up_token, control, meter, webhook, feed, settings, is_draining })
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

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Starts what runs beside the requests. Needs a runtime.
    pub(crate) fn start(&self) {
        if let Some(url) = &self.settings.webhook {
            self.webhook.get_or_init(|| Webhook::start(url.clone(), self.settings.webhook_pause));
        }
        self.feed.start();
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

    /// Says from now on that it is not ready, and lets open pages go.
    pub(crate) fn drain(&self) {
        self.feed.end();
        self.is_draining.store(true, Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Relaxed)
    }

    /// The wall clock, for moments that are told. No limit depends on it.
    pub(crate) fn wall_clock(&self) -> SystemTime {
        SystemTime::now()
    }
}
