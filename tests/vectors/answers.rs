//! Makes the call of a step, and turns its answer into fields.

use crate::fields::{Fields, agent_id, id_value, whole_number};
use crate::policies;
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;
use tollgate::clock::wait_ms;
use tollgate::{
    AllVerdict, Assignment, CallLimit, Conduct, ControlError, Decision, Error, LaneId, LaneState, Limiter, PlanId,
    Request, ReservationId, Settle, Settlement, Tick, Verdict, Violation,
};

/// Reservations by the names they have in a case.
pub(crate) type Reservations = RefCell<BTreeMap<String, ReservationId>>;

/// An id that was never given out: slots are taken from the first on.
const MADE_UP: ReservationId = ReservationId::from_number(u64::MAX);

/// The answer to the call of a step: fields, or the name of an error. The outer
/// error is an invalid step.
pub(crate) fn of(
    limiter: &Limiter,
    reservations: &Reservations,
    step: &Fields,
) -> Result<Result<Value, String>, String> {
    let agent = || step.agent("agent");
    let lane = || lane_of(limiter, step);
    let reservation = || {
        let name = step.text("reservation")?;
        Ok::<_, String>(reservations.borrow().get(name).copied().unwrap_or(MADE_UP))
    };
    let ttl = || step.number("ttl_ms").map(Duration::from_millis);
    let plan = || match step.get("plan")? {
        Value::String(name) => limiter.plan(name).ok_or_else(|| format!("there is no plan {name:?}")),
        number => whole_number(number).map(PlanId::new),
    };
    let cost = || Ok::<_, String>(step.optional_number("cost")?.unwrap_or(1));
    let limit = match call_limit(step) {
        // The limit of an override, or of a call.
        _ if step.text("op")? == "set_override" => None,
        Ok(limit) => limit,
        // Nothing is asked, though all the rest was given.
        Err(_) => return agent().and(lane().map(|_| Err("bad_limit".into()))),
    };
    let of_control = |done: Result<(), ControlError>| done.map(|()| json!({})).map_err(|error| control_error(&error));
    Ok(match step.text("op")? {
        "check" => {
            let id = agent()?;
            let plan = if step.has("plan") { Some(plan()?) } else { None };
            let request = Request::new(&id, lane()?).cost(cost()?).plan(plan).limit(limit);
            match step.flag("counted")? {
                true => of_call(limiter.check_request(request.counted()), counted_verdict),
                false => of_call(limiter.check_request(request), verdict),
            }
        }
        "peek" => of_call(limiter.peek(Request::new(&agent()?, lane()?).limit(limit)), state),
        "refund" => of_call(limiter.refund(Request::new(&agent()?, lane()?).cost(cost()?).limit(limit)), state),
        "hold" => of_call(limiter.hold_until_released(Request::new(&agent()?, lane()?)), verdict),
        "release" => of_call(limiter.release(Request::new(&agent()?, lane()?)), state),
        "check_all" => {
            let is_counted = step.flag("counted")?;
            let check = |limiter: &Limiter, parts: &[Request<'_>]| {
                let counted = parts.iter().map(|part| if is_counted { part.counted() } else { *part });
                limiter.check_all(&counted.collect::<Vec<_>>())
            };
            of_call(with_parts(limiter, step, check)?, |verdict| all_verdict(&verdict))
        }
        "reserve" => {
            let id = agent()?;
            let estimate = Request::new(&id, lane()?).cost(step.number("estimate")?).limit(limit);
            let reserved = limiter.reserve(estimate, ttl()?);
            let name = step.text("reservation")?;
            if let Some(id) = reserved.ok().and_then(|reserved| reserved.id()) {
                reservations.borrow_mut().insert(name.to_owned(), id);
            }
            of_call(reserved, |reserved| verdict(reserved.verdict()))
        }
        "settle" => {
            let used = step.number("used")?;
            let settle = if step.flag("so_far")? { Settle::used_so_far(used) } else { Settle::used(used) };
            of_call(limiter.settle(reservation()?, settle), settlement)
        }
        "extend" => of_call(limiter.extend(reservation()?, ttl()?), |()| json!({})),
        "reset" if step.has("lane") => of_call(limiter.reset_lane(&agent()?, lane()?), |()| json!({})),
        "reset" => of_call(limiter.reset(&agent()?), |()| json!({})),
        "forget" => of_call(limiter.forget(&agent()?), |known| json!({ "known": known })),
        "sweep" => {
            let idle_for = Duration::from_millis(step.number("idle_for_ms")?);
            Ok(json!({ "swept": limiter.sweep(idle_for) }))
        }
        "limit_of" => of_call(
            limiter.limit_of(agent()?, lane()?),
            |limit| json!({ "limit": limit.map(|limit| limit.to_string()) }),
        ),
        "assign" => of_control(limiter.assign(agent()?, plan()?)),
        "unassign" => of_control(limiter.unassign(agent()?)),
        "set_override" => of_control(limiter.set_override(agent()?, step.text("lane_or_tier")?, step.text("limit")?)),
        "remove_override" => of_control(limiter.remove_override(agent()?, step.text("lane_or_tier")?)),
        "remove_overrides" => of_control(limiter.remove_overrides(agent()?)),
        "exempt" => of_control(limiter.exempt(agent()?)),
        "unexempt" => of_control(limiter.unexempt(agent()?)),
        "is_exempt" => of_call(limiter.is_exempt(agent()?), |exempt| json!({ "exempt": exempt })),
        "assignment" => of_call(limiter.assignment(agent()?), |decided| assignment(&decided)),
        "assignments" => {
            Ok(json!({ "agents": limiter.assignments().iter().map(|(id, _)| id_value(id)).collect::<Vec<_>>() }))
        }
        "replace_policy" => match policies::read(&step.object("policy")?)? {
            Ok(policy) => of_control(limiter.replace_policy(policy)),
            Err(_) => Err("bad_policy".into()),
        },
        "record_violation" => {
            of_call(limiter.record_violation(&agent()?), |recorded| Value::Object(violation(&recorded)))
        }
        "violations" => of_call(limiter.violations(&agent()?), |seen| conduct(&seen)),
        "rate_limited" => of_call(limiter.rate_limited(&agent()?), |limited| json!({ "rate_limited": limited })),
        "assignable" => {
            let agents = step.list("agents")?.iter().map(agent_id).collect::<Result<Vec<_>, _>>()?;
            Ok(json!({ "agents": limiter.assignable(agents).iter().map(|id| id_value(id)).collect::<Vec<_>>() }))
        }
        "reset_violations" => of_call(limiter.reset_violations(agent()?), |known| json!({ "known": known })),
        "lane_for" => {
            let found = limiter.lane_for(step.text("channel")?, step.text("action")?);
            let policy = limiter.policy();
            let name = |lane| policy.lanes().find(|(known, _)| *known == lane).map(|(_, name)| name);
            Ok(found.map_or(json!({ "lane": null }), |found| {
                json!({ "lane": name(found.lane()), "known": found.is_known(), "first_seen": found.is_first_seen() })
            }))
        }
        "unknown_actions" => {
            let seen = limiter.unknown_actions();
            Ok(json!({ "total": seen.total, "names": seen.names, "not_listed": seen.not_listed }))
        }
        other => return Err(format!("there is no op {other:?}")),
    })
}

