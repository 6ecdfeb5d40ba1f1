//! Whether the process is alive, and whether it is ready for requests.

use crate::app::App;
use crate::net::stages::Stage;
use crate::problem::Problem;
use axum::extract::State;
use http::StatusCode;
use std::sync::Arc;

pub(super) async fn healthy() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<&'static str, Problem> {
    if app.stages().has_begun(Stage::Notice) {
        let detail = "the server is shutting down; use another one";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_reason("ending"));
    }
    Ok("ok\n")
}
