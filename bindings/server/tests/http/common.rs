//! A server on its own port, with a manual clock.

use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate::{ConductRules, Limiter, ManualClock, Policy, PolicyBuilder};
use tollgate_server::client::{Answer, Client};
use tollgate_server::{App, Server, Settings, Source};

pub(crate) const ADMIN: &str = "admin-token-0123456789";
pub(crate) const CHECK: &str = "check-token-0123456789";

/// Rules like the hub's: every denial counts, and waits grow.
pub(crate) fn counting() -> PolicyBuilder {
    let curve = [1, 2, 5, 10, 30].map(Duration::from_secs);
    Policy::builder().conduct(ConductRules::default().with_curve(curve).with_every_denial(true))
}

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    /// Where Envoy asks.
    pub(crate) envoy: Option<String>,
    pub(crate) app: Arc<App>,
    pub(crate) clock: ManualClock,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl TestServer {
    /// Serves these lanes.
    pub(crate) async fn lanes(lanes: &[(&str, &str)]) -> Self {
        let policy = lanes.iter().fold(counting(), |policy, (name, limit)| policy.lane(*name, *limit));
        Self::with(policy.build().expect("valid lanes"), |_| {}).await
    }

    /// Serves a policy with other settings.
    pub(crate) async fn with(policy: Policy, change: impl FnOnce(&mut Settings)) -> Self {
        Self::from(Source::Policy(Box::new(policy)), change).await
    }

    /// Serves a policy from any source.
    pub(crate) async fn from(source: Source, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::default();
        settings.listen = "127.0.0.1:0".parse().expect("an address");
        settings.admin_token = Some(ADMIN.to_owned());
        settings.agents = 10_000;
        (settings.notice, settings.drain) = (Duration::ZERO, Duration::ZERO);
        change(&mut settings);
        let clock = ManualClock::new();
        let app = App::new(settings, source, Some(clock.clone().into())).expect("an app");
        Self::serve(app, clock).await
    }

    /// Serves an app that was built with this clock.
    pub(crate) async fn serve(app: App, clock: ManualClock) -> Self {
        let app = Arc::new(app);
        let server = Server::bind(Arc::clone(&app)).await.expect("a free port");
        let address = server.address();
        let envoy = server.envoy_address().map(ToString::to_string);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.run(async {
            // A dropped sender stops it too.
            _ = stopped.await;
        }));
        Self { address, envoy, app, clock, stop: Some(stop), task: Some(task) }
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        self.app.limiter()
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await.expect("a connection")
    }

    /// One request over its own connection.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.client().await.send(method, path, headers, body.to_owned()).await.expect("an answer")
    }

    pub(crate) async fn check(&self, body: &str) -> Answer {
        self.send("POST", "/v1/check", &[], body).await
    }

    /// Makes it stop.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until it has stopped.
    pub(crate) async fn stopped(&mut self) {
        self.task.take().expect("once").await.expect("no panic");
    }
}

/// A body as JSON.
pub(crate) fn json(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

pub(crate) fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.get(name).map(|value| value.to_str().expect("a text"))
}

/// Asserts that an answer is a problem with this status, field and text in its detail.
pub(crate) fn assert_problem(answer: &Answer, status: u16, field: Option<&str>, text: &str) {
    assert_eq!(answer.status.as_u16(), status, "{answer:?}");
    assert_eq!(header(answer, "content-type"), Some("application/problem+json"), "{answer:?}");
    let problem = json(answer);
    assert_eq!(problem["status"], status, "{problem}");
    assert_eq!(problem.get("field").and_then(Value::as_str), field, "{problem}");
    assert!(problem["detail"].as_str().expect("a detail").contains(text), "{problem}");
}
