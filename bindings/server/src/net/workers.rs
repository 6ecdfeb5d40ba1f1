//! The threads that serve connections.
//!
//! Each has its own runtime, and a connection stays with its thread. So a request
//! wakes no other thread, which would cost more than deciding it: in a runtime that
//! threads share, each thread that finds work first wakes another to look for more.

use super::connection::Connection;
use super::socket::Accepted;
use super::watch::Registration;
use crate::error::StartError;
use std::sync::Arc;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// An accepted connection.
pub(super) struct Arrival {
    pub(super) connection: Connection,
    pub(super) stream: Accepted,
    pub(super) registration: Registration,
}

struct Worker {
    /// Bounded by the number of connections.
    arrivals: UnboundedSender<(Arrival, Arc<()>)>,
    /// Every connection of the thread has a clone of it.
    load: Arc<()>,
}

/// All threads. They end when this is dropped.
pub(super) struct Workers(Vec<Worker>);

impl Workers {
    /// Starts a thread for each processor.
    ///
    /// # Errors
    ///
    /// If the system starts no more threads.
    pub(super) fn start() -> Result<Self, StartError> {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        (0..count).map(|_| Worker::start()).collect::<Result<_, _>>().map(Self)
    }

    /// Gives a connection to the thread with the fewest.
    pub(super) fn take(&self, arrival: Arrival) {
        let idlest = self.0.iter().min_by_key(|worker| Arc::strong_count(&worker.load));
        if let Some(worker) = idlest {
            // If the thread is gone, the connection is closed.
            _ = worker.arrivals.send((arrival, Arc::clone(&worker.load)));
        }
    }
}

impl Worker {
    fn start() -> Result<Self, StartError> {
        let failed = |error: std::io::Error| StartError::new(format!("cannot start threads: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (arrivals, receiver) = unbounded_channel();
        let serve = move || {
            runtime.block_on(serve_all(receiver));
            // Pending work, such as a change that waits for the disk, is not waited for.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("tollgate-serve".to_owned()).spawn(serve).map_err(failed)?;
        Ok(Self { arrivals, load: Arc::new(()) })
    }
}

/// Ends when all senders are gone.
async fn serve_all(mut arrivals: UnboundedReceiver<(Arrival, Arc<()>)>) {
    while let Some((Arrival { connection, stream, registration }, load)) = arrivals.recv().await {
        tokio::spawn(async move {
            // A stream has to be registered with the runtime of its thread.
            match stream {
                Accepted::Tcp(stream) => {
                    if let Ok(stream) = TcpStream::from_std(stream) {
                        // Responses are short; delaying one to send more with it only makes it late.
                        _ = stream.set_nodelay(true);
                        match connection.app.tls().cloned() {
                            Some(tls) => connection.serve_tls(&tls, stream, registration).await,
                            None => connection.serve_plain(stream, registration).await,
                        }
                    }
                }
                // The system says who may use a Unix socket, and nobody can listen in.
                Accepted::Unix(stream) => {
                    if let Ok(stream) = UnixStream::from_std(stream) {
                        connection.serve_plain(stream, registration).await;
                    }
                }
            }
            drop(load);
        });
    }
}
