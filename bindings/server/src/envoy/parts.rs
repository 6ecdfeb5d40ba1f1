//! What a request asks of the limiter: one part for each descriptor that has a limit.

use super::counters::Counters;
use super::frame::{Failure, Status};
use super::rules::{Rule, RuleLimit, Rules};
use super::wire::{Descriptor, RateLimitRequest};
use super::written::Rate;
use std::collections::HashSet;
use std::time::Duration;
use tollgate::{CallLimit, Decision, Error, LaneId, LaneState, Limiter, Request, Tick, Verdict};
use tollgate_tower::{Quota, Reason};

/// What a part does with its hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Charge,
    /// No hits: is anything left?
    Peek,
    Refund,
}

/// What a part has to say about the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Enforced,
    /// It denies together with all other quotas.
    Quota,
    /// It never denies.
    Shadow,
}

/// A descriptor with a limit.
pub(super) struct Part<'r> {
    /// Which descriptor it is.
    pub(super) index: usize,
    /// The rule; `None` for a limit that the request brought along.
    pub(super) rule: Option<&'r Rule>,
    pub(super) counters: &'r Counters,
    pub(super) agent: Vec<u8>,
    /// `None`: nothing passes.
    pub(super) target: Option<(LaneId, Option<CallLimit>)>,
    /// The limit as Envoy counts it, if it was written so.
    pub(super) stated: Option<Rate>,
    pub(super) hits: u64,
    pub(super) verb: Verb,
    pub(super) role: Role,
    pub(super) outcome: Option<Outcome>,
}

/// What became of a part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub(super) quota: Quota,
    pub(super) reason: Reason,
    pub(super) is_exempt: bool,
    pub(super) is_charged: bool,
    pub(super) is_abuse: bool,
}

/// A descriptor without a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Free {
    /// It has no rule, or one that exempts it.
    NoLimit,
    Unlimited,
}

/// The parts of a request, and the descriptors that have none. `on_ignored` is called for a limit that a request
/// brought along and that no lane can hold.
pub(super) fn of<'r>(
    rules: &'r Rules,
    request: &RateLimitRequest,
    on_ignored: impl Fn(),
) -> Result<(Vec<Part<'r>>, Vec<Free>), Status> {
    let mut parts = Vec::with_capacity(request.descriptors.len());
    let mut free = vec![Free::NoLimit; request.descriptors.len()];
    let mut replaced: HashSet<&str> = HashSet::new();
    for (index, descriptor) in request.descriptors.iter().enumerate() {
        let (hits, verb) = hits(request, descriptor);
        if let (Some(limit), Some(lane)) = (descriptor.limit, rules.dynamic) {
            let Some((counters, agent)) = rules.find_brought(&request.domain, &descriptor.entries) else { continue };
            let invalid = |problem: &str| {
                Err(Status::new(Failure::InvalidArgument, format!("the limit of descriptor {index}: {problem}")))
            };
            let unit = match limit.unit.try_into() {
                Ok(unit) if unit != super::wire::Unit::Unknown => unit,
                _ => return invalid("its unit is unknown"),
            };
            let stated = Rate { requests_per_unit: limit.requests_per_unit, unit };
            let target = match limit.requests_per_unit {
                0 => None,
                _ => match stated.call_limit() {
                    Ok(limit) => Some((lane, Some(limit))),
                    Err(error) => return invalid(&error.to_string()),
                },
            };
            let (rule, stated, role) = (None, Some(stated), Role::Enforced);
            parts.push(Part { index, rule, counters, agent, target, stated, hits, verb, role, outcome: None });
            continue;
        }
        if descriptor.limit.is_some() {
            on_ignored();
        }
        let Some((rule, agent)) = rules.find(&request.domain, &descriptor.entries) else { continue };
        replaced.extend(rule.replaces.iter().map(String::as_str));
        let (target, stated) = match rule.limit {
            RuleLimit::None => continue,
            RuleLimit::Unlimited => {
                free[index] = Free::Unlimited;
                continue;
            }
            RuleLimit::Deny => (None, None),
            RuleLimit::Lane(lane) => (Some((lane, None)), None),
            RuleLimit::Own(limit, stated) => (rules.dynamic.map(|lane| (lane, Some(limit))), stated),
        };
        if target.is_none() && verb == Verb::Refund {
            continue;
        }
        let role = match (rule.is_shadow, rule.is_quota) {
            (true, _) => Role::Shadow,
            (false, true) => Role::Quota,
            (false, false) => Role::Enforced,
        };
        let (rule, counters) = (Some(rule), &*rule.counters);
        parts.push(Part { index, rule, counters, agent, target, stated, hits, verb, role, outcome: None });
    }
    let is_replaced =
        |part: &Part<'_>| part.rule.and_then(|rule| rule.name.as_deref()).is_some_and(|name| replaced.contains(name));
    parts.retain(|part| !is_replaced(part));
    Ok((parts, free))
}

/// The hits of a descriptor. Its own number takes precedence, and may be 0; the request's is 1 if it is 0.
fn hits(request: &RateLimitRequest, descriptor: &Descriptor) -> (u64, Verb) {
    let hits = match descriptor.hits_addend {
        Some(own) => own.value,
        None => u64::from(request.hits_addend.max(1)),
    };
    match (hits, descriptor.is_negative_hits) {
        (0, _) => (0, Verb::Peek),
        (hits, true) => (hits, Verb::Refund),
        (hits, false) => (hits, Verb::Charge),
    }
}

