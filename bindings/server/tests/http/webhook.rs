//! Sustained abuse is posted to a receiver that fails first.

use crate::certificates::Authority;
use crate::common::{TestServer, header};
use crate::directory::Directory;
use crate::tools;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Answers one request, and returns its body.
async fn receive(listener: &TcpListener, answer: &str) -> Value {
    let (stream, _) = listener.accept().await.expect("a delivery");
    receive_on(stream, answer).await.1
}

/// Answers the request of a connection, and returns its head and its body.
async fn receive_on(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) -> (String, Value) {
    let mut text = Vec::new();
    loop {
        let mut more = [0; 1024];
        let count = stream.read(&mut more).await.expect("a request");
        text.extend_from_slice(&more[..count]);
        let request = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = request.split_once("\r\n\r\n")
            && let Ok(event) = serde_json::from_str(body)
        {
            assert!(head.starts_with("POST /abuse HTTP/1.1\r\n") && head.contains("application/json"), "{head}");
            stream.write_all(answer.as_bytes()).await.expect("an open connection");
            return (head.to_owned(), event);
        }
        assert_ne!(count, 0, "{request}");
    }
}

async fn delivered(server: &TestServer) -> (String, String) {
    let metrics = server.send("GET", "/metrics", &[], "").await;
    let text = String::from_utf8(metrics.body.to_vec()).expect("a text");
    let of = |result: &str| {
        let start = format!("tollgate_webhook_events_total{{result=\"{result}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or("none").to_owned()
    };
    (of("delivered"), of("failed"))
}

#[tokio::test]
async fn ten_violations_are_one_event_and_it_is_sent_until_it_is_accepted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/abuse", listener.local_addr().expect("an address"));
    let policy = super::common::counting().lane("http/heavy", "1/min").build().expect("a policy");
    let server = TestServer::with(policy, |settings| {
        settings.webhook = Some(url.parse().expect("a URL"));
        settings.webhook_pause = Duration::from_millis(1);
    })
    .await;
    let check = json!({"agent": "agent-7", "lane": "http/heavy"}).to_string();
    for _ in 0..30 {
        server.check(&check).await;
    }
    let refused = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let first = receive(&listener, refused).await;
    let second = receive(&listener, "").await;
    let third = receive(&listener, "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await;
    assert_eq!((&first, &second), (&third, &third));
    let members = ["event", "agent", "lane", "violations", "within_seconds"].map(|name| first[name].clone());
    assert_eq!(json!(members), json!(["sustained_abuse", "agent-7", "http/heavy", 10, 300]));
    while delivered(&server).await.0 == "0" {
        tokio::task::yield_now().await;
    }
    assert_eq!(delivered(&server).await, ("1".into(), "0".into()));
    // One event, not thirty: the next one is about another agent.
    let other = check.replace("agent-7", "agent-8");
    for _ in 0..11 {
        assert!(header(&server.check(&other).await, "content-type").is_some());
    }
    let next = receive(&listener, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    assert_eq!(next["agent"], "agent-8");
}

#[tokio::test]
async fn a_receiver_that_cannot_be_reached_is_given_up_and_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}/abuse", listener.local_addr().expect("an address"));
    drop(listener);
    let policy = super::common::counting().lane("api", "1/min").build().expect("a policy");
    let server = TestServer::with(policy, |settings| {
        settings.webhook = Some(url.parse().expect("a URL"));
        settings.webhook_pause = Duration::from_millis(1);
    })
    .await;
    for _ in 0..11 {
        server.check(r#"{"agent": "a"}"#).await;
    }
    while delivered(&server).await.1 == "0" {
        tokio::task::yield_now().await;
    }
    assert_eq!(delivered(&server).await, ("0".into(), "1".into()));
}

fn value<'h>(head: &'h str, name: &str) -> &'h str {
    let line = head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name}: {head}"))
}

/// A receiver whose certificate another authority has signed gets nothing. Ours checks the signature with openssl.
#[tokio::test]
async fn an_https_receiver_is_checked_and_gets_a_signature() {
    const SECRET: &str = "a-secret-of-both-0123456789";
    if !tools::has("openssl", "openssl") {
        return;
    }
    let directory = Directory::new("webhook-tls");
    let (authority, other) = (Authority::new("ca"), Authority::new("other"));
    let ca = authority.file(&directory);
    let acceptor = |authority: &Authority| {
        let (certificate, key) = authority.sign(&directory, "receiver");
        let certificate = CertificateDer::from_pem_file(certificate).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(key).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
        TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).expect("a pair")))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("https://localhost:{}/abuse", listener.local_addr().expect("an address").port());
    let policy = super::common::counting().lane("api", "1/min").build().expect("a policy");
    let server = TestServer::with(policy, |settings| {
        settings.webhook = Some(url.parse().expect("a URL"));
        settings.webhook_ca = Some(ca.into());
        settings.webhook_secret = Some(SECRET.to_owned());
        settings.webhook_pause = Duration::from_millis(1);
    })
    .await;
    for _ in 0..11 {
        server.check(r#"{"agent": "agent-7"}"#).await;
    }
    let (stranger, _) = listener.accept().await.expect("a delivery");
    assert!(acceptor(&other).accept(stranger).await.is_err(), "the certificate was refused");
    let ours = acceptor(&authority);
    let mut ids = Vec::new();
    for answer in ["HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"] {
        let stream = ours.accept(listener.accept().await.expect("a delivery").0).await.expect("a handshake");
        let (head, event) = receive_on(stream, answer).await;
        assert_eq!(event["agent"], "agent-7");
        let (id, at) = (value(&head, "webhook-id"), value(&head, "webhook-timestamp"));
        let signed = directory.file("signed", &format!("{id}.{at}.{event}"));
        let mut openssl = Command::new("openssl");
        openssl.args(["dgst", "-sha256", "-hmac", SECRET, "-binary", "-out"]);
        openssl.arg(directory.path().join("tag")).arg(signed);
        assert!(openssl.status().expect("openssl runs").success());
        let base64 = Command::new("openssl").args(["base64", "-in"]).arg(directory.path().join("tag")).output();
        let base64 = String::from_utf8(base64.expect("openssl runs").stdout).expect("a text");
        assert_eq!(value(&head, "webhook-signature"), format!("v1,{}", base64.trim()));
        ids.push(id.to_owned());
    }
    assert!(ids[0] == ids[1] && ids[0].len() > 20, "{ids:?}");
}
