//! The messages of Envoy's rate limit service, version 3, and of gRPC's health service.
//!
//! Written by hand: the fields that this server reads or writes, with the numbers of the published protocol. A field
//! that is not here is skipped when it is read, as protobuf wants it.

use prost::Message;

/// What Envoy asks: may these descriptors have so many hits?
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitRequest {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) descriptors: Vec<Descriptor>,
    /// 0 means 1.
    #[prost(uint32, tag = "3")]
    pub(crate) hits_addend: u32,
}

/// What is limited together: one counter for each.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    pub(crate) entries: Vec<Entry>,
    #[prost(message, optional, tag = "2")]
    pub(crate) limit: Option<LimitOverride>,
    /// Takes precedence over the request's. 0 charges nothing.
    #[prost(message, optional, tag = "3")]
    pub(crate) hits_addend: Option<UInt64Value>,
    /// The hits are given back.
    #[prost(bool, tag = "4")]
    pub(crate) is_negative_hits: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// A limit that travels with the request.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LimitOverride {
    #[prost(uint32, tag = "1")]
    pub(crate) requests_per_unit: u32,
    /// A [`Unit`].
    #[prost(int32, tag = "2")]
    pub(crate) unit: i32,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct UInt64Value {
    #[prost(uint64, tag = "1")]
    pub(crate) value: u64,
}

/// The answer: one status for each descriptor, in their order.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RateLimitResponse {
    #[prost(enumeration = "Code", tag = "1")]
    pub(crate) overall_code: i32,
    #[prost(message, repeated, tag = "2")]
    pub(crate) statuses: Vec<DescriptorStatus>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) response_headers_to_add: Vec<HeaderValue>,
    /// The body of the refusal.
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) raw_body: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DescriptorStatus {
    #[prost(enumeration = "Code", tag = "1")]
    pub(crate) code: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) current_limit: Option<CurrentLimit>,
    #[prost(uint32, tag = "3")]
    pub(crate) limit_remaining: u32,
    #[prost(message, optional, tag = "4")]
    pub(crate) duration_until_reset: Option<Duration>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CurrentLimit {
    #[prost(uint32, tag = "1")]
    pub(crate) requests_per_unit: u32,
    #[prost(enumeration = "Unit", tag = "2")]
    pub(crate) unit: i32,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderValue {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Duration {
    #[prost(int64, tag = "1")]
    pub(crate) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(crate) nanos: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Code {
    Unknown = 0,
    Ok = 1,
    OverLimit = 2,
}

/// A unit of time. Weeks came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Unit {
    Unknown = 0,
    Second = 1,
    Minute = 2,
    Hour = 3,
    Day = 4,
    Month = 5,
    Year = 6,
    Week = 7,
}

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthRequest {
    /// The name of a service; empty for the server.
    #[prost(string, tag = "1")]
    pub(crate) service: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct HealthResponse {
    #[prost(enumeration = "Health", tag = "1")]
    pub(crate) status: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Health {
    Unknown = 0,
    Serving = 1,
    NotServing = 2,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bytes were written down from the published protocol, field by field, and not by this encoder.
    #[test]
    fn a_request_has_the_numbers_of_the_published_protocol() {
        let bytes = [
            0x0a, 4, b'e', b'd', b'g', b'e', // domain = 1
            0x12, 26, // descriptors = 2
            0x0a, 10, 0x0a, 4, b'p', b'a', b't', b'h', 0x12, 2, b'/', b'x', // entries = 1: key = 1, value = 2
            0x12, 4, 0x08, 5, 0x10, 2, // limit = 2: requests_per_unit = 1, unit = 2
            0x1a, 2, 0x08, 7, // hits_addend = 3: value = 1
            0x20, 1, // is_negative_hits = 4
            0x2a, 0, // a field that does not exist
            0x18, 3, // hits_addend = 3
        ];
        let entry = Entry { key: "path".to_owned(), value: "/x".to_owned() };
        let descriptor = Descriptor {
            entries: vec![entry],
            limit: Some(LimitOverride { requests_per_unit: 5, unit: Unit::Minute.into() }),
            hits_addend: Some(UInt64Value { value: 7 }),
            is_negative_hits: true,
        };
        let request = RateLimitRequest { domain: "edge".to_owned(), descriptors: vec![descriptor], hits_addend: 3 };
        assert_eq!(RateLimitRequest::decode(&bytes[..]).unwrap(), request);
    }

    #[test]
    fn a_response_has_the_numbers_of_the_published_protocol() {
        let limit = CurrentLimit { requests_per_unit: 5, unit: Unit::Week.into(), name: "n".to_owned() };
        let status = DescriptorStatus {
            code: Code::OverLimit.into(),
            current_limit: Some(limit),
            limit_remaining: 9,
            duration_until_reset: Some(Duration { seconds: 12, nanos: 3 }),
        };
        let response = RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            statuses: vec![status],
            response_headers_to_add: vec![HeaderValue { key: "k".to_owned(), value: "v".to_owned() }],
            raw_body: b"{}".to_vec(),
        };
        let bytes = [
            0x08, 2, // overall_code = 1
            0x12, 19, // statuses = 2
            0x08, 2, // code = 1
            0x12, 7, 0x08, 5, 0x10, 7, 0x1a, 1, b'n', // current_limit = 2: requests_per_unit, unit, name = 3
            0x18, 9, // limit_remaining = 3
            0x22, 4, 0x08, 12, 0x10, 3, // duration_until_reset = 4: seconds, nanos
            0x1a, 6, 0x0a, 1, b'k', 0x12, 1, b'v', // response_headers_to_add = 3
            0x2a, 2, b'{', b'}', // raw_body = 5
        ];
        assert_eq!(response.encode_to_vec(), bytes);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            if let Ok(request) = RateLimitRequest::decode(&bytes[..]) {
                // What was read can be written, and reads the same.
                let again = RateLimitRequest::decode(&request.encode_to_vec()[..]);
                prop_assert_eq!(again.ok(), Some(request));
            }
            _ = HealthRequest::decode(&bytes[..]);
        }
    }
}
