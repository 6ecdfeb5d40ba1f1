//! No header is ever malformed, in the past, or inconsistent with another.
//!
//! An RFC 9651 parser reads the Structured Fields.
//! `PROPTEST_CASES=100000 cargo test -p tollgate-tower --test properties` runs them for longer.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};
use std::convert::Infallible;
use std::time::{Duration, SystemTime};
use tollgate::bounds::{CAPACITY_MAX, REFILL_MAX};
use tollgate::{Limit, Limiter, ManualClock, Policy, Tick};
use tollgate_tower::{Key, Quota, Style, TollgateLayer};
use tower::{Layer, Service, service_fn};

const YEAR: Duration = Duration::from_secs(31_557_600);

/// The one member of a list field: its name and its parameters, all of them Integers.
fn member(headers: &HeaderMap, field: &str) -> Result<(String, Vec<(String, u64)>), TestCaseError> {
    let value = headers.get(field).ok_or_else(|| TestCaseError::fail(format!("no {field}")))?;
    let list: List = Parser::new(value.as_bytes()).parse().map_err(|error| TestCaseError::fail(error.to_string()))?;
    let [ListEntry::Item(item)] = list.as_slice() else {
        return Err(TestCaseError::fail(format!("{field} has other than one member: {list:?}")));
    };
    let BareItem::String(name) = &item.bare_item else {
        return Err(TestCaseError::fail(format!("{field} does not begin with a String: {item:?}")));
    };
    let mut parameters = Vec::new();
    for (key, value) in &item.params {
        let number = value.as_integer().and_then(|number| u64::try_from(i64::from(number)).ok());
        let number = number.ok_or_else(|| TestCaseError::fail(format!("{field}: {key} is {value:?}")))?;
        parameters.push((key.to_string(), number));
    }
    Ok((name.to_string(), parameters))
}

/// A field that is a whole number.
fn number(headers: &HeaderMap, field: &str) -> Result<Option<u64>, TestCaseError> {
    let Some(value) = headers.get(field) else { return Ok(None) };
    let text = value.to_str().map_err(|error| TestCaseError::fail(error.to_string()))?;
    prop_assert!(!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()), "{field}: {text:?}");
    text.parse().map(Some).map_err(|_| TestCaseError::fail(format!("{field}: {text} is too large")))
}

/// What a response reports in either style, checked for consistency.
struct Reported {
    capacity: u64,
    remaining: u64,
    retry_after: Option<u64>,
}

fn draft_10(headers: &HeaderMap, lane: Option<&str>) -> Result<Reported, TestCaseError> {
    let (policy, policy_parameters) = member(headers, "ratelimit-policy")?;
    let (limit, limit_parameters) = member(headers, "ratelimit")?;
    prop_assert_eq!(&policy, &limit);
    prop_assert!(lane.is_none_or(|lane| lane == limit), "{limit}");
    let (capacity, window) = match policy_parameters.as_slice() {
        [(q, capacity)] if q == "q" => (*capacity, None),
        [(q, capacity), (w, window)] if q == "q" && w == "w" => (*capacity, Some(*window)),
        other => return Err(TestCaseError::fail(format!("RateLimit-Policy has {other:?}"))),
    };
    let (remaining, more_in) = match limit_parameters.as_slice() {
        [(r, remaining)] if r == "r" => (*remaining, None),
        [(r, remaining), (t, more_in)] if r == "r" && t == "t" => (*remaining, Some(*more_in)),
        other => return Err(TestCaseError::fail(format!("RateLimit has {other:?}"))),
    };
    prop_assert!(remaining <= capacity, "{remaining} of {capacity}");
    prop_assert!(window != Some(0) && more_in != Some(0), "{window:?} {more_in:?}");
    let retry_after = number(headers, "retry-after")?;
    prop_assert!(retry_after != Some(0));
    if let Some(retry_after) = retry_after {
        prop_assert_eq!(more_in, Some(retry_after.min(999_999_999_999_999)));
    }
    Ok(Reported { capacity, remaining, retry_after })
}

fn legacy(headers: &HeaderMap, now: Duration) -> Result<Reported, TestCaseError> {
    let field = |name: &str| number(headers, name)?.ok_or_else(|| TestCaseError::fail(format!("no {name}")));
    let (capacity, remaining) = (field("x-ratelimit-limit")?, field("x-ratelimit-remaining")?);
    prop_assert!(remaining <= capacity, "{remaining} of {capacity}");
    let reset = field("x-ratelimit-reset")?;
    prop_assert!(Duration::from_secs(reset) >= now, "{reset} is before {now:?}");
    let retry_after = number(headers, "retry-after")?;
    prop_assert!(retry_after != Some(0));
    Ok(Reported { capacity, remaining, retry_after })
}

