//! All paths and their handlers.

mod admin;
pub(crate) mod agents;
mod all;
pub(crate) mod audit;
pub(crate) mod check;
mod engine;
pub(crate) mod fields;
pub(crate) mod gate;
mod health;
mod hold;
mod metrics;
mod openapi;
pub(crate) mod outcome;
mod request;
mod reserve;

use crate::app::App;
use crate::problem::Problem;
use axum::Router;
use axum::extract::{FromRequestParts, MatchedPath};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::request::Parts;
use http::{HeaderValue, StatusCode, header};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tollgate_tower::Peer;

pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/check", post(check::one))
        .route("/v1/check/many", post(check::many))
        .route("/v1/check/all", post(all::all))
        .route("/v1/reserve", post(reserve::reserve))
        .route("/v1/settle", post(reserve::settle))
        .route("/v1/cancel", post(reserve::cancel))
        .route("/v1/extend", post(reserve::extend))
        .route("/v1/hold", post(hold::hold))
        .route("/v1/release", post(hold::release))
        .route("/v1/agents/{agent}", get(agents::state))
        .route("/v1/engine", get(engine::engine))
        .route("/healthz", get(health::healthy))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::metrics))
        .route("/openapi.json", get(openapi::document))
        .route("/api/admin/audit", get(audit::list))
        .merge(admin::routes().route_layer(axum::middleware::from_fn_with_state(Arc::clone(&app), audit::audited)))
        .merge(crate::page::routes())
        .fallback(unknown)
        .method_not_allowed_fallback(unknown_method)
        .with_state(app)
}

/// What to do instead.
const UNKNOWN: &str = "there is nothing at this path. POST /v1/check decides whether a request may pass, GET \
                       /v1/agents/{agent} reads the state of an agent, and `tollgate --help` and /openapi.json list \
                       the others";

async fn unknown() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, UNKNOWN)
}

async fn unknown_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not have this method; the Allow header lists its methods",
    )
}

/// A JSON document as a response.
pub(crate) fn json(value: &Value) -> Response {
    let mut response = value.to_string().into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The agent in a path, percent-encoded; any bytes.
///
/// Browsers and proxies read `.` and `..` as directories, even percent-encoded. So
/// with the segment `-` the id is in the query: `/v1/agents/-?agent=..`.
pub(crate) struct AgentInPath(pub(crate) Vec<u8>);

impl<S: Sync> FromRequestParts<S> for AgentInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let template = parts.extensions.get::<MatchedPath>().map_or("", |path| path.as_str());
        let mut segments = template.split('/').zip(parts.uri.path().split('/'));
        let segment = segments.find(|(name, _)| *name == "{agent}").map_or("", |(_, segment)| segment);
        let in_query = match segment {
            "-" => parts.uri.query().and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("agent="))),
            _ => None,
        };
        let id = crate::id::Id::from_segment(in_query.unwrap_or(segment))
            .map_err(|problem| Problem::field("agent", problem))?;
        Ok(Self(id.into_bytes()))
    }
}

/// The address of a request's peer.
pub(crate) struct PeerAddress(pub(crate) IpAddr);

impl<S: Sync> FromRequestParts<S> for PeerAddress {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(peer(&parts.extensions)))
    }
}

pub(crate) fn peer(extensions: &http::Extensions) -> IpAddr {
    // The listener puts it into every request.
    extensions.get::<Peer>().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip())
}

/// Whole milliseconds, rounded up.
pub(crate) fn ceil_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
