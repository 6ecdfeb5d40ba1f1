//! The bodies of a request and its response, as they are received and sent.

use super::multiplex::Exchange;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The body of a request. Its connection knows whether more of it is awaited.
pub(super) struct RequestBody {
    /// Until this is dropped.
    body: Option<Incoming>,
    exchange: Exchange,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, exchange: Exchange) -> Self {
        Self { body: Some(body), exchange }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { body: Some(body), exchange } = &mut *self else { return Poll::Ready(None) };
        let polled = Pin::new(&mut *body).poll_frame(cx);
        match &polled {
            Poll::Pending => exchange.on_body_pending(),
            Poll::Ready(None) => exchange.on_body_complete(),
            Poll::Ready(Some(Ok(_))) if body.is_end_stream() => exchange.on_body_complete(),
            Poll::Ready(Some(_)) => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take().filter(|body| !body.is_end_stream()) {
            self.exchange.leave_unread(body);
        }
    }
}

/// How much of a response is passed on at once, because it is copied.
const PIECE_BYTES: usize = 16 * 1024;

/// The body of a response, in pieces. Its connection knows when the last one is taken.
pub(super) struct ResponseBody {
    body: Body,
    /// The rest of the last frame.
    rest: Bytes,
    exchange: Exchange,
}

impl ResponseBody {
    pub(super) fn new(body: Body, exchange: Exchange) -> Self {
        Self { body, rest: Bytes::new(), exchange }
    }
}

impl HttpBody for ResponseBody {
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
        self.exchange.on_piece();
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

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.exchange.on_response_sent();
    }
}
