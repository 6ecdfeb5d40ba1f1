//! Policies: what is limited, and to what.
//!
//! A policy has lanes and their limits, plans, actions and rules of conduct. It
//! is made from TOML text or a preset, validated as a whole, and never changes:
//!
//! ```text
//!     [lanes]                     # every lane and its limit
//!     "http/read" = "10/second burst 20"
//!     "llm/tokens" = "budget 10_000/day"
//!     [plans.pro]                 # the limits that differ in this plan
//!     "http/read" = "50/second burst 100"
//! ```
//!
//! Lanes are numbered from 0 in the order of the text, and the lane "total" comes
//! last. Plans are numbered in the order of the text from 1; 0 is the plan
//! "default". To list them, count up until tollgate_policy_lane_name returns
//! UNKNOWN_LANE, or tollgate_policy_plan_name UNKNOWN_PLAN.

use super::failure::{Failure, guard_error};
use super::guard::guard;
use super::pointers::{borrow, hand_over, out, plan_id, put_text, take_back, tell, text};
use super::{Error, Status};
use crate as tollgate;
use std::ffi::c_char;
use tollgate::{LaneId, PlanId};

/// The most lanes that a policy can have.
pub const TOLLGATE_LANES_MAX: usize = 62;
/// The longest name of a lane or a plan, in bytes.
pub const TOLLGATE_NAME_BYTES_MAX: usize = 64;
/// The most plans that a policy can have, "default" included.
pub const TOLLGATE_PLANS_MAX: usize = 256;
/// Room for the text of any limit, its NUL included.
pub const TOLLGATE_LIMIT_BYTES: usize = 92;

const _: () = assert!(TOLLGATE_LANES_MAX == tollgate::bounds::LANES_MAX);
const _: () = assert!(TOLLGATE_NAME_BYTES_MAX == tollgate::bounds::LANE_NAME_BYTES_MAX);
const _: () = assert!(TOLLGATE_PLANS_MAX == tollgate::bounds::PLANS_MAX);

/// Lanes, limits, plans, actions and rules of conduct. It never changes.
pub struct Policy(pub(super) tollgate::Policy);

/// A whole call that makes a policy.
///
/// # Safety
///
/// `policy_out` is NULL or writable; `error_out` is as in [`tollgate_policy_from_toml`].
unsafe fn make(
    error_out: *mut Error,
    policy_out: *mut *mut Policy,
    make: impl FnOnce() -> Result<tollgate::Policy, Failure>,
) -> Status {
    let call = || {
        let policy_out = out(policy_out)?;
        let policy = Policy(make()?);
        // SAFETY: not NULL, so writable as the caller guarantees.
        unsafe { hand_over(policy_out, policy) };
        Ok(())
    };
    // SAFETY: as the caller guarantees.
    unsafe { guard_error(error_out, call) }
}

/// Makes the policy of a preset, by name. Free it with tollgate_policy_free.
/// The error of an unknown name lists the presets.
///
/// Status: UNKNOWN_PRESET, NOT_UTF8, TEXT_TOO_LONG, STRUCT_SIZE.
///
/// # Safety
///
/// `name` is NULL or readable for `name_len` bytes; `error_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says;
/// `policy_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_preset(
    name: *const c_char,
    name_len: usize,
    error_out: *mut Error,
    policy_out: *mut *mut Policy,
) -> Status {
    // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
    let preset = || Ok(tollgate::Policy::preset(unsafe { text(name, name_len) }?)?);
    // SAFETY: as this function's contract has it.
    unsafe { make(error_out, policy_out, preset) }
}

/// The name of a preset, counted from 0: a static string, or NULL past the last.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_preset_name(index: usize) -> *const c_char {
    PRESETS.get(index).map_or(std::ptr::null(), |name| name.as_ptr())
}

const PRESETS: [&std::ffi::CStr; 5] = [c"adr", c"citizen", c"hub", c"platform", c"standard"];
const _: () = assert!(PRESETS.len() == tollgate::Policy::PRESETS.len());

/// Makes a policy from TOML text. Needs TOLLGATE_FEATURE_CONFIG. Free it with
/// tollgate_policy_free. The error has the line and the column of the mistake.
///
/// Status: INVALID_POLICY, NOT_UTF8, TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE.
///
/// # Safety
///
/// `toml` is NULL or readable for `toml_len` bytes; `error_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says;
/// `policy_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_from_toml(
    toml: *const c_char,
    toml_len: usize,
    error_out: *mut Error,
    policy_out: *mut *mut Policy,
) -> Status {
    // SAFETY: NULL, or readable for `toml_len` bytes, by this function's contract.
    let read = || from_toml(unsafe { text(toml, toml_len) }?);
    // SAFETY: as this function's contract has it.
    unsafe { make(error_out, policy_out, read) }
}

