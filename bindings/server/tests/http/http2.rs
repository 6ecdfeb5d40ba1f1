//! HTTP/2 without TLS: several requests at once, bounds, and the end by GOAWAY.

use crate::common::{TestServer, counting};
use crate::curl::fetch;
use crate::tools;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tollgate_server::Settings;

const CHECK: &str = r#"{"agent": "a"}"#;

async fn server(change: impl FnOnce(&mut Settings)) -> TestServer {
    TestServer::with(counting().lane("api", "100000/s").build().expect("a policy"), change).await
}

type Sender = SendRequest<Full<Bytes>>;

/// A connection; its task ends with it.
async fn connect(server: &TestServer) -> (Sender, JoinHandle<Result<(), hyper::Error>>) {
    let stream = TcpStream::connect(server.address).await.expect("a connection");
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    (sender, tokio::spawn(connection))
}

fn request(server: &TestServer, path: &str, body: &str) -> Request<Full<Bytes>> {
    let method = if body.is_empty() { "GET" } else { "POST" };
    let uri = format!("http://{}{path}", server.address);
    Request::builder().method(method).uri(uri).body(Full::new(body.to_owned().into())).expect("a request")
}

async fn text(response: Response<Incoming>) -> (StatusCode, String) {
    let status = response.status();
    let body = response.into_body().collect().await.expect("a whole body").to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn curl_begins_with_http2() {
    if !tools::has("curl", "curl") {
        return;
    }
    let server = server(|_| {}).await;
    let url = format!("http://{}/v1/check", server.address);
    let (status, version, body) = fetch(&["--http2-prior-knowledge", "-d", CHECK, &url]).await;
    assert_eq!((&*status, &*version), ("200", "2"), "{body}");
}

#[tokio::test]
async fn a_connection_has_many_requests_at_once() {
    let server = server(|_| {}).await;
    let (sender, _connection) = connect(&server).await;
    let calls = (0..300).map(|_| {
        let (mut sender, request) = (sender.clone(), request(&server, "/v1/check", CHECK));
        tokio::spawn(async move { text(sender.send_request(request).await.expect("an answer")).await })
    });
    for call in calls.collect::<Vec<_>>() {
        let (status, body) = call.await.expect("no panic");
        assert!(status == 200 && body.contains("\"allowed\":true"), "{status} {body}");
    }
    let allowed = server.limiter().snapshot().lanes[0].allowed;
    assert_eq!(allowed, 300);
}

/// The body of one is never sent, and the others do not wait for it.
#[tokio::test]
async fn a_slow_body_delays_no_other_request_of_its_connection() {
    let server = server(|settings| settings.body_timeout = Duration::from_secs(1)).await;
    let stream = TcpStream::connect(server.address).await.expect("a connection");
    let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    let (_open, never) = http_body_util::channel::Channel::<Bytes>::new(1);
    let uri = format!("http://{}/v1/check", server.address);
    let body = http_body_util::Either::Left(never);
    let slow = sender.send_request(Request::post(&uri).body(body).expect("a request"));
    for _ in 0..50 {
        let body = http_body_util::Either::Right(Full::new(Bytes::from_static(CHECK.as_bytes())));
        let quick = sender.clone().send_request(Request::post(&uri).body(body).expect("a request")).await;
        assert_eq!(quick.expect("an answer").status(), 200);
    }
    let (status, body) = text(slow.await.expect("an answer")).await;
    assert!(status == 408 && body.contains("did not arrive within 1 s"), "{status} {body}");
}

/// The stream used to be cancelled together with the response.
#[tokio::test]
async fn an_early_response_is_not_lost_while_the_body_is_sent() {
    let server = server(|_| {}).await;
    let body = " ".repeat(16 << 20);
    for (path, expected) in [("/v1/check", 413), ("/nowhere", 404), ("/api/admin/rate-limits/allowlist", 401)] {
        let (mut sender, _connection) = connect(&server).await;
        let (status, text) = text(sender.send_request(request(&server, path, &body)).await.expect(path)).await;
        assert!(status.as_u16() == expected && text.ends_with('}'), "{path}: {status} {text}");
        assert_eq!(sender.send_request(request(&server, "/healthz", "")).await.expect(path).status(), 200);
    }
}

/// A body that the test sends piece by piece.
struct Pieces(mpsc::Receiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Such a stream used to be reset at once, and curl took that for a failure now and then.
#[tokio::test]
async fn the_rest_of_a_body_that_nobody_reads_may_follow_the_response() {
    let server = server(|_| {}).await;
    let stream = TcpStream::connect(server.address).await.expect("a connection");
    let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    let _connection = tokio::spawn(connection);
    let request =
        |body| Request::post(format!("http://{}/logout", server.address)).body(Pieces(body)).expect("a request");
    let (pieces, body) = mpsc::channel(1);
    assert_eq!(sender.send_request(request(body)).await.expect("an answer").status(), 200);
    // By the answer to another request a reset would have arrived.
    let (_, empty) = mpsc::channel(1);
    assert_eq!(sender.send_request(request(empty)).await.expect("an answer").status(), 200);
    assert!(pieces.send(Bytes::from_static(b"{}")).await.is_ok(), "the stream was reset");
}

#[tokio::test]
async fn the_host_is_checked_as_in_http1() {
    let server = server(|_| {}).await;
    let (mut sender, _connection) = connect(&server).await;
    let foreign = Request::get("http://evil.example/healthz").body(Full::default()).expect("a request");
    assert_eq!(sender.send_request(foreign).await.expect("an answer").status(), 421);
    let two = Request::get(format!("http://{}/healthz", server.address)).header("host", "127.0.0.2");
    let two = two.body(Full::default()).expect("a request");
    let (status, body) = text(sender.send_request(two).await.expect("an answer")).await;
    assert!(status == 400 && body.contains("differs from :authority"), "{status} {body}");
    let origin = Request::post(format!("http://{}/v1/check", server.address)).header("origin", "http://evil.example");
    let origin = origin.body(Full::new(Bytes::from_static(CHECK.as_bytes()))).expect("a request");
    assert_eq!(sender.send_request(origin).await.expect("an answer").status(), 403);
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_pings_gain_no_time() {
    let server = server(|settings| settings.idle_timeout = Duration::from_secs(1)).await;
    let mut stream = TcpStream::connect(server.address).await.expect("a connection");
    // The preface, empty settings, and pings until the end.
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("open");
    let (mut reading, mut writing) = stream.into_split();
    let pings = tokio::spawn(async move {
        while writing.write_all(b"\0\0\x08\x06\0\0\0\0\0abcdefgh").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let mut all = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(60), reading.read_to_end(&mut all));
    // A reset is an end too.
    _ = read.await.expect("the server closes it");
    assert!(!all.is_empty(), "it was HTTP/2");
    pings.abort();
}

/// Requests that were sent are answered, and the client learns that no other will be.
#[tokio::test]
async fn at_the_end_requests_that_were_sent_are_answered() {
    let mut server = server(|settings| settings.grace = Duration::from_secs(60)).await;
    let (mut kept, ended) = connect(&server).await;
    assert_eq!(kept.send_request(request(&server, "/healthz", "")).await.expect("an answer").status(), 200);
    let sent: Vec<_> = (0..100).map(|_| kept.send_request(request(&server, "/v1/check", CHECK))).collect();
    server.stop();
    for answer in sent {
        let (status, body) = text(answer.await.expect("an answer")).await;
        assert!(status == 200 && body.ends_with('}'), "{status} {body}");
    }
    server.stopped().await;
    assert!(ended.await.expect("no panic").is_ok(), "it ended in order");
    assert!(kept.send_request(request(&server, "/healthz", "")).await.is_err());
}

#[tokio::test]
async fn while_it_drains_each_connection_is_served_once_more() {
    let mut server = server(|settings| settings.drain = Duration::from_secs(600)).await;
    let (mut kept, kept_ends) = connect(&server).await;
    assert_eq!(kept.send_request(request(&server, "/readyz", "")).await.expect("an answer").status(), 200);
    server.stop();
    assert!(kept_ends.await.expect("no panic").is_ok(), "GOAWAY has ended it");
    let (mut late, late_ends) = connect(&server).await;
    assert_eq!(late.send_request(request(&server, "/v1/check", CHECK)).await.expect("an answer").status(), 200);
    assert!(late_ends.await.expect("no panic").is_ok(), "GOAWAY has ended it after its response");
}