fn any_quota() -> impl Strategy<Value = Quota> {
    let tokens = || prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0..100_u64];
    let span = || {
        prop_oneof![
            Just(Duration::ZERO),
            Just(Duration::MAX),
            any::<Duration>(),
            (0..9_u64).prop_map(Duration::from_nanos)
        ]
    };
    let maybe = || prop_oneof![Just(None), span().prop_map(Some)];
    (tokens(), tokens(), maybe(), maybe(), span(), any::<bool>(), maybe()).prop_map(
        |(capacity, remaining, window, next_in, full_in, denied, retry_after)| Quota {
            capacity,
            remaining,
            window,
            next_in,
            full_in,
            denied,
            retry_after,
        },
    )
}

/// Any limit in the allowed range, by orders of magnitude.
fn any_limit() -> impl Strategy<Value = Limit> {
    let magnitude = |share: f64, most: u64| ((most as f64).powf(share) as u64).clamp(1, most);
    (0.0..1.0, 0.0..1.0, 0.0..1.0).prop_map(move |(period, tokens, capacity)| {
        let period = magnitude(period, 1 << 58);
        let tokens = magnitude(tokens, period);
        let refills = (REFILL_MAX.as_nanos() as u64 - 1) / period.div_ceil(tokens);
        let capacity = magnitude(capacity, refills.min(CAPACITY_MAX));
        Limit::new(tokens, Duration::from_nanos(period)).burst(capacity)
    })
}

/// The headers of the response to a request of this cost, and whether it was refused.
fn call(layer: &TollgateLayer, cost: u64) -> (HeaderMap, bool) {
    let hello = |_: Request<u64>| std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::new()))));
    let mut request = Request::new(cost);
    request.extensions_mut().insert(cost);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let response = runtime.block_on(layer.layer(service_fn(hello)).call(request)).expect("a response");
    (response.headers().clone(), response.status() == 429)
}

proptest! {
    #[test]
    fn headers_are_well_formed_for_all_numbers_and_names(
        quota in any_quota(),
        lane: String,
        since_epoch in prop_oneof![Just(Duration::ZERO), (0..1_u64 << 40).prop_map(Duration::from_micros)],
    ) {
        let now = move || SystemTime::UNIX_EPOCH + since_epoch;
        let written = |style: Style| {
            let mut headers = HeaderMap::new();
            style.write(&mut headers, &lane, &quota, &now);
            headers
        };
        let plain = lane.bytes().all(|byte| (b' '..=b'~').contains(&byte)).then_some(lane.as_str());
        let reported = [draft_10(&written(Style::Draft10), plain)?, legacy(&written(Style::Legacy), since_epoch)?];
        for Reported { capacity, remaining, retry_after } in reported {
            prop_assert!(capacity <= quota.capacity && remaining <= quota.remaining);
            prop_assert_eq!(retry_after.is_some(), quota.denied && quota.retry_after.is_some());
        }
        prop_assert_eq!(written(Style::Off).len(), usize::from(quota.denied && quota.retry_after.is_some()));
    }

    /// Over the whole range of limits and times: headers are well formed and true, and
    /// a client that waits as long as they say is admitted.
    #[test]
    fn the_headers_of_a_layer_are_well_formed_and_true(
        limit in any_limit(),
        calls in prop::collection::vec((0.0..1.1_f64, 0.0..1.0_f64), 1..20),
        style in prop_oneof![Just(Style::Draft10), Just(Style::Legacy)],
        since_epoch in (0..1_u64 << 40).prop_map(Duration::from_micros),
    ) {
        let clock = ManualClock::new();
        let policy = Policy::builder().lane("api", limit).build().expect("a limit in the allowed range");
        let limiter = Limiter::builder(policy).agents(10).clock(clock.clone()).build().expect("a small slab");
        let layer = TollgateLayer::builder(limiter)
            .key(Key::shared("everybody"))
            .cost(|head| head.extensions.get::<u64>().copied().unwrap_or(1))
            .style(style)
            .wall_clock(move || SystemTime::UNIX_EPOCH + since_epoch)
            .build()
            .expect("a valid layer");
            let report = |headers: &HeaderMap| match style {
            Style::Draft10 => draft_10(headers, Some("api")),
            _ => legacy(headers, since_epoch),
        };
        for (wait, cost) in calls {
            // The clock covers 36 years, and the longest wait is ten.
            if clock.now() > Tick::ZERO.saturating_add(YEAR * 15) {
                break;
            }
            clock.advance(YEAR.mul_f64(1e-16_f64.powf(wait)));
            let cost = ((limit.capacity() as f64).powf(cost) as u64).clamp(1, limit.capacity());
            let (headers, refused) = call(&layer, cost);
            let reported = report(&headers)?;
            prop_assert_eq!(reported.capacity, limit.capacity());
            prop_assert_eq!(reported.retry_after.is_some(), refused);
            prop_assert!(!refused || reported.remaining < cost);
            if let Some(seconds) = reported.retry_after {
                clock.advance(Duration::from_secs(seconds));
                let (headers, refused) = call(&layer, cost);
                report(&headers)?;
                prop_assert!(!refused, "after {seconds} s, as announced");
            }
        }
    }
}
