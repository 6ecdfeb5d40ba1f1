//! Accepts connections, up to a bound, and shuts down gracefully.

use super::connection::Connection;
use super::watch::{Bounds, Timeouts, Watch};
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
/// (`net.core.somaxconn`). If the queue is full, the client's system tries again a
/// second later.
const BACKLOG: u32 = 4_096;

/// How much of a response the system buffers for a client that does not read; Linux
/// doubles it. By default it buffers megabytes.
const SEND_BYTES: u32 = 128 * 1024;

/// How long a connection may be served beyond the time for its body: everything
/// else takes milliseconds.
const WORK: Duration = Duration::from_secs(20);

/// Open files besides connections: the state, the runtime, logs.
const FILES_RESERVED: u64 = 64;

/// A server that listens, and does not answer yet.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    address: SocketAddr,
    workers: Workers,
}

impl Server {
    /// Listens on the address in the settings.
    ///
    /// # Errors
    ///
    /// If the address is in use, not on this machine, or not allowed.
    pub async fn bind(app: Arc<App>) -> Result<Self, StartError> {
        let wanted = app.settings().listen;
        let failed = |error: std::io::Error| {
            let advice = match error.kind() {
                std::io::ErrorKind::AddrInUse => {
                    "another program uses it; stop that one, or choose another port with --listen"
                }
                std::io::ErrorKind::AddrNotAvailable => "this machine does not have that address; choose another",
                std::io::ErrorKind::PermissionDenied => "ports below 1024 need privileges; choose a higher one",
                _ => "choose another address with --listen",
            };
            StartError::new(format!("cannot listen on {wanted}: {error}; {advice}"))
        };
        let listener = listen(wanted).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { app, listener, address, workers: Workers::start()? })
    }

    /// The address it listens on, with the real port if port 0 was requested.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is ready, and shuts down gracefully:
    ///
    /// 1. For the time in the setting `drain`, `/readyz` answers 503 and everything
    ///    else is served as before, but each response is the last on its connection.
    /// 2. Then no new connections are accepted. Requests that were sent are answered,
    ///    up to the time in `grace`, and idle connections are closed.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { app, listener, workers, .. } = self;
        app.start();
        let settings = app.settings();
        let timeouts = Timeouts {
            idle: settings.idle_timeout,
            head: settings.head_timeout,
            serving: settings.body_timeout + WORK,
            blocked: settings.body_timeout,
        };
        let watch = Watch::new(bounds(settings), timeouts);
        let watcher = tokio::spawn(Arc::clone(&watch).run());
        let (stopping, stopped) = watch::channel(false);
        let router = routes::router(Arc::clone(&app));
        let take = |(stream, peer): (TcpStream, SocketAddr)| {
            // A stream that cannot be handed over, or whose address has reached its bound, is closed.
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
        // No new connections, and the open ones end.
        drop(listener);
        app.end();
        stopping.send_replace(true);
        if tokio::time::timeout(settings.grace, watch.wait_until_empty()).await.is_err() {
            tracing::warn!(
                connections = watch.count(),
                "connections were still busy after the grace period and are cut off"
            );
            watch.end_all();
            _ = tokio::time::timeout(Duration::from_secs(1), watch.wait_until_empty()).await;
        }
        watcher.abort();
        // At the very end, when nothing can be charged any more.
        let last = move || {
            app.control().save_budgets();
            app.write_report();
        };
        _ = tokio::task::spawn_blocking(last).await;
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart does not wait for connections of the previous run.
    socket.set_reuseaddr(true)?;
    // Connections inherit it from the listener.
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

/// Accepts the connections that are already waiting, as long as there is room.
async fn accept_waiting(listener: &TcpListener, watch: &Arc<Watch>, take: impl Fn((TcpStream, SocketAddr))) {
    for _ in 0..BACKLOG {
        // Within that time the runtime notices a waiting connection.
        let next = tokio::time::timeout(Duration::from_millis(1), listener.accept());
        match next.await {
            Ok(Ok(accepted)) if watch.has_room() => take(accepted),
            _ => break,
        }
    }
}

async fn accept(listener: &TcpListener, watch: &Arc<Watch>) -> Option<(TcpStream, SocketAddr)> {
    watch.wait_for_room().await;
    match listener.accept().await {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            // A client that has gone away already is not our problem. Otherwise no more
            // files can be opened, and all we can do is wait.
            if !matches!(error.kind(), std::io::ErrorKind::ConnectionAborted | std::io::ErrorKind::ConnectionReset) {
                tracing::warn!(%error, "cannot accept connections");
                watch.make_room();
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            None
        }
    }
}

/// The bounds on connections. One address may have a quarter of all, so that no
/// client takes them all; on loopback it may, because every client is on this machine.
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

/// As many connections as wanted, or as many as the system allows open files.
fn connections_max(wanted: usize) -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            limit = raised;
        }
    }
    // `None` is no limit.
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
