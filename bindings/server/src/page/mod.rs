//! What a browser sees: a page that says where the API is, and the login.

use crate::app::App;
use crate::net::{body, front};
use crate::problem::Problem;
use crate::routes;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use std::sync::Arc;

const PAGE: &str = include_str!("index.html");
const SCRIPT: &str = include_str!("login.js");

/// How many bytes a login may have.
const LOGIN_BYTES_MAX: usize = 1024;

pub(crate) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(|| async { asset("text/html; charset=utf-8", PAGE) }))
        .route("/login.js", get(|| async { asset("text/javascript; charset=utf-8", SCRIPT) }))
        .route("/login", post(log_in))
        .route("/logout", post(log_out))
}

/// Nothing from elsewhere, nothing inline, in no frame.
fn asset(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

async fn log_in(State(app): State<Arc<App>>, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    if !front::is_json(&parts.headers) {
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the token as application/json"));
    }
    let body = body::read(&parts.headers, body, LOGIN_BYTES_MAX, app.settings().body_timeout).await?;
    let value: Value = serde_json::from_slice(&body).map_err(|error| routes::check::not_json(&error))?;
    let token = value.get("token").and_then(Value::as_str);
    let token = token.ok_or_else(|| Problem::field("token", "give the admin token as a string"))?;
    let cookie = app.keys().log_in(token.as_bytes(), routes::peer(&parts.extensions))?;
    Ok(with_cookie(&cookie))
}

async fn log_out(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    with_cookie(&app.keys().log_out(&headers))
}

fn with_cookie(cookie: &str) -> Response {
    let mut response = routes::json(&json!({"ok": true}));
    // Hexadecimal digits and our own words.
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
