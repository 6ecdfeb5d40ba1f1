//! Accepts connections, up to a bound, and ends gracefully.

use super::watch::{Line, Patience, Place, Watch, Watched};
use super::workers::{Arrival, Workers};
use crate::app::App;
use crate::error::StartError;
use crate::problem::Problem;
use crate::routes::{self, check};
use axum::Router;
use axum::body::Body;
use http::Method;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tollgate_tower::Peer;
use tower_service::Service as _;

/// How many bytes the head of a request may have.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// How long a connection may be served beyond the time for its body: whatever
/// else a request does is a matter of milliseconds.
const WORK: Duration = Duration::from_secs(20);

/// Files that are open besides connections: the state, the runtime, logs.
const FILES_RESERVED: u64 = 64;

/// A server that listens and does not answer yet.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    address: SocketAddr,
    workers: Workers,
}

impl Server {
    /// Listens where the settings say.
    ///
    /// # Errors
    ///
    /// The address is in use, or not this machine's, or not allowed.
    pub async fn bind(app: Arc<App>) -> Result<Self, StartError> {
        let wanted = app.settings().listen;
        let failed = |error: std::io::Error| {
            let advice = match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    "another program has it; end that, or choose another port with --listen"
                }
                std::io::ErrorKind::AddrNotAvailable => "it is no address of this machine; choose one that is",
                std::io::ErrorKind::PermissionDenied => "ports below 1024 need a right; choose a higher one",
                _ => "choose another address with --listen",
            };
            StartError::new(format!("cannot listen on {wanted}: {error}; {advice}"))
        };
        let listener = TcpListener::bind(wanted).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { app, listener, address, workers: Workers::start()? })
    }

    /// Where it listens; the port is a real one also if port 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is ready; then finishes what is being served, up
    /// to the settings' grace, and returns.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { app, listener, workers, .. } = self;
        app.start();
        let settings = app.settings();
        let patience = Patience {
            waiting: settings.idle_timeout,
            head: settings.head_timeout,
            served: settings.body_timeout + WORK,
        };
        let watch = Watch::new(connections_max(settings.max_connections), patience);
        let watchman = tokio::spawn(Arc::clone(&watch).keep());
        let (stopping, stopped) = watch::channel(false);
        let router = routes::router(Arc::clone(&app));
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = accept(&listener, &watch) => accepted,
            };
            // A stream that cannot be handed over is closed.
            if let Some((Ok(stream), peer)) = accepted.map(|(stream, peer)| (stream.into_std(), peer)) {
                let connection =
                    Connection { app: Arc::clone(&app), router: router.clone(), peer, stopped: stopped.clone() };
                workers.take(Arrival { connection, stream, place: watch.place() });
            }
        }
        app.drain();
        // Nobody new is let in, and everybody in is let out.
        drop(listener);
        stopping.send_replace(true);
        if tokio::time::timeout(settings.grace, watch.emptied()).await.is_err() {
            tracing::warn!(
                connections = watch.count(),
                "connections were still busy after the grace period and are cut"
            );
            watch.end_all();
            _ = tokio::time::timeout(Duration::from_secs(1), watch.emptied()).await;
        }
        watchman.abort();
        // The last act, when nobody can be charged any more.
        let last = move || {
            app.control().save_budgets();
            app.write_status();
        };
        _ = tokio::task::spawn_blocking(last).await;
    }
}

async fn accept(listener: &TcpListener, watch: &Arc<Watch>) -> Option<(TcpStream, SocketAddr)> {
    watch.room().await;
    match listener.accept().await {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            // A client that is gone already is its own affair. Else no more
            // files can be opened, and waiting is all there is to do.
            if !matches!(error.kind(), std::io::ErrorKind::ConnectionAborted | std::io::ErrorKind::ConnectionReset) {
                tracing::warn!(%error, "cannot accept connections");
                watch.make_room();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            None
        }
    }
}

/// As many connections as wanted, or as the system has files for.
fn connections_max(wanted: usize) -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = raised;
        }
    }
    // No limit at all is `None`.
    let files = limit.current.unwrap_or(u64::MAX).saturating_sub(FILES_RESERVED).max(1);
    let max = usize::try_from(files).unwrap_or(usize::MAX).min(wanted);
    if max < wanted {
        tracing::warn!(
            wanted,
            max,
            "the limit on open files allows fewer connections; raise it (ulimit -n, LimitNOFILE)"
        );
    }
    max
}

/// What a connection needs to be served.
pub(super) struct Connection {
    app: Arc<App>,
    router: Router,
    peer: SocketAddr,
    stopped: watch::Receiver<bool>,
}

impl Connection {
    pub(super) async fn serve(self, stream: TcpStream, place: Place) {
        let Self { app, router, peer, mut stopped } = self;
        // Answers are short; to hold one back for more is to be late.
        _ = stream.set_nodelay(true);
        let line = place.line();
        let service = service_fn(|request| {
            line.served();
            let answer = answer(&app, &router, peer, request);
            let line: &Line = line;
            async move {
                let answer = answer.await;
                line.answered();
                Ok::<_, Infallible>(answer)
            }
        });
        let stream = TokioIo::new(Watched::new(stream, Arc::clone(line)));
        let mut builder = http1::Builder::new();
        // An answer is a head and some hundred bytes: to copy these costs less than to tell the system of both.
        builder.max_buf_size(HEAD_BYTES_MAX).max_header_size(HEAD_BYTES_MAX).writev(false);
        let mut connection = pin!(builder.serve_connection(stream, service));
        let mut ended = pin!(line.ended());
        let mut is_stopping = false;
        // Ends with the connection: when it stops, it finishes its request and closes.
        loop {
            tokio::select! {
                biased;
                _ = connection.as_mut() => break,
                () = &mut ended => break,
                _ = stopped.wait_for(|stopped| *stopped), if !is_stopping => {
                    is_stopping = true;
                    line.hurry();
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

async fn answer(
    app: &Arc<App>,
    router: &Router,
    peer: SocketAddr,
    mut request: http::Request<Incoming>,
) -> axum::response::Response {
    use axum::response::IntoResponse as _;
    let passed = super::front::check(request.method(), request.headers(), &app.settings().hosts);
    if let Err(problem) = passed {
        return problem.into_response();
    }
    if request.method() == Method::POST && request.uri().path() == "/v1/check" {
        return check::decide(app, peer.ip(), request).await.unwrap_or_else(Problem::into_response);
    }
    request.extensions_mut().insert(Peer(peer));
    match router.clone().call(request.map(Body::new)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
