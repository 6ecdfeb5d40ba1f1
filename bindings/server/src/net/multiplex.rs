//! The requests of a connection, one after the other or, in HTTP/2, several at once.
//!
//! Without streams the connection's own progress says how far its request is. A stream of
//! HTTP/2 counts for some memory as long as it is open, so that streams cannot be opened
//! without bound: beyond that a request is refused, and the connections that have had
//! bytes in flight for longest are ended (`flight.rs`).

use super::progress::Progress;
use axum::body::HttpBody as _;
use hyper::body::Incoming;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;

/// What an open stream takes without its body and response: its task, its buffers.
const STREAM_BYTES: usize = 4 * 1024;

/// How much of an unread body is read once its response is sent, and for how long.
const UNREAD_BYTES_MAX: usize = 128 * 1024;
const UNREAD_TIME_MAX: Duration = Duration::from_secs(1);

/// A request and its response.
#[derive(Clone)]
pub(crate) struct Exchange {
    progress: Arc<Progress>,
    /// In HTTP/2.
    stream: Option<Arc<Stream>>,
}

/// A stream, open until the last use of it is dropped.
struct Stream {
    progress: Arc<Progress>,
    bytes: AtomicUsize,
    /// The rest of a body that nobody reads. If it were dropped before the response is sent, the library would
    /// cancel both.
    unread: Mutex<Option<Incoming>>,
}

impl Exchange {
    /// The present request of a connection that has one at a time.
    pub(super) fn only(progress: &Arc<Progress>) -> Self {
        Self { progress: Arc::clone(progress), stream: None }
    }

    /// A request among others. `None` if there are too many.
    pub(super) fn among_others(progress: &Arc<Progress>) -> Option<Self> {
        let is_open = progress.open_stream(STREAM_BYTES);
        is_open.then(|| {
            let (progress, bytes) = (Arc::clone(progress), AtomicUsize::new(STREAM_BYTES));
            let stream = Stream { progress, bytes, unread: Mutex::default() };
            Self { progress: Arc::clone(&stream.progress), stream: Some(Arc::new(stream)) }
        })
    }

    /// The head has arrived.
    pub(super) fn on_request(&self, has_body: bool) {
        if self.stream.is_none() {
            self.progress.on_request(has_body);
        }
    }

    /// The rest of the body is awaited.
    pub(super) fn on_body_pending(&self) {
        if self.stream.is_none() {
            self.progress.on_body_pending();
        }
    }

    /// All of the body has arrived.
    pub(super) fn on_body_complete(&self) {
        match self.stream {
            None => self.progress.on_body_complete(),
            Some(_) => self.progress.on_stream_activity(),
        }
    }

    /// Nobody reads the rest of the body.
    pub(super) fn leave_unread(&self, body: Incoming) {
        if let Some(stream) = &self.stream {
            *stream.unread.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        }
    }

    /// Whether the connection can be used further without all of the request being read.
    pub(super) fn is_whole(&self) -> bool {
        self.stream.is_some() || self.progress.is_whole()
    }

    /// The response is ready to be sent.
    pub(super) fn on_response(&self) {
        match self.stream {
            None => self.progress.on_response(),
            Some(_) => self.progress.on_stream_activity(),
        }
    }

    /// Some of the response is taken.
    pub(super) fn on_piece(&self) {
        if self.stream.is_some() {
            self.progress.on_stream_activity();
        }
    }

    /// All of the response is written or buffered.
    pub(super) fn on_response_sent(&self) {
        if self.stream.is_none() {
            self.progress.on_response_sent();
        }
    }

    /// Sets how many bytes it has in flight. Returns false, and changes nothing, if there is no room for them.
    pub(super) fn set_in_flight(&self, bytes: usize) -> bool {
        let Some(stream) = &self.stream else { return self.progress.set_in_flight(bytes) };
        let bytes = bytes.saturating_add(STREAM_BYTES);
        let fits = self.progress.resize_stream(stream.bytes.load(Relaxed), bytes);
        if fits {
            stream.bytes.store(bytes, Relaxed);
        }
        fits
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.progress.close_stream(*self.bytes.get_mut());
        let unread = self.unread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(body), Ok(runtime)) = (unread, Handle::try_current()) {
            runtime.spawn(tokio::time::timeout(UNREAD_TIME_MAX, read_on(body)));
        }
    }
}

/// Reads the rest of a body that nobody wants, up to a bound. Then the library resets the stream: before the client
/// has sent everything some clients, curl among them, take that for a failure and discard the response.
async fn read_on(mut body: Incoming) {
    let mut bytes = 0;
    while let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        bytes += frame.data_ref().map_or(0, bytes::Bytes::len);
        if bytes > UNREAD_BYTES_MAX {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::progress::Phase;
    use super::super::watch::tests::watch;
    use super::*;

    const PEER: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const MIB: usize = 1 << 20;

    #[test]
    fn a_connection_serves_while_it_has_a_stream() {
        let watch = watch(10);
        let registration = watch.register(PEER).unwrap();
        let progress = registration.progress();
        progress.multiplex();
        progress.on_read();
        assert_eq!(progress.phase().0, Phase::Idle, "a ping is no request");
        let [one, two] = [(), ()].map(|()| Exchange::among_others(progress).unwrap());
        one.on_request(true);
        assert!(one.is_whole(), "the rest of one body does not stand in the way of another request");
        assert_eq!(progress.phase().0, Phase::Serving);
        let body = one.clone();
        drop((one, two));
        assert_eq!(progress.phase().0, Phase::Serving, "a body is still being read");
        drop(body);
        assert_eq!(progress.phase().0, Phase::Idle);
    }

    /// Each takes little, and nothing else bounds how many there are of all connections.
    #[test]
    fn streams_count_for_memory() {
        let watch = watch(10);
        let kept: Vec<_> = (0..10).map(|_| watch.register(PEER).unwrap()).collect();
        let mut streams = Vec::new();
        for one in &kept {
            one.progress().multiplex();
            streams.extend((0..200).map_while(|_| Exchange::among_others(one.progress())));
        }
        // Of 4 MiB. What a connection may keep uncounted is not counted.
        assert!((1_000..1_100).contains(&streams.len()), "{}", streams.len());
        let other = watch.register(std::net::IpAddr::from([192, 0, 2, 7])).unwrap();
        assert!(Exchange::among_others(other.progress()).is_some(), "a connection that has none may have some");
        drop(streams);
        let one = Exchange::among_others(kept[0].progress()).unwrap();
        assert!(one.set_in_flight(3 * MIB) && !one.set_in_flight(5 * MIB) && one.set_in_flight(0));
        let two = Exchange::among_others(kept[0].progress()).unwrap();
        assert!(two.set_in_flight(3 * MIB) && !one.set_in_flight(2 * MIB), "both are of one connection");
    }
}
