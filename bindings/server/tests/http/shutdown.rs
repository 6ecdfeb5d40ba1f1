//! Shutdown: requests in flight are finished, and no new connections are accepted.

use crate::common::{TestServer, header};
use crate::directory::Directory;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

async fn server(grace: u64) -> TestServer {
    let policy = super::common::counting().lane("api", "10/min").build().expect("a policy");
    TestServer::with(policy, |settings| settings.grace = Duration::from_secs(grace)).await
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    _ = stream.read_to_string(&mut text).await;
    text
}

/// Waits until connections are refused.
async fn closed(server: &TestServer) {
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_request_in_flight_is_finished() {
    let mut server = server(60).await;
    let mut idle = TcpStream::connect(server.address).await.expect("a connection");
    let mut busy = TcpStream::connect(server.address).await.expect("a connection");
    let head = b"POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\nexpect: 100-continue\r\ncontent-length: 14\r\n\r\n";
    busy.write_all(head).await.expect("open");
    let mut interim = [0; 25];
    busy.read_exact(&mut interim).await.expect("the server is reading the body");
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    server.stop();
    closed(&server).await;
    assert_eq!(rest(&mut idle).await, "", "a connection without a request is closed at once");
    busy.write_all(br#"{"agent": "a"}"#).await.expect("open");
    // A whole response, then the end, which it announces if its thread has noticed the stop by then.
    let answer = rest(&mut busy).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with('}'), "{answer}");
    server.stopped().await;
}

/// Kept-alive connections used to be closed with unread requests in them: 64 of 64
/// clients saw the end and no response.
#[tokio::test]
async fn a_request_that_was_sent_before_the_stop_is_answered() {
    let mut server = server(60).await;
    let request = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n";
    let mut kept = Vec::new();
    for _ in 0..64 {
        let mut stream = TcpStream::connect(server.address).await.expect("a connection");
        stream.write_all(request).await.expect("open");
        let mut answer = [0; 15];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200 OK");
        kept.push(stream);
    }
    for stream in &mut kept {
        stream.write_all(request).await.expect("open");
    }
    // So are connections that have not been accepted yet.
    for _ in 0..64 {
        let mut stream = TcpStream::connect(server.address).await.expect("a connection");
        stream.write_all(request).await.expect("open");
        kept.push(stream);
    }
    server.stop();
    for (number, stream) in kept.iter_mut().enumerate() {
        let answers = rest(stream).await;
        assert_eq!(answers.matches("200 OK").count(), 1, "{number}: {answers}");
        assert!(answers.ends_with("ok\n"), "{number}: {answers}");
    }
    server.stopped().await;
}

#[tokio::test]
async fn readyz_answers_503_during_shutdown() {
    let mut server = server(60).await;
    let mut late = TcpStream::connect(server.address).await.expect("a connection");
    late.write_all(b"GET /readyz HTTP/1.1\r\nhost: 127.0.0.1\r\n").await.expect("open");
    // A later connection was served, so the one before has been accepted.
    assert_eq!(server.send("GET", "/readyz", &[], "").await.status, 200);
    tokio::time::sleep(Duration::from_millis(50)).await;
    server.stop();
    closed(&server).await;
    late.write_all(b"\r\n").await.expect("open");
    assert!(rest(&mut late).await.starts_with("HTTP/1.1 503 "));
    server.stopped().await;
}

/// Load balancers learn of the shutdown before clients do.
#[tokio::test]
async fn while_it_drains_everything_is_served_and_each_response_is_the_last() {
    let policy = super::common::counting().lane("api", "10/min").build().expect("a policy");
    let mut server = TestServer::with(policy, |settings| settings.drain = Duration::from_secs(600)).await;
    let mut kept = server.client().await;
    assert_eq!(kept.send("GET", "/readyz", &[], "").await.expect("an answer").status, 200);
    server.stop();
    // New connections are accepted all the time.
    while server.send("GET", "/readyz", &[], "").await.status != 503 {
        tokio::task::yield_now().await;
    }
    // A drain of zero would be over by then.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let check = r#"{"agent": "a"}"#;
    let answer = kept.send("POST", "/v1/check", &[], check).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), header(&answer, "connection")), (200, Some("close")));
    let answer = server.check(check).await;
    assert_eq!((answer.status.as_u16(), header(&answer, "connection")), (200, Some("close")));
}

/// A load balancer needs a probe or two to notice. Until then it would send the clients of a
/// closed connection here again.
#[tokio::test]
async fn before_it_drains_readyz_answers_503_and_connections_are_kept() {
    let policy = super::common::counting().lane("api", "10/min").build().expect("a policy");
    let mut server = TestServer::with(policy, |settings| settings.notice = Duration::from_secs(600)).await;
    let mut kept = server.client().await;
    assert_eq!(kept.send("GET", "/readyz", &[], "").await.expect("an answer").status, 200);
    server.stop();
    while kept.send("GET", "/readyz", &[], "").await.expect("the same connection").status != 503 {
        tokio::task::yield_now().await;
    }
    let answer = kept.send("POST", "/v1/check", &[], r#"{"agent": "a"}"#).await.expect("the same connection");
    assert_eq!((answer.status.as_u16(), header(&answer, "connection")), (200, None));
    assert_eq!(server.check(r#"{"agent": "a"}"#).await.status, 200, "new connections are accepted");
}

#[tokio::test]
async fn a_request_that_never_ends_is_cut_off_after_the_grace_period() {
    let mut server = server(1).await;
    let mut slow = TcpStream::connect(server.address).await.expect("a connection");
    slow.write_all(b"POST /v1/check HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 14\r\n\r\n").await.expect("open");
    assert_eq!(server.send("GET", "/readyz", &[], "").await.status, 200);
    server.stop();
    server.stopped().await;
    assert_eq!(rest(&mut slow).await, "");
}

#[tokio::test]
async fn the_report_is_in_the_audit_directory() {
    let directory = Directory::new("audit");
    let policy = super::common::counting().lane("api", "10/min").build().expect("a policy");
    let audit = directory.path().join("audit");
    let mut server = TestServer::with(policy, |settings| settings.audit_directory = Some(audit.clone())).await;
    for _ in 0..13 {
        server.check(r#"{"agent": "agent-7"}"#).await;
    }
    server.stop();
    server.stopped().await;
    let text = std::fs::read_to_string(audit.join("monitor_status.json")).expect("a file");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let offenders = document["top_offenders"].as_array().expect("a list");
    assert!(offenders.len() == 1 && offenders[0].to_string().contains("agent-7"), "{document}");
}
