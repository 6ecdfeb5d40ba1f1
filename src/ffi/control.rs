//! What an operator decides at run time: plans, overrides, exemptions, a new
//! policy.

use super::error::{Failure, guard_told};
use super::guard::guard;
use super::pointers::{agent, borrow, hand_over, out, plan_id, put_text, tell, text};
use super::policy_builder::GivenLimit;
use super::{Assignment, Assignments, Error, Limiter, Policy, Status};
use crate as tollgate;
use std::ffi::{c_char, c_void};
use tollgate::LaneId;

/// The most agents that may have overrides at once.
pub const TOLLGATE_OVERRIDES_MAX: usize = 65_000;

const _: () = assert!(TOLLGATE_OVERRIDES_MAX == tollgate::bounds::OVERRIDES_MAX);

/// What is decided about an agent. By reference, so that there is one copy of
/// `decide` for all of them: it is not in a hurry.
type Decision<'a> = &'a dyn Fn(&tollgate::Limiter, &[u8]) -> Result<(), Failure>;

/// A whole control call about one agent.
///
/// # Safety
///
/// As [`tollgate_limiter_assign`].
unsafe fn decide(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    error_out: *mut Error,
    decide: Decision<'_>,
) -> Status {
    let call = || {
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `id_len` bytes, as the caller guarantees.
        decide(&limiter.0, unsafe { agent(id, id_len) }?)
    };
    // SAFETY: as the caller guarantees.
    unsafe { guard_told(error_out, call) }
}

/// Assigns the agent to a plan of the policy. It stays so when its record is
/// evicted or forgotten.
///
/// This and the other control calls take turns under a lock that no check
/// takes. When one returns, its change holds for the next check in every
/// thread. `error_out` may be NULL.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_PLAN, SAME_HASH, FORKED, FILE,
/// STRUCT_SIZE of the error. With any of them nothing has changed.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `error_out` is NULL, or readable and writable for as
/// many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_assign(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    plan: u32,
    error_out: *mut Error,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { decide(limiter, id, id_len, error_out, &|limiter, id| Ok(limiter.assign(id, plan_id(plan)?)?)) }
}

/// Takes the agent's plan away; its overrides and its exemption stay.
///
/// Status: EMPTY_ID, ID_TOO_LONG, SAME_HASH, FORKED, FILE, STRUCT_SIZE.
///
/// # Safety
///
/// As tollgate_limiter_assign.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_unassign(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    error_out: *mut Error,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { decide(limiter, id, id_len, error_out, &|limiter, id| Ok(limiter.unassign(id)?)) }
}

/// Gives the agent a limit of its own for a lane, or for a tier in every
/// channel: "heavy" stands for "ws/heavy" and "http/heavy". The limit is text,
/// such as "10/second burst 20" or "deny".
///
/// Status: EMPTY_ID, ID_TOO_LONG, NOT_UTF8, TEXT_TOO_LONG, UNKNOWN_LANE,
/// INVALID_LIMIT, TOO_MANY_OVERRIDES, SAME_HASH, FORKED, FILE, STRUCT_SIZE.
///
/// # Safety
///
/// As tollgate_limiter_assign; `lane_or_tier` and `limit` are NULL or readable
/// for as many bytes as stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_set_override(
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
        // SAFETY: NULL, or readable for as many bytes as stated, by this function's contract.
        let lane_or_tier = unsafe { text(lane_or_tier, lane_or_tier_len) }?;
        // SAFETY: as above.
        let limit = GivenLimit::text(unsafe { text(limit, limit_len) }?);
        Ok(limiter.set_override(id, lane_or_tier, limit)?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { decide(limiter, id, id_len, error_out, &set) }
}

