//! The future of a response: the service's with headers added, or the layer's own.

use crate::body::ResponseBody;

use bytes::Bytes;
use http::Response;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tollgate_gate::{Gate, LimitHeaders};

pin_project! {
    /// The response of a [`Tollgate`](crate::Tollgate) service.
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<F> {
        Service { #[pin] future: F, headers: Option<(Arc<Gate>, LimitHeaders)> },
        Layer { response: Option<Response<Bytes>> },
    }
}

impl<F> ResponseFuture<F> {
    pub(crate) fn service(future: F, headers: Option<(Arc<Gate>, LimitHeaders)>) -> Self {
        Self { state: State::Service { future, headers } }
    }

    pub(crate) fn layer(response: Response<Bytes>) -> Self {
        Self { state: State::Layer { response: Some(response) } }
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            Projected::Service { future, headers } => {
                let mut response = ready!(future.poll(cx))?.map(ResponseBody::service);
                if let Some((gate, limit)) = headers {
                    gate.write_headers(response.headers_mut(), limit);
                }
                Poll::Ready(Ok(response))
            }
            Projected::Layer { response } => {
                // A future must not be polled once it is ready.
                let response = response.take().expect("a future that has not completed");
                Poll::Ready(Ok(response.map(ResponseBody::layer)))
            }
        }
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
