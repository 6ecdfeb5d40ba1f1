//! Envoy's rate limit service, as a gRPC client sees it that is not Envoy. Messages are written byte by byte.

use crate::common::{CHECK, TestServer};
use crate::directory;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tollgate::Policy;
use tollgate_server::{EnvoySettings, NamedToken, Settings};

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH: &str = "/grpc.health.v1.Health/Check";

const POLICY: &str = r#"
[lanes]
"api/user" = "2/minute"
"envoy" = "dynamic"

[envoy]
listen = "127.0.0.1:0"

[[envoy.rules]]
domain = "edge"
descriptor = [{ key = "user" }]
lane = "api/user"
agent = "user"
"#;

/// A field that has a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    // Short enough for a length of one byte.
    assert!(content.len() < 128);
    [&[number << 3 | 2, content.len() as u8], content].concat()
}

/// A request with one descriptor of one entry.
fn request(domain: &str, key: &str, value: &str) -> Vec<u8> {
    let entry = [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
    [field(1, domain.as_bytes()), field(2, &field(1, &entry))].concat()
}

/// A message in its frame.
fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("a short message"));
    frame.put_slice(message);
    frame.freeze()
}

/// What a call was answered: the gRPC status, and the message or the text of the failure.
#[derive(Debug)]
struct Answer {
    status: u32,
    message: Bytes,
    text: String,
}

#[derive(Clone)]
struct Client(SendRequest<Full<Bytes>>);

impl Client {
    async fn of(server: &TestServer) -> Self {
        let address = server.envoy.clone().expect("a server for Envoy");
        Self::over(TcpStream::connect(address).await.expect("a connection")).await
    }

    async fn over(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static) -> Self {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("a handshake");
        tokio::spawn(connection);
        Self(sender)
    }

