//! Actions: from what an agent does to the lane that pays for it.

use super::guard::guard;
use super::pointers::{ListOut, Tagged, borrow, tagged_out, text, text_array};
use super::{Limiter, Status};
use crate as tollgate;
use std::ffi::c_char;

/// How many names of unknown actions a limiter keeps.
pub const TOLLGATE_UNKNOWN_ACTIONS_MAX: usize = 256;
/// Room for a channel or the name of an action, its NUL included.
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
    /// 1 if the policy names the action; 0 if the lane is the one for unknown actions.
    pub known: u32,
    /// 1 if the limiter meets this unknown action for the first time: worth a
    /// line in the log. Else 0.
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
    /// Its channel, NUL-terminated, cut to 64 bytes.
    pub channel: [c_char; TOLLGATE_ACTION_BYTES],
    /// Its name, NUL-terminated, cut to 64 bytes.
    pub name: [c_char; TOLLGATE_ACTION_BYTES],
}

/// How many unknown actions a limiter has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct UnknownActionTotals {
    /// Set it to sizeof(tollgate_unknown_action_totals) before the call.
    pub struct_size: u32,
    /// How many names were kept, up to TOLLGATE_UNKNOWN_ACTIONS_MAX.
    pub count: u32,
    /// How many unknown actions arrived.
    pub total: u64,
    /// How many of them have a name that was not kept.
    pub not_listed: u64,
}

const _: () = assert!(size_of::<UnknownActionTotals>() == 24);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for UnknownActionTotals {
    const SIZE_MIN: u32 = 24;
}

/// The lane that pays for an action of a channel, by the policy in force: for
/// ("ws", "search") it may be "ws/heavy". An action that the policy does not
/// name goes to the channel's lane for unknown actions, and is counted.
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

/// The unknown actions that the limiter has met so far, sorted by channel and
/// name: add them to the policy. actions_out gets at most actions_max of them,
/// and may be NULL if that is 0; totals_out says how many there are.
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
