//! Policies.

use super::error::{Failure, guard_told};
use super::guard::guard;
use super::pointers::{borrow, hand_over, out, plan_id, put_text, tagged_out, take_back, tell, text};
use super::{ConductRules, Error, OnChange, Status};
use crate as tollgate;
use std::ffi::c_char;
use tollgate::LaneId;

/// The most lanes of a policy.
pub const TOLLGATE_LANES_MAX: usize = 62;
/// The longest name of a lane, plan or action, in bytes without a NUL.
pub const TOLLGATE_LANE_NAME_BYTES_MAX: usize = 64;
/// The most plans of a policy, "default" among them.
pub const TOLLGATE_PLANS_MAX: usize = 256;

const _: () = assert!(TOLLGATE_LANES_MAX == tollgate::bounds::LANES_MAX);
const _: () = assert!(TOLLGATE_LANE_NAME_BYTES_MAX == tollgate::bounds::LANE_NAME_BYTES_MAX);
const _: () = assert!(TOLLGATE_PLANS_MAX == tollgate::bounds::PLANS_MAX);

/// Named lanes, each with its limit; plans with other limits for them; the
/// lane of every action; the rules of conduct: everything an operator decides.
///
/// It does not change, so any number of threads may use it at once.
pub struct Policy(pub(super) tollgate::Policy);

impl Policy {
    pub(super) fn lane(&self, name: &str) -> Result<u32, Status> {
        self.0.lane(name).map(LaneId::number).ok_or(Status::UnknownLane)
    }
}

/// A whole call that makes a policy.
///
/// # Safety
///
/// `policy_out` is NULL or writable; `error_out` is NULL, or readable and
/// writable for as many bytes as its struct_size says.
unsafe fn make(
    policy_out: *mut *mut Policy,
    error_out: *mut Error,
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
    unsafe { guard_told(error_out, call) }
}

/// The ready-made policy of this name; see tollgate_preset_name.
///
/// The caller owns the policy and gives it back with tollgate_policy_free.
/// `error_out` may be NULL.
///
/// Status: UNKNOWN_PRESET, NOT_UTF8, TEXT_TOO_LONG, STRUCT_SIZE of the error.
///
/// # Safety
///
/// `name` is NULL or readable for `name_len` bytes; `policy_out` is NULL or
/// writable; `error_out` is NULL, or readable and writable for as many bytes
/// as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_preset(
    name: *const c_char,
    name_len: usize,
    policy_out: *mut *mut Policy,
    error_out: *mut Error,
) -> Status {
    // SAFETY: NULL, or readable for `name_len` bytes, by this function's contract.
    let preset = || Ok(tollgate::Policy::preset(unsafe { text(name, name_len) }?)?);
    // SAFETY: as this function's contract has it.
    unsafe { make(policy_out, error_out, preset) }
}

/// The name of a preset, NUL-terminated; NULL past the last one. They are
/// numbered from 0. It is part of the library: never free it.
#[unsafe(no_mangle)]
pub extern "C" fn tollgate_preset_name(index: usize) -> *const c_char {
    PRESETS.get(index).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Those of Rust, with a NUL; a test compares.
const PRESETS: [&std::ffi::CStr; 5] = [c"adr", c"citizen", c"hub", c"platform", c"standard"];
const _: () = assert!(PRESETS.len() == tollgate::Policy::PRESETS.len());

/// Reads a policy from the text of a TOML file. Needs TOLLGATE_FEATURE_CONFIG.
///
/// The caller owns the policy and gives it back with tollgate_policy_free.
/// `error_out` may be NULL; its line and column are where the text is wrong.
///
/// Status: INVALID_POLICY, NOT_UTF8, TEXT_TOO_LONG, NOT_BUILT_IN, STRUCT_SIZE
/// of the error.
///
/// # Safety
///
/// `toml` is NULL or readable for `toml_len` bytes; `policy_out` is NULL or
/// writable; `error_out` is NULL, or readable and writable for as many bytes
/// as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_from_toml(
    toml: *const c_char,
    toml_len: usize,
    policy_out: *mut *mut Policy,
    error_out: *mut Error,
) -> Status {
    // SAFETY: NULL, or readable for `toml_len` bytes, by this function's contract.
    let read = || from_toml(unsafe { text(toml, toml_len) }?);
    // SAFETY: as this function's contract has it.
    unsafe { make(policy_out, error_out, read) }
}

