//! Control: what an operator decides at run time.
//!
//! An agent may have a plan, limits of its own (overrides), and an exemption:
//! together, its assignment. It outlives the agent's record. When a call returns,
//! its change applies to the next check in every thread. Control calls take turns
//! under a lock that checks never take.

use super::failure::{Failure, guard_error};
use super::guard::guard;
use super::pointers::{agent, borrow, plan_id, put_text, text};
use super::{Error, Limiter, Policy, Status};
use crate as tollgate;
use std::ffi::{c_char, c_void};
use tollgate::LaneId;

/// The most agents that may have overrides at once.
pub const TOLLGATE_OVERRIDES_MAX: usize = 65_000;

const _: () = assert!(TOLLGATE_OVERRIDES_MAX == tollgate::bounds::OVERRIDES_MAX);

/// A whole control call about the limiter at large. By reference, so that there
/// is one copy for all of them: none is in a hurry.
///
/// # Safety
///
/// `limiter` is NULL, or alive and shared; `error_out` is as in [`tollgate_assign`].
pub(super) unsafe fn control(
    limiter: *const Limiter,
    error_out: *mut Error,
    control: &dyn Fn(&tollgate::Limiter) -> Result<(), Failure>,
) -> Status {
    // SAFETY: NULL, or alive and shared, as the caller guarantees.
    let call = || control(&unsafe { borrow(limiter) }?.0);
    // SAFETY: as the caller guarantees.
    unsafe { guard_error(error_out, call) }
}

/// What is decided about an agent.
type Decide<'a> = &'a dyn Fn(&tollgate::Limiter, &[u8]) -> Result<(), Failure>;

/// A whole control call about one agent.
///
/// # Safety
///
/// As [`tollgate_assign`].
unsafe fn decide(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    error_out: *mut Error,
    decide: Decide<'_>,
) -> Status {
    // SAFETY: NULL, or readable for `id_len` bytes, as the caller guarantees.
    let call = |limiter: &tollgate::Limiter| decide(limiter, unsafe { agent(id, id_len) }?);
    // SAFETY: as the caller guarantees.
    unsafe { control(limiter, error_out, &call) }
}

/// The policy has no plan of this number, which may be too large for any policy.
pub(super) fn no_plan(plan: u32, policy: &tollgate::Policy) -> Failure {
    let plans = policy.plans().len();
    let problem = format_args!("there is no plan {plan}; this policy has {plans}, numbered from 0");
    Failure::new(Status::UnknownPlan, &problem)
}

/// Assigns the agent to a plan. TOLLGATE_NONE removes it from its plan.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_PLAN, SAME_HASH, FORKED, FILE, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `error_out` is NULL, or readable and writable for as
/// many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assign(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    plan: u32,
    error_out: *mut Error,
) -> Status {
    let assign = |limiter: &tollgate::Limiter, id: &[u8]| match plan_id(plan) {
        Some(id_of_plan) => limiter.assign(id, id_of_plan).map_err(|error| match Status::from(&error) {
            Status::UnknownPlan => no_plan(plan, &limiter.policy()),
            _ => error.into(),
        }),
        None => Ok(limiter.unassign(id)?),
    };
    // SAFETY: as this function's contract has it.
    unsafe { decide(limiter, id, id_len, error_out, &assign) }
}

/// Gives the agent a limit of its own for a lane, or for a tier in every channel:
/// the tier "heavy" is "ws/heavy", "http/heavy" and so on. The limit is text, such
/// as "10/second burst 20" or "deny".
///
/// A NULL limit removes the agent's own limit for that lane or tier; if
/// lane_or_tier is NULL as well, all of them.
///
/// Status: EMPTY_ID, ID_TOO_LONG, NOT_UTF8, TEXT_TOO_LONG, UNKNOWN_LANE,
/// INVALID_LIMIT, TOO_MANY_OVERRIDES, SAME_HASH, FORKED, FILE, STRUCT_SIZE.
///
/// # Safety
///
/// As tollgate_assign; `lane_or_tier` and `limit` are NULL or readable for as
/// many bytes as stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_set_override(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane_or_tier: *const c_char,
    lane_or_tier_len: usize,
    limit: *const c_char,
    limit_len: usize,
    error_out: *mut Error,
) -> Status {
    let set = |limiter: &tollgate::Limiter, id: &[u8]| {
        if lane_or_tier.is_null() && limit.is_null() {
            return Ok(limiter.remove_overrides(id)?);
        }
        // SAFETY: NULL, or readable for as many bytes as stated, by this function's contract.
        let lane_or_tier = unsafe { text(lane_or_tier, lane_or_tier_len) }?;
        if limit.is_null() {
            return Ok(limiter.remove_override(id, lane_or_tier)?);
        }
        // SAFETY: as above.
        Ok(limiter.set_override(id, lane_or_tier, unsafe { text(limit, limit_len) }?)?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { decide(limiter, id, id_len, error_out, &set) }
}

/// Exempts the agent, or limits it again. Requests of an exempt agent are
/// answered with TOLLGATE_DECISION_EXEMPT and charge nothing.
///
/// Status: EMPTY_ID, ID_TOO_LONG, SAME_HASH, FORKED, FILE, STRUCT_SIZE.
///
/// # Safety
///
/// As tollgate_assign.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_set_exempt(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    exempt: bool,
    error_out: *mut Error,
) -> Status {
    let set = |limiter: &tollgate::Limiter, id: &[u8]| match exempt {
        true => Ok(limiter.exempt(id)?),
        false => Ok(limiter.unexempt(id)?),
    };
    // SAFETY: as this function's contract has it.
    unsafe { decide(limiter, id, id_len, error_out, &set) }
}

/// The agent's limit for a lane, as text: its own, or else that of its plan.
/// Empty if the agent is exempt. TOLLGATE_LIMIT_BYTES are always enough.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `limit_out` is NULL or writable for `limit_size` bytes;
/// `limit_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limit_of(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    limit_out: *mut c_char,
    limit_size: usize,
    limit_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let limit = limiter.0.limit_of(unsafe { agent(id, id_len) }?, LaneId::new(lane))?;
        let limit = limit.map(|limit| limit.to_string()).unwrap_or_default();
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(&limit, limit_out, limit_size, limit_len_out) }
    })
}

/// Puts another policy in force: other limits for the same lanes, in the same
/// order, and the same plans or more. Assignments stay. The limiter keeps a copy
/// of its own.
///
/// It walks all records while checks continue; when it returns, every check uses
/// the new limits. on_change of the new policy decides what happens to debt.
///
/// Status: OTHER_LANES, PLAN_MISSING, FORKED, STRUCT_SIZE; INVALID_LIMIT if a
/// lane changes its kind, or the time zone of its window.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `policy` is NULL or a
/// policy that is not freed; `error_out` is NULL, or readable and writable for
/// as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_replace_policy(
    limiter: *mut Limiter,
    policy: *const Policy,
    error_out: *mut Error,
) -> Status {
    let replace = |limiter: &tollgate::Limiter| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let policy = unsafe { borrow(policy) }?;
        Ok(limiter.replace_policy(policy.0.clone())?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { control(limiter, error_out, &replace) }
}
