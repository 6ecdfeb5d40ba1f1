//! The service that the layer builds.

use crate::body::ResponseBody;
use crate::future::ResponseFuture;
use http::{Request, Response};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use tollgate_gate::{Gate, Head, Ruling};
use tower_service::Service;

/// A service whose requests are limited; built by [`TollgateLayer`](crate::TollgateLayer).
///
/// It decides from the head of a request. A refused request is answered at once:
/// its body is never read and the inner service never called.
#[derive(Clone)]
pub struct Tollgate<S> {
    inner: S,
    gate: Arc<Gate>,
}

impl<S> Tollgate<S> {
    pub(crate) fn new(inner: S, gate: Arc<Gate>) -> Self {
        Self { inner, gate }
    }
}

impl<S, B, R> Service<Request<B>> for Tollgate<S>
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.gate.rule(&Head::from(&request)) {
            Ruling::Pass(headers) => {
                let headers = headers.map(|headers| (Arc::clone(&self.gate), headers));
                ResponseFuture::service(self.inner.call(request), headers)
            }
            Ruling::Answer(response) => ResponseFuture::layer(response),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Tollgate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tollgate").field("inner", &self.inner).finish_non_exhaustive()
    }
}
