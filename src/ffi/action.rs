//! Actions: which lane pays for what an agent does.

use super::guard::guard;
use super::pointers::{ListOut, Tagged, borrow, tagged_out, text, text_array};
use super::{Limiter, Status};
use crate as tollgate;
use std::ffi::c_char;

/// How many names of unknown actions a limiter keeps.
pub const TOLLGATE_UNKNOWN_ACTIONS_MAX: usize = 256;
/// Room for a channel or the name of an action: 64 bytes and a NUL, rounded up.
pub const TOLLGATE_ACTION_BYTES: usize = 72;

const _: () = assert!(TOLLGATE_UNKNOWN_ACTIONS_MAX == tollgate::bounds::UNKNOWN_ACTIONS_MAX);
const _: () = assert!(TOLLGATE_ACTION_BYTES > tollgate::bounds::LANE_NAME_BYTES_MAX);

/// The lane of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ActionLane {
    /// Set it to sizeof(tollgate_action_lane) before the call.
    pub struct_size: u32,
    /// The lane that pays for the action.
    pub lane: u32,
    /// 1 if the policy names the action; 0 if the lane is the channel's lane for
    /// unknown actions.
    pub known: u32,
    /// 1 if this unknown action arrived for the first time, which is worth a line
    /// in the log. Else 0.
    pub first_seen: u32,
}

const _: () = assert!(size_of::<ActionLane>() == 16);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for ActionLane {
    const SIZE_MIN: u32 = 16;
}

/// An action that the policy does not name. It never grows.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct UnknownAction {
    /// Its channel, NUL-terminated, truncated to 64 bytes.
    pub channel: [c_char; TOLLGATE_ACTION_BYTES],
    /// Its name, NUL-terminated, truncated to 64 bytes.
    pub name: [c_char; TOLLGATE_ACTION_BYTES],
}

/// How many unknown actions have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UnknownActionTotals {
    /// Set it to sizeof(tollgate_unknown_action_totals) before the call.
    pub struct_size: u32,
    /// How many names the limiter has kept, up to TOLLGATE_UNKNOWN_ACTIONS_MAX.
    pub count: u32,
    /// How often an unknown action arrived.
    pub total: u64,
    /// How often one arrived whose name was not kept.
    pub not_listed: u64,
}

const _: () = assert!(size_of::<UnknownActionTotals>() == 24);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for UnknownActionTotals {
    const SIZE_MIN: u32 = 24;
}

/// The lane that pays for an action of a channel under the policy in force:
/// "ws/heavy", for example, for "search" of the channel "ws". An action that the
/// policy does not name gets the channel's lane for unknown actions, and is
/// counted.
///
/// Status: UNKNOWN_LANE if the channel has no lane for unknown actions either; NOT_UTF8,
/// TEXT_TOO_LONG, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `channel` and `action`
/// are NULL or readable for as many bytes as stated; `lane_out` is NULL, or
/// readable and writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_lane_for(
    limiter: *mut Limiter,
    channel: *const c_char,
    channel_len: usize,
    action: *const c_char,
    action_len: usize,
    lane_out: *mut ActionLane,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (lane_out, struct_size) = unsafe { tagged_out(lane_out) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for as many bytes as stated, by this function's contract.
        let channel = unsafe { text(channel, channel_len) }?;
        // SAFETY: as above.
        let action = unsafe { text(action, action_len) }?;
        let found = limiter.0.lane_for(channel, action).ok_or(Status::UnknownLane)?;
        let lane = ActionLane {
            struct_size,
            lane: found.lane().number(),
            known: found.is_known().into(),
            first_seen: found.is_first_seen().into(),
        };
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { lane_out.write(lane) };
        Ok(())
    })
}

/// The unknown actions that have arrived so far, sorted by channel and name, so
/// that you can add them to the policy. actions_out gets at most actions_max of
/// them; totals_out has how many there are.
///
/// Status: STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `actions_out` is NULL or
/// writable for `actions_max` actions; `totals_out` is NULL, or readable and
/// writable for as many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_unknown_actions(
    limiter: *const Limiter,
    actions_out: *mut UnknownAction,
    actions_max: usize,
    totals_out: *mut UnknownActionTotals,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, by this function's contract.
        let (totals_out, struct_size) = unsafe { tagged_out(totals_out) }?;
        // SAFETY: NULL, or writable for as many actions, by this function's contract.
        let actions_out = unsafe { ListOut::new(actions_out, actions_max) }?;
        // SAFETY: NULL, or alive and shared, by this function's contract.
        let unknown = unsafe { borrow(limiter) }?.0.unknown_actions();
        let named =
            |(channel, name): &(String, String)| UnknownAction { channel: text_array(channel), name: text_array(name) };
        actions_out.write(unknown.names.iter().map(named));
        let (total, not_listed) = (unknown.total, unknown.not_listed);
        let totals = UnknownActionTotals { struct_size, count: unknown.names.len() as u32, total, not_listed };
        // SAFETY: not NULL and large enough, so writable by this function's contract.
        unsafe { totals_out.write(totals) };
        Ok(())
    })
}
