//! The dashboard: one page, from the binary, and the data it loads.
//!
//! - `assets.rs`: the files of the page, in `assets/`
//! - `login.rs`: logging in and out
//! - `feed.rs`: the history for pages that open later: counts, the last events
//! - `live.rs`: the live connection of an open page
//! - `agents.rs`: agents as cards, searched and sorted by the server
//!
//! Everything but the files and the login needs the admin right, by the session's
//! cookie or by the token. The page makes changes through the admin API.

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

/// The query of a URL, or what is wrong with it.
fn parse_query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    query.map(|Query(query)| query).map_err(|rejection| Problem::bad_request(rejection.body_text()))
}
