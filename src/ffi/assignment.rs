//! What was decided about single agents, as data.

use super::error::guard_told;
use super::guard::guard;
use super::pointers::{agent, borrow, borrow_mut, hand_over, out, put_bytes, put_text, take_back, tell, text};
use super::policy_builder::GivenLimit;
use super::{Error, Status};
use crate as tollgate;
use std::ffi::{c_char, c_void};

/// What an operator has decided about one agent: its plan, limits of its own
/// for some lanes, and whether it is exempt.
///
/// Plans and lanes are kept by name, and nothing is checked against a policy
/// before a limiter is given it. One thread at a time may use it.
pub struct Assignment(pub(super) tollgate::Assignment);

/// Agents, and what each is assigned.
///
/// One thread at a time may use it.
pub struct Assignments(pub(super) tollgate::Assignments);

/// Makes an assignment that decides nothing.
///
/// The caller owns it and gives it back with tollgate_assignment_free.
///
/// # Safety
///
/// `assignment_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment_new(assignment_out: *mut *mut Assignment) -> Status {
    guard(|| {
        let assignment_out = out(assignment_out)?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(assignment_out, Assignment(tollgate::Assignment::default())) };
        Ok(())
    })
}

/// Gives an assignment back. NULL is fine.
///
/// # Safety
///
/// `assignment` is NULL, or came from a function that gave it to the caller,
/// was not freed yet, and is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment_free(assignment: *mut Assignment) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(assignment) }
}

/// The name of the plan, NUL-terminated, and its length without the NUL; an
/// empty text if there is none.
///
/// A buffer of TOLLGATE_LANE_NAME_BYTES_MAX + 1 bytes is large enough for the
/// plan of any policy. A NULL buffer of size 0 asks for the length alone.
///
/// Status: BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `assignment` is NULL, or not freed and in use by no other thread; `plan_out`
/// is NULL or writable for `plan_size` bytes; `plan_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment_plan(
    assignment: *const Assignment,
    plan_out: *mut c_char,
    plan_size: usize,
    plan_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive, by this function's contract.
        let plan = unsafe { borrow(assignment) }?.0.plan().unwrap_or_default();
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(plan, plan_out, plan_size, plan_len_out) }
    })
}

/// Sets the plan by name; an empty name takes it away.
///
/// Status: NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `assignment` is NULL, or not freed and in use by no other thread; `plan` is
/// NULL or readable for `plan_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment_set_plan(
    assignment: *mut Assignment,
    plan: *const c_char,
    plan_len: usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and used by us alone, by this function's contract.
        let assignment = unsafe { borrow_mut(assignment) }?;
        // SAFETY: NULL, or readable for `plan_len` bytes, by this function's contract.
        let plan = unsafe { text(plan, plan_len) }?;
        assignment.0.set_plan((!plan.is_empty()).then(|| plan.to_owned()));
        Ok(())
    })
}

/// Whether the agent is never limited.
///
/// # Safety
///
/// `assignment` is NULL, or not freed and in use by no other thread;
/// `exempt_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment_exempt(assignment: *const Assignment, exempt_out: *mut bool) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(assignment, exempt_out, |assignment| Ok(assignment.0.is_exempt())) }
}

/// Exempts the agent, or no longer.
///
/// # Safety
///
/// `assignment` is NULL, or not freed and in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment_set_exempt(assignment: *mut Assignment, exempt: bool) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and used by us alone, by this function's contract.
        unsafe { borrow_mut(assignment) }?.0.set_exempt(exempt);
        Ok(())
    })
}

/// For how many lanes the agent has a limit of its own.
///
/// # Safety
///
/// `assignment` is NULL, or not freed and in use by no other thread;
/// `count_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment_override_count(
    assignment: *const Assignment,
    count_out: *mut usize,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(assignment, count_out, |assignment| Ok(assignment.0.overrides().len())) }
}

/// The lane of an override, NUL-terminated, and its length without the NUL.
/// Overrides are numbered from 0, in the order of the names of their lanes.
///
/// A NULL buffer of size 0 asks for the length alone.
///
/// Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `assignment` is NULL, or not freed and in use by no other thread; `lane_out`
/// is NULL or writable for `lane_size` bytes; `lane_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment_override_lane(
    assignment: *const Assignment,
    index: usize,
    lane_out: *mut c_char,
    lane_size: usize,
    lane_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive, by this function's contract.
        let assignment = unsafe { borrow(assignment) }?;
        let (lane, _) = assignment.0.overrides().nth(index).ok_or(Status::OutOfRange)?;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(lane, lane_out, lane_size, lane_len_out) }
    })
}

/// The limit of an override as text, NUL-terminated, and its length without
/// the NUL.
///
/// A NULL buffer of size 0 asks for the length alone.
///
/// Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `assignment` is NULL, or not freed and in use by no other thread;
/// `limit_out` is NULL or writable for `limit_size` bytes; `limit_len_out` is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment_override_limit(
    assignment: *const Assignment,
    index: usize,
    limit_out: *mut c_char,
    limit_size: usize,
    limit_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive, by this function's contract.
        let assignment = unsafe { borrow(assignment) }?;
        let (_, limit) = assignment.0.overrides().nth(index).ok_or(Status::OutOfRange)?;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(&limit.to_string(), limit_out, limit_size, limit_len_out) }
    })
}

