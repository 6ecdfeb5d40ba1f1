//! The service that the layer makes.

use crate::body::ResponseBody;
use crate::future::ResponseFuture;
use crate::gate::{Gate, Ruling};
use crate::head::Head;
use http::{Request, Response};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A service whose requests are limited; made by [`TollgateLayer`](crate::TollgateLayer).
///
/// It decides from the head of a request. A refusal is answered at once: the
/// body is never read and the service behind never called.
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
            Ruling::Pass(told) => {
                let told = told.map(|told| (Arc::clone(&self.gate), told));
                ResponseFuture::service(self.inner.call(request), told)
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
