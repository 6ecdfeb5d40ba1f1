//! The body of a response: the service's own, or ours.

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll};

pin_project! {
    /// The body of a response that went through a [`Tollgate`](crate::Tollgate) service.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        source: Source<B>,
    }
}

pin_project! {
    #[project = Projected]
    #[derive(Debug)]
    enum Source<B> {
        Service { #[pin] body: B },
        // What is still to be sent.
        Layer { text: Bytes },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn service(body: B) -> Self {
        Self { source: Source::Service { body } }
    }

    pub(crate) fn layer(text: Bytes) -> Self {
        Self { source: Source::Layer { text } }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().source.project() {
            Projected::Service { body } => body.poll_frame(cx),
            Projected::Layer { text } if text.is_empty() => Poll::Ready(None),
            Projected::Layer { text } => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Service { body } => body.is_end_stream(),
            Source::Layer { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Service { body } => body.size_hint(),
            Source::Layer { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}