fn lane_of(limiter: &Limiter, fields: &Fields) -> Result<LaneId, String> {
    match fields.get("lane")? {
        Value::String(name) => limiter.lane(name).ok_or_else(|| format!("there is no lane {name:?}")),
        number => whole_number(number).map(LaneId::new),
    }
}

/// The limit that a call brings along.
fn call_limit(fields: &Fields) -> Result<Option<CallLimit>, String> {
    let limit = fields.optional_text("limit")?.map(CallLimit::try_from);
    limit.transpose().map_err(|error| error.to_string())
}

/// Makes a call with the parts of a step.
fn with_parts<T>(
    limiter: &Limiter,
    step: &Fields,
    call: impl FnOnce(&Limiter, &[Request<'_>]) -> T,
) -> Result<T, String> {
    let read = |part: &Value| {
        let part = Fields::of(part);
        let (agent, lane) = (part.agent("agent")?, lane_of(limiter, &part)?);
        let read = (agent, lane, part.optional_number("cost")?.unwrap_or(1), call_limit(&part)?);
        part.all_used().map(|()| read)
    };
    let parts = step.optional_list("parts")?.iter().map(read).collect::<Result<Vec<_>, String>>()?;
    let parts: Vec<_> =
        parts.iter().map(|(agent, lane, cost, limit)| Request::new(agent, *lane).cost(*cost).limit(*limit)).collect();
    Ok(call(limiter, &parts))
}

fn of_call<T>(answer: Result<T, Error>, fields: impl FnOnce(T) -> Value) -> Result<Value, String> {
    answer.map(fields).map_err(|error| error_name(error).to_owned())
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("a span of less than 584 years")
}

fn verdict(verdict: Verdict) -> Value {
    if verdict.decision() == Decision::Exempt {
        return json!({ "decision": "exempt" });
    }
    let mut fields = json!({
        "decision": decision(verdict.decision()),
        "remaining": verdict.remaining(),
        "capacity": verdict.capacity(),
        "full_in_ns": nanos(verdict.full_in()),
    });
    if !verdict.is_allowed() {
        fields["retry_after_ns"] = json!(verdict.retry_after().map(nanos));
        fields["whole_seconds_ms"] = json!(wait_ms(verdict.retry_after(), 1_000, 60_000));
    }
    fields
}

fn decision(decision: Decision) -> &'static str {
    match decision {
        Decision::Allow => "allow",
        Decision::Warn => "warn",
        Decision::Deny => "deny",
        Decision::Exempt => "exempt",
        other => panic!("{other:?} is a new decision; say what a vector calls it"),
    }
}

fn all_verdict(all: &AllVerdict) -> Value {
    let mut fields = json!({
        "decision": decision(all.decision()),
        "decisions": all.verdicts().iter().map(|verdict| decision(verdict.decision())).collect::<Vec<_>>(),
        "blocking": all.blocking().collect::<Vec<_>>(),
    });
    if !all.is_allowed() {
        fields["retry_after_ns"] = json!(all.retry_after().map(nanos));
    }
    fields
}

fn settlement(settled: Settlement) -> Value {
    json!({ "unused": settled.unused, "overspent": settled.overspent, "left": settled.left })
}

fn counted_verdict(counted: Verdict) -> Value {
    let mut fields = verdict(counted);
    if !counted.is_allowed() {
        fields["lane_wait_ns"] = json!(counted.lane_wait().map(nanos));
        fields["wait_ns"] = json!(nanos(counted.conduct_wait()));
        fields["in_a_row"] = json!(counted.violations_in_a_row());
        fields["sustained_abuse"] = json!(counted.is_sustained_abuse());
    }
    fields
}

fn violation(violation: &Violation) -> Map<String, Value> {
    Map::from_iter([
        ("step_ns".to_owned(), json!(nanos(violation.step()))),
        ("wait_ns".to_owned(), json!(nanos(violation.wait()))),
        ("in_a_row".to_owned(), json!(violation.in_a_row())),
        ("sustained_abuse".to_owned(), json!(violation.sustained_abuse())),
    ])
}

fn conduct(conduct: &Conduct) -> Value {
    json!({
        "violations": conduct.violations(),
        "in_a_row": conduct.in_a_row(),
        "window_start_ns": conduct.window_start().map(Tick::as_nanos),
        "last_violation_ns": conduct.last_violation().map(Tick::as_nanos),
        "wait_ns": nanos(conduct.wait()),
    })
}

fn state(state: LaneState) -> Value {
    if state.is_exempt() {
        return json!({ "exempt": true });
    }
    json!({
        "exempt": false,
        "remaining": state.remaining(),
        "capacity": state.capacity(),
        "next_in_ns": state.next_in().map(nanos),
        "full_in_ns": nanos(state.full_in()),
    })
}

fn assignment(decided: &Assignment) -> Value {
    let overrides: Vec<_> = decided.overrides().map(|(lane, limit)| json!([lane, limit.to_string()])).collect();
    json!({ "plan": decided.plan(), "overrides": overrides, "exempt": decided.is_exempt() })
}

fn error_name(error: Error) -> &'static str {
    match error {
        Error::EmptyId => "empty_id",
        Error::IdTooLong { .. } => "id_too_long",
        Error::UnknownLane { .. } => "unknown_lane",
        Error::UnknownPlan { .. } => "unknown_plan",
        Error::ZeroCost => "zero_cost",
        Error::CostAboveCapacity { .. } => "cost_above_capacity",
        Error::Full => "full",
        Error::NotHeld { .. } => "not_held",
        Error::WrongKind { .. } => "wrong_kind",
        Error::NoLimit { .. } => "no_limit",
        Error::LimitGiven { .. } => "limit_given",
        Error::LimitsDiffer { .. } => "limits_differ",
        Error::Parts { .. } => "parts",
        Error::ReservationsFull => "reservations_full",
        Error::TooManyReservations { .. } => "too_many_reservations",
        Error::UsedTooLarge { .. } => "used_too_large",
        Error::UnknownReservation => "unknown_reservation",
        other => panic!("{other:?} is a new error; say what a vector calls it"),
    }
}

fn control_error(error: &ControlError) -> String {
    match error {
        ControlError::Agent(error) => error_name(*error),
        ControlError::UnknownLane { .. } => "unknown_lane",
        ControlError::UnknownPlan { .. } => "unknown_plan",
        ControlError::Limit(_) => "bad_limit",
        ControlError::OtherLanes { .. } => "other_lanes",
        ControlError::PlanMissing { .. } => "plan_missing",
        other => panic!("{other:?} is not an error that a vector can name"),
    }
    .to_owned()
}
