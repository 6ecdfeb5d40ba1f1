//! `ShouldRateLimit`: decides about a request, all of it or none.
//!
//! Of a request that is denied nothing is charged. envoyproxy/ratelimit charges each descriptor by itself, so that a
//! client that one limit refuses uses up the others; here a refused client has the same left as before.
//! Parts in shadow mode are charged if the request passes, each by itself.

use super::Envoy;
use super::answer;
use super::frame::{Failure, Status};
use super::parts::{self, Part, Role, Verb};
use super::rules::Rules;
use super::wire::{RateLimitRequest, RateLimitResponse};
use crate::app::App;
use crate::problem::Problem;
use crate::tokens::Scope;
use tollgate::bounds::PARTS_MAX;
use tollgate::{Error, Limiter, Tick};

/// How many descriptors a request may have.
const DESCRIPTORS_MAX: usize = 128;

/// Decides about a request, counts it, and answers. A token may have a scope: the lanes that it is for.
pub(super) fn should_rate_limit(
    app: &App,
    envoy: &Envoy,
    request: &RateLimitRequest,
    scope: Option<&Scope>,
) -> Result<RateLimitResponse, Status> {
    let invalid = |problem: &str| Err(Status::new(Failure::InvalidArgument, problem));
    if request.domain.is_empty() {
        return invalid("the domain is empty; set domain in Envoy's rate limit filter");
    }
    if !(1..=DESCRIPTORS_MAX).contains(&request.descriptors.len()) {
        return invalid("give 1 to 128 descriptors");
    }
    let in_force = envoy.in_force();
    let rules = &in_force.rules;
    let (mut parts, free) = parts::of(rules, request, || envoy.ignore_limit())?;
    if let Some(scope) = scope {
        let policy = app.limiter().policy();
        let mut lanes = parts.iter().filter_map(|part| part.target).map(|(lane, _)| answer::lane_name(&policy, lane));
        let forbidden = |problem: Problem| Status::new(Failure::PermissionDenied, problem.detail());
        lanes.try_for_each(|lane| scope.require(lane)).map_err(forbidden)?;
    }
    let now = app.limiter().now();
    let denied = decide(&mut parts, app.limiter(), now).map_err(|error| status_of(&error))?;
    let is_denied = denied && !rules.is_shadow;
    count(app, rules, &parts, denied);
    Ok(answer::answer(app, &parts, &free, is_denied))
}

/// Decides about the parts, and charges them if all can be. Returns whether the request is denied.
fn decide(parts: &mut [Part<'_>], limiter: &Limiter, now: Tick) -> Result<bool, Error> {
    let charges = parts.iter().filter(|part| is_open(part, Role::Enforced)).count();
    if charges > PARTS_MAX {
        return Err(Error::Parts { parts: charges });
    }
    // First what charges nothing: without it a request might be denied after a charge.
    let is_first = |part: &&mut Part<'_>| part.verb == Verb::Peek || part.target.is_none();
    parts.iter_mut().filter(is_first).try_for_each(|part| part.peek(limiter, now, 0))?;
    let is_denied = decide_rest(parts, limiter, now);
    if !matches!(is_denied, Ok(false)) {
        // The request does not pass, so what its quotas were charged is given back.
        let is_charged = |part: &&mut Part<'_>| part.outcome.is_some_and(|outcome| outcome.is_charged);
        parts.iter_mut().filter(is_charged).try_for_each(|part| part.refund(limiter, now))?;
    }
    is_denied
}

fn decide_rest(parts: &mut [Part<'_>], limiter: &Limiter, now: Tick) -> Result<bool, Error> {
    let mut is_denied = decide_quotas(parts, limiter, now)?;
    let is_blocked = is_denied || parts.iter().any(|part| part.role == Role::Enforced && part.is_over());
    let mut enforced: Vec<_> = parts.iter_mut().filter(|part| is_open(part, Role::Enforced)).collect();
    if is_blocked {
        enforced.iter_mut().try_for_each(|part| part.peek(limiter, now, part.hits))?;
    } else {
        parts::check_all(&mut enforced, limiter, now)?;
    }
    is_denied |= parts.iter().any(|part| part.role == Role::Enforced && part.is_over());
    for part in parts.iter_mut().filter(|part| part.outcome.is_none()) {
        let decided = match part.verb {
            _ if is_denied => part.peek(limiter, now, part.hits),
            Verb::Refund => part.refund(limiter, now),
            _ => part.check(limiter, now),
        };
        // What only counts does not stand in the way.
        if part.role != Role::Shadow {
            decided?;
        }
    }
    Ok(is_denied)
}

/// Whether a part of this role charges and is not decided yet.
fn is_open(part: &Part<'_>, role: Role) -> bool {
    part.role == role && part.verb == Verb::Charge && part.outcome.is_none()
}

/// Charges the quotas, each by itself. Returns whether there are some and none has room.
fn decide_quotas(parts: &mut [Part<'_>], limiter: &Limiter, now: Tick) -> Result<bool, Error> {
    parts.iter_mut().filter(|part| is_open(part, Role::Quota)).try_for_each(|part| part.check(limiter, now))?;
    let mut quotas = parts.iter().filter(|part| part.role == Role::Quota && part.verb != Verb::Refund).peekable();
    Ok(quotas.peek().is_some() && quotas.all(Part::is_over))
}

/// Counts what was decided, by rule and by lane.
fn count(app: &App, rules: &Rules, parts: &[Part<'_>], denied: bool) {
    for part in parts.iter().filter(|part| part.verb == Verb::Charge) {
        let Some(outcome) = part.outcome else { continue };
        part.counters.asked(part.hits);
        if outcome.is_exempt {
            continue;
        }
        if outcome.is_charged {
            part.counters.charged(part.hits, outcome.quota.capacity, outcome.quota.remaining);
            part.target.into_iter().for_each(|(lane, _)| app.meter().add_cost(lane, part.hits));
        } else if outcome.quota.denied {
            let passes = part.role == Role::Shadow || rules.is_shadow || !denied;
            part.counters.denied(part.hits, passes);
            if !passes {
                report(app, part);
            }
        }
    }
}

/// Counts a denial by lane, and logs it.
fn report(app: &App, part: &Part<'_>) {
    let (Some((lane, _)), Some(outcome)) = (part.target, part.outcome) else { return };
    let policy = app.limiter().policy();
    let assigned = app.limiter().assignment(&part.agent).unwrap_or_default();
    app.meter().count_denial(lane, assigned.plan().unwrap_or("default"));
    let name = answer::lane_name(&policy, lane);
    let limit = || match part.stated {
        Some(rate) => rate.to_string(),
        None => app.limiter().limit_of(&part.agent, lane).ok().flatten().map_or_else(String::new, |l| l.to_string()),
    };
    app.log_denial(&part.agent, name, limit, outcome.quota.retry_after_ms());
    if outcome.is_abuse {
        tracing::warn!(agent = %part.agent.escape_ascii(), lane = name, "sustained abuse");
        app.notify_abuse(&part.agent, name);
    }
}

fn status_of(error: &Error) -> Status {
    let failure = match error {
        Error::Busy | Error::Full | Error::NoSeat { .. } => Failure::Unavailable,
        Error::Parts { .. } => Failure::ResourceExhausted,
        _ => Failure::InvalidArgument,
    };
    Status::new(failure, error.to_string())
}
