//! Policies.

use super::Status;
use super::guard::guard;
use super::pointers::{borrow, put_text, take_back, tell, text};
use crate as tollgate;
use std::ffi::c_char;

/// The most lanes of a policy.
pub const TOLLGATE_LANES_MAX: usize = 62;
/// The longest lane name, in bytes without a NUL.
pub const TOLLGATE_LANE_NAME_BYTES_MAX: usize = 64;

const _: () = assert!(TOLLGATE_LANES_MAX == tollgate::LANES_MAX);
const _: () = assert!(TOLLGATE_LANE_NAME_BYTES_MAX == tollgate::LANE_NAME_BYTES_MAX);

/// Named lanes, each with its limit: everything a limiter needs to know.
///
/// It does not change, so any number of threads may use it at once.
pub struct Policy(pub(super) tollgate::Policy);

impl Policy {
    pub(super) fn lane(&self, name: &str) -> Result<u32, Status> {
        self.0.lane(name).map(tollgate::LaneId::number).ok_or(Status::UnknownLane)
    }
}

/// Gives a policy back. NULL is fine. Limiters that were made with it keep a
/// copy of their own.
///
/// # Safety
///
/// `policy` is NULL, or came from a function that gave it to the caller, was
/// not freed yet, and is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_free(policy: *mut Policy) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(policy) }
}

/// The number of the lane of this name.
///
/// Status: UNKNOWN_LANE, NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `name` is NULL or readable
/// for `name_len` bytes; `lane_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_lane(
    policy: *const Policy,
    name: *const c_char,
    name_len: usize,
    lane_out: *mut u32,
) -> Status {
    let number = |policy: &Policy| {
        // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
        policy.lane(unsafe { text(name, name_len) }?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(policy, lane_out, number) }
}

/// How many lanes the policy has. They are numbered from 0.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `count_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_lane_count(policy: *const Policy, count_out: *mut u32) -> Status {
    // A policy has few lanes, so the number fits.
    // SAFETY: as this function's contract has it.
    unsafe { tell(policy, count_out, |policy| Ok(policy.0.lanes().len() as u32)) }
}

/// The name of a lane, NUL-terminated, and its length without the NUL.
///
/// A buffer of TOLLGATE_LANE_NAME_BYTES_MAX + 1 bytes is large enough for any.
/// A NULL buffer of size 0 asks for the length alone.
///
/// Status: UNKNOWN_LANE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `name_out` is NULL or
/// writable for `name_size` bytes; `name_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_lane_name(
    policy: *const Policy,
    lane: u32,
    name_out: *mut c_char,
    name_size: usize,
    name_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let policy = unsafe { borrow(policy) }?;
        let name = policy.0.lanes().nth(lane as usize).ok_or(Status::UnknownLane)?.1;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(name, name_out, name_size, name_len_out) }
    })
}

/// The limit of a lane as text, NUL-terminated, such as "10/minute burst 3",
/// and its length without the NUL. The text can be given to
/// tollgate_policy_builder_lane again.
///
/// A NULL buffer of size 0 asks for the length alone.
///
/// Status: UNKNOWN_LANE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `limit_out` is NULL or
/// writable for `limit_size` bytes; `limit_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_limit(
    policy: *const Policy,
    lane: u32,
    limit_out: *mut c_char,
    limit_size: usize,
    limit_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let policy = unsafe { borrow(policy) }?;
        let limit = policy.0.limit(tollgate::LaneId::new(lane)).ok_or(Status::UnknownLane)?.to_string();
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(&limit, limit_out, limit_size, limit_len_out) }
    })
}

/// A verdict warns when less than this share of the capacity is left, in percent.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `percent_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_warn_below_percent(policy: *const Policy, percent_out: *mut u32) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(policy, percent_out, |policy| Ok(policy.0.warn_below_percent().into())) }
}
