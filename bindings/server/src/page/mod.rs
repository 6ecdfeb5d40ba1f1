//! The dashboard: one page, from the binary, and what it asks for.
//!
//! - `assets.rs` the files of the page, in `assets/`
//! - `login.rs` the way in and out
//! - `feed.rs` what is remembered for pages that open later: a history of counts, the last events
//! - `live.rs` what an open page is told as it happens
//! - `agents.rs` agents as cards, found and sorted here
//!
//! All but the files and the login needs the admin right, by the cookie of the
//! login or by the token. What the page changes it changes through the admin API.

mod agents;
mod assets;
pub(crate) mod feed;
mod live;
mod login;

use crate::app::App;
use crate::problem::Problem;
use axum::Router;
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::routing::{get, post};
use std::sync::Arc;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(assets::page))
        .route("/assets/{name}", get(assets::asset))
        .route("/login", post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/api/dashboard/session", get(login::session))
        .route("/api/dashboard/live", get(live::live))
        .route("/api/dashboard/agents", get(agents::list))
        .route("/api/dashboard/agents/{agent}", get(agents::one))
}

/// What the query of a URL asks for.
fn understood<T>(asked: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    asked.map(|Query(asked)| asked).map_err(|rejection| Problem::bad(rejection.body_text()))
}
