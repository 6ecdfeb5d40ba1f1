//! The methods that this port serves, by their paths.

use super::frame::{self, Answer, Failure, MESSAGE_BYTES_MAX, Status};
use super::wire::{Health, HealthRequest, HealthResponse, RateLimitRequest};
use super::{Envoy, call};
use crate::app::App;
use crate::auth::Right;
use crate::net::body;
use crate::net::stages::Stage;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use std::net::IpAddr;
use std::time::Instant;

const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// The services whose health is known: the server, and this one under the name that envoyproxy/ratelimit gives it and
/// under its own.
const SERVICES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// Serves a call.
pub(super) async fn serve(
    app: &App,
    envoy: &Envoy,
    is_open: bool,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Response<Answer> {
    if request.method() != Method::POST || !is_grpc(request.headers()) {
        return frame::not_grpc();
    }
    frame::response(answer(app, envoy, is_open, peer, request).await)
}

async fn answer(
    app: &App,
    envoy: &Envoy,
    is_open: bool,
    peer: IpAddr,
    request: Request<Incoming>,
) -> Result<Bytes, Status> {
    let (parts, body) = request.into_parts();
    let is_check = match parts.uri.path() {
        SHOULD_RATE_LIMIT => true,
        HEALTH_CHECK => false,
        path => {
            let message = format!("there is no method {path}; this is Envoy's rate limit service, version 3");
            return Err(Status::new(Failure::Unimplemented, message));
        }
    };
    let scope = if is_check && !is_open {
        let scope = app.keys().require(Right::Check, &parts.headers, peer);
        Some(scope.map_err(|problem| Status::new(Failure::Unauthenticated, problem.detail()))?)
    } else {
        // Probes have no token.
        None
    };
    let body = body::read(&parts.headers, body, MESSAGE_BYTES_MAX, app.settings().body_timeout, None).await;
    let body = body.map_err(|problem| {
        let failure = match problem.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Failure::ResourceExhausted,
            StatusCode::REQUEST_TIMEOUT => Failure::DeadlineExceeded,
            _ => Failure::InvalidArgument,
        };
        Status::new(failure, problem.detail())
    })?;
    if !is_check {
        let HealthRequest { service } = frame::read(&body)?;
        return health(app, &service);
    }
    let begun = Instant::now();
    let request: RateLimitRequest = frame::read(&body)?;
    let response = call::should_rate_limit(app, envoy, &request, scope.as_ref())?;
    let answer = frame::framed(&response);
    app.meter().record_duration(begun.elapsed());
    Ok(answer)
}

/// A server that shuts down is not healthy, so that Envoy asks another one.
fn health(app: &App, service: &str) -> Result<Bytes, Status> {
    if !SERVICES.contains(&service) {
        return Err(Status::new(Failure::NotFound, "no service of this name is served here"));
    }
    let status = if app.stages().has_begun(Stage::Notice) { Health::NotServing } else { Health::Serving };
    Ok(frame::framed(&HealthResponse { status: status.into() }))
}

/// Whether a request is of gRPC with protobuf messages.
fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    essence == b"application/grpc" || essence == b"application/grpc+proto"
}
