//! Response headers: the fields of each style, and how they are written.
//!
//! A style is one row of a table: its name, its fields, and how each field is written.
//!
//! | style | fields |
//! |---|---|
//! | `draft-10` | `RateLimit-Policy: "api";q=10;w=60` and `RateLimit: "api";r=3;t=6`, Structured Fields of RFC 9651 |
//! | `legacy` | `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset` (Unix time at which the lane is full again) |
//! | `off` | none |
//!
//! `q` is the capacity and `w` the seconds in which an empty lane fills, so
//! that `r` never exceeds `q`. `t` is the seconds until more is left, not until
//! the lane is full; on a refusal it equals `Retry-After`, which every style
//! sends unless waiting does not help.

use crate::inline::Inline;
use crate::quota::{Quota, ceil_seconds};
use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};
use tollgate::bounds::LANE_NAME_BYTES_MAX;

/// The header fields that carry a client's limits.
///
/// ```
/// use tollgate_gate::Style;
///
/// assert_eq!("legacy".parse(), Ok(Style::Legacy));
/// assert_eq!(Style::default().to_string(), "draft-10");
/// // The headers that a CORS layer has to expose to browsers.
/// assert_eq!(Style::Draft10.names(), ["ratelimit-policy", "ratelimit", "retry-after"]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Style {
    /// `RateLimit-Policy` and `RateLimit`, as in draft 10 of the IETF.
    #[default]
    Draft10,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`.
    Legacy,
    /// Only `Retry-After`.
    Off,
}

/// A style: its name in settings, and its fields.
struct Row {
    style: Style,
    name: &'static str,
    fields: &'static [Field],
}

/// A field: its name, and a function that writes its value.
struct Field {
    name: HeaderName,
    write: fn(&mut Value, &Context<'_>),
}

/// Room for the longest value: a lane's name with every byte encoded, in
/// quotes, and two parameters of 15 digits.
type Value = Inline<{ 3 * LANE_NAME_BYTES_MAX + 2 + 2 * 18 }>;

/// What the value of a field is written from.
struct Context<'a> {
    /// The lane's name as an RFC 9651 String.
    name: &'a [u8],
    quota: &'a Quota,
    now: &'a dyn Fn() -> SystemTime,
}

static STYLES: [Row; 3] = [
    Row { style: Style::Draft10, name: "draft-10", fields: &DRAFT_10 },
    Row { style: Style::Legacy, name: "legacy", fields: &LEGACY },
    Row { style: Style::Off, name: "off", fields: &[] },
];

static DRAFT_10: [Field; 2] = [
    Field { name: HeaderName::from_static("ratelimit-policy"), write: draft_policy },
    Field { name: HeaderName::from_static("ratelimit"), write: draft_limit },
];

static LEGACY: [Field; 3] = [
    Field { name: HeaderName::from_static("x-ratelimit-limit"), write: legacy_limit },
    Field { name: HeaderName::from_static(LEGACY_REMAINING), write: legacy_remaining },
    Field { name: HeaderName::from_static("x-ratelimit-reset"), write: legacy_reset },
];

const LEGACY_REMAINING: &str = "x-ratelimit-remaining";

/// The largest Integer of a Structured Field: 15 digits.
const INTEGER_MAX: u64 = 999_999_999_999_999;

impl Style {
    /// Every style, in the order of the table.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        STYLES.iter().map(|row| row.style)
    }

    /// The names of its fields and of `Retry-After`, in lower case.
    #[must_use]
    pub fn names(self) -> Vec<HeaderName> {
        self.row().fields.iter().map(|field| field.name.clone()).chain([RETRY_AFTER]).collect()
    }

    /// Whether a field is a point in time rather than a duration, so that it
    /// matters when the response leaves.
    #[must_use]
    pub fn reports_instants(self) -> bool {
        self == Self::Legacy
    }

    /// Adds the fields to a response, and `Retry-After` if the request was refused
    /// and waiting helps.
    ///
    /// If an inner layer has written its own limit, the list fields of `draft-10`
    /// carry both. The fields of `legacy` have room for one: the limit with less
    /// left.
    pub fn write(self, headers: &mut HeaderMap, lane: &str, quota: &Quota, now: &dyn Fn() -> SystemTime) {
        let mut name = Value::new();
        if self == Self::Draft10 {
            string(&mut name, lane);
        }
        let context = Context { name: name.as_bytes(), quota, now };
        if self != Self::Legacy || has_least_left(headers, quota) {
            for field in self.row().fields {
                let mut value = Value::new();
                (field.write)(&mut value, &context);
                // Values are visible ASCII, so this never fails.
                if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
                    match self {
                        Self::Legacy => headers.insert(&field.name, value).is_some(),
                        _ => headers.append(&field.name, value),
                    };
                }
            }
        }
        if let Some(seconds) = quota.retry_after_seconds() {
            headers.insert(RETRY_AFTER, seconds.into());
        }
    }

    fn row(self) -> &'static Row {
        // The rows are in the order of the declaration; a test checks it.
        &STYLES[self as usize]
    }
}

/// Whether this quota is tighter than the one in the headers, if there is one.
fn has_least_left(headers: &HeaderMap, quota: &Quota) -> bool {
    let inner = headers.get(LEGACY_REMAINING).and_then(|left| left.to_str().ok()?.parse::<u64>().ok());
    inner.is_none_or(|left| quota.remaining < left && !headers.contains_key(RETRY_AFTER))
}

fn draft_policy(value: &mut Value, context: &Context<'_>) {
    value.push(context.name);
    parameter(value, b";q=", context.quota.capacity);
    if let Some(window) = context.quota.window {
        parameter(value, b";w=", ceil_seconds(window).max(1));
    }
}

fn draft_limit(value: &mut Value, context: &Context<'_>) {
    value.push(context.name);
    parameter(value, b";r=", remaining(context.quota));
    let more_in = match context.quota.denied {
        true => context.quota.retry_after_seconds(),
        false => context.quota.next_in.map(|next_in| ceil_seconds(next_in).max(1)),
    };
    if let Some(seconds) = more_in {
        parameter(value, b";t=", seconds);
    }
}

fn legacy_limit(value: &mut Value, context: &Context<'_>) {
    value.push_number(context.quota.capacity);
}

fn legacy_remaining(value: &mut Value, context: &Context<'_>) {
    value.push_number(remaining(context.quota));
}

fn legacy_reset(value: &mut Value, context: &Context<'_>) {
    // A clock before 1970 counts as 1970.
    let now = (context.now)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    value.push_number(ceil_seconds(now.saturating_add(context.quota.full_in)));
}

fn remaining(quota: &Quota) -> u64 {
    quota.remaining.min(quota.capacity)
}

/// Writes a parameter whose value is an RFC 9651 Integer, of 15 digits at most.
fn parameter(value: &mut Value, name: &[u8], number: u64) {
    value.push(name);
    value.push_number(number.min(INTEGER_MAX));
}

/// Writes an RFC 9651 String. It holds visible ASCII; the bytes of other
/// characters are percent-encoded, `%C3%A9`. A lane's name always fits; a longer
/// text is cut off.
fn string(value: &mut Value, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~' if !matches!(byte, b'"' | b'\\'));
    let name = &text.as_bytes()[..text.len().min(LANE_NAME_BYTES_MAX)];
    value.push(b"\"");
    for run in name.chunk_by(|one, next| is_plain(one) && is_plain(next)) {
        match *run {
            [byte @ (b'"' | b'\\')] => value.push(&[b'\\', byte]),
            [byte] if !is_plain(&byte) => {
                value.push(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            _ => value.push(run),
        }
    }
    value.push(b"\"");
}

impl fmt::Display for Style {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().name)
    }
}

impl FromStr for Style {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let row = STYLES.iter().find(|row| row.name == name);
        row.map(|row| row.style).ok_or_else(|| UnknownName::new("header style", name, Self::all()))
    }
}

/// A setting has the name of something that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    message: String,
}

impl UnknownName {
    pub(crate) fn new(what: &str, name: &str, known: impl Iterator<Item = impl fmt::Display>) -> Self {
        let known: Vec<String> = known.map(|known| known.to_string()).collect();
        Self { message: format!("there is no {what} {name:?}; there are {}", known.join(", ")) }
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for UnknownName {}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: Quota = Quota {
        capacity: 10,
        remaining: 3,
        window: Some(Duration::from_secs(60)),
        next_in: Some(Duration::from_millis(5_001)),
        full_in: Duration::from_millis(41_001),
        denied: false,
        retry_after: None,
    };

    /// A quarter second past a whole one.
    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_000_250)
    }

    fn written(style: Style, lane: &str, quota: &Quota) -> Vec<String> {
        let mut headers = HeaderMap::new();
        style.write(&mut headers, lane, quota, &now);
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn every_style_has_its_row_and_its_name() {
        for style in Style::all() {
            assert_eq!(style.row().style, style);
            assert_eq!(style.to_string().parse(), Ok(style));
        }
        let error = "draft-3".parse::<Style>().unwrap_err().to_string();
        assert_eq!(error, "there is no header style \"draft-3\"; there are draft-10, legacy, off");
    }

    #[test]
    fn draft_10_has_capacity_window_rest_and_the_time_until_more_is_left() {
        let fields = written(Style::Draft10, "http/heavy", &QUOTA);
        assert_eq!(fields, [r#"ratelimit-policy: "http/heavy";q=10;w=60"#, r#"ratelimit: "http/heavy";r=3;t=6"#]);
    }

    #[test]
    fn a_full_lane_and_one_that_denies_everything_promise_no_more() {
        let full = Quota { remaining: 10, next_in: None, full_in: Duration::ZERO, ..QUOTA };
        assert_eq!(written(Style::Draft10, "a", &full)[1], r#"ratelimit: "a";r=10"#);
        let off = Quota { capacity: 0, remaining: 0, window: None, next_in: None, denied: true, ..full };
        assert_eq!(written(Style::Draft10, "a", &off), [r#"ratelimit-policy: "a";q=0"#, r#"ratelimit: "a";r=0"#]);
    }

    #[test]
    fn a_refusal_waits_as_long_in_t_as_in_retry_after() {
        let denied = Quota { remaining: 0, denied: true, retry_after: Some(Duration::from_millis(12_345)), ..QUOTA };
        let fields = written(Style::Draft10, "a", &denied);
        assert_eq!(fields[1..], [r#"ratelimit: "a";r=0;t=13"#, "retry-after: 13"]);
        assert_eq!(written(Style::Off, "a", &denied), ["retry-after: 13"]);
    }

    #[test]
    fn legacy_has_the_second_in_which_the_lane_is_full() {
        let fields = written(Style::Legacy, "a", &QUOTA);
        // 1,000.250 s and 41.001 s, rounded up once.
        assert_eq!(fields, ["x-ratelimit-limit: 10", "x-ratelimit-remaining: 3", "x-ratelimit-reset: 1042"]);
    }

    #[test]
    fn names_are_quoted_and_numbers_kept_to_fifteen_digits() {
        let huge = Quota { capacity: u64::MAX, remaining: u64::MAX, window: None, next_in: None, ..QUOTA };
        let fields = written(Style::Draft10, "a\"b\\é", &huge);
        assert_eq!(fields[0], r#"ratelimit-policy: "a\"b\\%C3%A9";q=999999999999999"#);
    }

    #[test]
    fn nested_layers_report_all_their_limits_or_the_tightest() {
        let twice = |style: Style, inner: &Quota, outer: &Quota| {
            let mut headers = HeaderMap::new();
            style.write(&mut headers, "inner", inner, &now);
            style.write(&mut headers, "outer", outer, &now);
            headers
        };
        let roomy = Quota { remaining: 9, ..QUOTA };
        let headers = twice(Style::Draft10, &QUOTA, &roomy);
        let fields: Vec<_> = headers.get_all("ratelimit").iter().collect();
        assert_eq!(fields, [r#""inner";r=3;t=6"#, r#""outer";r=9;t=6"#]);

        assert_eq!(twice(Style::Legacy, &QUOTA, &roomy)[LEGACY_REMAINING], "3");
        assert_eq!(twice(Style::Legacy, &roomy, &QUOTA)[LEGACY_REMAINING], "3");
        let denied = Quota { remaining: 5, denied: true, retry_after: Some(Duration::from_secs(1)), ..QUOTA };
        assert_eq!(twice(Style::Legacy, &denied, &QUOTA)[LEGACY_REMAINING], "5", "the limit that refused is reported");
    }
}
