//! The threads that serve connections.
//!
//! Each has a runtime of its own, and a connection stays with the thread that
//! has taken it. So a request wakes no other thread, which would cost more
//! than to decide it: in a runtime that several threads share, each that finds
//! something to do first wakes another to look for more.

use super::connection::Connection;
use super::watch::Registration;
use crate::error::StartError;
use std::net::TcpStream;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A connection that was accepted.
pub(super) struct Arrival {
    pub(super) connection: Connection,
    pub(super) stream: TcpStream,
    pub(super) registration: Registration,
}

struct Worker {
    /// Bounded by the number of connections.
    arrivals: UnboundedSender<(Arrival, Arc<()>)>,
    /// Every connection of the thread has a share in it.
    load: Arc<()>,
}

/// All of them. They end when this is dropped.
pub(super) struct Workers(Vec<Worker>);

impl Workers {
    /// Starts a thread for each processor.
    ///
    /// # Errors
    ///
    /// The system starts no more threads.
    pub(super) fn start() -> Result<Self, StartError> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        (0..count).map(|_| Worker::start()).collect::<Result<_, _>>().map(Self)
    }

    /// Gives a connection to the thread that has the fewest.
    pub(super) fn take(&self, arrival: Arrival) {
        let idlest = self.0.iter().min_by_key(|worker| Arc::strong_count(&worker.load));
        if let Some(worker) = idlest {
            // A thread that is gone serves nobody; the connection is closed.
            _ = worker.arrivals.send((arrival, Arc::clone(&worker.load)));
        }
    }
}

impl Worker {
    fn start() -> Result<Self, StartError> {
        let failed = |error: std::io::Error| StartError::new(format!("cannot start threads: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (arrivals, arrived) = unbounded_channel();
        let serve = move || {
            runtime.block_on(serve_all(arrived));
            // What is still being done, a change that waits for the disk say, is not waited for.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("tollgate-serve".to_owned()).spawn(serve).map_err(failed)?;
        Ok(Self { arrivals, load: Arc::new(()) })
    }
}

/// Ends when nobody is left who could send a connection.
async fn serve_all(mut arrived: UnboundedReceiver<(Arrival, Arc<()>)>) {
    while let Some((Arrival { connection, stream, registration }, load)) = arrived.recv().await {
        // Only a stream whose runtime is this one can be waited for here.
        if let Ok(stream) = tokio::net::TcpStream::from_std(stream) {
            tokio::spawn(async move {
                connection.serve(stream, registration).await;
                drop(load);
            });
        }
    }
}
