//! Posts sustained abuse to another service.
//!
//! Events wait in a bounded queue, so a check never waits for the receiver. An
//! event that does not fit is dropped and counted. A delivery that fails is
//! retried with growing pauses, and finally given up.

use crate::client::{Client, ClientError};
use crate::id;
use http::Uri;
use serde_json::{Value, json};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// How many events can be queued.
const QUEUE: usize = 256;

/// How often an event is sent before it is given up.
const TRIES: u32 = 6;

/// How long a receiver may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where events go: an address of the form `http://host:port/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    host: String,
    port: u16,
    path: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "write http://host:port/path; for https, use a proxy on this machine";
        let uri: Uri = text.parse().map_err(|_| format!("{text:?} is not a URL; {wanted}"))?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        match (uri.scheme_str(), authority) {
            (Some("http"), Some(authority)) => Ok(Self {
                host: authority.host().to_owned(),
                port: authority.port_u16().unwrap_or(80),
                path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            }),
            _ => Err(format!("{text:?} cannot be used; {wanted}")),
        }
    }
}

/// The outcomes of events.
#[derive(Default)]
struct Counts {
    delivered: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

/// The sending end of the queue of events.
pub(crate) struct Webhook {
    queue: mpsc::Sender<Value>,
    counts: Arc<Counts>,
}

impl Webhook {
    /// Starts the task that delivers; `pause` is the wait before the second try, and
    /// doubles from one to the next.
    pub(crate) fn start(url: Url, pause: Duration) -> Self {
        let (queue, events) = mpsc::channel(QUEUE);
        let counts = Arc::new(Counts::default());
        tokio::spawn(deliver_all(url, pause, events, Arc::clone(&counts)));
        Self { queue, counts }
    }

    /// Queues an event of sustained abuse.
    pub(crate) fn notify(&self, agent: &[u8], lane: &str, violations: u32, within: Duration) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let event = json!({
            "event": "sustained_abuse",
            "agent": id::to_json(agent),
            "lane": lane,
            "violations": violations,
            "within_seconds": within.as_secs(),
            "at": now.as_secs(),
        });
        if self.queue.try_send(event).is_err() {
            self.counts.dropped.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> [(&'static str, u64); 3] {
        let Counts { delivered, failed, dropped } = &*self.counts;
        [("delivered", delivered), ("failed", failed), ("dropped", dropped)]
            .map(|(name, count)| (name, count.load(Relaxed)))
    }
}

async fn deliver_all(url: Url, pause: Duration, mut events: mpsc::Receiver<Value>, counts: Arc<Counts>) {
    // Ends with the server, which owns the sending end of the queue.
    while let Some(event) = events.recv().await {
        let count = if deliver(&url, pause, &event.to_string()).await { &counts.delivered } else { &counts.failed };
        count.fetch_add(1, Relaxed);
    }
}

/// Whether the event was finally accepted.
async fn deliver(url: &Url, mut pause: Duration, event: &str) -> bool {
    for attempt in 1..=TRIES {
        let answer = tokio::time::timeout(TIMEOUT, send(url, event)).await;
        let problem = match answer {
            Ok(Ok(status)) if status.is_success() => return true,
            Ok(Ok(status)) => format!("it answers {status}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
        };
        tracing::warn!(attempt, of = TRIES, problem, "the webhook did not accept an event");
        if attempt < TRIES {
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
    }
    false
}

async fn send(url: &Url, event: &str) -> Result<http::StatusCode, ClientError> {
    let stream = TcpStream::connect((url.host.trim_matches(['[', ']']), url.port)).await?;
    let mut client = Client::over(stream, format!("{}:{}", url.host, url.port)).await?;
    let headers = [("content-type", "application/json"), ("connection", "close")];
    Ok(client.send("POST", &url.path, &headers, event.to_owned()).await?.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_urls_are_accepted() {
        let url: Url = "http://localhost:9000/a?b=c".parse().unwrap();
        assert_eq!((url.host.as_str(), url.port, url.path.as_str()), ("localhost", 9000, "/a?b=c"));
        assert_eq!("http://[::1]".parse::<Url>().unwrap(), Url { host: "[::1]".into(), port: 80, path: "/".into() });
        for text in ["https://a/", "a:80", "/a", "", "http://user:secret@a/", "http://"] {
            assert!(text.parse::<Url>().unwrap_err().contains("http://host:port/path"), "{text}");
        }
    }
}
