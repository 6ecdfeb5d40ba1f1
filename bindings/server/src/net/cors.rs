//! Pages of other origins that the operator lists may use `/v1/`.
//!
//! Browsers ask first (a preflight) whether a page may send a request with a token or JSON,
//! and hide the response from it otherwise. Cookies are never accepted this way: the
//! dashboard's session is for its own page.

use axum::body::Body;
use axum::response::Response;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};

/// The headers that a page may read, besides those that every page may.
const EXPOSED: &str = "RateLimit, RateLimit-Policy, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, \
                       X-RateLimit-Reset";

/// The origin of a request, if its page may use the path.
pub(super) fn allowed_origin<B>(request: &Request<B>, origins: &[String]) -> Option<HeaderValue> {
    if origins.is_empty() || !request.uri().path().starts_with("/v1/") {
        return None;
    }
    let mut sent = request.headers().get_all(ORIGIN).iter();
    let (Some(origin), None) = (sent.next(), sent.next()) else { return None };
    let text = origin.to_str().ok()?;
    let is_listed = origins.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(text));
    is_listed.then(|| origin.clone())
}

/// Whether a browser asks if a page may send a request.
pub(super) fn is_preflight<B>(request: &Request<B>) -> bool {
    request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to a preflight.
pub(super) fn preflight() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST"));
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("authorization, content-type, accept"));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Lets the page read the response.
pub(super) fn allow(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(VARY, HeaderValue::from_static("Origin"));
}