/// As tollgate_limiter_set_override, with the limit in numbers: a bucket that
/// holds `capacity` tokens and gets `tokens` back every `per_ns` nanoseconds.
///
/// Status: as tollgate_limiter_set_override.
///
/// # Safety
///
/// As tollgate_limiter_assign; `lane_or_tier` is NULL or readable for as many
/// bytes as stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_set_override_bucket(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane_or_tier: *const c_char,
    lane_or_tier_len: usize,
    tokens: u64,
    per_ns: u64,
    capacity: u64,
    error_out: *mut Error,
) -> Status {
    let set = |limiter: &tollgate::Limiter, id: &[u8]| {
        // SAFETY: NULL, or readable for as many bytes as stated, by this function's contract.
        let lane_or_tier = unsafe { text(lane_or_tier, lane_or_tier_len) }?;
        Ok(limiter.set_override(id, lane_or_tier, GivenLimit::bucket(tokens, per_ns, capacity))?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { decide(limiter, id, id_len, error_out, &set) }
}

/// Takes the agent's own limit for a lane or tier away.
///
/// Status: EMPTY_ID, ID_TOO_LONG, NOT_UTF8, TEXT_TOO_LONG, UNKNOWN_LANE,
/// SAME_HASH, FORKED, FILE, STRUCT_SIZE.
///
/// # Safety
///
/// As tollgate_limiter_assign; `lane_or_tier` is NULL or readable for as many
/// bytes as stated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_remove_override(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane_or_tier: *const c_char,
    lane_or_tier_len: usize,
    error_out: *mut Error,
) -> Status {
    let remove = |limiter: &tollgate::Limiter, id: &[u8]| {
        // SAFETY: NULL, or readable for as many bytes as stated, by this function's contract.
        let lane_or_tier = unsafe { text(lane_or_tier, lane_or_tier_len) }?;
        Ok(limiter.remove_override(id, lane_or_tier)?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { decide(limiter, id, id_len, error_out, &remove) }
}

/// Takes all of the agent's own limits away.
///
/// Status: as tollgate_limiter_unassign.
///
/// # Safety
///
/// As tollgate_limiter_assign.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_remove_overrides(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    error_out: *mut Error,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { decide(limiter, id, id_len, error_out, &|limiter, id| Ok(limiter.remove_overrides(id)?)) }
}

/// Never limits the agent from now on: every check of it is answered with
/// TOLLGATE_DECISION_EXEMPT and charges nothing.
///
/// Status: as tollgate_limiter_unassign.
///
/// # Safety
///
/// As tollgate_limiter_assign.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_exempt(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    error_out: *mut Error,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { decide(limiter, id, id_len, error_out, &|limiter, id| Ok(limiter.exempt(id)?)) }
}

/// Limits the agent again, by its overrides and its plan.
///
/// Status: as tollgate_limiter_unassign.
///
/// # Safety
///
/// As tollgate_limiter_assign.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_unexempt(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    error_out: *mut Error,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { decide(limiter, id, id_len, error_out, &|limiter, id| Ok(limiter.unexempt(id)?)) }
}

/// Whether the agent is never limited.
///
/// Status: EMPTY_ID, ID_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `exempt_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_is_exempt(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    exempt_out: *mut bool,
) -> Status {
    // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
    let exempt = |limiter: &Limiter| Ok(limiter.0.is_exempt(unsafe { agent(id, id_len) }?)?);
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, exempt_out, exempt) }
}

/// The agent's limit for a lane as text, NUL-terminated, and its length
/// without the NUL: its override, or else its plan's. An exempt agent has
/// none, and the text is empty.
///
/// A NULL buffer of size 0 asks for the length alone.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `limit_out` is NULL or writable for `limit_size` bytes;
/// `limit_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_limit_of(
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

/// What was decided about the agent: a copy, which the caller owns and gives
/// back with tollgate_assignment_free.
///
/// Status: EMPTY_ID, ID_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `assignment_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_assignment(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    assignment_out: *mut *mut Assignment,
) -> Status {
    guard(|| {
        let assignment_out = out(assignment_out)?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let assignment = limiter.0.assignment(unsafe { agent(id, id_len) }?)?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(assignment_out, Assignment(assignment)) };
        Ok(())
    })
}

/// Every agent about which something was decided, in the order of the ids: a
/// copy, which the caller owns and gives back with tollgate_assignments_free.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `assignments_out` is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_assignments(
    limiter: *const Limiter,
    assignments_out: *mut *mut Assignments,
) -> Status {
    guard(|| {
        let assignments_out = out(assignments_out)?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let assignments = unsafe { borrow(limiter) }?.0.assignments();
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(assignments_out, Assignments(assignments)) };
        Ok(())
    })
}

/// A whole control call about the limiter at large.
///
/// # Safety
///
/// `limiter` is NULL, or alive and shared; `error_out` is as in [`tollgate_limiter_assign`].
unsafe fn control(
    limiter: *const Limiter,
    error_out: *mut Error,
    control: &dyn Fn(&tollgate::Limiter) -> Result<(), Failure>,
) -> Status {
    // SAFETY: NULL, or alive and shared, as the caller guarantees.
    let call = || control(&unsafe { borrow(limiter) }?.0);
    // SAFETY: as the caller guarantees.
    unsafe { guard_told(error_out, call) }
}

