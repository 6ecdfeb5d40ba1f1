//! The layer and its builder.

use crate::service::Tollgate;
use std::fmt;
use std::sync::Arc;
use tollgate::Limiter;
use tollgate_gate::{Gate, GateBuilder};
use tower_layer::Layer;

/// Limits the requests to a service.
///
/// Clones share one limiter and all settings, so a layer may wrap any number of
/// services. To limit several services separately, build several layers with one
/// limiter and different lanes.
#[derive(Clone)]
pub struct TollgateLayer {
    gate: Arc<Gate>,
}

/// Builds a [`TollgateLayer`]; [`build`](GateBuilder::build) checks everything.
pub type TollgateLayerBuilder = GateBuilder<TollgateLayer>;

impl TollgateLayer {
    /// Starts a layer over a limiter, owned or shared in an `Arc`.
    pub fn builder(limiter: impl Into<Arc<Limiter>>) -> TollgateLayerBuilder {
        GateBuilder::new(limiter)
    }
}

impl From<Gate> for TollgateLayer {
    fn from(gate: Gate) -> Self {
        Self { gate: Arc::new(gate) }
    }
}

impl<S> Layer<S> for TollgateLayer {
    type Service = Tollgate<S>;

    fn layer(&self, inner: S) -> Tollgate<S> {
        Tollgate::new(inner, Arc::clone(&self.gate))
    }
}

impl fmt::Debug for TollgateLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TollgateLayer").field("gate", &self.gate).finish()
    }
}
