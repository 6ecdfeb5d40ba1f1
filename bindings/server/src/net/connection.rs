//! One connection: its requests, one after the other or, in HTTP/2, several at once.

use super::cors;
use super::exchange::{RequestBody, ResponseBody};
use super::flight::{InFlight, too_much};
use super::multiplex::Exchange;
use super::progress::{Phase, Progress};
use super::stages::{Stage, Stop};
use super::stream::{Stream, WatchedStream};
use super::tls::Tls;
use super::watch::Registration;
use crate::access::{Access, AccessLog};
use crate::app::App;
use crate::meter::OpenConnection;
use crate::problem::Problem;
use crate::routes::{check, gate};
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, Method, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tollgate_tower::Peer;
use tower_service::Service as _;

/// How many bytes the head of a request may have.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// How many requests an HTTP/2 connection may have at once, and how many bytes of bodies the server takes from it
/// before it has read them.
const STREAMS_MAX: u32 = 128;
const WINDOW_BYTES: u32 = 128 * 1024;

/// What is needed to serve a connection.
pub(super) struct Connection {
    pub(super) app: Arc<App>,
    pub(super) router: Router,
    pub(super) peer: SocketAddr,
    pub(super) stop: Stop,
    /// Ready once no more connections are accepted, so that requests which were sent are known.
    pub(super) stopped: watch::Receiver<bool>,
    pub(super) open: OpenConnection,
}

/// What the requests of a connection share.
struct Shared {
    app: Arc<App>,
    router: Router,
    peer: SocketAddr,
    is_tls: bool,
    progress: Arc<Progress>,
    /// Notified when a response should be the last of an HTTP/2 connection.
    last: Notify,
}

impl Connection {
    /// Serves a connection inside TLS.
    pub(super) async fn serve_tls(mut self, tls: &Tls, stream: TcpStream, registration: Registration) {
        let progress = Arc::clone(registration.progress());
        // A handshake may take as long as a head.
        progress.enter(Phase::Head);
        let accepted = drive(pin!(tls.accept(stream)), &progress, &mut self.stopped, |_| {}).await;
        let Some(Some(stream)) = accepted else { return };
        progress.enter(Phase::Idle);
        let is_http2 = stream.is_http2();
        // Encrypting costs more than a call through a table.
        let stream: Box<dyn Stream> = Box::new(stream);
        self.serve(stream, is_http2, true, registration).await;
    }

    pub(super) async fn serve_plain(self, stream: impl Stream, registration: Registration) {
        self.serve(stream, false, false, registration).await;
    }

    /// Serves a connection; `is_http2` if the client has said so before its first bytes.
    async fn serve(mut self, stream: impl Stream, is_http2: bool, is_tls: bool, registration: Registration) {
        let progress = Arc::clone(registration.progress());
        let mut stream = WatchedStream::new(stream, Arc::clone(&progress));
        let begins = drive(pin!(stream.begins_http2()), &progress, &mut self.stopped, |_| {}).await;
        let Some(begins_http2) = begins else { return };
        let Self { app, router, peer, stop, mut stopped, open: _open } = self;
        let shared = Arc::new(Shared { app, router, peer, is_tls, progress, last: Notify::new() });
        let stream = TokioIo::new(stream);
        if is_http2 || begins_http2 {
            serve_http2(&shared, stream, stop, &mut stopped).await;
        } else {
            serve_http1(&shared, stream, &mut stopped).await;
        }
    }
}

/// Waits for something that a connection does, until the connection has to end. When the server stops, `on_stop` is
/// called once, and what was read is answered.
async fn drive<F: Future>(
    mut future: Pin<&mut F>,
    progress: &Progress,
    stopped: &mut watch::Receiver<bool>,
    mut on_stop: impl FnMut(Pin<&mut F>),
) -> Option<F::Output> {
    let mut ended = pin!(progress.ended());
    if progress.stops() {
        on_stop(future.as_mut());
    }
    // Ends with the future, which is polled to its end when the server stops.
    loop {
        tokio::select! {
            biased;
            output = future.as_mut() => return Some(output),
            () = &mut ended => return None,
            _ = stopped.wait_for(|stopped| *stopped), if !progress.stops() => {
                progress.stop();
                on_stop(future.as_mut());
            }
        }
    }
}

