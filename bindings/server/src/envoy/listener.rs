//! Connections of Envoy, over HTTP/2 without TLS.
//!
//! They are few, and each carries many calls at once. As with HTTP, a connection stays with its thread, so that a call
//! wakes no other one.

use super::{Envoy, service};
use crate::address::Address;
use crate::app::App;
use crate::error::StartError;
use crate::net::socket::{Accepted, Socket};
use crate::net::stages::Stage;
use crate::settings::Settings;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many calls a connection may have open at once: all that an Envoy of many thousand requests a second has.
const STREAMS_MAX: u32 = 1_024;

/// How many bytes of calls a connection may send ahead, and one call.
const CONNECTION_WINDOW: u32 = 1 << 20;
const STREAM_WINDOW: u32 = super::frame::MESSAGE_BYTES_MAX as u32;

/// How many bytes the headers of a call may have.
const HEAD_BYTES_MAX: u32 = 16 * 1024;

/// How often a silent client is asked whether it is there, and how long it may take.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// A listener that accepts nobody yet.
pub(crate) struct EnvoyListener {
    app: Arc<App>,
    envoy: Arc<Envoy>,
    socket: Socket,
    address: Address,
    /// Whether calls need no token.
    is_open: bool,
}

/// A connection that was accepted.
struct Arrival {
    app: Arc<App>,
    envoy: Arc<Envoy>,
    is_open: bool,
    stream: Accepted,
    peer: SocketAddr,
    /// Given back when the connection ends.
    permit: OwnedSemaphorePermit,
}

impl EnvoyListener {
    /// Listens, if the settings say so.
    ///
    /// # Errors
    ///
    /// If the address cannot be had, or if everybody who reaches it could spend the limits.
    pub(crate) fn bind(app: &Arc<App>) -> Result<Option<Self>, StartError> {
        let Some(envoy) = app.envoy() else { return Ok(None) };
        let (settings, wanted) = (app.settings(), &envoy.settings().listen);
        let is_open = is_open(settings, wanted)?;
        let failed = |error: std::io::Error| {
            StartError::new(format!(
                "cannot listen for Envoy on {wanted}: {error}; choose another address with --envoy"
            ))
        };
        let socket = Socket::bind(wanted, settings.listen_mode).map_err(failed)?;
        let address = socket.address().map_err(failed)?;
        Ok(Some(Self { app: Arc::clone(app), envoy: Arc::clone(envoy), socket, address, is_open }))
    }

    /// The address, with the real port if port 0 was requested.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Serves until the server closes its listeners, and then until every call that was sent is answered or the time
    /// is up.
    pub(crate) async fn run(self) {
        let Self { app, envoy, socket, is_open, .. } = self;
        let most = envoy.settings().max_connections;
        let (permits, threads) = (Arc::new(Semaphore::new(most)), Threads::start());
        let (mut stop, mut was_full) = (app.stages().subscribe(), false);
        // Ends when the server closes its listeners.
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.reaches(Stage::Closing) => break,
                accepted = socket.accept() => accepted,
            };
            match accepted {
                // Without a permit it is closed: others may come once there are fewer.
                Ok((stream, peer)) => {
                    if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
                        let (app, envoy) = (Arc::clone(&app), Arc::clone(&envoy));
                        threads.take(Arrival { app, envoy, is_open, stream, peer, permit });
                    } else if !std::mem::replace(&mut was_full, true) {
                        tracing::warn!(max = most, "the bound on connections of Envoy was reached; more are closed");
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections of Envoy");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(socket);
        let all = u32::try_from(most).unwrap_or(u32::MAX);
        if tokio::time::timeout(app.settings().grace, permits.acquire_many(all)).await.is_err() {
            tracing::warn!("connections of Envoy were still busy after the grace period and are cut off");
        }
    }
}

/// Whether calls at this address need no token.
///
/// # Errors
///
/// If they need one, and there is none.
pub(crate) fn is_open(settings: &Settings, listen: &Address) -> Result<bool, StartError> {
    let has_token = settings.check_token.is_some() || !settings.tokens.is_empty();
    let is_open = settings.open_checks.unwrap_or(listen.is_local() && !has_token);
    if !is_open && !has_token && settings.admin_token.is_none() {
        return Err(StartError::new(format!(
            "envoy.listen: other machines reach {listen}, and there is no check token; set check_token_file in \
             [server], or open_checks = true if only Envoy reaches it"
        )));
    }
    Ok(is_open)
}

/// The threads that serve connections, in turn. They end when this is dropped.
struct Threads {
    /// Bounded by the number of connections.
    arrivals: Vec<UnboundedSender<Arrival>>,
    next: AtomicUsize,
}

impl Threads {
    fn start() -> Self {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |_| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            let (arrivals, receiver) = unbounded_channel();
            let serve = move || {
                runtime.block_on(serve_all(receiver));
                runtime.shutdown_background();
            };
            std::thread::Builder::new().name("tollgate-envoy".to_owned()).spawn(serve).ok()?;
            Some(arrivals)
        };
        let arrivals: Vec<_> = (0..count).filter_map(start).collect();
        if arrivals.is_empty() {
            tracing::error!("no thread could be started for Envoy; its connections are closed");
        }
        Self { arrivals, next: 0.into() }
    }

