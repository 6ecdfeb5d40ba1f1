//! `/v1/engine`: with whom the limiter is shared, and how that goes.

use super::PeerAddress;
use crate::app::App;
use crate::problem::Problem;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde_json::json;
use std::sync::Arc;

pub(super) async fn engine(
    State(app): State<Arc<App>>,
    PeerAddress(peer): PeerAddress,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    _ = app.keys().require_read(&headers, peer)?;
    let document = match (app.machines(), app.limiter().sharing()) {
        (Some(machines), _) => machines.to_json(),
        (None, Some(sharing)) => json!({"shared_by": "processes", "processes": sharing.processes.len()}),
        (None, None) => json!({"shared_by": "nobody"}),
    };
    Ok(super::json(&document))
}