    async fn send(&mut self, path: &str, headers: &[(&str, &str)], body: Bytes) -> Result<Answer, StatusCode> {
        let mut request = Request::post(format!("http://tollgate{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body)).expect("a request");
        let response = self.0.send_request(request).await.expect("a response");
        if response.status() != StatusCode::OK {
            return Err(response.status());
        }
        let head = response.headers().clone();
        let body = response.into_body().collect().await.expect("a body");
        let text = |value: &http::HeaderValue| value.to_str().expect("a text").to_owned();
        let of = |headers: &HeaderMap, name: &str| headers.get(name).map(text);
        let trailers = body.trailers().cloned().unwrap_or(head);
        Ok(Answer {
            status: of(&trailers, "grpc-status").expect("a status").parse().expect("a number"),
            text: of(&trailers, "grpc-message").unwrap_or_default(),
            message: body.to_bytes(),
        })
    }

    async fn call(&mut self, path: &str, message: &[u8]) -> Answer {
        let headers = [("content-type", "application/grpc"), ("te", "trailers")];
        self.send(path, &headers, framed(message)).await.expect("an answer of gRPC")
    }

    /// Whether a request of this user passes.
    async fn passes(&mut self, user: &str) -> bool {
        let answer = self.call(SHOULD_RATE_LIMIT, &request("edge", "user", user)).await;
        assert_eq!(answer.status, 0, "{answer:?}");
        // The overall code comes first, after the prefix of the frame.
        match &answer.message[5..7] {
            [0x08, 1] => true,
            [0x08, 2] => false,
            other => panic!("{other:?}"),
        }
    }
}

async fn serve(change: impl FnOnce(&mut Settings)) -> TestServer {
    let policy = Policy::from_toml(POLICY).expect("a policy");
    let read = Settings::from_toml(POLICY, Path::new("")).expect("settings");
    TestServer::with(policy, |settings| {
        settings.envoy = read.envoy;
        change(settings);
    })
    .await
}

#[tokio::test]
async fn a_call_is_answered_with_its_message_and_a_status() {
    let server = serve(|_| {}).await;
    let mut client = Client::of(&server).await;
    assert!(client.passes("a").await && client.passes("a").await && !client.passes("a").await);
    assert!(client.passes("b").await);
    // The same agent over HTTP.
    assert_eq!(server.check(r#"{"agent": "a", "lane": "api/user"}"#).await.status, 429);
    server.clock.advance(Duration::from_secs(30));
    assert!(client.passes("a").await);
    // Many calls at once, over one connection.
    let calls = (0..200).map(|number| {
        let mut client = client.clone();
        tokio::spawn(async move { client.passes(&format!("user {number}")).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert!(call.await.unwrap());
    }
}

#[tokio::test]
async fn what_is_no_call_is_refused() {
    let server = serve(|_| {}).await;
    let mut client = Client::of(&server).await;
    let message = request("edge", "user", "a");
    let grpc = [("content-type", "application/grpc+proto")];
    for (path, headers, body, expected) in [
        (SHOULD_RATE_LIMIT, &grpc[..], framed(&message), Ok(0)),
        (SHOULD_RATE_LIMIT, &[], framed(&message), Err(415)),
        (SHOULD_RATE_LIMIT, &[("content-type", "application/json")], framed(&message), Err(415)),
        ("/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit", &grpc, framed(&message), Ok(12)),
        ("/grpc.health.v1.Health/Watch", &grpc, framed(&[]), Ok(12)),
        (SHOULD_RATE_LIMIT, &grpc, Bytes::new(), Ok(3)),
        (SHOULD_RATE_LIMIT, &grpc, framed(&[0xff]), Ok(3)),
        (SHOULD_RATE_LIMIT, &grpc, framed(&[]), Ok(3)),
        (SHOULD_RATE_LIMIT, &grpc, Bytes::from([&[1], &framed(&message)[1..]].concat()), Ok(12)),
        (SHOULD_RATE_LIMIT, &grpc, framed(&vec![0; 70_000]), Ok(8)),
    ] {
        let answer = client.send(path, headers, body).await;
        let status = answer.map(|answer| answer.status).map_err(|status| status.as_u16());
        assert_eq!(status, expected, "{path} {headers:?}");
    }
    // The connection has survived all of that.
    assert!(client.passes("b").await);
}

#[tokio::test]
async fn another_protocol_ends_the_connection_and_nothing_else() {
    let server = serve(|settings| settings.head_timeout = Duration::from_secs(1)).await;
    // The last one says nothing at all.
    for bytes in
        [&b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..], b"\x16\x03\x01\x02\x00", &[0; 64], b"PRI * HTTP/2.0\r\n", b""]
    {
        let mut stream = TcpStream::connect(server.envoy.clone().unwrap()).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut rest = Vec::new();
        let closed = stream.read_to_end(&mut rest);
        _ = tokio::time::timeout(Duration::from_secs(60), closed).await.expect("a closed connection");
    }
    assert!(Client::of(&server).await.passes("a").await);
}

#[tokio::test]
async fn elsewhere_than_on_loopback_a_call_needs_a_token() {
    const EDGE: &str = "edge-token-0123456789";
    const OTHER: &str = "other-token-0123456789";
    let server = serve(|settings| {
        settings.check_token = Some(CHECK.to_owned());
        settings.tokens =
            vec![NamedToken::new("edge", [EDGE]).lanes(["api/*"]), NamedToken::new("other", [OTHER]).lanes(["other"])];
    })
    .await;
    let mut client = Client::of(&server).await;
    let message = framed(&request("edge", "user", "a"));
    for (token, expected) in [
        (None, 16),
        (Some("Bearer wrong-token-0123456789".to_owned()), 16),
        (Some(format!("Bearer {CHECK}")), 0),
        (Some(format!("Bearer {EDGE}")), 0),
        (Some(format!("Bearer {OTHER}")), 7),
    ] {
        let mut headers = vec![("content-type", "application/grpc")];
        headers.extend(token.as_deref().map(|token| ("authorization", token)));
        let answer = client.send(SHOULD_RATE_LIMIT, &headers, message.clone()).await.unwrap();
        assert_eq!(answer.status, expected, "{token:?}: {answer:?}");
        assert_eq!(answer.text.contains("token"), expected != 0, "{answer:?}");
    }
    assert_eq!(client.call(HEALTH, &[]).await.status, 0, "probes have no token");
}

#[tokio::test]
async fn health_follows_the_shutdown_and_calls_are_answered_to_the_end() {
    const SERVING: [u8; 2] = [0x08, 1];
    let mut server = serve(|settings| settings.notice = Duration::from_secs(3_600)).await;
    let mut client = Client::of(&server).await;
    for service in ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"] {
        let answer = client.call(HEALTH, &field(1, service.as_bytes())).await;
        assert_eq!((answer.status, &answer.message[5..]), (0, &SERVING[..]), "{service}");
    }
    assert_eq!(client.call(HEALTH, &field(1, b"other")).await.status, 5);
    server.stop();
    // Ends when the server has seen that it shall stop.
    loop {
        let answer = client.call(HEALTH, &[]).await;
        if answer.message[5..] == [0x08, 2] {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(client.passes("a").await, "it still answers");
}

#[tokio::test]
async fn a_server_that_ends_closes_its_connections() {
    let mut server = serve(|_| {}).await;
    let mut client = Client::of(&server).await;
    assert!(client.passes("a").await);
    server.stop();
    tokio::time::timeout(Duration::from_secs(60), server.stopped()).await.expect("the end");
    assert!(client.0.ready().await.is_err());
    assert!(TcpStream::connect(server.envoy.clone().unwrap()).await.is_err());
}

#[tokio::test]
async fn it_listens_on_a_unix_socket() {
    let directory = directory::Directory::new("envoy-unix");
    let path = directory.path().join("envoy.sock");
    let server = serve(|settings| {
        let envoy: &mut EnvoySettings = settings.envoy.as_mut().unwrap();
        envoy.listen = format!("unix:{}", path.display()).parse().unwrap();
    })
    .await;
    let mut client = Client::over(UnixStream::connect(&path).await.unwrap()).await;
    assert!(client.passes("a").await);
    drop(server);
}