#[cfg(feature = "config")]
fn from_toml(text: &str) -> Result<tollgate::Policy, Failure> {
    Ok(tollgate::Policy::from_toml(text)?)
}

#[cfg(not(feature = "config"))]
fn from_toml(_: &str) -> Result<tollgate::Policy, Failure> {
    Err(Status::NotBuiltIn.into())
}

/// Writes the whole policy as the text of a TOML file, NUL-terminated, and its
/// length without the NUL. tollgate_policy_from_toml reads the same policy
/// back. Needs TOLLGATE_FEATURE_CONFIG.
///
/// A NULL buffer of size 0 asks for the length alone.
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
        let limit = policy.0.limit(LaneId::new(lane)).ok_or(Status::UnknownLane)?.to_string();
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

/// The lanes that a name stands for: the lane of this name, or all lanes of
/// this tier, in order. "heavy" stands for "ws/heavy" and "http/heavy".
///
/// `lanes_out` has room for `lanes_size` numbers; TOLLGATE_LANES_MAX is enough
/// for any policy. NULL and 0 ask for the count alone.
///
/// Status: UNKNOWN_LANE if there are none; NOT_UTF8, TEXT_TOO_LONG,
/// BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `lane_or_tier` is NULL or
/// readable for as many bytes as stated; `lanes_out` is NULL or writable for
/// `lanes_size` numbers; `count_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_lanes_of(
    policy: *const Policy,
    lane_or_tier: *const c_char,
    lane_or_tier_len: usize,
    lanes_out: *mut u32,
    lanes_size: usize,
    count_out: *mut usize,
) -> Status {
    let find = |policy: &Policy| {
        // SAFETY: NULL, or readable for as many bytes as stated, by this function's contract.
        let lanes = policy.0.lanes_of(unsafe { text(lane_or_tier, lane_or_tier_len) }?);
        if lanes.is_empty() {
            return Err(Status::UnknownLane);
        }
        if !(lanes_out.is_null() && lanes_size == 0) {
            let place = out(lanes_out)?;
            if lanes_size < lanes.len() {
                return Err(Status::BufferTooSmall);
            }
            for (index, lane) in lanes.iter().enumerate() {
                // SAFETY: within the room that the caller states, and there is enough of it.
                let place = unsafe { place.add(index) };
                // SAFETY: as above.
                unsafe { place.write(lane.number()) };
            }
        }
        Ok(lanes.len())
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(policy, count_out, find) }
}

/// The number of the plan of this name; "default" is 0.
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

/// How many plans the policy has, "default" among them. They are numbered from 0.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `count_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_plan_count(policy: *const Policy, count_out: *mut u32) -> Status {
    // A policy has few plans, so the number fits.
    // SAFETY: as this function's contract has it.
    unsafe { tell(policy, count_out, |policy| Ok(policy.0.plans().len() as u32)) }
}

/// The name of a plan, NUL-terminated, and its length without the NUL.
///
/// A buffer of TOLLGATE_LANE_NAME_BYTES_MAX + 1 bytes is large enough for any.
/// A NULL buffer of size 0 asks for the length alone.
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

impl Policy {
    fn plan_limit(&self, plan: u32, lane: u32) -> Result<tollgate::Limit, Status> {
        let plan = plan_id(plan).ok().filter(|plan| usize::from(plan.number()) < self.0.plans().len());
        self.0.plan_limit(plan.ok_or(Status::UnknownPlan)?, LaneId::new(lane)).ok_or(Status::UnknownLane)
    }
}

