//! Responses that do not come from the service: refusals and errors.

use crate::headers::Style;
use crate::inline::push_number;
use crate::profile::{self, PROBLEM_JSON, Profile};
use crate::quota::Quota;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use std::fmt::Write;
use std::time::SystemTime;

/// A refused request, and everything that its response reports.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tollgate_gate::{Form, Profile, Quota, Reason, Refusal, Style};
///
/// let wait = Duration::from_millis(5_200);
/// let refusal = Refusal {
///     agent: Some(b"agent-7"),
///     lane: "http/heavy",
///     instance: None,
///     reason: Reason::Quota,
///     quota: Quota {
///         capacity: 10,
///         remaining: 0,
///         window: Some(Duration::from_secs(60)),
///         next_in: Some(wait),
///         full_in: Duration::from_secs(60),
///         denied: true,
///         retry_after: Some(wait),
///     },
/// };
/// let response = refusal.response(Profile::Hub, Style::Draft10, &Form::Http, &SystemTime::now);
/// assert_eq!(response.status(), 429);
/// assert_eq!(response.headers()["retry-after"], "6");
/// assert_eq!(response.body(), r#"{"error":"rate_limited","retry_after_ms":6000,"tier":"heavy"}"#);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// The refused agent; `None` hides it from the client.
    pub agent: Option<&'a [u8]>,
    /// The lane that refused it.
    pub lane: &'a str,
    /// The request's target, a URI reference; `None` to leave it out.
    pub instance: Option<&'a str>,
    /// Why.
    pub reason: Reason,
    /// The state of the lane.
    pub quota: Quota,
}

/// Why a request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The lane has too little left.
    Quota,
    /// The request costs more than the lane's capacity.
    Cost(u64),
    /// All slots of the lane are held, until one is released.
    Held,
    /// The agent kept sending requests after refusals and has to back off.
    Conduct,
    /// Machines share the lane, and the store through which they do is still being asked.
    Pending,
}

/// The protocol of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// A status and a body.
    Http,
    /// A gRPC status, in a response of this content type.
    Grpc(HeaderValue),
}

impl Form {
    /// The form that a request expects: gRPC if its content type is a gRPC one.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let grpc = headers.get_all(CONTENT_TYPE).iter().find(|kind| Self::is_grpc(kind.as_bytes()));
        grpc.map_or(Self::Http, |kind| Self::Grpc(kind.clone()))
    }

    /// Whether this content type is one of gRPC.
    pub(crate) fn is_grpc(kind: &[u8]) -> bool {
        kind.starts_with(b"application/grpc")
    }
}

impl Refusal<'_> {
    /// The response: status 429 with headers and a body, or `RESOURCE_EXHAUSTED`
    /// with the same headers.
    #[must_use]
    pub fn response(
        &self,
        profile: Profile,
        style: Style,
        form: &Form,
        now: &dyn Fn() -> SystemTime,
    ) -> Response<Bytes> {
        let mut response = match form {
            Form::Http => json(StatusCode::TOO_MANY_REQUESTS, profile.content_type(), profile.body(self)),
            Form::Grpc(kind) => grpc(kind, StatusCode::TOO_MANY_REQUESTS, &self.detail()),
        };
        style.write(response.headers_mut(), self.lane, &self.quota, now);
        response
    }

    /// One or two sentences for a person: what is left, and when to come back.
    #[must_use]
    pub fn detail(&self) -> String {
        let Quota { remaining, capacity, .. } = self.quota;
        let mut detail = String::with_capacity(192);
        match self.reason {
            Reason::Quota => {
                push(&mut detail, [self.lane, " has "], remaining);
                push(&mut detail, [" of ", ""], capacity);
                detail.push_str(" left, too few for this request.");
            }
            Reason::Cost(cost) => {
                push(&mut detail, ["The request costs ", ""], cost);
                detail.push_str(", and ");
                push(&mut detail, [self.lane, " never holds more than "], capacity);
                detail.push('.');
            }
            Reason::Held => {
                push(&mut detail, [self.lane, " has "], remaining);
                push(&mut detail, [" of ", ""], capacity);
                detail.push_str(" slots left, too few for this request. One has to be released first.");
                return detail;
            }
            Reason::Conduct => {
                detail.push_str("Too many requests were sent after refusals on ");
                detail.push_str(self.lane);
                detail.push('.');
            }
            Reason::Pending => {
                detail.push_str(self.lane);
                detail.push_str(" is shared by machines, and their store has not answered yet.");
            }
        }
        match self.quota.retry_after_seconds() {
            Some(1) => detail.push_str(" Retry after 1 second."),
            Some(seconds) => {
                push(&mut detail, [" Retry after ", ""], seconds);
                detail.push_str(" seconds.");
            }
            None => detail.push_str(" No wait will help."),
        }
        detail
    }
}