    fn take(&self, arrival: Arrival) {
        let next = self.next.fetch_add(1, Relaxed);
        if let Some(arrivals) = self.arrivals.get(next % self.arrivals.len().max(1)) {
            // If the thread is gone, the connection is closed.
            _ = arrivals.send(arrival);
        }
    }
}

/// Ends when all senders are gone.
async fn serve_all(mut arrivals: UnboundedReceiver<Arrival>) {
    while let Some(arrival) = arrivals.recv().await {
        tokio::spawn(arrival.serve());
    }
}

impl Arrival {
    async fn serve(self) {
        let (app, permit) = (Arc::clone(&self.app), self.permit);
        let Self { envoy, is_open, stream, peer, .. } = self;
        // A stream has to be registered with the runtime of its thread.
        match stream {
            Accepted::Tcp(stream) => {
                let Ok(stream) = TcpStream::from_std(stream) else { return };
                _ = stream.set_nodelay(true);
                serve(app, envoy, is_open, peer, stream).await;
            }
            Accepted::Unix(stream) => {
                let Ok(stream) = UnixStream::from_std(stream) else { return };
                serve(app, envoy, is_open, peer, stream).await;
            }
        }
        drop(permit);
    }
}

/// Serves a connection to its end.
async fn serve(
    app: Arc<App>,
    envoy: Arc<Envoy>,
    is_open: bool,
    peer: SocketAddr,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
) {
    let mut stop = app.stages().subscribe();
    // Each connection is asked once to go elsewhere. One that comes later stays until the listener closes.
    let last = if app.stages().has_begun(Stage::Draining) { Stage::Closing } else { Stage::Draining };
    let mut first_call = pin!(tokio::time::sleep(app.settings().head_timeout));
    let has_called = AtomicBool::new(false);
    let service = service_fn(|request| {
        has_called.store(true, Relaxed);
        let (app, envoy) = (Arc::clone(&app), Arc::clone(&envoy));
        async move { Ok::<_, Infallible>(service::serve(&app, &envoy, is_open, peer.ip(), request).await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_stream_window_size(STREAM_WINDOW)
        .max_header_list_size(HEAD_BYTES_MAX)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let (mut is_stopping, mut is_new) = (false, true);
    // Ends with the connection: once the server stops it takes no new calls, and ends after the last answer.
    loop {
        tokio::select! {
            biased;
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, %peer, "a connection of Envoy ended");
                }
                return;
            }
            // A client that connects calls. From then on it is asked whether it is there.
            () = &mut first_call, if is_new => {
                is_new = false;
                if !has_called.load(Relaxed) {
                    return;
                }
            }
            () = stop.reaches(last), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
