//! Actions: from what an agent does to the lane that pays for it.

use super::guard::guard;
use super::pointers::{Tagged, borrow, hand_over, out, put_text, tagged_out, take_back, tell, text};
use super::{Limiter, Policy, Status};
use crate as tollgate;
use std::ffi::c_char;

/// The lane of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ActionLane {
    /// Set it to sizeof(tollgate_action_lane) before the call; it stays as it is.
    pub struct_size: u32,
    /// The lane that pays for the action.
    pub lane: u32,
    /// 1 if the policy names the action, 0 if the lane is the one that takes
    /// unknown actions.
    pub known: u32,
    /// 1 if it is the first time that the limiter meets this unknown action: a
    /// line in the log, so that somebody classifies it. Else 0.
    pub first_seen: u32,
}

const _: () = assert!(size_of::<ActionLane>() == 16);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for ActionLane {
    const SIZE_MIN: u32 = 16;
}

/// A whole call that finds the lane of an action: the lane, whether the action
/// is known, whether it is met for the first time.
///
/// # Safety
///
/// As [`tollgate_limiter_lane_for`], of whatever handle.
unsafe fn lane_for<T>(
    handle: *const T,
    channel: (*const c_char, usize),
    action: (*const c_char, usize),
    lane_out: *mut ActionLane,
    find: impl FnOnce(&T, &str, &str) -> Option<(tollgate::LaneId, bool, bool)>,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, as the caller guarantees.
        let (lane_out, struct_size) = unsafe { tagged_out(lane_out) }?;
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let handle = unsafe { borrow(handle) }?;
        // SAFETY: NULL, or readable for as many bytes as stated, as the caller guarantees.
        let channel = unsafe { text(channel.0, channel.1) }?;
        // SAFETY: as above.
        let action = unsafe { text(action.0, action.1) }?;
        let (lane, known, first) = find(handle, channel, action).ok_or(Status::UnknownLane)?;
        let lane = ActionLane { struct_size, lane: lane.number(), known: known.into(), first_seen: first.into() };
        // SAFETY: not NULL and large enough, so writable as the caller guarantees.
        unsafe { lane_out.write(lane) };
        Ok(())
    })
}

/// The lane that pays for an action of a channel, by the policy in force. An
/// action that the policy does not name goes to the channel's lane for such,
/// is counted, and is told of once by name.
///
/// Status: UNKNOWN_LANE if the channel has no lane for it; NOT_UTF8,
/// TEXT_TOO_LONG, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `channel` and `action`
/// are NULL or readable for as many bytes as stated; `lane_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_lane_for(
    limiter: *mut Limiter,
    channel: *const c_char,
    channel_len: usize,
    action: *const c_char,
    action_len: usize,
    lane_out: *mut ActionLane,
) -> Status {
    let find = |limiter: &Limiter, channel: &str, action: &str| {
        let found = limiter.0.lane_for(channel, action)?;
        Some((found.lane(), found.is_known(), found.is_first_seen()))
    };
    // SAFETY: as this function's contract has it.
    unsafe { lane_for(limiter.cast_const(), (channel, channel_len), (action, action_len), lane_out, find) }
}

/// As tollgate_limiter_lane_for, by a policy that need not be in force: nothing
/// is counted, and first_seen is 0.
///
/// Status: as tollgate_limiter_lane_for.
///
/// # Safety
///
/// As tollgate_limiter_lane_for; `policy` is NULL or a policy that is not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_policy_lane_for(
    policy: *const Policy,
    channel: *const c_char,
    channel_len: usize,
    action: *const c_char,
    action_len: usize,
    lane_out: *mut ActionLane,
) -> Status {
    let find = |policy: &Policy, channel: &str, action: &str| match policy.0.lane_for(channel, action)? {
        tollgate::Classified::Known(lane) => Some((lane, true, false)),
        tollgate::Classified::Unknown(lane) => Some((lane, false, false)),
    };
    // SAFETY: as this function's contract has it.
    unsafe { lane_for(policy, (channel, channel_len), (action, action_len), lane_out, find) }
}

/// The unknown actions that a limiter has met: how many, and the first 256
/// names. It does not change, so any number of threads may use it at once.
pub struct UnknownActions(tollgate::observe::UnknownActionsSnapshot);

/// The unknown actions that were met so far: a copy, which the caller owns and
/// gives back with tollgate_unknown_actions_free.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `actions_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_unknown_actions(
    limiter: *const Limiter,
    actions_out: *mut *mut UnknownActions,
) -> Status {
    guard(|| {
        let actions_out = out(actions_out)?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let actions = unsafe { borrow(limiter) }?.0.unknown_actions();
        // SAFETY: not NULL, so writable by this function's contract.
        unsafe { hand_over(actions_out, UnknownActions(actions)) };
        Ok(())
    })
}

/// Gives unknown actions back. NULL is fine.
///
/// # Safety
///
/// `actions` is NULL, or came from tollgate_limiter_unknown_actions, was not
/// freed yet, and is in use by no other thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_unknown_actions_free(actions: *mut UnknownActions) {
    // SAFETY: as this function's contract has it.
    unsafe { take_back(actions) }
}

/// How many unknown actions arrived.
///
/// # Safety
///
/// `actions` is NULL, or not freed; `total_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_unknown_actions_total(actions: *const UnknownActions, total_out: *mut u64) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(actions, total_out, |actions| Ok(actions.0.total)) }
}

/// How many of them have a name that is not among those kept.
///
/// # Safety
///
/// `actions` is NULL, or not freed; `not_listed_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_unknown_actions_not_listed(
    actions: *const UnknownActions,
    not_listed_out: *mut u64,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(actions, not_listed_out, |actions| Ok(actions.0.not_listed)) }
}

/// How many names were kept. They are numbered from 0, sorted by channel and name.
///
/// # Safety
///
/// `actions` is NULL, or not freed; `count_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_unknown_actions_count(
    actions: *const UnknownActions,
    count_out: *mut usize,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { tell(actions, count_out, |actions| Ok(actions.0.names.len())) }
}

/// The channel of an unknown action, NUL-terminated, and its length without
/// the NUL. One longer than TOLLGATE_LANE_NAME_BYTES_MAX is cut to that.
///
/// A NULL buffer of size 0 asks for the length alone.
///
/// Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `actions` is NULL, or not freed; `channel_out` is NULL or writable for
/// `channel_size` bytes; `channel_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_unknown_actions_channel(
    actions: *const UnknownActions,
    index: usize,
    channel_out: *mut c_char,
    channel_size: usize,
    channel_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let actions = unsafe { borrow(actions) }?;
        let (channel, _) = actions.0.names.get(index).ok_or(Status::OutOfRange)?;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(channel, channel_out, channel_size, channel_len_out) }
    })
}

/// The name of an unknown action, NUL-terminated, and its length without the
/// NUL. One longer than TOLLGATE_LANE_NAME_BYTES_MAX is cut to that.
///
/// A NULL buffer of size 0 asks for the length alone.
///
/// Status: OUT_OF_RANGE, BUFFER_TOO_SMALL.
///
/// # Safety
///
/// `actions` is NULL, or not freed; `name_out` is NULL or writable for
/// `name_size` bytes; `name_len_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_unknown_actions_name(
    actions: *const UnknownActions,
    index: usize,
    name_out: *mut c_char,
    name_size: usize,
    name_len_out: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let actions = unsafe { borrow(actions) }?;
        let (_, name) = actions.0.names.get(index).ok_or(Status::OutOfRange)?;
        // SAFETY: the buffer and the length are as this function's contract has them.
        unsafe { put_text(name, name_out, name_size, name_len_out) }
    })
}
