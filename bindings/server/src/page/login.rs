//! The page's session: a cookie, in exchange for the admin token.

use crate::app::App;
use crate::auth::Right;
use crate::net::connection::InsideTls;
use crate::net::{body, front};
use crate::problem::Problem;
use crate::routes::{self, PeerAddress};
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use std::sync::Arc;

/// How many bytes a login may have.
const LOGIN_BYTES_MAX: usize = 1024;

pub(super) async fn log_in(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    if !front::is_json(&parts.headers) {
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the token as application/json"));
    }
    let body = body::read(&parts.headers, body, LOGIN_BYTES_MAX, app.settings().body_timeout, None).await?;
    let value: Value = serde_json::from_slice(&body).map_err(|error| routes::fields::not_json(&error))?;
    let token = value.get("token").and_then(Value::as_str);
    let token = token.ok_or_else(|| Problem::field("token", "give the admin token as a string"))?;
    let cookie = app.keys().log_in(token.as_bytes(), &parts.headers, routes::peer(&parts.extensions))?;
    Ok(with_cookie(&cookie, parts.extensions.get().copied()))
}

pub(super) async fn log_out(
    State(app): State<Arc<App>>,
    inside: Option<Extension<InsideTls>>,
    headers: HeaderMap,
) -> Response {
    with_cookie(&app.keys().log_out(&headers), inside.map(|Extension(inside)| inside))
}

/// Whether there is a session. If not, that is not an error: the page only wants to know.
pub(super) async fn session(
    State(app): State<Arc<App>>,
    PeerAddress(peer): PeerAddress,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let is_admin = app.keys().right(&headers, peer)? == Right::Admin;
    Ok(routes::json(&json!({"logged_in": is_admin})))
}

fn with_cookie(cookie: &str, inside: Option<InsideTls>) -> Response {
    let mut response = routes::json(&json!({"ok": true}));
    // Browsers send it inside TLS alone from then on.
    let cookie = format!("{cookie}{}", if inside.is_some() { "; Secure" } else { "" });
    // The cookie is hexadecimal digits and our own words.
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
