//! Reads the body of a request, up to a bound in bytes and in time.

use super::flight::InFlight;
use crate::problem::Problem;
use axum::body::HttpBody;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// The whole body. If its announced length is too large, nothing is read.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: impl HttpBody<Data = Bytes> + Unpin,
    bytes_max: usize,
    timeout: Duration,
    in_flight: Option<&InFlight>,
) -> Result<Bytes, Problem> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > bytes_max as u64) {
        return Err(too_large(bytes_max));
    }
    let mut whole = pin!(collect(body, bytes_max, in_flight));
    // The body nearly always comes with the head, and needs no timer.
    match poll_fn(|cx| Poll::Ready(whole.as_mut().poll(cx))).await {
        Poll::Ready(whole) => whole,
        Poll::Pending => match tokio::time::timeout(timeout, whole).await {
            Ok(whole) => whole,
            Err(_) => Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body did not arrive within {} s; send it at once", timeout.as_secs()),
            )),
        },
    }
}

async fn collect(
    mut body: impl HttpBody<Data = Bytes> + Unpin,
    bytes_max: usize,
    in_flight: Option<&InFlight>,
) -> Result<Bytes, Problem> {
    let (mut first, mut more) = (Bytes::new(), BytesMut::new());
    // Ends with the body: one that is too long is not read further.
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::bad_request("the body broke off or is malformed"))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + more.len() + data.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        if let Some(in_flight) = in_flight {
            in_flight.set(first.len() + more.len() + data.len())?;
        }
        if first.is_empty() { first = data } else { more.extend_from_slice(&data) }
    }
    if more.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + more.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&more);
    Ok(whole.freeze())
}

fn too_large(bytes_max: usize) -> Problem {
    Problem::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the body may have {bytes_max} bytes at most; send less at once"),
    )
}
