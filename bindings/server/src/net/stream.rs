//! The stream of a connection, which reports its progress.
//!
//! A request may be answered before all of it has arrived, because its body is too
//! long or its token wrong. If the connection were closed at once, the system would
//! discard the response together with the unread bytes, and the client would see a
//! reset. So a connection that closes first shuts down its writing side, and reads
//! until its client has closed it too, within bounds. When the server stops, it
//! does not wait for that.
//!
//! A connection that is idle when the server stops is read to its end: what has
//! arrived is served, and then the stream ends.

use super::progress::{Phase, Progress};
use bytes::{Bytes, BytesMut};
use rustix::net::RecvFlags;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// How many unwanted bytes are read at once, how many times before other tasks get their turn, and
/// how many bytes in all.
const UNREAD_BYTES: usize = 8 * 1024;
const UNREAD_READS: usize = 4;
const UNREAD_BYTES_MAX: usize = 64 << 20;

/// A stream that knows whether bytes have arrived that nobody has read.
pub(super) trait Unread {
    fn has_unread(&self) -> bool;
}

impl Unread for TcpStream {
    fn has_unread(&self) -> bool {
        has_unread(self)
    }
}

impl Unread for UnixStream {
    fn has_unread(&self) -> bool {
        has_unread(self)
    }
}

/// Asks the system, because the runtime notices a little later.
pub(super) fn has_unread(socket: impl AsFd) -> bool {
    let mut byte = [0; 1];
    rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok_and(|(_, bytes)| bytes > 0)
}

/// The stream of a connection.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unread + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unread + Unpin + Send + 'static> Stream for S {}

impl<S: Unread + ?Sized> Unread for Box<S> {
    fn has_unread(&self) -> bool {
        (**self).has_unread()
    }
}

/// How an HTTP/2 client begins, whatever it asks for.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How many bytes are read to see which protocol a client speaks: with most of them the first request.
const FIRST_BYTES: usize = 2 * 1024;

/// A stream that reports the progress of its connection.
pub(super) struct WatchedStream<S> {
    stream: S,
    /// What was read to see which protocol the client speaks.
    first: Bytes,
    progress: Arc<Progress>,
    /// Whether the client has closed its writing side.
    is_over: bool,
    /// How many bytes were read since the connection began to close.
    unread: usize,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(stream: S, progress: Arc<Progress>) -> Self {
        Self { stream, first: Bytes::new(), progress, is_over: false, unread: 0 }
    }
}

impl<S: AsyncRead + Unread + Unpin> WatchedStream<S> {
    /// Whether the client speaks HTTP/2. Waits for its first bytes, which are read once more afterwards.
    pub(super) async fn begins_http2(&mut self) -> bool {
        let mut first = BytesMut::with_capacity(FIRST_BYTES);
        // Ends: each round reads at least a byte of the preface.
        loop {
            let is_over = !matches!(self.read_buf(&mut first).await, Ok(1..));
            let known = first.len().min(PREFACE.len());
            if is_over || known == PREFACE.len() || first[..known] != PREFACE[..known] {
                let is_http2 = first.starts_with(PREFACE);
                self.first = first.freeze();
                return is_http2;
            }
        }
    }
}

impl<S: AsyncRead + Unread + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if !self.first.is_empty() {
            let bytes = self.first.len().min(buffer.remaining());
            buffer.put_slice(&self.first.split_to(bytes));
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.progress.on_read();
        } else if polled.is_ready() && buffer.remaining() > 0 {
            self.is_over = true;
        }
        let is_last = polled.is_pending() && self.progress.stops() && self.progress.phase().0 == Phase::Idle;
        // If bytes are unread, they will wake the task.
        if is_last && !self.stream.has_unread() { Poll::Ready(Ok(())) } else { polled }
    }
}

impl<S: AsyncWrite + Unpin> WatchedStream<S> {
    fn record_write(&self, polled: Poll<std::io::Result<usize>>) -> Poll<std::io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(1..)) => self.progress.on_write(),
            Poll::Pending => self.progress.on_blocked(),
            Poll::Ready(_) => {}
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unread + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.record_write(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.record_write(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.progress.on_flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.progress.phase().0 != Phase::Closing {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.progress.enter(Phase::Closing);
        }
        let mut unread = [0; UNREAD_BYTES];
        for _ in 0..UNREAD_READS {
            if self.is_over || self.unread > UNREAD_BYTES_MAX || self.progress.stops() {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut unread);
            _ = ready!(self.as_mut().poll_read(cx, &mut buffer));
            self.unread += buffer.filled().len();
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::super::watch::tests::watch;
    use super::*;

    const PEER: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// A client that never stops writing. Counts what is read of it.
    struct Endless(usize);

    impl Unread for Endless {
        fn has_unread(&self) -> bool {
            true
        }
    }

    impl AsyncRead for Endless {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            self.0 += buffer.remaining();
            buffer.advance(buffer.remaining());
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Endless {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Otherwise the task would never notice that the server stops.
    #[test]
    fn a_client_that_never_stops_writing_gets_few_reads_at_once_and_is_cut_off() {
        let watch = watch(10);
        let registration = watch.register(PEER).unwrap();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut closing = WatchedStream::new(Endless(0), Arc::clone(registration.progress()));
        let mut polls = 0;
        while Pin::new(&mut closing).poll_shutdown(&mut cx).is_pending() {
            polls += 1;
            assert_eq!(closing.stream.0, polls * UNREAD_READS * UNREAD_BYTES);
            assert_eq!(registration.progress().phase().0, Phase::Closing);
        }
        assert_eq!(polls, UNREAD_BYTES_MAX / (UNREAD_READS * UNREAD_BYTES));
        let mut closing = WatchedStream::new(Endless(0), Arc::clone(registration.progress()));
        assert!(Pin::new(&mut closing).poll_shutdown(&mut cx).is_pending());
        registration.progress().stop();
        assert!(Pin::new(&mut closing).poll_shutdown(&mut cx).is_ready());
    }
}