/// Two texts and a number, without the machinery of `write!`, because every refusal has some.
fn push(text: &mut String, words: [&str; 2], number: u64) {
    words.iter().for_each(|word| text.push_str(word));
    push_number(text, number);
}

/// The response to a request that could not be decided: a problem that says what
/// is wrong and what to do.
#[must_use]
pub fn error_response(status: StatusCode, detail: &str, form: &Form) -> Response<Bytes> {
    let title = status.canonical_reason().unwrap_or("Error");
    match form {
        Form::Grpc(kind) => grpc(kind, status, detail),
        Form::Http if status == StatusCode::SERVICE_UNAVAILABLE => {
            json(status, PROBLEM_JSON, profile::problem(profile::REDUCED_CAPACITY, title, status, detail).end())
        }
        Form::Http => json(status, PROBLEM_JSON, profile::problem("about:blank", title, status, detail).end()),
    }
}

fn json(status: StatusCode, content_type: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A gRPC response with trailers only. Clients read a bare 429 as `UNAVAILABLE`,
/// so the status must be gRPC's own.
fn grpc(content_type: &HeaderValue, status: StatusCode, message: &str) -> Response<Bytes> {
    let code = match status {
        StatusCode::TOO_MANY_REQUESTS => 8,      // RESOURCE_EXHAUSTED
        StatusCode::SERVICE_UNAVAILABLE => 14,   // UNAVAILABLE
        status if status.is_client_error() => 3, // INVALID_ARGUMENT
        _ => 13,                                 // INTERNAL
    };
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type.clone());
    headers.insert(HeaderName::from_static("grpc-status"), HeaderValue::from(code));
    // Encoded text is visible ASCII, so this never fails.
    if let Ok(message) = HeaderValue::from_str(&grpc_encoded(message)) {
        headers.insert(HeaderName::from_static("grpc-message"), message);
    }
    response
}

/// Percent-encodes the bytes that a gRPC message may not have in a header.
fn grpc_encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            // Writing to a `String` never fails.
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grpc_request_is_recognised_by_its_content_type() {
        for (kind, grpc) in [
            (Some("application/grpc"), true),
            (Some("application/grpc+proto"), true),
            (Some("application/grpc-web"), true),
            (Some("application/json"), false),
            (None, false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(kind) = kind {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            assert_eq!(matches!(Form::of(&headers), Form::Grpc(_)), grpc, "{kind:?}");
        }
    }

    #[test]
    fn errors_are_problems_with_advice() {
        let response = error_response(StatusCode::BAD_REQUEST, "send \"x\"", &Form::Http);
        assert_eq!(
            (response.status(), &response.headers()[CONTENT_TYPE]),
            (StatusCode::BAD_REQUEST, &PROBLEM_JSON.parse().unwrap())
        );
        assert_eq!(
            response.body(),
            r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"send \"x\""}"#
        );
        let full = error_response(StatusCode::SERVICE_UNAVAILABLE, "full", &Form::Http);
        assert_eq!(
            full.body(),
            concat!(
                r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","#,
                r#""title":"Service Unavailable","status":503,"detail":"full"}"#,
            )
        );
    }

    #[test]
    fn grpc_responses_carry_a_grpc_status() {
        let form = Form::Grpc(HeaderValue::from_static("application/grpc+proto"));
        for (status, code) in [(429, "8"), (503, "14"), (400, "3"), (500, "13")] {
            let response = error_response(StatusCode::from_u16(status).unwrap(), "100 % é\n", &form);
            assert_eq!((response.status(), response.body().len()), (StatusCode::OK, 0));
            assert_eq!(response.headers()["grpc-status"], code);
            assert_eq!(response.headers()["grpc-message"], "100 %25 %C3%A9%0A");
            assert_eq!(response.headers()["content-type"], "application/grpc+proto");
        }
    }
}
