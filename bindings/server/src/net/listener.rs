//! Accepts connections, up to a bound, and ends gracefully.

use super::connection::Connection;
use super::watch::{Bounds, Patience, Watch};
use super::workers::{Arrival, Workers};
use crate::app::App;
use crate::error::StartError;
use crate::routes;
use crate::settings::Settings;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

/// How many connections may wait to be accepted, if the system allows as many
/// (`net.core.somaxconn`). One that finds no place is tried again by its
/// client's system a second later.
const BACKLOG: u32 = 4_096;

/// How much of an answer the system keeps for a client that does not read; twice
/// that on Linux. Left to itself it keeps megabytes.
const SEND_BYTES: u32 = 128 * 1024;

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
        let listener = listen(wanted).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { app, listener, address, workers: Workers::start()? })
    }

    /// Where it listens; the port is a real one also if port 0 was asked for.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is ready, and ends gracefully:
    ///
    /// 1. For the time of the settings' `drain` `/readyz` says 503 and everything
    ///    else is served as before, but each answer is the last on its connection.
    /// 2. Then nobody new is let in. What was sent is answered, up to the
    ///    settings' `grace`, and connections without a request are closed.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { app, listener, workers, .. } = self;
        app.start();
        let settings = app.settings();
        let patience = Patience {
            waiting: settings.idle_timeout,
            head: settings.head_timeout,
            served: settings.body_timeout + WORK,
            stuck: settings.body_timeout,
        };
        let watch = Watch::new(bounds(settings), patience);
        let watchman = tokio::spawn(Arc::clone(&watch).keep());
        let (stopping, stopped) = watch::channel(false);
        let router = routes::router(Arc::clone(&app));
        let take = |(stream, peer): (TcpStream, SocketAddr)| {
            // A stream that cannot be handed over, or that its address has no room for, is closed.
            if let (Ok(stream), Some(registration)) = (stream.into_std(), watch.register(peer.ip())) {
                let connection =
                    Connection { app: Arc::clone(&app), router: router.clone(), peer, stopped: stopped.clone() };
                workers.take(Arrival { connection, stream, registration });
            }
        };
        accept_until(stop, &listener, &watch, take).await;
        app.drain();
        accept_until(tokio::time::sleep(settings.drain), &listener, &watch, take).await;
        accept_waiting(&listener, &watch, take).await;
        // Nobody new is let in, and everybody in is let out.
        drop(listener);
        app.end();
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

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart does not wait for connections of the run before.
    socket.set_reuseaddr(true)?;
    // Each connection has its own of the listener.
    socket.set_send_buffer_size(SEND_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts connections until `stop` is ready.
async fn accept_until(
    stop: impl Future<Output = ()>,
    listener: &TcpListener,
    watch: &Arc<Watch>,
    take: impl Fn((TcpStream, SocketAddr)),
) {
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = accept(listener, watch) => accepted.into_iter().for_each(&take),
        }
    }
}

/// Accepts the connections that are there already, as many as have room.
async fn accept_waiting(listener: &TcpListener, watch: &Arc<Watch>, take: impl Fn((TcpStream, SocketAddr))) {
    for _ in 0..BACKLOG {
        // The runtime learns of one that is there in that time.
        let next = tokio::time::timeout(Duration::from_millis(1), listener.accept());
        match next.await {
            Ok(Ok(accepted)) if watch.has_room() => take(accepted),
            _ => break,
        }
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

/// How many connections there may be. A quarter of them from one address, so
/// that no one client takes all; on loopback all, since whoever comes is of this machine.
fn bounds(settings: &Settings) -> Bounds {
    let connections = connections_max(settings.max_connections);
    let default = if settings.listen.ip().is_loopback() { connections } else { connections.div_ceil(4) };
    let per_address = settings.max_connections_per_address.unwrap_or(default);
    Bounds {
        connections,
        per_address,
        bytes: settings.max_in_flight_mib << 20,
        proxies: settings.trusted_proxies.clone(),
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
