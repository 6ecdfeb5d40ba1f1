//! Accepts connections, up to a bound, and shuts down gracefully.

use super::connection::Connection;
use super::socket::{Accepted, BACKLOG, Socket};
use super::stages::{Stage, Stop};
use super::watch::{Bounds, Timeouts, Watch};
use super::workers::{Arrival, Workers};
use crate::access::AccessLog;
use crate::address::Address;
use crate::app::App;
use crate::envoy::EnvoyListener;
use crate::error::StartError;
use crate::meter::{ListenerKind, OpenConnection};
use crate::resp::listener as resp;
use crate::routes;
use crate::settings::Settings;
use axum::Router;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a connection may be served beyond the time for its body: everything
/// else takes milliseconds.
const WORK: Duration = Duration::from_secs(20);

/// Open files besides connections: the state, the runtime, logs.
const FILES_RESERVED: u64 = 64;

/// A server that listens, and does not answer yet.
pub struct Server {
    app: Arc<App>,
    sockets: Vec<Socket>,
    addresses: Vec<Address>,
    workers: Workers,
    envoy: Option<EnvoyListener>,
    resp: Option<resp::Listener>,
}

impl Server {
    /// Listens on the addresses in the settings.
    ///
    /// # Errors
    ///
    /// If an address is in use, not on this machine, or not allowed.
    pub async fn bind(app: Arc<App>) -> Result<Self, StartError> {
        let (mut sockets, mut addresses) = (Vec::new(), Vec::new());
        for wanted in app.settings().listen.addresses() {
            let failed = |error: std::io::Error| cannot_listen(wanted, &error);
            let socket = Socket::bind(wanted, app.settings().listen_mode).map_err(failed)?;
            addresses.push(socket.address().map_err(failed)?);
            sockets.push(socket);
        }
        let envoy = EnvoyListener::bind(&app)?;
        let resp = resp::Listener::bind(&app)?;
        Ok(Self { app, sockets, addresses, workers: Workers::start()?, envoy, resp })
    }

    /// Where it listens, with the real port if port 0 was requested.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Where clients of Redis connect, if they may.
    #[must_use]
    pub fn resp_address(&self) -> Option<SocketAddr> {
        self.resp.as_ref().map(resp::Listener::address)
    }

    /// The first of its addresses with a port; 0.0.0.0:0 if it listens on Unix sockets alone.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        let tcp = self.addresses.iter().find_map(|address| match address {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        });
        tcp.unwrap_or(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    }

    /// The address at which Envoy asks, if its rate limit service is served.
    #[must_use]
    pub fn envoy_address(&self) -> Option<&Address> {
        self.envoy.as_ref().map(EnvoyListener::address)
    }

    /// Serves until `stop` is ready, and shuts down gracefully:
    ///
    /// 1. For the time in the setting `notice`, `/readyz` answers 503 and everything
    ///    else is served as before.
    /// 2. For the time in `drain`, each response is the last on its connection.
    /// 3. Then no new connections are accepted. Requests that were sent are answered,
    ///    up to the time in `grace`, and idle connections are closed.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { app, sockets, workers, envoy, resp, .. } = self;
        app.start();
        let resp = resp.and_then(|listener| {
            let failed = |error| tracing::error!(%error, "cannot serve clients of [resp]");
            listener.serve(&app).map_err(failed).ok()
        });
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
        let reception =
            Arc::new(Reception { app: Arc::clone(&app), watch: Arc::clone(&watch), workers, router, stopped });
        // Each accepts until the stage `Closing`, and ends when its listener is closed.
        let mut receiving = JoinSet::new();
        for socket in sockets {
            receiving.spawn(Arc::clone(&reception).receive(socket, app.stages().subscribe()));
        }
        let envoy = envoy.map(|envoy| tokio::spawn(envoy.run()));
        stop.await;
        app.stages().begin(Stage::Notice);
        tokio::time::sleep(settings.notice).await;
        app.stages().begin(Stage::Draining);
        tokio::time::sleep(settings.drain).await;
        app.stages().begin(Stage::Closing);
        receiving.join_all().await;
        // No new connections, and the open ones end.
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
        if let Some(envoy) = envoy {
            // Ends after the grace period at the latest.
            _ = envoy.await;
        }
        if let Some(threads) = resp {
            // They end by themselves, within the same time.
            _ = tokio::task::spawn_blocking(|| threads.join()).await;
        }
        watcher.abort();
        // At the very end, when nothing can be charged any more.
        let last = move || {
            app.control().save_budgets();
            app.write_report();
            app.access_log().into_iter().for_each(AccessLog::flush);
        };
        _ = tokio::task::spawn_blocking(last).await;
    }
}

