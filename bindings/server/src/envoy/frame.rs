//! gRPC over HTTP/2: a message in its frame, and a status in the trailers.
//!
//! Two services with three methods need no code generator and no second HTTP server: hyper speaks HTTP/2, and what
//! gRPC adds is a prefix of five bytes, a few headers and trailers.

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};
use prost::Message;
use std::pin::Pin;
use std::task::{Context, Poll};

/// How many bytes a message from a client may have: far more than any descriptors that Envoy builds.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The flag of a compressed message, and its length.
const PREFIX_BYTES: usize = 5;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// Why a call failed, as gRPC numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Unavailable = 14,
    Unauthenticated = 16,
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) failure: Failure,
    pub(super) message: String,
}

impl Status {
    pub(super) fn new(failure: Failure, message: impl Into<String>) -> Self {
        Self { failure, message: message.into() }
    }
}

/// Reads the one message of a call.
pub(super) fn read<M: Message + Default>(body: &[u8]) -> Result<M, Status> {
    let invalid = |message: &str| Status::new(Failure::InvalidArgument, message);
    let (prefix, message) = body.split_first_chunk::<PREFIX_BYTES>().ok_or_else(|| invalid("there is no message"))?;
    let [flag, length @ ..] = *prefix;
    if flag != 0 {
        return Err(Status::new(Failure::Unimplemented, "the message is compressed; send it as it is"));
    }
    // A second message would follow it, and there is one.
    if u32::from_be_bytes(length) as usize != message.len() {
        return Err(invalid("the message has another length than its prefix says"));
    }
    M::decode(message).map_err(|error| invalid(&format!("the message cannot be read: {error}")))
}

/// A message in its frame.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + length);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // Fails for want of room alone, and there is as much as it needs.
    _ = message.encode(&mut frame);
    frame.freeze()
}

/// The response to a call.
pub(super) fn response(result: Result<Bytes, Status>) -> Response<Answer> {
    let mut response = Response::new(Answer::default());
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
    match result {
        Ok(message) => {
            response.body_mut().message = Some(message);
            response.body_mut().trailers = Some(HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))]));
        }
        Err(status) => write_status(&status, response.headers_mut()),
    }
    response
}

/// The response to what is no call: another client than a gRPC one reached this port.
pub(super) fn not_grpc() -> Response<Answer> {
    let mut response = Response::new(Answer::default());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// Writes a failure as the trailers that a response without a message consists of.
fn write_status(status: &Status, headers: &mut HeaderMap) {
    headers.insert(STATUS, HeaderValue::from(status.failure as u16));
    let mut text = String::with_capacity(status.message.len());
    for byte in status.message.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    if let Ok(text) = HeaderValue::try_from(text) {
        headers.insert(MESSAGE, text);
    }
}

/// The body of a response: at most one message, and the trailers.
#[derive(Default)]
pub(super) struct Answer {
    message: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let message = self.message.take().map(Frame::data);
        Poll::Ready(message.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.message.as_ref().map_or(0, |message| message.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::HealthRequest;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_survives_its_frame() {
        let request = HealthRequest { service: "x".to_owned() };
        let frame = framed(&request);
        assert_eq!(&frame[..], [0, 0, 0, 0, 3, 0x0a, 1, b'x']);
        assert_eq!(read::<HealthRequest>(&frame), Ok(request));
    }

    #[test]
    fn what_is_no_single_message_is_refused() {
        for (body, failure) in [
            (&[][..], Failure::InvalidArgument),
            (&[0, 0, 0, 0], Failure::InvalidArgument),
            (&[0, 0, 0, 0, 1], Failure::InvalidArgument),
            (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Failure::InvalidArgument),
            (&[0, 0, 0, 0, 1, 0x0a], Failure::InvalidArgument),
            (&[1, 0, 0, 0, 0], Failure::Unimplemented),
        ] {
            assert_eq!(read::<HealthRequest>(body).unwrap_err().failure, failure, "{body:?}");
        }
    }

    #[test]
    fn a_failure_is_in_the_headers_in_visible_ascii() {
        let response = response(Err(Status::new(Failure::InvalidArgument, "50 % é\n")));
        assert_eq!((response.status(), &response.headers()[STATUS]), (StatusCode::OK, &HeaderValue::from_static("3")));
        assert_eq!(response.headers()[MESSAGE], "50 %25 %C3%A9%0A");
        assert!(response.body().is_end_stream());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            _ = read::<super::super::wire::RateLimitRequest>(&body);
        }
    }
}