/// Sets the agent's own limit for a lane, in place of the one before.
/// `error_out` may be NULL.
///
/// Status: NOT_UTF8, TEXT_TOO_LONG, INVALID_LIMIT, STRUCT_SIZE of the error.
///
/// # Safety
///
/// `assignment` is NULL, or not freed and in use by no other thread; `lane` and
/// `limit` are NULL or readable for as many bytes as stated; `error_out` is
/// NULL, or readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment_set_override(
    assignment: *mut Assignment,
    lane: *const c_char,
    lane_len: usize,
    limit: *const c_char,
    limit_len: usize,
    error_out: *mut Error,
) -> Status {
    let set = || {
        // SAFETY: NULL, or alive and used by us alone, by this function's contract.
        let assignment = unsafe { borrow_mut(assignment) }?;
        // SAFETY: NULL, or readable for `lane_len` bytes, by this function's contract.
        let lane = unsafe { text(lane, lane_len) }?;
        // SAFETY: NULL, or readable for `limit_len` bytes, by this function's contract.
        let limit = GivenLimit::text(unsafe { text(limit, limit_len) }?);
        assignment.0.set_override(lane, tollgate::Limit::try_from(limit)?);
        Ok(())
    };
    // SAFETY: as this function's contract has it.
    unsafe { guard_told(error_out, set) }
}

/// Takes the agent's own limit for a lane away, and tells whether it had one.
///
/// Status: NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `assignment` is NULL, or not freed and in use by no other thread; `lane` is
/// NULL or readable for `lane_len` bytes; `known_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignment_remove_override(
    assignment: *mut Assignment,
    lane: *const c_char,
    lane_len: usize,
    known_out: *mut bool,
) -> Status {
    guard(|| {
        let known_out = out(known_out)?;
        // SAFETY: NULL, or alive and used by us alone, by this function's contract.
        let assignment = unsafe { borrow_mut(assignment) }?;
        // SAFETY: NULL, or readable for `lane_len` bytes, by this function's contract.
        let known = assignment.0.remove_override(unsafe { text(lane, lane_len) }?).is_some();
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { known_out.write(known) };
        Ok(())
    })
}

/// Makes a list without agents.
///
/// The caller owns it and gives it back with tollgate_assignments_free.
///
/// # Safety
///
/// `assignments_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignments_new(assignments_out: *mut *mut Assignments) -> Status {
    guard(|| {
        let assignments_out = out(assignments_out)?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(assignments_out, Assignments(Vec::new())) };
        Ok(())
    })
}

/// Gives a list back. NULL is fine.
///
/// # Safety
///
/// `assignments` is NULL, or came from a function that gave it to the caller,
/// was not freed yet, and is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignments_free(assignments: *mut Assignments) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(assignments) }
}

/// Adds an agent and a copy of its assignment at the end. If an agent is there
/// twice, the last one counts.
///
/// Status: EMPTY_ID, ID_TOO_LONG.
///
/// # Safety
///
/// Both handles are NULL, or not freed and in use by no other thread; `id` is
/// NULL or readable for `id_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignments_add(
    assignments: *mut Assignments,
    id: *const c_void,
    id_len: usize,
    assignment: *const Assignment,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and used by us alone, by this function's contract.
        let assignments = unsafe { borrow_mut(assignments) }?;
        // SAFETY: NULL, or alive, by this function's contract.
        let assignment = unsafe { borrow(assignment) }?;
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let id = unsafe { agent(id, id_len) }?;
        if id.is_empty() {
            return Err(Status::EmptyId);
        }
        assignments.0.push((id.to_vec(), assignment.0.clone()));
        Ok(())
    })
}

/// How many agents the list has. They are numbered from 0.
///
/// # Safety
///
/// `assignments` is NULL, or not freed and in use by no other thread;
/// `count_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignments_count(assignments: *const Assignments, count_out: *mut usize) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(assignments, count_out, |assignments| Ok(assignments.0.len())) }
}

/// The id of an agent of the list, any bytes without a NUL behind them, and
/// their number.
///
/// A buffer of TOLLGATE_ID_BYTES_MAX bytes is large enough for any. A NULL
/// buffer of size 0 asks for the length alone.
///
/// Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `assignments` is NULL, or not freed and in use by no other thread; `id_out`
/// is NULL or writable for `id_size` bytes; `id_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignments_id(
    assignments: *const Assignments,
    index: usize,
    id_out: *mut c_void,
    id_size: usize,
    id_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive, by this function's contract.
        let assignments = unsafe { borrow(assignments) }?;
        let (id, _) = assignments.0.get(index).ok_or(Status::OutOfRange)?;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_bytes(id, id_out, id_size, id_len_out) }
    })
}

/// The assignment of an agent of the list: a copy, which the caller owns and
/// gives back with tollgate_assignment_free.
///
/// Status: OUT_OF_RANGE.
///
/// # Safety
///
/// `assignments` is NULL, or not freed and in use by no other thread;
/// `assignment_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignments_get(
    assignments: *const Assignments,
    index: usize,
    assignment_out: *mut *mut Assignment,
) -> Status {
    guard(|| {
        let assignment_out = out(assignment_out)?;
        // SAFETY: NULL, or alive, by this function's contract.
        let assignments = unsafe { borrow(assignments) }?;
        let (_, assignment) = assignments.0.get(index).ok_or(Status::OutOfRange)?;
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(assignment_out, Assignment(assignment.clone())) };
        Ok(())
    })
}