/// What is wrong with an address to listen on, and what to do.
pub(crate) fn cannot_listen(wanted: &Address, error: &std::io::Error) -> StartError {
    let advice = match (wanted, error.kind()) {
        (Address::Tcp(_), std::io::ErrorKind::AddrInUse) => {
            "another program uses it; stop that one, or choose another port with --listen"
        }
        (Address::Unix(_), std::io::ErrorKind::AddrInUse) => {
            "another program listens there; stop that one, or choose another path with --listen"
        }
        (Address::Unix(_), std::io::ErrorKind::NotFound) => "create its directory first",
        (Address::Unix(_), std::io::ErrorKind::PermissionDenied) => {
            "this user may not create files there; choose another directory"
        }
        (Address::Unix(_), _) => "choose another path with --listen",
        (_, std::io::ErrorKind::AddrNotAvailable) => "this machine does not have that address; choose another",
        (_, std::io::ErrorKind::PermissionDenied) => "ports below 1024 need privileges; choose a higher one",
        _ => "choose another address with --listen",
    };
    StartError::new(format!("cannot listen on {wanted}: {error}; {advice}"))
}

/// What is needed to take a connection.
struct Reception {
    app: Arc<App>,
    watch: Arc<Watch>,
    workers: Workers,
    router: Router,
    stopped: watch::Receiver<bool>,
}

impl Reception {
    /// Accepts connections until the server closes its listeners.
    async fn receive(self: Arc<Self>, socket: Socket, mut stop: Stop) {
        loop {
            tokio::select! {
                biased;
                () = stop.reaches(Stage::Closing) => break,
                accepted = self.accept(&socket) => accepted.into_iter().for_each(|accepted| self.take(accepted)),
            }
        }
        self.accept_waiting(socket.hidden()).await;
    }

    /// A connection that cannot be handed over, or whose address has reached its bound, is closed.
    fn take(&self, (stream, peer): (Accepted, SocketAddr)) {
        let address = match &stream {
            Accepted::Tcp(_) => Some(peer.ip()),
            // Whoever may use the file may use all of it: often that is one proxy.
            Accepted::Unix(_) => None,
        };
        if let Some(registration) = self.watch.register(address) {
            let (app, router) = (Arc::clone(&self.app), self.router.clone());
            let (stop, stopped) = (app.stages().subscribe(), self.stopped.clone());
            let kind = match &stream {
                Accepted::Tcp(_) if app.tls().is_some() => ListenerKind::Tls,
                Accepted::Tcp(_) => ListenerKind::Tcp,
                Accepted::Unix(_) => ListenerKind::Unix,
            };
            let open = OpenConnection::new(app.meter(), kind);
            let connection = Connection { app, router, peer, stop, stopped, open };
            self.workers.take(Arrival { connection, stream, registration });
        }
    }

    /// Accepts the connections that are already waiting, as long as there is room.
    async fn accept_waiting(&self, socket: Socket) {
        for _ in 0..BACKLOG {
            // Within that time the runtime notices a waiting connection.
            let next = tokio::time::timeout(Duration::from_millis(1), socket.accept());
            match next.await {
                Ok(Ok(accepted)) if self.watch.has_room() => self.take(accepted),
                _ => break,
            }
        }
    }

    async fn accept(&self, socket: &Socket) -> Option<(Accepted, SocketAddr)> {
        self.watch.wait_for_room().await;
        match socket.accept().await {
            Ok(accepted) => Some(accepted),
            Err(error) => {
                // A client that has gone away already is not our problem. Otherwise no more
                // files can be opened, and all we can do is wait.
                use std::io::ErrorKind::{ConnectionAborted, ConnectionReset};
                if !matches!(error.kind(), ConnectionAborted | ConnectionReset) {
                    tracing::warn!(%error, "cannot accept connections");
                    self.watch.make_room();
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                None
            }
        }
    }
}

/// The bounds on connections. One address may have a quarter of all, so that no
/// client takes them all; on loopback it may, because every client is on this machine.
fn bounds(settings: &Settings) -> Bounds {
    let connections = connections_max(settings.max_connections);
    let default = if settings.listen.is_local() { connections } else { connections.div_ceil(4) };
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
