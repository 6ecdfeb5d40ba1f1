//! Over a real socket: axum and hyper serve, and hyper is the client.

mod common;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{any, post};
use bytes::Bytes;
use common::{AGENT, Client, app, by_address, by_header, limiter, serve};
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_tower::{Key, Peer, Profile, TollgateLayer};
use tower::{Layer, service_fn};

/// The size of the body that clients announce.
const LARGE: usize = 10_000_000;

#[tokio::test]
async fn an_agent_gets_its_burst_then_a_refusal_then_what_refills() {
    let (layer, clock) = by_header(&[("http/heavy", "10/min burst 2")]);
    let mut client = Client::connect(serve(app(layer)).await).await;
    for left in ["1", "0"] {
        let answer = client.get("/", &[(AGENT, "agent-7")]).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "hello"));
        assert_eq!(answer.header("ratelimit-policy"), Some(r#""http/heavy";q=2;w=12"#));
        assert_eq!(answer.header("ratelimit"), Some(format!(r#""http/heavy";r={left};t=6"#).as_str()));
        assert_eq!(answer.header("retry-after"), None);
    }
    clock.advance(Duration::from_nanos(1));
    let refused = client.get("/run?fast", &[(AGENT, "agent-7")]).await;
    assert_eq!(refused.status.as_u16(), 429);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.header("ratelimit"), Some(r#""http/heavy";r=0;t=6"#));
    assert_eq!(refused.header("retry-after"), Some("6"));
    assert_eq!(refused.header("content-length"), Some(refused.body.len().to_string().as_str()));
    let problem: serde_json::Value = serde_json::from_slice(&refused.body).expect("JSON");
    assert_eq!((&problem["agent_id"], &problem["instance"]), (&"agent-7".into(), &"/run".into()));
    assert_eq!(problem["retry_after_ms"], 6_000);

    // Another agent is not affected, on the same connection.
    assert_eq!(client.get("/", &[(AGENT, "agent-8")]).await.status.as_u16(), 200);
    // An agent that waits as long as announced is admitted.
    clock.advance(Duration::from_secs(6));
    assert_eq!(client.get("/", &[(AGENT, "agent-7")]).await.status.as_u16(), 200);
}

/// Sends a head that announces a large body, and some bytes of it, and reads the status line that comes back.
async fn announce(address: SocketAddr, agent: &str, extra: &str, sent: usize) -> String {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    let head = format!(
        "POST /upload HTTP/1.1\r\nhost: localhost\r\n{AGENT}: {agent}\r\ncontent-length: {LARGE}\r\n{extra}\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("a head that is sent");
    stream.write_all(&vec![b'a'; sent]).await.expect("a beginning that is sent");
    let mut status = [0; "HTTP/1.1 429".len()];
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_exact(&mut status)).await;
    read.expect("an answer before the body is sent").expect("a connection that is open");
    String::from_utf8(status.to_vec()).expect("a text")
}

fn uploads(layer: tollgate_tower::TollgateLayerBuilder) -> Router {
    let upload = |body: Bytes| async move { body.len().to_string() };
    Router::new()
        .route("/upload", post(upload))
        .layer(DefaultBodyLimit::disable())
        .layer(layer.build().expect("a valid layer"))
}

#[tokio::test]
async fn a_refusal_comes_before_the_body_is_read() {
    let (layer, _) = by_header(&[("api", "1/min")]);
    let address = serve(uploads(layer)).await;
    // A client that expects 100 gets it if admitted, and 429 if refused.
    let expect = "expect: 100-continue\r\n";
    assert_eq!(announce(address, "agent-7", expect, 0).await, "HTTP/1.1 100");
    assert_eq!(announce(address, "agent-7", expect, 0).await, "HTTP/1.1 429");
    // A client that does not is refused before it has sent the whole body.
    for sent in [0, 1_000] {
        assert_eq!(announce(address, "agent-7", "", sent).await, "HTTP/1.1 429");
    }
}

#[tokio::test]
async fn an_admitted_body_arrives_whole() {
    let (layer, _) = by_header(&[("api", "1/min")]);
    let mut client = Client::connect(serve(uploads(layer)).await).await;
    let answer = client.send("POST", "/upload", &[(AGENT, "agent-7")], vec![b'a'; LARGE].into()).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "10000000"));
}

#[tokio::test]
async fn a_head_request_is_limited_and_answered_without_a_body() {
    let (layer, _) = by_header(&[("api", "1/min")]);
    let mut client = Client::connect(serve(app(layer)).await).await;
    for status in [200, 429] {
        let answer = client.send("HEAD", "/", &[(AGENT, "agent-7")], Bytes::new()).await;
        assert_eq!((answer.status.as_u16(), answer.body.len()), (status, 0));
        assert_eq!(answer.header("ratelimit"), Some(r#""api";r=0;t=60"#));
    }
}

#[tokio::test]
async fn an_address_is_that_of_the_socket() {
    let layer = by_address(&[("api", "1/min")]).profile(Profile::Citizen);
    let address = serve(app(layer)).await;
    let mut client = Client::connect(address).await;
    assert_eq!(client.get("/", &[]).await.status.as_u16(), 200);
    // Neither a new connection nor a claim to be another client helps.
    let mut other = Client::connect(address).await;
    let answer = other.get("/", &[("x-forwarded-for", "192.0.2.7")]).await;
    assert_eq!(answer.status.as_u16(), 429);
    assert!(answer.text().ends_with(r#""agent_id":"ip:127.0.0.1"}"#), "{}", answer.text());
}

#[tokio::test]
async fn behind_a_trusted_proxy_clients_are_limited_separately() {
    let layer = by_address(&[("api", "1/min")]).trusted_proxies(["127.0.0.0/8"]);
    let mut proxy = Client::connect(serve(app(layer)).await).await;
    for (forwarded, status) in [
        ("192.0.2.7", 200),
        ("192.0.2.7", 429),
        ("192.0.2.8", 200),
        // Made up by 192.0.2.8, to look like a new client.
        ("203.0.113.1, 192.0.2.8", 429),
        ("2001:db8::1", 200),
        // The same /64.
        ("2001:db8::2", 429),
        ("2001:db8:0:1::2", 200),
    ] {
        let answer = proxy.get("/", &[("x-forwarded-for", forwarded)]).await;
        assert_eq!(answer.status.as_u16(), status, "{forwarded}");
    }
}

#[tokio::test]
async fn an_app_served_without_addresses_answers_how_to_serve_it() {
    let app = app(by_address(&[("api", "1/min")]));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    let answer = Client::connect(address).await.get("/", &[]).await;
    assert_eq!(answer.status.as_u16(), 500);
    assert!(answer.text().contains("into_make_service_with_connect_info::<SocketAddr>()"), "{}", answer.text());
}

#[tokio::test]
async fn hyper_alone_is_limited_too() {
    let (limiter, _) = limiter(&[("api", "1/min")]);
    let layer = TollgateLayer::builder(limiter).key(Key::address()).peer::<Peer>().build().expect("valid");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        // Ends with the test's runtime.
        while let Ok((stream, peer)) = listener.accept().await {
            let hello = |_: Request<hyper::body::Incoming>| async {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
            };
            let limited = layer.layer(service_fn(hello));
            let with_peer =
                tower::util::MapRequest::new(limited, move |mut request: Request<hyper::body::Incoming>| {
                    request.extensions_mut().insert(Peer(peer));
                    request
                });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), TowerToHyperService::new(with_peer)));
        }
    });
    let mut client = Client::connect(address).await;
    for (status, text) in [(200, "hello"), (429, r#"{"type":"#)] {
        let answer = client.get("/", &[]).await;
        assert_eq!(answer.status.as_u16(), status);
        assert!(answer.text().starts_with(text), "{}", answer.text());
    }
}

#[tokio::test]
async fn a_connection_stays_usable_after_a_refusal() {
    let (layer, clock) = by_header(&[("api", "1/min")]);
    let app = Router::new().fallback(any(|body: Bytes| async move { body })).layer(layer.build().expect("valid"));
    let mut client = Client::connect(serve(app).await).await;
    for (status, text) in [(200, "first"), (429, "second"), (200, "third")] {
        let answer = client.send("POST", "/", &[(AGENT, "agent-7")], Bytes::from(text)).await;
        assert_eq!(answer.status.as_u16(), status, "{text}");
        assert_eq!(answer.text() == text, status == 200);
        if status == 429 {
            clock.advance(Duration::from_secs(60));
        }
    }
}