async fn serve_http1<S: Stream>(
    shared: &Arc<Shared>,
    stream: TokioIo<WatchedStream<S>>,
    stopped: &mut watch::Receiver<bool>,
) {
    let service = service_fn(|request: http::Request<Incoming>| {
        let exchange = Exchange::only(&shared.progress);
        exchange.on_request(!request.body().is_end_stream());
        async move {
            let mut response = respond(shared, &exchange, request).await;
            // The rest of an unread body would be parsed as the next request.
            if shared.app.stages().has_begun(Stage::Draining) || !exchange.is_whole() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            exchange.on_response();
            Ok::<_, Infallible>(response.map(|body| ResponseBody::new(body, exchange)))
        }
    });
    let mut builder = http1::Builder::new();
    // A response is a head and some hundred bytes: copying them costs less than a vectored write.
    builder.max_buf_size(HEAD_BYTES_MAX).max_header_size(HEAD_BYTES_MAX).writev(false);
    let connection = pin!(builder.serve_connection(stream, service));
    if let Some(Err(error)) = drive(connection, &shared.progress, stopped, |_| {}).await {
        count_malformed(&shared.app, shared.peer, &error);
    }
}

/// Serves HTTP/2. The client learns of the end by GOAWAY: requests that it sends before it has read that are answered.
async fn serve_http2<S: Stream>(
    shared: &Arc<Shared>,
    stream: TokioIo<WatchedStream<S>>,
    mut stop: Stop,
    stopped: &mut watch::Receiver<bool>,
) {
    shared.progress.multiplex();
    let of_service = Arc::clone(shared);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let shared = Arc::clone(&of_service);
        async move {
            let response = match Exchange::among_others(&shared.progress) {
                Some(exchange) => {
                    let response = respond(&shared, &exchange, request).await;
                    exchange.on_response();
                    response.map(|body| ResponseBody::new(body, exchange))
                }
                None => {
                    too_much().into_response().map(|body| ResponseBody::new(body, Exchange::only(&shared.progress)))
                }
            };
            if shared.app.stages().has_begun(Stage::Draining) {
                shared.last.notify_one();
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_BYTES_MAX as u32);
    builder.initial_stream_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
    // As much as the system buffers of a response in HTTP/1.1.
    builder.max_send_buf_size(WINDOW_BYTES as usize);
    let mut connection = pin!(builder.serve_connection(stream, service));
    // A connection that begins later gets an answer first, or its client would only connect again.
    let is_early = !shared.app.stages().has_begun(Stage::Draining);
    let mut is_last = false;
    let ends = async {
        tokio::select! {
            () = stop.reaches(Stage::Draining), if is_early => {}
            () = shared.last.notified() => {}
        }
    };
    let mut ends = pin!(ends);
    let serve = poll_fn(|cx| {
        if !is_last && (shared.progress.stops() || ends.as_mut().poll(cx).is_ready()) {
            is_last = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx)
    });
    if let Some(Err(error)) = drive(pin!(serve), &shared.progress, stopped, |_| {}).await {
        tracing::debug!(%error, peer = %shared.peer, "an HTTP/2 connection broke");
    }
}

/// Counts a response that the HTTP library has sent by itself.
fn count_malformed(app: &App, peer: SocketAddr, error: &hyper::Error) {
    if error.is_parse_too_large() {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        app.count_problem(status, "head", &error.to_string(), peer);
    } else if error.is_parse() {
        app.count_problem(StatusCode::BAD_REQUEST, "http", &error.to_string(), peer);
    }
}

/// A request's response, with the headers of every response.
async fn respond(shared: &Arc<Shared>, exchange: &Exchange, mut request: http::Request<Incoming>) -> Response {
    let seen = shared.app.access_log().map(|log| (log, Seen::of(shared, &request)));
    let mut response = match name_host(&mut request) {
        Ok(()) => route(shared, exchange, request).await,
        Err(problem) => problem.into_response(),
    };
    if let Some((log, seen)) = seen {
        seen.record(log, &response);
    }
    shared.app.count_response(&response, shared.peer);
    // A stream of events has no known length; its events are short.
    let bytes = response.body().size_hint().exact().unwrap_or_default();
    if !exchange.set_in_flight(usize::try_from(bytes).unwrap_or(usize::MAX)) {
        response = too_much().into_response();
        exchange.set_in_flight(0);
    }
    // A browser must not take text in an id for a page.
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// What the access log wants to know of a request.
struct Seen {
    begun: Instant,
    client: IpAddr,
    method: Method,
    uri: http::Uri,
    version: http::Version,
}

impl Seen {
    fn of(shared: &Shared, request: &http::Request<Incoming>) -> Self {
        let client = shared.app.keys().client(shared.peer.ip(), request.headers());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        Self { begun: Instant::now(), client, method, uri, version: request.version() }
    }

    fn record(&self, log: &AccessLog, response: &Response) {
        log.record(&Access {
            client: self.client,
            method: self.method.as_str(),
            // A query may have an agent's id.
            path: self.uri.path(),
            version: self.version,
            status: response.status().as_u16(),
            took: self.begun.elapsed(),
        });
    }
}

/// HTTP/2 has the host in the target. Two different ones could pass a proxy in front that checks the other.
fn name_host(request: &mut http::Request<Incoming>) -> Result<(), Problem> {
    if request.version() != http::Version::HTTP_2 {
        return Ok(());
    }
    let Some(authority) = request.uri().authority().cloned() else { return Ok(()) };
    match request.headers().get(header::HOST) {
        Some(host) if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) => {
            Err(Problem::bad_request("the Host header differs from :authority; send one of them"))
        }
        Some(_) => Ok(()),
        None => {
            let host = HeaderValue::from_str(authority.as_str())
                .map_err(|_| Problem::bad_request(":authority is not a host"))?;
            request.headers_mut().insert(header::HOST, host);
            Ok(())
        }
    }
}

async fn route(shared: &Arc<Shared>, exchange: &Exchange, request: http::Request<Incoming>) -> Response {
    let (app, peer) = (&shared.app, shared.peer);
    let settings = app.settings();
    // The headers that a gateway passes on are its client's, the origin too.
    let is_gate = gate::is_gate(request.uri().path());
    if is_gate && gate::takes_any_host(app) {
        return gate::rule(app, peer, request.into_parts().0).await;
    }
    let origin = if is_gate { None } else { cors::allowed_origin(&request, &settings.cors_origins) };
    let (method, target, headers) = (request.method(), request.uri(), request.headers());
    let mut response = match super::front::check(method, target, headers, &settings.hosts, origin.is_some()) {
        Err(problem) => problem.into_response(),
        Ok(()) if is_gate => gate::rule(app, peer, request.into_parts().0).await,
        Ok(()) if origin.is_some() && cors::is_preflight(&request) => cors::preflight(),
        Ok(()) => answer(shared, exchange, request).await,
    };
    if let Some(origin) = origin {
        cors::allow(response.headers_mut(), origin);
    }
    response
}

async fn answer(shared: &Arc<Shared>, exchange: &Exchange, request: http::Request<Incoming>) -> Response {
    let (app, peer) = (&shared.app, shared.peer);
    let mut request = request.map(|body| RequestBody::new(body, exchange.clone()));
    if request.method() == Method::POST && request.uri().path() == "/v1/check" {
        return check::decide(app, peer.ip(), request).await.unwrap_or_else(Problem::into_response);
    }
    request.extensions_mut().insert(Peer(peer));
    request.extensions_mut().insert(InFlight(exchange.clone()));
    if shared.is_tls {
        request.extensions_mut().insert(InsideTls);
    }
    match shared.router.clone().call(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// An extension of requests that came inside TLS.
#[derive(Clone, Copy)]
pub(crate) struct InsideTls;
