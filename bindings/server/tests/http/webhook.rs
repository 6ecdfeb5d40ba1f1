//! Sustained abuse is posted to a receiver that fails first.

use crate::common::{TestServer, header};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Answers one request, and returns its body.
async fn receive(listener: &TcpListener, answer: &str) -> Value {
    let (mut stream, _) = listener.accept().await.expect("a delivery");
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
            return event;
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
