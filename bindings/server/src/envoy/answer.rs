//! The answer to Envoy: a status for each descriptor, and what the client of a refused request receives.

use super::parts::{Free, Part, Role};
use super::wire::{Code, CurrentLimit, DescriptorStatus, Duration, HeaderValue, RateLimitResponse, Unit};
use crate::app::App;
use http::HeaderMap;
use std::cmp::Reverse;
use tollgate::{LaneId, Policy};
use tollgate_tower::{Quota, Refusal};

/// The answer to a request with these parts.
pub(super) fn answer(app: &App, parts: &[Part<'_>], free: &[Free], is_denied: bool) -> RateLimitResponse {
    let policy = app.limiter().policy();
    let mut statuses: Vec<_> = free.iter().map(status_of_free).collect();
    for part in parts {
        statuses[part.index] = status_of(&policy, part);
    }
    let overall = if is_denied { Code::OverLimit } else { Code::Ok };
    let mut response = RateLimitResponse { overall_code: overall.into(), statuses, ..Default::default() };
    if let Some((part, mut quota, reason)) = shown(parts, is_denied) {
        // As it was written: the price of a token is rounded up, and seven of them take a bit longer than an hour.
        quota.window = part.stated.map_or(quota.window, |stated| Some(stated.unit.duration()));
        let lane = shown_name(&policy, part);
        let mut headers = HeaderMap::with_capacity(8);
        app.settings().style().write(&mut headers, lane, &quota, &|| app.wall_clock());
        response.response_headers_to_add = headers.iter().filter_map(header).collect();
        if is_denied {
            let profile = app.settings().profile;
            // Whoever it is, its own id is of no use to it.
            let refusal = Refusal { agent: None, lane, instance: None, reason, quota };
            response.raw_body = profile.body(&refusal).into_bytes();
            let (key, value) = ("content-type".to_owned(), profile.content_type().to_owned());
            response.response_headers_to_add.push(HeaderValue { key, value });
        }
    }
    response
}

fn header((name, value): (&http::HeaderName, &http::HeaderValue)) -> Option<HeaderValue> {
    Some(HeaderValue { key: name.as_str().to_owned(), value: value.to_str().ok()?.to_owned() })
}

fn status_of_free(free: &Free) -> DescriptorStatus {
    let limit_remaining = if *free == Free::Unlimited { u32::MAX } else { 0 };
    DescriptorStatus { code: Code::Ok.into(), limit_remaining, ..Default::default() }
}

fn status_of(policy: &Policy, part: &Part<'_>) -> DescriptorStatus {
    let Some(outcome) = part.outcome.filter(|outcome| !outcome.is_exempt) else {
        return status_of_free(&Free::Unlimited);
    };
    let quota = outcome.quota;
    let clamp = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let (requests_per_unit, unit) = match part.stated {
        Some(stated) => (stated.requests_per_unit, stated.unit),
        None => (clamp(quota.capacity), quota.window.map_or(Unit::Unknown, Unit::of)),
    };
    let name = match (part.rule.and_then(|rule| rule.name.clone()), part.target) {
        (Some(name), _) => name,
        (None, Some((lane, None))) => lane_name(policy, lane).to_owned(),
        _ => String::new(),
    };
    let is_over = quota.denied && part.role != Role::Shadow;
    DescriptorStatus {
        code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
        current_limit: Some(CurrentLimit { requests_per_unit, unit: unit.into(), name }),
        limit_remaining: if quota.denied { 0 } else { clamp(quota.remaining.min(quota.capacity)) },
        duration_until_reset: Some(Duration {
            seconds: i64::try_from(quota.full_in.as_secs()).unwrap_or(i64::MAX),
            // Lossless: less than a second.
            nanos: quota.full_in.subsec_nanos() as i32,
        }),
    }
}

/// The part that the client hears of: of a denied request the one with the longest wait, otherwise the one with the
/// smallest share left.
fn shown<'p, 'r>(parts: &'p [Part<'r>], is_denied: bool) -> Option<(&'p Part<'r>, Quota, tollgate_tower::Reason)> {
    let limited = parts.iter().filter(|part| part.role != Role::Shadow);
    let limited = limited.filter_map(|part| Some((part, part.outcome.filter(|outcome| !outcome.is_exempt)?)));
    if is_denied {
        // Where waiting does not help, the wait is the longest of all.
        let wait = |quota: &Quota| quota.retry_after.unwrap_or(std::time::Duration::MAX);
        let is_enforced = parts.iter().any(|part| part.role == Role::Enforced && part.is_over());
        let denies = |part: &Part<'_>| part.is_over() && (part.role == Role::Enforced || !is_enforced);
        let worst = limited.filter(|(part, _)| denies(part)).min_by_key(|(_, outcome)| Reverse(wait(&outcome.quota)));
        return worst.map(|(part, outcome)| (part, outcome.quota, outcome.reason));
    }
    let share = |quota: &Quota| u128::from(quota.remaining) * 1_000_000 / u128::from(quota.capacity.max(1));
    let tightest = limited.min_by_key(|(_, outcome)| share(&outcome.quota));
    tightest.map(|(part, outcome)| {
        // In shadow mode nobody has to wait.
        (part, Quota { denied: false, retry_after: None, ..outcome.quota }, outcome.reason)
    })
}

/// What the limit is called in headers and bodies.
fn shown_name<'a>(policy: &'a Policy, part: &'a Part<'_>) -> &'a str {
    match (part.target, part.rule) {
        (Some((lane, None)), _) => lane_name(policy, lane),
        (_, Some(rule)) => rule.name.as_deref().unwrap_or(&rule.label),
        (_, None) => "request",
    }
}

/// The name of a lane.
pub(super) fn lane_name(policy: &Policy, lane: LaneId) -> &str {
    policy.lanes().nth(lane.number() as usize).map_or("", |(_, name)| name)
}
