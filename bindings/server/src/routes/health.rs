//! Whether the process is alive, and whether it wants requests.

use crate::app::App;
use crate::problem::Problem;
use axum::extract::State;
use http::StatusCode;
use std::sync::Arc;

pub(super) async fn healthy() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<&'static str, Problem> {
    if app.is_draining() {
        return Err(
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending; ask another").because("ending")
        );
    }
    Ok("ok\n")
}
