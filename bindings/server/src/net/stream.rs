//! The stream of a connection that is watched.
//!
//! A request may be answered before all of it has come: its body is too long,
//! its token wrong. Were the connection closed with that, the system would
//! throw away the answer together with what nobody had read, and the client
//! would see a reset. So a connection that leaves says that it will write no
//! more, and reads until its client has closed it too, within bounds. When the
//! server stops, it does not wait for that.
//!
//! A connection that waits for a request when the server stops is read to its
//! end: what has come is served, and then nothing more comes for it.

use super::line::{Line, Phase};
use rustix::net::RecvFlags;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How much of what nobody wants is read at once, how often in a row before others have their
/// turn, and how much of it in all.
const UNREAD_BYTES: usize = 8 * 1024;
const UNREAD_READS: usize = 4;
const UNREAD_BYTES_MAX: usize = 64 << 20;

/// Whether something was sent that nobody has read.
pub(super) trait Peek {
    fn has_unread(&self) -> bool;
}

impl Peek for TcpStream {
    /// Asks the system: the runtime knows of what has come a little later.
    fn has_unread(&self) -> bool {
        let mut byte = [0; 1];
        rustix::net::recv(self, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT).is_ok_and(|(_, bytes)| bytes > 0)
    }
}

/// A stream whose connection is watched.
pub(super) struct Watched<S> {
    stream: S,
    line: Arc<Line>,
    /// Whether the client will write no more.
    is_over: bool,
    /// How much was read since the connection leaves.
    unread: usize,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, line: Arc<Line>) -> Self {
        Self { stream, line, is_over: false, unread: 0 }
    }
}

impl<S: AsyncRead + Peek + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.line.heard();
        } else if polled.is_ready() && buffer.remaining() > 0 {
            self.is_over = true;
        }
        let is_last = polled.is_pending() && self.line.stops() && self.line.state().0 == Phase::Waiting;
        // What is there unread wakes the task.
        if is_last && !self.stream.has_unread() { Poll::Ready(Ok(())) } else { polled }
    }
}

impl<S: AsyncWrite + Unpin> Watched<S> {
    fn note(&self, polled: Poll<std::io::Result<usize>>) -> Poll<std::io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(1..)) => self.line.written(),
            Poll::Pending => self.line.stuck(),
            Poll::Ready(_) => {}
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Peek + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.note(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.note(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.line.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.line.state().0 != Phase::Leaving {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.line.enter(Phase::Leaving);
        }
        let mut unread = [0; UNREAD_BYTES];
        for _ in 0..UNREAD_READS {
            if self.is_over || self.unread > UNREAD_BYTES_MAX || self.line.stops() {
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

    /// Writes all the time. Counts what is read of it.
    struct Endless(usize);

    impl Peek for Endless {
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

    /// Else the task would not come to hear that the server stops.
    #[test]
    fn a_client_that_writes_all_the_time_gets_a_few_turns_at_once_and_an_end() {
        let watch = watch(10);
        let registration = watch.register(PEER).unwrap();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut leaving = Watched::new(Endless(0), Arc::clone(registration.line()));
        let mut polls = 0;
        while Pin::new(&mut leaving).poll_shutdown(&mut cx).is_pending() {
            polls += 1;
            assert_eq!(leaving.stream.0, polls * UNREAD_READS * UNREAD_BYTES);
            assert_eq!(registration.line().state().0, Phase::Leaving);
        }
        assert_eq!(polls, UNREAD_BYTES_MAX / (UNREAD_READS * UNREAD_BYTES));
        let mut leaving = Watched::new(Endless(0), Arc::clone(registration.line()));
        assert!(Pin::new(&mut leaving).poll_shutdown(&mut cx).is_pending());
        registration.line().stop();
        assert!(Pin::new(&mut leaving).poll_shutdown(&mut cx).is_ready());
    }
}
