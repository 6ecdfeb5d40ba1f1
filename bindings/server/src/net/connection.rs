//! One connection: its requests, one after the other.

use super::exchange::{Arriving, Leaving};
use super::flight::{InFlight, too_much};
use super::line::Line;
use super::stream::Watched;
use super::watch::Registration;
use crate::app::App;
use crate::problem::Problem;
use crate::routes::check;
use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, Method, StatusCode, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tollgate_tower::Peer;
use tower_service::Service as _;

/// How many bytes the head of a request may have.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// What a connection needs to be served.
pub(super) struct Connection {
    pub(super) app: Arc<App>,
    pub(super) router: Router,
    pub(super) peer: SocketAddr,
    pub(super) stopped: watch::Receiver<bool>,
}

impl Connection {
    pub(super) async fn serve(self, stream: TcpStream, registration: Registration) {
        let Self { app, router, peer, mut stopped } = self;
        // Answers are short; to hold one back for more is to be late.
        _ = stream.set_nodelay(true);
        let line = registration.line();
        let service = service_fn(|request: http::Request<Incoming>| {
            line.served(!request.body().is_end_stream());
            let answer = answer(&app, &router, peer, line, request);
            let app = &app;
            async move {
                let mut answer = answer.await;
                // Nothing is known of the length of what is told as it happens; it is short.
                let bytes = answer.body().size_hint().exact().unwrap_or_default();
                if !line.hold(usize::try_from(bytes).unwrap_or(usize::MAX)) {
                    answer = too_much().into_response();
                    line.hold(0);
                }
                finish(&mut answer, app.is_draining(), line);
                line.answered();
                Ok::<_, Infallible>(answer.map(|body| Leaving::new(body, Arc::clone(line))))
            }
        });
        let stream = TokioIo::new(Watched::new(stream, Arc::clone(line)));
        let mut builder = http1::Builder::new();
        // An answer is a head and some hundred bytes: to copy these costs less than to tell the system of both.
        builder.max_buf_size(HEAD_BYTES_MAX).max_header_size(HEAD_BYTES_MAX).writev(false);
        let mut connection = pin!(builder.serve_connection(stream, service));
        let mut ended = pin!(line.ended());
        let mut is_stopping = false;
        // Ends with the connection: when the server stops, it is read to its end, and what was read is answered.
        loop {
            tokio::select! {
                biased;
                done = connection.as_mut() => {
                    if let Err(error) = done {
                        count_malformed(&app, peer, &error);
                    }
                    break;
                }
                () = &mut ended => break,
                _ = stopped.wait_for(|stopped| *stopped), if !is_stopping => {
                    is_stopping = true;
                    line.stop();
                }
            }
        }
    }
}

/// Counts what the HTTP library has answered by itself.
fn count_malformed(app: &App, peer: SocketAddr, error: &hyper::Error) {
    if error.is_parse_too_large() {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        app.count_problem(status, "head", &error.to_string(), peer);
    } else if error.is_parse() {
        app.count_problem(StatusCode::BAD_REQUEST, "http", &error.to_string(), peer);
    }
}

async fn answer(
    app: &Arc<App>,
    router: &Router,
    peer: SocketAddr,
    line: &Arc<Line>,
    request: http::Request<Incoming>,
) -> Response {
    let response = respond(app, router, peer, line, request).await;
    app.count_answer(&response, peer);
    response
}

async fn respond(
    app: &Arc<App>,
    router: &Router,
    peer: SocketAddr,
    line: &Arc<Line>,
    request: http::Request<Incoming>,
) -> Response {
    let passed = super::front::check(request.method(), request.uri(), request.headers(), &app.settings().hosts);
    if let Err(problem) = passed {
        return problem.into_response();
    }
    let mut request = request.map(|body| Arriving::new(body, Arc::clone(line)));
    if request.method() == Method::POST && request.uri().path() == "/v1/check" {
        return check::decide(app, peer.ip(), request).await.unwrap_or_else(Problem::into_response);
    }
    request.extensions_mut().insert(Peer(peer));
    request.extensions_mut().insert(InFlight(Arc::clone(line)));
    match router.clone().call(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// What every answer says.
fn finish(answer: &mut Response, is_last: bool, line: &Line) {
    let headers = answer.headers_mut();
    // The rest of a body that nobody read would be taken for the next request.
    if is_last || !line.is_whole() {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // No browser is to take what somebody has written into an id for a page.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}