#[cfg(feature = "config")]
fn from_toml(text: &str) -> Result<tollgate::Policy, Failure> {
    Ok(tollgate::Policy::from_toml(text)?)
}

#[cfg(not(feature = "config"))]
fn from_toml(_: &str) -> Result<tollgate::Policy, Failure> {
    Err(Status::NotBuiltIn.into())
}

/// Writes a policy as TOML, from which tollgate_policy_from_toml makes the same
/// policy. Needs TOLLGATE_FEATURE_CONFIG.
///
/// Status: BUFFER_TOO_SMALL, NOT_BUILT_IN.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `toml_out` is NULL or
/// writable for `toml_size` bytes; `toml_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_to_toml(
    policy: *const Policy,
    toml_out: *mut c_char,
    toml_size: usize,
    toml_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let toml = to_toml(unsafe { borrow(policy) }?)?;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(&toml, toml_out, toml_size, toml_len_out) }
    })
}

#[cfg(feature = "config")]
fn to_toml(policy: &Policy) -> Result<String, Status> {
    Ok(policy.0.to_toml())
}

#[cfg(not(feature = "config"))]
fn to_toml(_: &Policy) -> Result<String, Status> {
    Err(Status::NotBuiltIn)
}

/// Frees a policy. Limiters keep copies of their own. NULL is allowed.
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

/// The number of a lane, by name.
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
        let lane = policy.0.lane(unsafe { text(name, name_len) }?);
        lane.map(LaneId::number).ok_or(Status::UnknownLane)
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(policy, lane_out, number) }
}

/// The name of a lane, by number. TOLLGATE_NAME_BYTES_MAX + 1 bytes are always
/// enough.
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

/// The number of a plan, by name.
///
/// Status: UNKNOWN_PLAN, NOT_UTF8, TEXT_TOO_LONG.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `name` is NULL or readable
/// for `name_len` bytes; `plan_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_plan(
    policy: *const Policy,
    name: *const c_char,
    name_len: usize,
    plan_out: *mut u32,
) -> Status {
    let number = |policy: &Policy| {
        // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
        let plan = policy.0.plan(unsafe { text(name, name_len) }?).ok_or(Status::UnknownPlan)?;
        Ok(plan.number().into())
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(policy, plan_out, number) }
}

/// The name of a plan, by number. TOLLGATE_NAME_BYTES_MAX + 1 bytes are always
/// enough.
///
/// Status: UNKNOWN_PLAN, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `name_out` is NULL or
/// writable for `name_size` bytes; `name_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_plan_name(
    policy: *const Policy,
    plan: u32,
    name_out: *mut c_char,
    name_size: usize,
    name_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let policy = unsafe { borrow(policy) }?;
        let name = policy.0.plans().nth(plan as usize).ok_or(Status::UnknownPlan)?.1;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(name, name_out, name_size, name_len_out) }
    })
}

/// The limit of a lane in a plan, as text, for example "10/second burst 20". The
/// plan TOLLGATE_NONE is the default plan. TOLLGATE_LIMIT_BYTES are always enough.
///
/// Status: UNKNOWN_PLAN, UNKNOWN_LANE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `limit_out` is NULL or
/// writable for `limit_size` bytes; `limit_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_limit(
    policy: *const Policy,
    plan: u32,
    lane: u32,
    limit_out: *mut c_char,
    limit_size: usize,
    limit_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let policy = &unsafe { borrow(policy) }?.0;
        let plan = plan_id(plan).unwrap_or(PlanId::new(0));
        if usize::from(plan.number()) >= policy.plans().len() {
            return Err(Status::UnknownPlan);
        }
        let limit = policy.plan_limit(plan, LaneId::new(lane)).ok_or(Status::UnknownLane)?.to_string();
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(&limit, limit_out, limit_size, limit_len_out) }
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use tollgate::Limit;

    #[test]
    fn c_has_the_presets_of_rust() {
        let names = PRESETS.map(|name| name.to_str().unwrap());
        assert_eq!(names, tollgate::Policy::PRESETS);
    }

    #[test]
    fn the_longest_limit_has_room() {
        let longest = Limit::new(u64::MAX, std::time::Duration::from_nanos(u64::MAX)).burst(u64::MAX - 1);
        let text = longest.oversize_debt().to_string();
        assert!(text.len() < TOLLGATE_LIMIT_BYTES, "{text}");
        assert!("budget 1_000_000_000_000/month zone +14:00".len() < TOLLGATE_LIMIT_BYTES);
    }
}