/// The limit of a lane in a plan as text; see tollgate_policy_limit.
///
/// Status: UNKNOWN_PLAN, UNKNOWN_LANE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// As tollgate_policy_limit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_plan_limit(
    policy: *const Policy,
    plan: u32,
    lane: u32,
    limit_out: *mut c_char,
    limit_size: usize,
    limit_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limit = unsafe { borrow(policy) }?.plan_limit(plan, lane)?.to_string();
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(&limit, limit_out, limit_size, limit_len_out) }
    })
}

/// How many tokens a lane holds in a plan when it is full; 0 if it denies
/// everything. The plan 0 has the lanes' own limits.
///
/// Status: UNKNOWN_PLAN, UNKNOWN_LANE.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `capacity_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_capacity(
    policy: *const Policy,
    plan: u32,
    lane: u32,
    capacity_out: *mut u64,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(policy, capacity_out, |policy| Ok(policy.plan_limit(plan, lane)?.capacity())) }
}

/// What becomes of an agent's debt when its limits change.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `on_change_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_on_change(policy: *const Policy, on_change_out: *mut OnChange) -> Status {
    let told = |policy: &Policy| {
        Ok(match policy.0.on_change() {
            tollgate::OnChange::KeepDebt => OnChange::KeepDebt,
            tollgate::OnChange::Reset => OnChange::Reset,
        })
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(policy, on_change_out, told) }
}

/// The rules of conduct, every member filled in.
///
/// Status: STRUCT_SIZE.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `rules_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_conduct(policy: *const Policy, rules_out: *mut ConductRules) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (rules_out, struct_size) = unsafe { tagged_out(rules_out) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let rules = ConductRules::new(struct_size, unsafe { borrow(policy) }?.0.conduct());
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { rules_out.write(rules) };
        Ok(())
    })
}

/// How many actions the policy names. They are numbered from 0.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `count_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_action_count(policy: *const Policy, count_out: *mut usize) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(policy, count_out, |policy| Ok(policy.0.actions().count())) }
}

/// The name of an action that the policy names, NUL-terminated, and its length
/// without the NUL. tollgate_policy_action_lane tells where it belongs.
///
/// A buffer of TOLLGATE_LANE_NAME_BYTES_MAX + 1 bytes is large enough for any.
/// A NULL buffer of size 0 asks for the length alone.
///
/// Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `name_out` is NULL or
/// writable for `name_size` bytes; `name_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_action_name(
    policy: *const Policy,
    index: usize,
    name_out: *mut c_char,
    name_size: usize,
    name_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let policy = unsafe { borrow(policy) }?;
        let (_, name, _) = policy.0.actions().nth(index).ok_or(Status::OutOfRange)?;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(name, name_out, name_size, name_len_out) }
    })
}

/// The lane of an action that the policy names. The action's channel is the
/// part of the lane's name before the last "/".
///
/// Status: OUT_OF_RANGE.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `lane_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_action_lane(
    policy: *const Policy,
    index: usize,
    lane_out: *mut u32,
) -> Status {
    let lane = |policy: &Policy| {
        let (_, _, lane) = policy.0.actions().nth(index).ok_or(Status::OutOfRange)?;
        Ok(lane.number())
    };
    // SAFETY: as this function's contract has it.
    unsafe { tell(policy, lane_out, lane) }
}

/// The tier that takes unknown actions, NUL-terminated, and its length without
/// the NUL; an empty text if the policy names no actions.
///
/// A NULL buffer of size 0 asks for the length alone.
///
/// Status: BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `policy` is NULL or a policy that is not freed; `tier_out` is NULL or
/// writable for `tier_size` bytes; `tier_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_unknown_actions_tier(
    policy: *const Policy,
    tier_out: *mut c_char,
    tier_size: usize,
    tier_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let policy = unsafe { borrow(policy) }?;
        let tier = policy.0.unknown_actions_tier().unwrap_or_default();
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(tier, tier_out, tier_size, tier_len_out) }
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn c_has_the_presets_of_rust() {
        let names = PRESETS.map(|name| name.to_str().unwrap());
        assert_eq!(names, tollgate::Policy::PRESETS);
    }
}
