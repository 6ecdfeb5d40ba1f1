//! One connection: its requests, one after the other.

use super::exchange::{RequestBody, ResponseBody};
use super::flight::{InFlight, too_much};
use super::progress::Progress;
use super::stages::Stage;
use super::stream::{Stream, WatchedStream};
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
use tokio::sync::watch;
use tollgate_tower::Peer;
use tower_service::Service as _;

/// How many bytes the head of a request may have.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// What is needed to serve a connection.
pub(super) struct Connection {
    pub(super) app: Arc<App>,
    pub(super) router: Router,
    pub(super) peer: SocketAddr,
    pub(super) stopped: watch::Receiver<bool>,
}

impl Connection {
    pub(super) async fn serve(self, stream: impl Stream, registration: Registration) {
        let Self { app, router, peer, mut stopped } = self;
        let progress = registration.progress();
        let service = service_fn(|request: http::Request<Incoming>| {
            progress.on_request(!request.body().is_end_stream());
            let response = respond(&app, &router, peer, progress, request);
            let app = &app;
            async move {
                let mut response = response.await;
                app.count_response(&response, peer);
                // A stream of events has no known length; its events are short.
                let bytes = response.body().size_hint().exact().unwrap_or_default();
                if !progress.set_in_flight(usize::try_from(bytes).unwrap_or(usize::MAX)) {
                    response = too_much().into_response();
                    progress.set_in_flight(0);
                }
                finish(&mut response, app.stages().has_begun(Stage::Draining), progress);
                progress.on_response();
                Ok::<_, Infallible>(response.map(|body| ResponseBody::new(body, Arc::clone(progress))))
            }
        });
        let stream = TokioIo::new(WatchedStream::new(stream, Arc::clone(progress)));
        let mut builder = http1::Builder::new();
        // A response is a head and some hundred bytes: copying them costs less than a vectored write.
        builder.max_buf_size(HEAD_BYTES_MAX).max_header_size(HEAD_BYTES_MAX).writev(false);
        let mut connection = pin!(builder.serve_connection(stream, service));
        let mut ended = pin!(progress.ended());
        let mut is_stopping = false;
        // Ends with the connection: when the server stops, it is read to its end, and what was read is answered.
        loop {
            tokio::select! {
                biased;
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        count_malformed(&app, peer, &error);
                    }
                    break;
                }
                () = &mut ended => break,
                _ = stopped.wait_for(|stopped| *stopped), if !is_stopping => {
                    is_stopping = true;
                    progress.stop();
                }
            }
        }
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

async fn respond(
    app: &Arc<App>,
    router: &Router,
    peer: SocketAddr,
    progress: &Arc<Progress>,
    request: http::Request<Incoming>,
) -> Response {
    let checked = super::front::check(request.method(), request.uri(), request.headers(), &app.settings().hosts);
    if let Err(problem) = checked {
        return problem.into_response();
    }
    let mut request = request.map(|body| RequestBody::new(body, Arc::clone(progress)));
    if request.method() == Method::POST && request.uri().path() == "/v1/check" {
        return check::decide(app, peer.ip(), request).await.unwrap_or_else(Problem::into_response);
    }
    request.extensions_mut().insert(Peer(peer));
    request.extensions_mut().insert(InFlight(Arc::clone(progress)));
    match router.clone().call(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Adds the headers of every response.
fn finish(response: &mut Response, is_last: bool, progress: &Progress) {
    let headers = response.headers_mut();
    // The rest of an unread body would be parsed as the next request.
    if is_last || !progress.is_whole() {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // A browser must not take text in an id for a page.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}
