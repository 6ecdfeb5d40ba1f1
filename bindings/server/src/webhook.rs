//! Posts sustained abuse to another service, over HTTPS or HTTP.
//!
//! With a secret each delivery is signed as Standard Webhooks says, whose libraries check
//! it in most languages: the id of the event, which stays the same when it is sent again,
//! the time at which it is sent, and an HMAC-SHA256 over both and the body.
//!
//! Events wait in a bounded queue, so a check never waits for the receiver. An
//! event that does not fit is dropped and counted. A delivery that fails is
//! retried with growing pauses, and finally given up.

use crate::client::{Client, ClientError};
use crate::error::StartError;
use crate::settings::Settings;
use crate::{id, random};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use ring::hmac;
use serde_json::{Value, json};
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring as provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How many events can be queued.
const QUEUE: usize = 256;

/// How often an event is sent before it is given up.
const TRIES: u32 = 6;

/// How long a receiver may take to answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where events go: an address of the form `https://host:port/path`, or `http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    is_https: bool,
    host: String,
    port: u16,
    path: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "write https://host:port/path, or http://host:port/path";
        let uri: Uri = text.parse().map_err(|_| format!("{text:?} is not a URL; {wanted}"))?;
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let is_https = match uri.scheme_str() {
            Some("https") => Some(true),
            Some("http") => Some(false),
            _ => None,
        };
        let (Some(is_https), Some(authority)) = (is_https, authority) else {
            return Err(format!("{text:?} cannot be used; {wanted}"));
        };
        Ok(Self {
            is_https,
            host: authority.host().to_owned(),
            port: authority.port_u16().unwrap_or(if is_https { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}

/// What is needed to deliver events.
pub(crate) struct Receiver {
    url: Url,
    /// Of HTTPS.
    tls: Option<Arc<ClientConfig>>,
    key: Option<hmac::Key>,
    /// The wait before the second try; it doubles from one to the next.
    pause: Duration,
}

impl Receiver {
    /// Takes the receiver from the settings, if they have one.
    ///
    /// # Errors
    ///
    /// If the file of roots, or the system's, cannot be used.
    pub(crate) fn new(settings: &Settings) -> Result<Option<Self>, StartError> {
        let Some(url) = settings.webhook.clone() else { return Ok(None) };
        let tls = if url.is_https { Some(client_config(settings.webhook_ca.as_deref())?) } else { None };
        let key = settings.webhook_secret.as_ref().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, &key_of(secret)));
        Ok(Some(Self { url, tls, key, pause: settings.webhook_pause }))
    }

    /// The headers of a delivery.
    fn headers(&self, id: &str, at: u64, body: &str) -> Vec<(&'static str, String)> {
        let mut headers = vec![("content-type", "application/json".to_owned()), ("connection", "close".to_owned())];
        headers.push(("webhook-id", id.to_owned()));
        headers.push(("webhook-timestamp", at.to_string()));
        if let Some(key) = &self.key {
            let tag = hmac::sign(key, format!("{id}.{at}.{body}").as_bytes());
            headers.push(("webhook-signature", format!("v1,{}", STANDARD.encode(tag))));
        }
        headers
    }
}

/// A secret is a text; or bytes, in the form that the libraries of Standard Webhooks generate.
fn key_of(secret: &str) -> Vec<u8> {
    let bytes = secret.strip_prefix("whsec_").and_then(|encoded| STANDARD.decode(encoded).ok());
    bytes.unwrap_or_else(|| secret.as_bytes().to_owned())
}

/// Trusts the certificates in a file, or those that the system trusts.
fn client_config(roots_file: Option<&Path>) -> Result<Arc<ClientConfig>, StartError> {
    let mut roots = RootCertStore::empty();
    match roots_file {
        Some(path) => {
            for certificate in crate::net::tls::certificates(path).map_err(StartError::new)? {
                let wrong = |error| StartError::new(format!("{}: {error}", path.display()));
                roots.add(certificate).map_err(wrong)?;
            }
        }
        None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    if roots.is_empty() {
        let problem = "the system trusts no certificates; name a file with webhook_ca in [server]";
        return Err(StartError::new(problem));
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(provider::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| StartError::new(error.to_string()))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
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
    /// Starts the task that delivers.
    pub(crate) fn start(receiver: Receiver) -> Self {
        let (queue, events) = mpsc::channel(QUEUE);
        let counts = Arc::new(Counts::default());
        tokio::spawn(deliver_all(receiver, events, Arc::clone(&counts)));
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

async fn deliver_all(receiver: Receiver, mut events: mpsc::Receiver<Value>, counts: Arc<Counts>) {
    // Ends with the server, which owns the sending end of the queue.
    while let Some(event) = events.recv().await {
        let count = if deliver(&receiver, &event.to_string()).await { &counts.delivered } else { &counts.failed };
        count.fetch_add(1, Relaxed);
    }
}

/// Whether the event was finally accepted.
async fn deliver(receiver: &Receiver, event: &str) -> bool {
    // Without random bytes the receiver only cannot recognise an event that it gets twice.
    let id = format!("msg_{}", random::hex::<16>().unwrap_or_default());
    let mut pause = receiver.pause;
    for attempt in 1..=TRIES {
        let answer = tokio::time::timeout(TIMEOUT, send(receiver, &id, event)).await;
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

async fn send(receiver: &Receiver, id: &str, event: &str) -> Result<http::StatusCode, ClientError> {
    let url = &receiver.url;
    let name = url.host.trim_matches(['[', ']']);
    let (stream, host) = (TcpStream::connect((name, url.port)).await?, format!("{}:{}", url.host, url.port));
    let mut client = match &receiver.tls {
        None => Client::over(stream, host).await?,
        Some(config) => {
            let name = ServerName::try_from(name.to_owned())?;
            let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await?;
            Client::over(stream, host).await?
        }
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let headers = receiver.headers(id, now.as_secs(), event);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Ok(client.send("POST", &url.path, &headers, event.to_owned()).await?.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme_and_a_host() {
        let url: Url = "http://localhost:9000/a?b=c".parse().unwrap();
        assert_eq!(
            (url.is_https, url.host.as_str(), url.port, url.path.as_str()),
            (false, "localhost", 9000, "/a?b=c")
        );
        let url: Url = "https://[::1]".parse().unwrap();
        assert_eq!(url, Url { is_https: true, host: "[::1]".into(), port: 443, path: "/".into() });
        for text in ["ftp://a/", "a:80", "/a", "", "http://user:secret@a/", "http://"] {
            assert!(text.parse::<Url>().unwrap_err().contains("https://host:port/path"), "{text}");
        }
    }

    /// The example of Standard Webhooks' own libraries.
    #[test]
    fn a_delivery_is_signed_as_standard_webhooks_says() {
        let mut settings = Settings { webhook: Some("http://a".parse().unwrap()), ..Settings::default() };
        settings.webhook_secret = Some("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned());
        let receiver = Receiver::new(&settings).unwrap().unwrap();
        let headers = receiver.headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, "{\"test\": 2432232314}");
        let signature = headers.iter().find(|(name, _)| *name == "webhook-signature").map(|(_, value)| value.as_str());
        assert_eq!(signature, Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
        assert_eq!(key_of("a text of one's own"), b"a text of one's own");
    }
}