impl Part<'_> {
    /// What it asks of the limiter. A denial counts as a violation unless the part is in shadow mode.
    fn request(&self, (lane, limit): (LaneId, Option<CallLimit>), now: Tick) -> Request<'_> {
        let request = Request::new(&self.agent, lane).cost(self.hits.max(1)).limit(limit).at(now);
        if self.role == Role::Shadow { request } else { request.counted() }
    }

    /// Whether its limit has no room for it.
    pub(super) fn is_over(&self) -> bool {
        self.outcome.is_some_and(|outcome| outcome.quota.denied)
    }

    /// Decides about this part alone, and charges it if there is room.
    pub(super) fn check(&mut self, limiter: &Limiter, now: Tick) -> Result<(), Error> {
        let Some(target) = self.target else {
            self.deny();
            return Ok(());
        };
        match limiter.check_request(self.request(target, now)) {
            Ok(verdict) => self.take(&verdict, true),
            Err(Error::CostAboveCapacity { .. }) => self.peek(limiter, now, self.hits)?,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Decides without a charge, as if parts of its lane together cost this much.
    pub(super) fn peek(&mut self, limiter: &Limiter, now: Tick, together: u64) -> Result<(), Error> {
        let Some(target) = self.target else {
            self.deny();
            return Ok(());
        };
        let state = limiter.peek(self.request(target, now))?;
        let is_over = self.verb != Verb::Refund && !state.is_exempt() && state.remaining() < together.max(1);
        self.see(&state, is_over, together);
        Ok(())
    }

    /// Gives its hits back.
    pub(super) fn refund(&mut self, limiter: &Limiter, now: Tick) -> Result<(), Error> {
        let Some(target) = self.target else { return Ok(()) };
        let state = limiter.refund(self.request(target, now))?;
        self.see(&state, false, self.hits);
        Ok(())
    }

    fn see(&mut self, state: &LaneState, is_over: bool, together: u64) {
        let quota = Quota { denied: is_over, ..Quota::from(state) };
        let quota = Quota { retry_after: wait(&quota, together).filter(|_| is_over), ..quota };
        let reason = if together > quota.capacity { Reason::Cost(together) } else { Reason::Quota };
        let is_exempt = state.is_exempt();
        self.outcome = Some(Outcome { quota, reason, is_exempt, is_charged: false, is_abuse: false });
    }

    /// A verdict of the limiter; `is_charged` if an allowed part is charged.
    fn take(&mut self, verdict: &Verdict, is_charged: bool) {
        let quota = Quota::from(verdict);
        let is_conduct = quota.denied && (quota.retry_after > verdict.lane_wait() || quota.remaining >= self.hits);
        let reason = match is_conduct {
            _ if verdict.is_provisional() => Reason::Pending,
            true => Reason::Conduct,
            false => Reason::Quota,
        };
        let is_exempt = verdict.decision() == Decision::Exempt;
        let is_charged = is_charged && verdict.is_allowed();
        let is_abuse = verdict.is_sustained_abuse();
        self.outcome = Some(Outcome { quota, reason, is_exempt, is_charged, is_abuse });
    }

    /// Nothing ever passes here.
    fn deny(&mut self) {
        let quota = Quota {
            capacity: 0,
            remaining: 0,
            window: None,
            next_in: None,
            full_in: Duration::ZERO,
            denied: true,
            retry_after: None,
        };
        let (reason, is_exempt) = (Reason::Quota, false);
        self.outcome = Some(Outcome { quota, reason, is_exempt, is_charged: false, is_abuse: false });
    }
}

/// How long it takes until this much is there; `None` if it never is.
fn wait(quota: &Quota, cost: u64) -> Option<Duration> {
    if cost > quota.capacity {
        return None;
    }
    // What is missing beyond the next token comes at the rate at which an empty lane fills.
    let missing = cost.saturating_sub(quota.remaining).saturating_sub(1);
    let more = match quota.window {
        Some(window) => window.as_nanos() * u128::from(missing) / u128::from(quota.capacity.max(1)),
        None => 0,
    };
    let more = Duration::from_nanos(u64::try_from(more).unwrap_or(u64::MAX));
    quota.next_in.map(|next_in| next_in.saturating_add(more).min(quota.full_in))
}

/// Charges these parts, all of them or none. All of them charge.
pub(super) fn check_all(parts: &mut [&mut Part<'_>], limiter: &Limiter, now: Tick) -> Result<(), Error> {
    if let [part] = parts {
        return part.check(limiter, now);
    }
    let all = {
        let parts = parts.iter().filter_map(|part| Some(part.request(part.target?, now)));
        let requests: Vec<_> = parts.collect();
        if requests.is_empty() {
            return Ok(());
        }
        limiter.check_all(&requests)
    };
    match all {
        Ok(all) => {
            for (part, verdict) in parts.iter_mut().zip(all.verdicts()) {
                part.take(verdict, all.is_allowed());
            }
            Ok(())
        }
        // Some can never pass, alone or with others of their lane. The others are as they would be.
        Err(Error::CostAboveCapacity { .. }) => {
            let costs: Vec<u64> = parts
                .iter()
                .map(|part| {
                    let lane = |part: &Part<'_>| part.target.map(|(lane, _)| lane);
                    let is_same = |other: &&&mut Part<'_>| lane(other) == lane(part) && other.agent == part.agent;
                    parts.iter().filter(is_same).fold(0, |sum: u64, other| sum.saturating_add(other.hits))
                })
                .collect();
            parts.iter_mut().zip(costs).try_for_each(|(part, together)| part.peek(limiter, now, together))
        }
        Err(error) => Err(error),
    }
}