/// Decides about many agents at once: what was decided about each of them
/// before is replaced, and all others stay as they are. An empty assignment
/// makes an agent like any other. `error_out` may be NULL.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_PLAN, UNKNOWN_LANE, INVALID_LIMIT,
/// TOO_MANY_OVERRIDES, SAME_HASH, FORKED, FILE, STRUCT_SIZE of the error. With
/// any of them nothing has changed.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `assignments` is NULL, or
/// not freed and in use by no other thread; `error_out` is NULL, or readable
/// and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_set_assignments(
    limiter: *mut Limiter,
    assignments: *const Assignments,
    error_out: *mut Error,
) -> Status {
    let set = |limiter: &tollgate::Limiter| {
        // SAFETY: NULL, or alive and used by us alone, by this function's contract.
        let assignments = unsafe { borrow(assignments) }?;
        Ok(limiter.set_assignments(assignments.0.iter().map(|(id, assignment)| (&**id, assignment.clone())))?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { control(limiter, error_out, &set) }
}

/// Puts another policy in force: other numbers for the same lanes, and perhaps
/// more plans. Assignments stay. The limiter keeps a copy of its own.
///
/// Walks all records, so that when it returns every check uses the new
/// numbers; checks go on meanwhile. What becomes of debt, the new policy says.
/// Plans keep their numbers, so they can be added but not taken away.
/// `error_out` may be NULL.
///
/// Status: OTHER_LANES; INVALID_LIMIT if a lane is of another kind than it was,
/// or keeps its window in another zone; PLAN_MISSING, FORKED, STRUCT_SIZE of the
/// error. With any of them nothing has changed.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `policy` is NULL or a
/// policy that is not freed; `error_out` is NULL, or readable and writable for
/// as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_replace_policy(
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

/// Keeps assignments in a file from now on, and puts those in force that it
/// holds already. Call it before the first check, so that no agent is met
/// without its limits. What was decided before about other agents is added to
/// the file. Needs TOLLGATE_FEATURE_PERSIST.
///
/// The path is any bytes without a NUL, as the system takes them. From then on
/// a control call returns when its change is in the file and in force.
/// `error_out` may be NULL; its line and column are those of the file.
///
/// Status: FILE if it cannot be read or written, is in use, or makes no sense;
/// UNKNOWN_PLAN, UNKNOWN_LANE or INVALID_LIMIT if it holds what the policy does
/// not know; TOO_MANY_OVERRIDES, SAME_HASH, FORKED; TEXT_TOO_LONG; NOT_BUILT_IN;
/// STRUCT_SIZE of the error. With any of them nothing has changed.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `path` is NULL or
/// readable for `path_len` bytes; `error_out` is NULL, or readable and
/// writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_keep_assignments_in(
    limiter: *mut Limiter,
    path: *const c_char,
    path_len: usize,
    error_out: *mut Error,
) -> Status {
    let keep = |limiter: &tollgate::Limiter| {
        // SAFETY: NULL, or readable for `path_len` bytes, by this function's contract.
        keep_in(limiter, unsafe { super::pointers::bytes(path, path_len) }?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { control(limiter, error_out, &keep) }
}

#[cfg(feature = "persist")]
fn keep_in(limiter: &tollgate::Limiter, path: &[u8]) -> Result<(), Failure> {
    use std::os::unix::ffi::OsStrExt as _;
    Ok(limiter.keep_assignments_in(std::ffi::OsStr::from_bytes(path))?)
}

#[cfg(not(feature = "persist"))]
fn keep_in(_: &tollgate::Limiter, _: &[u8]) -> Result<(), Failure> {
    Err(Status::NotBuiltIn.into())
}

/// Reads the file of assignments again, after somebody has edited it, and puts
/// what it says in force: about agents that it does not name, nothing is
/// decided. Needs TOLLGATE_FEATURE_PERSIST. `error_out` may be NULL.
///
/// After an error control calls fail until the file is corrected and reloaded,
/// so that none of them overwrites what was edited.
///
/// Status: as tollgate_limiter_keep_assignments_in, and NO_FILE if assignments
/// are not kept in a file.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `error_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_reload_assignments(limiter: *mut Limiter, error_out: *mut Error) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { control(limiter, error_out, &reload) }
}

#[cfg(feature = "persist")]
fn reload(limiter: &tollgate::Limiter) -> Result<(), Failure> {
    Ok(limiter.reload_assignments()?)
}

#[cfg(not(feature = "persist"))]
fn reload(_: &tollgate::Limiter) -> Result<(), Failure> {
    Err(Status::NotBuiltIn.into())
}
