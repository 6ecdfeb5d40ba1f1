//! The bodies of a request and its answer, as they come and go.

use super::line::Line;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// The body of a request. Its connection knows whether the rest is waited for.
pub(super) struct Arriving {
    body: Incoming,
    line: Arc<Line>,
}

impl Arriving {
    pub(super) fn new(body: Incoming, line: Arc<Line>) -> Self {
        Self { body, line }
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Pending => self.line.awaits_body(),
            Poll::Ready(None) => self.line.body_came(),
            Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => self.line.body_came(),
            Poll::Ready(Some(_)) => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// How much of an answer is handed on at once: what is handed on is copied.
const PIECE_BYTES: usize = 16 * 1024;

/// The body of an answer, in pieces. Its connection knows when the last is taken.
pub(super) struct Leaving {
    body: Body,
    /// What is left of the frame that came last.
    rest: Bytes,
    line: Arc<Line>,
}

impl Leaving {
    pub(super) fn new(body: Body, line: Arc<Line>) -> Self {
        Self { body, rest: Bytes::new(), line }
    }
}

impl HttpBody for Leaving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let piece = self.rest.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.line.sent();
    }
}
