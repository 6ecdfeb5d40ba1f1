//! What is known of an agent: looked at, given back, forgotten.

use super::guard::guard;
use super::pointers::{Tagged, agent, borrow, plan_id, tagged_out, tell};
use super::{Limiter, Status, TOLLGATE_NEVER};
use crate as tollgate;
use std::ffi::c_void;
use tollgate::{Agent, LaneId, Request, Tick};

/// A lane of an agent as it stands, without having been charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LaneStatus {
    /// Set it to sizeof(tollgate_lane_status) before the call; it stays as it is.
    pub struct_size: u32,
    /// 1 if the agent is never limited, else 0.
    pub exempt: u32,
    /// Whole tokens that could be charged now; UINT64_MAX of an exempt agent.
    pub remaining: u64,
    /// What the lane holds when it is full; 0 if it denies everything,
    /// UINT64_MAX of an exempt agent.
    pub capacity: u64,
    /// How long until there is one more whole token than now; TOLLGATE_NEVER
    /// if the lane is full or denies everything.
    pub next_in_ns: u64,
    /// How long until the lane is full again, if nothing more is charged.
    pub full_in_ns: u64,
}

const _: () = assert!(size_of::<LaneStatus>() == 40);

// SAFETY: `repr(C)`, and `struct_size` comes first.
unsafe impl Tagged for LaneStatus {
    const SIZE_MIN: u32 = 40;
}

/// A whole call that ends in the status of a lane.
///
/// # Safety
///
/// As [`tollgate_limiter_status`].
pub(super) unsafe fn lane_status(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    status_out: *mut LaneStatus,
    ask: impl FnOnce(&tollgate::Limiter, &[u8]) -> Result<tollgate::Status, Status>,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or valid for as many bytes as its tag says, as the caller guarantees.
        let (status_out, struct_size) = unsafe { tagged_out(status_out) }?;
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `id_len` bytes, as the caller guarantees.
        let status = ask(&limiter.0, unsafe { agent(id, id_len) }?)?;
        let status = LaneStatus {
            struct_size,
            exempt: status.is_exempt().into(),
            remaining: status.remaining(),
            capacity: status.capacity(),
            next_in_ns: status.next_in().map_or(TOLLGATE_NEVER, crate::clock::nanos_saturating),
            full_in_ns: crate::clock::nanos_saturating(status.full_in()),
        };
        // SAFETY: not NULL and large enough, so writable as the caller guarantees.
        unsafe { status_out.write(status) };
        Ok(())
    })
}

/// A whole call that changes what is known of an agent and tells nothing.
///
/// # Safety
///
/// As [`tollgate_limiter_reset`].
unsafe fn change(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    change: impl FnOnce(&tollgate::Limiter, &[u8]) -> Result<(), tollgate::Error>,
) -> Status {
    guard(|| {
        // SAFETY: NULL, or alive and shared, as the caller guarantees.
        let limiter = unsafe { borrow(limiter) }?;
        // SAFETY: NULL, or readable for `id_len` bytes, as the caller guarantees.
        Ok(change(&limiter.0, unsafe { agent(id, id_len) }?)?)
    })
}

/// Looks at a lane of an agent, without charging it or making the agent known.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, STRUCT_SIZE.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `status_out` is NULL, or readable and writable for as
/// many bytes as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_status(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    status_out: *mut LaneStatus,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe {
        lane_status(limiter, id, id_len, status_out, |limiter, id| {
            Ok(limiter.peek(Request::new(id, LaneId::new(lane)))?)
        })
    }
}

/// Looks at a lane of an agent at an instant of the caller's.
///
/// Status: as tollgate_limiter_status.
///
/// # Safety
///
/// As tollgate_limiter_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_status_at(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    now_ns: u64,
    status_out: *mut LaneStatus,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    let ask = |limiter: &tollgate::Limiter, id: &[u8]| Ok(limiter.peek(Request::new(id, LaneId::new(lane)).at(now))?);
    // SAFETY: as this function's contract has it.
    unsafe { lane_status(limiter, id, id_len, status_out, ask) }
}

