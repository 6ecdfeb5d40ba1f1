//! Conduct: violations, and the waits that follow from them.
//!
//! With TOLLGATE_COUNTED a denial is a violation if the agent came back before its
//! wait was over; if the policy counts every denial, it always is. The policy
//! decides which waits follow, whether they are enforced, and how many violations
//! are sustained abuse. An agent is forgiven after a quiet period.

use super::guard::guard;
use super::pointers::{Tagged, agent, agent_at, borrow, instant, list, places, tagged_out, tell};
use super::{Limiter, Status, TOLLGATE_NEVER};
use crate as tollgate;
use crate::clock::nanos_saturating;
use std::ffi::c_void;
use std::time::Duration;
use tollgate::{Agent, Tick};

/// A violation as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Violation {
    /// Set it to sizeof(tollgate_violation) before the call.
    pub struct_size: u32,
    /// How many violations in a row this makes, up to 15.
    pub violations_in_a_row: u32,
    /// How long the agent has to wait: step_ns, or longer if the policy enforces
    /// waits and an earlier one is not over.
    pub wait_ns: u64,
    /// The wait that the policy's curve has for this violation.
    pub step_ns: u64,
    /// 1 if it made the agent's conduct sustained abuse, else 0.
    pub sustained_abuse: u32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<Violation>() == 32);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for Violation {
    const SIZE_MIN: u32 = 32;
}

/// The state of an agent's conduct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ConductState {
    /// Set it to sizeof(tollgate_conduct_state) before the call.
    pub struct_size: u32,
    /// 1 if the agent has violated a limit and its quiet period is not over, so
    /// that a scheduler gives it no new work. Else, and if it is exempt, 0.
    pub rate_limited: u32,
    /// Violations in the present window of the abuse threshold, up to 63.
    pub violations_in_window: u32,
    /// Violations without a quiet period between them, up to 15.
    pub violations_in_a_row: u32,
    /// The instant at which the present window began. TOLLGATE_NEVER without one.
    pub window_start_ns: u64,
    /// The instant of the last violation. TOLLGATE_NEVER if all are forgiven.
    pub last_violation_ns: u64,
    /// What is left of the wait that followed the last violation.
    pub wait_ns: u64,
}

const _: () = assert!(size_of::<ConductState>() == 40);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for ConductState {
    const SIZE_MIN: u32 = 40;
}

/// An agent id as an argument. It never grows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Id {
    /// Any bytes.
    pub id: *const c_void,
    /// How many bytes: 1 to TOLLGATE_ID_BYTES_MAX.
    pub id_len: usize,
}

const _: () = assert!(size_of::<Id>() == 16);

/// Records a violation that the caller has found, and reports the wait for it.
///
/// Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE; FULL if the agent is new and
/// every record near its place is in use.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `violation_out` is NULL, or readable and writable for
/// as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_record_violation(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
    violation_out: *mut Violation,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (violation_out, struct_size) = unsafe { tagged_out(violation_out) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let violation = limiter.0.record_violation(unsafe { agent_at(id, id_len, now_ns) }?)?;
        let violation = Violation {
            struct_size,
            violations_in_a_row: violation.in_a_row(),
            wait_ns: nanos_saturating(violation.wait()),
            step_ns: nanos_saturating(violation.step()),
            sustained_abuse: violation.sustained_abuse().into(),
            reserved: 0,
        };
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { violation_out.write(violation) };
        Ok(())
    })
}

/// The agent's conduct. Changes nothing.
///
/// Status: EMPTY_ID, ID_TOO_LONG, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `conduct_out` is NULL, or readable and writable for as
/// many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_conduct(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
    conduct_out: *mut ConductState,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (conduct_out, struct_size) = unsafe { tagged_out(conduct_out) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
        let agent = unsafe { agent_at(id, id_len, now_ns) }?;
        let conduct = limiter.violations(agent)?;
        let conduct = ConductState {
            struct_size,
            rate_limited: (conduct.is_rate_limited() && !limiter.is_exempt(agent.id)?).into(),
            violations_in_window: conduct.violations(),
            violations_in_a_row: conduct.in_a_row(),
            window_start_ns: conduct.window_start().map_or(TOLLGATE_NEVER, Tick::as_nanos),
            last_violation_ns: conduct.last_violation().map_or(TOLLGATE_NEVER, Tick::as_nanos),
            wait_ns: nanos_saturating(conduct.wait()),
        };
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { conduct_out.write(conduct) };
        Ok(())
    })
}

/// Forgives the agent's violations. had_out gets whether there were any that time
/// had not forgiven already.
///
/// Status: EMPTY_ID, ID_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `had_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_reset_violations(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    had_out: *mut bool,
) -> Status {
    // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
    let forgive = |limiter: &Limiter| Ok(limiter.0.reset_violations(unsafe { agent(id, id_len) }?)?);
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, had_out, forgive) }
}

/// Which of these agents may be given new work: those that are not rate_limited,
/// see tollgate_conduct_state. assignable_out has room for count answers, and gets
/// one at the index of each id; false for an invalid id.
///
/// Status: BATCH_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `ids` is NULL or readable
/// for `count` ids, each NULL or readable for its id_len bytes;
/// `assignable_out` is NULL or writable for `count` answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_assignable(
    limiter: *const Limiter,
    ids: *const Id,
    count: usize,
    now_ns: u64,
    assignable_out: *mut bool,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or writable for `count` answers and no part of the ids, by this function's contract.
        let answers = unsafe { places(assignable_out, count) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = &unsafe { borrow(limiter) }?.0;
        // SAFETY: NULL, or readable for `count` ids, by this function's contract.
        let ids = unsafe { list(ids, count) }?;
        let now = instant(now_ns).unwrap_or_else(|| limiter.now());
        for (id, answer) in ids.iter().zip(answers) {
            // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
            let id = unsafe { agent(id.id, id.id_len) };
            answer.write(id.is_ok_and(|id| limiter.rate_limited(Agent::new(id).at(now)) == Ok(false)));
        }
        Ok(())
    })
}

/// A wait in milliseconds, in whole steps of step_ms, such as 1000 for a protocol
/// that counts seconds. Rounded up, so that no caller comes back too early, and at
/// least one step; a step of 0 counts as 1. Returns never_ms for TOLLGATE_NEVER.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_wait_ms(wait_ns: u64, step_ms: u64, never_ms: u64) -> u64 {
    let wait = (wait_ns != TOLLGATE_NEVER).then_some(Duration::from_nanos(wait_ns));
    tollgate::clock::wait_ms(wait, step_ms, never_ms)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_whole_steps_and_never_shorter() {
        let second = |wait_ns| tollgate_wait_ms(wait_ns, 1_000, 60_000);
        assert_eq!([0, 1, 500_000_000, 1_000_000_000].map(second), [1_000; 4]);
        assert_eq!([1_000_000_001, 6_000_000_000, 6_000_000_001].map(second), [2_000, 6_000, 7_000]);
        assert_eq!((second(TOLLGATE_NEVER), tollgate_wait_ms(TOLLGATE_NEVER, 0, 7)), (60_000, 7));
        assert_eq!([0, 1, 1_000_001].map(|wait| tollgate_wait_ms(wait, 0, 0)), [1, 1, 2]);
        assert_eq!(tollgate_wait_ms(1, u64::MAX, 0), u64::MAX);
        for wait in [0, 1, 999_999_999, 5_999_999_999, u64::MAX - 1] {
            let shown = second(wait);
            assert!(shown % 1_000 == 0 && u128::from(shown) * 1_000_000 >= u128::from(wait), "{wait}");
        }
    }
}
