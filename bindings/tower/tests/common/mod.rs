//! Shared by the tests: limiters on a manual clock, requests without a socket,
//! and a server on a real socket with a real client.

#![allow(dead_code, reason = "no test file uses all of it")]

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::any;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::{TcpListener, TcpStream};
use tollgate::{Limiter, ManualClock, Policy};
use tollgate_tower::{Key, TollgateLayer, TollgateLayerBuilder};
use tower::ServiceExt;

pub(crate) const AGENT: &str = "x-agent-id";

/// A limiter with these lanes, on a manual clock.
pub(crate) fn limiter(lanes: &[(&str, &str)]) -> (Arc<Limiter>, ManualClock) {
    let policy = lanes.iter().fold(Policy::builder(), |policy, (name, limit)| policy.lane(*name, *limit));
    let clock = ManualClock::new();
    let limiter = Limiter::builder(policy.build().expect("valid lanes")).agents(1_000).clock(clock.clone());
    (Arc::new(limiter.build().expect("a small slab")), clock)
}

/// A layer that identifies agents by a header.
pub(crate) fn by_header(lanes: &[(&str, &str)]) -> (TollgateLayerBuilder, ManualClock) {
    let (limiter, clock) = limiter(lanes);
    (TollgateLayer::builder(limiter).key(Key::header(AGENT)), clock)
}

/// A layer that identifies agents by their address.
pub(crate) fn by_address(lanes: &[(&str, &str)]) -> TollgateLayerBuilder {
    let (limiter, _) = limiter(lanes);
    TollgateLayer::builder(limiter).key(Key::address()).peer::<ConnectInfo<SocketAddr>>()
}

/// A quarter second past a whole one.
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_250)
}

/// A limited app that answers hello.
pub(crate) fn app(layer: TollgateLayerBuilder) -> Router {
    Router::new().fallback(any(|| async { "hello" })).layer(layer.build().expect("a valid layer"))
}

/// A response, read to the end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn of<B>(response: Response<B>) -> Self
    where
        B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
    {
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a whole body").to_bytes();
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("a text"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }
}

/// A request that needs no socket.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let request = Request::builder().method(method).uri(path);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).expect("a request")
}

/// The same from an address.
pub(crate) fn request_from(peer: &str, method: &str, path: &str, headers: &[(&str, &str)]) -> Request<Body> {
    let mut request = request(method, path, headers);
    let peer = SocketAddr::new(peer.parse().expect("an address"), 4_711);
    request.extensions_mut().insert(ConnectInfo(peer));
    request
}

pub(crate) async fn send(app: &Router, request: Request<Body>) -> Answer {
    Answer::of(app.clone().oneshot(request).await.expect("a response")).await
}

pub(crate) async fn status(app: &Router, request: Request<Body>) -> u16 {
    send(app, request).await.status.as_u16()
}

/// How many of `calls` requests are not refused.
pub(crate) async fn admitted(app: &Router, calls: usize, request: impl Fn() -> Request<Body>) -> usize {
    let mut admitted = 0;
    for _ in 0..calls {
        admitted += usize::from(status(app, request()).await == 200);
    }
    admitted
}

/// Serves an app on its own socket until the test ends.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await });
    address
}

/// A client with one connection.
pub(crate) struct Client(hyper::client::conn::http1::SendRequest<Full<Bytes>>);

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.expect("a connection");
        tokio::spawn(connection);
        Self(sender)
    }

    pub(crate) async fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.0.ready().await.expect("a connection that is open");
        let response = self.0.send_request(request.body(Full::new(body)).expect("a request")).await;
        Answer::of(response.expect("a response")).await
    }

    pub(crate) async fn get(&mut self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send("GET", path, headers, Bytes::new()).await
    }
}