/// Looks at a lane under this plan, if the agent has no assignment of its own;
/// see tollgate_limiter_check_as.
///
/// Status: as tollgate_limiter_status, and UNKNOWN_PLAN.
///
/// # Safety
///
/// As tollgate_limiter_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_status_as(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    plan: u32,
    lane: u32,
    status_out: *mut LaneStatus,
) -> Status {
    let ask = |limiter: &tollgate::Limiter, id: &[u8]| {
        Ok(limiter.peek(Request::new(id, LaneId::new(lane)).plan(plan_id(plan)?))?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { lane_status(limiter, id, id_len, status_out, ask) }
}

/// As tollgate_limiter_status_as, at an instant of the caller's.
///
/// Status: as tollgate_limiter_status_as.
///
/// # Safety
///
/// As tollgate_limiter_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_status_as_at(
    limiter: *const Limiter,
    id: *const c_void,
    id_len: usize,
    plan: u32,
    lane: u32,
    now_ns: u64,
    status_out: *mut LaneStatus,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    let ask = |limiter: &tollgate::Limiter, id: &[u8]| {
        Ok(limiter.peek(Request::new(id, LaneId::new(lane)).plan(plan_id(plan)?).at(now))?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { lane_status(limiter, id, id_len, status_out, ask) }
}

/// Gives `cost` tokens back, never beyond full, and tells how the lane then
/// stands. An agent without a record is full already.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE, ZERO_COST, COST_ABOVE_CAPACITY,
/// STRUCT_SIZE.
///
/// # Safety
///
/// As tollgate_limiter_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_refund(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    cost: u64,
    status_out: *mut LaneStatus,
) -> Status {
    let ask =
        |limiter: &tollgate::Limiter, id: &[u8]| Ok(limiter.refund(Request::new(id, LaneId::new(lane)).cost(cost))?);
    // SAFETY: as this function's contract has it.
    unsafe { lane_status(limiter, id, id_len, status_out, ask) }
}

/// Gives `cost` tokens back at an instant of the caller's, or at the clock's
/// time if that is later.
///
/// Status: as tollgate_limiter_refund.
///
/// # Safety
///
/// As tollgate_limiter_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_refund_at(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    cost: u64,
    now_ns: u64,
    status_out: *mut LaneStatus,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    let ask = |limiter: &tollgate::Limiter, id: &[u8]| {
        Ok(limiter.refund(Request::new(id, LaneId::new(lane)).cost(cost).at(now))?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { lane_status(limiter, id, id_len, status_out, ask) }
}

/// Gives `cost` tokens back under this plan, if the agent has no assignment of
/// its own: the plan that tollgate_limiter_check_as charged under. A token is
/// worth what it costs under the limit that applies.
///
/// Status: as tollgate_limiter_refund, and UNKNOWN_PLAN.
///
/// # Safety
///
/// As tollgate_limiter_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_refund_as(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    plan: u32,
    lane: u32,
    cost: u64,
    status_out: *mut LaneStatus,
) -> Status {
    let ask = |limiter: &tollgate::Limiter, id: &[u8]| {
        Ok(limiter.refund(Request::new(id, LaneId::new(lane)).cost(cost).plan(plan_id(plan)?))?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { lane_status(limiter, id, id_len, status_out, ask) }
}

/// As tollgate_limiter_refund_as, at an instant of the caller's.
///
/// Status: as tollgate_limiter_refund_as.
///
/// # Safety
///
/// As tollgate_limiter_status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_refund_as_at(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    plan: u32,
    lane: u32,
    cost: u64,
    now_ns: u64,
    status_out: *mut LaneStatus,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    let ask = |limiter: &tollgate::Limiter, id: &[u8]| {
        Ok(limiter.refund(Request::new(id, LaneId::new(lane)).cost(cost).plan(plan_id(plan)?).at(now))?)
    };
    // SAFETY: as this function's contract has it.
    unsafe { lane_status(limiter, id, id_len, status_out, ask) }
}

/// Fills every lane of the agent, one after the other. What is reserved has
/// nothing to give back any more. Slots that are held stay held.
///
/// Status: EMPTY_ID, ID_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_reset(limiter: *mut Limiter, id: *const c_void, id_len: usize) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { change(limiter, id, id_len, |limiter, id| limiter.reset(id)) }
}

/// Fills every lane of the agent at an instant of the caller's.
///
/// Status: as tollgate_limiter_reset.
///
/// # Safety
///
/// As tollgate_limiter_reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_reset_at(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { change(limiter, id, id_len, |limiter, id| limiter.reset(Agent::new(id).at(Tick::from_nanos(now_ns)))) }
}

/// Fills one lane of the agent; as tollgate_limiter_reset.
///
/// Status: EMPTY_ID, ID_TOO_LONG, UNKNOWN_LANE.
///
/// # Safety
///
/// As tollgate_limiter_reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_reset_lane(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
) -> Status {
    // SAFETY: as this function's contract has it.
    unsafe { change(limiter, id, id_len, |limiter, id| limiter.reset_lane(id, LaneId::new(lane))) }
}

/// Fills one lane of the agent at an instant of the caller's.
///
/// Status: as tollgate_limiter_reset_lane.
///
/// # Safety
///
/// As tollgate_limiter_reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_reset_lane_at(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    lane: u32,
    now_ns: u64,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    // SAFETY: as this function's contract has it.
    unsafe { change(limiter, id, id_len, |limiter, id| limiter.reset_lane(Agent::new(id).at(now), LaneId::new(lane))) }
}

/// Forgets the agent: its record is vacant again, and its next check is its
/// first. Its reservations are closed. Tells whether anything was known of it.
/// Slots that are held stay held, so an agent that holds one keeps its record,
/// with all other lanes filled; as may one that is checked in the same moment.
///
/// Status: EMPTY_ID, ID_TOO_LONG.
///
/// # Safety
///
/// `limiter` is NULL or a limiter that is not freed; `id` is NULL or readable
/// for `id_len` bytes; `known_out` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_forget(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    known_out: *mut bool,
) -> Status {
    // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
    let forget = |limiter: &Limiter| Ok(limiter.0.forget(unsafe { agent(id, id_len) }?)?);
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, known_out, forget) }
}

/// Forgets the agent at an instant of the caller's.
///
/// Status: as tollgate_limiter_forget.
///
/// # Safety
///
/// As tollgate_limiter_forget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollgate_limiter_forget_at(
    limiter: *mut Limiter,
    id: *const c_void,
    id_len: usize,
    now_ns: u64,
    known_out: *mut bool,
) -> Status {
    let now = Tick::from_nanos(now_ns);
    // SAFETY: NULL, or readable for `id_len` bytes, by this function's contract.
    let forget = |limiter: &Limiter| Ok(limiter.0.forget(Agent::new(unsafe { agent(id, id_len) }?).at(now))?);
    // SAFETY: as this function's contract has it.
    unsafe { tell(limiter, known_out, forget) }
}
