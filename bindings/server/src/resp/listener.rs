//! Where clients of Redis connect, and the threads that serve them.

use super::worker::{Rules, WAKER, Worker};
use crate::address::Address;
use crate::app::App;
use crate::error::StartError;
use crate::net::listener::cannot_listen;
use crate::settings::RespSettings;
use mio::{Poll, Waker};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tollgate::{LaneId, Policy};

/// A listener that nobody serves yet.
pub(crate) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    rules: Rules,
}

/// The threads that serve clients. They end with the stage `Closing`.
pub(crate) struct Threads(Vec<(Arc<Waker>, JoinHandle<()>)>);

impl Listener {
    /// Listens, if the settings say so.
    ///
    /// # Errors
    ///
    /// If the address cannot be used, or the policy has no such dynamic lane.
    pub(crate) fn bind(app: &App) -> Result<Option<Self>, StartError> {
        let settings = app.settings();
        let Some(resp) = &settings.resp else { return Ok(None) };
        let lane = lane_of(&app.limiter().policy(), resp)?;
        let wanted = resp.listen;
        let failed = |error: std::io::Error| cannot_listen(&Address::Tcp(wanted), &error);
        let socket = TcpListener::bind(wanted).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let is_local = address.ip().is_loopback();
        let rules = Rules {
            lane,
            is_open: settings
                .open_checks
                .unwrap_or(is_local && settings.check_token.is_none() && settings.tokens.is_empty()),
            clients_max: resp.max_connections,
            idle: resp.idle_timeout,
            busy: settings.body_timeout,
            grace: settings.grace,
        };
        Ok(Some(Self { socket, address, rules }))
    }

    /// Where it listens, with the real port if port 0 was requested.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts a thread for each processor.
    pub(crate) fn serve(self, app: &Arc<App>) -> std::io::Result<Threads> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |_| {
            let poll = Poll::new()?;
            let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
            let listener = mio::net::TcpListener::from_std(self.socket.try_clone()?);
            let worker = Worker::new(Arc::clone(app), self.rules.clone(), poll, listener)?;
            let thread = std::thread::Builder::new().name("tollgate-resp".to_owned()).spawn(|| worker.run())?;
            Ok((waker, thread))
        };
        (0..count).map(start).collect::<Result<_, _>>().map(Threads)
    }
}

impl Threads {
    /// Waits for the end of all threads, after the stage `Closing` has begun: each takes up to the time in `grace`.
    pub(crate) fn join(self) {
        for (waker, _) in &self.0 {
            // Without it, they notice within a second.
            _ = waker.wake();
        }
        for (_, thread) in self.0 {
            if thread.join().is_err() {
                tracing::error!("a thread of [resp] has panicked");
            }
        }
    }
}

/// The lane that is charged: the one in the settings, or the only dynamic one.
fn lane_of(policy: &Policy, settings: &RespSettings) -> Result<LaneId, StartError> {
    let is_dynamic = |lane: &LaneId| policy.limit(*lane).is_some_and(|limit| limit.is_dynamic());
    let example = "such as \"redis\" = \"dynamic\" under [lanes]";
    let Some(name) = &settings.lane else {
        let mut dynamic = policy.lanes().map(|(lane, _)| lane).filter(is_dynamic);
        return match (dynamic.next(), dynamic.next()) {
            (Some(only), None) => Ok(only),
            (None, _) => Err(StartError::new(format!("[resp] needs a dynamic lane in the policy, {example}"))),
            _ => Err(StartError::new("the policy has several dynamic lanes; name one as lane in [resp]")),
        };
    };
    match policy.lane(name) {
        Some(lane) if is_dynamic(&lane) => Ok(lane),
        Some(_) => Err(StartError::new(format!("[resp] lane = {name:?} is not dynamic; name a lane {example}"))),
        None => Err(StartError::new(format!("[resp] lane = {name:?} is not in the policy; add it, {example}"))),
    }
}

/// How long a client may be silent, by default.
pub(crate) const IDLE: Duration = Duration::from_secs(300);

/// How many clients there may be, by default.
pub(crate) const CLIENTS_MAX: usize = 10_000;
